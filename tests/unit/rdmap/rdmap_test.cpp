// RDMAP by itself: the opcode rows, the order of the checks of form, and the Terminate table.

#include "kit/catch.hpp"
#include "rdmap/messages.hpp"
#include "rdmap/reads.hpp"
#include "rdmap/receiver.hpp"
#include "rdmap/sender.hpp"
#include "rdmap/terminate.hpp"

#include <algorithm>
#include <iterator>
#include <vector>

using namespace rnic;
using rdmap::Fault;
using wire::RdmapOpcode;

namespace {

std::array<std::byte, 18> untagged(std::uint8_t control, std::uint32_t queue) {
  std::array<std::byte, 18> out;
  wire::emit(
      wire::UntaggedHeader{
          .last = true, .rdmap_control = control, .invalidate = {}, .queue = queue, .msn = 1, .message_offset = 0},
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
  for (const Row& row :
       {Row{RdmapOpcode::write, Model::tagged, 0, 0}, Row{RdmapOpcode::read_request, Model::untagged, 1, 28},
        Row{RdmapOpcode::read_response, Model::tagged, 0, 0}, Row{RdmapOpcode::send, Model::untagged, 0, 0},
        Row{RdmapOpcode::terminate, Model::untagged, 2, 4}, Row{RdmapOpcode::immediate, Model::untagged, 0, 8},
        Row{RdmapOpcode::atomic_request, Model::untagged, 1, 52},
        Row{RdmapOpcode::atomic_response, Model::untagged, 3, 12}, Row{RdmapOpcode::acknowledge, Model::untagged, 4, 8},
        Row{RdmapOpcode::negative_acknowledge, Model::untagged, 4, 8},
        Row{RdmapOpcode::send_value, Model::untagged, 0, 0}, Row{RdmapOpcode::send_value_se, Model::untagged, 0, 0}}) {
    const rdmap::Message& message = rdmap::message(row.opcode);
    CHECK(message.model == row.model);
    CHECK(message.queue == row.queue);
    CHECK(message.header_bytes == row.header);
  }
  for (int own = 12; own < 16; ++own) CHECK(rdmap::message(RdmapOpcode(own)).needs == rdmap::known_by::kAcknowledged);
  CHECK(rdmap::send_opcode(true, true) == RdmapOpcode::send_se_invalidate);
  CHECK(rdmap::send_opcode(false, true) == RdmapOpcode::send_invalidate);
  CHECK(rdmap::send_opcode(true, false) == RdmapOpcode::send_se);
}

TEST_CASE("W-RDMAP-03: each opcode says what operation it is, and what else it does",
          "[rdmap][W-RDMAP-03][W-RDMAP-05][W-EXT-14]") {
  using rdmap::Operation;
  struct Row {
    Operation operation;
    bool solicited, invalidates, extension;
  };
  const Row rows[] = {
      {Operation::write, false, false, false},
      {Operation::read_request, false, false, false},
      {Operation::read_response, false, false, false},
      {Operation::send, false, false, false},
      {Operation::send, false, true, false},
      {Operation::send, true, false, false},
      {Operation::send, true, true, false},
      {Operation::terminate, false, false, false},
      {Operation::immediate, false, false, true},
      {Operation::immediate, true, false, true},
      {Operation::atomic_request, false, false, true},
      {Operation::atomic_response, false, false, true},
  };
  int opcode = 0;
  for (const Row& row : rows) {
    CAPTURE(opcode);
    const rdmap::Message& message = rdmap::message(RdmapOpcode(opcode++));
    CHECK(message.known());
    CHECK(message.operation == row.operation);
    CHECK(message.solicited == row.solicited);
    CHECK(message.invalidates == row.invalidates);
    CHECK((message.needs == rdmap::known_by::kExtension) == row.extension);
  }
  CHECK(rdmap::send_opcode(false, false) == RdmapOpcode::send);
}

TEST_CASE("W-RDMAP-03: each message leaves with its control octet, by its queue",
          "[rdmap][W-RDMAP-03][W-RDMAP-01][W-DDP-05]") {
  rdmap::Sender sender;
  const auto leaves = [](const ddp::OutboundMessage& message, std::uint8_t control, std::uint32_t queue,
                         std::uint32_t msn, std::uint32_t length) {
    CAPTURE(int(control));
    CHECK_FALSE(message.tagged);
    CHECK(message.rdmap_control == control);
    CHECK(message.queue == queue);
    CHECK(message.msn == msn);
    CHECK(message.length == length);
    CHECK(message.stag == Stag{});
    CHECK(message.done == 0);
  };
  leaves(sender.send(false, false, {}, 7), 0x43, 0, 1, 7);
  leaves(sender.send(true, false, {}, 8), 0x45, 0, 2, 8);
  leaves(sender.read_request(), 0x41, 1, 1, 28);
  leaves(sender.atomic_request(), 0x4A, 1, 2, 52);
  leaves(sender.immediate(false), 0x48, 0, 3, 8);
  leaves(sender.immediate(true), 0x49, 0, 4, 8);
  leaves(sender.atomic_response(), 0x4B, 3, 1, 12);
  leaves(sender.atomic_response(), 0x4B, 3, 2, 12);
  // A Terminate is the only message of its queue, built anew or not.
  leaves(sender.terminate(4), 0x47, 2, 1, 4);
  leaves(sender.terminate(20), 0x47, 2, 1, 20);
  const auto write = sender.write({5}, 77, 9);
  CHECK(write.tagged);
  CHECK(write.rdmap_control == 0x40);
  CHECK(write.stag == Stag{5});
  CHECK(write.to == 77);
  CHECK(write.length == 9);
  const auto response = sender.read_response({6}, 78, 10);
  CHECK(response.tagged);
  CHECK(response.rdmap_control == 0x42);
  CHECK(response.stag == Stag{6});
  CHECK(response.to == 78);
  CHECK(response.length == 10);
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

TEST_CASE("W-ACK-01: what acknowledged streams have is refused elsewhere", "[rdmap][acknowledged][W-ACK-01]") {
  using rdmap::Extensions;
  for (const Extensions none : {Extensions::off, Extensions::on}) {
    CHECK(fault(untagged(0x4C, 4), none) == Fault::unexpected_opcode);
    CHECK(fault(untagged(0x4D, 4), none) == Fault::unexpected_opcode);
    CHECK(fault(untagged(0x4E, 0), none) == Fault::unexpected_opcode);
    CHECK(fault(untagged(0x4F, 0), none) == Fault::unexpected_opcode);
    CHECK(fault(untagged(0x43, 4), none) == Fault::queue_number);
  }
  for (const Extensions both : {Extensions::acknowledged, Extensions::all}) {
    CHECK(rdmap::check_form(untagged(0x4C, 4), 26, both));
    CHECK(rdmap::check_form(untagged(0x4F, 0), 26, both));
    CHECK(fault(untagged(0x4C, 3), both) == Fault::unexpected_opcode);
    CHECK(fault(untagged(0x43, 5), both) == Fault::queue_number);
  }
  CHECK(fault(untagged(0x4A, 1), Extensions::acknowledged) == Fault::unexpected_opcode);
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
  CHECK(culprit.size == 0);
  CHECK(culprit.segment_length == 0);
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

TEST_CASE("W-RDMAP-36: every fault has its code, its headers and its event",
          "[rdmap][W-RDMAP-36][W-RDMAP-26][W-RDMAP-28]") {
  // wire.md s3.4 for code and M, D, R; verbs.md s8 and s9 for the event (0: none of its own).
  enum Headers { none, segment, segment_and_read };
  struct Row {
    Fault fault;
    unsigned code;
    Headers headers;
    unsigned event;
  };
  const Row rows[] = {
      {Fault::segment_size, 0x1000, none, 5},
      {Fault::crc, 0x2002, none, 6},
      {Fault::bad_fpdu, 0x2003, none, 7},
      {Fault::ddp_version_tagged, 0x1104, segment, 8},
      {Fault::ddp_version_untagged, 0x1206, segment, 8},
      {Fault::rdmap_version, 0x0205, segment, 9},
      {Fault::unexpected_opcode, 0x0206, segment, 10},
      {Fault::queue_number, 0x1201, segment, 11},
      {Fault::reads_disabled, 0x1201, segment, 12},
      {Fault::writes_disabled, 0x1102, segment, 13},
      {Fault::tagged_invalid_stag, 0x1100, segment, 16},
      {Fault::tagged_bounds, 0x1101, segment, 17},
      {Fault::tagged_access, 0x1102, segment, 18},
      {Fault::tagged_association, 0x1102, segment, 19},
      {Fault::tagged_wrap, 0x1103, segment, 20},
      {Fault::receive_no_buffer, 0x1202, segment, 23},
      {Fault::receive_msn_range, 0x1203, segment, 23},
      {Fault::receive_msn_gap, 0x1203, segment, 24},
      {Fault::receive_offset, 0x1204, segment, 23},
      {Fault::receive_too_long, 0x1205, segment, 0},
      {Fault::read_too_many, 0x1203, segment, 25},
      {Fault::read_msn_gap, 0x1203, segment, 26},
      {Fault::read_msn_range, 0x1203, segment, 27},
      {Fault::read_offset, 0x1204, segment, 14},
      {Fault::read_size, 0x0207, segment, 14},
      {Fault::not_last, 0x0207, segment, 15},
      {Fault::read_invalid_stag, 0x0100, segment_and_read, 28},
      {Fault::read_bounds, 0x0101, segment_and_read, 29},
      {Fault::read_access, 0x0102, segment_and_read, 30},
      {Fault::read_association, 0x0103, segment_and_read, 31},
      {Fault::read_wrap, 0x0104, segment_and_read, 32},
      {Fault::immediate_size, 0x0207, segment, 14},
      {Fault::atomic_invalid_stag, 0x0100, segment, 28},
      {Fault::atomic_bounds, 0x0101, segment, 29},
      {Fault::atomic_access, 0x0102, segment, 30},
      {Fault::atomic_association, 0x0103, segment, 31},
      {Fault::atomic_wrap, 0x0104, segment, 32},
      {Fault::atomic_alignment, 0x0207, segment, 14},
      {Fault::atomic_response_no_request, 0x1202, segment, 23},
      {Fault::atomic_response_msn, 0x1203, segment, 23},
      {Fault::atomic_response_offset, 0x1204, segment, 23},
      {Fault::atomic_response_form, 0x0207, segment, 14},
      {Fault::acknowledge_msn, 0x1203, segment, 23},
      {Fault::acknowledge_form, 0x0207, segment, 14},
      {Fault::acknowledge_range, 0x0207, segment, 14},
      {Fault::invalidate_invalid_stag, 0x0100, segment, 0},
      {Fault::invalidate_access, 0x0102, segment, 0},
      {Fault::invalidate_refused, 0x0109, segment, 0},
      {Fault::local_work, 0x0000, none, 0},
      {Fault::by_consumer, 0x0000, none, 0},
      {Fault::bad_llp_close, 0x0207, none, 22},
      {Fault::cq_of_sends, 0x0207, none, 33},
      {Fault::cq_of_receives, 0x0207, none, 34},
      {Fault::srq, 0x0207, none, 35},
      {Fault::catastrophic, 0x0207, none, 36},
  };
  CHECK(std::size(rows) == static_cast<std::size_t>(Fault::count));
  rdmap::Culprit culprit;
  const auto head = untagged(0x41, 1);
  std::copy(head.begin(), head.end(), culprit.octets.begin());
  culprit.size = 46;
  culprit.segment_length = 46;
  for (const Row& row : rows) {
    CAPTURE(int(row.fault));
    const auto message = rdmap::terminate_message(row.fault, culprit);
    CHECK(message.code.word() == row.code);
    CHECK(message.has_length == (row.headers != none));
    CHECK(message.ddp_header_size == (row.headers != none ? 18 : 0));
    CHECK(message.has_read_request == (row.headers == segment_and_read));
    CHECK(rdmap::row(row.fault).event == row.event);
    CHECK((rdmap::row(row.fault).told == rdmap::Told::event) == (row.event != 0));
  }
  // Told by a completion: the receive's or the work request's. A Terminate that the consumer asked for
  // is news to nobody.
  for (const Fault fault : {Fault::receive_too_long, Fault::invalidate_invalid_stag, Fault::invalidate_access,
                            Fault::invalidate_refused, Fault::local_work})
    CHECK(rdmap::row(fault).told == rdmap::Told::completion);
  CHECK(rdmap::row(Fault::by_consumer).told == rdmap::Told::nobody);
}

TEST_CASE("W-RDMAP-25: of a message at fault as much is copied as has come", "[rdmap][W-RDMAP-25][W-RDMAP-26]") {
  rdmap::Culprit culprit;
  for (std::size_t i = 1; i < culprit.octets.size(); ++i) culprit.octets[i] = static_cast<std::byte>(i);
  const auto copied = [&culprit](std::uint8_t first, std::uint32_t size) {
    culprit.octets[0] = static_cast<std::byte>(first);
    culprit.size = size;
    culprit.segment_length = size + 100;
    return rdmap::terminate_message(Fault::read_bounds, culprit);
  };
  // Tagged.
  CHECK(wire::terminate_size(copied(0xC1, 13)) == 4);
  const auto tagged = copied(0xC1, 14);
  CHECK(tagged.ddp_header_size == 14);
  CHECK(tagged.has_length);
  CHECK(tagged.segment_length == 114);
  CHECK(std::equal(tagged.ddp_header.begin(), tagged.ddp_header.begin() + 14, culprit.octets.begin()));
  CHECK_FALSE(copied(0xC1, 41).has_read_request);
  // Untagged.
  CHECK(wire::terminate_size(copied(0x41, 13)) == 4);
  CHECK_FALSE(copied(0x41, 17).has_length);
  CHECK(copied(0x41, 17).ddp_header_size == 0);
  const auto untagged = copied(0x41, 18);
  CHECK(untagged.ddp_header_size == 18);
  CHECK(untagged.segment_length == 118);
  CHECK(std::equal(untagged.ddp_header.begin(), untagged.ddp_header.begin() + 18, culprit.octets.begin()));
  CHECK_FALSE(copied(0x41, 45).has_read_request);
  const auto read = copied(0x41, 46);
  CHECK(read.has_read_request);
  CHECK(std::equal(read.read_request.begin(), read.read_request.end(), culprit.octets.begin() + 18));
}

TEST_CASE("W-RDMAP-36: what the table refuses is told as its use demands", "[rdmap][W-RDMAP-36][W-RDMAP-16]") {
  using tpt::Refusal;
  struct Row {
    Refusal refusal;
    Fault tagged, read, atomic, invalidate;
  };
  for (const Row& row : {
           Row{Refusal::invalid_stag, Fault::tagged_invalid_stag, Fault::read_invalid_stag, Fault::atomic_invalid_stag,
               Fault::invalidate_invalid_stag},
           Row{Refusal::not_associated, Fault::tagged_association, Fault::read_association, Fault::atomic_association,
               Fault::invalidate_refused},
           Row{Refusal::access_rights, Fault::tagged_access, Fault::read_access, Fault::atomic_access,
               Fault::invalidate_access},
           Row{Refusal::to_wrap, Fault::tagged_wrap, Fault::read_wrap, Fault::atomic_wrap, Fault::invalidate_refused},
           Row{Refusal::base_or_bounds, Fault::tagged_bounds, Fault::read_bounds, Fault::atomic_bounds,
               Fault::invalidate_refused},
           Row{Refusal::cannot_invalidate, Fault::tagged_invalid_stag, Fault::read_invalid_stag,
               Fault::atomic_invalid_stag, Fault::invalidate_refused},
       }) {
    CAPTURE(int(row.refusal));
    CHECK(rdmap::tagged_fault(row.refusal) == row.tagged);
    CHECK(rdmap::read_fault(row.refusal) == row.read);
    CHECK(rdmap::atomic_fault(row.refusal) == row.atomic);
    CHECK(rdmap::invalidate_fault(row.refusal) == row.invalidate);
  }
}

TEST_CASE("W-RDMAP-27: what is no whole Read Request is left as it is", "[rdmap][W-RDMAP-27]") {
  rdmap::Culprit culprit;
  culprit.octets.fill(std::byte{0x55});
  culprit.size = 45;
  rdmap::advance_read_request(culprit, 60);
  CHECK(std::all_of(culprit.octets.begin(), culprit.octets.end(), [](std::byte b) { return b == std::byte{0x55}; }));
}

TEST_CASE("W-RDMAP-27: what is left of a Read that was partly answered", "[rdmap][W-RDMAP-27]") {
  rdmap::Culprit culprit;
  culprit.size = 46;
  wire::emit(
      wire::ReadRequestHeader{.sink_stag = {1}, .sink_to = 10, .size_bytes = 100, .source_stag = {2}, .source_to = 20},
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

TEST_CASE("V-IRD-06: a ring has room for one at least, and begins anew when it is reserved", "[rdmap][V-IRD-06]") {
  rdmap::Ring<int> ring;
  CHECK(ring.empty());
  ring.reserve(0);
  CHECK(ring.size() == 1);
  ring.push(1);
  CHECK(ring.full());
  ring.reserve(5);
  CHECK(ring.size() == 8);
  CHECK(ring.empty());
  CHECK(ring.count() == 0);
  ring.push(7);
  ring.push(8);
  ring.pop();
  CHECK(ring.first() == 1);
  CHECK(ring.next() == 2);
  CHECK(ring[1] == 8);
  ring[2] = 9;
  ring.push_filled();
  CHECK(ring.count() == 2);
  CHECK(ring[ring.next() - 1] == 9);
  // It never gets smaller.
  ring.reserve(2);
  CHECK(ring.size() == 8);
  CHECK(ring.empty());
  CHECK(ring.first() == 0);
  ring.push(3);
  ring.clear();
  CHECK(ring.empty());
  CHECK(ring.next() == 0);
}
