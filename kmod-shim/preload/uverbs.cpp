// /dev/infiniband/uverbsN is a connection to the daemon, which libibverbs hands to the provider.
// Of the commands of <rdma/ib_user_verbs.h>, libibverbs issues one that a provider cannot take
// over: CREATE_COMP_CHANNEL, by write(). Its ioctls fail on a socket with ENOTTY, by which it
// knows to use write().
#include "uverbs.hpp"

#include <errno.h>
#include <fcntl.h>
#include <rdma/ib_user_verbs.h>
#include <stdlib.h>
#include <string.h>

#include <new>

#include "client.hpp"
#include "libc.hpp"
#include "lock.hpp"

namespace rnic::preload {
namespace {

struct CompletionChannel : Object {
  std::uint32_t handle = 0;
  std::uint64_t epoch = 0;
  pid_t creator = 0;
};

void nothing(Object&) {}

void free_device(Object& object) { free(&object); }

void free_completion(Object& object) { free(&static_cast<CompletionChannel&>(object)); }

// libibverbs closes a channel once no CQ uses it. A child of fork that closes its copy has no say.
void close_completion(Object& object) {
  auto& channel = static_cast<CompletionChannel&>(object);
  if (channel.creator != getpid()) return;
  const rnic_handle request{channel.handle, 0};
  Call call{.type = RNIC_DESTROY_CHANNEL, .request = &request, .request_size = sizeof request, .epoch = channel.epoch};
  process_call(call);
}

template <class T>
T* make_object(Kind kind) {
  void* const memory = malloc(sizeof(T));
  if (memory == nullptr) return nullptr;
  T* const object = new (memory) T;
  object->kind = kind;
  return object;
}

// 0 and the descriptor of the reading end, or an errno.
int create_completion_channel(int& fd) {
  auto* const channel = make_object<CompletionChannel>(Kind::completion);
  if (channel == nullptr) return ENOMEM;
  rnic_create_channel_reply reply{};
  rnic_fds received{};
  Call call{.type = RNIC_CREATE_CHANNEL, .reply = &reply, .reply_room = sizeof reply, .received = &received};
  int error = process_call(call);
  if (error == 0 && received.count < 1) error = EMFILE;  // RLIMIT_NOFILE
  if (error != 0) {
    free(channel);
    return error < 0 ? EIO : error;
  }
  fd = rnic_fds_take(&received);
  rnic_fds_close(&libc().for_abi, &received);
  const int status = libc().fcntl(fd, F_GETFL);
  if ((status & O_NONBLOCK) != 0) libc().fcntl(fd, F_SETFL, status & ~O_NONBLOCK);
  channel->handle = reply.channel;
  channel->epoch = call.epoch;
  channel->creator = getpid();
  channel->cookie = socket_cookie(fd);
  channel->on_close = close_completion;
  channel->on_free = free_completion;
  if (add_descriptor(fd, *channel)) return 0;
  libc().close(fd);
  close_completion(*channel);
  free(channel);
  return EMFILE;
}

int fail(int error) {
  errno = error;
  return -1;
}

}  // namespace

int open_uverbs(const NodeInfo& node, int flags) {
  auto* const device = make_object<Object>(Kind::uverbs);
  if (device == nullptr) return fail(ENOMEM);
  const Connected made = connect_to_daemon(RNIC_CLIENT_VERBS, node.device);
  if (made.error != 0) {
    free(device);
    if (made.error == kNoDaemon) complain_of_no_daemon();
    return fail(made.error < 0 ? ENXIO : made.error);
  }
  if ((flags & O_CLOEXEC) == 0) libc().fcntl(made.fd, F_SETFD, 0);
  device->number = node.number;
  device->cookie = socket_cookie(made.fd);
  device->on_close = nothing;  // the connection's end tells the daemon
  device->on_free = free_device;
  if (add_descriptor(made.fd, *device)) return made.fd;
  libc().close(made.fd);
  free(device);
  return fail(EMFILE);
}

ssize_t write_uverbs(const void* data, std::size_t size) {
  const NoCancel no_cancel;
  ib_uverbs_cmd_hdr header{};
  if (size < sizeof header) return fail(EINVAL);
  memcpy(&header, data, sizeof header);
  if (header.in_words * 4u != size) return fail(EINVAL);
  if (header.command != IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL) return fail(EOPNOTSUPP);

  ib_uverbs_create_comp_channel command{};
  if (size < sizeof header + sizeof command) return fail(EINVAL);
  ib_uverbs_create_comp_channel_resp response{};
  if (header.out_words * 4u < sizeof response) return fail(ENOSPC);
  memcpy(&command, static_cast<const char*>(data) + sizeof header, sizeof command);
  int fd = -1;
  const int error = create_completion_channel(fd);
  if (error != 0) return fail(error);
  response.fd = static_cast<std::uint32_t>(fd);
  memcpy(reinterpret_cast<void*>(command.response), &response, sizeof response);
  return static_cast<ssize_t>(size);
}

}  // namespace rnic::preload
