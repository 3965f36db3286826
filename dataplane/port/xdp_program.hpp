// The program by which an interface hands what it receives to AF_XDP sockets, each queue's frames to its socket. What
// comes to a queue without one goes on to the kernel.
//
// It is there for as long as this is, and no longer than the process.
#pragma once

#include <memory>
#include <string>

namespace rnic::port {

class XdpProgram {
 public:
  // On the interface of that index with so many receive queues, by its driver where that can, else by the kernel, in
  // front of its stack. `pieces`: it takes frames that lie in several pieces of memory. Null: the sentence says why.
  static std::unique_ptr<XdpProgram> attach(int interface, unsigned queues, bool pieces, std::string& error);
  ~XdpProgram();
  XdpProgram(const XdpProgram&) = delete;
  XdpProgram& operator=(const XdpProgram&) = delete;

  // A bound socket of that queue. False: errno says why.
  bool give(unsigned queue, int socket);
  // The driver has no part in it, so no socket can be its.
  bool is_generic() const { return generic_; }

 private:
  XdpProgram() = default;
  bool load(bool pieces);
  bool link(int interface, unsigned flags);

  int sockets_ = -1;  // by queue
  int program_ = -1;
  int link_ = -1;
  bool generic_ = false;
};

}  // namespace rnic::port
