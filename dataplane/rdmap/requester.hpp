// What we send: work requests and the answers to the peer's Reads and atomic operations -> messages -> DDP segments.
//
// One message at a time, whatever it is (W-DDP-10); work and responses take turns at message boundaries. Who carries
// the segments asks for them: next_segment(), payload(), segment_taken(). Large, as every kind of message begins here:
// who is next, and whether it has to wait, is one decision over all of them; what has begun is begun_work.hpp.
// Pure. Owned by one queue pair, anew for each stream.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>

#include "ddp/placer.hpp"
#include "ddp/segmenter.hpp"
#include "rdmap/acknowledgements.hpp"
#include "rdmap/atomics.hpp"
#include "rdmap/begun_work.hpp"
#include "rdmap/common.hpp"
#include "rdmap/reads.hpp"
#include "rdmap/sender.hpp"

namespace rnic::rdmap {

// Work requests that need no segment, done in one turn at most: others wait for their turn too.
inline constexpr std::uint32_t kLocalWorkMax = 64;

// A segment of the message under way: what its ULPDU begins with, and how much of payload() follows.
struct OutboundSegment {
  std::array<std::byte, wire::kDdpHeaderSizeMax + wire::AtomicRequestHeader::kSize> header;
  std::uint32_t header_bytes;  // DDP's, and where the message is nothing but a header of RDMAP's, that too
  std::uint32_t payload_bytes;
  ddp::Segment cut;
};

class Requester {
 public:
  // Whose gather it is: see work_id().
  static constexpr std::uint32_t kNoWork = 0xFFFF;

  // Without a stream nothing is begun, and what is posted can be flushed.
  // `acknowledgements`: of acknowledged streams, else null.
  Requester(Common& common, Reads& reads, Early* early, Acknowledgements* acknowledgements = nullptr)
      : common_(common),
        reads_(reads),
        acknowledgements_(acknowledgements),
        atomics_(common, early),
        work_(common, acknowledgements) {}
  // Takes the room for what is begun.
  void begin_stream() { work_.begin_stream(); }
  // Memory of queues that are empty.
  void give_back_slots() { work_.give_back_slots(); }

  // ---- what may be begun ----
  // New work may have been posted.
  void posted() { posted_ = true; }
  void nothing_posted() { posted_ = false; }
  bool may_be_posted() const { return posted_; }
  // A turn begins: what waited is looked at again.
  void look_again() { waits_ = false; }
  bool sending() const { return sending_.kind != Sending::Kind::nothing; }
  // It is looked at again when the mover has been flushed.
  bool waits_for_flush() const { return work_.waits_for_flush(); }
  // Something could be begun or gone on with, as far as it is known without a look.
  bool wants_to_send() const {
    return sending() || reads_.ready() || (posted_ && !waits_ && !failed_) || acknowledgement_due();
  }
  // SQ and IRRQ are empty, as far as they have been seen (V-RTS-07); look() looks.
  bool quiet() const {
    return !has_next_ && !sending() && work_.empty() && reads_.outstanding() == 0 && reads_.owed() == 0;
  }
  // Work requests are taken from their queue, and not complete.
  bool has_begun_work() const { return has_next_ || !work_.empty(); }
  // The next work request, if there is one: it is taken from its queue.
  bool look() {
    if (!has_next_ && common_.host.take_send(next_)) has_next_ = true;
    return has_next_;
  }

  // ---- messages ----
  // Begins the next message, or completes something without one. False: nothing can be begun now.
  bool begin(Verdict& verdict) {
    if (acknowledgement_due()) [[unlikely]]
      return begin_acknowledgement();
    const bool response = reads_.ready();
    if (response && work_was_last_ && begin_response(verdict)) return true;
    if (begin_work(verdict)) return true;
    return response && !verdict && begin_response(verdict);
  }
  // Of nobody's work, and with no octets: what the startup calls an RTR.
  void begin_empty_write();
  void begin_empty_send();
  void begin_empty_read();
  // Goes no further. Its work request is among those begun, and no longer the one to be taken next: it must
  // not be flushed twice.
  void stop() {
    if ((sending() && sending_.of_consumer) || reading_on_) has_next_ = false;
    reading_on_ = false;
    sending_.kind = Sending::Kind::nothing;
  }
  Sender& sender() { return sender_; }

  // ---- segments of the message that is begun ----
  // The next one, of at most `mulpdu` octets. Asked again it is made again, and its memory is checked again.
  Verdict next_segment(std::uint32_t mulpdu, OutboundSegment& out);
  // The next `size` octets of its payload: on_octets(Bytes) or on_memory(const tpt::Access&), in order.
  template <typename OnOctets, typename OnMemory>
  void payload(std::uint32_t size, OnOctets&& on_octets, OnMemory&& on_memory);
  // The message under way; it is begun, and sending().
  const ddp::OutboundMessage& message() const { return sending_.message; }
  // Somebody's: not what a stream's startup says, nor a nudge.
  bool is_somebodys() const {
    using Kind = Sending::Kind;
    return sending_.of_consumer || sending_.kind == Kind::response || sending_.kind == Kind::atomic_response ||
           sending_.kind == Kind::acknowledgement;
  }
  // How much of its payload comes next that lies in one piece.
  std::uint32_t piece_bytes() const;
  // That piece, of which `size` octets are the segment's that next_segment() has made.
  tpt::Access piece(std::uint32_t size) const;
  // What a gather into it is for, 0..0x7FFF, or kNoWork: a Response's.
  std::uint32_t work_id() const { return sending_.of_consumer ? sending_.work & 0x7FFF : kNoWork; }
  // It has its place, in the carrier's segment of that number.
  void segment_taken(const OutboundSegment& segment, std::uint64_t carrier) {
    common_.counters.bytes_out += segment.payload_bytes;
    sending_.message.done += segment.cut.payload;
    if (segment.cut.last) end_message(carrier);
  }
  // Carrier's segments below this number are filled and on their way, or dropped.
  void carried_up_to(std::uint64_t carrier) { work_.carried_up_to(carrier); }
  // Octets for work_id() could not be gathered.
  Verdict gather_failed(std::uint32_t work_id);

  // ---- completions ----
  // As far as work is done; says whether any was.
  bool complete(Verdict& verdict) {
    const bool busy = work_.complete(verdict);
    if (busy && !verdict) waits_ = false;  // perhaps for one of these
    return busy;
  }
  // The oldest Response is delivered; or could not be, for `refused`.
  Verdict on_read_delivered(Status refused);
  // The peer's Terminate names the Read of this number, or the oldest (V-CS-05).
  void blame_read(std::optional<std::uint32_t> msn, wire::TerminateCode code);
  // Of what is posted and not begun the first is done, with this status.
  void fail_next(Status status);
  // By the peer, and it waits for its turn to be told.
  bool was_refused() const { return refused_; }
  // What is told first of a flush is an error.
  bool first_has_failed() { return work_.first_has_failed(); }
  // All that is begun, and `count_max` of what is posted; the rest is for the next call.
  void flush(std::uint32_t count_max);

  // ---- of acknowledged streams ----
  // What the peer says has been performed, or cannot be; false: it cannot say that.
  bool on_acknowledge(const wire::AcknowledgeHeader& said, Instant now, Verdict& verdict);
  bool on_negative_acknowledge(const wire::NegativeAcknowledgeHeader& said, Verdict& verdict);
  // The peer waits for a receive; so the next acknowledgement says.
  void peer_waits_for_us(bool waits) { holds_ = waits; }
  bool acknowledgement_due() const { return acknowledgements_ != nullptr && acknowledgements_->due(holds_); }
  // Something is asked of the peer, and not answered.
  bool awaits_peer() const {
    return reads_.outstanding() != 0 ||
           (acknowledgements_ != nullptr && acknowledgements_->sent() != acknowledgements_->acknowledged()) ||
           sends_request();
  }
  // Of one a part has its place, and a part has not.
  bool sends_request() const {
    return sending() && sending_.message.done != 0 && sending_.kind != Sending::Kind::response;
  }
  // What is asked of a peer that has gone: the first fails with that.
  void peer_is_lost(Status status) {
    if (!work_.fail_first(status) && work_.empty()) fail_next(status);
  }
  // What it waits for has taken too long.
  Verdict peer_found_no_receive();
  bool holds() const { return holds_; }

  Atomics& atomics() { return atomics_; }
  // Nothing is on its way from memory or to it any more, nor will anything be answered.
  void forget_executing() { atomics_.forget(); }

 private:
  // The message being sent: at most one at a time.
  struct Sending {
    enum class Kind : std::uint8_t {
      nothing,
      data,      // Send and Write: from the consumer's memory
      response,  // Read Response: from the memory that it names
      request,   // Read and Atomic Request: `header` is the payload, as of what follows
      immediate,
      atomic_response,
      acknowledgement,
    } kind = Kind::nothing;
    ddp::OutboundMessage message;
    bool of_consumer = false;  // `work` is its work request
    std::uint32_t work = 0;
    std::uint32_t sge = 0;  // where the next octet comes from
    std::uint32_t sge_offset = 0;
    std::array<std::byte, wire::AtomicRequestHeader::kSize> header;

    bool is_header() const { return kind >= Kind::request; }
  };

  bool begin_response(Verdict& verdict);
  Verdict refuse(const InboundRead& read, Fault fault);
  bool begin_atomic_response(Verdict& verdict);
  bool begin_acknowledgement();
  bool begin_work(Verdict& verdict);
  enum class Began : std::uint8_t { message, completed, waits, failed };
  Began begin_next_work(Verdict& verdict);
  bool has_to_wait() const;
  void end_message(std::uint64_t carrier);
  Status begin_data();
  Status begin_read(std::uint32_t work);
  Status check_sinks();
  Status begin_atomic(std::uint32_t work);
  void begin_immediate();
  Result<tpt::ReadSink, tpt::Refusal> read_sink(const Sge& local);
  Status bind(const WorkRequest& request);
  Status fast_register(const WorkRequest& request);
  Status check_gather(const WorkRequest& request);
  Verdict fail(std::uint32_t work, Status status);

  Common& common_;
  Reads& reads_;
  Acknowledgements* const acknowledgements_;
  Atomics atomics_;
  Sender sender_;
  bool posted_ = false;  // the send queue may hold something
  bool waits_ = false;   // next_: for a Read, a fence, or a place among the work begun
  bool has_next_ = false;
  bool failed_ = false;      // something has, which waits for its turn to be told: nothing is begun any more
  bool refused_ = false;     // by the peer, or for want of a receive there
  bool holds_ = false;       // a Send of the peer's, for want of a receive
  bool reading_on_ = false;  // next_ is a Read that is begun, and not asked for in whole
  std::uint32_t reading_work_ = 0, reading_sge_ = 0;  // then: which of the begun; where it goes on
  std::uint64_t reading_to_ = 0;
  bool work_was_last_ = false;  // of work and responses, which was served last
  WorkRequest next_;            // taken, and begun or waiting to be
  std::array<tpt::Access, kSgesMax> next_access_;
  std::uint64_t next_checked_in_ = 0;
  Sending sending_;
  tpt::Access response_source_;     // of the Response's segment
  std::uint32_t segment_done_ = 0;  // octets that payload() has given of the segment
  BegunWork work_;
};

// Here, as it is made for each segment.
inline Verdict Requester::next_segment(std::uint32_t mulpdu, OutboundSegment& out) {
  const ddp::OutboundMessage& message = sending_.message;
  out.cut = ddp::next_segment(message, mulpdu);
  segment_done_ = 0;
  if (sending_.kind == Sending::Kind::response && out.cut.payload != 0) {
    InboundRead& read = reads_.first_owed();
    const Settings& own = common_.settings;
    const auto access =
        common_.table.check_remote(read.request.source_stag, own.pd, own.number, tpt::Rights::remote_read,
                                   read.request.source_to + message.done, out.cut.payload);
    if (!access) {
      advance_read_request(read.culprit, message.done);
      return refuse(read, read_fault(access.error()));
    }
    response_source_ = *access;
  } else if (sending_.of_consumer && sending_.kind == Sending::Kind::data && next_.sge_count != 0) {
    const Status status = check_gather(next_);
    if (status != Status::success) return fail(sending_.work, status);
  }
  out.header_bytes = message.header_bytes();
  out.payload_bytes = out.cut.payload;
  ddp::write_header(message, out.cut, out.header);
  if (sending_.is_header()) {
    std::memcpy(out.header.data() + out.header_bytes, sending_.header.data(), out.payload_bytes);
    out.header_bytes += out.payload_bytes;
    out.payload_bytes = 0;
  }
  return {};
}

template <typename OnOctets, typename OnMemory>
void Requester::payload(std::uint32_t size, OnOctets&& on_octets, OnMemory&& on_memory) {
  if (sending_.kind == Sending::Kind::response) {
    on_memory(ddp::slice(response_source_, segment_done_, size));
    segment_done_ += size;
    return;
  }
  if (next_.has_data) {
    on_octets(next_.data.subspan(sending_.message.done + segment_done_, size));
    segment_done_ += size;
    return;
  }
  while (size != 0) {
    const Sge& sge = next_.sges[sending_.sge];
    if (sending_.sge_offset == sge.length) {
      ++sending_.sge;
      sending_.sge_offset = 0;
      continue;
    }
    const std::uint32_t part = std::min(size, sge.length - sending_.sge_offset);
    on_memory(ddp::slice(next_access_[sending_.sge], sending_.sge_offset, part));
    sending_.sge_offset += part;
    size -= part;
  }
}

}  // namespace rnic::rdmap
