// DDP segments out of a program, with STags and offsets of the regions that there are; and FPDUs.
#pragma once

#include "fuzz/input.hpp"
#include "fuzz/memory.hpp"
#include "mpa/packer.hpp"
#include "wire/ddp.hpp"

namespace rnic::fuzz {

// An octet that says what to put in, 16 bits of length, the ULPDU. The STag at 2 and the TO at 6
// (tagged), or those of a Read Request at 18 and 34, become those of a region when they are asked
// for: TO is then counted from its first octet.
inline Octets take_ulpdu(Input& input, Memory& memory) {
  const unsigned choice = input.u8();
  const Bytes given = input.take(input.u16() % 2048);
  Octets ulpdu(given.begin(), given.end());
  const auto aim = [&](std::size_t stag_at, std::size_t to_at, unsigned region) {
    if (ulpdu.size() < to_at + 8) return;
    store_be(MutableBytes(ulpdu), stag_at, memory.stag(region).value);
    store_be(MutableBytes(ulpdu), to_at, load_be<std::uint64_t>(ulpdu, to_at) + memory.address(region));
  };
  const unsigned region = choice >> 2 & 3, other = choice >> 4 & 3;
  if ((choice & 3) == 1) aim(2, 6, region);
  if ((choice & 3) == 2) {
    aim(18, 22, region);
    aim(34, 38, other);
  }
  if ((choice & 3) == 3) aim(26, 30, region);  // an Atomic Request
  return ulpdu;
}

inline Octets fpdu_of(mpa::Packer& packer, Bytes ulpdu) {
  if (ulpdu.empty()) return Octets(4);
  static thread_local mpa::PieceList pieces;
  Octets room(packer.octets_for(static_cast<std::uint32_t>(ulpdu.size())));
  const std::size_t head = std::min<std::size_t>(ulpdu.size(), 14);
  packer.begin(room, ulpdu.first(head), static_cast<std::uint32_t>(ulpdu.size() - head), pieces);
  Bytes payload = ulpdu.subspan(head);
  for (std::uint32_t i = 0; i < pieces.count; ++i) {
    std::copy_n(payload.begin(), pieces.pieces[i].size(), pieces.pieces[i].begin());
    payload = payload.subspan(pieces.pieces[i].size());
  }
  packer.seal(room);
  return room;
}

// ---- for seeds ----

inline Octets tagged(unsigned opcode, bool last, std::uint64_t to, Bytes payload) {
  Octets out(wire::TaggedHeader::kSize);
  wire::emit(
      wire::TaggedHeader{
          .last = last, .rdmap_control = static_cast<std::uint8_t>(0x40 | opcode), .stag = {}, .tagged_offset = to},
      out);
  test::append(out, payload);
  return out;
}
inline Octets untagged(unsigned opcode, bool last, std::uint32_t queue, std::uint32_t msn, std::uint32_t offset,
                       Bytes payload) {
  Octets out(wire::UntaggedHeader::kSize);
  wire::emit(wire::UntaggedHeader{.last = last,
                                  .rdmap_control = static_cast<std::uint8_t>(0x40 | opcode),
                                  .invalidate = {},
                                  .queue = queue,
                                  .msn = msn,
                                  .message_offset = offset},
             out);
  test::append(out, payload);
  return out;
}

}  // namespace rnic::fuzz
