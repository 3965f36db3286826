// Two queue pairs over two TCP connections joined in memory, each with an application made of
// vectors; or one queue pair and a raw peer that says and hears single FPDUs.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "base/buffer.hpp"
#include "ddp/segmenter.hpp"
#include "kit/qp_host.hpp"
#include "kit/rdmap_application.hpp"
#include "kit/tcp_runs.hpp"
#include "mpa/packer.hpp"
#include "qp/queue_pair.hpp"
#include "rdmap/sender.hpp"
#include "tcp/connection.hpp"
#include "tpt/atomic.hpp"
#include "tpt/mover.hpp"
#include "tpt/table.hpp"
#include "wire/ddp.hpp"
#include "wire/rdmap.hpp"
#include "wire/terminate.hpp"

namespace rnic::test {

// ---- one side --------------------------------------------------------------------------------------

struct Side {
  // `shared`: the table of a device that has other queue pairs too.
  Side(const qp::Config& config, Moves moves, std::uint64_t seed, const tcp::Options& options,
       std::uint32_t buffer_bytes = 9216, tpt::Table* shared = nullptr)
      : pool(2048, buffer_bytes),
        tcp(options),
        own_table(shared == nullptr ? std::make_unique<tpt::Table>(256, seed) : nullptr),
        table(shared == nullptr ? *own_table : *shared),
        mover(moves, seed),
        qp(config, app, table, mover, pool, scratch) {}
  HeapPool pool;
  tcp::Connection tcp;
  std::unique_ptr<tpt::Table> own_table;
  tpt::Table& table;
  PlainMover mover;
  QueueHost app;
  qp::Scratch scratch;
  qp::QueuePair qp;
  std::deque<Region> regions;
  bool maps = true;  // regions that come next: the daemon reaches them directly
  std::uint32_t next_slot = 0, next_receive_slot = 0;

  Region& region(std::size_t size, std::uint32_t fill = 0, tpt::Rights rights = kAllRights, PdId pd = kPd) {
    return regions.emplace_back(table, size, fill, rights, pd, maps);
  }
  static qp::Sge sge(const Region& r, std::uint64_t offset, std::uint32_t length) {
    return {r.at(offset), length, r.stag};
  }
  // Returns its slot.
  std::uint32_t post(qp::WorkRequest request) {
    request.slot = next_slot++;
    app.sends.push_back(request);
    qp.work_posted();
    return request.slot;
  }
  std::uint32_t post_receive(std::vector<qp::Sge> sges, bool shared = false) {
    qp::ReceiveRequest request;
    request.slot = next_receive_slot++;
    request.shared = shared;
    request.sge_count = static_cast<std::uint8_t>(sges.size());
    std::copy(sges.begin(), sges.end(), request.sges.begin());
    app.receives.push_back(request);
    qp.receive_posted();
    return request.slot;
  }
};

inline qp::Config default_config(std::uint32_t number) {
  qp::Config config;
  config.number = {number};
  config.pd = config.receive_pd = kPd;
  config.access = kAllAccess;
  return config;
}

// ---- two connections, joined ---------------------------------------------------------------------------

class Wire {
 public:
  struct End {
    tcp::Connection* tcp = nullptr;
    BufferPool* pool = nullptr;
    std::deque<tcp::SegmentIn> in;
  };
  Instant now{1'000'000};
  tcp::Options options;  // of both
  End a, b;
  // Sent payloads, in order, as the wire saw them: true, from a.
  std::vector<std::pair<bool, std::uint32_t>> payload_sizes;
  unsigned runs = 0;                                             // frames of several segments, which are cut here
  bool cut_a = false, cut_b = false;                             // what comes from there is lost
  std::function<bool(bool is_a, const tcp::SegmentOut&)> loses;  // true: this one is lost

  void join() {
    a.tcp->open_active({1000});
    auto syn = a.tcp->next_segment(now);
    if (!syn) std::abort();
    const tcp::Handshake handshake = tcp::agree(syn->header, options, {0xFFFFFF00}, 0);
    a.tcp->on_segment({tcp::syn_ack(handshake, options, now), {}, {}}, now);
    auto third = a.tcp->next_segment(now);
    if (!third) std::abort();
    b.tcp->open_passive(handshake, third->header, now);
    for (int i = 0; i < 10; ++i) carry();
    if (!a.tcp->established() || !b.tcp->established()) std::abort();
  }
  // Takes out of one what it sends, and gives it to the other.
  bool carry() {
    bool moved = collect(a, b, true) | collect(b, a, false);
    moved |= deliver(a) | deliver(b);
    return moved;
  }
  bool collect(End& from, End& to, bool is_a) {
    bool moved = false;
    while (auto out = from.tcp->next_segment(now)) {
      moved = true;
      runs += out->unit_bytes != 0 ? 1 : 0;
      each_segment(*out, [&](const tcp::SegmentOut& one) {
        if (!one.payload.empty()) payload_sizes.emplace_back(is_a, static_cast<std::uint32_t>(one.payload.size()));
        if (is_a ? cut_a : cut_b) return;
        if (loses && loses(is_a, one)) return;
        to.in.push_back(copy(one, *to.pool));
      });
    }
    return moved;
  }
  bool deliver(End& to) {
    bool moved = false;
    while (!to.in.empty()) {
      moved = true;
      tcp::SegmentIn in = std::move(to.in.front());
      to.in.pop_front();
      to.tcp->on_segment(std::move(in), now);
    }
    to.tcp->end_of_burst();
    return moved;
  }

 private:
  static tcp::SegmentIn copy(const tcp::SegmentOut& out, BufferPool& pool) {
    BufferRef buffer = BufferRef::take(pool);
    if (!buffer) std::abort();
    const MutableBytes room = buffer->append(static_cast<std::uint32_t>(out.payload.size()));
    if (!out.payload.empty()) std::memcpy(room.data(), out.payload.data(), out.payload.size());
    const Bytes payload = buffer->bytes();
    return {out.header, std::move(buffer), payload};
  }
};

struct Options {
  Moves moves = Moves::direct;
  std::uint64_t seed = 1;
  tcp::Options tcp;
  qp::Start start;  // of the initiator's side; the responder's is its mirror
  std::uint32_t budget_bytes = 1u << 20;
  std::uint32_t buffer_bytes = 9216;      // of both pools; a segment lies in one
  std::function<void(qp::Config&)> a, b;  // changes to the configurations
  bool attach_b = true;
};

inline qp::Start default_start() {
  qp::Start start;
  start.initiator = true;
  start.ird = start.ord = 16;
  return start;
}

// Both sides are ours; a is the initiator.
struct Pair {
  explicit Pair(Options given = {}) : options(std::move(given)) {
    if (options.start.ird == 0 && options.start.ord == 0 && !options.start.initiator) options.start = default_start();
    qp::Config ca = default_config(1), cb = default_config(2);
    if (options.a) options.a(ca);
    if (options.b) options.b(cb);
    a = std::make_unique<Side>(ca, options.moves, options.seed, options.tcp, options.buffer_bytes);
    b = std::make_unique<Side>(cb, options.moves, options.seed + 1, options.tcp, options.buffer_bytes);
    wire.options = options.tcp;
    wire.a.tcp = &a->tcp;
    wire.a.pool = &a->pool;
    wire.b.tcp = &b->tcp;
    wire.b.pool = &b->pool;
    wire.join();
    attach();
  }
  void attach() {
    qp::Start sb = options.start;
    sb.initiator = false;
    sb.ird = options.start.ord;
    sb.ord = options.start.ird;
    sb.markers_out = options.start.markers_in != mpa::Markers::none;
    sb.markers_in = options.start.markers_out ? mpa::Markers::expected : mpa::Markers::none;
    if (options.attach_b) b->qp.attach(b->tcp, sb, wire.now);
    a->qp.attach(a->tcp, options.start, wire.now);
  }
  // Connections are not made again: two new ones, for queue pairs that are in Idle.
  void connect_again() {
    for (Side* side : {a.get(), b.get()}) {
      std::destroy_at(&side->tcp);
      std::construct_at(&side->tcp, options.tcp);
    }
    wire.a.in.clear();
    wire.b.in.clear();
    wire.join();
    attach();
  }
  bool turn(Side& side) {
    const bool was_attached = side.qp.attached();
    bool busy = side.qp.receive(wire.now);
    side.mover.flush();
    busy |= side.qp.settle(wire.now);
    busy |= side.qp.transmit(wire.now, options.budget_bytes);
    side.mover.flush();
    busy |= side.qp.settle(wire.now);
    // What it has let go of is the device's to close.
    if (was_attached && !side.qp.attached()) side.tcp.close();
    return busy | !side.mover.idle();
  }
  bool step() {
    bool busy = turn(*a);
    busy |= turn(*b);
    return wire.carry() | busy;
  }
  // Until nothing happens any more, time standing still.
  void run(int turns_max = 20000) {
    for (int quiet = 0; quiet < 6 && turns_max > 0; --turns_max) quiet = step() ? 0 : quiet + 1;
    if (turns_max == 0) throw std::runtime_error("it never comes to rest");
  }
  // And with time going on, in steps.
  void pass(Duration duration, Duration step_of = milliseconds(50)) {
    for (Duration done{0}; done < duration; done = done + step_of) {
      wire.now = wire.now + step_of;
      run();
    }
  }
  Options options;
  Wire wire;
  std::unique_ptr<Side> a, b;
};

// ---- a raw peer ----------------------------------------------------------------------------------------

// One of our queue pairs, and a peer that is nothing but a TCP connection and MPA framing.
struct Raw {
  explicit Raw(qp::Start start = default_start(), std::function<void(qp::Config&)> change = {},
               Moves moves = Moves::direct, const tcp::Options& with = {}, std::uint32_t buffer_bytes = 9216,
               tpt::Table* shared = nullptr)
      : options(with),
        pool(1024, buffer_bytes),
        packer(start.crc, start.markers_in == mpa::Markers::none ? mpa::Markers::none : mpa::Markers::inserted),
        framer(start.crc, start.markers_out ? mpa::Markers::expected : mpa::Markers::none) {
    qp::Config config = default_config(1);
    if (change) change(config);
    us = std::make_unique<Side>(config, moves, 1, options, buffer_bytes, shared);
    wire.options = options;
    wire.a.tcp = &us->tcp;
    wire.a.pool = &us->pool;
    wire.b.tcp = &tcp;
    wire.b.pool = &pool;
    wire.join();
    us->qp.attach(us->tcp, start, wire.now);
  }
  void run(int turns_max = 5000) {
    for (int quiet = 0; quiet < 6 && turns_max > 0; --turns_max) {
      bool busy = us->qp.receive(wire.now);
      us->mover.flush();
      busy |= us->qp.settle(wire.now);
      busy |= us->qp.transmit(wire.now, 1u << 20);
      us->mover.flush();
      busy |= us->qp.settle(wire.now);
      busy |= wire.carry();
      busy |= listen();
      quiet = busy || !us->mover.idle() ? 0 : quiet + 1;
    }
    if (turns_max == 0) throw std::runtime_error("it never comes to rest");
  }
  void pass(Duration duration, Duration step_of = milliseconds(50)) {
    for (Duration done{0}; done < duration; done = done + step_of) {
      wire.now = wire.now + step_of;
      run();
    }
  }
  // Sends octets as they are.
  void say_octets(const Octets& octets) {
    BufferRef buffer = BufferRef::take(pool);
    const MutableBytes room = buffer->append(static_cast<std::uint32_t>(octets.size()));
    std::memcpy(room.data(), octets.data(), octets.size());
    if (!tcp.append(std::move(buffer))) std::abort();
  }
  Octets fpdu(const Octets& ulpdu) {
    Octets out(packer.octets_for(static_cast<std::uint32_t>(ulpdu.size())));
    auto pieces = std::make_unique<mpa::PieceList>();
    packer.begin(out, Bytes(ulpdu), 0, *pieces);
    packer.seal(out);
    return out;
  }
  // Says one FPDU and lets the world react.
  void say(const Octets& ulpdu) {
    say_octets(fpdu(ulpdu));
    run();
  }
  bool listen() {
    if (deaf) return false;
    std::vector<Bytes> spans;
    for (std::size_t i = 0; i < tcp.readable_count(); ++i) spans.push_back(tcp.readable(i).span);
    mpa::Cursor at(spans);
    std::uint64_t taken = 0;
    auto list = std::make_unique<mpa::SpanList>();
    for (;;) {
      auto next = framer.next(at, *list);
      if (!next) throw std::runtime_error("what came is no FPDU");
      if (!next->has_value()) break;
      Octets ulpdu(list->size);
      list->copy(0, ulpdu);
      heard.push_back(ulpdu);
      taken += (*next)->octets;
      if ((*next)->stored) framer.release_store();
    }
    if (taken != 0) tcp.consume(taken);
    return taken != 0;
  }
  // The Terminates heard.
  std::vector<wire::TerminateMessage> terminates() const {
    std::vector<wire::TerminateMessage> out;
    for (const Octets& ulpdu : heard) {
      const auto header = wire::parse_ddp(ulpdu);
      if (!header || wire::rdmap_opcode(header->rdmap_control) != wire::RdmapOpcode::terminate) continue;
      const auto message = wire::parse_terminate(Bytes(ulpdu).subspan(18));
      if (message) out.push_back(*message);
    }
    return out;
  }
  std::vector<Octets> heard_opcode(wire::RdmapOpcode opcode) const {
    std::vector<Octets> out;
    for (const Octets& ulpdu : heard)
      if (wire::rdmap_opcode(std::to_integer<std::uint8_t>(ulpdu[1])) == opcode) out.push_back(ulpdu);
    return out;
  }
  tcp::Options options;
  Wire wire;
  HeapPool pool;
  tcp::Connection tcp{options};
  mpa::Packer packer;
  mpa::Framer framer;
  std::vector<Octets> heard;
  bool deaf = false;  // it takes nothing from its connection: the window closes
  std::unique_ptr<Side> us;
};

inline qp::Start responder_start() {
  qp::Start start = default_start();
  start.initiator = false;
  return start;
}

}  // namespace rnic::test
