#include "decode/startup_scan.hpp"

#include <algorithm>

namespace rnic::tool {

StartupScan scan_startup(Bytes octets) {
  using wire::StartupHeader;
  const auto begins = [octets](const std::array<std::byte, 16>& key) {
    return std::equal(octets.begin(), octets.begin() + static_cast<std::ptrdiff_t>(std::min(octets.size(), key.size())),
                      key.begin());
  };
  StartupScan scan;
  if (!begins(wire::kRequestKey) && !begins(wire::kReplyKey)) return scan;
  scan.kind = StartupScan::Kind::more;
  scan.size = StartupHeader::kSize;
  if (octets.size() < StartupHeader::kSize) return scan;

  scan.header = *wire::parse_startup(octets);
  const std::size_t length = scan.header.private_data_length;
  const auto bad = [&](std::string reason) {
    scan.kind = StartupScan::Kind::bad;
    scan.reason = std::move(reason);
    const Bytes there = octets.subspan(StartupHeader::kSize);
    scan.object = startup_object(scan.header, there.first(std::min(there.size(), length)));
    return scan;
  };
  if (scan.header.revision < 1 || scan.header.revision > 2)
    return bad("MPA revision " + std::to_string(scan.header.revision) + " where 1 and 2 are known");
  if (length > StartupHeader::kPrivateDataMax)
    return bad("PD_Length " + std::to_string(length) + " is more than " +
               std::to_string(StartupHeader::kPrivateDataMax));
  if (scan.header.enhanced && length < wire::EnhancedBlock::kSize)
    return bad("the S flag says that IRD and ORD follow, but PD_Length is " + std::to_string(length));
  scan.size = StartupHeader::kSize + length;
  if (octets.size() < scan.size) return scan;
  scan.kind = StartupScan::Kind::frame;
  scan.object = startup_object(scan.header, octets.subspan(StartupHeader::kSize, length));
  return scan;
}

}  // namespace rnic::tool
