// Sessions, verbs and administration. Connection management: server_cm.cpp.
#include "control/server.hpp"

#include <fcntl.h>
#include <malloc.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "control/addresses.hpp"
#include "control/journal.hpp"
#include "control/limits.hpp"
#include "control/network.hpp"
#include "control/run_directory.hpp"
#include "control/show.hpp"
#include "control/sysfs_tree.hpp"
#include "rnic_talk.h"

namespace rnic::control {
namespace {

constexpr std::uint32_t kModePersonal = 1;
// Of a session: its socket, and a pidfd.
constexpr std::uint64_t kSessionDescriptors = 2;
constexpr int kPlacesMade = 8;  // at most, for one who comes
// A context that had so many queue pairs leaves memory that is worth giving back, so long after its end.
constexpr std::size_t kTrimQps = 256;
constexpr time_t kTrimDelayS = 2;
// For one client, and what answering it takes.
constexpr std::size_t kSpareDescriptors = 4;

Instant clock_now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return {std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec};
}

CmDevice cm_device(const ServedDevice& served) {
  CmDevice device;
  device.node_guid = served.node_guid;
  for (const core::DeviceAddress& each : served.addresses()) device.addresses.push_back(each.address);
  device.routes = served.routes;
  device.scope = served.scope;
  device.mate = served.mate;
  device.ird_max = device.ord_max = kReadDepthMax;
  device.streams_max = served.device->options().streams_max;
  return device;
}

std::vector<CmDevice> cm_devices(const Machine& machine) {
  std::vector<CmDevice> devices;
  for (const auto& served : machine.devices) devices.push_back(cm_device(*served));
  return devices;
}

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

// A name in a message: at most as long as its field, closed or not.
template <std::size_t N>
std::string text_of(const char (&field)[N]) {
  return std::string(field, strnlen(field, N));
}

}  // namespace

Server::Server(Machine& machine, Loop& loop, std::uint64_t seed, Log log)
    : machine_(machine), loop_(loop), log_(std::move(log)), cm_(cm_devices(machine), *this, seed) {
  for (const auto& worker : machine_.workers)
    worker_watches_.push_back(
        loop_.add(worker->event_fd(), EPOLLIN, [this, &worker](std::uint32_t) { on_worker_news(*worker); }));
  timer_ = Descriptor(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  timer_watch_ = loop_.add(timer_.get(), EPOLLIN, [this](std::uint32_t) { end_silent(); });
  trim_timer_ = Descriptor(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  trim_watch_ = loop_.add(trim_timer_.get(), EPOLLIN, [this](std::uint32_t) {
    std::uint64_t times;
    if (read(trim_timer_.get(), &times, sizeof times) == sizeof times) malloc_trim(0);
  });
  resume_listener();
  const Shares::Tell tell = [this](Holder holder, const std::string& what) {
    std::uint64_t left_out = 0;
    if (refusals_.take(clock_now(), left_out)) log_.info("process " + std::to_string(holder) + " gets " + what);
  };
  machine_.tell_refusals(tell);
  cm_.tell_refusals_by(tell);
  page_timer_ = Descriptor(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  page_watch_ = loop_.add(page_timer_.get(), EPOLLIN, [this](std::uint32_t) { look_at_stuck(); });
  watch_closer();
}

Server::~Server() {
  end_all();
  for (const Loop::Watch watch : worker_watches_) loop_.remove(watch);
  if (listener_watch_ != Loop::kNone) loop_.remove(listener_watch_);
  if (timer_watch_ != Loop::kNone) loop_.remove(timer_watch_);
  if (trim_watch_ != Loop::kNone) loop_.remove(trim_watch_);
  machine_.tell_refusals([](Holder, const std::string&) {});
  if (page_watch_ != Loop::kNone) loop_.remove(page_watch_);
  if (closer_watch_ != Loop::kNone) loop_.remove(closer_watch_);
}

std::size_t Server::context_count() const {
  return static_cast<std::size_t>(std::count_if(sessions_.begin(), sessions_.end(), [](const auto& entry) {
    return entry.second->context != nullptr;
  }));
}

// ---- sessions ------------------------------------------------------------------------------------

std::string Server::listen() {
  listener_ = Descriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // Of a daemon that has died: the caller holds the lock of this name.
  unlink(control_socket(machine_.run_directory).c_str());
  const Descriptor directory(open(machine_.run_directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  sockaddr_un address;
  rnic_talk_address(&address, directory.get());
  if (!listener_ || bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      chmod(address.sun_path, 0600) != 0 || ::listen(listener_.get(), 128) != 0)
    return "cannot listen at " + control_socket(machine_.run_directory) + ": " + std::strerror(errno);
  listener_watch_ = loop_.add(listener_.get(), EPOLLIN, [this](std::uint32_t) { accept_clients(); });
  return {};
}

Descriptor Server::accept_client() {
  Descriptor client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (client || (errno != EMFILE && errno != ENFILE)) return client;
  // Whoever comes now is answered, if only that there is no room; nobody else is, until he has gone.
  spare_.clear();
  pause_listener();
  log_.info("there are no more descriptors, for clients or anything else");
  return Descriptor(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

void Server::accept_clients() {
  for (int i = 0; i < 16 && !listener_paused_; ++i) {
    Descriptor client = accept_client();
    if (!client) return;
    ucred credentials{};
    socklen_t size = sizeof credentials;
    if (getsockopt(client.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) continue;
    // A personal daemon serves its own user, and root. Not one who has no number here, and so the number of others.
    const Peer peer{credentials.pid, credentials.uid};
    if (peer.uid != 0 && !rnic_same_user(rnic_libc_plain(), peer.uid, geteuid())) {
      let_go(std::move(client), peer, {}, {});
      continue;
    }
    adopt(std::move(client), peer);
  }
}

void Server::pause_listener() {
  if (listener_paused_) return;
  listener_paused_ = true;
  if (listener_watch_ != Loop::kNone) loop_.change(listener_watch_, 0);
  watch_silent();
}

void Server::resume_listener() {
  while (spare_.size() < kSpareDescriptors) {
    Descriptor spare(eventfd(0, EFD_CLOEXEC));
    if (!spare) return;
    spare_.push_back(std::move(spare));
  }
  if (!listener_paused_) return;
  listener_paused_ = false;
  if (listener_watch_ != Loop::kNone) loop_.change(listener_watch_, EPOLLIN);
}

// One that has said nothing for longest goes, where all places are taken.
bool Server::make_place() {
  for (auto at = silent_.begin(); at != silent_.end(); ++at) {
    const std::uint64_t number = at->session;
    const auto found = sessions_.find(number);
    if (found == sessions_.end() || found->second->kind != 0) continue;
    if (!found->second->share) continue;  // of the few that are kept: its end makes no place
    silent_.erase(at);
    end(number);
    return true;
  }
  return false;
}

// Ends those whose time is over; the timer is set for the next.
void Server::end_silent() {
  std::uint64_t times;
  [[maybe_unused]] const auto got = read(timer_.get(), &times, sizeof times);
  const Instant now = clock_now();
  while (!silent_.empty() && silent_.front().until <= now) {
    const auto found = sessions_.find(silent_.front().session);
    silent_.pop_front();
    if (found != sessions_.end() && found->second->kind == 0) end(found->first);
  }
  if (listener_paused_) resume_listener();
  if (!silent_.empty() || listener_paused_) watch_silent();
}

void Server::watch_silent() {
  const Duration span = silent_.empty() ? patience_ : std::max(silent_.front().until - clock_now(), Duration{1});
  itimerspec when{};
  when.it_value = {span.ns / 1'000'000'000, span.ns % 1'000'000'000};
  timerfd_settime(timer_.get(), 0, &when, nullptr);
}

void Server::adopt(Descriptor socket, const Peer& peer) {
  auto session = std::make_unique<Session>();
  const Holder holder = holder_of(peer);
  const bool first = machine_.sessions.used_by(holder) == 0;
  // Nobody gets a share of what there is none of. A place that was made may be taken still, by what does not close.
  for (int i = 0; i < kPlacesMade && !listener_paused_; ++i) {
    session->share = machine_.sessions.take(holder);
    if (session->share) session->descriptors = machine_.descriptors.take(holder, kSessionDescriptors);
    if (session->descriptors) break;
    session->share = Share();
    // Who has none yet does not wait for those that say nothing.
    if (!first || !make_place()) break;
  }
  const bool kept = !session->share;
  if (kept && kept_places_ >= kSessionsKept) return let_go(std::move(socket), peer, {}, {});
  const std::uint64_t number = next_session_++;
  session->number = number;
  session->peer = peer;
  session->watch =
      loop_.add(socket.get(), EPOLLIN, [this, number](std::uint32_t events) { on_readable(number, events); });
  if (session->watch == Loop::kNone) return let_go(std::move(socket), peer, {}, {});
  session->socket = std::move(socket);
  sessions_.emplace(number, std::move(session));
  if (kept) ++kept_places_;
  const auto has_spoken = [this](const Silent& each) {
    const auto found = sessions_.find(each.session);
    return found == sessions_.end() || found->second->kind != 0;
  };
  while (!silent_.empty() && has_spoken(silent_.front())) silent_.pop_front();
  silent_.push_back({number, clock_now() + patience_});
  if (silent_.size() == 1) watch_silent();
}

// Whose descriptors do not close, is not listened to meanwhile.
void Server::watch_closer() {
  closer_watch_ = loop_.add(closer_.event_fd(), EPOLLIN, [this](std::uint32_t) {
    for (const std::uint64_t ticket : closer_.take_done()) closing_.erase(ticket);
    for (const std::uint64_t number : std::exchange(unheard_, {}))
      if (const auto found = sessions_.find(number); found != sessions_.end())
        loop_.change(found->second->watch, EPOLLIN);
    if (listener_paused_ || spare_.size() < kSpareDescriptors) resume_listener();
  });
  RNIC_ASSERT(closer_watch_ != Loop::kNone);
}

// A connection that is over. What lies unread in it keeps its places until it is closed.
void Server::let_go(Descriptor socket, const Peer& peer, Share place, Share descriptors) {
  if (!end_with_unread(socket.get())) return;
  const std::uint64_t ticket = next_ticket_++;
  closing_.emplace(ticket, std::pair(std::move(place), std::move(descriptors)));
  closer_.close(socket.release(), peer.pid, ticket);
}

void Server::on_readable(std::uint64_t number, std::uint32_t events) {
  Session& session = *sessions_.at(number);
  if (session.waiting != nullptr) {  // for a page; it is not asked for more
    if ((events & (EPOLLHUP | EPOLLERR)) != 0) end(number);
    return;
  }
  const bool unheard = unheard_.contains(number);
  if (unheard && (events & (EPOLLHUP | EPOLLERR)) == 0) return;
  switch (unheard ? Received::ended : receive_request(session.socket.get(), request_, closer_, session.peer.pid)) {
    case Received::later:
      unheard_.insert(number);
      loop_.change(session.watch, EPOLLET);
      closer_.want_news(session.peer.pid);
      return;
    case Received::nothing: return;
    case Received::ended:
    case Received::malformed: end(number); return;
    case Received::too_many:
      request_.descriptors.clear();
      if (!send_reply(session.socket.get(), request_.header, Reply::error(EMFILE))) end(number);
      return;
    case Received::message: break;
  }
  // Whoever does not begin with HELLO speaks another protocol.
  const bool introduced = session.kind != 0;
  const Reply reply = serve(session, request_);
  request_.descriptors.clear();
  if (reply.later) {
    session.waiting = std::make_unique<Request>(std::move(request_));
    loop_.change(session.watch, 0);
    return;
  }
  const bool sent = send_reply(session.socket.get(), request_.header, reply);
  if (!sent || (!introduced && session.kind == 0)) end(number);
}

void Server::end(std::uint64_t number) {
  const auto found = sessions_.find(number);
  if (found == sessions_.end()) return;
  std::unique_ptr<Session> session = std::move(found->second);
  sessions_.erase(found);
  if (!session->share) --kept_places_;
  loop_.remove(session->watch);
  if (session->stuck) --stuck_sessions_;
  unheard_.erase(number);
  if (session->process_watch != Loop::kNone) loop_.remove(session->process_watch);
  if (session->context != nullptr)
    for (const std::string& line :
         going(*session->context, "as process " + std::to_string(session->peer.pid) + " has let go of its context", 0))
      log_.debug([&] { return line; });
  if (session->context != nullptr && session->context->qps().size() >= kTrimQps) trim_soon();
  session->context.reset();
  if (session->capture != nullptr)
    log_.info("the capture of process " + std::to_string(session->peer.pid) + " has ended");
  session->capture.reset();
  std::erase_if(completion_channels_, [&](const auto& entry) { return entry.second.session == number; });
  // Channels of rdma_cm end with their lifelines: a child of fork may have them.
  for (const std::uint32_t channel : session->cm_channels)
    if (const auto known = cm_channels_.find(channel); known != cm_channels_.end()) known->second.users.erase(number);
  let_go(std::move(session->socket), session->peer, std::move(session->share), std::move(session->descriptors));
  session.reset();
  if (listener_paused_ || spare_.size() < kSpareDescriptors) resume_listener();
}

// What thousands of queue pairs were lies in pieces between what others have, where the heap keeps it. Not
// at once, and not again and again: while it gives pages back nobody else gets memory.
void Server::trim_soon() {
  itimerspec when{};
  when.it_value.tv_sec = kTrimDelayS;
  timerfd_settime(trim_timer_.get(), 0, &when, nullptr);
}

void Server::end_all() {
  while (!sessions_.empty()) end(sessions_.begin()->first);
  while (!cm_channels_.empty()) close_cm_channel(cm_channels_.begin()->first);
  // Requests that were on their way to a listener are rejected now.
  for (const auto& worker : machine_.workers) {
    worker->call([](Instant) {});
    on_worker_news(*worker);
  }
}

// ---- requests ------------------------------------------------------------------------------------

Reply Server::serve(Session& session, Request& request) {
  const std::uint32_t type = request.header.type;
  if (session.kind == 0) return type == RNIC_HELLO ? hello(session, request) : Reply::error(EPROTO);
  switch (type) {
    case RNIC_HELLO: return Reply::error(EPROTO);
    case RNIC_LIST_DEVICES: return list_devices(session);
    case RNIC_SHOW: return show(request);
    case RNIC_STOP:
      if (session.kind != RNIC_CLIENT_ADMIN) return Reply::error(EPERM);
      log_.info("told to stop by process " + std::to_string(session.peer.pid));
      if (stop_) stop_();
      return {};
    case RNIC_CAPTURE: return capture(session, request);
    case RNIC_CREATE_CHANNEL: return create_channel(session);
    case RNIC_DESTROY_CHANNEL: {
      const auto handle = request.as<rnic_handle>();
      return handle ? destroy_channel(session, handle->handle) : Reply::error(EINVAL);
    }
    case RNIC_OPEN_CONTEXT: return open_context(session, request);
    default: break;
  }
  if (type >= RNIC_CM_OPEN && type <= RNIC_CM_MIGRATE_ID)
    return session.kind == RNIC_CLIENT_CM ? serve_cm(session, request) : Reply::error(EPERM);
  return serve_verbs(session, request);
}

Reply Server::hello(Session& session, const Request& request) {
  const auto hello = request.as<rnic_hello>();
  if (!hello) return Reply::error(EINVAL);
  if (hello->abi_version != RNIC_ABI_VERSION) return Reply::error(EPROTONOSUPPORT);
  if (hello->kind < RNIC_CLIENT_VERBS || hello->kind > RNIC_CLIENT_ADMIN) return Reply::error(EINVAL);
  std::memcpy(session.peer.process.data(), hello->process, sizeof hello->process);
  if (session.peer.process == ProcessToken{} &&
      getrandom(session.peer.process.data(), session.peer.process.size(), 0) != sizeof hello->process)
    return Reply::error(EIO);
  if (!session.share && hello->kind != RNIC_CLIENT_ADMIN) return Reply::error(EMFILE);
  const std::string wanted = text_of(hello->device);
  if (!wanted.empty()) {
    session.device = machine_.find_device(wanted);
    if (session.device == nullptr) return Reply::error(ENODEV);
    session.visible = DeviceSet{1} << session.device->index;
  } else {
    session.visible = (DeviceSet{1} << machine_.devices.size()) - 1;
  }
  if (hello->kind == RNIC_CLIENT_VERBS) {
    Descriptor process = process_behind(session.socket.get(), session.peer.pid);
    if (!process && errno == ESRCH) return Reply::error(ESRCH);
    if (process) {
      session.process = std::make_shared<const Descriptor>(std::move(process));
      const std::uint64_t number = session.number;
      session.process_watch = loop_.add(session.process->get(), EPOLLIN, [this, number](std::uint32_t) { end(number); });
      if (session.process_watch == Loop::kNone) return Reply::error(errno);
    }
  }
  session.kind = hello->kind;
  rnic_hello_reply reply{};
  reply.abi_version = RNIC_ABI_VERSION;
  reply.generation = machine_.generation;
  reply.daemon_pid = static_cast<std::uint32_t>(getpid());
  reply.device_count = static_cast<std::uint32_t>(machine_.devices.size());
  reply.control_mode = kModePersonal;
  return Reply::with(reply);
}

static_assert(sizeof(rnic_msg) + sizeof(rnic_list_devices_reply) + kDevicesMax * sizeof(rnic_device_info) <= RNIC_MSG_MAX,
              "all devices fit one reply");

Reply Server::list_devices(const Session& session) const {
  std::vector<ServedDevice*> devices;
  for (const auto& device : machine_.devices)
    if ((session.visible >> device->index & 1u) != 0) devices.push_back(device.get());
  return list_of(machine_, devices);
}

// What an administrator may see: everything that passes, of every application.
Reply Server::capture(Session& session, const Request& request) {
  const auto wanted = request.as<rnic_capture>();
  if (!wanted) return Reply::error(EINVAL);
  if (session.kind != RNIC_CLIENT_ADMIN) return Reply::error(EPERM);
  if (session.capture != nullptr) return Reply::error(EBUSY);
  const auto captures = std::count_if(sessions_.begin(), sessions_.end(),
                                      [](const auto& entry) { return entry.second->capture != nullptr; });
  if (captures >= static_cast<std::ptrdiff_t>(kCapturesMax)) return Reply::error(ENOSPC);
  const std::string name = text_of(wanted->device);
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

Reply Server::show(const Request& request) {
  const auto wanted = request.as<rnic_show>();
  if (!wanted) return Reply::error(EINVAL);
  std::vector<Context*> contexts;
  for (const auto& [number, session] : sessions_)
    if (session->context != nullptr) contexts.push_back(session->context.get());
  std::sort(contexts.begin(), contexts.end(), [](const Context* a, const Context* b) { return a->number() < b->number(); });
  const std::string text = show_json(machine_, contexts, cm_, text_of(wanted->what));
  if (text.empty()) return Reply::error(EINVAL);
  Descriptor memory(memfd_create("rnic-show", MFD_CLOEXEC));
  if (!memory || write(memory.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return Reply::error(ENOMEM);
  Reply reply = Reply::with(rnic_handle_reply{static_cast<std::uint32_t>(text.size()), 0});
  reply.add(std::move(memory));
  return reply;
}

// ---- verbs ---------------------------------------------------------------------------------------

Reply Server::open_context(Session& session, Request& request) {
  const auto wanted = request.as<rnic_open_context>();
  if (!wanted) return Reply::error(EINVAL);
  if (session.kind != RNIC_CLIENT_VERBS) return Reply::error(EPERM);
  if (session.context != nullptr) return Reply::error(EBUSY);
  const std::string name = text_of(wanted->device);
  ServedDevice* device = name.empty() ? session.device : machine_.find_device(name);
  if (device == nullptr || (session.visible >> device->index & 1u) == 0) return Reply::error(ENODEV);
  auto helper = Helper::find(loop_, session.process == nullptr ? -1 : session.process->get(), session.peer.pid, wanted->helper_tid,
                             [this, number = session.number] { end(number); });
  if (!helper) return Reply::error(helper.error());
  auto opened =
      Context::open(machine_, *device, loop_, session.peer, request.take_descriptor(), session.process, std::move(*helper));
  if (!opened) return Reply::error(opened.error());
  session.context = std::move(*opened);
  Reply reply;
  session.context->describe(reply);
  return reply;
}

Reply Server::create_channel(Session& session) {
  if (session.kind == RNIC_CLIENT_ADMIN) return Reply::error(EPERM);
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
Reply Server::destroy_channel(Session& session, std::uint32_t handle) {
  const auto found = completion_channels_.find(handle);
  if (found == completion_channels_.end() || found->second.session != session.number) return Reply::error(EINVAL);
  completion_channels_.erase(found);
  return {};
}

Reply Server::serve_verbs(Session& session, Request& request) {
  if (session.kind != RNIC_CLIENT_VERBS) return Reply::error(session.kind == RNIC_CLIENT_CM ? ENOSYS : EPERM);
  const std::uint32_t type = request.header.type;
  if (type < RNIC_ALLOC_PD || type > RNIC_MAP_ARENA) return Reply::error(ENOSYS);
  if (session.context == nullptr) return Reply::error(ENODEV);
  Context& context = *session.context;
  const auto with = [&]<typename T>(std::optional<T> body, auto&& serve_it) {
    return body ? serve_it(*body) : Reply::error(EINVAL);
  };
  const auto by_handle = [&](Reply (Context::*command)(std::uint32_t)) {
    const auto body = request.as<rnic_handle>();
    return body ? (context.*command)(body->handle) : Reply::error(EINVAL);
  };
  switch (type) {
    case RNIC_ALLOC_PD: return context.alloc_pd();
    case RNIC_DEALLOC_PD: return by_handle(&Context::dealloc_pd);
    case RNIC_REG_MR:
      return with(request.as<rnic_reg_mr>(),
                  [&](const rnic_reg_mr& body) { return context.reg_mr(body, request.take_descriptor()); });
    case RNIC_DEREG_MR: return by_handle(&Context::dereg_mr);
    case RNIC_CREATE_CQ:
      return with(request.as<rnic_create_cq>(), [&](const rnic_create_cq& body) {
        std::shared_ptr<EventSocket> channel = find_channel(session, body.channel_cookie);
        if (body.channel_cookie != 0 && channel == nullptr) return Reply::error(EINVAL);  // V-CQ-03
        return context.create_cq(body, std::move(channel));
      });
    case RNIC_RESIZE_CQ:
      return with(request.as<rnic_resize_cq>(), [&](const rnic_resize_cq& body) { return context.resize_cq(body); });
    case RNIC_DESTROY_CQ: return by_handle(&Context::destroy_cq);
    case RNIC_CREATE_SRQ:
      return with(request.as<rnic_create_srq>(), [&](const rnic_create_srq& body) { return context.create_srq(body); });
    case RNIC_MODIFY_SRQ:
      return with(request.as<rnic_modify_srq>(), [&](const rnic_modify_srq& body) { return context.modify_srq(body); });
    case RNIC_QUERY_SRQ: return by_handle(&Context::query_srq);
    case RNIC_DESTROY_SRQ: return by_handle(&Context::destroy_srq);
    case RNIC_CREATE_QP:
      return with(request.as<rnic_create_qp>(), [&](const rnic_create_qp& body) { return context.create_qp(body); });
    case RNIC_MODIFY_QP:
      return with(request.as<rnic_modify_qp>(), [&](const rnic_modify_qp& body) { return context.modify_qp(body); });
    case RNIC_QUERY_QP: return by_handle(&Context::query_qp);
    case RNIC_DESTROY_QP: {
      const auto body = request.as<rnic_handle>();
      std::vector<std::string> lines;
      if (body && body->handle != 0) lines = going(context, "its application's wish", body->handle);
      Reply reply = by_handle(&Context::destroy_qp);
      if (reply.status == 0 && !reply.later)  // a window may be bound to it (V-QP-15)
        for (const std::string& line : lines) log_.debug([&] { return line; });
      return reply;
    }
    case RNIC_ALLOC_MW:
      return with(request.as<rnic_alloc_mw>(), [&](const rnic_alloc_mw& body) { return context.alloc_mw(body); });
    case RNIC_DEALLOC_MW: return by_handle(&Context::dealloc_mw);
    case RNIC_HOLD_EVENTS:
      return with(request.as<rnic_hold_events>(), [&](const rnic_hold_events& body) {
        std::shared_ptr<EventSocket> channel = find_channel(session, body.channel_cookie);
        for (const auto& [handle, cq] : context.cqs())  // it may live on by these alone
          if (cq->channel != nullptr && cq->channel->cookie() == body.channel_cookie) channel = cq->channel;
        if (body.channel_cookie != 0 && channel == nullptr) return Reply::error(EINVAL);
        return context.hold_events(std::move(channel));
      });
    case RNIC_RELEASE_EVENTS: return context.release_events();
    case RNIC_MAP_ARENA: return by_handle(&Context::map_arena);
    default: return Reply::error(ENOSYS);
  }
}

// ---- workers' news -------------------------------------------------------------------------------

std::string Server::in_words_of(const Qp& qp) const {
  std::string text =
      "queue pair " + std::to_string(qp.number.value) + " of process " + std::to_string(qp.context->peer().pid);
  Ends ends;
  if (const auto ip = ip_of(qp.local)) ends.local = *ip, ends.local_port = port_of(qp.local);
  if (const auto ip = ip_of(qp.remote)) ends.remote = *ip, ends.remote_port = port_of(qp.remote);
  if (const std::string words = in_words(ends); !words.empty()) text += ", " + words;
  return text;
}

// A Terminate that came. Both readings of it: peers differ in how they lay out its first octets
// (W-RDMAP-34). Any peer can send one, and as many as it can make connections.
void Server::log_terminate(const Qp& qp, const core::WorkerEvent& event) {
  std::uint64_t left_out = 0;
  if (!terminates_.take(event.at, left_out)) return;
  if (left_out != 0)
    log_.info(std::to_string(left_out) + " Terminates of peers are not told here: there were too many");
  if (event.event == qp::Event::peer_gone) {
    log_.info(in_words_of(qp) + ": its peer is gone; nothing was under way");
    return;
  }
  qp::TerminateRecord record;
  qp.context->device().worker->call([&](Instant) { record = qp.qp->terminate_record(); });
  const bool known = record.origin == qp::TerminateRecord::Origin::remote;
  log_.error(in_words_of(qp) + " hears a Terminate" +
             (known ? ": " + qp::describe(record) : "; the queue pair is in use again already"));
}

void Server::log_change(const Qp& qp, const qp::Change& change) {
  log_.debug([&] {
    qp::TerminateRecord record;
    qp.context->device().worker->call([&](Instant) { record = qp.qp->terminate_record(); });
    return in_words_of(qp) + ": " + in_words(change, record);
  });
}

// Lines for the log, of those of the context, or the one, that will take a connection with them.
std::vector<std::string> Server::going(Context& context, const std::string& why, std::uint32_t only) const {
  if (!log_.has_debug()) return {};
  std::vector<std::pair<const Qp*, qp::State>> attached;
  context.device().worker->call([&](Instant) {
    for (const auto& [number, qp] : context.qps())
      if ((only == 0 || only == number) && qp->qp->attached()) attached.emplace_back(qp.get(), qp->qp->state());
  });
  std::vector<std::string> lines;
  for (const auto& [each, state] : attached)
    lines.push_back(in_words_of(*each) + ": destroyed in " + name(state) + ", " + why);
  return lines;
}

void Server::on_worker_news(core::Worker& worker) {
  std::uint64_t count;
  [[maybe_unused]] const auto got = read(worker.event_fd(), &count, sizeof count);
  // Bounded by what stood in the rings: what comes meanwhile sets the descriptor again.
  core::StreamEvent stream_event;
  while (worker.pop_stream_event(stream_event)) {
    log_.debug([&] { return in_words(stream_event); });
    cm_.on_stream_event(stream_event);
  }
  core::WorkerEvent event;
  while (worker.pop_event(event)) {
    using Kind = core::WorkerEvent::Kind;
    switch (event.kind) {
      case Kind::qp_event:
        if (const auto found = machine_.qps_by_cookie.find(event.cookie); found != machine_.qps_by_cookie.end()) {
          if (event.event == qp::Event::terminate_received || event.event == qp::Event::peer_gone)
            log_terminate(*found->second, event);
          found->second->context->on_qp_event(*found->second, event.event);
        }
        break;
      case Kind::srq_limit:
        if (const auto found = machine_.srqs_by_cookie.find(event.cookie); found != machine_.srqs_by_cookie.end())
          found->second->context->on_srq_limit(*found->second);
        break;
      case Kind::cq_overflow:
        if (const auto found = machine_.cqs_by_cookie.find(event.cookie); found != machine_.cqs_by_cookie.end())
          found->second->context->on_cq_overflow(*found->second);
        break;
      case Kind::cq_notify:
        if (const auto found = machine_.cqs_by_cookie.find(event.cookie); found != machine_.cqs_by_cookie.end())
          found->second->context->on_completions(*found->second);
        break;
      case Kind::qp_state:  // for the log alone: the connection manager hears of the stream
        if (const auto found = machine_.qps_by_cookie.find(event.cookie); found != machine_.qps_by_cookie.end())
          log_change(*found->second, event.change);
        break;
      case Kind::memory_gone: on_memory_gone(); break;
      case Kind::copy_stuck: on_copy_stuck(SpaceId{static_cast<std::uint32_t>(event.cookie)}); break;
      case Kind::copy_back: on_copy_back(SpaceId{static_cast<std::uint32_t>(event.cookie)}); break;
      case Kind::network_change:
        if (event.cookie < machine_.devices.size()) on_network_change(*machine_.devices[event.cookie]);
        break;
      case Kind::ended_for_buffers:
        if (event.cookie < machine_.devices.size())
          log_.info(machine_.devices[event.cookie]->name + ": " + std::to_string(event.count) +
                    " connections reset: buffers were nearly gone, and these held most and got nowhere");
        break;
    }
  }
}

void Server::on_memory_gone() {
  const std::vector<void*> owners = shm::take_dead_owners();
  for (const auto& [number, session] : sessions_) {
    Context* context = session->context.get();
    if (context == nullptr || !std::binary_search(owners.begin(), owners.end(), static_cast<void*>(context))) continue;
    context->drop_dead_memory();
    log_.info("process " + std::to_string(session->peer.pid) + " has taken away memory that it registered: its STags are void");
  }
}

void Server::refresh_networks() {
  for (const auto& device : machine_.devices) on_network_change(*device);
}

void Server::on_network_change(ServedDevice& device) {
  const auto before = device.own;
  refresh_network(device);
  cm_.set_device(device.index, cm_device(device));
  const std::vector<std::string> changes = address_changes(before, device.own);
  for (const std::string& change : changes) log_.info(device.name + ": " + change);
  if (changes.empty()) return;
  if (const std::string why = rewrite_gids(machine_, device); !why.empty()) log_.info(why);
  for (const auto& [number, session] : sessions_)
    if (session->context != nullptr && &session->context->device() == &device) session->context->on_addresses_changed();
}

}  // namespace rnic::control
