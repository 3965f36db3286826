// Queue pairs that are told of each other by modify alone, thousands, in a ring, and each with a first PSN that its
// peer does not expect: all of them call, all calls are refused, and each is tried again until its time is over. Some
// go back to RESET meanwhile and begin anew.
#include <unistd.h>

#include <random>

#include "system/hostile/hostile.hpp"

namespace rnic::hostile {
namespace {

constexpr std::uint32_t kMost = 3000;
constexpr std::uint32_t kExpectedPsn = 5, kOwnPsn = 9;

rnic_modify_qp idle(rnic_idle_name name) {
  rnic_modify_qp change{};
  change.mask = RNIC_MODIFY_STATE;
  change.state = RNIC_QP_IDLE;
  change.idle_name = name;
  return change;
}

class Ring : Bench {
 public:
  Ring(const std::string& socket, std::uint32_t most)
      : Bench(socket, 64, RNIC_FACE_ROCE), gid_(bare::gid_of(bare::address_of(app.device()))) {
    while (numbers_.size() < most) {
      bare::Answer made = app.try_queue_pair(pd, cq.handle, cq.handle, 1);
      if (!made.good()) {
        refused_ = made.words();
        return;
      }
      numbers_.push_back(app.adopt(std::move(made)).number);
    }
  }

  std::size_t size() const { return numbers_.size(); }
  const std::string& refused() const { return refused_; }

  // INIT, RTR toward the next of the ring, RTS; whether it waits for that one now.
  bool begin(std::size_t which) {
    const std::uint32_t number = numbers_[which];
    if (!app.modify(number, idle(RNIC_IDLE_INIT)).good()) return false;
    rnic_modify_qp to_rtr = idle(RNIC_IDLE_RTR);
    to_rtr.mask |= RNIC_MODIFY_PEER;
    to_rtr.psn = kExpectedPsn;
    to_rtr.peer_number = numbers_[(which + 1) % numbers_.size()];
    to_rtr.has_route = 1;
    to_rtr.gid_index = 1;
    std::memcpy(to_rtr.peer_gid, gid_.data(), gid_.size());
    if (!app.modify(number, to_rtr).good()) return false;
    rnic_modify_qp to_rts = idle(RNIC_IDLE_RTS);
    to_rts.mask |= RNIC_MODIFY_PSN;
    to_rts.psn = kOwnPsn;
    return app.modify(number, to_rts).good();
  }

  bool again(std::size_t which) {
    return app.to_error(numbers_[which]).good() && app.modify(numbers_[which], idle(RNIC_IDLE_RESET)).good() &&
           begin(which);
  }

 private:
  std::array<std::uint8_t, 16> gid_;
  std::vector<std::uint32_t> numbers_;
  std::string refused_;
};

}  // namespace

int meetings(const Options& options) {
  Ring ring(options.socket, options.count != 0 ? options.count : kMost);
  if (ring.size() < 2) {
    say(ring.refused());
    return 1;
  }
  attacking();
  const Seconds start = now();
  std::size_t begun = 0, waiting = 0, again = 0;
  for (; begun < ring.size() && now() - start < options.seconds; ++begun) waiting += ring.begin(begun) ? 1 : 0;
  std::mt19937_64 random(options.seed);
  while (now() - start < options.seconds) {
    again += ring.again(random() % begun) ? 1 : 0;
    usleep(10'000);
  }
  say(std::to_string(waiting) + " of " + std::to_string(begun) + " waited for a peer that refuses them, " +
      std::to_string(again) + " of them anew" + (ring.refused().empty() ? "" : "; more: " + ring.refused()));
  return waiting == begun ? 0 : 1;
}

}  // namespace rnic::hostile
