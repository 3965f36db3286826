#include "kit/octet_streams.hpp"

#include <algorithm>
#include <cstring>

namespace rnic::test {

const std::array<std::byte, kPatternBytes>& pattern() {
  static const auto made = [] {
    std::array<std::byte, kPatternBytes> octets;
    std::uint32_t state = 1;
    for (std::byte& octet : octets) {
      state = state * 1664525 + 1013904223;
      octet = static_cast<std::byte>(state >> 24);
    }
    return octets;
  }();
  return made;
}

const char* name(tcp::Ended ended) {
  switch (ended) {
    case tcp::Ended::no:
      return "no";
    case tcp::Ended::gracefully:
      return "gracefully";
    case tcp::Ended::reset:
      return "reset";
    case tcp::Ended::refused:
      return "refused";
    case tcp::Ended::timed_out:
      return "timed out";
    case tcp::Ended::aborted:
      return "aborted";
  }
  return "?";
}

namespace {

// Octets of the pattern from `position` on, into `out`.
void fill(MutableBytes out, std::uint64_t position) {
  for (std::size_t done = 0; done < out.size();) {
    const std::size_t from = (position + done) % kPatternBytes;
    const std::size_t size = std::min(out.size() - done, kPatternBytes - from);
    std::memcpy(out.data() + done, pattern().data() + from, size);
    done += size;
  }
}

// How many of `octets` are not what the pattern has from `position` on.
std::uint64_t wrong(Bytes octets, std::uint64_t position) {
  std::uint64_t count = 0;
  for (std::size_t done = 0; done < octets.size();) {
    const std::size_t from = (position + done) % kPatternBytes;
    const std::size_t size = std::min(octets.size() - done, kPatternBytes - from);
    if (std::memcmp(octets.data() + done, pattern().data() + from, size) != 0)
      for (std::size_t i = 0; i < size; ++i) count += octets[done + i] != pattern()[from + i] ? 1 : 0;
    done += size;
  }
  return count;
}

}  // namespace

void OctetStreams::plan(host::StreamId stream, const Plan& plan) {
  Record& record = records_[stream];
  record.stream = stream;
  record.plan = plan;
}

Record* OctetStreams::find(host::StreamId stream) {
  const auto found = records_.find(stream);
  return found == records_.end() ? nullptr : &found->second;
}

void OctetStreams::on_open(host::StreamId stream, const host::Flow& flow) {
  const auto [at, fresh] = records_.try_emplace(stream);
  Record& record = at->second;
  if (fresh) record.plan = plans_[flow.local_port];
  record.stream = stream;
  record.flow = flow;
  record.opened = true;
}

bool OctetStreams::on_turn(host::StreamId stream, tcp::Connection& tcp, Instant now) {
  Record& record = records_.at(stream);
  if (record.abort_now) {
    tcp.abort(now);
    return false;
  }
  bool starved = false;
  if (record.plan.read) starved |= take(record, tcp);
  if (tcp.established()) starved |= send(record, tcp);
  record.peer_closed |= tcp.peer_closed();

  const bool all_read = tcp.received() == tcp.consumed();
  const bool all_sent = record.plan.echo ? record.peer_closed && all_read : record.sent_bytes == record.plan.send_bytes;
  bool close = record.close_now;
  if (record.plan.close == Plan::Close::sent) close |= all_sent;
  if (record.plan.close == Plan::Close::peer) close |= all_sent && all_read && record.peer_closed;
  if (close && !record.closed && tcp.established()) {
    record.closed = true;
    tcp.close();
  }
  note(record, tcp);
  return starved;
}

// Full segments, so that only TCP decides where octets are cut. True: there was no buffer.
bool OctetStreams::send(Record& record, tcp::Connection& tcp) {
  while (!record.plan.echo && !record.closed && record.sent_bytes < record.plan.send_bytes) {
    const auto wanted =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(tcp.emss(), record.plan.send_bytes - record.sent_bytes));
    if (tcp.room_bytes() < wanted) return false;
    BufferRef buffer = BufferRef::take(host_->data_pool(), wanted);
    if (!buffer) return true;
    fill(buffer->append(wanted), record.sent_bytes);
    if (!tcp.append(std::move(buffer))) return false;
    record.sent_bytes += wanted;
  }
  return false;
}

bool OctetStreams::take(Record& record, tcp::Connection& tcp) {
  while (tcp.readable_count() > 0) {
    Bytes octets = tcp.readable(0).span;
    if (record.plan.echo && !record.closed) {
      const std::uint32_t room = std::min(tcp.room_bytes(), tcp.emss());
      if (room == 0) return false;
      octets = octets.first(std::min<std::size_t>(octets.size(), room));
      BufferRef buffer = BufferRef::take(host_->data_pool(), static_cast<std::uint32_t>(octets.size()));
      if (!buffer) return true;
      std::memcpy(buffer->append(static_cast<std::uint32_t>(octets.size())).data(), octets.data(), octets.size());
      if (!tcp.append(std::move(buffer))) return false;
      record.sent_bytes += octets.size();
    }
    if (record.plan.check) record.wrong_bytes += wrong(octets, record.received_bytes);
    record.received_bytes += octets.size();
    tcp.consume(octets.size());
  }
  return false;
}

void OctetStreams::note(Record& record, const tcp::Connection& tcp) {
  record.state = tcp.state();
  record.how = tcp.ended();
  record.was_closing |= tcp.state() == tcp::State::closing;
  record.counters = tcp.counters();
  record.mss_bytes = tcp.emss();
  record.congestion_window_bytes = tcp.congestion_window_bytes();
  record.in_flight_bytes = tcp.in_flight_bytes();
  record.rtt_us = tcp.smoothed_rtt().ns / 1000;
}

void OctetStreams::on_end(host::StreamId stream, const tcp::Connection& tcp) {
  Record& record = records_[stream];
  record.stream = stream;
  note(record, tcp);
  record.ended = true;
}

}  // namespace rnic::test
