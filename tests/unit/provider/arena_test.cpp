// Memory for queues whose descriptor does not reach the application: it has as many as it may, and the kernel drops
// what comes with a message beyond that.
#include "kit/catch.hpp"

#include "unit/provider/daemon.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

// While it lives, no queue's memory arrives.
class NoDescriptors {
 public:
  explicit NoDescriptors(TestDaemon& daemon) : relay_(daemon.relay()) {
    for (const std::uint32_t type : {RNIC_CREATE_CQ, RNIC_CREATE_QP, RNIC_CREATE_SRQ, RNIC_RESIZE_CQ, RNIC_MAP_ARENA})
      relay_.harm(type, harm::take_descriptors, 0);
  }
  ~NoDescriptors() { relay_.no_harm(); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  Relay& relay_;
};

// The errno of a call that gives nothing while no descriptor arrives; 0: it gave something.
template <typename Make>
int refusal(TestDaemon& daemon, Make make) {
  const NoDescriptors none(daemon);
  return make() == nullptr ? errno : 0;
}

// The next queue begins an arena: this one fills its own.
void fill_arena(Application& app) { REQUIRE(app.make_cq(100'000) != nullptr); }

}  // namespace

TEST_CASE("a CQ whose memory could not be received is refused, and made on the next try", "[provider]") {
  TestDaemon daemon;
  Application app(daemon);
  for (int i = 0; i < 2; ++i) CHECK(refusal(daemon, [&] { return app.make_cq(16); }) == EMFILE);
  ibv_cq* cq = app.make_cq(16);
  REQUIRE(cq != nullptr);
  ibv_wc wc;
  CHECK(provider::poll_cq(cq, 1, &wc) == 0);
}

TEST_CASE("so are QPs and SRQs", "[provider]") {
  TestDaemon daemon;
  Application app(daemon);
  ibv_cq* cq = app.make_cq(16);
  fill_arena(app);
  CHECK(refusal(daemon, [&] { return app.make_qp(cq, cq, 4); }) == EMFILE);
  CHECK(app.make_qp(cq, cq, 4) != nullptr);
  fill_arena(app);
  ibv_srq_init_attr init{};
  init.attr = {4, 4, 0};
  CHECK(refusal(daemon, [&] { return provider::create_srq(app.pd, &init); }) == EMFILE);
  CHECK(provider::create_srq(app.pd, &init) != nullptr);
}

TEST_CASE("a CQ without its channel's other end is refused", "[provider]") {
  TestDaemon daemon;
  Application app(daemon);
  ibv_comp_channel channel = daemon.make_channel();
  channel.context = &app.context->verbs.context;
  // It comes behind the arena's; in an arena that is there, alone.
  const auto take_last = [](const Asked&, Passing& reply) { reply.fds.pop_back(); };
  daemon.relay().harm(RNIC_CREATE_CQ, take_last, 2);
  for (int i = 0; i < 2; ++i) {
    CHECK(app.make_cq(16, &channel) == nullptr);
    CHECK(errno == EMFILE);
  }
  ibv_cq* cq = app.make_cq(16, &channel);
  REQUIRE(cq != nullptr);
  CHECK(provider::of(cq).channel_writer >= 0);
}

TEST_CASE("a CQ is not resized into an arena that could not be received", "[provider]") {
  OneQp t;
  t.post_write(1);
  t.complete_send(0);
  fill_arena(t.app);
  {
    const NoDescriptors none(t.daemon);
    CHECK(provider::resize_cq(t.send_cq, 64) == EMFILE);
  }
  t.post_write(2);
  t.complete_send(1);  // into the ring that both have
  ibv_wc wc[2];
  CHECK(provider::poll_cq(t.send_cq, 1, wc) == 1);
  CHECK(wc[0].wr_id == 1);

  CHECK(provider::resize_cq(t.send_cq, 64) == 0);
  CHECK(t.send_cq->cqe >= 64);
  CHECK(provider::poll_cq(t.send_cq, 2, wc) == 1);
  CHECK(wc[0].wr_id == 2);
}

TEST_CASE("nor into one that another queue's maker could not receive", "[provider]") {
  OneQp t;
  fill_arena(t.app);
  CHECK(refusal(t.daemon, [&] { return t.app.make_cq(16); }) == EMFILE);
  {
    const NoDescriptors none(t.daemon);
    CHECK(provider::resize_cq(t.send_cq, 64) == EMFILE);
  }
  t.post_write(1);
  t.complete_send(0);
  ibv_wc wc;
  CHECK(provider::poll_cq(t.send_cq, 1, &wc) == 1);
  CHECK(wc.wr_id == 1);
  CHECK(provider::resize_cq(t.send_cq, 64) == 0);
  t.post_write(2);
  t.complete_send(1);
  CHECK(provider::poll_cq(t.send_cq, 1, &wc) == 1);
  CHECK(wc.wr_id == 2);
}
