// What a host counts.
#pragma once

#include <array>
#include <cstdint>

namespace rnic::host {

struct Counters {
  std::uint64_t frames_in = 0, frames_out = 0, bytes_in = 0, bytes_out = 0;
  std::uint64_t continued_in = 0;  // frames whose segment went on where the one before had ended (host/input_run.hpp)
  std::uint64_t direct_bytes_in = 0, direct_bytes_out = 0;  // between streams of one worker, in no frame
  std::uint64_t bad_frames = 0, bad_checksums = 0, no_listener = 0, no_buffer = 0;
  std::uint64_t frames_dropped = 0;  // to be sent, but the port or the loop had no room
  // SYNs that were not answered, and cookies that came back when there was no place and no entry to wait in; SYNs that
  // found all half-open connections in use, and got a cookie; cookies that came back; callers that found their
  // listener's backlog full, and waited.
  std::uint64_t syns_dropped = 0, cookies_sent = 0, cookies_good = 0, backlog_waits = 0;
  std::uint64_t other_vlan = 0;  // tagged for another VLAN than ours, or not at all
  std::uint64_t fragments_in = 0, reassembled = 0, fragments_dropped = 0;  // dropped: packets, for whatever reason
  std::uint64_t icmp_errors_out = 0;
  std::uint64_t datagrams_out = 0, datagrams_without_way = 0;  // UDP of ours; there was no route to
  std::uint64_t ended_for_buffers = 0;  // streams reset because they held buffers that others wanted

  // What several hosts of one device count.
  Counters& operator+=(const Counters& other);
};

inline Counters& Counters::operator+=(const Counters& other) {
  using C = Counters;
  constexpr std::array kAll{&C::frames_in,         &C::frames_out,
                            &C::bytes_in,          &C::bytes_out,
                            &C::direct_bytes_in,   &C::direct_bytes_out,
                            &C::bad_frames,        &C::bad_checksums,
                            &C::no_listener,       &C::no_buffer,
                            &C::frames_dropped,    &C::syns_dropped,
                            &C::cookies_sent,      &C::cookies_good,
                            &C::backlog_waits,     &C::other_vlan,
                            &C::fragments_in,      &C::reassembled,
                            &C::fragments_dropped, &C::icmp_errors_out,
                            &C::datagrams_out,     &C::datagrams_without_way,
                            &C::ended_for_buffers, &C::continued_in};
  static_assert(sizeof(Counters) == kAll.size() * sizeof(std::uint64_t), "each is added");
  for (const auto counter : kAll) this->*counter += other.*counter;
  return *this;
}

}  // namespace rnic::host
