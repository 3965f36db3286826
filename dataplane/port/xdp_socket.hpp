// An AF_XDP socket on a queue of an interface, and the rings that it shares with the kernel, over a pool's memory.
#pragma once

#include <xdp/xsk.h>

#include <memory>
#include <string>

#include "port/xdp_pool.hpp"

namespace rnic::port {

class XdpSocket {
 public:
  // `copies`: the driver is not asked to receive into the pool, nor to send from it. The pool stays as long as the
  // socket. Null: the sentence says why.
  static std::unique_ptr<XdpSocket> open(const std::string& interface, unsigned queue, XdpPool& pool, bool copies,
                                         std::string& error);
  ~XdpSocket();
  XdpSocket(const XdpSocket&) = delete;
  XdpSocket& operator=(const XdpSocket&) = delete;

  int descriptor() const { return xsk_socket__fd(socket_); }
  // The driver sends from the pool.
  bool is_zero_copy() const { return zero_copy_; }

  // Addresses of chunks that the kernel may receive into, and of what it has sent; descriptors of what is to be sent,
  // and of what was received.
  xsk_ring_prod fill{}, send{};
  xsk_ring_cons sent{}, received{};

 private:
  XdpSocket() = default;
  int bind(const std::string& interface, unsigned queue, XdpPool& pool, bool copies);
  void close();

  xsk_umem* memory_ = nullptr;
  xsk_socket* socket_ = nullptr;
  bool zero_copy_ = false;
};

}  // namespace rnic::port
