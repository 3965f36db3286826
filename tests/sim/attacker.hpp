// Somebody who wants a conversation to fail. Off the path he sends from anywhere, knows addresses
// and ports, and guesses the rest. On the path he sees every frame, and says what he likes to both
// sides, at the right place.
#pragma once

#include <vector>

#include "sim/world.hpp"

namespace rnic::sim {

class Attacker {
 public:
  enum class Where : std::uint8_t { off_path, on_path };
  static constexpr unsigned kBlowsOffPath = 1500, kBlowsOnPath = 60;

  Attacker(World& world, Where where, std::uint64_t seed, std::uint16_t server_port);
  ~Attacker();
  Attacker(const Attacker&) = delete;
  Attacker& operator=(const Attacker&) = delete;

  // From now on, until his blows are used up.
  void begin();
  // Whatever is due now.
  void act();
  Instant next() const { return next_; }
  unsigned blows() const { return blows_; }

 private:
  struct Seen {  // a segment of the conversation
    bool from_a = true;
    std::uint16_t source_port = 0, destination_port = 0;
    std::uint32_t sequence = 0, end = 0, acknowledgement = 0;
    Frame frame;
  };
  void see(bool from_a, Bytes frame);
  void strike_blindly();
  void strike_knowingly();
  void send_segment(bool to_b, std::uint16_t source_port, std::uint16_t destination_port, std::uint8_t flags,
                    std::uint32_t sequence, std::uint32_t acknowledgement, Bytes payload);
  void send_icmp(bool to_b, std::uint8_t code, std::uint16_t mtu, std::uint16_t source_port,
                 std::uint16_t destination_port, std::uint32_t sequence);
  void send_packet(bool to_b, std::uint8_t protocol, const wire::IpAddress& from, Bytes payload);
  std::vector<std::byte> octets(std::size_t max);

  World& world_;
  Where where_;
  Random random_;
  std::uint16_t server_port_;
  Instant next_ = kNever;
  unsigned blows_ = 0;
  std::vector<Seen> seen_;  // the latest few; of an attacker off the path, for their ports alone
  std::size_t seen_next_ = 0;
};

}  // namespace rnic::sim
