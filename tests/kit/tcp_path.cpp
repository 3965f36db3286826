#include "kit/tcp_path.hpp"

#include <algorithm>

namespace rnic::test {

namespace {
constexpr std::uint32_t kBuffers = 16'384;
constexpr std::uint32_t kHeaders = 14 + 20 + 20 + 24;  // and preamble, gap and FCS
}  // namespace

TcpPath::TcpPath(const PathOptions& path, const tcp::Options& sender, const tcp::Options& receiver)
    : path_(path),
      random_(path.seed),
      pool_(kBuffers, 9216),
      receiver_options_(receiver),
      sender_(sender),
      receiver_(receiver) {
  sender_.open_active(tcp::Seq{0xFFFF0000u});
}

void TcpPath::fly(bool to_receiver, const tcp::SegmentOut& out, Duration after) {
  Instant arrives = now_ + after;
  if (path_.stall_every.ns > 0) {
    const std::int64_t into = (arrives - began_).ns % (path_.stall_every + path_.stall).ns;
    if (into > path_.stall_every.ns) arrives = arrives + (path_.stall_every + path_.stall - Duration{into});
  }
  flying_.push_back({arrives, order_++, to_receiver, out.header, out.buffer.share(), out.payload});
  std::push_heap(flying_.begin(), flying_.end());
}

void TcpPath::send(bool to_receiver, tcp::SegmentOut&& out) {
  Duration after = path_.delay;
  if (to_receiver && path_.gbit_per_s > 0) {
    const auto wire = [&](double octets) { return Duration{static_cast<std::int64_t>(octets * 8 / path_.gbit_per_s)}; };
    free_at_ = std::max(free_at_, now_);
    const Duration waits = free_at_ - now_;
    if (waits > wire(path_.queue_bytes)) return;
    free_at_ = free_at_ + wire(static_cast<double>(out.payload.size() + kHeaders));
    after = after + (free_at_ - now_);
  }
  if (chance(path_.loss_per_100000, 100'000)) return;
  if (to_receiver && chance(path_.late_per_1000, 1000))
    after = after + Duration{static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(path_.late_by.ns + 1))};
  fly(to_receiver, out, after);
  if (chance(path_.repeat_per_1000, 1000)) fly(to_receiver, out, after + microseconds(1));
}

void TcpPath::write() {
  if (!sender_.established()) return;
  while (sender_.appended() < message_end_) {
    const std::uint64_t left = message_end_ - sender_.appended();
    const auto size = static_cast<std::uint32_t>(std::min<std::uint64_t>(left, sender_.emss()));
    if (sender_.room_bytes() < size) return;
    BufferRef buffer = BufferRef::take(pool_);
    if (!buffer) return;
    buffer->append(size);
    if (!sender_.append(std::move(buffer))) return;
  }
}

void TcpPath::deliver() {
  while (!flying_.empty() && flying_.front().arrives <= now_) {
    std::pop_heap(flying_.begin(), flying_.end());
    Flying f = std::move(flying_.back());
    flying_.pop_back();
    tcp::SegmentIn in{f.header, std::move(f.buffer), f.payload};
    if (!f.to_receiver) {
      sender_.on_segment(std::move(in), now_);
      continue;
    }
    if (receiver_.state() == tcp::State::closed && !open(in)) continue;
    receiver_.on_segment(std::move(in), now_);
    receiver_.consume(receiver_.received() - receiver_.consumed());
    receiver_.end_of_burst();
  }
}

// The receiver's handshake, as a device has it. True: the segment is the connection's.
bool TcpPath::open(const tcp::SegmentIn& in) {
  tcp::SegmentOut answer;
  if (!handshake_) {
    handshake_ = tcp::agree(in.header, receiver_options_, tcp::Seq{12345}, 0);
    handshake_->sent = 1;
    handshake_->sent_at = now_;
  } else {
    const auto step = tcp::on_half_open(*handshake_, receiver_options_, in.header, in.payload.size());
    if (step == tcp::HalfOpenStep::complete) {
      receiver_.open_passive(*handshake_, in.header, now_);
      return true;
    }
    if (step != tcp::HalfOpenStep::answer) return false;
  }
  answer.header = tcp::syn_ack(*handshake_, receiver_options_, now_);
  send(false, std::move(answer));
  return false;
}

Instant TcpPath::next_event() const {
  Instant next = std::min(sender_.next_deadline(), receiver_.next_deadline());
  if (!flying_.empty()) next = std::min(next, flying_.front().arrives);
  return next;
}

bool TcpPath::carry(std::uint64_t bytes, std::uint64_t message_bytes, Duration limit) {
  const std::uint64_t end = sender_.acknowledged() + bytes;
  done_before_ = sender_.acknowledged();
  began_ = now_;
  const std::uint64_t each = message_bytes == 0 ? bytes : message_bytes;
  message_end_ = sender_.acknowledged();
  while (sender_.acknowledged() < end) {
    if (sender_.acknowledged() == message_end_) message_end_ = std::min(end, message_end_ + each);
    write();
    while (auto out = sender_.next_segment(now_)) send(true, std::move(*out));
    while (auto out = receiver_.next_segment(now_)) send(false, std::move(*out));
    if (watch) watch();
    const Instant next = next_event();
    if (next == kNever || next - began_ > limit) return sender_.acknowledged() >= end;
    now_ = std::max(now_ + nanoseconds(1), next);
    deliver();
  }
  return true;
}

PathReport TcpPath::report() const {
  PathReport report;
  report.took = now_ - began_;
  const auto bytes = static_cast<double>(sender_.acknowledged() - done_before_);
  report.goodput_mbit_per_s = bytes * 8e3 / static_cast<double>(report.took.ns);
  report.sender = sender_.counters();
  report.receiver = receiver_.counters();
  return report;
}

}  // namespace rnic::test
