// The control socket: sessions of applications (verbs, connection management) and of the `rnic`
// command, one request and one reply at a time. Nothing that a client says is believed but who the
// kernel says it is; handles are looked up among what belongs to its session.
//
// Large, as each message of abi/rnic_messages.h has a function here: sessions are in server.cpp, what they ask in
// server_requests.cpp and server_cm.cpp, pages that do not come in server_pages.cpp.
//
// Owned by the control thread.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>

#include "control/capture.hpp"
#include "control/connection_manager.hpp"
#include "control/context.hpp"
#include "control/event_count.hpp"
#include "control/event_socket.hpp"
#include "control/log.hpp"
#include "control/loop.hpp"
#include "control/machine.hpp"
#include "control/message.hpp"
#include "control/oob.hpp"

namespace rnic::control {

class Server final : private CmHost {
 public:
  Server(Machine& machine, Loop& loop, std::uint64_t seed, Log log);
  ~Server();

  // Listens at RUN/control.sock. Empty, or why not.
  std::string listen();
  // A client that is connected already; for tests.
  void adopt(Descriptor socket, const Peer& peer);
  // What STOP does.
  void on_stop(std::function<void()> handler) { stop_ = std::move(handler); }
  // A session that has not said HELLO so long after it began ends.
  void set_patience(Duration patience) { patience_ = patience; }
  // Ends all sessions: objects destroyed, streams closed.
  void end_all();

  // Takes over what devices' addresses and routes are by now.
  void refresh_networks();

  const ConnectionManager& connection_manager() const { return cm_; }
  const Rendezvous& rendezvous() const { return oob_.rendezvous(); }
  std::size_t session_count() const { return sessions_.size(); }
  std::size_t context_count() const;
  // Of applications' descriptors, that are to be closed still.
  std::size_t closing_count() const { return closer_.waiting(); }
  std::size_t completion_channel_count() const { return completion_channels_.size(); }

 private:
  struct CompletionChannel {
    std::uint32_t handle = 0;
    Peer owner;
    std::uint64_t session = 0;
    Share share;
    std::shared_ptr<EventSocket> socket;
  };
  struct CmChannel {
    std::array<std::uint8_t, 16> token{};
    std::uint32_t uid = 0;
    Share share, descriptors;
    std::set<std::uint64_t> users;  // sessions
    std::unique_ptr<EventCount> events;
    Descriptor lifeline;  // our end: hung up when no process has the channel any more
    Loop::Watch watch = Loop::kNone;
  };
  struct Session {
    std::uint64_t number = 0;
    Descriptor socket;
    // A pidfd, readable when the process is gone (a child may keep the socket), or null. Its context's, too.
    std::shared_ptr<const Descriptor> process;
    Loop::Watch watch = Loop::kNone, process_watch = Loop::kNone;
    Peer peer;
    Share share, descriptors;  // none: it is one of the few that are kept for the rnic command
    std::uint32_t kind = 0;    // 0: no HELLO yet
    DeviceSet visible = 0;
    ServedDevice* device = nullptr;  // the only one it sees; null: all
    std::unique_ptr<Context> context;
    std::unique_ptr<Capture> capture;
    std::set<std::uint32_t> cm_channels;  // those it may use
    std::unique_ptr<Request> waiting;     // to be answered when no copy waits for a page any more
    unsigned stuck_looks = 0;             // while one does: ticks until it has waited too long
    bool stuck = false, told_stuck = false;
    std::uint32_t told_not_offered = 0;  // of enum rnic_extension
  };

  // ---- server.cpp ----
  void accept_clients();
  Descriptor accept_client();
  bool make_place();
  void end_silent();
  void watch_silent();
  void pause_listener();
  void resume_listener();
  void trim_soon();
  void watch_closer();
  void let_go(Descriptor socket, const Peer& peer, Share place, Share descriptors);
  void on_readable(std::uint64_t session, std::uint32_t events);
  void end(std::uint64_t session);
  void on_worker_news(core::Worker& worker);
  void on_streaming_event(const core::StreamEvent& event);
  void on_network_change(ServedDevice& device);
  void tell_contexts(const ServedDevice& device, IbvEvent event);
  void on_memory_gone();
  std::string in_words_of(const Qp& qp) const;
  void log_terminate(const Qp& qp, const core::WorkerEvent& event);
  void log_change(const Qp& qp, const qp::Change& change);
  std::vector<std::string> going(Context& context, const std::string& why, std::uint32_t only) const;

  // ---- server_requests.cpp; those of connection management: server_cm.cpp ----
  Reply serve(Session& session, Request& request);
  Reply dispatch(Session& session, Request& request);
#define RNIC_SERVE(NAME, name, number, who, body, reply, fds_in, fds_out) \
  Reply serve_##name(Session& session, Request& request, const body&);
  RNIC_MESSAGES(RNIC_SERVE)
#undef RNIC_SERVE
  std::vector<Context*> contexts() const;
  std::shared_ptr<EventSocket> find_channel(const Session& session, std::uint64_t cookie) const;

  // ---- server_pages.cpp ----
  Session* session_of(SpaceId space);
  void on_copy_stuck(SpaceId space);
  void on_copies_refused(SpaceId space);
  void on_copy_back(SpaceId space, const core::Worker& teller);
  void look_at_stuck();

  // ---- server_cm.cpp ----
  void close_cm_channel(std::uint32_t channel);
  std::uint32_t withdraw_events(std::uint32_t channel, std::uint32_t count);
  void set_cm_timer();
  void tell_no_datagrams(const Session& session);
  bool may_use_id(const Session& session, std::uint32_t id) const;
  Qp* claimed(std::uint32_t device, const QpClaim& claim) const;
  std::string asker() const;
  std::string in_words_of(std::uint32_t device, core::StreamId stream) const;

  Result<Done, core::StreamError> listen(std::uint32_t device, const wire::IpAddress& address, std::uint16_t port,
                                         std::uint32_t backlog, std::uint64_t cookie, bool v6_only) override;
  void unlisten(std::uint32_t device, const std::vector<Listening>& listeners) override;
  Result<core::StreamId, core::StreamError> connect(std::uint32_t device, const core::ConnectOptions& options,
                                                    const QpClaim& qp) override;
  Result<Done, core::StreamError> accept(std::uint32_t device, core::StreamId stream,
                                         const core::AcceptOptions& options, const QpClaim& qp) override;
  Result<core::StreamId, core::StreamError> greet(std::uint32_t device, const core::ConnectOptions& options) override;
  Result<Done, core::StreamError> welcome(std::uint32_t device, core::StreamId stream,
                                          const core::AcceptOptions& options) override;
  Result<Done, core::StreamError> confirm(std::uint32_t device, core::StreamId stream) override;
  Result<Done, core::StreamError> answer_inquiry(std::uint32_t device, core::StreamId stream,
                                                 const core::PrivateData& said) override;
  void tell_unfit(std::uint32_t device, const wire::IpAddress& peer, const char* words) override;
  Result<Done, core::StreamError> reject(std::uint32_t device, core::StreamId stream,
                                         const core::PrivateData& private_data, Rejects who) override;
  void disconnect(std::uint32_t device, core::StreamId stream, core::Disconnect how) override;
  void abandon(std::uint32_t device, const std::vector<Abandoned>& streams) override;
  void events_added(std::uint32_t channel, std::uint32_t count) override;
  Instant now() const override;

  Closer closer_;  // the first: it outlives all that it closes
  Machine& machine_;
  Loop& loop_;
  Log log_;
  LineLimit terminates_, refusals_, unfit_, copies_refused_;
  const Session* asking_ = nullptr;  // whose command to the connection manager is being served; null: nobody's
  std::function<void()> stop_;
  ConnectionManager cm_;
  Oob oob_;
  Descriptor listener_;
  Loop::Watch listener_watch_ = Loop::kNone;
  bool listener_paused_ = false;
  std::vector<Descriptor> spare_;  // given up where there are no others, so that one client can be answered
  Duration patience_ = seconds(5);
  struct Silent {
    std::uint64_t session = 0;
    Instant until{};
  };
  std::deque<Silent> silent_;  // sessions that have not said HELLO, and some that have or are gone
  Descriptor timer_;
  Loop::Watch timer_watch_ = Loop::kNone;
  Descriptor trim_timer_;
  Loop::Watch trim_watch_ = Loop::kNone;
  std::size_t kept_places_ = 0;  // sessions in those
  std::vector<Loop::Watch> worker_watches_;
  Descriptor cm_timer_;
  Loop::Watch cm_watch_ = Loop::kNone;
  Descriptor page_timer_;
  Loop::Watch page_watch_ = Loop::kNone;
  unsigned stuck_sessions_ = 0;
  Loop::Watch closer_watch_ = Loop::kNone;
  std::unordered_map<std::uint64_t, std::pair<Share, Share>> closing_;  // of connections, by their tickets
  std::uint64_t next_ticket_ = 1;
  std::set<std::uint64_t> unheard_;  // sessions that are not listened to until descriptors are closed
  std::uint64_t next_session_ = 1;
  std::uint32_t next_completion_channel_ = 1;
  std::unordered_map<std::uint64_t, std::unique_ptr<Session>> sessions_;
  std::unordered_map<std::uint32_t, CompletionChannel> completion_channels_;
  std::unordered_map<std::uint32_t, CmChannel> cm_channels_;
  Request request_;  // the one being served
};

}  // namespace rnic::control
