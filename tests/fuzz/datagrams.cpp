// UDP datagrams, and what IPv4's groups are managed by, into a device with queue pairs of type UD: any octets at all,
// and headers of rnic's own with lengths and sums that fit. Whatever comes takes at most a receive, is answered by
// nobody, and leaves nothing behind.
#include <deque>
#include <optional>

#include "core/datagrams.hpp"
#include "fuzz/guarded_pool.hpp"
#include "fuzz/input.hpp"
#include "kit/frames.hpp"
#include "kit/tpt_memory.hpp"
#include "kit/tpt_mover.hpp"
#include "wire/datagram.hpp"
#include "wire/igmp.hpp"

namespace rnic::fuzz {

namespace {

constexpr std::uint16_t kPort = 26581;
constexpr std::uint32_t kKey = 0x1111;
constexpr PdId kPd{1};
constexpr wire::Mac kOurMac{{2, 0, 0, 0, 0, 1}}, kTheirMac{{2, 0, 0, 0, 0, 2}};
const auto kOurs = wire::IpAddress::v4(10, 0, 0, 1), kTheirs = wire::IpAddress::v4(10, 0, 0, 2);
const auto kGroup = wire::IpAddress::v4(239, 1, 2, 3);
constexpr Instant kNow{seconds(1000).ns};

class Port final : public port::Port {
 public:
  Port() {
    facts_.mac = kOurMac;
    facts_.mtu_bytes = 1500;
  }
  const port::PortFacts& facts() const override { return facts_; }
  bool link_up() const override { return true; }
  BufferPool& pool() override { return pool_; }
  unsigned receive_burst(Buffer** out, unsigned max) override {
    unsigned count = 0;
    for (; count < max && !arrives.empty(); ++count) {
      const auto size = static_cast<std::uint32_t>(arrives.front().size());
      BufferRef buffer = BufferRef::take(pool_, size);
      std::copy(arrives.front().begin(), arrives.front().end(), buffer->append(size).begin());
      out[count] = buffer.release();
      arrives.pop_front();
    }
    return count;
  }
  unsigned send_burst(Buffer* const* frames, unsigned count) override {
    for (unsigned i = 0; i < count; ++i) {
      const BufferRef frame{frames[i]};
      // ARP and reports of groups are nobody's answers to a datagram.
      const Bytes octets = frame->bytes();
      answers += load_be<std::uint16_t>(octets, 12) == wire::ether_type::kIpv4 &&
                 std::to_integer<unsigned>(octets[14 + 9]) == wire::protocol::kUdp;
    }
    return count;
  }
  int wake_descriptor() override { return -1; }
  bool arm() override { return true; }
  void disarm() override {}

  std::deque<Octets> arrives;
  unsigned answers = 0;

 private:
  port::PortFacts facts_;
  GuardedPool pool_{160, 2048};
};

class NoStreams final : public host::StreamUser {
 public:
  std::unique_ptr<host::Stream> make_stream(const tcp::Options& options, const host::Flow& flow) override {
    return std::make_unique<host::Stream>(options, flow);
  }
  void on_admitted(host::Stream&) override {}
  void on_lost(host::Stream&, Loss, Instant) override {}
  void on_unreachable(host::Stream&, Instant) override {}
  void on_must_end(host::Stream&, Instant) override {}
  void on_deadline(host::Stream&, Instant) override {}
  void on_network_change() override {}
  void on_ended_for_buffers(std::uint32_t) override {}
  BufferCount held_by(const host::Stream& stream) const override { return stream.tcp.queued(); }
};

struct End final : ud::Host {
  End(QpNumber number, tpt::Table& table, tpt::Mover& mover)
      : qp({.number = number, .pd = kPd, .receive_pd = kPd, .space = {}}, *this, table, mover) {}
  bool take_send(ud::WorkRequest&) override { return false; }
  bool take_receive(rdmap::ReceiveRequest& out) override {
    if (receives.empty()) return false;
    out = last = receives.front();
    receives.pop_front();
    ++taken;
    return true;
  }
  void give_back_receive() override {
    receives.push_front(last);
    --taken;
  }
  bool complete(const rdmap::Completion& completion) override {
    ++completed;
    FUZZ_CHECK(completion.status == rdmap::Status::success);
    FUZZ_CHECK(completion.length >= ud::kGrhBytes && completion.length <= 128);
    return true;
  }
  void raise(rdmap::Event) override {}

  std::deque<rdmap::ReceiveRequest> receives;
  rdmap::ReceiveRequest last;
  unsigned taken = 0, completed = 0;
  ud::QueuePair qp;
};

struct Device {
  explicit Device(bool late)
      : host({.addresses = {{kOurs, 24}}}, port, user), mover(late ? test::Moves::late : test::Moves::at_flush, 1) {
    datagrams.serve(kPort);
    for (End* end : {&one, &other}) {
      datagrams.add(end->qp);
      FUZZ_CHECK(end->qp.modify(ud::State::init, kKey).has_value());
      FUZZ_CHECK(end->qp.modify(ud::State::rtr, std::nullopt).has_value());
      FUZZ_CHECK(datagrams.attach(end->qp, kGroup, kNow));
      for (unsigned i = 0; i < 8; ++i) {
        rdmap::ReceiveRequest request;
        request.sge_count = 1;
        request.sges[0] = {memory.at(0), 128, memory.stag};
        end->receives.push_back(request);
      }
    }
  }
  ~Device() {
    for (End* end : {&one, &other}) datagrams.remove(end->qp);
  }
  void turn() {
    host.receive(kNow);
    mover.flush();
    // As the worker does when a copy is back that has waited.
    for (End* end : {&one, &other}) datagrams.touch(end->qp);
    datagrams.settle(kNow);
    host.begin_send(kNow);
    datagrams.end_turn(kNow);
    host.flush(kNow);
  }

  Port port;
  NoStreams user;
  host::Host host;
  core::Datagrams datagrams{host, true};
  tpt::Table table{64, 1};
  test::PlainMover mover;
  test::Region memory{table, 256, 3, tpt::Rights::local_write, kPd};
  End one{QpNumber{2}, table, mover}, other{QpNumber{3}, table, mover};
};

// A datagram that a peer could mean: of choices the octets make.
Octets datagram_of(Input& input) {
  const unsigned choice = input.u8();
  wire::Datagram header{.solicited = (choice & 1) != 0,
                        .has_immediate = (choice & 2) != 0,
                        .source = {input.u8()},
                        .destination = {(choice & 4) != 0 ? 0xFFFFFFu : input.below(5)},
                        .q_key = (choice & 8) != 0 ? input.u32() : kKey,
                        .immediate = input.u8()};
  Octets whole(wire::Datagram::kSize);
  test::append(whole, input.take(input.u8()));
  wire::emit(header, whole);
  if ((choice & 16) != 0)
    whole[input.below(static_cast<std::uint32_t>(std::min<std::size_t>(whole.size(), 255)))] ^= std::byte{4};
  return whole;
}

}  // namespace

void run_datagrams(Bytes octets) {
  Input input(octets);
  Device device(input.flag());
  for (unsigned n = 0; n < 64 && !input.empty(); ++n) {
    const unsigned what = input.u8();
    const bool to_group = (what & 1) != 0;
    const wire::IpAddress to = to_group ? kGroup : kOurs;
    const wire::EthernetHeader link{.destination = to_group ? wire::multicast_mac(to) : kOurMac, .source = kTheirMac};
    Octets payload;
    std::uint8_t protocol = wire::protocol::kUdp;
    switch (what >> 1 & 3) {
      case 0:
        payload = test::frames::udp(kPort, kPort, kTheirs, to, datagram_of(input));
        break;
      case 1: {
        const Bytes any = input.take(input.u8());
        payload = test::frames::udp(kPort, kPort, kTheirs, to, any);
        break;
      }
      case 2: {
        const Bytes any = input.take(input.u8());
        payload.assign(any.begin(), any.end());
        break;
      }
      case 3: {
        protocol = wire::protocol::kIgmp;
        const Bytes any = input.take(input.below(40));
        payload.assign(any.begin(), any.end());
        if (payload.size() >= 4) {
          store_be<std::uint16_t>(payload, 2, 0);
          store_be(payload, 2, wire::checksum_of(Bytes(payload)));
        }
        break;
      }
    }
    device.port.arrives.push_back(test::frames::packet(link, protocol, kTheirs, to, payload));
    if ((what & 0x80) != 0) device.turn();
  }
  for (int i = 0; i < 20; ++i) device.turn();
  for (const End* end : {&device.one, &device.other}) FUZZ_CHECK(end->completed == end->taken);
  FUZZ_CHECK(device.port.answers == 0);
  FUZZ_CHECK(device.datagrams.idle());
  // Behind the receives nothing has changed.
  for (std::size_t i = 128; i < 256; ++i) FUZZ_CHECK(device.memory.memory[i] == test::octet_at(i, 3));
}

std::vector<Octets> seeds_datagrams() {
  const auto good = [](unsigned what, unsigned choice, unsigned number) {
    return Program().u8(0).u8(what).u8(choice).u8(7).u8(number).u8(1).u8(5).bytes(Octets(5)).octets();
  };
  std::vector<Octets> seeds{good(0x80, 0, 2), good(0x80, 3, 3), good(0x81, 4, 0), good(0, 16, 2), good(0x80, 8, 2)};
  Program many;
  many.u8(1);
  for (unsigned i = 0; i < 20; ++i)
    many.u8(i % 3 == 0 ? 0x80 : 0).u8(0).u8(7).u8(2 + i % 2).u8(1).u8(90).bytes(Octets(90));
  seeds.push_back(many.octets());
  seeds.push_back(Program().u8(0).u8(0x87).u8(8).bytes(test::hex("1164000000000000")).octets());
  seeds.push_back(Program().u8(0).u8(0x82).u8(30).bytes(Octets(30, std::byte{0x72})).octets());
  return seeds;
}

}  // namespace rnic::fuzz
