// Every state hears everything (RFC 9293 s3.10.7, RFC 5961): who speaks out of turn is answered as
// the RFC has it, and moves nothing.
#include <array>

#include "kit/tcp_conversation.hpp"

using namespace rnic;
using namespace rnic::test;
using tcp::Ended;
using tcp::State;
namespace flag = wire::tcp_flags;

namespace {

// What is answered: nothing, an ACK, a RST.
enum class Answer { none, ack, rst };

Answer answer_of(Conversation& c) {
  if (c->state() >= State::established) c->end_of_burst();
  const auto out = c.next();
  if (!out) return Answer::none;
  CHECK(out->payload.empty());
  if (out->header.has(flag::kRst)) return Answer::rst;
  CHECK(out->header.flags == flag::kAck);
  CHECK_FALSE(c.next());  // one answer, not two
  return Answer::ack;
}

// No octet was carried before. The peer's next is 1, or 2 where its FIN came; ours likewise.
Conversation in_state(State state) {
  if (state == State::syn_received) {
    Conversation c(no_tail_probe());
    c.opens().says(syn());
    c.hears(syn());  // both at once
    c.says(syn_ack());
    return c;
  }
  auto c = Conversation::established(no_tail_probe());
  if (state == State::close_wait || state == State::last_ack) c.hears(fin(1));
  if (state != State::established && state != State::close_wait) c->close();
  while (c.next()) {
  }
  if (state == State::fin_wait_2) c.hears(ack(2));
  if (state == State::closing) c.hears(fin(1).ack(1));
  if (state == State::time_wait) c.hears(fin(1).ack(2));
  while (c.next()) {
  }
  return c;
}

bool peer_has_closed(State state) { return state >= State::close_wait; }
bool our_fin_is_out(State state) { return state >= State::fin_wait_1 && state != State::close_wait; }
bool our_fin_is_acknowledged(State state) { return state == State::fin_wait_2 || state == State::time_wait; }

struct Cell {
  Answer answer;
  std::optional<State> then{};  // nothing: it stays
  std::uint64_t octets = 0;     // taken
};
constexpr Cell quiet{Answer::none};
constexpr Cell told{Answer::ack};  // where we are
constexpr Cell refused{Answer::rst};
constexpr Cell ends{Answer::none, State::closed};
constexpr Cell takes{Answer::ack, {}, 4};
constexpr Cell to(State state) { return {Answer::ack, state}; }
constexpr Cell silently_to(State state) { return {Answer::none, state}; }

constexpr std::array kStates{State::syn_received, State::established, State::fin_wait_1, State::fin_wait_2,
                             State::close_wait,   State::closing,     State::last_ack,   State::time_wait};
using Row = std::array<Cell, kStates.size()>;

// Its next octet and ours, and what we have that is not acknowledged.
struct Place {
  std::uint32_t next, una, nxt;
};
using Says = Line (*)(const Place&);

Line at(std::uint32_t sequence, std::uint32_t acknowledgement, std::uint8_t flags = flag::kAck, std::string text = {}) {
  return Line{.flags = flags, .sequence = sequence, .ack_ = acknowledgement, .text = std::move(text)};
}

constexpr std::uint32_t kFar = 100'000;  // beyond every window

void every_state(Says line, const Row& row) {
  for (std::size_t i = 0; i < kStates.size(); ++i) {
    const State state = kStates[i];
    DYNAMIC_SECTION(tcp::name(state)) {
      auto c = in_state(state);
      REQUIRE(c->state() == state);
      const bool out = our_fin_is_out(state);
      const Place place{.next = peer_has_closed(state) ? 2u : 1u,
                        .una = our_fin_is_acknowledged(state) ? 2u : 1u,
                        .nxt = out ? 2u : 1u};
      c.hears(line(place));
      CHECK(answer_of(c) == row[i].answer);
      CHECK(tcp::name(c->state()) == std::string(tcp::name(row[i].then.value_or(state))));
      CHECK(c->received() == row[i].octets);
    }
  }
}

using enum State;

}  // namespace

// Columns:             SYN-RECEIVED  ESTABLISHED  FIN-WAIT-1  FIN-WAIT-2  CLOSE-WAIT  CLOSING  LAST-ACK  TIME-WAIT

// What proves nothing in SYN-RECEIVED is not believed: we go on calling.
TEST_CASE("W-TCP-01: in each state: a RST at the next octet ends it", "[tcp][rfc5961][W-TCP-01]") {
  every_state([](const Place& p) { return rst(p.next); },
              {silently_to(syn_sent), ends, ends, ends, ends, ends, ends, ends});
}

TEST_CASE("W-TCP-01: in each state: a RST ends it though it carries octets", "[tcp][rfc5961][W-TCP-01]") {
  every_state([](const Place& p) { return at(p.next, p.una, flag::kRst | flag::kAck, "why"); },
              {ends, ends, ends, ends, ends, ends, ends, ends});
}

TEST_CASE("W-TCP-01: in each state: a RST near the next octet is challenged", "[tcp][rfc5961][W-TCP-01]") {
  every_state([](const Place& p) { return rst(p.next + 1); }, {quiet, told, told, told, told, told, told, told});
}

TEST_CASE("W-TCP-01: in each state: a RST outside of the window is nothing", "[tcp][rfc5961][W-TCP-01]") {
  SECTION("beyond") {
    every_state([](const Place& p) { return rst(p.next + kFar); },
                {quiet, quiet, quiet, quiet, quiet, quiet, quiet, quiet});
  }
  SECTION("before") {
    every_state([](const Place& p) { return rst(p.next - kFar); },
                {quiet, quiet, quiet, quiet, quiet, quiet, quiet, quiet});
  }
}

TEST_CASE("W-TCP-01: in each state: a SYN is told where we are, wherever it is", "[tcp][rfc5961][W-TCP-01]") {
  SECTION("in the window") {
    every_state([](const Place& p) { return syn().seq(p.next + 7); },
                {quiet, told, told, told, told, told, told, told});
  }
  SECTION("at the next octet") {
    every_state([](const Place& p) { return syn().seq(p.next); }, {quiet, told, told, told, told, told, told, told});
  }
  SECTION("far away") {
    every_state([](const Place& p) { return syn().seq(p.next + kFar); },
                {quiet, told, told, told, told, told, told, told});
  }
  SECTION("before") {
    every_state([](const Place& p) { return syn().seq(p.next - kFar); },
                {quiet, told, told, told, told, told, told, told});
  }
}

TEST_CASE("W-TCP-01: in each state: an ACK of what was not sent yet is told where we are, its octets are not taken",
          "[tcp][rfc5961][W-TCP-01]") {
  every_state([](const Place& p) { return at(p.next, p.nxt + 1, flag::kAck, "evil"); },
              {refused, told, told, told, told, told, told, told});
}

TEST_CASE("W-TCP-01: in each state: an ACK of the far past is told where we are, its octets are not taken",
          "[tcp][rfc5961][W-TCP-01]") {
  every_state([](const Place& p) { return at(p.next, p.una - 70'000, flag::kAck, "evil"); },
              {refused, told, told, told, told, told, told, told});
}

TEST_CASE("W-TCP-01: in each state: a segment without ACK is dropped", "[tcp][W-TCP-01]") {
  every_state([](const Place& p) { return Line{.flags = 0, .sequence = p.next, .text = "evil"}; },
              {quiet, quiet, quiet, quiet, quiet, quiet, quiet, quiet});
}

TEST_CASE("W-TCP-01: in each state: octets are taken until the peer's FIN, and not after it", "[tcp][W-TCP-01]") {
  every_state([](const Place& p) { return at(p.next, p.una, flag::kAck, "good"); },
              {Cell{Answer::ack, established, 4}, takes, takes, takes, quiet, quiet, quiet, quiet});
}

TEST_CASE("W-TCP-01: in each state: octets beyond the window are refused, and answered", "[tcp][W-TCP-01]") {
  every_state([](const Place& p) { return at(p.next + kFar, p.una, flag::kAck, "evil"); },
              {quiet, told, told, told, told, told, told, told});
}

TEST_CASE("W-TCP-01: in each state: what came before is answered, and not taken again", "[tcp][W-TCP-01]") {
  every_state([](const Place& p) { return at(p.next - 100, p.una, flag::kAck, "evil"); },
              {quiet, told, told, told, told, told, told, told});
}

// In CLOSE-WAIT and later it is another FIN, which cannot be: it is passed over.
TEST_CASE("W-TCP-18: in each state: a FIN moves it on, once", "[tcp][W-TCP-18]") {
  every_state([](const Place& p) { return at(p.next, p.una, flag::kFin | flag::kAck); },
              {to(close_wait), to(close_wait), to(closing), to(time_wait), quiet, quiet, quiet, quiet});
}

TEST_CASE("W-TCP-18: in each state: a FIN with the acknowledgement of all of ours", "[tcp][W-TCP-18]") {
  every_state(
      [](const Place& p) { return at(p.next, p.nxt, flag::kFin | flag::kAck); },
      {to(close_wait), to(close_wait), to(time_wait), to(time_wait), quiet, silently_to(time_wait), ends, quiet});
}

TEST_CASE("W-TCP-18: in each state after it: the peer's FIN again is answered again", "[tcp][W-TCP-18]") {
  every_state([](const Place& p) { return p.next == 2 ? at(1, p.una, flag::kFin | flag::kAck) : at(p.next, p.una); },
              {silently_to(established), quiet, quiet, quiet, told, told, told, told});
}

TEST_CASE("W-TCP-18: in each state: an acknowledgement of all of ours moves on who has closed", "[tcp][W-TCP-18]") {
  every_state(
      [](const Place& p) { return at(p.next, p.nxt); },
      {silently_to(established), quiet, silently_to(fin_wait_2), quiet, quiet, silently_to(time_wait), ends, quiet});
}

// ---- states without a peer -------------------------------------------------------------------------

TEST_CASE("W-TCP-01: SYN-SENT hears nothing but an answer to its SYN, or a SYN", "[tcp][W-TCP-01]") {
  Conversation c(no_tail_probe());
  c.opens().says(syn());
  struct Heard {
    Line line;
    Answer answer;
  };
  const auto heard = GENERATE(
      Heard{at(5, 0), Answer::rst}, Heard{at(5, 2), Answer::rst}, Heard{at(5, 1), Answer::none},
      Heard{at(5, 1, flag::kFin | flag::kAck), Answer::none}, Heard{at(5, 1, flag::kAck, "evil"), Answer::none},
      Heard{Line{.flags = flag::kFin, .sequence = 5}, Answer::none}, Heard{rst(5), Answer::none},
      Heard{at(5, 0, flag::kRst | flag::kAck), Answer::none}, Heard{at(5, 2, flag::kRst | flag::kAck), Answer::none},
      Heard{at(5, 0, flag::kSyn | flag::kAck), Answer::rst}, Heard{at(5, 2, flag::kSyn | flag::kAck), Answer::rst});
  c.hears(heard.line);
  CHECK(answer_of(c) == heard.answer);
  CHECK(c->state() == State::syn_sent);
  CHECK(c->ended() == Ended::no);
  c.hears(syn().ack(1)).says(Line{.flags = flag::kAck, .sequence = 1, .ack_ = 1});
  CHECK(c->state() == State::established);
}

TEST_CASE("W-TCP-01: a call that finds remains of an earlier one which no RST ends calls on with a number behind them",
          "[tcp][W-TCP-01]") {
  Conversation c(no_tail_probe());
  c.opens().says(syn());
  c.hears(at(5, 5000)).says(Line{.flags = flag::kRst, .sequence = 5000});
  SECTION("when nothing else has come in the time of a SYN") {
    c.wakes();
    const auto again = c.next();
    REQUIRE(again);
    CHECK(again->header.flags == flag::kSyn);
    const std::uint32_t ours = again->header.sequence - Conversation::kOurStart;
    CHECK(ours > 5000);  // and not so far that it looks old
    CHECK(ours < 5000 + 0x4000'0000u);
    c.wakes();
    c.says(syn().seq(ours));
    CHECK(c->initial() == tcp::Seq{Conversation::kOurStart + ours});
    c.hears(syn().ack(ours + 1)).says(Line{.flags = flag::kAck, .sequence = ours + 1, .ack_ = 1});
    CHECK(c->state() == State::established);
    c.appends("octets").says(data(ours + 1, "octets"));
  }
  SECTION("but not before: the ACK may be of somebody who guesses, and the true answer on its way") {
    c.is_silent();
    c.hears(syn().ack(1)).says(Line{.flags = flag::kAck, .sequence = 1, .ack_ = 1});
    CHECK(c->state() == State::established);
  }
}

TEST_CASE("W-TCP-01: CLOSED answers all but a RST by a RST", "[tcp][W-TCP-01]") {
  auto c = Conversation::established(no_tail_probe());
  c.hears(rst(1));
  REQUIRE(c->state() == State::closed);
  c.hears(rst(1)).is_silent();
  c.hears(at(1, 9, flag::kAck, "evil")).says(Line{.flags = flag::kRst, .sequence = 9});
  c.hears(fin(1).ack(3)).says(Line{.flags = flag::kRst, .sequence = 3});
  c.hears(syn().seq(6))
      .says(Line{.flags = flag::kRst | flag::kAck, .sequence = 0u - Conversation::kOurStart, .ack_ = 7});
  c.is_silent();
}
