// A whole device, driven by a little program of what four peers, a router and an application do:
// handshakes, startup frames, FPDUs, work, and all that may go wrong with each. Most of what is
// said is nearly right, so that it goes deep.
#include "fuzz/bench.hpp"
#include "fuzz/golden.hpp"
#include "fuzz/input.hpp"
#include "fuzz/ulpdu.hpp"
#include "kit/frames.hpp"
#include "wire/rdmap.hpp"

namespace rnic::fuzz {

namespace {

namespace flag = wire::tcp_flags;
namespace frames = test::frames;

enum class Act : std::uint8_t {
  syn,
  acknowledge,
  startup,
  message,
  stray_octets,
  again,     // octets said before, at their place
  backward,  // the rest of the stream in segments, the last first
  fin,
  reset,
  segment,  // whatever header
  icmp,
  time,
  receive,
  work,
  answer_requests,
  settings,
  end_stream,
  destroy,
  dial,
  frame,
  arp,
  listen,
  modify,
  connect,  // SYN, third segment and Request in one
  kCount,
};

class Conversation {
 public:
  explicit Conversation(Input& input) : input_(input), bench_(options_of(input)) {}

  void run() {
    for (unsigned acts = 0; acts < 300 && !input_.empty(); ++acts) act();
    bench_.finish();
  }

 private:
  static Bench::Options options_of(Input& input) {
    const unsigned a = input.u8(), b = input.u8();
    Bench::Options options;
    options.late_mover = (a & 1) != 0;
    options.markers = (a & 2) != 0;
    options.crc_required = (a & 4) == 0;
    options.peer_to_peer = (a & 8) == 0;
    options.extensions = (a & 16) != 0;
    options.hold = (a & 32) == 0;
    options.mpa_revision = (a & 64) != 0 ? 1 : 2;
    options.mtu_bytes = (a & 128) != 0 ? 576 : 1500;
    options.buffers = (b & 1) != 0 ? 80 : 160;
    options.tcp.timestamps = (b & 2) != 0;
    options.tcp.sack = (b & 4) == 0;
    options.tcp.window_scale = (b & 8) == 0;
    options.tcp.nagle = (b & 16) != 0;
    options.tcp.congestion = (b & 32) != 0 ? tcp::Options::Congestion::newreno : tcp::Options::Congestion::cubic;
    if ((b & 64) != 0) options.tcp.keepalive = seconds(20);
    return options;
  }

  void act();

  wire::TcpHeader plain(const Peer& peer) {
    wire::TcpHeader header;
    header.flags = flag::kAck;
    header.sequence = peer.next();
    header.acknowledgement = peer.expects;
    header.window = window_;
    if (bench_.options.tcp.timestamps && stamps_)
      header.timestamps = wire::TcpTimestamps{static_cast<std::uint32_t>(bench_.clock.now.ns >> 20), 0};
    return header;
  }
  // Part of what the peer has said so far, in one segment.
  void say_part(Peer& peer, std::size_t from, std::size_t size, std::uint8_t flags = 0) {
    from = std::min(from, peer.stream.size());
    size = std::min<std::size_t>({size, peer.stream.size() - from, 1400});
    wire::TcpHeader header = plain(peer);
    header.flags |= flags;
    header.sequence = peer.initial + 1 + static_cast<std::uint32_t>(from);
    bench_.hears(peer, header, Bytes(peer.stream).subspan(from, size));
  }
  // New octets of the peer's stream; they arrive, or are lost at first.
  void say(Peer& peer, Bytes octets, bool lost) {
    const std::size_t from = peer.stream.size();
    if (from + octets.size() > 40'000) return;
    test::append(peer.stream, octets);
    for (std::size_t at = from; !lost && at < peer.stream.size(); at += 1400) say_part(peer, at, 1400);
  }
  void syn(Peer& peer) {
    const unsigned bits = input_.u8();
    wire::TcpHeader header;
    header.flags = flag::kSyn;
    header.window = window_;
    if ((bits & 1) == 0) header.mss = (bits & 2) != 0 ? input_.u16() : std::uint16_t{1460};
    header.sack_permitted = (bits & 4) == 0;
    if ((bits & 8) == 0) header.window_scale = static_cast<std::uint8_t>(bits >> 4);
    if (bench_.options.tcp.timestamps) header.timestamps = wire::TcpTimestamps{1, 0};
    if ((bits & 16) != 0 && !peer.connected) peer.initial = input_.u32();
    header.sequence = peer.initial;
    if (peer.dialled) {  // an answer, or both at once
      if ((bits & 32) == 0) header.flags |= flag::kAck;
      header.acknowledgement = peer.expects;
    }
    bench_.hears(peer, header);
  }
  Octets startup() {
    const unsigned bits = input_.u8();
    Octets frame = test::hex((bits & 1) != 0 ? "4d504120494420526570204672616d65500200048010c020"
                                             : "4d504120494420526571204672616d65500200048010c020");
    frame[16] = static_cast<std::byte>((bits & 0xF0) ^ 0x50);
    if ((bits & 2) != 0) {
      frame[17] = std::byte{1};
      frame.resize(20);
      frame[19] = {};
    } else if ((bits & 4) != 0) {
      store_be(MutableBytes(frame), 20, input_.u32());
    }
    if ((bits & 8) != 0) {
      const Bytes more = input_.take(input_.below(40));
      test::append(frame, more);
      store_be(MutableBytes(frame), 18, static_cast<std::uint16_t>(frame.size() - 20 + input_.below(3)));
    }
    return frame;
  }
  void icmp(const Peer& peer) {
    static constexpr std::array<std::uint8_t, 6> kTypes{3, 3, 3, 11, 4, 12};
    const unsigned choice = input_.u8();
    wire::IcmpHeader error{.type = kTypes[choice % kTypes.size()], .code = static_cast<std::uint8_t>(choice >> 4)};
    error.rest = input_.u16();
    wire::Ipv4Header quoted{.source = kOurs, .destination = kTheirs};
    quoted.total_length = input_.u16();
    wire::TcpHeader segment{.source_port = peer.device_port, .destination_port = peer.port};
    segment.sequence = peer.device_initial + input_.u16();
    const Octets message = frames::icmp(error, frames::quote(quoted, segment));
    bench_.hears(packet_of(wire::protocol::kIcmp, message));
  }
  void segment(const Peer& peer) {
    wire::TcpHeader header = plain(peer);
    header.flags = input_.u8();
    header.sequence += static_cast<std::uint32_t>(static_cast<std::int16_t>(input_.u16()));
    header.acknowledgement += static_cast<std::uint32_t>(static_cast<std::int16_t>(input_.u16()));
    header.window = input_.u16();
    header.urgent = header.window;
    const unsigned options = input_.u8();
    if ((options & 1) != 0) header.timestamps = wire::TcpTimestamps{input_.u32(), input_.u32()};
    header.sack_count = static_cast<std::uint8_t>(options >> 1 & 3);
    for (std::size_t i = 0; i < header.sack_count; ++i) {
      const std::uint32_t first = header.acknowledgement + input_.u16();
      header.sack[i] = {first, first + input_.u16()};
    }
    const Octets payload((options & 8) != 0 ? input_.u16() % 1400 : 0);
    bench_.hears(peer, header, payload);
  }
  sim::Endpoint* endpoint() {
    if (bench_.endpoints.empty()) return nullptr;
    sim::Endpoint* found = bench_.endpoints[input_.below(static_cast<std::uint32_t>(bench_.endpoints.size()))].get();
    return found->qp == nullptr ? nullptr : found;
  }
  qp::Sge sge() {
    const unsigned region = input_.below(4);
    const std::uint32_t at = input_.u16() % Memory::kSize;
    return {bench_.memory.address(region) + at, input_.u16() % (Memory::kSize - at + 1), bench_.memory.stag(region)};
  }
  void post_work(sim::Endpoint& end) {
    if (end.host.sends.size() > 32) return;
    const unsigned bits = input_.u8();
    qp::WorkRequest request;
    request.opcode = static_cast<qp::Opcode>(bits % 13);
    request.signaled = (bits & 16) == 0;
    request.fence = (bits & 32) != 0;
    request.slot = slot_++;
    request.sge_count = (bits & 64) != 0 ? 0 : 1;
    if (request.sge_count != 0) request.sges[0] = sge();
    request.remote_stag = {input_.u16()};
    request.remote_to = input_.u16();
    end.host.sends.push_back(request);
    bench_.device->work_posted(*end.qp);
    bench_.turns();
  }
  void post_receive(sim::Endpoint& end) {
    if (end.host.receives.size() > 32) return;
    qp::ReceiveRequest request;
    request.slot = slot_++;
    request.sge_count = 1;
    request.sges[0] = sge();
    end.host.receives.push_back(request);
    bench_.device->receive_posted(*end.qp);
    bench_.turns();
  }
  void dial(Peer& peer) {
    if (peer.connected) return;
    sim::Endpoint* end = bench_.make_qp();
    if (end == nullptr) return;
    core::ConnectOptions wishes;
    wishes.remote = kTheirs;
    wishes.remote_port = peer.port;
    wishes.local_port = input_.flag() ? kListener : std::uint16_t{0};
    wishes.ird = wishes.ord = input_.below(8);
    const auto stream = bench_.device->connect(wishes, *end->qp, bench_.clock.now);
    if (stream)
      end->stream = *stream;
    else
      bench_.destroy(*end);
    bench_.turns();
  }
  void arp() {
    const unsigned bits = input_.u8();
    bench_.hears(frames::arp({.destination = kOurMac, .source = kTheirMac},
                             {.operation = static_cast<std::uint16_t>(1 + (bits & 1)),
                              .sender_mac = wire::Mac{{2, 0, 0, 0, 1, static_cast<std::uint8_t>(bits)}},
                              .sender_ip = (bits & 2) != 0   ? kOurs
                                           : (bits & 4) != 0 ? kTheirs
                                                             : wire::IpAddress::v4(0x0A000000u + bits),
                              .target_mac = kOurMac,
                              .target_ip = (bits & 8) != 0 ? kTheirs : kOurs}));
  }
  void settings() {
    const unsigned bits = input_.u8();
    switch (bits & 7) {
      case 0:
        bench_.answer = static_cast<Bench::Answer>((bits >> 4) % 3);
        break;
      case 1:
        bench_.link_up = !bench_.link_up;
        break;
      case 2:
        bench_.accept_max = (bits >> 4) == 0 ? 1000 : (bits >> 4) - 1;
        break;
      case 3:
        bench_.lossy = !bench_.lossy;
        break;
      case 4:
        bench_.silent_in_arp = !bench_.silent_in_arp;
        break;
      case 5:
        window_ = static_cast<std::uint16_t>((bits >> 4) * 4096);
        break;
      case 6:
        stamps_ = !stamps_;
        break;
      case 7:
        for (auto& end : bench_.endpoints)
          end->host.room = (bits >> 4) == 0 ? SIZE_MAX : end->host.completions.size() + (bits >> 4);
        break;
    }
  }
  void answer_request() {
    if (bench_.waiting.empty()) return;
    const core::StreamId stream = bench_.waiting.back();
    bench_.waiting.pop_back();
    sim::Endpoint* end = input_.flag() ? bench_.make_qp() : nullptr;
    if (end == nullptr) {
      (void)bench_.device->reject(stream, {}, bench_.clock.now);
    } else if (bench_.device->accept(stream, {.ird = 2, .ord = 2, .private_data = {}, .cookie = 5}, *end->qp,
                                     bench_.clock.now)) {
      end->stream = stream;
    } else {
      bench_.destroy(*end);
    }
    bench_.turns();
  }

  Input& input_;
  Bench bench_;
  std::uint16_t window_ = 65535;
  bool stamps_ = true;
  std::uint32_t slot_ = 0;
};

void Conversation::act() {
  const auto act = static_cast<Act>(input_.below(static_cast<std::uint32_t>(Act::kCount)));
  const unsigned who = input_.u8();
  Peer& peer = bench_.peer(who);
  const bool lost = (who & 0x80) != 0;
  if (!peer.packer || peer.stream.empty())
    peer.packer = std::make_unique<mpa::Packer>(mpa::Crc::on,
                                                bench_.options.markers ? mpa::Markers::expected : mpa::Markers::none);
  switch (act) {
    case Act::syn:
      syn(peer);
      break;
    case Act::acknowledge:
      bench_.hears(peer, plain(peer));
      break;
    case Act::startup:
      say(peer, startup(), lost);
      break;
    case Act::message:
      say(peer, fpdu_of(*peer.packer, take_ulpdu(input_, bench_.memory)), lost);
      break;
    case Act::stray_octets:
      say(peer, input_.take(input_.below(80)), lost);
      break;
    case Act::again: {
      const std::size_t from = input_.u16(), size = input_.u16();
      say_part(peer, from % (peer.stream.size() + 1), size, lost ? flag::kFin : std::uint8_t{0});
      break;
    }
    case Act::backward: {
      const std::size_t step = 1 + input_.below(200);
      const std::size_t first = peer.stream.size() > 30 * step ? peer.stream.size() - 30 * step : 0;
      for (std::size_t at = peer.stream.size(); at > first;) {
        at = at > step ? at - step : 0;
        say_part(peer, at, step);
      }
      break;
    }
    case Act::fin: {
      wire::TcpHeader header = plain(peer);
      header.flags |= flag::kFin;
      bench_.hears(peer, header);
      break;
    }
    case Act::reset: {
      wire::TcpHeader header = plain(peer);
      header.flags = lost ? flag::kRst : std::uint8_t{flag::kRst | flag::kAck};
      header.sequence += static_cast<std::uint32_t>(static_cast<std::int8_t>(input_.u8()));
      bench_.hears(peer, header);
      break;
    }
    case Act::segment:
      segment(peer);
      break;
    case Act::icmp:
      icmp(peer);
      break;
    case Act::time:
      bench_.pass(milliseconds(std::int64_t{1} << input_.below(16)));
      break;
    case Act::receive:
      if (sim::Endpoint* end = endpoint()) post_receive(*end);
      break;
    case Act::work:
      if (sim::Endpoint* end = endpoint()) post_work(*end);
      break;
    case Act::answer_requests:
      answer_request();
      break;
    case Act::settings:
      settings();
      break;
    case Act::end_stream:
      if (sim::Endpoint* end = endpoint()) {
        const unsigned how = input_.below(3);
        if (how == 2)
          (void)bench_.device->kill(end->stream, bench_.clock.now);
        else
          bench_.device->disconnect(end->stream, how == 0 ? core::Disconnect::graceful : core::Disconnect::abrupt,
                                    bench_.clock.now);
        bench_.turns();
      }
      break;
    case Act::destroy:
      if (sim::Endpoint* end = endpoint()) {
        bench_.destroy(*end);
        bench_.turns();
      }
      break;
    case Act::dial:
      dial(peer);
      break;
    case Act::frame:
      bench_.hears(input_.take(input_.below(100)));
      break;
    case Act::arp:
      arp();
      break;
    case Act::listen:
      if (lost)
        bench_.device->unlisten({}, kListener, bench_.clock.now);
      else
        (void)bench_.device->listen({}, kListener, input_.below(6), 77);
      break;
    case Act::modify:
      if (sim::Endpoint* end = endpoint()) {
        (void)end->qp->modify_state(static_cast<qp::State>(input_.below(5)), bench_.clock.now);
        bench_.device->touch(*end->qp);
        bench_.turns();
      }
      break;
    case Act::connect:
      if (!peer.connected) bench_.connect(peer);
      break;
    case Act::kCount:
      break;
  }
}

// ---- seeds ----

class Script {
 public:
  explicit Script(unsigned a = 0, unsigned b = 0) { program_.u8(a).u8(b); }
  Program& act(Act what, unsigned who = 0) { return program_.u8(static_cast<unsigned>(what)).u8(who); }
  void message(unsigned patch, const Octets& ulpdu, unsigned who = 0) { act(Act::message, who).u8(patch).sized(ulpdu); }
  void receive(unsigned endpoint = 0) { act(Act::receive).u8(endpoint).u8(Memory::local).u16(0).u16(2000); }
  void work(unsigned bits, unsigned endpoint = 0, unsigned length = 900) {
    act(Act::work).u8(endpoint).u8(bits).u8(Memory::both).u16(16).u16(length).u16(7).u16(9);
  }
  Octets octets() const { return program_.octets(); }

 private:
  Program program_;
};

}  // namespace

void run_conversation(Bytes octets) {
  Input input(octets);
  Conversation(input).run();
}

std::vector<Octets> seeds_conversation() {
  std::vector<Octets> seeds;
  const Octets payload = test::pattern(300);
  Octets request(wire::ReadRequestHeader::kSize);
  wire::emit(wire::ReadRequestHeader{.sink_stag = {9}, .sink_to = 0, .size_bytes = 3000}, request);
  for (const unsigned a : {0u, 1u, 2u, 16u, 32u, 128u}) {
    for (const unsigned b : {0u, 2u, 4u, 65u}) {
      Script peaceful(a, b);
      peaceful.act(Act::connect);
      peaceful.receive();
      peaceful.message(1, tagged(0, true, 0, payload));
      peaceful.message(0, untagged(3, true, 0, 1, 0, payload));
      peaceful.message(2 | 1 << 4, untagged(1, true, 1, 1, 0, request));
      peaceful.work(0);
      peaceful.work(2);
      peaceful.work(3);
      peaceful.act(Act::acknowledge);
      peaceful.act(Act::time).u8(8);
      peaceful.act(Act::fin);
      seeds.push_back(peaceful.octets());

      Script lossy(a, b);
      lossy.act(Act::connect);
      lossy.receive();
      lossy.message(1, tagged(0, true, 0, payload), 0x80);
      lossy.message(0, untagged(3, false, 0, 1, 0, payload));
      lossy.message(0, untagged(3, true, 0, 1, 300, payload), 0x80);
      lossy.act(Act::backward).u8(90);
      lossy.act(Act::again, 0x80).u16(30).u16(500);
      lossy.work(0, 0, 4000);
      lossy.act(Act::icmp).u8(0x40).u16(576).u16(1500).u16(30);
      lossy.act(Act::segment).u8(0x10).u16(0).u16(0).u16(1000).u8(4).u16(100).u16(200).u16(500).u16(90);
      lossy.act(Act::time).u8(10);
      lossy.act(Act::reset).u8(0);
      seeds.push_back(lossy.octets());
    }
  }
  Script dials;
  dials.act(Act::dial, 1).u8(0).u8(3);
  dials.act(Act::syn, 1).u8(0);
  dials.act(Act::acknowledge, 1);
  dials.act(Act::startup, 1).u8(1);
  dials.work(0);
  dials.act(Act::end_stream).u8(0).u8(0);
  dials.act(Act::fin, 1);
  seeds.push_back(dials.octets());

  Script both;  // at once
  both.act(Act::dial, 1).u8(0).u8(3);
  both.act(Act::syn, 1).u8(32);
  both.act(Act::acknowledge, 1);
  both.act(Act::startup, 1).u8(0);
  seeds.push_back(both.octets());

  Script waits;
  waits.act(Act::settings).u8(0x20);
  for (unsigned who = 0; who < 4; ++who) waits.act(Act::connect, who);
  waits.act(Act::answer_requests).u8(1);
  waits.act(Act::answer_requests).u8(0);
  waits.act(Act::reset, 1).u8(0);
  waits.act(Act::answer_requests).u8(1);
  waits.act(Act::time).u8(15);
  seeds.push_back(waits.octets());

  Script stepwise;
  stepwise.act(Act::syn).u8(0);
  stepwise.act(Act::acknowledge);
  stepwise.act(Act::startup).u8(4).u32(0xBFFFFFFF);
  stepwise.act(Act::stray_octets).u8(20).bytes(Bytes(payload).first(20));
  stepwise.act(Act::arp).u8(3);
  stepwise.act(Act::settings).u8(1);
  stepwise.act(Act::settings).u8(0x12);
  stepwise.act(Act::destroy).u8(0);
  seeds.push_back(stepwise.octets());
  return seeds;
}

}  // namespace rnic::fuzz
