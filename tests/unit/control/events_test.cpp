// Events of objects: to whom they are told, and when.
#include <string>
#include <vector>

#include "control/async_events.hpp"
#include "kit/server_world.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {
struct AsyncMessage {
  std::uint64_t element;
  std::uint32_t type;
  std::uint32_t reserved;
};

// The next message of an event socket, once the worker's news are in.
template <typename T>
std::optional<T> next_message(Daemon& daemon, int fd) {
  for (int i = 0; i < 200; ++i) {
    daemon.settle();
    T message;
    if (recv(fd, &message, sizeof message, MSG_DONTWAIT) == static_cast<ssize_t>(sizeof message)) return message;
    pollfd wait{daemon.machine.workers[0]->event_fd(), POLLIN, 0};
    poll(&wait, 1, 1);
  }
  return std::nullopt;
}

control::Qp& qp_object(Daemon& daemon) { return *daemon.machine.qps.begin()->second; }

void raise(Daemon& daemon, const std::function<void(core::Worker&)>& what) {
  core::Worker& worker = *daemon.machine.workers[0];
  worker.call([&](Instant) { what(worker); });
}
}  // namespace

TEST_CASE("events of a QP come to its context with its user pointer",
          "[control][objects][V-VBX-04][V-AE-03][V-VB-31]") {
  Daemon daemon;
  App app(daemon), other(daemon);
  const auto number = app.qp(app.pd(), app.cq());
  raise(daemon, [&](core::Worker& worker) {
    worker.on_qp_event(qp_object(daemon).cookie, qp::Event::close_complete);
    worker.on_qp_event(qp_object(daemon).cookie, qp::Event::connection_reset);
  });
  const int async = app.opened.fds[2].get();
  const auto message = next_message<AsyncMessage>(daemon, async);
  REQUIRE(message);
  CHECK(message->element == 0x9B);
  CHECK(message->type == 1);  // IBV_EVENT_QP_FATAL
  daemon.settle();
  AsyncMessage more;
  CHECK(recv(async, &more, sizeof more, MSG_DONTWAIT) < 0);
  CHECK(recv(other.opened.fds[2].get(), &more, sizeof more, MSG_DONTWAIT) < 0);
  CHECK(app.by_handle(RNIC_DESTROY_QP, number).status == 0);
}

TEST_CASE("events of a QP that is gone are not told", "[control][objects][V-QP-16]") {
  Daemon daemon;
  App app(daemon);
  const auto number = app.qp(app.pd(), app.cq());
  const auto cookie = qp_object(daemon).cookie;
  REQUIRE(app.by_handle(RNIC_DESTROY_QP, number).status == 0);
  raise(daemon, [&](core::Worker& worker) { worker.on_qp_event(cookie, qp::Event::connection_reset); });
  usleep(2000);
  daemon.settle();
  AsyncMessage more;
  CHECK(recv(app.opened.fds[2].get(), &more, sizeof more, MSG_DONTWAIT) < 0);
}

TEST_CASE("V-AE-39: the SRQ limit is told with the SRQ's user pointer", "[control][objects][V-AE-39]") {
  Daemon daemon;
  App app(daemon);
  REQUIRE(app.try_srq(app.pd(), 8, 4).status == 0);
  raise(daemon, [&](core::Worker& worker) { worker.on_srq_limit(daemon.machine.srqs_by_cookie.begin()->first); });
  const auto message = next_message<AsyncMessage>(daemon, app.opened.fds[2].get());
  REQUIRE(message);
  CHECK(message->element == 0x5A);
  CHECK(message->type == 15);
}

TEST_CASE("V-AE-37: an overflow is told as CQ_ERR, and the CQ's QPs go to Error, no others",
          "[control][objects][V-AE-37][V-SEC-14][V-CQ-06]") {
  Daemon daemon;
  App app(daemon);
  const auto pd = app.pd(), cq = app.cq(), other_cq = app.cq();
  const auto hit = app.qp(pd, cq), spared = app.qp(pd, other_cq);
  const auto cookie = daemon.machine.qps.at(hit)->send_cq->cookie;
  raise(daemon, [&](core::Worker& worker) { worker.on_cq_overflow(cookie); });
  const auto message = next_message<AsyncMessage>(daemon, app.opened.fds[2].get());
  REQUIRE(message);
  CHECK(message->element == 0xC0);
  CHECK(message->type == 0);
  CHECK(app.by_handle(RNIC_QUERY_QP, hit).as<rnic_query_qp_reply>().state == RNIC_QP_ERROR);
  CHECK(app.by_handle(RNIC_QUERY_QP, spared).as<rnic_query_qp_reply>().state == RNIC_QP_IDLE);
}

TEST_CASE("every event of the data plane has its ibverbs type",
          "[control][objects][V-AE-01][V-AE-02][V-AE-03][V-AE-04][V-AE-05][V-AE-06][V-AE-07][V-AE-08][V-AE-09]"
          "[V-AE-10][V-AE-11][V-AE-12][V-AE-13][V-AE-14][V-AE-15][V-AE-16][V-AE-17][V-AE-18][V-AE-19][V-AE-20]"
          "[V-AE-21][V-AE-22][V-AE-23][V-AE-24][V-AE-25][V-AE-26][V-AE-27][V-AE-28][V-AE-29][V-AE-30][V-AE-31]"
          "[V-AE-32][V-AE-33][V-AE-34][V-AE-36]") {
  using enum control::IbvEvent;
  using qp::Event;
  const auto ibv_event = [](Event event) { return control::ibv_event(event, Face::iwarp); };
  CHECK_FALSE(ibv_event(Event::close_complete));
  CHECK_FALSE(ibv_event(Event::peer_gone));
  for (const Event lost : {Event::terminate_received, Event::connection_reset, Event::connection_lost,
                           Event::segment_size, Event::crc_error, Event::bad_fpdu, Event::bad_close,
                           Event::bad_llp_close, Event::cq_sq_error, Event::cq_rq_error, Event::local_catastrophic})
    CHECK(ibv_event(lost) == qp_fatal);
  for (const Event malformed : {Event::ddp_version, Event::rdmap_version, Event::unexpected_opcode, Event::queue_number,
                                Event::read_request_form, Event::not_last, Event::rq_msn_range, Event::rq_msn_gap,
                                Event::irrq_too_many, Event::irrq_gap, Event::irrq_range})
    CHECK(ibv_event(malformed) == qp_request_error);
  for (const Event access : {Event::reads_disabled, Event::writes_disabled, Event::invalid_stag, Event::base_bounds,
                             Event::access_rights, Event::invalid_pd, Event::wrap, Event::irrq_invalid_stag,
                             Event::irrq_base_bounds, Event::irrq_access, Event::irrq_invalid_pd, Event::irrq_wrap})
    CHECK(ibv_event(access) == qp_access_error);
  CHECK(ibv_event(Event::last_wqe_reached) == qp_last_wqe_reached);
}

TEST_CASE("on a RoCE face the end of a peer is no event of its queue pair", "[control][objects][roce]") {
  using control::ibv_event;
  using enum control::IbvEvent;
  using qp::Event;
  for (const Event ended : {Event::peer_gone, Event::terminate_received, Event::connection_reset,
                            Event::connection_lost, Event::bad_close, Event::bad_llp_close})
    CHECK_FALSE(ibv_event(ended, Face::roce));
  // What is wrong on this side is told all the same.
  CHECK(ibv_event(Event::local_catastrophic, Face::roce) == qp_fatal);
  CHECK(ibv_event(Event::cq_sq_error, Face::roce) == qp_fatal);
  CHECK(ibv_event(Event::crc_error, Face::roce) == qp_fatal);
  CHECK(ibv_event(Event::access_rights, Face::roce) == qp_access_error);
  CHECK(ibv_event(Event::read_request_form, Face::roce) == qp_request_error);
  CHECK(ibv_event(Event::last_wqe_reached, Face::roce) == qp_last_wqe_reached);

  Daemon daemon("sched_fifo = false\n[[device]]\nport = \"loopback\"\naddress = \"127.0.9.1/24\"\nface = \"roce\"\n");
  App app(daemon);
  (void)app.qp(app.pd(), app.cq());
  raise(daemon, [&](core::Worker& worker) {
    worker.on_qp_event(qp_object(daemon).cookie, Event::connection_reset);
    worker.on_qp_event(qp_object(daemon).cookie, Event::last_wqe_reached);
  });
  const auto message = next_message<AsyncMessage>(daemon, app.opened.fds[2].get());
  REQUIRE(message);
  CHECK(message->type == 16);
}

TEST_CASE("a CQ's notification comes to its channel, which is named by its socket's cookie",
          "[control][objects][V-NTF-09]") {
  Daemon daemon;
  Client cm(daemon, RNIC_CLIENT_CM, "");
  App app(daemon);
  auto made = cm.ask(RNIC_CREATE_CHANNEL);
  const auto channel = made.as<rnic_create_channel_reply>();
  REQUIRE(made.fds.size() == 1);
  std::uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  REQUIRE(getsockopt(made.fds[0].get(), SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0);
  CHECK(cookie == channel.cookie);

  const auto cq = app.try_cq(4, cookie);
  REQUIRE(cq.as<rnic_create_cq_reply>().area.arena_is_new == 1);
  REQUIRE(cq.fds.size() == 2);  // the arena, the channel's writing end
  control::Cq* object = daemon.machine.cqs_by_cookie.begin()->second;
  object->context->on_completions(*object);
  const auto message = next_message<std::uint64_t>(daemon, made.fds[0].get());
  REQUIRE(message);
  CHECK(*message == 0xC0);
  // It stays the CQ's when its maker lets go of it.
  REQUIRE(cm.by_handle(RNIC_DESTROY_CHANNEL, channel.channel).status == 0);
  CHECK(daemon.server->completion_channel_count() == 0);
  object->context->on_completions(*object);
  CHECK(next_message<std::uint64_t>(daemon, made.fds[0].get()));
  CHECK(app.by_handle(RNIC_DESTROY_CQ, cq.as<rnic_create_cq_reply>().cq).as<rnic_destroy_cq_reply>().events_sent == 2);
}

TEST_CASE("a channel of another user cannot be named", "[control][objects]") {
  Daemon daemon;
  Client cm(daemon, RNIC_CLIENT_CM, "", getuid() + 1);
  App app(daemon);
  const auto made = cm.ask(RNIC_CREATE_CHANNEL);
  CHECK(app.try_cq(4, made.as<rnic_create_channel_reply>().cookie).status == EINVAL);
}

TEST_CASE("what does not fit a channel's socket waits, once for each CQ, and comes when there is room",
          "[control][objects]") {
  control::Loop loop;
  const auto channel = control::EventSocket::create(loop);
  REQUIRE(channel != nullptr);
  control::Descriptor reader = channel->take_reader();
  std::vector<control::EventSocket::Subject> cqs(2000);
  for (std::size_t i = 0; i < cqs.size(); ++i) channel->send_completion(cqs[i], i + 1);
  REQUIRE(channel->waiting() > 0);
  channel->send_completion(cqs.back(), cqs.size());
  CHECK(cqs.back().waiting == 1);
  // One that goes meanwhile is not told of any more.
  channel->forget(cqs[cqs.size() - 2]);
  std::vector<std::uint64_t> got;
  for (int idle = 0; idle < 3;) {
    std::uint64_t pointer;
    if (recv(reader.get(), &pointer, sizeof pointer, MSG_DONTWAIT) == static_cast<ssize_t>(sizeof pointer)) {
      got.push_back(pointer);
      idle = 0;
    } else {
      loop.turn(0);
      ++idle;
    }
  }
  CHECK(channel->waiting() == 0);
  REQUIRE(got.size() == cqs.size() - 1);
  CHECK(std::is_sorted(got.begin(), got.end()));
  CHECK(got.back() == cqs.size());
  CHECK(cqs.back().sent == 1);
}

TEST_CASE("what is put back during a hold comes before what waited", "[control][objects]") {
  control::Loop loop;
  const auto channel = control::EventSocket::create(loop);
  REQUIRE(channel != nullptr);
  control::Descriptor reader = channel->take_reader();
  std::vector<control::EventSocket::Subject> cqs(2000);
  for (std::size_t i = 0; i + 1 < cqs.size(); ++i) channel->send_completion(cqs[i], i + 1);
  const auto read_what_is_there = [&] {
    std::vector<std::uint64_t> got;
    std::uint64_t pointer;
    while (recv(reader.get(), &pointer, sizeof pointer, MSG_DONTWAIT) == static_cast<ssize_t>(sizeof pointer))
      got.push_back(pointer);
    return got;
  };
  channel->hold();
  const std::size_t waited = channel->waiting();
  const auto taken_out = read_what_is_there();
  REQUIRE(taken_out.size() + waited == cqs.size() - 1);
  while (loop.turn(0)) {
  }
  channel->send_completion(cqs.back(), cqs.size());
  CHECK(channel->waiting() == waited + 1);
  CHECK(read_what_is_there().empty());
  for (const std::uint64_t pointer : taken_out)
    REQUIRE(send(channel->writer(), &pointer, sizeof pointer, MSG_DONTWAIT) == static_cast<ssize_t>(sizeof pointer));
  channel->release();
  std::vector<std::uint64_t> got;
  while (got.size() < cqs.size()) {
    loop.turn(0);
    const auto more = read_what_is_there();
    REQUIRE_FALSE(more.empty());
    got.insert(got.end(), more.begin(), more.end());
  }
  CHECK(std::is_sorted(got.begin(), got.end()));
  CHECK(channel->waiting() == 0);
}

TEST_CASE("a context holds one event socket at a time, one that it may name, and none after its end",
          "[control][objects]") {
  Daemon daemon;
  Client cm(daemon, RNIC_CLIENT_CM, "");
  const auto made = cm.ask(RNIC_CREATE_CHANNEL);
  const std::uint64_t cookie = made.as<rnic_create_channel_reply>().cookie;
  App reporter(daemon);
  REQUIRE(reporter.try_cq(4, cookie).status == 0);
  control::Cq* object = daemon.machine.cqs_by_cookie.begin()->second;
  {
    App app(daemon);
    CHECK(app.ask(RNIC_RELEASE_EVENTS).status == EINVAL);
    CHECK(app.ask(RNIC_HOLD_EVENTS, rnic_hold_events{cookie + 1}).status == EINVAL);
    CHECK(app.ask(RNIC_HOLD_EVENTS, rnic_hold_events{0}).status == 0);
    CHECK(app.ask(RNIC_HOLD_EVENTS, rnic_hold_events{cookie}).status == EBUSY);
    CHECK(app.ask(RNIC_RELEASE_EVENTS).status == 0);
    CHECK(app.ask(RNIC_HOLD_EVENTS, rnic_hold_events{cookie}).status == 0);
    object->context->on_completions(*object);
    CHECK_FALSE(next_message<std::uint64_t>(daemon, made.fds[0].get()));
  }
  CHECK(next_message<std::uint64_t>(daemon, made.fds[0].get()));
}

TEST_CASE("a channel that nobody reads any more costs nothing", "[control][objects]") {
  control::Loop loop;
  const auto channel = control::EventSocket::create(loop);
  std::vector<control::EventSocket::Subject> cqs(2000);
  {
    control::Descriptor reader = channel->take_reader();
    for (std::size_t i = 0; i < cqs.size(); ++i) channel->send_completion(cqs[i], i + 1);
    REQUIRE(channel->waiting() > 0);
  }
  while (loop.turn(0)) {
  }
  CHECK(channel->waiting() == 0);
  channel->send_completion(cqs[0], 1);
  CHECK(channel->waiting() == 0);
}
