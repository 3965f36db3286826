// MPA startup frames into both roles, once in one piece and once in many: what comes of them may
// not depend on the pieces.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "control/greetings.hpp"
#include "fuzz/golden.hpp"
#include "fuzz/input.hpp"
#include "kit/hex.hpp"
#include "mpa/startup.hpp"
#include "wire/mark.hpp"

namespace rnic::fuzz {

namespace {

struct Result {
  mpa::Fed::Outcome outcome = mpa::Fed::Outcome::more;
  mpa::StartupFailure reason = mpa::StartupFailure::none;
  bool terminates = false;
  std::size_t consumed = 0;
  mpa::Negotiated negotiated;
  Octets private_data;
};

// The stream in pieces of the sizes of `pattern`, from the front again at its end; none: all at once.
template <typename Feed>
mpa::Fed::Outcome feed_all(Bytes stream, Bytes pattern, std::size_t& consumed, const Feed& feed) {
  auto outcome = mpa::Fed::Outcome::more;
  Bytes unread;  // what came and was not taken
  std::size_t arrived = 0, step = 0;
  while (arrived < stream.size()) {
    std::size_t piece = stream.size() - arrived;
    if (!pattern.empty())
      piece = std::min<std::size_t>(piece, std::to_integer<unsigned>(pattern[step++ % pattern.size()]) % 40 + 1);
    arrived += piece;
    for (;;) {
      unread = stream.subspan(consumed, arrived - consumed);
      if (unread.empty()) break;
      const mpa::Fed fed = feed(unread);
      FUZZ_CHECK(fed.consumed <= unread.size());
      consumed += fed.consumed;
      outcome = fed.outcome;
      if (outcome != mpa::Fed::Outcome::more && outcome != mpa::Fed::Outcome::request) return outcome;
      if (fed.consumed == 0) break;
    }
  }
  return outcome;
}

Octets copied(Bytes octets) { return {octets.begin(), octets.end()}; }

void check_frame(Bytes frame) {
  const auto header = wire::parse_startup(frame);
  FUZZ_CHECK(header && frame.size() == wire::StartupHeader::kSize + header->private_data_length);
  FUZZ_CHECK(header->private_data_length <= mpa::kPrivateDataEmittedMax);
}

// What rnic makes of it where it may be its own mark: it is within what came, and says the same when written again.
void check_mark(const Octets& private_data) {
  const auto mark = wire::parse_mark(private_data);
  if (!mark) return;
  FUZZ_CHECK(mark->length >= wire::Mark::kHeaderSize && mark->length <= private_data.size());
  std::array<std::byte, wire::Mark::kSizeMax> octets;
  const std::size_t size = wire::emit(*mark, octets);
  auto again = wire::parse_mark(Bytes(octets).first(size));
  FUZZ_CHECK(again && size <= mark->length);
  again->length = mark->length;  // of a later sender's it may be more
  FUZZ_CHECK(*again == *mark);
}

// And what an application is told of it, whoever says it to whom: octets that came, and zeros behind them.
void check_told(const Octets& private_data) {
  const Bytes consumers = control::behind_mark(private_data);
  FUZZ_CHECK(consumers.size() <= private_data.size());
  for (const std::size_t most : {control::kRequestDataMax, control::kInquiryDataMax, control::kAnswerDataMax}) {
    rnic_cm_parameters told;
    std::memset(&told, 0xAA, sizeof told);
    control::fill_private_data(told, consumers, most);
    const std::size_t heard = std::min(most, consumers.size());
    const Bytes octets = as_bytes(told.private_data, sizeof told.private_data);
    FUZZ_CHECK(told.private_data_length == most);
    FUZZ_CHECK(std::equal(octets.begin(), octets.begin() + static_cast<std::ptrdiff_t>(heard), consumers.begin()));
    FUZZ_CHECK(std::all_of(octets.begin() + static_cast<std::ptrdiff_t>(heard), octets.end(),
                           [](std::byte b) { return b == std::byte{}; }));
  }
  const bool greets = control::greeting_in(private_data).has_value(),
             answers = control::answer_in(private_data).has_value();
  FUZZ_CHECK(greets + answers + control::is_inquiry(private_data) <= 1);
  FUZZ_CHECK(control::reject_reason_in(private_data) > 0 && control::inquiry_status_in(private_data) > 0);
}

Result as_responder(const mpa::StartupOptions& options, Bytes stream, Bytes pattern) {
  const Instant now{seconds(1000).ns};
  mpa::Responder responder(options, now);
  Result result;
  result.outcome = feed_all(stream, pattern, result.consumed, [&](Bytes b) { return responder.feed(b); });
  FUZZ_CHECK(result.outcome == responder.outcome());
  result.reason = responder.verdict().reason;
  result.terminates = responder.verdict().terminate.has_value();
  if (result.outcome == mpa::Fed::Outcome::request) {
    result.negotiated = responder.negotiated();
    result.private_data = copied(responder.private_data());
    FUZZ_CHECK(result.private_data.size() <= wire::StartupHeader::kPrivateDataMax);
  } else if (result.outcome == mpa::Fed::Outcome::more) {
    FUZZ_CHECK(responder.on_time(now + options.request_timeout + seconds(1)) == mpa::Fed::Outcome::failed);
  }
  return result;
}

Result as_initiator(const mpa::StartupOptions& options, Bytes stream, Bytes pattern) {
  const Instant now{seconds(1000).ns};
  mpa::Initiator initiator(options, Bytes{}, now);
  check_frame(initiator.request());
  Result result;
  result.outcome = feed_all(stream, pattern, result.consumed, [&](Bytes b) { return initiator.feed(b); });
  FUZZ_CHECK(result.outcome == initiator.outcome());
  result.reason = initiator.verdict().reason;
  result.terminates = initiator.verdict().terminate.has_value();
  if (result.outcome == mpa::Fed::Outcome::accepted || result.outcome == mpa::Fed::Outcome::rejected) {
    result.negotiated = initiator.negotiated();
    result.private_data = copied(initiator.private_data());
    FUZZ_CHECK(result.private_data.size() <= wire::StartupHeader::kPrivateDataMax);
  }
  if (result.outcome == mpa::Fed::Outcome::accepted) {
    // CRC is used if either wants it (W-MPA-08), and nobody is asked for more than they have.
    FUZZ_CHECK(!options.crc || result.negotiated.crc == mpa::Crc::on);
    FUZZ_CHECK(result.negotiated.ord <= options.ord_max && result.negotiated.ird <= options.ird_max);
  }
  if (result.outcome == mpa::Fed::Outcome::more)
    FUZZ_CHECK(initiator.on_time(now + options.reply_timeout + seconds(1)) == mpa::Fed::Outcome::failed);
  return result;
}

void check_same(const Result& a, const Result& b) {
  check_mark(a.private_data);
  check_told(a.private_data);
  FUZZ_CHECK(a.outcome == b.outcome);
  FUZZ_CHECK(a.reason == b.reason);
  FUZZ_CHECK(a.terminates == b.terminates);
  FUZZ_CHECK(a.private_data == b.private_data);
  FUZZ_CHECK(a.negotiated.revision == b.negotiated.revision && a.negotiated.crc == b.negotiated.crc);
  FUZZ_CHECK(a.negotiated.ird == b.negotiated.ird && a.negotiated.ord == b.negotiated.ord);
  FUZZ_CHECK(a.negotiated.rtr == b.negotiated.rtr && a.negotiated.peer_to_peer == b.negotiated.peer_to_peer);
  // How much of a frame that fails was taken is nobody's business.
  if (a.outcome != mpa::Fed::Outcome::failed) FUZZ_CHECK(a.consumed == b.consumed);
}

}  // namespace

void run_startup(Bytes octets) {
  Input input(octets);
  const unsigned choice = input.u8();
  mpa::StartupOptions options;
  options.crc = (choice & 2) == 0;
  options.markers = (choice & 4) != 0 ? mpa::MarkerUse::both : mpa::MarkerUse::send;
  options.revision = (choice & 8) != 0 ? 1 : 2;
  options.peer_to_peer = (choice & 16) == 0;
  options.negotiate_depths = (choice & 32) == 0;
  options.ird = input.u8();
  options.ord = input.u8();
  options.ird_max = options.ord_max = 128;
  options.ird = std::min(options.ird, options.ird_max);
  options.ord = std::min(options.ord, options.ord_max);
  const Octets answer(input.u16() % 600);
  const Bytes pattern = input.take(1 + input.below(4));
  const Bytes stream = input.rest();
  if ((choice & 1) != 0) {
    check_same(as_initiator(options, stream, {}), as_initiator(options, stream, pattern));
    return;
  }
  check_same(as_responder(options, stream, {}), as_responder(options, stream, pattern));
  // And the consumer's answer.
  mpa::Responder responder(options, Instant{seconds(1000).ns});
  std::size_t consumed = 0;
  if (feed_all(stream, pattern, consumed, [&](Bytes b) { return responder.feed(b); }) != mpa::Fed::Outcome::request)
    return;
  const bool fits = answer.size() <= responder.private_data_max();
  const auto reply = (choice & 64) != 0 ? responder.reject(answer, options.ird, options.ord)
                                        : responder.accept(answer, options.ird, options.ord);
  if (reply)
    check_frame(*reply);
  else
    FUZZ_CHECK(!fits || (choice & 64) == 0);
  if (reply && (choice & 64) == 0) FUZZ_CHECK(!options.crc || responder.negotiated().crc == mpa::Crc::on);
}

std::vector<Octets> seeds_startup() {
  std::vector<Octets> seeds;
  Octets reply = test::hex(kGoldenStartups[1]);
  reply[6] = static_cast<std::byte>('q');
  std::vector<Octets> frames;
  for (const auto text : kGoldenStartups) frames.push_back(test::hex(text));
  Octets enhanced_reply = test::hex("4d504120494420526570204672616d65500200048010c020");
  frames.push_back(enhanced_reply);
  frames.push_back(test::hex("4d504120494420526570204672616d65700200048010c020"));              // rejects
  frames.push_back(test::hex("4d504120494420526570204672616d6550020008bfffffff68656c6c"));      // "not negotiated"
  frames.push_back(test::hex("4d504120494420526571204672616d65d0020008c010c02068656c6c"));      // markers, RTR by Send
  frames.push_back(test::hex("4d504120494420526571204672616d65500200048010c020001741430000"));  // too early
  const Octets meeting = test::hex(                                                             // docs/wire.md s8
      "726e69632d6d70610101004400000001000000010000000000000000 0000ffff0a000001 00000000000000000000ffff0a000002"
      "800001120000023400abcdef00123456");
  const Octets refusal = test::hex("726e69632d6d706101020018000000010000000000000002");
  frames.push_back(test::hex("4d504120494420526571204672616d65500200488010c020"));
  frames.back().insert(frames.back().end(), meeting.begin(), meeting.end());
  frames.push_back(test::hex("4d504120494420526570204672616d657002001c8010c020"));
  frames.back().insert(frames.back().end(), refusal.begin(), refusal.end());
  // s8.2 and s8.3: a greeting, an inquiry, and the answer that rejects it.
  frames.push_back(
      test::hex("4d504120494420526571204672616d6550020039bfffffff726e69632d6d7061010300300000000300000003"
                "00000000000000000000ffff0a0000010000011203abcdef1020070668656c6c6f"));
  frames.push_back(test::hex(
      "4d504120494420526571204672616d6550020025bfffffff726e69632d6d70610104001c000000030000000301111c069c400000"
      "68656c6c6f"));
  frames.push_back(
      test::hex("4d504120494420526570204672616d657002003080004000726e69632d6d70610105002c0000000300000003"
                "00000000000000000000ffff0a0000020000011201234567"));
  for (const Octets& frame : frames)
    for (const unsigned choice : {0u, 1u, 8u, 64u, 17u})
      seeds.push_back(Program().u8(choice).u8(16).u8(16).u16(8).u8(2).u8(3).u8(17).u8(1).bytes(frame).octets());
  return seeds;
}

}  // namespace rnic::fuzz
