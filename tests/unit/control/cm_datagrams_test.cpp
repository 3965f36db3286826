// The connection manager's ids for datagrams: who is asked for a queue pair's number and Q_Key, and groups.
#include <arpa/inet.h>

#include <cerrno>
#include <cstring>

#include "control/connection_manager.hpp"
#include "control/greetings.hpp"
#include "kit/catch.hpp"
#include "mpa/meeting.hpp"
#include "unit/control/fake_cm_host.hpp"

using namespace rnic;
using namespace rnic::test;
using Kind = core::StreamEvent::Kind;
using control::ConnectionManager;
using control::IdState;
using core::StreamFailure;

namespace {

constexpr std::uint32_t kUdp = 0x0111, kIpoib = 0x0002;
constexpr std::uint32_t kQkey = 0x01234567;  // RDMA_UDP_QKEY
constexpr std::uint16_t kPort = 7174, kOobPort = 26580;

Bytes octets_of(const std::string& text) { return as_bytes(text.data(), text.size()); }

// Of CmWorld's devices 2 (10.0.0.1, with a gateway) and 3 (127.0.2.1 and fd00:2::1) have a RoCE face, 0 and 1 have not.
struct DatagramWorld : CmWorld {
  static std::vector<control::CmDevice> some_roce() {
    auto list = devices();
    list[3] = device(0xA3, {cidr(127, 0, 2, 1, 24), cidr6("fd00:2::1")});
    for (const std::size_t index : {std::size_t{2}, std::size_t{3}}) {
      control::CmDevice& each = list[index];
      each.face = Face::roce;
      each.path_mtu = 5;
      each.oob_port = kOobPort;
      each.gids.push_back(each.addresses[0]);
      for (const wire::IpAddress& address : each.addresses) each.gids.push_back(address);
    }
    return list;
  }
  DatagramWorld() : CmWorld(some_roce()) {}

  std::uint32_t datagram_id(std::uint64_t user_pointer = 0x1000, std::uint32_t space = kUdp) {
    return *cm.create_id(channel, space, user_pointer, kAll);
  }
  std::uint32_t resolved(const rnic_address& to = ipv4(10, 0, 0, 2, kPort)) {
    const auto made = datagram_id();
    REQUIRE(cm.resolve_address(made, {}, to) == 0);
    REQUIRE(event().event == RNIC_CM_ADDRESS_RESOLVED);
    REQUIRE(cm.resolve_route(made) == 0);
    REQUIRE(event().event == RNIC_CM_ROUTE_RESOLVED);
    return made;
  }
  std::uint32_t asking(const std::string& data = {}) {
    const auto made = resolved();
    REQUIRE(cm.connect(made, parameters(0x123, data)) == 0);
    return made;
  }
  std::uint32_t listener(std::uint32_t backlog = 5, const rnic_address& at = ipv4(0, 0, 0, 0, kPort),
                         std::uint32_t space = kUdp) {
    const auto made = datagram_id(0x2000, space);
    REQUIRE(cm.bind(made, at) == 0);
    REQUIRE(cm.listen(made, backlog) == 0);
    return made;
  }
  core::StreamEvent inquiry(const wire::Inquiry& asked = {.port_space = kUdp, .port = kPort, .own_port = 999},
                            core::StreamId stream = {77}) {
    core::StreamEvent e = request_for(std::uint64_t{1} << 63, stream);
    e.local_port = kOobPort;
    e.private_data = control::inquiry_data(asked, octets_of("hello"));
    return e;
  }
  std::uint32_t asked() {
    cm.on_stream_event(inquiry());
    const auto told = event();
    REQUIRE(told.event == RNIC_CM_CONNECT_REQUEST);
    return told.id;
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
  std::optional<wire::MarkRefusal> refusal() {
    if (host.rejects.empty()) return std::nullopt;
    const auto mark = wire::parse_mark(core::bytes_of(host.rejects.back().second));
    return mark && mark->kind == wire::Mark::Kind::refusal ? std::optional(mark->refusal) : std::nullopt;
  }
  IdState state(std::uint32_t id) { return cm.info(id)->state; }
  std::uint64_t streams_used(std::uint32_t device = 2) const { return cm.streams(device).used(); }

  control::ConnectionManager::Answer<std::uint32_t> join(std::uint32_t id, const rnic_address& group,
                                                         std::uint32_t flags = 0, std::uint64_t uid = 0x77) {
    rnic_cm_join wanted{};
    wanted.id = id;
    wanted.flags = flags;
    wanted.uid = uid;
    wanted.group = group;
    return cm.join(wanted);
  }
  std::uint32_t bound(const rnic_address& at = ipv4(10, 0, 0, 1)) {
    const auto made = datagram_id();
    REQUIRE(cm.bind(made, at) == 0);
    return made;
  }
};

std::string text_of(const rnic_cm_parameters& p) { return reinterpret_cast<const char*>(p.private_data); }

wire::Answer answer_of_peer() {
  return {.gid = wire::IpAddress::v4(10, 0, 0, 2), .number = {0x777}, .qkey = 0x11223344};
}

bool leads_to(const rnic_cm_way& way, const wire::IpAddress& gid) {
  const auto octets = gid.octets();
  return std::memcmp(way.gid, octets.data(), sizeof way.gid) == 0;
}

}  // namespace

// ---- ids -----------------------------------------------------------------------------------------

TEST_CASE("ids for datagrams are of RoCE faces, and see no other device", "[control][cm][datagrams]") {
  DatagramWorld w;
  CHECK(w.cm.create_id(w.channel, kUdp, 1, 0x3).error() == EINVAL);
  CHECK(w.cm.create_id(w.channel, 0x0107, 1, 0xF).error() == EINVAL);
  CHECK(w.cm.create_id(w.channel, kIpoib, 1, 0xF));
  const auto id = w.datagram_id();
  CHECK(w.cm.bind(id, ipv4(127, 0, 1, 1)) == EADDRNOTAVAIL);
  CHECK(w.cm.bind(id, ipv4(127, 0, 2, 1)) == 0);
  const auto far = w.datagram_id();
  REQUIRE(w.cm.resolve_address(far, {}, ipv4(127, 0, 1, 2, kPort)) == 0);
  // By the gateway, and not by the pair.
  w.event();
  CHECK(w.cm.query(far)->node_guid == 0xA2);
}

TEST_CASE("each port space has its own ports", "[control][cm][datagrams]") {
  DatagramWorld w;
  w.listening(ipv4(0, 0, 0, 0, kPort));
  w.listener();
  w.listener(5, ipv4(0, 0, 0, 0, kPort), kIpoib);
  std::vector<std::string> shown;
  for (const control::IdInfo& each : w.cm.ids()) shown.emplace_back(control::port_spaces::name(each.port_space));
  CHECK(shown == std::vector<std::string>{"tcp", "udp", "ipoib"});
  const auto late = w.datagram_id();
  CHECK(w.cm.bind(late, ipv4(10, 0, 0, 1, kPort)) == EADDRINUSE);
}

TEST_CASE("W-INQ-01: no device listens for a listener of datagrams", "[control][cm][datagrams][W-INQ-01]") {
  DatagramWorld w;
  const auto id = w.listener();
  CHECK(w.state(id) == IdState::listening);
  CHECK(w.host.listening.empty());
  REQUIRE(w.cm.destroy_id(id));
  CHECK(w.host.unlistens == 0);
  w.listener();  // the port is free again
}

TEST_CASE("datagrams' attributes are for INIT, with rdma_cm's Q_Key", "[control][cm][datagrams]") {
  DatagramWorld w;
  const auto id = w.datagram_id();
  CHECK(w.cm.init_qp_attributes(id, 1).error() == EINVAL);  // of which device?
  const auto init = w.cm.init_qp_attributes(w.resolved(), 1);
  REQUIRE(init);
  CHECK(init->mask == (RNIC_CM_ATTRIBUTES_STATE | RNIC_CM_ATTRIBUTES_INIT | RNIC_CM_ATTRIBUTES_QKEY));
  CHECK(init->qkey == kQkey);
  CHECK(w.cm.init_qp_attributes(w.bound(), 2)->mask == RNIC_CM_ATTRIBUTES_STATE);
}

TEST_CASE("an id for datagrams that is bound to 127.0.0.1 has its device", "[control][cm][datagrams]") {
  DatagramWorld w;
  CHECK(w.cm.query(w.bound(ipv4(127, 0, 0, 1)))->node_guid == 0xA2);
}

// ---- asking --------------------------------------------------------------------------------------

TEST_CASE("W-INQ-01: connect asks at the peer's oob_port for the port that it means",
          "[control][cm][datagrams][W-INQ-01]") {
  DatagramWorld w;
  const auto id = w.asking("data");
  CHECK(w.host.connects.empty());
  REQUIRE(w.host.greetings.size() == 1);
  CHECK(w.host.greetings[0].device == 2);
  const core::ConnectOptions& said = w.host.greetings[0].options;
  CHECK(said.remote == wire::IpAddress::v4(10, 0, 0, 2));
  CHECK(said.remote_port == kOobPort);
  CHECK(said.local_port == 0);
  const Bytes data = core::bytes_of(said.private_data);
  const auto mark = wire::parse_mark(data);
  REQUIRE(mark);
  CHECK(mark->kind == wire::Mark::Kind::inquiry);
  CHECK(mark->needed == mpa::mark_capabilities(Face::roce));
  CHECK(mark->inquiry.port_space == kUdp);
  CHECK(mark->inquiry.port == kPort);
  CHECK(mark->inquiry.own_port == ntohs(w.cm.query(id)->source.port));
  CHECK(data.size() == mark->length + 4u);
  CHECK(w.state(id) == IdState::connecting);
  CHECK(w.streams_used() == 1);
  CHECK(w.silent());
  CHECK(w.cm.connect(id, CmWorld::parameters()) == EINVAL);
}

TEST_CASE("W-INQ-02: an answer is ESTABLISHED, with the way, and the stream is done",
          "[control][cm][datagrams][W-INQ-02]") {
  DatagramWorld w;
  const auto id = w.asking();
  w.cm.on_stream_event(w.heard(Kind::rejected, id, control::answer_data(answer_of_peer(), octets_of("welcome"))));
  const auto told = w.event();
  CHECK(told.event == RNIC_CM_ESTABLISHED);
  CHECK(told.status == 0);
  CHECK(told.id == id);
  CHECK(told.datagrams == 1);
  CHECK(told.parameters.qp_number == 0x777);
  CHECK(told.parameters.private_data_length == 136);
  CHECK(text_of(told.parameters) == "welcome");
  CHECK(told.way.qkey == 0x11223344);
  CHECK(told.way.gid_index == 1);
  CHECK(told.way.hop_limit == 64);
  CHECK(leads_to(told.way, wire::IpAddress::v4(10, 0, 0, 2)));
  CHECK(w.state(id) == IdState::connected);
  CHECK(w.streams_used() == 0);
  // Nothing ends with it.
  REQUIRE(w.cm.disconnect(id) == 0);
  REQUIRE(w.cm.destroy_id(id));
  CHECK(w.host.disconnects.empty());
  CHECK(w.host.abandons == 0);
}

TEST_CASE("W-INQ-03: what was refused is UNREACHABLE, with InfiniBand's status", "[control][cm][datagrams][W-INQ-03]") {
  DatagramWorld w;
  const auto id = w.asking();
  const auto [why, status] = GENERATE(table<wire::MarkRefusal, int>({{wire::MarkRefusal::its_own_wish, 2},
                                                                     {wire::MarkRefusal::nobody, 1},
                                                                     {wire::MarkRefusal::busy, 3},
                                                                     {wire::MarkRefusal::other_face, 1},
                                                                     {wire::MarkRefusal::not_able, 1}}));
  w.cm.on_stream_event(w.heard(Kind::rejected, id, control::refusal_data(Face::roce, why, octets_of("no"))));
  const auto told = w.event();
  CHECK(told.event == RNIC_CM_UNREACHABLE);
  CHECK(told.status == status);
  CHECK(told.datagrams == 1);
  CHECK(text_of(told.parameters) == "no");
  CHECK(w.state(id) == IdState::ended);
  CHECK(w.streams_used() == 0);
}

TEST_CASE("W-INQ-06: what comes to nothing is UNREACHABLE, and -ETIMEDOUT where nobody answers",
          "[control][cm][datagrams][W-INQ-06]") {
  DatagramWorld w;
  const auto id = w.asking();
  const auto [failure, status] = GENERATE(table<StreamFailure, int>({{StreamFailure::timed_out, -ETIMEDOUT},
                                                                     {StreamFailure::unreachable, -EHOSTUNREACH},
                                                                     {StreamFailure::refused, -ECONNREFUSED},
                                                                     {StreamFailure::reset, -ECONNRESET},
                                                                     {StreamFailure::no_resources, -ENOMEM},
                                                                     {StreamFailure::protocol, 5}}));
  auto failed = w.heard(Kind::failed, id);
  failed.failure = failure;
  w.cm.on_stream_event(failed);
  const auto told = w.event();
  CHECK(told.event == RNIC_CM_UNREACHABLE);
  CHECK(told.status == status);
  CHECK(w.state(id) == IdState::ended);
  CHECK(w.streams_used() == 0);
  w.cm.on_stream_event(failed);
  CHECK(w.silent());
}

TEST_CASE("W-INQ-04: an answer is believed of nobody else's queue pair, and of no connection",
          "[control][cm][datagrams][W-INQ-04]") {
  DatagramWorld w;
  const auto id = w.asking();
  SECTION("another GID") {
    wire::Answer other = answer_of_peer();
    other.gid = wire::IpAddress::v4(10, 0, 0, 3);
    w.cm.on_stream_event(w.heard(Kind::rejected, id, control::answer_data(other, {})));
    CHECK(w.event().status == 1);
  }
  SECTION("of an iWARP face") {
    auto data = control::answer_data(answer_of_peer(), {});
    data.octets[15] = std::byte{1};  // of the capabilities
    w.cm.on_stream_event(w.heard(Kind::rejected, id, data));
    CHECK(w.event().status == 5);
  }
  SECTION("no mark") {
    w.cm.on_stream_event(w.heard(Kind::rejected, id));
    CHECK(w.event().status == 5);
  }
  SECTION("a greeting") {
    w.cm.on_stream_event(w.heard(Kind::rejected, id, control::greeting_data({.gid = answer_of_peer().gid}, {})));
    CHECK(w.event().status == 5);
  }
  SECTION("a connection") {
    w.cm.on_stream_event(w.heard(Kind::established, id, control::answer_data(answer_of_peer(), {})));
    CHECK(w.event().status == 5);
    CHECK(w.host.disconnects.size() == 1);
    CHECK(w.host.abrupt == 1);
  }
  CHECK(w.state(id) == IdState::ended);
  CHECK(w.silent());
}

TEST_CASE("W-INQ-07: private data are as long as InfiniBand's", "[control][cm][datagrams][W-INQ-07]") {
  DatagramWorld w;
  const auto id = w.resolved();
  CHECK(w.cm.connect(id, CmWorld::parameters(5, std::string(181, 'x'))) == EINVAL);
  CHECK(w.cm.connect(id, CmWorld::parameters(5, std::string(180, 'x'))) == 0);
  w.listener();
  const auto asked = w.asked();
  CHECK(w.cm.accept(asked, 1, CmWorld::parameters(5, std::string(137, 'x'))) == EINVAL);
  CHECK(w.cm.accept(asked, 1, CmWorld::parameters(5, std::string(136, 'x'))) == 0);
  const auto other = w.asked();
  CHECK(w.cm.reject(other, octets_of(std::string(137, 'x'))) == EINVAL);
  CHECK(w.cm.reject(other, octets_of(std::string(136, 'x'))) == 0);
}

TEST_CASE("an inquiry that cannot leave says so, and leaves nothing", "[control][cm][datagrams]") {
  DatagramWorld w;
  const auto id = w.resolved();
  const auto [error, expected] = GENERATE(table<core::StreamError, int>({{core::StreamError::no_route, ENETUNREACH},
                                                                         {core::StreamError::no_ports, EADDRNOTAVAIL},
                                                                         {core::StreamError::no_resources, ENOMEM}}));
  w.host.connect_errors = {error};
  CHECK(w.cm.connect(id, CmWorld::parameters()) == expected);
  CHECK(w.state(id) == IdState::route_resolved);
  CHECK(w.streams_used() == 0);
  CHECK(w.cm.connect(id, {}) == EINVAL);  // no parameters
}

// ---- being asked ---------------------------------------------------------------------------------

TEST_CASE("W-INQ-02: a listener is told who asks, and what it accepts is said in a rejection",
          "[control][cm][datagrams][W-INQ-02]") {
  DatagramWorld w;
  const auto listener = w.listener();
  w.cm.on_stream_event(w.inquiry());
  const auto told = w.event();
  CHECK(told.event == RNIC_CM_CONNECT_REQUEST);
  CHECK(told.uid == 0x2000);
  CHECK(told.listener == listener);
  CHECK(told.id != listener);
  CHECK(told.datagrams == 1);
  CHECK(told.way.hop_limit == 0);
  CHECK(told.parameters.private_data_length == 180);
  CHECK(text_of(told.parameters) == "hello");
  const auto query = w.cm.query(told.id);
  CHECK(ntohs(query->source.port) == kPort);
  CHECK(ntohs(query->destination.port) == 999);
  CHECK(query->node_guid == 0xA2);
  CHECK(query->path_count == 1);
  CHECK(w.streams_used() == 1);

  const std::uint32_t qkey = GENERATE(0u, 0x55u);
  REQUIRE(w.cm.accept(told.id, 0x99, CmWorld::parameters(0x123, "welcome"), qkey) == 0);
  REQUIRE(w.host.answers.size() == 1);
  CHECK(w.host.answers[0].first == FakeCmHost::StreamOf{2, {77}});
  const auto said = control::answer_in(core::bytes_of(w.host.answers[0].second));
  REQUIRE(said);
  CHECK(said->gid == wire::IpAddress::v4(10, 0, 0, 1));
  CHECK(said->number == QpNumber{0x123});
  CHECK(said->qkey == (qkey != 0 ? qkey : kQkey));
  CHECK(w.state(told.id) == IdState::connected);
  CHECK(w.streams_used() == 0);
  CHECK(w.silent());  // no ESTABLISHED, as over InfiniBand
  CHECK(w.cm.accept(told.id, 0x99, CmWorld::parameters()) == EINVAL);
  CHECK(w.cm.reject(told.id, {}) == EINVAL);
}

TEST_CASE("an answer to one who has gone is no error, and one that finds no room may be tried again",
          "[control][cm][datagrams]") {
  DatagramWorld w;
  w.listener();
  const auto id = w.asked();
  SECTION("gone") {
    w.host.accept_errors = {core::StreamError::unknown};
    CHECK(w.cm.accept(id, 1, CmWorld::parameters()) == 0);
    CHECK(w.state(id) == IdState::connected);
  }
  SECTION("no room") {
    w.host.accept_errors = {core::StreamError::no_resources};
    CHECK(w.cm.accept(id, 1, CmWorld::parameters()) == ENOMEM);
    CHECK(w.state(id) == IdState::requested);
    CHECK(w.cm.accept(id, 1, CmWorld::parameters()) == 0);
  }
}

TEST_CASE("W-INQ-03: a listener's refusal has its private data", "[control][cm][datagrams][W-INQ-03]") {
  DatagramWorld w;
  w.listener();
  const auto id = w.asked();
  REQUIRE(w.cm.reject(id, octets_of("no")) == 0);
  CHECK(w.refusal() == wire::MarkRefusal::its_own_wish);
  CHECK(text_of([&] {
          rnic_cm_parameters p{};
          control::fill_private_data(p, control::behind_mark(core::bytes_of(w.host.rejects[0].second)), 8);
          return p;
        }()) == "no");
  CHECK(w.state(id) == IdState::ended);
  CHECK(w.streams_used() == 0);
}

TEST_CASE("W-INQ-03: nobody is told of what is asked of another port, port space or address",
          "[control][cm][datagrams][W-INQ-03]") {
  DatagramWorld w;
  wire::Inquiry asked{.port_space = kUdp, .port = kPort, .own_port = 1};
  SECTION("port") {
    w.listener();
    asked.port = kPort + 1;
  }
  SECTION("port space") {
    w.listener();
    asked.port_space = kIpoib;
  }
  SECTION("that of connections") {
    w.listening(ipv4(0, 0, 0, 0, kPort));
    asked.port_space = 0x0106;
  }
  SECTION("address") { w.listener(5, ipv4(10, 9, 0, 1, kPort)); }
  SECTION("version of IP") { w.listener(5, ipv6("::1", kPort)); }
  SECTION("bound, and does not listen") { REQUIRE(w.cm.bind(w.datagram_id(), ipv4(0, 0, 0, 0, kPort)) == 0); }
  SECTION("on another device") { w.listener(5, ipv4(127, 0, 2, 1, kPort)); }
  w.cm.on_stream_event(w.inquiry(asked));
  CHECK(w.refusal() == std::nullopt);
  CHECK(w.cm.next_deadline() == w.host.time + ConnectionManager::kEarlyInquiryKept);
  w.cm.on_time(w.cm.next_deadline());
  CHECK(w.silent());
  CHECK(w.refusal() == wire::MarkRefusal::nobody);
  CHECK(w.streams_used() == 0);
  CHECK(w.cm.next_deadline() == kNever);
}

TEST_CASE("W-INQ-03: who asks before anybody listens waits for who does, for a second",
          "[control][cm][datagrams][W-INQ-03]") {
  DatagramWorld w;
  w.cm.on_stream_event(w.inquiry({.port_space = kUdp, .port = kPort + 1, .own_port = 1}, {76}));
  w.cm.on_stream_event(w.inquiry());
  CHECK(w.silent());
  SECTION("he comes") {
    w.host.time = w.host.time + milliseconds(999);
    w.listener();
    const auto told = w.event();
    CHECK(told.event == RNIC_CM_CONNECT_REQUEST);
    CHECK(text_of(told.parameters) == "hello");
    CHECK(w.host.rejects.empty());
    CHECK(w.streams_used() == 1);
    w.cm.on_time(w.host.time + milliseconds(1));
    CHECK(w.host.rejects.size() == 1);  // the other
  }
  SECTION("he comes too late") {
    w.cm.on_time(w.host.time + ConnectionManager::kEarlyInquiryKept);
    CHECK(w.host.rejects.size() == 2);
    w.listener();
    CHECK(w.silent());
  }
  SECTION("the caller goes") {
    core::StreamEvent gone = w.inquiry();
    gone.kind = Kind::withdrawn;
    w.cm.on_stream_event(gone);
    CHECK(w.host.rejects.size() == 1);
    w.listener();
    CHECK(w.silent());
  }
}

TEST_CASE("W-INQ-05: those that wait for who is to listen are few, and fewer of one caller's",
          "[control][cm][datagrams][W-INQ-05]") {
  DatagramWorld w;
  std::uint32_t number = 100;
  for (unsigned caller = 0; caller < 5; ++caller)
    for (std::size_t i = 0; i < ConnectionManager::kEarlyInquiriesOfCaller + 1; ++i) {
      core::StreamEvent asks = w.inquiry({.port_space = kUdp, .port = kPort, .own_port = 1}, {++number});
      asks.remote = wire::IpAddress::v4(10, 0, 1, static_cast<std::uint8_t>(caller));
      w.cm.on_stream_event(asks);
    }
  // One too many of each of four, and all of the fifth.
  CHECK(w.host.rejects.size() == 4 + ConnectionManager::kEarlyInquiriesOfCaller + 1);
  CHECK(w.refusal() == wire::MarkRefusal::nobody);
  w.cm.on_time(w.cm.next_deadline());
  CHECK(w.host.rejects.size() == 5 * (ConnectionManager::kEarlyInquiriesOfCaller + 1));
}

TEST_CASE("a listener on :: is asked by IPv4 too, unless for IPv6 alone", "[control][cm][datagrams]") {
  DatagramWorld w;
  const bool alone = GENERATE(false, true);
  const auto id = w.datagram_id();
  const std::int32_t on = alone ? 1 : 0;
  REQUIRE(w.cm.set_option(id, 0, 2, as_bytes(&on, sizeof on)) == 0);
  REQUIRE(w.cm.bind(id, ipv6("::", kPort)) == 0);
  REQUIRE(w.cm.listen(id, 5) == 0);
  w.cm.on_stream_event(w.inquiry());
  CHECK(w.silent() == alone);
}

TEST_CASE("W-INQ-08: an iWARP face answers no inquiry, and says why", "[control][cm][datagrams][W-INQ-08]") {
  DatagramWorld w;
  w.listener();
  auto asked = w.inquiry();
  SECTION("it is asked") {
    asked.device = 0;
    w.cm.on_stream_event(asked);
    CHECK(w.host.told.size() == 1);
  }
  SECTION("it asks") {
    asked.private_data.octets[15] = std::byte{1};
    w.cm.on_stream_event(asked);
  }
  CHECK(w.refusal() == wire::MarkRefusal::other_face);
  CHECK(w.silent());
}

TEST_CASE("W-INQ-05: of a listener as many wait as its backlog, and answers make room",
          "[control][cm][datagrams][W-INQ-05]") {
  DatagramWorld w;
  const auto [backlog, most] = GENERATE(table<std::uint32_t, std::uint32_t>({{1, 1}, {3, 3}, {0, 128}, {1000, 128}}));
  w.listener(backlog);
  std::vector<std::uint32_t> ids;
  for (std::uint32_t i = 0; i < most; ++i) ids.push_back(w.asked());
  w.cm.on_stream_event(w.inquiry());
  CHECK(w.silent());
  CHECK(w.refusal() == wire::MarkRefusal::busy);
  const int how = GENERATE(0, 1, 2);
  if (how == 0) REQUIRE(w.cm.accept(ids[0], 1, CmWorld::parameters()) == 0);
  if (how == 1) REQUIRE(w.cm.reject(ids[0], {}) == 0);
  if (how == 2) REQUIRE(w.cm.destroy_id(ids[0]));
  w.asked();
  w.cm.on_stream_event(w.inquiry());
  CHECK(w.silent());
}

TEST_CASE("W-INQ-05: an inquiry whose caller has gone leaves its place when the listener has heard of it",
          "[control][cm][datagrams][W-INQ-05]") {
  DatagramWorld w;
  w.listener(1);
  const auto goes = [&](core::StreamId stream) {
    auto gone = w.inquiry({}, stream);
    gone.kind = Kind::withdrawn;
    gone.private_data.length = 0;
    w.cm.on_stream_event(gone);
  };
  const auto may_come = [&](core::StreamId stream) {
    const std::size_t refused = w.host.rejects.size();
    w.cm.on_stream_event(w.inquiry({.port_space = kUdp, .port = kPort, .own_port = 999}, stream));
    return w.host.rejects.size() == refused;
  };
  REQUIRE(may_come({77}));
  const bool heard = GENERATE(true, false);
  rnic_cm_get_event_reply told{};
  if (heard) told = w.event();
  goes({78});  // of somebody else
  CHECK(w.host.rejects.empty());
  CHECK(w.streams_used() == 1);
  goes({77});
  CHECK(w.host.last_rejects == control::Rejects::gone);
  CHECK(w.streams_used() == 0);
  goes({77});
  CHECK(w.host.rejects.size() == 1);
  if (!heard) {
    // Its event has been told of by an octet: it stays, and nobody comes for it.
    CHECK_FALSE(may_come({79}));
    told = w.event();
  }
  CHECK(told.event == RNIC_CM_CONNECT_REQUEST);
  CHECK(w.host.counts[w.channel] == 0);
  CHECK(may_come({80}));
  CHECK_FALSE(may_come({81}));
  const auto other = w.event().id;
  // Nobody hears what the application says, and it gives no second place.
  const std::size_t said = w.host.rejects.size();
  const int how = GENERATE(0, 1, 2, 3);
  if (how == 0) CHECK(w.cm.accept(told.id, 1, CmWorld::parameters()) == 0);
  if (how == 1) CHECK(w.cm.reject(told.id, {}) == 0);
  if (how != 3) REQUIRE(w.cm.destroy_id(told.id));
  CHECK(w.host.answers.empty());
  CHECK(w.host.rejects.size() == said);
  CHECK(w.host.abandons == 0);
  CHECK_FALSE(may_come({82}));
  REQUIRE(w.cm.accept(other, 1, CmWorld::parameters()) == 0);
  CHECK(may_come({83}));
}

TEST_CASE("W-INQ-05: what has gone leaves a device's places, if the listener never looks",
          "[control][cm][datagrams][W-INQ-05]") {
  DatagramWorld w;
  std::uint64_t stream = 1000;
  for (std::uint16_t port = 1; port <= 16; ++port) {
    w.listener(0, ipv4(0, 0, 0, 0, port));
    for (int i = 0; i < 128; ++i) {
      auto asked = w.inquiry({.port_space = kUdp, .port = port, .own_port = 1}, {++stream});
      w.cm.on_stream_event(asked);
      asked.kind = Kind::withdrawn;
      w.cm.on_stream_event(asked);
    }
  }
  CHECK(w.host.counts[w.channel] == 16 * 128);
  CHECK(w.streams_used() == 0);
  w.listener(1);
  w.cm.on_stream_event(w.inquiry());
  CHECK(w.host.counts[w.channel] == 16 * 128 + 1);
}

TEST_CASE("W-INQ-05: one process's listeners leave inquiries for others'", "[control][cm][datagrams][W-INQ-05]") {
  DatagramWorld w;
  const auto mine = w.cm.open_channel(1), theirs = w.cm.open_channel(2);
  const auto listens = [&](std::uint32_t channel, std::uint16_t port) {
    const auto id = *w.cm.create_id(channel, kUdp, 1, CmWorld::kAll);
    REQUIRE(w.cm.bind(id, ipv4(0, 0, 0, 0, port)) == 0);
    REQUIRE(w.cm.listen(id, 0) == 0);
  };
  const auto ask = [&](std::uint16_t port) {
    w.cm.on_stream_event(w.inquiry({.port_space = kUdp, .port = port, .own_port = 1}));
  };
  for (std::uint16_t port = 1; port <= 8; ++port) listens(mine, port);
  listens(theirs, 100);
  for (int i = 0; i < 128; ++i)
    for (std::uint16_t port = 1; port <= 8; ++port) ask(port);
  const auto waiting = [&](std::uint32_t channel) {
    int count = 0;
    while (w.cm.get_event(channel)) ++count;
    return count;
  };
  CHECK(waiting(mine) == 448);  // seven eighths of 512
  ask(100);
  CHECK(waiting(theirs) == 1);
}

TEST_CASE("ids for datagrams may be destroyed in every state, and leave nothing", "[control][cm][datagrams]") {
  const bool all = GENERATE(false, true);
  DatagramWorld w;
  std::uint32_t id = 0;
  std::size_t rejected = 0, disconnected = 0;
  SECTION("idle") { id = w.datagram_id(); }
  SECTION("bound") { id = w.bound(); }
  SECTION("resolved") { id = w.resolved(); }
  SECTION("asking") {
    id = w.asking();
    disconnected = 1;
  }
  SECTION("answered") {
    id = w.asking();
    w.cm.on_stream_event(w.heard(Kind::rejected, id, control::answer_data(answer_of_peer(), {})));
  }
  SECTION("refused") {
    id = w.asking();
    w.cm.on_stream_event(w.heard(Kind::rejected, id));
  }
  SECTION("asked") {
    w.listener();
    id = w.asked();
    rejected = 1;
  }
  SECTION("has answered") {
    w.listener();
    id = w.asked();
    REQUIRE(w.cm.accept(id, 1, CmWorld::parameters()) == 0);
  }
  SECTION("listening, with one that is asked and nobody has heard of") {
    id = w.listener();
    w.cm.on_stream_event(w.inquiry());
    rejected = 1;
  }
  SECTION("in a group") {
    id = w.bound();
    REQUIRE(w.join(id, ipv4(239, 1, 1, 1)));
  }
  if (all)
    w.cm.close_channel(w.channel);
  else
    REQUIRE(w.cm.destroy_id(id));
  CHECK(w.host.rejects.size() == rejected);
  CHECK(w.host.disconnects.size() == disconnected);
  CHECK(w.streams_used() == 0);
  CHECK(w.streams_used(3) == 0);
  // News that come late.
  w.cm.on_stream_event(w.heard(Kind::rejected, id, control::answer_data(answer_of_peer(), {})));
  if (!all) CHECK(w.silent());
}

TEST_CASE("a listener that goes leaves those that were told of, and their answers count for nobody else",
          "[control][cm][datagrams]") {
  DatagramWorld w;
  const auto first = w.listener(1);
  const auto id = w.asked();
  REQUIRE(w.cm.destroy_id(first));
  w.listener(1);
  w.asked();
  REQUIRE(w.cm.accept(id, 1, CmWorld::parameters()) == 0);
  w.cm.on_stream_event(w.inquiry());
  CHECK(w.refusal() == wire::MarkRefusal::busy);
}

// ---- groups --------------------------------------------------------------------------------------

TEST_CASE("a group is reached by the device that an id is bound to, else by the one with a route there",
          "[control][cm][datagrams]") {
  DatagramWorld w;
  const auto guid = [&](std::uint32_t id, const rnic_address& group) {
    REQUIRE(w.cm.resolve_address(id, {}, group) == 0);
    return w.event().event == RNIC_CM_ADDRESS_RESOLVED ? w.cm.query(id)->node_guid : 0;
  };
  CHECK(guid(w.datagram_id(), ipv4(239, 1, 1, 1)) == 0xA2);  // which has a gateway
  CHECK(guid(w.datagram_id(), ipv6("ff05::1")) == 0xA3);     // which has an address of IPv6
  CHECK(guid(w.bound(ipv4(127, 0, 2, 1)), ipv4(239, 1, 1, 1)) == 0xA3);
  CHECK(guid(w.bound(ipv4(10, 0, 0, 1)), ipv6("ff05::1")) == 0);
  CHECK(w.cm.connect(w.resolved(ipv4(239, 1, 1, 1)), CmWorld::parameters()) == EINVAL);  // nobody is asked there
}

TEST_CASE("who joins a group hears the way there", "[control][cm][datagrams]") {
  DatagramWorld w;
  const std::uint32_t flags = GENERATE(0u, RNIC_CM_SEND_ONLY);
  const auto id = w.bound();
  const auto membership = w.join(id, ipv4(239, 1, 2, 3), flags, 0xABC);
  REQUIRE(membership);
  CHECK(w.cm.member(*membership) == id);
  const auto told = w.event();
  CHECK(told.event == RNIC_CM_MULTICAST_JOIN);
  CHECK(told.status == 0);
  CHECK(told.uid == 0xABC);
  CHECK(told.id == id);
  CHECK(told.datagrams == 1);
  CHECK(told.parameters.qp_number == 0xFFFFFF);
  CHECK(told.way.qkey == kQkey);
  CHECK(told.way.gid_index == 1);
  CHECK(leads_to(told.way, wire::IpAddress::v4(239, 1, 2, 3)));
}

TEST_CASE("what cannot be is told as MULTICAST_ERROR, or refused", "[control][cm][datagrams]") {
  DatagramWorld w;
  const auto id = w.bound();
  CHECK(w.join(w.datagram_id(), ipv4(239, 1, 1, 1)).error() == EINVAL);  // on which device?
  CHECK(w.join(w.route_resolved(), ipv4(239, 1, 1, 1)).error() == EINVAL);
  while (!w.silent()) {
  }
  CHECK(w.join(id, ipv4(10, 0, 0, 2)).error() == EINVAL);
  CHECK(w.join(id, ipv4(239, 1, 1, 1), 2).error() == EINVAL);
  CHECK(w.join(id, {}).error() == EINVAL);
  CHECK(w.silent());
  REQUIRE(w.join(id, ipv6("ff05::1")));  // it has an address of IPv4
  const auto told = w.event();
  CHECK(told.event == RNIC_CM_MULTICAST_ERROR);
  CHECK(told.status == -EADDRNOTAVAIL);
  CHECK(told.uid == 0x77);
}

TEST_CASE("an id is in so many groups, and may leave them", "[control][cm][datagrams]") {
  DatagramWorld w;
  const auto id = w.bound();
  const auto first = w.join(id, ipv4(239, 1, 1, 1));
  for (std::uint8_t i = 1; i < 64; ++i) REQUIRE(w.join(id, ipv4(239, 1, 1, i)));
  CHECK(w.join(id, ipv4(239, 1, 2, 1)).error() == ENOMEM);
  w.event();
  const auto left = w.cm.leave(*first);
  REQUIRE(left);
  CHECK(left->id == id);
  CHECK(left->events_reported == 1);
  CHECK(left->purged == 0);
  CHECK_FALSE(w.cm.member(*first));
  CHECK_FALSE(w.cm.leave(*first));
  const auto again = w.join(id, ipv4(239, 1, 2, 1));
  REQUIRE(again);
  // Nobody has heard of it.
  const auto unheard = w.cm.leave(*again);
  CHECK(unheard->events_reported == 0);
  CHECK(unheard->purged == 1);
  CHECK(w.cm.was_told_after(id, w.host.time - seconds(1)));
  for (int i = 0; i < 63; ++i) CHECK(w.event().event == RNIC_CM_MULTICAST_JOIN);
  CHECK_FALSE(w.cm.was_told_after(id, w.host.time - seconds(1)));  // no event waits any more
  CHECK(w.silent());
  const auto gone = w.cm.destroy_id(id);
  REQUIRE(gone);
  CHECK(gone->events_reported == 64);
}
