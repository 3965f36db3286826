#include "port/fanout_program.hpp"

#include <cstdint>
#include <initializer_list>

#include "base/assert.hpp"
#include "wire/checksum.hpp"
#include "wire/ethernet.hpp"
#include "wire/ipv6.hpp"
#include "wire/rss.hpp"

namespace rnic::port {

namespace {

constexpr std::uint32_t kEtherType = static_cast<std::uint32_t>(SKF_AD_OFF + SKF_AD_PROTOCOL);

constexpr std::uint16_t kLoadWord = BPF_LD | BPF_W | BPF_ABS, kLoadHalf = BPF_LD | BPF_H | BPF_ABS,
                        kLoadOctet = BPF_LD | BPF_B | BPF_ABS;

// A: the exclusive or of the words at these offsets, and of X.
void combine(std::vector<sock_filter>& program, std::initializer_list<std::uint32_t> offsets) {
  for (const std::uint32_t offset : offsets) {
    program.push_back(BPF_STMT(kLoadWord, offset));
    program.push_back(BPF_STMT(BPF_ALU | BPF_XOR | BPF_X, 0));
    program.push_back(BPF_STMT(BPF_MISC | BPF_TAX, 0));
  }
}

}  // namespace

std::vector<sock_filter> fanout_program(unsigned queues) {
  RNIC_ASSERT(queues >= 1);
  std::vector<sock_filter> program;
  // A jump to what is not known yet: `to` says which of these places it means.
  enum class To : std::uint8_t { other, v6, hash };
  struct Open {
    std::size_t at;
    bool if_true;  // which way of a conditional jump
    To to;
  };
  std::vector<Open> open;
  const auto expect = [&](std::uint16_t test, std::uint32_t value, bool when, To otherwise) {
    open.push_back({program.size(), !when, otherwise});
    program.push_back(BPF_JUMP(static_cast<std::uint16_t>(BPF_JMP | test | BPF_K), value, 0, 0));
  };

  program.push_back(BPF_STMT(kLoadWord, kEtherType));
  expect(BPF_JEQ, wire::ether_type::kIpv4, true, To::v6);
  // IPv4: of at least five words, no fragment, TCP.
  program.push_back(BPF_STMT(kLoadOctet, 0));
  expect(BPF_JGE, 0x45, true, To::other);
  expect(BPF_JGT, 0x4F, false, To::other);
  program.push_back(BPF_STMT(kLoadHalf, 6));
  expect(BPF_JSET, 0x3FFF, false, To::other);
  program.push_back(BPF_STMT(kLoadOctet, 9));
  expect(BPF_JEQ, wire::protocol::kTcp, true, To::other);
  program.push_back(BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 0));
  program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_IND, 0));
  program.push_back(BPF_STMT(BPF_MISC | BPF_TAX, 0));
  combine(program, {12, 16});
  open.push_back({program.size(), false, To::hash});
  program.push_back(BPF_STMT(BPF_JMP | BPF_JA, 0));

  const std::size_t v6 = program.size();
  expect(BPF_JEQ, wire::ether_type::kIpv6, true, To::other);
  program.push_back(BPF_STMT(kLoadOctet, 0));
  program.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xF0));
  expect(BPF_JEQ, 0x60, true, To::other);
  program.push_back(BPF_STMT(kLoadOctet, 6));
  expect(BPF_JEQ, wire::protocol::kTcp, true, To::other);
  program.push_back(BPF_STMT(kLoadWord, wire::Ipv6Header::kSize));
  program.push_back(BPF_STMT(BPF_MISC | BPF_TAX, 0));
  combine(program, {8, 12, 16, 20, 24, 28, 32, 36});

  // The words' halves together, and the hash above them: as each bit adds what it alone has for a hash.
  const std::size_t hash = program.size();
  program.push_back(BPF_STMT(BPF_MISC | BPF_TAX, 0));
  program.push_back(BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 16));
  program.push_back(BPF_STMT(BPF_ALU | BPF_XOR | BPF_X, 0));
  program.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xFFFF));
  for (unsigned bit = 0; bit < 16; ++bit) {
    const auto alone = static_cast<std::uint16_t>(1u << bit);
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, alone, 0, 1));
    program.push_back(BPF_STMT(BPF_ALU | BPF_XOR | BPF_K, std::uint32_t{wire::rss::hash(alone)} << 16));
  }
  program.push_back(BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 16));
  program.push_back(BPF_STMT(BPF_ALU | BPF_MOD | BPF_K, wire::rss::kTable));
  program.push_back(BPF_STMT(BPF_ALU | BPF_MOD | BPF_K, queues));
  program.push_back(BPF_STMT(BPF_RET | BPF_A, 0));

  const std::size_t other = program.size();
  program.push_back(BPF_STMT(BPF_RET | BPF_K, 0));

  for (const auto& [at, if_true, to] : open) {
    const std::size_t distance = (to == To::v6 ? v6 : to == To::hash ? hash : other) - at - 1;
    sock_filter& jump = program[at];
    if (BPF_OP(jump.code) == BPF_JA) {
      jump.k = static_cast<std::uint32_t>(distance);
    } else {
      RNIC_ASSERT(distance <= 0xFF);
      (if_true ? jump.jt : jump.jf) = static_cast<std::uint8_t>(distance);
    }
  }
  return program;
}

}  // namespace rnic::port
