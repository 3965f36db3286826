// One end's messages, with no stream under them: what it says is taken from it segment by segment, as ULPDUs, and
// what comes is given to it as ULPDUs. Neither TCP nor MPA is known here.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "kit/rdmap_ground.hpp"
#include "rdmap/requester.hpp"
#include "rdmap/responder.hpp"

namespace rnic::test {

struct End : Ground {
  // `acknowledged`: on an acknowledged stream.
  explicit End(rdmap::Settings given = default_settings(), Moves moves = Moves::direct, rdmap::FirstMessage first = {},
               bool acknowledged = false)
      : Ground(given, moves),
        acknowledgements(acknowledged ? std::make_unique<rdmap::Acknowledgements>(settings.patience) : nullptr),
        reads(settings.ird, settings.ord, table.read_stags()),
        requester(common, reads, nullptr, acknowledgements.get()),
        responder(common, reads, requester, nullptr, acknowledgements.get()) {
    requester.begin_stream();
    responder.begin_stream(first);
    // What was given stays where it is until its moves are done.
    given_.reserve(4096);
  }

  std::unique_ptr<rdmap::Acknowledgements> acknowledgements;
  rdmap::Reads reads;
  rdmap::Requester requester;
  rdmap::Responder responder;
  Instant now{1'000'000};
  std::optional<rdmap::Fault> fault;  // the first that was told
  bool peer_terminated = false;

  // ---- its application ----
  std::uint32_t post(rdmap::WorkRequest request) {
    request.slot = next_slot_++;
    app.sends.push_back(request);
    requester.posted();
    return request.slot;
  }
  void post_receive(std::vector<rdmap::Sge> sges = {}) {
    rdmap::ReceiveRequest request;
    request.slot = next_receive_slot_++;
    request.sge_count = static_cast<std::uint8_t>(sges.size());
    std::copy(sges.begin(), sges.end(), request.sges.begin());
    app.receives.push_back(request);
    rdmap::Verdict verdict;
    responder.take_held(now, verdict);
    note(verdict);
  }
  std::vector<std::uint32_t> sends_completed() const {
    std::vector<std::uint32_t> slots;
    for (const auto& c : app.of_sends()) slots.push_back(c.slot);
    return slots;
  }
  std::vector<std::uint32_t> receives_completed() const {
    std::vector<std::uint32_t> slots;
    for (const auto& c : app.of_receives()) slots.push_back(c.slot);
    return slots;
  }

  // ---- in ----
  // False: it has to wait, and is to be given again.
  bool hear(const Octets& ulpdu, const tpt::Access* memory = nullptr) {
    const Octets& kept = given_.emplace_back(ulpdu);
    const std::array<Bytes, 1> spans{Bytes(kept)};
    const auto size = static_cast<std::uint32_t>(kept.size()) + (memory != nullptr ? memory->length : 0);
    rdmap::Verdict verdict;
    if (responder.stopped()) return false;
    const std::uint64_t position = heard_++;
    const bool taken = responder.take({spans, size, memory}, {position, heard_, false}, now, verdict);
    note(verdict);
    return taken;
  }
  // Moves are done; what is placed is delivered.
  void settle() {
    ++common.turn;
    mover.flush();
    while (!fault && responder.deliverable() && responder.lets_go()) note(responder.deliver_next());
  }

  // ---- out: all that can be said now ----
  std::vector<Octets> say(std::uint32_t mulpdu = 1454) {
    ++common.turn;
    requester.look_again();
    std::vector<Octets> said;
    rdmap::Verdict verdict;
    while (!verdict) {
      if (!requester.sending()) {
        if (!requester.begin(verdict)) break;
        continue;
      }
      rdmap::OutboundSegment segment;
      verdict = requester.next_segment(mulpdu, segment);
      if (verdict) break;
      Octets ulpdu(segment.header.begin(), segment.header.begin() + segment.header_bytes);
      const auto append = [&](Bytes from) { ulpdu.insert(ulpdu.end(), from.begin(), from.end()); };
      if (segment.payload_bytes != 0)
        requester.payload(segment.payload_bytes, append, [&](const tpt::Access& from) {
          append({from.direct, from.length});
        });
      requester.segment_taken(segment, carried_++);
      said.push_back(ulpdu);
    }
    note(verdict);
    requester.carried_up_to(carried_);
    rdmap::Verdict completed;
    requester.complete(completed);
    note(completed);
    return said;
  }

  void on_moved(std::uint32_t token, bool ok) override {
    if ((token & rdmap::token::kAtomic) != 0)
      requester.atomics().on_moved(ok);
    else
      responder.on_moved(token, ok);
  }

 private:
  void note(const rdmap::Verdict& verdict) {
    peer_terminated |= verdict.kind == rdmap::Verdict::Kind::peer_terminated;
    if (verdict.kind == rdmap::Verdict::Kind::fault && !fault) fault = verdict.fault;
  }
  std::vector<Octets> given_;
  std::uint64_t heard_ = 0, carried_ = 0;
  std::uint32_t next_slot_ = 0, next_receive_slot_ = 0;
};

}  // namespace rnic::test
