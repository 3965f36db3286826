// Another process's idle queue pair, by its number: connected to the attacker's own, as caller and as called.
#include "system/hostile/victim.hpp"

namespace rnic::hostile {
namespace {

void own_a_queue_pair(const std::string& socket, Victim::Line line) {
  Bench bench(socket);
  const bare::QueuePair qp = bench.app.queue_pair(bench.pd, bench.cq.handle, bench.cq.handle, 16);
  line.tell(qp.number);
  std::uint64_t word;
  while (line.hear(word))  // each asks for its state
    line.tell(bench.app.control.by_handle(RNIC_QUERY_QP, qp.number).as<rnic_query_qp_reply>("QUERY_QP").state);
}

}  // namespace

int claim(const Options& options) {
  const Victim victim([&](Victim::Line line) { own_a_queue_pair(options.socket, line); });
  const auto number = static_cast<std::uint32_t>(victim.hear());
  Bench bench(options.socket);
  bare::Channel channel(options.socket);
  const std::uint32_t listener = bare::listening(channel, bare::address_of(bench.app.device()));
  attacking();
  int got = 0;
  const auto refused = [&](const char* what, const bare::Answer& answer) {
    if (!answer.good()) return;
    say(std::string(what) + " with another's queue pair");
    got = 1;
  };
  refused("CONNECT", channel.connect(bare::resolved(channel, channel.query(listener).source), number));
  if (got == 0) {
    const bare::QueuePair own = bench.app.queue_pair(bench.pd, bench.cq.handle, bench.cq.handle, 16);
    const std::uint32_t caller = bare::resolved(channel, channel.query(listener).source);
    if (!channel.connect(caller, own.number).good()) bare::fail("no CONNECT with a queue pair of our own");
    refused("ACCEPT", channel.accept(channel.expect(RNIC_CM_CONNECT_REQUEST).id, number));
  }
  refused("MODIFY_QP", bench.app.to_error(number));
  refused("DESTROY_QP", bench.app.control.by_handle(RNIC_DESTROY_QP, number));
  victim.tell(0);
  if (const std::uint64_t state = victim.hear(); state != RNIC_QP_IDLE) {
    say("its state is " + std::to_string(state));
    got = 1;
  }
  return got;
}

}  // namespace rnic::hostile
