#include "port/xdp_port.hpp"

#include <bpf/libbpf.h>
#include <linux/if_xdp.h>
#include <sys/socket.h>
#include <unistd.h>
#include <xdp/libxdp.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "port/dpdk_runtime.hpp"
#include "port/kernel_interface.hpp"
#include "port/netdev.hpp"
#include "port/segment_runs.hpp"

namespace rnic::port {

namespace {

// Not in the headers of older C libraries; of Linux 6.6.
constexpr std::uint32_t kContinues = 1 << 0;  // XDP_PKT_CONTD: this is not a frame's last
constexpr std::uint32_t kFillAtOnce = 64;

// What there is against it before the kernel is asked; empty if nothing.
std::string objection(const PortSpec& spec, const PortOptions& options, const std::optional<Netdev>& netdev,
                      unsigned queues, unsigned shards) {
  if (std::string said = objection_of_kernel(spec, options, netdev); !said.empty()) return said;
  const std::string what = "port \"" + to_string(spec) + "\"";
  if (!netdev->up) return what + ": the interface is down; first: ip link set " + spec.target + " up";
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

}  // namespace

// ---- opening -----------------------------------------------------------------------------------

std::vector<std::unique_ptr<Port>> XdpPort::open_queues(const PortSpec& spec, const PortOptions& options,
                                                        unsigned shards, std::string& error) {
  const std::optional<Netdev> netdev = find_netdev(spec.target);
  const unsigned queues = netdev_queues(spec.target);
  if (error = objection(spec, options, netdev, queues, shards); !error.empty()) return {};
  stop_merging(spec.target);
  if (!dpdk_started()) {  // which has them say into our log what they else write to stderr
    libbpf_set_print(nullptr);
    libxdp_set_print(nullptr);
  }
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

bool XdpPort::open_socket(const XdpLayout& layout, unsigned queue, std::string& error) {
  pool_ = XdpPool::create(layout, error);
  if (pool_ == nullptr) return false;
  // Kernels to come leave room behind a chunk for their own account of the others (skb_shared_info); where they do not
  // yet, a driver that writes into the chunks itself would have it over what was received.
  const bool copies = layout.has_large() || interface_->program->is_generic();
  socket_ = XdpSocket::open(facts_.netdev, queue, *pool_, copies, error);
  if (socket_ == nullptr) return false;
  // Nothing comes before there is where to.
  to_fill_ = layout.descriptors;
  refill();
  if (interface_->program->give(queue, socket_->descriptor())) return true;
  error = std::string("the XDP program takes no socket: ") + std::strerror(errno);
  return false;
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
    const std::uint32_t count = pool_->take(some, std::min(wanted, xsk_prod_nb_free(&socket_->fill, wanted)));
    std::uint32_t at = 0;
    if (count == 0) break;
    RNIC_ASSERT(xsk_ring_prod__reserve(&socket_->fill, count, &at) == count);
    for (std::uint32_t i = 0; i < count; ++i)
      *xsk_ring_prod__fill_addr(&socket_->fill, at + i) =
          pool_->address_of(*some[i]) - pool_->layout().place_in_chunk(pool_->address_of(*some[i]));
    xsk_ring_prod__submit(&socket_->fill, count);
    to_fill_ -= count;
  }
}

// A driver that has run out of buffers to receive into has stopped.
void XdpPort::wake_receiver() {
  if (xsk_ring_prod__needs_wakeup(&socket_->fill)) (void)recv(socket_->descriptor(), nullptr, 0, MSG_DONTWAIT);
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
  const std::uint32_t count = xsk_ring_cons__peek(&socket_->received, max, &at);
  unsigned kept = 0;
  for (std::uint32_t i = 0; i < count; ++i)
    if (Buffer* const frame = take(*xsk_ring_cons__rx_desc(&socket_->received, at + i))) out[kept++] = frame;
  // The kernel knows by a mark that is not in the frame.
  for (unsigned i = 0; virtual_ && i < kept; ++i)
    out[i]->checksum_good = is_checksum_undone(out[i]->bytes()) && is_ip_header_good(out[i]->bytes());
  if (count != 0) xsk_ring_cons__release(&socket_->received, count);
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
  return (all_told_ || down_) && xsk_cons_nb_avail(&socket_->received, 1) == 0;
}

// ---- sending -----------------------------------------------------------------------------------

void XdpPort::take_back_sent() {
  std::uint32_t at = 0;
  const std::uint32_t count = xsk_ring_cons__peek(&socket_->sent, pool_->layout().descriptors, &at);
  if (count == 0) return;
  for (std::uint32_t i = 0; i < count; ++i)
    BufferRef gone(pool_->at(*xsk_ring_cons__comp_addr(&socket_->sent, at + i)));
  xsk_ring_cons__release(&socket_->sent, count);
}

// By a descriptor for each chunk that it lies in, which all hold it. False: the ring is full.
bool XdpPort::put(Buffer& frame) {
  RNIC_ASSERT(frame.pool == pool_.get() && frame.length != 0);
  const std::uint32_t chunk_bytes = pool_->layout().chunk_bytes;
  std::uint64_t from = pool_->address_of(frame);
  const std::uint32_t lead = pool_->layout().place_in_chunk(from);
  const std::uint32_t count = 1 + (lead + frame.length - 1) / chunk_bytes;
  std::uint32_t at = 0;
  if (xsk_ring_prod__reserve(&socket_->send, count, &at) == 0) return false;
  std::uint32_t left = frame.length;
  for (std::uint32_t i = 0; i < count; ++i) {
    xdp_desc& part = *xsk_ring_prod__tx_desc(&socket_->send, at + i);
    part.addr = from;
    part.len = std::min(left, chunk_bytes - pool_->layout().place_in_chunk(from));
    part.options = i + 1 < count ? kContinues : 0;
    from += part.len;
    left -= part.len;
  }
  frame.refs += count - 1;
  xsk_ring_prod__submit(&socket_->send, count);
  return true;
}

// The kernel looks at what is to be sent. Returns an errno; 0: it took all that it could.
int XdpPort::wake_sender() {
  return sendto(socket_->descriptor(), nullptr, 0, MSG_DONTWAIT, nullptr, 0) >= 0 ? 0 : errno;
}

// It has no more room now, or took as many as it takes in a call.
bool XdpPort::is_busy(int code) {
  return code == EAGAIN || code == EBUSY || code == ENOBUFS || code == ENOMEM || code == EINTR;
}

// Where the driver wants to be told of what is to be sent: until all of it is taken, or no more can be now. The kernel
// says
//   nothing             it took what it could: all, or (zero copy) what the driver has room for at the time
//   EAGAIN, ENOBUFS     it took as many as it takes in a call, or has no room: once more, as long as that is of use
//   EBUSY               the interface let one fall: that is lost
//   ENETDOWN and others the interface is down, or gone
void XdpPort::tell_kernel() {
  const auto left = [&] {
    return socket_->send.cached_prod - __atomic_load_n(socket_->send.consumer, __ATOMIC_ACQUIRE);
  };
  // Older kernels do not say at once what they took, but what they are done with (before Linux 6.17).
  const auto progress = [&] { return __atomic_load_n(socket_->sent.producer, __ATOMIC_ACQUIRE) - left(); };
  std::atomic_thread_fence(std::memory_order_seq_cst);
  down_ = false;
  all_told_ = true;
  if (left() == 0 || !xsk_ring_prod__needs_wakeup(&socket_->send)) return;
  const std::uint32_t before = progress();
  int code = 0;
  for (std::uint32_t last = before, still = 0; still < 2; last = progress()) {
    code = wake_sender();
    if (code == EBUSY) ++lost_;  // the interface took one and let it fall
    if (code == 0 || !is_busy(code)) break;
    still = progress() == last ? still + 1 : 0;
  }
  down_ = !is_busy(code) && code != 0;
  // A driver that sends from our buffers takes them when it has time. Who takes nothing for so long is not asked
  // again before there is more.
  stalls_ = progress() == before ? stalls_ + 1 : 0;
  all_told_ = left() == 0 || (code == 0 && socket_->is_zero_copy()) || stalls_ > kStallsMax;
}

// While the interface is down, frames are lost, as on a cable with nobody at its end.
unsigned XdpPort::send_burst(Buffer* const* frames, unsigned count) {
  take_back_sent();
  if (down_) [[unlikely]] {
    const int code = wake_sender();
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
  if (getsockopt(socket_->descriptor(), SOL_XDP, XDP_STATISTICS, &since, &size) == 0)
    lost_in_kernel_ = since.rx_dropped + since.rx_ring_full;
}

}  // namespace rnic::port
