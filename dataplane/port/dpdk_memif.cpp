#include "port/dpdk_memif.hpp"

#include <rte_ethdev.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "port/netdev.hpp"
#include "port/unix_messages.hpp"
#include "rnic_shm.h"
#include "wire/vlan.hpp"

namespace rnic::port {
namespace {

constexpr unsigned kRingLog2 = 10;          // slots each way: small, so that it stays in the cache
constexpr std::uint32_t kBuffersMin = 512;  // of a link
// Also where the MTU is far larger: a frame then goes in pieces. Larger slots would have the rings out of
// the cache, and a short frame take as much of it.
constexpr std::uint32_t kSlotBytesMin = 2048;

// A user who says an MTU has slots for it, as a peer that is no rnicd needs them.
std::uint32_t slot_bytes(std::uint32_t mtu_wanted) {
  const std::uint32_t frame = (mtu_wanted + wire::kLinkHeaderMax + 63) / 64 * 64;
  return mtu_wanted > kMtuWireMax ? kSlotBytesMin : std::max(frame, kSlotBytesMin);
}

// Sockets of a server that had more workers, and was killed.
void remove_links_from(const std::string& socket, unsigned first) {
  constexpr std::size_t kPathMax = sizeof(sockaddr_un{}.sun_path) - 1;
  std::string another_serves_it;
  for (unsigned i = first; i < RNIC_WORKERS_MAX; ++i)
    for (const char* of : {"", ".wake", ".dpdk"})
      if (const std::string path = socket + ".q" + std::to_string(i) + of; path.size() <= kPathMax)
        (void)clear_stale_socket(path, another_serves_it);
}

WakeChannel::Role channel_role(PortSpec::Role role) {
  return role == PortSpec::Role::server ? WakeChannel::Role::server : WakeChannel::Role::client;
}

}  // namespace

MemifPort::MemifPort(std::shared_ptr<DpdkDevice> device, const PortSpec& spec, WakeChannel::Role role,
                     const WakeChannel::Sizes& sizes, const MemifPeer& peer)
    : DpdkPort(std::move(device), 0),
      role_(spec.role),
      socket_(spec.target),
      peer_(peer),
      wake_channel_(spec.target + ".wake", role, sizes, peer),
      slot_(sizes.slot_bytes) {}

std::vector<std::unique_ptr<Port>> MemifPort::open_queues(const PortSpec& spec, const PortOptions& options,
                                                          unsigned shards, std::string& error) {
  constexpr std::size_t kLinkNameMax = 4;  // ".q15"
  if (shards > 1 && spec.target.size() + kLinkNameMax > kSocketPathMax) {
    error = "port \"" + to_string(spec) + "\": for several workers the socket's path may have no more than " +
            std::to_string(kSocketPathMax - kLinkNameMax) + " characters";
    return {};
  }
  static_assert(RNIC_WORKERS_MAX <= 100, "kLinkNameMax");
  const bool server = spec.role == PortSpec::Role::server;
  if (shards > 1 && server && !clear_stale_socket(spec.target, error)) {
    error = "port \"" + to_string(spec) + "\": " + error;
    return {};
  }
  PortOptions of_each = options;
  of_each.buffers = std::max(options.buffers / shards, kBuffersMin);
  if (!of_each.mac) of_each.mac = random_mac();
  std::vector<std::unique_ptr<Port>> queues(shards);
  const auto first_ups = std::make_shared<std::atomic<std::uint32_t>>(0);
  // The first one last: who finds its server finds those of the others.
  for (unsigned i = shards; i-- > 0;) {
    PortSpec own = spec;
    if (i != 0) own.target += ".q" + std::to_string(i);
    std::unique_ptr<MemifPort> queue = open(own, of_each, {.is_first = i == 0, .first_ups = first_ups}, error);
    if (queue == nullptr) {
      if (rte_eth_dev_count_total() == RTE_MAX_ETHPORTS)
        error += " (a memif has one of DPDK's " + std::to_string(RTE_MAX_ETHPORTS) + " for each of its workers)";
      return {};
    }
    queue->facts_.name = to_string(spec);
    queue->facts_.links_apart = shards > 1;
    queues[i] = std::move(queue);
  }
  if (server) remove_links_from(spec.target, shards);
  return queues;
}

std::unique_ptr<MemifPort> MemifPort::open(const PortSpec& spec, const PortOptions& options, const Among& among,
                                           std::string& error) {
  const std::string what = "port \"" + to_string(spec) + "\"";
  const std::string directory = spec.target.substr(0, std::max<std::size_t>(spec.target.rfind('/'), 1));
  const bool server = spec.role == PortSpec::Role::server;
  if (access(directory.c_str(), server ? R_OK | W_OK | X_OK : X_OK) != 0) {
    error = what + ": the directory " + directory + " cannot be used: " + std::strerror(errno);
    return nullptr;
  }
  const auto peer = MemifPeer::find(spec.peer, error);
  if (!peer || (server && !clear_stale_socket(spec.target, error))) {
    error = what + ": " + error;
    return nullptr;
  }

  const std::uint32_t mtu = options.mtu_bytes != 0 ? options.mtu_bytes : kMtuMemoryDefault;
  const std::uint32_t slot = slot_bytes(mtu);
  const auto device = std::make_shared<DpdkDevice>();
  // Its close() frees a listener that EAL's thread still watches.
  device->ethdev.never_close();
  device->pools.push_back(
      DpdkPool::create(fresh_device_name("pool"), options.buffers, slot, DpdkPool::Memory::own, error));
  if (device->pools.front() == nullptr) {
    error = what + ": " + error;
    return nullptr;
  }
  std::unique_ptr<MemifPort> port(new MemifPort(device, spec, channel_role(spec.role), {mtu, slot}, *peer));
  port->among_ = among;
  PortFacts& facts = port->facts_;
  facts.kind = "memif";
  facts.peer_comes_later = spec.role == PortSpec::Role::server;
  facts.name = to_string(spec);
  facts.mtu_bytes = mtu;
  port->unknown_peer_mtu_ = mtu > kMtuWireMax ? kMtuWireDefault : mtu;
  port->link_mtu_ = port->unknown_peer_mtu_;
  facts.speed_mbps = 100'000;
  facts.mac = options.mac ? *options.mac : random_mac();

  if (server) {
    port->door_.emplace(spec.target, *peer);
    if (!clear_stale_socket(port->door_->inner_path(), error)) {
      error = what + ": " + error;
      return nullptr;
    }
  }
  const std::string arguments = std::string("role=") + (server ? "server" : "client") +
                                ",socket=" + (server ? port->door_->inner_path() : spec.target) +
                                ",socket-abstract=no,bsize=" + std::to_string(slot) +
                                ",rsize=" + std::to_string(kRingLog2) + ",mac=" + wire::to_string(facts.mac);
  PoolSize size = pool_size_for(options.buffers, mtu + wire::kLinkHeaderMax);
  if (slot >= mtu + wire::kLinkHeaderMax) size.large_count = 0;
  port->frames_ = std::make_unique<MemifPool>(port->pool_, size);
  const auto open_sockets = [&] {
    const ForOwnerOnly guard;
    return port->wake_channel_.open(error) && gate_add(*port, error) &&
           port->device_.make_virtual(fresh_device_name("net_memif"), arguments, error) &&
           port->device_.configure({}, device->pools, error) &&
           (!server || (port->device_.start(error) && port->door_->open(error)));
  };
  const auto admit = [&] { return peer->admit_to(spec.target, error) && peer->admit_to(spec.target + ".wake", error); };
  if (!open_sockets() || (server && !admit())) {
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
  while (slots_next_ < slots_count_) BufferRef dropped(slots_[slots_next_++]);
}

// ---- the gate's thread -------------------------------------------------------------------------

void MemifPort::descriptors(std::vector<int>& out) const {
  wake_channel_.descriptors(out);
  if (door_) door_->descriptors(out);
}

bool MemifPort::wants_ticks() const {
  if (!ready_) return false;
  if (up_.load(std::memory_order_relaxed) && !settled_.load(std::memory_order_relaxed)) return true;
  if (role_ == PortSpec::Role::server) return false;
  if (!up_.load(std::memory_order_relaxed)) return may_connect();
  return !wake_channel_.joined() && join_ticks_ < kJoinTicks;
}

// The first link for ever; the others when that has come up, and when they were up themselves: a server of fewer
// workers has none for them, and each tick takes the lock of all ports.
bool MemifPort::may_connect() const {
  return among_.is_first || connect_ticks_ < kConnectTicks || among_.first_ups->load() != first_ups_seen_;
}

// The driver's connection to its server, in a handshake or after it, known by the name of its peer; or -1.
int MemifPort::connection() const {
  for (const int fd : sockets_of_family(AF_UNIX)) {
    sockaddr_un peer{};
    socklen_t size = sizeof peer;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 && socket_ == peer.sun_path) return fd;
  }
  return -1;
}

// A server that does not answer is waited for as long as it lives: a memif server of DPDK 22.11 ends
// its process when it accepts a connection that is closed already (memif_listener_handler() leaves
// the descriptor to EAL's thread, which panics).
void MemifPort::reconnect() {
  std::string not_there;
  if (device_.started() && connection() >= 0) return;
  device_.stop();
  // That same server would end its process when we hang up at once: an honest one is known by its socket's owner.
  struct stat socket {};
  if (stat(socket_.c_str(), &socket) != 0 || !peer_.may_be(socket.st_uid)) return;
  device_.start(not_there);
  // Nothing of what he says is looked at before we return: the driver listens in this very thread.
  if (const int fd = connection(); fd >= 0 && !peer_.is_at(fd)) device_.stop();
}

void MemifPort::on_round(bool tick) {
  if (!ready_) return;
  if (door_) door_->serve();
  const bool client = role_ == PortSpec::Role::client;
  const bool was_up = up_.load(std::memory_order_relaxed);
  const bool was_joined = wake_channel_.joined();
  const bool was_settled = settled_.load(std::memory_order_relaxed);
  const bool up = device_.started() && device_.link_up();
  if (was_up && !up) wake_channel_.drop();
  if (!was_up && up) {
    join_ticks_ = unknown_peer_ticks_ = 0;
    if (among_.is_first) among_.first_ups->fetch_add(1);
  }
  const std::uint32_t first_ups = among_.first_ups->load();
  if ((was_up && !up) || std::exchange(first_ups_seen_, first_ups) != first_ups) connect_ticks_ = 0;
  up_.store(up, std::memory_order_relaxed);

  if (client && !up && tick && may_connect()) {
    connect_ticks_ = std::min(connect_ticks_ + 1, kConnectTicks);
    reconnect();
  }
  wake_channel_.serve();
  if (client && up && !wake_channel_.joined() && (tick || !was_up) && join_ticks_ < kJoinTicks) {
    ++join_ticks_;
    wake_channel_.join();
  }
  const bool joined = wake_channel_.joined();
  joined_.store(joined, std::memory_order_relaxed);
  if (up && tick && !joined) ++unknown_peer_ticks_;
  // The MTU first: who sees that the link is up sees it, too.
  const WakeChannel::Sizes& theirs = wake_channel_.peer_sizes();
  link_mtu_.store(joined ? std::min(facts_.mtu_bytes, std::max(theirs.mtu_bytes, kMtuMin)) : unknown_peer_mtu_,
                  std::memory_order_relaxed);
  slot_max_ = joined ? std::min(slot_, std::max(theirs.slot_bytes, kSlotBytesMin)) : slot_;
  const bool settled = up && (joined || was_settled || unknown_peer_ticks_ >= kUnknownPeerTicks);
  settled_.store(settled, std::memory_order_release);
  // What a sleeping worker has gone to sleep on is no longer so.
  if (up != was_up || joined != was_joined || settled != was_settled) wake_channel_.ring_own();
}

// ---- the worker --------------------------------------------------------------------------------

int MemifPort::wake_descriptor() {
  if (!armed_once_) return wake_channel_.bell();
  return joined_.load(std::memory_order_relaxed) || !up_.load(std::memory_order_relaxed) ? wake_channel_.bell() : -1;
}

// Without a link nobody asks for a passage again and again: the gate, which looks for links, has to come through.
bool MemifPort::is_up() {
  if (up_.load(std::memory_order_relaxed)) return true;
  reassembler_.clear();
  sending_.reset();
  return false;
}

// Whether slots were received that are not looked at. Without a passage they may wait.
bool MemifPort::refill() {
  if (slots_next_ < slots_count_) return true;
  if (!is_up()) return false;
  const Passage passage(*this);
  return passage && refill_within();
}

bool MemifPort::refill_within() {
  if (slots_next_ < slots_count_) return true;
  if (!is_up()) return false;
  slots_next_ = 0;
  slots_count_ = receive_now(slots_.data(), kBurst);
  return slots_count_ != 0;
}

// A frame of one slot, or the one whose last piece this is.
Buffer* MemifPort::accept(BufferRef frame) {
  if (!joined_.load(std::memory_order_relaxed)) return frame.release();
  if (is_piece(frame->bytes())) frame = reassembler_.take(frame->bytes(), *frames_);
  if (frame) frame->checksum_good = 1;  // it never left memory
  return frame.release();
}

unsigned MemifPort::receive_burst(Buffer** out, unsigned max) {
  unsigned count = 0;
  while (count < max && refill())
    if (Buffer* const frame = accept(BufferRef(slots_[slots_next_++]))) out[count++] = frame;
  return count;
}

// A frame that DPDK's driver cannot send as it is. The rest of it goes in pieces, as far as there is room.
// False: not all of it went. The caller gives the same frame again; until then we hold a reference, so that nothing
// writes into it.
bool MemifPort::send_long(Buffer* frame) {
  if (frame->length <= slot_max_) {  // for want of a small buffer
    BufferRef copy = BufferRef::take(pool_);
    if (!copy) return false;
    std::memcpy(copy->append(frame->length).data(), frame->bytes().data(), frame->length);
    Buffer* const raw = copy.release();
    if (send_now(&raw, 1) == 0) {
      BufferRef unsent(raw);
      return false;
    }
    BufferRef gone(frame);
    return true;
  }
  if (sending_.get() != frame) {
    ++frame->refs;
    sending_ = BufferRef(frame);
    sent_of_it_ = 0;
    ++frames_cut_;
  }
  while (sent_of_it_ < frame->length) {
    Buffer* pieces[kBurst];
    const std::uint32_t each = slot_max_ - static_cast<std::uint32_t>(PieceHeader::kSize);
    const unsigned wanted = std::min(kBurst, (frame->length - sent_of_it_ + each - 1) / each);
    const unsigned taken = pool_.take(pieces, wanted);
    std::uint32_t at = sent_of_it_;
    for (unsigned i = 0; i < taken; ++i)
      at += write_piece(frame->bytes(), {.number = frames_cut_, .total = frame->length, .at = at},
                        pieces[i]->append(std::min(frame->length - at, each) + std::uint32_t{PieceHeader::kSize}));
    const unsigned sent = send_now(pieces, taken);
    for (unsigned i = sent; i < taken; ++i) BufferRef unsent(pieces[i]);
    sent_of_it_ = std::min(frame->length, sent_of_it_ + sent * each);
    if (sent < wanted) return false;
  }
  sending_.reset();
  BufferRef gone(frame);
  return true;
}

unsigned MemifPort::send_burst(Buffer* const* frames, unsigned count) {
  const auto is_lost = [&] {
    if (settled_.load(std::memory_order_relaxed)) return false;
    sending_.reset();
    for (unsigned i = 0; i < count; ++i) BufferRef lost(frames[i]);
    unheard_ += count;
    return true;
  };
  if (is_lost()) return count;
  const Passage passage(*this);
  if (!passage) return 0;
  if (is_lost()) return count;
  unsigned sent = 0;
  while (sent < count) {
    const auto is_long = [&](const Buffer& frame) { return frame.length > slot_max_ || frames_->is_large(frame); };
    if (is_long(*frames[sent])) {
      if (!send_long(frames[sent])) break;
      ++sent;
      continue;
    }
    unsigned run = 1;
    while (sent + run < count && !is_long(*frames[sent + run])) ++run;
    const unsigned taken = send_now(frames + sent, run);
    sent += taken;
    if (taken < run) break;
  }
  if (sent != 0 || sending_) wake_channel_.wake_peer();
  return sent;
}

bool MemifPort::arm() {
  armed_once_ = true;
  // on_round() rings once there is a link.
  if (slots_next_ == slots_count_ && !is_up()) return true;
  const Passage passage(*this);
  if (!passage) return false;
  wake_channel_.set_asleep(true);
  if (!refill_within()) return true;
  wake_channel_.set_asleep(false);
  return false;
}

void MemifPort::disarm() {
  // Without the lock the word stays, and the peer rings once for nothing; so does the bell, and who sleeps next wakes.
  const Passage passage(*this);
  if (!passage) return;
  wake_channel_.set_asleep(false);
  if (!wake_channel_.quiet()) gate_look_again();
}

void MemifPort::tend() {
  if (++tends_ % kTendsPerRelease == 0) frames_->release_unused();
}

}  // namespace rnic::port
