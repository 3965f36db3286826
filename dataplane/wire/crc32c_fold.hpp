// CRC32c of a long run of octets by folding (Gopal et al., "Fast CRC Computation for Generic Polynomials
// Using PCLMULQDQ Instruction", 2009): what lies in a register is multiplied by the power of x that its
// distance to later octets is, and added to those, until 128 bits are left.
//
// For files that have switched the compiler to the instructions of their `Lanes`, a register of `kOctets`
// octets, `kSums` of which are used beside each other to hide the latency of a multiplication:
//   Lanes::load(at), Lanes::of(number)    the number in the lowest bits, else zeros
//   Lanes::folder(Fold)                   the same in each 128 bits
//   folded_onto(lanes, folder, onto)      each 128 bits multiplied, and added to `onto`
//   lanes ^ lanes
//   last_128(lanes)                       all 128-bit parts folded onto the last
// Included inside an unnamed namespace: no other file may get code of such instructions.

// What 128 bits are multiplied by so that they stand `bits` further on. A product of two reflected
// numbers stands one bit too low.
struct alignas(16) Fold {
  std::uint64_t lower, upper;
};
constexpr Fold fold_by(std::size_t bits) {
  return {std::uint64_t{power_of_x(bits + 32)} << 1, std::uint64_t{power_of_x(bits - 32)} << 1};
}

template <class Lanes>
struct Sums {
  static constexpr std::size_t kOctets = Lanes::kSums * Lanes::kOctets;
  static constexpr Fold kStride = fold_by(8 * kOctets);

  Lanes sums[Lanes::kSums];

  Sums(std::uint32_t running, const std::byte* at) {
    for (std::size_t i = 0; i < Lanes::kSums; ++i) sums[i] = Lanes::load(at + i * Lanes::kOctets);
    sums[0] = sums[0] ^ Lanes::of(running);
  }
  template <class Folder>
  void add(const std::byte* at, Folder stride) {
    for (std::size_t i = 0; i < Lanes::kSums; ++i)
      sums[i] = folded_onto(sums[i], stride, Lanes::load(at + i * Lanes::kOctets));
  }
  // All of them folded onto the last, each two neighbours first.
  Lanes joined() {
    static constexpr Fold kOne = fold_by(8 * Lanes::kOctets), kTwo = fold_by(16 * Lanes::kOctets),
                          kFour = fold_by(32 * Lanes::kOctets);
    constexpr std::size_t n = Lanes::kSums;
    const auto one = Lanes::folder(kOne), two = Lanes::folder(kTwo), four = Lanes::folder(kFour);
    for (std::size_t i = 1; i < n; i += 2) sums[i] = folded_onto(sums[i - 1], one, sums[i]);
    for (std::size_t i = 3; i < n; i += 4) sums[i] = folded_onto(sums[i - 2], two, sums[i]);
    for (std::size_t i = 7; i < n; i += 8) sums[i] = folded_onto(sums[i - 4], four, sums[i]);
    return sums[n - 1];
  }
};

// The CRC of what was folded: the CRC instruction multiplies by x^32 modulo the polynomial.
template <class Lanes>
std::uint32_t reduced(Lanes sum) {
  const __m128i last = last_128(sum);
  std::uint64_t crc = _mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(last)));
  crc = _mm_crc32_u64(crc, static_cast<std::uint64_t>(_mm_extract_epi64(last, 1)));
  return static_cast<std::uint32_t>(crc);
}
