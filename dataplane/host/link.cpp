#include "host/link.hpp"

#include <algorithm>

#include "port/run_cutter.hpp"

namespace rnic::host {

namespace {
constexpr Duration kStuck = milliseconds(100);  // a port that takes nothing for so long loses its frames
}  // namespace

Link::Link(port::Port& port, std::optional<std::uint16_t> vlan, std::uint64_t batch_bytes, Counters& counters)
    : port_(port),
      counters_(counters),
      mac_(port.facts().mac),
      vlan_(vlan),
      checks_in_(!port.facts().verifies_checksums),
      sums_out_(!port.fills_checksums()),
      mtu_bytes_(port.link_mtu()),
      port_mtu_bytes_(mtu_bytes_),
      batch_bytes_(batch_bytes),
      batch_(static_cast<unsigned>(std::clamp<std::uint64_t>(
          batch_bytes / std::max(port.facts().mtu_bytes, port.facts().run_bytes), kBatchMin, kBatchMax))),
      loop_(new Buffer*[kLoopMax]) {}

// The rings hold buffers of the port's pool.
Link::~Link() {
  for (unsigned i = 0; i < transmit_count_; ++i) BufferRef{transmit_[i]}.reset();
  while (loop_head_ != loop_tail_) BufferRef{loop_[loop_head_++ & (kLoopMax - 1)]}.reset();
  for (unsigned i = 0; i < control_count_; ++i) BufferRef{control_[i]}.reset();
}

void Link::set_mtu(std::uint32_t mtu_bytes) { mtu_bytes_ = std::min(mtu_bytes, port_.facts().mtu_bytes); }

// ---- in -----------------------------------------------------------------------------------

Link::Batch Link::receive(Room& room, bool& more) {
  const unsigned count = port_.receive_burst(room.frames, batch_);
  if (taps_ != nullptr) [[unlikely]]
    for (unsigned i = 0; i < count; ++i) show(port::FrameDirection::received, *room.frames[i]);
  more = count == batch_;
  const Batch batch{room.frames, count};
  if (more) size_batch(batch);
  return batch;
}

// The next one is of frames like these.
void Link::size_batch(Batch full) {
  std::uint64_t bytes = 1;
  for (const Buffer* frame : full) bytes += frame->length;
  const std::uint64_t wanted = batch_bytes_ * full.size() / bytes;
  batch_ = static_cast<unsigned>(std::clamp<std::uint64_t>(wanted, kBatchMin, std::min(2 * batch_, kBatchMax)));
}

Link::Batch Link::receive_looped(Room& room, unsigned count, std::uint64_t& bytes, std::uint64_t most) {
  count = std::min({count, looped(), kBatchMax});
  unsigned taken = 0;
  for (; taken < count && bytes < most; ++taken) {
    Buffer* frame = room.frames[taken] = loop_[loop_head_++ & (kLoopMax - 1)];
    bytes += frame->length;
  }
  return {room.frames, taken};
}

// Steps over a tag. False: the frame is of another VLAN than ours. VLAN 0 is no VLAN, only a priority
// (IEEE 802.1Q s6.9.1).
bool Link::take_tag(Bytes frame, Header& header) {
  std::uint16_t id = 0;
  if (header.type == wire::ether_type::kVlan) {
    const auto tag = wire::parse_vlan(frame.subspan(header.size));
    if (!tag) {
      ++counters_.bad_frames;
      return false;
    }
    id = tag->id;
    header.type = tag->type;
    header.size += wire::VlanTag::kSize;
  }
  if (id == vlan_.value_or(0)) return true;
  ++counters_.other_vlan;
  return false;
}

// ---- out ----------------------------------------------------------------------------------

void Link::write_header(const wire::Mac& destination, std::uint16_t type, MutableBytes out) const {
  wire::emit(
      wire::EthernetHeader{.destination = destination, .source = mac_, .type = vlan_ ? wire::ether_type::kVlan : type},
      out);
  if (vlan_) wire::emit(wire::VlanTag{.id = *vlan_, .type = type}, out.subspan(wire::EthernetHeader::kSize));
}

bool Link::refill_control() {
  control_count_ = port_.pool().take(control_.data(), static_cast<unsigned>(control_.size()));
  return control_count_ != 0;
}

BufferRef Link::take_last() {
  BufferRef large{port_.pool().take_large()};
  if (!large) ++counters_.no_buffer;
  return large;
}

BufferRef Link::take_control_for(std::size_t octets) {
  if (octets + kHeadroom > port_.pool().small_room_bytes())
    if (BufferRef large{port_.pool().take_large()}) return large;
  return take_control();
}

void Link::push_loop(BufferRef frame) {
  if (loop_room() == 0) {  // lost, as on any wire; streams have asked for the room before
    ++counters_.frames_dropped;
    return;
  }
  if (taps_ != nullptr) [[unlikely]]
    show(port::FrameDirection::sent, *frame);
  counters_.frames_out += frame->frames();
  counters_.bytes_out += frame->length;
  loop_[loop_tail_++ & (kLoopMax - 1)] = frame.release();
}

void Link::flush(Instant now) {
  if (transmit_count_ == 0) return;
  unsigned sent = 0;
  while (sent < transmit_count_) {
    const unsigned count = std::min(transmit_count_ - sent, kBatchMax);
    std::uint64_t bytes = 0;
    std::array<std::uint32_t, kBatchMax> lengths, frames;
    for (unsigned i = 0; i < count; ++i) {
      lengths[i] = transmit_[sent + i]->length;
      frames[i] = transmit_[sent + i]->frames();
    }
    const unsigned taken = port_.send_burst(transmit_.data() + sent, count);
    for (unsigned i = 0; i < taken; ++i) {
      bytes += lengths[i];
      counters_.frames_out += frames[i];
    }
    counters_.bytes_out += bytes;
    sent += taken;
    if (taken < count) break;
  }
  std::copy(transmit_.begin() + sent, transmit_.begin() + transmit_count_, transmit_.begin());
  transmit_count_ -= sent;
  if (transmit_count_ == 0) {
    progress_at_ = kNever;
    return;
  }
  if (sent > 0 || progress_at_ == kNever) progress_at_ = now;
  if (port_.link_up() && now - progress_at_ < kStuck) return;
  for (unsigned i = 0; i < transmit_count_; ++i) {
    counters_.frames_dropped += transmit_[i]->frames();
    BufferRef{transmit_[i]}.reset();
  }
  transmit_count_ = 0;
  progress_at_ = kNever;
}

// ---- who watches --------------------------------------------------------------------------

void Link::show(port::FrameDirection direction, const Buffer& frame) {
  if (frame.unit_bytes == 0) {
    for (port::Tap* tap = taps_; tap != nullptr; tap = tap->next) tap->on_frame(direction, frame.bytes());
    return;
  }
  // As it is on a wire.
  const port::RunCutter run(frame);
  RNIC_ASSERT(run.frame_bytes_max() <= cut_room_.size());
  for (std::uint32_t i = 0; i < run.count(); ++i) {
    const Bytes cut = Bytes(cut_room_).first(run.write(i, cut_room_));
    for (port::Tap* tap = taps_; tap != nullptr; tap = tap->next) tap->on_frame(direction, cut);
  }
}

void Link::add_tap(port::Tap& tap) {
  cut_room_.resize(wire::kLinkHeaderMax + port_.facts().mtu_bytes);
  tap.next = taps_;
  taps_ = &tap;
}

void Link::remove_tap(port::Tap& tap) {
  port::Tap** at = &taps_;
  while (*at != nullptr && *at != &tap) at = &(*at)->next;
  if (*at != nullptr) *at = tap.next;
}

}  // namespace rnic::host
