// An application without libibverbs: a context and what it makes, as abi/rnic_shm.h lays it out. All of it is
// public: what an application may scribble on, this one may.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <thread>

#include "system/bare/connection.hpp"

namespace rnic::bare {

// A thread that sleeps, whose id a context may be opened with (rnic_open_context::helper_tid).
class Helper {
 public:
  Helper();
  ~Helper();
  void end();
  std::uint32_t tid() const { return tid_; }

 private:
  Descriptor end_;
  std::uint32_t tid_ = 0;
  std::thread thread_;
};

struct CompletionQueue {
  std::uint32_t handle = 0;
  std::uint32_t size = 0;
  rnic_cq_control* control = nullptr;
  rnic_cqe* entries = nullptr;
  std::uint32_t consumed = 0;
  Descriptor event_writer;  // where it has a channel

  std::optional<rnic_cqe> poll();
  void arm(std::uint32_t kind);  // RNIC_ARM_*
};

struct Region {
  std::uint32_t handle = 0;
  std::uint32_t stag = 0;
  std::uint32_t rung = 0;
  std::byte* at = nullptr;
  std::size_t size = 0;

  rnic_sge sge(std::size_t offset, std::uint32_t length) const {
    return {reinterpret_cast<std::uintptr_t>(at) + offset, length, stag};
  }
};

struct WorkQueue {
  rnic_ring_control* control = nullptr;
  std::byte* slots = nullptr;
  std::uint32_t size = 0;
  std::uint32_t stride = 0;
  std::uint32_t doorbell = 0;
  std::uint32_t produced = 0;

  std::byte* next() const { return slots + std::size_t{produced & (size - 1)} * stride; }
};

struct QueuePair {
  std::uint32_t number = 0;
  WorkQueue send;
  WorkQueue receive;
};

// What a context is opened with; the defaults are an application's.
struct ContextOptions {
  std::string device;  // empty: the first
  bool memory = true;  // its /proc/self/mem goes along
  bool helper = true;
};

class Application {
 public:
  Application(const std::string& socket, const ContextOptions& options = {});
  ~Application();
  Application(const Application&) = delete;
  Application& operator=(const Application&) = delete;

  std::uint32_t protection_domain();
  Answer try_completion_queue(std::uint32_t entries, std::uint64_t channel_cookie = 0, std::uint64_t pointer = 0xC0);
  CompletionQueue completion_queue(std::uint32_t entries, std::uint64_t channel_cookie = 0);
  Answer try_queue_pair(std::uint32_t pd, std::uint32_t send_cq, std::uint32_t receive_cq, std::uint32_t depth);
  QueuePair queue_pair(std::uint32_t pd, std::uint32_t send_cq, std::uint32_t receive_cq, std::uint32_t depth);
  QueuePair adopt(Answer answer);  // of try_queue_pair, maps its queues
  // Of type UD, of a device with a RoCE face.
  Answer try_datagram_pair(std::uint32_t pd, std::uint32_t cq, std::uint32_t depth);
  void to_rts(std::uint32_t qp_number, std::uint32_t q_key);  // one of type UD, out of RESET
  Answer attach(std::uint32_t qp_number, const rnic_address& group);
  Answer detach(std::uint32_t qp_number, const rnic_address& group);
  // `shared_fd`: the memory is a mapping of that file from its octet `offset` on, and the daemon maps it too.
  Answer try_region(std::uint32_t pd, void* at, std::size_t size, std::uint32_t access, int shared_fd = -1,
                    std::uint64_t offset = 0, rnic_memory kind = RNIC_MEMORY_SHARED);
  Region region(std::uint32_t pd, void* at, std::size_t size, std::uint32_t access, int shared_fd = -1);
  Answer modify(std::uint32_t qp_number, rnic_modify_qp change);
  Answer to_error(std::uint32_t qp_number);

  // The octets of an area that a reply names; its memfd, if it is new, is the reply's next descriptor.
  std::byte* map(const rnic_area& area, Answer& answer);

  // Writes an entry and its SGEs (or, INLINE and COPIED, its data) to the next slot; shown by publish().
  void write_entry(QueuePair& qp, const rnic_sqe& entry, std::span<const rnic_sge> sges);
  void publish(WorkQueue& queue);
  void post(QueuePair& qp, const rnic_sqe& entry, std::span<const rnic_sge> sges);
  void post_write(QueuePair& qp, const rnic_sge& from, std::uint64_t to, std::uint32_t rkey, bool signaled = true);
  void post_read(QueuePair& qp, const rnic_sge& to, std::uint64_t from, std::uint32_t rkey);
  void post_receive(QueuePair& qp, const rnic_sge& to);
  // A datagram's entry, as write_entry(): not shown yet, and without a completion unless `entry` says so.
  void write_datagram(QueuePair& qp, const rnic_sqe& entry, const rnic_ud_address& to, std::span<const rnic_sge> sges);
  void ring(std::uint32_t worker, std::uint32_t doorbell);

  // Ends the thread that the context was opened with, and says which it was.
  std::uint32_t end_helper();
  const rnic_device_info& device() const { return opened.device; }

  Connection control;
  rnic_open_context_reply opened{};
  const rnic_status_page* status = nullptr;
  rnic_doorbells* doorbells = nullptr;  // worker_count of them
  Descriptor async_reader, async_writer;
  std::array<Descriptor, RNIC_WORKERS_MAX> wakes;

 private:
  struct Arena {
    std::byte* at = nullptr;
    std::size_t size = 0;
  };
  std::unique_ptr<Helper> helper_;
  std::map<std::uint32_t, Arena> arenas_;
};

// The first device of this face; it has a context's name (ContextOptions). Ends the program where there is none.
std::string device_of(const std::string& socket, rnic_face face);
// An IPv4 address as a group or the GID of a queue pair.
rnic_address group_at(std::uint8_t c, std::uint8_t d);  // 239.1.c.d
std::array<std::uint8_t, 16> gid_of(const rnic_address& address);

// Page-aligned memory of this process alone, zeroed and touched; never given back.
std::byte* private_memory(std::size_t size);
// The same, of a memfd that comes along.
std::byte* shared_memory(std::size_t size, Descriptor& file);

inline constexpr std::uint32_t kAllAccess =
    RNIC_ACCESS_LOCAL_READ | RNIC_ACCESS_LOCAL_WRITE | RNIC_ACCESS_REMOTE_READ | RNIC_ACCESS_REMOTE_WRITE;

}  // namespace rnic::bare
