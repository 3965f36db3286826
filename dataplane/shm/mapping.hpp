// Application memory that is mapped here too (rung 2: tmpfs, hugetlbfs, memfd), and what happens
// when the application takes it away: it can punch, truncate or exhaust what it shares. For a
// SIGBUS at an address inside such a mapping the handler maps anonymous memory there and marks the
// mapping dead; anywhere else it aborts (architecture.md s6).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.hpp"

namespace rnic::shm {

// Once, before the first mapping.
void install_sigbus_handler();

// How many of them there can be: a quarter of the mappings that this process may have.
std::size_t application_mappings_max();

// How many have died so far. Cheap, from any thread: to be looked at after each burst.
std::uint32_t deaths();
// The owners of mappings that died since the last call, each once.
std::vector<void*> take_dead_owners();

class ApplicationMapping {
 public:
  // Maps `length` octets of `fd` from `offset`, writable if asked. The error is an errno; ENOMEM: there are
  // too many.
  static Result<std::unique_ptr<ApplicationMapping>, int> create(int fd, std::uint64_t offset, std::uint64_t length,
                                                                 bool writable);
  ~ApplicationMapping();
  std::byte* octets() const { return octets_; }  // of `offset`, which need not be a page's
  bool dead() const;                             // the application took it away; what is there now is ours
  void* owner = nullptr;                         // whom take_dead_owners() names

  // Files up to this size are mapped whole whatever part is asked for: huge pages want a huge offset, and
  // this suits every size of page up to it.
  static constexpr std::uint64_t kGranuleBytes = std::uint64_t{2} << 20;

  ApplicationMapping(const ApplicationMapping&) = delete;
  ApplicationMapping& operator=(const ApplicationMapping&) = delete;

 private:
  ApplicationMapping() = default;
  void* base_ = nullptr;
  std::size_t size_ = 0;
  std::byte* octets_ = nullptr;
  std::size_t slot_ = 0;
};

}  // namespace rnic::shm
