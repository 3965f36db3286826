// Two queue pairs whose applications have told each other their numbers by other means than rdma_cm: whether they mean
// each other, and which of them calls. On an established connection the caller's Request and the other's Reply carry
// what each says (wire/mark.hpp).
#pragma once

#include <cstdint>
#include <optional>
#include <tuple>

#include "base/face.hpp"
#include "wire/mark.hpp"

namespace rnic::mpa {

// What a device of that face can, as its marks say it.
constexpr std::uint32_t mark_capabilities(Face face) {
  return wire::mark_capability::kOob | (face == Face::roce ? wire::mark_capability::kRoce : 0);
}
constexpr Face face_of(const wire::Mark& mark) {
  return (mark.capabilities & wire::mark_capability::kRoce) != 0 ? Face::roce : Face::iwarp;
}
// Why a device of that face has nothing to do with whoever says this, if it is so.
constexpr std::optional<wire::MarkRefusal> unfit(Face face, const wire::Mark& mark) {
  if ((mark.capabilities & wire::mark_capability::kOob) == 0) return wire::MarkRefusal::not_able;
  if (face_of(mark) != face) return wire::MarkRefusal::other_face;
  if ((mark.needed & ~mark_capabilities(face)) != 0) return wire::MarkRefusal::not_able;
  return std::nullopt;
}

enum class Match : std::uint8_t {
  yes,
  no,
  not_yet,  // neither has named where it begins to count: nothing can be compared, and nothing be sent
};

// Source addresses are for the caller to compare. What one of them has not named yet is not compared, but one of the
// two PSNs must be.
constexpr Match match(const wire::Meeting& a, const wire::Meeting& b) {
  if (a.own_gid != b.peer_gid || a.peer_gid != b.own_gid) return Match::no;
  if (a.own_number != b.peer_number || a.peer_number != b.own_number) return Match::no;
  if (a.own_psn && *a.own_psn != b.due_psn) return Match::no;
  if (b.own_psn && *b.own_psn != a.due_psn) return Match::no;
  return a.own_psn || b.own_psn ? Match::yes : Match::not_yet;
}

enum class Role : std::uint8_t { calls, answers, itself };

// The lower (GID, number) calls, so that there is one connection and not two.
constexpr Role role_of(const wire::Meeting& own) {
  const auto here = std::tie(own.own_gid, own.own_number), there = std::tie(own.peer_gid, own.peer_number);
  if (here == there) return Role::itself;
  return here < there ? Role::calls : Role::answers;
}

// Whether what came in a Reply is the answer of the one whom `own` means.
constexpr bool answers(const wire::Meeting& own, Face face, Bytes reply_private_data) {
  const auto mark = wire::parse_mark(reply_private_data);
  if (!mark || mark->kind != wire::Mark::Kind::meeting || unfit(face, *mark)) return false;
  return match(own, mark->meeting) == Match::yes;
}

}  // namespace rnic::mpa
