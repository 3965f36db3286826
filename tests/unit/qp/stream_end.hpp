// One end's messages on a stream, without a queue pair around them: both directions of qp/ over a connection, whose
// peer is nothing but TCP and MPA framing.
#pragma once

#include <optional>
#include <vector>

#include "kit/qp_world.hpp"
#include "kit/rdmap_end.hpp"
#include "qp/gate.hpp"
#include "qp/stream_in.hpp"
#include "qp/stream_out.hpp"

namespace rnic::test {

// Connections, joined before anything stands on them.
struct Joined {
  Joined(const PoolSize& buffers, const tcp::Options& given) : options(given), pool(buffers) {
    wire.options = options;
    wire.a.tcp = &tcp;
    wire.a.pool = &incoming;
    wire.b.tcp = &peer;
    wire.b.pool = &peers_pool;
    wire.join();
  }
  tcp::Options options;
  HeapPool pool;                 // what our segments are taken from
  HeapPool incoming{512, 9216};  // what the peer's come in
  HeapPool peers_pool{1024, 9216};
  tcp::Connection tcp{options}, peer{options};
  Wire wire;
};

struct StreamEnd : Joined, End {
  explicit StreamEnd(const qp::Start& start = default_start(), Moves moves = Moves::direct,
                     const rdmap::Settings& given = default_settings(),
                     const PoolSize& buffers = {.count = 512, .room_bytes = 9216},
                     const tcp::Options& with_options = {})
      : Joined(buffers, with_options),
        End(given, moves),
        gate(start, wire.now),
        out({tcp, requester, gate, common, all_counters, pool}, start.crc,
            start.markers_out ? mpa::Markers::inserted : mpa::Markers::none),
        in({tcp, responder, requester, nullptr, gate, all_counters, scratch}, start.crc, mpa::Markers::none),
        packer(start.crc, mpa::Markers::none),
        framer(start.crc, start.markers_out ? mpa::Markers::expected : mpa::Markers::none) {}

  qp::QpCounters all_counters;
  qp::Scratch scratch;
  qp::Gate gate;
  qp::StreamOut out;
  qp::StreamIn in;
  rdmap::Verdict verdict;
  std::optional<std::uint32_t> failed_work;

  // ---- ours ----
  bool fill(std::uint32_t budget_bytes = 1u << 20) {
    ++common.turn;
    verdict = {};
    std::int64_t left_bytes = budget_bytes;
    return out.fill(wire.now, left_bytes, 1, verdict);
  }
  bool push() {
    failed_work.reset();
    return out.push({}, failed_work);
  }
  bool parse() {
    ++common.turn;
    verdict = {};
    return in.parse(wire.now, verdict);
  }
  void on_moved(std::uint32_t token, bool ok) override {
    if ((token & rdmap::token::kGather) != 0)
      out.on_moved(token, ok);
    else
      End::on_moved(token, ok);
  }

  // ---- the peer's ----
  // The ULPDUs that it has heard since it was last asked.
  std::vector<Octets> heard() {
    for (int i = 0; i < 20; ++i) wire.carry();
    std::vector<Bytes> spans;
    for (std::size_t i = 0; i < peer.readable_count(); ++i) spans.push_back(peer.readable(i).span);
    mpa::Cursor at(spans);
    std::vector<Octets> ulpdus;
    std::uint64_t taken = 0;
    auto list = std::make_unique<mpa::SpanList>();
    for (;;) {
      const auto next = framer.next(at, *list);
      if (!next) throw std::runtime_error("what came is no FPDU");
      if (!next->has_value()) break;
      list->copy(0, ulpdus.emplace_back(list->size));
      taken += (*next)->octets;
      if ((*next)->stored) framer.release_store();
    }
    if (taken != 0) peer.consume(taken);
    for (int i = 0; i < 20; ++i) wire.carry();
    return ulpdus;
  }
  Octets fpdu(const Octets& ulpdu) {
    Octets octets(packer.octets_for(static_cast<std::uint32_t>(ulpdu.size())));
    const auto pieces = std::make_unique<mpa::PieceList>();
    packer.begin(octets, Bytes(ulpdu), 0, *pieces);
    packer.seal(octets);
    return octets;
  }
  void say_octets(const Octets& octets) {
    BufferRef buffer = BufferRef::take(peers_pool);
    const MutableBytes room = buffer->append(static_cast<std::uint32_t>(octets.size()));
    std::memcpy(room.data(), octets.data(), octets.size());
    if (!peer.append(std::move(buffer))) std::abort();
    wire.carry();
  }
  void say_fpdu(const Octets& ulpdu) { say_octets(fpdu(ulpdu)); }

  mpa::Packer packer;
  mpa::Framer framer;
};

}  // namespace rnic::test
