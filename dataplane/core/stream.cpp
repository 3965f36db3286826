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
    case Stream::Phase::streaming:
      return "streaming";
    case Stream::Phase::orphan:
      return "orphan";
  }
  return "";
}

StreamFailure failure_of(tcp::Ended ended) {
  switch (ended) {
    case tcp::Ended::refused:
      return StreamFailure::refused;
    case tcp::Ended::timed_out:
      return StreamFailure::timed_out;
    case tcp::Ended::no:
    case tcp::Ended::gracefully:
    case tcp::Ended::reset:
    case tcp::Ended::aborted:
      break;
  }
  return StreamFailure::reset;
}

}  // namespace rnic::core
