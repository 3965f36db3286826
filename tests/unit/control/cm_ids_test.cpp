// The connection manager: ids, their channels and shares, and what is asked of them.
#include "control/connection_manager.hpp"

#include <cerrno>
#include <cstring>
#include <set>

#include "kit/catch.hpp"
#include "unit/control/fake_cm_host.hpp"

using namespace rnic;
using namespace rnic::test;
using Kind = core::StreamEvent::Kind;

// ---- channels and counts ----------------------------------------------------------------------

TEST_CASE("destroying an id tells how many events were reported, and purges the others", "[control][cm]") {
  CmWorld w;
  const auto id = w.route_resolved();  // two reported
  w.cm.connect(id, CmWorld::parameters());
  w.cm.on_stream_event(w.stream_event(Kind::established, id));
  const auto gone = w.cm.destroy_id(id);
  REQUIRE(gone);
  CHECK(gone->events_reported == 2);
  CHECK(gone->purged == 1);
  CHECK(w.silent());
}

TEST_CASE("when an id was told something last is known until all of that is fetched", "[control][cm]") {
  CmWorld w;
  const auto other = w.id();
  const auto id = w.id();
  w.host.time = Instant{100};
  CHECK_FALSE(w.cm.was_told_after(id, Instant{0}));
  w.cm.resolve_address(id, {}, ipv4(10, 0, 0, 2, 1));
  CHECK(w.cm.was_told_after(id, Instant{99}));
  CHECK_FALSE(w.cm.was_told_after(id, Instant{100}));
  w.host.time = Instant{200};
  w.cm.resolve_route(id);
  CHECK(w.cm.was_told_after(id, Instant{199}));
  w.host.time = Instant{300};
  w.cm.resolve_address(other, {}, ipv4(10, 0, 0, 2, 1));
  CHECK_FALSE(w.cm.was_told_after(id, Instant{200}));  // that was another
  REQUIRE(w.cm.get_event(w.channel));
  CHECK(w.cm.was_told_after(id, Instant{199}));
  SECTION("as fetched from its channel") {}
  SECTION("or from another that it has gone to") {
    const auto there = w.cm.open_channel(1);
    REQUIRE(w.cm.migrate_id(id, there));
    CHECK(w.cm.was_told_after(id, Instant{199}));
    REQUIRE(w.cm.get_event(there));
  }
  while (w.cm.get_event(w.channel)) {
  }
  CHECK_FALSE(w.cm.was_told_after(id, Instant{0}));
  CHECK_FALSE(w.cm.was_told_after(other, Instant{0}));
  CHECK_FALSE(w.cm.was_told_after(id + 100, Instant{0}));
}

TEST_CASE("a channel without events answers EAGAIN", "[control][cm]") {
  CmWorld w;
  const auto none = w.cm.get_event(w.channel);
  REQUIRE_FALSE(none);
  CHECK(none.error() == EAGAIN);
  CHECK(w.cm.get_event(w.channel + 1).error() == EINVAL);
}

TEST_CASE("events are lent in order, and what is given back is the next again", "[control][cm]") {
  CmWorld w;
  const auto first = w.id(), second = w.id();
  for (const auto id : {first, second}) w.cm.resolve_address(id, {}, ipv4(10, 0, 0, 2, 1));
  for (const auto id : {first, second}) w.cm.resolve_route(id);
  const auto told = w.cm.get_events(w.channel, 1, 3);
  REQUIRE(told);
  REQUIRE(told->size() == 3);
  CHECK((*told)[0].event.id == first);
  CHECK((*told)[1].event.id == second);
  CHECK((*told)[2].event.id == first);
  CHECK(w.cm.give_back_events(w.channel, 1, 3) == EINVAL);  // the first was told
  CHECK(w.cm.give_back_events(w.channel, 2, 1) == EINVAL);
  REQUIRE(w.cm.give_back_events(w.channel, 1, 2) == 0);
  CHECK(w.cm.give_back_events(w.channel, 1, 1) == EINVAL);
  const auto again = w.cm.get_events(w.channel, 1, 11);
  REQUIRE(again);
  REQUIRE(again->size() == 3);
  CHECK((*again)[0].event.id == second);
  CHECK((*again)[1].event.id == first);
  CHECK((*again)[2].event.id == second);
  REQUIRE(w.cm.give_back_events(w.channel, 1, 1) == 0);
  const auto gone = w.cm.destroy_id(second);
  REQUIRE(gone);
  CHECK(gone->events_reported == 1);
  CHECK(gone->purged == 1);
  CHECK(w.cm.destroy_id(first)->events_reported == 2);
  CHECK(w.silent());
}

TEST_CASE("events are lent to one at a time, until he asks for others", "[control][cm]") {
  CmWorld w;
  for (int i = 0; i < 5; ++i) w.cm.resolve_address(w.id(), {}, ipv4(10, 0, 0, 2, 1));
  const auto id = w.id();
  w.cm.resolve_address(id, {}, ipv4(10, 0, 0, 2, 1));
  CHECK(w.cm.get_events(w.channel, 1, 2)->size() == 2);
  CHECK(w.cm.get_events(w.channel, 2, 4)->size() == 1);
  CHECK(w.cm.give_back_events(w.channel, 2, 1) == EINVAL);
  CHECK(w.cm.get_events(w.channel, 1, 1)->size() == 1);  // what he had is told by now
  CHECK(w.cm.give_back_events(w.channel, 1, 1) == EINVAL);
  CHECK(w.cm.get_events(w.channel, 2, 4)->size() == 2);
  CHECK(w.cm.give_back_events(w.channel, 2, 1) == 0);
  CHECK(w.cm.destroy_id(id)->purged == 1);
  CHECK(w.cm.get_events(w.channel, 1, 2).error() == EAGAIN);
  CHECK(w.cm.get_events(w.channel + 1, 1, 2).error() == EINVAL);
  CHECK(w.cm.give_back_events(w.channel + 1, 1, 0) == EINVAL);
}

TEST_CASE("a request that was lent and given back goes with its listener", "[control][cm]") {
  CmWorld w;
  const auto listener = w.listening();
  for (int i = 0; i < 2; ++i) w.cm.on_stream_event(w.request_for(listener));
  const auto told = w.cm.get_events(w.channel, 1, 2);
  REQUIRE(told);
  REQUIRE(told->size() == 2);
  const std::uint32_t known = (*told)[0].event.id, unknown = (*told)[1].event.id;
  CHECK(w.cm.channel_of(unknown) == w.channel);
  REQUIRE(w.cm.give_back_events(w.channel, 1, 1) == 0);
  CHECK_FALSE(w.cm.channel_of(unknown));
  const auto gone = w.cm.destroy_id(listener);
  CHECK(gone->events_reported == 1);
  CHECK(gone->purged == 1);
  CHECK(w.host.rejects.size() == 1);
  CHECK(w.cm.channel_of(known) == w.channel);
  CHECK(w.cm.id_count() == 1);
}

TEST_CASE("what is asked next of an id is told with its event", "[control][cm]") {
  CmWorld w;
  const auto id = w.id();
  w.cm.resolve_address(id, {}, ipv4(10, 0, 0, 2, 7174));
  w.cm.resolve_route(id);
  const auto told = w.cm.get_events(w.channel, 1, 2);
  REQUIRE(told);
  REQUIRE(told->size() == 2);
  const auto asked = w.cm.query(id);
  REQUIRE(asked);
  CHECK(asked->node_guid == 0xA2);
  CHECK(std::memcmp(&(*told)[0].about, &*asked, sizeof *asked) == 0);
  CHECK((*told)[1].about.node_guid == 0);
}

TEST_CASE("an id migrates with its waiting events, and their counts", "[control][cm]") {
  CmWorld w;
  const auto other = w.id();
  w.cm.resolve_address(other, {}, ipv4(10, 0, 0, 2, 1));
  const auto id = w.route_resolved();
  w.cm.connect(id, CmWorld::parameters());
  // route_resolved() took two events, of which the first was the other id's.
  const auto to = w.cm.open_channel();
  const auto moved = w.cm.migrate_id(id, to);
  REQUIRE(moved);
  CHECK(moved->old_channel == w.channel);
  CHECK(moved->events_reported == 1);
  CHECK(moved->purged == 1);
  CHECK(w.host.counts[to] == 1);
  CHECK(w.silent());
  CHECK(w.cm.get_event(to)->event == RNIC_CM_ROUTE_RESOLVED);
  CHECK(w.cm.channel_of(id) == to);
  CHECK(w.cm.migrate_id(id, to)->purged == 0);
}

TEST_CASE("a channel ends with its ids", "[control][cm]") {
  CmWorld w;
  const auto listener = w.listening();
  w.cm.on_stream_event(w.request_for(listener));
  const auto id = w.connecting();
  w.cm.on_stream_event(w.stream_event(Kind::established, id));
  w.cm.close_channel(w.channel);
  CHECK(w.cm.id_count() == 0);
  CHECK(w.host.listening.empty());
  CHECK(w.host.rejects.size() == 1);
  CHECK(w.host.disconnects.size() == 1);
  CHECK(w.host.abrupt == 1);
  CHECK_FALSE(w.cm.has_channel(w.channel));
}

TEST_CASE("a process has all ephemeral ports but an eighth, another finds some, and all come back", "[control][cm]") {
  CmWorld w;
  const auto other = w.cm.open_channel(9);
  std::uint32_t taken = 0;
  int error = 0;
  while ((error = w.cm.bind(w.id(), ipv4(0, 0, 0, 0, 0))) == 0) ++taken;
  CHECK(error == ENOMEM);
  CHECK(taken == control::PortSpace::kEphemeralCount / 8 * 7);
  const auto late = *w.cm.create_id(other, 0x0106, 1, CmWorld::kAll);
  CHECK(w.cm.bind(late, ipv4(0, 0, 0, 0, 0)) == 0);
  // The same by number; and those below are counted by themselves.
  CHECK(w.cm.bind(w.id(), ipv4(0, 0, 0, 0, 40'000)) == ENOMEM);
  CHECK(w.cm.bind(w.id(), ipv4(0, 0, 0, 0, 7174)) == 0);
  w.cm.close_channel(w.channel);
  CHECK(w.cm.ports(0).used() == 1);
  CHECK(w.cm.ports(7174).used() == 0);
  REQUIRE(w.cm.destroy_id(late));
  CHECK(w.cm.ports(0).used() == 0);
}

TEST_CASE("a process has a share of a device's connections, whoever called", "[control][cm]") {
  auto devices = CmWorld::devices();
  for (auto& device : devices) device.streams_max = 64;
  CmWorld w(devices);  // 56 are shared out, and one alone may have 49
  const auto caller = w.route_resolved();
  const auto listener = w.listening();
  for (std::uint64_t i = 0; i < 60; ++i) w.cm.on_stream_event(w.request_for(listener, {1000 + i}));
  CHECK(w.host.rejects.size() == 11);
  CHECK(w.host.last_rejects == control::Rejects::too_many_streams);
  CHECK(w.cm.streams(2).used() == 49);
  // Its own call is one too many as well, until one has ended.
  CHECK(w.cm.connect(caller, w.parameters()) == ENOMEM);
  std::vector<std::uint32_t> requests;
  for (int i = 0; i < 49; ++i) requests.push_back(w.event().id);
  REQUIRE(w.cm.reject(requests[0], {}) == 0);
  CHECK(w.cm.connect(caller, w.parameters()) == 0);
  CHECK(w.cm.streams(2).used() == 49);
  // And another process finds some.
  const auto other = w.cm.open_channel(9);
  const auto theirs = *w.cm.create_id(other, 0x0106, 1, CmWorld::kAll);
  REQUIRE(w.cm.resolve_address(theirs, {}, ipv4(10, 0, 0, 2, 1)) == 0);
  REQUIRE(w.cm.resolve_route(theirs) == 0);
  CHECK(w.cm.connect(theirs, w.parameters()) == 0);
  w.cm.close_channel(w.channel);
  w.cm.close_channel(other);
  CHECK(w.cm.streams(2).used() == 0);
}

TEST_CASE("a channel with many listeners ends with one word to each device", "[control][cm]") {
  CmWorld w;
  constexpr int kMany = 2'000;
  for (int i = 0; i < kMany; ++i) w.listening();
  REQUIRE(w.host.listening.size() >= kMany);
  std::set<std::uint32_t> devices;
  for (const auto& each : w.host.listening) devices.insert(each.device);
  w.cm.close_channel(w.channel);
  CHECK(w.host.listening.empty());
  CHECK(w.host.unlistens == devices.size());
}

TEST_CASE("a channel with many ids ends in one go", "[control][cm]") {
  CmWorld w;
  const auto other = w.cm.open_channel();
  const auto stays = *w.cm.create_id(other, 0x0106, 1, CmWorld::kAll);
  const auto listener = w.listening();
  for (std::uint64_t i = 0; i < 100; ++i) w.cm.on_stream_event(w.request_for(listener, {1000 + i}));
  std::vector<std::uint32_t> resolved;
  for (int i = 0; i < 16'500; ++i) {
    resolved.push_back(w.id());
    w.cm.resolve_address(resolved.back(), {}, ipv4(10, 0, 0, 2, 1));
  }
  REQUIRE(w.cm.migrate_id(resolved.back(), other));
  w.cm.close_channel(w.channel);
  CHECK(w.cm.id_count() == 2);
  CHECK(w.host.rejects.size() == 100);
  CHECK(w.host.abandons == 1);
  CHECK(w.cm.channel_of(stays) == other);
  w.cm.close_channel(other);
  CHECK(w.cm.id_count() == 0);
  CHECK(w.cm.shares().used() == 0);
}

TEST_CASE("ids of one process leave some for another", "[control][cm]") {
  CmWorld w;
  const auto other = w.cm.open_channel(4711);
  while (w.cm.create_id(w.channel, 0x0106, 1, CmWorld::kAll)) {
  }
  CHECK(w.cm.id_count() == control::ConnectionManager::kIdsMax);
  CHECK(w.cm.create_id(other, 0x0106, 1, CmWorld::kAll));
}

// ---- small questions --------------------------------------------------------------------------

TEST_CASE("only the TCP port space is served", "[control][cm]") {
  CmWorld w;
  CHECK(w.cm.create_id(w.channel, 0x0111, 1, 1).error() == EINVAL);
  CHECK(w.cm.create_id(w.channel, 0x013f, 1, 1).error() == EINVAL);
  CHECK(w.cm.create_id(w.channel + 9, 0x0106, 1, 1).error() == EINVAL);
}

TEST_CASE("a QP goes to INIT and RTR with remote rights, and to RTS by its connection alone", "[control][cm]") {
  CmWorld w;
  const auto id = w.id();
  const auto init = w.cm.init_qp_attributes(id, 1);
  REQUIRE(init);
  CHECK(init->mask == (RNIC_CM_ATTRIBUTES_STATE | RNIC_CM_ATTRIBUTES_ACCESS));
  CHECK(init->access == (RNIC_ACCESS_REMOTE_READ | RNIC_ACCESS_REMOTE_WRITE | RNIC_ACCESS_REMOTE_ATOMIC));
  CHECK(w.cm.init_qp_attributes(id, 2)->mask == init->mask);
  CHECK(w.cm.init_qp_attributes(id, 3)->mask == 0);
  CHECK(w.cm.init_qp_attributes(id, 6).error() == EINVAL);
  // Once it is of a device, that is so for each of its connections.
  REQUIRE(w.cm.bind(id, ipv4(10, 0, 0, 1, 7174)) == 0);
  CHECK(w.cm.init_qp_attributes(id, 1)->mask == (init->mask | RNIC_CM_ATTRIBUTES_OF_DEVICE));
  CHECK(w.cm.init_qp_attributes(id, 3)->mask == RNIC_CM_ATTRIBUTES_OF_DEVICE);
}

TEST_CASE("options have their lengths; unknown ones are ENOSYS", "[control][cm]") {
  CmWorld w;
  const auto id = w.id();
  const std::uint8_t tos = 0x20;
  const std::int32_t on = 1;
  CHECK(w.cm.set_option(id, 0, 0, as_bytes(&tos, 1)) == 0);
  CHECK(w.cm.set_option(id, 0, 0, as_bytes(&on, 4)) == EINVAL);
  CHECK(w.cm.set_option(id, 0, 1, as_bytes(&tos, 1)) == EINVAL);
  CHECK(w.cm.set_option(id, 0, 99, as_bytes(&on, 4)) == ENOSYS);
  CHECK(w.cm.set_option(id, 1, 1, as_bytes(&on, 4)) == ENOSYS);
}

TEST_CASE("only that a connection is used is notified, of an id that has a device", "[control][cm]") {
  constexpr std::uint32_t kEstablished = 4;  // IBV_EVENT_COMM_EST
  CmWorld w;
  const auto id = w.route_resolved();
  CHECK(w.cm.notify(id, kEstablished) == 0);
  CHECK(w.cm.notify(id, kEstablished + 1) == EINVAL);
  CHECK(w.cm.notify(w.id(), kEstablished) == EINVAL);
  CHECK(w.cm.notify(id + 1000, kEstablished) == EINVAL);
}
