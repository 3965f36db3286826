// What somebody may have meant who has written a word that there is not. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace rnic::control {

// The known word that is the fewest slips away: a letter too many, too few, another, or two that have changed
// places; a beginning of three letters or more is one slip. Empty where none is near.
std::string_view nearest(std::string_view word, std::span<const std::string_view> known);

// "; did you mean X?", or nothing; `quote` stands on both sides of it.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> known, std::string_view quote);

}  // namespace rnic::control
