// What stands between clients and a real server: passes each message on, with its descriptors, remembers what was
// asked, and does harm where a test says so. It knows messages as rows of abi/rnic_messages.h, and what none of them
// means.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "control/context.hpp"
#include "control/descriptor.hpp"
#include "rnic_talk.h"

namespace rnic::test {

struct Asked {
  std::uint32_t type = 0;
  std::uint64_t connection = 0;
  std::vector<std::byte> body;
  bool by_test = false;

  // What is missing is 0.
  template <typename T>
  T as() const {
    T value{};
    if (!body.empty()) std::memcpy(&value, body.data(), std::min(body.size(), sizeof value));
    return value;
  }
};

// A reply on its way back.
struct Passing {
  rnic_msg header{};
  std::vector<std::byte> body;
  std::vector<control::Descriptor> fds;
  bool lost = false;  // it is not passed on
  bool ends = false;  // the connection ends behind it, or in its place where it is lost
  bool dies = false;  // so, too, as by a kill -9 of the server: which is not told

  template <typename T>
  void put(const T& value) {
    body.resize(sizeof value);
    std::memcpy(body.data(), &value, sizeof value);
    header.length = sizeof header + sizeof value;
  }
  template <typename T>
  T as() const {
    T value{};
    if (!body.empty()) std::memcpy(&value, body.data(), std::min(body.size(), sizeof value));
    return value;
  }
};

class Relay {
 public:
  // A new connection to the server, for a client of whom the kernel says this.
  using Upstream = std::function<control::Descriptor(const control::Peer&)>;
  using Harm = std::function<void(const Asked&, Passing&)>;

  explicit Relay(Upstream upstream);
  ~Relay();

  // ---- clients ----
  // One end of a new connection; the other's is served.
  int connect();
  // Serves who connects to RUN/control.sock, until end_listening().
  void listen(const std::string& run_directory);
  void end_listening();
  // Ends all connections of clients at once, as a kill -9 of the server would. The server is not told.
  void cut();

  // A request of the test's own on the connection of a client, which learns nothing of it. The reply's status.
  int ask_for(std::uint64_t connection, std::uint32_t type, const void* request, std::size_t size);

  // ---- harm ----
  // To replies of this type: to the next `times`, or to all that come (0).
  void harm(std::uint32_t type, Harm harm, unsigned times = 1);
  // Requests of this type wait until release().
  void hold(std::uint32_t type);
  void release();
  std::size_t held();
  // The next request of this type does not reach the server, and is answered with this errno.
  void refuse(std::uint32_t type, int error) { refuse_if(type, error, 1, nullptr); }
  // The same of all, or so many, that `which` is true of.
  void refuse_if(std::uint32_t type, int error, unsigned times, std::function<bool(const Asked&)> which);
  void no_harm();
  // Called each time that the server has ended a connection, before its client learns of it.
  void when_server_ends(std::function<void()> look);

  // ---- what was asked ----
  Asked last(std::uint32_t type);  // type 0: there was none
  std::vector<Asked> all(std::uint32_t type);
  std::size_t count(std::uint32_t type) { return all(type).size(); }
  void forget();

  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

 private:
  struct Connection {
    std::uint64_t number = 0;
    control::Descriptor client, server;
    bool client_is_done = false;  // it has shut down its end, or closed it
    std::deque<Asked> unanswered;
  };
  struct Held {
    std::uint64_t connection;
    rnic_msg header;
    Asked asked;
    std::vector<control::Descriptor> fds;
  };
  struct Rule {
    unsigned times = 0;  // 0: for ever
    Harm harm;
    std::function<bool(const Asked&)> which;  // of a refusal
    int error = 0;
  };

  void serve();
  void accept_one();
  void add(control::Descriptor client, const control::Peer& peer);
  bool pass_request(Connection& connection);
  bool pass_reply(Connection& connection);
  bool forward(Connection& connection, const rnic_msg& header, const Asked& asked,
               const std::vector<control::Descriptor>& fds);
  void wake() const;

  Upstream upstream_;
  control::Descriptor wake_, listener_;
  std::mutex mutex_;
  std::thread thread_;
  bool stopping_ = false;
  std::uint64_t next_connection_ = 1;
  std::map<std::uint64_t, Connection> connections_;
  std::vector<Asked> asked_;
  std::optional<int> answered_;  // to a request of the test's own
  std::condition_variable answer_;
  std::map<std::uint32_t, Rule> harms_, refusals_;
  std::function<void()> when_server_ends_;
  std::uint32_t held_type_ = 0;
  std::vector<Held> held_;
};

// Harm that every conversation has to bear.
namespace harm {
void drop(const Asked&, Passing& reply);   // no answer ever comes
void close(const Asked&, Passing& reply);  // the connection ends in its place
void wrong_id(const Asked&, Passing& reply);
void wrong_type(const Asked&, Passing& reply);
void cut_in_half(const Asked&, Passing& reply);  // shorter than its header says
void cut_short(const Asked&, Passing& reply);    // an octet less, and its header says so
void take_descriptors(const Asked&, Passing& reply);
Relay::Harm delay(int ms);
Relay::Harm status(int error);
}  // namespace harm

}  // namespace rnic::test
