#include "kit/relay.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdlib>

namespace rnic::test {
namespace {

using control::Descriptor;

std::vector<Descriptor> owned(rnic_fds& fds) {
  std::vector<Descriptor> all;
  for (int fd; (fd = rnic_fds_take(&fds)) >= 0;) all.emplace_back(fd);
  return all;
}

std::vector<int> borrowed(const std::vector<Descriptor>& fds) {
  std::vector<int> all;
  for (const Descriptor& fd : fds) all.push_back(fd.get());
  return all;
}

// As it is, whatever its header says: rnic_say() sends nothing that is malformed.
bool send_as_it_is(int socket, const Passing& reply) {
  iovec parts[2] = {{const_cast<rnic_msg*>(&reply.header), sizeof reply.header},
                    {const_cast<std::byte*>(reply.body.data()), reply.body.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * RNIC_FDS_MAX)] = {};
  const std::vector<int> fds = borrowed(reply.fds);
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(rights), fds.data(), sizeof(int) * fds.size());
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL) >= 0;
}

}  // namespace

Relay::Relay(Upstream upstream) : upstream_(std::move(upstream)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  thread_ = std::thread([this] { serve(); });
}

Relay::~Relay() {
  {
    const std::lock_guard guard(mutex_);
    stopping_ = true;
  }
  wake();
  thread_.join();
  cut();
}

void Relay::wake() const {
  const std::uint64_t one = 1;
  if (write(wake_.get(), &one, sizeof one) != sizeof one) abort();
}

// ---- clients -------------------------------------------------------------------------------------

void Relay::add(Descriptor client, const control::Peer& peer) {
  Descriptor server = upstream_(peer);
  const std::lock_guard guard(mutex_);
  const std::uint64_t number = next_connection_++;
  connections_[number] = {number, std::move(client), std::move(server), false, {}};
}

int Relay::connect() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) abort();
  add(Descriptor(ends[1]), control::Peer{getpid(), getuid(), {}});
  wake();
  return ends[0];
}

void Relay::listen(const std::string& run_directory) {
  unlink((run_directory + "/control.sock").c_str());
  const Descriptor directory(open(run_directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  Descriptor listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address;
  rnic_talk_address(&address, directory.get());
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) abort();
  if (::listen(listener.get(), 16) != 0) abort();
  {
    const std::lock_guard guard(mutex_);
    listener_ = std::move(listener);
  }
  wake();
}

void Relay::end_listening() {
  {
    const std::lock_guard guard(mutex_);
    listener_.reset();
  }
  wake();
}

void Relay::accept_one() {
  Descriptor client;
  {
    const std::lock_guard guard(mutex_);
    if (listener_) client = Descriptor(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
  if (!client) return;
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (getsockopt(client.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) abort();
  add(std::move(client), control::Peer{credentials.pid, credentials.uid, {}});
}

void Relay::cut() {
  const std::lock_guard guard(mutex_);
  held_.clear();
  for (auto& [number, connection] : connections_) {
    if (!connection.client) continue;
    shutdown(connection.client.get(), SHUT_RDWR);  // a child of fork may have a copy
    connection.client.reset();
  }
}

int Relay::ask_for(std::uint64_t connection, std::uint32_t type, const void* request, std::size_t size) {
  std::unique_lock guard(mutex_);
  Asked asked;
  asked.type = type;
  asked.connection = connection;
  asked.by_test = true;
  const auto* octets = static_cast<const std::byte*>(request);
  asked.body.assign(octets, octets + size);
  answered_.reset();
  const rnic_msg header{type, 0, 0, static_cast<std::uint32_t>(sizeof header + size)};
  if (!forward(connections_.at(connection), header, asked, {})) return -1;
  answer_.wait(guard, [&] { return answered_.has_value(); });
  return *answered_;
}

// ---- harm ----------------------------------------------------------------------------------------

void Relay::harm(std::uint32_t type, Harm harm, unsigned times) {
  const std::lock_guard guard(mutex_);
  harms_[type] = {times, std::move(harm), nullptr, 0};
}

void Relay::hold(std::uint32_t type) {
  const std::lock_guard guard(mutex_);
  held_type_ = type;
}

void Relay::release() {
  const std::lock_guard guard(mutex_);
  held_type_ = 0;
  for (const Held& each : held_)
    if (const auto found = connections_.find(each.connection); found != connections_.end())
      forward(found->second, each.header, each.asked, each.fds);
  held_.clear();
}

std::size_t Relay::held() {
  const std::lock_guard guard(mutex_);
  return held_.size();
}

void Relay::refuse_if(std::uint32_t type, int error, unsigned times, std::function<bool(const Asked&)> which) {
  const std::lock_guard guard(mutex_);
  refusals_[type] = {times, nullptr, std::move(which), error};
}

void Relay::no_harm() {
  const std::lock_guard guard(mutex_);
  harms_.clear();
  refusals_.clear();
}

void Relay::when_server_ends(std::function<void()> look) {
  const std::lock_guard guard(mutex_);
  when_server_ends_ = std::move(look);
}

void Relay::forget() {
  const std::lock_guard guard(mutex_);
  asked_.clear();
}

// ---- what was asked ------------------------------------------------------------------------------

Asked Relay::last(std::uint32_t type) {
  const std::vector<Asked> found = all(type);
  return found.empty() ? Asked{} : found.back();
}

std::vector<Asked> Relay::all(std::uint32_t type) {
  const std::lock_guard guard(mutex_);
  std::vector<Asked> found;
  for (const Asked& each : asked_)
    if (each.type == type) found.push_back(each);
  return found;
}

// ---- messages ------------------------------------------------------------------------------------

bool Relay::forward(Connection& connection, const rnic_msg& header, const Asked& asked,
                    const std::vector<Descriptor>& fds) {
  connection.unanswered.push_back(asked);
  const std::vector<int> along = borrowed(fds);
  return rnic_say(rnic_libc_plain(), connection.server.get(), 0, &header, asked.body.data(), along.data(),
                  static_cast<unsigned>(along.size())) == 0;
}

// False: the connection is over. Here and below, under the mutex.
bool Relay::pass_request(Connection& connection) {
  rnic_msg header{};
  Asked asked;
  rnic_fds taken;
  std::size_t size = 0;
  asked.body.resize(RNIC_MSG_MAX);
  const rnic_heard heard = rnic_hear(rnic_libc_plain(), connection.client.get(), MSG_DONTWAIT, &header,
                                     asked.body.data(), asked.body.size(), &size, &taken);
  if (heard != RNIC_HEARD_MESSAGE) return heard == RNIC_HEARD_NOTHING;
  asked.body.resize(size);
  asked.type = header.type;
  asked.connection = connection.number;
  std::vector<Descriptor> fds = owned(taken);
  asked_.push_back(asked);
  if (const auto rule = refusals_.find(header.type);
      rule != refusals_.end() && (!rule->second.which || rule->second.which(asked))) {
    Passing refusal;
    refusal.header = {header.type, header.id, rule->second.error, sizeof(rnic_msg)};
    if (rule->second.times != 0 && --rule->second.times == 0) refusals_.erase(rule);
    return send_as_it_is(connection.client.get(), refusal);
  }
  if (header.type == held_type_) {
    held_.push_back({connection.number, header, std::move(asked), std::move(fds)});
    return true;
  }
  return forward(connection, header, asked, fds);
}

bool Relay::pass_reply(Connection& connection) {
  Passing reply;
  rnic_fds taken;
  std::size_t size = 0;
  reply.body.resize(RNIC_MSG_MAX);
  const rnic_heard heard = rnic_hear(rnic_libc_plain(), connection.server.get(), MSG_DONTWAIT, &reply.header,
                                     reply.body.data(), reply.body.size(), &size, &taken);
  if (heard != RNIC_HEARD_MESSAGE) return heard == RNIC_HEARD_NOTHING;
  reply.body.resize(size);
  reply.fds = owned(taken);
  Asked asked;
  if (!connection.unanswered.empty()) {
    asked = std::move(connection.unanswered.front());
    connection.unanswered.pop_front();
  }
  if (asked.by_test) {
    answered_ = reply.header.status;
    answer_.notify_all();
    return true;
  }
  if (!connection.client) return true;
  if (const auto rule = harms_.find(asked.type); rule != harms_.end()) {
    const Harm harm = rule->second.harm;
    if (rule->second.times != 0 && --rule->second.times == 0) harms_.erase(rule);
    harm(asked, reply);
  }
  if (!reply.lost) send_as_it_is(connection.client.get(), reply);  // if it is there still
  if (reply.dies) {
    shutdown(connection.client.get(), SHUT_RDWR);
    connection.client.reset();
  }
  return !reply.ends;
}

void Relay::serve() {
  for (;;) {
    std::vector<pollfd> waits;
    std::vector<std::uint64_t> whose;
    {
      const std::lock_guard guard(mutex_);
      if (stopping_) return;
      waits.push_back({wake_.get(), POLLIN, 0});
      waits.push_back({listener_ ? listener_.get() : -1, POLLIN, 0});
      for (const auto& [number, connection] : connections_) {
        whose.push_back(number);
        const bool hears = connection.client && !connection.client_is_done;
        waits.push_back({hears ? connection.client.get() : -1, POLLIN, 0});
        waits.push_back({connection.server.get(), POLLIN, 0});
      }
    }
    if (poll(waits.data(), waits.size(), -1) <= 0) continue;
    std::uint64_t count = 0;
    if (waits[0].revents != 0 && read(wake_.get(), &count, sizeof count) != sizeof count) continue;
    if (waits[1].revents != 0) accept_one();
    const std::lock_guard guard(mutex_);
    for (std::size_t i = 0; i < whose.size(); ++i) {
      const auto found = connections_.find(whose[i]);
      if (found == connections_.end()) continue;
      Connection& connection = found->second;
      if (waits[2 + 2 * i].revents != 0 && !pass_request(connection)) {
        // What is on its way is still answered.
        connection.client_is_done = true;
        shutdown(connection.server.get(), SHUT_WR);
      }
      if (waits[3 + 2 * i].revents == 0 || pass_reply(connection)) continue;
      if (when_server_ends_) when_server_ends_();
      if (connection.client) shutdown(connection.client.get(), SHUT_RDWR);
      connections_.erase(found);
    }
  }
}

// ---- harm that every conversation has to bear ----------------------------------------------------

namespace harm {

void drop(const Asked&, Passing& reply) { reply.lost = true; }
void close(const Asked&, Passing& reply) { reply.lost = reply.ends = true; }
void wrong_id(const Asked&, Passing& reply) { ++reply.header.id; }
void wrong_type(const Asked&, Passing& reply) { ++reply.header.type; }
void cut_in_half(const Asked&, Passing& reply) {
  if (reply.body.empty()) ++reply.header.length;
  reply.body.resize(reply.body.size() / 2);
}
void cut_short(const Asked&, Passing& reply) {
  reply.body.resize(reply.body.size() - 1);
  --reply.header.length;
}
void take_descriptors(const Asked&, Passing& reply) { reply.fds.clear(); }

Relay::Harm delay(int ms) {
  return [ms](const Asked&, Passing&) { usleep(static_cast<useconds_t>(ms) * 1000); };
}
Relay::Harm status(int error) {
  return [error](const Asked&, Passing& reply) {
    reply.header.status = error;
    reply.header.length = sizeof(rnic_msg);
    reply.body.clear();
    reply.fds.clear();
  };
}

}  // namespace harm
}  // namespace rnic::test
