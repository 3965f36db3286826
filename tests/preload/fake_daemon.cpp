// The daemon that the stand-in's tests talk to.
#include "preload/fake_daemon.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>

namespace rnic::test {
namespace {

template <class T>
std::vector<std::uint8_t> octets_of(const T& value) {
  std::vector<std::uint8_t> octets(sizeof value);
  std::memcpy(octets.data(), &value, sizeof value);
  return octets;
}

std::uint64_t cookie_of(int fd) {
  std::uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size);
  return cookie;
}

rnic_address ipv4(std::array<std::uint8_t, 4> octets) {
  rnic_address address{};
  address.family = AF_INET;
  std::memcpy(address.octets, octets.data(), octets.size());
  return address;
}

}  // namespace

FakeDaemon::FakeDaemon() {
  char name[] = "/tmp/rnic-preload-test-XXXXXX";
  run_dir_ = mkdtemp(name);
  setenv("RNIC_RUN_DIR", run_dir_.c_str(), 1);
  unsetenv("RNIC_DEVICE");
  unsetenv("SYSFS_PATH");
  std::strcpy(device.name, "rnic0");
  std::strcpy(device.netdev, "lo");
  device.node_guid = 0x0100000000000002;
  device.address_count = 2;
  device.addresses[0] = ipv4({127, 0, 1, 1});
  device.prefix_lengths[0] = 8;
  device.addresses[1].family = AF_INET6;
  device.addresses[1].octets[0] = 0xfd;
  device.addresses[1].octets[15] = 0x07;
  device.prefix_lengths[1] = 64;
  make_tree();
}

FakeDaemon::~FakeDaemon() {
  die();
  std::filesystem::remove_all(run_dir_);
}

void FakeDaemon::write_file(const std::string& path, const std::string& text) {
  const std::filesystem::path whole = run_dir_ + "/sysfs/class/" + path;
  std::filesystem::create_directories(whole.parent_path());
  std::ofstream(whole) << text << '\n';
}

void FakeDaemon::make_tree() {
  write_file("infiniband_verbs/abi_version", "6");
  write_file("infiniband_verbs/uverbs0/ibdev", "rnic0");
  write_file("infiniband_verbs/uverbs0/dev", "231:192");
  write_file("infiniband_verbs/uverbs0/abi_version", "1");
  write_file("misc/rdma_cm/abi_version", "4");
  const std::string device_path = "infiniband/rnic0/";
  write_file(device_path + "node_type", "4: RNIC");
  write_file(device_path + "node_guid", "0200:0000:0000:0001");
  write_file(device_path + "fw_ver", "1");
  write_file(device_path + "ports/1/state", "4: ACTIVE");
  std::filesystem::create_symlink("../../../devices/pciffff:00/ffff:00:00.0",
                                  run_dir_ + "/sysfs/class/" + device_path + "device");
  write_file(device_path + "ports/1/link_layer", "Ethernet");
  write_file(device_path + "ports/1/gids/0", "0000:0000:0000:0000:0000:ffff:7f00:0101");
  write_file(device_path + "ports/1/pkeys/0", "0xffff");
  write_file(device_path + "ports/1/gid_attrs/types/0", "IB/RoCE v1");
  write_file(device_path + "ports/1/gid_attrs/ndevs/0", "lo");
}

void FakeDaemon::start() {
  if (thread_.joinable()) return;
  listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, (run_dir_ + "/control.sock").c_str());
  unlink(address.sun_path);
  if (bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) abort();
  if (listen(listener_, 16) != 0) abort();
  stop_ = eventfd(0, EFD_CLOEXEC);
  thread_ = std::thread([this] { serve(); });
}

void FakeDaemon::die() {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  if (write(stop_, &one, sizeof one) != sizeof one) abort();
  thread_.join();
  close(stop_);
  close(listener_);
  // A child of fork has copies of all this: shutdown ends them too.
  for (const Connection& connection : connections_) {
    shutdown(connection.fd, SHUT_RDWR);
    close(connection.fd);
  }
  for (const auto& [number, channel] : channels_) {
    shutdown(channel.counter, SHUT_RDWR);
    close(channel.counter);
    close(channel.lifeline);
  }
  for (const int fd : completion_writers_) close(fd);
  connections_.clear();
  channels_.clear();
  channel_of_id_.clear();
  reported_.clear();
  completion_writers_.clear();
  requests_.clear();
  refusals_.clear();
}

void FakeDaemon::serve() {
  for (;;) {
    std::vector<pollfd> entries{{stop_, POLLIN, 0}, {listener_, POLLIN, 0}};
    for (const Connection& connection : connections_) {
      entries.push_back({connection.fd, POLLIN, 0});
    }
    poll(entries.data(), entries.size(), -1);
    if (entries[0].revents != 0) return;
    const std::lock_guard guard(mutex_);
    for (std::size_t i = entries.size(); i-- > 2;) {
      if (entries[i].revents == 0 || serve_one(connections_[i - 2])) continue;
      close(connections_[i - 2].fd);
      connections_.erase(connections_.begin() + static_cast<std::ptrdiff_t>(i) - 2);
    }
    if (entries[1].revents != 0) {
      const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd >= 0) connections_.push_back({fd, next_connection_++});
    }
  }
}

bool FakeDaemon::serve_one(Connection& connection) {
  alignas(8) std::array<std::uint8_t, RNIC_MSG_MAX> octets;
  const ssize_t got = recv(connection.fd, octets.data(), octets.size(), 0);
  rnic_msg header{};
  if (got < static_cast<ssize_t>(sizeof header)) return false;
  std::memcpy(&header, octets.data(), sizeof header);
  Request request{header.type, connection.number,
                  {octets.begin() + sizeof header, octets.begin() + got}};
  requests_.push_back(request);
  if (header.type == stalled_type_) {
    stalled_.push_back({connection.fd, header, request});
    return true;
  }
  return answer(connection.fd, header, request);
}

bool FakeDaemon::answer(int fd, rnic_msg header, const Request& request) {
  Reply reply;
  if (const auto refusal = refusals_.find(header.type); refusal != refusals_.end()) {
    reply.status = refusal->second;
    refusals_.erase(refusal);
  } else {
    reply = reply_to(request);
  }
  header.status = reply.status;
  header.length = static_cast<std::uint32_t>(sizeof header + reply.body.size());
  std::array<iovec, 2> parts{{{&header, sizeof header}, {reply.body.data(), reply.body.size()}}};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * RNIC_FDS_MAX)> control{};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  if (!reply.fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(sizeof(int) * reply.fds.size());
    cmsghdr* const part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int) * reply.fds.size());
    std::memcpy(CMSG_DATA(part), reply.fds.data(), sizeof(int) * reply.fds.size());
  }
  const bool sent = sendmsg(fd, &message, MSG_NOSIGNAL) >= 0;
  for (const int passed : reply.fds) close(passed);
  return sent;
}

FakeDaemon::Reply FakeDaemon::open_channel(const Request& request) {
  rnic_cm_open_reply answer{};
  const auto attach = request.as<rnic_cm_open>();
  if (!request.body.empty()) {
    answer.channel = attach.token[0];
    std::memcpy(answer.token, attach.token, sizeof answer.token);
    return {octets_of(answer), {}, channels_.contains(answer.channel) ? 0 : ENOENT};
  }
  answer.channel = next_channel_++;
  answer.token[0] = static_cast<std::uint8_t>(answer.channel);
  Channel& channel = channels_[answer.channel];
  std::array<int, 2> events{};
  std::array<int, 2> ends{};
  socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, events.data());
  socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data());
  // Made non-blocking on purpose: what the application sees is the stand-in's to put right.
  fcntl(events[1], F_SETFL, O_NONBLOCK);
  channel.counter = events[0];
  channel.lifeline = ends[0];
  return {octets_of(answer), {events[1], ends[1]}, 0};
}

std::uint32_t FakeDaemon::purge(Channel& channel, std::uint32_t id) {
  return static_cast<std::uint32_t>(
      std::erase_if(channel.events, [&](const auto& event) { return event.id == id; }));
}

FakeDaemon::Reply FakeDaemon::reply_to(const Request& request) {
  switch (request.type) {
    case RNIC_HELLO: {
      rnic_hello_reply answer{};
      answer.abi_version = RNIC_ABI_VERSION;
      answer.device_count = 1;
      answer.control_mode = 1;
      return {octets_of(answer), {}, 0};
    }
    case RNIC_LIST_DEVICES: {
      const std::array<std::uint32_t, 2> head{1, 0};
      std::vector<std::uint8_t> body = octets_of(head);
      const std::vector<std::uint8_t> one = octets_of(device);
      body.insert(body.end(), one.begin(), one.end());
      return {body, {}, 0};
    }
    case RNIC_CREATE_CHANNEL: {
      std::array<int, 2> ends{};
      socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data());
      completion_writers_.push_back(ends[0]);
      completion_cookie_ = cookie_of(ends[1]);
      rnic_create_channel_reply answer{};
      answer.channel = static_cast<std::uint32_t>(completion_writers_.size());
      answer.cookie = completion_cookie_;
      return {octets_of(answer), {ends[1]}, 0};
    }
    case RNIC_CM_OPEN:
      return open_channel(request);
    case RNIC_CM_CLOSE:
      shutdown(channels_[request.as<rnic_handle>().handle].counter, SHUT_RDWR);
      return {};
    case RNIC_CM_CREATE_ID: {
      const auto in = request.as<rnic_cm_create_id>();
      channel_of_id_[next_id_] = in.channel;
      return {octets_of(rnic_handle_reply{next_id_++, 0}), {}, 0};
    }
    case RNIC_CM_DESTROY_ID: {
      const auto id = request.as<rnic_handle>().handle;
      if (!channel_of_id_.contains(id)) return {{}, {}, ENOENT};
      const rnic_cm_destroy_id_reply answer{reported_[id],
                                            purge(channels_[channel_of_id_[id]], id)};
      channel_of_id_.erase(id);
      return {octets_of(answer), {}, 0};
    }
    case RNIC_CM_QUERY:
      return {octets_of(query), {}, 0};
    case RNIC_CM_INIT_QP_ATTRIBUTES:
      return {octets_of(qp_attributes), {}, 0};
    case RNIC_CM_GET_EVENT: {
      const auto channel = channels_.find(request.as<rnic_handle>().handle);
      if (channel == channels_.end()) return {{}, {}, ENOENT};
      if (channel->second.events.empty()) return {{}, {}, EAGAIN};
      const rnic_cm_get_event_reply event = channel->second.events.front();
      channel->second.events.pop_front();
      const bool is_request = event.event == RNIC_CM_CONNECT_REQUEST;
      if (is_request) channel_of_id_[event.id] = channel->first;
      ++reported_[is_request ? event.listener : event.id];
      return {octets_of(event), {}, 0};
    }
    case RNIC_CM_MIGRATE_ID: {
      const auto in = request.as<rnic_cm_migrate_id>();
      const std::uint32_t old_number = channel_of_id_[in.id];
      Channel& from = channels_[old_number];
      Channel& to = channels_[in.channel];
      std::deque<rnic_cm_get_event_reply> moved;
      for (const auto& event : from.events) {
        if (event.id == in.id) moved.push_back(event);
      }
      const rnic_cm_migrate_id_reply answer{reported_[in.id], purge(from, in.id), old_number, 0};
      for (const auto& event : moved) {
        to.events.push_back(event);
        count_up(to);
      }
      channel_of_id_[in.id] = in.channel;
      return {octets_of(answer), {}, 0};
    }
    default:
      return {};
  }
}

Request FakeDaemon::last(std::uint32_t type) {
  const std::lock_guard guard(mutex_);
  for (auto request = requests_.rbegin(); request != requests_.rend(); ++request) {
    if (request->type == type) return *request;
  }
  return {};
}

std::vector<Request> FakeDaemon::all(std::uint32_t type) {
  const std::lock_guard guard(mutex_);
  std::vector<Request> found;
  for (const Request& request : requests_) {
    if (request.type == type) found.push_back(request);
  }
  return found;
}

std::size_t FakeDaemon::count(std::uint32_t type) {
  const std::lock_guard guard(mutex_);
  std::size_t number = 0;
  for (const Request& request : requests_) number += request.type == type ? 1 : 0;
  return number;
}

void FakeDaemon::refuse(std::uint32_t type, int error) {
  const std::lock_guard guard(mutex_);
  refusals_[type] = error;
}

void FakeDaemon::stall(std::uint32_t type) {
  const std::lock_guard guard(mutex_);
  stalled_type_ = type;
}

void FakeDaemon::release() {
  const std::lock_guard guard(mutex_);
  stalled_type_ = 0;
  for (const Stalled& each : stalled_) answer(each.fd, each.header, each.request);
  stalled_.clear();
}

std::size_t FakeDaemon::stalled() {
  const std::lock_guard guard(mutex_);
  return stalled_.size();
}

void FakeDaemon::count_up(const Channel& channel) {
  if (send(channel.counter, "", 1, MSG_NOSIGNAL) != 1) abort();
}

void FakeDaemon::post(std::uint32_t channel, const rnic_cm_get_event_reply& event) {
  const std::lock_guard guard(mutex_);
  channels_.at(channel).events.push_back(event);
  count_up(channels_.at(channel));
}

void FakeDaemon::post_count_only(std::uint32_t channel) {
  const std::lock_guard guard(mutex_);
  count_up(channels_.at(channel));
}

void FakeDaemon::post_completion(std::uint64_t user_pointer) {
  const std::lock_guard guard(mutex_);
  for (const int fd : completion_writers_) {
    send(fd, &user_pointer, sizeof user_pointer, MSG_NOSIGNAL);
  }
}

bool FakeDaemon::lifeline_hung_up(std::uint32_t channel) {
  const std::lock_guard guard(mutex_);
  pollfd entry{channels_.at(channel).lifeline, POLLIN, 0};
  return poll(&entry, 1, 0) == 1 && (entry.revents & POLLHUP) != 0;
}

std::uint64_t FakeDaemon::last_completion_cookie() {
  const std::lock_guard guard(mutex_);
  return completion_cookie_;
}

}  // namespace rnic::test
