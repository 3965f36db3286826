// An intrusive doubly linked list: no allocation, and an element can leave by itself.
// The element derives from ListLink<Tag>; one Tag for each list it can be in.
#pragma once

#include "base/assert.hpp"

namespace rnic {

template <typename Tag>
struct ListLink {
  ListLink* next = nullptr;
  ListLink* previous = nullptr;
  bool linked() const { return next != nullptr; }
  void unlink() {
    if (next == nullptr) return;
    next->previous = previous;
    previous->next = next;
    next = previous = nullptr;
  }
  ListLink() = default;
  ListLink(const ListLink&) = delete;
  ListLink& operator=(const ListLink&) = delete;
  ~ListLink() { unlink(); }
};

template <typename T, typename Tag>
class List {
 public:
  List() { head_.next = head_.previous = &head_; }
  ~List() {
    while (!empty()) head_.next->unlink();
    head_.next = head_.previous = nullptr;
  }
  List(const List&) = delete;
  List& operator=(const List&) = delete;

  bool empty() const { return head_.next == &head_; }
  T* front() { return empty() ? nullptr : static_cast<T*>(head_.next); }
  T* after(T& element) {
    auto* next = static_cast<ListLink<Tag>&>(element).next;
    return next == &head_ ? nullptr : static_cast<T*>(next);
  }
  // Does nothing if it is in the list already.
  void push_back(T& element) {
    auto& link = static_cast<ListLink<Tag>&>(element);
    if (link.linked()) return;
    link.previous = head_.previous;
    link.next = &head_;
    head_.previous->next = &link;
    head_.previous = &link;
  }
  T* pop_front() {
    T* first = front();
    if (first != nullptr) static_cast<ListLink<Tag>*>(first)->unlink();
    return first;
  }

 private:
  ListLink<Tag> head_;
};

}  // namespace rnic
