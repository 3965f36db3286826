// As what a device shows itself to applications, and how its queue pairs speak with their peers. Of iWARP is what the
// RFCs have; of RoCE what rnics have among themselves (docs/roce.md). Queue pairs of different faces do not connect.
#pragma once

#include <cstdint>

namespace rnic {

enum class Face : std::uint8_t { iwarp = 0, roce = 1 };

}  // namespace rnic
