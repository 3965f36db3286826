// An application with a page that does not come, as one that manages its memory by userfaultfd has, and
// others beside it.
//
//   slow_page server ADDRESS PORT WHEN  a region whose second page is there (`now`), does not come
//                                       (`never`), or comes at SIGUSR1 (`told`). Says "wanted" and
//                                       "given".
//   slow_page client ADDRESS PORT       writes to it, and reads it back. Says what it read.
//   slow_page look ADDRESS PORT         Reads of the first page, one after another, until SIGTERM.
//                                       Says how many there were, and the longest wait.
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <string_view>
#include <thread>

#include "rdma_app.hpp"

namespace {

constexpr std::size_t kPage = 4096;

void say(const char* what) {
  std::printf("%s\n", what);
  std::fflush(stdout);
}

// SIGUSR1 is for who waits for it.
sigset_t block_sigusr1() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  if (pthread_sigmask(SIG_BLOCK, &set, nullptr) != 0) app::fail("pthread_sigmask");
  return set;
}

void give_page_late(std::byte* page, bool told, sigset_t sigusr1) {
  const int fd = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC));
  uffdio_api api{};
  api.api = UFFD_API;
  if (fd < 0 || ioctl(fd, UFFDIO_API, &api) != 0) app::fail("userfaultfd");
  uffdio_register range{};
  range.range = {reinterpret_cast<std::uint64_t>(page), kPage};
  range.mode = UFFDIO_REGISTER_MODE_MISSING;
  if (ioctl(fd, UFFDIO_REGISTER, &range) != 0) app::fail("UFFDIO_REGISTER");
  if (madvise(page, kPage, MADV_DONTNEED) != 0) app::fail("madvise");
  std::thread([=] {
    uffd_msg message{};
    if (read(fd, &message, sizeof message) != static_cast<ssize_t>(sizeof message)) app::fail("read");
    say("wanted");
    int number = 0;
    if (!told) pause();
    if (sigwait(&sigusr1, &number) != 0) app::fail("sigwait");
    uffdio_zeropage zero{};
    zero.range = {reinterpret_cast<std::uint64_t>(page), kPage};
    if (ioctl(fd, UFFDIO_ZEROPAGE, &zero) != 0) app::fail("UFFDIO_ZEROPAGE");
    say("given");
  }).detach();
}

int serve(char** words) {
  const std::string_view when = words[4];
  const sigset_t sigusr1 = block_sigusr1();  // in the library's threads, too
  app::Endpoint end = app::listen_one(words[2], words[3]);
  end.make_queues(16);
  end.make_memory(2 * kPage, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  if (when != "now") give_page_late(end.memory + kPage, when == "told", sigusr1);
  app::accept(end, {reinterpret_cast<std::uint64_t>(end.memory), end.mr->rkey, 2 * kPage});
  rdma_ack_cm_event(app::expect(end.channel, RDMA_CM_EVENT_DISCONNECTED));
  rdma_destroy_qp(end.id);
  if (ibv_dereg_mr(end.mr) != 0) app::fail("ibv_dereg_mr");
  return 0;
}

app::Endpoint call(char** words, app::Target& target) {
  app::Endpoint end = app::resolve(words[2], words[3]);
  end.make_queues(16);
  end.make_memory(2 * kPage, IBV_ACCESS_LOCAL_WRITE);
  target = app::connect(end);
  return end;
}

int write_and_read(char** words) {
  app::Target target{};
  app::Endpoint end = call(words, target);
  target.address += kPage;
  std::memset(end.memory, 0x5a, kPage);
  if (end.post(IBV_WR_RDMA_WRITE, 0, kPage, &target, 1) != 0) app::fail("ibv_post_send");
  if (end.post(IBV_WR_RDMA_READ, kPage, kPage, &target, 2) != 0) app::fail("ibv_post_send");
  for (int i = 0; i < 2; ++i) {
    const ibv_wc wc = app::Endpoint::poll(end.send_cq);
    if (wc.status != IBV_WC_SUCCESS) {
      std::printf("%s\n", ibv_wc_status_str(wc.status));
      return 1;
    }
  }
  say(std::memcmp(end.memory, end.memory + kPage, kPage) == 0 ? "the same" : "something else");
  rdma_disconnect(end.id);
  return 0;
}

volatile sig_atomic_t g_end = 0;

int look(char** words) {
  std::signal(SIGTERM, [](int) { g_end = 1; });
  using Clock = std::chrono::steady_clock;
  app::Target target{};
  app::Endpoint end = call(words, target);
  Clock::duration longest{};
  std::uint64_t count = 0;
  say("looks");
  for (; !g_end; ++count) {
    const auto start = Clock::now();
    if (end.post(IBV_WR_RDMA_READ, 0, kPage, &target, 1) != 0) app::fail("ibv_post_send");
    if (app::Endpoint::poll(end.send_cq).status != IBV_WC_SUCCESS) app::fail("a Read failed");
    longest = std::max(longest, Clock::now() - start);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::printf("%llu Reads, longest %lld us\n", static_cast<unsigned long long>(count),
              static_cast<long long>(std::chrono::duration_cast<std::chrono::microseconds>(longest).count()));
  rdma_disconnect(end.id);
  return 0;
}

}  // namespace

int main(int count, char** words) {
  const std::string_view role = count > 1 ? words[1] : "";
  if (role == "server" && count == 5) return serve(words);
  if (role == "client" && count == 4) return write_and_read(words);
  if (role == "look" && count == 4) return look(words);
  std::fprintf(stderr,
               "usage: slow_page server ADDRESS PORT now|never|told\n       slow_page client|look ADDRESS PORT\n");
  return 2;
}
