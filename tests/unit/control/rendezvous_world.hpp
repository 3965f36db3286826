// One rendezvous: what it is told, and what it wants done.
#pragma once

#include <array>
#include <vector>

#include "control/rendezvous.hpp"
#include "kit/catch.hpp"

namespace rnic::test::rendezvous {

using control::Rendezvous;
using Kind = Rendezvous::Act::Kind;
using Stage = Rendezvous::Stage;
using Found = Rendezvous::Found;
using qp::State;
using wire::MarkRefusal;
using wire::Meeting;

inline constexpr auto kHere = wire::IpAddress::v4(10, 0, 0, 5);
inline constexpr auto kLower = wire::IpAddress::v4(10, 0, 0, 1), kHigher = wire::IpAddress::v4(10, 0, 0, 9);
inline constexpr QpNumber kOwn{100}, kPeer{200};

constexpr Instant at_ms(std::int64_t ms) { return Instant{0} + seconds(1000) + milliseconds(ms); }

// What a queue pair here is told at RTR: its peer counts from 7.
inline Meeting meets(const wire::IpAddress& peer, QpNumber own = kOwn, QpNumber other = kPeer) {
  return {.own_gid = kHere, .peer_gid = peer, .own_number = own, .peer_number = other, .own_psn = {}, .due_psn = 7};
}
// And what that peer says of itself: it was told that ours counts from 3.
inline Meeting peers(const wire::IpAddress& peer, QpNumber own = kOwn, QpNumber other = kPeer) {
  return {.own_gid = peer, .peer_gid = kHere, .own_number = other, .peer_number = own, .own_psn = 7, .due_psn = 3};
}

struct World {
  Rendezvous rendezvous;
  std::uint64_t next_stream = 1;
  std::array<std::byte, wire::Mark::kSizeMax> octets{};

  std::vector<Rendezvous::Act> acts() {
    std::vector<Rendezvous::Act> all;
    while (const auto act = rendezvous.next_act()) all.push_back(*act);
    return all;
  }
  // The only one.
  Rendezvous::Act act() {
    const auto all = acts();
    REQUIRE(all.size() == 1);
    return all.front();
  }
  bool silent() { return acts().empty(); }

  Rendezvous::Stream ask(Bytes private_data, const wire::IpAddress& from, std::int64_t ms = 0, bool exists = true,
                         std::uint32_t device = 0, const wire::IpAddress& to = kHere) {
    const Rendezvous::Stream stream{device, {next_stream++}};
    rendezvous.on_request({.stream = stream, .from = from, .to = to, .private_data = private_data}, exists, at_ms(ms));
    return stream;
  }
  Rendezvous::Stream ask(const Meeting& meeting, std::int64_t ms = 0, bool exists = true, std::uint32_t device = 0) {
    wire::Mark mark;
    mark.capabilities = wire::mark_capability::kOob;
    mark.needed = wire::mark_capability::kOob;
    mark.meeting = meeting;
    return ask(Bytes(octets).first(wire::emit(mark, octets)), meeting.own_gid, ms, exists, device);
  }
  Rendezvous::Stream probe(const Meeting& meeting, std::int64_t ms = 0, bool exists = true) {
    wire::Mark mark;
    mark.kind = wire::Mark::Kind::probe;
    mark.capabilities = mark.needed = wire::mark_capability::kOob;
    mark.meeting = meeting;
    return ask(Bytes(octets).first(wire::emit(mark, octets)), meeting.own_gid, ms, exists);
  }
  // Refused, for that.
  bool refused(const Rendezvous::Stream& stream, MarkRefusal why) {
    const auto all = acts();
    return all.size() == 1 && all[0].kind == Kind::refuse && all[0].stream == stream && all[0].mark &&
           all[0].mark->kind == wire::Mark::Kind::refusal && all[0].mark->refusal == why;
  }
  bool answered(const Rendezvous::Stream& stream, QpNumber qp = kOwn) {
    const auto all = acts();
    return all.size() == 1 && all[0].kind == Kind::answer && all[0].stream == stream && all[0].qp == qp;
  }
};

}  // namespace rnic::test::rendezvous
