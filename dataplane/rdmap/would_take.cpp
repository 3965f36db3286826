// Whether what comes next would be taken without a word: asked by who can still choose another way for it
// (qp/local_path.hpp). The checks are those of taking it, whose order does not matter here, as nothing is said of why.
#include "rdmap/responder.hpp"
#include "rdmap/sinks.hpp"

namespace rnic::rdmap {
namespace {

// A payload that is memory is copied to memory that is mapped here alone.
bool is_reached(const ddp::Ulpdu& ulpdu, const tpt::Access& to) {
  return ulpdu.memory == nullptr || to.direct != nullptr;
}

}  // namespace

bool Responder::would_take(const ddp::Ulpdu& ulpdu, std::uint32_t more) {
  if (stopped_ || early_ != nullptr || held_.unread() || held_since_ != kNever || deliveries_.full()) return false;
  std::array<std::byte, wire::kDdpHeaderSizeMax> head;
  const auto in = check_form(ulpdu.head(head), ulpdu.size, known_);
  if (!in) return false;
  switch (in->message.operation) {
    case Operation::write: {
      Inbound whole = *in;
      whole.payload += more;
      if (whole.payload == 0) return true;
      const auto access = check_sink(common_, whole);
      return access && is_reached(ulpdu, *access);
    }
    case Operation::send:
    case Operation::immediate:
      return would_take_send(*in, more, ulpdu.memory != nullptr);
    case Operation::read_request:
    case Operation::atomic_request: {
      const Request request = parse_request(*in, ulpdu);
      return !request_form_fault(*in, request) && !request_fault(request);
    }
    case Operation::read_response:
      return would_take_response(*in, ulpdu, more);
    case Operation::atomic_response:
      return would_take_atomic_response(*in);
    case Operation::acknowledge:
      return in->ddp.msn - next_acknowledge_ == 0;
    case Operation::none:
    case Operation::terminate:
    case Operation::negative_acknowledge:
      return false;
  }
  return false;
}

bool Responder::would_take_send(const Inbound& in, std::uint32_t more, bool from_memory) {
  const ddp::InboundQueue& queue = inbound_[wire::queue_number::kSend];
  if (in.ddp.msn != queue.msn() || in.ddp.message_offset != queue.offset()) return false;
  const bool immediate = in.message.operation == Operation::immediate;
  if (immediate && immediate_fault(in)) return false;
  if (!receiving_.active() && !receiving_.take()) return false;
  if (receiving_.malformed()) return false;
  if (!common_.host.has_room_for_receive()) return false;
  if (immediate) return true;
  const Settings& own = common_.settings;
  if (in.message.invalidates && !common_.table.may_invalidate_remote(in.ddp.stag, own.pd, own.number, own.access))
    return false;
  if (in.payload + more == 0) return true;
  if (queue.offset() + std::uint64_t{in.payload} + more > receiving_.capacity()) return false;
  return receiving_.check() == Status::success && (!from_memory || receiving_.is_mapped());
}

bool Responder::would_take_response(const Inbound& in, const ddp::Ulpdu& ulpdu, std::uint32_t more) {
  if (reads_.due() == 0) return false;
  const OutboundRead& read = reads_.due_at(0);
  Inbound whole = in;
  whole.payload += more;
  if (read.atomic || whole.payload != read.left) return false;
  if (whole.payload == 0) return true;
  if (in.ddp.stag != read.sink.stag || in.ddp.tagged_offset != read.next_to) return false;
  const auto access = check_response(common_, read, whole);
  return access && is_reached(ulpdu, *access);
}

bool Responder::would_take_atomic_response(const Inbound& in) const {
  if (in.ddp.msn != inbound_[wire::queue_number::kAtomicResponse].msn() || reads_.due() == 0) return false;
  const OutboundRead& atomic = reads_.due_at(0);
  if (!atomic.atomic) return false;
  const auto sink = common_.table.check_local(atomic.sink.consumers, common_.settings.pd, tpt::Rights::local_write,
                                              atomic.next_to, kAtomicBytes);
  return sink.has_value();
}

}  // namespace rnic::rdmap
