// The socket of a memif's server, in front of the one of DPDK's driver. That driver (22.11) ends the process where who
// connects hangs up before it was greeted, and keeps for ever a descriptor that comes with what it refuses. So it
// listens beside, at SOCKET.dpdk, where only we connect, and wait for its greeting; what the two say then is handed on
// message by message, and descriptors only where the protocol has them.
//
// For one thread (the gate's).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "port/memif_peer.hpp"

namespace rnic::port {

class MemifDoor {
 public:
  MemifDoor(std::string path, const MemifPeer& peer);
  ~MemifDoor();
  MemifDoor(const MemifDoor&) = delete;
  MemifDoor& operator=(const MemifDoor&) = delete;

  // Where the driver is to listen.
  const std::string& inner_path() const { return inner_path_; }
  // Nothing is at its path, and the driver listens. False: the sentence says why.
  bool open(std::string& error);

  void descriptors(std::vector<int>& out) const;
  void serve();  // whatever they have to say

 private:
  // Who is in the doorway.
  struct Visitor {
    int outside = -1;  // who has hung up before the greeting is noticed with it
    int inside = -1;
    bool greeted = false;
    bool leaves = false;
    std::uint16_t regions = 0, rings = 0;  // for which a descriptor has come
  };
  void admit();
  void hand_out(Visitor& visitor);
  void hand_in(Visitor& visitor);

  const std::string path_, inner_path_;
  const MemifPeer peer_;
  int listener_ = -1;
  std::vector<Visitor> visitors_;
};

}  // namespace rnic::port
