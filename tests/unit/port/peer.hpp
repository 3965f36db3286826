// The other end of a wire, in a process of its own: it answers every frame of ours, and sleeps in
// between on nothing but its port's wake descriptor, without a timeout. So a wake-up that is lost
// is an answer that never comes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "port/port.hpp"

namespace rnic::port::test {

// What we send and what comes back: local experimental EtherType (IEEE 802 s9.2.3), a number, and
// how often the peer has slept so far.
struct Answer {
  std::uint32_t number = 0;
  std::uint32_t sleeps = 0;
  bool intact = false;  // every octet behind these is as it was sent
};
void send_question(Port& port, std::uint32_t number, std::uint32_t frame_bytes = 64);
// Has the peer of a memif answer with the first piece of a long frame (port/pieces.hpp), and nothing more.
void ask_for_torn_frame(Port& port);
// Waits for the next answer as a worker does: looks, arms, sleeps on the descriptor. Nothing if
// none comes for ten seconds, which is far more than any machine needs.
std::optional<Answer> await_answer(Port& port);

// Asks again and again until the peer answers: questions before its port is open are lost. Further
// answers of this number may come later.
inline constexpr std::uint32_t kHello = 0xffffffff;
bool peer_answers(Port& port);

// Waits until `done`, at most ten seconds.
bool eventually(const std::function<bool()>& done);

class Peer {
 public:
  enum class Network : std::uint8_t { same, own };
  // Starts this program again as a peer on port `spec`. With a network of its own it waits there
  // for go().
  Peer(const std::string& spec, std::uint32_t mtu_bytes, Network network = Network::same, uid_t user = 0);
  ~Peer();  // kills it
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  pid_t pid() const { return pid_; }
  void go();
  void kill_now();  // SIGKILL, and waits until it is gone

 private:
  pid_t pid_ = -1;
  int gate_ = -1;
};

}  // namespace rnic::port::test
