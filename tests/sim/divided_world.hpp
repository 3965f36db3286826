// A device that is divided into shards, as several workers have it, against an ordinary one: on one thread, from one
// seed, which also decides who has a turn when. What a worker sleeps for is as it is there: for its deadline, and for
// whoever wakes it.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "port/steered_ports.hpp"
#include "sim/addresses.hpp"
#include "sim/rnic.hpp"

namespace rnic::sim {

// How many queues the divided device's port has, and what frame goes to which.
enum class Queues : std::uint8_t {
  one,        // the first shard's, which hands over all that is others'
  at_random,  // one each, and a frame is hardly ever where it belongs
  steered,    // one each, and a frame is where it belongs
};

struct DividedOptions {
  std::uint64_t seed = 1;
  unsigned shards = 2;
  Queues queues = Queues::one;
  std::uint32_t skip_per_1000 = 0;  // turns that a shard does not get
  LinkOptions link;                 // both ways
  RnicOptions device, peer;         // addresses: if none, those of sim/addresses.hpp
};

class DividedWorld {
 public:
  explicit DividedWorld(const DividedOptions& options);
  ~DividedWorld();
  DividedWorld(const DividedWorld&) = delete;

  // The application's part of each step.
  std::function<void()> application;

  // As BasicWorld's.
  bool step(Instant not_beyond = kNever);
  bool run_until(const std::function<bool()>& done, Duration limit = seconds(300));
  void run_for(Duration time);
  // Before its application does something with a shard: a doorbell, control.
  void wake(Rnic& shard);
  // Of the divided device's port, which its shards look at now and then.
  void set_link_up(bool up);
  const wire::IpAddress& address() const { return options_.device.address; }
  const wire::IpAddress& peer_address() const { return options_.peer.address; }
  // Frames that went from one shard to another are none of these.
  std::uint64_t frames_lost() const;
  // All that its shards have is gone; whether each pool has every buffer again.
  bool ends_with_all_buffers();

  Clock clock;
  Link to_peer, from_peer;
  std::unique_ptr<Rnic> peer;
  std::vector<std::unique_ptr<Rnic>> shards;
  std::string complaint;  // of what is wrong whatever the test is about

 private:
  class Queue;
  struct Sleep {
    bool armed = false;
    bool dozes = false;  // it has a descriptor, which is to wake it
  };

  std::vector<std::unique_ptr<port::Port>> make_queues();
  void take_in();
  void adopt();
  bool is_woken(std::size_t shard);
  void turn(std::size_t shard);
  bool rests(std::size_t shard);
  void check_sleep(std::size_t shard);

  DividedOptions options_;
  Random random_;
  Link nowhere_{{}, 1};
  SimPort* only_queue_ = nullptr;
  std::vector<Queue*> queues_;
  std::unique_ptr<port::SteeredPorts> ports_;
  std::vector<Sleep> sleeps_;
  std::vector<std::uint32_t> buffers_;  // of each shard's pool, before it was used
  std::vector<std::size_t> order_;
  unsigned network_changes_ = 0;
  Instant tended_{0}, restless_until_{0};
};

}  // namespace rnic::sim
