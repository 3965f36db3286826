#include "tpt/table.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/assert.hpp"

namespace rnic::tpt {
namespace {

constexpr std::uint32_t kIndexBits = 24;
constexpr std::size_t kQpNumbers = std::size_t{1} << 24;
constexpr std::size_t kQpCountersBytes = kQpNumbers * sizeof(std::uint32_t);
constexpr Rights kRemote = Rights::remote_read | Rights::remote_write | Rights::remote_atomic;
constexpr Rights kAll =
    kRemote | Rights::local_read | Rights::local_write | Rights::window_bind | Rights::zero_based | Rights::no_remote;

// Not there before it is touched.
void* map_zeroed(std::size_t bytes) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kFlags, -1, 0);
  RNIC_ASSERT(memory != MAP_FAILED);
  return memory;
}

constexpr std::uint64_t kSmallestPage = kPageSizes & ~(kPageSizes - 1);

constexpr bool any(Rights rights) { return rights != Rights::none; }

// What a remote right needs of the local ones: V-ACC-01 for a region, V-ACC-02 for a window on it.
// An atomic operation reads and writes.
constexpr bool local_rights_allow(Rights local, Rights remote) {
  if (permits(remote, Rights::remote_read) && !permits(local, Rights::local_read)) return false;
  if (permits(remote, Rights::remote_write) && !permits(local, Rights::local_write)) return false;
  return !permits(remote, Rights::remote_atomic) || permits(local, Rights::local_read | Rights::local_write);
}

constexpr bool region_rights_allowed(Rights rights) {
  if (permits(rights, Rights::no_remote) && any(rights & kRemote)) return false;  // V-MR-18
  return permits(kAll, rights) && any(rights & (Rights::local_read | Rights::local_write)) &&
         local_rights_allow(rights, rights);
}
static_assert(!region_rights_allowed(Rights::none) && !region_rights_allowed(Rights::remote_read));
static_assert(!region_rights_allowed(Rights::local_read | Rights::remote_write));

// Past 2^64. The octet 2^64 - 1 exists: a piece that ends with it does not wrap.
constexpr bool wraps(std::uint64_t first, std::uint64_t length) {
  return length != 0 && length - 1 > std::numeric_limits<std::uint64_t>::max() - first;
}

// Subtractions only: `offset + length <= base + size` is false comfort near 2^64.
constexpr bool within(std::uint64_t first, std::uint64_t length, std::uint64_t base, std::uint64_t size) {
  return first >= base && first - base <= size && length <= size - (first - base);
}

constexpr Access no_octets(Stag stag) {
  Access access;
  access.stag = stag;
  return access;
}

// The power of two that so many pages of a list need; of a range, those that it takes.
constexpr std::uint8_t pages_log2(std::uint32_t listed, std::uint64_t address, std::uint64_t size) {
  const std::uint64_t touched = (address % kSmallestPage + size + kSmallestPage - 1) / kSmallestPage;
  const std::uint64_t pages = std::clamp<std::uint64_t>(listed != 0 ? listed : touched, 1, kPageListMax);
  return static_cast<std::uint8_t>(std::bit_width(pages - 1));
}
static_assert(pages_log2(0, 4095, 2) == 1 && pages_log2(0, 4095, 1) == 0 && pages_log2(5, 0, 1) == 3);
static_assert(pages_log2(0, 4096, 0) == 0);  // no octets, one page

// SipHash-2-4 of a counter (Aumasson, Bernstein 2012): numbers from which, without the seed, the
// next ones cannot be told.
class Unpredictable {
 public:
  explicit Unpredictable(std::uint64_t seed) : key_{seed, ~seed} {}
  std::uint64_t next() { return siphash(std::array{count_++}, key_); }
  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(((next() >> 32) * bound) >> 32); }

 private:
  SipKey key_;
  std::uint64_t count_ = 0;
};

}  // namespace

enum class Kind : std::uint8_t { none, region, window };

// What an entry says. Memory and TOs are a window's own: after a Bind its region is not asked any
// more (V-MW-11).
struct Table::Fields {
  Stag stag;
  Kind kind = Kind::none;
  std::uint8_t pages_log2 = 0;  // region: its room for a page list
  bool valid : 1 = false;
  bool shared : 1 = false;
  bool whole_pages : 1 = false;  // `direct` is good for those inside [address, +size) only
  bool of_pd : 1 = false;        // window: WindowScope::pd
  std::uint8_t rights = 0;
  PdId pd;
  SpaceId space;
  std::uint32_t bound = 0;  // region: windows bound to it; window: which entry it is bound to
  QpNumber qp;              // of a Valid window that is not of_pd; of a region, which has none, see registration()
  std::uint64_t base = 0;
  std::uint64_t size = 0;
  std::uint64_t address = 0;
  std::byte* direct = nullptr;

  Rights have() const { return static_cast<Rights>(rights); }
  // Of a region: which it is of all that there ever were, whatever STag it shares with one before.
  std::uint32_t registration() const { return qp.value; }
  void set_registration(std::uint32_t number) { qp = {number}; }
  bool of_qp() const { return kind == Kind::window && !of_pd; }
  bool associated(PdId with, QpNumber or_with) const { return of_qp() ? qp == or_with : pd == with; }  // if Valid
  bool exists(Stag wanted) const { return kind != Kind::none && stag.index() == wanted.index(); }
  // All 32 bits (V-STAG-05).
  bool names(Stag wanted) const { return valid && stag == wanted; }
  [[gnu::always_inline]] Access access(std::uint64_t to, std::uint32_t length) const {
    const std::uint64_t offset = to - base;
    return {.space = space,
            .address = address + offset,
            .direct = is_direct(address + offset, length) ? direct + offset : nullptr,
            .length = length,
            .stag = stag};
  }
  bool is_direct(std::uint64_t from, std::uint32_t length) const {
    if (direct == nullptr || !whole_pages) return direct != nullptr;
    const PageRange pages = tpt::whole_pages(address, size);
    return from >= pages.start && from + length <= pages.end;
  }
  Memory memory() const { return {.space = space, .address = address, .direct = direct, .whole_pages = whole_pages}; }
  static Fields region(const RegionOptions& options) {
    Fields fields;
    fields.kind = Kind::region;
    fields.valid = true;
    fields.rights = static_cast<std::uint8_t>(options.rights);
    fields.pd = options.pd;
    fields.space = options.memory.space;
    fields.base = permits(options.rights, Rights::zero_based) ? 0 : options.base;
    fields.size = options.size;
    fields.address = options.memory.address;
    fields.direct = options.memory.direct;
    fields.whole_pages = options.memory.whole_pages;
    fields.pages_log2 = tpt::pages_log2(options.pages, options.memory.address, options.size);
    return fields;
  }
};

// One cache line. `sequence` is odd while somebody writes; a reader that saw the same even number
// before and after its copy has a whole one. Zeroed memory is an entry that does not exist.
struct alignas(64) Table::Entry {
  static constexpr std::size_t kWords = sizeof(Fields) / sizeof(std::uint64_t);

  std::uint32_t sequence;
  std::uint32_t unused;
  std::uint64_t words[kWords];

  // Acquire and release on each word keep them between the two looks at, or changes of, the
  // sequence; on x86 they cost nothing.
  //
  // Word by word to where it is wanted: a second copy by vectors would read what two stores have
  // just written, and wait for both.
  void load(Fields& fields) {
    static_assert(std::is_trivially_copyable_v<Fields>);
    auto* copy = reinterpret_cast<std::byte*>(&fields);
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kWords; ++i) {
      const std::uint64_t word = std::atomic_ref(words[i]).load(std::memory_order_acquire);
      std::memcpy(copy + i * sizeof word, &word, sizeof word);
    }
  }
  void store(const Fields& fields) {
    const auto copy = std::bit_cast<std::array<std::uint64_t, kWords>>(fields);
    for (std::size_t i = 0; i < kWords; ++i) std::atomic_ref(words[i]).store(copy[i], std::memory_order_release);
  }
  void read(Fields& fields) {
    std::atomic_ref sequence_now(sequence);
    for (;;) {
      const std::uint32_t before = sequence_now.load(std::memory_order_acquire);
      if ((before & 1) == 0) {
        load(fields);
        if (sequence_now.load(std::memory_order_relaxed) == before) return;
      }
      __builtin_ia32_pause();
    }
  }
};

// The right to change an entry. Who needs two takes the window's first, then its region's.
class Table::Locked {
 public:
  explicit Locked(Entry& entry) : entry_(entry) {
    std::atomic_ref sequence(entry.sequence);
    std::uint32_t even = sequence.load(std::memory_order_relaxed) & ~1u;
    while (!sequence.compare_exchange_weak(even, even + 1, std::memory_order_acquire, std::memory_order_relaxed)) {
      even &= ~1u;
      __builtin_ia32_pause();
    }
    entry.load(fields);
  }
  ~Locked() { std::atomic_ref(entry_.sequence).fetch_add(1, std::memory_order_release); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

  // Readers have it when the lock is gone.
  void write() { entry_.store(fields); }

  Fields fields;

 private:
  Entry& entry_;
};

// First freed, first used again: the longest time before an entry is another's. Those never used come before, in an
// order that is made as they are given out, so that what nobody used is nowhere.
struct Table::Free {
  Free(std::uint32_t entries, std::uint64_t seed)
      : ring(static_cast<std::uint32_t*>(map_zeroed(std::size_t{entries} * sizeof(std::uint32_t)))),
        size(entries),
        fresh(entries),
        count(entries),
        chance(seed) {}
  ~Free() { munmap(ring, std::size_t{size} * sizeof(std::uint32_t)); }
  Free(const Free&) = delete;
  Free& operator=(const Free&) = delete;

  std::uint32_t* ring;  // 0: never used, and the slot is its place here, from 1 on
  std::uint32_t size;
  std::uint32_t first = 0;
  std::uint32_t fresh;  // so many of the first were never used
  std::uint32_t count;
  std::uint32_t registrations = 0;
  Unpredictable chance;

  std::uint32_t slot_at(std::uint32_t place) const { return ring[place] != 0 ? ring[place] : place + 1; }
  // Not while count is 0.
  std::uint32_t take() {
    std::uint32_t place = first;
    if (fresh != 0) place += chance.below(fresh--);
    const std::uint32_t slot = slot_at(place);
    ring[place] = slot_at(first);
    first = (first + 1) % size;
    --count;
    return slot;
  }
  void give(std::uint32_t slot) { ring[(first + count++) % size] = slot; }

  // Never 0. Comes again after 2^32, when nobody holds the first any more.
  std::uint32_t next_registration() {
    if (++registrations == 0) ++registrations;
    return registrations;
  }
};

Table::Table(std::uint32_t entries_max, std::uint64_t seed)
    : free_(std::make_unique<Free>(entries_max, seed)), read_key_{seed, ~seed} {
  static_assert(sizeof(Fields) == 56 && sizeof(Entry) == 64, "one check, one cache line");
  RNIC_ASSERT(entries_max >= 1 && entries_max <= kEntriesMax);
  const std::uint32_t bits = static_cast<std::uint32_t>(std::bit_width(entries_max));
  slot_mask_ = (1u << bits) - 1;
  // Slot 0 is nobody's, so that no index is 0, whatever stands above the slot's bits (V-STAG-06).
  slots_ = entries_max + 1;
  entries_ = static_cast<Entry*>(map_zeroed(slots_ * sizeof(Entry)));
  bound_by_qp_ = static_cast<std::uint32_t*>(map_zeroed(kQpCountersBytes));
}

Table::~Table() {
  munmap(entries_, slots_ * sizeof(Entry));
  munmap(bound_by_qp_, kQpCountersBytes);
}

// The entry that an STag of this index would be in, if it exists.
inline Table::Entry* Table::find(Stag stag) const {
  const std::uint32_t slot = stag.index() & slot_mask_;
  return slot < slots_ ? &entries_[slot] : nullptr;
}

// False when there can be no such entry.
inline bool Table::read(Stag stag, Fields& fields) const {
  Entry* entry = find(stag);
  if (entry == nullptr) return false;
  entry->read(fields);
  return true;
}

std::atomic_ref<std::uint32_t> Table::bound_to(QpNumber qp) const {
  return std::atomic_ref(bound_by_qp_[qp.value % kQpNumbers]);
}

// ---- control ----

Result<Stag, RegisterError> Table::add(Fields fields, std::uint8_t key) {
  std::uint32_t slot = 0, above = 0;
  {
    const std::lock_guard lock(control_);
    if (free_->count == 0) return Failure{RegisterError::no_resources};
    slot = free_->take();
    above = static_cast<std::uint32_t>(free_->chance.next());
    if (fields.kind == Kind::region) fields.set_registration(free_->next_registration());
  }
  const std::uint32_t index = ((above & ~slot_mask_) | slot) & ((1u << kIndexBits) - 1);
  fields.stag = Stag{index << 8 | key};
  Locked entry(entries_[slot]);
  entry.fields = fields;
  entry.write();
  return fields.stag;
}

// The caller still holds the lock: nobody is given the entry before it is clean.
void Table::remove(Locked& entry) {
  const std::uint32_t slot = entry.fields.stag.index() & slot_mask_;
  entry.fields = Fields{};
  entry.write();
  const std::lock_guard lock(control_);
  free_->give(slot);
}

namespace {
std::optional<RegisterError> refusal(const RegionOptions& options) {
  if (!region_rights_allowed(options.rights)) return RegisterError::bad_rights;
  const std::uint64_t base = permits(options.rights, Rights::zero_based) ? 0 : options.base;
  if (wraps(base, options.size) || wraps(options.memory.address, options.size)) return RegisterError::bad_range;
  return std::nullopt;
}
}  // namespace

Result<Stag, RegisterError> Table::register_region(const RegionOptions& options) {
  if (const auto reason = refusal(options)) return Failure{*reason};
  return add(Fields::region(options), options.key);
}

Result<Stag, RegisterError> Table::register_shared(Stag existing, const RegionOptions& options, Reach reach) {
  Fields fields;
  {
    Entry* entry = find(existing);
    if (entry == nullptr) return Failure{RegisterError::bad_stag};
    Locked source(*entry);
    if (!source.fields.names(existing) || source.fields.kind != Kind::region) return Failure{RegisterError::bad_stag};
    RegionOptions same_memory = options;
    same_memory.size = source.fields.size;
    same_memory.memory = source.fields.memory();
    if (reach == Reach::by_copy) same_memory.memory.direct = nullptr;
    if (const auto reason = refusal(same_memory)) return Failure{*reason};
    {
      // A failure changes nothing: the source becomes Shared only when there is an entry to share
      // it with. Whoever takes the last one in between makes add() fail; then the source is Shared
      // alone, which takes nothing from its owner but invalidation.
      const std::lock_guard lock(control_);
      if (free_->count == 0) return Failure{RegisterError::no_resources};
    }
    source.fields.shared = true;
    source.write();
    fields = Fields::region(same_memory);
    fields.pages_log2 = source.fields.pages_log2;
    fields.shared = true;
  }
  return add(fields, options.key);
}

Result<Stag, RegisterError> Table::allocate_region(PdId pd, Rights rights, std::uint32_t pages) {
  RNIC_ASSERT(pages >= 1 && pages <= kPageListMax);
  Fields fields;
  fields.kind = Kind::region;
  fields.rights = static_cast<std::uint8_t>(rights & Rights::no_remote);
  fields.pd = pd;
  fields.pages_log2 = pages_log2(pages, 0, 0);
  return add(fields, 0);
}

Result<Stag, RegisterError> Table::reregister(Stag stag, const RegionOptions& options) {
  Entry* at = find(stag);
  if (at == nullptr) return Failure{RegisterError::bad_stag};
  Locked entry(*at);
  const Fields& now = entry.fields;
  if (!now.exists(stag) || now.kind != Kind::region || now.shared) return Failure{RegisterError::bad_stag};
  if (now.bound != 0) return Failure{RegisterError::busy};
  if (const auto reason = refusal(options)) {
    remove(entry);
    return Failure{*reason};
  }
  entry.fields = Fields::region(options);
  entry.fields.stag = Stag{stag.index() << 8 | options.key};
  {
    const std::lock_guard lock(control_);
    entry.fields.set_registration(free_->next_registration());
  }
  entry.write();
  return entry.fields.stag;
}

Result<Done, Refusal> Table::deregister(Stag stag) {
  Entry* at = find(stag);
  if (at == nullptr) return Failure{Refusal::invalid_stag};
  Locked entry(*at);
  if (!entry.fields.exists(stag)) return Failure{Refusal::invalid_stag};
  if (entry.fields.kind != Kind::region) return Failure{Refusal::invalid_region};
  if (entry.fields.bound != 0) return Failure{Refusal::cannot_invalidate};
  remove(entry);
  return Done{};
}

void Table::revoke(Stag stag) {
  Entry* at = find(stag);
  if (at == nullptr) return;
  Locked entry(*at);
  if (!entry.fields.exists(stag)) return;
  if (entry.fields.kind == Kind::window) {
    if (entry.fields.valid) unbind(entry);
    return;
  }
  entry.fields.valid = false;
  entry.fields.direct = nullptr;
  entry.write();
}

Result<Stag, RegisterError> Table::allocate_window(PdId pd, std::uint8_t key, WindowScope scope) {
  Fields fields;
  fields.kind = Kind::window;
  fields.of_pd = scope == WindowScope::pd;
  fields.pd = pd;
  return add(fields, key);
}

Result<Done, Refusal> Table::deallocate_window(Stag stag) {
  Entry* at = find(stag);
  if (at == nullptr) return Failure{Refusal::invalid_stag};
  Locked entry(*at);
  if (!entry.fields.exists(stag)) return Failure{Refusal::invalid_stag};
  if (entry.fields.kind != Kind::window) return Failure{Refusal::invalid_window};
  if (entry.fields.valid) unbind(entry);
  remove(entry);
  return Done{};
}

std::uint32_t Table::used() const {
  const std::lock_guard lock(control_);
  return free_->size - free_->count;
}

std::optional<StagInfo> Table::query(Stag stag) const {
  Fields fields;
  if (!read(stag, fields) || !fields.exists(stag)) return std::nullopt;
  return StagInfo{.stag = fields.stag,
                  .window = fields.kind == Kind::window,
                  .valid = fields.valid,
                  .shared = fields.shared,
                  .pd = fields.pd,
                  .qp = fields.of_qp() ? fields.qp : QpNumber{},
                  .scope = fields.of_pd ? WindowScope::pd : WindowScope::qp,
                  .rights = fields.have(),
                  .base = fields.base,
                  .size = fields.size,
                  .memory = fields.memory(),
                  .pages = fields.kind == Kind::region ? 1u << fields.pages_log2 : 0,
                  .windows_bound = fields.kind == Kind::region ? fields.bound : 0,
                  .region_entry = fields.kind == Kind::region ? stag.index() & slot_mask_ : fields.bound};
}

// ---- workers ----

// The order of the checks is part of the contract (V-ACC-08): a peer that errs in two ways hears of
// the first. No memory is touched before all have passed.
Result<Access, Refusal> Table::check_local(Stag stag, PdId pd, Rights wanted, std::uint64_t to,
                                           std::uint32_t length) const {
  if (length == 0) return no_octets(stag);
  Fields entry;
  if (!read(stag, entry) || !entry.names(stag)) return Failure{Refusal::invalid_stag};
  if (entry.kind == Kind::window) return Failure{Refusal::window};
  if (entry.pd != pd) return Failure{Refusal::not_associated};
  if (!permits(entry.have(), wanted)) return Failure{Refusal::access_rights};
  if (wraps(to, length)) return Failure{Refusal::to_wrap};
  if (!within(to, length, entry.base, entry.size)) return Failure{Refusal::base_or_bounds};
  return entry.access(to, length);
}

Result<Access, Refusal> Table::check_remote(Stag stag, PdId pd, QpNumber qp, Rights wanted, std::uint64_t to,
                                            std::uint32_t length) const {
  if (length == 0) return no_octets(stag);
  Fields entry;
  if (!read(stag, entry) || !entry.names(stag)) return Failure{Refusal::invalid_stag};
  if (!entry.associated(pd, qp)) return Failure{Refusal::not_associated};
  if (!permits(entry.have(), wanted)) return Failure{Refusal::access_rights};
  if (wraps(to, length)) return Failure{Refusal::to_wrap};
  if (!within(to, length, entry.base, entry.size)) return Failure{Refusal::base_or_bounds};
  return entry.access(to, length);
}

Result<Done, Refusal> Table::invalidate_remote(Stag stag, PdId pd, QpNumber qp, Rights qp_enables) {
  return invalidate(stag, pd, qp, true, qp_enables);
}

Result<Done, Refusal> Table::invalidate_local(Stag stag, PdId pd, QpNumber qp) {
  return invalidate(stag, pd, qp, false, Rights::none);
}

bool Table::may_invalidate_remote(Stag stag, PdId pd, QpNumber qp, Rights qp_enables) const {
  Fields fields;
  return read(stag, fields) && !refusal_to_invalidate(fields, stag, pd, qp, true, qp_enables);
}

std::optional<Refusal> Table::refusal_to_invalidate(const Fields& fields, Stag stag, PdId pd, QpNumber qp, bool remote,
                                                    Rights qp_enables) {
  // While Invalid there is no key to match (V-STAG-04).
  if (!fields.exists(stag) || (fields.valid && fields.stag != stag)) return Refusal::invalid_stag;
  // Invalid it is of a PD (V-INV-08).
  if (fields.valid ? !fields.associated(pd, qp) : fields.pd != pd) return Refusal::not_associated;
  if (remote) {
    if (!any(qp_enables & kRemote)) return Refusal::access_rights;
    if (fields.valid && !any(fields.have() & kRemote)) return Refusal::access_rights;
  }
  if (fields.kind == Kind::region && (fields.shared || fields.bound != 0)) return Refusal::cannot_invalidate;
  if (fields.of_pd) return Refusal::cannot_invalidate;  // only by a Bind, as on InfiniBand
  return std::nullopt;
}

Result<Done, Refusal> Table::invalidate(Stag stag, PdId pd, QpNumber qp, bool remote, Rights qp_enables) {
  Entry* at = find(stag);
  if (at == nullptr) return Failure{Refusal::invalid_stag};
  Locked entry(*at);
  Fields& fields = entry.fields;
  if (const auto refused = refusal_to_invalidate(fields, stag, pd, qp, remote, qp_enables)) return Failure{*refused};
  if (!fields.valid) return Done{};  // V-INV-02
  if (fields.kind == Kind::window) unbind(entry);
  fields.valid = false;
  entry.write();
  return Done{};
}

// In the order of enum FastRefusal.
std::optional<FastRefusal> Table::refusal_of(const Fields& region, PdId pd, const PageList& list) {
  if (region.pd != pd) return FastRefusal::not_associated;
  if (region.valid) return FastRefusal::not_invalid;
  if (!is_page_size(list.page_bytes)) return FastRefusal::page_size;
  if (list.count > 1u << region.pages_log2) return FastRefusal::list_too_long;
  const std::uint64_t within_page = list.page_bytes - 1;
  if ((list.addresses & within_page) != 0) return FastRefusal::list_entry;
  if (list.first_offset > within_page) return FastRefusal::first_offset;
  const std::uint64_t octets = list.count * list.page_bytes;  // less than 2^47
  if (list.size == 0 || list.first_offset >= octets || list.size > octets - list.first_offset)
    return FastRefusal::length;
  const bool zero_based = permits(list.rights, Rights::zero_based);
  const std::uint64_t address = list.view + list.first_offset;
  if (!zero_based && ((list.base & within_page) != list.first_offset || wraps(list.base, list.size)))
    return FastRefusal::address;
  if (address < list.view || wraps(address, list.size)) return FastRefusal::address;
  // Whether there can be remote rights is not the list's to say (V-MR-17).
  const bool keeps_flag = !permits(list.rights, Rights::no_remote);
  if (!keeps_flag || !region_rights_allowed(list.rights | (region.have() & Rights::no_remote)))
    return FastRefusal::access_rights;
  return std::nullopt;
}

Result<Done, FastRefusal> Table::fast_register(Stag stag, PdId pd, const PageList& list) {
  Entry* at = find(stag);
  if (at == nullptr) return Failure{FastRefusal::invalid_stag};
  Locked entry(*at);
  const Fields& now = entry.fields;
  if (!now.exists(stag) || now.kind != Kind::region) return Failure{FastRefusal::invalid_stag};
  if (const auto refused = refusal_of(now, pd, list)) return Failure{*refused};
  Fields fields = Fields::region({.pd = pd,
                                  .rights = list.rights | (now.have() & Rights::no_remote),
                                  .base = list.base,
                                  .size = list.size,
                                  .key = stag.key(),
                                  .memory = {.space = list.space, .address = list.view + list.first_offset}});
  fields.stag = stag;
  fields.pages_log2 = now.pages_log2;  // V-STATE-04
  {
    const std::lock_guard lock(control_);
    fields.set_registration(free_->next_registration());
  }
  entry.fields = fields;
  entry.write();
  return Done{};
}

// One window less is bound to the region in this slot.
void Table::leave(std::uint32_t slot) {
  Locked region(entries_[slot]);
  RNIC_ASSERT(region.fields.kind == Kind::region && region.fields.bound != 0);
  --region.fields.bound;
  region.write();
}

// Of a Valid window: from its QP back to the PD, and away from its region (V-INV-09).
void Table::unbind(Locked& window) {
  leave(window.fields.bound);
  if (window.fields.of_qp()) bound_to(window.fields.qp).fetch_sub(1, std::memory_order_release);
  Fields unbound;
  unbound.stag = window.fields.stag;
  unbound.kind = Kind::window;
  unbound.of_pd = window.fields.of_pd;
  unbound.pd = window.fields.pd;
  window.fields = unbound;
  window.write();
}

// V-MW-04, in its order, but for what is the window's own.
std::optional<Refusal> Table::refusal_to_bind(const Fields& window, const Fields& region, Stag stag, PdId pd,
                                              Rights rights, std::uint64_t address, std::uint64_t length) {
  if (!region.names(stag) || region.kind != Kind::region) return Refusal::invalid_region;
  if (permits(region.have(), Rights::zero_based)) return Refusal::invalid_region;  // V-MW-02
  if (window.pd != pd || region.pd != pd) return Refusal::not_associated;
  if (!permits(region.have(), Rights::window_bind)) return Refusal::access_rights;
  // The region's remote rights do not matter (V-ACC-04).
  if (!permits(kRemote | Rights::zero_based, rights) || !any(rights & kRemote) ||
      !local_rights_allow(region.have(), rights))
    return Refusal::access_rights;
  if (wraps(address, length)) return Refusal::to_wrap;
  if (!within(address, length, region.base, region.size)) return Refusal::base_or_bounds;
  return std::nullopt;
}

Result<Done, Refusal> Table::bind(Stag window, std::uint8_t new_key, Stag region, PdId pd, QpNumber qp, Rights rights,
                                  std::uint64_t address, std::uint64_t length) {
  Entry* window_at = find(window);
  Entry* region_at = find(region);
  if (window_at == nullptr) return Failure{Refusal::invalid_window};
  if (region_at == window_at) return Failure{Refusal::invalid_region};
  Locked w(*window_at);
  if (!w.fields.exists(window) || w.fields.kind != Kind::window) return Failure{Refusal::invalid_window};
  if (w.fields.valid && !w.fields.of_pd) return Failure{Refusal::not_invalid};
  const Stag stag{window.index() << 8 | new_key};
  if (w.fields.of_pd && length == 0) {
    if (w.fields.pd != pd) return Failure{Refusal::not_associated};
    if (w.fields.valid) unbind(w);
    w.fields.stag = stag;
    w.write();
    return Done{};
  }

  if (region_at == nullptr) return Failure{Refusal::invalid_region};
  // Not locked before we know that it is no window: two Binds that take each other's entries for a
  // region would wait for each other.
  Fields seen;
  region_at->read(seen);
  if (seen.kind != Kind::region) return Failure{Refusal::invalid_region};
  const bool leaves = w.fields.valid;
  const std::uint32_t left = w.fields.bound;
  {
    Locked r(*region_at);
    if (const auto refused = refusal_to_bind(w.fields, r.fields, region, pd, rights, address, length))
      return Failure{*refused};
    ++r.fields.bound;
    r.write();

    const std::uint64_t offset = address - r.fields.base;
    w.fields.stag = stag;
    w.fields.valid = true;
    w.fields.rights = static_cast<std::uint8_t>(rights);
    w.fields.space = r.fields.space;
    w.fields.bound = region.index() & slot_mask_;
    w.fields.qp = qp;
    w.fields.base = permits(rights, Rights::zero_based) ? 0 : address;
    w.fields.size = length;
    w.fields.address = r.fields.address + offset;
    w.fields.direct = r.fields.direct != nullptr ? r.fields.direct + offset : nullptr;
    w.fields.whole_pages = r.fields.whole_pages;
  }
  if (w.fields.of_qp()) bound_to(qp).fetch_add(1, std::memory_order_release);
  w.write();
  if (leaves) leave(left);  // never two regions at a time, which two Binds might take in either order
  return Done{};
}

// ---- Reads with an STag of their own ----

// SipHash-2-4 over two words, where indexes are of one. The key counts, so that those in a row differ.
Stag Table::next_of(ReadStags& stags) const {
  std::uint64_t word = siphash(std::array{stags.stream, stags.count}, read_key_);
  // Slots that no entry has: those behind the last, and slot 0.
  const std::uint32_t slots = slot_mask_ + 2 - slots_;
  const auto slot = (slots_ + static_cast<std::uint32_t>(((word >> 32) * slots) >> 32)) & slot_mask_;
  std::uint32_t index = ((static_cast<std::uint32_t>(word) & ~slot_mask_) | slot) & ((1u << kIndexBits) - 1);
  if (index == 0) index = slots_;  // V-STAG-06
  return Stag{index << 8 | static_cast<std::uint8_t>(stags.count++)};
}

Result<ReadSink, Refusal> Table::check_read_sink(Stag stag, PdId pd, QpNumber qp, Rights qp_enables, std::uint64_t to,
                                                 std::uint32_t length, ReadStags& stags) const {
  Fields entry;
  if (!read(stag, entry) || !entry.names(stag)) return Failure{Refusal::invalid_stag};
  const bool region = entry.kind == Kind::region;
  if (!entry.associated(pd, qp)) return Failure{Refusal::not_associated};
  if (!permits(entry.have(), region ? Rights::local_write : Rights::remote_write))
    return Failure{Refusal::access_rights};
  if (wraps(to, length)) return Failure{Refusal::to_wrap};
  if (!within(to, length, entry.base, entry.size)) return Failure{Refusal::base_or_bounds};
  ReadSink sink{.stag = stag, .consumers = stag};
  if (region && !permits(entry.have() & qp_enables, Rights::remote_write)) {
    sink.stag = next_of(stags);
    sink.registration = entry.registration();
  }
  return sink;
}

Result<Access, Refusal> Table::check_read(const ReadSink& sink, std::uint64_t to, std::uint32_t length) const {
  Fields entry;
  if (!read(sink.consumers, entry) || !entry.names(sink.consumers) || entry.kind != Kind::region ||
      entry.registration() != sink.registration)
    return Failure{Refusal::invalid_stag};
  if (wraps(to, length)) return Failure{Refusal::to_wrap};
  if (!within(to, length, entry.base, entry.size)) return Failure{Refusal::base_or_bounds};
  return entry.access(to, length);
}

bool Table::window_bound_to(QpNumber qp) const { return bound_to(qp).load(std::memory_order_acquire) != 0; }

}  // namespace rnic::tpt
