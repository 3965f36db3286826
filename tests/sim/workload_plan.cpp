// What each end will do, and the memory that it does it with.
#include "sim/workload_run.hpp"

#include <algorithm>

namespace rnic::sim {

Workload::Workload(std::uint64_t seed, bool verbose, Danger danger, std::uint32_t mtu_bytes, Way way)
    : seed_(seed),
      random_(seed),
      local_random_(seed ^ 0x10CA'0000'0000'0000u),
      way_(way),
      choice_(by(way, with_mtu(in_danger(choose(random_, seed), danger), seed, mtu_bytes))),
      world_(choice_.world),
      verbose_(verbose),
      danger_(danger) {
  if (danger != Danger::none)
    attacker_ = std::make_unique<Attacker>(
        world_, danger == Danger::off_path ? Attacker::Where::off_path : Attacker::Where::on_path, seed, kWorkloadPort);
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
    config.patience.rnr_retry = 7;
    config.strict_read_sink = sinks_of(end) == ReadSinks::strict;
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
    area.base = next_base_;
    next_base_ += (area.memory.size() | (kAreaStep - 1)) + 1;
    area.stag = end.rnic->register_memory(MutableBytes(area.memory).subspan(kGuard, area.memory.size() - 2 * kGuard),
                                          rights, PdId{1}, static_cast<std::uint8_t>(random_.next()),
                                          area.address(kGuard), way_ == Way::wire || !local_random_.chance(250));
  };
  enroll(end.source, Rights::local_read);
  enroll(end.receive, Rights::local_read | Rights::local_write);
  enroll(end.write_target, Rights::local_read | Rights::local_write | Rights::remote_write);
  enroll(end.read_source, Rights::local_read | Rights::remote_read);
  // RFC 5040 s8.1: a Read's sink is written to by the peer. Where memory is not, the Read sees to it (V-RD-03).
  enroll(end.read_sink, Rights::local_read | Rights::local_write |
                            (sinks_of(end) == ReadSinks::local ? Rights::none : Rights::remote_write));
}

}  // namespace rnic::sim
