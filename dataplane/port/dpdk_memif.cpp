#include "port/dpdk_memif.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "port/netdev.hpp"

namespace rnic::port {
namespace {

constexpr std::uint32_t kLinkHeaderMax = 18;  // Ethernet with a VLAN tag
constexpr unsigned kRingLog2 = 10;            // slots each way: small, so that it stays in the cache
constexpr std::uint32_t kSlotBytesMin = 2048;

std::uint32_t slot_bytes(std::uint32_t mtu) {
  const std::uint32_t frame = (mtu + kLinkHeaderMax + 63) / 64 * 64;
  return std::max(frame, kSlotBytesMin);
}

WakeChannel::Role channel_role(PortSpec::Role role) {
  return role == PortSpec::Role::server ? WakeChannel::Role::server : WakeChannel::Role::client;
}

}  // namespace

MemifPort::MemifPort(const PortSpec& spec, WakeChannel::Role role)
    : role_(spec.role), socket_(spec.target), wake_channel_(spec.target + ".wake", role) {}

std::unique_ptr<MemifPort> MemifPort::open(const PortSpec& spec, const PortOptions& options, std::string& error) {
  const std::string what = "port \"" + to_string(spec) + "\"";
  const std::string directory = spec.target.substr(0, std::max<std::size_t>(spec.target.rfind('/'), 1));
  if (access(directory.c_str(), R_OK | W_OK | X_OK) != 0) {
    error = what + ": the directory " + directory + " cannot be used: " + std::strerror(errno);
    return nullptr;
  }
  if (spec.role == PortSpec::Role::server && !clear_stale_socket(spec.target, error)) {
    error = what + ": " + error;
    return nullptr;
  }

  std::unique_ptr<MemifPort> port(new MemifPort(spec, channel_role(spec.role)));
  PortFacts& facts = port->facts_;
  facts.kind = "memif";
  facts.name = to_string(spec);
  facts.mtu_bytes = options.mtu_bytes != 0 ? options.mtu_bytes : kMtuWireDefault;
  facts.speed_mbps = 100'000;
  facts.mac = options.mac ? *options.mac : random_mac();

  const std::uint32_t slot = slot_bytes(facts.mtu_bytes);
  const std::string arguments = std::string("role=") + (spec.role == PortSpec::Role::server ? "server" : "client") +
                                ",socket=" + spec.target + ",socket-abstract=no,bsize=" + std::to_string(slot) +
                                ",rsize=" + std::to_string(kRingLog2) + ",mac=" + wire::to_string(facts.mac);
  // Its close() frees a listener that EAL's thread still watches.
  port->device_.never_close();
  port->pool_ = DpdkPool::create(fresh_device_name("pool"), options.buffers, slot, DpdkPool::Memory::own, error);
  const bool made = port->pool_ != nullptr && port->wake_channel_.open(error) && gate_add(*port, error) &&
                    port->device_.make_virtual(fresh_device_name("net_memif"), arguments, error) &&
                    port->device_.configure({}, *port->pool_, error);
  if (!made) {
    error = what + ": " + error;
    return nullptr;
  }
  if (spec.role == PortSpec::Role::server && !port->device_.start(error)) {
    error = what + ": " + error;
    return nullptr;
  }
  // A client is started by its first tick, as whenever the server is not there.
  while (!port->try_lock()) {
  }
  port->ready_ = true;
  port->unlock();
  gate_look_again();
  return port;
}

MemifPort::~MemifPort() {
  gate_remove(*this, [this] { device_.stop(); });
  if (role_ == PortSpec::Role::server) unlink(socket_.c_str());
}

// ---- the gate's thread -------------------------------------------------------------------------

bool MemifPort::wants_ticks() const {
  if (!ready_ || role_ == PortSpec::Role::server) return false;
  return !up_.load(std::memory_order_relaxed) || (!wake_channel_.joined() && join_ticks_ < kJoinTicks);
}

// The driver's connection to its server, in a handshake or after it: known by the name of its peer.
bool MemifPort::has_connection() const {
  for (const int fd : sockets_of_family(AF_UNIX)) {
    sockaddr_un peer{};
    socklen_t size = sizeof peer;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 && socket_ == peer.sun_path) return true;
  }
  return false;
}

// A server that does not answer is waited for as long as it lives: a memif server of DPDK 22.11 ends
// its process when it accepts a connection that is closed already (memif_listener_handler() leaves
// the descriptor to EAL's thread, which panics).
void MemifPort::reconnect() {
  std::string not_there;
  if (device_.started() && has_connection()) return;
  device_.stop();
  device_.start(not_there);
}

void MemifPort::on_round(bool tick) {
  if (!ready_) return;
  const bool client = role_ == PortSpec::Role::client;
  const bool was_up = up_.load(std::memory_order_relaxed);
  const bool was_joined = wake_channel_.joined();
  const bool up = device_.started() && device_.link_up();
  if (was_up && !up) wake_channel_.drop();
  if (!was_up && up) join_ticks_ = 0;
  up_.store(up, std::memory_order_relaxed);

  if (client && !up && tick) reconnect();
  wake_channel_.serve();
  if (client && up && !wake_channel_.joined() && (tick || !was_up) && join_ticks_ < kJoinTicks) {
    ++join_ticks_;
    wake_channel_.join();
  }
  const bool joined = wake_channel_.joined();
  joined_.store(joined, std::memory_order_relaxed);
  // What a sleeping worker has gone to sleep on is no longer so.
  if (up != was_up || joined != was_joined) wake_channel_.ring_own();
}

// ---- the worker --------------------------------------------------------------------------------

int MemifPort::wake_descriptor() {
  if (!armed_once_) return wake_channel_.bell();
  return joined_.load(std::memory_order_relaxed) || !up_.load(std::memory_order_relaxed) ? wake_channel_.bell() : -1;
}

unsigned MemifPort::receive_burst(Buffer** out, unsigned max) {
  if (stash_next_ < stash_count_) return DpdkPort::receive_burst(out, max);
  const Passage passage(*this);
  if (!passage || !up_.load(std::memory_order_relaxed)) return 0;
  return receive_now(out, max);
}

unsigned MemifPort::send_burst(Buffer* const* frames, unsigned count) {
  const Passage passage(*this);
  if (!passage) return 0;
  if (!up_.load(std::memory_order_relaxed)) {
    for (unsigned i = 0; i < count; ++i) BufferRef lost(frames[i]);
    return count;
  }
  const unsigned sent = send_now(frames, count);
  if (sent != 0) wake_channel_.wake_peer();
  return sent;
}

bool MemifPort::arm() {
  armed_once_ = true;
  const Passage passage(*this);
  if (!passage) return false;
  wake_channel_.set_asleep(true);
  const bool wait = up_.load(std::memory_order_relaxed) ? frames_wait() : stash_next_ < stash_count_;
  if (!wait) return true;
  wake_channel_.set_asleep(false);
  return false;
}

void MemifPort::disarm() {
  wake_channel_.quiet();
  // Without the lock the word stays, and the peer rings once for nothing.
  if (const Passage passage(*this); passage) wake_channel_.set_asleep(false);
}

}  // namespace rnic::port
