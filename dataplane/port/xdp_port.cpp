#include "port/xdp_port.hpp"

#include <bpf/libbpf.h>
#include <linux/if_xdp.h>
#include <sys/socket.h>
#include <unistd.h>
#include <xdp/libxdp.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <iterator>
#include <thread>
#include <utility>

#include "port/capability.hpp"
#include "port/dpdk_runtime.hpp"
#include "port/kernel_interface.hpp"
#include "port/netdev.hpp"
#include "port/segment_runs.hpp"

namespace rnic::port {

namespace {

// Not in the headers of older C libraries; of Linux 6.6.
constexpr std::uint16_t kUseSeveral = 1 << 4;  // XDP_USE_SG: frames in several chunks
constexpr std::uint32_t kContinues = 1 << 0;   // XDP_PKT_CONTD: this is not a frame's last
// What waits in the kernel to be sent, where it copies.
constexpr int kSocketBytes = 16 << 20;
constexpr std::uint32_t kFillAtOnce = 64;

// What there is against it before the kernel is asked; empty if nothing.
std::string objection(const PortSpec& spec, const PortOptions& options, const std::optional<Netdev>& netdev,
                      unsigned shards) {
  if (std::string said = objection_of_kernel(spec, options, netdev); !said.empty()) return said;
  const std::string what = "port \"" + to_string(spec) + "\"";
  if (!netdev->up) return what + ": the interface is down; first: ip link set " + spec.target + " up";
  const unsigned queues = netdev_queues(spec.target);
  if (queues > shards)
    return what + ": the interface spreads what it receives over " + std::to_string(queues) +
           " queues and the device has " + (shards == 1 ? "one worker" : std::to_string(shards) + " workers") +
           ", with a queue each; first: ethtool -L " + spec.target + " combined " + std::to_string(shards) +
           " (or rx and tx, where it has them apart)";
  if (const unsigned senders = netdev_send_queues(spec.target); senders < queues)
    return what + ": the interface receives by " + std::to_string(queues) + " queues and sends by " +
           std::to_string(senders) + "; first, with as many of both: ethtool -L " + spec.target + " rx " +
           std::to_string(senders) + " tx " + std::to_string(senders);
  if (xdp_layout(mtu_of(options, netdev), options.buffers, queues).descriptors == 0)
    return what + ": " + (queues == 1 ? "a queue wants" : std::to_string(queues) + " queues want") +
           " buffers = " + std::to_string(xdp_buffers_least(queues)) + " at least";
  return {};
}

std::string reason(int code, bool several) {
  std::string said = std::string("no XDP socket: ") + std::strerror(code);
  if (code == EBUSY) return said + " (does another program have the interface's XDP or one of its queues?)";
  if (code == EINVAL && several)
    return said + " (an MTU of more than " + std::to_string(kXdpChunkMtuMax) +
           " wants Linux 6.6; give a smaller one, or take af_packet)";
  if ((code == ENOBUFS || code == ENOMEM) && !has(Capability::ipc_lock))
    return said + " (its buffers are locked memory: CAP_IPC_LOCK is missing, or a higher limit, ulimit -l)";
  return said;
}

}  // namespace

// ---- opening -----------------------------------------------------------------------------------

std::vector<std::unique_ptr<Port>> XdpPort::open_queues(const PortSpec& spec, const PortOptions& options,
                                                        unsigned shards, std::string& error) {
  const std::optional<Netdev> netdev = find_netdev(spec.target);
  if (error = objection(spec, options, netdev, shards); !error.empty()) return {};
  stop_merging(spec.target);
  if (!dpdk_started()) {  // which has them say into our log what they else write to stderr
    libbpf_set_print(nullptr);
    libxdp_set_print(nullptr);
  }
  const auto queues = netdev_queues(spec.target);
  PortFacts facts{.kind = name(spec.kind), .name = to_string(spec), .mac = netdev->mac, .netdev = spec.target};
  facts.mtu_bytes = mtu_of(options, netdev);
  const XdpLayout layout = xdp_layout(facts.mtu_bytes, options.buffers, queues);

  const bool is_virtual = netdev_is_virtual(spec.target);
  const auto interface = std::make_shared<Interface>();
  interface->index = netdev->index;
  interface->program = XdpProgram::attach(netdev->index, queues, layout.has_large(), error);
  bool good = interface->program != nullptr;
  if (good) keep_tags(spec.target);
  std::vector<std::unique_ptr<XdpPort>> ports;
  for (unsigned i = 0; good && i < queues; ++i) {
    ports.emplace_back(new XdpPort(interface, facts));
    ports.back()->virtual_ = is_virtual;
    good = ports.back()->open_socket(layout, i, error);
  }
  if (!good) {
    error = "port \"" + to_string(spec) + "\": " + error;
    return {};
  }
  // Neighbours ask for IPv6 addresses in groups, which an interface does not hear unasked.
  if (options.groups) interface->groups = hear_all_groups(spec.target);
  return {std::move_iterator(ports.begin()), std::move_iterator(ports.end())};
}

XdpPort::Interface::~Interface() {
  if (groups >= 0) close(groups);
}

XdpPort::XdpPort(std::shared_ptr<Interface> interface, PortFacts facts)
    : facts_(std::move(facts)), interface_(std::move(interface)) {}

XdpPort::~XdpPort() { close_socket(); }

// The kernel lets go of a queue some time after its socket was closed, so that a port that is opened anew may have to
// wait for itself.
bool XdpPort::open_socket(const XdpLayout& layout, unsigned queue, std::string& error) {
  constexpr int kTries = 20;
  constexpr std::chrono::milliseconds kBetween{50};
  pool_ = XdpPool::create(layout, error);
  if (pool_ == nullptr) return false;
  int code = try_socket(queue);
  for (int i = 1; code == EBUSY && i < kTries; ++i) {
    std::this_thread::sleep_for(kBetween);
    code = try_socket(queue);
  }
  if (code != 0) {
    error = reason(code, layout.has_large());
    return false;
  }
  if (setsockopt(wake_descriptor(), SOL_SOCKET, SO_SNDBUFFORCE, &kSocketBytes, sizeof kSocketBytes) != 0)
    (void)setsockopt(wake_descriptor(), SOL_SOCKET, SO_SNDBUF, &kSocketBytes, sizeof kSocketBytes);
  // Nothing comes before there is where to.
  to_fill_ = layout.descriptors;
  refill();
  if (interface_->program->give(queue, wake_descriptor())) return true;
  error = std::string("the XDP program takes no socket: ") + std::strerror(errno);
  return false;
}

// Returns an errno; 0: it is bound.
int XdpPort::try_socket(unsigned queue) {
  const XdpLayout& layout = pool_->layout();
  const xsk_umem_config memory{.fill_size = layout.descriptors,
                               .comp_size = 2 * layout.descriptors,
                               .frame_size = layout.chunk_bytes,
                               .frame_headroom = XdpPool::kFrontBytes,
                               .flags = 0};
  int code = xsk_umem__create(&memory_, pool_->memory(), pool_->bytes(), &fill_, &sent_, &memory);
  if (code != 0) {
    memory_ = nullptr;
    return -code;
  }
  xsk_socket_config socket{};
  socket.rx_size = socket.tx_size = layout.descriptors;
  socket.libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD;
  // Kernels to come leave room behind a chunk for their own account of the others (skb_shared_info); where they do not
  // yet, a driver that writes into the chunks itself would have it over what was received.
  const bool copies = layout.has_large() || interface_->program->is_generic();
  socket.bind_flags =
      static_cast<__u16>(XDP_USE_NEED_WAKEUP | (layout.has_large() ? kUseSeveral : 0) | (copies ? XDP_COPY : 0));
  code = xsk_socket__create(&socket_, facts_.netdev.c_str(), queue, memory_, &received_, &send_, &socket);
  if (code == 0) {
    xdp_options options{};
    socklen_t size = sizeof options;
    zero_copy_ = getsockopt(wake_descriptor(), SOL_XDP, XDP_OPTIONS, &options, &size) == 0 &&
                 (options.flags & XDP_OPTIONS_ZEROCOPY) != 0;
    return 0;
  }
  socket_ = nullptr;
  close_socket();
  return -code;
}

void XdpPort::close_socket() {
  if (socket_ != nullptr) xsk_socket__delete(std::exchange(socket_, nullptr));
  if (memory_ != nullptr) (void)xsk_umem__delete(std::exchange(memory_, nullptr));
}

// Another interface that has the name now is not ours: the socket hears nothing of it.
bool XdpPort::link_up() const { return netdev_link_up(facts_.netdev, interface_->index); }

// ---- receiving ---------------------------------------------------------------------------------

// Buffers for what comes, as far as there are any. The kernel hands over what it has received before it says that the
// ring has room again.
void XdpPort::refill() {
  while (to_fill_ != 0) {
    Buffer* some[kFillAtOnce];
    const std::uint32_t wanted = std::min(to_fill_, kFillAtOnce);
    const std::uint32_t count = pool_->take(some, std::min(wanted, xsk_prod_nb_free(&fill_, wanted)));
    std::uint32_t at = 0;
    if (count == 0) break;
    RNIC_ASSERT(xsk_ring_prod__reserve(&fill_, count, &at) == count);
    for (std::uint32_t i = 0; i < count; ++i)
      *xsk_ring_prod__fill_addr(&fill_, at + i) =
          pool_->address_of(*some[i]) - pool_->layout().place_in_chunk(pool_->address_of(*some[i]));
    xsk_ring_prod__submit(&fill_, count);
    to_fill_ -= count;
  }
}

// A driver that has run out of buffers to receive into has stopped.
void XdpPort::wake_receiver() {
  if (xsk_ring_prod__needs_wakeup(&fill_)) (void)recv(wake_descriptor(), nullptr, 0, MSG_DONTWAIT);
}

// A chunk that a frame is in, or a part of it. Null: there is more of it, or it is lost.
Buffer* XdpPort::take(const xdp_desc& received) {
  BufferRef chunk(pool_->at(received.addr));
  const bool more = (received.options & kContinues) != 0;
  const std::uint32_t place = pool_->layout().place_in_chunk(received.addr);
  const auto room = static_cast<std::uint32_t>(chunk->room - reinterpret_cast<std::byte*>(chunk.get()));
  chunk->head = place - room;
  chunk->length = received.len;
  const bool fits = chunk->head + chunk->length <= chunk->room_bytes;
  if (fits && !more && !gathered_ && !losing_) [[likely]]
    return chunk.release();
  return gather(std::move(chunk), more);
}

Buffer* XdpPort::gather(BufferRef piece, bool more) {
  if (!gathered_ && !losing_) gathered_ = BufferRef(pool_->take_large());
  if (!losing_ && (!gathered_ || gathered_->tailroom() < piece->length)) {
    gathered_.reset();
    losing_ = true;
    ++lost_;
  }
  if (gathered_) std::memcpy(gathered_->append(piece->length).data(), piece->room + piece->head, piece->length);
  if (more) return nullptr;
  losing_ = false;
  return gathered_.release();
}

unsigned XdpPort::receive_burst(Buffer** out, unsigned max) {
  take_back_sent();
  if (!all_told_ && !down_) tell_kernel();
  std::uint32_t at = 0;
  const std::uint32_t count = xsk_ring_cons__peek(&received_, max, &at);
  unsigned kept = 0;
  for (std::uint32_t i = 0; i < count; ++i)
    if (Buffer* const frame = take(*xsk_ring_cons__rx_desc(&received_, at + i))) out[kept++] = frame;
  // The kernel knows by a mark that is not in the frame.
  for (unsigned i = 0; virtual_ && i < kept; ++i)
    out[i]->checksum_good = is_checksum_undone(out[i]->bytes()) && is_ip_header_good(out[i]->bytes());
  if (count != 0) xsk_ring_cons__release(&received_, count);
  to_fill_ += count;
  refill();
  wake_receiver();
  return kept;
}

// What the kernel has not taken, nobody would tell it of meanwhile. The fence: a driver says that it wants to be told,
// and looks into the ring once more.
bool XdpPort::arm() {
  take_back_sent();
  refill();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  wake_receiver();
  tell_kernel();
  return (all_told_ || down_) && xsk_cons_nb_avail(&received_, 1) == 0;
}

// ---- sending -----------------------------------------------------------------------------------

void XdpPort::take_back_sent() {
  std::uint32_t at = 0;
  const std::uint32_t count = xsk_ring_cons__peek(&sent_, pool_->layout().descriptors, &at);
  if (count == 0) return;
  for (std::uint32_t i = 0; i < count; ++i) BufferRef gone(pool_->at(*xsk_ring_cons__comp_addr(&sent_, at + i)));
  xsk_ring_cons__release(&sent_, count);
}

// By a descriptor for each chunk that it lies in, which all hold it. False: the ring is full.
bool XdpPort::put(Buffer& frame) {
  RNIC_ASSERT(frame.pool == pool_.get() && frame.length != 0);
  const std::uint32_t chunk_bytes = pool_->layout().chunk_bytes;
  std::uint64_t from = pool_->address_of(frame);
  const std::uint32_t lead = pool_->layout().place_in_chunk(from);
  const std::uint32_t count = 1 + (lead + frame.length - 1) / chunk_bytes;
  std::uint32_t at = 0;
  if (xsk_ring_prod__reserve(&send_, count, &at) == 0) return false;
  std::uint32_t left = frame.length;
  for (std::uint32_t i = 0; i < count; ++i) {
    xdp_desc& part = *xsk_ring_prod__tx_desc(&send_, at + i);
    part.addr = from;
    part.len = std::min(left, chunk_bytes - pool_->layout().place_in_chunk(from));
    part.options = i + 1 < count ? kContinues : 0;
    from += part.len;
    left -= part.len;
  }
  frame.refs += count - 1;
  xsk_ring_prod__submit(&send_, count);
  return true;
}

// The kernel looks at what is to be sent. Returns an errno; 0: it took all that it could.
int XdpPort::call() { return sendto(wake_descriptor(), nullptr, 0, MSG_DONTWAIT, nullptr, 0) >= 0 ? 0 : errno; }

// It has no more room now, or took as many as it takes in a call.
bool XdpPort::is_busy(int code) {
  return code == EAGAIN || code == EBUSY || code == ENOBUFS || code == ENOMEM || code == EINTR;
}

// Where the driver wants to be told of what is to be sent: until all of it is taken, or no more can be now.
void XdpPort::tell_kernel() {
  const auto left = [&] { return send_.cached_prod - __atomic_load_n(send_.consumer, __ATOMIC_ACQUIRE); };
  // Older kernels do not say at once what they took, but what they are done with (before Linux 6.17).
  const auto progress = [&] { return __atomic_load_n(sent_.producer, __ATOMIC_ACQUIRE) - left(); };
  std::atomic_thread_fence(std::memory_order_seq_cst);
  down_ = false;
  all_told_ = true;
  if (left() == 0 || !xsk_ring_prod__needs_wakeup(&send_)) return;
  const std::uint32_t before = progress();
  int code = 0;
  for (std::uint32_t last = before, still = 0; still < 2; last = progress()) {
    code = call();
    if (code == EBUSY) ++lost_;  // the interface took one and let it fall
    if (code == 0 || !is_busy(code)) break;
    still = progress() == last ? still + 1 : 0;
  }
  down_ = !is_busy(code) && code != 0;
  // A driver that sends from our buffers takes them when it has time. Who takes nothing for so long is not asked
  // again before there is more.
  stalls_ = progress() == before ? stalls_ + 1 : 0;
  all_told_ = left() == 0 || (code == 0 && zero_copy_) || stalls_ > kStallsMax;
}

// While the interface is down, frames are lost, as on a cable with nobody at its end.
unsigned XdpPort::send_burst(Buffer* const* frames, unsigned count) {
  take_back_sent();
  if (down_) [[unlikely]] {
    const int code = call();
    down_ = code != 0 && !is_busy(code);
  }
  if (down_) [[unlikely]] {
    for (unsigned i = 0; i < count; ++i) BufferRef gone(frames[i]);
    lost_ += count;
    return count;
  }
  unsigned sent = 0;
  while (sent < count && put(*frames[sent])) ++sent;
  if (sent != 0 || !all_told_) tell_kernel();
  return sent;
}

// ---- now and then ------------------------------------------------------------------------------

void XdpPort::tend() {
  xdp_statistics since{};
  socklen_t size = sizeof since;
  if (getsockopt(wake_descriptor(), SOL_XDP, XDP_STATISTICS, &since, &size) == 0)
    lost_in_kernel_ = since.rx_dropped + since.rx_ring_full;
}

}  // namespace rnic::port
