// The startup of a stream on the wire: two devices, and startup frames that one of ours would never send,
// made by changing those that it does.
#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "kit/catch.hpp"
#include "kit/hex.hpp"
#include "mpa/packer.hpp"
#include "sim/world.hpp"
#include "wire/ddp.hpp"
#include "wire/ipv4.hpp"
#include "wire/mpa.hpp"
#include "wire/tcp.hpp"
#include "wire/terminate.hpp"

using namespace rnic;
using core::StreamEvent;
using core::StreamFailure;
using sim::World;
using sim::WorldOptions;
using test::hex;

namespace {

constexpr std::uint16_t kPort = 7471;
// In a startup frame.
constexpr std::size_t kFlags = 16, kRevision = 17, kLength = 18, kIrd = 20, kOrd = 22;

qp::Config plain() {
  qp::Config config;
  config.access = tpt::Rights::remote_read | tpt::Rights::remote_write;
  config.ird = config.ord = 4;
  return config;
}

// The octets of TCP payload of a frame; where they begin.
std::optional<std::pair<std::size_t, std::size_t>> payload_in(Bytes frame) {
  const auto ip = wire::parse_ipv4(frame.subspan(14));
  if (!ip || ip->header.protocol != wire::protocol::kTcp) return std::nullopt;
  const std::size_t at = 14 + ip->header_size;
  const auto tcp = wire::parse_tcp(frame.subspan(at, ip->payload_size()));
  if (!tcp || ip->payload_size() == tcp->data_offset) return std::nullopt;
  return std::pair{at + tcp->data_offset, ip->payload_size() - tcp->data_offset};
}

// What one side says on the wire, from its startup frame on.
struct Said {
  void watch(sim::Link& link) {
    link.watch([this](Bytes frame, Instant now, sim::Link::Fate) {
      const auto ip = wire::parse_ipv4(frame.subspan(14));
      if (!ip || ip->header.protocol != wire::protocol::kTcp) return;
      const auto tcp = wire::parse_tcp(frame.subspan(14 + ip->header_size, ip->payload_size()));
      if (tcp->header.has(wire::tcp_flags::kSyn)) first = tcp->header.sequence + 1;
      acknowledged = tcp->header.acknowledgement;
      ends += tcp->header.has(wire::tcp_flags::kFin) || tcp->header.has(wire::tcp_flags::kRst);
      resets += tcp->header.has(wire::tcp_flags::kRst);
      if (const auto payload = payload_in(frame)) {
        const std::size_t at = tcp->header.sequence - first;
        if (octets.size() < at + payload->second) octets.resize(at + payload->second);
        std::copy_n(frame.begin() + static_cast<std::ptrdiff_t>(payload->first), payload->second,
                    octets.begin() + static_cast<std::ptrdiff_t>(at));
        if (on_octets) on_octets();
      }
      if (ends != 0 && ended_at == kNever) {
        ended_at = now;
        if (on_end) on_end();
      }
    });
  }
  // ULPDUs behind a startup frame of so many octets.
  std::vector<std::vector<std::byte>> ulpdus(std::size_t startup, mpa::Crc crc = mpa::Crc::on,
                                             mpa::Markers markers = mpa::Markers::none) const {
    std::vector<std::vector<std::byte>> out;
    const std::vector<Bytes> spans{Bytes{octets}.subspan(std::min(startup, octets.size()))};
    mpa::Cursor at(spans);
    mpa::Framer framer(crc, markers);
    const auto list = std::make_unique<mpa::SpanList>();
    for (;;) {
      const auto fpdu = framer.next(at, *list);
      REQUIRE(fpdu.has_value());
      if (!fpdu->has_value()) break;
      out.emplace_back(list->size);
      list->copy(0, out.back());
    }
    CHECK_FALSE(mpa::Framer::ends_inside(at));
    return out;
  }
  std::vector<std::byte> octets;
  std::uint32_t first = 0;
  std::uint32_t acknowledged = 0;  // a sequence number of the other side's
  unsigned ends = 0, resets = 0;
  Instant ended_at = kNever;
  std::function<void()> on_octets, on_end;
};

WorldOptions unchecked() {
  WorldOptions options;
  options.a.checksums = options.b.checksums = false;
  return options;
}

struct Scene {
  explicit Scene(WorldOptions options = unchecked()) : world(options) {
    a_says.watch(world.a_to_b);
    b_says.watch(world.b_to_a);
    REQUIRE(world.b.device.listen({}, kPort, 8, 77));
    world.b.on_event = [this](const StreamEvent& event) {
      if (event.kind == StreamEvent::Kind::connect_request && answers) answer(event);
    };
  }
  void answer(const StreamEvent& event) {
    if (rejects) {
      REQUIRE(world.b.device.reject(event.stream, private_data(reply_data), world.clock.now));
      return;
    }
    b = &world.b.make_qp(plain());
    b->stream = event.stream;
    if (before_accept) before_accept();
    REQUIRE(world.b.device.accept(event.stream,
                                  {.ird = 4, .ord = 4, .private_data = private_data(reply_data), .cookie = 5}, *b->qp,
                                  world.clock.now));
  }
  static core::PrivateData private_data(const std::vector<std::byte>& octets) {
    core::PrivateData data;
    std::copy(octets.begin(), octets.end(), data.octets.begin());
    data.length = static_cast<std::uint16_t>(octets.size());
    return data;
  }
  // A calls; nothing is waited for.
  void dial(std::uint32_t ird = 4, std::uint32_t ord = 4, std::uint16_t local_port = 0) {
    a = &world.a.make_qp(plain());
    core::ConnectOptions options;
    options.remote = sim::kAddressB;
    options.remote_port = kPort;
    options.local_port = local_port;
    options.ird = ird;
    options.ord = ord;
    options.cookie = 3;
    const auto stream = world.a.device.connect(options, *a->qp, world.clock.now);
    REQUIRE(stream);
    a->stream = *stream;
  }
  // The first frame with payload of that way is changed: its payload is given.
  static void edit_first(sim::Link& link, std::function<void(MutableBytes)> change) {
    link.edit([change = std::move(change), done = false](sim::Frame& frame) mutable {
      const auto payload = payload_in(frame);
      if (!payload || done) return;
      done = true;
      change(MutableBytes{frame}.subspan(payload->first, payload->second));
    });
  }
  void edit_request(std::function<void(MutableBytes)> change) { edit_first(world.a_to_b, std::move(change)); }
  void edit_reply(std::function<void(MutableBytes)> change) { edit_first(world.b_to_a, std::move(change)); }

  static const StreamEvent* heard(const sim::Rnic& rnic, StreamEvent::Kind kind) {
    for (const StreamEvent& event : rnic.events)
      if (event.kind == kind) return &event;
    return nullptr;
  }
  static std::size_t count(const sim::Rnic& rnic, StreamEvent::Kind kind) {
    return static_cast<std::size_t>(
        std::count_if(rnic.events.begin(), rnic.events.end(), [&](const StreamEvent& e) { return e.kind == kind; }));
  }
  bool until(const sim::Rnic& rnic, StreamEvent::Kind kind, Duration limit = seconds(60)) {
    return world.run_until([&] { return heard(rnic, kind) != nullptr; }, limit);
  }
  bool until_established() {
    return world.run_until([&] {
      return heard(world.a, StreamEvent::Kind::established) != nullptr &&
             heard(world.b, StreamEvent::Kind::established) != nullptr;
    });
  }
  // The Terminate that is A's only FPDU.
  void check_only_a_terminate(unsigned code, std::size_t startup = 24, mpa::Markers markers = mpa::Markers::none) {
    REQUIRE(until(world.a, StreamEvent::Kind::failed));
    world.run_for(milliseconds(100));
    CHECK(heard(world.a, StreamEvent::Kind::failed)->failure == StreamFailure::protocol);
    const auto ulpdus = a_says.ulpdus(startup, mpa::Crc::on, markers);
    REQUIRE(ulpdus.size() == 1);
    const auto ddp = wire::parse_untagged(ulpdus[0]);
    REQUIRE(ddp);
    CHECK(*ddp ==
          wire::UntaggedHeader{
              .last = true, .rdmap_control = 0x47, .invalidate = {}, .queue = 2, .msn = 1, .message_offset = 0});
    const auto terminate = wire::parse_terminate(Bytes{ulpdus[0]}.subspan(18));
    REQUIRE(terminate);
    CHECK(terminate->code.word() == code);
    CHECK(ulpdus[0].size() == 22);  // no header of anything
    CHECK(a_says.ends >= 1);
    CHECK(a_says.resets == 0);
    CHECK(a->qp->state() == qp::State::idle);
  }
  World world;
  Said a_says, b_says;
  sim::Endpoint *a = nullptr, *b = nullptr;
  bool answers = true, rejects = false;
  std::vector<std::byte> reply_data;
  std::function<void()> before_accept;
};

void set(MutableBytes octets, std::size_t at, std::uint16_t value) { store_be(octets, at, value); }
std::uint16_t word(Bytes octets, std::size_t at) { return load_be<std::uint16_t>(octets, at); }

}  // namespace

// ---- who speaks when ---------------------------------------------------------------------------------

TEST_CASE("W-MPA-16: after its Request an initiator says nothing before the Reply, whatever work waits",
          "[core][W-MPA-16][W-MPA-24]") {
  Scene s;
  s.answers = false;
  s.dial();
  qp::WorkRequest send;
  send.signaled = true;
  s.world.a.post_send(*s.a, send);
  REQUIRE(s.until(s.world.b, StreamEvent::Kind::connect_request));
  s.world.run_for(seconds(5));
  CHECK(s.a_says.octets.size() == 24);
  CHECK(s.a_says.ends == 0);
  s.answer(*Scene::heard(s.world.b, StreamEvent::Kind::connect_request));
  REQUIRE(s.until_established());
  s.world.run_for(milliseconds(10));
  CHECK(s.a_says.ulpdus(24).size() == 2);  // the RTR, and then the Send
}

TEST_CASE("W-MPA-01: who calls says the Request's key, who is called the Reply's, also where it says no",
          "[core][W-MPA-01]") {
  Scene s;
  s.rejects = GENERATE(false, true);
  s.dial();
  REQUIRE(s.until(s.world.a, s.rejects ? StreamEvent::Kind::rejected : StreamEvent::Kind::established));
  CHECK(test::copy_of(Bytes{s.a_says.octets}.first(16)) == hex("4d504120494420526571204672616d65"));
  CHECK(test::copy_of(Bytes{s.b_says.octets}.first(16)) == hex("4d504120494420526570204672616d65"));
}

TEST_CASE("W-MPA-42: the RTR is the first FPDU, there is one, and the consumer's come behind it",
          "[core][W-MPA-42][W-MPA-87][W-MPA-25]") {
  const bool read = GENERATE(false, true);
  Scene s;
  // D alone is offered: a Read.
  if (read) s.edit_request([](MutableBytes m) { set(m, kOrd, 0x4004); });
  if (read) s.edit_reply([](MutableBytes m) { CHECK((word(m, kOrd) & 0xC000) == 0x4000); });
  s.dial();
  qp::WorkRequest send;
  send.signaled = true;
  for (int i = 0; i < 3; ++i) s.world.a.post_send(*s.a, send);
  REQUIRE(s.until_established());
  s.world.run_for(milliseconds(10));
  std::vector<unsigned> opcodes;
  for (const auto& ulpdu : s.a_says.ulpdus(24)) opcodes.push_back(std::to_integer<unsigned>(ulpdu[1]) & 0xF);
  CHECK(opcodes == std::vector<unsigned>{read ? 1u : 0u, 3, 3, 3});
  CHECK(s.a->host.completions.size() == 3);
  // A Read RTR is answered, and nobody is told.
  CHECK(s.b_says.ulpdus(24).size() == (read ? 1u : 0u));
}

TEST_CASE("V-CONN-03: the startup frame leaves whole before the first FPDU, with work that waited for the connection",
          "[core][V-CONN-03][V-CONN-08][V-CONN-11][V-IDLE-07]") {
  Scene s;
  s.reply_data.assign(250, std::byte{0xAB});
  qp::WorkRequest send;
  send.signaled = true;
  s.before_accept = [&] {
    for (int i = 0; i < 3; ++i) s.world.b.post_send(*s.b, send);
  };
  s.dial();
  for (int i = 0; i < 3; ++i) s.world.a.post_send(*s.a, send);
  REQUIRE(s.until_established());
  s.world.run_for(milliseconds(100));
  const auto begins = [](const Said& said, const char* key) {
    return test::copy_of(Bytes{said.octets}.first(16)) == hex(key);
  };
  CHECK(begins(s.a_says, "4d504120494420526571204672616d65"));
  CHECK(begins(s.b_says, "4d504120494420526570204672616d65"));
  CHECK(word(Bytes{s.a_says.octets}, kLength) == 4);
  CHECK(word(Bytes{s.b_says.octets}, kLength) == 254);
  CHECK(std::equal(s.reply_data.begin(), s.reply_data.end(), s.b_says.octets.begin() + 24));
  // All that is behind is FPDUs.
  const auto of_a = s.a_says.ulpdus(24), of_b = s.b_says.ulpdus(24 + 250);
  REQUIRE(of_a.size() == 4);  // an RTR before the Sends
  REQUIRE(of_b.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(wire::parse_untagged(of_a[i + 1])->msn == i + 1);
    CHECK(wire::parse_untagged(of_b[i])->msn == i + 1);
  }
}

TEST_CASE("W-MPA-80: the queue pair can take FPDUs before the frame leaves that lets the peer send them",
          "[core][W-MPA-80][V-CONN-05]") {
  Scene s;
  unsigned seen = 0;
  s.b_says.on_octets = [&] {  // the Reply
    ++seen;
    CHECK(s.b->qp->attached());
  };
  s.a_says.on_octets = [&] {
    if (s.a_says.octets.size() == 24) return;  // the Request
    ++seen;
    CHECK(s.a->qp->attached());
  };
  s.dial();
  REQUIRE(s.until_established());
  CHECK(seen >= 2);
}

TEST_CASE("W-MPA-22: FPDUs in the same segment as the Reply are taken, none is lost",
          "[core][W-MPA-22][W-MPA-25][V-CONN-05]") {
  WorldOptions options = unchecked();
  options.a.device.peer_to_peer = false;
  Scene s(options);
  mpa::Packer packer(mpa::Crc::on, mpa::Markers::none);
  std::vector<std::byte> fpdus;
  for (std::uint32_t msn = 1; msn <= 3; ++msn) {
    std::vector<std::byte> ulpdu(18 + 5), fpdu(packer.octets_for(23));
    wire::emit(
        wire::UntaggedHeader{
            .last = true, .rdmap_control = 0x43, .invalidate = {}, .queue = 0, .msn = msn, .message_offset = 0},
        ulpdu);
    const auto pieces = std::make_unique<mpa::PieceList>();
    packer.begin(fpdu, ulpdu, 0, *pieces);
    packer.seal(fpdu);
    test::append(fpdus, fpdu);
  }
  s.world.b_to_a.edit([&, done = false](sim::Frame& frame) mutable {
    if (done || !payload_in(frame)) return;
    done = true;
    store_be(MutableBytes{frame}, 16, static_cast<std::uint16_t>(word(frame, 16) + fpdus.size()));
    test::append(frame, fpdus);
  });
  s.dial();
  std::vector<std::byte> memory(100);
  const Stag stag = s.world.a.register_memory(memory, tpt::Rights::local_write);
  for (std::uint32_t i = 0; i < 3; ++i) {
    qp::ReceiveRequest receive;
    receive.slot = i;
    receive.sge_count = 1;
    receive.sges[0] = {reinterpret_cast<std::uintptr_t>(memory.data()), 100, stag};
    s.world.a.post_receive(*s.a, receive);
  }
  REQUIRE(s.until(s.world.a, StreamEvent::Kind::established));
  s.world.run_for(milliseconds(1));
  REQUIRE(s.a->host.completions.size() == 3);
  CHECK(s.a->host.completions[2].length == 5);
}

TEST_CASE("W-MPA-17: an octet behind the Request, before our Reply, closes the connection",
          "[core][W-MPA-17][W-MPA-76]") {
  Scene s;
  s.edit_request([](MutableBytes m) { set(m, kLength, 3), m[kFlags] = std::byte{0x40}, m[kRevision] = std::byte{1}; });
  s.answers = false;
  s.dial();
  REQUIRE(s.until(s.world.a, StreamEvent::Kind::failed));
  CHECK(s.b_says.octets.empty());
  CHECK(s.b_says.ends >= 1);
}

// ---- frames that make no sense -----------------------------------------------------------------------

namespace {

// Ways in which a frame makes no sense, 0 to 5. The first is an octet of its key; the second makes it the other kind.
void spoil(MutableBytes frame, int how, std::size_t in_key, std::uint8_t other_kind) {
  switch (how) {
    case 0:
      frame[in_key] ^= std::byte{3};
      break;
    case 1:
      frame[9] = std::byte{other_kind};
      break;
    case 2:
      frame[kRevision] = std::byte{0};
      break;
    case 3:
      frame[kRevision] = std::byte{3};
      break;
    case 4:
      set(frame, kLength, 513);
      break;
    default:
      set(frame, kLength, 3);  // less than the block that S announces
  }
}

}  // namespace

TEST_CASE("W-MPA-76: an invalid Request closes TCP at once, with no Reply and no Terminate, and nobody is asked",
          "[core][W-MPA-76][W-MPA-18][W-MPA-02][W-MPA-12][W-MPA-13]") {
  const auto change = GENERATE(0, 1, 2, 3, 4, 5);
  Scene s;
  Instant said = kNever;
  s.edit_request([&](MutableBytes m) {
    said = s.world.clock.now;
    spoil(m, change, 15, 0x70);  // or a Reply
  });
  s.dial();
  REQUIRE(s.until(s.world.a, StreamEvent::Kind::failed));
  CHECK(s.world.b.events.empty());
  CHECK(s.b_says.octets.empty());
  REQUIRE(s.b_says.ends >= 1);
  CHECK(s.b_says.ended_at - said < milliseconds(1));
}

TEST_CASE("W-MPA-76: an invalid Reply closes TCP at once, with no Terminate, and is told",
          "[core][W-MPA-76][W-MPA-18][W-MPA-02][W-MPA-26][W-MPA-12][W-MPA-13]") {
  const auto change = GENERATE(0, 1, 2, 3, 4, 5);
  Scene s;
  Instant said = kNever;
  s.edit_reply([&](MutableBytes m) {
    said = s.world.clock.now;
    spoil(m, change, 0, 0x71);  // or a Request: both call
  });
  s.dial();
  REQUIRE(s.until(s.world.a, StreamEvent::Kind::failed));
  CHECK(Scene::heard(s.world.a, StreamEvent::Kind::failed)->failure == StreamFailure::protocol);
  s.world.run_for(milliseconds(1));
  CHECK(s.a_says.octets.size() == 24);
  REQUIRE(s.a_says.ends >= 1);
  CHECK(s.a_says.ended_at - said < milliseconds(1));
  CHECK(s.a->qp->state() == qp::State::idle);
}

TEST_CASE("W-MPA-23: the whole of a Request is due within 10 s", "[core][W-MPA-23]") {
  Scene s;
  s.edit_request([](MutableBytes m) { set(m, kLength, 400); });  // the rest never comes
  s.dial();
  const Instant start = s.world.clock.now;
  REQUIRE(s.world.run_until([&] { return s.b_says.ends != 0; }, seconds(30)));
  CHECK(s.b_says.ended_at - start >= milliseconds(9'990));
  CHECK(s.b_says.ended_at - start <= milliseconds(10'020));
  CHECK(s.world.b.events.empty());
  CHECK(s.b_says.octets.empty());
}

TEST_CASE("W-MPA-11: reserved bits of the flags are neither checked nor echoed", "[core][W-MPA-11]") {
  Scene s;
  s.edit_request([](MutableBytes m) { m[kFlags] |= std::byte{0x0F}; });
  s.edit_reply([](MutableBytes m) {
    CHECK((m[kFlags] & std::byte{0x0F}) == std::byte{0});
    m[kFlags] |= std::byte{0x0F};
  });
  s.dial();
  CHECK(s.until_established());
}

TEST_CASE("W-MPA-28: an unenhanced Request gets an unenhanced Reply of Revision 1",
          "[core][W-MPA-28][W-MPA-29][W-MPA-31][W-MPA-89]") {
  WorldOptions options = unchecked();
  options.a.device.mpa_revision = 1;
  Scene s(options);
  s.dial();
  REQUIRE(s.until_established());
  CHECK(Bytes{s.a_says.octets}.subspan(kFlags, 4)[0] == std::byte{0x40});
  CHECK(s.a_says.octets[kRevision] == std::byte{1});
  CHECK(word(s.a_says.octets, kLength) == 0);
  CHECK(s.b_says.octets[kFlags] == std::byte{0x40});
  CHECK(s.b_says.octets[kRevision] == std::byte{1});
  CHECK(s.a_says.octets.size() == 20);  // no RTR either
}

TEST_CASE("W-MPA-89: the peer-to-peer model is a device's choice", "[core][W-MPA-89][W-MPA-39][W-MPA-48]") {
  const bool wanted = GENERATE(true, false);
  WorldOptions options = unchecked();
  options.a.device.peer_to_peer = wanted;
  Scene s(options);
  s.dial(16, 32);
  REQUIRE(s.until_established());
  CHECK(s.a_says.octets[kFlags] == std::byte{0x50});
  CHECK(s.a_says.octets[kRevision] == std::byte{2});
  CHECK(word(s.a_says.octets, kIrd) == (wanted ? 0x8010 : 0x0010));
  CHECK(word(s.a_says.octets, kOrd) == (wanted ? 0xC020 : 0x0020));
  CHECK(word(s.b_says.octets, kIrd) == (wanted ? 0x8004 : 0x0004));
  CHECK(word(s.b_says.octets, kOrd) == (wanted ? 0x8004 : 0x0004));  // one flag of the two
}

// ---- rejections --------------------------------------------------------------------------------------

TEST_CASE("W-MPA-20: a rejected initiator says nothing any more: no RTR, no FPDU, no Terminate",
          "[core][W-MPA-20][W-MPA-19][W-MPA-10]") {
  Scene s;
  s.rejects = true;
  s.reply_data = hex("aabbcc");
  s.dial();
  s.world.a.post_send(*s.a, {});
  REQUIRE(s.until(s.world.a, StreamEvent::Kind::rejected));
  s.world.run_for(seconds(2));
  CHECK(s.a_says.octets.size() == 24);
  CHECK(s.a_says.resets + s.b_says.resets == 0);
  CHECK(s.a->qp->state() == qp::State::idle);
  CHECK((s.b_says.octets[kFlags] & std::byte{0x20}) != std::byte{0});
  CHECK(s.b_says.octets.size() == 20 + 4 + 3);
  CHECK(Scene::heard(s.world.a, StreamEvent::Kind::rejected)->private_data.length == 3);
  CHECK(s.world.a.events.size() == 1);
  // Its queue pair may be used for another attempt.
  s.rejects = false;
  CHECK(s.world.run_until([&] { return s.world.a.device.stream_count() == 0; }));
}

// A peer whose TCP has the FIN together with the Reply may see no more than the end: siw, where Linux has joined the
// two segments in a socket's backlog.
TEST_CASE("W-MPA-19: the FIN behind a rejection waits until the Reply is acknowledged", "[core][W-MPA-19]") {
  const bool by_consumer = GENERATE(true, false);
  WorldOptions options = unchecked();
  options.b.device.markers = mpa::MarkerUse::never;
  Scene s(options);
  s.rejects = by_consumer;
  s.reply_data = hex("aabbcc");
  if (!by_consumer) s.edit_request([](MutableBytes request) { request[kFlags] |= std::byte{0x80}; });  // markers
  std::optional<std::uint32_t> acknowledged;
  s.b_says.on_end = [&] { acknowledged = s.a_says.acknowledged - s.b_says.first; };
  s.dial();
  REQUIRE(s.until(s.world.a, StreamEvent::Kind::rejected));
  CHECK(s.world.run_until([&] { return s.world.b.device.stream_count() == 0; }));
  REQUIRE(acknowledged);
  // At the least; A's own FIN is no octet of B's.
  CHECK(*acknowledged == (by_consumer ? 27 : 24));
  CHECK(s.b_says.resets == 0);
}

TEST_CASE("W-MPA-19: a rejected peer that falls silent is not waited for without end", "[core][W-MPA-19]") {
  Scene s;
  s.rejects = true;
  s.b_says.on_octets = [&] { s.world.a_to_b.edit([](sim::Frame& frame) { frame[12] = std::byte{0xff}; }); };
  s.dial();
  REQUIRE(s.until(s.world.b, StreamEvent::Kind::connect_request));
  CHECK(s.world.run_until([&] { return s.world.b.device.stream_count() == 0; }, seconds(60)));
}

TEST_CASE("W-MPA-85: a responder that goes wrong before its Reply rejects", "[core][W-MPA-85]") {
  Scene s;
  s.answers = false;
  s.dial();
  REQUIRE(s.until(s.world.b, StreamEvent::Kind::connect_request));
  s.world.b.device.disconnect(s.world.b.events[0].stream, core::Disconnect::abrupt, s.world.clock.now);
  REQUIRE(s.until(s.world.a, StreamEvent::Kind::rejected));
  CHECK(s.b_says.octets.size() == 24);
  CHECK(s.b_says.resets == 0);
}

// ---- Replies that do not fit the Request -------------------------------------------------------------

TEST_CASE("W-MPA-35: an IRD that cannot be raised to the responder's ORD ends it with 2/0/06", "[core][W-MPA-35]") {
  Scene s;
  SECTION("too much") {
    s.edit_reply([](MutableBytes m) { set(m, kOrd, 0x8000 | 129); });
    s.dial();
    s.check_only_a_terminate(0x2006);
  }
  SECTION("just enough: it is raised, and our ORD lowered") {
    s.edit_reply([](MutableBytes m) { set(m, kOrd, 0x8000 | 128), set(m, kIrd, 0x8002); });
    s.dial();
    REQUIRE(s.until(s.world.a, StreamEvent::Kind::established));
    CHECK(s.a->qp->config().ird == 128);
    CHECK(s.a->qp->config().ord == 2);
    CHECK(Scene::heard(s.world.a, StreamEvent::Kind::established)->ird == 128);
  }
}

TEST_CASE("W-MPA-43: a Reply without an RTR in common ends it with 2/0/07", "[core][W-MPA-43][W-MPA-84]") {
  Scene s;
  SECTION("none of them") {
    s.edit_reply([](MutableBytes m) { set(m, kOrd, 4); });
    s.dial();
    s.check_only_a_terminate(0x2007);
  }
  SECTION("one that was not offered") {
    s.edit_reply([](MutableBytes m) { set(m, kIrd, 0xC004), set(m, kOrd, 4); });
    s.dial();
    s.check_only_a_terminate(0x2007);
  }
  SECTION("another A") {
    s.edit_reply([](MutableBytes m) { set(m, kIrd, 4); });
    s.dial();
    s.check_only_a_terminate(0x2007);
  }
}

TEST_CASE("W-MPA-84: an accepting Reply without the block ends it with 2/0/05", "[core][W-MPA-84][W-MPA-44]") {
  Scene s;
  s.edit_reply([](MutableBytes m) { m[kFlags] = std::byte{0x40}, m[kRevision] = std::byte{1}; });
  s.dial();
  s.check_only_a_terminate(0x2005);
}

TEST_CASE("W-MPA-84: an enhanced Reply to a Request of Revision 1 is invalid, and gets no Terminate",
          "[core][W-MPA-84][W-MPA-18]") {
  WorldOptions options = unchecked();
  options.a.device.mpa_revision = 1;
  Scene s(options);
  s.reply_data = hex("00040004");
  s.edit_reply([](MutableBytes m) { m[kFlags] = std::byte{0x50}, m[kRevision] = std::byte{2}; });
  s.dial();
  REQUIRE(s.until(s.world.a, StreamEvent::Kind::failed));
  s.world.run_for(milliseconds(1));
  CHECK(s.a_says.octets.size() == 20);
  CHECK(s.a_says.ends >= 1);
}

TEST_CASE("W-MPA-37: depths that a peer leaves open are ours to choose, and stay open in the answer",
          "[core][W-MPA-37][W-MPA-38][W-MPA-86]") {
  Scene s;
  s.edit_request([](MutableBytes m) { set(m, kIrd, 0xBFFF), set(m, kOrd, 0xFFFF); });
  s.dial();
  REQUIRE(s.until_established());
  CHECK(word(s.b_says.octets, kIrd) == 0xBFFF);
  CHECK((word(s.b_says.octets, kOrd) & 0x3FFF) == 0x3FFF);
  CHECK(s.b->qp->config().ird == 4);
  CHECK(s.b->qp->config().ord == 4);
  CHECK(s.a->qp->config().ird == 4);
  CHECK(s.a->qp->config().ord == 4);
  CHECK(Scene::heard(s.world.b, StreamEvent::Kind::connect_request)->ird == 128);
}

TEST_CASE("W-MPA-38: the depths of a Reply are told from the initiator's side, when it accepts and when it rejects",
          "[core][W-MPA-38]") {
  Scene s;
  s.edit_reply([](MutableBytes m) { set(m, kIrd, 0x8009), set(m, kOrd, 0x8003); });
  s.rejects = GENERATE(false, true);
  const auto kind = s.rejects ? StreamEvent::Kind::rejected : StreamEvent::Kind::established;
  s.dial();
  REQUIRE(s.until(s.world.a, kind));
  CHECK(Scene::heard(s.world.a, kind)->ird == 3);
  CHECK(Scene::heard(s.world.a, kind)->ord == 9);
  if (!s.rejects) CHECK(s.a->qp->config().ord == 4);
}

TEST_CASE("W-MPA-38: of a Reply that says nothing of depths our own are told", "[core][W-MPA-38]") {
  WorldOptions options = unchecked();
  SECTION("Revision 1") { options.a.device.mpa_revision = 1; }
  SECTION("left open") {}
  Scene s(options);
  if (options.a.device.mpa_revision != 1)
    s.edit_reply([](MutableBytes m) { set(m, kIrd, 0xBFFF), set(m, kOrd, 0xBFFF); });
  s.dial(3, 5);
  REQUIRE(s.until(s.world.a, StreamEvent::Kind::established));
  CHECK(Scene::heard(s.world.a, StreamEvent::Kind::established)->ird == 3);
  CHECK(Scene::heard(s.world.a, StreamEvent::Kind::established)->ord == 5);
}

TEST_CASE("W-MPA-81: after Revision 1 and after Revision 2 all segments have DV 1 and RV 1, both ways",
          "[core][W-MPA-81]") {
  const bool enhanced = GENERATE(false, true);
  WorldOptions options = unchecked();
  options.a.device.mpa_revision = enhanced ? 2 : 1;
  Scene s(options);
  s.dial();
  REQUIRE(s.until_established());
  qp::WorkRequest send, write;
  write.opcode = qp::Opcode::write;
  for (const auto& request : {write, send}) {
    s.world.a.post_send(*s.a, request);
    s.world.run_for(milliseconds(10));
    s.world.b.post_send(*s.b, request);
    s.world.run_for(milliseconds(10));
  }
  for (const Said* said : {&s.a_says, &s.b_says}) {
    const auto ulpdus = said->ulpdus(enhanced ? 24 : 20);
    CHECK(ulpdus.size() >= 2);
    for (const auto& ulpdu : ulpdus) {
      CHECK((ulpdu[0] & std::byte{0x03}) == std::byte{1});
      CHECK(ulpdu[1] >> 6 == std::byte{1});
    }
  }
}

TEST_CASE("W-MPA-94: a peer's depths are capped by ours before anything is made for them",
          "[core][W-MPA-94][W-RDMAP-60]") {
  Scene s;
  s.answers = false;
  s.edit_request([](MutableBytes m) { set(m, kIrd, 0xBFFE), set(m, kOrd, 0xFFFE); });
  s.dial();
  REQUIRE(s.until(s.world.b, StreamEvent::Kind::connect_request));
  const StreamEvent request = *Scene::heard(s.world.b, StreamEvent::Kind::connect_request);
  CHECK(request.ird == 0x3FFE);  // the consumer hears what was said
  s.b = &s.world.b.make_qp(plain());
  REQUIRE(s.world.b.device.accept(request.stream,
                                  {.ird = request.ird, .ord = request.ord, .private_data = {}, .cookie = 5}, *s.b->qp,
                                  s.world.clock.now));
  CHECK(s.b->qp->config().ird == 128);
  CHECK(s.b->qp->config().ord == 128);
}

// ---- markers and CRC ---------------------------------------------------------------------------------

TEST_CASE("W-MPA-04: each direction has markers if its receiver asked for them",
          "[core][W-MPA-04][W-MPA-25][W-MPA-05]") {
  const bool a_asks = GENERATE(false, true), b_asks = GENERATE(false, true);
  WorldOptions options = unchecked();
  if (a_asks) options.a.device.markers = mpa::MarkerUse::both;
  if (b_asks) options.b.device.markers = mpa::MarkerUse::both;
  Scene s(options);
  s.dial();
  for (int i = 0; i < 20; ++i) {
    qp::WorkRequest write;
    write.opcode = qp::Opcode::write;
    s.world.a.post_send(*s.a, write);
  }
  REQUIRE(s.until_established());
  for (int i = 0; i < 20; ++i) {
    qp::WorkRequest write;
    write.opcode = qp::Opcode::write;
    s.world.b.post_send(*s.b, write);
  }
  s.world.run_for(milliseconds(10));
  const auto markers = [](bool asked) { return asked ? mpa::Markers::expected : mpa::Markers::none; };
  CHECK(s.a_says.ulpdus(24, mpa::Crc::on, markers(b_asks)).size() == 21);
  CHECK(s.b_says.ulpdus(24, mpa::Crc::on, markers(a_asks)).size() == 20);
  CHECK(s.a->qp->state() == qp::State::rts);
  CHECK(s.b->qp->state() == qp::State::rts);
}

TEST_CASE("W-MPA-05: where markers are never inserted, a Request for them is rejected, a Reply ended with 2/0/05",
          "[core][W-MPA-05][W-MPA-44]") {
  WorldOptions options = unchecked();
  SECTION("a Request: nobody is asked, and its sender comes back without") {
    options.a.device.markers = mpa::MarkerUse::both;
    options.b.device.markers = mpa::MarkerUse::never;
    Scene s(options);
    s.dial();
    const core::StreamId id = s.a->stream;
    REQUIRE(s.until_established());
    CHECK(s.world.b.events.size() == 2);  // one request, and established
    CHECK(s.world.a.events.size() == 1);
    CHECK(s.world.a.events[0].stream == id);
    CHECK(s.world.a.events[0].cookie == 3);
    CHECK(s.a_says.ulpdus(24).size() == 1);  // no markers
    s.world.a.device.disconnect(id, core::Disconnect::graceful, s.world.clock.now);
    CHECK(s.world.run_until(
        [&] { return s.world.a.device.stream_count() == 0 && s.world.b.device.stream_count() == 0; }));
    CHECK(Scene::count(s.world.a, StreamEvent::Kind::disconnected) == 1);
  }
  SECTION("a Request from a port of the consumer's choice: it is told") {
    options.a.device.markers = mpa::MarkerUse::both;
    options.b.device.markers = mpa::MarkerUse::never;
    Scene s(options);
    s.dial(4, 4, 4321);
    REQUIRE(s.until(s.world.a, StreamEvent::Kind::rejected));
    CHECK(s.world.b.events.empty());
  }
  SECTION("a Reply") {
    options.a.device.markers = mpa::MarkerUse::never;
    options.b.device.markers = mpa::MarkerUse::both;
    Scene s(options);
    s.dial();
    s.check_only_a_terminate(0x2005, 24, mpa::Markers::expected);
  }
}

TEST_CASE("W-MPA-05: a rejection with a word of the consumer's, or of one that knows markers, is no cause to come back",
          "[core][W-MPA-05][W-MPA-20]") {
  const bool with_data = GENERATE(true, false);
  WorldOptions options = unchecked();
  options.a.device.markers = mpa::MarkerUse::both;
  options.b.device.markers = with_data ? mpa::MarkerUse::send : mpa::MarkerUse::both;
  Scene s(options);
  s.rejects = true;
  if (with_data) s.reply_data = hex("01");
  s.dial();
  REQUIRE(s.until(s.world.a, StreamEvent::Kind::rejected));
  s.world.run_for(seconds(1));
  CHECK(Scene::count(s.world.b, StreamEvent::Kind::connect_request) == 1);
}

TEST_CASE("W-MPA-06: CRC is on the wire when either end wants it", "[core][W-MPA-06][W-MPA-08][W-MPA-53]") {
  const bool a_wants = GENERATE(false, true), b_wants = GENERATE(false, true);
  WorldOptions options = unchecked();
  options.a.device.crc_required = a_wants;
  options.b.device.crc_required = b_wants;
  Scene s(options);
  s.dial();
  REQUIRE(s.until_established());
  const auto crc = a_wants || b_wants ? mpa::Crc::on : mpa::Crc::off;
  CHECK(s.a_says.ulpdus(24, crc).size() == 1);
  CHECK((s.a_says.octets.back() == std::byte{0}) == (crc == mpa::Crc::off));
}

TEST_CASE("W-MPA-68: a CRC that is wrong ends the stream, but where CRCs are trusted", "[core][W-MPA-68]") {
  const bool trusted = GENERATE(false, true);
  WorldOptions options = unchecked();
  options.b.device.crc_trusted = trusted;
  Scene s(options);
  s.dial();
  REQUIRE(s.until_established());
  s.world.run_for(milliseconds(1));
  s.world.b.post_receive(*s.b, {});
  s.edit_request([](MutableBytes payload) { payload.back() ^= std::byte{1}; });
  qp::WorkRequest send;
  send.signaled = true;
  s.world.a.post_send(*s.a, send);
  s.world.run_for(milliseconds(10));
  REQUIRE(s.b->host.completions.size() == 1);
  CHECK((s.b->host.completions[0].status == qp::Status::success) == trusted);
  CHECK((s.b->qp->state() == qp::State::rts) == trusted);
}

TEST_CASE("W-MPA-93: nothing tells a consumer whether CRC is in use", "[core][W-MPA-93][W-MPA-82]") {
  std::vector<std::vector<StreamEvent>> events[2];
  std::vector<qp::Completion> completions[2];
  for (const bool crc : {false, true}) {
    WorldOptions options = unchecked();
    options.a.device.crc_required = options.b.device.crc_required = crc;
    Scene s(options);
    s.reply_data = hex("0102");
    s.dial();
    qp::WorkRequest send;
    send.signaled = true;
    s.world.a.post_send(*s.a, send);
    REQUIRE(s.until_established());
    s.world.run_for(milliseconds(1));
    s.world.a.device.disconnect(s.a->stream, core::Disconnect::graceful, s.world.clock.now);
    s.world.run_for(milliseconds(10));
    events[crc] = {s.world.a.events, s.world.b.events};
    completions[crc] = s.a->host.completions;
  }
  for (std::size_t side = 0; side < 2; ++side) {
    REQUIRE(events[0][side].size() == events[1][side].size());
    for (std::size_t i = 0; i < events[0][side].size(); ++i) {
      const StreamEvent &off = events[0][side][i], &on = events[1][side][i];
      CHECK(off.kind == on.kind);
      CHECK(off.failure == on.failure);
      CHECK(off.ird == on.ird);
      CHECK(off.ord == on.ord);
      CHECK(off.private_data.length == on.private_data.length);
      CHECK(std::equal(off.private_data.octets.begin(), off.private_data.octets.begin() + off.private_data.length,
                       on.private_data.octets.begin()));
    }
  }
  REQUIRE(completions[0].size() == completions[1].size());
  CHECK(completions[0][0].status == completions[1][0].status);
}

TEST_CASE("W-DDP-28: by default no octet that was changed on the way is placed, though nothing else notices",
          "[core][W-DDP-28][W-MPA-68][W-MPA-08]") {
  std::vector<std::byte> target(4000), source(4000, std::byte{0x5A});
  for (const std::size_t at : {30u, 100u, 1000u}) {
    Scene s;
    s.dial();
    REQUIRE(s.until_established());
    std::fill(target.begin(), target.end(), std::byte{0});
    const Stag to = s.world.b.register_memory(target, tpt::Rights::local_write | tpt::Rights::remote_write);
    const Stag from = s.world.a.register_memory(source, tpt::Rights::local_read);
    Scene::edit_first(s.world.a_to_b, [&](MutableBytes m) { m[at] ^= std::byte{0x10}; });
    qp::WorkRequest write;
    write.opcode = qp::Opcode::write;
    write.sge_count = 1;
    write.sges[0] = {reinterpret_cast<std::uintptr_t>(source.data()), 1000, from};
    write.remote_stag = to;
    write.remote_to = reinterpret_cast<std::uintptr_t>(target.data());
    s.world.a.post_send(*s.a, write);
    s.world.run_for(milliseconds(10));
    CHECK(std::all_of(target.begin(), target.end(), [](std::byte b) { return b == std::byte{0}; }));
    CHECK(s.b->host.events == std::vector{qp::Event::crc_error});
  }
}
