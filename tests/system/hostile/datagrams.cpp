// Datagrams without end: to a queue pair that takes none, to a group of as many queue pairs as one process may have,
// and to oneself.
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "base/chance.hpp"
#include "system/hostile/hostile.hpp"

namespace rnic::hostile {
namespace {

constexpr std::uint32_t kSenders = 16, kDepth = 256, kReceives = 16, kReceivers = 64;
constexpr std::size_t kMessageMax = 4096;

class Flood : Bench {
 public:
  // `receivers`: of the group's queue pairs so many take what comes.
  Flood(const std::string& socket, std::uint64_t seed, std::uint32_t receivers)
      : Bench(socket, 32'768, RNIC_FACE_ROCE),
        memory_(app.region(pd, bare::private_memory(2 * kMessageMax), 2 * kMessageMax, bare::kAllAccess)),
        chance_(seed),
        receivers_(receivers),
        silent_(make(1)),
        own_(address(bare::address_of(app.device()), silent_.number)) {
    for (std::uint32_t i = 0; i < kSenders; ++i) senders_.push_back(make(kDepth));
  }

  // Of the group that all datagrams go to: attached until it is refused.
  std::string fill_group() {
    for (;;) {
      bare::Answer made = app.try_datagram_pair(pd, cq.handle, kReceives);
      if (!made.good()) return made.words();
      const bare::QueuePair member = app.adopt(std::move(made));
      app.to_rts(member.number, kQkey);
      const bare::Answer attached = app.attach(member.number, bare::group_at(1, 1));
      if (!attached.good()) return attached.words();
      members_.push_back(member);
    }
  }
  std::size_t members() const { return members_.size(); }

  enum class To { silent, group, itself };
  // As much as the queues take, for so long; how many were taken.
  std::uint64_t send(To to, Seconds seconds) {
    const std::uint64_t before = taken();
    for (const Seconds start = now(); now() - start < seconds;) {
      for (bare::QueuePair& qp : senders_) {
        rnic_ud_address address = own_;
        if (to == To::group) address = this->address(bare::group_at(1, 1), 0xFFFFFF);
        if (to == To::itself) address.qp_number = qp.number;
        fill(qp, address);
        if (to == To::itself) receive(qp);
      }
      // Each Receive of a member is one more copy.
      if (to == To::group)
        for (std::size_t i = 0; i < std::min<std::size_t>(receivers_, members_.size()); ++i) receive(members_[i]);
      while (cq.poll()) ++completions_;
      sched_yield();
    }
    return taken() - before;
  }
  std::uint64_t completions() const { return completions_; }

 private:
  bare::QueuePair make(std::uint32_t depth) {
    const bare::QueuePair qp = app.adopt(app.try_datagram_pair(pd, cq.handle, depth));
    app.to_rts(qp.number, kQkey);
    return qp;
  }
  static rnic_ud_address address(const rnic_address& of, std::uint32_t qp_number) {
    rnic_ud_address to{};
    std::memcpy(to.gid, bare::gid_of(of).data(), sizeof to.gid);
    to.qp_number = qp_number;
    to.q_key = kQkey;
    return to;
  }
  static std::uint32_t taken_of(const bare::WorkQueue& queue) {
    return std::atomic_ref(queue.control->taken).load(std::memory_order_relaxed);
  }
  std::uint64_t taken() const {
    std::uint64_t sum = 0;
    for (const bare::QueuePair& qp : senders_) sum += taken_of(qp.send);
    return sum;
  }
  // As many as go: most are short, and some as long as there are.
  void fill(bare::QueuePair& qp, const rnic_ud_address& to) {
    if (qp.send.produced - taken_of(qp.send) > qp.send.size / 2) return;
    rnic_sqe entry{};
    entry.opcode = RNIC_OP_SEND;
    entry.sge_count = 1;
    while (qp.send.produced - taken_of(qp.send) < qp.send.size) {
      const bool longest = chance_.below(8) == 0;
      const auto length = longest ? message_max() : static_cast<std::uint32_t>(chance_.below(512));
      const std::array<rnic_sge, 1> from{memory_.sge(0, length)};
      app.write_datagram(qp, entry, to, from);
    }
    app.publish(qp.send);
  }
  void receive(bare::QueuePair& qp) {
    while (qp.receive.produced - taken_of(qp.receive) < std::min(qp.receive.size, kReceives))
      app.post_receive(qp, memory_.sge(0, 2 * kMessageMax));
  }
  std::uint32_t message_max() const {
    return std::min<std::uint32_t>(app.opened.attributes.mtu, static_cast<std::uint32_t>(kMessageMax));
  }

  bare::Region memory_;
  Chance chance_;
  std::uint32_t receivers_;
  bare::QueuePair silent_;
  rnic_ud_address own_;
  std::vector<bare::QueuePair> senders_, members_;
  std::uint64_t completions_ = 0;
};

}  // namespace

int datagrams(const Options& options) {
  Flood flood(options.socket, options.seed, options.count != 0 ? options.count : kReceivers);
  const std::string why = flood.fill_group();
  attacking();
  const std::uint64_t silent = flood.send(Flood::To::silent, options.seconds / 3);
  const std::uint64_t group = flood.send(Flood::To::group, options.seconds / 3);
  const std::uint64_t itself = flood.send(Flood::To::itself, options.seconds / 3);
  say(std::to_string(silent) + " datagrams to one that takes none, " + std::to_string(group) + " to a group of " +
      std::to_string(flood.members()) + " (" + why + "), " + std::to_string(itself) + " to oneself, " +
      std::to_string(flood.completions()) + " received");
  if (silent == 0 || group == 0 || itself == 0 || flood.completions() == 0) return 1;
  return 0;
}

}  // namespace rnic::hostile
