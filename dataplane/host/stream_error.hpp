// Why a listener or a call could not be, or what was asked of a stream could not.
#pragma once

#include <cstdint>

namespace rnic::host {

enum class StreamError : std::uint8_t {
  address_in_use,
  no_ports,
  no_route,
  no_resources,
  unknown,
  wrong_state,
  another_shard,  // a call from a port whose connections another worker has (host/flow.hpp)
};

}  // namespace rnic::host
