// What the data plane's refusals are to an application: an errno.
#pragma once

#include <cerrno>

#include "core/connection.hpp"

namespace rnic::control {

inline int errno_of(core::StreamError error) {
  switch (error) {
    case core::StreamError::address_in_use:
      return EADDRINUSE;
    case core::StreamError::no_ports:
      return EADDRNOTAVAIL;
    case core::StreamError::no_route:
      return ENETUNREACH;
    case core::StreamError::no_resources:
      return ENOMEM;
    case core::StreamError::unknown:
      return ECONNRESET;
    case core::StreamError::wrong_state:
    case core::StreamError::another_shard:
      return EINVAL;
  }
  return EINVAL;
}

}  // namespace rnic::control
