// Event channels: opening, closing, fork, and the daemon's end.
#include "channel.hpp"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <new>

#include "libc.hpp"
#include "lock.hpp"
#include "sysfs.hpp"

namespace rnic::preload {
namespace {

struct Id {
  std::uint32_t id = 0;
  std::uint32_t reported = 0;
  std::uint64_t uid = 0;  // 0: of a connect request that is not accepted yet
  Channel* channel = nullptr;
  bool removal_due = false;
  bool is_stream = false;
  bool has_device = false;
  std::uint32_t device = 0;
  bool has_answer = false;
  rnic_cm_query_reply answer{};
  Id* next = nullptr;
};

// Of a device of the daemon that a connection is to.
struct Attributes {
  std::uint64_t epoch = 0;
  std::uint32_t device = 0;
  std::uint32_t state = 0;
  bool known = false;
  rnic_cm_init_qp_attributes_reply reply;
};

constexpr std::size_t kBuckets = 1024;

Mutex g_mutex;
Mutex g_attach_mutex;  // taken before all others
Channel* g_channels = nullptr;
Id* g_ids[kBuckets];
// Three states of eight devices; beyond that the oldest go.
Attributes g_attributes[24];
std::size_t g_next_attributes = 0;

Id** find_locked(const Channel& channel, std::uint32_t id) {
  Id** place = &g_ids[id % kBuckets];
  while (*place != nullptr && ((*place)->id != id || (*place)->channel != &channel)) {
    place = &(*place)->next;
  }
  return place;
}

Attributes* find_attributes_locked(const Channel& channel, const Id* id, std::uint32_t state) {
  if (id == nullptr || !id->has_device) return nullptr;
  for (Attributes& entry : g_attributes)
    if (entry.known && entry.epoch == channel.epoch && entry.device == id->device && entry.state == state)
      return &entry;
  return nullptr;
}

void forget_ids_locked(const Channel& channel) {
  for (Id*& bucket : g_ids) {
    Id** place = &bucket;
    while (*place != nullptr) {
      Id* const id = *place;
      if (id->channel == &channel) {
        *place = id->next;
        free(id);
      } else {
        place = &id->next;
      }
    }
  }
}

// The last descriptor in this process is closed. A child of a fork since the opening may have
// others: then the lifeline's last copy tells the daemon, and not we.
void on_channel_close(Object& object) {
  auto& channel = static_cast<Channel&>(object);
  const bool tell = channel.creator == getpid() && channel.forks_when_opened == forks_so_far();
  if (tell && !is_lost(channel)) {
    const rnic_handle request{channel.handle, 0};
    Call call{.type = RNIC_CM_CLOSE, .request = &request, .request_size = sizeof request, .epoch = channel.epoch};
    process_call(call);
  }
  close_hidden(channel.lifeline, channel.lifeline_cookie);
  channel.lifeline = -1;
  const Locked locked(g_mutex);
  forget_ids_locked(channel);
  Channel** place = &g_channels;
  while (*place != &channel) place = &(*place)->next;
  *place = channel.next;
}

void on_channel_free(Object& object) { free(&static_cast<Channel&>(object)); }

Channel* make_channel() {
  void* const memory = malloc(sizeof(Channel));
  if (memory == nullptr) return nullptr;
  auto* const channel = new (memory) Channel;
  channel->kind = Kind::cm_channel;
  channel->on_close = on_channel_close;
  channel->on_free = on_channel_free;
  return channel;
}

// The application is to see the flags that it asked for.
void set_flags(int fd, int flags) {
  if ((flags & O_CLOEXEC) == 0) libc().fcntl(fd, F_SETFD, 0);
  const int status = libc().fcntl(fd, F_GETFL);
  const int wanted = (status & ~O_NONBLOCK) | (flags & O_NONBLOCK);
  if (wanted != status) libc().fcntl(fd, F_SETFL, wanted);
}

// Each of its ids is told of it once, except requests that are not accepted yet.
void mark_lost_locked(Channel& channel) {
  if (channel.lost) return;
  channel.lost = true;
  for (Id* const bucket : g_ids) {
    for (Id* entry = bucket; entry != nullptr; entry = entry->next) {
      if (entry->channel == &channel) entry->removal_due = entry->uid != 0;
    }
  }
}

int open_at_daemon(const std::uint8_t* token, Channel& channel, rnic_fds& received) {
  rnic_cm_open_reply reply{};
  Call call{.type = RNIC_CM_OPEN,
            .request = token,
            .request_size = token == nullptr ? 0 : sizeof channel.token,
            .reply = &reply,
            .reply_room = sizeof reply,
            .received = &received};
  const int error = process_call(call);
  if (error != 0) return error;
  const Locked locked(g_mutex);
  channel.handle = reply.channel;
  memcpy(channel.token, reply.token, sizeof channel.token);
  channel.epoch = call.epoch;
  channel.pid = getpid();
  return 0;
}

}  // namespace

int open_channel(int flags) {
  Channel* const channel = make_channel();
  if (channel == nullptr) {
    errno = ENOMEM;
    return -1;
  }
  rnic_fds received{};
  int error = open_at_daemon(nullptr, *channel, received);
  if (error == 0 && received.count < 1) error = EMFILE;  // RLIMIT_NOFILE
  if (error != 0) {
    if (error < 0) complain_of_no_daemon();
    rnic_fds_close(&libc().for_abi, &received);
    free(channel);
    errno = error < 0 ? ENOENT : error;
    return -1;
  }
  const int fd = rnic_fds_take(&received);
  set_flags(fd, flags);
  channel->cookie = socket_cookie(fd);
  channel->creator = getpid();
  channel->forks_when_opened = forks_so_far();
  channel->number = find_node("/dev/infiniband/rdma_cm").number;
  if (received.count > 1) {
    channel->lifeline = hide_descriptor(rnic_fds_take(&received));
    channel->lifeline_cookie = socket_cookie(channel->lifeline);
  }
  rnic_fds_close(&libc().for_abi, &received);
  {
    const Locked locked(g_mutex);
    channel->next = g_channels;
    g_channels = channel;
  }
  if (!add_descriptor(fd, *channel)) {
    libc().close(fd);
    on_channel_close(*channel);
    free(channel);
    errno = EMFILE;
    return -1;
  }
  watch_connection(channel->epoch);
  return fd;
}

int make_ready(Channel& channel) {
  const Locked one_at_a_time(g_attach_mutex);
  {
    const Locked locked(g_mutex);
    if (channel.lost) return EIO;
    if (channel.pid == getpid()) return 0;
  }
  // Descriptors of an attachment are copies of those that fork gave us.
  rnic_fds received{};
  if (open_at_daemon(channel.token, channel, received) != 0) {
    const Locked locked(g_mutex);
    channel.lost = true;
    return EIO;
  }
  rnic_fds_close(&libc().for_abi, &received);
  watch_connection(channel.epoch);
  return 0;
}

int channel_call(Channel& channel, Call& call) {
  call.epoch = channel.epoch;
  const int error = process_call(call);
  if (error == kDisconnected) {
    on_connection_lost(channel.epoch);
    return EIO;
  }
  return error;
}

namespace {

std::atomic<unsigned> g_forking{0};  // threads that are

// Nobody else comes for its events.
bool may_borrow(const Channel& channel) {
  return channel.creator == getpid() && channel.forks_when_opened == forks_so_far() && g_forking.load() == 0;
}

int ask_for_events(Channel& channel) {
  const rnic_handle request{channel.handle, may_borrow(channel) ? RNIC_CM_TOLD_MAX : 1};
  channel.lent[0].about = {};
  Call call{.type = RNIC_CM_GET_EVENT,
            .request = &request,
            .request_size = sizeof request,
            .reply = channel.lent,
            .reply_room = sizeof channel.lent};
  const int error = channel_call(channel, call);
  channel.lent_first = 0;
  channel.lent_count = 0;
  if (error != 0) return error;
  const std::size_t told = call.reply_size / sizeof channel.lent[0];
  channel.lent_count = static_cast<std::uint32_t>(std::min<std::size_t>(told, request.reserved));
  // Of a daemon that knows of one at a time.
  if (call.reply_size == sizeof(rnic_cm_get_event_reply)) channel.lent_count = 1;
  return 0;
}

bool is_about(const rnic_cm_told& told, std::uint32_t id) {
  return id == 0 || told.event.id == id || (told.event.event == RNIC_CM_CONNECT_REQUEST && told.event.listener == id);
}

}  // namespace

int next_event(Channel& channel, rnic_cm_told& told) {
  const Locked locked(channel.events_mutex);
  if (channel.lent_count == 0)
    if (const int error = ask_for_events(channel); error != 0) return error;
  if (channel.lent_count == 0) return EAGAIN;
  told = channel.lent[channel.lent_first++];
  --channel.lent_count;
  return 0;
}

NothingLent::NothingLent(Channel& channel, std::uint32_t id) : locked_(channel.events_mutex) {
  const rnic_cm_told* const first = channel.lent + channel.lent_first;
  if (std::none_of(first, first + channel.lent_count, [&](const rnic_cm_told& told) { return is_about(told, id); }))
    return;
  const rnic_handle request{channel.handle, RNIC_CM_GIVE_BACK | channel.lent_count};
  Call call{.type = RNIC_CM_GET_EVENT, .request = &request, .request_size = sizeof request};
  // Whatever the answer: what goes is not told of any more.
  channel_call(channel, call);
  channel.lent_count = 0;
}

void end_lending() {
  ++g_forking;
  for (;;) {
    int fd = -1;
    const Channel* unsettled = nullptr;
    {
      const Locked locked(g_mutex);
      Channel* channel = g_channels;
      const std::uint64_t next_fork = forks_so_far() + 1;
      while (channel != nullptr && (channel->creator != getpid() || channel->settled_before_fork == next_fork))
        channel = channel->next;
      if (channel == nullptr) return;
      channel->settled_before_fork = next_fork;
      fd = channel->any_fd;
      unsettled = channel;
    }
    Object* const object = hold(fd);
    if (object == nullptr) continue;
    if (object == unsettled) NothingLent nothing_lent(static_cast<Channel&>(*object), 0);
    release(*object);
  }
}

void allow_lending() { --g_forking; }

void note_id(Channel& channel, std::uint32_t id, std::uint64_t uid, bool is_stream) {
  void* const memory = malloc(sizeof(Id));
  if (memory == nullptr) return;  // its removal will not be told; nothing else depends on it
  auto* const entry = new (memory) Id;
  entry->id = id;
  entry->uid = uid;
  entry->channel = &channel;
  entry->is_stream = is_stream;
  const Locked locked(g_mutex);
  // The daemon may have died between its answer and this.
  entry->removal_due = channel.lost && uid != 0;
  entry->next = g_ids[id % kBuckets];
  g_ids[id % kBuckets] = entry;
}

void note_uid(Channel& channel, std::uint32_t id, std::uint64_t uid) {
  const Locked locked(g_mutex);
  if (Id* const entry = *find_locked(channel, id)) entry->uid = uid;
}

void note_report(Channel& channel, std::uint32_t id) {
  const Locked locked(g_mutex);
  if (Id* const entry = *find_locked(channel, id)) ++entry->reported;
}

void note_answer(Channel& channel, std::uint32_t id, const rnic_cm_query_reply& answer) {
  const Locked locked(g_mutex);
  Id* const entry = *find_locked(channel, id);
  if (entry == nullptr) return;
  entry->has_answer = answer.node_guid != 0;
  entry->answer = answer;
}

void forget_answer(Channel& channel, std::uint32_t id) {
  {
    const Locked locked(channel.events_mutex);
    for (std::uint32_t i = 0; i < channel.lent_count; ++i)
      if (rnic_cm_told& told = channel.lent[channel.lent_first + i]; told.event.id == id) told.about = {};
  }
  const Locked locked(g_mutex);
  if (Id* const entry = *find_locked(channel, id)) entry->has_answer = false;
}

bool take_answer(Channel& channel, std::uint32_t id, rnic_cm_query_reply& answer) {
  const Locked locked(g_mutex);
  Id* const entry = *find_locked(channel, id);
  if (entry == nullptr || !entry->has_answer) return false;
  entry->has_answer = false;
  answer = entry->answer;
  return true;
}

void move_id(std::uint32_t id, Channel& from, Channel& to) {
  const Locked locked(g_mutex);
  if (Id* const entry = *find_locked(from, id)) entry->channel = &to;
}

std::uint32_t drop_id(Channel& channel, std::uint32_t id) {
  const Locked locked(g_mutex);
  Id** const place = find_locked(channel, id);
  Id* const entry = *place;
  if (entry == nullptr) return 0;
  *place = entry->next;
  const std::uint32_t reported = entry->reported;
  free(entry);
  return reported;
}

void note_device(Channel& channel, std::uint32_t id, std::uint32_t device) {
  const Locked locked(g_mutex);
  Id* const entry = *find_locked(channel, id);
  if (entry == nullptr || !entry->is_stream) return;
  entry->has_device = true;
  entry->device = device;
}

void forget_device(Channel& channel, std::uint32_t id) {
  forget_answer(channel, id);
  const Locked locked(g_mutex);
  if (Id* const entry = *find_locked(channel, id)) entry->has_device = false;
}

void note_attributes(Channel& channel, std::uint32_t id, std::uint32_t state,
                     const rnic_cm_init_qp_attributes_reply& reply) {
  const Locked locked(g_mutex);
  const Id* const entry = *find_locked(channel, id);
  if (entry == nullptr || !entry->has_device || find_attributes_locked(channel, entry, state) != nullptr) return;
  g_attributes[g_next_attributes] = {channel.epoch, entry->device, state, true, reply};
  g_next_attributes = (g_next_attributes + 1) % (sizeof g_attributes / sizeof g_attributes[0]);
}

bool known_attributes(Channel& channel, std::uint32_t id, std::uint32_t state,
                      rnic_cm_init_qp_attributes_reply& reply) {
  const Locked locked(g_mutex);
  const Attributes* const found = find_attributes_locked(channel, *find_locked(channel, id), state);
  if (found != nullptr) reply = found->reply;
  return found != nullptr;
}

bool is_lost(Channel& channel) {
  const Locked locked(g_mutex);
  return channel.lost;
}

bool next_removal(Channel& channel, RemovalEvent& event) {
  const Locked locked(g_mutex);
  for (Id* const bucket : g_ids) {
    for (Id* entry = bucket; entry != nullptr; entry = entry->next) {
      if (entry->channel != &channel || !entry->removal_due) continue;
      entry->removal_due = false;
      ++entry->reported;
      event = {entry->id, entry->uid};
      return true;
    }
  }
  return false;
}

void on_channel_end(Channel& channel) {
  const Locked locked(g_mutex);
  mark_lost_locked(channel);
}

void on_connection_lost(std::uint64_t epoch) {
  for (;;) {
    int fd = -1;
    const Channel* lost = nullptr;
    {
      const Locked locked(g_mutex);
      Channel* channel = g_channels;
      while (channel != nullptr && (channel->lost || channel->epoch != epoch || channel->pid != getpid())) {
        channel = channel->next;
      }
      if (channel == nullptr) return;
      mark_lost_locked(*channel);
      fd = channel->any_fd;
      lost = channel;
    }
    // Wakes whoever waits, in however many threads, and stays readable as a broken device does.
    Object* const object = hold(fd);
    if (object == nullptr) continue;
    if (object == lost) shutdown(fd, SHUT_RD);
    release(*object);
  }
}

void move_lifeline(int from, int to) {
  const Locked locked(g_mutex);
  const std::uint64_t cookie = socket_cookie(to);
  for (Channel* channel = g_channels; channel != nullptr; channel = channel->next) {
    if (channel->lifeline == from && channel->lifeline_cookie == cookie) channel->lifeline = to;
  }
}

void lock_channels() { g_mutex.lock(); }
void unlock_channels() { g_mutex.unlock(); }
// In a child of fork, which has been lent nothing.
void renew_channels() {
  g_forking.store(0);
  for (Channel* channel = g_channels; channel != nullptr; channel = channel->next) {
    channel->events_mutex.renew();
    channel->lent_count = 0;
  }
  g_mutex.renew();
  g_attach_mutex.renew();
}

}  // namespace rnic::preload
