// Memory for queues whose descriptor does not reach the application: it has as many as it may.
#include "support/catch.hpp"

#include <sys/resource.h>

#include "provider/fake_daemon.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

// While it lives, this process can have so many descriptors more: none, or one. The kernel drops what comes with a
// message beyond that.
class DescriptorsLeft {
 public:
  explicit DescriptorsLeft(rlim_t count) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int lowest_free = dup(STDERR_FILENO);
    close(lowest_free);
    const rlimit limit{static_cast<rlim_t>(lowest_free) + count, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  ~DescriptorsLeft() { setrlimit(RLIMIT_NOFILE, &before_); }
  DescriptorsLeft(const DescriptorsLeft&) = delete;
  DescriptorsLeft& operator=(const DescriptorsLeft&) = delete;

 private:
  rlimit before_{};
};

// The errno of a call that gives nothing while no descriptor can be received; 0: it gave something.
template <typename Make>
int refusal(rlim_t left, Make make) {
  const DescriptorsLeft scarce(left);
  return make() == nullptr ? errno : 0;
}

ibv_comp_channel channel_of(FakeDaemon& daemon, Application& app) {
  ibv_comp_channel channel{};
  channel.context = &app.context->verbs.context;
  channel.fd = daemon.make_channel();
  return channel;
}

}  // namespace

TEST_CASE("a CQ whose memory could not be received is refused, and made on the next try", "[provider]") {
  FakeDaemon daemon;
  Application app(daemon);
  for (int i = 0; i < 2; ++i) CHECK(refusal(0, [&] { return app.make_cq(16); }) == EMFILE);
  ibv_cq* cq = app.make_cq(16);
  REQUIRE(cq != nullptr);
  ibv_wc wc;
  CHECK(provider::poll_cq(cq, 1, &wc) == 0);
}

TEST_CASE("so are QPs and SRQs", "[provider]") {
  FakeDaemon daemon;
  Application app(daemon);
  ibv_cq* cq = app.make_cq(16);
  daemon.begin_arena();
  CHECK(refusal(0, [&] { return app.make_qp(cq, cq, 4); }) == EMFILE);
  CHECK(app.make_qp(cq, cq, 4) != nullptr);
  daemon.begin_arena();
  ibv_srq_init_attr init{};
  init.attr = {4, 4, 0};
  CHECK(refusal(0, [&] { return provider::create_srq(app.pd, &init); }) == EMFILE);
  CHECK(provider::create_srq(app.pd, &init) != nullptr);
}

TEST_CASE("a CQ without its channel's other end is refused", "[provider]") {
  FakeDaemon daemon;
  Application app(daemon);
  ibv_comp_channel channel = channel_of(daemon, app);
  // With one descriptor left it is the arena's; with none left, in an arena that is there, it is the channel's too.
  CHECK(refusal(1, [&] { return app.make_cq(16, &channel); }) == EMFILE);
  CHECK(refusal(0, [&] { return app.make_cq(16, &channel); }) == EMFILE);
  ibv_cq* cq = app.make_cq(16, &channel);
  REQUIRE(cq != nullptr);
  CHECK(provider::of(cq).channel_writer >= 0);
}

TEST_CASE("a CQ is not resized into an arena that could not be received", "[provider]") {
  OneQp t;
  t.post_write(1);
  t.complete_send(0);
  t.daemon.begin_arena();
  {
    const DescriptorsLeft none(0);
    CHECK(provider::resize_cq(t.send_cq, 64) == EMFILE);
  }
  CHECK(t.app.fake(t.send_cq).size == 16);
  t.post_write(2);
  t.complete_send(1);
  ibv_wc wc[2];
  CHECK(provider::poll_cq(t.send_cq, 1, wc) == 1);
  CHECK(wc[0].wr_id == 1);

  CHECK(provider::resize_cq(t.send_cq, 64) == 0);
  CHECK(t.send_cq->cqe == 64);
  CHECK(provider::poll_cq(t.send_cq, 2, wc) == 1);
  CHECK(wc[0].wr_id == 2);
}

TEST_CASE("nor into one that another queue's maker could not receive", "[provider]") {
  OneQp t;
  t.daemon.begin_arena();
  CHECK(refusal(0, [&] { return t.app.make_cq(16); }) == EMFILE);
  {
    const DescriptorsLeft none(0);
    CHECK(provider::resize_cq(t.send_cq, 64) == EMFILE);
  }
  CHECK(t.app.fake(t.send_cq).size == 16);
  t.post_write(1);
  t.complete_send(0);
  CHECK(provider::resize_cq(t.send_cq, 64) == 0);
  ibv_wc wc;
  CHECK(provider::poll_cq(t.send_cq, 1, &wc) == 1);
  CHECK(wc.wr_id == 1);
}
