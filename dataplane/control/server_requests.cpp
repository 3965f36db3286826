// What is asked of the daemon: a function for each row of abi/rnic_messages.h. Connection management: server_cm.cpp.
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <type_traits>

#include "base/assert.hpp"
#include "control/addresses.hpp"
#include "control/limits.hpp"
#include "control/rdma_netlink.hpp"
#include "control/server.hpp"
#include "control/show.hpp"
#include "core/clock.hpp"

namespace rnic::control {
namespace {

constexpr std::uint32_t kModePersonal = 1;

// As long as its row says, or it is not served.
template <typename Body>
Body body_of(const Request& request) {
  Body body{};
  if constexpr (!std::is_same_v<Body, rnic_nothing>) std::memcpy(&body, request.octets, sizeof body);
  return body;
}

// 0, or why a client of this kind does not get as far as what it asks for.
int refusal(std::uint32_t kind, const rnic_message* row) {
  if (kind == 0) return row != nullptr && row->type == RNIC_HELLO ? 0 : EPROTO;
  if (row == nullptr) return kind == RNIC_CLIENT_ADMIN ? EPERM : ENOSYS;
  if ((row->who >> kind & 1u) != 0) return 0;
  return kind == RNIC_CLIENT_CM && row->who == RNIC_OF_VERBS && row->type != RNIC_OPEN_CONTEXT ? ENOSYS : EPERM;
}

bool needs_context(const rnic_message& row) { return row.who == RNIC_OF_VERBS && row.type != RNIC_OPEN_CONTEXT; }

// As LIST_DEVICES answers.
Reply list_of(const Machine& machine, const std::vector<ServedDevice*>& devices) {
  Reply reply;
  rnic_list_devices_reply head{};
  head.count = static_cast<std::uint32_t>(devices.size());
  reply.append(&head, sizeof head);
  for (const ServedDevice* device : devices) {
    const rnic_device_info info = machine.info(*device);
    reply.append(&info, sizeof info);
  }
  return reply;
}

// Whether something sent to it has not been read yet.
bool has_unread(int socket) {
  int octets = 0;
  return ioctl(socket, SIOCOUTQ, &octets) == 0 && octets > 0;
}

// Of any length: a memfd, and how long it is. One at a time: whoever asks without reading would have ours in flight as
// many as it likes.
template <typename Make>
Reply in_memory(int socket, const char* name, Make make) {
  if (has_unread(socket)) return Reply::error(EBUSY);
  const auto octets = make();
  Descriptor memory(memfd_create(name, MFD_CLOEXEC));
  if (!memory || write(memory.get(), octets.data(), octets.size()) != static_cast<ssize_t>(octets.size()))
    return Reply::error(ENOMEM);
  Reply reply = Reply::with(rnic_handle_reply{static_cast<std::uint32_t>(octets.size()), 0});
  reply.add(std::move(memory));
  return reply;
}

// A name in a message: at most as long as its field, closed or not.
template <std::size_t N>
std::string text_of(const char (&field)[N]) {
  return std::string(field, strnlen(field, N));
}

}  // namespace

Reply Server::serve(Session& session, Request& request) {
  const rnic_message* row = rnic_message_of(request.header.type);
  if (const int error = refusal(session.kind, row); error != 0) return Reply::error(error);
  if (needs_context(*row) && session.context == nullptr) return Reply::error(ENODEV);
  if (request.size < row->request_size) return Reply::error(EINVAL);
  if (row->who == RNIC_OF_CM) asking_ = &session;
  Reply reply = dispatch(session, request);
  asking_ = nullptr;
  RNIC_ASSERT(reply.status != 0 || reply.later || reply.body.size() >= row->reply_size);
  RNIC_ASSERT(reply.descriptors.size() <= row->fds_out);
  return reply;
}

Reply Server::dispatch(Session& session, Request& request) {
  switch (request.header.type) {
#define RNIC_DISPATCH(NAME, name, number, who, body, reply, fds_in, fds_out) \
  case RNIC_##NAME:                                                          \
    return serve_##name(session, request, body_of<body>(request));
    RNIC_MESSAGES(RNIC_DISPATCH)
#undef RNIC_DISPATCH
    default:
      return Reply::error(ENOSYS);
  }
}

// ---- sessions and administration -----------------------------------------------------------------

Reply Server::serve_hello(Session& session, Request&, const rnic_hello& body) {
  if (session.kind != 0) return Reply::error(EPROTO);
  if (body.abi_version != RNIC_ABI_VERSION) return Reply::error(EPROTONOSUPPORT);
  if (body.kind < RNIC_CLIENT_VERBS || body.kind > RNIC_CLIENT_ADMIN) return Reply::error(EINVAL);
  std::memcpy(session.peer.process.data(), body.process, sizeof body.process);
  if (session.peer.process == ProcessToken{} &&
      getrandom(session.peer.process.data(), session.peer.process.size(), 0) != sizeof body.process)
    return Reply::error(EIO);
  if (!session.share && body.kind != RNIC_CLIENT_ADMIN) return Reply::error(EMFILE);
  const std::string wanted = text_of(body.device);
  if (!wanted.empty()) {
    session.device = machine_.find_device(wanted);
    if (session.device == nullptr) return Reply::error(ENODEV);
    session.visible = DeviceSet{1} << session.device->index;
  } else {
    session.visible = (DeviceSet{1} << machine_.devices.size()) - 1;
  }
  if (body.kind == RNIC_CLIENT_VERBS) {
    Descriptor process = process_behind(session.socket.get(), session.peer.pid);
    if (!process && errno == ESRCH) return Reply::error(ESRCH);
    if (process) {
      session.process = std::make_shared<const Descriptor>(std::move(process));
      const std::uint64_t number = session.number;
      session.process_watch =
          loop_.add(session.process->get(), EPOLLIN, [this, number](std::uint32_t) { end(number); });
      if (session.process_watch == Loop::kNone) return Reply::error(errno);
    }
  }
  session.kind = body.kind;
  rnic_hello_reply reply{};
  reply.abi_version = RNIC_ABI_VERSION;
  reply.generation = machine_.generation;
  reply.daemon_pid = static_cast<std::uint32_t>(getpid());
  reply.device_count = static_cast<std::uint32_t>(machine_.devices.size());
  reply.control_mode = kModePersonal;
  return Reply::with(reply);
}

static_assert(sizeof(rnic_msg) + sizeof(rnic_list_devices_reply) + kDevicesMax * sizeof(rnic_device_info) <=
                  RNIC_MSG_MAX,
              "all devices fit one reply");

Reply Server::serve_list_devices(Session& session, Request&, const rnic_nothing&) {
  std::vector<ServedDevice*> devices;
  for (const auto& device : machine_.devices)
    if ((session.visible >> device->index & 1u) != 0) devices.push_back(device.get());
  return list_of(machine_, devices);
}

// What an administrator may see: everything that passes, of every application.
Reply Server::serve_capture(Session& session, Request&, const rnic_capture& body) {
  if (session.capture != nullptr) return Reply::error(EBUSY);
  const auto captures = std::count_if(sessions_.begin(), sessions_.end(),
                                      [](const auto& entry) { return entry.second->capture != nullptr; });
  if (captures >= static_cast<std::ptrdiff_t>(kCapturesMax)) return Reply::error(ENOSPC);
  const std::string name = text_of(body.device);
  std::vector<ServedDevice*> devices;
  for (const auto& device : machine_.devices)
    if ((session.visible >> device->index & 1u) != 0 && (name.empty() || device->name == name))
      devices.push_back(device.get());
  if (devices.empty()) return Reply::error(ENODEV);
  auto started = Capture::start(devices);
  if (!started) return Reply::error(started.error());
  session.capture = std::move(*started);
  log_.info("process " + std::to_string(session.peer.pid) + " captures " + (name.empty() ? "all devices" : name));
  Reply reply = list_of(machine_, devices);
  for (const int fd : session.capture->descriptors()) reply.add(fd);
  return reply;
}

// All there are, in the order of their making.
std::vector<Context*> Server::contexts() const {
  std::vector<Context*> contexts;
  for (const auto& [number, session] : sessions_)
    if (session->context != nullptr) contexts.push_back(session->context.get());
  std::sort(contexts.begin(), contexts.end(),
            [](const Context* a, const Context* b) { return a->number() < b->number(); });
  return contexts;
}

Reply Server::serve_show(Session& session, Request&, const rnic_show& body) {
  const std::string what = text_of(body.what);
  if (!is_shown(what)) return Reply::error(EINVAL);
  return in_memory(session.socket.get(), "rnic-show", [&] { return show_json(machine_, contexts(), cm_, what); });
}

Reply Server::serve_netlink(Session& session, Request&, const rnic_netlink& body) {
  const Bytes message(reinterpret_cast<const std::byte*>(body.octets), sizeof body.octets);
  if (body.length > message.size()) return Reply::error(EMSGSIZE);
  return in_memory(session.socket.get(), "rnic-netlink", [&] {
    return answer_netlink(machine_, contexts(), cm_, session.visible, message.first(body.length), body.port_id);
  });
}

Reply Server::serve_stop(Session& session, Request&, const rnic_nothing&) {
  log_.info("told to stop by process " + std::to_string(session.peer.pid));
  if (stop_) stop_();
  return {};
}

// For a peer that does harm, or does nothing, where its application lets it: V-SEC-19.
Reply Server::serve_kill(Session& session, Request&, const rnic_kill& body) {
  const auto local = ip_of(body.local), remote = ip_of(body.remote);
  if (!local || !remote) return Reply::error(EINVAL);
  bool found = false;
  for (const auto& device : machine_.devices) {
    if ((session.visible >> device->index & 1u) == 0) continue;
    device->on_each([&](Shard& shard, Instant now) {
      for (const core::StreamInfo& each : shard.device->streams()) {
        if (each.local != *local || each.local_port != port_of(body.local)) continue;
        if (each.remote != *remote || each.remote_port != port_of(body.remote)) continue;
        found |= shard.device->kill(each.stream, now);
      }
    });
  }
  if (!found) return Reply::error(ENOENT);
  log_.info("process " + std::to_string(session.peer.pid) + " resets " + endpoint(*local, port_of(body.local)) +
            " to " + endpoint(*remote, port_of(body.remote)));
  return {};
}

// ---- completion channels -------------------------------------------------------------------------

Reply Server::serve_create_channel(Session& session, Request&, const rnic_nothing&) {
  Share share = machine_.completion_channels.take(holder_of(session.peer));
  if (!share) return Reply::error(ENOMEM);
  // Queues that report to it may keep it.
  auto descriptor = std::make_shared<Share>(machine_.descriptors.take(holder_of(session.peer)));
  if (!*descriptor) return Reply::error(EMFILE);
  auto made = EventSocket::create(loop_);
  if (made == nullptr) return Reply::error(errno);
  std::shared_ptr<EventSocket> socket(made.release(), [descriptor](EventSocket* gone) { delete gone; });
  while (next_completion_channel_ == 0 || completion_channels_.contains(next_completion_channel_))
    ++next_completion_channel_;
  const std::uint32_t handle = next_completion_channel_++;
  Reply reply = Reply::with(rnic_create_channel_reply{handle, 0, socket->cookie()});
  reply.add(socket->take_reader());
  completion_channels_[handle] = {handle, session.peer, session.number, std::move(share), std::move(socket)};
  return reply;
}

std::shared_ptr<EventSocket> Server::find_channel(const Session& session, std::uint64_t cookie) const {
  for (const auto& [handle, known] : completion_channels_)
    if (same_process(known.owner, session.peer) && known.socket->cookie() == cookie) return known.socket;
  return nullptr;
}

// CQs that report to it keep it until they go.
Reply Server::serve_destroy_channel(Session& session, Request&, const rnic_handle& body) {
  const auto found = completion_channels_.find(body.handle);
  if (found == completion_channels_.end() || found->second.session != session.number) return Reply::error(EINVAL);
  completion_channels_.erase(found);
  return {};
}

// ---- verbs ---------------------------------------------------------------------------------------

Reply Server::serve_open_context(Session& session, Request& request, const rnic_open_context& body) {
  if (session.context != nullptr) return Reply::error(EBUSY);
  const std::string name = text_of(body.device);
  ServedDevice* device = name.empty() ? session.device : machine_.find_device(name);
  if (device == nullptr || (session.visible >> device->index & 1u) == 0) return Reply::error(ENODEV);
  auto helper = Helper::find(loop_, session.process == nullptr ? -1 : session.process->get(), session.peer.pid,
                             body.helper_tid, [this, number = session.number] { end(number); });
  if (!helper) return Reply::error(helper.error());
  auto opened = Context::open(machine_, *device, loop_, session.peer, request.take_descriptor(), session.process,
                              std::move(*helper));
  if (!opened) return Reply::error(opened.error());
  session.context = std::move(*opened);
  Reply reply;
  session.context->describe(reply);
  return reply;
}

Reply Server::serve_alloc_pd(Session& session, Request&, const rnic_nothing&) { return session.context->alloc_pd(); }

Reply Server::serve_dealloc_pd(Session& session, Request&, const rnic_handle& body) {
  return session.context->dealloc_pd(body.handle);
}

Reply Server::serve_reg_mr(Session& session, Request& request, const rnic_reg_mr& body) {
  return session.context->reg_mr(body, request.take_descriptor());
}

Reply Server::serve_rereg_mr(Session& session, Request& request, const rnic_rereg_mr& body) {
  return session.context->rereg_mr(body, request.take_descriptor());
}

Reply Server::serve_dereg_mr(Session& session, Request&, const rnic_handle& body) {
  return session.context->dereg_mr(body.handle);
}

Reply Server::serve_create_cq(Session& session, Request&, const rnic_create_cq& body) {
  std::shared_ptr<EventSocket> channel = find_channel(session, body.channel_cookie);
  if (body.channel_cookie != 0 && channel == nullptr) return Reply::error(EINVAL);  // V-CQ-03
  return session.context->create_cq(body, std::move(channel));
}

Reply Server::serve_transmit_memory(Session& session, Request&, const rnic_transmit_memory& body) {
  return session.context->transmit_memory(body);
}

Reply Server::serve_resize_cq(Session& session, Request&, const rnic_resize_cq& body) {
  return session.context->resize_cq(body);
}

Reply Server::serve_destroy_cq(Session& session, Request&, const rnic_handle& body) {
  return session.context->destroy_cq(body.handle);
}

Reply Server::serve_create_srq(Session& session, Request&, const rnic_create_srq& body) {
  return session.context->create_srq(body);
}

Reply Server::serve_modify_srq(Session& session, Request&, const rnic_modify_srq& body) {
  return session.context->modify_srq(body);
}

Reply Server::serve_query_srq(Session& session, Request&, const rnic_handle& body) {
  return session.context->query_srq(body.handle);
}

Reply Server::serve_destroy_srq(Session& session, Request&, const rnic_handle& body) {
  return session.context->destroy_srq(body.handle);
}

Reply Server::serve_create_qp(Session& session, Request&, const rnic_create_qp& body) {
  return session.context->create_qp(body);
}

Reply Server::serve_modify_qp(Session& session, Request&, const rnic_modify_qp& body) {
  const auto found = session.context->qps().find(body.qp_number);
  Reply reply = session.context->modify_qp(body);
  if (found == session.context->qps().end()) return reply;
  if (reply.status == 0)
    oob_.modified(*found->second, body);
  else if (Context::names_nobody(body))
    oob_.tell_no_route(*found->second);
  else if ((body.mask & RNIC_MODIFY_STATE) != 0 && body.state == RNIC_QP_IDLE && body.idle_name == RNIC_IDLE_RTS)
    oob_.tell_not_here(*found->second);
  return reply;
}

Reply Server::serve_query_qp(Session& session, Request&, const rnic_handle& body) {
  return session.context->query_qp(body.handle);
}

Reply Server::serve_destroy_qp(Session& session, Request&, const rnic_handle& body) {
  std::vector<std::string> lines;
  if (body.handle != 0) lines = going(*session.context, "its application's wish", body.handle);
  Reply reply = session.context->destroy_qp(body.handle);
  if (reply.status == 0 && !reply.later) oob_.gone(QpNumber{body.handle});
  if (reply.status == 0 && !reply.later)  // a window may be bound to it (V-QP-15)
    for (const std::string& line : lines) log_.debug([&] { return line; });
  return reply;
}

Reply Server::serve_check_gid(Session& session, Request&, const rnic_handle& body) {
  return Reply::error(session.context->has_gid(body.handle) ? 0 : EINVAL);
}

Reply Server::serve_attach_mcast(Session& session, Request&, const rnic_mcast& body) {
  return session.context->attach_mcast(body);
}

Reply Server::serve_detach_mcast(Session& session, Request&, const rnic_mcast& body) {
  return session.context->detach_mcast(body);
}

Reply Server::serve_alloc_mw(Session& session, Request&, const rnic_alloc_mw& body) {
  return session.context->alloc_mw(body);
}

Reply Server::serve_dealloc_mw(Session& session, Request&, const rnic_handle& body) {
  return session.context->dealloc_mw(body.handle);
}

// ---- direct verbs --------------------------------------------------------------------------------

Reply Server::serve_query_mr(Session& session, Request&, const rnic_handle& body) {
  return session.context->query_mr(Stag{body.handle});
}

Reply Server::serve_query_mw(Session& session, Request&, const rnic_handle& body) {
  return session.context->query_mw(Stag{body.handle});
}

Reply Server::serve_reg_shared_mr(Session& session, Request&, const rnic_reg_shared_mr& body) {
  return session.context->reg_shared_mr(body);
}

Reply Server::serve_alloc_stag(Session& session, Request&, const rnic_alloc_stag& body) {
  return session.context->alloc_stag(body);
}

Reply Server::serve_direct_events(Session& session, Request&, const rnic_nothing&) {
  return session.context->direct_events(loop_);
}

Reply Server::serve_stream_connect(Session& session, Request&, const rnic_stream_connect& body) {
  return session.context->stream_connect(body, cm_.streams_of(session.context->device().index));
}

Reply Server::serve_stream_listen(Session& session, Request&, const rnic_stream_listen& body) {
  return session.context->stream_listen(body, cm_.streams_of(session.context->device().index));
}

Reply Server::serve_stream_accept(Session& session, Request&, const rnic_stream_accept& body) {
  return session.context->stream_accept(body);
}

Reply Server::serve_stream_send(Session& session, Request&, const rnic_stream_send& body) {
  return session.context->stream_send(body);
}

Reply Server::serve_stream_receive(Session& session, Request&, const rnic_stream_receive& body) {
  return session.context->stream_receive(body);
}

Reply Server::serve_stream_query(Session& session, Request&, const rnic_handle& body) {
  return session.context->stream_query(body.handle);
}

Reply Server::serve_stream_close(Session& session, Request&, const rnic_handle& body) {
  return session.context->stream_close(body.handle);
}

Reply Server::serve_start_iwarp(Session& session, Request&, const rnic_start_iwarp& body) {
  return session.context->start_iwarp(body);
}

// ---- events --------------------------------------------------------------------------------------

Reply Server::serve_hold_events(Session& session, Request&, const rnic_hold_events& body) {
  std::shared_ptr<EventSocket> channel = find_channel(session, body.channel_cookie);
  for (const auto& [handle, cq] : session.context->cqs())  // it may live on by these alone
    if (cq->channel != nullptr && cq->channel->cookie() == body.channel_cookie) channel = cq->channel;
  if (body.channel_cookie != 0 && channel == nullptr) return Reply::error(EINVAL);
  return session.context->hold_events(std::move(channel));
}

Reply Server::serve_release_events(Session& session, Request&, const rnic_nothing&) {
  return session.context->release_events();
}

Reply Server::serve_not_offered(Session& session, Request&, const rnic_not_offered& body) {
  const ServedDevice& device = session.context->device();
  const bool atomics = body.extension == RNIC_EXTENSION_ATOMICS;
  if (!atomics && body.extension != RNIC_EXTENSION_IMMEDIATE) return Reply::error(EINVAL);
  if (device.queue_pairs.extensions || (session.told_not_offered & body.extension) != 0) return {};
  session.told_not_offered |= body.extension;
  std::uint64_t left_out = 0;
  if (refusals_.take(core::clock_now(), left_out))
    log_.info("process " + std::to_string(session.peer.pid) + " is refused " +
              (atomics ? "an atomic operation" : "immediate data") + " on " + device.name +
              ", which is for peers of every kind; where they are all rnics, extensions = true allows it");
  return {};
}

Reply Server::serve_map_arena(Session& session, Request&, const rnic_handle& body) {
  return session.context->map_arena(body.handle);
}

}  // namespace rnic::control
