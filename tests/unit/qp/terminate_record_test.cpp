// The Terminate that is kept, and what one that came says.

#include "qp/terminate_record.hpp"

#include "kit/catch.hpp"
#include "rdmap/terminate.hpp"
#include "wire/ddp.hpp"

using namespace rnic;
using Origin = qp::TerminateRecord::Origin;

namespace {

std::vector<std::byte> payload_of(const wire::TerminateMessage& message) {
  std::vector<std::byte> out(64);
  out.resize(wire::emit(message, out));
  return out;
}
// What our end would say about a message with this header.
std::vector<std::byte> about(rdmap::Fault fault, const wire::UntaggedHeader& header) {
  rdmap::Culprit culprit;
  wire::emit(header, culprit.octets);
  culprit.size = wire::UntaggedHeader::kSize;
  culprit.segment_length = 46;
  return payload_of(rdmap::terminate_message(fault, culprit));
}
wire::UntaggedHeader request(std::uint32_t queue, std::uint32_t msn) {
  return {
      .last = true, .rdmap_control = wire::rdmap_control(wire::RdmapOpcode::read_request), .queue = queue, .msn = msn};
}

}  // namespace

TEST_CASE("none was said or heard: there are no words", "[qp]") {
  const qp::TerminateRecord record;
  CHECK(record.bytes().empty());
  CHECK(qp::describe(record).empty());
}

TEST_CASE("what was said is kept as it was, and told in words", "[qp]") {
  const auto message = rdmap::terminate_message(rdmap::Fault::by_consumer, {});
  const auto record = qp::TerminateRecord::said(message);
  CHECK(record.origin == Origin::local);
  CHECK(wire::parse_terminate(record.bytes()) == message);
  CHECK_FALSE(qp::describe(record).empty());
}

TEST_CASE("W-RDMAP-34: what was heard is kept octet by octet", "[qp][W-RDMAP-34]") {
  const auto payload = about(rdmap::Fault::read_invalid_stag, request(1, 3));
  const auto record = qp::TerminateRecord::heard(payload);
  CHECK(record.origin == Origin::remote);
  CHECK(std::equal(payload.begin(), payload.end(), record.bytes().begin(), record.bytes().end()));
  CHECK_FALSE(qp::describe(record).empty());
  CHECK(qp::describe(record) != qp::describe(qp::TerminateRecord::said(*wire::parse_terminate(payload))));
}

TEST_CASE("only 0x0000 with nothing else says nothing", "[qp]") {
  CHECK(qp::says_nothing(payload_of({})));
  CHECK_FALSE(qp::says_nothing({}));
  CHECK_FALSE(qp::says_nothing(payload_of(rdmap::terminate_message(rdmap::Fault::crc, {}))));
  CHECK_FALSE(qp::says_nothing(about(rdmap::Fault::catastrophic, request(1, 3))));
}

TEST_CASE("V-CS-05: the Read that is refused is known by its Request's number", "[qp][V-CS-05]") {
  const auto read = qp::refused_read(about(rdmap::Fault::read_invalid_stag, request(1, 3)));
  REQUIRE(read);
  CHECK(read->msn == 3u);
  CHECK(read->code.word() == rdmap::terminate_message(rdmap::Fault::read_invalid_stag, {}).code.word());
}

TEST_CASE("V-CS-05: no other message is a Read", "[qp][V-CS-05]") {
  CHECK_FALSE(qp::refused_read({}));
  CHECK_FALSE(qp::refused_read(payload_of({})));
  CHECK_FALSE(qp::refused_read(about(rdmap::Fault::receive_msn_gap, request(0, 3))));
  CHECK_FALSE(qp::refused_read(about(rdmap::Fault::receive_msn_gap, request(3, 3))));
}
