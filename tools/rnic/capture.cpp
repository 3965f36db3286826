// rnic capture: what a running daemon's devices send and receive, to a pcapng file.
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "capture/pcapng.hpp"
#include "capture/ring_reader.hpp"
#include "client.hpp"
#include "commands.hpp"

namespace rnic::tool {
namespace {

// How long it sleeps when nothing comes: a full-speed port fills a ring in some ten of these.
constexpr int kIdleMs = 2;

void complain(const std::string& words) { std::fprintf(stderr, "rnic capture: %s\n", words.c_str()); }

std::uint64_t real_time_ns() {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(time.tv_nsec);
}

pcapng::Interface interface_of(const rnic_device_info& device, const std::string& daemon) {
  pcapng::Interface interface;
  interface.name.assign(device.name, strnlen(device.name, sizeof device.name));
  interface.description = "device of the rnic daemon \"" + daemon + "\"";
  std::copy_n(device.mac, interface.mac.size(), interface.mac.begin());
  const std::size_t count = std::min<std::size_t>(device.address_count, std::size(device.addresses));
  for (std::size_t i = 0; i < count; ++i) {
    pcapng::Interface::Address address;
    address.v6 = device.addresses[i].family == AF_INET6;
    address.prefix_length = device.prefix_lengths[i];
    std::copy_n(device.addresses[i].octets, address.octets.size(), address.octets.begin());
    interface.addresses.push_back(address);
  }
  return interface;
}

// The file; says itself what goes wrong, once.
class Output {
 public:
  ~Output() {
    if (file_ != nullptr && file_ != stdout) std::fclose(file_);
  }
  bool open(const std::string& path) {
    name_ = path == "-" ? "standard output" : path;
    file_ = path == "-" ? stdout : std::fopen(path.c_str(), "wb");
    return file_ != nullptr || fail();
  }
  bool write(const std::string& octets) {
    return std::fwrite(octets.data(), 1, octets.size(), file_) == octets.size() || fail();
  }
  bool flush() { return std::fflush(file_) == 0 || fail(); }
  const std::string& name() const { return name_; }

 private:
  bool fail() {
    if (!failed_) complain("cannot write " + name_ + ": " + std::strerror(errno));
    failed_ = true;
    return false;
  }
  std::FILE* file_ = nullptr;
  std::string name_;
  bool failed_ = false;
};

struct Captured {
  std::vector<std::unique_ptr<RingReader>> rings;
  std::uint64_t written = 0;
};

// All frames that are in the rings now, in the order of their times.
bool write_frames(Captured& captured, Output& output) {
  for (auto& ring : captured.rings) ring->look();
  for (;;) {
    std::uint32_t oldest = 0;
    const RingReader::Frame* frame = nullptr;
    for (std::uint32_t i = 0; i < captured.rings.size(); ++i) {
      const RingReader::Frame* each = captured.rings[i]->front();
      if (each == nullptr || (frame != nullptr && frame->time_ns <= each->time_ns)) continue;
      frame = each;
      oldest = i;
    }
    if (frame == nullptr) return true;
    const auto direction = frame->sent ? pcapng::Direction::sent : pcapng::Direction::received;
    if (!output.write(pcapng::packet(oldest, frame->time_ns, direction, frame->octets))) return false;
    captured.rings[oldest]->pop();
    ++captured.written;
  }
}

// What the daemon answers; the rings it gives are mapped. False: said why not.
bool start(Client& daemon, const CaptureOptions& options, Captured& captured, std::vector<rnic_device_info>& devices) {
  rnic_capture request{};
  std::strncpy(request.device, options.device.c_str(), sizeof request.device - 1);
  alignas(8) char reply[RNIC_MSG_MAX];
  std::vector<int> descriptors;
  const int status = daemon.ask(RNIC_CAPTURE, &request, sizeof request, reply, sizeof reply, descriptors);
  if (status != 0) {
    for (const int fd : descriptors) close(fd);
    if (status == ENODEV)
      complain("the daemon \"" + options.name + "\" has no device \"" + options.device +
               "\"; see: rnic show dev --name " + options.name);
    else if (status == ENOSPC)
      complain("too many captures of this daemon run already");
    else if (status == EPERM || status == ENOSYS)
      complain("the daemon \"" + options.name + "\" is of another version of rnic; restart it with this one");
    else
      complain(std::string("the daemon does not capture: ") + std::strerror(status < 0 ? -status : status));
    return false;
  }
  rnic_list_devices_reply head{};
  std::memcpy(&head, reply, sizeof head);
  std::string why;
  for (std::uint32_t i = 0; i < head.count && i < descriptors.size(); ++i) {
    rnic_device_info device;
    std::memcpy(&device, reply + sizeof head + i * sizeof device, sizeof device);
    devices.push_back(device);
    captured.rings.push_back(RingReader::map(std::exchange(descriptors[i], -1), why));
  }
  for (const int fd : descriptors)
    if (fd >= 0) close(fd);
  if (!captured.rings.empty() &&
      std::none_of(captured.rings.begin(), captured.rings.end(), [](const auto& ring) { return ring == nullptr; }))
    return true;
  complain(why.empty() ? "the daemon's answer makes no sense" : why);
  return false;
}

enum class End : std::uint8_t { asked, timed, daemon_gone, write_failed };

End run(Client& daemon, const CaptureOptions& options, int signals, Captured& captured, Output& output) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(options.seconds.value_or(1e9)));
  for (;;) {
    const std::uint64_t before = captured.written;
    if (!write_frames(captured, output)) return End::write_failed;
    // A program that reads the file while it grows sees whole blocks.
    if (captured.written != before && !output.flush()) return End::write_failed;
    if (Clock::now() >= deadline) return End::timed;
    pollfd watched[] = {{signals, POLLIN, 0}, {daemon.descriptor(), POLLIN, 0}};
    if (poll(watched, 2, captured.written != before ? 0 : kIdleMs) > 0) {
      if (watched[0].revents != 0) return End::asked;
      if (watched[1].revents != 0) return End::daemon_gone;
    }
  }
}

}  // namespace

int capture(const CaptureOptions& options) {
  if (options.seconds && !(*options.seconds > 0)) {
    complain("--seconds takes a number above 0");
    return 2;
  }
  Client daemon;
  if (!daemon.connect(options.name)) {
    complain(daemon.why());
    return 1;
  }
  std::signal(SIGPIPE, SIG_IGN);
  sigset_t ends;
  sigemptyset(&ends);
  for (const int each : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ends, each);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  const int signals = signalfd(-1, &ends, SFD_CLOEXEC);

  Captured captured;
  std::vector<rnic_device_info> devices;
  const std::uint64_t start_ns = real_time_ns();
  if (!start(daemon, options, captured, devices)) return 1;
  Output output;
  if (!output.open(options.file)) return 1;
  std::string names;
  bool good = output.write(pcapng::section_header(std::string("rnic ") + RNIC_VERSION));
  for (const rnic_device_info& device : devices) {
    const pcapng::Interface interface = interface_of(device, options.name);
    names += (names.empty() ? "" : ", ") + interface.name;
    good = good && output.write(pcapng::interface_description(interface));
  }
  if (!good || !output.flush()) return 1;
  complain("writes frames of " + names + " to " + output.name() + "; end it with Ctrl-C");

  const End end = run(daemon, options, signals, captured, output);
  if (end == End::write_failed || !write_frames(captured, output)) return 1;
  std::uint64_t dropped = 0;
  for (std::uint32_t i = 0; i < captured.rings.size(); ++i) {
    const RingReader& ring = *captured.rings[i];
    dropped += ring.dropped();
    if (ring.broken())
      complain("what the daemon captured of device " + std::to_string(i) + " makes no sense from some frame on");
    if (!output.write(pcapng::interface_statistics(i, start_ns, real_time_ns(), ring.frames(), ring.dropped())))
      return 1;
  }
  if (!output.flush()) return 1;
  if (end == End::daemon_gone) complain("the daemon has ended");
  complain(std::to_string(captured.written) + " frames written, " + std::to_string(dropped) + " lost" +
           (dropped != 0 ? " because this program did not keep up" : ""));
  return 0;
}

}  // namespace rnic::tool
