// How the two ends of a memif link wake each other, and how they learn of each other what frames they
// receive: beside the link's socket SOCKET there is SOCKET.wake, over which two rnicd exchange their MTUs,
// one end each of a stream socket and one page that holds both sides' `asleep` words. A memif peer that is no rnicd
// has no such socket, and then there is no channel.
//
//   sleeper: store `asleep`, fence, look for frames, block on its bell
//   sender:  frames into the ring, fence, load the other's `asleep`; if set, take it and ring
//
// A bell is rung by an octet on that socket. Not by an eventfd: that would be one open file for both sides, and
// whoever writes to a full one, or reads an empty one, waits, by a flag that the other can take away. Whatever a
// peer does to its end, sending and receiving do not wait; what it sends beside octets is closed elsewhere, and ends
// the channel.
//
// The fences are sequentially consistent and pair with each other: either the sleeper sees the
// frames or the sender sees the word.
//
// join/serve/drop are for one thread (the gate's), the rest for the worker, and the port's lock is
// held for both.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "port/memif_peer.hpp"

namespace rnic::port {

class WakeChannel {
 public:
  enum class Role : std::uint8_t { server, client };

  // What a side receives: IP octets in a frame, and octets of a frame in one slot.
  struct Sizes {
    std::uint32_t mtu_bytes = 0;
    std::uint32_t slot_bytes = 0;
  };
  WakeChannel(std::string path, Role role, const Sizes& ours, const MemifPeer& peer);
  ~WakeChannel();
  WakeChannel(const WakeChannel&) = delete;
  WakeChannel& operator=(const WakeChannel&) = delete;

  // Server: the page, and the socket to be joined at. False: the sentence says why.
  bool open(std::string& error);

  // Readable once somebody rang. One for ever, good to wait for whether joined or not.
  int bell() const { return bell_; }
  void ring_own();  // from any thread
  // So that it can be waited for again. False: the peer does what no rnicd does, and serve() is to be called.
  bool quiet();

  void join();   // client: tries once, without waiting
  void serve();  // whatever its sockets have to say
  void drop();   // the peer is gone
  bool joined() const { return peer_bell_ >= 0; }
  // The peer's, while joined.
  const Sizes& peer_sizes() const { return peer_sizes_; }
  void descriptors(std::vector<int>& out) const;

  // The worker is about to sleep, or is awake again. Ends with the fence.
  void set_asleep(bool asleep) {
    if (mine_ == nullptr) return;
    mine_->store(asleep ? 1 : 0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  // After frames were put into the ring.
  void wake_peer() {
    if (peer_bell_ < 0) return;
    std::atomic_thread_fence(std::memory_order_seq_cst);
    // Taken by one sender only, so that a burst of sends rings once.
    if (theirs_->load(std::memory_order_relaxed) != 0 && theirs_->exchange(0, std::memory_order_relaxed) != 0)
      ring_peer();
  }

 private:
  using Word = std::atomic<std::uint32_t>;

  bool greet();
  bool make_ear(int& mouth);
  void hear();
  bool map(int memfd);
  void ring_peer();

  std::string path_;
  Role role_;
  Sizes sizes_, peer_sizes_;
  MemifPeer peer_rule_;
  int bell_ = -1;  // epoll: of own_, and of ear_ while there is one
  int own_ = -1;   // an eventfd that nobody else has
  std::atomic<bool> own_rung_{false};
  int memfd_ = -1;  // server's
  int listener_ = -1;
  int peer_ = -1;  // the connection
  int ear_ = -1;   // where the peer rings us
  bool ear_broken_ = false;
  int peer_bell_ = -1;
  void* page_ = nullptr;
  Word* mine_ = nullptr;
  Word* theirs_ = nullptr;
};

}  // namespace rnic::port
