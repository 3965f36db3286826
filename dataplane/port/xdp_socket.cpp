#include "port/xdp_socket.hpp"

#include <linux/if_xdp.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "port/capability.hpp"

namespace rnic::port {

namespace {

// Not in the headers of older C libraries; of Linux 6.6.
constexpr std::uint16_t kUseSeveral = 1 << 4;  // XDP_USE_SG: frames in several chunks
// What waits in the kernel to be sent, where it copies.
constexpr int kSocketBytes = 16 << 20;

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

// The kernel lets go of a queue some time after its socket was closed, so that a port that is opened anew may have to
// wait for itself.
std::unique_ptr<XdpSocket> XdpSocket::open(const std::string& interface, unsigned queue, XdpPool& pool, bool copies,
                                           std::string& error) {
  constexpr int kTries = 20;
  constexpr std::chrono::milliseconds kBetween{50};
  std::unique_ptr<XdpSocket> socket(new XdpSocket);
  int code = socket->bind(interface, queue, pool, copies);
  for (int i = 1; code == EBUSY && i < kTries; ++i) {
    std::this_thread::sleep_for(kBetween);
    code = socket->bind(interface, queue, pool, copies);
  }
  if (code != 0) {
    error = reason(code, pool.layout().has_large());
    return nullptr;
  }
  if (setsockopt(socket->descriptor(), SOL_SOCKET, SO_SNDBUFFORCE, &kSocketBytes, sizeof kSocketBytes) != 0)
    (void)setsockopt(socket->descriptor(), SOL_SOCKET, SO_SNDBUF, &kSocketBytes, sizeof kSocketBytes);
  return socket;
}

XdpSocket::~XdpSocket() { close(); }

// Returns an errno; 0: it is bound.
int XdpSocket::bind(const std::string& interface, unsigned queue, XdpPool& pool, bool copies) {
  const XdpLayout& layout = pool.layout();
  const xsk_umem_config memory{.fill_size = layout.descriptors,
                               .comp_size = 2 * layout.descriptors,
                               .frame_size = layout.chunk_bytes,
                               .frame_headroom = XdpPool::kFrontBytes,
                               .flags = 0};
  int code = xsk_umem__create(&memory_, pool.memory(), pool.bytes(), &fill, &sent, &memory);
  if (code != 0) {
    memory_ = nullptr;
    return -code;
  }
  xsk_socket_config config{};
  config.rx_size = config.tx_size = layout.descriptors;
  config.libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD;
  config.bind_flags =
      static_cast<__u16>(XDP_USE_NEED_WAKEUP | (layout.has_large() ? kUseSeveral : 0) | (copies ? XDP_COPY : 0));
  code = xsk_socket__create(&socket_, interface.c_str(), queue, memory_, &received, &send, &config);
  if (code == 0) {
    xdp_options options{};
    socklen_t size = sizeof options;
    zero_copy_ = getsockopt(descriptor(), SOL_XDP, XDP_OPTIONS, &options, &size) == 0 &&
                 (options.flags & XDP_OPTIONS_ZEROCOPY) != 0;
    return 0;
  }
  socket_ = nullptr;
  close();
  return -code;
}

void XdpSocket::close() {
  if (socket_ != nullptr) xsk_socket__delete(std::exchange(socket_, nullptr));
  if (memory_ != nullptr) (void)xsk_umem__delete(std::exchange(memory_, nullptr));
}

}  // namespace rnic::port
