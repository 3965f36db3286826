// The real server on a thread of its own, as in rnicd, in this process; its workers turn if they are wanted to, and
// else the test is the data plane. Clients come through a relay (kit/relay.hpp).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "control/loop.hpp"
#include "control/machine.hpp"
#include "control/server.hpp"
#include "kit/relay.hpp"

namespace rnic::test {

enum class DataPlane { turns, rests };

class LiveDaemon {
 public:
  static constexpr const char* kTwoDevices =
      "sched_fifo = false\n"
      "[[device]]\nport = \"pair:t\"\naddress = \"127.0.9.1/24\"\n"
      "[[device]]\nport = \"pair:t\"\naddress = \"127.0.9.2/24\"\n";
  // `run_directory`: where to listen, and to write the trees that stand in for /sys; empty: nowhere.
  explicit LiveDaemon(DataPlane data_plane, const std::string& toml = kTwoDevices,
                      const std::string& run_directory = {});
  ~LiveDaemon();

  // On the control thread, while nothing else is done there.
  void run(const std::function<void()>& task);

  control::Machine machine;  // in run() only
  control::Loop loop;
  std::unique_ptr<control::Server> server;
  std::unique_ptr<Relay> relay;

 private:
  control::Descriptor connect(const control::Peer& peer);

  control::Descriptor wake_;
  std::mutex mutex_;
  std::condition_variable done_;
  std::vector<const std::function<void()>*> tasks_;
  std::thread thread_;
};

}  // namespace rnic::test
