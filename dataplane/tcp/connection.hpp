// One TCP connection (RFC 9293), as a machine that touches nothing.
//
// Before changing this file, read RFC 9293 s3.10, RFC 6298, RFC 5681, RFC 8985 and RFC 7323.
//
// Segments go in, segments come out, and the caller says what time it is. No clock, no socket: a test drives it by
// hand, a worker by DPDK. Its memory follows what is queued (base/ring_slots.hpp).
//
// What is special about an RNIC's TCP: it sends *segments*, each a packet buffer that the layer
// above filled with whole FPDUs (W-TCP-02, W-TCP-24); the retransmit queue keeps these buffers, so
// a retransmission is the same octets in the same segments (W-TCP-03, W-TCP-19). It hands received
// octets up where they lie, in the buffers that they came in.
//
// Large, as what leaves and what is lost is decided from all of the sender's state at once: its functions are in
// connection.cpp (states, segments in), output.cpp (what leaves), acknowledgements.cpp, recovery.cpp (what was lost)
// and timers.cpp, by the sections of the RFCs. What stands by itself is a class beside it: receiver, send queue, RACK,
// congestion, path MTU, ECN, spurious retransmissions.
//
// Owned by one worker. Not safe to share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

#include "base/buffer.hpp"
#include "base/time.hpp"
#include "tcp/congestion/control.hpp"
#include "tcp/delivered.hpp"
#include "tcp/ecn.hpp"
#include "tcp/handshake.hpp"
#include "tcp/options.hpp"
#include "tcp/pacer.hpp"
#include "tcp/path_mtu.hpp"
#include "tcp/rack.hpp"
#include "tcp/rate_limit.hpp"
#include "tcp/receiver.hpp"
#include "tcp/rtt.hpp"
#include "tcp/segment.hpp"
#include "tcp/send_queue.hpp"
#include "tcp/seq.hpp"
#include "tcp/spurious.hpp"
#include "tcp/tail_probe.hpp"
#include "wire/tcp.hpp"

namespace rnic::tcp {

// RFC 9293 s3.3.2.
enum class State : std::uint8_t {
  closed,
  listen,
  syn_sent,
  syn_received,
  established,
  fin_wait_1,
  fin_wait_2,
  close_wait,
  closing,
  last_ack,
  time_wait,
};
const char* name(State state);  // as the RFC spells it: FIN-WAIT-1

// Why a connection is no more.
enum class Ended : std::uint8_t {
  no,
  gracefully,  // both FINs are through; state() says TIME-WAIT for as long as that lasts
  reset,       // a RST that we believe
  refused,     // a RST in answer to our SYN
  timed_out,   // too many retransmissions, or keepalive
  aborted,     // by us
};

// The RST that answers a segment for which there is no connection (RFC 9293 s3.10.7.1), ports
// turned round; nothing when the segment is a RST itself.
std::optional<wire::TcpHeader> reset_in_reply(const wire::TcpHeader& header, std::size_t payload_bytes);

class Connection {
 public:
  explicit Connection(const Options& options);

  // ---- opening -----------------------------------------------------------------------------
  void open_active(Seq initial, std::uint32_t timestamp_offset = 0);
  // The peer called, was answered, and `third` completes it (tcp/handshake.hpp). The connection is
  // ESTABLISHED; the third segment is then to be given to on_segment().
  void open_passive(const Handshake& handshake, const wire::TcpHeader& third, Instant now);
  // Of our SYN. A call that finds remains of an earlier connection at its peer takes another before its next SYN.
  Seq initial() const { return iss_; }

  // ---- the wire ----------------------------------------------------------------------------
  // Takes one segment whose checksum and ports are already known to be good.
  void on_segment(SegmentIn&& segment, Instant now);
  // The same for one behind the segment of which on_segment(), or this, has just taken all octets, and which says
  // nothing else than that (host/input_run.hpp): its octets alone. False: nothing was taken, on_segment() knows what to
  // do with it.
  bool on_next_segment(BufferRef& buffer, Bytes payload, Seq sequence, Instant now);
  // Of a segment taken just now: what it says of our octets was believed, and nothing newer is known.
  bool is_last_word(const wire::TcpHeader& header) const {
    return window_sequence_ == Seq{header.sequence} && window_ack_ == Seq{header.acknowledgement};
  }
  // The next segment to put on the wire, or nothing. Call until nothing.
  std::optional<SegmentOut> next_segment(Instant now);
  // When to call next_segment again even if no segment arrives; kNever if idle. A time that has
  // passed means: now.
  Instant next_deadline() const;
  // The port's MTU has changed (W-MPA-59, W-TCP-08).
  void set_mss(std::uint32_t mss_bytes);
  // A router says that it cannot pass on a packet of ours with the segment at `quoted`, only one
  // with `mss_bytes` behind its headers (W-TCP-07). Believed as tcp/path_mtu.hpp says.
  void on_packet_too_big(std::uint32_t mss_bytes, Seq quoted, Instant now);

  // ---- sending -----------------------------------------------------------------------------
  // Payload octets of a full segment, options that are on every segment taken off (RFC 5044's
  // EMSS). Changes with the path, and when the handshake ends; whoever fills segments asks each time.
  std::uint32_t emss() const;
  // What the segment that is begun now may hold, with room_bytes() of this for it: emss(), or once in
  // a while more, to see whether the path lets it through (RFC 4821). Then one segment that is
  // longer than emss() may be appended.
  std::uint32_t begin_segment(std::uint32_t room_bytes, Instant now);
  // Payload octets that could be handed over now and would leave at once: the window's and the
  // congestion window's room, less what is queued unsent. When nothing at all is queued or in
  // flight it is at least one EMSS, so that small windows and zero-window probes have octets to
  // work with. 0 when the queue has no slot, or the state takes no data.
  std::uint32_t room_bytes() const;
  // Takes a segment's payload (all octets of the buffer, at most emss() of them, or more when the
  // EMSS has shrunk since: then it is cut). `unit_bytes` not 0: those of a run of segments, each of so many but for the
  // last. False if there is no slot or the stream is closed.
  bool append(BufferRef payload, std::uint16_t unit_bytes = 0);
  // Octets of payload that a run appended now may have; 0: none is to be appended. It has up to kRunSegmentsMax
  // segments.
  std::uint32_t run_bytes() const;
  // The same for the last before close(): a queue that is full has room for it yet.
  bool append_last(BufferRef payload);
  std::uint64_t appended() const;      // octets of our stream handed over, ever
  std::uint64_t acknowledged() const;  // octets of our stream that the peer has acknowledged
  // No more octets from us: FIN after all that was appended (W-TCP-18).
  void close();
  // It is known that the peer is there by now: a SYN whose answer would be waited for longer than that of the first
  // goes again at once, and the waits begin anew.
  void renew_syn(Instant now);
  // Asks the peer for an acknowledgement, as a keep-alive does (RFC 9293 s3.8.4). What comes of it is for the caller to
  // see, by heard().
  void send_keepalive();
  // How many segments of the peer's came that could be nobody else's who does not see the wire: their sequence numbers
  // and acknowledgements were acceptable.
  std::uint64_t heard() const { return heard_; }
  // RST now; everything is dropped.
  void abort(Instant now);
  // Of queues that are empty: the next segment takes their memory anew.
  void give_back_slots() {
    queue_.give_back_slots();
    receiver_.give_back_slots();
  }

  // ---- receiving ---------------------------------------------------------------------------
  // The i-th readable span counted from `offset` octets after the consumption point is found by
  // walking: readable_count() spans, readable(i).
  std::size_t readable_count() const { return receiver_.readable_count(); }
  Readable readable(std::size_t index) { return receiver_.readable(index); }
  std::uint64_t received() const { return receiver_.received(); }  // octets of the peer's stream in order so far, ever
  std::uint64_t consumed() const { return receiver_.consumed(); }
  // Gives the first `bytes` readable octets' buffers back; opens the window.
  void consume(std::uint64_t bytes);
  // What came beyond a gap, where it lies: pieces in the order of the stream, none over another.
  // They have passed every check of TCP's, are acknowledged selectively, and stay until they are
  // readable (W-TCP-09, -26). counters().out_of_order tells whether there are new ones.
  using Beyond = Receiver::Beyond;
  std::size_t beyond_count() const { return receiver_.beyond_count(); }
  Beyond beyond(std::size_t index) const { return receiver_.beyond(index); }
  // What comes beyond a gap is kept in so many pieces from now on, and no more.
  void limit_beyond(std::uint32_t pieces) { receiver_.limit_beyond(pieces); }
  // Buffers are scarce: small pieces are copied together from now on, not only where there are many.
  void join_small_pieces() { receiver_.join_small_pieces(); }
  // What waits is not read soon: until it is, pieces that waste a large buffer are copied together, too.
  void pack_pieces() { receiver_.pack_pieces(); }
  // Buffers that hold what came and was not consumed, in order and beyond gaps.
  const BufferCount& kept() const { return receiver_.kept(); }
  // And buffers that hold octets of ours that are not acknowledged.
  BufferCount queued() const { return queue_.held(); }
  // No acknowledgement is sent for stream octets at and after this position (octets whose
  // placement is not done); kNoHold: none held.
  static constexpr std::uint64_t kNoHold = Receiver::kNoHold;
  void hold_acknowledgements_from(std::uint64_t position) { receiver_.hold_acknowledgements_from(position); }
  // The peer's FIN has arrived, and all octets before it.
  bool peer_closed() const { return receiver_.peer_closed(); }
  // The caller's burst is over: an acknowledgement that is due may go (ACK at the end of each
  // burst; every second full segment at the latest).
  void end_of_burst();

  // ---- what it is --------------------------------------------------------------------------
  State state() const;
  Ended ended() const;
  bool established() const;  // the handshake is over and no end was reached
  // Timeouts since the peer last answered: what R1 and R2 of RFC 9293 s3.8.3 are compared with.
  std::uint32_t unanswered_timeouts() const { return retransmissions_; }
  const Counters& counters() const;
  Duration smoothed_rtt() const;
  std::uint32_t congestion_window_bytes() const;
  std::uint32_t in_flight_bytes() const;
  Algorithm congestion() const { return congestion_.algorithm(); }
  bool ecn_agreed() const { return ecn_.may_be_marked(); }  // and so our data may be marked
  // The peer's last timestamp (TS.Recent), where timestamps are in use.
  std::optional<std::uint32_t> timestamp_recent() const;

  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

 private:
  // connection.cpp: the steps of RFC 9293 s3.10.7, in its order, one function each. A check that
  // returns false has dealt with the segment.
  void on_segment_closed(const SegmentIn& segment);
  void on_segment_syn_sent(const wire::TcpHeader& header, Instant now);
  bool doubts_its_peer(const wire::TcpHeader& header, Instant now);
  bool is_first_syn(const Incoming& in) const;
  bool check_timestamps(Incoming& in, Instant now);
  bool check_sequence(Incoming& in, Instant now);
  bool is_news_though_overtaken(const Incoming& in) const;
  bool check_reset(const Incoming& in, Instant now);
  bool check_syn(const Incoming& in, Instant now);
  bool process_ack(const Incoming& in, Instant now);
  void on_peer_closed(Instant now);

  void start(Seq initial);
  void start_at(Seq initial);
  void number_behind_remains();
  void adopt(const Handshake& handshake, Instant now);
  void start_ecn(Ecn::OurData data);
  void become_established(const wire::TcpHeader& header, Instant now);
  void on_our_fin_acknowledged(Instant now);
  void challenge(Instant now);
  void enter_time_wait(Instant now);
  void end(Ended why);
  void update_emss();
  void raise_window_max(std::uint32_t window_bytes);
  void follow_congestion_window();
  void on_path_changed();
  void on_path_probe_answered(Instant now);
  std::uint32_t option_bytes() const { return timestamps_ ? 12 : 0; }
  Seq send_next() const;
  Seq acceptable_next() const;

  // acknowledgements.cpp: what the peer says of our octets.
  void on_acknowledgement(const Incoming& in, Seq ack, Instant now);
  void on_old_acknowledgement(const wire::TcpHeader& header, Instant now);
  bool update_window(const wire::TcpHeader& header, Seq ack);
  // What the SACK option tells: something new, and a duplicate (RFC 2883).
  struct Told {
    bool news = false;
    bool duplicate = false;
    Seq duplicate_first{}, duplicate_end{};
  };
  Told take_sack(const wire::TcpHeader& header, Seq ack, Delivered& delivered);
  Delivered nothing_delivered_yet(const wire::TcpHeader& header, Instant now) const;
  Instant echoed_until(const wire::TcpHeader& header, Instant now) const;
  void on_echo(const wire::TcpHeader& header, const Delivered& delivered, std::uint32_t flight_before, Instant now);
  void pause_for_mark(Instant now);
  void restart_retransmission_timer(Instant now);

  // recovery.cpp: losses, and the way back from them.
  bool recovering() const { return recovery_ != Recovery::none; }
  bool reduced_for_this_window() const { return queue_.acknowledged() < reduced_until_; }
  void look_for_losses(const Delivered& delivered, bool duplicate, Instant now);
  bool detect_by_time(Instant now);
  bool detect_by_duplicates(bool advances, bool duplicate);
  std::uint32_t duplicate_bytes() const;
  std::uint32_t delivered_bytes(const Delivered& delivered, bool duplicate);
  void begin_recovery();
  void end_recovery();
  void on_duplicate_told(const Told& told, const Delivered& delivered, Instant now);
  bool recovery_was_spurious(const Delivered& delivered, bool advances);
  bool may_try_new_data() const;
  void undo_recovery(const Delivered& delivered, Instant now);
  void on_window_reduced();
  void on_probe_answered(const Told& told, Seq ack, bool plain, std::uint32_t flight_before);
  void schedule_tail_probe(Instant now);
  void on_tail_probe_timeout(Instant now);
  bool send_tail_probe(SegmentOut& out, Instant now);

  // timers.cpp
  Instant earliest_timer() const {
    return std::min(std::min(std::min(rto_at_, receiver_.deadline()), std::min(persist_at_, tail_probe_at_)),
                    std::min(std::min(keepalive_at_, time_wait_at_), reordering_at_));
  }
  void run_timers(Instant now);
  void on_retransmission_timeout(Instant now);
  void on_keepalive(Instant now);

  // output.cpp: what goes out.
  std::uint32_t pipe_bytes() const;
  std::uint32_t window_room() const;
  std::uint32_t sendable_bytes() const;
  std::uint32_t sendable_of_run(std::uint32_t first_bytes) const;
  bool may_send_fin() const;
  bool may_retransmit(SendQueue::Index i) const;
  bool paces_out(Instant now);
  Pacer::Pace pace() const { return {congestion_.window_bytes(), congestion_.pace_bytes(), emss_, rtt_.smoothed()}; }
  void fill(wire::TcpHeader& header, std::uint8_t flags, Seq sequence, Instant now);
  void fill_handshake(SegmentOut& out, Instant now);
  void fill_acknowledgement(SegmentOut& out, Instant now);
  void fill_keepalive(SegmentOut& out, Instant now);
  void fill_data(SegmentOut& out, SendQueue::Index i, bool first_time, Instant now);
  void send_first_unsent(SegmentOut& out, std::uint32_t octets, Instant now);
  void retransmit(SegmentOut& out, SendQueue::Index i, Instant now);

  static constexpr Instant kPast{std::numeric_limits<std::int64_t>::min()};

  // ---- what every segment needs stands first -------------------------------------------------
  State state_ = State::closed;
  Ended ended_ = Ended::no;
  bool sack_ = false;            // negotiated
  bool timestamps_ = false;      // negotiated
  bool scaling_ = false;         // negotiated
  std::uint8_t send_shift_ = 0;  // window scale of what the peer says

  // Sending (SND.UNA and SND.NXT are the queue's).
  Seq send_edge_{};                    // SND.UNA + SND.WND: the peer's right edge
  Seq window_sequence_{};              // SND.WL1
  Seq window_ack_{};                   // SND.WL2
  std::uint32_t send_window_max_ = 0;  // the largest window that the peer ever had
  std::uint32_t emss_ = 0;
  std::uint32_t slots_enough_bytes_ = 0;  // of a congestion window: the queue has slots for it
  std::uint32_t duplicate_acks_ = 0;      // without SACK only
  enum class Recovery : std::uint8_t { none, fast, timeout } recovery_ = Recovery::none;
  bool send_one_anyway_ = false;  // the first retransmission does not ask the window
  bool fin_appended_ = false;
  bool tail_probe_due_ = false;
  bool window_probe_due_ = false;
  bool ecn_pause_ = false;  // one segment was too much: the next when the timer says so
  bool keepalive_due_ = false;
  // In octets of our stream, ever: where a recovery ends, and until where the window has had its
  // reduction.
  std::uint64_t recovery_end_ = 0;
  std::uint64_t reduced_until_ = 0;
  std::uint32_t retransmissions_ = 0;   // timeouts without an answer
  std::uint32_t keepalive_probes_ = 0;  // without an answer

  // Timers; kNever when not running.
  Instant rto_at_ = kNever;
  Instant persist_at_ = kNever;
  Instant tail_probe_at_ = kNever;
  Instant reordering_at_ = kNever;  // what was overtaken is lost then (RFC 8985 s6.2)
  Instant keepalive_at_ = kNever;
  Instant time_wait_at_ = kNever;
  Instant last_sent_at_{};

  SendQueue queue_;
  PathMtu path_;
  CongestionControl congestion_;
  Pacer pacer_;
  RttEstimator rtt_;
  Rack rack_;
  TailProbe tail_probe_;
  Ecn ecn_;
  Counters counters_;
  std::uint64_t heard_ = 0;
  Receiver receiver_;  // counts, too
  Options options_;

  // ---- handshake, timestamps, and what is rare -----------------------------------------------
  Seq iss_{};
  std::optional<Seq> remains_;  // SYN-SENT: what the peer expects next of an earlier connection of these four names
  std::uint32_t peer_mss_;
  bool syn_due_ = false;
  bool ecn_asked_ = false;  // by our SYN
  bool close_after_handshake_ = false;
  bool reset_due_ = false;
  std::uint32_t syn_sent_count_ = 0;
  Instant syn_sent_at_{};
  wire::TcpHeader reset_{};
  std::uint32_t timestamp_offset_ = 0;
  SpuriousCheck spurious_;
  RateLimit challenges_{10, seconds(5)};  // RFC 5961 s7
};

}  // namespace rnic::tcp
