// Streams in streaming mode: an application's own handshake, and iWARP behind its last message.
#include "unit/rnicdv/streamed.hpp"

using namespace rnic;
using namespace rnic::test;
using namespace rnic::test::streams;

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
