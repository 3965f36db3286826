// A Terminate in words, for the log and for people (W-RDMAP-34).
#pragma once

#include <string>

#include "base/bytes.hpp"

namespace rnic::rdmap {

// Of the payload of a Terminate, as it was sent or came: "2/0/06 (LLP: insufficient IRD), no headers".
// With Origin::remote the reading in which each octet's fields are swapped follows, where it is another
// one: a peer on a little-endian machine that lays bit-fields over the octets, as siw does, means that.
enum class Origin : unsigned char { local, remote };
std::string describe_terminate(Bytes payload, Origin origin);

}  // namespace rnic::rdmap
