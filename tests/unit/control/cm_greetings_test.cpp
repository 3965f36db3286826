// The connection manager on a RoCE face: the events and attributes of InfiniBand's, and what is said to the peer.
#include "control/greetings.hpp"

#include <cerrno>
#include <cstring>

#include "control/connection_manager.hpp"
#include "kit/catch.hpp"
#include "mpa/meeting.hpp"
#include "unit/control/fake_cm_host.hpp"

using namespace rnic;
using namespace rnic::test;
using Kind = core::StreamEvent::Kind;
using control::IdState;
using core::StreamFailure;

namespace {

constexpr std::uint32_t kInit = 1, kRtr = 2, kRts = 3;  // enum ibv_qp_state

wire::Greeting of_peer() {
  return {.gid = wire::IpAddress::v4(10, 0, 0, 2),
          .number = {0x777},
          .psn = 0xABCDEF,
          .path_mtu = 3,
          .shared_receive = true,
          .flow_control = true,
          .responder_resources = 9,
          .initiator_depth = 8,
          .retry_count = 5,
          .rnr_retry_count = 6};
}

Bytes octets_of(const std::string& text) { return as_bytes(text.data(), text.size()); }

// Device 2 of CmWorld's, 10.0.0.1, with a RoCE face, beside others.
struct RoceWorld : CmWorld {
  static std::vector<control::CmDevice> roce_devices() {
    auto list = devices();
    for (const std::size_t index : {std::size_t{2}, std::size_t{3}}) {
      control::CmDevice& device = list[index];
      device.face = Face::roce;
      device.path_mtu = 4;
      device.gids.push_back(device.addresses[0]);
      for (const wire::IpAddress& each : device.addresses) device.gids.push_back(each);
      device.gids.push_back(std::nullopt);
    }
    return list;
  }
  RoceWorld() : CmWorld(roce_devices()) {}

  static rnic_cm_parameters wishes(const std::string& private_data = {}) {
    rnic_cm_parameters p = parameters(0x123, private_data);
    p.retry_count = 4;
    p.rnr_retry_count = 3;
    return p;
  }
  core::StreamEvent heard(Kind kind, std::uint32_t id, const core::PrivateData& data = {}) {
    core::StreamEvent e;
    e.kind = kind;
    e.cookie = id;
    e.device = 2;
    e.stream = {1};
    e.remote = wire::IpAddress::v4(10, 0, 0, 2);
    e.private_data = data;
    return e;
  }
  std::uint32_t calling(const std::string& private_data = {}) {
    const auto made = route_resolved();
    REQUIRE(cm.connect(made, wishes(private_data)) == 0);
    return made;
  }
  std::uint32_t answered() {
    const auto made = calling();
    cm.on_stream_event(heard(Kind::established, made, control::greeting_data(of_peer(), octets_of("welcome"))));
    return made;
  }
  core::StreamEvent request(std::uint32_t listener, const core::PrivateData& data) {
    auto e = request_for(listener);
    e.private_data = data;
    return e;
  }
  std::uint32_t asked() {
    const auto listener = listening();
    cm.on_stream_event(request(listener, control::greeting_data(of_peer(), octets_of("hello"))));
    return event().id;
  }
  IdState state(std::uint32_t id) { return cm.info(id)->state; }
  std::optional<wire::MarkRefusal> refusal() {
    if (host.rejects.empty()) return std::nullopt;
    const auto mark = wire::parse_mark(core::bytes_of(host.rejects.back().second));
    return mark ? std::optional(mark->refusal) : std::nullopt;
  }
};

std::string text_of(const rnic_cm_parameters& p) { return reinterpret_cast<const char*>(p.private_data); }

}  // namespace

TEST_CASE("on a RoCE face connect greets: GID, number, PSN and what REQ says, and no queue pair is claimed",
          "[control][cm][roce]") {
  RoceWorld w;
  const auto id = w.calling("data");
  CHECK(w.host.connects.empty());
  REQUIRE(w.host.greetings.size() == 1);
  const core::ConnectOptions& said = w.host.greetings[0].options;
  const Bytes data = core::bytes_of(said.private_data);
  const auto mark = wire::parse_mark(data);
  REQUIRE(mark);
  CHECK(mark->kind == wire::Mark::Kind::greeting);
  CHECK(mpa::face_of(*mark) == Face::roce);
  CHECK(mark->needed == mpa::mark_capabilities(Face::roce));
  CHECK(mark->greeting.gid == wire::IpAddress::v4(10, 0, 0, 1));
  CHECK(mark->greeting.number == QpNumber{0x123});
  CHECK(mark->greeting.path_mtu == 4);
  CHECK(mark->greeting.responder_resources == 3);
  CHECK(mark->greeting.initiator_depth == 2);
  CHECK(mark->greeting.retry_count == 4);
  CHECK(mark->greeting.rnr_retry_count == 3);
  CHECK(data.size() == mark->length + 4u);
  CHECK(w.state(id) == IdState::connecting);
  CHECK(w.silent());
}

TEST_CASE("on a RoCE face private data is as long as InfiniBand's", "[control][cm][roce]") {
  RoceWorld w;
  const auto id = w.route_resolved();
  CHECK(w.cm.connect(id, RoceWorld::wishes(std::string(57, 'x'))) == EINVAL);
  CHECK(w.cm.connect(id, RoceWorld::wishes(std::string(56, 'x'))) == 0);
  const auto called = w.asked();
  CHECK(w.cm.reject(called, octets_of(std::string(149, 'x'))) == EINVAL);
  CHECK(w.cm.accept(called, 1, RoceWorld::wishes(std::string(197, 'x'))) == EINVAL);
  CHECK(w.cm.accept(called, 1, RoceWorld::wishes(std::string(196, 'x'))) == 0);
}

TEST_CASE("on a RoCE face the answer is a CONNECT_RESPONSE, which the application confirms", "[control][cm][roce]") {
  RoceWorld w;
  const auto id = w.answered();
  CHECK(w.state(id) == IdState::answered);
  const auto told = w.event();
  CHECK(told.event == RNIC_CM_CONNECT_RESPONSE);
  CHECK(told.id == id);
  CHECK(told.parameters.qp_number == 0x777);
  CHECK(told.parameters.responder_resources == 8);
  CHECK(told.parameters.initiator_depth == 9);
  CHECK(told.parameters.srq == 1);
  CHECK(told.parameters.rnr_retry_count == 6);
  CHECK(told.parameters.private_data_length == 196);
  CHECK(text_of(told.parameters) == "welcome");
  REQUIRE(w.cm.accept(id, 0, {}) == 0);
  REQUIRE(w.host.confirmed.size() == 1);
  CHECK(w.host.confirmed[0].second == core::StreamId{1});
  CHECK(w.state(id) == IdState::connected);
  CHECK(w.cm.accept(id, 0, {}) == EINVAL);
  CHECK(w.silent());
}

TEST_CASE(
    "on a RoCE face a request tells who calls, and its acceptance is established when the caller has confirmed it",
    "[control][cm][roce]") {
  RoceWorld w;
  const auto listener = w.listening();
  w.cm.on_stream_event(w.request(listener, control::greeting_data(of_peer(), octets_of("hello"))));
  const auto told = w.event();
  CHECK(told.event == RNIC_CM_CONNECT_REQUEST);
  CHECK(told.parameters.qp_number == 0x777);
  CHECK(told.parameters.retry_count == 5);
  CHECK(told.parameters.private_data_length == 56);
  CHECK(text_of(told.parameters) == "hello");
  REQUIRE(w.cm.accept(told.id, 0x99, RoceWorld::wishes("welcome")) == 0);
  CHECK(w.host.accepts.empty());
  REQUIRE(w.host.welcomes.size() == 1);
  const auto said = control::greeting_in(core::bytes_of(w.host.welcomes[0].options.private_data));
  REQUIRE(said);
  CHECK(said->number == QpNumber{0x123});
  CHECK(w.silent());
  w.cm.on_stream_event(w.heard(Kind::established, told.id));
  const auto established = w.event();
  CHECK(established.event == RNIC_CM_ESTABLISHED);
  CHECK(established.uid == 0x99);
  CHECK(w.state(told.id) == IdState::connected);
}

TEST_CASE("on a RoCE face ibv_modify_qp is given all that InfiniBand asks for, and both ends fit",
          "[control][cm][roce]") {
  RoceWorld w;
  const auto id = w.route_resolved();
  const auto before = w.cm.init_qp_attributes(id, kInit);
  REQUIRE(before);
  CHECK(before->mask == (RNIC_CM_ATTRIBUTES_STATE | RNIC_CM_ATTRIBUTES_ACCESS | RNIC_CM_ATTRIBUTES_INIT));
  CHECK(before->access == 0);
  CHECK(w.cm.init_qp_attributes(id, kRtr).error() == EINVAL);
  REQUIRE(w.cm.connect(id, RoceWorld::wishes()) == 0);
  CHECK(w.cm.init_qp_attributes(id, kInit)->access ==
        (RNIC_ACCESS_REMOTE_WRITE | RNIC_ACCESS_REMOTE_READ | RNIC_ACCESS_REMOTE_ATOMIC));
  CHECK(w.cm.init_qp_attributes(id, kRtr).error() == EINVAL);  // of whom?
  w.cm.on_stream_event(w.heard(Kind::established, id, control::greeting_data(of_peer(), {})));
  const auto own = control::greeting_in(core::bytes_of(w.host.greetings[0].options.private_data));
  const auto rtr = w.cm.init_qp_attributes(id, kRtr);
  REQUIRE(rtr);
  CHECK(rtr->mask == (RNIC_CM_ATTRIBUTES_STATE | RNIC_CM_ATTRIBUTES_RTR));
  CHECK(rtr->peer_number == 0x777);
  CHECK(rtr->receive_psn == own->psn);
  CHECK(rtr->path_mtu == 3);  // the lesser
  CHECK(rtr->gid_index == 1);
  CHECK(rtr->responder_resources == 8);
  CHECK(rtr->hop_limit == 64);
  const auto gid = wire::IpAddress::v4(10, 0, 0, 2).octets();
  CHECK(std::memcmp(rtr->peer_gid, gid.data(), 16) == 0);
  const auto rts = w.cm.init_qp_attributes(id, kRts);
  REQUIRE(rts);
  CHECK(rts->mask == (RNIC_CM_ATTRIBUTES_STATE | RNIC_CM_ATTRIBUTES_RTS));
  CHECK(rts->send_psn == 0xABCDEF);
  CHECK(rts->initiator_depth == 9);
  CHECK(rts->retry_count == 4);  // its own wish
  CHECK(rts->rnr_retry == 6);    // its peer's
  CHECK(rts->timeout == 19);
  CHECK(w.cm.init_qp_attributes(id, 4).error() == EINVAL);
}

TEST_CASE("on a RoCE face who accepts has the attributes before he does, and with the same PSN",
          "[control][cm][roce]") {
  RoceWorld w;
  const auto id = w.asked();
  const std::byte timeout{14};
  REQUIRE(w.cm.set_option(id, 0, 3, Bytes(&timeout, 1)) == 0);
  const auto rtr = w.cm.init_qp_attributes(id, kRtr);
  const auto rts = w.cm.init_qp_attributes(id, kRts);
  REQUIRE(rtr);
  REQUIRE(rts);
  CHECK(rts->retry_count == 5);  // the caller's, for both
  CHECK(rts->timeout == 14);
  REQUIRE(w.cm.accept(id, 1, RoceWorld::wishes()) == 0);
  const auto said = control::greeting_in(core::bytes_of(w.host.welcomes[0].options.private_data));
  CHECK(said->psn == rtr->receive_psn);
}

TEST_CASE("on a RoCE face ECE options go with Request and Reply, and are told", "[control][cm][roce]") {
  RoceWorld w;
  auto wishes = RoceWorld::wishes();
  wishes.ece_vendor = 0xFF123456;  // of which InfiniBand has 24 bits
  wishes.ece_options = 7;
  auto peer = of_peer();
  peer.ece_vendor = 0x654321;
  peer.ece_options = 9;
  const auto id = w.route_resolved();
  REQUIRE(w.cm.connect(id, wishes) == 0);
  const auto said = control::greeting_in(core::bytes_of(w.host.greetings[0].options.private_data));
  CHECK(said->ece_vendor == 0x123456);
  CHECK(said->ece_options == 7);
  w.cm.on_stream_event(w.heard(Kind::established, id, control::greeting_data(peer, octets_of("welcome"))));
  const auto answer = w.event();
  CHECK(answer.parameters.ece_vendor == 0x654321);
  CHECK(answer.parameters.ece_options == 9);
  CHECK(text_of(answer.parameters) == "welcome");

  const auto listener = w.listening();
  w.cm.on_stream_event(w.request(listener, control::greeting_data(peer, octets_of("hello"))));
  const auto asked = w.event();
  CHECK(asked.parameters.ece_vendor == 0x654321);
  CHECK(text_of(asked.parameters) == "hello");
  REQUIRE(w.cm.accept(asked.id, 1, wishes) == 0);
  CHECK(control::greeting_in(core::bytes_of(w.host.welcomes[0].options.private_data))->ece_options == 7);
}

TEST_CASE("on a RoCE face a rejection has InfiniBand's reason and the private data", "[control][cm][roce]") {
  RoceWorld w;
  SECTION("here") {
    const auto id = w.asked();
    REQUIRE(w.cm.reject(id, octets_of("no")) == 0);
    CHECK(w.refusal() == wire::MarkRefusal::its_own_wish);
    CHECK(w.host.rejects.back().second.length == 24 + 2);
  }
  SECTION("here, for ECE options") {
    const auto id = w.asked();
    REQUIRE(w.cm.reject(id, octets_of("no"), true) == 0);
    CHECK(w.refusal() == wire::MarkRefusal::other_ece);
    CHECK(control::reject_reason_in(core::bytes_of(w.host.rejects.back().second)) == 35);
  }
  SECTION("there") {
    const auto id = w.calling();
    w.cm.on_stream_event(w.heard(Kind::rejected, id,
                                 control::refusal_data(Face::roce, wire::MarkRefusal::its_own_wish, octets_of("no"))));
    const auto told = w.event();
    CHECK(told.event == RNIC_CM_REJECTED);
    CHECK(told.status == 28);
    CHECK(told.parameters.private_data_length == 148);
    CHECK(text_of(told.parameters) == "no");
    CHECK(w.state(id) == IdState::ended);
  }
  SECTION("by rnicd") {
    const auto listener = w.listening();
    auto request = w.request(listener, control::greeting_data(of_peer(), {}));
    request.cookie = 999;
    w.cm.on_stream_event(request);
    CHECK(w.refusal() == wire::MarkRefusal::nobody);
    CHECK(control::reject_reason_in(core::bytes_of(w.host.rejects.back().second)) == 8);
  }
}

TEST_CASE("on a RoCE face a call that comes to nothing is told as InfiniBand tells it", "[control][cm][roce]") {
  RoceWorld w;
  const auto id = w.calling();
  auto failed = w.heard(Kind::failed, id);
  const auto [failure, event, status] = GENERATE(
      table<StreamFailure, rnic_cm_event, int>({{StreamFailure::refused, RNIC_CM_REJECTED, 8},
                                                {StreamFailure::reset, RNIC_CM_REJECTED, 28},
                                                {StreamFailure::timed_out, RNIC_CM_UNREACHABLE, -ETIMEDOUT},
                                                {StreamFailure::unreachable, RNIC_CM_UNREACHABLE, -EHOSTUNREACH},
                                                {StreamFailure::no_resources, RNIC_CM_CONNECT_ERROR, -ENOMEM},
                                                {StreamFailure::protocol, RNIC_CM_REJECTED, 9}}));
  failed.failure = failure;
  w.cm.on_stream_event(failed);
  const auto told = w.event();
  CHECK(told.event == event);
  CHECK(told.status == status);
  CHECK(w.host.told.size() == (failure == StreamFailure::protocol ? 1 : 0));
}

TEST_CASE("a RoCE face and an iWARP face refuse each other in words", "[control][cm][roce]") {
  RoceWorld w;
  const auto listener = w.listening();
  SECTION("iWARP calls") {
    w.cm.on_stream_event(w.request_for(listener));
    CHECK(w.host.rejects.size() == 1);
    CHECK(w.host.rejects[0].second.length == 0);
    CHECK(w.host.told[0].find("as an iWARP device") != std::string::npos);
  }
  SECTION("RoCE calls an iWARP device") {
    auto request = w.request(listener, control::greeting_data(of_peer(), {}));
    request.device = 0;
    w.cm.on_stream_event(request);
    CHECK(w.refusal() == wire::MarkRefusal::other_face);
    CHECK(w.host.told[0].find("as a RoCE face") != std::string::npos);
  }
  SECTION("the call is refused") {
    const auto id = w.calling();
    const bool marked = GENERATE(true, false);
    const auto said = marked ? control::refusal_data(Face::iwarp, wire::MarkRefusal::other_face) : core::PrivateData{};
    w.cm.on_stream_event(w.heard(Kind::rejected, id, said));
    const auto told = w.event();
    CHECK(told.event == RNIC_CM_REJECTED);
    CHECK(told.status == 9);
    CHECK(w.host.told.size() == 1);
  }
  CHECK(w.silent());
}

TEST_CASE("on a RoCE face a greeting of another address than its connection's is refused", "[control][cm][roce]") {
  RoceWorld w;
  wire::Greeting other = of_peer();
  other.gid = wire::IpAddress::v4(10, 0, 0, 3);
  SECTION("in a request") {
    w.cm.on_stream_event(w.request(w.listening(), control::greeting_data(other, {})));
    CHECK(w.refusal() == wire::MarkRefusal::not_the_peer);
    CHECK(w.silent());
  }
  SECTION("in an answer") {
    const auto id = w.calling();
    w.cm.on_stream_event(w.heard(Kind::established, id, control::greeting_data(other, {})));
    const auto told = w.event();
    CHECK(told.event == RNIC_CM_REJECTED);
    CHECK(told.status == 12);
    CHECK(w.host.disconnects.size() == 1);
  }
}

TEST_CASE("on a RoCE face an end is DISCONNECTED, and TIMEWAIT_EXIT after a while", "[control][cm][roce]") {
  RoceWorld w;
  const auto id = w.answered();
  w.event();
  REQUIRE(w.cm.accept(id, 0, {}) == 0);
  CHECK(w.cm.next_deadline() == kNever);
  const Instant now{1'000'000'000};
  REQUIRE(w.cm.disconnect(id) == 0);
  CHECK(w.host.disconnects.size() == 1);
  w.cm.on_stream_event(w.heard(Kind::disconnected, id), now);
  CHECK(w.event().event == RNIC_CM_DISCONNECTED);
  CHECK(w.state(id) == IdState::ended);
  CHECK(w.cm.next_deadline() == now + control::kTimeWait);
  w.cm.on_time(now + control::kTimeWait - Duration{1});
  CHECK(w.silent());
  SECTION("the id is there") {
    w.cm.on_time(now + control::kTimeWait);
    CHECK(w.event().event == RNIC_CM_TIMEWAIT_EXIT);
  }
  SECTION("it is destroyed") {
    REQUIRE(w.cm.destroy_id(id));
    w.cm.on_time(now + control::kTimeWait);
  }
  CHECK(w.silent());
  CHECK(w.cm.next_deadline() == kNever);
}

TEST_CASE("on a RoCE face a path is known from the route on, and of each request", "[control][cm][roce]") {
  RoceWorld w;
  const auto id = w.id();
  REQUIRE(w.cm.resolve_address(id, {}, ipv4(10, 0, 0, 2, 7174)) == 0);
  w.event();
  CHECK(w.cm.query(id)->path_count == 0);
  REQUIRE(w.cm.resolve_route(id) == 0);
  w.event();
  const auto path = w.cm.query(id);
  CHECK(path->path_count == 1);
  CHECK(path->path_mtu == 4);
  CHECK(path->hop_limit == 64);
  const auto from = wire::IpAddress::v4(10, 0, 0, 1).octets(), to = wire::IpAddress::v4(10, 0, 0, 2).octets();
  CHECK(std::memcmp(path->source_gid, from.data(), 16) == 0);
  CHECK(std::memcmp(path->destination_gid, to.data(), 16) == 0);
  CHECK(w.cm.query(w.asked())->path_count == 1);
}

TEST_CASE("on a RoCE face 127.0.0.1 is met by the GID of its device", "[control][cm][roce]") {
  auto list = RoceWorld::roce_devices();
  list.erase(list.begin(), list.begin() + 3);
  CmWorld w(std::move(list));
  const auto id = w.id(1, 1);
  REQUIRE(w.cm.resolve_address(id, {}, ipv4(127, 0, 0, 1, 7174)) == 0);
  w.event();
  REQUIRE(w.cm.resolve_route(id) == 0);
  w.event();
  REQUIRE(w.cm.connect(id, RoceWorld::wishes()) == 0);
  const auto said = control::greeting_in(core::bytes_of(w.host.greetings[0].options.private_data));
  REQUIRE(said);
  CHECK(said->gid == wire::IpAddress::v4(127, 0, 2, 1));
}

TEST_CASE("on a RoCE face an id that goes unanswered rejects, and others say that they go", "[control][cm][roce]") {
  RoceWorld w;
  const auto id = w.asked();
  REQUIRE(w.cm.destroy_id(id));
  CHECK(w.host.rejects.size() == 1);
  const auto called = w.answered();
  REQUIRE(w.cm.destroy_id(called));
  CHECK(w.host.disconnects.size() == 1);
}

TEST_CASE("a mark that is no greeting, or of another face, has no greeting in it", "[control][cm][roce]") {
  const auto greeting = control::greeting_data(of_peer(), {});
  CHECK(control::greeting_in(core::bytes_of(greeting)).has_value());
  const auto refusal = control::refusal_data(Face::roce, wire::MarkRefusal::nobody, {});
  CHECK_FALSE(control::greeting_in(core::bytes_of(refusal)).has_value());
  CHECK_FALSE(control::greeting_in({}).has_value());
}
