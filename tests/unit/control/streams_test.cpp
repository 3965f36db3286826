// Streams in streaming mode as the daemon gives them to applications: whose they are, how many, and what is left.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kit/other_process.hpp"
#include "kit/server_world.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

constexpr std::uint16_t kPort = 7700;
constexpr const char* kFew =
    "sched_fifo = false\n"
    "[[device]]\nport = \"pair:t\"\naddress = \"127.0.9.1/24\"\nstreams_max = 64\n"
    "[[device]]\nport = \"pair:t\"\naddress = \"127.0.9.2/24\"\nstreams_max = 1024\n";

rnic_address at(unsigned device, std::uint16_t port) {
  return control::to_abi(wire::IpAddress::v4(127, 0, 9, static_cast<std::uint8_t>(1 + device)), port);
}

// An application that speaks in streaming mode.
struct Speaker : Client {
  explicit Speaker(Daemon& daemon, const char* device = "rnic0", pid_t pid = getpid(), std::uint8_t process = 1)
      : Client(daemon, control::Peer{pid, getuid(), {}}, process) {
    REQUIRE(hello(RNIC_CLIENT_VERBS).status == 0);
    rnic_open_context body{};
    std::memcpy(body.device, device, std::strlen(device));
    const control::Descriptor memory(open(("/proc/" + std::to_string(pid) + "/mem").c_str(), O_RDWR | O_CLOEXEC));
    REQUIRE(ask(RNIC_OPEN_CONTEXT, body, {memory.get()}).status == 0);
    auto events_answer = ask(RNIC_DIRECT_EVENTS);
    REQUIRE(events_answer.status == 0);
    events = std::move(events_answer.fds[0]);
  }
  Answer try_listen(std::uint16_t port = kPort, unsigned device = 1, std::uint32_t backlog = 8) {
    return ask(RNIC_STREAM_LISTEN, rnic_stream_listen{at(device, port), backlog, 0, 1000});
  }
  std::uint32_t listen(std::uint16_t port = kPort) { return try_listen(port).as<rnic_handle_reply>().handle; }
  Answer try_call(std::uint16_t port = kPort, std::uint64_t user = 1) {
    return ask(RNIC_STREAM_CONNECT, rnic_stream_connect{{}, at(1, port), 0, 0, user});
  }
  std::uint32_t call(std::uint16_t port = kPort, std::uint64_t user = 1) {
    return try_call(port, user).as<rnic_handle_reply>().handle;
  }
  std::uint32_t accept(std::uint32_t listener, std::uint64_t user = 2) {
    return again([&] {
             return ask(RNIC_STREAM_ACCEPT, rnic_stream_accept{listener, 0, user});
           })
        .as<rnic_handle_reply>()
        .handle;
  }
  Answer try_send(std::uint32_t stream, std::string_view text) {
    rnic_stream_send body{};
    body.stream = stream;
    body.length = static_cast<std::uint32_t>(text.size());
    std::memcpy(body.octets, text.data(), std::min(text.size(), sizeof body.octets));
    return ask(RNIC_STREAM_SEND, body);
  }
  Answer try_receive(std::uint32_t stream, std::uint32_t length = 100) {
    return ask(RNIC_STREAM_RECEIVE, rnic_stream_receive{stream, length});
  }
  void send(std::uint32_t stream, std::string_view text) {
    CHECK(again([&] { return try_send(stream, text); }).as<rnic_handle_reply>().handle == text.size());
  }
  std::string receive(std::uint32_t stream, std::uint32_t length = 100) {
    const auto body = again([&] { return try_receive(stream, length); }).as<rnic_stream_received>();
    return std::string(reinterpret_cast<const char*>(body.octets), body.length);
  }
  rnic_stream_query_reply query(std::uint32_t stream) {
    return by_handle(RNIC_STREAM_QUERY, stream).as<rnic_stream_query_reply>();
  }
  int close(std::uint32_t stream) { return by_handle(RNIC_STREAM_CLOSE, stream).status; }
  std::uint32_t queue_pair() {
    rnic_create_cq cq{};
    cq.entries_min = 16;
    rnic_create_qp body{};
    body.pd = ask(RNIC_ALLOC_PD).as<rnic_handle_reply>().handle;
    body.send_cq = body.recv_cq = ask(RNIC_CREATE_CQ, cq).as<rnic_create_cq_reply>().cq;
    body.send_wr_min = body.recv_wr_min = body.send_sge_max = body.recv_sge_max = 1;
    return ask(RNIC_CREATE_QP, body).as<rnic_create_qp_reply>().qp_number;
  }
  rnic_start_iwarp start_request(std::uint32_t qp, std::uint32_t stream) {
    rnic_start_iwarp body{};
    body.qp_number = qp;
    body.stream = stream;
    return body;
  }
  int start(std::uint32_t qp, std::uint32_t stream) { return ask(RNIC_START_IWARP, start_request(qp, stream)).status; }
  std::uint32_t state_of(std::uint32_t qp) { return by_handle(RNIC_QUERY_QP, qp).as<rnic_query_qp_reply>().state; }
  // Whose event comes next, of those that have come.
  std::optional<std::uint64_t> event() {
    daemon_.settle();
    struct {
      std::uint64_t element;
      std::uint32_t type, reserved;
    } message{};
    if (recv(events.get(), &message, sizeof message, MSG_DONTWAIT) != sizeof message) return std::nullopt;
    CHECK(message.type == RNIC_EVENT_STREAM);
    return message.element;
  }
  std::uint64_t next_event() {
    for (int i = 0; i < 10'000; ++i, usleep(1000))
      if (const auto told = event()) return *told;
    FAIL("no event came");
    return 0;
  }
  template <typename Ask>
  Answer again(Ask&& ask) {
    for (int i = 0; i < 10'000; ++i, usleep(1000))
      if (Answer answer = ask(); answer.status != EAGAIN) return answer;
    return {};
  }
  control::Descriptor events;
};

template <typename Is>
bool comes_true(Daemon& daemon, Is&& is) {
  for (int i = 0; i < 20'000; ++i, usleep(1000)) {
    daemon.settle();
    if (is()) return true;
  }
  return false;
}

std::size_t streams_of(Daemon& daemon, unsigned device) {
  auto& served = *daemon.machine.devices[device];
  std::size_t count = 0;
  served.first().worker->call(
      [&](Instant) { count = served.first().device->stream_count() + served.first().device->half_open_count(); });
  return count;
}

bool nothing_is_left(Daemon& daemon) {
  return comes_true(daemon, [&] {
    return daemon.machine.streams_by_cookie.empty() && streams_of(daemon, 0) == 0 && streams_of(daemon, 1) == 0;
  });
}

}  // namespace

TEST_CASE("V-CONN-12: applications speak on a stream, hear when there is something, and give it to a queue pair",
          "[control][V-CONN-12][V-CONN-06]") {
  Daemon daemon;
  Speaker a(daemon), b(daemon, "rnic1");
  const std::uint32_t listener = b.listen();
  CHECK(b.query(listener).state == RNIC_STREAM_LISTENS);
  CHECK(b.ask(RNIC_STREAM_ACCEPT, rnic_stream_accept{listener, 0, 2}).status == EAGAIN);
  const std::uint32_t caller = a.call();
  CHECK(a.next_event() == 1);
  CHECK(b.next_event() == 1000);
  const std::uint32_t called = b.accept(listener);
  const auto near = a.query(caller), far = b.query(called);
  CHECK(near.state == RNIC_STREAM_OPEN);
  CHECK(far.state == RNIC_STREAM_OPEN);
  CHECK(std::memcmp(&near.local, &far.remote, sizeof near.local) == 0);
  CHECK(std::memcmp(&near.remote, &far.local, sizeof near.local) == 0);

  CHECK(b.try_receive(called).status == EAGAIN);
  CHECK_FALSE(b.event());
  a.send(caller, "hello");
  CHECK(b.next_event() == 2);
  CHECK(b.receive(called) == "hello");

  const std::uint32_t at_a = a.queue_pair(), at_b = b.queue_pair();
  auto request = a.start_request(at_a, caller);
  request.mask = RNIC_MODIFY_ORD | RNIC_MODIFY_IRD;
  request.ord = 3;
  request.ird = 5;
  request.message_length = 2;
  std::memcpy(request.message, "go", 2);
  REQUIRE(a.ask(RNIC_START_IWARP, request).status == 0);
  CHECK(b.receive(called) == "go");
  REQUIRE(b.start(at_b, called) == 0);
  const auto told = a.by_handle(RNIC_QUERY_QP, at_a).as<rnic_query_qp_reply>();
  CHECK(told.state == RNIC_QP_RTS);
  CHECK(told.ord == 3);
  CHECK(told.ird == 5);
  CHECK(told.stream == near.number);
  CHECK(std::memcmp(&told.local, &near.local, sizeof told.local) == 0);
  CHECK(std::memcmp(&told.remote, &near.remote, sizeof told.remote) == 0);
  // It is the queue pair's alone.
  CHECK(a.try_send(caller, "x").status == EINVAL);
  CHECK(a.try_receive(caller).status == EINVAL);
  CHECK(a.by_handle(RNIC_STREAM_QUERY, caller).status == EINVAL);
  CHECK(a.close(caller) == EINVAL);
  CHECK(a.start(a.queue_pair(), caller) == ENOTCONN);

  rnic_modify_qp closing{};
  closing.qp_number = at_a;
  closing.mask = RNIC_MODIFY_STATE;
  closing.state = RNIC_QP_CLOSING;
  REQUIRE(a.ask(RNIC_MODIFY_QP, closing).status == 0);
  CHECK(comes_true(daemon, [&] { return a.state_of(at_a) == RNIC_QP_IDLE && b.state_of(at_b) == RNIC_QP_IDLE; }));
  CHECK_FALSE(a.event());
  CHECK(b.close(listener) == 0);
  CHECK(nothing_is_left(daemon));
}

TEST_CASE("V-IS-25: a queue pair is given no stream that is none, is not open, or is another's",
          "[control][V-IS-25][V-CONN-01][V-IMM-01][V-RNIC-01]") {
  Daemon daemon;
  Speaker a(daemon), b(daemon, "rnic1");
  const std::uint32_t listener = b.listen(), caller = a.call();
  const std::uint32_t called = b.accept(listener), qp = b.queue_pair();
  CHECK(b.start(qp, 0) == ENOTCONN);
  CHECK(b.start(qp, listener) == ENOTCONN);
  CHECK(b.start(qp, caller) == ENOTCONN);  // of another context
  CHECK(b.start(b.start_request(0, called).qp_number, called) == EINVAL);
  auto request = b.start_request(qp, called);
  request.mask = RNIC_MODIFY_ORD;
  request.ord = 1000;
  CHECK(b.ask(RNIC_START_IWARP, request).status == EINVAL);
  request = b.start_request(qp, called);
  request.mask = RNIC_MODIFY_STATE;
  CHECK(b.ask(RNIC_START_IWARP, request).status == EINVAL);
  request = b.start_request(qp, called);
  request.message_length = RNIC_STREAM_OCTETS_MAX + 1;
  CHECK(b.ask(RNIC_START_IWARP, request).status == EINVAL);
  request = b.start_request(qp, called);
  request.mask = RNIC_MODIFY_RECEIVE_LIMIT;
  CHECK(b.ask(RNIC_START_IWARP, request).status == EOPNOTSUPP);
  // Half closed.
  CHECK(a.close(caller) == 0);
  CHECK(b.receive(called).empty());
  CHECK(b.start(qp, called) == ENOTCONN);
  CHECK(b.state_of(qp) == RNIC_QP_IDLE);
  CHECK(b.close(called) == 0);
  CHECK(b.start(qp, called) == ENOTCONN);
  // One that nobody answers.
  const std::uint32_t nowhere =
      a.ask(RNIC_STREAM_CONNECT, rnic_stream_connect{{}, at(9, kPort), 0, 0, 1}).as<rnic_handle_reply>().handle;
  CHECK(a.query(nowhere).state == RNIC_STREAM_OPENING);
  CHECK(a.start(a.queue_pair(), nowhere) == ENOTCONN);
  CHECK(a.try_send(nowhere, "x").status == EAGAIN);
  CHECK(a.try_receive(nowhere).status == EAGAIN);
  CHECK(a.close(nowhere) == 0);
}

TEST_CASE("V-RNIC-01: no other process, and no other context, can use a stream", "[control][V-RNIC-01][V-SEC-01]") {
  Daemon daemon;
  const OtherProcess process;
  Speaker a(daemon), b(daemon, "rnic1"), second(daemon, "rnic1");
  Speaker stranger(daemon, "rnic1", process.pid(), 2);
  const std::uint32_t listener = b.listen(), caller = a.call(), called = b.accept(listener);
  for (Speaker* other : {&second, &stranger})
    for (const std::uint32_t handle : {listener, caller, called}) {
      CHECK(other->try_send(handle, "x").status == EINVAL);
      CHECK(other->try_receive(handle).status == EINVAL);
      CHECK(other->by_handle(RNIC_STREAM_QUERY, handle).status == EINVAL);
      CHECK(other->ask(RNIC_STREAM_ACCEPT, rnic_stream_accept{handle, 0, 2}).status == EINVAL);
      CHECK(other->close(handle) == EINVAL);
      CHECK(other->start(other->queue_pair(), handle) == ENOTCONN);
    }
  a.send(caller, "mine");
  CHECK(b.receive(called) == "mine");
  CHECK(b.try_send(called, std::string(RNIC_STREAM_OCTETS_MAX + 1, 'x')).status == EINVAL);
  CHECK(b.try_receive(called, RNIC_STREAM_OCTETS_MAX + 1).status == EINVAL);
  CHECK(b.try_listen().status == EADDRINUSE);
  CHECK(b.try_listen(0).status == EINVAL);
  CHECK(b.try_listen(kPort, 5).status == EADDRNOTAVAIL);
}

TEST_CASE("A stream's failure is told, and says why", "[control]") {
  Daemon daemon;
  Speaker a(daemon), b(daemon, "rnic1");
  const std::uint32_t refused = a.call();
  CHECK(a.next_event() == 1);
  CHECK(a.query(refused).state == RNIC_STREAM_ENDED);
  CHECK(a.query(refused).error == ECONNREFUSED);
  CHECK(a.try_send(refused, "x").status == ECONNREFUSED);
  CHECK(a.try_receive(refused).status == ECONNREFUSED);
  CHECK(a.start(a.queue_pair(), refused) == ENOTCONN);
  CHECK(a.close(refused) == 0);
  CHECK(a.try_call(0).status == EINVAL);
  CHECK(nothing_is_left(daemon));
}

TEST_CASE("What an application leaves open ends with it, and what it said arrives", "[control][V-SEC-01]") {
  Daemon daemon;
  Speaker b(daemon, "rnic1");
  const std::uint32_t listener = b.listen();
  std::uint32_t called = 0;
  {
    Speaker a(daemon);
    const std::uint32_t caller = a.call();
    called = b.accept(listener);
    (void)a.call();  // that nobody accepts
    (void)a.try_listen(kPort + 1, 0);
    a.send(caller, "last");
    a.socket = {};
    daemon.settle();
  }
  CHECK(b.receive(called) == "last");
  CHECK(b.receive(called).empty());
  b.socket = {};
  CHECK(nothing_is_left(daemon));
}

TEST_CASE("A listener that goes takes those with it whom nobody has accepted", "[control][V-SEC-01]") {
  Daemon daemon;
  Speaker a(daemon), b(daemon, "rnic1");
  const std::uint32_t listener = b.listen();
  std::vector<std::uint32_t> callers;
  for (int i = 0; i < 20; ++i) callers.push_back(a.call());
  CHECK(comes_true(daemon, [&] { return a.query(callers[0]).state == RNIC_STREAM_OPEN; }));
  CHECK(b.close(listener) == 0);
  CHECK(comes_true(daemon, [&] {
    for (const std::uint32_t caller : callers)
      if (a.try_receive(caller).status == EAGAIN) return false;
    return true;
  }));
  for (const std::uint32_t caller : callers) CHECK(a.close(caller) == 0);
  CHECK(nothing_is_left(daemon));
  CHECK(b.try_listen().status == 0);
}

TEST_CASE("A caller that is told to a listener which has just gone is ended", "[control][V-SEC-01]") {
  Daemon daemon;
  Speaker a(daemon), b(daemon, "rnic1");
  const std::uint32_t listener = b.listen();
  const std::uint32_t caller = a.call(), called = b.accept(listener);
  core::Worker& worker = *daemon.machine.workers[0];
  core::StreamEvent event;
  event.kind = core::StreamEvent::Kind::connect_request;
  event.device = 1;
  event.stream = {b.query(called).number};
  event.cookie = core::kStreamingCookie | 0xFFFFFF;  // of nobody
  worker.call([&](Instant) { worker.on_stream_event(event); });
  CHECK(comes_true(daemon, [&] { return a.query(caller).state == RNIC_STREAM_ENDED; }));
}

TEST_CASE("1,000 streams opened and closed leave no ids", "[control][V-SEC-01]") {
  Daemon daemon;
  Speaker a(daemon), b(daemon, "rnic1");
  const std::uint32_t listener = b.listen();
  for (int i = 0; i < 1000; ++i) {
    const std::uint32_t caller = a.call(), called = b.accept(listener);
    if (i % 2 == 0) a.send(caller, "never heard");
    CHECK(a.close(caller) == 0);
    CHECK(b.close(called) == 0);
  }
  CHECK(b.close(listener) == 0);
  CHECK(nothing_is_left(daemon));
}

TEST_CASE("A process has its share of streams, and others find some", "[control][limits][V-SEC-01]") {
  Daemon daemon(kFew);
  const OtherProcess process;
  Speaker greedy(daemon), other(daemon, "rnic0", process.pid(), 2), b(daemon, "rnic1", process.pid(), 2);
  const std::uint32_t listener = b.listen();
  std::vector<std::uint32_t> all;
  Answer last;
  while (all.size() < 100) {
    last = greedy.try_call();
    if (last.status != 0) break;
    all.push_back(last.as<rnic_handle_reply>().handle);
    (void)b.ask(RNIC_STREAM_ACCEPT, rnic_stream_accept{listener, 0, 2});
  }
  CHECK(last.status == ENOMEM);
  CHECK(all.size() > 16);
  CHECK(all.size() < 56);
  CHECK(greedy.try_listen(kPort, 0).status == ENOMEM);
  CHECK(other.try_call().status == 0);
  for (const std::uint32_t stream : all) CHECK(greedy.close(stream) == 0);
  b.socket = {};
  CHECK(comes_true(daemon, [&] { return streams_of(daemon, 0) < 8; }));
  CHECK(greedy.try_call().status == 0);
}

TEST_CASE("A process whose share of streams is used up accepts nobody more", "[control][limits][V-SEC-01]") {
  Daemon daemon(kFew);
  Speaker greedy(daemon), caller(daemon, "rnic1");
  const std::uint32_t listener = greedy.try_listen(kPort, 0).as<rnic_handle_reply>().handle;
  std::uint32_t accepted = 0, reset = 0;
  for (int i = 0; i < 100; ++i) {
    const std::uint32_t stream =
        caller.ask(RNIC_STREAM_CONNECT, rnic_stream_connect{{}, at(0, kPort), 0, 0, 1}).as<rnic_handle_reply>().handle;
    bool taken = false;
    REQUIRE(comes_true(daemon, [&] {
      taken = taken || greedy.ask(RNIC_STREAM_ACCEPT, rnic_stream_accept{listener, 0, 2}).status == 0;
      return taken || caller.query(stream).state == RNIC_STREAM_ENDED;
    }));
    ++(taken ? accepted : reset);
  }
  CHECK(accepted > 16);
  CHECK(accepted < 50);  // of 56 that applications may have
  CHECK(reset == 100 - accepted);
  CHECK(greedy.try_call().status == ENOMEM);
}

TEST_CASE("An application that reads no events is owed one for each stream", "[control][V-SEC-01]") {
  Daemon daemon;
  Speaker a(daemon), b(daemon, "rnic1");
  const std::uint32_t listener = b.listen(), caller = a.call(), called = b.accept(listener);
  for (int i = 0; i < 2000; ++i) {
    (void)b.try_receive(called);
    a.send(caller, "x");
    b.receive(called);
  }
  int events = 0;
  while (b.event()) ++events;
  CHECK(events > 1);
  CHECK(events < 1000);  // what a socket holds, and one
}

TEST_CASE("Streams in streaming mode are for iWARP devices", "[control]") {
  Daemon daemon(
      "sched_fifo = false\n"
      "[[device]]\nport = \"pair:t\"\naddress = \"127.0.9.1/24\"\nface = \"roce\"\n"
      "[[device]]\nport = \"pair:t\"\naddress = \"127.0.9.2/24\"\nface = \"roce\"\n");
  Speaker a(daemon);
  CHECK(a.try_call().status == EOPNOTSUPP);
  CHECK(a.try_listen(kPort, 0).status == EOPNOTSUPP);
}
