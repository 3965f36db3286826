#include "ud/queue_pair.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "rdmap/status.hpp"

namespace rnic::ud {

namespace {

using rdmap::Status;

// A move's token: the place of what it is for.
constexpr std::uint32_t kOfReceive = 0x80000000;

std::uint64_t length_of(const WorkRequest& work) {
  if (work.has_data) return work.data.size();
  std::uint64_t length = 0;
  for (std::uint32_t i = 0; i < work.sge_count; ++i) length += work.sges[i].length;
  return length;
}

}  // namespace

const char* name(State state) {
  constexpr std::array kNames{"RESET", "INIT", "RTR", "RTS", "SQE", "ERR"};
  return kNames[static_cast<std::size_t>(state)];
}

QueuePair::QueuePair(const Config& config, Host& host, tpt::Table& table, tpt::Mover& mover)
    : config_(config), host_(host), table_(table), mover_(mover) {}

QueuePair::~QueuePair() { mover_.forget(*this); }

// ---- states -------------------------------------------------------------------------------

Result<Done, ModifyError> QueuePair::modify(std::optional<State> wanted, std::optional<std::uint32_t> q_key) {
  if (wanted) {
    switch (kModify[static_cast<std::size_t>(state_)][static_cast<std::size_t>(*wanted)]) {
      case Step::refuse:
        return Failure{ModifyError::invalid_state};
      case Step::rest:
        // The queues are asked, too: a ring may not have been answered yet, and what is left would be of the next life.
        posted_ = flushes_receives_ = true;
        if (flush() || !flushed()) return Failure{ModifyError::still_flushing};
        break;
      case Step::ok:
        break;
    }
  }
  if (q_key) q_key_ = *q_key;
  if (wanted) enter(*wanted);
  return Done{};
}

void QueuePair::enter(State state) {
  if (state == state_) return;
  state_ = state;
  if (state == State::rtr || state == State::rts) take_room();
  if (state == State::reset) {
    q_key_ = 0;
    has_next_ = posted_ = false;
  }
  if (state == State::error || state == State::rts) posted_ = true;  // it is to be looked at
  flushes_receives_ = state == State::error;
  if (state == State::error && config_.shared_receive) host_.raise(rdmap::Event::last_wqe_reached);
}

void QueuePair::take_room() {
  if (out_) return;
  out_ = std::make_unique<Outgoing[]>(kOutMax);
  in_ = std::make_unique<Incoming[]>(kInMax);
  headers_ = std::make_shared<Grh[]>(kInMax);
}

bool QueuePair::flushed() const {
  return out_first_ == out_next_ && in_first_ == in_next_ && !posted_ && !has_next_ && !flushes_receives_;
}

bool QueuePair::idle() const {
  const bool out_waits = out_first_ != out_next_ && out_[out_first_ % kOutMax].gathers != 0;
  const bool in_waits = in_first_ != in_next_ && in_[in_first_ % kInMax].places != 0;
  if (out_first_ != out_next_ && !out_waits) return false;
  if (in_first_ != in_next_ && !in_waits) return false;
  switch (state_) {
    case State::reset:
    case State::init:
    case State::rtr:
      return true;
    case State::rts:
      return (!posted_ && !has_next_) || out_next_ - out_first_ == kOutMax || mover_.is_stuck(config_.space);
    case State::sqe:
    case State::error:
      return out_waits || in_waits || (!posted_ && !has_next_ && !flushes_receives_);
  }
  return true;
}

// ---- out ----------------------------------------------------------------------------------

bool QueuePair::transmit(Network& network, std::uint32_t& frames) {
  lacks_buffer_ = false;
  if (state_ != State::rts) return false;
  // What is begun now would only hold buffers: behind those that found no room, or behind a page.
  if (lacks_room_ || mover_.is_stuck(config_.space)) return false;
  bool busy = false;
  for (; frames != 0 && out_next_ - out_first_ != kOutMax; --frames) {
    // Nothing is begun behind one that fails.
    if (out_next_ != out_first_ && out_[(out_next_ - 1) % kOutMax].status != Status::success) break;
    if (!has_next_) {
      if (!posted_) break;
      if (!host_.take_send(next_)) {
        posted_ = false;
        break;
      }
      has_next_ = true;
      next_.sge_count = static_cast<std::uint8_t>(std::min<std::uint32_t>(next_.sge_count, rdmap::kSgesMax));
    }
    if (begin(network) == Begun::waits) {
      lacks_buffer_ = true;
      break;
    }
    busy = true;
  }
  return busy;
}

// As far as next_ can be judged; each SGE whole.
Status QueuePair::check(const Network& network, std::uint32_t& length, wire::IpAddress& from) {
  if (next_.malformed || next_.opcode != rdmap::Opcode::send) return Status::invalid_wqe;
  const std::uint64_t octets = length_of(next_);
  if (octets > network.message_max()) return Status::invalid_length;
  length = static_cast<std::uint32_t>(octets);
  const auto source = network.source(next_.address.gid_index);
  if (!source || source->is_v4() != next_.address.to.is_v4()) return Status::invalid_wqe;
  from = *source;
  for (std::uint32_t i = 0; i < next_.sge_count; ++i) {
    const rdmap::Sge& sge = next_.sges[i];
    const auto access = table_.check_local(sge.lkey, config_.pd, tpt::Rights::local_read, sge.address, sge.length);
    if (!access) return rdmap::status_of(access.error());
    access_[i] = *access;
  }
  return Status::success;
}

QueuePair::Begun QueuePair::begin(Network& network) {
  std::uint32_t length = 0;
  wire::IpAddress from;
  const Status status = check(network, length, from);
  BufferRef buffer;
  if (status == Status::success) {
    constexpr auto kHeader = static_cast<std::uint32_t>(wire::Datagram::kSize);
    buffer = network.take(kHeader + length);
    if (!buffer) return Begun::waits;
    buffer->append(kHeader + length);
  }
  Outgoing& out = out_[out_next_ % kOutMax];
  out.status = status;
  out.slot = next_.slot;
  out.signaled = next_.signaled;
  out.gathers = 0;
  has_next_ = false;
  const std::uint32_t token = out_next_++ % kOutMax;
  if (status != Status::success) return Begun::failed;

  out.address = next_.address;
  out.from = from;
  const std::uint32_t key = next_.address.q_key;
  out.header = {.solicited = next_.solicited,
                .has_immediate = next_.has_immediate,
                .source = config_.number,
                .destination = next_.address.number,
                .q_key = (key & Address::kOwnKey) != 0 ? q_key_ : key,
                .immediate = from_big(next_.immediate),
                .length = length};
  MutableBytes room = buffer->bytes().subspan(wire::Datagram::kSize);
  hold(*buffer, 1);
  out.buffer = std::move(buffer);
  if (next_.has_data) {
    if (length != 0) std::memcpy(room.data(), next_.data.data(), length);
    return Begun::yes;
  }
  for (std::uint32_t i = 0; i < next_.sge_count; ++i) {
    if (access_[i].length == 0) continue;
    switch (mover_.gather(access_[i], room.first(access_[i].length), {this, token})) {
      case tpt::Moved::done:
        break;
      case tpt::Moved::failed:
        out.status = Status::local_catastrophic;
        break;
      case tpt::Moved::later:
        ++out.gathers;
        break;
    }
    room = room.subspan(access_[i].length);
  }
  return Begun::yes;
}

bool QueuePair::finish_sends(Network& network, Instant now) {
  bool busy = false;
  while (out_first_ != out_next_) {
    Outgoing& out = out_[out_first_ % kOutMax];
    if (out.gathers != 0) break;
    if (state_ == State::sqe || state_ == State::error) {
      complete_send(out.slot, Status::flushed, true);
    } else if (out.status != Status::success) {
      complete_send(out.slot, out.status, true);
      // In the state that this makes the others are flushed.
      if (state_ == State::rts) enter(State::sqe);
      posted_ = true;
    } else {
      if (!network.has_room(out.address.to)) {
        lacks_room_ = true;
        break;
      }
      wire::emit(out.header, out.buffer->bytes());
      ++counters_.sends_out;
      counters_.bytes_out += out.header.length;
      hold(*out.buffer, -1u);
      network.send(std::move(out.buffer), out.from, out.address, now);
      complete_send(out.slot, Status::success, out.signaled);
    }
    if (out.buffer) hold(*out.buffer, -1u);
    out.buffer.reset();
    ++out_first_;
    busy = true;
  }
  return busy;
}

void QueuePair::hold(const Buffer& buffer, std::uint32_t by) {
  const auto count = [&](BufferCount& in) { (is_large(buffer) ? in.large : in.small) += by; };
  count(held_);
  if (held_of_all_ != nullptr) count(*held_of_all_);
}

void QueuePair::count_held_in(BufferCount* all) {
  if (held_of_all_ != nullptr) {
    held_of_all_->small -= held_.small;
    held_of_all_->large -= held_.large;
  }
  held_of_all_ = all;
  if (all != nullptr) *all = *all + held_;
}

// What is not signaled is told where it failed.
void QueuePair::complete_send(std::uint32_t slot, Status status, bool signaled) {
  if (status != Status::success && status != Status::flushed) ++counters_.errors;
  if (!signaled) return;
  if (!host_.complete({.opcode = rdmap::Opcode::send, .status = status, .slot = slot})) enter(State::error);
}

// ---- in -----------------------------------------------------------------------------------

std::uint32_t QueuePair::capacity_of(const rdmap::ReceiveRequest& request) const {
  std::uint64_t capacity = 0;
  for (std::uint32_t i = 0; i < request.sge_count; ++i) capacity += request.sges[i].length;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(capacity, UINT32_MAX));
}

void QueuePair::receive(const Inbound& datagram) {
  const bool receives = state_ == State::rtr || state_ == State::rts || state_ == State::sqe;
  if (!receives || datagram.header.q_key != q_key_) {
    ++counters_.refused;
    return;
  }
  if (in_next_ - in_first_ == kInMax || mover_.is_stuck(config_.space)) {
    ++counters_.overrun;
    return;
  }
  rdmap::ReceiveRequest request;
  if (!host_.take_receive(request)) {
    ++counters_.without_receive;
    return;
  }
  const auto length = static_cast<std::uint32_t>(kGrhBytes + datagram.payload.size());
  Incoming& in = in_[in_next_ % kInMax];
  in.completion = {.opcode = rdmap::Opcode::receive,
                   .of_send_queue = false,
                   .shared = request.shared,
                   .solicited = datagram.header.solicited,
                   .immediate = datagram.header.has_immediate,
                   .slot = request.slot,
                   .length = length,
                   .word = to_big(datagram.header.immediate),
                   .datagram = true,
                   .ipv4 = datagram.ipv4,
                   .source = datagram.header.source};
  in.places = 0;
  if (request.malformed) {
    in.completion.status = Status::invalid_wqe;
    ++in_next_;
    return;
  }
  // Whoever has the Q_Key could otherwise use up receives, or end a queue pair, by messages that are too long for it.
  if (capacity_of(request) < length) {
    host_.give_back_receive();
    ++counters_.without_receive;
    return;
  }
  for (std::uint32_t i = 0; i < request.sge_count; ++i) {
    const rdmap::Sge& sge = request.sges[i];
    const auto access =
        table_.check_local(sge.lkey, config_.receive_pd, tpt::Rights::local_write, sge.address, sge.length);
    if (!access) {
      in.completion.status = rdmap::status_of(access.error());
      ++in_next_;
      return;
    }
    access_[i] = *access;
  }
  Grh& header = headers_[in_next_ % kInMax];
  header = datagram.grh;
  const std::array<Bytes, 2> spans{Bytes(header), datagram.payload};
  ddp::Payload payload(spans, 0);
  ddp::Placement placement;
  const tpt::MoveTicket ticket{this, kOfReceive | in_next_ % kInMax};
  std::uint32_t left = length;
  for (std::uint32_t i = 0; left != 0; ++i) {
    const std::uint32_t piece = std::min(left, access_[i].length);
    if (piece == 0) continue;
    const auto ends = piece == left ? ddp::Ends::message : ddp::Ends::nothing;
    ddp::place(mover_, payload, ddp::slice(access_[i], 0, piece), ends, ticket, placement);
    left -= piece;
  }
  in.places = placement.later;
  if (placement.failed) in.completion.status = Status::local_catastrophic;
  if (in.places != 0) {
    ++datagram.frame->refs;
    in.frame = BufferRef(datagram.frame);
  }
  ++in_next_;
  ++counters_.sends_in;
  counters_.bytes_in += datagram.payload.size();
}

bool QueuePair::finish_receives() {
  bool busy = false;
  while (in_first_ != in_next_) {
    Incoming& in = in_[in_first_ % kInMax];
    if (in.places != 0) break;
    in.frame.reset();
    ++in_first_;
    busy = true;
    const bool failed = in.completion.status != Status::success;
    if (failed) ++counters_.errors;
    // V-CQ-06: a queue that takes nothing ends those who report to it. A receive that is wrong is the application's
    // error.
    if (!host_.complete(in.completion) || failed) enter(State::error);
  }
  return busy;
}

// ---- both ---------------------------------------------------------------------------------

bool QueuePair::settle(Network& network, Instant now) {
  lacks_room_ = false;
  bool busy = finish_receives();
  busy |= finish_sends(network, now);
  return flush() || busy;
}

// Of what is not begun, when all that is begun is over.
bool QueuePair::flush() {
  if (state_ != State::sqe && state_ != State::error) return false;
  if (out_first_ != out_next_ || in_first_ != in_next_) return false;
  bool busy = false;
  for (std::uint32_t i = 0; i < kFlushMax && (posted_ || has_next_); ++i) {
    if (!has_next_ && !host_.take_send(next_)) {
      posted_ = false;
      break;
    }
    has_next_ = false;
    complete_send(next_.slot, Status::flushed, true);
    busy = true;
  }
  for (std::uint32_t i = 0; i < kFlushMax && flushes_receives_; ++i) {
    rdmap::ReceiveRequest request;
    if (config_.shared_receive || !host_.take_receive(request)) {
      flushes_receives_ = false;
      break;
    }
    (void)host_.complete(
        {.opcode = rdmap::Opcode::receive, .status = Status::flushed, .of_send_queue = false, .slot = request.slot});
    busy = true;
  }
  return busy;
}

void QueuePair::on_moved(std::uint32_t token, bool ok) {
  if ((token & kOfReceive) != 0) {
    Incoming& in = in_[token & ~kOfReceive];
    RNIC_ASSERT(in.places != 0);
    --in.places;
    if (!ok) in.completion.status = Status::local_catastrophic;
    return;
  }
  Outgoing& out = out_[token];
  RNIC_ASSERT(out.gathers != 0);
  --out.gathers;
  if (!ok) out.status = Status::local_catastrophic;
}

void QueuePair::keep(tpt::Kept& kept) {
  for (std::uint32_t i = out_first_; i != out_next_; ++i)
    if (const Outgoing& out = out_[i % kOutMax]; out.gathers != 0) kept.buffers.push_back(out.buffer.share());
  for (std::uint32_t i = in_first_; i != in_next_; ++i)
    if (const Incoming& in = in_[i % kInMax]; in.places != 0) kept.buffers.push_back(in.frame.share());
  if (headers_) kept.memory.emplace_back(headers_, headers_[0].data());
}

}  // namespace rnic::ud
