// What a queue pair is made of. The parts, each a file of its own:
//
//  queue_pair.cpp    life: attach, modify, detach, the stream's end, the way down
//  send_path.cpp     work requests and Read Responses -> segments -> the connection
//  receive_path.cpp  the stream -> FPDUs -> checks -> placements
//  early.cpp         placements from beyond a gap in the stream, with markers
//  extensions.cpp    RFC 7306: atomic operations and Immediate Data
//  deliver.cpp       placements done -> completions, invalidations, Reads to serve
//  flush.cpp         completions in order, and what becomes of work that will not be done
//
// Everything is bounded: rings are taken at the first attachment and kept (house.md s10).
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "ddp/placer.hpp"
#include "ddp/segmenter.hpp"
#include "ddp/untagged.hpp"
#include "mpa/packer.hpp"
#include "qp/early.hpp"
#include "qp/held_sends.hpp"
#include "qp/queue_pair.hpp"
#include "qp/state.hpp"
#include "rdmap/read_queue.hpp"
#include "rdmap/receiver.hpp"
#include "rdmap/sender.hpp"
#include "rdmap/terminate.hpp"

namespace rnic::qp {

// Segments being filled or waiting for their gathers. Bounds what one turn has under way.
inline constexpr std::uint32_t kSegmentsMax = 256;
// FPDUs whose CRC waits for a gather.
inline constexpr std::uint32_t kUnsealedMax = 1024;
// FPDUs accepted whose placement, or that of one before, is not done.
inline constexpr std::uint32_t kDeliveriesMax = 1024;
// Work requests that need no segment, done in one turn at most: others wait for their turn too.
inline constexpr std::uint32_t kLocalWorkMax = 64;
// Work requests begun and not completed, at most.
inline constexpr std::uint32_t kWorkMax = 4096;
// Flushed in one call at most; more are flushed by the next.
inline constexpr std::uint32_t kFlushMax = 65536;
// Of each queue, of what is posted in Error, in a step: it can be posted as fast as it is flushed.
inline constexpr std::uint32_t kLateFlushMax = 64;
// The first FPDU is due within this time where the startup says that one must come (W-MPA-90).
inline constexpr Duration kFirstFpduTime = seconds(10);
// An initiator that has spoken and heard nothing says a Write of no octets at these times after the
// start. A peer may miss the news of octets that come right behind its Reply, and look at them only
// when more come: siw does, which changes its socket's callbacks after it has sent the Reply.
inline constexpr std::array kNudges{milliseconds(50), milliseconds(250), milliseconds(1250)};

// A work request that has been begun and not yet completed.
struct Work {
  enum class Until : std::uint8_t {
    built,     // not yet: its segments are not all filled
    appended,  // `segment` is with TCP, so its payload has been copied out (V-ORD-08)
    read,      // its Read or Atomic Response is delivered
    moved,     // nothing of ours is on its way to or from memory any more
    nothing,   // done
  } until = Until::built;
  Opcode opcode = Opcode::send;
  Status status = Status::success;
  bool signaled = false;
  std::uint32_t slot = 0;
  std::uint32_t detail = 0;
  std::uint64_t segment = 0;  // the number of its last
};

// A segment being filled: whole FPDUs.
struct FillingSegment {
  BufferRef buffer;
  std::uint32_t gathers = 0;   // to come
  std::uint32_t unsealed = 0;  // FPDUs in `unsealed_` that are its
  bool failed = false;
  std::uint32_t failed_work = 0;
};

struct UnsealedFpdu {
  std::uint32_t offset = 0;
  std::uint32_t size = 0;
};

// An FPDU that was accepted, until what it brought is placed and everything before it delivered.
struct Delivery {
  enum class Act : std::uint8_t { nothing, receive, read_response, read_request, terminate, fault };
  std::uint64_t position = 0;  // the stream may be consumed up to here
  std::uint64_t held_mark = 0; // what it was held in may be released; 0: nothing
  std::uint32_t moves = 0;     // places to come
  Act act = Act::nothing;
  bool failed = false;         // the memory could not be reached
  bool stored = false;         // it lies in the framer's store
  bool invalidates = false;
  bool solicited = false;
  bool shared = false;
  bool immediate = false;      // `word`: the value, network order
  Status refused = Status::success;  // read_response: why the result of an atomic could not be placed
  std::uint32_t slot = 0;
  std::uint32_t length = 0;
  std::uint32_t word = 0;
  Stag invalidate;
  std::uint32_t msn = 0, offset = 0, ulpdu_size = 0;  // of the last segment, for a Terminate
};

// A receive that a message is being placed in.
struct Receiving {
  bool active = false;
  Status status = Status::success;  // why it will fail, if it will
  ReceiveRequest request;
  std::uint64_t capacity = 0;
  std::uint32_t sge = 0;         // where the next octet goes
  std::uint32_t sge_offset = 0;
  std::uint64_t checked_in = 0;  // the turn in which `access` was made
  std::array<tpt::Access, kSgesMax> access;
};

// The peer's atomic operation that is executed now: the front of the requests.
struct Executing {
  enum class State : std::uint8_t { nothing, begun, done, failed } state = State::nothing;
  std::uint64_t original = 0;
};

// The message being sent: at most one at a time, whatever it is (W-DDP-10).
struct Sending {
  enum class Kind : std::uint8_t {
    nothing,
    data,             // Send and Write: from the consumer's memory
    response,         // Read Response: from the memory that it names
    request,          // Read and Atomic Request: `header` is the payload, as of what follows
    immediate,
    atomic_response,
  } kind = Kind::nothing;
  ddp::OutboundMessage message;
  bool of_consumer = false;  // `work` is its work request
  std::uint32_t work = 0;
  std::uint32_t sge = 0;     // where the next octet comes from
  std::uint32_t sge_offset = 0;
  std::array<std::byte, wire::AtomicRequestHeader::kSize> header;

  bool is_header() const { return kind >= Kind::request; }
};

// The first thing that went wrong with what came in, until all before it is delivered (V-STOP-06).
struct PendingFault {
  rdmap::Fault fault = rdmap::Fault::catastrophic;
  rdmap::Culprit culprit;
};

// A token names a gather (segment slot and work request), a place (delivery slot), a place that is
// ahead of its turn (slot of Early), or the atomic operation that is executed.
namespace token {
inline constexpr std::uint32_t kGather = 0x80000000;
inline constexpr std::uint32_t kEarly = 0x40000000;
inline constexpr std::uint32_t kAtomic = 0x20000000;
static_assert(kSegmentsMax <= 256);
// No work request's: a Read Response's.
inline constexpr std::uint32_t kNoWork = 0xFFFF;
constexpr std::uint32_t gather(std::uint64_t segment, std::uint32_t work) {
  return kGather | (work & 0xFFFF) << 8 | static_cast<std::uint32_t>(segment % kSegmentsMax);
}
constexpr std::uint32_t segment(std::uint32_t token) { return token & 0xFF; }
constexpr std::uint32_t work(std::uint32_t token) { return token >> 8 & 0xFFFF; }
}  // namespace token

struct QueuePair::Impl {
  Impl(QueuePair& owner, const Config& config, Host& host, tpt::Table& table, tpt::Mover& mover, BufferPool& pool);

  // ---- queue_pair.cpp
  void attach(tcp::Connection& connection, const Start& start, Instant now);
  Result<Done, ModifyError> modify_state(State wanted, Instant now);
  Leftover detach(Instant now, BufferRef last_words);
  bool settle(Instant now);
  bool idle() const;
  Instant next_deadline() const;
  void leave_rts(State next, Instant now);
  void begin_closing(Cause cause, Instant now);
  void begin_terminate(rdmap::Fault fault, const rdmap::Culprit& culprit, Instant now);
  void stop_after_terminate(Instant now);
  void blame_read();
  enum class Stream : std::uint8_t { reset, let_be };
  void to_error(std::optional<Event> event, Cause cause, Stream stream, Instant now);
  void to_idle();
  void changed(State from, Cause cause);
  bool nothing_is_lost();
  void apply(StreamStep step, Instant now);
  bool check_stream(Instant now);
  void check_deadline(Instant now);
  bool go_down(Instant now);
  bool send_terminate(Instant now);
  void say_last_words(BufferRef buffer);
  void write_terminate(Buffer& into);
  bool quiet();
  bool closing_is_bad(Instant now);
  Instant held_deadline() const;
  void drop_segments();
  void forget_stream();
  void cancel_moves();
  bool moving() const { return gathers_ != 0 || places_ != 0 || executing_.state == Executing::State::begun; }
  void keep(tpt::Kept& kept);

  // ---- send_path.cpp
  bool transmit(Instant now, std::uint32_t budget_bytes);
  bool begin_message(Instant now);
  bool begin_rtr();
  void begin_nudge();
  bool begin_response(Instant now);
  bool begin_work(Instant now);
  enum class Began : std::uint8_t { message, completed, waits, failed };
  Began begin_next_work(Instant now);
  Result<tpt::ReadSink, tpt::Refusal> read_sink(const Sge& local);
  Status check_gather(const WorkRequest& request);
  bool emit_segment(std::uint32_t& budget_bytes, Instant now);
  std::uint32_t room_of_buffer() const;
  FillingSegment* room_for(std::uint32_t octets, std::uint32_t emss);
  void gather(FillingSegment& segment, const mpa::PieceList& pieces);
  void gather_piece(FillingSegment& segment, const tpt::Access& from, MutableBytes into);
  void close_segment() { open_ = nullptr; }
  // The message under way goes no further. Its work request is among those begun, and no longer the
  // one to be taken next: it must not be flushed twice.
  void stop_sending() {
    if (sending_.kind != Sending::Kind::nothing && sending_.of_consumer) has_next_ = false;
    sending_.kind = Sending::Kind::nothing;
  }
  bool push_segments(Instant now);
  void fail_work(std::uint32_t work, Status status, Instant now);
  Status bind(const WorkRequest& request);

  // ---- receive_path.cpp
  bool receive(Instant now);
  bool parse(Instant now);
  bool take_empty_writes();
  bool take_fpdu(Instant now);
  bool on_ulpdu(std::span<const Bytes> spans, std::uint32_t size, std::uint64_t held_mark, Instant now);
  bool on_send(const rdmap::Inbound& in, std::span<const Bytes> spans, std::uint32_t size, Instant now);
  void place_send(const rdmap::Inbound& in, std::span<const Bytes> spans, std::uint32_t size, std::uint64_t held_mark,
                  Instant now);
  void on_request(const rdmap::Inbound& in, std::span<const Bytes> spans, std::uint32_t size, bool is_set_aside,
                  Instant now);
  Result<tpt::Access, rdmap::Fault> check_sink(const rdmap::Inbound& in) const;
  Result<tpt::Access, rdmap::Fault> check_response(const rdmap::OutboundRead& read, const rdmap::Inbound& in) const;
  void place_tagged(const rdmap::Inbound& in, const tpt::Access& to, std::span<const Bytes> spans);
  void on_write(const rdmap::Inbound& in, std::span<const Bytes> spans, std::uint32_t size, Instant now);
  void on_read_response(const rdmap::Inbound& in, std::span<const Bytes> spans, std::uint32_t size, Instant now);
  void take_terminate(const rdmap::Inbound& in, std::span<const Bytes> spans, Instant now);
  void look_for_terminate(mpa::Cursor at, Instant now);
  bool set_aside(std::span<const Bytes> spans, std::uint32_t size, Instant now);
  bool take_held(Instant now);
  bool take_receive();
  Status check_scatter();
  void refuse(rdmap::Fault fault, std::span<const Bytes> spans, std::uint32_t size, Instant now);
  // ---- early.cpp
  void place_early();
  bool place_run_early(std::span<const Bytes> run, std::size_t first, std::uint64_t position);
  bool place_fpdu_early(std::uint64_t position, std::uint32_t octets, std::size_t first);
  const rdmap::OutboundRead* read_answered(const rdmap::Inbound& in);

  Delivery& next_delivery() { return deliveries_[deliveries_.next()]; }
  void finish_delivery(Instant now);

  // ---- extensions.cpp
  Status begin_atomic(std::uint32_t index);
  void begin_immediate();
  bool begin_atomic_response(Instant now);
  std::optional<rdmap::Fault> execute(const wire::AtomicRequestHeader& request);
  bool immediate_is_well_formed(const rdmap::Inbound& in, std::span<const Bytes> spans, std::uint32_t size,
                                Instant now);
  void place_immediate(const rdmap::Inbound& in, std::span<const Bytes> spans, Instant now);
  void on_atomic_response(const rdmap::Inbound& in, std::span<const Bytes> spans, std::uint32_t size, Instant now);

  // ---- deliver.cpp
  bool deliver_all(Instant now);
  void deliver(Delivery& delivery, Instant now);
  void deliver_receive(Delivery& delivery, Instant now);
  void deliver_read_response(Delivery& delivery, Instant now);
  void consume();

  // ---- flush.cpp
  bool complete_work(Instant now);
  void complete(Work& work, Status status);
  void complete_receive(std::uint32_t slot, bool shared, Status status);
  void flush_sends(std::uint32_t count_max = kFlushMax);
  void flush_receives(std::uint32_t count_max = kFlushMax);
  void flush(std::uint32_t count_max = kFlushMax);

  QueuePair& owner_;
  Config config_;
  Host& host_;
  tpt::Table& table_;
  tpt::Mover& mover_;
  BufferPool& pool_;

  State state_ = State::idle;
  IdleName idle_name_ = IdleName::reset;
  TerminateRecord record_;
  QpCounters counters_;
  std::uint64_t turn_ = 1;  // Access values are good within one

  // The stream.
  tcp::Connection* connection_ = nullptr;
  Start start_;
  std::uint64_t base_ = 0;    // the connection's position of the first FPDU octet
  Instant deadline_ = kNever; // of Closing and Terminate; of the first FPDU
  bool gate_open_ = false;
  bool gate_rtr_ = false;  // initiator: the RTR is still to be sent
  std::optional<std::uint64_t> rtr_segment_;
  Instant started_{};
  Instant nudge_at_ = kNever;
  std::uint32_t nudges_ = 0;  // made, of kNudges
  bool nudge_due_ = false;

  // Sending.
  std::optional<mpa::Packer> packer_;
  rdmap::Sender sender_;
  bool send_hint_ = false;  // the send queue may hold something
  bool has_next_ = false;
  WorkRequest next_;        // taken, and begun or waiting to be
  std::array<tpt::Access, kSgesMax> next_access_;
  std::uint64_t next_checked_in_ = 0;
  Sending sending_;
  bool work_was_last_ = false;  // of work and responses, which was served last
  bool waits_for_slot_ = false; // TCP had none for a segment that is filled
  bool starved_ = false;        // no buffer: to be tried again
  bool next_waits_ = false;     // for a Read, a fence, or a place among the work begun
  std::uint32_t needs_room_ = 0;  // octets of the FPDU that found none
  rdmap::Ring<Work> work_;
  rdmap::Ring<rdmap::OutboundRead> reads_out_;
  std::uint32_t responses_due_ = 0;  // of these, whose Response has not come in full
  tpt::ReadStags read_stags_;
  std::unique_ptr<FillingSegment[]> segments_;
  std::uint64_t first_segment_ = 0, next_segment_ = 0;  // numbers; slot: modulo kSegmentsMax
  FillingSegment* open_ = nullptr;
  std::uint32_t open_room_ = 0;  // octets that the open segment may still take
  std::uint32_t filling_bytes_ = 0;
  std::uint32_t room_ = 0;       // in this turn
  rdmap::Ring<UnsealedFpdu> unsealed_;
  mpa::PieceList pieces_;
  std::uint32_t gathers_ = 0;
  std::uint32_t response_gathers_ = 0;  // of these, Read Responses'

  // Receiving.
  std::optional<mpa::Framer> framer_;
  mpa::SpanList ulpdu_;
  std::uint64_t fpdu_position_ = 0; // of the FPDU in ulpdu_
  std::uint32_t placed_early_ = 0;  // octets of its payload, from the first on, that are in place
  std::uint64_t parsed_ = 0;        // octets of the FPDU stream that were framed
  std::uint64_t consumable_ = 0;    // and of these, done with
  bool has_ulpdu_ = false;          // framed, and waits for room to be set aside in
  bool ulpdu_stored_ = false;
  bool inbound_stopped_ = false;    // nothing more is looked at
  bool holds_acknowledgements_ = false;
  bool looked_ahead_ = false;       // for a Terminate behind what waits
  bool parse_paused_ = false;       // too many deliveries are open
  bool mid_write_ = false;          // the last segment of a Write was not the message's last
  std::array<ddp::InboundQueue, 4> inbound_;
  Receiving receiving_;
  bool first_fpdu_ = true;          // none was taken yet
  bool receive_hint_ = false;
  HeldSends held_;
  Instant held_since_ = kNever;
  rdmap::Ring<rdmap::InboundRead> reads_in_;
  std::uint32_t reads_ready_ = 0;   // of these, may be served
  Executing executing_;
  rdmap::Ring<Delivery> deliveries_;
  std::uint32_t places_ = 0;
  std::unique_ptr<Early> early_;    // with markers toward us
  PendingFault fault_;
  std::array<std::byte, sizeof(TerminateRecord::octets)> terminate_in_;
  std::uint32_t terminate_in_size_ = 0;

  // The way down.
  bool terminate_due_ = false;  // record_ is to be sent
  bool fin_due_ = false;
  bool told_by_event_ = false;  // the cause of Terminate
  bool flushed_ = true;         // nothing begun is left; what is posted now is flushed as it is found
  bool still_copied_ = false;   // a copy of what was cancelled waits for a page: the flush waits for it
  bool drop_unsent_ = false;    // what was filled is not sent any more
  std::uint32_t flushed_sends_ = 0, flushed_receives_ = 0;  // since RTS was left
};

}  // namespace rnic::qp
