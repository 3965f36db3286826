// The place of a worker that sleeps. While it sleeps nobody is on its data, and whoever has a short task for it may act
// in its place, at once and on his own thread: to wake the worker for it would cost two changes of thread.
//
// One mutex says it all. Whoever acts holds it; the worker takes it for a moment to leave and to enter, and so waits
// for no more than one task. It inherits priority: a worker before others (SCHED_FIFO) that waits to enter lends his to
// whoever acts, who so is not kept from his core by third ones; and it is handed over, so that who acts again and again
// does not keep the worker out. Where there is no such mutex nobody acts, and all is the worker's own to do.
//
// What wakes the worker is not known here: it may enter at any moment. Behind an act that leaves it work nobody acts
// until it has been in, so that work is done before later tasks.
#pragma once

#include <pthread.h>

#include <utility>

#include "base/assert.hpp"

namespace rnic::core {

// What became of a task in a worker's place.
enum class Acted : unsigned char {
  not_now,      // it was not begun: the worker is wanted before it
  wholly,       // nothing is left to do
  leaves_work,  // the worker is to be woken
};

class VacantPlace {
 public:
  VacantPlace() {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    lends_ = pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT) == 0 &&
             pthread_mutex_init(&mutex_, &attributes) == 0;
    pthread_mutexattr_destroy(&attributes);
  }
  ~VacantPlace() {
    if (lends_) pthread_mutex_destroy(&mutex_);
  }
  VacantPlace(const VacantPlace&) = delete;
  VacantPlace& operator=(const VacantPlace&) = delete;

  // ---- the worker's ----
  // It does nothing until it enters again. At the beginning it is in.
  void leave() { set_vacant(true); }
  void enter() { set_vacant(false); }

  // ---- everybody else's ----
  // What act() says that became of it, while the worker was kept out; not_now where it is in.
  template <typename Act>
  Acted act(Act&& act) {
    if (!lends_) return Acted::not_now;
    const Held held(mutex_);
    if (!vacant_) return Acted::not_now;
    const Acted acted = std::forward<Act>(act)();
    if (acted == Acted::leaves_work) vacant_ = false;
    return acted;
  }

 private:
  class Held {
   public:
    explicit Held(pthread_mutex_t& mutex) : mutex_(mutex) { RNIC_ASSERT(pthread_mutex_lock(&mutex_) == 0); }
    ~Held() { pthread_mutex_unlock(&mutex_); }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;

   private:
    pthread_mutex_t& mutex_;
  };
  void set_vacant(bool vacant) {
    if (!lends_) return;
    const Held held(mutex_);
    vacant_ = vacant;
  }

  pthread_mutex_t mutex_;
  bool lends_ = false;
  bool vacant_ = false;
};

}  // namespace rnic::core
