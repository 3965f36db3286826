#include "control/journal.hpp"

#include <fmt/format.h>

namespace rnic::control {
namespace {

std::string in_words(const wire::IpAddress& address, std::uint16_t port) {
  const std::string text = wire::to_string(address);
  return address.is_v4() ? fmt::format("{}:{}", text, port) : fmt::format("[{}]:{}", text, port);
}

const char* in_words(core::StreamFailure failure) {
  switch (failure) {
    case core::StreamFailure::none:
      return "without a reason";
    case core::StreamFailure::refused:
      return "nobody listens there";
    case core::StreamFailure::unreachable:
      return "no way to it, or no neighbour that answers";
    case core::StreamFailure::timed_out:
      return "no answer in time";
    case core::StreamFailure::reset:
      return "the connection was reset, or given up here";
    case core::StreamFailure::protocol:
      return "the startup frames do not fit";
    case core::StreamFailure::no_resources:
      return "no room for it here";
  }
  return "";
}

const char* in_words(qp::Cause cause) {
  switch (cause) {
    case qp::Cause::connected:
      return "connected";
    case qp::Cause::consumer:
      return "its application's wish";
    case qp::Cause::fault:
      return "an error found here: Terminate sent";
    case qp::Cause::peer_closed:
      return "the peer's FIN";
    case qp::Cause::peer_terminated:
      return "the peer's Terminate";
    case qp::Cause::peer_reset:
      return "the peer's RST";
    case qp::Cause::lost:
      return "the connection was lost, or took too long to end";
    case qp::Cause::busy_close:
      return "work or octets in a closing connection";
    case qp::Cause::finished:
      return "the connection has ended in both directions";
    case qp::Cause::unreached:
      return "its peer is not there";
  }
  return "";
}

}  // namespace

std::string in_words(const Ends& ends) {
  if (ends.local_port == 0 && ends.remote_port == 0) return {};
  return in_words(ends.local, ends.local_port) + " - " + in_words(ends.remote, ends.remote_port);
}

std::string in_words(const core::StreamEvent& event) {
  using Kind = core::StreamEvent::Kind;
  const std::string ends = in_words(Ends{event.local, event.remote, event.local_port, event.remote_port});
  const std::string whose = event.qp_number != 0 ? fmt::format("{}, queue pair {}", ends, event.qp_number) : ends;
  const auto id = static_cast<std::uint32_t>(event.cookie);
  switch (event.kind) {
    case Kind::connect_request:
      return fmt::format("{}: the peer asks to connect, for listener {}", whose, id);
    case Kind::withdrawn:
      return fmt::format("{}: the peer that asked has gone before it was answered", ends);
    case Kind::established:
      return fmt::format("{}: established, id {}", whose, id);
    case Kind::rejected:
      return fmt::format("{}: the peer rejects id {}, with {} octets of private data", whose, id,
                         event.private_data.length);
    case Kind::failed:
      return fmt::format("{}: not connected, id {}: {}", whose, id, in_words(event.failure));
    case Kind::disconnected:
      return fmt::format("{}: disconnected, id {}", whose, id);
    case Kind::ready:
      return fmt::format("{}: there is something to read, or room to write, id {}", whose, id);
  }
  return whose;
}

std::string in_words(const qp::Change& change, const qp::TerminateRecord& record) {
  std::string text = fmt::format("{} to {}: {}", name(change.from), name(change.to), in_words(change.cause));
  using Origin = qp::TerminateRecord::Origin;
  if (change.to == qp::State::terminate && record.origin != Origin::none) {
    // The application's own is 0x0000 by definition.
    if (change.cause == qp::Cause::consumer) text += ": Terminate sent";
    text += " " + qp::describe(record);
  }
  if (change.to == qp::State::idle || change.to == qp::State::error)
    text += fmt::format("; flushed: {} of the send queue, {} receives", change.flushed_sends, change.flushed_receives);
  return text;
}

}  // namespace rnic::control
