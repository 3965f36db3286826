// Who means whom, and who calls.
#include "mpa/meeting.hpp"

#include <array>

#include "kit/catch.hpp"

using namespace rnic;
using mpa::Match;
using mpa::Role;
using wire::Meeting;

namespace {

constexpr auto kA = wire::IpAddress::v4(10, 0, 0, 1), kB = wire::IpAddress::v4(10, 0, 0, 2);

Meeting of_a() {
  return {.own_gid = kA, .peer_gid = kB, .own_number = {7}, .peer_number = {9}, .own_psn = 100, .due_psn = 200};
}
Meeting of_b() {
  return {.own_gid = kB, .peer_gid = kA, .own_number = {9}, .peer_number = {7}, .own_psn = 200, .due_psn = 100};
}

struct Reply {
  wire::Mark mark;
  std::array<std::byte, wire::Mark::kSizeMax> octets{};

  explicit Reply(const Meeting& meeting) {
    mark.capabilities = mpa::mark_capabilities(Face::iwarp);
    mark.meeting = meeting;
  }
  bool answers(const Meeting& own, Face face = Face::iwarp) {
    return mpa::answers(own, face, Bytes(octets).first(wire::emit(mark, octets)));
  }
};

}  // namespace

TEST_CASE("two that name each other in everything meet", "[mpa][meeting]") {
  CHECK(mpa::match(of_a(), of_b()) == Match::yes);
  CHECK(mpa::match(of_b(), of_a()) == Match::yes);
}

TEST_CASE("one thing that is not as it was named, and they do not", "[mpa][meeting]") {
  const auto other = wire::IpAddress::v4(10, 0, 0, 3);
  const auto differs = [](auto change) {
    Meeting b = of_b();
    change(b);
    return mpa::match(of_a(), b) == Match::no && mpa::match(b, of_a()) == Match::no;
  };
  CHECK(differs([&](Meeting& b) { b.own_gid = other; }));
  CHECK(differs([&](Meeting& b) { b.peer_gid = other; }));
  CHECK(differs([](Meeting& b) { b.own_number = {10}; }));
  CHECK(differs([](Meeting& b) { b.peer_number = {8}; }));
  CHECK(differs([](Meeting& b) { b.own_psn = 201; }));
  CHECK(differs([](Meeting& b) { b.due_psn = 101; }));
}

TEST_CASE("a PSN that is not named yet is not compared, but one must be", "[mpa][meeting]") {
  Meeting a = of_a(), b = of_b();
  a.own_psn.reset();
  CHECK(mpa::match(a, b) == Match::yes);
  b.due_psn = 999;  // of what a has not named
  CHECK(mpa::match(a, b) == Match::yes);
  b.own_psn = 201;
  CHECK(mpa::match(a, b) == Match::no);
  b.own_psn.reset();
  CHECK(mpa::match(a, b) == Match::not_yet);
  CHECK(mpa::match(b, a) == Match::not_yet);
}

TEST_CASE("the lower GID calls, and of one GID the lower number", "[mpa][meeting]") {
  CHECK(mpa::role_of(of_a()) == Role::calls);
  CHECK(mpa::role_of(of_b()) == Role::answers);
  Meeting own = of_a();
  own.own_number = {0xFFFFFE};  // the GID decides
  CHECK(mpa::role_of(own) == Role::calls);
  own.peer_gid = own.own_gid;
  CHECK(mpa::role_of(own) == Role::answers);
  own.own_number = {8};
  CHECK(mpa::role_of(own) == Role::calls);
  own.peer_number = {8};
  CHECK(mpa::role_of(own) == Role::itself);
}

TEST_CASE("only the mark of the one who is meant, and who can, is an answer", "[mpa][meeting]") {
  CHECK(Reply(of_b()).answers(of_a()));
  CHECK_FALSE(Reply(of_a()).answers(of_a()));
  CHECK_FALSE(mpa::answers(of_a(), Face::iwarp, {}));
  Reply unable(of_b());
  unable.mark.capabilities = 0;
  CHECK_FALSE(unable.answers(of_a()));
  Reply demands(of_b());
  demands.mark.needed = 0x80000000u | wire::mark_capability::kOob;
  CHECK_FALSE(demands.answers(of_a()));
  Reply roce(of_b());
  roce.mark.capabilities = mpa::mark_capabilities(Face::roce);
  CHECK_FALSE(roce.answers(of_a()));
  CHECK(roce.answers(of_a(), Face::roce));
  CHECK_FALSE(Reply(of_b()).answers(of_a(), Face::roce));
  Reply refusal(of_b());
  refusal.mark.kind = wire::Mark::Kind::refusal;
  CHECK_FALSE(refusal.answers(of_a()));
  Meeting a = of_a(), b = of_b();
  a.own_psn.reset();
  b.own_psn.reset();
  CHECK_FALSE(Reply(b).answers(a));  // nothing of it was compared
}
