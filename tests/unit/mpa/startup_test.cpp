// The exchange of startup frames, each role alone against octets, and both against each other.
#include "mpa/startup.hpp"

#include "kit/catch.hpp"
#include "kit/hex.hpp"

namespace {

using namespace rnic;
using mpa::Crc;
using mpa::Fed;
using mpa::Initiator;
using mpa::Markers;
using mpa::MarkerUse;
using mpa::Responder;
using mpa::Rtr;
using mpa::StartupFailure;
using mpa::StartupOptions;
using test::hex;
using wire::EnhancedBlock;
using wire::StartupHeader;
using Outcome = Fed::Outcome;

constexpr Instant kStart{1'000'000};
constexpr std::uint16_t kOpen = EnhancedBlock::kNotNegotiated;

// A frame as a peer may send it: nothing is made right.
std::vector<std::byte> frame(StartupHeader header, std::optional<EnhancedBlock> block, Bytes private_data = {}) {
  header.private_data_length = static_cast<std::uint16_t>(private_data.size() + (block ? 4 : 0));
  std::vector<std::byte> out(StartupHeader::kSize + (block ? 4 : 0));
  emit(header, out);
  if (block) emit(*block, MutableBytes{out}.subspan(20));
  test::append(out, private_data);
  return out;
}
std::vector<std::byte> request_v1(Bytes private_data = {}, bool crc = true) {
  return frame({.crc = crc, .revision = 1}, std::nullopt, private_data);
}
std::vector<std::byte> request_v2(const EnhancedBlock& block, Bytes private_data = {}) {
  return frame({.crc = true, .enhanced = true, .revision = 2}, block, private_data);
}
std::vector<std::byte> reply_v1(Bytes private_data = {}, bool rejected = false) {
  return frame({.reply = true, .crc = true, .rejected = rejected, .revision = 1}, std::nullopt, private_data);
}
std::vector<std::byte> reply_v2(const EnhancedBlock& block, Bytes private_data = {}, bool rejected = false) {
  return frame({.reply = true, .crc = true, .rejected = rejected, .enhanced = true, .revision = 2}, block,
               private_data);
}
constexpr EnhancedBlock kWriteReply{.peer_to_peer = true, .rtr_write = true, .ird = 8, .ord = 8};

StartupHeader header_of(Bytes octets) {
  const auto header = wire::parse_startup(octets);
  REQUIRE(header);
  REQUIRE(octets.size() == StartupHeader::kSize + header->private_data_length);
  return *header;
}
EnhancedBlock block_of(Bytes octets) {
  REQUIRE(header_of(octets).enhanced);
  return *wire::parse_enhanced(octets.subspan(20));
}

StartupOptions with_depths(std::uint16_t ird, std::uint16_t ord) {
  StartupOptions options;
  options.ird = ird;
  options.ord = ord;
  return options;
}
StartupOptions revision_1() {
  StartupOptions options;
  options.revision = 1;
  options.peer_to_peer = false;
  return options;
}

// An initiator with depths 8 and 8 that has heard this Reply.
Initiator answered(Bytes reply, StartupOptions options = with_depths(8, 8)) {
  Initiator initiator(options, {}, kStart);
  initiator.feed(reply);
  return initiator;
}
void check_failed(const Initiator& i, StartupFailure reason,
                  std::optional<wire::TerminateCode> terminate = std::nullopt) {
  CHECK(i.outcome() == Outcome::failed);
  CHECK(i.verdict().reason == reason);
  CHECK(i.verdict().terminate == terminate);
}

// A responder that has heard this Request.
Responder asked(Bytes request, StartupOptions options = {}) {
  Responder responder(options, kStart);
  CHECK(responder.feed(request).outcome == Outcome::request);
  return responder;
}
EnhancedBlock accepted_block(const EnhancedBlock& request, std::uint16_t ird, std::uint16_t ord,
                             StartupOptions options = {}) {
  auto r = asked(request_v2(request), options);
  const auto reply = r.accept({}, ird, ord);
  REQUIRE(reply.has_value());
  return block_of(*reply);
}

}  // namespace

// ---- the Request that we send ----

TEST_CASE("W-MPA-48, W-MPA-47: the default Request is Revision 2, peer-to-peer, offering Write and Read",
          "[mpa][W-MPA-48][W-MPA-47][W-MPA-08][W-MPA-09][W-MPA-11]") {
  const Initiator i(with_depths(16, 32), {}, kStart);
  CHECK(test::copy_of(i.request()) == hex("4d504120494420526571204672616d65 50020004 8010c020"));
}

TEST_CASE("W-MPA-47: with the read RTR on offer our ORD is at least 1", "[mpa][W-MPA-47]") {
  CHECK(block_of(Initiator(with_depths(0, 0), {}, kStart).request()).ord == 1);
  CHECK(block_of(Initiator(with_depths(0, 0), {}, kStart).request()).ird == 0);
}

TEST_CASE("W-MPA-08: CRC is left out only when the administrator says so", "[mpa][W-MPA-08]") {
  StartupOptions options;
  CHECK(header_of(Initiator(options, {}, kStart).request()).crc);
  options.crc = false;
  CHECK_FALSE(header_of(Initiator(options, {}, kStart).request()).crc);
}

TEST_CASE("W-MPA-31, W-MPA-89: with nothing to negotiate the Request is Revision 1", "[mpa][W-MPA-31][W-MPA-89]") {
  StartupOptions options;
  options.peer_to_peer = false;
  options.negotiate_depths = false;
  const auto header = header_of(Initiator(options, {}, kStart).request());
  CHECK(header.revision == 1);
  CHECK_FALSE(header.enhanced);
  options.negotiate_depths = true;
  CHECK(header_of(Initiator(options, {}, kStart).request()).enhanced);
  CHECK_FALSE(block_of(Initiator(options, {}, kStart).request()).peer_to_peer);
}

TEST_CASE("W-MPA-39: without A the flags B, C and D are 0", "[mpa][W-MPA-39]") {
  StartupOptions options = with_depths(3, 4);
  options.peer_to_peer = false;
  CHECK(block_of(Initiator(options, {}, kStart).request()) == EnhancedBlock{.ird = 3, .ord = 4});
}

TEST_CASE("W-MPA-86, W-MPA-94: our own depths are capped", "[mpa][W-MPA-86][W-MPA-94]") {
  auto options = with_depths(200, 129);
  CHECK(block_of(Initiator(options, {}, kStart).request()).ird == 128);
  CHECK(block_of(Initiator(options, {}, kStart).request()).ord == 128);
  options = with_depths(0xFFFF, 0x3FFF);
  options.ird_max = options.ord_max = 0xFFFF;
  CHECK(block_of(Initiator(options, {}, kStart).request()).ird == 0x3FFE);
  CHECK(block_of(Initiator(options, {}, kStart).request()).ord == 0x3FFE);
}

TEST_CASE("W-MPA-14: private data is at most 256 octets with the block", "[mpa][W-MPA-14]") {
  CHECK(header_of(Initiator({}, test::pattern(252), kStart).request()).private_data_length == 256);
  const Initiator more({}, test::pattern(253), kStart);
  CHECK(more.outcome() == Outcome::failed);
  CHECK(more.verdict().reason == StartupFailure::private_data_too_long);
  CHECK(more.request().empty());
  CHECK(header_of(Initiator(revision_1(), test::pattern(256), kStart).request()).private_data_length == 256);
  CHECK(Initiator(revision_1(), test::pattern(257), kStart).outcome() == Outcome::failed);
}

TEST_CASE("W-MPA-03, W-MPA-04: M asks for markers toward its sender, each direction by itself",
          "[mpa][W-MPA-03][W-MPA-04]") {
  for (const bool ours : {false, true}) {
    for (const bool theirs : {false, true}) {
      StartupOptions options = revision_1();
      options.markers = ours ? MarkerUse::both : MarkerUse::send;
      Initiator i(options, {}, kStart);
      CHECK(header_of(i.request()).markers == ours);
      i.feed(frame({.reply = true, .markers = theirs, .revision = 1}, std::nullopt));
      CHECK(i.negotiated().markers_in == (ours ? Markers::expected : Markers::none));
      CHECK(i.negotiated().markers_out == (theirs ? Markers::inserted : Markers::none));

      Responder r(options, kStart);
      r.feed(frame({.markers = theirs, .revision = 1}, std::nullopt));
      const auto reply = r.accept({}, 0, 0);
      CHECK(header_of(*reply).markers == ours);
      CHECK(r.negotiated().markers_in == (ours ? Markers::expected : Markers::none));
      CHECK(r.negotiated().markers_out == (theirs ? Markers::inserted : Markers::none));
    }
  }
}

TEST_CASE("W-MPA-05: markers are inserted for whoever asks, unless the administrator says never",
          "[mpa][W-MPA-05][W-MPA-44]") {
  for (const auto use : {MarkerUse::never, MarkerUse::send, MarkerUse::both}) {
    const bool never = use == MarkerUse::never;
    for (const bool asked : {false, true}) {
      StartupOptions options = revision_1();
      options.markers = use;
      Responder r(options, kStart);
      CHECK(r.feed(frame({.markers = asked, .revision = 1}, std::nullopt)).outcome == Outcome::request);
      CHECK(r.acceptable() == !(never && asked));
      Initiator i(options, {}, kStart);
      i.feed(frame({.reply = true, .markers = asked, .revision = 1}, std::nullopt));
      if (never && asked) {
        check_failed(i, StartupFailure::markers_asked, wire::terminate_code::kMpaLocalCatastrophic);
        CHECK(i.negotiated().markers_out == Markers::inserted);  // or the peer could not read the Terminate
      } else {
        CHECK(i.outcome() == Outcome::accepted);
      }
    }
  }
  // A rejection is one.
  StartupOptions options = revision_1();
  options.markers = MarkerUse::never;
  Initiator i(options, {}, kStart);
  CHECK(i.feed(frame({.reply = true, .markers = true, .rejected = true, .revision = 1}, std::nullopt)).outcome ==
        Outcome::rejected);
}

TEST_CASE("W-MPA-06: CRC is in use when either side says so", "[mpa][W-MPA-06]") {
  for (const bool ours : {false, true}) {
    for (const bool theirs : {false, true}) {
      const Crc expected = ours || theirs ? Crc::on : Crc::off;
      StartupOptions options = revision_1();
      options.crc = ours;
      Initiator i(options, {}, kStart);
      i.feed(frame({.reply = true, .crc = theirs, .revision = 1}, std::nullopt));
      CHECK(i.negotiated().crc == expected);
      auto r = asked(request_v1({}, theirs), options);
      CHECK(r.accept({}, 0, 0).has_value());
      CHECK(r.negotiated().crc == expected);
    }
  }
}

TEST_CASE("W-MPA-27: S and Revision 2 stand in our frames where the private data begins with the block, and only there",
          "[mpa][W-MPA-27]") {
  const auto data = test::text("x");
  const auto check = [&data](Bytes octets, bool enhanced) {
    const auto header = header_of(octets);
    CHECK(header.enhanced == enhanced);
    CHECK(header.revision == (enhanced ? 2 : 1));
    CHECK(octets.size() == (enhanced ? 25 : 21));
    if (enhanced) CHECK(wire::parse_enhanced(octets.subspan(20))->ird == 4);
    CHECK(test::copy_of(octets.last(1)) == data);
  };
  check(Initiator(with_depths(4, 5), data, kStart).request(), true);
  check(Initiator(revision_1(), data, kStart).request(), false);
  for (const bool enhanced : {true, false}) {
    const auto request = enhanced ? request_v2(kWriteReply) : request_v1();
    auto accepting = asked(request), rejecting = asked(request);
    check(*accepting.accept(data, 4, 5), enhanced);
    check(*rejecting.reject(data, 4, 5), enhanced);
  }
}

// ---- frames as they come in ----

TEST_CASE("W-MPA-15: a frame is taken however it is cut", "[mpa][W-MPA-15]") {
  const auto request = request_v2(kWriteReply, test::text("hello"));
  for (std::size_t piece = 1; piece <= request.size(); ++piece) {
    Responder r({}, kStart);
    for (std::size_t at = 0; at < request.size(); at += piece) {
      const Bytes octets = Bytes{request}.subspan(at, std::min(piece, request.size() - at));
      const auto fed = r.feed(octets);
      REQUIRE(fed.consumed == octets.size());
      REQUIRE(fed.outcome == (at + piece >= request.size() ? Outcome::request : Outcome::more));
    }
    CHECK(test::copy_of(r.private_data()) == test::text("hello"));
  }
}

TEST_CASE("W-MPA-91, W-MPA-02: the first octet that cannot be the key's ends it", "[mpa][W-MPA-91][W-MPA-02]") {
  const auto request = request_v1();
  for (std::size_t wrong = 0; wrong < 16; ++wrong) {
    auto octets = request;
    octets[wrong] ^= std::byte{0x80};
    Responder r({}, kStart);
    CHECK(r.feed(Bytes{octets}.first(wrong)).outcome == Outcome::more);
    CHECK(r.feed(Bytes{octets}.subspan(wrong, 1)).outcome == Outcome::failed);
    CHECK(r.verdict().reason == StartupFailure::bad_key);
    CHECK_FALSE(r.verdict().terminate);
  }
}

TEST_CASE("W-MPA-02, W-MPA-26: a Request where a Reply is due is a wrong key", "[mpa][W-MPA-02][W-MPA-26]") {
  check_failed(answered(request_v1()), StartupFailure::bad_key);
  Responder r({}, kStart);
  CHECK(r.feed(reply_v1()).outcome == Outcome::failed);
}

TEST_CASE("W-MPA-26: where both wait for a Request, both give up when its time is over", "[mpa][W-MPA-26][W-MPA-23]") {
  Responder one({}, kStart), other({}, kStart);
  for (Responder* r : {&one, &other}) {
    CHECK(r->on_time(kStart + seconds(10) - nanoseconds(1)) == Outcome::more);
    CHECK(r->on_time(r->next_deadline()) == Outcome::failed);
    CHECK(r->verdict().reason == StartupFailure::timed_out);
    CHECK_FALSE(r->verdict().terminate);
  }
}

TEST_CASE("W-MPA-12: Revisions 1 and 2 are taken, 0 and 3 end it", "[mpa][W-MPA-12][W-MPA-30]") {
  for (const unsigned revision : {0u, 1u, 2u, 3u, 255u}) {
    const bool good = revision == 1 || revision == 2;
    Responder r({}, kStart);
    // At the very octet.
    auto request = frame({.crc = true, .revision = static_cast<std::uint8_t>(revision)}, std::nullopt);
    CHECK(r.feed(Bytes{request}.first(17)).outcome == Outcome::more);
    CHECK(r.feed(Bytes{request}.subspan(17, 1)).outcome == (good ? Outcome::more : Outcome::failed));
    if (!good) CHECK(r.verdict().reason == StartupFailure::bad_revision);

    const auto i =
        answered(frame({.reply = true, .crc = true, .revision = static_cast<std::uint8_t>(revision)}, std::nullopt),
                 revision_1());
    CHECK(i.outcome() == (good ? Outcome::accepted : Outcome::failed));
  }
}

TEST_CASE("W-MPA-13: 512 octets of private data are taken, 513 end it at the header", "[mpa][W-MPA-13]") {
  const auto most = asked(request_v1(test::pattern(512)));
  CHECK(test::copy_of(most.private_data()) == test::pattern(512));
  const auto enhanced = asked(request_v2(kWriteReply, test::pattern(508)));
  CHECK(test::copy_of(enhanced.private_data()) == test::pattern(508));
  Responder r({}, kStart);
  CHECK(r.feed(Bytes{request_v1(test::pattern(513))}.first(20)).outcome == Outcome::failed);
  CHECK(r.verdict().reason == StartupFailure::bad_private_data);
}

TEST_CASE("W-MPA-27: Revision 2 with S and less than the block is malformed", "[mpa][W-MPA-27]") {
  for (std::size_t size = 0; size <= 4; ++size) {
    Responder r({}, kStart);
    const auto request = frame({.enhanced = true, .revision = 2}, std::nullopt, test::pattern(size));
    CHECK(r.feed(request).outcome == (size < 4 ? Outcome::failed : Outcome::request));
  }
}

TEST_CASE("W-MPA-82: private data goes up without the block, exactly as long as it is", "[mpa][W-MPA-82]") {
  CHECK(asked(request_v1()).private_data().empty());
  CHECK(asked(request_v2(kWriteReply)).private_data().empty());
  CHECK(test::copy_of(asked(request_v2(kWriteReply, test::text("x"))).private_data()) == test::text("x"));
  CHECK(test::copy_of(answered(reply_v2(kWriteReply, test::text("yes"))).private_data()) == test::text("yes"));
  CHECK(test::copy_of(answered(reply_v2(kWriteReply, test::text("no"), true)).private_data()) == test::text("no"));
}

TEST_CASE("W-MPA-82: without S the first octets are the consumer's too", "[mpa][W-MPA-82][W-MPA-28][W-MPA-83]") {
  const auto data = hex("8010c020aa");
  CHECK(test::copy_of(asked(frame({.revision = 2}, std::nullopt, data)).private_data()) == data);
  auto revision_1_with_bit = request_v1(data);
  revision_1_with_bit[16] |= std::byte{0x10};
  auto r = asked(revision_1_with_bit);
  CHECK(test::copy_of(r.private_data()) == data);
  const auto header = header_of(*r.accept({}, 4, 4));
  CHECK(header.revision == 1);
  CHECK_FALSE(header.enhanced);
}

TEST_CASE("W-MPA-17: an octet behind the Request, before our Reply, ends it", "[mpa][W-MPA-17]") {
  auto request = request_v1();
  {
    auto r = asked(request);
    CHECK(r.feed(hex("00")).outcome == Outcome::failed);
    CHECK(r.verdict().reason == StartupFailure::trailing_octets);
    CHECK_FALSE(r.accept({}, 0, 0).has_value());
    CHECK_FALSE(r.reject({}).has_value());
  }
  request.push_back(std::byte{0});
  Responder r({}, kStart);
  CHECK(r.feed(request).outcome == Outcome::failed);
}

TEST_CASE("W-MPA-22: octets right behind the Reply are left for the framer", "[mpa][W-MPA-22][W-MPA-25]") {
  auto reply = reply_v2(kWriteReply, test::text("abc"));
  const std::size_t size = reply.size();
  test::append(reply, hex("000ec140"));
  Initiator i(with_depths(8, 8), {}, kStart);
  const auto fed = i.feed(reply);
  CHECK(fed.outcome == Outcome::accepted);
  CHECK(fed.consumed == size);
}

TEST_CASE("W-MPA-23: the whole of a frame has one time limit", "[mpa][W-MPA-23]") {
  const auto request = request_v1(test::text("abcdef"));
  Responder r({}, kStart);
  CHECK(r.next_deadline() == kStart + seconds(10));
  for (std::size_t i = 0; i + 1 < request.size(); ++i) r.feed(Bytes{request}.subspan(i, 1));
  CHECK(r.next_deadline() == kStart + seconds(10));
  CHECK(r.on_time(kStart + seconds(10) - nanoseconds(1)) == Outcome::more);
  CHECK(r.on_time(kStart + seconds(10)) == Outcome::failed);
  CHECK(r.verdict().reason == StartupFailure::timed_out);

  Initiator i({}, {}, kStart);
  CHECK(i.next_deadline() == kStart + seconds(20));
  CHECK(i.on_time(kStart + seconds(20) - nanoseconds(1)) == Outcome::more);
  CHECK(i.on_time(kStart + seconds(20)) == Outcome::failed);
  CHECK(i.next_deadline() == kNever);
}

TEST_CASE("W-MPA-23: our consumer's thinking time has no limit here", "[mpa][W-MPA-23]") {
  auto r = asked(request_v1());
  CHECK(r.next_deadline() == kNever);
  CHECK(r.on_time(kStart + seconds(3600)) == Outcome::request);
  CHECK(r.accept({}, 0, 0).has_value());
}

TEST_CASE("W-MPA-91: an end of the stream inside a frame is an invalid frame", "[mpa][W-MPA-91]") {
  Responder r({}, kStart);
  r.feed(Bytes{request_v1()}.first(19));
  CHECK(r.on_end() == Outcome::failed);
  CHECK(r.verdict().reason == StartupFailure::ended);
  Initiator i({}, {}, kStart);
  CHECK(i.on_end() == Outcome::failed);
  // A reject may carry the FIN: it was heard before.
  auto rejected = answered(reply_v1({}, true), revision_1());
  CHECK(rejected.on_end() == Outcome::rejected);
}

// ---- the Reply that we hear ----

TEST_CASE("W-MPA-10, W-MPA-20: R in a Reply is a rejection, with its private data", "[mpa][W-MPA-10][W-MPA-20]") {
  const auto i = answered(reply_v1(test::text("sorry"), true), revision_1());
  CHECK(i.outcome() == Outcome::rejected);
  CHECK_FALSE(i.verdict().terminate);
  CHECK(test::copy_of(i.private_data()) == test::text("sorry"));
  CHECK(i.negotiated().rtr == Rtr::none);
}

TEST_CASE("W-MPA-20, W-MPA-29: a rejection is one whatever its revision", "[mpa][W-MPA-20][W-MPA-84]") {
  CHECK(answered(reply_v1({}, true)).outcome() == Outcome::rejected);
  CHECK(answered(reply_v2(kWriteReply, {}, true), revision_1()).outcome() == Outcome::rejected);
}

TEST_CASE("W-MPA-38: the peer's depths are handed up, on accept and on reject", "[mpa][W-MPA-38]") {
  EnhancedBlock reply = kWriteReply;
  reply.ird = 7;
  reply.ord = 5;
  for (const bool rejected : {false, true}) {
    const auto i = answered(reply_v2(reply, {}, rejected));
    CHECK(i.negotiated().peer_ird == 7);
    CHECK(i.negotiated().peer_ord == 5);
  }
  const auto r = asked(request_v2({.ird = 3, .ord = kOpen}));
  CHECK(r.negotiated().peer_ird == 3);
  CHECK(r.negotiated().peer_ord == kOpen);
}

TEST_CASE("W-MPA-35: the initiator raises its IRD and lowers its ORD to the responder's", "[mpa][W-MPA-35]") {
  EnhancedBlock reply = kWriteReply;
  reply.ird = 7;
  reply.ord = 9;
  const auto i = answered(reply_v2(reply));
  CHECK(i.outcome() == Outcome::accepted);
  CHECK(i.negotiated().ird == 9);
  CHECK(i.negotiated().ord == 7);
  // What is within stays.
  reply.ird = 9;
  reply.ord = 7;
  const auto kept = answered(reply_v2(reply));
  CHECK(kept.negotiated().ird == 8);
  CHECK(kept.negotiated().ord == 8);
}

TEST_CASE("W-MPA-35: an IRD that cannot be raised ends it with 2/0/06", "[mpa][W-MPA-35]") {
  StartupOptions options = with_depths(8, 8);
  options.ird_max = 16;
  EnhancedBlock reply = kWriteReply;
  reply.ord = 16;
  CHECK(answered(reply_v2(reply), options).outcome() == Outcome::accepted);
  reply.ord = 17;
  check_failed(answered(reply_v2(reply), options), StartupFailure::insufficient_ird,
               wire::terminate_code::kMpaInsufficientIrd);
}

TEST_CASE("W-MPA-37: 0x3fff in a Reply leaves what the initiator has", "[mpa][W-MPA-37]") {
  EnhancedBlock reply = kWriteReply;
  reply.ird = kOpen;
  reply.ord = 3;
  auto i = answered(reply_v2(reply));
  CHECK(i.negotiated().ord == 8);
  reply.ird = 3;
  reply.ord = kOpen;
  i = answered(reply_v2(reply));
  CHECK(i.outcome() == Outcome::accepted);
  CHECK(i.negotiated().ird == 8);
  CHECK(i.negotiated().ord == 3);
}

TEST_CASE("W-MPA-37: so it does where the initiator said 0x3fff itself", "[mpa][W-MPA-37][W-MPA-35]") {
  auto options = with_depths(8, 8);
  options.negotiate_depths = false;
  EnhancedBlock reply = kWriteReply;
  reply.ird = reply.ord = kOpen;
  const auto open = answered(reply_v2(reply), options);
  CHECK(open.outcome() == Outcome::accepted);
  CHECK(open.negotiated().ird == 8);
  CHECK(open.negotiated().ord == 8);
  // And a number counts, whatever was asked.
  reply.ird = 3;
  reply.ord = 9;
  const auto told = answered(reply_v2(reply), options);
  CHECK(told.negotiated().ird == 9);
  CHECK(told.negotiated().ord == 3);
}

TEST_CASE("W-MPA-42: the RTR is one that both flagged", "[mpa][W-MPA-42][W-MPA-45]") {
  const auto rtr_for = [](bool send, bool write, bool read) {
    const auto i = answered(
        reply_v2({.peer_to_peer = true, .rtr_send = send, .rtr_write = write, .rtr_read = read, .ird = 8, .ord = 8}));
    CHECK(i.outcome() == Outcome::accepted);
    CHECK(i.negotiated().peer_to_peer);
    return i.negotiated().rtr;
  };
  CHECK(rtr_for(false, true, false) == Rtr::write);
  CHECK(rtr_for(false, false, true) == Rtr::read);
  CHECK(rtr_for(false, true, true) == Rtr::write);
  CHECK(rtr_for(true, false, true) == Rtr::read);  // B was not offered
}

TEST_CASE("W-MPA-43: no RTR in common ends it with 2/0/07", "[mpa][W-MPA-43]") {
  check_failed(answered(reply_v2({.peer_to_peer = true, .ird = 8, .ord = 8})), StartupFailure::no_matching_rtr,
               wire::terminate_code::kMpaNoMatchingRtr);
  check_failed(answered(reply_v2({.peer_to_peer = true, .rtr_send = true, .ird = 8, .ord = 8})),
               StartupFailure::no_matching_rtr, wire::terminate_code::kMpaNoMatchingRtr);
}

TEST_CASE("W-MPA-86: with a read RTR our ORD is at least 1", "[mpa][W-MPA-86]") {
  const auto i = answered(reply_v2({.peer_to_peer = true, .rtr_read = true, .ird = 1, .ord = 0}), with_depths(0, 0));
  CHECK(i.outcome() == Outcome::accepted);
  CHECK(i.negotiated().ord == 1);
  const auto open =
      answered(reply_v2({.peer_to_peer = true, .rtr_read = true, .ird = kOpen, .ord = 0}), with_depths(0, 0));
  CHECK(open.negotiated().ord == 1);
  // A peer that has no place for it did not mean it.
  const auto none = answered(reply_v2({.peer_to_peer = true, .rtr_read = true, .ird = 0, .ord = 0}));
  check_failed(none, StartupFailure::no_matching_rtr, wire::terminate_code::kMpaNoMatchingRtr);
}

TEST_CASE("W-MPA-84: an accepting Reply without the block, where we sent one, ends it with 2/0/05",
          "[mpa][W-MPA-84][W-MPA-44]") {
  check_failed(answered(reply_v1()), StartupFailure::not_enhanced, wire::terminate_code::kMpaLocalCatastrophic);
  check_failed(answered(frame({.reply = true, .revision = 2}, std::nullopt)), StartupFailure::not_enhanced,
               wire::terminate_code::kMpaLocalCatastrophic);
}

TEST_CASE("W-MPA-84: another A than ours ends it with 2/0/07", "[mpa][W-MPA-84]") {
  check_failed(answered(reply_v2({.ird = 8, .ord = 8})), StartupFailure::peer_to_peer_mismatch,
               wire::terminate_code::kMpaNoMatchingRtr);
  StartupOptions plain = with_depths(8, 8);
  plain.peer_to_peer = false;
  check_failed(answered(reply_v2(kWriteReply), plain), StartupFailure::peer_to_peer_mismatch,
               wire::terminate_code::kMpaNoMatchingRtr);
  CHECK(answered(reply_v2({.ird = 8, .ord = 8}), plain).negotiated().rtr == Rtr::none);
}

TEST_CASE("W-MPA-84: an enhanced Reply to Revision 1 is invalid: no Terminate", "[mpa][W-MPA-84][W-MPA-18]") {
  check_failed(answered(reply_v2(kWriteReply), revision_1()), StartupFailure::unexpected_enhanced);
}

TEST_CASE("W-MPA-11: reserved bits that a peer echoes change nothing", "[mpa][W-MPA-11]") {
  auto reply = reply_v2(kWriteReply);
  reply[16] |= std::byte{0x0F};
  CHECK(answered(reply).outcome() == Outcome::accepted);
}

// ---- the Reply that we send ----

TEST_CASE("W-MPA-28, W-MPA-29: an enhanced Request gets an enhanced Reply, another one Revision 1",
          "[mpa][W-MPA-28][W-MPA-29][W-MPA-30]") {
  for (const bool reject : {false, true}) {
    const auto reply_to = [reject](Bytes request) {
      auto r = asked(request);
      const auto reply = reject ? r.reject(test::text("x")) : r.accept(test::text("x"), 4, 4);
      REQUIRE(reply.has_value());
      const auto header = header_of(*reply);
      CHECK(header.reply);
      CHECK(header.rejected == reject);
      return header;
    };
    const auto enhanced = reply_to(request_v2(kWriteReply));
    CHECK(enhanced.revision == 2);
    CHECK(enhanced.enhanced);
    CHECK(enhanced.private_data_length == 5);
    for (const auto& request : {request_v1(), frame({.revision = 2}, std::nullopt)}) {
      const auto plain = reply_to(request);
      CHECK(plain.revision == 1);
      CHECK_FALSE(plain.enhanced);
      CHECK(plain.private_data_length == 1);
    }
  }
}

TEST_CASE("W-MPA-09: R in a Request is not looked at", "[mpa][W-MPA-09]") {
  auto r = asked(frame({.rejected = true, .revision = 1}, std::nullopt));
  CHECK_FALSE(header_of(*r.accept({}, 0, 0)).rejected);
}

TEST_CASE("W-MPA-33: our ORD in the Reply is at most the initiator's IRD", "[mpa][W-MPA-33]") {
  CHECK(accepted_block({.ird = 5, .ord = 5}, 8, 4).ord == 4);
  CHECK(accepted_block({.ird = 5, .ord = 5}, 8, 5).ord == 5);
  CHECK(accepted_block({.ird = 5, .ord = 5}, 8, 6).ord == 5);
  CHECK(accepted_block({.ird = 0, .ord = 5}, 8, 6).ord == 0);
}

TEST_CASE("W-MPA-34: our IRD in the Reply is what we have, at least 1 for a read RTR", "[mpa][W-MPA-34][W-MPA-94]") {
  CHECK(accepted_block({.ird = 5, .ord = 9}, 8, 4).ird == 8);
  CHECK(accepted_block({.ird = 5, .ord = 9}, 0, 4).ird == 0);
  CHECK(accepted_block({.peer_to_peer = true, .rtr_read = true, .ird = 5, .ord = 9}, 0, 4).ird == 1);
  CHECK(accepted_block({.ird = 0x3FFE, .ord = 0x3FFE}, 1000, 1000).ird == 128);
  CHECK(accepted_block({.ird = 0x3FFE, .ord = 0x3FFE}, 1000, 1000).ord == 128);
}

TEST_CASE("W-MPA-37: 0x3fff in a Request is answered with 0x3fff, each field by itself", "[mpa][W-MPA-37]") {
  auto r = asked(request_v2({.ird = kOpen, .ord = 5}));
  auto block = block_of(*r.accept({}, 8, 9));
  CHECK(block.ord == kOpen);
  CHECK(block.ird == 8);
  CHECK(r.negotiated().ord == 9);
  auto other = asked(request_v2({.ird = 5, .ord = kOpen}));
  block = block_of(*other.accept({}, 8, 9));
  CHECK(block.ird == kOpen);
  CHECK(block.ord == 5);
  CHECK(other.negotiated().ird == 8);
}

TEST_CASE("W-MPA-40, W-MPA-41: A is answered with exactly one flag: C, else D, else B, else C",
          "[mpa][W-MPA-39][W-MPA-40][W-MPA-41]") {
  const auto answer = [](bool b, bool c, bool d) {
    const auto block =
        accepted_block({.peer_to_peer = true, .rtr_send = b, .rtr_write = c, .rtr_read = d, .ird = 5, .ord = 5}, 8, 4);
    CHECK(block.peer_to_peer);
    CHECK(block.rtr_send + block.rtr_write + block.rtr_read == 1);
    return block.rtr_write ? 'C' : block.rtr_read ? 'D' : 'B';
  };
  CHECK(answer(true, true, true) == 'C');
  CHECK(answer(true, false, true) == 'D');
  CHECK(answer(true, false, false) == 'B');
  CHECK(answer(false, false, false) == 'C');
}

TEST_CASE("W-MPA-39: without A the flags of a Request are ignored and none is answered", "[mpa][W-MPA-39]") {
  const auto block = accepted_block({.rtr_send = true, .rtr_write = true, .rtr_read = true, .ird = 5, .ord = 5}, 8, 4);
  CHECK(block == EnhancedBlock{.ird = 8, .ord = 4});
}

TEST_CASE("W-MPA-36: a rejection can tell the ORD that is needed", "[mpa][W-MPA-36]") {
  auto r = asked(request_v2({.ird = 1, .ord = 5}));
  const auto block = block_of(*r.reject({}, 8, 16));
  CHECK(block.ord == 16);
  CHECK(block.ird == 8);
  CHECK(r.outcome() == Outcome::rejected);
}

TEST_CASE("W-MPA-14: a Reply's private data is refused when it is too long, and may be tried again",
          "[mpa][W-MPA-14]") {
  auto enhanced = asked(request_v2(kWriteReply));
  CHECK(enhanced.private_data_max() == 252);
  const auto refused = enhanced.accept(test::pattern(253), 0, 0);
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error() == StartupFailure::private_data_too_long);
  CHECK(enhanced.accept(test::pattern(252), 0, 0).has_value());
  auto plain = asked(request_v1());
  CHECK(plain.private_data_max() == 256);
  CHECK(plain.reject(test::pattern(256)).has_value());
}

TEST_CASE("W-MPA-81: the revision is handed on", "[mpa][W-MPA-81]") {
  CHECK(asked(request_v1()).negotiated().revision == 1);
  CHECK(asked(request_v2(kWriteReply)).negotiated().revision == 2);
  CHECK(answered(reply_v2(kWriteReply)).negotiated().revision == 2);
  CHECK(answered(reply_v1(), revision_1()).negotiated().revision == 1);
}

TEST_CASE("W-MPA-29, W-MPA-41: a rejection has the block too, with one flag of those offered",
          "[mpa][W-MPA-29][W-MPA-39][W-MPA-41]") {
  const auto block = [](const EnhancedBlock& request) {
    auto r = asked(request_v2(request));
    return block_of(*r.reject({}, 3, 4));
  };
  CHECK(block({.ird = 5, .ord = 6}) == EnhancedBlock{.ird = 3, .ord = 4});
  CHECK(block({.peer_to_peer = true, .rtr_write = true, .rtr_read = true, .ird = 5, .ord = 6}) ==
        EnhancedBlock{.peer_to_peer = true, .rtr_write = true, .ird = 3, .ord = 4});
  CHECK(block({.peer_to_peer = true, .rtr_read = true, .ird = 5, .ord = 6}) ==
        EnhancedBlock{.peer_to_peer = true, .rtr_read = true, .ird = 3, .ord = 4});
  CHECK(block({.peer_to_peer = true, .rtr_send = true, .ird = 5, .ord = 6}) ==
        EnhancedBlock{.peer_to_peer = true, .rtr_send = true, .ird = 3, .ord = 4});
}

TEST_CASE("W-MPA-06: C in our Reply says what is in use", "[mpa][W-MPA-06][W-MPA-08]") {
  for (const bool ours : {false, true}) {
    for (const bool theirs : {false, true}) {
      StartupOptions options;
      options.crc = ours;
      auto r = asked(request_v1({}, theirs), options);
      CHECK(header_of(*r.accept({}, 0, 0)).crc == (ours || theirs));
    }
  }
}

TEST_CASE("W-MPA-19: a rejection may be tried again when its private data is too long", "[mpa][W-MPA-14][W-MPA-19]") {
  auto r = asked(request_v1());
  const auto refused = r.reject(test::pattern(257));
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error() == StartupFailure::private_data_too_long);
  CHECK(r.outcome() == Outcome::request);
  CHECK(r.reject(test::pattern(256)).has_value());
  CHECK(r.outcome() == Outcome::rejected);
}

// ---- around the exchange ----

TEST_CASE("W-MPA-37: without depths to negotiate both fields of our Request say so", "[mpa][W-MPA-37][W-MPA-86]") {
  auto options = with_depths(8, 8);
  options.negotiate_depths = false;
  const auto block = block_of(Initiator(options, {}, kStart).request());
  CHECK(block.ird == kOpen);
  CHECK(block.ord == kOpen);
  CHECK(block.peer_to_peer);
}

TEST_CASE("W-MPA-31: an administrator who wants Revision 1 gets it, whatever else is asked for",
          "[mpa][W-MPA-31][W-MPA-28]") {
  auto options = with_depths(8, 8);
  options.revision = 1;
  const auto header = header_of(Initiator(options, {}, kStart).request());
  CHECK(header.revision == 1);
  CHECK_FALSE(header.enhanced);
  CHECK(header.private_data_length == 0);
}

TEST_CASE("W-MPA-38: a peer without the block said nothing of its depths", "[mpa][W-MPA-38]") {
  auto r = asked(request_v1());
  CHECK(r.negotiated().peer_ird == kOpen);
  CHECK(r.negotiated().peer_ord == kOpen);
  CHECK_FALSE(r.negotiated().enhanced);
  CHECK_FALSE(r.negotiated().peer_to_peer);
  REQUIRE(r.accept({}, 3, 4).has_value());
  CHECK(r.negotiated().ird == 3);
  CHECK(r.negotiated().ord == 4);
  CHECK(r.negotiated().rtr == Rtr::none);
  auto options = revision_1();
  options.ird = 5;
  options.ord = 6;
  const auto i = answered(reply_v1(), options);
  CHECK(i.negotiated().peer_ird == kOpen);
  CHECK(i.negotiated().peer_ord == kOpen);
  CHECK(i.negotiated().ird == 5);
  CHECK(i.negotiated().ord == 6);
  CHECK_FALSE(i.negotiated().peer_to_peer);
}

TEST_CASE("W-MPA-22: behind a verdict no octet is the frame's", "[mpa][W-MPA-22][W-MPA-25]") {
  Initiator i(with_depths(8, 8), {}, kStart);
  REQUIRE(i.feed(reply_v2(kWriteReply)).outcome == Outcome::accepted);
  const auto more = i.feed(hex("000ec140"));
  CHECK(more.outcome == Outcome::accepted);
  CHECK(more.consumed == 0);
  auto r = asked(request_v1());
  REQUIRE(r.accept({}, 0, 0).has_value());
  const auto fpdu = r.feed(hex("000ec140"));
  CHECK(fpdu.outcome == Outcome::accepted);
  CHECK(fpdu.consumed == 0);
  // Nor is a failure forgotten.
  Responder failed({}, kStart);
  REQUIRE(failed.feed(hex("00")).outcome == Outcome::failed);
  const auto again = failed.feed(request_v1());
  CHECK(again.outcome == Outcome::failed);
  CHECK(again.consumed == 0);
}

TEST_CASE("W-MPA-82: before a frame is whole it has no private data", "[mpa][W-MPA-82]") {
  const auto request = request_v1(test::text("hello"));
  Responder r({}, kStart);
  CHECK(r.private_data().empty());
  r.feed(Bytes{request}.first(22));
  CHECK(r.private_data().empty());
  r.feed(Bytes{request}.subspan(22));
  CHECK(test::copy_of(r.private_data()) == test::text("hello"));
}

TEST_CASE("W-MPA-91: the end of the stream counts until our Reply is out", "[mpa][W-MPA-91][W-MPA-17]") {
  auto r = asked(request_v1());
  CHECK(r.on_end() == Outcome::failed);
  CHECK(r.verdict().reason == StartupFailure::ended);
  auto replied = asked(request_v1());
  REQUIRE(replied.accept({}, 0, 0).has_value());
  CHECK(replied.on_end() == Outcome::accepted);
  // The first reason stays.
  Responder failed({}, kStart);
  failed.feed(hex("00"));
  CHECK(failed.on_end() == Outcome::failed);
  CHECK(failed.verdict().reason == StartupFailure::bad_key);
  CHECK(failed.on_time(kStart + seconds(100)) == Outcome::failed);
  CHECK(failed.verdict().reason == StartupFailure::bad_key);
  CHECK(failed.next_deadline() == kNever);
  const auto accepted = answered(reply_v1(), revision_1());
  Initiator i = accepted;
  CHECK(i.on_end() == Outcome::accepted);
  CHECK(i.on_time(kStart + seconds(100)) == Outcome::accepted);
}

// ---- both ----

TEST_CASE("W-MPA-33, W-MPA-35: two of us agree on depths and RTR", "[mpa][W-MPA-33][W-MPA-34][W-MPA-35][W-MPA-42]") {
  for (const std::uint16_t a : std::initializer_list<std::uint16_t>{0, 1, 5, 128}) {
    for (const std::uint16_t b : std::initializer_list<std::uint16_t>{0, 1, 7, 128}) {
      Initiator i(with_depths(a, b), test::text("ping"), kStart);
      Responder r({}, kStart);
      REQUIRE(r.feed(i.request()).outcome == Outcome::request);
      CHECK(test::copy_of(r.private_data()) == test::text("ping"));
      const auto reply = r.accept(test::text("pong"), b, a);
      REQUIRE(reply.has_value());
      REQUIRE(i.feed(*reply).outcome == Outcome::accepted);
      CHECK(test::copy_of(i.private_data()) == test::text("pong"));
      CHECK(i.negotiated().ord <= r.negotiated().ird);
      CHECK(r.negotiated().ord <= i.negotiated().ird);
      CHECK(i.negotiated().rtr == Rtr::write);
      CHECK(r.negotiated().rtr == Rtr::write);
      CHECK(i.negotiated().crc == Crc::on);
      CHECK(r.negotiated().crc == Crc::on);
    }
  }
}
