// TCP connections of a host for which there is no stream yet, or no more: half open, and in TIME-WAIT. Whoever has only
// an address to his name costs us a small entry here, or, by a cookie, nothing.
//
// Before changing this, read RFC 9293 s3.10.7.2, RFC 4987 s3 and RFC 6191.
//
// Owned by one worker.
#pragma once

#include <deque>

#include "base/list.hpp"
#include "host/callers.hpp"
#include "host/half_open.hpp"
#include "host/packets_out.hpp"
#include "host/streams.hpp"
#include "ip/routes.hpp"
#include "tcp/cookies.hpp"

namespace rnic::host {

class Doors {
 public:
  Doors(Streams& streams, const ip::Routes& routes, PacketsOut& out, StreamUser& user, Counters& counters)
      : streams_(streams),
        routes_(routes),
        out_(out),
        counters_(counters),
        callers_(streams, user, counters),
        cookies_(streams.keys().cookies) {}

  // ---- listeners ----
  // False: somebody listens there already.
  bool listen(const wire::IpAddress& address, std::uint16_t port, std::uint32_t backlog, std::uint64_t cookie,
              bool v6_only);
  void unlisten(const wire::IpAddress& address, std::uint16_t port, Instant now);
  bool is_listening_at(std::uint16_t port) { return callers_.listeners().port_taken(port); }

  // ---- segments that are for no stream ----
  // Of nobody that we know, but from and to addresses that can be (RFC 9293 s3.10.7.1, s3.10.7.2).
  void on_unknown(const Flow& flow, tcp::SegmentIn&& segment, Instant now);
  void on_half_open(std::uint32_t slot, tcp::SegmentIn&& segment, Instant now);
  void on_waiting(std::uint32_t slot, tcp::SegmentIn&& segment, Instant now);

  // ---- streams that came in here ----
  // It has asked: host/callers.hpp.
  void asked(Stream& stream, Instant now) { callers_.asked(stream, now); }
  // It is answered, or gone.
  void leave(Stream& stream) {
    if (callers_.leave(stream)) look_for_room();
  }
  // The end of one, which leaves a Waiting behind, or nothing.
  void enter_time_wait(Stream& stream, Instant now);
  void free(Stream& stream);

  // ---- the turn ----
  // Handshakes that found the backlog full get room in it in the order in which they came.
  void admit_queued(Instant now);
  bool has_room_for_queued() const { return room_; }
  void run_timers(Instant now);
  Instant next_deadline() const { return streams_.half_opens().earliest(); }

 private:
  bool may_listen_again(const Flow& flow, Instant now);
  void on_syn(std::uint32_t listener, const Flow& flow, std::uint64_t hash, const tcp::SegmentIn& syn,
              std::uint32_t time_wait_slot, Instant now);
  HalfOpen& add_half_open(std::uint32_t listener, const Flow& flow, std::uint64_t hash);
  void send_syn_ack(HalfOpen& half, Instant now);
  void wake_at(HalfOpen& half, Instant due);
  void forget(HalfOpen& half, Instant now);
  void forget_all_of(std::uint32_t listener, Instant now);
  void answer_again(HalfOpen& half, const wire::TcpHeader& syn, Instant now);
  void acknowledge(HalfOpen& half, const tcp::SegmentIn& segment, Instant now);
  void complete(HalfOpen& half, tcp::SegmentIn&& third, Instant now);
  bool make_stream(std::uint32_t listener, const Flow& flow, const tcp::Handshake& handshake, tcp::SegmentIn&& third,
                   Instant now);
  void await_backlog(HalfOpen& half, const tcp::SegmentIn& segment, Instant now);
  void look_for_room() { room_ = queued_ > 0 || callers_.any_in_line(); }
  bool send_cookie(const Flow& flow, const tcp::SegmentIn& syn, Instant now);
  bool on_cookie(std::uint32_t listener, const Flow& flow, tcp::SegmentIn& segment, Instant now);
  bool acknowledge_again(Waiting& waiting, Instant now);

  Streams& streams_;
  const ip::Routes& routes_;
  PacketsOut& out_;
  Counters& counters_;
  Callers callers_;
  tcp::Cookies cookies_;
  std::deque<List<HalfOpen, BacklogTag>> queues_;  // of each listener: those that await_backlog()
  std::uint32_t queued_ = 0;
  bool room_ = false;  // for one that waits
};

}  // namespace rnic::host
