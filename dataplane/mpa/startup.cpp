#include "mpa/startup.hpp"

#include <algorithm>
#include <cstring>

namespace rnic::mpa {
namespace {

using wire::EnhancedBlock;
using Outcome = Fed::Outcome;

std::uint16_t within(std::uint16_t depth, std::uint16_t limit) {
  return std::min({depth, limit, EnhancedBlock::kDepthMax});
}

}  // namespace

namespace detail {

std::size_t FrameReader::needed() const {
  return wire::StartupHeader::kSize + (parsed_ ? header_.private_data_length : std::size_t{0});
}

std::size_t FrameReader::feed(Bytes stream, StartupFailure& failure) {
  std::size_t consumed = 0;
  while (!whole() && consumed < stream.size()) {
    const std::size_t n = std::min(needed() - have_, stream.size() - consumed);
    std::memcpy(octets_.data() + have_, stream.data() + consumed, n);
    const std::size_t before = have_;
    have_ += n;
    consumed += n;
    failure = judge(before);
    if (failure != StartupFailure::none) break;
  }
  return consumed;
}

// Looks at what came after the first `before` octets.
StartupFailure FrameReader::judge(std::size_t before) {
  constexpr std::size_t kRevisionAt = wire::StartupHeader::kRevisionOffset;
  const auto& key = reply_ ? wire::kReplyKey : wire::kRequestKey;
  // The first octet that cannot be the key's is enough (W-MPA-91).
  for (std::size_t i = before; i < std::min(have_, key.size()); ++i)
    if (octets_[i] != key[i]) return StartupFailure::bad_key;
  if (before <= kRevisionAt && have_ > kRevisionAt) {
    const auto revision = std::to_integer<unsigned>(octets_[kRevisionAt]);
    if (revision < 1 || revision > 2) return StartupFailure::bad_revision;
  }
  if (!parsed_ && have_ == wire::StartupHeader::kSize) {
    const auto header = wire::parse_startup({octets_.data(), have_});
    RNIC_ASSERT(header);
    header_ = *header;
    if (header_.private_data_length > wire::StartupHeader::kPrivateDataMax) return StartupFailure::bad_private_data;
    if (header_.enhanced && header_.private_data_length < EnhancedBlock::kSize) return StartupFailure::bad_private_data;
    parsed_ = true;
  }
  if (whole() && header_.enhanced) block_ = *wire::parse_enhanced(Bytes{octets_}.subspan(wire::StartupHeader::kSize));
  return StartupFailure::none;
}

Bytes FrameReader::private_data() const {
  if (!whole()) return {};
  const Bytes all = Bytes{octets_}.subspan(wire::StartupHeader::kSize, header_.private_data_length);
  return header_.enhanced ? all.subspan(EnhancedBlock::kSize) : all;
}

bool FrameOut::write(wire::StartupHeader header, const std::optional<EnhancedBlock>& block, Bytes private_data) {
  const std::size_t block_size = block ? EnhancedBlock::kSize : 0;
  if (private_data.size() + block_size > kPrivateDataEmittedMax) return false;
  header.private_data_length = static_cast<std::uint16_t>(private_data.size() + block_size);
  const MutableBytes out{octets};
  wire::emit(header, out);
  size = wire::StartupHeader::kSize;
  if (block) wire::emit(*block, out.subspan(size));
  size += block_size;
  std::copy(private_data.begin(), private_data.end(), octets.begin() + static_cast<std::ptrdiff_t>(size));
  size += private_data.size();
  return true;
}

}  // namespace detail

// ---- initiator ----

Initiator::Initiator(const StartupOptions& options, Bytes private_data, Instant now)
    : options_(options), deadline_(now + options.reply_timeout) {
  options_.ird = within(options.ird, options.ird_max);
  options_.ord = within(options.ord, options.ord_max);
  enhanced_ = options.revision >= 2 && (options.peer_to_peer || options.negotiate_depths);
  std::optional<EnhancedBlock> block;
  if (enhanced_) {
    // Never B: a zero-length Send could eat a receive buffer of the peer's consumer. D stands on
    // ORD >= 1 (W-MPA-47).
    offered_ = {.peer_to_peer = options.peer_to_peer,
                .rtr_write = options.peer_to_peer,
                .rtr_read = options.peer_to_peer,
                .ird = EnhancedBlock::kNotNegotiated,
                .ord = EnhancedBlock::kNotNegotiated};
    if (options.negotiate_depths) {
      offered_.ird = options_.ird;
      offered_.ord = offered_.rtr_read ? std::max<std::uint16_t>(options_.ord, 1) : options_.ord;
    }
    block = offered_;
  }
  const wire::StartupHeader header{.markers = options.markers == MarkerUse::both,
                                   .crc = options.crc,
                                   .enhanced = enhanced_,
                                   .revision = static_cast<std::uint8_t>(enhanced_ ? 2 : 1)};
  if (!request_.write(header, block, private_data)) fail(StartupFailure::private_data_too_long);
}

Outcome Initiator::fail(StartupFailure reason, std::optional<wire::TerminateCode> terminate) {
  verdict_ = {.reason = reason, .terminate = terminate};
  return outcome_ = Outcome::failed;
}

Fed Initiator::feed(Bytes stream) {
  if (outcome_ != Outcome::more) return {.outcome = outcome_};
  StartupFailure failure = StartupFailure::none;
  const std::size_t consumed = reader_.feed(stream, failure);
  if (failure != StartupFailure::none)
    fail(failure);
  else if (reader_.whole())
    outcome_ = judge_reply();
  return {.outcome = outcome_, .consumed = consumed};
}

Outcome Initiator::on_end() { return outcome_ == Outcome::more ? fail(StartupFailure::ended) : outcome_; }

Outcome Initiator::on_time(Instant now) {
  return outcome_ == Outcome::more && now >= deadline_ ? fail(StartupFailure::timed_out) : outcome_;
}

Instant Initiator::next_deadline() const { return outcome_ == Outcome::more ? deadline_ : kNever; }

Outcome Initiator::judge_reply() {
  const wire::StartupHeader& header = reader_.header();
  negotiated_ = {.revision = header.revision,
                 .enhanced = header.enhanced,
                 .crc = options_.crc || header.crc ? Crc::on : Crc::off,
                 .markers_out = header.markers ? Markers::inserted : Markers::none,
                 .markers_in = options_.markers == MarkerUse::both ? Markers::expected : Markers::none,
                 .ird = options_.ird,
                 .ord = options_.ord};
  if (header.enhanced) {
    negotiated_.peer_ird = reader_.block().ird;
    negotiated_.peer_ord = reader_.block().ord;
  }
  if (header.rejected) return Outcome::rejected;
  if (header.markers && options_.markers == MarkerUse::never)
    return fail(StartupFailure::markers_asked, wire::terminate_code::kMpaLocalCatastrophic);  // W-MPA-44
  // W-MPA-84.
  if (header.enhanced && !enhanced_) return fail(StartupFailure::unexpected_enhanced);
  if (!header.enhanced && enhanced_)
    return fail(StartupFailure::not_enhanced, wire::terminate_code::kMpaLocalCatastrophic);
  return enhanced_ ? negotiate(reader_.block()) : Outcome::accepted;
}

Outcome Initiator::negotiate(const EnhancedBlock& reply) {
  if (reply.peer_to_peer != offered_.peer_to_peer)
    return fail(StartupFailure::peer_to_peer_mismatch, wire::terminate_code::kMpaNoMatchingRtr);

  // A field that says "not negotiated" leaves ours, whatever we sent (W-MPA-37).
  if (reply.ird != EnhancedBlock::kNotNegotiated) negotiated_.ord = std::min(negotiated_.ord, reply.ird);

  if (reply.peer_to_peer) {
    negotiated_.peer_to_peer = true;
    // A read needs a place at the responder: with IRD 0 it did not mean its D (W-MPA-34).
    if (offered_.rtr_write && reply.rtr_write)
      negotiated_.rtr = Rtr::write;
    else if (offered_.rtr_read && reply.rtr_read && reply.ird != 0)
      negotiated_.rtr = Rtr::read;
    else
      return fail(StartupFailure::no_matching_rtr, wire::terminate_code::kMpaNoMatchingRtr);
    if (negotiated_.rtr == Rtr::read) negotiated_.ord = std::max<std::uint16_t>(negotiated_.ord, 1);
  }

  if (reply.ord != EnhancedBlock::kNotNegotiated && reply.ord > negotiated_.ird) {
    if (reply.ord > within(EnhancedBlock::kDepthMax, options_.ird_max))
      return fail(StartupFailure::insufficient_ird, wire::terminate_code::kMpaInsufficientIrd);
    negotiated_.ird = reply.ord;
  }
  return Outcome::accepted;
}

// ---- responder ----

Responder::Responder(const StartupOptions& options, Instant now)
    : options_(options), deadline_(now + options.request_timeout) {}

Outcome Responder::fail(StartupFailure reason) {
  verdict_ = {.reason = reason, .terminate = std::nullopt};
  return outcome_ = Outcome::failed;
}

Fed Responder::feed(Bytes stream) {
  if (outcome_ == Outcome::failed || replied_) return {.outcome = outcome_};
  if (outcome_ == Outcome::request) {
    if (!stream.empty()) fail(StartupFailure::trailing_octets);
    return {.outcome = outcome_};
  }
  StartupFailure failure = StartupFailure::none;
  const std::size_t consumed = reader_.feed(stream, failure);
  if (failure != StartupFailure::none) {
    fail(failure);
  } else if (reader_.whole()) {
    const wire::StartupHeader& header = reader_.header();
    negotiated_ = {.revision = header.revision,
                   .enhanced = header.enhanced,
                   .crc = options_.crc || header.crc ? Crc::on : Crc::off,
                   .markers_out = header.markers ? Markers::inserted : Markers::none,
                   .markers_in = options_.markers == MarkerUse::both ? Markers::expected : Markers::none};
    if (header.enhanced) {
      negotiated_.peer_to_peer = reader_.block().peer_to_peer;
      negotiated_.peer_ird = reader_.block().ird;
      negotiated_.peer_ord = reader_.block().ord;
    }
    outcome_ = Outcome::request;
    if (consumed < stream.size()) fail(StartupFailure::trailing_octets);
  }
  return {.outcome = outcome_, .consumed = consumed};
}

Outcome Responder::on_end() {
  return outcome_ != Outcome::failed && !replied_ ? fail(StartupFailure::ended) : outcome_;
}

Outcome Responder::on_time(Instant now) {
  return outcome_ == Outcome::more && now >= deadline_ ? fail(StartupFailure::timed_out) : outcome_;
}

Instant Responder::next_deadline() const { return outcome_ == Outcome::more ? deadline_ : kNever; }

std::size_t Responder::private_data_max() const {
  return negotiated_.enhanced ? kPrivateDataMaxEnhanced : kPrivateDataEmittedMax;
}

// An enhanced Request gets an enhanced Reply, any other one a Reply without (W-MPA-29). Those have
// Revision 1 even if the Request had 2: irdma reads the block whenever it sees a 2 (W-MPA-28).
wire::StartupHeader Responder::reply_header() const {
  return {.reply = true,
          .markers = options_.markers == MarkerUse::both,
          .crc = options_.crc || reader_.header().crc,
          .enhanced = negotiated_.enhanced,
          .revision = static_cast<std::uint8_t>(negotiated_.enhanced ? 2 : 1)};
}

// Exactly one, of those that were offered; none offered: a Write (W-MPA-40, -41).
Rtr Responder::choose_rtr() const {
  if (!negotiated_.peer_to_peer) return Rtr::none;
  const EnhancedBlock& request = reader_.block();
  if (request.rtr_write) return Rtr::write;
  if (request.rtr_read) return Rtr::read;
  if (request.rtr_send) return Rtr::send;
  return Rtr::write;
}

Result<Bytes, StartupFailure> Responder::accept(Bytes private_data, std::uint16_t ird, std::uint16_t ord) {
  if (outcome_ == Outcome::failed) return Failure{verdict_.reason};
  RNIC_ASSERT(outcome_ == Outcome::request && !replied_);
  Negotiated result = negotiated_;
  result.ird = within(ird, options_.ird_max);
  result.ord = within(ord, options_.ord_max);
  std::optional<EnhancedBlock> block;
  if (result.enhanced) {
    result.rtr = choose_rtr();
    if (result.rtr == Rtr::read) result.ird = std::max<std::uint16_t>(result.ird, 1);
    const bool ord_is_open = result.peer_ird == EnhancedBlock::kNotNegotiated;
    const bool ird_is_open = result.peer_ord == EnhancedBlock::kNotNegotiated;
    if (!ord_is_open) result.ord = std::min(result.ord, result.peer_ird);
    block = EnhancedBlock{.peer_to_peer = result.peer_to_peer,
                          .rtr_send = result.rtr == Rtr::send,
                          .rtr_write = result.rtr == Rtr::write,
                          .rtr_read = result.rtr == Rtr::read,
                          .ird = ird_is_open ? EnhancedBlock::kNotNegotiated : result.ird,
                          .ord = ord_is_open ? EnhancedBlock::kNotNegotiated : result.ord};
  }
  if (!reply_.write(reply_header(), block, private_data)) return Failure{StartupFailure::private_data_too_long};
  negotiated_ = result;
  replied_ = true;
  outcome_ = Outcome::accepted;
  return reply_.bytes();
}

Result<Bytes, StartupFailure> Responder::reject(Bytes private_data, std::uint16_t ird, std::uint16_t ord_needed) {
  if (outcome_ == Outcome::failed) return Failure{verdict_.reason};
  RNIC_ASSERT(outcome_ == Outcome::request && !replied_);
  wire::StartupHeader header = reply_header();
  header.rejected = true;
  std::optional<EnhancedBlock> block;
  if (negotiated_.enhanced) {
    const Rtr rtr = choose_rtr();
    block = EnhancedBlock{.peer_to_peer = negotiated_.peer_to_peer,
                          .rtr_send = rtr == Rtr::send,
                          .rtr_write = rtr == Rtr::write,
                          .rtr_read = rtr == Rtr::read,
                          .ird = within(ird, options_.ird_max),
                          .ord = within(ord_needed, options_.ord_max)};
  }
  if (!reply_.write(header, block, private_data)) return Failure{StartupFailure::private_data_too_long};
  replied_ = true;
  outcome_ = Outcome::rejected;
  return reply_.bytes();
}

}  // namespace rnic::mpa
