// Frames of a stream that has ended, which come when its queue pairs are in RTS again on another: a path that holds
// them back, or says them twice.
#include "mpa/meeting.hpp"
#include "unit/core/network.hpp"

using namespace rnic;
using namespace rnic::test::network;
using core::StreamEvent;
using wire::Meeting;

namespace {

constexpr unsigned kRounds = 1000;
constexpr std::size_t kBytes = 3000;  // of each message: three segments

// Two queue pairs that meet without rdma_cm, end, and meet again, on a path whose frames of earlier streams come later.
class Late {
 public:
  // `port`: of the caller's; 0, and each call has another.
  explicit Late(const WorldOptions& options, std::uint16_t port) : world(options), port_(port) {
    for (Side* side : {&a, &b}) {
      side->endpoint = &side->rnic.make_qp(plain());
      side->stag = side->rnic.register_memory(side->memory, tpt::Rights::local_read | tpt::Rights::local_write |
                                                                tpt::Rights::remote_read | tpt::Rights::remote_write);
    }
    REQUIRE(world.b.device.listen({}, kPort, 8, 77));
    world.b.on_event = [this](const StreamEvent& event) {
      if (event.kind != StreamEvent::Kind::connect_request) return;
      core::AcceptOptions answer;
      answer.ird = answer.ord = 4;
      answer.private_data = saying(meeting_of(b));
      answer.outlives_peer = true;
      REQUIRE(world.b.device.accept(event.stream, answer, *b.endpoint->qp, world.clock.now));
    };
    for (sim::Link* link : {&world.a_to_b, &world.b_to_a})
      link->tap([this, link](Bytes frame) { said_[link == &world.b_to_a].emplace_back(frame.begin(), frame.end()); });
  }

  struct Side {
    sim::Rnic& rnic;
    sim::Endpoint* endpoint = nullptr;
    std::vector<std::byte> memory = std::vector<std::byte>(3 * kBytes);  // to be sent; for a Send; for a Write
    Stag stag{};

    qp::Sge piece(std::size_t which) const {
      return {reinterpret_cast<std::uintptr_t>(memory.data()) + which * kBytes, kBytes, stag};
    }
    bool is_all(std::size_t which, std::byte octet) const {
      const auto from = memory.begin() + static_cast<std::ptrdiff_t>(which * kBytes);
      return std::all_of(from, from + kBytes, [&](std::byte each) { return each == octet; });
    }
    const std::vector<qp::Completion>& completions() const { return endpoint->host.completions; }
  };

  void meet() {
    core::ConnectOptions call;
    call.remote = sim::kAddressB;
    call.local_port = port_;
    call.remote_port = kPort;
    call.ird = call.ord = 4;
    call.meeting = meeting_of(a);
    call.private_data = saying(meeting_of(a));
    REQUIRE(world.a.device.connect(call, *a.endpoint->qp, world.clock.now));
    const auto established = [&](const sim::Rnic& rnic) {
      return std::any_of(rnic.events.begin(), rnic.events.end(),
                         [](const StreamEvent& event) { return event.kind == StreamEvent::Kind::established; });
    };
    REQUIRE(world.run_until([&] { return established(world.a) && established(world.b); }, seconds(30)));
    world.a.events.clear();
    world.b.events.clear();
  }
  // Each sends to the other and writes to it, with this octet; `receive`: whether receives are posted for the Sends.
  void work(std::byte octet, bool receive) {
    for (Side* side : {&a, &b}) {
      Side& peer = side == &a ? b : a;
      std::fill_n(side->memory.begin(), kBytes, octet);
      if (receive) post_receive(peer);
      qp::WorkRequest send;
      send.signaled = true;
      send.sge_count = 1;
      send.sges[0] = side->piece(0);
      side->rnic.post_send(*side->endpoint, send);
      qp::WorkRequest write = send;
      write.opcode = qp::Opcode::write;
      write.remote_stag = peer.stag;
      write.remote_to = peer.piece(2).address;
      side->rnic.post_send(*side->endpoint, write);
    }
  }
  void post_receive(Side& side) {
    qp::ReceiveRequest receive;
    receive.sge_count = 1;
    receive.sges[0] = side.piece(1);
    side.rnic.post_receive(*side.endpoint, receive);
  }
  void blackout(bool dark) {
    for (sim::Link* link : {&world.a_to_b, &world.b_to_a}) {
      sim::LinkOptions options = link->options();
      options.loss_per_1000 = dark ? 1000 : 0;
      link->set_options(options);
    }
  }
  // RESET of one: what was posted and has completed goes with it.
  void reset(Side& side) {
    REQUIRE(side.endpoint->qp->modify_state(qp::State::error, world.clock.now));
    side.rnic.device.touch(*side.endpoint->qp);
    REQUIRE(world.run_until(
        [&] { return side.endpoint->qp->modify_state(qp::State::idle, world.clock.now).has_value(); }, seconds(30)));
  }
  void clear(Side& side) {
    side.endpoint->host.completions.clear();
    side.endpoint->host.receives.clear();
    side.endpoint->host.sends.clear();
    side.rnic.events.clear();
    std::fill(side.memory.begin(), side.memory.end(), std::byte{0});
  }
  using Said = std::array<std::vector<sim::Frame>, 2>;  // A's, B's
  Said take_said() { return std::exchange(said_, {}); }
  void says(const Said& frames) {
    for (const sim::Frame& frame : frames[0]) world.a_to_b.send(frame, world.clock.now);
    for (const sim::Frame& frame : frames[1]) world.b_to_a.send(frame, world.clock.now);
  }

  World world;
  Side a{world.a}, b{world.b};

 private:
  Meeting meeting_of(const Side& side) const {
    const Side& peer = &side == &a ? b : a;
    const auto psn = [&](const Side& of) { return &of == &a ? 100u : 200u; };
    const auto number = [&](const Side& of) { return QpNumber{&of == &a ? 7u : 9u}; };
    const auto gid = [&](const Side& of) { return &of == &a ? sim::kAddressA : sim::kAddressB; };
    return {.own_gid = gid(side),
            .peer_gid = gid(peer),
            .own_number = number(side),
            .peer_number = number(peer),
            .own_psn = psn(side),
            .due_psn = psn(peer)};
  }
  static core::PrivateData saying(const Meeting& meeting) {
    wire::Mark mark;
    mark.capabilities = mark.needed = mpa::mark_capabilities(Face::iwarp);
    mark.meeting = meeting;
    core::PrivateData data;
    data.length = static_cast<std::uint16_t>(wire::emit(mark, data.octets));
    return data;
  }

  std::uint16_t port_;
  Said said_;
};

}  // namespace

TEST_CASE("of a stream that has ended nothing is placed or completes on the next, in a thousand rounds",
          "[core][oob][late]") {
  // From one port again and again it is timestamps that tell the streams from each other: the first number of a stream
  // is 250 a millisecond behind that of the one before, and what that has sent is more.
  const bool one_port = GENERATE(true, false);
  WorldOptions options;
  options.a.device.tcp.timestamps = options.b.device.tcp.timestamps = one_port;
  Late t(options, one_port ? 40'000 : 0);
  Late::Said old;
  for (unsigned round = 0; round < kRounds; ++round) {
    t.meet();
    // All that was said in the round before comes now, to both.
    for (Late::Side* side : {&t.a, &t.b}) t.post_receive(*side);
    t.says(old);
    (void)t.take_said();
    t.world.run_for(milliseconds(2));
    for (const Late::Side* side : {&t.a, &t.b}) {
      REQUIRE(side->completions().empty());
      REQUIRE(side->endpoint->host.receives.size() == 1);
      REQUIRE(side->is_all(1, std::byte{0}));
      REQUIRE(side->is_all(2, std::byte{0}));
      REQUIRE(side->endpoint->qp->state() == qp::State::rts);
    }
    REQUIRE(t.world.a.events.empty());
    REQUIRE(t.world.b.events.empty());
    // What is said on this stream arrives. What follows is said, and held back until there is another.
    const std::byte mark{static_cast<unsigned char>(1 + round % 200)};
    t.work(mark, false);
    REQUIRE(
        t.world.run_until([&] { return t.a.completions().size() == 3 && t.b.completions().size() == 3; }, seconds(30)));
    for (const Late::Side* side : {&t.a, &t.b}) {
      REQUIRE(side->is_all(1, mark));
      REQUIRE(side->is_all(2, mark));
    }
    t.blackout(true);
    t.work(std::byte{0xEE}, true);
    t.world.run_for(milliseconds(1));
    // The one, or the other, or both know at once that it has ended; who does not hears of it from the next SYN.
    t.reset(round % 2 == 0 ? t.a : t.b);
    t.blackout(round % 3 == 0);
    t.reset(round % 2 == 0 ? t.b : t.a);
    t.blackout(false);
    t.world.run_for(milliseconds(2));
    old = t.take_said();  // the RSTs too
    for (Late::Side* side : {&t.a, &t.b}) t.clear(*side);
  }
}
