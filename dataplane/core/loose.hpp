// Queue pairs without a stream whose doorbell rang: what was posted too late is flushed, of so many of them in a turn.
//
// Owned by one worker.
#pragma once

#include "base/list.hpp"
#include "base/time.hpp"
#include "qp/queue_pair.hpp"

namespace rnic::core {

class LooseQueuePairs {
 public:
  static constexpr unsigned kTurnMax = 32;

  void add(qp::QueuePair& qp) { list_.push_back(qp); }
  // It is about to go.
  static void remove(qp::QueuePair& qp) { qp.ListLink<qp::LooseTag>::unlink(); }
  bool empty() const { return list_.empty(); }

  bool settle(Instant now) {
    return each_of_turn([&](qp::QueuePair& qp) { return qp.settle(now); });
  }
  bool transmit(Instant now) {
    return each_of_turn([&](qp::QueuePair& qp) { return qp.transmit(now, 0); });
  }
  // Those that had this turn go, or to the end; the others are next.
  void end_turn() {
    if (list_.empty()) return;
    List<qp::QueuePair, qp::LooseTag> again;
    for (unsigned left = kTurnMax; left > 0 && !list_.empty(); --left)
      if (qp::QueuePair* qp = list_.pop_front(); !qp->idle()) again.push_back(*qp);
    while (qp::QueuePair* qp = again.pop_front()) list_.push_back(*qp);
  }

 private:
  template <typename Step>
  bool each_of_turn(Step&& step) {
    bool busy = false;
    unsigned left = kTurnMax;
    for (qp::QueuePair* qp = list_.front(); qp != nullptr && left-- > 0; qp = list_.after(*qp)) busy |= step(*qp);
    return busy;
  }

  List<qp::QueuePair, qp::LooseTag> list_;
};

}  // namespace rnic::core
