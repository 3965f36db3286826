// Queue pairs in RTR that wait for their peers, where applications tell each other numbers and GIDs by themselves
// (oob_connect): who calls whom, which Request is whose, and for how long anybody waits.
//
//   Modify to RTR  ->  the lower (GID, number) calls, again and again; the other waits for its Request
//   Request        ->  answered if queue pair and caller mean each other; kept for a while if the queue pair is not in
//                      RTR yet; else refused
//   Modify to RTS  ->  what is posted from then on waits for the peer, kPatience long or what count_from() says
//   posted()       ->  who calls does so at once; who is called asks the peer's rnic whether it is there (a probe), for
//                      a caller may pause. When the patience is over either asks once more before it gives up
//
// Pure: values and an Instant in, acts out (next_act()). Owned by the control thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "base/bytes.hpp"
#include "base/face.hpp"
#include "base/ids.hpp"
#include "base/time.hpp"
#include "core/connection.hpp"
#include "mpa/meeting.hpp"
#include "qp/work.hpp"
#include "wire/address.hpp"
#include "wire/mark.hpp"

namespace rnic::control {

class Rendezvous {
 public:
  // Of what is posted, from when it is noticed: then the first fails with "retries exceeded". Of a RoCE face it is what
  // the application has set.
  static constexpr Duration kPatience = seconds(30);
  static constexpr Duration kLookFirst = milliseconds(500), kLookMax = seconds(2);
  // Between a call that failed and the next: twice as long each time.
  static constexpr Duration kPauseFirst = milliseconds(20), kPauseMax = seconds(4);
  // Of one process's queue pairs whose calls fail, so many that each would call after kPauseMax make longer pauses: a
  // call each kPauseOfEach, but kPauseMost. Others' queue pairs are not concerned.
  static constexpr Duration kPauseOfEach = milliseconds(1), kPauseMost = seconds(10);
  // For the answer to a probe: a SYN that is lost is sent again after a second, and after two more.
  static constexpr Duration kAnswerMost = seconds(4);
  // And then for a peer that is there, as it says, to come: one that has not heard the question calls after its pause.
  static constexpr Duration kComesMost = kPauseMost;
  // A Request whose queue pair is not in RTR yet is kept for so long, so many of them, so many of a caller's address
  // and for a queue pair: who is refused calls again.
  static constexpr Duration kRequestKept = seconds(5);
  // And one of which nothing can be compared yet: its caller called in RTR, and has been in RTS since, most probably,
  // where he can say more; a queue pair that only receives never can.
  static constexpr Duration kUnprovenKept = milliseconds(20);
  static constexpr std::size_t kRequestsMax = 256, kRequestsOfCaller = 64, kRequestsForOne = 2;
  // Of those whose time has come, at a time: others than queue pairs that wait are to be served, too.
  static constexpr std::size_t kDueAtOnce = 32;

  struct Stream {
    std::uint32_t device = 0;
    core::StreamId id{};
    constexpr bool operator==(const Stream&) const = default;
  };
  // A listener's Request.
  struct Request {
    Stream stream{};
    wire::IpAddress from, to;  // of the connection
    Bytes private_data;
    Face face = Face::iwarp;  // of its device
  };
  struct Act {
    enum class Kind : std::uint8_t {
      call,     // connect the queue pair with meeting.peer_gid, saying `mark`; the cookie comes with what becomes of it
      answer,   // accept the stream for the queue pair, saying `mark`
      refuse,   // reject the stream, saying `mark` if there is one
      drop,     // end the queue pair's call
      probe,    // as `call`, but no queue pair is connected: on_probed() when it is answered
      renew,    // the queue pair's call, if it waits for the answer to a SYN: the peer is there
      unprobe,  // end the probe of that cookie, which has no answer yet
      join,     // connect the queue pair with itself
      look,     // at each of the device's `qps`, whether anything is posted, or was under way: posted()
      give_up   // the peer has not come, or has gone: the first of that fails
    } kind = Kind::look;
    QpNumber qp{};
    Stream stream{};
    std::uint64_t cookie = 0;
    std::optional<wire::Mark> mark{};
    std::vector<QpNumber> qps{};
  };

  // Cookies of ours, and of no id's of the connection manager.
  static constexpr std::uint64_t kCookieBit = std::uint64_t{1} << 63;
  static constexpr bool is_ours(std::uint64_t cookie) { return (cookie & kCookieBit) != 0; }
  static constexpr QpNumber qp_of(std::uint64_t cookie) {
    return {static_cast<std::uint32_t>(cookie & wire::Meeting::kNumberMask)};
  }

  // ---- what applications say ----
  // Modify to RTR. `meeting`: without a PSN of its own. `holder`: whose process it is of.
  void ready(std::uint32_t device, const wire::Meeting& meeting, Instant now, Face face = Face::iwarp,
             std::uint64_t holder = 0);
  // Modify to RTS.
  void count_from(QpNumber qp, std::uint32_t psn, Instant now, std::optional<Duration> patience = kPatience);
  // Modify to RESET or ERR, or the end of it; nothing for one that is not known.
  void forget(QpNumber qp);

  // ---- what streams bring ----
  // `exists`: whether a queue pair of the number that `number_asked()` finds is on this device.
  static std::optional<QpNumber> number_asked(const Request& request);
  void on_request(const Request& request, bool exists, Instant now);
  void on_called(std::uint64_t cookie, Stream stream);
  void on_established(std::uint64_t cookie);
  // A call came to nothing, or a connection to its end, which left the queue pair in that state: in Idle, or after a
  // FIN on the way there, where its peer went and took nothing with it. What it posts from now on waits for one who
  // does not come. False: it is one that had been given up before.
  bool on_ended(std::uint64_t cookie, qp::State state, Instant now);
  // The caller was gone when it was answered, or said nothing from then on. False: of an earlier answer.
  bool on_not_answered(std::uint64_t cookie);
  // What became of a probe. `no_answer`: the peer may be there or not; for want of places here, too.
  enum class Found : std::uint8_t { there, not_there, no_answer };
  void on_probed(std::uint64_t cookie, Found found, Instant now);
  // What was looked for.
  void posted(QpNumber qp, bool any, Instant now);

  // The first kDueAtOnce of those whose time has come; of the others next_deadline() is past.
  void on_time(Instant now);
  Instant next_deadline() const;

  // What is to be done, in this order.
  std::optional<Act> next_act();

  // ---- what it is ----
  enum class Stage : std::uint8_t { apart, calling, together, left };
  std::optional<Stage> stage(QpNumber qp) const;
  std::size_t waiting_requests() const { return asked_.size(); }
  std::size_t known() const { return waiters_.size(); }

 private:
  struct Waiter {
    std::uint32_t device = 0;
    std::uint64_t holder = 0;
    bool fails = false;       // counted in failing_
    bool has_posted = false;  // and waits for its peer; it is not looked for any more
    Face face = Face::iwarp;
    wire::Meeting meeting;
    mpa::Role role = mpa::Role::answers;
    Stage stage = Stage::apart;
    std::uint64_t cookie = 0;  // of the last call or answer
    std::optional<Stream> call;
    unsigned calls = 0;
    bool is_wanted = false;         // to call at once should the call under way come to nothing
    std::uint64_t probe = 0;        // the cookie of one that has no answer yet
    bool patience_is_over = false;  // and the last probe, or the peer, is waited for
    Duration look_pause = kLookFirst;
    std::optional<Duration> patience = kPatience;  // nothing: for ever
    Instant call_at = kNever, look_at = kNever, give_up_at = kNever, unprobe_at = kNever;
    Instant due() const;
  };
  struct Asked {
    Stream stream{};
    Face face = Face::iwarp;
    wire::Meeting meeting;  // the caller's
    Instant until;
  };

  Waiter* find(QpNumber qp);
  Waiter* of(std::uint64_t cookie);
  // What its time has come for; what is to be looked at is told as `looks`.
  using Looks = std::map<std::uint32_t, std::vector<QpNumber>>;  // by device, whose worker is asked once for all
  void serve(Waiter& waiter, Instant now, Looks& looks);
  void look(Looks looks);
  void count_failing(Waiter& waiter, bool fails);
  Duration pause_of_all(const Waiter& waiter) const;  // of its process's
  template <typename Change>
  void change(Waiter& waiter, Change&& change);
  void call(Waiter& waiter);
  void answer(Waiter& waiter, const Stream& stream);
  void probe(Waiter& waiter, Instant now);
  void unprobe(Waiter& waiter);
  void on_probe(const Request& request, const wire::Meeting& theirs, bool exists, Instant now);
  void call_soon(Waiter& waiter, Instant now);
  void give_up(QpNumber qp);
  void refuse(const Stream& stream, Face face, wire::MarkRefusal why);
  void keep(const Request& request, const wire::Meeting& meeting, Instant until);
  void look_through_requests(Waiter& waiter, Instant now);
  void remove(QpNumber qp);
  std::uint64_t next_cookie(QpNumber qp);

  std::unordered_map<QpNumber, Waiter> waiters_;
  std::set<std::pair<Instant, QpNumber>> due_;
  std::unordered_map<std::uint64_t, std::size_t> failing_;  // by holder: whose last call came to nothing
  std::vector<Asked> asked_;                                // in the order in which they came
  std::deque<Act> acts_;
  std::uint64_t attempts_ = 0;
};

}  // namespace rnic::control
