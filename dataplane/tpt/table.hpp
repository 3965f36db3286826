// The translation and protection table: what an STag names, and who may do what with it.
//
// Holds to RFC 5040 s8.1.1, RFC 5041 s7.1 and s8, and verbs.md s6.
//
// Written by control and, for Bind and the Invalidates, by workers; read by workers. Each entry is
// written under its own sequence; check() gives a private copy of what it found or a refusal, never
// a mix. An invalidation is *complete* when every worker has passed between two of its turns since
// (the caller's duty: control asks each worker; the worker that invalidates cancels and flushes its
// own items).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/siphash.hpp"

namespace rnic::tpt {

// The values are abi/rnic_shm.h's RNIC_ACCESS_*.
enum class Rights : std::uint32_t {
  none = 0,
  local_read = 0x01,
  local_write = 0x02,
  remote_read = 0x04,
  remote_write = 0x08,
  remote_atomic = 0x10,
  window_bind = 0x20,
  zero_based = 0x40,
  no_remote = 0x80,  // the Remote Access Flag is off: it can have no remote right (V-MR-17)
};
constexpr Rights operator|(Rights a, Rights b) {
  return static_cast<Rights>(static_cast<std::uint32_t>(a) | static_cast<std::uint32_t>(b));
}
constexpr Rights operator&(Rights a, Rights b) {
  return static_cast<Rights>(static_cast<std::uint32_t>(a) & static_cast<std::uint32_t>(b));
}
constexpr bool permits(Rights have, Rights wanted) { return (have & wanted) == wanted; }

// In the order of V-ACC-08: the first that fails is reported.
enum class Refusal : std::uint8_t {
  invalid_stag,    // no such index, wrong key, or not Valid
  not_associated,  // another PD, or (window) another QP
  access_rights,
  to_wrap,
  base_or_bounds,
  window,             // a window's STag where only a region's is allowed (V-SGL-04)
  cannot_invalidate,  // a window is bound to it, or it is shared (0/1/09)
  // Of bind() and control only:
  invalid_window,  // no such window (V-CS-24)
  invalid_region,  // no such region, or one that has no windows (V-CS-23)
  not_invalid,     // the window is bound already (V-CS-14)
};

// Why an STag was not fast-registered, in the order of the checks (V-MR-16).
enum class FastRefusal : std::uint8_t {
  invalid_stag,    // no such region
  not_associated,  // another PD
  not_invalid,     // Valid, as a shared one is always
  page_size,       // V-CS-15
  list_too_long,   // V-CS-21
  list_entry,      // V-CS-17
  first_offset,    // V-CS-18
  length,          // V-CS-19
  address,         // V-CS-22
  access_rights,   // V-CS-20
};

// Where a region's octets are: in an application's address space and, where they are shared
// memory, mapped here too.
struct Memory {
  SpaceId space{};
  std::uint64_t address = 0;    // of the region's first octet, in the application
  std::byte* direct = nullptr;  // the same octet in the daemon, or null: remote copy
  bool whole_pages = false;     // only the pages that lie inside the region are here (page swap)
};

// Pages as the page swap counts them: those that lie inside [address, +size). Empty: end <= start.
inline constexpr std::uint64_t kSwapPageBytes = 4096;
struct PageRange {
  std::uint64_t start = 0, end = 0;
};
constexpr PageRange whole_pages(std::uint64_t address, std::uint64_t size) {
  return {(address + kSwapPageBytes - 1) & ~(kSwapPageBytes - 1), (address + size) & ~(kSwapPageBytes - 1)};
}

// A permitted piece of memory, by value. How it is reached is the Mover's business.
struct Access {
  SpaceId space{};
  std::uint64_t address = 0;    // in the application
  std::byte* direct = nullptr;  // in the daemon, or null
  std::uint32_t length = 0;
  Stag stag{};
};

struct RegionOptions {
  PdId pd{};
  Rights rights = Rights::none;
  std::uint64_t base = 0;  // TO of the first octet (iova; 0 when zero-based)
  std::uint64_t size = 0;
  std::uint8_t key = 0;
  Memory memory{};
  std::uint32_t pages = 0;  // of a page list; 0: what a range takes of pages of the smallest size
};

// Sizes that a page of a list may have: a bit for each.
inline constexpr std::uint64_t kPageSizes = 0xfffff000;
constexpr bool is_page_size(std::uint64_t bytes) { return (bytes & (bytes - 1)) == 0 && (bytes & kPageSizes) != 0; }

// How long a page list an STag has room for: a power of two. What is not a list has room for its pages, within this.
inline constexpr std::uint32_t kPageListMax = 32768;

// What Fast-Register makes of an STag. The pages lie one behind the other from `memory` on.
struct PageList {
  Rights rights = Rights::none;
  std::uint64_t base = 0;  // TO of the first octet
  std::uint64_t size = 0;
  std::uint64_t page_bytes = 0;
  std::uint64_t first_offset = 0;  // of the first octet, in the first page
  std::uint64_t addresses = 0;     // of all pages, or-ed
  std::uint32_t count = 0;
  SpaceId space{};
  std::uint64_t view = 0;  // of the first page, in the application
};

enum class RegisterError : std::uint8_t {
  no_resources,
  bad_rights,  // V-ACC-01
  bad_range,   // past 2^64, in TOs or in the application
  bad_stag,    // reregister, register_shared: not such a region
  busy,        // reregister: a window is bound to it; it stays as it is (V-MR-06)
};

// Whom a bound window is for.
enum class WindowScope : std::uint8_t {
  qp,  // the queue pair that it was bound on (V-MW-10; type 2 of InfiniBand)
  pd,  // all of its protection domain, as a region is (type 1 of InfiniBand, of which verbs.md has nothing)
};

// What an STag is: for queries.
struct StagInfo {
  Stag stag{};  // the key has a meaning only while Valid (V-STAG-04)
  bool window = false;
  bool valid = false;
  bool shared = false;
  PdId pd{};
  QpNumber qp{};                        // a Valid window's, where its scope is that
  WindowScope scope = WindowScope::qp;  // a window's
  Rights rights = Rights::none;
  std::uint64_t base = 0, size = 0;  // TOs
  Memory memory{};
  std::uint32_t pages = 0;          // a region's: of the longest page list that it has room for
  std::uint32_t windows_bound = 0;  // a region's
  std::uint32_t region_entry = 0;   // a region's own, a Valid window's region's
};

// Where the Response of an RDMA Read goes (V-RD-03, V-RD-05): into a region or window whose own STag the
// peer may write to, or into a region by an STag that was made for this Read alone. Such an STag is in
// no table: it is one of an index that no entry ever has, so whatever else names it is refused. It takes
// no entry, and who holds this value says for which Response, and how long, it is good.
struct ReadSink {
  Stag stag{};                     // what the Request names, and each segment of the Response has to
  Stag consumers{};                // what the consumer named
  std::uint32_t registration = 0;  // of its region, for an STag of this Read's own; else 0
  bool own_stag() const { return registration != 0; }
};

// Those of one stream of Reads, one after the other: 256 in a row are different ones.
struct ReadStags {
  std::uint64_t stream = 0;
  std::uint64_t count = 0;
};

class Table {
 public:
  // Half of the indexes at most: the others are for Reads.
  static constexpr std::uint32_t kEntriesMax = 1u << 23;

  // `entries_max` STags at most (kEntriesMax at the highest). `seed` makes indexes hard to guess
  // (W-RDMAP-22, -62): they are spread over all 24 bits, in no order, and an entry is reused as
  // late as possible, and under another index. With a power of two a Read's own STag is as hard to
  // guess as another; with one less it has few indexes to choose from.
  Table(std::uint32_t entries_max, std::uint64_t seed);
  ~Table();

  // ---- control; may be called by several threads ----
  Result<Stag, RegisterError> register_region(const RegionOptions& options);
  // Another region over the memory of `existing`, of the same size; both are Shared from now on
  // (V-MR-11, -12). `options` gives PD, rights, base and key. By copy: without what of it is mapped here.
  enum class Reach : std::uint8_t { same, by_copy };
  Result<Stag, RegisterError> register_shared(Stag existing, const RegionOptions& options, Reach reach = Reach::same);
  // An Invalid STag without memory, for a page list of `pages`, at most kPageListMax (V-MR-03). Of `rights` no_remote
  // alone counts.
  Result<Stag, RegisterError> allocate_region(PdId pd, Rights rights, std::uint32_t pages);
  // The same index, all else anew (V-MR-05). A failure but bad_stag and busy leaves nothing
  // registered (V-MR-07). `stag` needs its index only.
  Result<Stag, RegisterError> reregister(Stag stag, const RegionOptions& options);
  // Not Valid any more, at once; refused while a window is bound to it (V-MW-14). No key is looked
  // at (V-MR-19). Its memory may be let go when the invalidation is complete (see above).
  Result<Done, Refusal> deregister(Stag stag);
  // Its memory is gone: Invalid for good, whatever is bound to it or it is bound to. It is still there to be
  // deregistered or deallocated; its memory may be let go when the invalidation is complete.
  void revoke(Stag stag);
  Result<Stag, RegisterError> allocate_window(PdId pd, std::uint8_t key, WindowScope scope = WindowScope::qp);
  Result<Done, Refusal> deallocate_window(Stag stag);
  std::uint32_t used() const;
  std::optional<StagInfo> query(Stag stag) const;  // by index

  // ---- workers ----
  // Local SGE: region only (never a window), PD, rights, bounds. Length 0 checks nothing
  // (V-SGL-03) and gives an Access of length 0.
  Result<Access, Refusal> check_local(Stag stag, PdId pd, Rights wanted, std::uint64_t to, std::uint32_t length) const;
  // Remote: region by PD or window by QP; length 0 checks nothing (V-ACC-07). The QP's own enables
  // are the caller's to look at (V-ACC-03).
  Result<Access, Refusal> check_remote(Stag stag, PdId pd, QpNumber qp, Rights wanted, std::uint64_t to,
                                       std::uint32_t length) const;
  // Send with Invalidate (V-INV-01..08, W-RDMAP-16, -17): `qp_enables` are the QP's remote enables.
  // Refused with invalid_stag, not_associated, access_rights or cannot_invalidate; the entry is then
  // as it was.
  Result<Done, Refusal> invalidate_remote(Stag stag, PdId pd, QpNumber qp, Rights qp_enables);
  // Whether that would be done now; nothing is changed.
  bool may_invalidate_remote(Stag stag, PdId pd, QpNumber qp, Rights qp_enables) const;
  Result<Done, Refusal> invalidate_local(Stag stag, PdId pd, QpNumber qp);
  // V-MR-15, -16; that the queue pair may is the caller's to look at. The STag's key becomes `stag`'s.
  Result<Done, FastRefusal> fast_register(Stag stag, PdId pd, const PageList& list);
  // Windows (V-MW-*): `new_key` becomes the window's key; of `window` only the index counts.
  // `rights`: remote ones, and zero_based. `address` is a TO of the region. The QP's bind enable is
  // the caller's to look at. A window of a PD may be bound already, and is then bound anew, in one step for
  // whoever uses it; with a length of 0 it is bound to nothing any more, and no region is looked at.
  Result<Done, Refusal> bind(Stag window, std::uint8_t new_key, Stag region, PdId pd, QpNumber qp, Rights rights,
                             std::uint64_t address, std::uint64_t length);

  // The sink of an RDMA Read of `length` octets (not 0), before its Request leaves. A region needs PD,
  // Local Write and bounds; it goes on under its own STag where it has Remote Write and the queue pair
  // enables that (`qp_enables`), otherwise under one for this Read alone, made from `stags`. A window
  // needs what a peer's Write needs of it.
  Result<ReadSink, Refusal> check_read_sink(Stag stag, PdId pd, QpNumber qp, Rights qp_enables, std::uint64_t to,
                                            std::uint32_t length, ReadStags& stags) const;
  // A segment of that Read's Response, where the Read has an STag of its own: the region is still the one
  // that was checked, under whatever STag others are since (V-MR-20, V-INV-10). That the segment is
  // one of this Response, and within its range, is the caller's to look at.
  Result<Access, Refusal> check_read(const ReadSink& sink, std::uint64_t to, std::uint32_t length) const;
  // For a stream that begins: no two are the same, nor can one be told from others.
  ReadStags read_stags() { return {.stream = read_streams_.fetch_add(1, std::memory_order_relaxed)}; }
  // A QP is destroyed only when no window is bound to it (V-QP-15).
  bool window_bound_to(QpNumber qp) const;

  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

 private:
  struct Fields;
  struct Entry;
  class Locked;
  struct Free;

  Entry* find(Stag stag) const;
  bool read(Stag stag, Fields& fields) const;
  Result<Stag, RegisterError> add(Fields fields, std::uint8_t key);
  void remove(Locked& entry);
  void leave(std::uint32_t slot);
  void unbind(Locked& window);
  static std::optional<FastRefusal> refusal_of(const Fields& region, PdId pd, const PageList& list);
  static std::optional<Refusal> refusal_to_bind(const Fields& window, const Fields& region, Stag stag, PdId pd,
                                                Rights rights, std::uint64_t address, std::uint64_t length);
  static std::optional<Refusal> refusal_to_invalidate(const Fields& fields, Stag stag, PdId pd, QpNumber qp,
                                                      bool remote, Rights qp_enables);
  Result<Done, Refusal> invalidate(Stag stag, PdId pd, QpNumber qp, bool remote, Rights qp_enables);
  std::atomic_ref<std::uint32_t> bound_to(QpNumber qp) const;
  Stag next_of(ReadStags& stags) const;

  Entry* entries_ = nullptr;
  std::uint32_t slots_ = 0;      // entries there are
  std::uint32_t slot_mask_ = 0;  // of an index: which entry
  mutable std::mutex control_;   // of free_
  std::unique_ptr<Free> free_;
  // Bound windows, by their queue pair's number. No more of it is in memory than was ever counted in.
  std::uint32_t* bound_by_qp_ = nullptr;
  SipKey read_key_;
  std::atomic<std::uint64_t> read_streams_ = 0;
};

}  // namespace rnic::tpt
