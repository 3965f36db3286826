#include "shm/mapping.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <mutex>

namespace rnic::shm {
namespace {

// Read by the signal handler: atomics only.
struct Slot {
  std::atomic<std::uintptr_t> base{0};
  std::atomic<std::size_t> size{0};
  std::atomic<bool> dead{false};
  const ApplicationMapping* mapping = nullptr;  // under slots_mutex, as what follows
  bool told = false;
};
std::atomic<std::uint32_t> deaths_so_far{0};
constexpr std::size_t kMappingsMax = 16384;
std::array<Slot, kMappingsMax> slots;
std::atomic<std::size_t> slots_used{0};  // none above this was ever used
std::size_t slot_to_try = 0;             // none below this is free
std::mutex slots_mutex;

void on_sigbus(int number, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  const std::size_t used = slots_used.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < used; ++i) {
    const std::uintptr_t base = slots[i].base.load(std::memory_order_acquire);
    const std::size_t size = slots[i].size.load(std::memory_order_relaxed);
    if (base == 0 || address < base || address - base >= size) continue;
    slots[i].dead.store(true, std::memory_order_release);
    deaths_so_far.fetch_add(1, std::memory_order_release);
    // The whole mapping at once: huge pages cannot be replaced in part.
    if (mmap(reinterpret_cast<void*>(base), size, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED)
      return;
    break;
  }
  signal(number, SIG_DFL);
  raise(number);
}

}  // namespace

std::size_t application_mappings_max() {
  static const std::size_t most = [] {
    std::size_t of_process = 65530;
    std::ifstream("/proc/sys/vm/max_map_count") >> of_process;
    return std::min(kMappingsMax, of_process / 4);
  }();
  return most;
}

void install_sigbus_handler() {
  struct sigaction action = {};
  action.sa_sigaction = on_sigbus;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGBUS, &action, nullptr);
}

Result<std::unique_ptr<ApplicationMapping>, int> ApplicationMapping::create(int fd, std::uint64_t offset,
                                                                            std::uint64_t length, bool writable) {
  const std::uint64_t page = kGranuleBytes;
  const std::uint64_t start = offset / page * page;
  const std::uint64_t size = (offset + length - start + page - 1) / page * page;
  void* base =
      mmap(nullptr, size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, static_cast<off_t>(start));
  if (base == MAP_FAILED) return Failure{errno};

  const std::lock_guard lock(slots_mutex);
  std::size_t slot = slot_to_try;
  while (slot < application_mappings_max() && slots[slot].base.load(std::memory_order_relaxed) != 0) ++slot;
  slot_to_try = slot;
  if (slot >= application_mappings_max()) {
    munmap(base, size);
    return Failure{ENOMEM};
  }
  slots[slot].dead.store(false, std::memory_order_relaxed);
  slots[slot].size.store(size, std::memory_order_relaxed);
  slots[slot].base.store(reinterpret_cast<std::uintptr_t>(base), std::memory_order_release);
  if (slot >= slots_used.load(std::memory_order_relaxed)) slots_used.store(slot + 1, std::memory_order_release);

  std::unique_ptr<ApplicationMapping> mapping(new ApplicationMapping);
  mapping->base_ = base;
  mapping->size_ = size;
  mapping->octets_ = static_cast<std::byte*>(base) + (offset - start);
  mapping->slot_ = slot;
  slots[slot].mapping = mapping.get();
  slots[slot].told = false;
  return mapping;
}

std::uint32_t deaths() { return deaths_so_far.load(std::memory_order_relaxed); }

std::vector<void*> take_dead_owners() {
  std::vector<void*> owners;
  const std::lock_guard lock(slots_mutex);
  const std::size_t used = slots_used.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < used; ++i) {
    Slot& slot = slots[i];
    if (slot.base.load(std::memory_order_relaxed) == 0 || slot.told || !slot.dead.load(std::memory_order_acquire))
      continue;
    slot.told = true;
    owners.push_back(slot.mapping->owner);
  }
  std::sort(owners.begin(), owners.end());
  owners.erase(std::unique(owners.begin(), owners.end()), owners.end());
  return owners;
}

ApplicationMapping::~ApplicationMapping() {
  if (base_ == nullptr) return;
  {
    const std::lock_guard lock(slots_mutex);
    slots[slot_].base.store(0, std::memory_order_release);
    slot_to_try = std::min(slot_to_try, slot_);
  }
  munmap(base_, size_);
}

bool ApplicationMapping::dead() const { return slots[slot_].dead.load(std::memory_order_acquire); }

}  // namespace rnic::shm
