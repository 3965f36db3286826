// What a CRC32c costs in each way that this processor has: ns, the least of many rounds, of octets in the cache. Then a
// copy with a CRC of what was copied: one after the other, and in one pass where that is quicker (crc32c_copy()).
//
//   crc32c-cost [rounds]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#include "wire/crc32c.hpp"
#include "wire/crc32c_kinds.hpp"

using namespace rnic;

namespace {

constexpr unsigned kBatch = 256;  // CRCs of a round, each beginning with the one before

template <class Update>
double cost_ns(const Update& update, Bytes octets, unsigned rounds, std::uint32_t& sum) {
  double least = std::numeric_limits<double>::max();
  for (unsigned round = 0; round < rounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (unsigned i = 0; i < kBatch; ++i) sum = update(sum, octets);
    const std::chrono::duration<double, std::nano> passed = std::chrono::steady_clock::now() - start;
    least = std::min(least, passed.count() / kBatch);
  }
  return least;
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned rounds = argc > 1 ? static_cast<unsigned>(std::strtoul(argv[1], nullptr, 10)) : 1000;
  std::vector<std::byte> octets(65'536);
  for (std::size_t i = 0; i < octets.size(); ++i) octets[i] = static_cast<std::byte>(i * 131);
  std::uint32_t sum = 0;
  std::printf("%-22s", "octets");
  const std::size_t sizes[] = {128, 256, 512, 1432, 4096, 8900, 64768};
  for (const std::size_t size : sizes) std::printf("%8zu", size);
  std::printf("\n");
  for (const auto& kind : wire::detail::crc_kinds()) {
    std::printf("%-22s", kind.name);
    for (const std::size_t size : sizes) {
      if (kind.runs_here)
        std::printf("%8.1f", cost_ns(kind.update, Bytes{octets}.first(size), rounds, sum));
      else
        std::printf("%8s", "-");
    }
    std::printf("\n");
  }
  // Not at the same place of a page: stores would hold up loads that have nothing to do with them.
  std::vector<std::byte> room(octets.size() + 4096);
  const MutableBytes copy = MutableBytes{room}.subspan(2130, octets.size());
  const auto one_by_one = [&](std::uint32_t running, Bytes from) {
    std::memcpy(copy.data(), from.data(), from.size());
    return wire::detail::crc32c_update(running, Bytes(copy).first(from.size()));
  };
  const auto in_one_pass = [&](std::uint32_t running, Bytes from) {
    return wire::detail::crc32c_copy(running, from, copy.data());
  };
  std::printf("%-22s", "copy, then CRC");
  for (const std::size_t size : sizes)
    std::printf("%8.1f", cost_ns(one_by_one, Bytes{octets}.first(size), rounds, sum));
  std::printf("\n%-22s", "in one pass");
  for (const std::size_t size : sizes)
    std::printf("%8.1f", cost_ns(in_one_pass, Bytes{octets}.first(size), rounds, sum));
  std::printf("\n");
  return sum == 0x5EED ? 1 : 0;  // so that it is computed
}
