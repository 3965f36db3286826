// A TCP header with whatever options, and what believes it: the handshake of a listener, and a
// connection that it opens and goes on to.
#include <memory>

#include "fuzz/input.hpp"
#include "kit/hex.hpp"
#include "tcp/connection.hpp"
#include "tcp/handshake.hpp"
#include "wire/tcp.hpp"

namespace rnic::fuzz {

namespace {

namespace flag = wire::tcp_flags;

tcp::Options small(unsigned choice) {
  tcp::Options options;
  options.send_segments_max = options.receive_segments_max = 16;
  options.out_of_order_segments_max = 16;
  options.timestamps = (choice & 1) != 0;
  options.sack = (choice & 2) == 0;
  options.window_scale = (choice & 4) == 0;
  options.nagle = (choice & 8) != 0;
  return options;
}

void check_out(const wire::TcpHeader& header) {
  FUZZ_CHECK(wire::header_size(header) <= wire::TcpHeader::kSizeMax);
  Octets out(wire::header_size(header));
  FUZZ_CHECK(wire::emit(header, out) == out.size());
  const auto again = wire::parse_tcp(out);
  FUZZ_CHECK(again && again->data_offset == out.size());
  FUZZ_CHECK(again->header == header);
}

void drain(tcp::Connection& connection, Instant now) {
  connection.end_of_burst();
  for (unsigned n = 0;; ++n) {
    FUZZ_CHECK(n < 1000);
    const auto out = connection.next_segment(now);
    if (!out) break;
    check_out(out->header);
  }
}

// Octets wait to be sent, and the header comes again and again, moved into the connection's window.
void converse(tcp::Connection& connection, HeapPool& pool, const wire::TcpHeader& header, std::uint32_t sequence,
              std::uint32_t acknowledged, Input& input, Instant& now) {
  for (int i = 0; i < 3; ++i) {
    BufferRef buffer = BufferRef::take(pool);
    if (!buffer) break;
    buffer->append(std::min(connection.emss(), 64u));
    if (!connection.append(std::move(buffer))) break;
  }
  drain(connection, now);
  for (int i = 0; i < 8 && !input.empty(); ++i) {
    wire::TcpHeader moved = header;
    moved.flags = static_cast<std::uint8_t>((input.u8() & ~flag::kSyn) | flag::kAck);
    moved.sequence = sequence + input.below(4);
    moved.acknowledgement = acknowledged + 1 + input.u8();
    for (std::size_t block = 0; block < moved.sack_count; ++block) {
      moved.sack[block].first += acknowledged;
      moved.sack[block].end += acknowledged;
    }
    connection.on_segment({moved, {}, {}}, now);
    now = now + milliseconds(input.u8());
    drain(connection, now);
  }
  connection.abort(now);
  drain(connection, now);
}

}  // namespace

void run_tcp_options(Bytes octets) {
  Input input(octets);
  const unsigned choice = input.u8();
  const std::size_t header_octets = input.below(61);
  const Bytes segment = input.take(header_octets);
  const auto parsed = wire::parse_tcp(segment);
  if (!parsed) return;
  FUZZ_CHECK(parsed->data_offset >= wire::TcpHeader::kSize && parsed->data_offset <= segment.size());
  FUZZ_CHECK(parsed->data_offset % 4 == 0);
  const wire::TcpHeader& header = parsed->header;
  FUZZ_CHECK(header.sack_count <= wire::TcpHeader::kSackBlocksMax);
  if (wire::header_size(header) <= wire::TcpHeader::kSizeMax) check_out(header);

  const tcp::Options options = small(choice);
  HeapPool pool(16, 128);
  Instant now{seconds(1000).ns};
  tcp::Connection connection(options);
  if ((choice & 16) != 0) {
    // We call, and this is the answer.
    connection.open_active({5000});
    drain(connection, now);
    wire::TcpHeader answer = header;
    answer.flags = flag::kSyn | ((choice & 32) != 0 ? flag::kAck : std::uint8_t{0});
    answer.acknowledgement = 5001;
    connection.on_segment({answer, {}, {}}, now);
    drain(connection, now);
    converse(connection, pool, header, answer.sequence + 1, 5001, input, now);
    return;
  }
  const tcp::Handshake handshake = tcp::agree(header, options, {7000}, 77);
  FUZZ_CHECK(handshake.peer_mss >= tcp::kMssMin);
  FUZZ_CHECK(handshake.send_shift <= 14);
  check_out(tcp::syn_ack(handshake, options, now));
  check_out(tcp::acknowledge(handshake, options, now));
  wire::TcpHeader third = header;
  third.flags = flag::kAck;
  third.sequence = handshake.theirs.value + 1;
  third.acknowledgement = 7001;
  (void)tcp::on_half_open(handshake, options, header, input.u8());
  if (tcp::on_half_open(handshake, options, third, 0) != tcp::HalfOpenStep::complete) return;
  connection.open_passive(handshake, third, now);
  connection.on_segment({third, {}, {}}, now);
  converse(connection, pool, header, third.sequence, 7001, input, now);
}

std::vector<Octets> seeds_tcp_options() {
  std::vector<Octets> seeds;
  // Choice, octets of the header, header; then flags, sequence, acknowledgement, time of what follows.
  const char* headers[] = {
      "0bb81d2f000003e80000000050020fff00000000",                                           // no options
      "0bb81d2f000003e8000000008002ffff00000000020405b40101040203030700",                   // as Linux, by half
      "0bb81d2f000003e800000000a002ffff00000000020405b40402080a0000000100000000010303070",  // as Linux
      "0bb81d2f000003e800000000b010ffff000000000101080a000000010000000001010512000000010000000500000009000000",
      "0bb81d2f000003e800000000f010ffff000000000101052200000010000000200000003000000040000000500000006000000070"
      "00000080000000",
      "0bb81d2f000003e8000000007002ffff000000000204000003030f00",  // MSS 0, a shift of 15
  };
  for (std::string text : headers) {
    if (text.size() % 2 != 0) text += '0';
    Octets header = test::hex(text);
    while (header.size() % 4 != 0) header.push_back({});
    header[12] = static_cast<std::byte>(header.size() / 4 << 4);
    for (const unsigned choice : {0u, 1u, 16u, 17u, 48u})
      seeds.push_back(Program()
                          .u8(choice)
                          .u8(static_cast<unsigned>(header.size()))
                          .bytes(header)
                          .bytes(test::hex("100000011000400210"))
                          .octets());
  }
  return seeds;
}

}  // namespace rnic::fuzz
