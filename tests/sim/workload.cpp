#include "sim/workload.hpp"

#include <algorithm>
#include <cstdio>

#include "sim/workload_run.hpp"

namespace rnic::sim {

// ---- connections ---------------------------------------------------------------------------

void Workload::on_event(Rnic& rnic, const core::StreamEvent& event) {
  using Kind = core::StreamEvent::Kind;
  static constexpr const char* kNames[] = {"connect_request", "withdrawn", "established",
                                           "rejected",        "failed",    "disconnected"};
  if (verbose_)
    std::printf("%12.3f us %s hears %s (failure %u, cookie %llu)\n",
                static_cast<double>((world_.clock.now.ns - seconds(1000).ns)) / 1000, &rnic == &world_.a ? "a" : "b",
                kNames[static_cast<int>(event.kind)], static_cast<unsigned>(event.failure),
                static_cast<unsigned long long>(event.cookie));
  if (event.kind == Kind::connect_request) {
    // Private data says which end is meant.
    std::uint32_t index = 0;
    if (event.private_data.length != 4) return complain("private data of another length");
    std::memcpy(&index, event.private_data.octets.data(), 4);
    if (index >= ends_.size()) return complain("private data with other octets");
    End& end = *ends_[index];
    end.stream = event.stream;
    core::AcceptOptions options{.ird = end.depth, .ord = end.depth, .private_data = {}, .cookie = index};
    options.acknowledged = choice_.acknowledged;
    if (end.endpoint->qp == nullptr) {
      (void)rnic.device.reject(event.stream, {}, world_.clock.now);
    } else if (!rnic.device.accept(event.stream, options, *end.endpoint->qp, world_.clock.now)) {
      if (!struck_) complain("accept() was refused");
      (void)rnic.device.reject(event.stream, {}, world_.clock.now);
      end.failed = true;
    } else {
      end.accepted = true;
    }
    return;
  }
  if (event.kind == Kind::withdrawn) return;  // the cookie is the listener's
  End& end = *ends_[event.cookie];
  switch (event.kind) {
    case Kind::connect_request:
    case Kind::ready:
    case Kind::withdrawn:
      break;
    case Kind::established:
      if (end.established) complain("established was told twice");
      end.established = true;
      if (strike_at_ == kNever && trouble()) strike_at_ = world_.clock.now + choice_.strike;
      break;
    case Kind::rejected:
    case Kind::failed:
      if (end.established) complain("failed was told after established");
      if (end.failed) complain("failed was told twice");
      end.failed = true;
      break;
    case Kind::disconnected:
      if (!end.established) complain("disconnected was told before established");
      if (end.disconnected) complain("disconnected was told twice");
      end.disconnected = true;
      break;
  }
}

void Workload::connect_all() {
  for (Rnic* rnic : {&world_.a, &world_.b}) {
    rnic->on_event = [this, rnic](const core::StreamEvent& event) { on_event(*rnic, event); };
    if (!rnic->device.listen({}, kWorkloadPort, 16, 999)) complain("listen() was refused");
  }
  for (std::uint32_t i = 0; i < ends_.size(); ++i) {
    End& end = *ends_[i];
    if (!end.initiator) continue;
    const std::uint32_t other = i ^ 1;
    core::ConnectOptions options;
    options.remote = end.peer->rnic->device.options().addresses[0].address;
    options.remote_port = kWorkloadPort;
    options.ird = options.ord = end.depth;
    options.cookie = i;
    options.acknowledged = choice_.acknowledged;
    options.private_data.length = 4;
    std::memcpy(options.private_data.octets.data(), &other, 4);
    const auto stream = end.rnic->device.connect(options, *end.endpoint->qp, world_.clock.now);
    if (!stream) return complain("connect() was refused");
    end.stream = *stream;
  }
}

// ---- ends ----------------------------------------------------------------------------------

void Workload::strike() {
  if (danger_ == Danger::on_path) {
    // Startup frames have no CRC: whoever changes them changes what is agreed on. So he waits.
    const bool all =
        std::all_of(ends_.begin(), ends_.end(), [](const auto& end) { return end->established || end->failed; });
    if (!all && !finished()) {
      strike_at_ = world_.clock.now + milliseconds(1);
      return;
    }
    struck_ = true;
    attacker_->begin();
    return;
  }
  struck_ = true;
  if (way_ == Way::direct && local_random_.chance(250)) {
    // Memory that cannot be reached any more.
    for_each_end([&](End& end) {
      for (const Area* area : {&end.source, &end.receive, &end.write_target, &end.read_source, &end.read_sink})
        if (local_random_.chance(300)) end.rnic->mover.unreachable.insert(area->stag.value);
    });
  }
  if (choice_.ending == Ending::blackout) {
    if (verbose_) std::printf("             the wire goes dead\n");
    LinkOptions dead = choice_.world.link;
    dead.loss_per_1000 = 1000;
    world_.a_to_b.set_options(dead);
    world_.b_to_a.set_options(dead);
    return;
  }
  for_each_end([&](End& end) {
    if (end.endpoint->qp == nullptr || !random_.chance(600)) return;
    const auto how = random_.below(5);
    if (verbose_)
      std::printf("             %s qp %u is struck: %u\n", name(end), end.endpoint->qp->config().number.value,
                  static_cast<unsigned>(how));
    switch (how) {
      case 0:
        end.rnic->device.kill(end.stream, world_.clock.now);
        break;
      case 1:
      case 4:
        // One that is not established is dropped without a word.
        if (!end.established) end.excused = true;
        end.rnic->device.disconnect(end.stream, how == 1 ? core::Disconnect::graceful : core::Disconnect::abrupt,
                                    world_.clock.now);
        break;
      case 2:
        (void)end.endpoint->qp->modify_state(qp::State::error, world_.clock.now);
        end.rnic->device.touch(*end.endpoint->qp);
        break;
      case 3:
        end.gone = true;
        end.rnic->destroy_qp(*end.endpoint);
        break;
    }
  });
}

// After the work: each pair is disconnected by one of the two.
void Workload::end_gracefully() {
  stopping_ = true;
  for (std::size_t i = 0; i < ends_.size(); i += 2) {
    End& end = *ends_[i + random_.below(2)];
    end.rnic->device.disconnect(end.stream, core::Disconnect::graceful, world_.clock.now);
  }
  const bool over = world_.run_until([&] {
    return !complaint_.empty() || std::all_of(ends_.begin(), ends_.end(), [](const auto& end) {
      const qp::State state = end->endpoint->qp->state();
      return end->disconnected && (state == qp::State::idle || state == qp::State::error);
    });
  });
  // A FIN that is lost again and again ends in a reset (V-CLS-08); where that is lost as well, a peer
  // that has nothing to send never hears of it.
  if (!over && !bad_wire()) complain("a graceful close does not come to its end");
  for_each_end([&](End& end) {
    take_completions(end);
    for (const qp::Event event : end.endpoint->host.events)
      if (event != qp::Event::close_complete && choice_.world.link.loss_per_1000 == 0 && complaint_.empty() &&
          event != qp::Event::last_wqe_reached)
        complain("event " + std::to_string(static_cast<unsigned>(event)) + " in a graceful run");
  });
}

bool Workload::finished() const {
  if (!complaint_.empty()) return true;
  // A completed Write may still be on its way, and a side that closes while it comes closes badly
  // (V-TDN-08).
  if (!std::all_of(ends_.begin(), ends_.end(),
                   [](const auto& end) { return end->established && end->all_done() && end->all_received(); }))
    return false;
  for (const Rnic* rnic : {&world_.a, &world_.b})
    for (const core::StreamInfo& info : rnic->device.streams())
      if (info.in_flight_bytes != 0) return false;
  return std::all_of(ends_.begin(), ends_.end(),
                     [](const auto& end) { return end->write_target.memory == end->write_target.expected; });
}

void Workload::check_memory(const End& end, bool complete) {
  const auto check = [&](const Area& area, const char* what) {
    for (std::size_t i = 0; i < area.memory.size(); ++i) {
      if (area.memory[i] == area.expected[i]) continue;
      if (!complete && area.memory[i] == area.initial[i]) continue;
      return complain(std::string("memory of ") + name(end) + "'s " + what + " is wrong at " + std::to_string(i));
    }
  };
  check(end.receive, "receive buffers");
  check(end.write_target, "Write target");
  check(end.read_source, "Read source");
  check(end.read_sink, "Read sink");
}

// After trouble: what was posted is accounted for.
void Workload::check_accounts(End& end) {
  if (end.gone || end.endpoint->qp == nullptr) return;
  take_completions(end);
  if (!end.failed && !end.disconnected && !end.excused && end.established)
    return complain("a stream ended and nobody was told");
  if (end.endpoint->qp->state() != qp::State::error) return;
  for (unsigned i = 0; i < end.posted; ++i)
    if (end.ops[i].completed == 0 && end.ops[i].signaled)
      return complain(std::string("work request ") + std::to_string(i) + " of " + name(end) + " was never completed");
  if (end.receives_done != end.receives_posted) return complain("receives that were never completed");
}

void Workload::print_state(const End& end) const {
  const qp::QueuePair* qp = end.endpoint->qp.get();
  std::printf("%s: %s%s%s%s qp %u %s%s, posted %u done %u of %zu, receives posted %u done %u of %u%s\n", name(end),
              end.initiator ? "initiator " : "", end.established ? "established " : "", end.failed ? "failed " : "",
              end.disconnected ? "disconnected " : "", qp != nullptr ? qp->config().number.value : 0,
              qp != nullptr ? qp::name(qp->state()) : "gone", qp != nullptr && qp->idle() ? " idle" : "", end.posted,
              end.done, end.ops.size(), end.receives_posted, end.receives_done, end.receives_total,
              end.write_target.memory == end.write_target.expected ? "" : ", Writes missing");
}

// On a bad wire a connection may not come about, or be given up; that is no fault.
bool Workload::gave_up() const {
  if (!bad_wire()) return false;
  return std::any_of(ends_.begin(), ends_.end(), [](const auto& end) { return end->failed && !end->established; });
}

Report Workload::run() {
  Report report;
  report.seed = seed_;
  report.story = story_of(choice_);
  if (verbose_) std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed_), report.story.c_str());
  if (choice_.post_early)
    for_each_end([&](End& end) {
      while (end.receives_posted < end.receives_total) post_receive(end, end.receives_posted);
    });
  world_.application = [&] { return act(); };
  world_.application_deadline = [&] {
    bool more = false;
    for_each_end([&](End& end) {
      more |=
          end.established && !end.disconnected && !end.failed && !stopping_ && end.endpoint->qp != nullptr &&
          ((!end.all_posted() && end.posted - end.done < choice_.sq_depth) ||
           (end.receives_posted < end.receives_total && end.receives_posted - end.receives_done < choice_.rq_depth)) &&
          end.endpoint->qp->state() == qp::State::rts;
    });
    return std::min(std::min(more ? std::max(next_act_, world_.clock.now + nanoseconds(100)) : kNever,
                             struck_ ? kNever : strike_at_),
                    attacker_ ? attacker_->next() : kNever);
  };
  // Before an address is known to be ours nobody can be called from it.
  const auto settled = [&] { return world_.a.device.addresses_settled() && world_.b.device.addresses_settled(); };
  if (choice_.world.a.device.probe && !world_.run_until([&] { return settled(); }, seconds(30)))
    complain("the addresses are still being asked for");
  if (danger_ == Danger::off_path) attacker_->begin();
  connect_all();

  const auto everybody_told = [&] {
    return !complaint_.empty() || std::all_of(ends_.begin(), ends_.end(), [](const auto& end) {
      if (end->gone || end->failed || end->excused) return true;
      if (!end->initiator && !end->accepted) return true;  // it never heard of one
      return end->disconnected && end->endpoint->qp->state() != qp::State::rts &&
             end->endpoint->qp->state() != qp::State::closing && end->endpoint->qp->state() != qp::State::terminate;
    });
  };

  switch (choice_.ending) {
    case Ending::graceful:
      if (!world_.run_until([&] { return finished() || gave_up(); }, seconds(3000)))
        complain("the work does not come to its end");
      struck_ |= gave_up();
      if (complaint_.empty() && !struck_) end_gracefully();
      // What completed was delivered before the FIN, at the latest.
      if (complaint_.empty() && !struck_) for_each_end([&](End& end) { check_memory(end, true); });
      break;
    case Ending::destroy_early: {
      const auto step = [&] {
        if (!complaint_.empty() || gave_up()) return true;
        for (std::size_t i = 0; i < ends_.size(); i += 2) {
          End& a = *ends_[i];
          if (a.endpoint->qp != nullptr && a.established && a.peer->established && a.all_done()) {
            if (verbose_) std::printf("             a destroys its QP\n");
            struck_ = true;
            a.gone = true;
            a.rnic->destroy_qp(*a.endpoint);
          }
        }
        return std::all_of(ends_.begin(), ends_.end(), [&](const auto& end) {
          if (end->rnic == &world_.a) return end->gone;
          return end->all_received() && end->disconnected;
        });
      };
      if (!world_.run_until(step, seconds(3000)))
        complain("what was completed before the QP was destroyed does not arrive");
      struck_ = true;
      if (complaint_.empty() && !gave_up())
        for_each_end([&](End& end) {
          if (end.rnic == &world_.b) check_memory(end, true);
        });
      break;
    }
    case Ending::abrupt:
    case Ending::blackout:
      world_.run_until([&] { return !complaint_.empty() || struck_ || (finished() && strike_at_ != kNever); },
                       seconds(3000));
      if (!struck_) strike();
      struck_ = true;
      // Whoever was not struck, and whose peer was not, is ended now; a dead wire is noticed only by
      // those who have something in flight.
      world_.run_for(choice_.ending == Ending::blackout ? seconds(2000) : seconds(1));
      for_each_end([&](End& end) {
        if (end.endpoint->qp == nullptr || end.disconnected || end.failed || end.excused) return;
        end.rnic->device.kill(end.stream, world_.clock.now);
      });
      if (!world_.run_until(everybody_told, seconds(3000))) complain("a side never hears that its stream has ended");
      for_each_end([&](End& end) { check_memory(end, false); });
      world_.run_for(milliseconds(1));
      if (complaint_.empty()) for_each_end([&](End& end) { check_accounts(end); });
      break;
  }

  if (complaint_.empty()) {
    stopping_ = true;
    for_each_end([&](End& end) { end.rnic->destroy_qp(*end.endpoint); });
    const auto empty = [&] { return world_.a.device.stream_count() == 0 && world_.b.device.stream_count() == 0; };
    if (!world_.run_until(empty, seconds(2500))) {
      std::string which;
      for (const Rnic* rnic : {&world_.a, &world_.b})
        for (const core::StreamInfo& info : rnic->device.streams())
          which += std::string(rnic == &world_.a ? " a: " : " b: ") + info.tcp_state + " " + info.phase;
      complain("streams that never end:" + which);
    }
    world_.run_for(seconds(10));  // what waits for a neighbour that does not answer is dropped
    // A few are kept at hand by the device, and frames wait in the wire, not in buffers.
    for (Rnic* rnic : {&world_.a, &world_.b}) {
      const RnicOptions& options = rnic == &world_.a ? choice_.world.a : choice_.world.b;
      const std::uint32_t total = options.buffers;
      if (complaint_.empty() && rnic->port.heap().available() + 32 < total)
        complain("buffers that never came back: " + std::to_string(total - rnic->port.heap().available()));
      const std::uint32_t large = buffers_of(options).large_count;
      if (complaint_.empty() && rnic->port.heap().large_available() < large)
        complain("large buffers that never came back: " + std::to_string(large - rnic->port.heap().large_available()));
    }
  }
  if (verbose_) for_each_end([&](End& end) { print_state(end); });
  report.complaint = complaint_;
  report.steps = world_.steps;
  report.frames = world_.a_to_b.frames() + world_.b_to_a.frames();
  report.bytes = bytes_;
  report.seen = seen();
  report.in_peace = complaint_.empty() && !trouble() && !gave_up();
  report.direct = world_.a.direct + world_.b.direct;
  report.simulated_us = (world_.clock.now.ns - seconds(1000).ns) / 1000;
  return report;
}

void Workload::take_digest(Digest& digest) {
  std::uint64_t number = 0;
  // What is said twice is said by two: whose it is counts as well as when.
  const auto at_now = [this, &digest](std::uint64_t whose) {
    digest.add(whose);
    digest.add(world_.clock.now);
  };
  for (Link* link : {&world_.a_to_b, &world_.b_to_a})
    link->watch([=, &digest, whose = number++](Bytes frame, Instant, Link::Fate fate) {
      at_now(whose);
      digest.add(static_cast<std::uint64_t>(fate));
      digest.add(frame);
    });
  for_each_end([&](End& end) {
    const std::uint64_t whose = number++;
    end.endpoint->host.on_completion = [=, &digest](const qp::Completion& completion) {
      at_now(whose);
      digest.add(completion);
    };
    end.endpoint->host.on_event = [=, &digest](qp::Event event) {
      at_now(whose);
      digest.add(static_cast<std::uint64_t>(event));
    };
    end.endpoint->host.on_change = [=, &digest](const qp::Change& change) {
      at_now(whose);
      digest.add(change);
    };
  });
}

std::uint64_t Workload::seen() {
  Digest digest;
  for_each_end([&](const End& end) {
    const test::QueueHost& host = end.endpoint->host;
    for (const bool of_sends : {true, false})
      for (const qp::Completion& completion : host.completions)
        if (completion.of_send_queue == of_sends) digest.add(completion);
    std::vector<qp::Event> events = host.events;
    std::sort(events.begin(), events.end());
    for (const qp::Event event : events) digest.add(static_cast<std::uint64_t>(event));
    for (const Area* area : {&end.receive, &end.write_target, &end.read_sink}) digest.add(area->memory);
  });
  return digest.value();
}

Report run_workload(std::uint64_t seed, bool verbose, Danger danger, std::uint32_t mtu_bytes, Digest* digest, Way way) {
  Workload workload(seed, verbose && digest == nullptr, danger, mtu_bytes, way);
  if (digest != nullptr) workload.take_digest(*digest);
  return workload.run();
}

}  // namespace rnic::sim
