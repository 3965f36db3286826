// A mutex that stands through fork, and a guard against cancellation.
#pragma once

#include <pthread.h>

namespace rnic::preload {

struct Mutex {
  pthread_mutex_t native = PTHREAD_MUTEX_INITIALIZER;
  void lock() { pthread_mutex_lock(&native); }
  void unlock() { pthread_mutex_unlock(&native); }
  // In a child of fork: its only thread is the one that holds nothing.
  void renew() { pthread_mutex_init(&native, nullptr); }
};

class Locked {
 public:
  explicit Locked(Mutex& mutex) : mutex_(mutex) { mutex_.lock(); }
  ~Locked() { mutex_.unlock(); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  Mutex& mutex_;
};

// A thread must not be cancelled while it holds a lock of ours or is in the middle of a request.
// Where the real device would let it be cancelled (GET_EVENT waits), Cancellable opens the door.
class NoCancel {
 public:
  NoCancel() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NoCancel() { pthread_setcancelstate(before_, nullptr); }
  NoCancel(const NoCancel&) = delete;
  NoCancel& operator=(const NoCancel&) = delete;
  int before() const { return before_; }

 private:
  int before_ = 0;
};

class Cancellable {
 public:
  explicit Cancellable(const NoCancel& outer) { pthread_setcancelstate(outer.before(), nullptr); }
  ~Cancellable() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr); }
  Cancellable(const Cancellable&) = delete;
  Cancellable& operator=(const Cancellable&) = delete;
};

}  // namespace rnic::preload
