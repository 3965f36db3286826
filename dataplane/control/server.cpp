// Sessions, and workers' news. What is asked: server_requests.cpp, server_cm.cpp.
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
#include "core/clock.hpp"
#include "rnic_talk.h"
#include "wire/ib_mtu.hpp"

namespace rnic::control {
namespace {

// Of a session: its socket, and a pidfd.
constexpr std::uint64_t kSessionDescriptors = 2;
constexpr int kPlacesMade = 8;  // at most, for one who comes
// A context that had so many queue pairs leaves memory that is worth giving back, so long after its end.
constexpr std::size_t kTrimQps = 256;
constexpr time_t kTrimDelayS = 2;
// For one client, and what answering it takes.
constexpr std::size_t kSpareDescriptors = 4;

CmDevice cm_device(const Machine& machine, const ServedDevice& served) {
  CmDevice device;
  device.node_guid = served.node_guid;
  for (const core::DeviceAddress& each : served.addresses()) device.addresses.push_back(each.address);
  device.routes = served.routes;
  device.scope = served.scope;
  device.mate = served.mate;
  device.ird_max = device.ord_max = kReadDepthMax;
  device.streams_max = served.options().streams_max;
  device.face = served.face();
  device.oob_port = served.options().oob_port;
  for (std::size_t i = 0; i < served.gid_count(); ++i) device.gids.push_back(served.gid(i));
  device.path_mtu = std::max<std::uint8_t>(wire::ib_mtu_code_within(machine.attributes(served).mtu), 1);
  return device;
}

std::vector<CmDevice> cm_devices(const Machine& machine) {
  std::vector<CmDevice> devices;
  for (const auto& served : machine.devices) devices.push_back(cm_device(machine, *served));
  return devices;
}

}  // namespace

Server::Server(Machine& machine, Loop& loop, std::uint64_t seed, Log log)
    : machine_(machine),
      loop_(loop),
      log_(std::move(log)),
      cm_(cm_devices(machine), *this, seed),
      oob_(machine, loop, cm_, log_) {
  for (const auto& worker : machine_.workers) {
    worker_watches_.push_back(
        loop_.add(worker->event_fd(), EPOLLIN, [this, &worker](std::uint32_t) { on_worker_news(*worker); }));
    if (log_.has_debug()) worker->call([&](Instant) { worker->tell_states(); });
  }
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
    if (refusals_.take(core::clock_now(), left_out)) log_.info("process " + std::to_string(holder) + " gets " + what);
  };
  machine_.tell_refusals(tell);
  cm_.tell_refusals_by(tell);
  cm_timer_ = Descriptor(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  cm_watch_ = loop_.add(cm_timer_.get(), EPOLLIN, [this](std::uint32_t) {
    std::uint64_t times;
    if (read(cm_timer_.get(), &times, sizeof times) != sizeof times) return;
    cm_.on_time(core::clock_now());
    set_cm_timer();
  });
  page_timer_ = Descriptor(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  page_watch_ = loop_.add(page_timer_.get(), EPOLLIN, [this](std::uint32_t) { look_at_stuck(); });
  watch_closer();
}

Server::~Server() {
  end_all();
  for (const Loop::Watch watch : worker_watches_) loop_.remove(watch);
  loop_.remove(listener_watch_);
  loop_.remove(timer_watch_);
  loop_.remove(trim_watch_);
  machine_.tell_refusals([](Holder, const std::string&) {});
  loop_.remove(page_watch_);
  loop_.remove(cm_watch_);
  loop_.remove(closer_watch_);
}

std::size_t Server::context_count() const {
  return static_cast<std::size_t>(std::count_if(sessions_.begin(), sessions_.end(),
                                                [](const auto& entry) { return entry.second->context != nullptr; }));
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
  const Instant now = core::clock_now();
  while (!silent_.empty() && silent_.front().until <= now) {
    const auto found = sessions_.find(silent_.front().session);
    silent_.pop_front();
    if (found != sessions_.end() && found->second->kind == 0) end(found->first);
  }
  if (listener_paused_) resume_listener();
  if (!silent_.empty() || listener_paused_) watch_silent();
}

void Server::watch_silent() {
  const Duration span = silent_.empty() ? patience_ : std::max(silent_.front().until - core::clock_now(), Duration{1});
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
  silent_.push_back({number, core::clock_now() + patience_});
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
    case Received::nothing:
      return;
    case Received::ended:
    case Received::malformed:
      end(number);
      return;
    case Received::too_many:
      request_.descriptors.clear();
      if (!send_reply(session.socket.get(), request_.header, Reply::error(EMFILE))) end(number);
      return;
    case Received::message:
      break;
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
  loop_.remove(session->process_watch);
  if (session->context != nullptr)
    for (const std::string& line :
         going(*session->context, "as process " + std::to_string(session->peer.pid) + " has let go of its context", 0))
      log_.debug([&] { return line; });
  if (session->context != nullptr && session->context->qps().size() >= kTrimQps) trim_soon();
  if (session->context != nullptr)
    for (const auto& [number, qp] : session->context->qps()) oob_.gone(qp->number);
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

// A Terminate that came, or a peer that is gone without one. Both readings of a Terminate: peers differ in how they lay
// out its first octets (W-RDMAP-34). Any peer can end as many connections as it can make.
void Server::log_terminate(const Qp& qp, const core::WorkerEvent& event) {
  std::uint64_t left_out = 0;
  if (!terminates_.take(event.at, left_out)) return;
  if (left_out != 0)
    log_.info(std::to_string(left_out) + " more ends of connections by peers are not told here: there were too many");
  if (event.event == qp::Event::peer_gone) {
    log_.info(in_words_of(qp) + ": its peer is gone");
    return;
  }
  qp::TerminateRecord record;
  qp.shard->worker->call([&](Instant) { record = qp.qp->terminate_record(); });
  const bool known = record.origin == qp::TerminateRecord::Origin::remote;
  log_.error(in_words_of(qp) + " hears a Terminate" +
             (known ? ": " + qp::describe(record) : "; the queue pair is in use again already"));
}

void Server::log_change(const Qp& qp, const qp::Change& change) {
  log_.debug([&] {
    qp::TerminateRecord record;
    qp.shard->worker->call([&](Instant) { record = qp.qp->terminate_record(); });
    return in_words_of(qp) + ": " + in_words(change, record);
  });
}

// Lines for the log, of those of the context, or the one, that will take a connection with them.
std::vector<std::string> Server::going(Context& context, const std::string& why, std::uint32_t only) const {
  if (!log_.has_debug()) return {};
  std::vector<std::pair<const Qp*, qp::State>> attached;
  context.device().on_each([&](Shard& shard, Instant) {
    for (const auto& [number, qp] : context.qps())
      if (qp->shard == &shard && (only == 0 || only == number) && qp->qp != nullptr && qp->qp->attached())
        attached.emplace_back(qp.get(), qp->qp->state());
  });
  std::vector<std::string> lines;
  for (const auto& [each, state] : attached)
    lines.push_back(in_words_of(*each) + ": destroyed in " + name(state) + ", " + why);
  return lines;
}

void Server::on_streaming_event(const core::StreamEvent& event) {
  const auto found = machine_.streams_by_cookie.find(event.cookie);
  if (found != machine_.streams_by_cookie.end()) {
    found->second->context->on_stream_event(*found->second, event, cm_.streams_of(event.device));
  } else if (event.kind == core::StreamEvent::Kind::connect_request) {
    // Its listener has gone while this was on its way: nobody else ends it.
    machine_.devices[event.device]->of_stream(event.stream, [&](core::Device& its, Instant now) {
      its.disconnect(event.stream, core::Disconnect::abrupt, now);
    });
  }
}

void Server::on_worker_news(core::Worker& worker) {
  std::uint64_t count;
  [[maybe_unused]] const auto got = read(worker.event_fd(), &count, sizeof count);
  // Strangers' Requests come as fast as they are refused: so many of them, and then whoever else waits.
  constexpr int kStreamEventsMax = 64;
  core::StreamEvent stream_event;
  int left = kStreamEventsMax;
  for (; left > 0 && worker.pop_stream_event(stream_event); --left) {
    log_.debug([&] { return in_words(stream_event); });
    if (core::is_streaming(stream_event.cookie)) {
      on_streaming_event(stream_event);
      continue;
    }
    using Kind = core::StreamEvent::Kind;
    const bool asks = stream_event.kind == Kind::withdrawn || (stream_event.kind == Kind::connect_request &&
                                                               is_inquiry(core::bytes_of(stream_event.private_data)));
    if (Rendezvous::is_ours(stream_event.cookie) && !asks)
      oob_.on_stream_event(stream_event);
    else
      cm_.on_stream_event(stream_event, core::clock_now());
  }
  set_cm_timer();
  if (left == 0) {
    constexpr std::uint64_t kAgain = 1;
    [[maybe_unused]] const auto said = write(worker.event_fd(), &kAgain, sizeof kAgain);
  }
  core::WorkerEvent event;
  DeviceSet changed = 0;  // networks: once for all that is told of each
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
      case Kind::qp_state:  // for the log at debug alone: the connection manager hears of the stream
        if (const auto found = machine_.qps_by_cookie.find(event.cookie); found != machine_.qps_by_cookie.end())
          log_change(*found->second, event.change);
        break;
      case Kind::memory_gone:
        on_memory_gone();
        break;
      case Kind::copy_stuck:
        on_copy_stuck(SpaceId{static_cast<std::uint32_t>(event.cookie)});
        break;
      case Kind::copy_back:
        on_copy_back(SpaceId{static_cast<std::uint32_t>(event.cookie)}, worker);
        break;
      case Kind::copies_refused:
        on_copies_refused(SpaceId{static_cast<std::uint32_t>(event.cookie)});
        break;
      case Kind::network_change:
        if (event.cookie < machine_.devices.size()) changed |= DeviceSet{1} << event.cookie;
        break;
      case Kind::ended_for_buffers:
        if (event.cookie < machine_.devices.size())
          log_.info(machine_.devices[event.cookie]->name + ": " + std::to_string(event.count) +
                    " connections reset: buffers were nearly gone, and these held most and got nowhere");
        break;
    }
  }
  for (const auto& device : machine_.devices)
    if ((changed >> device->index & 1u) != 0) on_network_change(*device);
}

void Server::on_memory_gone() {
  const std::vector<void*> owners = shm::take_dead_owners();
  for (const auto& [number, session] : sessions_) {
    Context* context = session->context.get();
    if (context == nullptr || !std::binary_search(owners.begin(), owners.end(), static_cast<void*>(context))) continue;
    context->drop_dead_memory();
    log_.info("process " + std::to_string(session->peer.pid) +
              " has taken away memory that it registered: its STags are void");
  }
}

void Server::refresh_networks() {
  for (const auto& device : machine_.devices) on_network_change(*device);
}

void Server::on_network_change(ServedDevice& device) {
  const auto before = device.own;
  const bool was_up = device.link_up;
  refresh_network(device);
  if (device.link_up != was_up) {
    log_.info(device.name + ": " + link_change(device.link_up, device.port_facts().netdev));
    tell_contexts(device, device.link_up ? IbvEvent::port_active : IbvEvent::port_error);
  }
  cm_.set_device(device.index, cm_device(machine_, device));
  const std::vector<std::string> changes = address_changes(before, device.own);
  for (const std::string& change : changes) log_.info(device.name + ": " + change);
  if (changes.empty()) return;
  if (const std::string why = rewrite_gids(machine_, device); !why.empty()) log_.info(why);
  tell_contexts(device, IbvEvent::gid_change);
}

void Server::tell_contexts(const ServedDevice& device, IbvEvent event) {
  for (const auto& [number, session] : sessions_)
    if (session->context != nullptr && &session->context->device() == &device) session->context->on_port_event(event);
}

}  // namespace rnic::control
