// RDMAP by itself: the opcode rows, the order of the checks of form, and the Terminate table.

#include "rdmap/messages.hpp"
#include "rdmap/read_queue.hpp"
#include "rdmap/receiver.hpp"
#include "rdmap/sender.hpp"
#include "rdmap/terminate.hpp"
#include "support/catch.hpp"

#include <vector>

using namespace rnic;
using rdmap::Fault;
using wire::RdmapOpcode;

namespace {

std::array<std::byte, 18> untagged(std::uint8_t control, std::uint32_t queue) {
  std::array<std::byte, 18> out;
  wire::emit(wire::UntaggedHeader{.last = true,
                                  .rdmap_control = control,
                                  .invalidate = {},
                                  .queue = queue,
                                  .msn = 1,
                                  .message_offset = 0},
             out);
  return out;
}

Fault fault(Bytes head, rdmap::Extensions extensions = rdmap::Extensions::off) {
  const auto checked = rdmap::check_form(head, static_cast<std::uint32_t>(head.size()), extensions);
  REQUIRE_FALSE(checked);
  return checked.error();
}

}  // namespace

TEST_CASE("W-RDMAP-03: each opcode has its model, queue and header", "[rdmap][W-RDMAP-03]") {
  using rdmap::Model;
  struct Row {
    RdmapOpcode opcode;
    Model model;
    unsigned queue, header;
  };
  for (const Row& row : {Row{RdmapOpcode::write, Model::tagged, 0, 0}, Row{RdmapOpcode::read_request, Model::untagged, 1, 28},
                         Row{RdmapOpcode::read_response, Model::tagged, 0, 0}, Row{RdmapOpcode::send, Model::untagged, 0, 0},
                         Row{RdmapOpcode::terminate, Model::untagged, 2, 4},
                         Row{RdmapOpcode::immediate, Model::untagged, 0, 8},
                         Row{RdmapOpcode::atomic_request, Model::untagged, 1, 52},
                         Row{RdmapOpcode::atomic_response, Model::untagged, 3, 12}}) {
    const rdmap::Message& message = rdmap::message(row.opcode);
    CHECK(message.model == row.model);
    CHECK(message.queue == row.queue);
    CHECK(message.header_bytes == row.header);
  }
  for (int unknown = 12; unknown < 16; ++unknown) CHECK_FALSE(rdmap::message(RdmapOpcode(unknown)).known());
  CHECK(rdmap::send_opcode(true, true) == RdmapOpcode::send_se_invalidate);
  CHECK(rdmap::send_opcode(false, true) == RdmapOpcode::send_invalidate);
  CHECK(rdmap::send_opcode(true, false) == RdmapOpcode::send_se);
}

TEST_CASE("W-DDP-17: of several errors the first in the order of the checks is told", "[rdmap][W-DDP-17][W-RDMAP-36]") {
  auto all_wrong = untagged(0x0C, 9);  // RV 0, opcode 12, queue 9
  all_wrong[0] = std::byte{0x40};      // DV 0
  CHECK(fault(Bytes(all_wrong).first(17)) == Fault::segment_size);
  CHECK(fault(all_wrong) == Fault::ddp_version_untagged);
  all_wrong[0] = std::byte{0x41};
  CHECK(fault(all_wrong) == Fault::rdmap_version);
  all_wrong[1] = std::byte{0x4C};
  CHECK(fault(all_wrong) == Fault::unexpected_opcode);
  all_wrong[1] = std::byte{0x43};
  CHECK(fault(all_wrong) == Fault::queue_number);
  const auto wrong_queue = untagged(0x43, 1);
  CHECK(fault(wrong_queue) == Fault::unexpected_opcode);
  const auto good = untagged(0x43, 0);
  CHECK(rdmap::check_form(good, 118, rdmap::Extensions::off)->payload == 100);
}

TEST_CASE("W-EXT-14: extensions are refused unless they are on", "[rdmap][W-EXT-14][W-RDMAP-04]") {
  const auto atomic = untagged(0x4A, 1);
  CHECK(fault(atomic) == Fault::unexpected_opcode);
  CHECK(rdmap::check_form(atomic, 70, rdmap::Extensions::on));
  const auto response = untagged(0x4B, 3);
  CHECK(fault(untagged(0x43, 3)) == Fault::queue_number);
  CHECK(rdmap::check_form(response, 30, rdmap::Extensions::on));
}

TEST_CASE("W-RDMAP-05: the word to invalidate is 0 where nothing is invalidated", "[rdmap][W-RDMAP-05][W-DDP-05]") {
  rdmap::Sender sender;
  CHECK(sender.send(false, false, {77}, 5).stag == Stag{});
  const auto second = sender.send(true, true, {77}, 5);
  CHECK(second.stag == Stag{77});
  CHECK(second.msn == 2);
  CHECK(second.rdmap_control == 0x46);
  // Each queue counts by itself.
  CHECK(sender.read_request().msn == 1);
  CHECK(sender.terminate(4).msn == 1);
  CHECK(sender.send(false, false, {}, 0).msn == 3);
}

TEST_CASE("W-RDMAP-36: the codes are those of the table", "[rdmap][W-RDMAP-36][W-RDMAP-28]") {
  const auto code = [](Fault fault) { return rdmap::row(fault).code.word(); };
  CHECK(code(Fault::segment_size) == 0x1000);
  CHECK(code(Fault::crc) == 0x2002);
  CHECK(code(Fault::bad_fpdu) == 0x2003);
  CHECK(code(Fault::tagged_access) == 0x1102);
  CHECK(code(Fault::tagged_association) == 0x1102);
  CHECK(code(Fault::receive_no_buffer) == 0x1202);
  CHECK(code(Fault::read_too_many) == 0x1203);
  CHECK(code(Fault::invalidate_refused) == 0x0109);
  CHECK(code(Fault::cq_of_sends) == 0x0207);
  CHECK(code(Fault::local_work) == 0x0000);
  // Never a header where no message is at fault.
  rdmap::Culprit culprit;
  culprit.size = 46;
  culprit.segment_length = 46;
  for (const Fault fault : {Fault::segment_size, Fault::crc, Fault::local_work, Fault::by_consumer,
                            Fault::bad_llp_close, Fault::cq_of_sends}) {
    const auto message = rdmap::terminate_message(fault, culprit);
    CHECK(wire::terminate_size(message) == 4);
    CHECK_FALSE(message.has_length);
  }
}

TEST_CASE("W-RDMAP-25: M and D go together, R only for a Read's protection error", "[rdmap][W-RDMAP-25][W-RDMAP-26]") {
  rdmap::Culprit culprit;
  const auto head = untagged(0x41, 1);
  std::copy(head.begin(), head.end(), culprit.octets.begin());
  culprit.size = 46;
  culprit.segment_length = 46;
  const auto protection = rdmap::terminate_message(Fault::read_bounds, culprit);
  CHECK(protection.has_length);
  CHECK(protection.ddp_header_size == 18);
  CHECK(protection.has_read_request);
  CHECK(wire::terminate_size(protection) == 52);
  const auto operation = rdmap::terminate_message(Fault::read_too_many, culprit);
  CHECK(operation.has_length);
  CHECK(operation.ddp_header_size == 18);
  CHECK_FALSE(operation.has_read_request);
}

TEST_CASE("W-RDMAP-27: what is left of a Read that was partly answered", "[rdmap][W-RDMAP-27]") {
  rdmap::Culprit culprit;
  culprit.size = 46;
  wire::emit(wire::ReadRequestHeader{.sink_stag = {1}, .sink_to = 10, .size_bytes = 100, .source_stag = {2}, .source_to = 20},
             MutableBytes(culprit.octets).subspan(18));
  rdmap::advance_read_request(culprit, 60);
  const auto left = wire::parse_read_request(Bytes(culprit.octets).subspan(18));
  CHECK(left->sink_to == 70);
  CHECK(left->source_to == 80);
  CHECK(left->size_bytes == 40);
}

TEST_CASE("V-IRD-06: a ring keeps order and its bound", "[rdmap][V-IRD-06]") {
  rdmap::Ring<int> ring;
  ring.reserve(3);
  CHECK(ring.size() == 4);
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 4; ++i) ring.push(i);
    CHECK(ring.full());
    for (int i = 0; i < 4; ++i) {
      CHECK(ring.front() == i);
      ring.pop();
    }
    CHECK(ring.empty());
  }
}
