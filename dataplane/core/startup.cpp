#include "core/startup.hpp"

#include <algorithm>
#include <memory>

#include "mpa/packer.hpp"
#include "wire/ddp.hpp"
#include "wire/rdmap.hpp"
#include "wire/terminate.hpp"

namespace rnic::core {

namespace {

constexpr std::uint32_t kDepthUnknown = 128;  // what a peer that negotiates no depths is taken to have

std::uint32_t depth_of(std::uint16_t told) {
  return told == wire::EnhancedBlock::kNotNegotiated ? kDepthUnknown : told;
}
std::uint16_t depth_for(std::uint32_t wanted) {
  return static_cast<std::uint16_t>(std::min<std::uint32_t>(wanted, wire::EnhancedBlock::kDepthMax));
}

void copy_private_data(Bytes from, PrivateData& to) {
  to.length = static_cast<std::uint16_t>(std::min(from.size(), to.octets.size()));
  std::copy_n(from.begin(), to.length, to.octets.begin());
}

qp::Start::Rtr rtr_of(mpa::Rtr rtr) {
  switch (rtr) {
    case mpa::Rtr::none:
      return qp::Start::Rtr::none;
    case mpa::Rtr::write:
      return qp::Start::Rtr::write;
    case mpa::Rtr::read:
      return qp::Start::Rtr::read;
    case mpa::Rtr::send:
      return qp::Start::Rtr::send;
  }
  return qp::Start::Rtr::none;
}

mpa::StartupOptions options_of(const DeviceOptions& device) {
  mpa::StartupOptions startup;
  startup.crc = device.crc_required;
  startup.markers = device.markers;
  startup.revision = static_cast<std::uint8_t>(device.mpa_revision);
  startup.peer_to_peer = device.peer_to_peer;
  startup.request_timeout = device.request_timeout;
  startup.reply_timeout = device.reply_timeout;
  return startup;
}

mpa::StartupOptions options_of_call(const DeviceOptions& device, const ConnectOptions& wishes,
                                    const qp::Config& queue_pair, Startup::Markers markers) {
  mpa::StartupOptions startup = options_of(device);
  if (markers == Startup::Markers::not_asked_for) startup.markers = mpa::MarkerUse::send;
  if (wishes.meeting || wishes.greets) {  // either side may speak first, whatever is configured for strangers
    startup.revision = 2;
    startup.peer_to_peer = true;
  }
  if (wishes.greets) {  // a greeting says the depths, and others have none
    startup.negotiate_depths = false;
    startup.markers = mpa::MarkerUse::send;
  }
  startup.ird = depth_for(wishes.ird);
  startup.ord = depth_for(wishes.ord);
  startup.ird_max = depth_for(queue_pair.ird_max);
  startup.ord_max = depth_for(queue_pair.ord_max);
  return startup;
}

}  // namespace

Startup::Startup(const DeviceOptions& device, Instant now)
    : machine_(std::in_place_type<mpa::Responder>, options_of(device), now) {}

Startup::Startup(const DeviceOptions& device, const ConnectOptions& wishes, const qp::Config& queue_pair,
                 Markers markers, Instant now)
    : machine_(std::in_place_type<mpa::Initiator>, options_of_call(device, wishes, queue_pair, markers),
               bytes_of(wishes.private_data), now) {}

// ---- its course ---------------------------------------------------------------------------

Startup::Outcome Startup::outcome() const {
  return std::visit([](const auto& machine) { return machine.outcome(); }, machine_);
}

Startup::Outcome Startup::feed(tcp::Connection& tcp) {
  Outcome outcome = Outcome::more;
  bool stuck = false;
  while (outcome == Outcome::more && !stuck && tcp.readable_count() > 0) {
    const Bytes octets = tcp.readable(0).span;
    const mpa::Fed fed = std::visit([&](auto& machine) { return machine.feed(octets); }, machine_);
    tcp.consume(fed.consumed);
    outcome = fed.outcome;
    stuck = fed.consumed == 0;
  }
  if (outcome == Outcome::more && tcp.peer_closed() && tcp.ended() == tcp::Ended::no)
    outcome = std::visit([](auto& machine) { return machine.on_end(); }, machine_);
  return outcome;
}

Startup::Outcome Startup::on_time(Instant now) {
  return std::visit([&](auto& machine) { return machine.on_time(now); }, machine_);
}

Instant Startup::next_deadline() const {
  return std::visit([](const auto& machine) { return machine.next_deadline(); }, machine_);
}

// ---- what the peer said -------------------------------------------------------------------

void Startup::describe_peer(StreamEvent& event) const {
  event.ird = depth_of(negotiated().peer_ord);
  event.ord = depth_of(negotiated().peer_ird);
  event.private_data = private_data();
}

PrivateData Startup::private_data() const {
  PrivateData data;
  copy_private_data(std::visit([](const auto& machine) { return machine.private_data(); }, machine_), data);
  return data;
}

Startup::Depths Startup::depths_of_reply() const {
  const mpa::Negotiated& holds = negotiated();
  Depths depths{holds.ird, holds.ord};
  if (holds.peer_ord != wire::EnhancedBlock::kNotNegotiated) depths.ird = holds.peer_ord;
  if (holds.peer_ird != wire::EnhancedBlock::kNotNegotiated) depths.ord = holds.peer_ird;
  return depths;
}

bool Startup::may_be_for_markers() const {
  return initiator().negotiated().markers_out == mpa::Markers::none && initiator().private_data().empty();
}

// ---- answering ----------------------------------------------------------------------------

std::optional<Bytes> Startup::accept(const AcceptOptions& options) {
  const auto reply = std::get<mpa::Responder>(machine_).accept(bytes_of(options.private_data), depth_for(options.ird),
                                                               depth_for(options.ord));
  return reply ? std::optional(*reply) : std::nullopt;
}

std::optional<Bytes> Startup::reject(const PrivateData& private_data) {
  const auto reply = std::get<mpa::Responder>(machine_).reject(bytes_of(private_data));
  return reply ? std::optional(*reply) : std::nullopt;
}

// ---- how it ended -------------------------------------------------------------------------

qp::Start Startup::start() const {
  const mpa::Negotiated& holds = negotiated();
  qp::Start start;
  start.initiator = std::holds_alternative<mpa::Initiator>(machine_);
  start.crc = holds.crc;
  start.markers_out = holds.markers_out != mpa::Markers::none;
  start.markers_in = holds.markers_in;
  start.rtr = rtr_of(holds.rtr);
  start.peer_to_peer = holds.peer_to_peer;
  start.ird = holds.ird;
  start.ord = holds.ord;
  return start;
}

StreamFailure Startup::failure() const {
  const mpa::StartupFailure reason = verdict().reason;
  if (reason == mpa::StartupFailure::timed_out) return StreamFailure::timed_out;
  if (reason == mpa::StartupFailure::ended) return StreamFailure::reset;
  return StreamFailure::protocol;
}

Bytes Startup::terminate(LastFpdu& room) const {
  const auto& code = verdict().terminate;
  if (!code) return {};
  wire::TerminateMessage message;
  message.code = *code;
  std::array<std::byte, wire::UntaggedHeader::kSize + wire::TerminateMessage::kSizeMax> ulpdu;
  wire::emit(wire::UntaggedHeader{.last = true,
                                  .rdmap_control = wire::rdmap_control(wire::RdmapOpcode::terminate),
                                  .invalidate = {},
                                  .queue = wire::queue_number::kTerminate,
                                  .msn = 1,
                                  .message_offset = 0},
             ulpdu);
  const std::size_t size =
      wire::UntaggedHeader::kSize + wire::emit(message, MutableBytes(ulpdu).subspan(wire::UntaggedHeader::kSize));
  return pack(Bytes(ulpdu).first(size), negotiated().markers_out, room);
}

Bytes Startup::confirmation(LastFpdu& room) const {
  std::array<std::byte, wire::TaggedHeader::kSize> ulpdu;
  wire::emit(wire::TaggedHeader{.last = true, .rdmap_control = wire::rdmap_control(wire::RdmapOpcode::write)}, ulpdu);
  const bool ours = std::holds_alternative<mpa::Initiator>(machine_);
  return pack(ulpdu, ours ? negotiated().markers_out : negotiated().markers_in, room);
}

// As the first FPDU of its direction.
Bytes Startup::pack(Bytes ulpdu, mpa::Markers markers, LastFpdu& room) const {
  mpa::Packer packer(negotiated().crc, markers);
  auto pieces = std::make_unique<mpa::PieceList>();
  const std::uint32_t octets = packer.begin(room, ulpdu, 0, *pieces);
  packer.seal(MutableBytes(room).first(octets));
  return Bytes(room).first(octets);
}

const mpa::Negotiated& Startup::negotiated() const {
  return std::visit([](const auto& machine) -> const mpa::Negotiated& { return machine.negotiated(); }, machine_);
}

const mpa::StartupVerdict& Startup::verdict() const {
  return std::visit([](const auto& machine) -> const mpa::StartupVerdict& { return machine.verdict(); }, machine_);
}

}  // namespace rnic::core
