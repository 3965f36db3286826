// What the stand-in's tests run against: the real server in this process, with one device, behind a relay
// (kit/relay.hpp) at the run directory's socket. It can be told to say what no server would at the moment, to
// bring about events, and to die.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>

#include "kit/live_daemon.hpp"

namespace rnic::test {

class TestDaemon {
 public:
  // Makes the run directory, and sets RNIC_RUN_DIR. Serves from start() on.
  TestDaemon();
  ~TestDaemon();
  void start();
  // As by kill -9: connections end, and nobody answers any more.
  void die();

  const std::string& run_dir() const { return run_dir_; }
  unsigned address_count();
  Relay& relay() { return *live_->relay; }

  // The last request of this type; type 0 if there was none.
  Asked last(std::uint32_t type) { return relay().last(type); }
  std::size_t count(std::uint32_t type) { return relay().count(type); }

  // To LISTEN it always says yes, as tests listen on one id again and again.
  // Every request for connection management is answered with yes, whatever the server says; a query, and the
  // attributes of a queue pair, with what is given here.
  void agree();
  void agree_no_more();
  rnic_cm_query_reply query{};
  rnic_cm_init_qp_attributes_reply qp_attributes{};

  // Brings about an event of the id that `event` is of (a CONNECT_REQUEST: of its listener), and has the server tell
  // this one in its place.
  void post(std::uint32_t channel, const rnic_cm_get_event_reply& event);
  // As a daemon that knows of one event at a time.
  bool tells_one_event = false;
  // A count whose event GET_EVENT does not find, as a purge leaves it for an instant. `id`: any of the channel's.
  void post_count_only(std::uint32_t channel, std::uint32_t id);
  // The completion channel that was made last gets an event with this user pointer.
  void post_completion(std::uint64_t user_pointer);
  std::uint64_t last_completion_cookie() const { return completion_cookie_; }
  // Whether no process has the channel any more, as the server sees it.
  bool is_gone(std::uint32_t channel);

 private:
  void bring_about_event(std::uint32_t id);
  // A conversation of our own, as of the process that asks.
  rnic_talk introduce(std::uint32_t kind);

  std::string run_dir_;
  std::unique_ptr<LiveDaemon> live_;
  std::map<std::uint32_t, std::deque<rnic_cm_get_event_reply>> told_instead_, lent_instead_;  // by channel
  std::map<std::uint32_t, rnic_cm_open> tokens_;                                              // of channels
  std::uint64_t completion_cookie_ = 0;
};

// The one that the test program runs against; alive at the start of every test.
TestDaemon& daemon_at_work();

}  // namespace rnic::test
