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

}  // namespace

Connection::Connection(const Options& options)
    : queue_(options.send_segments_max),
      path_(options.headers_bytes, options.path_floor_bytes, options.mss_bytes),
      congestion_(options.congestion),
      rtt_(options.rto_initial, options.rto_min, options.rto_max),
      receiver_(options, counters_),
      options_(options),
      peer_mss_(options.mss_default_bytes) {
  if (!options_.grows()) slots_enough_bytes_ = UINT32_MAX;
  update_emss();
}

// ---- opening -------------------------------------------------------------------------------

void Connection::start(Seq initial) {
  RNIC_ASSERT(state_ == State::closed && ended_ == Ended::no);
  start_at(initial);
}

void Connection::start_at(Seq initial) {
  iss_ = initial;
  queue_.start(initial + 1);
}

void Connection::open_active(Seq initial, std::uint32_t timestamp_offset) {
  start(initial);
  timestamp_offset_ = timestamp_offset;
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
  if (handshake.held) receiver_.owe_ack();  // the peer waits to hear that our window is open
}

// What the peer's SYN says. Data on it is not taken: the peer sends it again.
void Connection::adopt(const Handshake& handshake, Instant now) {
  receiver_.start(handshake, now);
  peer_mss_ = handshake.peer_mss;
  sack_ = handshake.sack;
  timestamps_ = handshake.timestamps;
  if (handshake.ecn) start_ecn(Ecn::OurData::may_be_marked);
  scaling_ = handshake.scaling;
  send_shift_ = handshake.send_shift;
  window_sequence_ = handshake.theirs;
  send_edge_ = iss_ + 1 + handshake.window;  // never scaled in a SYN
  send_window_max_ = handshake.window;
  path_.set_ceiling(std::min(options_.mss_bytes, peer_mss_));
  update_emss();
}

void Connection::start_ecn(Ecn::OurData data) {
  ecn_.start(data);
  receiver_.start_echo(options_.congestion == Algorithm::dctcp ? EcnEcho::Tells::every_change
                                                               : EcnEcho::Tells::first_mark);
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
    receiver_.set_round_trip(rack_.least_round_trip());
  }
  last_sent_at_ = now;
  const std::uint32_t window = std::uint32_t{header.window} << (header.has(flag::kSyn) ? 0 : send_shift_);
  send_edge_ = queue_.una() + window;
  raise_window_max(window);
  congestion_.start(emss_, syn_sent_count_ > 2);
  window_sequence_ = Seq{header.sequence};
  window_ack_ = Seq{header.acknowledgement};
  if (options_.keepalive.ns > 0) keepalive_at_ = now + options_.keepalive;
  if (close_after_handshake_) close();
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
  ++heard_;
  if (in.tells_timestamp) receiver_.take_timestamp(segment.header, now);
  receiver_.take_marks(segment);
  if (!in.payload.empty() && state_ <= State::fin_wait_2) receiver_.take_payload(in, now);  // seventh
  if (in.fin || receiver_.fin_known()) [[unlikely]] {                                       // eighth
    if (receiver_.take_fin(in)) on_peer_closed(now);
  }
}

// What was said of acknowledgements, timestamps and marks is known. In a recovery each segment is looked at for what it
// tells of losses.
bool Connection::on_next_segment(BufferRef& buffer, Bytes payload, Seq sequence, Instant now) {
  if (state_ != State::established || recovering() || !receiver_.take_next(buffer, payload, sequence, now))
    return false;
  ++counters_.segments_in;
  ++heard_;
  window_sequence_ = sequence;
  return true;
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
      if (!header.has(flag::kSyn)) remains_ = Seq{header.acknowledgement};
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
    receiver_.owe_ack();
  } else {  // both called at once (RFC 9293 s3.5)
    state_ = State::syn_received;
    syn_due_ = true;
  }
}

// Something of an earlier connection is at the peer yet. Our RST ends it, but not one in TIME-WAIT (RFC 1337), which
// gives way only to a SYN behind all that it has seen (RFC 9293 s3.6.1), and that may be far ahead of the clock that
// gave us our number. Not before our SYN has gone unanswered for its time: whoever guesses our ports can send such an
// ACK, and must not keep us from the true answer; nor does he learn our number, for which he would have to know the
// first.
void Connection::number_behind_remains() {
  constexpr std::uint32_t kAheadMax = 0x3FFF'FFFF;  // far from where it would look old again
  start_at(*remains_ + 1 + (iss_.value & kAheadMax));
  remains_.reset();
  syn_sent_count_ = 0;
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
    if (proves || Seq{header.sequence} != receiver_.next()) return false;
    state_ = State::syn_sent;
    syn_due_ = false;  // the timer runs
    return true;
  }
  if (!proves || !header.has(flag::kSyn) || Seq{header.sequence} == receiver_.initial()) return false;
  state_ = State::syn_sent;
  on_segment_syn_sent(header, now);
  return true;
}

// Our peer's SYN, again.
bool Connection::is_first_syn(const Incoming& in) const {
  return state_ == State::syn_received && in.segment.header.has(flag::kSyn) &&
         Seq{in.segment.header.sequence} == receiver_.initial();
}

// PAWS (RFC 7323 s5.3, R1).
bool Connection::check_timestamps(Incoming& in, Instant now) {
  const wire::TcpHeader& header = in.segment.header;
  if (header.has(flag::kRst)) return true;
  if (!header.timestamps) return header.has(flag::kSyn);  // s3.2: dropped in silence
  if (header.has(flag::kSyn)) {
    if (is_first_syn(in)) receiver_.take_timestamp(header, now);
    return true;
  }
  if (receiver_.is_outdated(header.timestamps->value, now)) {
    ++counters_.duplicates;
    if (challenges_.allows(now)) receiver_.owe_ack();
    return false;
  }
  // s4.3. Taken once its acknowledgement is accepted (RFC 5961 s5): one segment that somebody forged, its place guessed
  // roughly, would have everything refused that the peer says from then on.
  in.tells_timestamp = receiver_.tells_timestamp(in);
  return true;
}

// First, check sequence number; what is outside the window is cut away.
bool Connection::check_sequence(Incoming& in, Instant now) {
  if (receiver_.expects(in)) [[likely]]
    return true;
  if (in.segment.header.has(flag::kRst)) return true;  // has rules of its own
  if (in.segment.header.has(flag::kSyn) && in.sequence.before(receiver_.next())) {
    if (!is_first_syn(in)) return true;  // check_syn() answers it
    // Our SYN-ACK was lost. Or, when both called at once, it is the peer's SYN-ACK.
    if (!in.segment.header.has(flag::kAck)) {
      syn_due_ = true;
      return false;
    }
    in.sequence = receiver_.next();
    in.payload = {};
    in.fin = false;
    return true;
  }
  switch (receiver_.trim(in, now)) {
    case Receiver::Place::acceptable:
      return true;
    case Receiver::Place::overtaken:
      return is_news_though_overtaken(in);
    case Receiver::Place::old:  // a FIN: our last ACK was lost (s3.10.7.4, eighth)
      if (in.fin && state_ == State::time_wait) time_wait_at_ = now + options_.time_wait;
      return false;
    case Receiver::Place::outside:
      return false;
  }
  return false;
}

// A peer whose window toward us was taken back puts its ACKs at that edge (acceptable_next()), which is behind what we
// have had of it. Where the same happened to us, too, each would refuse the other's ACKs as old, and neither would ever
// hear how far it has come. RFC 9293 s3.10.7.4 makes this allowance for a window that is shut.
bool Connection::is_news_though_overtaken(const Incoming& in) const {
  if (state_ < State::established || !in.segment.header.has(flag::kAck)) return false;
  const Seq una = queue_.una(), ack{in.segment.header.acknowledgement};
  const bool answers_probe = ack == una && !send_edge_.after(una);
  return answers_probe || (ack.after(una) && !ack.after(queue_.nxt()));
}

// Second, check the RST bit (RFC 5961 s3.2).
bool Connection::check_reset(const Incoming& in, Instant now) {
  if (!in.segment.header.has(flag::kRst)) return true;
  const Seq sequence{in.segment.header.sequence};
  if (!receiver_.is_exact(sequence)) {
    if (receiver_.in_window(sequence)) challenge(now);
    return false;
  }
  end(state_ == State::syn_received ? Ended::refused : Ended::reset);  // we called, too
  return false;
}

// Fourth, check the SYN bit (RFC 5961 s4.2).
bool Connection::check_syn(const Incoming& in, Instant now) {
  if (!in.segment.header.has(flag::kSyn)) return true;
  if (is_first_syn(in) && in.sequence == receiver_.next()) return true;  // check_sequence() let it through for its ACK
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
      receiver_.owe_ack();
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

void Connection::on_peer_closed(Instant now) {
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

void Connection::challenge(Instant now) {
  if (!challenges_.allows(now)) return;
  ++counters_.challenge_acks;
  receiver_.owe_ack();
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
  receiver_.stop();
  rto_at_ = persist_at_ = tail_probe_at_ = reordering_at_ = keepalive_at_ = time_wait_at_ = kNever;
  syn_due_ = tail_probe_due_ = window_probe_due_ = keepalive_due_ = false;
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

// Slots for two windows of long segments, so that they run out only where segments are short.
void Connection::follow_congestion_window() {
  const std::uint32_t slots = 2 * (congestion_.window_bytes() / emss_);
  queue_.allow(std::min(slots, Options::kSegmentsGrown));
  slots_enough_bytes_ = std::bit_ceil(std::max(slots, options_.send_segments_max)) / 2 * emss_;
}

void Connection::set_mss(std::uint32_t mss_bytes) {
  options_.mss_bytes = mss_bytes;
  receiver_.set_mss(mss_bytes);
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
  if (options_.grows()) slots_enough_bytes_ = 0;
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
  const auto how = recovery_ == Recovery::fast ? PathMtu::Lost::among_others : PathMtu::Lost::alone;
  path_.on_probe_lost(how, rtt_.smoothed() * window, now);
}

bool Connection::append(BufferRef payload, std::uint16_t unit_bytes) {
  if (fin_appended_) return false;
  if (state_ != State::established && state_ != State::close_wait) return false;
  if (payload->length == 0) return true;
  const std::uint32_t length = payload->length;
  if (!queue_.append(std::move(payload), unit_bytes)) return false;
  if (unit_bytes == 0 && length > emss_ && path_.on_probe_handed(length + option_bytes())) [[unlikely]] {
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
void Connection::close() {
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
  receiver_.drop_readable();
}

void Connection::consume(std::uint64_t bytes) {
  const bool to_be_told = receiver_.consume(bytes);
  if (to_be_told && state_ >= State::established && state_ <= State::fin_wait_2) receiver_.owe_ack();
}

void Connection::end_of_burst() {
  if (state_ >= State::established) receiver_.end_of_burst();
}

std::uint64_t Connection::appended() const { return queue_.appended(); }
std::uint64_t Connection::acknowledged() const { return queue_.acknowledged(); }
std::uint32_t Connection::emss() const { return emss_; }
State Connection::state() const { return state_; }
Ended Connection::ended() const { return ended_; }
bool Connection::established() const { return state_ >= State::established && ended_ == Ended::no; }
const Counters& Connection::counters() const { return counters_; }
std::optional<std::uint32_t> Connection::timestamp_recent() const {
  return timestamps_ ? std::optional(receiver_.timestamp_recent()) : std::nullopt;
}
Duration Connection::smoothed_rtt() const { return rtt_.smoothed(); }
std::uint32_t Connection::congestion_window_bytes() const { return congestion_.window_bytes(); }
std::uint32_t Connection::in_flight_bytes() const { return queue_.nxt().since(queue_.una()); }

}  // namespace rnic::tcp
