// Deadlines of many machines, earliest first: a binary heap of those that have one. A machine that
// has none costs nothing.
//
// A deadline that moves later, as a retransmission timer does with every acknowledgement, is only
// noted; the heap finds out when the old one comes due. So rearming is a store, and the earliest
// deadline told may be earlier than the true one, never later.
//
// Owned by one worker.
#pragma once

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
      heap_.push_back(&node);
      rise(static_cast<std::uint32_t>(heap_.size() - 1));
    } else if (due < node.key) {
      node.key = due;
      rise(node.position);
    }
  }

  void cancel(Node& node) {
    node.wanted = kNever;
    if (node.position != Node::kOut) take_out(node.position);
  }

  Instant earliest() const { return heap_.empty() ? kNever : heap_.front()->key; }

  // One that is due, out of the heap; until nothing.
  Node* next_due(Instant now) {
    while (!heap_.empty() && heap_.front()->key <= now) {
      Node& first = *heap_.front();
      if (first.wanted <= now) {
        take_out(0);
        return &first;
      }
      if (first.wanted == kNever) {
        take_out(0);
        continue;
      }
      first.key = first.wanted;
      sink(0);
    }
    return nullptr;
  }

  std::size_t size() const { return heap_.size(); }

 private:
  void put(std::uint32_t at, Node* node) {
    heap_[at] = node;
    node->position = at;
  }
  void rise(std::uint32_t at) {
    Node* node = heap_[at];
    while (at > 0 && node->key < heap_[(at - 1) / 2]->key) {
      put(at, heap_[(at - 1) / 2]);
      at = (at - 1) / 2;
    }
    put(at, node);
  }
  void sink(std::uint32_t at) {
    Node* node = heap_[at];
    const auto size = static_cast<std::uint32_t>(heap_.size());
    for (;;) {
      std::uint32_t child = 2 * at + 1;
      if (child >= size) break;
      if (child + 1 < size && heap_[child + 1]->key < heap_[child]->key) ++child;
      if (node->key <= heap_[child]->key) break;
      put(at, heap_[child]);
      at = child;
    }
    put(at, node);
  }
  void take_out(std::uint32_t at) {
    Node* gone = heap_[at];
    Node* last = heap_.back();
    heap_.pop_back();
    gone->position = Node::kOut;
    if (gone == last) return;
    put(at, last);
    rise(at);
    sink(last->position);
  }

  std::vector<Node*> heap_;
};

}  // namespace rnic::host
