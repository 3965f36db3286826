// The connection manager: ids and channels of rdma_cm, as Linux's rdma_cm and its iWARP half
// (iw_cm) treat them, over the devices of this daemon; of those with a RoCE face as InfiniBand's half (ib_cm) does.
//
// Of a RoCE face a connection of rdma_cm is a call between applications, over a stream of its own that no queue pair
// ever has (control/greetings.hpp). What each learns of the other's queue pair it gives to ibv_modify_qp, and so these
// meet as all of that face do (control/rendezvous.hpp).
//
// An id goes through IdState; each command says in which state it is allowed, and answers EINVAL in
// any other. Commands to devices, and counts for the applications' descriptors, go out through
// CmHost; the news of streams come in by on_stream_event(). What an application waits for is put
// into the queue of its channel.
//
// Ids of the port spaces for datagrams have no connection: connect() asks for a queue pair's number, accept() tells it,
// and so a stream lasts as long as a question has no answer.
//
// Large, as each command of rdma_cm and each of its events has a function here, and all of them go by the same ids, in
// all forms. connection_manager_ids.cpp has channels and ids, connection_manager_addresses.cpp what they are bound to
// and how they find their peers, connection_manager.cpp connections; what of calls is a RoCE face's alone is in
// connection_manager_roce.cpp, what datagrams have in connection_manager_datagrams.cpp.
//
// Pure: no descriptor, no lock, and its time is its host's. Owned by the control thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/chance.hpp"
#include "base/face.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "control/greetings.hpp"
#include "control/port_space.hpp"
#include "control/shares.hpp"
#include "core/connection.hpp"
#include "ip/routes.hpp"
#include "mpa/startup.hpp"
#include "rnic_control.h"
#include "rnic_control_events.h"
#include "wire/address.hpp"

namespace rnic::control {

// What the connection manager knows of a device. Its index is its place in the list.
struct CmDevice {
  std::uint64_t node_guid = 0;             // network order
  std::vector<wire::IpAddress> addresses;  // those in use
  ip::Routes routes;                       // the device's own, copied
  std::uint32_t scope = 0;                 // of its link-local addresses: sin6_scope_id
  int mate = -1;                           // the device at the other end of a pair
  std::uint32_t ird_max = 128, ord_max = 128;
  std::uint32_t streams_max = 16'384;
  Face face = Face::iwarp;
  std::vector<std::optional<wire::IpAddress>> gids;  // of a RoCE face, each at its index
  std::uint8_t path_mtu = 0;                         // enum ibv_mtu
  std::uint16_t oob_port = 0;                        // where its like is asked for queue pairs
};

// A QP, as an application names it. It must be of the process that asks.
struct QpClaim {
  std::uint32_t number = 0;
};

// Who says no to a call: the listener's application, with a command or by its end, or rnicd itself.
// `gone`: nobody, as the caller does not wait any more.
enum class Rejects : std::uint8_t { application, nobody_listens, too_many_ids, too_many_streams, unfit, gone };

enum class IdState : std::uint8_t {
  idle,
  bound,
  address_resolved,
  route_resolved,
  listening,
  connecting,  // connect() was called
  answered,    // by its peer's accept(); of a RoCE face, whose application is to confirm it
  requested,   // of a listener; to be accepted or rejected
  accepting,   // accept() was called
  connected,
  ended,  // rejected, failed or disconnected: only to be destroyed
};
const char* name(IdState state);

// A line of `rnic show conn`.
struct IdInfo {
  std::uint32_t id = 0;
  IdState state = IdState::idle;
  wire::IpAddress source, destination;
  std::uint16_t source_port = 0, destination_port = 0;
  int device = -1;
  pid_t pid = 0;  // of its channel's process
  std::uint32_t port_space = port_spaces::kTcp;
};

// What the connection manager asks for. Answers at once.
class CmHost {
 public:
  virtual Result<Done, core::StreamError> listen(std::uint32_t device, const wire::IpAddress& address,
                                                 std::uint16_t port, std::uint32_t backlog, std::uint64_t cookie,
                                                 bool v6_only) = 0;
  struct Listening {
    wire::IpAddress address;
    std::uint16_t port = 0;
  };
  virtual void unlisten(std::uint32_t device, const std::vector<Listening>& listeners) = 0;
  // wrong_state: no such QP, on this device and of this process, that is Idle.
  virtual Result<core::StreamId, core::StreamError> connect(std::uint32_t device, const core::ConnectOptions& options,
                                                            const QpClaim& qp) = 0;
  virtual Result<Done, core::StreamError> accept(std::uint32_t device, core::StreamId stream,
                                                 const core::AcceptOptions& options, const QpClaim& qp) = 0;
  // Of a RoCE face (core/rdma_streams.hpp).
  virtual Result<core::StreamId, core::StreamError> greet(std::uint32_t device,
                                                          const core::ConnectOptions& options) = 0;
  virtual Result<Done, core::StreamError> welcome(std::uint32_t device, core::StreamId stream,
                                                  const core::AcceptOptions& options) = 0;
  virtual Result<Done, core::StreamError> confirm(std::uint32_t device, core::StreamId stream) = 0;
  // Which ends with it.
  virtual Result<Done, core::StreamError> answer_inquiry(std::uint32_t device, core::StreamId stream,
                                                         const core::PrivateData& said) = 0;
  // For the log: why a device and this peer do not come together.
  virtual void tell_unfit(std::uint32_t device, const wire::IpAddress& peer, const char* words) = 0;
  virtual Result<Done, core::StreamError> reject(std::uint32_t device, core::StreamId stream,
                                                 const core::PrivateData& private_data, Rejects who) = 0;
  virtual void disconnect(std::uint32_t device, core::StreamId stream, core::Disconnect how) = 0;
  // Connections whose application has given up their ids: rejected if it has not answered the call yet, else
  // ended abruptly.
  struct Abandoned {
    IdInfo id;
    core::StreamId stream;
    bool unanswered = false;
    Face face = Face::iwarp;
  };
  virtual void abandon(std::uint32_t device, const std::vector<Abandoned>& streams) = 0;
  // So many more events wait in the channel.
  virtual void events_added(std::uint32_t channel, std::uint32_t count) = 0;
  virtual Instant now() const = 0;

 protected:
  ~CmHost() = default;
};

class ConnectionManager {
 public:
  static constexpr std::uint32_t kIdsMax = 262'144;  // of one process that is alone
  // What is sent (W-MPA-14); what comes may be 508 octets (RFC 6581 s4.2), of which librdmacm shows 255.
  static constexpr std::size_t kPrivateDataMax = mpa::kPrivateDataMaxEnhanced;
  // Inquiries without an answer: of a listener as many as its backlog, and so many; of a device so many, shared as
  // everything is. Others of its port's backlog are for queue pairs that meet (control/rendezvous.hpp).
  static constexpr std::uint32_t kInquiriesOfListener = 128, kInquiriesMax = 512;
  // An inquiry that finds nobody waits so long for who is about to listen, so many of them, so many of a caller's: a
  // server may have told its client where to ask a moment before it listens there (perftest -c UD -R), and takes
  // longer on a busy machine.
  static constexpr Duration kEarlyInquiryKept = seconds(1);
  static constexpr std::size_t kEarlyInquiriesMax = 64, kEarlyInquiriesOfCaller = 16;
  static constexpr std::size_t kMembershipsMax = 64;  // of an id, in groups

  ConnectionManager(std::vector<CmDevice> devices, CmHost& host, std::uint64_t seed);

  // Errors are errno values; 0 is none.
  template <typename T>
  using Answer = Result<T, int>;

  // ---- channels ----
  // `holder`: whose share of the ids its ids come from.
  std::uint32_t open_channel(Holder holder = 0);
  void close_channel(std::uint32_t channel);  // its ids are destroyed
  bool has_channel(std::uint32_t channel) const { return channels_.contains(channel); }
  // EAGAIN: none waits.
  Answer<rnic_cm_get_event_reply> get_event(std::uint32_t channel);
  // The first that waits, and up to `most` with those behind it, which are lent to who asks
  // (abi/rnic_control_events.h). To one at a time: to another only when all that he was lent has been told.
  Answer<std::vector<rnic_cm_told>> get_events(std::uint32_t channel, std::uint64_t asker, std::size_t most);
  // The last `count` of what he was lent. EINVAL: he was not.
  int give_back_events(std::uint32_t channel, std::uint64_t asker, std::size_t count);

  // ---- ids ----
  // `devices`: those that the application sees.
  Answer<std::uint32_t> create_id(std::uint32_t channel, std::uint32_t port_space, std::uint64_t user_pointer,
                                  DeviceSet devices);
  // Which channel's; nothing for an id that the application does not know (yet).
  std::optional<std::uint32_t> channel_of(std::uint32_t id) const;
  // Whether it has events, or, of a listener, Requests, which the application has not fetched, and the last of them was
  // told after `since`.
  bool was_told_after(std::uint32_t id, Instant since) const;
  Answer<rnic_cm_destroy_id_reply> destroy_id(std::uint32_t id);
  Answer<rnic_cm_migrate_id_reply> migrate_id(std::uint32_t id, std::uint32_t channel);
  int bind(std::uint32_t id, const rnic_address& address);
  int resolve_address(std::uint32_t id, const rnic_address& source, const rnic_address& destination);
  int resolve_route(std::uint32_t id);
  Answer<rnic_cm_query_reply> query(std::uint32_t id) const;
  int listen(std::uint32_t id, std::uint32_t backlog);
  int connect(std::uint32_t id, const rnic_cm_parameters& parameters);
  // `qkey`: of an id for datagrams; 0: rdma_cm's own.
  int accept(std::uint32_t id, std::uint64_t user_pointer, const rnic_cm_parameters& parameters,
             std::uint32_t qkey = 0);
  int reject(std::uint32_t id, Bytes private_data, bool for_ece = false);
  int disconnect(std::uint32_t id);
  Answer<rnic_cm_init_qp_attributes_reply> init_qp_attributes(std::uint32_t id, std::uint32_t state) const;
  int set_option(std::uint32_t id, std::uint32_t level, std::uint32_t option, Bytes value);
  int notify(std::uint32_t id, std::uint32_t event) const;
  // Of a group: the way there comes with MULTICAST_JOIN. Who is to receive attaches his queue pair by himself. Back
  // comes the membership, which ends with leave() or its id.
  Answer<std::uint32_t> join(const rnic_cm_join& wanted);
  Answer<rnic_cm_leave_reply> leave(std::uint32_t membership);
  // Whose it is; nothing where there is none.
  std::optional<std::uint32_t> member(std::uint32_t membership) const;

  // ---- devices ----
  void on_stream_event(const core::StreamEvent& event, Instant now = {});
  // What is due: news of ids that have been apart for long enough.
  void on_time(Instant now);
  Instant next_deadline() const {
    const Instant time_wait = time_waits_.empty() ? kNever : time_waits_.front().until;
    return early_inquiries_.empty() ? time_wait : std::min(time_wait, early_inquiries_.front().until);
  }
  // Its addresses or routes have changed. Ids that are bound to what is gone stay so.
  void set_device(std::uint32_t index, CmDevice device) { devices_[index] = std::move(device); }

  // ---- what it is ----
  std::vector<IdInfo> ids() const;
  // Nothing where there is none of that number, or none that has this stream (looked for one by one).
  std::optional<IdInfo> info(std::uint32_t id) const;
  std::optional<IdInfo> info(std::uint32_t device, core::StreamId stream) const;
  std::size_t id_count() const { return ids_.size(); }
  Shares& shares() { return shares_; }
  const Shares& streams(std::uint32_t device) const { return streams_[device]; }
  Shares& streams_of(std::uint32_t device) { return streams_[device]; }
  const Shares& ports(std::uint16_t port) const {
    return PortSpace::is_ephemeral(port) ? ephemeral_ports_ : other_ports_;
  }
  void tell_refusals_by(const Shares::Tell& tell);
  std::size_t channel_count() const { return channels_.size(); }

 private:
  struct Id {
    bool has_datagrams() const { return port_space != port_spaces::kTcp; }

    Share share;
    Share stream_share;  // while it is connected, or on the way there
    Share port_share;    // while it is bound to a port
    std::uint32_t number = 0;
    std::uint64_t cookie = 0;
    std::uint64_t user_pointer = 0;
    std::uint32_t channel = 0;
    std::uint32_t port_space = port_spaces::kTcp;
    bool known = false;  // to the application: created by it, or reported in a CONNECT_REQUEST
    IdState state = IdState::idle;
    DeviceSet visible = 0;
    int device = -1;
    wire::IpAddress source, destination;
    std::uint16_t source_port = 0, destination_port = 0;
    bool has_source = false, has_destination = false;
    bool port_chosen = false;  // by the application
    bool reuse = false, family_only = false;
    std::uint8_t traffic_class = 0;
    std::uint32_t scope = 0;  // of the link-local address that it named, where it did
    DeviceSet listening_on = 0;
    core::StreamId stream;
    std::uint32_t events_reported = 0, events_waiting = 0;
    Instant told_at{};  // the last of them
    // Of a RoCE face: what it says, and what it has been told. Without a peer its number is 0.
    wire::Greeting own, peer;
    bool calls = false;
    std::optional<std::uint8_t> timeout;
    // Of datagrams: who is asked, as long as he has not answered; of a listener, what it may leave unanswered and does.
    Share inquiry_share;
    std::uint64_t listener = 0;  // its cookie
    bool withdrawn = false;      // he has gone, and so has his stream
    std::uint32_t backlog = 0, unanswered = 0;
    std::vector<std::uint32_t> memberships;
  };
  struct Membership {
    std::uint32_t id = 0;
    std::uint32_t events_reported = 0;
  };
  struct Event {
    std::uint32_t owner = 0;       // whose count it goes to: the id's, or the listener's
    std::uint32_t membership = 0;  // and its count, where it tells of one
    rnic_cm_get_event_reply reply{};
  };
  struct Channel {
    Holder holder = 0;
    std::deque<Event> events;
    std::unordered_set<std::uint32_t> ids;
    std::deque<Event> lent;  // that may be given back
    std::uint64_t lent_to = 0;
  };
  struct Route {
    std::uint32_t device = 0;
    wire::IpAddress source;
  };

  Id* find(std::uint32_t id);
  const Id* find(std::uint32_t id) const;
  Id* make_id(std::uint32_t channel);  // null: there are too many
  // What is left to do at a device for ids that are gone: an application may have had very many.
  struct LeftAt {
    std::vector<CmHost::Abandoned> streams;
    std::vector<CmHost::Listening> listeners;
  };
  using Left = std::map<std::uint32_t, LeftAt>;
  std::uint32_t destroy(Id& id);  // how many of its events were purged
  std::uint32_t purge_events(Id& id, Left& left);
  void take_apart(Id& id, Left& left);
  void forget(const Id& id);
  static void end(Id& id);
  Shares& shares_of(std::uint16_t port) { return PortSpace::is_ephemeral(port) ? ephemeral_ports_ : other_ports_; }
  void abandon(const Left& left);
  void unlisten(Id& id, Left& left);
  bool sees(const Id& id, std::uint32_t device) const { return (id.visible >> device & 1u) != 0; }
  std::optional<std::uint32_t> owner_of(const wire::IpAddress& address, DeviceSet among) const;
  std::optional<std::uint32_t> meant_by(const wire::IpAddress& address, DeviceSet among) const;
  bool hides_device(const Id& id) const;
  DeviceSet within_scope(DeviceSet among, const wire::IpAddress& address, std::uint32_t scope) const;
  rnic_address told(const wire::IpAddress& address, std::uint16_t port, int device) const;
  Result<Route, int> choose_route(const Id& id, const wire::IpAddress& destination) const;
  int check(const Id& id, const rnic_cm_parameters& parameters, std::size_t data_max) const;
  IdInfo info_of(const Id& id) const;
  int bind_to(Id& id, const wire::IpAddress& address, std::uint16_t port, std::uint32_t scope);
  Event& queue(Id& id, rnic_cm_event kind, int status);
  Event take_event(Channel& channel);
  void put_back(Channel& channel, const Event& event);
  void queue_failure(Id& id, core::StreamFailure failure);
  void on_request(const core::StreamEvent& event);
  // ---- of a RoCE face ----
  const CmDevice* roce_device(const Id& id) const;
  std::optional<wire::MarkRefusal> unfit(const core::StreamEvent& request);
  static wire::IpAddress gid_for(const CmDevice& device, const wire::IpAddress& address);
  int confirm(Id& id);
  void introduce(Id& id, const rnic_cm_parameters& parameters);
  static std::optional<std::uint32_t> gid_index(const CmDevice& device, const wire::IpAddress& gid);
  void describe_path(const Id& id, rnic_cm_query_reply& reply) const;
  std::uint32_t draw_psn();
  void on_greeting_event(Id& id, const core::StreamEvent& event, Instant now);
  void on_welcome(Id& id, const core::StreamEvent& event);
  void on_refusal(Id& id, const core::StreamEvent& event);
  void on_failed_call(Id& id, const core::StreamEvent& event);
  // ---- of datagrams ----
  PortSpace& ports_of(const Id& id);
  DeviceSet with_datagrams(DeviceSet devices) const;
  Result<Route, int> route_to_group(const Id& id, const wire::IpAddress& group) const;
  int listen_for_inquiries(Id& id, std::uint32_t backlog);
  Id* listener_for(const wire::Inquiry& inquiry, std::uint32_t device, const wire::IpAddress& address);
  int inquire(Id& id, const rnic_cm_parameters& parameters);
  int answer(Id& id, std::uint64_t user_pointer, const rnic_cm_parameters& parameters, std::uint32_t qkey);
  int refuse_inquiry(Id& id, Bytes private_data);
  void end_inquiry(Id& id);
  void leave_listener(Id& id);
  void on_inquiry(const core::StreamEvent& event);
  bool keep_early(const core::StreamEvent& event);
  void ask_again();
  void refuse_early(Instant now);
  void on_withdrawn(const core::StreamEvent& event);
  void on_answer_event(Id& id, const core::StreamEvent& event);
  rnic_cm_way way_to(const Id& id, const wire::IpAddress& gid, std::uint32_t qkey) const;
  rnic_cm_init_qp_attributes_reply datagram_attributes(std::uint32_t state) const;
  void drop_memberships(Id& id);

  std::vector<CmDevice> devices_;
  CmHost& host_;
  PortSpace ports_, udp_ports_, ipoib_ports_;
  Shares shares_ = Shares::for_one("connection ids", kIdsMax);
  // Of each device what the silent leave (host/listeners.hpp).
  std::deque<Shares> streams_, inquiries_;
  Shares ephemeral_ports_{"ephemeral ports", PortSpace::kEphemeralCount};
  Shares other_ports_{"ports", 65'535 - PortSpace::kEphemeralCount};
  std::unordered_map<std::uint32_t, Channel> channels_;
  std::unordered_map<std::uint32_t, std::unique_ptr<Id>> ids_;
  std::uint32_t next_channel_ = 1;
  std::map<std::pair<std::uint32_t, core::StreamId>, std::uint32_t> unanswered_;  // inquiries, by device and stream
  struct EarlyInquiry {
    Instant until{};
    core::StreamEvent event;
  };
  std::deque<EarlyInquiry> early_inquiries_;
  std::unordered_map<std::uint32_t, Membership> memberships_;
  std::uint32_t next_membership_ = 1;
  std::uint64_t next_cookie_ = 1;
  struct TimeWait {
    Instant until{};
    std::uint64_t cookie = 0;
  };
  std::deque<TimeWait> time_waits_;  // of ids that may be gone
  Chance psns_;
};

}  // namespace rnic::control
