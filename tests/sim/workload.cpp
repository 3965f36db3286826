#include "sim/workload.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <vector>

#include "sim/attacker.hpp"
#include "sim/world.hpp"

namespace rnic::sim {

namespace {

constexpr std::uint16_t kPort = 4791;
constexpr std::size_t kGuard = 64;

// ---- what the seed chooses -----------------------------------------------------------------

enum class Ending : std::uint8_t {
  graceful,       // all work is done; one side disconnects
  destroy_early,  // one side destroys its QP right after its last completion
  abrupt,         // somebody kills, disconnects, resets or destroys in the middle of the work
  blackout,       // the wire goes dead in the middle of the work
};
constexpr const char* kEndingNames[] = {"graceful", "destroy early", "abrupt", "blackout"};

struct Choice {
  WorldOptions world;
  unsigned qp_count = 1;
  unsigned ops_max = 20;
  std::uint32_t size_max = 1;
  unsigned sq_depth = 4, rq_depth = 4;
  bool post_early = false;  // receives all at once, before connecting
  bool hold = true;
  Ending ending = Ending::graceful;
  Duration strike{};  // abrupt, blackout: after the first establishment
  unsigned short_ring = 0;
};

Choice choose(Random& random, std::uint64_t seed) {
  Choice c;
  c.world.seed = seed;
  LinkOptions& link = c.world.link;
  link.delay =
      microseconds(static_cast<std::int64_t>(random.chance(700) ? random.between(1, 50) : random.between(50, 20'000)));
  if (random.chance(400))
    link.jitter_max =
        Duration{static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(link.delay.ns) * 2) + 1)};
  if (random.chance(300)) link.per_frame = nanoseconds(static_cast<std::int64_t>(random.between(100, 5'000)));
  if (random.chance(500))
    link.loss_per_1000 = static_cast<std::uint32_t>(random.between(1, random.chance(200) ? 150 : 30));
  if (random.chance(300)) link.repeat_per_1000 = static_cast<std::uint32_t>(random.between(1, 100));
  if (random.chance(150)) link.fragment_per_1000 = static_cast<std::uint32_t>(random.between(1, 200));
  const bool corrupt = random.chance(300);
  if (corrupt) link.corrupt_per_1000 = static_cast<std::uint32_t>(random.between(1, 40));

  constexpr std::array<std::uint32_t, 5> kMtus{576, 1500, 1500, 4096, 9000};
  const bool v6 = random.chance(350);
  const bool link_local = random.chance(300);
  const std::uint32_t mtu = std::max(kMtus[random.below(kMtus.size())], v6 ? 1280u : 0u);
  std::optional<std::uint16_t> vlan;
  if (random.chance(250)) vlan = static_cast<std::uint16_t>(random.between(1, 4094));
  const bool probe = random.chance(100);
  tcp::Options tcp;
  tcp.timestamps = random.chance(300);
  tcp.sack = random.chance(800);
  tcp.window_scale = random.chance(850);
  tcp.nagle = random.chance(100);
  if (random.chance(300)) tcp.receive_window_bytes = static_cast<std::uint32_t>(random.between(70'000, 300'000));
  if (random.chance(200)) tcp.send_segments_max = 64;
  if (random.chance(500)) tcp.congestion = tcp::Options::Congestion::newreno;
  for (RnicOptions* side : {&c.world.a, &c.world.b}) {
    side->mtu_bytes = mtu;
    side->buffers = static_cast<std::uint32_t>(random.chance(150) ? 512 : 2048);
    side->checksums = corrupt || random.chance(500);
    side->late_mover = random.chance(500);
    side->device.tcp = tcp;
    side->device.crc_required = random.chance(850);
    side->device.peer_to_peer = random.chance(750);
    side->device.mpa_revision = random.chance(850) ? 2 : 1;
    if (random.chance(300)) side->device.markers = mpa::MarkerUse::both;
    side->device.orphan_timeout = seconds(2000);  // however bad the wire is
    side->device.vlan = vlan;
    side->device.probe = probe;
    const std::uint8_t last = side == &c.world.a ? 1 : 2;
    if (v6) side->address = link_local ? address_link_local(last) : address_v6(last);
  }
  c.qp_count = static_cast<unsigned>(random.chance(500) ? 1 : random.between(2, 6));
  c.ops_max = static_cast<unsigned>(random.between(1, 40));
  constexpr std::array<std::uint32_t, 5> kSizes{16, 300, 3'000, 20'000, 120'000};
  c.size_max = kSizes[random.below(kSizes.size())];
  if (c.size_max > 10'000) c.ops_max = std::min(c.ops_max, 10u);
  c.sq_depth = static_cast<unsigned>(random.between(1, 24));
  c.rq_depth = static_cast<unsigned>(random.between(1, 16));
  c.hold = random.chance(700);
  c.post_early = !c.hold || random.chance(300);
  const auto end = random.below(10);
  c.ending = end < 5 ? Ending::graceful : end < 7 ? Ending::destroy_early : end < 9 ? Ending::abrupt : Ending::blackout;
  // A Send that finds no receive is lost when the stream ends, however gracefully.
  if (c.ending == Ending::destroy_early) c.post_early = true;
  c.strike = microseconds(static_cast<std::int64_t>(random.below(3'000)));
  if (random.chance(200)) c.short_ring = static_cast<unsigned>(random.between(1, 40));
  // Each side as it likes: ECN asked for, agreed to or not known; with and without DCTCP's exact echo.
  for (RnicOptions* side : {&c.world.a, &c.world.b}) {
    constexpr std::array<tcp::EcnUse, 3> kUses{tcp::EcnUse::on, tcp::EcnUse::passive, tcp::EcnUse::off};
    side->device.tcp.ecn = kUses[random.below(kUses.size())];
    if (random.chance(300)) side->device.tcp.congestion = tcp::Algorithm::dctcp;
  }
  if (random.chance(400)) link.mark_per_1000 = static_cast<std::uint32_t>(random.between(1, random.chance(300) ? 1000 : 100));
  return c;
}

std::string story_of(const Choice& c) {
  char text[500];
  const auto side = [](const RnicOptions& s) {
    return std::string(s.checksums ? "k" : "-") + (s.late_mover ? "l" : "-") + (s.device.crc_required ? "c" : "-") +
           (s.device.peer_to_peer ? "p" : "-") + (s.device.markers == mpa::MarkerUse::both ? "m" : "-") + std::to_string(s.device.mpa_revision);
  };
  std::snprintf(
      text, sizeof text,
      "delay %lld us jitter %lld us mark %u loss %u repeat %u corrupt %u fragment %u, mtu %u, %s vlan %u%s, tcp%s%s%s, a %s "
      "b %s, %u QPs, ops %u, "
      "size %u, sq %u rq %u%s%s, ring %u, %s",
      static_cast<long long>(c.world.link.delay.ns / 1000), static_cast<long long>(c.world.link.jitter_max.ns / 1000), c.world.link.mark_per_1000,
      c.world.link.loss_per_1000, c.world.link.repeat_per_1000, c.world.link.corrupt_per_1000,
      c.world.link.fragment_per_1000, c.world.a.mtu_bytes,
      c.world.a.address.is_unspecified() ? "IPv4" : c.world.a.address.is_link_local() ? "link-local" : "IPv6",
      c.world.a.device.vlan.value_or(0), c.world.a.device.probe ? " probe" : "",
      c.world.a.device.tcp.timestamps ? " ts" : "", c.world.a.device.tcp.sack ? " sack" : "",
      c.world.a.device.tcp.window_scale ? " ws" : "", side(c.world.a).c_str(), side(c.world.b).c_str(), c.qp_count,
      c.ops_max, c.size_max, c.sq_depth, c.rq_depth, c.hold ? " hold" : "", c.post_early ? " early" : "", c.short_ring,
      kEndingNames[static_cast<int>(c.ending)]);
  return text;
}

// ---- one end of one queue pair -------------------------------------------------------------

// A part of memory with a guard in front; slices are handed out one behind the other.
struct Area {
  std::vector<std::byte> memory, expected, initial;
  Stag stag;
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
  Workload(std::uint64_t seed, bool verbose, Danger danger);
  Report run();

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
  void on_receive_done(End& end, const qp::Completion& completion, Bytes parked);
  void on_event(Rnic& rnic, const core::StreamEvent& event);
  void check_writes_before(End& receiver, unsigned op_index);
  void strike();
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
  const char* name(const End& end) const { return end.rnic == &world_.a ? "a" : "b"; }

  std::uint64_t seed_;
  Random random_;
  Choice choice_;
  World world_;
  bool verbose_;
  Danger danger_;
  std::unique_ptr<Attacker> attacker_;
  std::vector<std::unique_ptr<End>> ends_;  // A's, then its peer, and so on
  std::string complaint_;
  std::uint64_t bytes_ = 0;
  bool struck_ = false;
  bool stopping_ = false;
  Instant strike_at_ = kNever;
  Instant next_act_{};
};

// The attacker has chance of his own: the seed's story is otherwise the same.
Choice in_danger(Choice choice, Danger danger) {
  if (danger == Danger::none) return choice;
  for (RnicOptions* side : {&choice.world.a, &choice.world.b}) {
    side->device.crc_required = true;  // octets that somebody forged are told by the CRC alone
    // He speaks IPv4 without tags.
    side->address = {};
    side->device.vlan.reset();
  }
  if (danger == Danger::on_path) choice.ending = Ending::abrupt;
  return choice;
}

Workload::Workload(std::uint64_t seed, bool verbose, Danger danger)
    : seed_(seed),
      random_(seed),
      choice_(in_danger(choose(random_, seed), danger)),
      world_(choice_.world),
      verbose_(verbose),
      danger_(danger) {
  if (danger != Danger::none)
    attacker_ = std::make_unique<Attacker>(
        world_, danger == Danger::off_path ? Attacker::Where::off_path : Attacker::Where::on_path, seed, kPort);
  if (verbose) world_.trace();
  if (choice_.short_ring != 0) {
    world_.a.port.set_accept_max(choice_.short_ring);
    world_.b.port.set_accept_max(choice_.short_ring);
  }
  for (unsigned i = 0; i < choice_.qp_count; ++i) {
    auto& a = *ends_.emplace_back(std::make_unique<End>());
    auto& b = *ends_.emplace_back(std::make_unique<End>());
    a.rnic = &world_.a, b.rnic = &world_.b;
    a.peer = &b, b.peer = &a;
    // Without the peer-to-peer model the responder is silent until the initiator has sent something
    // (W-MPA-21): then the side with work begins.
    const auto speaks_first = [](const RnicOptions& side) {
      return side.device.peer_to_peer && side.device.mpa_revision >= 2;
    };
    const bool either = speaks_first(choice_.world.a) && speaks_first(choice_.world.b);
    a.initiator = random_.chance(700) || (!either && choice_.ending == Ending::destroy_early);
    // Revision 1 negotiates no depths, so they are agreed upon before.
    a.depth = b.depth = static_cast<std::uint32_t>(random_.between(1, 8));
    b.initiator = !a.initiator;
  }
  for_each_end([&](End& end) {
    qp::Config config;
    config.access = tpt::Rights::remote_read | tpt::Rights::remote_write;
    config.ird = config.ord = end.depth;
    config.hold_without_receive = choice_.hold;
    end.endpoint = &end.rnic->make_qp(config);
    plan(end);
  });
  for_each_end([&](End& end) {
    const RnicOptions& options = end.rnic == &world_.a ? choice_.world.a : choice_.world.b;
    const bool peer_to_peer = options.device.peer_to_peer && options.device.mpa_revision >= 2;
    if (end.initiator && !peer_to_peer && end.ops.empty()) end.peer->ops.clear();
  });
  for_each_end([&](End& end) { place_areas(end); });
  for_each_end([&](End& end) { register_areas(end); });
}

void Workload::plan(End& end) {
  // "Destroy early": A has work, B only receives.
  if (choice_.ending == Ending::destroy_early && end.rnic == &world_.b) return;
  const auto count = random_.below(choice_.ops_max + 1);
  for (std::uint64_t i = 0; i < count; ++i) {
    Op& op = end.ops.emplace_back();
    const auto kind = random_.below(10);
    op.opcode = kind < 4 ? qp::Opcode::send : kind < 8 ? qp::Opcode::write : qp::Opcode::read;
    op.length = static_cast<std::uint32_t>(random_.chance(60) ? 0 : random_.below(choice_.size_max) + 1);
    op.signaled = random_.chance(700) || i + 1 == count || (i + 1) % choice_.sq_depth == 0;
    op.fence = random_.chance(100);
    op.solicited = op.opcode == qp::Opcode::send && random_.chance(200);
    op.inlined = op.opcode != qp::Opcode::read && op.length > 0 && op.length <= 256 && random_.chance(400);
    op.pieces = static_cast<unsigned>(random_.between(1, 4));
    op.content.resize(op.length);
    random_.fill(op.content);
    op.receive_size = op.length + static_cast<std::uint32_t>(random_.below(40));
    bytes_ += op.length;
  }
}

void Workload::place_areas(End& end) {
  for (Op& op : end.ops) switch (op.opcode) {
      case qp::Opcode::send:
        op.source = end.source.reserve(op.length);
        op.target = end.peer->receive.reserve(op.receive_size);
        ++end.peer->receives_total;
        break;
      case qp::Opcode::write:
        op.source = end.source.reserve(op.length);
        op.target = end.peer->write_target.reserve(op.length);
        break;
      default:
        op.source = end.peer->read_source.reserve(op.length);
        op.target = end.read_sink.reserve(op.length);
        break;
    }
}

void Workload::register_areas(End& end) {
  using tpt::Rights;
  for (Area* area : {&end.source, &end.receive, &end.write_target, &end.read_source, &end.read_sink})
    area->build(random_);
  const auto enter = [](std::vector<std::byte>& memory, std::size_t at, const std::vector<std::byte>& content) {
    std::copy(content.begin(), content.end(), memory.begin() + static_cast<std::ptrdiff_t>(at));
  };
  for (Op& op : end.ops)
    if (op.opcode != qp::Opcode::read) enter(end.source.memory, op.source, op.content);
  for (Op& op : end.peer->ops)
    if (op.opcode == qp::Opcode::read) enter(end.read_source.memory, op.source, op.content);
  end.read_source.expected = end.read_source.initial = end.read_source.memory;
  for (Op& op : end.peer->ops) {
    if (op.opcode == qp::Opcode::send) enter(end.receive.expected, op.target, op.content);
    if (op.opcode == qp::Opcode::write) enter(end.write_target.expected, op.target, op.content);
  }
  for (Op& op : end.ops)
    if (op.opcode == qp::Opcode::read) enter(end.read_sink.expected, op.target, op.content);
  // A watched last octet is another one before.
  for (Area* area : {&end.receive, &end.write_target, &end.read_sink}) {
    const auto watch = [&](const Op& op) {
      if (op.length == 0) return;
      const std::size_t last = op.target + op.length - 1;
      area->memory[last] = area->initial[last] = area->expected[last] ^ std::byte{0x5a};
      end.rnic->mover.watch(area->memory.data() + op.target, op.content);
    };
    if (area == &end.read_sink) {
      for (const Op& op : end.ops)
        if (op.opcode == qp::Opcode::read) watch(op);
    } else {
      const auto opcode = area == &end.receive ? qp::Opcode::send : qp::Opcode::write;
      for (const Op& op : end.peer->ops)
        if (op.opcode == opcode) watch(op);
    }
  }
  // Regions begin and end inside of the guards.
  const auto enroll = [&](Area& area, Rights rights) {
    area.stag = end.rnic->register_memory(MutableBytes(area.memory).subspan(kGuard, area.memory.size() - 2 * kGuard),
                                          rights, PdId{1}, static_cast<std::uint8_t>(random_.next()));
  };
  enroll(end.source, Rights::local_read);
  enroll(end.receive, Rights::local_read | Rights::local_write);
  enroll(end.write_target, Rights::local_read | Rights::local_write | Rights::remote_write);
  enroll(end.read_source, Rights::local_read | Rights::remote_read);
  // RFC 5040 s8.1: a Read's sink is written to by the peer.
  enroll(end.read_sink, Rights::local_read | Rights::local_write | Rights::remote_write);
}

std::uint64_t address_of(const Area& area, std::size_t at) {
  return reinterpret_cast<std::uintptr_t>(area.memory.data() + at);
}

// Cuts a slice into `pieces` SGEs, some of them empty.
template <typename Request>
void fill_sges(Request& request, const Area& area, std::size_t at, std::uint32_t length, unsigned pieces,
               Random& random) {
  request.sge_count = static_cast<std::uint8_t>(pieces);
  for (unsigned i = 0; i < pieces; ++i) {
    const std::uint32_t here = i + 1 == pieces ? length : static_cast<std::uint32_t>(random.below(length + 1));
    request.sges[i] = {address_of(area, at), here, area.stag};
    at += here;
    length -= here;
  }
}

void Workload::post_op(End& end, unsigned index) {
  Op& op = end.ops[index];
  qp::WorkRequest request;
  request.opcode = op.opcode;
  request.signaled = op.signaled;
  request.fence = op.fence;
  request.solicited = op.solicited;
  request.slot = index;
  if (op.opcode == qp::Opcode::read) {
    fill_sges(request, end.read_sink, op.target, op.length, 1, random_);
    request.remote_to = address_of(end.peer->read_source, op.source);
    request.remote_stag = end.peer->read_source.stag;
  } else {
    if (op.inlined) {
      request.has_data = true;
      request.data = {end.source.memory.data() + op.source, op.length};
    } else {
      fill_sges(request, end.source, op.source, op.length, op.pieces, random_);
    }
    if (op.opcode == qp::Opcode::write) {
      request.remote_to = address_of(end.peer->write_target, op.target);
      request.remote_stag = end.peer->write_target.stag;
    }
  }
  op.posted = true;
  end.posted = index + 1;
  if (verbose_)
    std::printf("             %s qp %u posts %u: opcode %u, %u bytes%s\n", name(end),
                end.endpoint->qp->config().number.value, index, static_cast<unsigned>(op.opcode), op.length,
                op.signaled ? "" : ", unsignalled");
  end.rnic->post_send(*end.endpoint, request);
}

void Workload::post_receive(End& end, unsigned index) {
  unsigned n = 0;
  for (const Op& op : end.peer->ops) {
    if (op.opcode != qp::Opcode::send || n++ != index) continue;
    qp::ReceiveRequest request;
    request.slot = index;
    fill_sges(request, end.receive, op.target, op.receive_size, static_cast<unsigned>(random_.between(1, 3)), random_);
    end.receives_posted = index + 1;
    end.rnic->post_receive(*end.endpoint, request);
    return;
  }
}

void Workload::act_on(End& end) {
  if (end.endpoint->qp == nullptr) return;
  take_completions(end);
  if (stopping_ || end.endpoint->qp->state() == qp::State::error) return;
  if (end.failed || end.disconnected || end.excused) return;
  while (end.receives_posted < end.receives_total && end.receives_posted - end.receives_done < choice_.rq_depth &&
         random_.chance(600))
    post_receive(end, end.receives_posted);
  if (!end.established) return;
  while (!end.all_posted() && end.posted - end.done < choice_.sq_depth && random_.chance(700)) post_op(end, end.posted);
}

bool Workload::act() {
  if (world_.clock.now < next_act_ && random_.chance(700)) {
    for_each_end([&](End& end) {
      if (end.endpoint->qp != nullptr) take_completions(end);
    });
  } else {
    for_each_end([&](End& end) { act_on(end); });
    next_act_ = world_.clock.now + nanoseconds(static_cast<std::int64_t>(random_.below(100'000)));
  }
  if (world_.clock.now >= strike_at_ && !struck_) strike();
  if (attacker_) attacker_->act();
  // Who is on the path can put whole good FPDUs in another order, and nothing tells.
  for (const Rnic* rnic : {&world_.a, &world_.b})
    if (!rnic->mover.complaint().empty() && danger_ != Danger::on_path) complain(rnic->mover.complaint());
  return true;
}

// ---- completions ---------------------------------------------------------------------------

void Workload::take_completions(End& end) {
  QueueHost& host = end.endpoint->host;
  while (end.completions_seen < host.completions.size()) {
    const std::size_t at = end.completions_seen++;
    const qp::Completion& completion = host.completions[at];
    if (verbose_)
      std::printf("             %s qp %u completes %s %u: status %u, %u bytes\n", name(end),
                  end.endpoint->qp->config().number.value, completion.of_send_queue ? "request" : "receive",
                  completion.slot, static_cast<unsigned>(completion.status), completion.length);
    if (completion.of_send_queue)
      on_send_done(end, completion);
    else
      on_receive_done(end, completion, host.parked[at]);
  }
}

void Workload::on_send_done(End& end, const qp::Completion& completion) {
  const unsigned index = completion.slot;
  if (index >= end.posted) return complain("a completion of a work request that was never posted");
  Op& op = end.ops[index];
  if (++op.completed > 1) return complain("work request " + std::to_string(index) + " completed twice");
  if (index + 1 <= end.last_completed) return complain("completions out of post order at " + std::to_string(index));
  end.last_completed = index + 1;
  const bool success = completion.status == qp::Status::success;
  if (success && !op.signaled) return complain("an unsignalled work request completed");
  if (!success && !struck_)
    return complain("work request " + std::to_string(index) + " failed, status " +
                    std::to_string(static_cast<unsigned>(completion.status)));
  for (unsigned i = end.done; i < index; ++i)
    if (end.ops[i].signaled && end.ops[i].completed == 0)
      return complain("work request " + std::to_string(i) + " was passed over by a completion");
  end.done = index + 1;
  if (!success) return;
  op.succeeded = true;
  if (op.opcode != completion.opcode) return complain("a completion with another opcode");
  if (op.opcode == qp::Opcode::read) {
    if (!std::equal(op.content.begin(), op.content.end(),
                    end.read_sink.memory.begin() + static_cast<std::ptrdiff_t>(op.target)))
      return complain("a Read completed and its octets are not those of the source");
    // Everything before it on this QP that was a Write or Send is at the peer (RFC 5040 s5.5).
    return;
  }
  // The memory of a completed request is the application's again.
  for (std::size_t i = 0; i < op.length; ++i) end.source.memory[op.source + i] ^= std::byte{0xA5};
}

void Workload::on_receive_done(End& end, const qp::Completion& completion, Bytes parked) {
  const unsigned index = completion.slot;
  if (index != end.receives_done) return complain("receives out of order");
  ++end.receives_done;
  if (index >= end.receives_posted) return complain("a completion of a receive that was never posted");
  if (completion.status != qp::Status::success) {
    if (!struck_ && !stopping_ && !end.failed)
      complain("a receive failed, status " + std::to_string(static_cast<unsigned>(completion.status)));
    return;
  }
  unsigned n = 0;
  for (unsigned i = 0; i < end.peer->ops.size(); ++i) {
    Op& op = end.peer->ops[i];
    if (op.opcode != qp::Opcode::send || n++ != index) continue;
    op.arrived = true;
    if (completion.length != op.length) return complain("a receive of another length than its Send");
    if (completion.solicited != op.solicited) return complain("a receive that disagrees about solicited");
    std::copy(parked.begin(), parked.end(), end.receive.memory.begin() + static_cast<std::ptrdiff_t>(op.target));
    if (!std::equal(op.content.begin(), op.content.end(),
                    end.receive.memory.begin() + static_cast<std::ptrdiff_t>(op.target)))
      return complain("a receive whose octets are not those of its Send");
    check_writes_before(end, i);
    return;
  }
}

void Workload::check_writes_before(End& receiver, unsigned op_index) {
  // Who is on the path can say an FPDU of a Write once more in the place of another: it is whole, its CRC
  // is good, and Writes have no number that would tell (RFC 5042 s6.1: end-to-end protection is for IPsec).
  if (danger_ == Danger::on_path) return;
  for (unsigned i = 0; i < op_index; ++i) {
    Op& op = receiver.peer->ops[i];
    if (op.opcode != qp::Opcode::write || op.arrived) continue;
    op.arrived = true;
    if (!std::equal(op.content.begin(), op.content.end(),
                    receiver.write_target.memory.begin() + static_cast<std::ptrdiff_t>(op.target)))
      return complain("a Send was delivered before a Write that was posted earlier was placed");
  }
}

// ---- connections ---------------------------------------------------------------------------

void Workload::on_event(Rnic& rnic, const core::StreamEvent& event) {
  using Kind = core::StreamEvent::Kind;
  static constexpr const char* kNames[] = {"connect_request", "established", "rejected", "failed", "disconnected"};
  if (verbose_)
    std::printf("%12.3f us %s hears %s (failure %u, cookie %llu)\n",
                static_cast<double>((world_.clock.now.ns - seconds(1000).ns)) / 1000, &rnic == &world_.a ? "a" : "b",
                kNames[static_cast<int>(event.kind)], static_cast<unsigned>(event.failure),
                static_cast<unsigned long long>(event.cookie));
  if (event.kind == Kind::connect_request) {
    // Private data says which end is meant.
    std::uint32_t index = 0;
    if (event.private_data.length != 4) return complain("private data of another length");
    std::memcpy(&index, event.private_data.octets.data(), 4);
    if (index >= ends_.size()) return complain("private data with other octets");
    End& end = *ends_[index];
    end.stream = event.stream;
    core::AcceptOptions options{.ird = end.depth, .ord = end.depth, .private_data = {}, .cookie = index};
    if (end.endpoint->qp == nullptr) {
      (void)rnic.device.reject(event.stream, {}, world_.clock.now);
    } else if (!rnic.device.accept(event.stream, options, *end.endpoint->qp, world_.clock.now)) {
      if (!struck_) complain("accept() was refused");
      (void)rnic.device.reject(event.stream, {}, world_.clock.now);
      end.failed = true;
    } else {
      end.accepted = true;
    }
    return;
  }
  End& end = *ends_[event.cookie];
  switch (event.kind) {
    case Kind::connect_request:
      break;
    case Kind::established:
      if (end.established) complain("established was told twice");
      end.established = true;
      if (strike_at_ == kNever && trouble()) strike_at_ = world_.clock.now + choice_.strike;
      break;
    case Kind::rejected:
    case Kind::failed:
      if (end.established) complain("failed was told after established");
      if (end.failed) complain("failed was told twice");
      end.failed = true;
      break;
    case Kind::disconnected:
      if (!end.established) complain("disconnected was told before established");
      if (end.disconnected) complain("disconnected was told twice");
      end.disconnected = true;
      break;
  }
}

void Workload::connect_all() {
  for (Rnic* rnic : {&world_.a, &world_.b}) {
    rnic->on_event = [this, rnic](const core::StreamEvent& event) { on_event(*rnic, event); };
    if (!rnic->device.listen({}, kPort, 16, 999)) complain("listen() was refused");
  }
  for (std::uint32_t i = 0; i < ends_.size(); ++i) {
    End& end = *ends_[i];
    if (!end.initiator) continue;
    const std::uint32_t other = i ^ 1;
    core::ConnectOptions options;
    options.remote = end.peer->rnic->device.options().addresses[0].address;
    options.remote_port = kPort;
    options.ird = options.ord = end.depth;
    options.cookie = i;
    options.private_data.length = 4;
    std::memcpy(options.private_data.octets.data(), &other, 4);
    const auto stream = end.rnic->device.connect(options, *end.endpoint->qp, world_.clock.now);
    if (!stream) return complain("connect() was refused");
    end.stream = *stream;
  }
}

// ---- ends ----------------------------------------------------------------------------------

void Workload::strike() {
  if (danger_ == Danger::on_path) {
    // Startup frames have no CRC: whoever changes them changes what is agreed on. So he waits.
    const bool all = std::all_of(ends_.begin(), ends_.end(),
                                 [](const auto& end) { return end->established || end->failed; });
    if (!all && !finished()) {
      strike_at_ = world_.clock.now + milliseconds(1);
      return;
    }
    struck_ = true;
    attacker_->begin();
    return;
  }
  struck_ = true;
  if (choice_.ending == Ending::blackout) {
    if (verbose_) std::printf("             the wire goes dead\n");
    LinkOptions dead = choice_.world.link;
    dead.loss_per_1000 = 1000;
    world_.a_to_b.set_options(dead);
    world_.b_to_a.set_options(dead);
    return;
  }
  for_each_end([&](End& end) {
    if (end.endpoint->qp == nullptr || !random_.chance(600)) return;
    const auto how = random_.below(5);
    if (verbose_)
      std::printf("             %s qp %u is struck: %u\n", name(end), end.endpoint->qp->config().number.value,
                  static_cast<unsigned>(how));
    switch (how) {
      case 0:
        end.rnic->device.kill(end.stream, world_.clock.now);
        break;
      case 1:
      case 4:
        // One that is not established is dropped without a word.
        if (!end.established) end.excused = true;
        end.rnic->device.disconnect(end.stream, how == 1 ? core::Disconnect::graceful : core::Disconnect::abrupt,
                                    world_.clock.now);
        break;
      case 2:
        (void)end.endpoint->qp->modify_state(qp::State::error, world_.clock.now);
        end.rnic->device.touch(*end.endpoint->qp);
        break;
      case 3:
        end.gone = true;
        end.rnic->destroy_qp(*end.endpoint);
        break;
    }
  });
}

// After the work: each pair is disconnected by one of the two.
void Workload::end_gracefully() {
  stopping_ = true;
  for (std::size_t i = 0; i < ends_.size(); i += 2) {
    End& end = *ends_[i + random_.below(2)];
    end.rnic->device.disconnect(end.stream, core::Disconnect::graceful, world_.clock.now);
  }
  const bool over = world_.run_until([&] {
    return !complaint_.empty() || std::all_of(ends_.begin(), ends_.end(), [](const auto& end) {
      const qp::State state = end->endpoint->qp->state();
      return end->disconnected && (state == qp::State::idle || state == qp::State::error);
    });
  });
  // A FIN that is lost again and again ends in a reset (V-CLS-08); where that is lost as well, a peer
  // that has nothing to send never hears of it.
  if (!over && !bad_wire()) complain("a graceful close does not come to its end");
  for_each_end([&](End& end) {
    take_completions(end);
    for (const qp::Event event : end.endpoint->host.events)
      if (event != qp::Event::close_complete && choice_.world.link.loss_per_1000 == 0 && complaint_.empty() &&
          event != qp::Event::last_wqe_reached)
        complain("event " + std::to_string(static_cast<unsigned>(event)) + " in a graceful run");
  });
}

bool Workload::finished() const {
  if (!complaint_.empty()) return true;
  // A completed Write may still be on its way, and a side that closes while it comes closes badly
  // (V-TDN-08).
  if (!std::all_of(ends_.begin(), ends_.end(),
                   [](const auto& end) { return end->established && end->all_done() && end->all_received(); }))
    return false;
  for (const Rnic* rnic : {&world_.a, &world_.b})
    for (const core::StreamInfo& info : rnic->device.streams())
      if (info.in_flight_bytes != 0) return false;
  return std::all_of(ends_.begin(), ends_.end(),
                     [](const auto& end) { return end->write_target.memory == end->write_target.expected; });
}

void Workload::check_memory(const End& end, bool complete) {
  const auto check = [&](const Area& area, const char* what) {
    for (std::size_t i = 0; i < area.memory.size(); ++i) {
      if (area.memory[i] == area.expected[i]) continue;
      if (!complete && area.memory[i] == area.initial[i]) continue;
      return complain(std::string("memory of ") + name(end) + "'s " + what + " is wrong at " + std::to_string(i));
    }
  };
  check(end.receive, "receive buffers");
  check(end.write_target, "Write target");
  check(end.read_source, "Read source");
  check(end.read_sink, "Read sink");
}

// After trouble: what was posted is accounted for.
void Workload::check_accounts(End& end) {
  if (end.gone || end.endpoint->qp == nullptr) return;
  take_completions(end);
  if (!end.failed && !end.disconnected && !end.excused && end.established)
    return complain("a stream ended and nobody was told");
  if (end.endpoint->qp->state() != qp::State::error) return;
  for (unsigned i = 0; i < end.posted; ++i)
    if (end.ops[i].completed == 0 && end.ops[i].signaled)
      return complain(std::string("work request ") + std::to_string(i) + " of " + name(end) + " was never completed");
  if (end.receives_done != end.receives_posted) return complain("receives that were never completed");
}

void Workload::print_state(const End& end) const {
  const qp::QueuePair* qp = end.endpoint->qp.get();
  std::printf("%s: %s%s%s%s qp %u %s%s, posted %u done %u of %zu, receives posted %u done %u of %u%s\n", name(end),
              end.initiator ? "initiator " : "", end.established ? "established " : "", end.failed ? "failed " : "",
              end.disconnected ? "disconnected " : "", qp != nullptr ? qp->config().number.value : 0,
              qp != nullptr ? qp::name(qp->state()) : "gone", qp != nullptr && qp->idle() ? " idle" : "", end.posted,
              end.done, end.ops.size(), end.receives_posted, end.receives_done, end.receives_total,
              end.write_target.memory == end.write_target.expected ? "" : ", Writes missing");
}

// On a bad wire a connection may not come about, or be given up; that is no fault.
bool Workload::gave_up() const {
  if (!bad_wire()) return false;
  return std::any_of(ends_.begin(), ends_.end(), [](const auto& end) { return end->failed && !end->established; });
}

Report Workload::run() {
  Report report;
  report.seed = seed_;
  report.story = story_of(choice_);
  if (verbose_) std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed_), report.story.c_str());
  if (choice_.post_early)
    for_each_end([&](End& end) {
      while (end.receives_posted < end.receives_total) post_receive(end, end.receives_posted);
    });
  world_.application = [&] { return act(); };
  world_.application_deadline = [&] {
    bool more = false;
    for_each_end([&](End& end) {
      more |=
          end.established && !end.disconnected && !end.failed && !stopping_ && end.endpoint->qp != nullptr &&
          ((!end.all_posted() && end.posted - end.done < choice_.sq_depth) ||
           (end.receives_posted < end.receives_total && end.receives_posted - end.receives_done < choice_.rq_depth)) &&
          end.endpoint->qp->state() == qp::State::rts;
    });
    return std::min(std::min(more ? std::max(next_act_, world_.clock.now + nanoseconds(100)) : kNever,
                             struck_ ? kNever : strike_at_),
                    attacker_ ? attacker_->next() : kNever);
  };
  // Before an address is known to be ours nobody can be called from it.
  const auto settled = [&] { return world_.a.device.addresses_settled() && world_.b.device.addresses_settled(); };
  if (choice_.world.a.device.probe && !world_.run_until([&] { return settled(); }, seconds(30)))
    complain("the addresses are still being asked for");
  if (danger_ == Danger::off_path) attacker_->begin();
  connect_all();

  const auto everybody_told = [&] {
    return !complaint_.empty() || std::all_of(ends_.begin(), ends_.end(), [](const auto& end) {
      if (end->gone || end->failed || end->excused) return true;
      if (!end->initiator && !end->accepted) return true;  // it never heard of one
      return end->disconnected && end->endpoint->qp->state() != qp::State::rts &&
             end->endpoint->qp->state() != qp::State::closing && end->endpoint->qp->state() != qp::State::terminate;
    });
  };

  switch (choice_.ending) {
    case Ending::graceful:
      if (!world_.run_until([&] { return finished() || gave_up(); }, seconds(3000)))
        complain("the work does not come to its end");
      struck_ |= gave_up();
      if (complaint_.empty() && !struck_) end_gracefully();
      // What completed was delivered before the FIN, at the latest.
      if (complaint_.empty() && !struck_) for_each_end([&](End& end) { check_memory(end, true); });
      break;
    case Ending::destroy_early: {
      const auto step = [&] {
        if (!complaint_.empty() || gave_up()) return true;
        for (std::size_t i = 0; i < ends_.size(); i += 2) {
          End& a = *ends_[i];
          if (a.endpoint->qp != nullptr && a.established && a.peer->established && a.all_done()) {
            if (verbose_) std::printf("             a destroys its QP\n");
            struck_ = true;
            a.gone = true;
            a.rnic->destroy_qp(*a.endpoint);
          }
        }
        return std::all_of(ends_.begin(), ends_.end(), [&](const auto& end) {
          if (end->rnic == &world_.a) return end->gone;
          return end->all_received() && end->disconnected;
        });
      };
      if (!world_.run_until(step, seconds(3000)))
        complain("what was completed before the QP was destroyed does not arrive");
      struck_ = true;
      if (complaint_.empty() && !gave_up())
        for_each_end([&](End& end) {
          if (end.rnic == &world_.b) check_memory(end, true);
        });
      break;
    }
    case Ending::abrupt:
    case Ending::blackout:
      world_.run_until([&] { return !complaint_.empty() || struck_ || (finished() && strike_at_ != kNever); },
                       seconds(3000));
      if (!struck_) strike();
      struck_ = true;
      // Whoever was not struck, and whose peer was not, is ended now; a dead wire is noticed only by
      // those who have something in flight.
      world_.run_for(choice_.ending == Ending::blackout ? seconds(2000) : seconds(1));
      for_each_end([&](End& end) {
        if (end.endpoint->qp == nullptr || end.disconnected || end.failed || end.excused) return;
        end.rnic->device.kill(end.stream, world_.clock.now);
      });
      if (!world_.run_until(everybody_told, seconds(3000))) complain("a side never hears that its stream has ended");
      for_each_end([&](End& end) { check_memory(end, false); });
      world_.run_for(milliseconds(1));
      if (complaint_.empty()) for_each_end([&](End& end) { check_accounts(end); });
      break;
  }

  if (complaint_.empty()) {
    stopping_ = true;
    for_each_end([&](End& end) { end.rnic->destroy_qp(*end.endpoint); });
    const auto empty = [&] { return world_.a.device.stream_count() == 0 && world_.b.device.stream_count() == 0; };
    if (!world_.run_until(empty, seconds(2500))) {
      std::string which;
      for (const Rnic* rnic : {&world_.a, &world_.b})
        for (const core::StreamInfo& info : rnic->device.streams())
          which += std::string(rnic == &world_.a ? " a: " : " b: ") + info.tcp_state + " " + info.phase;
      complain("streams that never end:" + which);
    }
    world_.run_for(seconds(10));  // what waits for a neighbour that does not answer is dropped
    // A few are kept at hand by the device, and frames wait in the wire, not in buffers.
    for (Rnic* rnic : {&world_.a, &world_.b}) {
      const std::uint32_t total = rnic == &world_.a ? choice_.world.a.buffers : choice_.world.b.buffers;
      if (complaint_.empty() && rnic->port.heap().available() + 32 < total)
        complain("buffers that never came back: " + std::to_string(total - rnic->port.heap().available()));
    }
  }
  if (verbose_) for_each_end([&](End& end) { print_state(end); });
  report.complaint = complaint_;
  report.steps = world_.steps;
  report.frames = world_.a_to_b.frames() + world_.b_to_a.frames();
  report.bytes = bytes_;
  report.simulated_us = (world_.clock.now.ns - seconds(1000).ns) / 1000;
  return report;
}

}  // namespace

Report run_workload(std::uint64_t seed, bool verbose, Danger danger) { return Workload(seed, verbose, danger).run(); }

}  // namespace rnic::sim
