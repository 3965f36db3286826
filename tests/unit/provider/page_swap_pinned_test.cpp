// Pages that somebody has pinned: they stay his, and the region's.
#include <linux/io_uring.h>

#include "unit/provider/pages.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

// An io_uring with one fixed buffer, whose pages it has pinned, and reads into it.
class Pins {
 public:
  explicit Pins(std::size_t reads) {
    params_.flags = 0;
    ring_ = static_cast<int>(syscall(SYS_io_uring_setup, reads, &params_));
    if (ring_ < 0) return;
    const std::size_t sq_size = params_.sq_off.array + params_.sq_entries * sizeof(unsigned);
    sq_ = map(sq_size, IORING_OFF_SQ_RING);
    cq_ = map(params_.cq_off.cqes + params_.cq_entries * sizeof(io_uring_cqe), IORING_OFF_CQ_RING);
    entries_ = reinterpret_cast<io_uring_sqe*>(map(params_.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES));
  }
  ~Pins() {
    if (ring_ >= 0) close(ring_);
  }
  Pins(const Pins&) = delete;
  Pins& operator=(const Pins&) = delete;

  bool has_ring() const { return ring_ >= 0; }
  bool pin(void* at, std::size_t size) {
    const iovec buffer{at, size};
    return syscall(SYS_io_uring_register, ring_, IORING_REGISTER_BUFFERS, &buffer, 1) == 0;
  }
  void unpin() { syscall(SYS_io_uring_register, ring_, IORING_UNREGISTER_BUFFERS, nullptr, 0); }
  // A read of the fixed buffer that waits for the pipe.
  void begin_read(int fd, void* at, unsigned size) {
    auto* tail = reinterpret_cast<unsigned*>(sq_ + params_.sq_off.tail);
    const unsigned index = *tail & (params_.sq_entries - 1);
    io_uring_sqe& entry = entries_[index];
    std::memset(&entry, 0, sizeof entry);
    entry.opcode = IORING_OP_READ_FIXED;
    entry.fd = fd;
    entry.addr = reinterpret_cast<std::uintptr_t>(at);
    entry.len = size;
    reinterpret_cast<unsigned*>(sq_ + params_.sq_off.array)[index] = index;
    std::atomic_ref(*tail).store(*tail + 1, std::memory_order_release);
    REQUIRE(syscall(SYS_io_uring_enter, ring_, 1, 0, 0, nullptr, 0) == 1);
  }
  int result() {
    REQUIRE(syscall(SYS_io_uring_enter, ring_, 0, 1, IORING_ENTER_GETEVENTS, nullptr, 0) >= 0);
    auto* head = reinterpret_cast<unsigned*>(cq_ + params_.cq_off.head);
    const auto* entries = reinterpret_cast<const io_uring_cqe*>(cq_ + params_.cq_off.cqes);
    const int result = entries[*head & (params_.cq_entries - 1)].res;
    std::atomic_ref(*head).store(*head + 1, std::memory_order_release);
    return result;
  }

 private:
  char* map(std::size_t size, off_t what) {
    void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring_, what);
    REQUIRE(at != MAP_FAILED);
    return static_cast<char*>(at);
  }
  io_uring_params params_{};
  int ring_ = -1;
  char* sq_ = nullptr;
  char* cq_ = nullptr;
  io_uring_sqe* entries_ = nullptr;
};

}  // namespace

TEST_CASE("a page that somebody has pinned stays his, and what he stores there is seen", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  Pins pins(4);
  if (!pins.has_ring()) {
    std::printf("SKIPPED pinned pages: this user may not use io_uring\n");
    return;
  }
  // In the first part that is set aside, within and at its end, and in a later one.
  const std::size_t pinned = GENERATE(0, 100, 255, 256, 600, 699);
  Pages pages(700);
  char* const page = pages.octets + pinned * kPage;
  REQUIRE(pins.pin(page, kPage));
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  pins.begin_read(ends[0], page, kPage);  // under way
  CHECK(stays(pages.octets, pages.size));
  CHECK(pages.intact());
  // Another region around it is as good as ever.
  CHECK(stays(page, kPage));
  if (pinned >= 2) CHECK(!stays(pages.octets, 2 * kPage));

  const std::vector<char> sent(kPage, 'd');
  REQUIRE(write(ends[1], sent.data(), kPage) == static_cast<ssize_t>(kPage));
  CHECK(pins.result() == static_cast<int>(kPage));
  CHECK(std::memcmp(page, sent.data(), kPage) == 0);
  close(ends[0]);
  close(ends[1]);
  // Afterwards it is memory like other.
  pins.unpin();
  std::memset(page, 'n', kPage);
  CHECK(!stays(page, kPage));
  CHECK(page[kPage - 1] == 'n');
}
