#include "decode/conversation.hpp"

#include <algorithm>

#include "decode/startup_scan.hpp"

namespace rnic::tool {
namespace {

// A gap whose octets the other side acknowledged is no loss on the wire but one of the capture. The
// capture may have that acknowledgement a little before the segment.
constexpr unsigned kPatience = 32;
// Kept behind a gap that nobody acknowledges: only one direction was captured.
constexpr std::size_t kKeptMax = 16u << 20;
// Without a single FPDU in so many octets, a connection whose beginning was not seen is no MPA.
constexpr std::size_t kSearchMax = 256u << 10;

const char* word(mpa::Crc crc) { return crc == mpa::Crc::on ? "CRCs are in use" : "CRCs are not in use"; }
const char* word(mpa::Markers markers) {
  return markers == mpa::Markers::expected ? "there are markers" : "there are no markers";
}
constexpr const char* kMarkersUnknown = "there are no markers as far as can be seen";

}  // namespace

const char* name(Conversation::Direction direction) {
  switch (direction) {
    case Conversation::Direction::unknown:
      return "unknown";
    case Conversation::Direction::to_responder:
      return "to_responder";
    case Conversation::Direction::to_initiator:
      return "to_initiator";
  }
  return "unknown";
}

Conversation::Conversation(Assumed assumed, ConversationSink sink) : assumed_(assumed), sink_(std::move(sink)) {}

Conversation::Direction Conversation::direction(unsigned side) const {
  if (!initiator_) return Direction::unknown;
  return side == *initiator_ ? Direction::to_responder : Direction::to_initiator;
}

void Conversation::say(unsigned side, Json&& unit) { sink_(side, direction(side), std::move(unit)); }

std::uint64_t Conversation::position(unsigned side) const {
  const Half& half = halves_[side];
  return half.base && half.held_at > *half.base ? static_cast<std::uint64_t>(half.held_at - *half.base) : 0;
}

bool Conversation::is_mpa() const {
  return std::any_of(halves_.begin(), halves_.end(), [](const Half& half) { return half.frame || half.has_run; });
}

void Conversation::drop(unsigned side, std::size_t octets) {
  Half& half = halves_[side];
  half.held.erase(half.held.begin(), half.held.begin() + static_cast<std::ptrdiff_t>(octets));
  half.held_at += static_cast<std::int64_t>(octets);
}

void Conversation::ignore_all() {
  for (Half& half : halves_) {
    half.phase = Phase::ignored;
    half.held = {};
    half.finders = {};
  }
}

// ---- TCP ---------------------------------------------------------------------------------------

bool Conversation::is_succeeded_by(unsigned side, const wire::TcpHeader& header) const {
  if (!header.has(wire::tcp_flags::kSyn)) return false;
  const Half& half = halves_[side];
  if (!half.tcp.begun()) return !header.has(wire::tcp_flags::kAck) && halves_[1 - side].tcp.begun();
  // The same SYN again has the number of the octet before the first.
  return !half.from_start || half.tcp.at(tcp::Seq{header.sequence} + 1) != 0;
}

void Conversation::on_segment(unsigned side, const wire::TcpHeader& header, Bytes payload, std::size_t cut) {
  namespace flags = wire::tcp_flags;
  Half& half = halves_[side];
  Half& other = halves_[1 - side];
  tcp::Seq first{header.sequence};
  if (header.has(flags::kSyn)) {
    first = first + 1;
    if (!half.tcp.begun()) {
      half.tcp.begin(first);
      half.from_start = true;
      // The side that asks for the connection is the initiator, unless startup frames say otherwise.
      if (!initiator_) initiator_ = header.has(flags::kAck) ? 1 - side : side;
    }
  } else if (!half.tcp.begun() && !payload.empty()) {
    half.tcp.begin(first);
  }
  if (header.has(flags::kAck) && other.tcp.begun())
    other.acknowledged = std::max(other.acknowledged, other.tcp.at(tcp::Seq{header.acknowledgement}));
  if (half.tcp.begun() && !payload.empty()) half.tcp.add(first, payload);
  if (header.has(flags::kRst)) halves_[0].ended = halves_[1].ended = End::reset;
  if (header.has(flags::kFin) && cut == 0 && half.ended == End::open) half.ended = End::fin;
  drain(side);
  for (const unsigned each : {side, 1 - side}) skip_what_was_not_captured(each);
}

void Conversation::skip_what_was_not_captured(unsigned side) {
  Half& half = halves_[side];
  if (!half.tcp.has_gap()) {
    half.patience = 0;
    return;
  }
  if (half.acknowledged > half.tcp.next_at())
    ++half.patience;
  else
    half.patience = 0;
  if (half.patience < kPatience && half.tcp.kept() <= kKeptMax) return;
  half.patience = 0;
  skip_gap(side);
  drain(side);
}

void Conversation::drain(unsigned side) {
  Half& half = halves_[side];
  for (;;) {
    const std::int64_t at = half.tcp.next_at();
    const std::vector<std::byte> octets = half.tcp.take();
    if (octets.empty()) return;
    if (half.phase == Phase::ignored) continue;
    if (half.held.empty()) half.held_at = at;
    half.held.insert(half.held.end(), octets.begin(), octets.end());
    decode(side);
  }
}

void Conversation::skip_gap(unsigned side) {
  Half& half = halves_[side];
  const std::int64_t at = half.tcp.next_at();
  const std::int64_t missing = half.tcp.skip_gap();
  if (half.phase == Phase::ignored) return;
  if (half.frame || half.has_run) {
    const std::uint64_t where = half.base && at > *half.base ? static_cast<std::uint64_t>(at - *half.base) : 0;
    say(side, error_object(where, std::to_string(missing) + " octets are not in the capture"));
  }
  half.held.clear();
  half.held_at = half.tcp.next_at();
  begin_search(side);
}

// ---- MPA ---------------------------------------------------------------------------------------

void Conversation::decode(unsigned side) {
  const Half& half = halves_[side];
  for (bool again = true; again;) {
    switch (half.phase) {
      case Phase::startup:
        again = read_startup(side);
        break;
      case Phase::running:
        again = read_fpdus(side);
        break;
      case Phase::searching:
        again = search(side);
        break;
      case Phase::waiting:
      case Phase::ignored:
        return;
    }
  }
}

// Each of these: whether the phase has changed.
bool Conversation::read_startup(unsigned side) {
  Half& half = halves_[side];
  StartupScan scan = scan_startup(half.held);
  half.awaited = scan.size;
  switch (scan.kind) {
    case StartupScan::Kind::more:
      return false;
    case StartupScan::Kind::none:
      if (!half.from_start) {
        begin_search(side);
        return true;
      }
      if (is_mpa())
        say(side, error_object(0, "neither a Request nor a Reply, where one was due",
                               wire::terminate_code::kMpaStartupFrame));
      ignore_all();
      return true;
    case StartupScan::Kind::bad:
      initiator_ = scan.header.reply ? 1 - side : side;
      say(side, std::move(scan.object));
      say(side, error_object(0, scan.reason, wire::terminate_code::kMpaStartupFrame));
      ignore_all();
      return true;
    case StartupScan::Kind::frame:
      break;
  }
  initiator_ = scan.header.reply ? 1 - side : side;
  say(side, std::move(scan.object));
  drop(side, scan.size);
  half.base = half.held_at;
  on_startup_frame(side, scan.header);
  return true;
}

void Conversation::on_startup_frame(unsigned side, const wire::StartupHeader& header) {
  Half& half = halves_[side];
  Half& other = halves_[1 - side];
  half.frame = header;
  half.phase = Phase::waiting;
  if (other.frame && other.frame->reply == header.reply) {
    say(side,
        error_object(0, header.reply ? "a Reply where both sides have replied" : "a Request where the Reply was due",
                     wire::terminate_code::kMpaStartupFrame));
    return ignore_all();
  }
  // Rejected: MPA is left, whatever follows (W-MPA-20).
  if (header.reply && header.rejected) return ignore_all();
  if (!other.frame) return;

  // W-MPA-04, -06.
  const mpa::Crc crc = half.frame->crc || other.frame->crc ? mpa::Crc::on : mpa::Crc::off;
  half.framing = Framing{crc, other.frame->markers ? mpa::Markers::expected : mpa::Markers::none};
  other.framing = Framing{crc, half.frame->markers ? mpa::Markers::expected : mpa::Markers::none};
  half.phase = Phase::running;
  if (other.phase == Phase::waiting) {
    other.phase = Phase::running;
    decode(1 - side);
  }
}

bool Conversation::read_fpdus(unsigned side) {
  Half& half = halves_[side];
  half.has_run = true;
  half.finders.clear();
  const std::uint64_t first = position(side);
  std::size_t done = 0;
  Step step;
  do {
    step = decode_fpdu(Bytes(half.held).subspan(done), *half.framing, first + done,
                       [this, side](Json&& unit) { say(side, std::move(unit)); });
    if (step.kind == Step::Kind::fpdu) done += step.octets;
  } while (step.kind == Step::Kind::fpdu && done < half.held.size());
  half.awaited = step.kind == Step::Kind::more ? step.octets : 0;
  if (step.kind == Step::Kind::failed) done += std::min<std::size_t>(4, half.held.size() - done);
  drop(side, done);
  if (step.kind != Step::Kind::failed) return false;
  begin_search(side);
  return true;
}

// ---- where a beginning was not seen --------------------------------------------------------------

void Conversation::begin_search(unsigned side) {
  Half& half = halves_[side];
  half.phase = Phase::searching;
  half.finders.clear();
  const std::vector<Framing> framings = possible_framings(side);
  const bool known = std::all_of(framings.begin(), framings.end(),
                                 [&](const Framing& each) { return each.markers == framings[0].markers; });
  for (const Framing& framing : framings)
    half.finders.emplace_back(framing, known ? Finder::Markers::known : Finder::Markers::to_be_proved, half.base,
                              half.held_at);
}

std::vector<Framing> Conversation::possible_framings(unsigned side) const {
  using mpa::Crc;
  using mpa::Markers;
  const Half& half = halves_[side];
  const Half& other = halves_[1 - side];
  if (half.framing) return {*half.framing};
  // Both directions have CRCs, or none has.
  std::optional<Crc> crc = other.framing ? std::optional(other.framing->crc) : assumed_.crc;
  for (const Half* each : {&half, &other})
    if (each->frame && each->frame->crc) crc = Crc::on;
  std::optional<Markers> markers = assumed_.markers;
  if (other.frame) markers = other.frame->markers ? Markers::expected : Markers::none;
  std::vector<Framing> framings;
  for (const Framing& framing : {Framing{Crc::on, Markers::none}, Framing{Crc::on, Markers::expected},
                                 Framing{Crc::off, Markers::none}, Framing{Crc::off, Markers::expected}}) {
    if (crc && framing.crc != *crc) continue;
    if (markers && framing.markers != *markers) continue;
    // Too little would prove it.
    if (!markers && framing.crc == Crc::off && framing.markers == Markers::expected) continue;
    framings.push_back(framing);
  }
  return framings;
}

bool Conversation::search(unsigned side) {
  Half& half = halves_[side];
  for (Finder& finder : half.finders) {
    if (const auto found = finder.look(half.held, half.held_at)) {
      go_on_at(side, *found, finder.framing(), word(finder.framing().markers));
      return true;
    }
  }
  if (half.held.size() > kSearchMax) give_up_search(side);
  return false;
}

void Conversation::search_for_the_last_time(unsigned side) {
  Half& half = halves_[side];
  for (const Finder& finder : half.finders) {
    const auto found = finder.unproved();
    if (!found || found->at < half.held_at) continue;
    go_on_at(side, *found, finder.framing(), kMarkersUnknown);
    return decode(side);
  }
}

void Conversation::go_on_at(unsigned side, const Finder::Found& found, const Framing& framing, const char* markers) {
  Half& half = halves_[side];
  const std::int64_t skipped = found.at - half.held_at;
  half.framing = framing;
  drop(side, static_cast<std::size_t>(skipped));
  half.base = half.held_at - static_cast<std::int64_t>(found.position);
  std::string words = how_found(side, markers);
  if (skipped > 0) words += "; " + std::to_string(skipped) + " octets before it are skipped";
  say(side, error_object(position(side), words));
  half.finders.clear();
  half.phase = Phase::running;
}

void Conversation::give_up_search(unsigned side) {
  Half& half = halves_[side];
  if (half.frame || half.has_run) return drop(side, half.held.size() / 2);  // there will be one further on
  half.phase = Phase::ignored;
  half.held = {};
  half.finders = {};
}

std::string Conversation::how_found(unsigned side, const char* markers) const {
  const Half& half = halves_[side];
  if (half.has_run || (half.frame && halves_[1 - side].frame))
    return "decoding goes on here, with the next FPDU that was found";
  std::string words = half.frame ? "the other direction's startup frame is not in the capture"
                                 : "the capture begins inside this connection, its startup frames are not in it";
  words += std::string("; by the FPDUs that were found from here on ") + word(half.framing->crc) + " and " + markers;
  if (!half.frame) words += "; positions count from here, or from a marker before it";
  return words;
}

// ---- the end -----------------------------------------------------------------------------------

void Conversation::end() {
  if (ended_) return;
  ended_ = true;
  for (const unsigned side : {0u, 1u}) {
    while (halves_[side].tcp.has_gap()) {
      skip_gap(side);
      drain(side);
    }
  }
  for (const unsigned side : {0u, 1u}) finish(side);
}

void Conversation::finish(unsigned side) {
  Half& half = halves_[side];
  if (half.phase == Phase::waiting && !half.held.empty()) {
    begin_search(side);
    decode(side);
  }
  if (half.phase == Phase::searching) search_for_the_last_time(side);
  if (half.held.empty()) return;
  switch (half.phase) {
    case Phase::startup:
      if (is_mpa()) say(side, error_object(0, cut_off("a startup frame", half.held.size(), half.awaited)));
      break;
    case Phase::searching:
      if (half.frame || half.has_run)
        say(side, error_object(position(side),
                               "no FPDU is found in the last " + std::to_string(half.held.size()) + " octets"));
      break;
    case Phase::running: {
      const char* how = half.ended == End::fin     ? "; then the sender closed its direction"
                        : half.ended == End::reset ? "; then the connection was reset"
                                                   : "; the capture ends before the rest";
      // A FIN inside an FPDU is an error of the stream (W-MPA-77); the end of a capture is none.
      const bool lost = half.ended != End::open;
      say(side, error_object(position(side), cut_off("an FPDU", half.held.size(), half.awaited) + how,
                             lost ? std::optional(wire::terminate_code::kMpaTcpLost) : std::nullopt));
      break;
    }
    case Phase::waiting:
    case Phase::ignored:
      break;
  }
}

}  // namespace rnic::tool
