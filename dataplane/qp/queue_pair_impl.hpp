// What queue_pair_turns.cpp, queue_pair_states.cpp and queue_pair_way_down.cpp share, and nobody else sees.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "qp/parts.hpp"
#include "qp/queue_pair.hpp"
#include "qp/state.hpp"

namespace rnic::qp {

// How far it has come; anew with each stream.
struct WayDown {
  bool terminate_due = false;  // record_ is to be sent
  bool fin_due = false;
  bool told_by_event = false;  // the cause of Terminate
  bool drop_unsent = false;    // what was filled is not sent any more
  bool flushed = false;        // nothing begun is left; what is posted now is flushed as it is found
};

struct QueuePair::Impl final : LocalPeer {
  Impl(QueuePair& owner, const Config& config, Host& host, tpt::Table& table, tpt::Mover& mover, BufferPool& pool,
       Scratch& scratch)
      : owner_(owner), config_(config), host_(host), pool_(pool), scratch_(scratch), common_{config_, host,
                                                                                             table,   mover,
                                                                                             owner,   counters_} {
    messages_.emplace(common_);
  }

  void attach(tcp::Connection& connection, const Start& start, Instant now);
  Result<Done, ModifyError> modify_state(State wanted, Instant now);
  Leftover detach(Instant now, BufferRef last_words);

  // ---- turns
  bool receive(Instant now);
  bool transmit(Instant now, std::uint32_t budget_bytes, std::uint32_t beside_per_cost);
  bool settle(Instant now);
  bool idle() const;
  Instant next_deadline() const;
  bool parse(Instant now);
  bool push(Instant now);
  bool complete_work(Instant now);
  bool deliver_all(Instant now);
  void obey(const rdmap::Verdict& verdict, Instant now);

  // ---- states
  void leave_rts(State next, Instant now);
  void begin_closing(Cause cause, Instant now);
  void begin_terminate(rdmap::Fault fault, const rdmap::Culprit& culprit, Instant now);
  void stop_after_terminate(Instant now);
  enum class Reset : std::uint8_t { stream, nothing };
  void to_error(std::optional<Event> event, Cause cause, Reset reset, Instant now);
  void to_idle();
  bool may_be_left_alone(bool merely);
  bool leaves_unopened(Instant now);
  void be_left_alone(Event told, Cause cause);
  void changed(State from, Cause cause);
  bool is_between_messages();
  void apply(StreamStep step, Instant now);
  bool check_stream(Instant now);
  void check_deadline(Instant now);
  bool quiet();
  bool closing_is_bad(Instant now);

  // ---- the way down
  bool go_down(Instant now);
  bool go_down_closing(Instant now);
  void send_terminate(Instant now);
  // What goes in front of a Terminate or a FIN, and the Terminate.
  struct LastWords {
    std::array<StreamOut::Last, StreamOut::kLastMax> messages{};
    std::size_t count = 0;
    std::array<std::byte, wire::AcknowledgeHeader::kSize> acknowledge{};
    std::array<std::byte, wire::NegativeAcknowledgeHeader::kSize> refuse{};
    std::span<const StreamOut::Last> all() const { return std::span(messages).first(count); }
    void add(const ddp::OutboundMessage& message, Bytes payload) { messages[count++] = {message, payload}; }
  };
  void add_acknowledgements(LastWords& words);
  void judge_peer(Instant now);
  void look_at_peer(Instant now);
  void say_last_words(BufferRef buffer);

  // ---- without the stream
  void join(Impl& peer, LocalSide& own);
  void part();
  void let_carriers_go();
  bool goes_locally() const;  // of a joined one
  bool is_open() const override;
  bool has_taken(std::uint64_t octets) const override { return stream_->in.has_taken(octets); }
  bool would_take(const ddp::Ulpdu& ulpdu, std::uint32_t more) override;
  void take(const ddp::Ulpdu& ulpdu, bool ends_message, const BufferRef* carrier, Instant now) override;

  rdmap::Requester& requester() { return messages_->requester; }
  rdmap::Responder& responder() { return messages_->responder; }
  void forget_stream();
  void cancel_moves();
  void keep(tpt::Kept& kept);
  void flush_receives(std::uint32_t count_max = rdmap::kFlushMax);
  void flush(std::uint32_t count_max = rdmap::kFlushMax);

  QueuePair& owner_;
  Config config_;
  Host& host_;
  BufferPool& pool_;
  Scratch& scratch_;
  QpCounters counters_;
  rdmap::Common common_;
  std::optional<Messages> messages_;  // always; anew with each stream
  std::optional<Stream> stream_;
  // Of a joined one, else null.
  Impl* peer_ = nullptr;
  LocalSide* side_ = nullptr;
  std::vector<BufferRef> carriers_;  // of the peer's, while what lies in them is placed
  std::uint64_t spent_bytes_ = 0;

  State state_ = State::idle;
  bool outlives_peer_ = false;  // of this stream
  bool was_open_ = false;       // the gate of the last stream
  bool last_wqe_due_ = false;   // one with a shared receive queue that was connected is to say when it takes no more
  // A new one's, as that of every iWARP device in the kernel, and of every other.
  IdleName idle_name_ = config_.face == Face::roce ? IdleName::reset : IdleName::init;
  TerminateRecord record_;
  Instant deadline_ = kNever;  // of Closing and Terminate
  bool receive_hint_ = false;  // a receive may have been posted
  bool still_copied_ = false;  // a copy of what was cancelled waits for a page: the flush waits for it
  WayDown way_down_{.flushed = true};
};

}  // namespace rnic::qp
