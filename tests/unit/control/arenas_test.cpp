// Arenas: when an application has the descriptor of the memory that its rings are in.
#include <sys/stat.h>

#include "kit/server_world.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {
ino_t file_behind(const Answer& answer) {
  REQUIRE(answer.fds.size() == 1);
  struct stat status {};
  REQUIRE(fstat(answer.fds[0].get(), &status) == 0);
  return status.st_ino;
}
}  // namespace

TEST_CASE("memory that a failed command was the first to take is announced when it is used", "[control][objects]") {
  Daemon daemon;
  App app(daemon);
  // Two queues that fill an arena each, and a descriptor for one.
  auto request = app.qp_request(app.pd(), app.cq());
  request.send_wr_min = request.recv_wr_min = control::kWorkRequestsMax;
  request.inline_max = control::kInlineMax;
  request.recv_sge_max = control::kSgesMax;
  auto& descriptors = daemon.machine.descriptors;
  const auto before = descriptors.used();
  descriptors.set_total(before + 3);  // of which it may not have them all (shares.hpp)
  REQUIRE(app.ask(RNIC_CREATE_QP, request).status == EMFILE);
  REQUIRE(descriptors.used() == before + 1);
  constexpr std::uint32_t kEntries = 262'144;  // as large as the first of the two
  const auto first = app.try_cq(kEntries);
  CHECK(first.as<rnic_create_cq_reply>().area.arena_is_new == 1);
  CHECK(first.fds.size() == 1);
  CHECK(descriptors.used() == before + 1);
  REQUIRE(app.by_handle(RNIC_DESTROY_CQ, first.as<rnic_create_cq_reply>().cq).status == 0);
  const auto second = app.try_cq(kEntries);
  CHECK(second.as<rnic_create_cq_reply>().area.arena_is_new == 0);
  CHECK(second.as<rnic_create_cq_reply>().area.arena == first.as<rnic_create_cq_reply>().area.arena);
  CHECK(second.fds.empty());
}

TEST_CASE("an arena's descriptor that an application lost is sent again when it asks", "[control][objects]") {
  Daemon daemon;
  App app(daemon), other(daemon);
  const auto made = app.try_cq(4);
  const auto area = made.as<rnic_create_cq_reply>().area;
  REQUIRE(area.arena_is_new == 1);
  for (int i = 0; i < 2; ++i) {
    const auto again = app.by_handle(RNIC_MAP_ARENA, area.arena);
    const auto whole = again.as<rnic_area>();
    CHECK(file_behind(again) == file_behind(made));
    CHECK((whole.arena == area.arena && whole.arena_is_new == 1 && whole.arena_size == area.arena_size));
    CHECK((whole.offset == 0 && whole.length == area.arena_size));
  }
  CHECK(app.by_handle(RNIC_MAP_ARENA, area.arena + 1).status == EINVAL);
  CHECK(other.by_handle(RNIC_MAP_ARENA, area.arena).status == EINVAL);  // it has none
}

TEST_CASE("a ring that would go to a new arena stays where it is until the arena is there", "[control][objects]") {
  Daemon daemon;
  App app(daemon);
  const auto cq = app.cq(4);
  control::Cq* object = daemon.machine.cqs_by_cookie.begin()->second;
  for (int i = 0; i < 3; ++i) REQUIRE(object->queue->push(rnic_cqe{}));
  const auto octets = object->piece.offset();
  const rnic_resize_cq body{cq, 131'072};
  const auto first = app.ask(RNIC_RESIZE_CQ, body);
  const auto new_arena = first.as<rnic_resize_cq_reply>();
  CHECK(new_arena.entries == 0);
  CHECK(new_arena.area.arena_is_new == 1);
  CHECK(first.fds.size() == 1);
  CHECK(object->piece.offset() == octets);
  CHECK((object->queue->unpolled() == 3 && object->queue->size() == 4));

  const auto second = app.ask(RNIC_RESIZE_CQ, body);
  const auto resized = second.as<rnic_resize_cq_reply>();
  CHECK(resized.entries == 131'072);
  CHECK((resized.area.arena_is_new == 0 && resized.area.arena == new_arena.area.arena));
  CHECK(second.fds.empty());
  CHECK((object->queue->unpolled() == 3 && object->queue->size() == 131'072));
}

TEST_CASE("V-IMM-01: nor does a shared receive queue go there before, nor is its limit changed",
          "[control][objects][V-IMM-01][V-SRZ-01]") {
  Daemon daemon;
  App app(daemon);
  const auto made = app.try_srq(app.pd(), 4, 0, control::kSgesMax).as<rnic_create_srq_reply>();
  const rnic_modify_srq body{made.srq, RNIC_SRQ_ENTRIES | RNIC_SRQ_LIMIT, 7, control::kSrqWorkRequestsMax, 0, 0};
  const auto first = app.ask(RNIC_MODIFY_SRQ, body);
  const auto new_arena = first.as<rnic_modify_srq_reply>();
  CHECK(new_arena.entries == 0);
  CHECK(new_arena.area.arena_is_new == 1);
  CHECK(first.fds.size() == 1);
  const auto query = [&] { return app.by_handle(RNIC_QUERY_SRQ, made.srq).as<rnic_query_srq_reply>(); };
  CHECK((query().entries == 4 && query().limit == 0));
  const auto second = app.ask(RNIC_MODIFY_SRQ, body);
  CHECK(second.as<rnic_modify_srq_reply>().entries == control::kSrqWorkRequestsMax);
  CHECK(second.as<rnic_modify_srq_reply>().area.arena == new_arena.area.arena);
  CHECK(second.fds.empty());
  CHECK((query().entries == control::kSrqWorkRequestsMax && query().limit == 7));
}
