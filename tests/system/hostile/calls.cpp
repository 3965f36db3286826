// Calls of rdma_cm between RoCE faces, for connections or for datagrams: without end, to listeners that never answer,
// by callers that go in the middle, of several processes. Who listens and answers is called meanwhile.
#include <unistd.h>

#include <deque>
#include <memory>

#include "system/hostile/victim.hpp"

namespace rnic::hostile {
namespace {

constexpr std::uint32_t kQueuePair = 0x123;  // of a call it is said, and nothing else
constexpr int kAnswerMs = 10'000;
constexpr std::uint32_t kListeners = 6, kCallers = 64, kHostile = 4;

rnic_address roce_address(const std::string& socket) {
  const bare::Application app(socket, {.device = bare::device_of(socket, RNIC_FACE_ROCE)});
  return bare::address_of(app.device());
}

// Listens and answers, calls itself and is answered; tells how often that was done, or what came instead.
class Honest {
 public:
  Honest(const std::string& socket, const rnic_address& at, std::uint32_t space)
      : space_(space),
        called_(socket),
        caller_(socket),
        listener_(bare::listening(called_, at, 16, space)),
        to_(called_.query(listener_).source) {}

  // False: too many wait for others, says the daemon, and it is to be tried again.
  bool once() {
    const std::uint32_t id = bare::resolved(caller_, to_, space_);
    if (!caller_.connect(id, kQueuePair).good()) bare::fail("an honest call: CM_CONNECT");
    const bool came = space_ == bare::Channel::kTcp ? answered(id) : asked(id);
    if (!caller_.destroy_id(id).good()) bare::fail("CM_DESTROY_ID");
    return came;
  }

 private:
  // Either that, or the caller is refused.
  std::optional<std::uint32_t> request(std::uint32_t refusal) {
    for (Seconds start = now(); now() - start < kAnswerMs / 1000.0;) {
      if (const auto told = called_.event(5)) return told->id;
      if (const auto told = caller_.event(5)) {
        if (told->event == refusal) return std::nullopt;
        bare::fail("event " + std::to_string(told->event) + " of an honest call");
      }
    }
    bare::fail("an honest call came nowhere");
  }
  bool answered(std::uint32_t id) {
    const auto child = request(RNIC_CM_REJECTED);
    if (!child) return false;
    if (!called_.accept(*child, kQueuePair).good()) bare::fail("CM_ACCEPT");
    caller_.expect(RNIC_CM_CONNECT_RESPONSE);
    if (!caller_.confirm(id).good()) bare::fail("CM_ACCEPT of who called");
    called_.expect(RNIC_CM_ESTABLISHED);
    if (!caller_.disconnect(id).good()) bare::fail("CM_DISCONNECT");
    called_.expect(RNIC_CM_DISCONNECTED);
    if (!called_.destroy_id(*child).good()) bare::fail("CM_DESTROY_ID");
    return true;
  }
  bool asked(std::uint32_t) {
    const auto child = request(RNIC_CM_UNREACHABLE);
    if (!child) return false;
    if (!called_.accept(*child, kQueuePair).good()) bare::fail("CM_ACCEPT");
    caller_.expect(RNIC_CM_ESTABLISHED);
    if (!called_.destroy_id(*child).good()) bare::fail("CM_DESTROY_ID");
    return true;
  }

  std::uint32_t space_;
  bare::Channel called_, caller_;
  std::uint32_t listener_;
  rnic_address to_;
};

// Its listeners hear of nothing, and its callers do not wait.
class Attacker {
 public:
  Attacker(const std::string& socket, const rnic_address& at, std::uint32_t space)
      : space_(space), deaf_(socket), callers_(socket) {
    for (std::uint32_t i = 0; i < kListeners; ++i)
      listeners_.push_back(deaf_.query(bare::listening(deaf_, at, 1024, space)).source);
  }

  std::uint32_t round() {
    std::vector<std::uint32_t> ids;
    bare::Connection& control = callers_.control;
    for (std::uint32_t i = 0; i < kCallers; ++i) {
      const bare::Answer made = callers_.try_id(0, space_);
      if (!made.good()) break;
      ids.push_back(made.as<rnic_handle_reply>().handle);
    }
    // Of all in one go: what comes of it nobody looks at.
    const auto all = [&](auto&& say) {
      for (const std::uint32_t id : ids) say(id);
      for (std::size_t i = 0; i < ids.size(); ++i)
        if (control.hear().status < 0) bare::fail("the daemon is gone");
    };
    all([&](std::uint32_t id) {
      const rnic_address& to = listeners_[turn_++ % listeners_.size()];
      control.say(RNIC_CM_RESOLVE_ADDRESS, rnic_cm_resolve_address{id, 2000, {}, to});
    });
    all([&](std::uint32_t id) { control.say(RNIC_CM_RESOLVE_ROUTE, rnic_cm_resolve_route{id, 2000}); });
    rnic_cm_connect call{};
    call.parameters.qp_number = kQueuePair;
    call.parameters.valid = 1;
    all([&](std::uint32_t id) {
      call.id = id;
      control.say(RNIC_CM_CONNECT, call);
    });
    if (++rounds_ % 4 != 0) usleep(1000);  // most are heard of
    all([&](std::uint32_t id) { control.say(RNIC_CM_DESTROY_ID, rnic_handle{id, 0}); });
    return static_cast<std::uint32_t>(ids.size());
  }

 private:
  std::uint32_t space_;
  bare::Channel deaf_, callers_;
  std::vector<rnic_address> listeners_;
  std::size_t turn_ = 0, rounds_ = 0;
};

// A listener hears of `backlog` calls whose callers go at once, and answers none: the next finds a place.
bool leave_their_places(const std::string& socket, const rnic_address& at) {
  constexpr std::uint32_t kBacklog = 4;
  bare::Channel called(socket);
  const rnic_address to = called.query(bare::listening(called, at, kBacklog, bare::Channel::kUdp)).source;
  const auto ask = [&](bare::Channel& caller) {
    const std::uint32_t id = bare::resolved(caller, to, bare::Channel::kUdp);
    if (!caller.connect(id, kQueuePair).good()) bare::fail("CM_CONNECT");
  };
  for (std::uint32_t i = 0; i < kBacklog; ++i) {
    bare::Channel goes(socket);
    ask(goes);
    called.expect(RNIC_CM_CONNECT_REQUEST);
  }
  // Their ends are on the way.
  for (int tries = 0; tries < 50; ++tries) {
    bare::Channel caller(socket);
    ask(caller);
    if (called.event(100)) return true;
  }
  return false;
}

int calls(const Options& options, std::uint32_t space) {
  const rnic_address at = roce_address(options.socket);
  if (space == bare::Channel::kUdp && !leave_their_places(options.socket, at)) {
    say("callers that have gone keep their places");
    return 1;
  }
  const Seconds end = now() + options.seconds;
  const Victim honest([&](Victim::Line line) {
    Honest user(options.socket, at, space);
    std::uint64_t word = 0;
    line.tell(user.once());
    line.hear(word);
    std::uint64_t served = 0, refused = 0;
    // The listeners that never answer stay, also when nobody comes to them any more.
    while (now() < end || (served == 0 && now() < end + 20)) ++(user.once() ? served : refused);
    line.tell(served);
    line.tell(refused);
  });
  if (honest.hear() == 0) bare::fail("an honest call was refused before there was an attack");
  // Attackers, as many processes: what one may have of a place leaves some for the next.
  std::deque<Victim> attackers;
  for (std::uint32_t i = 0; i < kHostile; ++i)
    attackers.emplace_back([&](Victim::Line line) {
      Attacker attacker(options.socket, at, space);
      std::uint64_t made = 0;
      line.tell(1);
      while (now() < end) made += attacker.round();
      line.tell(made);
      pause();
    });
  for (const Victim& each : attackers) each.hear();
  attacking();
  honest.tell(1);
  const std::uint64_t served = honest.hear(), refused = honest.hear();
  std::uint64_t made = 0;
  for (const Victim& each : attackers) {
    made += each.hear();
    each.kill();
  }
  say(std::to_string(made) + " calls of " + std::to_string(kHostile) + " processes that nobody answered; meanwhile " +
      std::to_string(served) + " honest ones were served, and " + std::to_string(refused) + " refused");
  if (served == 0) {
    say("nobody else was served");
    return 1;
  }
  return 0;
}

}  // namespace

int greetings(const Options& options) { return calls(options, bare::Channel::kTcp); }
int inquiries(const Options& options) { return calls(options, bare::Channel::kUdp); }

}  // namespace rnic::hostile
