// What comes in: a ULPDU, in stream order -> checks -> placements -> deliveries. Nothing is placed before all checks of
// its segment have passed (RFC 5041 s7.1, V-ERR-06), in the order that docs/spec/wire.md gives ("Check order"). What it
// brought takes effect when it is placed, and everything before it delivered (RFC 5041 s5.3, W-DDP-13); so
// does the first error (V-STOP-06).
//
// How a ULPDU came here is its carrier's: a frame's FPDU, or no frame at all (ddp::Ulpdu). What it does to
// the queue pair's states is told as a Verdict.
//
// Pure. Owned by one queue pair, anew for each stream.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "ddp/placer.hpp"
#include "ddp/untagged.hpp"
#include "rdmap/acknowledgements.hpp"
#include "rdmap/common.hpp"
#include "rdmap/deliveries.hpp"
#include "rdmap/early.hpp"
#include "rdmap/held_sends.hpp"
#include "rdmap/reads.hpp"
#include "rdmap/receiver.hpp"
#include "rdmap/receiving.hpp"
#include "rdmap/requester.hpp"

namespace rnic::rdmap {

// Octets of a Terminate's payload that are kept.
inline constexpr std::size_t kTerminateMax = 64;

// What the stream's first message may be: the startup's affair, and nobody's work (W-MPA-45, -46, -49).
struct FirstMessage {
  bool may_be_read = false;  // a Read of no octets, whatever was negotiated
  bool may_be_send = false;  // a Send of no octets, which no receive is taken for
};

// A ULPDU on its way through the checks.
struct Arrival {
  const ddp::Ulpdu& ulpdu;
  std::uint64_t held_mark;  // it was set aside: what is released when it is delivered. Else 0
  Instant now;
  Verdict& verdict;
  std::uint32_t number = 0;   // it was set aside, on an acknowledged stream: of its request
  std::uint32_t written = 0;  // it was set aside: what write_octets_ was then
};

class Responder {
 public:
  // Without a stream nothing comes in, and what is posted can be flushed.
  // `acknowledgements`: of acknowledged streams, else null.
  Responder(Common& common, Reads& reads, Requester& requester, Early* early,
            Acknowledgements* acknowledgements = nullptr)
      : common_(common),
        reads_(reads),
        requester_(requester),
        early_(early),
        acknowledgements_(acknowledgements),
        known_(extensions(common.settings.extensions, acknowledgements != nullptr)),
        receiving_(common),
        deliveries_(common) {}
  void begin_stream(FirstMessage first) {
    first_ = first;
    deliveries_.begin_stream();
    if (holds_without_receive()) held_.reserve(common_.settings.held_bytes_max);
  }
  // Memory of queues that are empty.
  void give_back_slots() {
    deliveries_.give_back_slots();
    held_.give_back();
  }

  // ---- in ----
  // Where a ULPDU stands in what carries it.
  struct Place {
    std::uint64_t position = 0;  // of its first octet
    std::uint64_t end = 0;       // when it is delivered, the carrier may let go of all up to here: delivered_up_to()
    bool stored = false;         // and of the store that it lies in: take_stored_done()
  };
  // The next one. False: it has to wait, and is to be given again. Not while full() or stopped().
  bool take(const ddp::Ulpdu& ulpdu, const Place& place, Instant now, Verdict& verdict);
  // Whether the next one would be taken, held back for nothing and refused for nothing, and its payload be in place at
  // once, as far as can be seen: behind it are `more` octets of its message. Nothing is changed, but that a receive may
  // be taken for it, as it is next (rdmap/would_take.cpp).
  bool would_take(const ddp::Ulpdu& ulpdu, std::uint32_t more);
  // What was set aside and can go on now. Says whether anything could.
  bool take_held(Instant now, Verdict& verdict);
  // The first error of the inbound direction; it takes effect when all before it is delivered.
  void refuse(Fault fault, const ddp::Ulpdu& culprit, Verdict& verdict);
  // What waits for a receive has waited for too long.
  void refuse_held(Verdict& verdict);
  // Behind what waits, out of turn: taken if it is a Terminate (W-RDMAP-66).
  bool take_if_terminate(const ddp::Ulpdu& ulpdu, Verdict& verdict);
  // A Write of no octets that is whole, or an acknowledgement: it brings nothing to anybody.
  bool brings_nothing(const ddp::Ulpdu& ulpdu) const;
  // Nothing more is looked at.
  void stop() {
    stopped_ = true;
    held_since_ = kNever;
  }

  // ---- deliveries ----
  bool open() const { return deliveries_.open(); }
  bool full() const { return deliveries_.full(); }
  bool deliverable() {
    if (refusal_waits_ && !owes_before(refused_number_)) [[unlikely]] {
      refusal_waits_ = false;
      deliveries_.on_moved(refusal_, true);
    }
    return deliveries_.deliverable();
  }
  // Of the oldest, which is deliverable(): the STag that it invalidates, if any, is invalidated. False: deliver_next()
  // has to wait for what others have submitted to the mover in this turn.
  bool lets_go() { return !deliveries_.first().invalidates || has_let_go(deliveries_.first()); }
  // The oldest is done but for what others have submitted to the mover in this turn.
  bool waits_for_flush() const { return invalidated_; }
  // The oldest, which is deliverable() and lets_go().
  Verdict deliver_next();
  std::uint64_t delivered_up_to() const { return deliveries_.delivered_up_to(); }
  // What a delivered ULPDU lay in, the carrier's store, is its own again.
  bool take_stored_done() { return deliveries_.take_stored_done(); }
  void on_moved(std::uint32_t token, bool ok);

  // ---- what is known ----
  bool stopped() const { return stopped_; }
  bool holds() const { return held_.unread(); }
  // Since when something waits for a receive; kNever: nothing does.
  Instant held_since() const { return held_since_; }
  Instant held_deadline() const;
  bool mid_send() const { return inbound_[wire::queue_number::kSend].mid_message(); }
  bool mid_write() const { return mid_write_; }
  // The payload of the Terminate that came.
  Bytes terminate() const { return Bytes(terminate_).first(terminate_size_); }

  // ---- the way down ----
  // What is delivered to nobody any more, and `count_max` of what is posted. True: more may be.
  bool flush(std::uint32_t count_max);
  void keep(tpt::Kept& kept) const;

  // ---- what the packet table names (rdmap/responder.cpp). False: it has to wait ----
  bool on_write(const Inbound& in, Arrival& at);
  bool on_read_response(const Inbound& in, Arrival& at);
  bool on_send(const Inbound& in, Arrival& at);
  bool on_immediate(const Inbound& in, Arrival& at);
  bool on_request(const Inbound& in, Arrival& at);
  bool on_terminate(const Inbound& in, Arrival& at);
  bool on_atomic_response(const Inbound& in, Arrival& at);
  bool on_acknowledge(const Inbound& in, Arrival& at);

 private:
  bool dispatch(Arrival& at, const Place& place);
  bool accept_send(const Inbound& in, Arrival& at, bool immediate);
  bool place_send(const Inbound& in, Arrival& at);
  bool place_immediate(const Inbound& in, Arrival& at);
  std::optional<Fault> immediate_fault(const Inbound& in) const;
  void place_tagged(const Inbound& in, const tpt::Access& to, Arrival& at);
  bool set_aside(Arrival& at);
  bool refuse(Fault fault, Arrival& at) {
    if (acknowledgements_ != nullptr) [[unlikely]]
      return refuse_request(fault, at);
    refuse(fault, at.ulpdu, at.verdict);
    return true;
  }
  bool refuse_request(Fault fault, Arrival& at);
  void take_culprit(const ddp::Ulpdu& culprit);
  // A Read or an Atomic Request: one of the two.
  struct Request {
    std::optional<wire::ReadRequestHeader> read;
    std::optional<wire::AtomicRequestHeader> atomic;
  };
  static Request parse_request(const Inbound& in, const ddp::Ulpdu& ulpdu);
  std::optional<Fault> request_form_fault(const Inbound& in, const Request& request) const;
  std::optional<Fault> request_fault(const Request& request) const;
  bool would_take_send(const Inbound& in, std::uint32_t more, bool from_memory);
  bool would_take_response(const Inbound& in, const ddp::Ulpdu& ulpdu, std::uint32_t more);
  bool would_take_atomic_response(const Inbound& in) const;
  bool holds_without_receive() const { return common_.settings.hold_without_receive || acknowledgements_ != nullptr; }
  // What was accepted stands in deliveries_.next(): delivered at once if nothing is before it.
  // A Response to a Read that is before this request.
  bool owes_before(std::uint32_t number) {
    return reads_.owed() != 0 && Acknowledgements::is_after(number, reads_.first_owed().number);
  }
  void finish(Verdict& verdict) {
    if (acknowledgements_ != nullptr) [[unlikely]]
      note_accepted(deliveries_.next());
    const Delivery& delivery = deliveries_.next();
    const bool is_due = !deliveries_.open() && delivery.moves == 0;
    const bool waits = delivery.invalidates && is_due && !has_let_go(delivery);
    if (!deliveries_.accept(waits)) return;
    if (delivery.held_mark != 0) held_.release(delivery.held_mark);
    if (delivery.act != Delivery::Act::nothing || delivery.failed) verdict = effect_of(delivery);
    if (delivery.ends) [[unlikely]]
      note_delivered(delivery, verdict);
  }
  // The oldest, whose octets are placed, invalidates an STag: it does so now. What is told of that is that no octet
  // comes any more to what the STag was, of whatever queue pair: not before those are done that others have submitted
  // (V-INV-10). True: so it is; or there is something wrong with it, which its delivery finds.
  bool has_let_go(const Delivery& first);
  // Of acknowledged streams.
  void note_arrival(const Inbound& in, const Arrival& at, Delivery& delivery) const;
  void note_accepted(const Delivery& delivery);
  void note_delivered(const Delivery& delivery, const Verdict& verdict);
  Verdict refused(const Delivery& delivery, Fault fault, const Culprit* culprit = nullptr);
  Verdict effect_of(const Delivery& delivery);
  Verdict deliver_receive(const Delivery& delivery);

  Common& common_;
  Reads& reads_;
  Requester& requester_;
  Early* const early_;
  Acknowledgements* const acknowledgements_;
  const Extensions known_;
  FirstMessage first_;
  bool none_yet_ = true;  // no message has come
  bool stopped_ = false;
  bool mid_write_ = false;          // the last segment of a Write was not the message's last
  std::uint32_t write_octets_ = 0;  // of the last Write, up to an Immediate behind it
  std::uint32_t placed_early_ = 0;  // octets of the payload that is taken, from the first on, that are in place
  std::array<ddp::InboundQueue, 4> inbound_;
  std::uint32_t next_acknowledge_ = 1;  // MSN of queue 4
  Receiving receiving_;
  HeldSends held_;
  Instant held_since_ = kNever;
  Deliveries deliveries_;
  bool invalidated_ = false;           // by the oldest delivery, which is still to be told
  std::uint64_t mark_ = 0;             // the mover's, then
  Fault fault_ = Fault::catastrophic;  // the first, until all before it is delivered
  std::uint32_t refused_number_ = 0;   // of acknowledged streams: the request that it is about, or 0
  bool refusal_waits_ = false;         // `refusal_`, a delivery: for Reads before it
  std::uint32_t refusal_ = 0;
  std::uint32_t aside_open_ = 0;  // deliveries of what had been set aside that end a request
  Culprit culprit_;               // of what is told as a verdict
  std::array<std::byte, kTerminateMax> terminate_;
  std::uint32_t terminate_size_ = 0;
};

}  // namespace rnic::rdmap
