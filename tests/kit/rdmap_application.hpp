// An application made of vectors, with memory, and messages as octets: for tests of messages, which need
// no stream, and of queue pairs.
#pragma once

#include <algorithm>
#include <deque>
#include <vector>

#include "kit/tpt_mover.hpp"
#include "rdmap/host.hpp"
#include "tpt/table.hpp"
#include "wire/ddp.hpp"
#include "wire/rdmap.hpp"

namespace rnic::test {

// ---- an application --------------------------------------------------------------------------------

// `Host`: rdmap::Host, or one that asks for more.
template <typename Host>
class AppOf : public Host {
 public:
  std::deque<rdmap::WorkRequest> sends;
  std::deque<rdmap::ReceiveRequest> receives;
  std::vector<rdmap::Completion> completions;
  std::vector<rdmap::Event> events;
  std::size_t room = ~std::size_t{0};  // of the completion queue

  bool take_send(rdmap::WorkRequest& out) override {
    if (sends.empty()) return false;
    out = sends.front();
    sends.pop_front();
    return true;
  }
  bool take_receive(rdmap::ReceiveRequest& out) override {
    if (receives.empty()) return false;
    out = receives.front();
    receives.pop_front();
    return true;
  }
  bool complete(const rdmap::Completion& completion) override {
    if (completions.size() >= room) return false;
    completions.push_back(completion);
    return true;
  }
  void raise(rdmap::Event event) override { events.push_back(event); }
  std::vector<rdmap::Completion> of_sends() const { return of(true); }
  std::vector<rdmap::Completion> of_receives() const { return of(false); }

 private:
  std::vector<rdmap::Completion> of(bool send_queue) const {
    std::vector<rdmap::Completion> out;
    for (const auto& c : completions)
      if (c.of_send_queue == send_queue) out.push_back(c);
    return out;
  }
};

// ---- memory ----------------------------------------------------------------------------------------

inline constexpr PdId kPd{1};
inline constexpr PdId kOtherPd{2};
inline constexpr auto kAllRights =
    tpt::Rights::local_read | tpt::Rights::local_write | tpt::Rights::remote_read | tpt::Rights::remote_write;
inline constexpr auto kAllAccess = tpt::Rights::remote_read | tpt::Rights::remote_write;

struct Region {
  std::vector<std::byte> memory;
  Stag stag;
  std::uint64_t base = 0;
  std::uint64_t at(std::uint64_t offset) const { return base + offset; }
};

inline std::byte octet_at(std::size_t i, std::uint32_t seed) {
  return static_cast<std::byte>((i * 131 + (i >> 8) * 17 + seed * 29) & 0xFF);
}

// ---- work ----

inline rdmap::WorkRequest work(rdmap::Opcode opcode, std::vector<rdmap::Sge> sges = {}) {
  rdmap::WorkRequest request;
  request.opcode = opcode;
  request.signaled = true;
  request.sge_count = static_cast<std::uint8_t>(sges.size());
  std::copy(sges.begin(), sges.end(), request.sges.begin());
  return request;
}
inline rdmap::WorkRequest send(std::vector<rdmap::Sge> sges = {}) { return work(rdmap::Opcode::send, std::move(sges)); }
inline rdmap::WorkRequest write(std::vector<rdmap::Sge> sges, Stag stag, std::uint64_t to) {
  auto request = work(rdmap::Opcode::write, std::move(sges));
  request.remote_stag = stag;
  request.remote_to = to;
  return request;
}
inline rdmap::WorkRequest read(std::vector<rdmap::Sge> sges, Stag stag, std::uint64_t to) {
  auto request = write(std::move(sges), stag, to);
  request.opcode = rdmap::Opcode::read;
  return request;
}

// ---- messages as octets ----

using Octets = std::vector<std::byte>;

inline Octets operator+(Octets first, const Octets& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}
inline Octets filled(std::size_t size, std::uint32_t seed = 7) {
  Octets out(size);
  for (std::size_t i = 0; i < size; ++i) out[i] = octet_at(i, seed);
  return out;
}
inline Octets tagged(std::uint8_t opcode, bool last, Stag stag, std::uint64_t to, const Octets& payload = {}) {
  Octets out(14);
  wire::emit(
      wire::TaggedHeader{
          .last = last, .rdmap_control = static_cast<std::uint8_t>(0x40 | opcode), .stag = stag, .tagged_offset = to},
      out);
  return out + payload;
}
inline Octets untagged(std::uint8_t opcode, bool last, std::uint32_t queue, std::uint32_t msn, std::uint32_t mo,
                       const Octets& payload = {}, Stag invalidate = {}) {
  Octets out(18);
  wire::emit(wire::UntaggedHeader{.last = last,
                                  .rdmap_control = static_cast<std::uint8_t>(0x40 | opcode),
                                  .invalidate = invalidate,
                                  .queue = queue,
                                  .msn = msn,
                                  .message_offset = mo},
             out);
  return out + payload;
}
inline Octets read_request(std::uint32_t msn, wire::ReadRequestHeader header) {
  Octets body(28);
  wire::emit(header, body);
  return untagged(1, true, 1, msn, 0, body);
}

}  // namespace rnic::test
