// One open device of one application: its protection domains, regions, windows, queues and queue
// pairs, by verbs.md's rules. What an application can name here is its own; a handle of another
// context names nothing (V-RNIC-01).
//
// Large, as each verb that control serves is a function here, of one set of objects that name each other: what has no
// queue is in context.cpp, what has one in context_queues.cpp,
// the direct verbs' in context_direct.cpp and context_streams.cpp.
//
// Owned by the control thread. What workers touch (queue pairs, queues, the table's memory) is made,
// changed and destroyed on the worker of its shard, by Worker::call().
#pragma once

#include <sys/types.h>

#include <array>
#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "control/async_events.hpp"
#include "control/batches.hpp"
#include "control/descriptor.hpp"
#include "control/doorbell_slots.hpp"
#include "control/event_socket.hpp"
#include "control/helper.hpp"
#include "control/machine.hpp"
#include "control/message.hpp"
#include "qp/queue_pair.hpp"
#include "rnic_control.h"
#include "shm/context_memory.hpp"
#include "shm/mapping.hpp"
#include "shm/queue_host.hpp"
#include "shm/queues.hpp"
#include "ud/queue_pair.hpp"
#include "wire/mark.hpp"

namespace rnic::control {

// By which connections say that they are of one process; unguessable.
using ProcessToken = std::array<std::uint8_t, RNIC_PROCESS_TOKEN>;

// Whom the kernel says is at the other end of a connection, and its process's token, from HELLO on.
struct Peer {
  pid_t pid = 0;
  std::uint32_t uid = 0;
  ProcessToken process{};
};
inline bool same_process(const Peer& a, const Peer& b) { return a.uid == b.uid && a.process == b.process; }

// Who counts as one where there is only so much of something.
inline Holder holder_of(const Peer& peer) { return static_cast<Holder>(peer.pid); }

struct Pd {
  Share share;
  PdId id;
  std::uint32_t uses = 0;  // QPs, SRQs, regions, windows (V-PD-04)
};

struct Region {
  Share share;
  std::uint32_t handle = 0;
  Pd* pd = nullptr;  // null: a reregistration has failed and left nothing
  Stag stag;
  std::uint64_t start = 0, length = 0;
  std::uint32_t access = 0;
  rnic_rung rung = RNIC_RUNG_REMOTE_COPY;
  std::shared_ptr<shm::ApplicationMapping> mapping;
  bool dead = false;  // it was taken away
  bool ends = false;  // it is in the table no more, but a copy may still be under way
  // While a reregistration waits for such a copy: its errno, and what the region was mapped to.
  std::optional<int> change;
  std::shared_ptr<shm::ApplicationMapping> before;
};

struct Window {
  Share share;
  Pd* pd = nullptr;
  Stag stag;
  bool ends = false;  // as of a region
};

struct Cq {
  Share share;
  std::uint32_t handle = 0;
  std::uint64_t cookie = 0;
  std::uint64_t user_pointer = 0;
  Context* context = nullptr;
  std::uint32_t uses = 0;  // work queues (V-CQ-09)
  shm::ContextMemory::Piece piece;
  std::unique_ptr<shm::CompletionQueue> queue;
  std::shared_ptr<EventSocket> channel;
  EventSocket::Subject completions, events;
};

struct Srq {
  Share share;
  std::uint32_t handle = 0;
  std::uint64_t cookie = 0;
  std::uint64_t user_pointer = 0;
  Context* context = nullptr;
  Pd* pd = nullptr;
  std::uint32_t uses = 0;  // QPs (V-SRQ-21)
  std::uint32_t entries = 0, sge_max = 0;
  std::uint32_t limit_given = 0;
  DoorbellSlots::Slot doorbell;
  shm::ContextMemory::Piece piece;
  std::unique_ptr<shm::SharedReceiveQueue> queue;
  EventSocket::Subject events;
};

struct Qp {
  Share share;
  QpNumber number;
  std::uint64_t cookie = 0;
  std::uint64_t user_pointer = 0;
  Context* context = nullptr;
  Pd* pd = nullptr;
  Cq* send_cq = nullptr;
  Cq* recv_cq = nullptr;
  Srq* srq = nullptr;
  Shard* shard = nullptr;                            // that it is on: of its connection, once it has one
  DoorbellSlots::Slot send_doorbell, recv_doorbell;  // with an SRQ no second one
  shm::ContextMemory::Piece send_piece, recv_piece;
  // Of the send queue's data (RNIC_TRANSMIT_MEMORY), once it was asked for.
  shm::ContextMemory::Piece transmit_piece;
  Share transmit_share;
  std::unique_ptr<shm::SendQueue> send;
  std::unique_ptr<shm::ReceiveQueue> recv;
  std::unique_ptr<shm::QueueHost> host;
  std::unique_ptr<qp::QueuePair> qp;
  std::unique_ptr<ud::QueuePair> ud;        // of one of type UD, in place of that
  std::map<wire::IpAddress, Share> groups;  // that it is attached to
  EventSocket::Subject events, direct_events;
  rnic_address local{}, remote{};  // of its connection
  // The peer that its application has named by Modify, from RTR until it is in RESET or INIT again.
  struct Meets {
    wire::Meeting meeting;
    bool counts = false;  // it is in RTS to its application
    std::uint8_t traffic_class = 0;
  };
  std::optional<Meets> meets;
  Share stream_share;  // of a connection with that
};

// A stream in streaming mode (core/rdma_streams.hpp), or a listener for such.
struct DirectStream {
  enum class Kind : std::uint8_t { streaming, listener, running };  // running: it is a queue pair's

  Share share;
  Kind kind = Kind::streaming;
  std::uint32_t handle = 0;
  std::uint64_t cookie = 0;
  std::uint64_t user_pointer = 0;
  Context* context = nullptr;
  core::StreamId id;
  bool open = true;  // its handshake is over
  int error = 0;     // with which it has ended
  rnic_address local{}, remote{};
  // Of a listener.
  struct Caller {
    core::StreamId id;
    Share share;
    rnic_address local{}, remote{};
  };
  wire::IpAddress address;
  std::deque<Caller> callers;  // that nobody has accepted
  bool awaits_caller = false;  // its application has found none
  EventSocket::Subject events;
};

// Where it calls from: its ports say so, and one whose own is left to us calls from where it is.
inline Shard& shard_for(const Qp& qp, ServedDevice& device, const core::ConnectOptions& call) {
  return call.local_port == 0 ? *qp.shard : device.of(call);
}

class Context {
 public:
  // `memory`: the application's /proc/self/mem, or none; `process`: a pidfd of it, or null; `helper`: or null.
  // Errors are errno values, here and below.
  static Result<std::unique_ptr<Context>, int> open(Machine& machine, ServedDevice& device, Loop& loop,
                                                    const Peer& peer, Descriptor memory,
                                                    std::shared_ptr<const Descriptor> process,
                                                    std::unique_ptr<Helper> helper);
  // Destroys what is left, in the order MW, MR, QP, SRQ, CQ, PD.
  ~Context();
  void describe(Reply& reply);  // of OPEN_CONTEXT

  Reply alloc_pd();
  Reply dealloc_pd(std::uint32_t handle);
  Reply reg_mr(const rnic_reg_mr& request, Descriptor shared);
  Reply rereg_mr(const rnic_rereg_mr& request, const Descriptor& shared);
  Reply dereg_mr(std::uint32_t handle);
  Reply alloc_mw(const rnic_alloc_mw& request);
  Reply dealloc_mw(std::uint32_t handle);
  // The direct verbs': by STag, of which the index counts.
  Reply query_mr(Stag stag);
  Reply query_mw(Stag stag);
  Reply reg_shared_mr(const rnic_reg_shared_mr& request);
  Reply alloc_stag(const rnic_alloc_stag& request);
  Reply direct_events(Loop& loop);
  // Streams in streaming mode; `streams`: of the device.
  Reply stream_connect(const rnic_stream_connect& request, Shares& streams);
  Reply stream_listen(const rnic_stream_listen& request, Shares& streams);
  Reply stream_accept(const rnic_stream_accept& request);
  Reply stream_send(const rnic_stream_send& request);
  Reply stream_receive(const rnic_stream_receive& request);
  Reply stream_query(std::uint32_t handle);
  Reply stream_close(std::uint32_t handle);
  Reply start_iwarp(const rnic_start_iwarp& request);
  // `channel`: null when the request names none.
  Reply create_cq(const rnic_create_cq& request, std::shared_ptr<EventSocket> channel);
  Reply resize_cq(const rnic_resize_cq& request);
  Reply transmit_memory(const rnic_transmit_memory& request);
  Reply destroy_cq(std::uint32_t handle);
  Reply map_arena(std::uint32_t number);
  Reply create_srq(const rnic_create_srq& request);
  Reply modify_srq(const rnic_modify_srq& request);
  Reply query_srq(std::uint32_t handle);
  Reply destroy_srq(std::uint32_t handle);
  Reply create_qp(const rnic_create_qp& request);
  Reply modify_qp(const rnic_modify_qp& request);
  Reply query_qp(std::uint32_t number);
  Reply destroy_qp(std::uint32_t number);
  // To where its connection will be. False: it is not there, as it has a stream or has begun work, and is not to be
  // connected.
  bool move(Qp& qp, Shard& to);
  // A Modify with RNIC_MODIFY_PEER that says nowhere whom: without a GRH, or with one of no GID.
  static bool names_nobody(const rnic_modify_qp& request);
  bool has_gid(std::size_t index) const { return device_.gid(index).has_value(); }
  Reply attach_mcast(const rnic_mcast& request);
  Reply detach_mcast(const rnic_mcast& request);
  // `channel`: null for the async events. One hold at a time.
  Reply hold_events(std::shared_ptr<EventSocket> channel);
  Reply release_events();

  // ---- workers' news ----
  void on_qp_event(Qp& qp, qp::Event event);
  void on_srq_limit(Srq& srq);
  void on_cq_overflow(Cq& cq);
  void on_completions(Cq& cq);
  void on_stream_event(DirectStream& stream, const core::StreamEvent& event, Shares& streams);
  void on_port_event(IbvEvent event);  // GID_CHANGE, PORT_ACTIVE, PORT_ERR
  void drop_dead_memory();

  // Ends the process, where we may.
  void kill_process();

  // ---- what it is ----
  std::uint32_t number() const { return number_; }
  SpaceId space() const { return space_; }
  const Peer& peer() const { return peer_; }
  const std::string& program() const { return program_; }
  ServedDevice& device() { return device_; }
  const std::map<std::uint32_t, std::unique_ptr<Pd>>& pds() const { return pds_; }
  const std::map<std::uint32_t, std::unique_ptr<Region>>& regions() const { return regions_; }
  const std::map<std::uint32_t, std::unique_ptr<Window>>& windows() const { return windows_; }
  const std::map<std::uint32_t, std::unique_ptr<Cq>>& cqs() const { return cqs_; }
  const std::map<std::uint32_t, std::unique_ptr<Srq>>& srqs() const { return srqs_; }
  const std::map<std::uint32_t, std::unique_ptr<Qp>>& qps() const { return qps_; }

  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

 private:
  Context(Machine& machine, ServedDevice& device, const Peer& peer);

  template <typename T>
  static T* find(const std::map<std::uint32_t, std::unique_ptr<T>>& objects, std::uint32_t handle) {
    const auto found = objects.find(handle);
    return found == objects.end() ? nullptr : found->second.get();
  }
  // The thread by whose number this memory is copied; 0: by descriptor alone (architecture.md s6).
  pid_t copies_by() const { return helper_ == nullptr ? 0 : helper_->for_copies(); }
  std::uint32_t new_handle();
  Result<shm::ContextMemory::Piece, int> allocate(std::uint64_t bytes);
  void describe(Reply& reply, rnic_area& area, const shm::ContextMemory::Piece& piece);
  // A file of the application's, once for all regions that are mapped as much of it.
  struct File {
    dev_t device;
    ino_t inode;
    bool writable;
    auto operator<=>(const File&) const = default;
  };
  Result<std::shared_ptr<shm::ApplicationMapping>, int> map_part(int fd, std::uint64_t offset, std::uint64_t length,
                                                                 bool writable,
                                                                 std::optional<File> whole_of = std::nullopt);
  Result<std::shared_ptr<shm::ApplicationMapping>, int> map_whole(int fd, const File& file, std::uint64_t length);
  Result<std::byte*, int> map_shared(const rnic_reg_mr& request, std::uint64_t length, int fd, Region& region);
  Result<std::byte*, int> map_memory(const rnic_reg_mr& request, int fd, Region& region);
  // What a request asks for, but for its place in the table. An errno, or 0.
  int prepare(const rnic_reg_mr& request, int fd, Region& region, tpt::RegionOptions& options);
  int change(Region& region, const rnic_rereg_mr& request, int fd);
  // Another context's: none.
  std::optional<std::uint32_t> handle_of(PdId pd) const;
  Reply keep(std::unique_ptr<Region> region, Stag stag);
  Reply resize_srq(Srq& srq, const rnic_modify_srq& request, std::uint32_t entries);
  // The steps of create_qp.
  struct QpSizes;
  int carve(Qp& qp, const QpSizes& sizes);
  void make_host(Qp& qp);
  void start(Qp& qp, const QpSizes& sizes, const rnic_create_qp& request);
  void start_ud(Qp& qp);
  Reply described(const Qp& qp, const QpSizes& sizes);
  void make_on_worker(Qp& qp, const qp::Config& config, const qp::QueuePair* before);
  void unbind(Qp& qp);
  void destroy_on_worker(Qp& qp, Instant now);
  void release(Qp& qp, Instant now);
  // step(qp, now) for each, on its worker, others being served in between.
  template <typename Step>
  void for_qps(Step&& step) {
    for (Shard& shard : device_.shards)
      in_batches(*shard.worker, qps_, [&](auto& entry, Instant now) {
        if (entry.second->shard == &shard) step(*entry.second, now);
      });
  }
  int check_meeting(const Qp& qp, const rnic_modify_qp& request) const;
  Reply modify_ud(Qp& qp, const rnic_modify_qp& request);
  void forget(Qp& qp);
  void leave(Qp& qp, const wire::IpAddress& group);
  void forget(Srq& srq);
  void forget(Cq& cq);
  // ---- context_streams.cpp
  Result<std::unique_ptr<DirectStream>, int> new_stream(Share share, std::uint64_t user_pointer);
  rnic_handle_reply keep(std::unique_ptr<DirectStream> stream);
  DirectStream* find_stream(std::uint32_t handle, DirectStream::Kind kind) const;
  void end_on_worker(Shard& shard, DirectStream& stream, core::Disconnect how, Instant now);
  void end_streams();
  void forget(DirectStream& stream);
  void tell(DirectStream& stream);
  void on_caller_event(DirectStream& listener, const core::StreamEvent& event, Shares& streams);

  Machine& machine_;
  ServedDevice& device_;
  Peer peer_;
  Holder holder_ = 0;
  Share share_, descriptors_;
  struct Arena {
    Share descriptor;
    bool announced;  // the memfd has been sent to the application
  };
  std::vector<Arena> arenas_;  // of memory_, by number
  std::string program_;
  std::uint32_t number_ = 0;
  std::unique_ptr<shm::ContextMemory> memory_;
  SpaceId space_;
  bool space_known_ = false;
  Descriptor memory_fd_;
  std::shared_ptr<const Descriptor> process_;
  std::unique_ptr<Helper> helper_;
  std::shared_ptr<EventSocket> async_;
  Descriptor async_reader_;
  EventSocket::Subject port_events_;
  Share direct_share_;
  std::unique_ptr<EventSocket> direct_;  // the direct verbs', if it was asked for
  std::optional<EventHold> held_;

  Numbers handles_;
  DoorbellSlots doorbells_;
  std::map<std::uint32_t, std::unique_ptr<Pd>> pds_;
  bool refused_mapping_ = false;  // the last region that was to be mapped here, too
  std::map<File, std::weak_ptr<shm::ApplicationMapping>> files_;
  std::map<std::uint32_t, std::unique_ptr<Region>> regions_;
  std::vector<std::shared_ptr<shm::ApplicationMapping>> dead_mappings_;  // of regions; a copy may be on its way there
  std::map<std::uint32_t, std::unique_ptr<Window>> windows_;
  std::map<std::uint32_t, std::unique_ptr<Cq>> cqs_;
  std::map<std::uint32_t, std::unique_ptr<Srq>> srqs_;
  std::map<std::uint32_t, std::unique_ptr<Qp>> qps_;
  std::map<std::uint32_t, std::unique_ptr<DirectStream>> streams_;
};

}  // namespace rnic::control
