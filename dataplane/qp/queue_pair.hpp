// A queue pair: work requests in, FPDUs out; FPDUs in, placements and completions out; and the five
// states of verbs.md s2 (V-ST-*).
//
// Pure: it takes values and an Instant, speaks to a tcp::Connection, moves octets through a
// tpt::Mover, and asks and tells a Host. Owned by one worker.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/buffer.hpp"
#include "base/ids.hpp"
#include "base/list.hpp"
#include "base/time.hpp"
#include "qp/counters.hpp"
#include "qp/local_path.hpp"
#include "qp/scratch.hpp"
#include "qp/start.hpp"
#include "qp/terminate_record.hpp"
#include "qp/work.hpp"
#include "rdmap/common.hpp"
#include "tcp/connection.hpp"
#include "tpt/mover.hpp"
#include "tpt/table.hpp"

namespace rnic::qp {

// Which of ibverbs' states an application sees in Idle: it is told, and decides nothing. The values
// are abi/rnic_control.h's enum rnic_idle_name.
enum class IdleName : std::uint8_t { reset = 0, init = 1, rtr = 2, rts = 3 };

enum class ModifyError : std::uint8_t { invalid_state, invalid_attribute, still_flushing };

struct Config : rdmap::Settings {
  std::uint32_t ird_max = 128, ord_max = 128;
  Duration close_timeout = seconds(5);  // V-TERM-03, V-CLS-08
};

struct LooseTag;
// What its device has bound it to.
struct BoundTo {};

// The link is its device's, for those that have no stream.
class QueuePair final : public tpt::MoveOwner, public ListLink<LooseTag> {
 public:
  // `scratch`: its worker's.
  QueuePair(const Config& config, Host& host, tpt::Table& table, tpt::Mover& mover, BufferPool& data_pool,
            Scratch& scratch);
  ~QueuePair();

  BoundTo* bound_to = nullptr;  // the device's to set, and to say what it is

  // ---- life ----
  // Idle -> RTS on an established stream whose startup frames are done: the next octet received is
  // the first FPDU's (V-CONN-02, -05). The connection outlives the attachment.
  void attach(tcp::Connection& connection, const Start& start, Instant now);
  bool attached() const;
  // Both are attached, to the two ends of one connection, and of one worker: from now on, and as long as both are,
  // messages go without it where they can (qp/local_path.hpp). The sides are theirs as long.
  void join(QueuePair& peer, LocalSide& own, LocalSide& peers);
  Result<Done, ModifyError> modify_state(State wanted, Instant now);
  // In Idle: something came on its last stream, so that it was connected.
  bool was_open() const;
  // Nothing has come on its stream in time. One that outlives its peer is in Idle again, as if nobody had called; else
  // false, and nothing is done.
  bool leave_unopened(Instant now);
  // Its stream is given up, and not by its application, which is told so.
  void lose_stream(Instant now);
  // Of what is posted some is taken from its queue, and not complete; in Idle that of one whose peer has gone.
  bool has_begun_work() const;
  // A new one is from now on what `before` was, of another worker and made of the same: it is in Idle, without a stream
  // and without work that it has begun, and is destroyed next.
  void succeed(const QueuePair& before);
  // From Idle to Error: nobody is there to whom what is posted could go, or who could answer what went before, and the
  // first of it says so.
  void give_up(Instant now);
  // For a queue pair in Idle, until it comes to Idle again.
  void set_idle_name(IdleName name);
  Result<Done, ModifyError> set_access(tpt::Rights access);
  Result<Done, ModifyError> set_depths(std::uint32_t ird, std::uint32_t ord);
  // Idle and RTS. Sets and arms; 0 disarms.
  Result<Done, ModifyError> set_receive_limit(std::uint32_t limit);
  // In every state; of a RoCE face.
  void set_patience(const rdmap::Patience& patience);
  // How long it waits for a peer that does nothing, by that; nothing: for ever.
  std::optional<Duration> retry_time() const;
  // Before destruction: lets go of the connection. What was handed to TCP is delivered by it (the
  // caller then close()s the orphan); nothing of the application is touched any more.
  // `last_words`: an empty buffer for the Terminate of one that is destroyed in RTS. Without it the
  // peer takes the FIN for a clean close.
  enum class Leftover : std::uint8_t { graceful, reset };
  Leftover detach(Instant now, BufferRef last_words = {});

  // ---- turns; each returns whether it did something ----
  // Takes what the connection has readable: FPDUs, placements; peer's FIN, RST, loss.
  bool receive(Instant now);
  // Takes work requests and responses due, fills segments (gathers are submitted), until they have taken
  // `budget_bytes` or, with the last of them, more: octets of FPDUs, one of `beside_per_cost` octets that go from
  // memory to memory, and what messages cost besides.
  bool transmit(Instant now, std::uint32_t budget_bytes, std::uint32_t beside_per_cost = 1);
  // After mover.flush(): seals what was gathered and appends it to the connection; delivers what
  // was placed (completions, invalidations), consumes the stream.
  bool settle(Instant now);
  // New work requests / receives may have been posted. (transmit() need not be called on an idle QP
  // before.)
  void work_posted();
  void receive_posted();
  // Nothing to do until an event or the deadline.
  bool idle() const;
  Instant next_deadline() const;
  // Nothing has come or gone for a while: memory of queues that are empty is given back. The next message takes it
  // anew.
  void give_back_slots();
  // Segments are filled that the next turn may hand over, without a buffer more.
  bool can_push() const;
  // What all that transmit() has sent has cost.
  std::uint64_t spent_bytes() const;
  // The next message will most probably go without the stream.
  bool goes_locally() const;
  // That have gone and come without it.
  std::uint64_t octets_beside_stream() const;
  // Buffers of segments that are not with TCP yet.
  std::uint32_t filling() const;

  void on_moved(std::uint32_t token, bool ok) override;
  void keep(tpt::Kept& kept) override;
  void on_let_go() override;

  // ---- what it is ----
  State state() const;
  IdleName idle_name() const;
  const Config& config() const;
  const TerminateRecord& terminate_record() const;
  const rdmap::ReceiveLimit& receive_limit() const;
  const QpCounters& counters() const;
  // The initiator's RTR is out, or the responder's first FPDU is in: ESTABLISHED may be told
  // (W-MPA-87).
  bool gate_open() const;

  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rnic::qp
