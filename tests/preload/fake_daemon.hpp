// As much of a daemon as the stand-in can see: a run directory with the tree of one device, and
// the control socket, served by a thread. It has channels, ids and events, remembers every
// request, and can be told to refuse, to withdraw events, and to die.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "rnic_control.h"

namespace rnic::test {

struct Request {
  std::uint32_t type = 0;
  std::uint64_t connection = 0;
  std::vector<std::uint8_t> body;

  template <class T>
  T as() const {
    T value{};
    std::memcpy(&value, body.data(), body.size() < sizeof value ? body.size() : sizeof value);
    return value;
  }
};

class FakeDaemon {
 public:
  // Makes the tree, and sets RNIC_RUN_DIR. Serves from start() on.
  FakeDaemon();
  ~FakeDaemon();
  void start();
  void die();

  const std::string& run_dir() const { return run_dir_; }

  // The last request of this type; type 0 if there was none.
  Request last(std::uint32_t type);
  std::size_t count(std::uint32_t type);
  std::vector<Request> all(std::uint32_t type);

  // The next request of this type is answered with this errno.
  void refuse(std::uint32_t type, int error);

  // Requests of this type get no answer until release().
  void stall(std::uint32_t type);
  void release();
  // How many wait for that.
  std::size_t stalled();

  // An event on a channel, and one more octet for it.
  void post(std::uint32_t channel, const rnic_cm_get_event_reply& event);
  // A count without an event, as a purge leaves it for an instant.
  void post_count_only(std::uint32_t channel);
  // Every completion channel's writing end gets this user pointer.
  void post_completion(std::uint64_t user_pointer);
  // Whether every copy of the channel's lifeline is closed.
  bool lifeline_hung_up(std::uint32_t channel);
  std::uint64_t last_completion_cookie();

  // What some requests are answered with.
  rnic_cm_query_reply query{};
  rnic_cm_init_qp_attributes_reply qp_attributes{};
  rnic_device_info device{};

 private:
  struct Connection {
    int fd = -1;
    std::uint64_t number = 0;
  };
  struct Channel {
    int counter = -1;
    int lifeline = -1;
    std::deque<rnic_cm_get_event_reply> events;
  };
  struct Reply {
    std::vector<std::uint8_t> body;
    std::vector<int> fds;  // closed once they are sent
    int status = 0;
  };

  void make_tree();
  void write_file(const std::string& path, const std::string& text);
  void serve();
  bool serve_one(Connection& connection);
  bool answer(int fd, rnic_msg header, const Request& request);
  Reply reply_to(const Request& request);
  Reply open_channel(const Request& request);
  std::uint32_t purge(Channel& channel, std::uint32_t id);
  void count_up(const Channel& channel);

  std::string run_dir_;
  std::mutex mutex_;
  std::thread thread_;
  int listener_ = -1;
  int stop_ = -1;
  std::vector<Connection> connections_;
  std::vector<Request> requests_;
  std::map<std::uint32_t, int> refusals_;
  std::uint32_t stalled_type_ = 0;
  struct Stalled {
    int fd;
    rnic_msg header;
    Request request;
  };
  std::vector<Stalled> stalled_;
  std::map<std::uint32_t, Channel> channels_;
  std::map<std::uint32_t, std::uint32_t> channel_of_id_;
  std::map<std::uint32_t, std::uint32_t> reported_;
  std::vector<int> completion_writers_;
  std::uint64_t completion_cookie_ = 0;
  std::uint64_t next_connection_ = 1;
  std::uint32_t next_channel_ = 1;
  std::uint32_t next_id_ = 100;
};

// The one that the test program runs against; alive at the start of every test.
FakeDaemon& daemon_at_work();

}  // namespace rnic::test
