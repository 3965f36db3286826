// DpdkPort: frames in and out, and the sleep between. How it is opened is in port/dpdk_port.cpp.
#include <fcntl.h>
#include <poll.h>
#include <rte_ethdev.h>
#include <signal.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "port/dpdk_port.hpp"
#include "port/run_cutter.hpp"
#include "port/segment_runs.hpp"

namespace rnic::port {

// ---- receiving ---------------------------------------------------------------------------------

unsigned DpdkPort::receive_now(Buffer** out, unsigned max) {
  rte_mbuf* mbufs[kBurst];
  const auto wanted = static_cast<std::uint16_t>(std::min(max, kBurst));
  if (wakes_by_signals_) [[unlikely]]
    take_signals();
  const unsigned received = rte_eth_rx_burst(device_.id(), queue_, mbufs, wanted);
  unsigned kept = 0;
  for (unsigned i = 0; i < received; ++i) {
    rte_mbuf* const mbuf = mbufs[i];
    const std::uint64_t flags = mbuf->ol_flags;
    const std::uint32_t segment_bytes = (flags & RTE_MBUF_F_RX_LRO) != 0 ? mbuf->tso_segsz : 0;
    Buffer* const buffer = pool_.take_in(mbuf);
    if (buffer == nullptr) {
      ++lost_;
      continue;
    }
    __builtin_prefetch(buffer->room + buffer->head);
    buffer->checksum_good = device_.offloads().are_sums_good(flags, buffer->bytes());
    if (segment_bytes != 0) mark_received_run(*buffer, segment_bytes, facts_.mtu_bytes);
    out[kept++] = buffer;
  }
  return kept;
}

unsigned DpdkPort::receive_burst(Buffer** out, unsigned max) {
  if (stash_next_ < stash_count_) {
    const unsigned n = std::min(max, stash_count_ - stash_next_);
    std::copy_n(stash_.begin() + stash_next_, n, out);
    stash_next_ += n;
    return n;
  }
  return receive_now(out, max);
}

bool DpdkPort::frames_wait() {
  if (stash_next_ < stash_count_) return true;
  stash_next_ = 0;
  stash_count_ = receive_now(stash_.data(), kBurst);
  return stash_count_ != 0;
}

// ---- sending -----------------------------------------------------------------------------------

unsigned DpdkPort::send_now(Buffer* const* frames, unsigned count) {
  const Offloads& offloads = device_.offloads();
  unsigned sent = 0;
  while (sent < count) {
    rte_mbuf* mbufs[kBurst];
    const unsigned n = std::min(count - sent, kBurst);
    for (unsigned i = 0; i < n; ++i) {
      RNIC_ASSERT(frames[sent + i]->pool == &pool_);
      mbufs[i] = DpdkPool::lend(frames[sent + i]);
      if (offloads.tcp_sums) offloads.ask(*mbufs[i], *frames[sent + i]);
    }
    // What the driver wants of frames that it is to fill or to cut (virtio: the length in a run's pseudo-header).
    unsigned ready = n;
    if (offloads.tcp_sums) ready = rte_eth_tx_prepare(device_.id(), queue_, mbufs, static_cast<std::uint16_t>(n));
    const unsigned taken = rte_eth_tx_burst(device_.id(), queue_, mbufs, static_cast<std::uint16_t>(ready));
    for (unsigned i = n; i-- > taken;) DpdkPool::take_back(frames[sent + i]);
    sent += taken;
    if (taken < ready) break;
    if (ready < n) {
      // It will never take this one.
      lost_ += frames[sent]->frames();
      BufferRef refused(frames[sent++]);
    }
  }
  return sent;
}

unsigned DpdkPort::send_burst(Buffer* const* frames, unsigned count) {
  if (!shared_->guest || shared_->guest->takes_runs()) [[likely]]
    return send_now(frames, count);
  unsigned sent = 0;
  while (sent < count) {
    if (frames[sent]->unit_bytes != 0) {
      if (!send_cut(frames[sent])) break;
      ++sent;
      continue;
    }
    unsigned single = 1;
    while (sent + single < count && frames[sent + single]->unit_bytes == 0) ++single;
    const unsigned taken = send_now(frames + sent, single);
    sent += taken;
    if (taken < single) break;
  }
  return sent;
}

// For a guest that takes none, a few at a time: what a full ring refuses was copied for nothing, in each turn. False:
// not all of it went. The caller gives the same run again; until then we hold a
// reference, so that nothing writes into it.
bool DpdkPort::send_cut(Buffer* run) {
  if (cutting_.get() != run) {
    ++run->refs;
    cutting_ = BufferRef(run);
    cut_of_it_ = 0;
  }
  const RunCutter cutter(*run);
  while (cut_of_it_ < cutter.count()) {
    Buffer* frames[kCutAtOnce];
    const unsigned taken = pool_.take(frames, std::min(kCutAtOnce, cutter.count() - cut_of_it_));
    for (unsigned i = 0; i < taken; ++i) {
      const MutableBytes room = frames[i]->append(cutter.frame_bytes_max());
      frames[i]->length = cutter.write(cut_of_it_ + i, room);
    }
    const unsigned sent = send_now(frames, taken);
    for (unsigned i = sent; i < taken; ++i) BufferRef unsent(frames[i]);
    cut_of_it_ += sent;
    if (sent < taken || taken == 0) return false;
  }
  cutting_.reset();
  BufferRef gone(run);
  return true;
}

// ---- sleeping ----------------------------------------------------------------------------------

// DPDK's tap hands out nothing until a signal of the kernel's, one for each frame, has been delivered; to which thread
// is all the same to it. Were it another than the one that sleeps, that one would wake by the descriptor, find nothing
// and sleep again, as often as it can until the other thread has run: never soon where it is SCHED_FIFO and has the
// core. To the worker's own thread it comes before the descriptor wakes it. Another thread may be the worker at another
// time (core/crew.hpp), and what was sent to the one before is then late: it has one for what waits already.
void DpdkPort::take_signals() {
  static std::atomic<std::uint64_t> threads{0};
  static thread_local const std::uint64_t own = ++threads;  // numbers of the kernel's come again
  if (signals_go_to_ == own) return;
  signals_go_to_ = own;
  const f_owner_ex owner{F_OWNER_TID, gettid()};
  (void)fcntl(wake_, F_SETOWN_EX, &owner);
  struct sigaction action {};
  const int number = fcntl(wake_, F_GETSIG);
  if (number > 0 && sigaction(number, nullptr, &action) == 0 && action.sa_handler != SIG_DFL) raise(number);
}

bool DpdkPort::arm() {
  if (device_.has_receive_interrupts() && wake_ >= 0) {
    const std::lock_guard guard(shared_->interrupts);
    interrupts_armed_ = rte_eth_dev_rx_intr_enable(device_.id(), queue_) == 0;
  }
  // Armed first, then looked: a frame that comes between is seen here or wakes.
  if (!frames_wait()) return true;
  disarm();
  return false;
}

void DpdkPort::disarm() {
  // Only an interrupt that can be switched has a count to be read; a tap's descriptor is the tap.
  if (!interrupts_armed_) return;
  interrupts_armed_ = false;
  {
    const std::lock_guard guard(shared_->interrupts);
    rte_eth_dev_rx_intr_disable(device_.id(), queue_);
  }
  if (epoll_event event{}; wake_ == edges_) {
    (void)epoll_wait(edges_, &event, 1, 0);
    return;
  }
  std::uint64_t count = 0;
  (void)!read(wake_, &count, sizeof count);
}

// A tap whose interface was deleted is readable for ever, and brings nothing.
void DpdkPort::tend() {
  if (!wakes_by_signals_) return;
  pollfd tap{.fd = wake_, .events = 0, .revents = 0};
  if (poll(&tap, 1, 0) != 1 || (tap.revents & (POLLERR | POLLHUP)) == 0) return;
  wakes_by_signals_ = false;
  wake_ = silent_.emplace().fd();
}

}  // namespace rnic::port
