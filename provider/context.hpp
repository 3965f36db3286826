/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// What one ibv_open_device gives, and the objects made in it: the provider's private memory.
//
// All of it lives in zeroed memory and has no constructor or destructor, so that neither an exit
// nor a forked child runs anything of ours. Who may write what:
//   - lists and tables of a context: under `objects`; the data path reads the tables without it;
//   - a CQ's consumer side, and the tail of the work queues that report to it: under the CQ's lock;
//   - a work queue's head: under that queue's lock; the order is CQ lock, then SRQ lock.
#pragma once

#include <infiniband/verbs.h>
#include <pthread.h>
#include <semaphore.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "control_client.hpp"
#include "courtesy.hpp"
#include "region_table.hpp"
#include "ring.hpp"
#include "rnic_control.h"
#include "rnic_shm.h"

namespace rnic::provider {

// 24-bit numbers to pointers or values, 4096 to a page. A page, once there, stays until the
// context closes, so a reader needs no lock.
template <typename Entry>
struct NumberTable {
  static constexpr std::uint32_t kPageEntries = 4096;
  static constexpr std::uint32_t kPages = (1U << 24) / kPageEntries;
  Entry* pages[kPages];

  // Nothing where no page is; else the entry, which may be empty.
  Entry* find(std::uint32_t number) {
    if (number >= kPages * kPageEntries) return nullptr;
    Entry* page = load(pages[number / kPageEntries], std::memory_order_acquire);
    return page == nullptr ? nullptr : &page[number % kPageEntries];
  }

  // The entry, its page made if need be; nothing when out of memory. One caller at a time.
  Entry* make(std::uint32_t number);
  void clear();
};

// Everything that has to be told when the daemon dies hangs in a list of its context.
struct Link {
  Link* next;
  Link* previous;
  void* owner;

  void make_head() { next = previous = this; }
  void insert_after(Link& head, void* of) {
    owner = of;
    next = head.next;
    previous = &head;
    head.next->previous = this;
    head.next = this;
  }
  void remove() {
    previous->next = next;
    next->previous = previous;
  }
};

struct Cq;
struct PagesUse;
struct PageView;
struct Qp;
struct Srq;

struct Arena {
  char* base;
  std::uint64_t size;
};

// Registrations whose pages are left as they are after the daemon could not map those of one: they would be
// copied for nothing. Room may come by a region of another context, of which nothing is heard here.
inline constexpr std::uint32_t kUnswappedAfterRefusal = 64;

// What `Context::not_forked` says: whether this process may post, and may be copied from at post, by one load.
enum Mark : std::uint32_t {
  kForkedChild = 0,  // what is posted is its parent's, who knows nothing of it
  kMayPost = 1,
  kLookTwice = 2,  // the daemon has gone; or the kernel wipes no pages, so that nobody can tell
};

struct Context {
  verbs_context verbs;  // first: libibverbs' part

  ControlClient control;
  Doorbells doorbells;
  std::uint32_t* not_forked;  // enum Mark, on a page that the kernel wipes in a forked child
  std::uint32_t dead;         // the daemon has gone, or ends this context; set by mark_dead()
  std::uint32_t not_offered;  // of enum rnic_extension, what was refused and the daemon has been told of
  NumberTable<Qp*> qps;
  RegionTable regions;

  rnic_device_attributes attributes;
  rnic_device_info device;
  std::uint32_t number;
  std::uint32_t next_key;
  std::uint32_t address_handles;  // how many there are
  std::uint32_t unswapped_left;   // registrations that are not to be swapped
  int async_fd;                   // reading end; libibverbs closes it
  int async_writer;               // our copy of the daemon's end, for the day the daemon dies
  int direct_events;              // reading end of the direct verbs' events, plus 1; 0: nobody has asked for them

  pthread_mutex_t objects;  // taken before a CQ's lock
  Link cq_list;
  Link qp_list;
  Link stream_list;             // in streaming mode (direct_streams.cpp)
  pthread_mutex_t streams;      // of that list; held until a stream that is made has its handle
  pthread_mutex_t arena_mutex;  // taken before a CQ's lock; see ArenaGuard
  Arena* arenas;
  std::uint32_t arena_count;
  std::uint32_t arenas_told;  // by the daemon: those of a number below

  pthread_t watcher;
  bool watcher_runs;
  std::uint32_t watcher_tid;
  int watcher_wake;  // eventfd
  std::uint32_t closing;
  sem_t watcher_started;
};
static_assert(std::is_standard_layout_v<Context>);

struct Td {
  ibv_td ibv;          // first
  std::uint32_t uses;  // by parent domains
};

struct Pd {
  ibv_pd ibv;          // first
  Pd* stands_for;      // of a parent domain; its handle is the same
  Td* thread_domain;   // of a parent domain that has one
  std::uint32_t uses;  // by parent domains that stand for this one, and by what is in it and the daemon does not count
};

// Begins as libibverbs expects a verbs_mr to begin; provider.cpp checks that.
struct Mr {
  ibv_mr ibv;
  int type;
  int access;
  std::uint32_t pd;   // its handle
  PagesUse* swapped;  // none: its pages are where the application put them
  PageView* views;    // of page lists; the youngest first
};

// A queue's attachment to the CQ it reports to.
struct Attachment {
  Link link;  // its owner: this
  Qp* qp;
  bool is_send;
};

struct Cq {
  union {  // first
    ibv_cq ibv;
    ibv_cq_ex ex;
  };

  alignas(RNIC_CACHE_LINE) Spinlock lock;
  std::uint32_t shift;  // the ring has 2^shift entries
  rnic_cq_control* control;
  rnic_cqe* entries;
  std::uint64_t consumer;
  Courtesy courtesy;
  Qp* last_qp;  // spares most polls the table
  Link attached;
  std::uint32_t arm_sequence;
  std::uint32_t arm_kind;
  std::uint32_t fired_here;  // the last sequence that we fired ourselves
  bool flushing;             // the ring has been emptied for good; what comes are our flushes

  int channel_writer;          // our copy of the writing end of its channel; -1: no channel
  std::uint32_t events_taken;  // completion events that ibv_get_cq_event has returned
  std::uint32_t events_sent;   // by us, after the daemon's death
  std::uint32_t async_taken;
  bool told_of_death;
  Link in_context;
  ibv_pd* domain;  // the parent domain that it is in, if any

  // From ibv_start_poll to ibv_end_poll: verbs_iterate.cpp.
  Spinlock iteration;    // taken before `lock`
  bool single_threaded;  // the application says that nobody else comes
  pthread_t iterates;    // the thread that does; 0: none
  ibv_wc current;
  std::uint64_t current_time;
};

struct SendSlot {
  std::uint64_t wr_id;
  std::uint32_t opcode;
  std::uint32_t staged;  // octets that were staged in the queue so far, its own too (modulo 2^32)
};

// What is gathered at post and does not fit an entry: a ring of the queue's own, filled in post order and freed with
// the entries. It is asked for when it is missed for the first time, after that post.
struct TransmitMemory {
  enum : std::uint32_t { kNone, kMissed, kAsked };
  std::byte* base;        // null: there is none
  std::uint32_t size;     // a power of two
  std::uint32_t state;    // kAsked: there will be no other
  std::uint32_t message;  // octets of the first that was missed
};

struct SendQueue : WorkQueue {
  SendSlot* work;
  TransmitMemory transmit;
  std::uint32_t inline_max;
  std::uint32_t last_read;  // index of the youngest RDMA Read or atomic, if any_read
  bool any_read;
  bool signal_all;

  SendSlot& work_at(std::uint32_t index) const { return work[index & (size - 1)]; }
  // What an entry is that has nothing staged; in post order.
  void note(std::uint32_t index, std::uint64_t wr_id, std::uint32_t opcode) {
    work_at(index) = {wr_id, opcode, work_at(index - 1).staged};
  }
};

struct ReceiveQueue : WorkQueue {
  std::uint64_t* wr_ids;  // of its slots; of an SRQ, by id
};

// What ibv_wr_start begins and ibv_wr_complete or ibv_wr_abort ends, all under the send queue's lock. The entries are
// written beyond the queue's head, where nobody sees them (verbs_build.cpp).
struct Batch {
  ibv_send_wr wr;           // of the builder called last
  bool waits;               // for its data: it is not written yet
  bool masked;              // it is an atomic operation with masks: those below
  bool wants_address;       // of a datagram: the entry written last has none yet
  std::uint32_t end;        // behind the entries written
  std::uint64_t data_mask;  // of an atomic operation: as struct rnic_atomic_masks has them
  std::uint64_t compare_mask;
  int error;                // the first; nothing more is written then
  std::uint32_t last_read;  // as the queue had these two before
  bool any_read;
};

// A queue pair as libibverbs has it: its verbs_qp, as provider.cpp checks.
struct QpFace {
  union {
    ibv_qp ibv;
    ibv_qp_ex ex;
  };
  std::uint32_t mask;
  void* xrc_domain;  // always none
};
inline constexpr std::uint32_t kQpHasBuilders = 1 << 1;  // of `mask`

struct Qp : QpFace {
  Context* context;
  Srq* srq;
  Attachment send_attachment;
  Attachment receive_attachment;
  ibv_qp_cap cap;
  // InfiniBand's attributes as its application has set them (which: enum ibv_qp_attr_mask), where the device connects
  // without rdma_cm.
  ibv_qp_attr asked;
  int asked_mask;
  bool meets;  // it has been given its peer
  bool binds;  // Binds are let: on every queue pair that ibverbs makes
  std::uint32_t async_taken;
  bool told_of_death;
  bool told_last_wqe;  // since it was in RESET; by whoever takes events, and the watcher
  Link in_context;

  SendQueue send;
  ReceiveQueue receive;
  Batch batch;
};

// Where datagrams go. All of it is known here; the daemon judges it when one is sent.
struct Ah {
  ibv_ah ibv;  // first
  rnic_ud_address address;
};

struct Srq {
  ibv_srq ibv;  // first

  Context* context;
  ReceiveQueue queue;  // of its indexes, `head` alone is used: places come free in any order
  // An id is a receive's from its post until its completion is polled. There are as many as the queue has ever been
  // deep, so that receives keep theirs when it is made smaller.
  std::uint32_t id_count;
  std::uint32_t* free_ids;
  std::uint32_t free_count;
  std::uint32_t handle;
  std::uint32_t async_taken;
};

inline Context& context_of(const ibv_context* context) {
  auto* at = reinterpret_cast<const char*>(context) - offsetof(verbs_context, context);
  return *reinterpret_cast<Context*>(const_cast<char*>(at));
}
// Queue pairs meet by ibv_modify_qp, without rdma_cm.
inline bool connects_oob(const Context& context) {
  return (context.attributes.capabilities & RNIC_CAP_OOB_CONNECT) != 0;
}
// Its face: what InfiniBand's rules are for.
inline bool is_roce(const Context& context) { return (context.attributes.capabilities & RNIC_CAP_ROCE) != 0; }
inline Context& context_of(const ibv_pd* pd) { return context_of(pd->context); }
inline Pd& of(ibv_pd* pd) { return *reinterpret_cast<Pd*>(pd); }
inline Td& of(ibv_td* td) { return *reinterpret_cast<Td*>(td); }
inline Cq& of(ibv_cq* cq) { return *reinterpret_cast<Cq*>(cq); }
inline Cq& of(ibv_cq_ex* cq) { return *reinterpret_cast<Cq*>(cq); }
inline Qp& of(ibv_qp* qp) { return *static_cast<Qp*>(reinterpret_cast<QpFace*>(qp)); }
inline Qp& of(ibv_qp_ex* qp) { return of(&qp->qp_base); }
inline Ah& of(ibv_ah* ah) { return *reinterpret_cast<Ah*>(ah); }
inline bool is_datagram(const Qp& qp) { return qp.ibv.qp_type == IBV_QPT_UD; }
// Octets in front of an entry's SGEs.
inline std::size_t send_header_of(const Qp& qp) {
  return sizeof(rnic_sqe) + (is_datagram(qp) ? sizeof(rnic_ud_address) : 0);
}
// As many address handles a context may have: ibv_device_attr's max_ah.
inline std::uint32_t max_address_handles(const Context& context) { return context.attributes.max_qp; }
inline bool has_datagrams(const Context& context) { return (context.attributes.capabilities & RNIC_CAP_UD) != 0; }
inline Srq& of(ibv_srq* srq) { return *reinterpret_cast<Srq*>(srq); }

// Zeroed, on a cache line of its own; free() releases it.
void* allocate_zeroed(std::size_t size);

// Opens: the context is zeroed but for what libibverbs has put into `verbs`. Takes over nothing of
// `command_fd` but its use. 0 or an errno; after a failure everything of ours is released.
int open_context(Context& context, int command_fd, const char* device_name);
void close_context(Context& context);

// Held from a request until the areas in its answer are mapped: whoever has it knows of every arena that the daemon
// has told of. In a forked child another thread may have it for ever; no request is made there.
class ArenaGuard {
 public:
  explicit ArenaGuard(Context& context) : mutex_(context.control.in_forked_child() ? nullptr : &context.arena_mutex) {
    if (mutex_ != nullptr) pthread_mutex_lock(mutex_);
  }
  ~ArenaGuard() {
    if (mutex_ != nullptr) pthread_mutex_unlock(mutex_);
  }
  ArenaGuard(const ArenaGuard&) = delete;
  ArenaGuard& operator=(const ArenaGuard&) = delete;

 private:
  pthread_mutex_t* mutex_;
};

// The address of an area the daemon has given, into `at`; maps its arena if that is not there. Under an ArenaGuard, as
// the next. 0 or an errno: EMFILE, where the arena's descriptor could not be received.
int map_area(Context& context, const rnic_area& area, Descriptors& fds, char*& at);
// Maps the arenas that could not be when the daemon told of them. 0 or an errno.
int map_missing_arenas(Context& context);

// ---- whether one may post ------------------------------------------------------------------------

inline bool is_forked_child(const Context& context) {
  return load(*context.not_forked, std::memory_order_relaxed) == kForkedChild;
}
// The same as cannot_post(), where the mark is not kMayPost.
int why_not_post(const Context& context);
// 0, or an errno: EPERM in a forked child, EIO after the daemon's death. Under the queue's lock.
inline int cannot_post(const Context& context) {
  return load(*context.not_forked, std::memory_order_acquire) == kMayPost ? 0 : why_not_post(context);
}
// Takes a queue's lock to post. In a forked child, where nothing will be, a thread of its parent may hold it for ever:
// there it may come back without.
inline void lock_to_post(Spinlock& lock, const Context& context) {
  if (!lock.try_lock() && !is_forked_child(context)) lock.lock();
}

class PostGuard {
 public:
  PostGuard(Spinlock& lock, const Context& context) : lock_(lock) { lock_to_post(lock, context); }
  ~PostGuard() { lock_.unlock(); }
  PostGuard(const PostGuard&) = delete;
  PostGuard& operator=(const PostGuard&) = delete;

 private:
  Spinlock& lock_;
};

// The daemon has gone. Whoever takes a queue's lock after this posts nothing.
void mark_dead(Context& context);
// Marks the context dead and has the watcher tell everybody.
void report_death(Context& context);

inline bool is_dead(const Context& context) {
  return load(context.dead, std::memory_order_acquire) != 0 ||
         load(context.doorbells.status->dead, std::memory_order_acquire) != 0;
}

// Sends a completion event of this CQ into its channel, as the daemon would. False: no room now.
bool fire_completion_event(Cq& cq);

// A socket of events and what names it to the daemon: a channel's cookie; 0 for async events.
struct EventSocket {
  int reader;
  int writer;
  std::uint64_t channel_cookie;
};

// Puts a message into such a socket, as the daemon would. False: no room now.
bool send_event(const Context& context, int writer, const void* message, std::size_t size);

// Takes the unread events of an object out of a socket. The daemon sends none of it any more; this waits for nothing
// but the daemon's answer. Returns how many there were; in a forked child nothing is touched.
std::uint32_t drop_events(Context& context, const EventSocket& socket, const void* object);

// The work of the watcher; see watcher.cpp.
int start_watcher(Context& context);
void stop_watcher(Context& context);

// RNIC_ACCESS_* of ibv_access_flags, and back.
std::uint32_t to_rnic_access(unsigned access);
unsigned to_ibv_access(std::uint32_t access);

// ---- The operations, by the names libibverbs gives them -----------------------------------------

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attributes,
                    std::size_t size);
int query_rt_values(ibv_context* context, ibv_values_ex* values);
int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes);
ibv_pd* alloc_pd(ibv_context* context);
int dealloc_pd(ibv_pd* pd);
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attributes);
ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attributes);
int dealloc_td(ibv_td* td);
ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova, int access);
int rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* address, std::size_t length, int access);
int dereg_mr(ibv_mr* mr);
ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type);
int dealloc_mw(ibv_mw* window);
int bind_mw(ibv_qp* qp, ibv_mw* window, ibv_mw_bind* bind);
ibv_cq* create_cq(ibv_context* context, int entries, ibv_comp_channel* channel, int vector);
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attributes);
int resize_cq(ibv_cq* cq, int entries);
int destroy_cq(ibv_cq* cq);
void cq_event(ibv_cq* cq);
ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* attributes);
ibv_srq* create_limited_srq(ibv_pd* pd, ibv_srq_init_attr* attributes, std::uint32_t limit);
int modify_srq(ibv_srq* srq, ibv_srq_attr* attributes, int mask);
int query_srq(ibv_srq* srq, ibv_srq_attr* attributes);
int destroy_srq(ibv_srq* srq);
ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes);
ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attributes);
// With what ibverbs has no attributes for.
struct DirectAttributes {
  std::uint32_t flags;  // RNIC_QP_*
  std::uint32_t receive_limit;
};
ibv_qp* create_qp_with(ibv_context* context, ibv_qp_init_attr_ex* attributes, const DirectAttributes& direct);
// It has been brought to this state (enum rnic_qp_state) by another way than modify_qp().
void note_state(Qp& qp, std::uint32_t state);
int modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask);
int query_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask, ibv_qp_init_attr* init);
int destroy_qp(ibv_qp* qp);
// Of a device with UD queue pairs.
ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attributes);
int destroy_ah(ibv_ah* ah);
int attach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid);
int detach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid);
void async_event(ibv_context* context, ibv_async_event* event);

int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad);
// After a post, and with no lock held: if it missed transmit memory. It is for the posts that follow.
void get_missed_transmit_memory(Qp& qp);
inline void after_post(Qp& qp) {
  if (load(qp.send.transmit.state, std::memory_order_relaxed) == TransmitMemory::kMissed) [[unlikely]]
    get_missed_transmit_memory(qp);
}
int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad);
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad);
int poll_cq(ibv_cq* cq, int count, ibv_wc* completions);
int req_notify_cq(ibv_cq* cq, int solicited_only);

// What poll_cq() does, of one completion, and when that was made; 0: not told.
bool poll_one(Cq& cq, ibv_wc& completion, std::uint64_t& time);
// ibv_start_poll and what may be called after it.
void set_iterators(ibv_cq_ex& cq);

// Nanoseconds of CLOCK_MONOTONIC: the raw clock of a device, by which the daemon goes, too.
std::uint64_t raw_clock();

// Writes a send queue's entry of this index, which is the queue's head or follows it with all between written. Nobody
// sees it. An error leaves the queue as it was. Under the queue's lock.
int write_send_entry(Qp& qp, std::uint32_t index, const ibv_send_wr& wr);
// Between wr_start and wr_complete, for a builder of an entry that is not an ibv_send_wr: ends the builder before, and
// gives the place of the next entry; null: something is wrong already, or there is no room. Then entry_written().
std::byte* next_entry(ibv_qp_ex& qp);
void entry_written(ibv_qp_ex& qp, std::uint64_t wr_id, std::uint8_t opcode);
void fail_batch(ibv_qp_ex& qp, int error);
void begin_read_invalidate(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address);
void begin_masked_fetch_add(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, std::uint64_t add,
                            std::uint64_t mask);
void begin_masked_cmp_swp(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, std::uint64_t compare,
                          std::uint64_t compare_mask, std::uint64_t swap, std::uint64_t swap_mask);
// Its index, of the entry that next_entry() gives.
std::uint32_t next_index(ibv_qp_ex& qp);
// RDMA Read, whose sink's STag is invalidated behind it: of ibverbs' opcodes the one that is the driver's.
inline constexpr ibv_wr_opcode kReadInvalidate = IBV_WR_DRIVER1;
// RNIC_SQE_* of ibv_send_flags that this opcode (RNIC_OP_*) listens to, which are `flags`.
std::uint8_t entry_flags(const SendQueue& queue, std::uint8_t flags, unsigned send_flags);
// Of a datagram's entry, one written or about to be.
void write_address(Qp& qp, std::uint32_t index, const ibv_send_wr& wr);
// 0 if this is an operation of this device's queue pairs, connected or of datagrams, or EOPNOTSUPP; the daemon's log
// says once what could be one.
int check_postable(Context& context, ibv_wr_opcode opcode, bool datagrams);
// Whether queue pairs of this device have all of these IBV_QP_EX_WITH_*, and the builders of one.
bool has_builders_of(Context& context, std::uint64_t operations, bool datagrams);
void set_builders(ibv_qp_ex& qp);

// V-QP-19: makes polls pass over what the ring still holds of this QP.
void remove_completions(Cq& cq, const Qp& qp);

}  // namespace rnic::provider
