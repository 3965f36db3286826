// Suggestions for a misspelt word: "did you mean X?". Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace rnic::control {

// The known word that is the fewest edits away: a letter inserted, deleted, replaced, or two neighbours swapped; a
// prefix of three letters or more counts as one edit. Empty where none is near.
std::string_view nearest(std::string_view word, std::span<const std::string_view> known);

// "; did you mean X?", or nothing; `quote` stands on both sides of it.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> known, std::string_view quote);

}  // namespace rnic::control
