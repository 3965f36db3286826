/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// The direct verbs of streams in streaming mode. Octets go by requests to the daemon: a handshake's are few.
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "direct.hpp"
#include "verbs_objects.hpp"

namespace rnic::provider::direct {

namespace {

struct Stream {
  rnicdv_stream face;  // first
  std::uint32_t handle;
  Link in_context;
};

Stream& of(rnicdv_stream* stream) { return *reinterpret_cast<Stream*>(stream); }

// False: it is none of IP's.
bool to_abi(const sockaddr* from, rnic_address& to) {
  to = {};
  if (from->sa_family == AF_INET) {
    sockaddr_in address;
    std::memcpy(&address, from, sizeof address);
    to.family = AF_INET;
    to.port = address.sin_port;
    std::memcpy(to.octets, &address.sin_addr, sizeof address.sin_addr);
    return true;
  }
  if (from->sa_family != AF_INET6) return false;
  sockaddr_in6 address;
  std::memcpy(&address, from, sizeof address);
  to.family = AF_INET6;
  to.port = address.sin6_port;
  to.scope = address.sin6_scope_id;
  std::memcpy(to.octets, &address.sin6_addr, sizeof address.sin6_addr);
  return true;
}

void to_socket(const rnic_address& from, sockaddr_storage& to) {
  if (from.family == AF_INET) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = from.port;
    std::memcpy(&address.sin_addr, from.octets, sizeof address.sin_addr);
    std::memcpy(&to, &address, sizeof address);
  } else if (from.family == AF_INET6) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = from.port;
    address.sin6_scope_id = from.scope;
    std::memcpy(&address.sin6_addr, from.octets, sizeof address.sin6_addr);
    std::memcpy(&to, &address, sizeof address);
  }
}

void forget(Stream& stream) {
  Context& context = context_of(stream.face.context);
  pthread_mutex_lock(&context.streams);
  stream.in_context.remove();
  pthread_mutex_unlock(&context.streams);
  free(&stream);
}

// `ask` has the daemon make it, and gives a status. It is in the list before: its first event may come at once.
template <typename Ask>
rnicdv_stream* make(ibv_context* ibv, void* stream_context, const Ask& ask) {
  Context& context = context_of(ibv);
  if (event_fd(ibv) < 0) return nullptr;
  auto* stream = static_cast<Stream*>(calloc(1, sizeof(Stream)));
  if (stream == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  stream->face = {ibv, stream_context};
  rnic_handle_reply reply{};
  // Another thread that is given its first event finds it with its handle.
  pthread_mutex_lock(&context.streams);
  stream->in_context.insert_after(context.stream_list, stream);
  const int error = ask(context.control, pointer_value(stream), reply);
  stream->handle = reply.handle;
  if (error != 0) stream->in_context.remove();
  pthread_mutex_unlock(&context.streams);
  if (error != 0) {
    free(stream);
    errno = error;
    return nullptr;
  }
  return &stream->face;
}

rnicdv_stream* refused(int error) {
  errno = error;
  return nullptr;
}

}  // namespace

rnicdv_stream* stream_named(Context& context, std::uint64_t element) {
  rnicdv_stream* found = nullptr;
  pthread_mutex_lock(&context.streams);
  for (Link* at = context.stream_list.next; at != &context.stream_list && found == nullptr; at = at->next)
    if (pointer_value(at->owner) == element) found = &static_cast<Stream*>(at->owner)->face;
  pthread_mutex_unlock(&context.streams);
  return found;
}

std::uint32_t handle_of(rnicdv_stream* stream) { return of(stream).handle; }
void stream_is_attached(rnicdv_stream* stream) { forget(of(stream)); }

rnicdv_stream* stream_connect(ibv_context* context, const sockaddr* local, const sockaddr* remote,
                              void* stream_context) {
  rnic_stream_connect request{};
  if (remote == nullptr || !to_abi(remote, request.remote)) return refused(EINVAL);
  if (local != nullptr && !to_abi(local, request.local)) return refused(EINVAL);
  return make(context, stream_context, [&](ControlClient& control, std::uint64_t self, rnic_handle_reply& reply) {
    request.user_pointer = self;
    return control.call(RNIC_STREAM_CONNECT, request, reply);
  });
}

rnicdv_stream* stream_listen(ibv_context* context, const sockaddr* local, std::uint32_t backlog, void* stream_context) {
  rnic_stream_listen request{};
  if (local == nullptr || !to_abi(local, request.local)) return refused(EINVAL);
  request.backlog = backlog;
  return make(context, stream_context, [&](ControlClient& control, std::uint64_t self, rnic_handle_reply& reply) {
    request.user_pointer = self;
    return control.call(RNIC_STREAM_LISTEN, request, reply);
  });
}

rnicdv_stream* stream_accept(rnicdv_stream* listener, void* stream_context) {
  return make(listener->context, stream_context,
              [&](ControlClient& control, std::uint64_t self, rnic_handle_reply& reply) {
                const rnic_stream_accept request{of(listener).handle, 0, self};
                return control.call(RNIC_STREAM_ACCEPT, request, reply);
              });
}

int stream_send(rnicdv_stream* stream, const void* octets, std::size_t length, std::size_t* sent) {
  ControlClient& control = context_of(stream->context).control;
  *sent = 0;
  for (;;) {
    rnic_stream_send request{};
    request.stream = of(stream).handle;
    request.length = static_cast<std::uint32_t>(std::min<std::size_t>(length - *sent, sizeof request.octets));
    if (request.length != 0) std::memcpy(request.octets, static_cast<const char*>(octets) + *sent, request.length);
    rnic_handle_reply reply{};
    const int error = control.call(RNIC_STREAM_SEND, request, reply);
    if (error != 0) return *sent != 0 && error == EAGAIN ? 0 : error;
    *sent += reply.handle;
    if (*sent == length || reply.handle < request.length) return 0;
  }
}

int stream_receive(rnicdv_stream* stream, void* room, std::size_t length, std::size_t* received) {
  *received = 0;
  rnic_stream_received reply;
  const rnic_stream_receive request{of(stream).handle,
                                    static_cast<std::uint32_t>(std::min<std::size_t>(length, sizeof reply.octets))};
  const int error = context_of(stream->context).control.call(RNIC_STREAM_RECEIVE, request, reply);
  if (error != 0) return error;
  const std::size_t size = std::min<std::size_t>(reply.length, request.length);
  if (size != 0) std::memcpy(room, reply.octets, size);
  *received = size;
  return 0;
}

int stream_query(rnicdv_stream* stream, rnicdv_stream_attr* attr) {
  static_assert(RNICDV_STREAM_OPENING == int{RNIC_STREAM_OPENING} && RNICDV_STREAM_OPEN == int{RNIC_STREAM_OPEN} &&
                RNICDV_STREAM_ENDED == int{RNIC_STREAM_ENDED} && RNICDV_STREAM_LISTENS == int{RNIC_STREAM_LISTENS});
  rnic_stream_query_reply reply{};
  const int error =
      context_of(stream->context).control.call(RNIC_STREAM_QUERY, rnic_handle{of(stream).handle, 0}, reply);
  if (error != 0) return error;
  *attr = {};
  attr->state = reply.state;
  attr->error = reply.error;
  attr->stream = reply.number;
  to_socket(reply.local, attr->local);
  to_socket(reply.remote, attr->remote);
  return 0;
}

int stream_close(rnicdv_stream* stream) {
  const int error = destroyed(context_of(stream->context).control.call(RNIC_STREAM_CLOSE, of(stream).handle));
  if (error == 0) forget(of(stream));
  return error;
}

}  // namespace rnic::provider::direct
