#include "core/stream.hpp"

namespace rnic::core {

const char* name(Stream::Phase phase) {
  switch (phase) {
    case Stream::Phase::opening:
      return "opening";
    case Stream::Phase::negotiating:
      return "negotiating";
    case Stream::Phase::waiting:
      return "waiting";
    case Stream::Phase::starting:
      return "starting";
    case Stream::Phase::running:
      return "running";
    case Stream::Phase::held:
      return "held";
    case Stream::Phase::orphan:
      return "orphan";
  }
  return "";
}

}  // namespace rnic::core
