// rnic's own mark: what two rnics say to each other in the private data of MPA startup frames, in front of the
// consumer's. In no RFC: it is sent only where an administrator has asked for what it is for (docs/wire.md s8).
//
//  octet 0   "rnic-mpa"
//        8   version
//        9   kind
//       10   length of the mark
//       12   capabilities: what the sender can
//       16   needed: what the receiver must be able to, or refuse
//       20   of a meeting or a probe:
//                          | sender's GID 16 | receiver's GID 16 | P Res(7) sender's QPN(24) |
//                          | Res(8) receiver's QPN(24) | Res(8) sender's PSN(24) | Res(8) PSN that is due(24) |
//            of a greeting: | sender's GID 16 | S F Res(6) sender's QPN(24) | path MTU(8) sender's PSN(24) |
//                           | responder resources 1 | initiator depth 1 | retry count 1 | RNR retry count 1 |
//                           and, where its application has named some: | Res(8) ECE vendor ID(24) | ECE options 4 |
//            of a refusal: | why 4 |
//            of an inquiry: | port space 2 | port 2 | sender's port 2 | Res 2 |
//            of an answer: | sender's GID 16 | Res(8) sender's QPN(24) | Q_Key 4 |
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "wire/address.hpp"

namespace rnic::wire {

namespace mark_capability {
inline constexpr std::uint32_t kOob = 0x1;   // queue pairs that meet without rdma_cm
inline constexpr std::uint32_t kRoce = 0x2;  // a RoCE face (base/face.hpp)
}  // namespace mark_capability

// Of a queue pair for its peer's: who it is, whom it means, where it begins to count and where the peer is to begin.
// A GID is an IP address, IPv4 mapped into IPv6.
struct Meeting {
  static constexpr std::size_t kSize = 48;
  static constexpr std::uint32_t kNumberMask = 0xFFFFFF;  // of QPNs and PSNs

  IpAddress own_gid{}, peer_gid{};
  QpNumber own_number{}, peer_number{};
  std::optional<std::uint32_t> own_psn{};  // none: its application has not named it yet (Modify to RTS)
  std::uint32_t due_psn = 0;               // what it was told of the peer's (Modify to RTR)

  constexpr bool operator==(const Meeting&) const = default;
};

// Of rdma_cm's connection between two RoCE faces: what InfiniBand's REQ and REP say, in Request and Reply. Their
// consumers' private data follow the mark.
struct Greeting {
  static constexpr std::size_t kSize = 28, kSizeWithEce = 36;

  IpAddress gid{};            // by which the sender's queue pair is met
  QpNumber number{};          // as its application named it
  std::uint32_t psn = 0;      // from which it is to be sent to
  std::uint8_t path_mtu = 0;  // InfiniBand's code
  bool shared_receive = false, flow_control = false;
  std::uint8_t responder_resources = 0, initiator_depth = 0, retry_count = 0, rnr_retry_count = 0;
  // Enhanced connection establishment, as InfiniBand's REQ and REP have it: options of a vendor's, of which only the
  // two applications and their providers know. All 0: none are named, and nothing of it is sent.
  std::uint32_t ece_vendor = 0, ece_options = 0;

  constexpr bool has_ece() const { return ece_vendor != 0 || ece_options != 0; }
  constexpr std::size_t size() const { return has_ece() ? kSizeWithEce : kSize; }
  constexpr bool operator==(const Greeting&) const = default;
};

// Of rdma_cm between two RoCE faces, for datagrams: what InfiniBand's SIDR REQ asks, in a Request, and SIDR REP says,
// in a Reply that rejects it, as no connection comes of it. Their consumers' private data follow the mark.
struct Inquiry {
  static constexpr std::size_t kSize = 8;

  std::uint16_t port_space = 0;  // rdma_cm's
  std::uint16_t port = 0;        // that the one who is asked for is bound to
  std::uint16_t own_port = 0;    // that the sender's id is bound to

  constexpr bool operator==(const Inquiry&) const = default;
};
struct Answer {
  static constexpr std::size_t kSize = 24;

  IpAddress gid{};  // by which the queue pair is reached
  QpNumber number{};
  std::uint32_t qkey = 0;

  constexpr bool operator==(const Answer&) const = default;
};

enum class MarkRefusal : std::uint32_t {
  unknown = 0,
  no_such_queue_pair = 1,
  not_the_peer = 2,  // it is there, and means another: source address, GID, number or PSN
  not_ready = 3,     // its application has not named its peer in time
  busy = 4,          // too many wait
  not_able = 5,      // `needed` names what the refuser cannot
  other_face = 6,    // one of the two has a RoCE face, and the other one has not
  its_own_wish = 7,  // of a greeting or inquiry: its application's, whose private data follow
  nobody = 8,        // of a greeting or inquiry: nobody listens
  other_ece = 9,     // of a greeting: its application does not want these ECE options; its private data follow
  there = 10,        // of a probe: it is there, and if it is the one that calls it does so now
};

constexpr const char* in_words(MarkRefusal refusal) {
  switch (refusal) {
    case MarkRefusal::unknown:
      break;
    case MarkRefusal::no_such_queue_pair:
      return "no such queue pair";
    case MarkRefusal::not_the_peer:
      return "it means another peer";
    case MarkRefusal::not_ready:
      return "it has named no peer in time";
    case MarkRefusal::busy:
      return "too many wait";
    case MarkRefusal::not_able:
      return "unable";
    case MarkRefusal::other_face:
      return "a RoCE face and an iWARP face";
    case MarkRefusal::its_own_wish:
      return "its application does not want it";
    case MarkRefusal::nobody:
      return "nobody listens";
    case MarkRefusal::other_ece:
      return "its application does not want these ECE options";
    case MarkRefusal::there:
      return "it is there";
  }
  return "unknown";
}

struct Mark {
  static constexpr std::size_t kHeaderSize = 20;
  static constexpr std::size_t kSizeMax = kHeaderSize + Meeting::kSize;
  static constexpr std::uint8_t kVersion = 1;
  static constexpr std::array<std::uint8_t, 8> kKey{'r', 'n', 'i', 'c', '-', 'm', 'p', 'a'};
  // A probe has a meeting's fields, and asks whether the queue pair that it means is there. It is never accepted.
  enum class Kind : std::uint8_t { meeting = 1, refusal = 2, greeting = 3, inquiry = 4, answer = 5, probe = 6 };
  static constexpr auto kLastKind = Kind::probe;
  static constexpr auto kLastRefusal = MarkRefusal::there;

  std::uint8_t version = kVersion;
  Kind kind = Kind::meeting;
  std::uint16_t length = 0;  // parsed: the consumer's private data begins behind it
  std::uint32_t capabilities = 0, needed = 0;
  Meeting meeting{};
  Greeting greeting{};
  MarkRefusal refusal = MarkRefusal::unknown;
  Inquiry inquiry{};
  Answer answer{};

  constexpr bool operator==(const Mark&) const = default;
};

namespace detail {
constexpr std::uint32_t number_at(Bytes at, std::size_t offset) {
  return load_be<std::uint32_t>(at, offset) & Meeting::kNumberMask;
}
// At least.
constexpr std::size_t mark_size(Mark::Kind kind) {
  switch (kind) {
    case Mark::Kind::meeting:
    case Mark::Kind::probe:
      return Mark::kHeaderSize + Meeting::kSize;
    case Mark::Kind::greeting:
      return Mark::kHeaderSize + Greeting::kSize;
    case Mark::Kind::inquiry:
      return Mark::kHeaderSize + Inquiry::kSize;
    case Mark::Kind::answer:
      return Mark::kHeaderSize + Answer::kSize;
    case Mark::Kind::refusal:
      break;
  }
  return Mark::kHeaderSize + 4;
}
constexpr std::uint8_t octet_at(Bytes at, std::size_t offset) { return load_be<std::uint8_t>(at, offset); }
constexpr Greeting greeting_at(Bytes body) {
  return {.gid = IpAddress::load_v6(body, 0),
          .number = {number_at(body, 16)},
          .psn = number_at(body, 20),
          .path_mtu = octet_at(body, 20),
          .shared_receive = (octet_at(body, 16) & 0x80) != 0,
          .flow_control = (octet_at(body, 16) & 0x40) != 0,
          .responder_resources = octet_at(body, 24),
          .initiator_depth = octet_at(body, 25),
          .retry_count = octet_at(body, 26),
          .rnr_retry_count = octet_at(body, 27)};
}
constexpr void read_ece(Greeting& greeting, Bytes body) {
  greeting.ece_vendor = number_at(body, 28);
  greeting.ece_options = load_be<std::uint32_t>(body, 32);
}
constexpr void store_greeting(const Greeting& greeting, MutableBytes body) {
  const std::uint32_t flags = (greeting.shared_receive ? 0x80u : 0u) | (greeting.flow_control ? 0x40u : 0u);
  greeting.gid.store_v6(body, 0);
  store_be(body, 16, flags << 24 | (greeting.number.value & Meeting::kNumberMask));
  store_be(body, 20, std::uint32_t{greeting.path_mtu} << 24 | (greeting.psn & Meeting::kNumberMask));
  store_be(body, 24, greeting.responder_resources);
  store_be(body, 25, greeting.initiator_depth);
  store_be(body, 26, greeting.retry_count);
  store_be(body, 27, greeting.rnr_retry_count);
  if (!greeting.has_ece()) return;
  store_be(body, 28, greeting.ece_vendor & Meeting::kNumberMask);
  store_be(body, 32, greeting.ece_options);
}
constexpr Inquiry inquiry_at(Bytes body) {
  return {.port_space = load_be<std::uint16_t>(body, 0),
          .port = load_be<std::uint16_t>(body, 2),
          .own_port = load_be<std::uint16_t>(body, 4)};
}
constexpr void store_inquiry(const Inquiry& inquiry, MutableBytes body) {
  store_be(body, 0, inquiry.port_space);
  store_be(body, 2, inquiry.port);
  store_be(body, 4, inquiry.own_port);
  store_be(body, 6, std::uint16_t{0});
}
constexpr Answer answer_at(Bytes body) {
  return {
      .gid = IpAddress::load_v6(body, 0), .number = {number_at(body, 16)}, .qkey = load_be<std::uint32_t>(body, 20)};
}
constexpr void store_answer(const Answer& answer, MutableBytes body) {
  answer.gid.store_v6(body, 0);
  store_be(body, 16, answer.number.value & Meeting::kNumberMask);
  store_be(body, 20, answer.qkey);
}
}  // namespace detail

// Whether the private data begins like one, of whatever version.
constexpr bool has_mark(Bytes private_data) {
  if (private_data.size() < Mark::kHeaderSize) return false;
  for (std::size_t i = 0; i < Mark::kKey.size(); ++i)
    if (std::to_integer<std::uint8_t>(private_data[i]) != Mark::kKey[i]) return false;
  return true;
}

// Nothing where there is none, or one that is cut off, of another version or of a kind that is not known. Octets
// between what is known of a kind and its length are a later sender's, and not looked at.
constexpr std::optional<Mark> parse_mark(Bytes private_data) {
  if (!has_mark(private_data) || load_be<std::uint8_t>(private_data, 8) != Mark::kVersion) return std::nullopt;
  const auto kind = load_be<std::uint8_t>(private_data, 9);
  if (kind < std::uint8_t{1} || kind > static_cast<std::uint8_t>(Mark::kLastKind)) return std::nullopt;
  Mark mark{.kind = static_cast<Mark::Kind>(kind),
            .length = load_be<std::uint16_t>(private_data, 10),
            .capabilities = load_be<std::uint32_t>(private_data, 12),
            .needed = load_be<std::uint32_t>(private_data, 16)};
  if (mark.length < detail::mark_size(mark.kind) || mark.length > private_data.size()) return std::nullopt;
  const Bytes body = private_data.subspan(Mark::kHeaderSize);
  if (mark.kind == Mark::Kind::refusal) {
    const auto why = load_be<std::uint32_t>(body, 0);
    mark.refusal =
        why <= static_cast<std::uint32_t>(Mark::kLastRefusal) ? static_cast<MarkRefusal>(why) : MarkRefusal::unknown;
    return mark;
  }
  if (mark.kind == Mark::Kind::greeting) {
    mark.greeting = detail::greeting_at(body);
    if (mark.length >= Mark::kHeaderSize + Greeting::kSizeWithEce) detail::read_ece(mark.greeting, body);
    return mark;
  }
  if (mark.kind == Mark::Kind::inquiry) {
    mark.inquiry = detail::inquiry_at(body);
    return mark;
  }
  if (mark.kind == Mark::Kind::answer) {
    mark.answer = detail::answer_at(body);
    return mark;
  }
  mark.meeting = {.own_gid = IpAddress::load_v6(body, 0),
                  .peer_gid = IpAddress::load_v6(body, 16),
                  .own_number = {detail::number_at(body, 32)},
                  .peer_number = {detail::number_at(body, 36)},
                  .own_psn = std::nullopt,
                  .due_psn = detail::number_at(body, 44)};
  if ((load_be<std::uint8_t>(body, 32) & 0x80) != 0) mark.meeting.own_psn = detail::number_at(body, 40);
  return mark;
}

// Its size. Version and length are written as they have to be.
constexpr std::size_t emit(const Mark& mark, MutableBytes out) {
  const std::size_t size =
      mark.kind == Mark::Kind::greeting ? Mark::kHeaderSize + mark.greeting.size() : detail::mark_size(mark.kind);
  RNIC_ASSERT(out.size() >= size);
  for (std::size_t i = 0; i < Mark::kKey.size(); ++i) out[i] = static_cast<std::byte>(Mark::kKey[i]);
  store_be(out, 8, Mark::kVersion);
  store_be(out, 9, static_cast<std::uint8_t>(mark.kind));
  store_be(out, 10, static_cast<std::uint16_t>(size));
  store_be(out, 12, mark.capabilities);
  store_be(out, 16, mark.needed);
  const MutableBytes body = out.subspan(Mark::kHeaderSize);
  if (mark.kind == Mark::Kind::refusal) {
    store_be(body, 0, static_cast<std::uint32_t>(mark.refusal));
    return size;
  }
  if (mark.kind == Mark::Kind::greeting) {
    detail::store_greeting(mark.greeting, body);
    return size;
  }
  if (mark.kind == Mark::Kind::inquiry) {
    detail::store_inquiry(mark.inquiry, body);
    return size;
  }
  if (mark.kind == Mark::Kind::answer) {
    detail::store_answer(mark.answer, body);
    return size;
  }
  const Meeting& meeting = mark.meeting;
  meeting.own_gid.store_v6(body, 0);
  meeting.peer_gid.store_v6(body, 16);
  store_be(body, 32, (meeting.own_number.value & Meeting::kNumberMask) | (meeting.own_psn ? 0x80000000u : 0u));
  store_be(body, 36, meeting.peer_number.value & Meeting::kNumberMask);
  store_be(body, 40, meeting.own_psn.value_or(0) & Meeting::kNumberMask);
  store_be(body, 44, meeting.due_psn & Meeting::kNumberMask);
  return size;
}

}  // namespace rnic::wire
