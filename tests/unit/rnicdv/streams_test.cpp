// Streams in streaming mode: an application's own handshake, and iWARP behind its last message.
#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "unit/rnicdv/world.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

constexpr std::uint16_t kPort = 7800;

// Of b's device, or of a's.
sockaddr_in at(std::uint8_t host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(0x7F000900u + host);
  return address;
}
const sockaddr* as_socket(const sockaddr_in& address) { return reinterpret_cast<const sockaddr*>(&address); }

rnicdv_stream* open_to(const Application& app, const sockaddr_in& to, void* own = nullptr) {
  return rnicdv_stream_connect(context_of(app), nullptr, as_socket(to), own);
}
rnicdv_stream_attr direct_of(rnicdv_stream* stream) {
  rnicdv_stream_attr attr{};
  REQUIRE(rnicdv_stream_query(stream, &attr) == 0);
  return attr;
}
// Waits for its events, as an application does: other streams' are not looked at.
bool wait_for(rnicdv_stream* stream) {
  rnicdv_event told{};
  for (;;) {
    pollfd one{rnicdv_event_fd(stream->context), POLLIN, 0};
    if (::poll(&one, 1, 30'000) != 1) return false;
    REQUIRE(rnicdv_get_event(stream->context, &told) == 0);
    CHECK(told.type == RNICDV_EVENT_STREAM_READY);
    if (told.stream == stream) return true;
  }
}
void send(rnicdv_stream* stream, std::string_view text) {
  while (!text.empty()) {
    std::size_t sent = 0;
    const int error = rnicdv_stream_send(stream, text.data(), text.size(), &sent);
    if (error != EAGAIN) REQUIRE(error == 0);
    text.remove_prefix(sent);
    if (!text.empty()) REQUIRE(wait_for(stream));
  }
}
// So many octets; fewer, and the peer has closed.
std::string receive(rnicdv_stream* stream, std::size_t size) {
  std::string text;
  while (text.size() < size) {
    char octets[6000];
    std::size_t received = 0;
    const int error = rnicdv_stream_receive(stream, octets, std::min(size - text.size(), sizeof octets), &received);
    if (error == EAGAIN) {
      REQUIRE(wait_for(stream));
      continue;
    }
    REQUIRE(error == 0);
    if (received == 0) break;
    text.append(octets, received);
  }
  return text;
}
int attach(ibv_qp* qp, rnicdv_stream* stream, std::string_view last = {}, std::uint32_t more = 0,
           std::uint32_t limit = 0, std::uint32_t ord = 0, std::uint32_t ird = 0) {
  rnicdv_qp_mod mod = mod_of(RNICDV_QPS_RTS, limit, ord, ird);
  mod.stream = stream;
  mod.message = last.data();
  mod.message_length = static_cast<std::uint32_t>(last.size());
  return modify(qp, RNICDV_QP_STATE | RNICDV_QP_STREAM | more, mod);
}

// A stream from a to b, whose queue pairs have no connection yet.
struct Streamed : Wired {
  explicit Streamed(std::uint32_t depth = 64) {
    for (Application* app : {&a, &b}) {
      ibv_cq* cq = app->make_cq(256);
      (app == &a ? cq_a : cq_b) = cq;
      ibv_qp* qp = app->make_qp(cq, cq, depth);
      REQUIRE(to_state(qp, IBV_QPS_INIT, IBV_QP_ACCESS_FLAGS) == 0);
      (app == &a ? qp_a : qp_b) = qp;
    }
    mr_a = a.make_mr(memory_a.data(), memory_a.size(), kAll);
    mr_b = b.make_mr(memory_b.data(), memory_b.size(), kAll);
    const auto anywhere = at(2, kPort);
    listener = rnicdv_stream_listen(context_of(b), as_socket(anywhere), 8, nullptr);
    REQUIRE(listener != nullptr);
  }
  ~Streamed() { end(); }
  void open() {
    stream_a = open_to(a, at(2, kPort), this);
    REQUIRE(stream_a != nullptr);
    REQUIRE(wait_for(stream_a));
    while ((stream_b = rnicdv_stream_accept(listener, nullptr)) == nullptr) {
      REQUIRE(errno == EAGAIN);
      REQUIRE(wait_for(listener));
    }
  }
  static constexpr int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  std::vector<char> memory_a = std::vector<char>(4096), memory_b = std::vector<char>(4096);
  ibv_cq *cq_a = nullptr, *cq_b = nullptr;
  ibv_qp *qp_a = nullptr, *qp_b = nullptr;
  ibv_mr *mr_a = nullptr, *mr_b = nullptr;
  rnicdv_stream *listener = nullptr, *stream_a = nullptr, *stream_b = nullptr;
};

}  // namespace

TEST_CASE("V-CONN-12: a handshake of the application's own, and RTS with its last message",
          "[wired][rnicdv][V-CONN-12][V-CONN-03][V-CONN-06][V-VB-16][V-QQP-13]") {
  Streamed t;
  t.open();
  CHECK(t.stream_a->stream_context == &t);
  const rnicdv_stream_attr near = direct_of(t.stream_a), far = direct_of(t.stream_b);
  CHECK(near.state == RNICDV_STREAM_OPEN);
  CHECK(far.state == RNICDV_STREAM_OPEN);
  CHECK(std::memcmp(&near.local, &far.remote, sizeof near.local) == 0);
  CHECK(std::memcmp(&near.remote, &far.local, sizeof near.local) == 0);
  CHECK(direct_of(t.listener).state == RNICDV_STREAM_LISTENS);
  // More than is taken at once, either way.
  const std::string much(100'000, 'h');
  send(t.stream_a, much.substr(0, 50'000));
  CHECK(receive(t.stream_b, 50'000) == much.substr(0, 50'000));
  send(t.stream_b, much.substr(0, 5000));
  CHECK(receive(t.stream_a, 5000) == much.substr(0, 5000));

  // a says the last word, and what it posted in Idle follows at once; b's queue pair is not there yet.
  std::memcpy(t.memory_a.data(), "a message", 9);
  REQUIRE(post_receive(t.qp_b, 9, {sge_of(t.mr_b, t.memory_b.data(), 100)}) == 0);
  REQUIRE(post(t.qp_a, {.wr_id = 1}, {sge_of(t.mr_a, t.memory_a.data(), 9)}) == 0);
  REQUIRE(attach(t.qp_a, t.stream_a, "go") == 0);
  CHECK(test::direct_of(t.qp_a).state == RNICDV_QPS_RTS);
  CHECK(test::direct_of(t.qp_a).stream == near.stream);
  CHECK(state_of(t.qp_a) == IBV_QPS_RTS);
  CHECK(t.qp_a->state == IBV_QPS_RTS);
  CHECK(receive(t.stream_b, 2) == "go");
  CHECK(test::direct_of(t.qp_b).stream == 0);
  REQUIRE(attach(t.qp_b, t.stream_b) == 0);
  expect(t.cq_a, 1);
  expect(t.cq_b, 9);
  CHECK(std::memcmp(t.memory_b.data(), "a message", 9) == 0);
  // And the other way.
  REQUIRE(post_receive(t.qp_a, 3, {sge_of(t.mr_a, t.memory_a.data(), 100)}) == 0);
  REQUIRE(post(t.qp_b, {.wr_id = 2}, {sge_of(t.mr_b, t.memory_b.data(), 9)}) == 0);
  expect(t.cq_b, 2);
  expect(t.cq_a, 3);
  // A clean close; both are Idle, and can be connected again.
  REQUIRE(modify(t.qp_a, RNICDV_QP_STATE, mod_of(RNICDV_QPS_CLOSING, 0, 0, 0)) == 0);
  for (ibv_qp* qp : {t.qp_a, t.qp_b}) REQUIRE(comes_true([&] { return test::direct_of(qp).state == RNICDV_QPS_IDLE; }));
  t.open();
  REQUIRE(attach(t.qp_b, t.stream_b) == 0);
  REQUIRE(attach(t.qp_a, t.stream_a) == 0);
  REQUIRE(post_receive(t.qp_b, 9, {sge_of(t.mr_b, t.memory_b.data(), 100)}) == 0);
  REQUIRE(post(t.qp_a, {.wr_id = 1}, {sge_of(t.mr_a, t.memory_a.data(), 9)}) == 0);
  expect(t.cq_b, 9);
  CHECK(rnicdv_stream_close(t.listener) == 0);
}

TEST_CASE("V-CONN-10: that who said the last word waits for the peer's first is not for the device to see to",
          "[wired][rnicdv][V-CONN-10]") {
  Streamed t;
  t.open();
  // b, which was called, has the last word and posts at once; a says nothing before.
  REQUIRE(attach(t.qp_a, t.stream_a) == 0);
  REQUIRE(attach(t.qp_b, t.stream_b) == 0);
  REQUIRE(post_receive(t.qp_a, 9, {sge_of(t.mr_a, t.memory_a.data(), 100)}) == 0);
  REQUIRE(post(t.qp_b, {.wr_id = 1}, {sge_of(t.mr_b, t.memory_b.data(), 9)}) == 0);
  expect(t.cq_b, 1);
  expect(t.cq_a, 9);
}

TEST_CASE("V-IRD-12: ORD and IRD are as the application says, whatever the peer can do", "[wired][rnicdv][V-IRD-12]") {
  Streamed t;
  t.open();
  constexpr std::uint32_t kDepths = RNICDV_QP_ORD | RNICDV_QP_IRD;
  CHECK(attach(t.qp_a, t.stream_a, {}, kDepths, 0, 1000, 1) == EINVAL);  // V-IS-20
  CHECK(attach(t.qp_a, t.stream_a, {}, kDepths, 0, 1, 1000) == EINVAL);  // V-IS-21
  REQUIRE(attach(t.qp_a, t.stream_a, {}, kDepths, 0, 8, 3) == 0);
  REQUIRE(attach(t.qp_b, t.stream_b, {}, kDepths, 0, 2, 1) == 0);
  CHECK(test::direct_of(t.qp_a).ord == 8);
  CHECK(test::direct_of(t.qp_a).ird == 3);
  CHECK(test::direct_of(t.qp_b).ird == 1);
  std::memcpy(t.memory_b.data(), "read me", 7);
  REQUIRE(post(t.qp_a,
               {.wr_id = 1,
                .opcode = IBV_WR_RDMA_READ,
                .flags = IBV_SEND_SIGNALED,
                .remote = {reinterpret_cast<std::uintptr_t>(t.memory_b.data()), t.mr_b->rkey}},
               {sge_of(t.mr_a, t.memory_a.data(), 7)}) == 0);
  expect(t.cq_a, 1);
  CHECK(std::memcmp(t.memory_a.data(), "read me", 7) == 0);
}

TEST_CASE("V-IS-25: RTS on no stream, a listener, another's, or one that is not established, is ENOTCONN",
          "[wired][rnicdv][V-IS-25][V-CONN-01][V-IMM-01][V-MOD-01]") {
  Streamed t;
  rnicdv_stream* nowhere = open_to(t.b, at(77, kPort));
  REQUIRE(nowhere != nullptr);
  CHECK(direct_of(nowhere).state == RNICDV_STREAM_OPENING);
  CHECK(attach(t.qp_b, nowhere) == ENOTCONN);
  CHECK(rnicdv_stream_close(nowhere) == 0);
  t.open();
  CHECK(attach(t.qp_b, nullptr) == ENOTCONN);
  CHECK(attach(t.qp_b, t.listener) == ENOTCONN);
  CHECK(attach(t.qp_b, t.stream_a) == ENOTCONN);
  // What is not for it to say.
  const std::string long_message(RNICDV_STREAM_MESSAGE_MAX + 1, 'x');
  CHECK(attach(t.qp_b, t.stream_b, long_message) == EINVAL);
  rnicdv_qp_mod mod = mod_of(RNICDV_QPS_IDLE, 0, 0, 0);
  mod.stream = t.stream_b;
  CHECK(modify(t.qp_b, RNICDV_QP_STREAM | RNICDV_QP_STATE, mod) == EINVAL);
  CHECK(modify(t.qp_b, RNICDV_QP_STREAM, mod) == EINVAL);
  CHECK(attach(t.qp_b, t.stream_b, {}, RNICDV_QP_RQ_LIMIT, 1) == EOPNOTSUPP);
  CHECK(modify(t.qp_b, RNICDV_QP_STATE, mod_of(RNICDV_QPS_RTS, 0, 0, 0)) == EINVAL);
  // A queue pair that is not in Idle.
  ibv_qp* error = t.b.make_qp(t.cq_b, t.cq_b, 4);
  REQUIRE(to_state(error, IBV_QPS_ERR) == 0);
  CHECK(attach(error, t.stream_b) == EINVAL);
  CHECK(test::direct_of(t.qp_b).state == RNICDV_QPS_IDLE);
  // The stream is as good as before; then its peer closes.
  send(t.stream_a, "end");
  CHECK(rnicdv_stream_close(t.stream_a) == 0);
  CHECK(receive(t.stream_b, 10) == "end");
  CHECK(attach(t.qp_b, t.stream_b) == ENOTCONN);
  send(t.stream_b, "still");
  CHECK(rnicdv_stream_close(t.stream_b) == 0);
}

TEST_CASE("V-MOD-11: the RQ Limit can be said with the stream", "[wired][rnicdv][V-MOD-11][V-LIM-05]") {
  Streamed t;
  t.open();
  ibv_srq* srq = t.b.make_srq(16);
  auto init = init_of(t.b, t.cq_b, t.cq_b, srq);
  ibv_qp* limited = rnicdv_create_qp(context_of(t.b), &init, nullptr);
  REQUIRE(limited != nullptr);
  CHECK(attach(limited, t.stream_b, {}, RNICDV_QP_RQ_LIMIT, 17) == EINVAL);
  REQUIRE(attach(limited, t.stream_b, {}, RNICDV_QP_RQ_LIMIT, 3) == 0);
  CHECK(test::direct_of(limited).rq_limit == 3);
  CHECK(test::direct_of(limited).rq_limit_armed == 1);
}

TEST_CASE("a stream that cannot be says why, and one that has gone is told of no more", "[wired][rnicdv]") {
  Streamed t;
  rnicdv_stream* refused = open_to(t.a, at(2, kPort + 1));
  REQUIRE(refused != nullptr);
  REQUIRE(wait_for(refused));
  CHECK(direct_of(refused).state == RNICDV_STREAM_ENDED);
  CHECK(direct_of(refused).error == ECONNREFUSED);
  std::size_t none = 0;
  CHECK(rnicdv_stream_send(refused, "x", 1, &none) == ECONNREFUSED);
  CHECK(rnicdv_stream_receive(refused, &none, 1, &none) == ECONNREFUSED);
  CHECK(rnicdv_stream_close(refused) == 0);
  const auto no_port = at(2, 0), taken = at(2, kPort), elsewhere = at(1, kPort);
  CHECK(refusal([&] { return open_to(t.a, no_port); }) == EINVAL);
  sockaddr_in strange = taken;
  strange.sin_family = AF_UNIX;
  CHECK(refusal([&] { return open_to(t.a, strange); }) == EINVAL);
  const auto listen = [&](const sockaddr_in& where) {
    return rnicdv_stream_listen(context_of(t.b), as_socket(where), 1, nullptr);
  };
  CHECK(refusal([&] { return listen(taken); }) == EADDRINUSE);
  CHECK(refusal([&] { return listen(no_port); }) == EINVAL);
  CHECK(refusal([&] { return listen(elsewhere); }) == EADDRNOTAVAIL);
  CHECK(refusal([&] { return rnicdv_stream_accept(t.listener, nullptr); }) == EAGAIN);

  t.open();
  char octet = 0;
  CHECK(rnicdv_stream_receive(t.stream_b, &octet, 1, &none) == EAGAIN);
  rnicdv_event told{};
  while (rnicdv_get_event(context_of(t.b), &told) == 0) {
  }
  send(t.stream_a, "x");
  pollfd one{rnicdv_event_fd(context_of(t.b)), POLLIN, 0};
  REQUIRE(::poll(&one, 1, 30'000) == 1);
  CHECK(rnicdv_stream_close(t.stream_b) == 0);
  CHECK(rnicdv_get_event(context_of(t.b), &told) == EAGAIN);
  CHECK(refusal([&] { return rnicdv_stream_accept(t.stream_a, nullptr); }) == EINVAL);
  // What is not closed ends with its context.
}

TEST_CASE("what a peer never receives is taken up to a bound, and EAGAIN says so", "[wired][rnicdv][V-SEC-01]") {
  Streamed t;
  t.open();
  const std::string much(std::size_t{4} << 20, 'x');
  std::size_t sent = 0, said = 0;
  // As long as the peer's window takes some.
  REQUIRE(comes_true([&] {
    const int error = rnicdv_stream_send(t.stream_a, much.data(), much.size(), &sent);
    CHECK((error == 0) == (sent > 0));
    if (error != 0) CHECK(error == EAGAIN);
    said += sent;
    usleep(error == 0 ? 0 : 200'000);
    return error != 0 && rnicdv_stream_send(t.stream_a, "x", 1, &sent) == EAGAIN;
  }));
  CHECK(said < much.size());
  // It is all there, in its order, and the rest follows.
  CHECK(receive(t.stream_b, said) == much.substr(0, said));
  send(t.stream_a, "the rest");
  CHECK(receive(t.stream_b, 8) == "the rest");
}
