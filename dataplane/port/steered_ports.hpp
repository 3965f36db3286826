// One port divided among several workers: to each the frames of its shard (port/steering.hpp), wherever they came in.
//
//   shard with a queue   receives from it what is its own, and hands over what is others'
//                        sends by it, also what others hand over for that
//   shard without        is handed its frames by those that have one, and hands over to one of them what it sends
//
// Where each queue has a link of its own (PortFacts::links_apart), the first one's is the port's, and nothing goes
// while it is down; a shard whose queue has none at the time, or one for shorter frames, sends by the first, too.
//
// A handed frame is copied by who takes it, into a buffer of its own pool (port/handover_ring.hpp): each pool, each
// queue and each buffer is used by one thread. Of a frame that is for all, those who hand it over and their own caller
// hold one buffer, which is shared (BufferPool::shared()) until all have copied it.
//
// Whoever hands over to a worker that sleeps wakes it, once for a burst. One that has handed over and sleeps is not
// woken as its buffers come back, but where it has gone to sleep with an eighth of a class of them left: it looks for
// them whenever it receives or sends, and what would make it do so wakes it anyway.
//
//   sleeper: store that it sleeps, fence, look into the rings, block
//   other:   frames into a ring, fence, load whether it sleeps; if so, take that back and wake it
//
// The fences are sequentially consistent and pair with each other: either the sleeper sees the frames, or the other one
// that it sleeps.
#pragma once

#include <memory>
#include <vector>

#include "port/handover_ring.hpp"
#include "port/port.hpp"

namespace rnic::port {

class SteeredPorts {
 public:
  // `queues`: of one port, at least one and no more than `shards`, each with a receive and a transmit queue of its own;
  // a frame comes to one of them, whichever. Shard i has queue i, and the last ones may have none: such a shard sends
  // by queue i % queues, and has a pool of its own with classes and numbers as queue 0's pool has them now. With one
  // shard nothing is handed over, and of(0) does what its queue does.
  SteeredPorts(std::vector<std::unique_ptr<Port>> queues, unsigned shards);
  // No worker uses it any more, and no buffer of its pools is held by anybody else.
  ~SteeredPorts();
  SteeredPorts(const SteeredPorts&) = delete;
  SteeredPorts& operator=(const SteeredPorts&) = delete;

  unsigned shards() const { return static_cast<unsigned>(shards_.size()); }
  // Of a shard, for its worker alone but for what Port has for any thread; as long as this lives. Frames that it loses
  // are counted by it: what found its way to another shard full, what it had no buffer to copy into, and what its queue
  // did not take for others in a period of tend() or two. What it sends without a queue, and finds its way full, it
  // does not accept. A shard that nobody polls keeps what was handed to it, at most a ring from each other.
  Port& of(unsigned shard);

 private:
  class Shard;

  HandoverRing& add_ring();

  // In this order: rings give buffers back to the pools of shards and queues.
  std::vector<std::unique_ptr<Port>> queues_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<std::unique_ptr<HandoverRing>> rings_;
};

}  // namespace rnic::port
