// CRC32c by three streams of the CRC instruction, which takes eight octets each cycle but answers after
// three cycles; and with the multiplier at work beside it. Included as `wire/crc32c_fold.hpp` is, behind it.

constexpr std::size_t kWordsMax = 150;  // of eight octets, of a stream, between two joins

// kShift[w] moves a CRC over w words. The product of two reflected numbers stands one bit too low, and the
// CRC instruction that reduces it moves it 32 further, hence x^(64 w - 33).
constexpr auto kShift = [] {
  std::array<std::uint32_t, 3 * kWordsMax + 1> shift{};
  std::uint32_t value = power_of_x(64 - 33);
  for (std::size_t words = 1; words < shift.size(); ++words) {
    shift[words] = value;
    for (int bit = 0; bit < 64; ++bit) value = times_x(value);
  }
  return shift;
}();

std::uint64_t moved(std::uint64_t crc, std::size_t words) {
  return static_cast<std::uint64_t>(_mm_cvtsi128_si64(_mm_clmulepi64_si128(
      _mm_cvtsi64_si128(static_cast<long long>(crc)), _mm_cvtsi32_si128(static_cast<int>(kShift[words])), 0x00)));
}

struct Streams {
  const std::byte* at;  // where the first is; the others follow at `octets`, twice `octets`
  std::size_t octets;
  std::uint64_t first, second = 0, third = 0;

  void word() {
    first = _mm_crc32_u64(first, load(at));
    second = _mm_crc32_u64(second, load(at + octets));
    third = _mm_crc32_u64(third, load(at + 2 * octets));
    at += 8;
  }
  // `before`: the CRC of what lies before them, if the first did not begin with it.
  std::uint32_t joined(std::uint32_t before = 0) const {
    const std::size_t words = octets / 8;
    const std::uint64_t sum = moved(before, 3 * words) ^ moved(first, 2 * words) ^ moved(second, words);
    return static_cast<std::uint32_t>(_mm_crc32_u64(0, sum) ^ third);
  }
  static std::uint64_t load(const std::byte* from) {
    std::uint64_t word;
    std::memcpy(&word, from, sizeof word);
    return word;
  }
};

inline std::uint32_t crc32c_by_streams(std::uint32_t running, const std::byte* at, std::size_t size) {
  constexpr std::size_t kWordsMin = 4;  // with fewer a join costs more than it saves
  while (size >= 3 * 8 * kWordsMin) {
    const std::size_t words = std::min(size / (3 * 8), kWordsMax);
    Streams streams{at, 8 * words, running};
    for (std::size_t i = 0; i < words; ++i) streams.word();
    running = streams.joined();
    at += 3 * 8 * words;
    size -= 3 * 8 * words;
  }
  return crc32c_by_words(running, at, size);
}

// Half of it folded, and half by the CRC instruction: two parts of the processor that do not share. A step
// takes 128 octets in one and 3 x 40 in the other, which take about the same time; what is left over goes
// to the streams.
template <class Lanes>
std::uint32_t crc32c_by_both(std::uint32_t running, const std::byte* at, std::size_t size) {
  constexpr std::size_t kFolded = Sums<Lanes>::kOctets, kWords = 5, kStep = kFolded + 3 * 8 * kWords;
  static_assert(kFolded == 128);
  while (size >= 3 * kStep) {  // below that the streams alone are as quick
    const std::size_t steps = std::min(size / kStep, kWordsMax / kWords);
    const std::size_t words = std::min((size - steps * kFolded) / (3 * 8), kWordsMax);
    Sums<Lanes> sums(running, at);
    const auto stride = Lanes::folder(Sums<Lanes>::kStride);
    Streams streams{at + steps * kFolded, 8 * words, 0};
    for (std::size_t step = 1; step < steps; ++step) {
      sums.add(at + step * kFolded, stride);
      for (std::size_t word = 0; word < kWords; ++word) streams.word();
    }
    for (std::size_t word = kWords * (steps - 1); word < words; ++word) streams.word();
    running = streams.joined(reduced(sums.joined()));
    at += steps * kFolded + 3 * 8 * words;
    size -= steps * kFolded + 3 * 8 * words;
  }
  return crc32c_by_streams(running, at, size);
}
