// One device on a bench: the wire is ours, so are the peers, the routers, the clock and the
// application. What the device says is checked, and what it must be at the end.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>

#include "core/device.hpp"
#include "fuzz/guarded_pool.hpp"
#include "fuzz/memory.hpp"
#include "mpa/packer.hpp"
#include "sim/rnic.hpp"
#include "wire/tcp.hpp"

namespace rnic::fuzz {

inline constexpr auto kOurs = wire::IpAddress::v4(10, 0, 0, 2);
inline constexpr auto kTheirs = wire::IpAddress::v4(10, 0, 0, 66);
inline constexpr wire::Mac kOurMac{{2, 0, 0, 0, 0, 2}};
inline constexpr wire::Mac kTheirMac{{2, 0, 0, 0, 0, 0x66}};
inline constexpr std::uint16_t kListener = 7471;

// One of the hosts on the wire; all have the same address.
struct Peer {
  std::uint16_t port = 0;
  std::uint16_t device_port = kListener;
  std::uint32_t initial = 0;  // its first sequence number
  Octets stream;              // what it has said behind its SYN, whether it arrived or not
  std::uint32_t expects = 0;  // the device's next octet
  std::uint32_t device_initial = 0;
  bool connected = false;  // has seen the device's SYN
  bool dialled = false;    // by the device
  std::unique_ptr<mpa::Packer> packer;
  std::uint32_t next() const { return initial + 1 + static_cast<std::uint32_t>(stream.size()); }
};

// IPv4 in Ethernet, from the peers to the device.
Octets packet_of(std::uint8_t protocol, Bytes payload);

class Bench final : public core::StreamEvents {
 public:
  struct Options {
    bool late_mover = false, markers = false, crc_required = true, peer_to_peer = true;
    bool extensions = false, hold = true;
    std::uint32_t mpa_revision = 2, mtu_bytes = 1500, buffers = 160;
    tcp::Options tcp;
  };
  explicit Bench(const Options& options);
  ~Bench();

  // ---- the wire ----
  // A frame arrives, and is answered.
  void hears(Bytes frame);
  // A segment of `peer` to the device, checksums right.
  void hears(const Peer& peer, wire::TcpHeader header, Bytes payload = {});
  Peer& peer(unsigned i) { return peers_[i % peers_.size()]; }
  // What the peer must say to be connected: SYN, and the third segment; then a Request that asks
  // for nothing special.
  bool connect(Peer& peer);

  // ---- time ----
  void turns();
  void pass(Duration time);

  // ---- the application ----
  enum class Answer : std::uint8_t { accept, reject, wait } answer = Answer::accept;
  sim::Endpoint* make_qp();
  void destroy(sim::Endpoint& endpoint);
  // Everything is given up; then nothing may be left.
  void finish();

  void on_stream_event(const core::StreamEvent& event) override;

  sim::Clock clock;
  GuardedPool pool;
  tpt::Table table{64, 1};
  Memory memory{table};
  test::PlainMover mover;
  std::unique_ptr<core::Device> device;
  std::vector<std::unique_ptr<sim::Endpoint>> endpoints;
  std::vector<core::StreamId> waiting;  // requests that nobody has answered
  Options options;
  bool link_up = true, silent_in_arp = false, lossy = false;
  unsigned accept_max = 1000;  // frames that the port takes at a time

 private:
  class Wire;
  void turn();
  void on_frame(Bytes frame);
  void on_segment(Bytes packet);

  std::unique_ptr<Wire> port_;
  std::array<Peer, 4> peers_;
  std::uint32_t next_number_ = 1;
};

}  // namespace rnic::fuzz
