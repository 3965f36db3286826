#include "qp/stream_out.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "wire/mpa.hpp"

namespace rnic::qp {
namespace {

// A gather's token: the segment's number, modulo kSegmentsMax, and the work request. There are never more slots.
static_assert(kSegmentsMax <= 256);
constexpr std::uint32_t gather_token(std::uint64_t segment, std::uint32_t work) {
  return rdmap::token::kGather | (work & 0xFFFF) << 8 | static_cast<std::uint32_t>(segment % kSegmentsMax);
}
constexpr std::uint32_t segment_of(std::uint32_t token) { return token & 0xFF; }
constexpr std::uint32_t work_of(std::uint32_t token) { return token >> 8 & 0xFFFF; }
constexpr std::uint32_t kNoWork = rdmap::Requester::kNoWork;

struct Summing final : tpt::Copying {
  explicit Summing(wire::Crc32c before) : crc(before) {}
  void copy(Bytes from, MutableBytes into) override { crc.add_copied(from, into); }
  wire::Crc32c crc;
};

// Fewer are not worth a large buffer.
constexpr std::uint32_t kRunSegmentsMin = 4;
// Octets: of less, copied first, the CRC is as quick (crc32c-cost).
constexpr std::uint32_t kOnePassMin = 4096;

}  // namespace

StreamOut::StreamOut(const Parts& parts, mpa::Crc crc, mpa::Markers markers)
    : connection_(parts.connection),
      requester_(parts.requester),
      gate_(parts.gate),
      common_(parts.common),
      counters_(parts.counters),
      pool_(parts.pool),
      markers_(markers),
      packer_(crc, markers) {
  unsealed_.reserve(kUnsealedMax);
}

// ---- messages and segments -----------------------------------------------------------------------------

bool StreamOut::fill(Instant now, std::int64_t& budget_bytes, std::uint32_t beside_per_cost, rdmap::Verdict& verdict) {
  beside_per_cost_ = beside_per_cost;
  starved_ = false;
  requester_.look_again();
  needs_room_ = 0;
  std::uint32_t room = connection_.room_bytes();
  // What goes without the stream needs no window. What then has to take it waits for one there.
  if (local_ != nullptr && local_->is_usual()) room = std::max(room, kLocalFillMin);
  room_ = room > filling_bytes_ ? room - filling_bytes_ : 0;
  // With markers full FPDUs are not of equal length.
  run_bytes_ = room_ != 0 && markers_ == mpa::Markers::none ? connection_.run_bytes() : 0;
  bool busy = false;
  while (budget_bytes > 0 && !verdict) {
    const bool begins = !requester_.sending();
    if (begins && !begin_message(verdict)) break;
    busy |= begins;
    if (requester_.sending()) {
      if (!go_locally(budget_bytes, now, verdict) && !add_fpdu(budget_bytes, now, verdict)) break;
      busy = true;
    }
    if (begins) budget_bytes -= kMessageCost;
  }
  close_segment();
  return busy;
}

// False: nothing can be begun now.
bool StreamOut::begin_message(rdmap::Verdict& verdict) {
  if (gate_.rtr_due()) {
    // It is no work of the consumer's (W-MPA-42, -45, -46).
    switch (gate_.take_rtr(next_)) {
      case Gate::Rtr::none:
        break;
      case Gate::Rtr::write:
        requester_.begin_empty_write();
        break;
      case Gate::Rtr::send:
        requester_.begin_empty_send();
        break;
      case Gate::Rtr::read:
        requester_.begin_empty_read();
        break;
    }
    return true;
  }
  if (!gate_.open()) return false;  // W-MPA-21, -42
  if (gate_.nudge_due()) {
    // No work of the consumer's either, and nothing to the peer's: see kNudges.
    gate_.nudged();
    requester_.begin_empty_write();
    return true;
  }
  return requester_.begin(verdict);
}

// One DDP segment of the message under way. False: no room for it now.
bool StreamOut::add_fpdu(std::int64_t& budget_bytes, Instant now, rdmap::Verdict& verdict) {
  const bool may_go_locally = local_ != nullptr && local_->allowed;
  // The first segment of a turn may be a probe of the path's MTU.
  const std::uint32_t emss =
      open_.segment == nullptr && !may_go_locally ? connection_.begin_segment(room_, now) : connection_.emss();
  rdmap::OutboundSegment segment;
  verdict = requester_.next_segment(mpa::mulpdu(std::min(emss, room_of_buffer()), markers_), segment);
  // Or what was to be sent has failed, and is told in its turn.
  if (verdict || !requester_.sending()) return true;

  const std::uint32_t octets = packer_.octets_for(segment.header_bytes + segment.payload_bytes);
  // A message that goes on behind this FPDU begins a run; not so a probe of the path, nor what may go without the
  // stream.
  const bool runs = run_bytes_ != 0 && !segment.cut.last && !may_go_locally && emss == connection_.emss();
  // About what is left of the message, with its headers.
  const std::uint32_t left = requester_.message().left() + requester_.message().left() / 4;
  Segment* const into = room_for(octets, emss, runs ? std::min({run_bytes_, room_, left}) : 0);
  if (into == nullptr) return false;
  const std::uint32_t offset = into->buffer->length;
  const MutableBytes fpdu = into->buffer->append(octets);
  packer_.begin(fpdu, Bytes(segment.header).first(segment.header_bytes), segment.payload_bytes, pieces_);
  filling_bytes_ += octets;
  room_ -= std::min(room_, octets);
  open_.room_bytes -= std::min(open_.room_bytes, octets);
  ++counters_.fpdus_out;

  if (may_go_locally) gather(*into);
  if (may_go_locally || !gather_and_seal(*into, fpdu, segment.payload_bytes)) {
    unsealed_.push({.offset = offset,
                    .size = octets,
                    .more = requester_.message().left() - segment.cut.payload,
                    .may_go_locally = may_go_locally,
                    .ends_message = segment.cut.last});
    ++into->unsealed;
  }
  budget_bytes -= octets;
  requester_.segment_taken(segment, next_ - 1);
  // A run is of one message: what fails in a later one does not keep it back (V-STOP-03).
  if (segment.cut.last && open_.run_bytes != 0) close_segment();
  return true;
}

// ---- without the stream --------------------------------------------------------------------------------

// The next DDP segment of the message under way, from memory to memory. A message that has begun in packet buffers
// stays there; one that has begun here goes on there where it has to.
bool StreamOut::go_locally(std::int64_t& budget_bytes, Instant now, rdmap::Verdict& verdict) {
  if (local_ == nullptr) [[likely]]
    return false;
  LocalPath& local = *local_;
  const ddp::OutboundMessage& message = requester_.message();
  if (message.done == 0) local.allowed = requester_.is_somebodys() && local.side.is_allowed();
  const bool goes_on = std::exchange(local.in_message, false);
  if (!local.allowed || (message.done != 0 && !goes_on)) return false;
  if (!empty() || !local.peer.is_open() || !local.peer.has_taken(connection_.appended())) return false;
  const std::uint32_t piece = std::min(requester_.piece_bytes(), kLocalSegmentMax);
  rdmap::OutboundSegment segment;
  verdict = requester_.next_segment(message.header_bytes() + piece, segment);
  // Or what was to be sent has failed, and is told in its turn.
  if (verdict || !requester_.sending()) return true;
  tpt::Access from;
  if (segment.payload_bytes != 0) {
    from = requester_.piece(segment.payload_bytes);
    if (from.direct == nullptr) return false;
  }

  const std::array<Bytes, 1> header{Bytes(segment.header).first(segment.header_bytes)};
  const std::uint32_t octets = segment.header_bytes + segment.payload_bytes;
  const ddp::Ulpdu ulpdu(header, octets, segment.payload_bytes != 0 ? &from : nullptr);
  const bool last = segment.cut.last;
  if (!local.peer.would_take(ulpdu, message.left() - segment.cut.payload)) return false;
  local.went();
  local.side.count(octets);
  local.in_message = !last;
  local.peer.take(ulpdu, last, nullptr, now);

  if (last) ++counters_.direct_out;
  if (segment.payload_bytes != 0)
    requester_.payload(
        segment.payload_bytes, [](Bytes) {}, [](const tpt::Access&) {});
  // Of a carrier that has left at once.
  requester_.segment_taken(segment, next_);
  first_ = ++next_;
  requester_.carried_up_to(first_);
  budget_bytes -= octets / beside_per_cost_;
  beside_bytes_ += octets;
  return true;
}

// The FPDUs of a segment that is gathered, as far as the peer would take them. What is left then takes the stream.
StreamOut::HandedOver StreamOut::hand_over(Segment& segment, Instant now) {
  const Bytes filled = segment.buffer->bytes();
  while (segment.unsealed != 0) {
    const UnsealedFpdu fpdu = unsealed_.front();
    LocalPath* const local = local_;  // which may come to its end with every FPDU
    // None goes before one that has to take the stream.
    if (local == nullptr || !fpdu.may_go_locally || fpdu.offset != segment.taken || !local->peer.is_open()) break;
    if (!local->peer.has_taken(connection_.appended())) {
      if (local->may_wait()) return HandedOver::look_again;
      break;
    }
    const Bytes octets = filled.subspan(fpdu.offset, fpdu.size);
    const std::uint32_t size = load_be<std::uint16_t>(octets, 0);
    const std::array<Bytes, 1> ulpdu{octets.subspan(wire::kFpduHeaderSize, size)};
    if (!local->peer.would_take({ulpdu, size}, fpdu.more)) {
      local->has_to_take_stream();
      break;
    }
    local->went();
    local->side.count(size);
    unsealed_.pop();
    --segment.unsealed;
    local->peer.take({ulpdu, size}, fpdu.ends_message, &segment.buffer, now);
    if (fpdu.ends_message) ++counters_.direct_out;
    --counters_.fpdus_out;
    segment.taken += fpdu.size;
    beside_bytes_ += fpdu.size;
    filling_bytes_ -= fpdu.size;
  }
  if (segment.taken == filled.size()) return HandedOver::all;
  // TCP writes its header in front of the rest, where octets may still wait to be placed.
  waits_for_peer_ = segment.taken != 0 && pool_.shared(*segment.buffer);
  return waits_for_peer_ ? HandedOver::until_let_go : HandedOver::not_all;
}

// What the FPDU begun now is cut for: a large buffer, if there is one, else a small one. Smaller FPDUs
// than the path has room for are slower, and wait for nobody. Of small ones the whole frame is to fit
// one, as a receiver may put it there.
std::uint32_t StreamOut::room_of_buffer() const {
  const bool any = pool_.large_available() != 0 || pool_.small_room_bytes() == pool_.room_bytes();
  const std::uint32_t fresh = any ? pool_.room_bytes() : pool_.small_room_bytes() - kHeadroom;
  return open_.segment == nullptr ? fresh : std::max(fresh, open_.room_bytes);
}

StreamOut::Segment& StreamOut::add_segment(BufferRef buffer) {
  RNIC_ASSERT(open_.segment == nullptr);
  segments_.need(static_cast<std::uint32_t>(first_), static_cast<std::uint32_t>(next_), kSegmentsMax);
  Segment& segment = at(next_++);
  segment = Segment{};
  segment.buffer = std::move(buffer);
  return segment;
}

// Whether an FPDU of so many octets begins another segment of the open run, all of whose segments are of equal length
// so far.
bool StreamOut::goes_on(std::uint32_t octets) {
  const std::uint32_t length = open_.segment->buffer->length, last = length - open_.last_at;
  const std::uint32_t unit = open_.segment->unit_bytes != 0 ? open_.segment->unit_bytes : last;
  if (last != unit || octets > unit || octets > room_ || length + octets > open_.run_bytes) return false;
  if (length >= unit * tcp::kRunSegmentsMax) return false;
  open_.segment->unit_bytes = static_cast<std::uint16_t>(unit);
  open_.last_at = length;
  open_.room_bytes = std::min({unit, room_, open_.run_bytes - length});
  return true;
}

// A segment that takes an FPDU of so many octets: the open one, or a fresh one of up to `emss`, which may become a run
// of up to `run_bytes`.
StreamOut::Segment* StreamOut::room_for(std::uint32_t octets, std::uint32_t emss, std::uint32_t run_bytes) {
  if (unsealed_.full()) return nullptr;
  if (open_.segment != nullptr && (octets <= open_.room_bytes || (open_.run_bytes != 0 && goes_on(octets))))
    return open_.segment;
  close_segment();
  // Less room than the FPDU, though no less than a full segment: it is larger than one (W-MPA-58).
  if (room_ < std::min(octets, emss)) {
    needs_room_ = octets;
    return nullptr;
  }
  if (filling() == kSegmentsMax) return nullptr;
  BufferRef buffer;
  std::uint32_t run_room = 0;
  if (run_bytes >= kRunSegmentsMin * octets) {
    buffer = BufferRef(pool_.take_large());
    if (buffer) run_room = std::min(run_bytes, buffer->tailroom());
  }
  if (!buffer) buffer = BufferRef::take(pool_, octets + kHeadroom);
  if (!buffer) {
    starved_ = true;  // a pause, not an error
    return nullptr;
  }
  RNIC_ASSERT(octets <= buffer->tailroom());
  const std::uint32_t tail = buffer->tailroom();
  const std::uint32_t room =
      std::max(octets, std::min({emss, room_, tail >= pool_.room_bytes() ? tail : tail - kHeadroom}));
  open_ = {.segment = &add_segment(std::move(buffer)), .room_bytes = room, .run_bytes = run_room};
  return open_.segment;
}

// The payload of the segment under way, into pieces_, and the CRC. False: it is not sealed, as some of it comes later,
// or not.
bool StreamOut::gather_and_seal(Segment& segment, MutableBytes fpdu, std::uint32_t payload_bytes) {
  if (payload_bytes >= kOnePassMin && packer_.sums_payload(payload_bytes)) return gather_summed(segment, fpdu);
  const std::uint32_t gathers_before = segment.gathers;
  gather(segment);
  if (segment.gathers != gathers_before) return false;
  packer_.seal(fpdu);
  return true;
}

// The payload of the segment under way, into pieces_.
void StreamOut::gather(Segment& segment) {
  const std::uint32_t work = requester_.work_id();
  for (std::uint32_t i = 0; i < pieces_.count; ++i) {
    MutableBytes into = pieces_.pieces[i];
    requester_.payload(
        static_cast<std::uint32_t>(into.size()),
        [&](Bytes from) { std::memcpy(into.data(), from.data(), from.size()); },
        [&](const tpt::Access& from) {
          take_moved(common_.mover.gather(from, into.first(from.length), ticket(work)), segment, work);
          into = into.subspan(from.length);
        });
  }
}

// Of an FPDU whose payload is one piece, with the CRC taken on the way.
bool StreamOut::gather_summed(Segment& segment, MutableBytes fpdu) {
  const std::uint32_t work = requester_.work_id();
  const MutableBytes payload = pieces_.pieces[0];
  Summing summing(mpa::Packer::sum_before(fpdu, payload));
  MutableBytes into = payload;
  bool all = true;
  requester_.payload(
      static_cast<std::uint32_t>(into.size()), [&](Bytes from) { summing.copy(from, into); },
      [&](const tpt::Access& from) {
        all &= take_moved(common_.mover.gather(from, into.first(from.length), ticket(work), summing), segment, work);
        into = into.subspan(from.length);
      });
  if (all) mpa::Packer::seal(fpdu, payload, summing.crc);
  return all;
}

tpt::MoveTicket StreamOut::ticket(std::uint32_t work) const { return {&common_.owner, gather_token(next_ - 1, work)}; }

// Whether it is there.
bool StreamOut::take_moved(tpt::Moved moved, Segment& segment, std::uint32_t work) {
  switch (moved) {
    case tpt::Moved::done:
      return true;
    case tpt::Moved::failed:
      if (!segment.failed) segment.failed_work = work;
      segment.failed = true;
      return false;
    case tpt::Moved::later:
      ++segment.gathers;
      ++common_.moves.gathers;
      if (work == kNoWork) ++common_.moves.response_gathers;
      return false;
  }
  return false;
}

void StreamOut::on_moved(std::uint32_t token, bool ok) {
  Segment& segment = segments_[segment_of(token)];
  RNIC_ASSERT(segment.gathers != 0 && common_.moves.gathers != 0);
  --segment.gathers;
  --common_.moves.gathers;
  if (work_of(token) == kNoWork) --common_.moves.response_gathers;
  if (!ok && !segment.failed) {
    segment.failed = true;
    segment.failed_work = work_of(token);
  }
}

// ---- to TCP --------------------------------------------------------------------------------------------

bool StreamOut::push(Instant now, std::optional<std::uint32_t>& failed_work) {
  bool busy = false;
  waits_for_slot_ = waits_for_peer_ = false;
  while (first_ != next_) {
    Segment& segment = at(first_);
    if (&segment == open_.segment || segment.gathers != 0) break;
    if (segment.failed) {
      // It is not sent, nor anything behind it.
      failed_work = segment.failed_work;
      close_segment();
      return true;
    }
    if ((local_ == nullptr || segment.unsealed == 0) && segment.taken == 0) [[likely]] {
      if (!append(segment)) break;
    } else {
      const HandedOver handed = hand_over(segment, now);
      if (handed == HandedOver::look_again || handed == HandedOver::until_let_go) break;
      if (handed == HandedOver::not_all && !append(segment)) break;
      segment.buffer.reset();
    }
    requester_.carried_up_to(++first_);
    busy = true;
    if (gate_.sent_up_to(first_)) requester_.posted();
  }
  return busy;
}

bool StreamOut::append(Segment& segment) {
  const std::uint32_t taken = std::exchange(segment.taken, 0);
  segment.buffer->trim_front(taken);
  for (; segment.unsealed != 0; --segment.unsealed) {
    const UnsealedFpdu& fpdu = unsealed_.front();
    packer_.seal(segment.buffer->bytes().subspan(fpdu.offset - taken, fpdu.size));
    unsealed_.pop();
  }
  const std::uint32_t length = segment.buffer->length;
  // No slot: it stays here until acknowledgements free one.
  BufferRef share = segment.buffer.share();
  waits_for_slot_ = !connection_.append(std::move(share), segment.unit_bytes);
  if (waits_for_slot_) return false;
  segment.buffer.reset();
  filling_bytes_ -= length;
  return true;
}

// ---- the way down ----------------------------------------------------------------------------------------

void StreamOut::drop() {
  close_segment();
  std::uint32_t dropped = 0;
  for (; first_ != next_; ++first_) {
    Segment& segment = at(first_);
    dropped += segment.buffer->length;
    segment.buffer.reset();
  }
  requester_.carried_up_to(first_);
  // Their places in the FPDU stream are free again: a Terminate may follow, and markers count.
  if (dropped != 0) packer_.take_back(dropped);
  filling_bytes_ = 0;
  unsealed_.clear();
  gate_.segments_dropped();
}

BufferRef StreamOut::buffer_for_last() {
  BufferRef buffer = BufferRef::take(pool_);
  starved_ = !buffer;
  return buffer;
}

void StreamOut::append_last(std::span<const Last> messages, BufferRef buffer) {
  for (const Last& each : messages) write_fpdu(each.message, each.payload, *buffer);
  filling_bytes_ += buffer->length;
  add_segment(std::move(buffer));
}

void StreamOut::append_last_at_once(std::span<const Last> messages, BufferRef buffer) {
  for (const Last& each : messages) write_fpdu(each.message, each.payload, *buffer);
  connection_.append_last(std::move(buffer));
}

void StreamOut::write_fpdu(const ddp::OutboundMessage& message, Bytes payload, Buffer& into) {
  const auto size = static_cast<std::uint32_t>(payload.size());
  std::array<std::byte, wire::UntaggedHeader::kSize> header;
  ddp::write_header(message, {size, true}, header);
  const MutableBytes fpdu = into.append(packer_.octets_for(static_cast<std::uint32_t>(header.size()) + size));
  packer_.begin(fpdu, header, size, pieces_);
  for (std::uint32_t i = 0; i < pieces_.count; ++i) {
    const MutableBytes piece = pieces_.pieces[i];
    std::memcpy(piece.data(), payload.data(), piece.size());
    payload = payload.subspan(piece.size());
  }
  packer_.seal(fpdu);
}

void StreamOut::keep(tpt::Kept& kept) const {
  for (std::uint64_t i = first_; i != next_; ++i)
    if (const Segment& segment = at(i); segment.gathers != 0) kept.buffers.push_back(segment.buffer.share());
}

}  // namespace rnic::qp
