// The receiving half of a connection (RFC 9293 s3.4, s3.10.7.4): which octets are taken, in which order they are handed
// up, and what our ACKs say of them.
//
// It knows nothing of our own octets, and no state of the connection: what it is asked for depends on the peer's stream
// alone. Where an answer needs the state (a SYN that came again, TIME-WAIT), it says where the segment stands, and the
// connection does the rest.
//
// Read with it: RFC 5961 s3.2, RFC 7323 s4 and s5, RFC 2018, RFC 2883, RFC 5681 s4.2.
//
// Large, as RFC 9293 s3.10.7.4 is: its checks come in an order, and each is a function here.
//
// Owned by one connection.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/buffer.hpp"
#include "base/time.hpp"
#include "tcp/ecn.hpp"
#include "tcp/handshake.hpp"
#include "tcp/keeper.hpp"
#include "tcp/options.hpp"
#include "tcp/rate_limit.hpp"
#include "tcp/reassembly.hpp"
#include "tcp/receive_queue.hpp"
#include "tcp/segment.hpp"
#include "tcp/seq.hpp"
#include "wire/tcp.hpp"

namespace rnic::tcp {

// Received octets in order, where they lie. Index 0 is the first not yet consumed.
struct Readable {
  BufferRef* buffers = nullptr;  // of entry i
  Bytes span;
};

class Receiver {
 public:
  Receiver(const Options& options, Counters& counters);
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  // ---- opening -----------------------------------------------------------------------------
  // What the SYNs have agreed on. The peer's stream begins behind its SYN. May be called again as long as nothing was
  // received: another SYN counts now.
  void start(const Handshake& agreed, Instant now);
  void start_echo(EcnEcho::Tells what) { echo_.start(what); }
  void set_mss(std::uint32_t mss_bytes) { mss_bytes_ = mss_bytes; }
  // The least time from an octet of the peer's to its hearing of it and the next; 0: not known.
  void set_round_trip(Duration round_trip) { round_trip_ = round_trip; }

  // ---- where a segment stands --------------------------------------------------------------
  Seq initial() const { return initial_; }    // IRS
  Seq next() const { return next_; }          // RCV.NXT
  Seq edge() const { return edge_; }          // RCV.NXT + RCV.WND, as advertised
  Seq last_ack() const { return last_ack_; }  // what our last segment acknowledged
  // The next in order, all of it within the window.
  bool expects(const Incoming& in) const {
    return in.sequence == next_ && in.payload.size() + (in.fin ? 1 : 0) <= edge_.since(next_);
  }
  // What is outside of the window is cut away. Of a segment that is not acceptable nothing is to be taken, and the ACK
  // that answers it is owed. Of one that is `overtaken`, without octets and less than a window before RCV.NXT, the ACK
  // may be news.
  enum class Place : std::uint8_t { acceptable, overtaken, old, outside };
  Place trim(Incoming& in, Instant now);
  // Where a RST is believed, and where it is challenged (RFC 5961 s3.2). Where acknowledgements are held back, the
  // peer's next octet may be what we acknowledged last.
  bool is_exact(Seq sequence) const { return sequence == next_ || sequence == last_ack_; }
  bool in_window(Seq sequence) const { return sequence.since(next_) < std::max(edge_.since(next_), 1u); }

  // ---- timestamps (RFC 7323) ---------------------------------------------------------------
  std::uint32_t timestamp_recent() const { return timestamp_recent_; }  // TS.Recent
  // PAWS (s5.3, R1): older than the last that we took.
  bool is_outdated(std::uint32_t timestamp, Instant now) const;
  // s4.3: the segment says what our next ACK answers.
  bool tells_timestamp(const Incoming& in) const;
  void take_timestamp(const wire::TcpHeader& header, Instant now) {
    timestamp_recent_ = header.timestamps->value;
    timestamp_recent_at_ = now;
  }

  // ---- what an acceptable segment brings ---------------------------------------------------
  void take_marks(const SegmentIn& segment) {
    if (echo_.is_news(segment.marked, segment.header.flags) && !segment.payload.empty()) [[unlikely]]
      progress_due_ |= echo_.on_data(segment.marked, segment.header.flags, next_, last_ack_);
  }
  void take_payload(Incoming& in, Instant now);
  // Of one that says nothing else. False: it is not the next, or something besides is to be seen to.
  bool take_next(BufferRef& buffer, Bytes payload, Seq sequence, Instant now) {
    if (sequence != next_ || payload.size() > edge_.since(next_) || !reassembly_.empty() || fin_known_) return false;
    note_peer_segment(static_cast<std::uint32_t>(payload.size()));
    take_in_order(std::move(buffer), payload, now);
    return true;
  }
  // One that came before octets in front of it waits for them, so this is to be asked with each segment while
  // fin_known(). True: the peer has closed just now.
  bool fin_known() const { return fin_known_; }
  bool take_fin(const Incoming& in);

  // ---- handed up ---------------------------------------------------------------------------
  std::size_t readable_count() const { return readable_.count(); }
  Readable readable(std::size_t index) { return {readable_.buffer(index), readable_.span(index)}; }
  std::uint64_t received() const { return received_; }
  std::uint64_t consumed() const { return consumed_; }
  bool peer_closed() const { return peer_closed_; }
  // True: the peer may be waiting for the room that this has made, and is to hear of it.
  bool consume(std::uint64_t bytes);
  struct Beyond {
    std::uint64_t position = 0;  // octets of the peer's stream before it
    Bytes span;
    const BufferRef* buffer = nullptr;
  };
  std::size_t beyond_count() const { return reassembly_.count(); }
  Beyond beyond(std::size_t index) const;
  void limit_beyond(std::uint32_t pieces) {
    beyond_limit_ = pieces;
    limit_pieces();
  }
  void join_small_pieces() { readable_.join_all(); }
  void pack_pieces() { readable_.pack(); }
  const BufferCount& kept() const { return keeper_.kept(); }
  std::uint32_t window_bytes() const { return window_bytes_; }

  // ---- our ACKs ----------------------------------------------------------------------------
  static constexpr std::uint64_t kNoHold = ~std::uint64_t{0};
  void hold_acknowledgements_from(std::uint64_t position);
  void end_of_burst() { progress_due_ |= acknowledgement() != last_ack_; }
  // One whether it says news or not.
  void owe_ack() { forced_ = std::max(forced_, 1u); }
  bool ack_due() const { return forced_ > 0 || (progress_due_ && acknowledgement() != last_ack_); }
  bool tells_sack() const { return sack_ && (has_duplicate_ || !reassembly_.empty()); }
  // Blocks that are due and found no room on a segment with data.
  bool blocks_due() const { return forced_ > 0 && tells_sack(); }
  // When an ACK is due at the latest; kNever where none is.
  Instant deadline() const { return delayed_ack_at_; }
  void run_timer(Instant now) {
    if (delayed_ack_at_ > now) return;
    delayed_ack_at_ = kNever;
    progress_due_ = true;
  }

  // All that is in order, up to where the layer above asks us to hold, or to where the marks change (RFC 8257 s3.2).
  Seq acknowledgement() const {
    const Seq whole = hold_ >= received_ ? next_ : initial_ + 1 + static_cast<std::uint32_t>(hold_);
    if (echo_.has_boundary() && echo_.first_boundary().before(whole)) [[unlikely]]
      return echo_.first_boundary();
    return whole;
  }
  // The fields of a header that are ours: acknowledgement, window, and the flag that echoes marks. It says all that
  // there is to say of progress, so none is owed after it.
  void fill(wire::TcpHeader& header) {
    const Seq ack = acknowledgement();
    header.flags |= echo_.ack_flags();
    header.acknowledgement = ack.value;
    header.window = window_field(ack);
    last_ack_ = ack;
    unacknowledged_bytes_ = 0;
    progress_due_ = false;
    delayed_ack_at_ = kNever;
    if (echo_.has_boundary()) [[unlikely]] {
      echo_.on_acknowledged(ack);
      progress_due_ = true;  // the next piece
    }
  }
  // As many blocks as fit into `room_bytes` of options; a duplicate's first (RFC 2883 s4).
  void add_sack(wire::TcpHeader& header, std::uint32_t room_bytes);
  // The segment of fill() was an ACK by itself, or carried data.
  void on_bare_ack_sent() {
    if (forced_ > 0) --forced_;
  }
  void on_data_sent() { forced_ = 0; }

  // ---- the end -----------------------------------------------------------------------------
  // Nothing more is taken or said; what is in order stays readable.
  void stop();
  // Nor read.
  void drop_readable();

  // Memory that the next segment takes anew.
  void give_back_slots() {
    readable_.give_back_slots();
    reassembly_.give_back_slots();
  }

 private:
  void on_old(const Incoming& in, std::uint32_t length, Instant now);
  // What a port has merged is longer than any of the peer's segments, and counts as several.
  void note_peer_segment(std::uint32_t octets) {
    if (octets > peer_segment_bytes_) peer_segment_bytes_ = std::min(octets, mss_bytes_);
  }
  void take_in_order(BufferRef&& buffer, Bytes payload, Instant now);
  void keep_beyond(const Incoming& in);
  void fill_gap(Incoming& in);
  bool accept(BufferRef&& buffer, Bytes octets, bool copied = false);
  void drain_reassembly();
  void follow_peer(Instant now);
  void widen(std::uint32_t window_bytes);
  void limit_pieces();
  // The right edge moves when it moves by enough (RFC 9293 s3.8.6.2.2).
  std::uint32_t enough_bytes() const { return std::min(window_bytes_ / 2, mss_bytes_); }
  std::uint16_t window_field(Seq ack) {
    if (limit_.since(edge_) >= enough_bytes()) edge_ = limit_;
    const std::uint32_t room = edge_.after(ack) ? edge_.since(ack) : 0;
    return static_cast<std::uint16_t>(std::min(room >> shift_, 0xFFFFu));
  }

  // ---- what every segment needs stands first -------------------------------------------------
  Seq next_{};
  Seq edge_{};   // the right edge that we have advertised; never moves left
  Seq limit_{};  // where it could be
  Seq last_ack_{};
  Seq initial_{};
  bool sack_ = false;          // negotiated
  bool timestamps_ = false;    // negotiated
  std::uint8_t shift_ = 0;     // of the window that we say
  bool progress_due_ = false;  // an ACK, if it says news
  std::uint64_t received_ = 0;
  std::uint64_t consumed_ = 0;
  std::uint64_t hold_ = kNoHold;
  std::uint32_t unacknowledged_bytes_ = 0;  // in order, since our last ACK
  std::uint32_t peer_segment_bytes_ = 536;  // the largest that came
  std::uint32_t forced_ = 0;                // ACKs to be sent whether they say news or not
  std::uint32_t window_bytes_;              // of the most that we hold
  std::uint32_t mss_bytes_;
  std::uint32_t window_max_bytes_;  // while it may still grow; 0: it does not any more
  Instant delayed_ack_at_ = kNever;
  Duration delayed_ack_;
  bool peer_closed_ = false;
  bool fin_known_ = false;
  Seq fin_{};  // where it is
  EcnEcho echo_;
  Keeper keeper_;
  ReceiveQueue readable_;
  Reassembly reassembly_;
  Counters& counters_;

  // ---- what is rare ----------------------------------------------------------------------------
  bool keeps_beyond_;           // what is not in order
  bool has_duplicate_ = false;  // a DSACK block to tell (RFC 2883)
  wire::SackBlock duplicate_{};
  std::uint32_t window_offered_bytes_;   // the first, if both sides scale
  std::uint32_t window_limit_bytes_;     // and the largest
  std::uint32_t beyond_limit_;           // pieces, with the first window
  std::uint32_t pieces_for_window_ = 0;  // more than that, if it has grown
  // What comes in a round trip.
  Duration round_trip_{};
  Instant round_began_at_ = kNever;
  std::uint64_t round_began_ = 0;
  std::uint32_t timestamp_recent_ = 0;
  Instant timestamp_recent_at_{};
  // Against two ends that ACK each other's ACKs, and SYNs from outside of the window. A peer may ask that often whether
  // we are there.
  RateLimit empty_answers_{16, seconds(1)}, probe_answers_{16, seconds(1)};
};

}  // namespace rnic::tcp
