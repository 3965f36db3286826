// The control thread's loop: epoll, and a function for each descriptor.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

namespace rnic::control {

class Loop {
 public:
  using Handler = std::function<void(std::uint32_t events)>;
  // Names a descriptor that is watched; never given twice, so that an event that was fetched
  // before its descriptor was closed finds nobody, and not the next owner of the number.
  using Watch = std::uint64_t;
  static constexpr Watch kNone = 0;

  Loop();
  ~Loop();

  // kNone where epoll refuses. A handler may remove any watch, its own too.
  Watch add(int fd, std::uint32_t events, Handler handler);
  void change(Watch watch, std::uint32_t events);
  // Before the descriptor is closed. kNone is nothing to remove.
  void remove(Watch watch);

  void run();  // until stop()
  void stop() { stopping_ = true; }
  // One wait and what it brought. False: nothing came in time.
  bool turn(int timeout_ms);

  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

 private:
  struct Entry {
    int fd = -1;
    Handler handler;
  };
  int epoll_fd_ = -1;
  Watch next_ = 1;
  bool stopping_ = false;
  std::unordered_map<Watch, std::shared_ptr<Entry>> entries_;
};

}  // namespace rnic::control
