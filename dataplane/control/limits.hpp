// What a device can do, and how much of it one application may have. What Query RNIC reports is what is
// enforced (V-RNIC-08): of objects, for an application that is alone; there are some more for those that
// come after it (shares.hpp).
#pragma once

#include <cstdint>

namespace rnic::control {

inline constexpr std::uint32_t kVendorId =
    0x524e;  // "RN": none of the known vendors, whose quirks applications work around
inline constexpr std::uint32_t kVendorPart = 1;

inline constexpr std::uint32_t kQpsMax = 65'536;
inline constexpr std::uint32_t kWorkRequestsMax = 32'768;  // of a send or receive queue
inline constexpr std::uint32_t kSgesMax = 16;
inline constexpr std::uint32_t kReadSgesMax = 1;  // iWARP's Read names one sink; a RoCE face's as many as a Send
inline constexpr std::uint32_t kCqsMax = 65'536;
inline constexpr std::uint32_t kCqesMax = 1'048'576;
inline constexpr std::uint32_t kRegionsMax = 1'048'576;
inline constexpr std::uint32_t kPdsMax = 65'536;
inline constexpr std::uint32_t kSrqsMax = 16'384;
inline constexpr std::uint32_t kGroupsMax = 64;        // multicast
inline constexpr std::uint32_t kGroupPlacesMax = 256;  // queue pairs of one
inline constexpr std::uint32_t kSrqWorkRequestsMax = 32'768;
inline constexpr std::uint32_t kReadDepthMax = 128;  // IRD and ORD; librdmacm's field has 8 bits
inline constexpr std::uint32_t kInlineMax = 512;
// A send entry has at least this stride, so that small messages can be gathered into it at post.
inline constexpr std::uint32_t kSendStrideMin = 256;
inline constexpr std::uint32_t kCompletionVectors = 1;
// For data that is gathered at post and does not fit its entry: of a process, and of all.
inline constexpr std::uint64_t kTransmitMemoryMax = std::uint64_t{64} << 20;
inline constexpr std::uint64_t kTransmitMemoryAll = std::uint64_t{1} << 30;

inline constexpr std::uint32_t kSessionsMax = 8192;     // connections to the control socket
inline constexpr std::uint32_t kSessionsKept = 16;      // more, for the rnic command
inline constexpr std::uint32_t kDescriptorsKept = 128;  // that no application is given: for that, and on the way
inline constexpr std::uint32_t kContextsMax = 4096;
inline constexpr std::uint32_t kChannelsMax = 4096;  // of rdma_cm
inline constexpr std::uint32_t kCompletionChannelsMax = 8192;
inline constexpr std::uint32_t kDevicesMax = 24;  // what one reply of LIST_DEVICES holds

}  // namespace rnic::control
