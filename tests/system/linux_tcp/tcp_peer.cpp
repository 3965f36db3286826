// A TCP/IP host of ours on a port of ours, with plain TCP streams on it: the end of tests/system/linux_tcp/run that
// is not the kernel's. Host and port are the daemon's; worker, MPA and what is above are left out.
//
//   tcp_peer --port af_packet:IFACE --address CIDR… [--mtu N] [--window N] [--timestamps]
//            [--no-sack] [--newreno] [--time-wait-ms N] [--buffers N]
//
// Takes a command a line, and answers each with a line of JSON:
//   listen PORT [BACKLOG] PLAN…          connect ADDRESS PORT FROM PLAN…   (FROM 0: any)
//   stream ID      port PORT (its streams)      device
//   resume ID      close ID      abort ID
// PLAN: send=N  echo  unread  unchecked  close=sent|peer|never
#include <poll.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "control/configuration.hpp"
#include "kit/octet_streams.hpp"
#include "port/dpdk_runtime.hpp"
#include "port/open.hpp"

namespace {

using nlohmann::json;
using namespace rnic;

struct Peer {
  Peer(const host::Options& options, port::Port& its_port) : port(its_port), host(options, its_port, streams) {
    streams.use(host);
  }
  port::Port& port;
  test::OctetStreams streams;
  test::PlainHost host;
};

Instant clock_now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return {std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec};
}

json describe(const test::Record& record) {
  const tcp::Counters& c = record.counters;
  return {{"stream", record.stream.value},
          {"local_port", record.flow.local_port},
          {"remote_port", record.flow.remote_port},
          {"opened", record.opened},
          {"sent", record.sent_bytes},
          {"received", record.received_bytes},
          {"wrong", record.wrong_bytes},
          {"peer_closed", record.peer_closed},
          {"was_closing", record.was_closing},
          {"closed", record.closed},
          {"ended", record.ended},
          {"how", test::name(record.how)},
          {"state", tcp::name(record.state)},
          {"mss", record.mss_bytes},
          {"cwnd", record.congestion_window_bytes},
          {"in_flight", record.in_flight_bytes},
          {"rtt_us", record.rtt_us},
          {"segments_in", c.segments_in},
          {"segments_out", c.segments_out},
          {"retransmitted", c.retransmitted},
          {"timeouts", c.timeouts},
          {"fast_retransmits", c.fast_retransmits},
          {"duplicates", c.duplicates},
          {"out_of_order", c.out_of_order},
          {"out_of_window", c.out_of_window},
          {"challenge_acks", c.challenge_acks},
          {"tail_probes", c.tail_probes},
          {"window_probes", c.window_probes}};
}

json describe(Peer& peer) {
  const host::Counters& c = peer.host.counters();
  std::uint64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return {{"frames_in", c.frames_in},
          {"frames_out", c.frames_out},
          {"frames_dropped", c.frames_dropped},
          {"bad_frames", c.bad_frames},
          {"bad_checksums", c.bad_checksums},
          {"no_listener", c.no_listener},
          {"no_buffer", c.no_buffer},
          {"syns_dropped", c.syns_dropped},
          {"cookies_sent", c.cookies_sent},
          {"cookies_good", c.cookies_good},
          {"streams", peer.host.stream_count()},
          {"half_open", peer.host.half_open_count()},
          {"buffers_free", peer.port.pool().available()},
          {"resident_bytes", resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE))}};
}

test::Plan read_plan(std::istream& words) {
  test::Plan plan;
  for (std::string word; words >> word;) {
    if (word.starts_with("send="))
      plan.send_bytes = std::stoull(word.substr(5));
    else if (word == "echo")
      plan.echo = true;
    else if (word == "unread")
      plan.read = false;
    else if (word == "unchecked")
      plan.check = false;
    else if (word == "close=sent")
      plan.close = test::Plan::Close::sent;
    else if (word == "close=never")
      plan.close = test::Plan::Close::never;
    else if (word != "close=peer")
      throw std::invalid_argument("a plan has no \"" + word + "\"");
  }
  return plan;
}

host::StreamId read_stream(std::istream& words) {
  host::StreamId stream;
  words >> stream.value;
  return stream;
}

json obey(Peer& peer, std::istringstream words, Instant now) {
  std::string command;
  words >> command;
  if (command == "device") return describe(peer);
  if (command == "listen") {
    std::uint16_t port = 0;
    std::uint32_t backlog = 0;
    words >> port >> backlog;
    words.clear();
    peer.streams.plan(port, read_plan(words));
    const bool done = peer.host.listen(port, backlog);
    return {{"listening", done}};
  }
  if (command == "connect") {
    std::string address;
    host::Call call;
    words >> address >> call.remote_port >> call.local_port;
    const auto remote = wire::parse_ip(address);
    if (!remote) return {{"error", "no address"}};
    call.remote = *remote;
    const test::Plan plan = read_plan(words);
    const auto stream = peer.host.call(call, now);
    if (!stream) return {{"error", static_cast<int>(stream.error())}};
    peer.streams.plan(*stream, plan);
    return {{"stream", stream->value}};
  }
  if (command == "port") {
    std::uint16_t port = 0;
    words >> port;
    json all = json::array();
    for (const auto& [id, record] : peer.streams.records())
      if (record.flow.local_port == port) all.push_back(describe(record));
    return all;
  }
  const host::StreamId stream = read_stream(words);
  test::Record* record = peer.streams.find(stream);
  if (record == nullptr) return {{"error", "no such stream"}};
  if (command == "resume")
    record->plan.read = true;
  else if (command == "close")
    record->close_now = true;
  else if (command == "abort")
    record->abort_now = true;
  else if (command != "stream")
    return {{"error", "no such command"}};
  if (command != "stream") peer.host.wake(stream);
  return describe(*record);
}

// Sleeps until a command or a frame comes, or something is due. True: there is something to read of commands.
bool wait(Peer& peer, bool busy) {
  constexpr Duration kUnwatched = microseconds(50);  // a port that cannot wake us
  constexpr Duration kMost = milliseconds(100);
  std::array<pollfd, 2> watched{{{STDIN_FILENO, POLLIN, 0}, {peer.port.wake_descriptor(), POLLIN, 0}}};
  Duration left{0};
  const bool sleeps = !busy && peer.host.idle() && peer.port.arm();
  if (sleeps)
    left = std::clamp(peer.host.next_deadline() - clock_now(), Duration{0}, watched[1].fd < 0 ? kUnwatched : kMost);
  const timespec time{left.ns / 1'000'000'000, left.ns % 1'000'000'000};
  const int ready = ppoll(watched.data(), watched.size(), &time, nullptr);
  peer.port.disarm();
  return ready > 0 && watched[0].revents != 0;
}

// Turn after turn, and between two of them a command, if one has come.
int serve(Peer& peer) {
  port::dpdk_register_thread();
  std::cout << json{{"ready", true}} << std::endl;
  std::string unread;
  Instant tended{0};
  for (;;) {
    const Instant now = clock_now();
    const bool busy = peer.host.turn(now);
    if (now - tended > milliseconds(100)) {
      tended = now;
      peer.port.tend();
    }
    if (!wait(peer, busy)) continue;
    std::array<char, 4096> octets;
    const ssize_t count = read(STDIN_FILENO, octets.data(), octets.size());
    if (count <= 0) return 0;
    unread.append(octets.data(), static_cast<std::size_t>(count));
    for (std::size_t end; (end = unread.find('\n')) != std::string::npos; unread.erase(0, end + 1)) {
      json answer;
      try {
        answer = obey(peer, std::istringstream(unread.substr(0, end)), clock_now());
      } catch (const std::exception& wrong) {
        answer = {{"error", wrong.what()}};
      }
      std::cout << answer << std::endl;
    }
  }
}

}  // namespace

int main(int count, char** words) {
  CLI::App app{"tcp_peer: rnic's TCP with nothing on it"};
  std::string port_text;
  std::vector<std::string> addresses;
  port::PortOptions port_options;
  port_options.name = "peer";
  host::Options options;
  std::uint32_t time_wait_ms = 60'000;
  bool no_sack = false, newreno = false;
  app.add_option("--port", port_text)->required();
  app.add_option("--address", addresses)->required();
  app.add_option("--mtu", port_options.mtu_bytes);
  app.add_option("--buffers", port_options.buffers);
  app.add_option("--window", options.tcp.receive_window_bytes);
  app.add_option("--time-wait-ms", time_wait_ms);
  app.add_flag("--timestamps", options.tcp.timestamps);
  app.add_flag("--no-sack", no_sack);
  app.add_flag("--newreno", newreno);
  CLI11_PARSE(app, count, words);

  options.tcp.sack = !no_sack;
  if (newreno) options.tcp.congestion = tcp::Options::Congestion::newreno;
  options.tcp.time_wait = milliseconds(time_wait_ms);
  for (const std::string& text : addresses) {
    const auto address = control::parse_cidr(text);
    if (!address) return std::fprintf(stderr, "tcp_peer: %s is no address\n", text.c_str()), 2;
    options.addresses.push_back({address->address, address->prefix_length});
  }
  std::random_device chance;
  options.seed = std::uint64_t{chance()} << 32 | chance();

  const auto spec = port::parse_spec(port_text);
  if (!spec) return std::fprintf(stderr, "tcp_peer: %s\n", spec.error().c_str()), 2;
  port::PortFactory factory({*spec});
  std::string error;
  const auto port = factory.open(*spec, port_options, error);
  if (port == nullptr) return std::fprintf(stderr, "tcp_peer: %s\n", error.c_str()), 1;
  Peer peer(options, *port);
  return serve(peer);
}
