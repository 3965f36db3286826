#include "control/nearest.hpp"

#include <algorithm>
#include <vector>

namespace rnic::control {
namespace {

// The edit distance of optimal string alignment: each place of the word is edited once at most.
std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last, last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1] ? 1u : 0u)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    before_last = last;
    last = row;
  }
  return last[b.size()];
}

}  // namespace

std::string_view nearest(std::string_view word, std::span<const std::string_view> known) {
  constexpr std::size_t kWordMax = 64;  // nobody means anything by a longer one
  constexpr std::size_t kBeginningMin = 3;
  if (word.size() > kWordMax) return {};
  std::string_view best;
  std::size_t fewest = 1 + word.size() / 3;
  for (const std::string_view each : known) {
    const std::size_t count =
        word.size() >= kBeginningMin && each.starts_with(word) ? std::size_t{1} : edits(word, each);
    // A word that is replaced as a whole was not meant.
    if (count < fewest + (best.empty() ? 1 : 0) && count < std::max(word.size(), each.size())) {
      best = each;
      fewest = count;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string_view> known, std::string_view quote) {
  const std::string_view meant = nearest(word, known);
  if (meant.empty()) return {};
  return "; did you mean " + std::string(quote) + std::string(meant) + std::string(quote) + "?";
}

}  // namespace rnic::control
