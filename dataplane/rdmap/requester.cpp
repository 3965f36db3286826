// Work requests and Responses due -> messages -> segments; and their completions.

#include "rdmap/requester.hpp"

#include <cstring>

#include "rdmap/status.hpp"

namespace rnic::rdmap {

// ---- messages of nobody's work (W-MPA-42, -45, -46) --------------------------------------------------

void Requester::begin_empty_write() {
  sending_ = {};
  // An STag of 0 is special to some hardware.
  sending_.message = Sender::write({1}, 0, 0);
  sending_.kind = Sending::Kind::data;
}

void Requester::begin_empty_send() {
  sending_ = {};
  sending_.message = sender_.send(false, false, {}, 0);
  sending_.kind = Sending::Kind::data;
}

void Requester::begin_empty_read() {
  sending_ = {};
  sending_.message = sender_.read_request();
  wire::emit(wire::ReadRequestHeader{.sink_stag = {1}, .source_stag = {1}}, sending_.header);
  sending_.kind = Sending::Kind::request;
  reads_.ask({.sink = {.stag = {1}}, .msn = sending_.message.msn, .of_consumer = false});
}

// ---- Responses -------------------------------------------------------------------------------------

// The peer's, which cannot be answered.
Verdict Requester::refuse(const InboundRead& read, Fault fault) {
  if (acknowledgements_ != nullptr) acknowledgements_->refuse(read.number, row(fault).code.word());
  return Verdict::of(fault, &read.culprit);
}

// False: it has to wait.
bool Requester::begin_response(Verdict& verdict) {
  InboundRead& read = reads_.first_owed();
  if (read.atomic) return begin_atomic_response(verdict);
  const wire::ReadRequestHeader& request = read.request;
  // The source of a Read of no octets is not looked at (W-RDMAP-12).
  if (request.size_bytes != 0) {
    const Settings& own = common_.settings;
    const auto access = common_.table.check_remote(request.source_stag, own.pd, own.number, tpt::Rights::remote_read,
                                                   request.source_to, request.size_bytes);
    if (!access) {
      verdict = refuse(read, read_fault(access.error()));
      return true;
    }
  }
  sending_ = {};
  sending_.kind = Sending::Kind::response;
  sending_.message = Sender::read_response(request.sink_stag, request.sink_to, request.size_bytes);
  work_was_last_ = false;
  return true;
}

// The oldest request, which is Delivered, and everything before it answered: it is executed now, once,
// and its Response is the next message (RFC 7306 s5.4, W-EXT-16). False: not yet.
bool Requester::begin_atomic_response(Verdict& verdict) {
  // A Read before it shall not see what it changes.
  if (common_.moves.response_gathers != 0) return false;
  const InboundRead& read = reads_.first_owed();
  if (atomics_.state() == Atomics::State::nothing) {
    if (const auto refused = atomics_.execute(*read.atomic)) {
      verdict = refuse(read, *refused);
      return true;
    }
  }
  if (atomics_.state() == Atomics::State::begun) return false;
  const std::optional<std::uint64_t> original = atomics_.take_result();
  if (!original) {
    verdict = Verdict::of(Fault::catastrophic, &read.culprit);  // memory that is gone: no refusal (W-ACK-12)
    return true;
  }
  sending_ = {};
  sending_.kind = Sending::Kind::atomic_response;
  sending_.message = sender_.atomic_response();
  wire::emit(wire::AtomicResponseHeader{.request_id = read.atomic->request_id, .original = *original}, sending_.header);
  work_was_last_ = false;
  return true;
}

// ---- acknowledged streams (docs/wire.md s8.1) ---------------------------------------------------------

bool Requester::begin_acknowledgement() {
  sending_ = {};
  sending_.kind = Sending::Kind::acknowledgement;
  sending_.message = sender_.acknowledge();
  wire::emit(acknowledgements_->say(holds_), sending_.header);
  return true;
}

bool Requester::on_acknowledge(const wire::AcknowledgeHeader& said, Instant now, Verdict& verdict) {
  // Nothing of ours waits where there is nothing of ours.
  const bool all = said.performed == acknowledgements_->sent() && !sends_request();
  if (said.waits && all) return false;
  if (!acknowledgements_->hear(said, now)) return false;
  waits_ = false;
  complete(verdict);
  return true;
}

// Those before it have been acknowledged, or are answered.
bool Requester::on_negative_acknowledge(const wire::NegativeAcknowledgeHeader& said, Verdict& verdict) {
  if (!acknowledgements_->may_refuse(said.request)) return false;
  if (!work_.fail_first(Status::remote_termination, said.request, said.code)) return false;
  failed_ = refused_ = true;
  complete(verdict);
  return true;
}

Verdict Requester::peer_found_no_receive() {
  acknowledgements_->give_up_waiting();
  Verdict verdict;
  if (!work_.fail_first(Status::rnr_retry_exceeded, acknowledgements_->acknowledged() + 1)) return verdict;
  failed_ = refused_ = true;
  complete(verdict);
  return verdict;
}

// ---- work ------------------------------------------------------------------------------------------

bool Requester::begin_work(Verdict& verdict) {
  if (failed_) [[unlikely]]
    return false;
  for (std::uint32_t i = 0; i < kLocalWorkMax; ++i) {
    if (!has_next_) {
      if (!posted_) return i != 0;
      if (!common_.host.take_send(next_)) {
        posted_ = false;
        return i != 0;
      }
      has_next_ = true;
      next_checked_in_ = 0;
      next_.sge_count = static_cast<std::uint8_t>(std::min<std::uint32_t>(next_.sge_count, kSgesMax));
    }
    switch (begin_next_work(verdict)) {
      case Began::message:
        work_was_last_ = true;
        return true;
      case Began::failed:
        return true;
      case Began::waits:
        waits_ = true;
        return i != 0;
      case Began::completed:
        has_next_ = false;
        break;
    }
  }
  return true;
}

// For a place among the work begun, for what its fence names (V-FEN-01, -02), or for a place in ORD.
[[gnu::always_inline]] inline bool Requester::has_to_wait() const {
  if (acknowledgements_ != nullptr && acknowledgements_->peer_waits()) return true;
  if (work_.full() && !reading_on_) return true;
  const bool local =
      next_.opcode == Opcode::local_invalidate || next_.opcode == Opcode::bind || next_.opcode == Opcode::fast_register;
  const bool read = next_.opcode == Opcode::read || next_.opcode == Opcode::read_invalidate;
  const bool atomic = next_.opcode == Opcode::fetch_add || next_.opcode == Opcode::compare_swap;
  if (next_.fence && !reading_on_) {
    // Read Fence waits for Reads, Local Fence for all.
    if (next_.opcode == Opcode::local_invalidate && !work_.empty()) return true;
    if (!local && !read && reads_.outstanding() != 0) return true;
  }
  const std::uint32_t ord = common_.settings.ord;
  return (read || atomic) && !next_.malformed && ord != 0 && reads_.outstanding() >= ord;  // V-ORD-07: all of the SQ
}

// A Send or a Write: next_.
[[gnu::always_inline]] inline Status Requester::begin_data() {
  std::uint64_t length = 0;
  if (next_.has_data) {
    length = next_.data.size();
  } else {
    for (std::uint32_t i = 0; i < next_.sge_count; ++i) length += next_.sges[i].length;
  }
  if (length > 0xFFFFFFFF) return Status::invalid_length;  // V-SGL-06
  // Also of what was gathered at post: the SGEs are checked all the same (V-SEC-08).
  if (next_.sge_count != 0) {
    const Status status = check_gather(next_);
    if (status != Status::success) return status;
  }
  sending_.kind = Sending::Kind::data;
  sending_.sge = sending_.sge_offset = 0;
  if (next_.opcode == Opcode::write || next_.opcode == Opcode::write_immediate) {
    if (next_.remote_stag == Stag{} && length != 0) return Status::invalid_stag;  // V-STAG-12
    sending_.message = Sender::write(next_.remote_stag, next_.remote_to, static_cast<std::uint32_t>(length));
    ++common_.counters.writes_out;
  } else if (next_.opcode == Opcode::send_immediate) {
    sending_.message =
        sender_.send_value(next_.solicited, from_big(next_.immediate), static_cast<std::uint32_t>(length));
    ++common_.counters.sends_out;
  } else {
    sending_.message = sender_.send(next_.solicited, next_.opcode == Opcode::send_invalidate, next_.invalidate,
                                    static_cast<std::uint32_t>(length));
    ++common_.counters.sends_out;
  }
  return Status::success;
}

Requester::Began Requester::begin_next_work(Verdict& verdict) {
  if (has_to_wait()) return Began::waits;
  const std::uint32_t index = reading_on_ ? reading_work_ : work_.begin(next_);
  const auto fails = [&](Status status) {
    has_next_ = false;
    verdict = fail(index, status);
    return Began::failed;
  };
  const bool extension = next_.opcode == Opcode::fetch_add || next_.opcode == Opcode::compare_swap ||
                         next_.opcode == Opcode::write_immediate;
  // W-EXT-14. Whoever hands work to us has checked its opcode; an unknown one fails all the same.
  const bool unknown =
      next_.opcode > Opcode::fast_register && (next_.opcode != Opcode::send_immediate || acknowledgements_ == nullptr);
  if (next_.malformed || unknown || (extension && !common_.settings.extensions)) return fails(Status::invalid_wqe);

  Status status = Status::success;
  switch (next_.opcode) {
    case Opcode::send:
    case Opcode::send_invalidate:
    case Opcode::send_immediate:
    case Opcode::write:
    case Opcode::write_immediate:
      status = begin_data();
      break;
    case Opcode::read:
    case Opcode::read_invalidate:
      status = begin_read(index);
      break;
    case Opcode::fetch_add:
    case Opcode::compare_swap:
      status = begin_atomic(index);
      break;
    case Opcode::local_invalidate: {
      const auto done = common_.table.invalidate_local(next_.remote_stag, common_.settings.pd, common_.settings.number);
      ++common_.turn;
      if (!done) return fails(status_of(done.error()));
      work_.until_moved(index);  // under the old binding
      return Began::completed;
    }
    case Opcode::bind:
      status = bind(next_);
      ++common_.turn;
      if (status != Status::success) return fails(status);
      work_.until_moved(index);  // under the binding before: a window of a PD may have one
      return Began::completed;
    case Opcode::fast_register:
      status = fast_register(next_);
      ++common_.turn;
      if (status != Status::success) return fails(status);
      work_.until_moved(index);  // under the registration before
      return Began::completed;
    case Opcode::receive:
    case Opcode::receive_write_immediate:
      return fails(Status::invalid_wqe);
  }
  if (status != Status::success) return fails(status);
  sending_.of_consumer = true;
  sending_.work = index;
  return Began::message;
}

// The second message of next_, an RDMA Write with Immediate whose Write is out (W-EXT-12).
void Requester::begin_immediate() {
  sending_.kind = Sending::Kind::immediate;
  sending_.message = sender_.immediate(next_.solicited);
  wire::emit(wire::ImmediateHeader::from_verbs(next_.immediate), sending_.header);
}

// A Read: next_, which is work_[work].
Status Requester::begin_read(std::uint32_t work) {
  if (common_.settings.ord == 0) return Status::zero_read_resources;  // V-RD-09
  if (next_.has_data) return Status::invalid_wqe;
  // One local address (V-SGL-07); or several, and as many Requests (W-ACK-11).
  const bool several = next_.sge_count > 1;
  if (several && (acknowledgements_ == nullptr || next_.opcode == Opcode::read_invalidate)) return Status::invalid_wqe;
  if (!reading_on_) {
    reading_sge_ = 0;
    reading_to_ = next_.remote_to;
    if (several) {
      const Status status = check_sinks();
      if (status != Status::success) return status;
    }
  }
  // Where there is something to be read into; the last one if nowhere.
  while (reading_sge_ + 1 < next_.sge_count && next_.sges[reading_sge_].length == 0) ++reading_sge_;
  const Sge local = next_.sge_count != 0 ? next_.sges[reading_sge_] : Sge{};
  std::uint32_t after = reading_sge_ + 1;
  while (after < next_.sge_count && next_.sges[after].length == 0) ++after;
  const bool last = after >= next_.sge_count;
  tpt::ReadSink sink{.stag = local.lkey, .consumers = local.lkey};
  if (local.length != 0) {
    const auto checked = read_sink(local);
    if (!checked) return status_of(checked.error());
    sink = *checked;
  }
  sending_.kind = Sending::Kind::request;
  sending_.message = sender_.read_request();
  wire::emit(wire::ReadRequestHeader{.sink_stag = sink.stag,
                                     .sink_to = local.address,
                                     .size_bytes = local.length,
                                     .source_stag = next_.remote_stag,
                                     .source_to = reading_to_},
             sending_.header);
  reads_.ask({.sink = sink,
              .next_to = local.address,
              .left = local.length,
              .msn = sending_.message.msn,
              .work = work,
              .invalidate = next_.opcode == Opcode::read_invalidate,
              .last = last});
  reading_on_ = !last;
  reading_work_ = work;
  reading_sge_ = after;
  reading_to_ += local.length;
  ++common_.counters.reads_out;
  return Status::success;
}

// Of a Read with several: all, before anything is asked for.
Status Requester::check_sinks() {
  std::uint64_t length = 0;
  for (std::uint32_t i = 0; i < next_.sge_count; ++i) {
    const Sge& sge = next_.sges[i];
    length += sge.length;
    if (sge.length == 0) continue;
    const auto access =
        common_.table.check_local(sge.lkey, common_.settings.pd, tpt::Rights::local_write, sge.address, sge.length);
    if (!access) return status_of(access.error());
  }
  return length > 0xFFFFFFFF ? Status::invalid_length : Status::success;
}

// Where a Read of at least one octet goes. Strictly it is first looked at when the Response comes, and the
// consumer's own STag has to have Remote Write (V-RD-03, V-RD-04).
Result<tpt::ReadSink, tpt::Refusal> Requester::read_sink(const Sge& local) {
  const Settings& own = common_.settings;
  if (!own.strict_read_sink || acknowledgements_ != nullptr)
    return common_.table.check_read_sink(local.lkey, own.pd, own.number, own.access, local.address, local.length,
                                         reads_.stags());
  if (local.lkey == Stag{}) return Failure{tpt::Refusal::invalid_stag};
  return tpt::ReadSink{.stag = local.lkey, .consumers = local.lkey};
}

// An atomic operation: next_, which is work_[work].
Status Requester::begin_atomic(std::uint32_t work) {
  if (common_.settings.ord == 0) return Status::zero_read_resources;  // W-EXT-06
  if (next_.sge_count != 1 || next_.has_data) return Status::invalid_wqe;
  const Sge& sink = next_.sges[0];
  if (sink.length < kAtomicBytes) return Status::invalid_length;
  const auto access =
      common_.table.check_local(sink.lkey, common_.settings.pd, tpt::Rights::local_write, sink.address, kAtomicBytes);
  if (!access) return status_of(access.error());

  sending_.kind = Sending::Kind::request;
  sending_.message = sender_.atomic_request();
  wire::AtomicRequestHeader header;
  header.request_id = sending_.message.msn;
  header.stag = next_.remote_stag;
  header.tagged_offset = next_.remote_to;
  if (next_.opcode == Opcode::fetch_add) {
    // What is compared is not used, and has the values of W-EXT-10.
    header.opcode = wire::AtomicOpcode::fetch_add;
    header.data = next_.argument;
    header.data_mask = next_.add_mask;
  } else {
    header.opcode = wire::AtomicOpcode::compare_swap;
    header.data = next_.swap;
    header.data_mask = next_.swap_mask;
    header.compare = next_.argument;
    header.compare_mask = next_.compare_mask;
  }
  wire::emit(header, sending_.header);
  reads_.ask({.sink = {.consumers = sink.lkey},
              .next_to = sink.address,
              .left = kAtomicBytes,
              .msn = sending_.message.msn,
              .work = work,
              .atomic = true});
  ++common_.counters.atomics_out;
  return Status::success;
}

Status Requester::bind(const WorkRequest& request) {
  const Settings& own = common_.settings;
  if (!tpt::permits(own.access, tpt::Rights::window_bind)) return Status::access;
  const auto done = common_.table.bind(request.remote_stag, request.remote_stag.key(), request.invalidate, own.pd,
                                       own.number, request.rights, request.remote_to, request.argument);
  return done ? Status::success : status_of_bind(done.error());
}

Status Requester::fast_register(const WorkRequest& request) {
  if (!common_.settings.privileged) return Status::not_privileged;
  tpt::PageList list = request.list;
  list.base = request.remote_to;
  list.size = request.argument;
  list.space = common_.settings.space;
  const auto done = common_.table.fast_register(request.remote_stag, common_.settings.pd, list);
  return done ? Status::success : status_of_fast_register(done.error());
}

// Every SGE whole, once in a turn: what the TPT permits now may be gone in the next (V-INV-10).
Status Requester::check_gather(const WorkRequest& request) {
  if (next_checked_in_ == common_.turn) return Status::success;
  for (std::uint32_t i = 0; i < request.sge_count; ++i) {
    const Sge& sge = request.sges[i];
    const auto access =
        common_.table.check_local(sge.lkey, common_.settings.pd, tpt::Rights::local_read, sge.address, sge.length);
    if (!access) return status_of(access.error());
    next_access_[i] = *access;
  }
  next_checked_in_ = common_.turn;
  return Status::success;
}

// Not sent, or no further: the Terminate goes in its place (V-STOP-03).
Verdict Requester::fail(std::uint32_t work, Status status) {
  work_.fail(work, status);
  stop();
  if (acknowledgements_ != nullptr) {
    // Those before it are still to be acknowledged.
    failed_ = true;
    Verdict verdict;
    complete(verdict);
    return verdict;
  }
  return Verdict::of(Fault::local_work);
}

// ---- segments --------------------------------------------------------------------------------------

std::uint32_t Requester::piece_bytes() const {
  if (sending_.kind != Sending::Kind::data || next_.has_data || !sending_.of_consumer) return sending_.message.left();
  std::uint32_t offset = sending_.sge_offset;
  for (std::uint32_t i = sending_.sge; i < next_.sge_count; ++i, offset = 0)
    if (next_.sges[i].length != offset) return next_.sges[i].length - offset;
  return 0;
}

tpt::Access Requester::piece(std::uint32_t size) const {
  if (sending_.kind == Sending::Kind::response) return ddp::slice(response_source_, 0, size);
  if (next_.has_data) {
    tpt::Access octets;
    octets.direct = const_cast<std::byte*>(next_.data.data() + sending_.message.done);
    octets.length = size;
    return octets;
  }
  std::uint32_t i = sending_.sge, offset = sending_.sge_offset;
  while (next_.sges[i].length == offset) ++i, offset = 0;
  return ddp::slice(next_access_[i], offset, size);
}

// Its last segment has its place, in the carrier's of that number.
void Requester::end_message(std::uint64_t carrier) {
  if (sending_.kind == Sending::Kind::response || sending_.kind == Sending::Kind::atomic_response) {
    // The whole Response has been generated: its place in the queue is free (V-IRD-10).
    reads_.served();
    sending_.kind = Sending::Kind::nothing;
    return;
  }
  if (acknowledgements_ != nullptr && sending_.kind != Sending::Kind::acknowledgement) {
    const std::uint32_t number = acknowledgements_->sent_one();
    if (sending_.of_consumer) work_.has_number(sending_.work, number);
  }
  if (reading_on_) {
    // The next of its Requests, when there is a place in ORD.
  } else if (sending_.kind == Sending::Kind::data && sending_.of_consumer && next_.opcode == Opcode::write_immediate) {
    begin_immediate();
    return;
  } else if (sending_.of_consumer) {
    if (sending_.kind == Sending::Kind::request)
      work_.until_read(sending_.work);
    else if (acknowledgements_ != nullptr)
      work_.until_acknowledged(sending_.work, carrier);
    else
      work_.until_carried(sending_.work, carrier);
    has_next_ = false;
  }
  sending_.kind = Sending::Kind::nothing;
}

Verdict Requester::gather_failed(std::uint32_t work_id) {
  if (work_id == kNoWork) return Verdict::of(Fault::catastrophic);
  work_.fail_low(work_id, Status::access);
  return Verdict::of(Fault::local_work);
}

// ---- completions -----------------------------------------------------------------------------------

Verdict Requester::on_read_delivered(Status refused) {
  const OutboundRead& read = reads_.oldest();
  const std::uint32_t index = read.work;
  if (refused != Status::success) {
    reads_.delivered();
    return fail(index, refused);
  }
  if (read.of_consumer && read.last) {
    work_.done(index);
    if (read.invalidate) {
      const auto done =
          common_.table.invalidate_local(read.sink.consumers, common_.settings.pd, common_.settings.number);
      ++common_.turn;
      if (!done) {
        // The data was transferred; then the error (V-INV-06).
        reads_.delivered();
        return fail(index, status_of(done.error()));
      }
      work_.until_moved(index);
    }
  }
  reads_.delivered();
  posted_ = true;  // an ORD slot is free, a fence may have fallen
  waits_ = false;
  Verdict verdict;
  complete(verdict);
  return verdict;
}

void Requester::blame_read(std::optional<std::uint32_t> msn, wire::TerminateCode code) {
  reads_.for_each_outstanding([&](const OutboundRead& read) {
    if (!read.of_consumer || (msn && read.msn != *msn)) return true;
    work_.blame(read.work, code.word());
    return false;
  });
}

void Requester::fail_next(Status status) {
  if (!look()) return;
  has_next_ = false;
  // A full CQ has nobody left to tell.
  (void)common_.host.complete({.opcode = next_.opcode, .status = status, .slot = next_.slot});
}

void Requester::flush(std::uint32_t count_max) {
  failed_ = refused_ = false;
  work_.flush();
  reads_.give_up_ours();
  stop();
  if (has_next_) {
    work_.flush(next_);
    has_next_ = false;
  }
  std::uint32_t count = 0;
  while (count < count_max && common_.host.take_send(next_)) {
    work_.flush(next_);
    ++count;
  }
  posted_ = count == count_max;
}

}  // namespace rnic::rdmap
