// The events of RFC 9293 s3.10: open, append, close, abort, and a segment that arrives.
#include "tcp/connection.hpp"

#include <algorithm>
#include <bit>

namespace rnic::tcp {

namespace flag = wire::tcp_flags;

const char* name(State state) {
  switch (state) {
    case State::closed:
      return "CLOSED";
    case State::listen:
      return "LISTEN";
    case State::syn_sent:
      return "SYN-SENT";
    case State::syn_received:
      return "SYN-RECEIVED";
    case State::established:
      return "ESTABLISHED";
    case State::fin_wait_1:
      return "FIN-WAIT-1";
    case State::fin_wait_2:
      return "FIN-WAIT-2";
    case State::close_wait:
      return "CLOSE-WAIT";
    case State::closing:
      return "CLOSING";
    case State::last_ack:
      return "LAST-ACK";
    case State::time_wait:
      return "TIME-WAIT";
  }
  return "?";
}

std::optional<wire::TcpHeader> reset_in_reply(const wire::TcpHeader& header, std::size_t payload_bytes) {
  if (header.has(flag::kRst)) return std::nullopt;
  wire::TcpHeader reset;
  reset.source_port = header.destination_port;
  reset.destination_port = header.source_port;
  if (header.has(flag::kAck)) {
    reset.sequence = header.acknowledgement;
    reset.flags = flag::kRst;
  } else {
    const std::uint32_t length =
        static_cast<std::uint32_t>(payload_bytes) + (header.has(flag::kSyn) ? 1 : 0) + (header.has(flag::kFin) ? 1 : 0);
    reset.acknowledgement = header.sequence + length;
    reset.flags = flag::kRst | flag::kAck;
  }
  return reset;
}

namespace {

// The windows that matter are those that hold no two long segments.
constexpr std::uint32_t kUsualMss = 1460;

// RFC 7323 s5.5: after so long without news TS.Recent says nothing.
constexpr Duration kTimestampLife = seconds(24 * 24 * 3600);

}  // namespace

Connection::Connection(const Options& options)
    : queue_(options.send_segments_max),
      path_(options.headers_bytes, options.path_floor_bytes, options.mss_bytes),
      congestion_(options.congestion),
      rtt_(options.rto_initial, options.rto_min, options.rto_max),
      readable_(options.receive_segments_max, keeper_),
      reassembly_(options.out_of_order_segments_max, keeper_),
      options_(options),
      peer_mss_(options.mss_default_bytes) {
  update_emss();
}

// ---- opening -------------------------------------------------------------------------------

void Connection::start(Seq initial) {
  RNIC_ASSERT(state_ == State::closed && ended_ == Ended::no);
  iss_ = initial;
  queue_.start(initial + 1);
}

void Connection::open_active(Seq initial, Instant, std::uint32_t timestamp_offset) {
  start(initial);
  timestamp_offset_ = timestamp_offset;
  window_offered_bytes_ = options_.receive_window_bytes;
  syn_due_ = true;
  state_ = State::syn_sent;
}

void Connection::open_passive(const Handshake& handshake, const wire::TcpHeader& third, Instant now) {
  start(handshake.ours);
  timestamp_offset_ = handshake.timestamp_offset;
  syn_sent_count_ = std::max<std::uint32_t>(handshake.sent, 1);
  syn_sent_at_ = handshake.sent_at;
  adopt(handshake, now);
  become_established(third, now);
  if (handshake.held) forced_acks_ = 1;  // the peer waits to hear that our window is open
}

// What the peer's SYN says. Data on it is not taken: the peer sends it again.
void Connection::adopt(const Handshake& handshake, Instant now) {
  irs_ = handshake.theirs;
  rcv_nxt_ = last_ack_sent_ = irs_ + 1;
  receive_edge_ = rcv_nxt_ + std::min(options_.receive_window_bytes, 0xFFFFu);
  peer_mss_ = handshake.peer_mss;
  sack_ = handshake.sack;
  timestamps_ = handshake.timestamps;
  timestamp_recent_ = handshake.timestamp_recent;
  timestamp_recent_at_ = now;
  if (handshake.ecn) start_ecn(Ecn::OurData::may_be_marked);
  scaling_ = handshake.scaling;
  send_shift_ = handshake.send_shift;
  receive_shift_ = handshake.receive_shift;
  if (!scaling_) options_.receive_window_bytes = std::min(options_.receive_window_bytes, 0xFFFFu);
  receive_limit_ = rcv_nxt_ + options_.receive_window_bytes;
  window_sequence_ = irs_;
  send_edge_ = iss_ + 1 + handshake.window;  // never scaled in a SYN
  send_window_max_ = handshake.window;
  path_.set_ceiling(std::min(options_.mss_bytes, peer_mss_));
  update_emss();
}

void Connection::start_ecn(Ecn::OurData data) {
  ecn_.start(data);
  echo_.start(options_.congestion == Algorithm::dctcp ? EcnEcho::Tells::every_change : EcnEcho::Tells::first_mark);
}

void Connection::become_established(const wire::TcpHeader& header, Instant now) {
  state_ = State::established;
  syn_due_ = false;
  rto_at_ = kNever;
  retransmissions_ = 0;
  if (syn_sent_count_ > 1) {
    rtt_.on_handshake_loss(options_.rto_initial);
  } else if (syn_sent_at_ != kNever) {
    rtt_.sample(now - syn_sent_at_);
    rack_.on_round_trip(now - syn_sent_at_, now);
    tail_probe_.on_round_trip();
  }
  last_sent_at_ = now;
  const std::uint32_t window = std::uint32_t{header.window} << (header.has(flag::kSyn) ? 0 : send_shift_);
  send_edge_ = queue_.una() + window;
  raise_window_max(window);
  congestion_.start(emss_, syn_sent_count_ > 2);
  window_sequence_ = Seq{header.sequence};
  window_ack_ = Seq{header.acknowledgement};
  if (options_.keepalive.ns > 0) keepalive_at_ = now + options_.keepalive;
  if (close_after_handshake_) close(now);
}

// ---- a segment arrives ---------------------------------------------------------------------

void Connection::on_segment(SegmentIn&& segment, Instant now) {
  ++counters_.segments_in;
  if (state_ <= State::syn_sent) [[unlikely]] {
    if (state_ == State::syn_sent) return on_segment_syn_sent(segment.header, now);
    return on_segment_closed(segment);
  }
  if (state_ == State::syn_received && doubts_its_peer(segment.header, now)) [[unlikely]]
    return;
  Incoming in{.segment = segment,
              .sequence = Seq{segment.header.sequence},
              .payload = segment.payload,
              .fin = segment.header.has(flag::kFin)};
  if (timestamps_ && !check_timestamps(in, now)) return;
  if (!check_sequence(in, now)) return;
  if (segment.header.has(flag::kRst | flag::kSyn)) [[unlikely]] {
    if (!check_reset(in, now) || !check_syn(in, now)) return;
  }
  if (!process_ack(in, now)) return;
  if (in.tells_timestamp) echo_timestamp(segment.header, now);
  if (echo_.is_news(segment.marked, segment.header.flags) && !segment.payload.empty()) [[unlikely]]
    progress_ack_ |= echo_.on_data(segment.marked, segment.header.flags, rcv_nxt_, last_ack_sent_);
  if (!in.payload.empty()) process_payload(in, now);
  if (in.fin || peer_fin_known_) [[unlikely]]
    process_fin(in, now);
}

// RFC 9293 s3.10.7.1.
void Connection::on_segment_closed(const SegmentIn& segment) {
  if (auto reset = reset_in_reply(segment.header, segment.payload.size())) {
    reset_ = *reset;
    reset_due_ = true;
  }
}

// RFC 9293 s3.10.7.3.
void Connection::on_segment_syn_sent(const wire::TcpHeader& header, Instant now) {
  const bool acknowledges = header.has(flag::kAck);
  if (acknowledges && Seq{header.acknowledgement} != iss_ + 1) {
    if (auto reset = reset_in_reply(header, 0)) {
      reset_ = *reset;
      reset_due_ = true;
    }
    return;
  }
  if (header.has(flag::kRst)) {
    if (!acknowledges) return;
    // Perhaps of a middlebox that does not know the flags (RFC 3168 s6.1.1.1).
    if (ecn_asked_ && syn_sent_count_ == 1)
      syn_due_ = true;
    else
      end(Ended::refused);
    return;
  }
  if (!header.has(flag::kSyn)) return;
  Handshake agreed = agree(header, options_, iss_, timestamp_offset_);
  if (acknowledges ? !ecn_asked_ || !Ecn::is_setup_syn_ack(header.flags) : !ecn_asked_) agreed.ecn = false;
  adopt(agreed, now);
  // We have said, too, that we cannot, or not (RFC 3168 s6.1.1).
  if (acknowledges && ecn_asked_ && Ecn::is_setup_syn_ack(header.flags))
    start_ecn(syn_sent_count_ == 1 ? Ecn::OurData::may_be_marked : Ecn::OurData::not_marked);
  if (acknowledges) {
    become_established(header, now);
    forced_acks_ = 1;
  } else {  // both called at once (RFC 9293 s3.5)
    state_ = State::syn_received;
    syn_due_ = true;
  }
}

// We called, and believe that the peer called at once. Its SYN acknowledged nothing, so anybody who
// guesses our ports may have sent it, and then knows what a RST must say, too. Only who has seen our
// SYN acknowledges it. RFC 9293 s3.10.7.4 would stay with the first SYN, and be refused by the RST;
// we take the answer of the one who has seen ours, and after a RST that proves nothing go on calling.
bool Connection::doubts_its_peer(const wire::TcpHeader& header, Instant now) {
  const bool proves = header.has(flag::kAck) && Seq{header.acknowledgement} == iss_ + 1;
  // As in SYN-SENT: the peer, too, may hold somebody else's SYN for ours, and this clears it away.
  if (header.has(flag::kAck) && !proves && !header.has(flag::kRst)) {
    if (auto reset = reset_in_reply(header, 0)) {
      reset_ = *reset;
      reset_due_ = true;
    }
    return true;
  }
  if (header.has(flag::kRst)) {
    if (proves || Seq{header.sequence} != rcv_nxt_) return false;
    state_ = State::syn_sent;
    options_.receive_window_bytes = window_offered_bytes_;
    syn_due_ = false;  // the timer runs
    return true;
  }
  if (!proves || !header.has(flag::kSyn) || Seq{header.sequence} == irs_) return false;
  state_ = State::syn_sent;
  options_.receive_window_bytes = window_offered_bytes_;
  on_segment_syn_sent(header, now);
  return true;
}

// PAWS (RFC 7323 s5.3, R1).
bool Connection::check_timestamps(Incoming& in, Instant now) {
  const wire::TcpHeader& header = in.segment.header;
  if (header.has(flag::kRst)) return true;
  if (!header.timestamps) return header.has(flag::kSyn);  // s3.2: dropped in silence
  const auto age = static_cast<std::int32_t>(header.timestamps->value - timestamp_recent_);
  if (age < 0 && now - timestamp_recent_at_ < kTimestampLife && !header.has(flag::kSyn)) {
    ++counters_.duplicates;
    if (challenges_.allows(now)) forced_acks_ = std::max(forced_acks_, 1u);
    return false;
  }
  // s4.3: only a segment that reaches over the left edge says what is echoed, or one without octets
  // that stands there. And not before its acknowledgement is accepted (RFC 5961 s5): one segment that somebody
  // forged, its place guessed roughly, would have everything refused that the peer says from then on.
  const Seq end = in.sequence + static_cast<std::uint32_t>(in.payload.size()) + (in.fin ? 1 : 0);
  if (header.has(flag::kSyn)) {
    if (state_ == State::syn_received && in.sequence == irs_) echo_timestamp(header, now);
    return true;
  }
  in.tells_timestamp = in.sequence == last_ack_sent_ ||
                       (in.sequence.before(last_ack_sent_) && end.after(last_ack_sent_));
  return true;
}

void Connection::echo_timestamp(const wire::TcpHeader& header, Instant now) {
  timestamp_recent_ = header.timestamps->value;
  timestamp_recent_at_ = now;
}

// First, check sequence number; what is outside the window is cut away.
bool Connection::check_sequence(Incoming& in, Instant now) {
  const bool syn = in.segment.header.has(flag::kSyn);
  std::uint32_t length = static_cast<std::uint32_t>(in.payload.size()) + (in.fin ? 1 : 0);
  if (in.sequence == rcv_nxt_ && length <= receive_edge_.since(rcv_nxt_)) [[likely]]
    return true;

  if (in.segment.header.has(flag::kRst)) return true;  // has rules of its own
  length += syn ? 1 : 0;
  if (in.sequence.before(rcv_nxt_)) {
    const std::uint32_t old = rcv_nxt_.since(in.sequence);
    if (syn && state_ == State::syn_received && in.sequence == irs_) {
      // The peer's SYN again: our SYN-ACK was lost. Or, when both called at once, its SYN-ACK.
      if (!in.segment.header.has(flag::kAck)) {
        syn_due_ = true;
        return false;
      }
      in.sequence = rcv_nxt_;
      in.payload = {};
      in.fin = false;
      return true;
    }
    if (syn) return true;  // check_syn() answers it
    if (length <= old) {
      on_old_segment(in, length, now);
      return false;
    }
    if (old > 0 && !in.payload.empty()) {
      const std::uint32_t cut = std::min(old, static_cast<std::uint32_t>(in.payload.size()));
      if (sack_ && !acknowledgement().before(rcv_nxt_)) {
        has_duplicate_ = true;
        duplicate_ = {in.sequence.value, rcv_nxt_.value};
      }
      forced_acks_ = std::max(forced_acks_, 1u);
      in.payload = in.payload.subspan(cut);
    }
    in.sequence = rcv_nxt_;
    length -= old;
  }

  const std::uint32_t window = receive_edge_.since(rcv_nxt_);
  const std::uint32_t offset = in.sequence.since(rcv_nxt_);
  if (offset < window || (offset == window && length == 0)) {
    const std::uint32_t room = window - offset;
    if (in.payload.size() > room) {
      in.payload = in.payload.first(room);
      in.fin = false;
      ++counters_.out_of_window;
      forced_acks_ = std::max(forced_acks_, 1u);
    }
    return true;
  }
  ++counters_.out_of_window;
  // Our window is shut: a probe. Its octets are refused, its ACK counts (s3.10.7.4).
  if (offset == 0) {
    forced_acks_ = std::max(forced_acks_, 1u);
    in.payload = {};
    in.fin = in.fin && in.segment.payload.empty();
    return true;
  }
  // An ACK of a peer whose probe or FIN went beyond our edge: it counts as well, and says no more of the order of things.
  if (window == 0 && length == 0 && offset <= options_.receive_window_bytes && !peer_closed_) {
    in.sequence = rcv_nxt_;
    return true;
  }
  if (length > 0 || empty_answers_.allows(now)) forced_acks_ = std::max(forced_acks_, 1u);
  return false;
}

// All of it is before RCV.NXT.
void Connection::on_old_segment(const Incoming& in, std::uint32_t length, Instant now) {
  ++counters_.duplicates;
  if (length == 0) {  // a keepalive probe, or an ACK that was overtaken
    if (empty_answers_.allows(now)) forced_acks_ = std::max(forced_acks_, 1u);
    return;
  }
  forced_acks_ = std::max(forced_acks_, 1u);
  const Seq end = in.sequence + static_cast<std::uint32_t>(in.payload.size());
  if (sack_ && !in.payload.empty() && !end.after(acknowledgement())) {
    has_duplicate_ = true;
    duplicate_ = {in.sequence.value, end.value};
  }
  // Our last ACK was lost (s3.10.7.4, eighth).
  if (in.fin && state_ == State::time_wait) time_wait_at_ = now + options_.time_wait;
}

// Second, check the RST bit (RFC 5961 s3.2). Where acknowledgements are held back, the peer's next
// octet may be what we acknowledged last.
bool Connection::check_reset(const Incoming& in, Instant now) {
  if (!in.segment.header.has(flag::kRst)) return true;
  const Seq sequence{in.segment.header.sequence};
  if (sequence != rcv_nxt_ && sequence != last_ack_sent_) {
    const std::uint32_t window = std::max(receive_edge_.since(rcv_nxt_), 1u);
    if (sequence.since(rcv_nxt_) < window) challenge(now);
    return false;
  }
  end(state_ == State::syn_received ? Ended::refused : Ended::reset);  // we called, too
  return false;
}

// Fourth, check the SYN bit (RFC 5961 s4.2).
bool Connection::check_syn(const Incoming& in, Instant now) {
  if (!in.segment.header.has(flag::kSyn)) return true;
  if (state_ == State::syn_received && in.sequence == rcv_nxt_ && Seq{in.segment.header.sequence} == irs_)
    return true;  // check_sequence() let it through for its ACK
  challenge(now);
  return false;
}

// Fifth, check the ACK field.
bool Connection::process_ack(const Incoming& in, Instant now) {
  const wire::TcpHeader& header = in.segment.header;
  if (!header.has(flag::kAck)) return false;
  const Seq ack{header.acknowledgement};
  if (state_ == State::syn_received) [[unlikely]] {
    if (ack != iss_ + 1 || syn_sent_count_ == 0) {
      on_segment_closed(in.segment);
      return false;
    }
    become_established(header, now);
    if (header.has(flag::kSyn)) {
      forced_acks_ = 1;
      return false;
    }
  }
  // RFC 5961 s5: neither of the future nor of a past that cannot be.
  const Seq una = queue_.una();
  if (ack.after(queue_.nxt()) || ack.before(una - send_window_max_)) [[unlikely]] {
    challenge(now);
    return false;
  }
  if (options_.keepalive.ns > 0) {
    keepalive_at_ = now + options_.keepalive;
    keepalive_probes_ = 0;
  }
  if (ack.before(una)) {
    on_old_acknowledgement(header, now);
    return true;
  }
  on_acknowledgement(in, ack, now);
  return state_ != State::closed;
}

void Connection::on_our_fin_acknowledged(Instant now) {
  switch (state_) {
    case State::fin_wait_1:
      state_ = State::fin_wait_2;
      break;
    case State::closing:
      enter_time_wait(now);
      break;
    case State::last_ack:
      end(Ended::gracefully);
      break;
    case State::closed:
    case State::listen:
    case State::syn_sent:
    case State::syn_received:
    case State::established:
    case State::fin_wait_2:
    case State::close_wait:
    case State::time_wait:
      break;
  }
}

// Seventh, process the segment text.
void Connection::process_payload(Incoming& in, Instant now) {
  if (peer_closed_ || state_ > State::fin_wait_2) return;
  const auto octets = static_cast<std::uint32_t>(in.payload.size());
  if (octets > peer_segment_bytes_) peer_segment_bytes_ = octets;
  if (in.sequence != rcv_nxt_) {
    ++counters_.out_of_order;
    if (options_.out_of_order_segments_max > 0) reassemble(in);
    // The sender without SACK counts our duplicate ACKs (RFC 5681 s4.2).
    forced_acks_ = sack_ ? 1 : forced_acks_ + 1;
    return;
  }
  if (reassembly_.empty()) [[likely]] {
    if (!accept_in_order(std::move(in.segment.buffer), in.payload)) {
      forced_acks_ = std::max(forced_acks_, 1u);
      return;
    }
    acknowledge_soon(octets, now);
    return;
  }
  // It fills a gap, wholly or partly. What came first of its octets stays. Its time is what is
  // echoed, though acknowledgements may be held back before it (RFC 7323 s4.2 (C)).
  if (timestamps_) echo_timestamp(in.segment.header, now);
  while (!in.payload.empty() && in.sequence == rcv_nxt_) {
    const std::uint32_t until_next = reassembly_.first().since(rcv_nxt_);
    const Bytes part = in.payload.first(
        std::min<std::size_t>(reassembly_.empty() ? in.payload.size() : until_next, in.payload.size()));
    if (!part.empty() && !accept_in_order(in.segment.buffer.share(), part)) break;
    drain_reassembly();
    const Seq end = in.sequence + static_cast<std::uint32_t>(in.payload.size());
    if (!end.after(rcv_nxt_)) break;
    in.payload = in.payload.subspan(rcv_nxt_.since(in.sequence));
    in.sequence = rcv_nxt_;
    if (part.empty() && reassembly_.front(rcv_nxt_) != nullptr) break;  // no room above
  }
  forced_acks_ = std::max(forced_acks_, 1u);
}

bool Connection::accept_in_order(BufferRef&& buffer, Bytes octets, bool copied) {
  if (!readable_.push(std::move(buffer), octets, copied)) {
    ++counters_.dropped_no_room;
    return false;
  }
  const auto size = static_cast<std::uint32_t>(octets.size());
  rcv_nxt_ = rcv_nxt_ + size;
  received_ += size;
  counters_.bytes_in += size;
  return true;
}

void Connection::reassemble(Incoming& in) {
  switch (reassembly_.add(in.sequence, in.payload, in.segment.buffer)) {
    case Reassembly::Added::kept:
      break;
    case Reassembly::Added::no_room:
      ++counters_.dropped_no_room;
      break;
    case Reassembly::Added::duplicate:
      ++counters_.duplicates;
      has_duplicate_ = true;
      duplicate_ = {in.sequence.value, in.sequence.value + static_cast<std::uint32_t>(in.payload.size())};
      break;
  }
}

void Connection::drain_reassembly() {
  while (auto* piece = reassembly_.front(rcv_nxt_)) {
    if (!accept_in_order(piece->buffer.share(), {piece->data, piece->length}, piece->copied)) return;
    reassembly_.pop();
  }
}

// Eighth, check the FIN bit. One that came before octets in front of it waits for them.
void Connection::process_fin(const Incoming& in, Instant now) {
  if (peer_closed_) return;
  if (in.fin && !peer_fin_known_) {
    peer_fin_known_ = true;
    peer_fin_ = in.sequence + static_cast<std::uint32_t>(in.payload.size());
    if (peer_fin_ != rcv_nxt_) forced_acks_ = std::max(forced_acks_, 1u);
  }
  // It may have sent octets for behind its FIN: that is its own concern, but closed it has.
  if (peer_fin_.after(rcv_nxt_)) return;
  peer_closed_ = true;
  rcv_nxt_ = rcv_nxt_ + 1;
  // A FIN asks no window, so the edge may have to make room: RCV.NXT is never beyond it.
  if (rcv_nxt_.after(receive_edge_)) receive_edge_ = rcv_nxt_;
  if (receive_edge_.after(receive_limit_)) receive_limit_ = receive_edge_;
  forced_acks_ = std::max(forced_acks_, 1u);
  reassembly_.clear();
  switch (state_) {
    case State::established:
      state_ = State::close_wait;
      break;
    case State::fin_wait_1:
      state_ = State::closing;
      break;
    case State::fin_wait_2:
      enter_time_wait(now);
      break;
    case State::closed:
    case State::listen:
    case State::syn_sent:
    case State::syn_received:
    case State::close_wait:
    case State::closing:
    case State::last_ack:
    case State::time_wait:
      break;
  }
}

// In order and new: every second full segment at once, else when the burst ends or the timer
// says so (RFC 5681 s4.2).
void Connection::acknowledge_soon(std::uint32_t octets, Instant now) {
  unacknowledged_bytes_ += octets;
  if (unacknowledged_bytes_ >= 2 * peer_segment_bytes_) progress_ack_ = true;
  if (delayed_ack_at_ == kNever) delayed_ack_at_ = now + options_.delayed_ack;
}

void Connection::challenge(Instant now) {
  if (!challenges_.allows(now)) return;
  ++counters_.challenge_acks;
  forced_acks_ = std::max(forced_acks_, 1u);
}

void Connection::enter_time_wait(Instant now) {
  state_ = State::time_wait;
  ended_ = Ended::gracefully;
  rto_at_ = persist_at_ = tail_probe_at_ = reordering_at_ = keepalive_at_ = kNever;
  time_wait_at_ = now + options_.time_wait;
}

// What has been received in order stays readable.
void Connection::end(Ended why) {
  state_ = State::closed;
  if (ended_ == Ended::no) ended_ = why;
  queue_.clear();
  reassembly_.clear();
  rto_at_ = delayed_ack_at_ = persist_at_ = tail_probe_at_ = reordering_at_ = keepalive_at_ = time_wait_at_ = kNever;
  syn_due_ = progress_ack_ = tail_probe_due_ = window_probe_due_ = keepalive_due_ = false;
  forced_acks_ = 0;
}

// ---- what the layer above asks for ---------------------------------------------------------

// No more than half of the peer's window: whatever it holds of one that is not whole, at least as much
// comes free for the rest (RFC 9293 s3.8.6.2.2 has it tell of half its buffer, not of less). An FPDU is
// as long as that, and is not consumed in parts.
void Connection::update_emss() {
  const std::uint32_t most = std::max(send_window_max_ / 2, kUsualMss);
  emss_ = std::max(std::min(path_.size_bytes(), most), kMssMin) - option_bytes();
}

void Connection::raise_window_max(std::uint32_t window_bytes) {
  if (window_bytes <= send_window_max_) return;
  send_window_max_ = window_bytes;
  if (emss_ < path_.size_bytes() - option_bytes()) on_path_changed();
}

void Connection::set_mss(std::uint32_t mss_bytes) {
  options_.mss_bytes = mss_bytes;
  path_.set_ceiling(std::min(mss_bytes, peer_mss_));
  on_path_changed();
}

void Connection::on_packet_too_big(std::uint32_t mss_bytes, Seq quoted, Instant now) {
  if (state_ < State::established || quoted.before(queue_.una()) || !quoted.before(queue_.nxt())) return;
  if (path_.on_packet_too_big(mss_bytes, quoted, now)) on_path_changed();
}

void Connection::on_path_changed() {
  const std::uint32_t before = emss_;
  update_emss();
  if (state_ < State::established || emss_ == before) return;
  congestion_.set_mss(emss_);
  // Larger ones did not get through (RFC 1191 s6.4): again, cut, and not for congestion.
  if (emss_ < before) queue_.mark_lost_longer_than(emss_);
}

std::uint32_t Connection::begin_segment(std::uint32_t room_bytes, Instant now) {
  const std::uint32_t wanted = path_.wanted_probe(now);
  if (wanted == 0) [[likely]]
    return emss_;
  // Only where a loss would have no other reason, and not with another one on its way.
  const std::uint32_t octets = wanted - option_bytes();
  if (recovery_ != Recovery::none || queue_.probe() != SendQueue::Probe::none || octets > room_bytes) return emss_;
  path_.on_probe_begun(wanted, now);
  return octets;
}

void Connection::on_path_probe_answered(Instant now) {
  const bool arrived = queue_.probe() == SendQueue::Probe::arrived;
  queue_.end_probe();
  if (arrived) {
    path_.on_probe_arrived(now);
    on_path_changed();
    return;
  }
  const std::int64_t window = congestion_.window_bytes() / emss_;
  path_.on_probe_lost(recovery_ != Recovery::fast, rtt_.smoothed() * window, now);
}

bool Connection::append(BufferRef payload) {
  if (fin_appended_) return false;
  if (state_ != State::established && state_ != State::close_wait) return false;
  if (payload->length == 0) return true;
  const std::uint32_t length = payload->length;
  if (!queue_.append(std::move(payload))) return false;
  if (length > emss_ && path_.on_probe_handed(length + option_bytes())) [[unlikely]] {
    ++counters_.path_probes;
    queue_.mark_probe();
  }
  return true;
}

bool Connection::append_last(BufferRef payload) {
  if (fin_appended_ || (state_ != State::established && state_ != State::close_wait)) return false;
  return queue_.append_last(std::move(payload));
}

// RFC 9293 s3.10.4.
void Connection::close(Instant) {
  switch (state_) {
    case State::syn_sent:
      end(Ended::aborted);
      break;
    case State::syn_received:
      close_after_handshake_ = true;
      break;
    case State::established:
    case State::close_wait:
      queue_.append_fin();
      fin_appended_ = true;
      state_ = state_ == State::established ? State::fin_wait_1 : State::last_ack;
      break;
    case State::closed:
    case State::listen:
    case State::fin_wait_1:
    case State::fin_wait_2:
    case State::closing:
    case State::last_ack:
    case State::time_wait:
      break;
  }
}

// RFC 9293 s3.10.5. Also from CLOSING and LAST-ACK, where the RFC is content to forget: the peer
// may still wait for octets that will not come.
void Connection::abort(Instant now) {
  const bool tell = state_ >= State::syn_received && state_ != State::time_wait;
  if (tell) {
    reset_ = wire::TcpHeader{};
    fill(reset_, flag::kRst | flag::kAck, acceptable_next(), now);
    reset_due_ = true;
  }
  end(Ended::aborted);
  readable_.clear();
  consumed_ = received_;
}

void Connection::consume(std::uint64_t bytes) {
  RNIC_ASSERT(bytes <= received_ - consumed_);
  readable_.consume(bytes);
  consumed_ += bytes;
  receive_limit_ = receive_limit_ + static_cast<std::uint32_t>(bytes);
  if (!reassembly_.empty()) [[unlikely]]
    drain_reassembly();
  // The peer hears of the room by our ACKs. Only where it may be waiting for room, by an ACK of
  // its own.
  const std::uint32_t gain = receive_limit_.since(receive_edge_);
  if (gain < options_.receive_window_bytes / 2) {
    if (receive_edge_.since(rcv_nxt_) >= 2 * options_.mss_bytes) return;
    if (gain < std::min(options_.receive_window_bytes / 2, options_.mss_bytes)) return;
  }
  if (state_ >= State::established && state_ <= State::fin_wait_2 && !peer_closed_)
    forced_acks_ = std::max(forced_acks_, 1u);
}

void Connection::hold_acknowledgements_from(std::uint64_t position) {
  hold_ = position;
  if (delayed_ack_at_ == kNever && acknowledgement().after(last_ack_sent_)) progress_ack_ = true;
}

void Connection::end_of_burst(Instant) {
  if (state_ >= State::established && acknowledgement() != last_ack_sent_) progress_ack_ = true;
}

std::uint64_t Connection::appended() const { return queue_.appended(); }
std::uint64_t Connection::acknowledged() const { return queue_.acknowledged(); }
std::uint32_t Connection::emss() const { return emss_; }
std::size_t Connection::readable_count() const { return readable_.count(); }
Readable Connection::readable(std::size_t index) { return {readable_.buffer(index), readable_.span(index)}; }
std::uint64_t Connection::received() const { return received_; }
std::size_t Connection::beyond_count() const { return reassembly_.count(); }
Connection::Beyond Connection::beyond(std::size_t index) const {
  const Reassembly::Piece& piece = reassembly_.piece(static_cast<std::uint32_t>(index));
  return {received_ + piece.first.since(rcv_nxt_), {piece.data, piece.length}, &piece.buffer};
}
std::uint64_t Connection::consumed() const { return consumed_; }
bool Connection::peer_closed() const { return peer_closed_; }
State Connection::state() const { return state_; }
Ended Connection::ended() const { return ended_; }
bool Connection::established() const { return state_ >= State::established && ended_ == Ended::no; }
const Counters& Connection::counters() const { return counters_; }
std::optional<std::uint32_t> Connection::timestamp_recent() const {
  return timestamps_ ? std::optional(timestamp_recent_) : std::nullopt;
}
Duration Connection::smoothed_rtt() const { return rtt_.smoothed(); }
std::uint32_t Connection::congestion_window_bytes() const { return congestion_.window_bytes(); }
std::uint32_t Connection::in_flight_bytes() const { return queue_.nxt().since(queue_.una()); }

}  // namespace rnic::tcp
