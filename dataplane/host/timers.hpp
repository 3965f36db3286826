// Deadlines of many machines, earliest first: a heap of those that have one, of eight children each, in which the
// deadlines themselves stand: what ten thousand machines keep is not in any cache. A machine that has none costs
// nothing.
//
// A deadline that moves later, as a retransmission timer does with every acknowledgement, is only
// noted; the heap finds out when the old one comes due. So rearming is a store, and the earliest
// deadline told may be earlier than the true one, never later.
//
// Owned by one worker.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/assert.hpp"
#include "base/time.hpp"

namespace rnic::host {

class Timers {
 public:
  struct Node {
    static constexpr std::uint32_t kOut = 0xFFFFFFFF;
    Instant key = kNever;     // by which it stands in the heap
    Instant wanted = kNever;  // when it is really due
    std::uint32_t position = kOut;
  };

  // Before as many nodes can be scheduled: the heap never grows during a turn.
  void reserve(std::size_t nodes) {
    if (nodes > heap_.capacity()) heap_.reserve(nodes * 2);
  }

  void schedule(Node& node, Instant due) {
    node.wanted = due;
    if (node.position == Node::kOut) {
      if (due == kNever) return;
      node.key = due;
      heap_.push_back({due, &node});
      rise(static_cast<std::uint32_t>(heap_.size() - 1));
    } else if (due < node.key) {
      node.key = heap_[node.position].key = due;
      rise(node.position);
    }
  }

  void cancel(Node& node) {
    node.wanted = kNever;
    if (node.position != Node::kOut) take_out(node.position);
  }

  Instant earliest() const { return heap_.empty() ? kNever : heap_.front().key; }

  // One that is due, out of the heap; until nothing.
  Node* next_due(Instant now) {
    while (!heap_.empty() && heap_.front().key <= now) {
      Node& first = *heap_.front().node;
      if (first.wanted <= now) {
        take_out(0);
        return &first;
      }
      if (first.wanted == kNever) {
        take_out(0);
        continue;
      }
      first.key = heap_.front().key = first.wanted;
      sink(0);
    }
    return nullptr;
  }

  std::size_t size() const { return heap_.size(); }

 private:
  struct Entry {
    Instant key;
    Node* node;
  };
  static constexpr std::uint32_t kChildren = 8;

  void put(std::uint32_t at, const Entry& entry) {
    heap_[at] = entry;
    entry.node->position = at;
  }
  void rise(std::uint32_t at) {
    const Entry entry = heap_[at];
    for (std::uint32_t parent; at > 0 && entry.key < heap_[parent = (at - 1) / kChildren].key; at = parent)
      put(at, heap_[parent]);
    put(at, entry);
  }
  void sink(std::uint32_t at) {
    const Entry entry = heap_[at];
    const auto size = static_cast<std::uint32_t>(heap_.size());
    for (std::uint32_t child; (child = kChildren * at + 1) < size; at = child) {
      const std::uint32_t end = std::min(child + kChildren, size);
      for (std::uint32_t other = child + 1; other < end; ++other)
        if (heap_[other].key < heap_[child].key) child = other;
      if (entry.key <= heap_[child].key) break;
      put(at, heap_[child]);
    }
    put(at, entry);
  }
  void take_out(std::uint32_t at) {
    Node* const gone = heap_[at].node;
    const Entry last = heap_.back();
    heap_.pop_back();
    gone->position = Node::kOut;
    if (gone == last.node) return;
    put(at, last);
    rise(at);
    sink(last.node->position);
  }

  std::vector<Entry> heap_;
};

}  // namespace rnic::host
