// One run of a seed's work: the ends of its queue pairs, what they post, and the checks of it. Where
// its members are: workload_plan.cpp (before anything moves), workload_work.cpp (posting and completions),
// workload.cpp (connections, ends, the run).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "port/tap.hpp"
#include "sim/attacker.hpp"
#include "sim/workload_choice.hpp"
#include "sim/world.hpp"

namespace rnic::sim {

inline constexpr std::uint16_t kWorkloadPort = 4791;
inline constexpr std::size_t kGuard = 64;
inline constexpr std::uint64_t kAreaStep = 0x10'0000;  // areas begin at multiples of it

// A part of memory with a guard in front; slices are handed out one behind the other.
struct Area {
  std::vector<std::byte> memory, expected, initial;
  Stag stag;
  // What the application calls its first octet: by the real address, two runs of a seed would not say the same.
  std::uint64_t base = 0;

  std::uint64_t address(std::size_t at) const { return base + at; }
  std::size_t used = kGuard;

  std::size_t reserve(std::size_t size) {
    const std::size_t at = used;
    used += size + 1 + at % 7;  // slices do not touch
    return at;
  }
  void build(Random& random) {
    memory.resize(used + kGuard);
    random.fill(memory);
    initial = expected = memory;
  }
};

struct Op {
  qp::Opcode opcode = qp::Opcode::send;
  std::uint32_t length = 0;
  bool signaled = true, fence = false, solicited = false, inlined = false;
  std::vector<std::byte> content;
  std::size_t source = 0;  // in `source` area, or of a read in the peer's `read_source`
  std::size_t target = 0;  // receive buffer, write target, or read sink
  std::uint32_t receive_size = 0;
  unsigned pieces = 1;
  bool posted = false;
  unsigned completed = 0;
  bool succeeded = false, arrived = false;
};

class End {
 public:
  End* peer = nullptr;
  Rnic* rnic = nullptr;
  Endpoint* endpoint = nullptr;
  std::vector<Op> ops;
  Area source, receive, write_target, read_source, read_sink;
  unsigned posted = 0, done = 0;  // of ops; done: known by a completion of it or a later one
  unsigned receives_posted = 0, receives_done = 0, receives_total = 0;
  std::size_t completions_seen = 0;
  unsigned last_completed = 0;  // index + 1
  bool established = false, disconnected = false, failed = false, gone = false, excused = false, accepted = false;
  core::StreamId stream;
  bool initiator = false;
  std::uint32_t depth = 1;

  bool all_posted() const { return posted == ops.size(); }
  bool all_done() const { return all_posted() && done == posted; }
  bool all_received() const { return receives_done == receives_total; }
};

class Workload {
 public:
  Workload(std::uint64_t seed, bool verbose, Danger danger, std::uint32_t mtu_bytes, Way way);
  Report run();
  void take_digest(Digest& digest);

 private:
  void plan(End& end);
  void place_areas(End& end);
  void register_areas(End& end);
  void connect_all();
  bool act();
  void act_on(End& end);
  void post_op(End& end, unsigned index);
  void post_receive(End& end, unsigned index);
  void take_completions(End& end);
  void on_send_done(End& end, const qp::Completion& completion);
  void on_receive_done(End& end, const qp::Completion& completion);
  void on_event(Rnic& rnic, const core::StreamEvent& event);
  void check_writes_before(End& receiver, unsigned op_index);
  void check_performed(const End& end, unsigned first, unsigned last);
  void strike();
  void watch_now_and_then();
  std::uint64_t seen();
  bool finished() const;
  bool bad_wire() const { return choice_.world.link.loss_per_1000 + choice_.world.link.corrupt_per_1000 >= 40; }
  bool gave_up() const;
  void end_gracefully();
  void check_memory(const End& end, bool complete);
  void check_accounts(End& end);
  void complain(const std::string& what) {
    if (complaint_.empty()) complaint_ = what;
  }
  template <typename F>
  void for_each_end(F&& f) {
    for (auto& end : ends_) f(*end);
  }
  bool trouble() const { return choice_.ending == Ending::abrupt || choice_.ending == Ending::blackout; }
  void print_state(const End& end) const;
  ReadSinks sinks_of(const End& end) const { return choice_.read_sinks[end.rnic == &world_.a ? 0 : 1]; }
  const char* name(const End& end) const { return end.rnic == &world_.a ? "a" : "b"; }

  std::uint64_t seed_;
  Random random_;
  Random local_random_;  // of what is there with Way::direct alone
  Way way_;
  Choice choice_;
  World world_;
  bool verbose_;
  Danger danger_;
  std::unique_ptr<Attacker> attacker_;
  std::vector<std::unique_ptr<End>> ends_;  // A's, then its peer, and so on
  struct Capture final : port::Tap {
    void on_frame(port::FrameDirection, Bytes) override {}
    bool attached = false;
  };
  std::array<Capture, 2> captures_;
  std::string complaint_;
  std::uint64_t bytes_ = 0;
  bool struck_ = false;
  bool stopping_ = false;
  Instant strike_at_ = kNever;
  Instant next_act_{};
  std::uint64_t next_base_ = 0x5000'0000'0000;  // of the next area
};

}  // namespace rnic::sim
