// Acknowledged streams (docs/wire.md s8.1), for tests: two queue pairs of RoCE faces, or one and a peer that says what
// it likes.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "kit/catch.hpp"
#include "kit/qp_world.hpp"
#include "unit/qp/extended.hpp"
#include "wire/acknowledge.hpp"

namespace rnic::test {

using qp::Status;

using Change = std::function<void(qp::Config&)>;

inline void as_roce(qp::Config& config) {
  config.face = Face::roce;
  extend(config);
  // 67 ms eight times; 0.64 ms, tried seven times.
  config.patience = {.timeout = 14, .retry_count = 7, .rnr_retry = 6, .min_rnr_timer = 12};
}
inline Change roce_and(const Change& change) {
  return [change](qp::Config& config) {
    as_roce(config);
    if (change) change(config);
  };
}

inline qp::Start acknowledged_start() {
  qp::Start start = default_start();
  start.acknowledged = true;
  return start;
}
inline Options acknowledged(Moves moves = Moves::direct, const Change& a = {}, const Change& b = {}) {
  Options options;
  options.moves = moves;
  options.start = acknowledged_start();
  options.a = roce_and(a);
  options.b = roce_and(b);
  return options;
}

inline std::vector<Status> of_sends(const Side& side) {
  std::vector<Status> out;
  for (const auto& c : side.app.of_sends()) out.push_back(c.status);
  return out;
}
using Statuses = std::vector<Status>;
inline constexpr Status kDone = Status::success, kFlushed = Status::flushed, kRefused = Status::remote_termination;

inline qp::WorkRequest send_immediate(std::vector<qp::Sge> sges, std::uint32_t value) {
  auto request = work(qp::Opcode::send_immediate, std::move(sges));
  request.immediate = value;
  return request;
}

// One of ours and a peer that says what it likes.
struct Peer : Raw {
  explicit Peer(const Change& change = {}, Moves moves = Moves::direct, const qp::Start& start = acknowledged_start())
      : Raw(start, roce_and(change), moves) {}
  void acknowledge(std::uint32_t performed, bool waits = false, std::uint8_t timer = 0) {
    Octets body(8);
    wire::emit(wire::AcknowledgeHeader{.performed = performed, .waits = waits, .timer = timer}, body);
    say(untagged(12, true, 4, msn++, 0, body));
  }
  void refuse(std::uint32_t request, std::uint16_t code) {
    Octets body(8);
    wire::emit(wire::NegativeAcknowledgeHeader{.request = request, .code = code}, body);
    say(untagged(13, true, 4, msn++, 0, body));
  }
  // What we said, last.
  wire::AcknowledgeHeader heard_last() const {
    const auto all = heard_opcode(wire::RdmapOpcode::acknowledge);
    REQUIRE(!all.empty());
    return *wire::parse_acknowledge(Bytes(all.back()).subspan(18));
  }
  std::size_t acknowledgements() const { return heard_opcode(wire::RdmapOpcode::acknowledge).size(); }
  std::vector<wire::NegativeAcknowledgeHeader> refusals() const {
    std::vector<wire::NegativeAcknowledgeHeader> out;
    for (const auto& each : heard_opcode(wire::RdmapOpcode::negative_acknowledge))
      out.push_back(*wire::parse_negative_acknowledge(Bytes(each).subspan(18)));
    return out;
  }
  std::uint32_t msn = 1;
};

}  // namespace rnic::test
