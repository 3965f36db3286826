// What goes through the ready descriptor, from rnicd to whoever started it: lines for the user, and when the
// daemon serves an octet of 0. Without that octet it has not started, and has said on stderr why.
#pragma once

namespace rnic::control {

inline constexpr const char* kWarning = "warning: ";  // how a line begins that tells of what is not as asked for

}  // namespace rnic::control
