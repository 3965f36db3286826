// Work posted bit by bit, and what its completions must say.
#include "sim/workload_run.hpp"

#include <algorithm>
#include <cstdio>

namespace rnic::sim {

namespace {

// Cuts a slice into `pieces` SGEs, some of them empty.
template <typename Request>
void fill_sges(Request& request, const Area& area, std::size_t at, std::uint32_t length, unsigned pieces,
               Random& random) {
  request.sge_count = static_cast<std::uint8_t>(pieces);
  for (unsigned i = 0; i < pieces; ++i) {
    const std::uint32_t here = i + 1 == pieces ? length : static_cast<std::uint32_t>(random.below(length + 1));
    request.sges[i] = {area.address(at), here, area.stag};
    at += here;
    length -= here;
  }
}

}  // namespace

void Workload::post_op(End& end, unsigned index) {
  Op& op = end.ops[index];
  qp::WorkRequest request;
  request.opcode = op.opcode;
  request.signaled = op.signaled;
  request.fence = op.fence;
  request.solicited = op.solicited;
  request.slot = index;
  if (op.opcode == qp::Opcode::read) {
    fill_sges(request, end.read_sink, op.target, op.length, 1, random_);
    request.remote_to = end.peer->read_source.address(op.source);
    request.remote_stag = end.peer->read_source.stag;
  } else {
    if (op.inlined) {
      request.has_data = true;
      request.data = {end.source.memory.data() + op.source, op.length};
    } else {
      fill_sges(request, end.source, op.source, op.length, op.pieces, random_);
    }
    if (op.opcode == qp::Opcode::write) {
      request.remote_to = end.peer->write_target.address(op.target);
      request.remote_stag = end.peer->write_target.stag;
    }
  }
  op.posted = true;
  end.posted = index + 1;
  if (verbose_)
    std::printf("             %s qp %u posts %u: opcode %u, %u bytes%s\n", name(end),
                end.endpoint->qp->config().number.value, index, static_cast<unsigned>(op.opcode), op.length,
                op.signaled ? "" : ", unsignalled");
  end.rnic->post_send(*end.endpoint, request);
}

void Workload::post_receive(End& end, unsigned index) {
  unsigned n = 0;
  for (const Op& op : end.peer->ops) {
    if (op.opcode != qp::Opcode::send || n++ != index) continue;
    qp::ReceiveRequest request;
    request.slot = index;
    fill_sges(request, end.receive, op.target, op.receive_size, static_cast<unsigned>(random_.between(1, 3)), random_);
    end.receives_posted = index + 1;
    end.rnic->post_receive(*end.endpoint, request);
    return;
  }
}

void Workload::act_on(End& end) {
  if (end.endpoint->qp == nullptr) return;
  take_completions(end);
  if (stopping_ || end.endpoint->qp->state() == qp::State::error) return;
  if (end.failed || end.disconnected || end.excused) return;
  while (end.receives_posted < end.receives_total && end.receives_posted - end.receives_done < choice_.rq_depth &&
         random_.chance(600))
    post_receive(end, end.receives_posted);
  if (!end.established) return;
  while (!end.all_posted() && end.posted - end.done < choice_.sq_depth && random_.chance(700)) post_op(end, end.posted);
}

void Workload::watch_now_and_then() {
  for (std::size_t i = 0; i < captures_.size(); ++i) {
    if (!local_random_.chance(10)) continue;
    core::Device& device = i == 0 ? world_.a.device : world_.b.device;
    captures_[i].attached ? device.remove_tap(captures_[i]) : device.add_tap(captures_[i]);
    captures_[i].attached = !captures_[i].attached;
  }
}

bool Workload::act() {
  if (world_.clock.now < next_act_ && random_.chance(700)) {
    for_each_end([&](End& end) {
      if (end.endpoint->qp != nullptr) take_completions(end);
    });
  } else {
    for_each_end([&](End& end) { act_on(end); });
    next_act_ = world_.clock.now + nanoseconds(static_cast<std::int64_t>(random_.below(100'000)));
  }
  if (way_ == Way::direct) watch_now_and_then();
  if (world_.clock.now >= strike_at_ && !struck_) strike();
  if (attacker_) attacker_->act();
  // Who is on the path can put whole good FPDUs in another order, and nothing tells.
  for (const Rnic* rnic : {&world_.a, &world_.b})
    if (!rnic->mover.complaint().empty() && danger_ != Danger::on_path) complain(rnic->mover.complaint());
  return true;
}

// ---- completions ---------------------------------------------------------------------------

void Workload::take_completions(End& end) {
  test::QueueHost& host = end.endpoint->host;
  while (end.completions_seen < host.completions.size()) {
    const std::size_t at = end.completions_seen++;
    const qp::Completion& completion = host.completions[at];
    if (verbose_)
      std::printf("             %s qp %u completes %s %u: status %u, %u bytes\n", name(end),
                  end.endpoint->qp->config().number.value, completion.of_send_queue ? "request" : "receive",
                  completion.slot, static_cast<unsigned>(completion.status), completion.length);
    if (completion.of_send_queue)
      on_send_done(end, completion);
    else
      on_receive_done(end, completion);
  }
}

void Workload::on_send_done(End& end, const qp::Completion& completion) {
  const unsigned index = completion.slot;
  if (index >= end.posted) return complain("a completion of a work request that was never posted");
  Op& op = end.ops[index];
  if (++op.completed > 1) return complain("work request " + std::to_string(index) + " completed twice");
  if (index + 1 <= end.last_completed) return complain("completions out of post order at " + std::to_string(index));
  end.last_completed = index + 1;
  const bool success = completion.status == qp::Status::success;
  if (success && !op.signaled) return complain("an unsignalled work request completed");
  if (!success && !struck_)
    return complain("work request " + std::to_string(index) + " failed, status " +
                    std::to_string(static_cast<unsigned>(completion.status)));
  for (unsigned i = end.done; i < index; ++i)
    if (end.ops[i].signaled && end.ops[i].completed == 0)
      return complain("work request " + std::to_string(i) + " was passed over by a completion");
  if (success && choice_.acknowledged) check_performed(end, end.done, index);
  end.done = index + 1;
  if (!success) return;
  op.succeeded = true;
  if (op.opcode != completion.opcode) return complain("a completion with another opcode");
  if (op.opcode == qp::Opcode::read) {
    if (!std::equal(op.content.begin(), op.content.end(),
                    end.read_sink.memory.begin() + static_cast<std::ptrdiff_t>(op.target)))
      return complain("a Read completed and its octets are not those of the source");
    // Everything before it on this QP that was a Write or Send is at the peer (RFC 5040 s5.5).
    return;
  }
  // The memory of a completed request is the application's again.
  for (std::size_t i = 0; i < op.length; ++i) end.source.memory[op.source + i] ^= std::byte{0xA5};
}

void Workload::on_receive_done(End& end, const qp::Completion& completion) {
  const unsigned index = completion.slot;
  if (index != end.receives_done) return complain("receives out of order");
  ++end.receives_done;
  if (index >= end.receives_posted) return complain("a completion of a receive that was never posted");
  if (completion.status != qp::Status::success) {
    if (!struck_ && !stopping_ && !end.failed)
      complain("a receive failed, status " + std::to_string(static_cast<unsigned>(completion.status)));
    return;
  }
  unsigned n = 0;
  for (unsigned i = 0; i < end.peer->ops.size(); ++i) {
    Op& op = end.peer->ops[i];
    if (op.opcode != qp::Opcode::send || n++ != index) continue;
    op.arrived = true;
    if (completion.length != op.length) return complain("a receive of another length than its Send");
    if (completion.solicited != op.solicited) return complain("a receive that disagrees about solicited");
    if (!std::equal(op.content.begin(), op.content.end(),
                    end.receive.memory.begin() + static_cast<std::ptrdiff_t>(op.target)))
      return complain("a receive whose octets are not those of its Send");
    check_writes_before(end, i);
    return;
  }
}

// Of acknowledged streams: what is complete here is there, whoever looks at it, and by whatever way he has heard of it.
void Workload::check_performed(const End& end, unsigned first, unsigned last) {
  if (danger_ == Danger::on_path) return;
  for (unsigned i = first; i <= last; ++i) {
    const Op& op = end.ops[i];
    if (op.opcode == qp::Opcode::write &&
        !std::equal(op.content.begin(), op.content.end(),
                    end.peer->write_target.memory.begin() + static_cast<std::ptrdiff_t>(op.target)))
      return complain("a Write completed and its octets are not at the peer");
  }
  const auto sends = std::count_if(end.ops.begin(), end.ops.begin() + last + 1,
                                   [](const Op& op) { return op.opcode == qp::Opcode::send; });
  const auto& told = end.peer->endpoint->host.completions;
  const auto receives = std::count_if(told.begin(), told.end(), [](const qp::Completion& c) {
    return !c.of_send_queue && c.status == qp::Status::success;
  });
  if (receives < sends) complain("a Send completed and its receive is not");
}

void Workload::check_writes_before(End& receiver, unsigned op_index) {
  // Who is on the path can say an FPDU of a Write once more in the place of another: it is whole, its CRC
  // is good, and Writes have no number that would tell (RFC 5042 s6.1: end-to-end protection is for IPsec).
  if (danger_ == Danger::on_path) return;
  for (unsigned i = 0; i < op_index; ++i) {
    Op& op = receiver.peer->ops[i];
    if (op.opcode != qp::Opcode::write || op.arrived) continue;
    op.arrived = true;
    if (!std::equal(op.content.begin(), op.content.end(),
                    receiver.write_target.memory.begin() + static_cast<std::ptrdiff_t>(op.target)))
      return complain("a Send was delivered before a Write that was posted earlier was placed");
  }
}

}  // namespace rnic::sim
