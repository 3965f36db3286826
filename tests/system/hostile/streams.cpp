// Streams in streaming mode: another process's, by their numbers; as many as go, which are spoken into, and of which
// none is heard, half of them closed now and then; and rubbish for queue pairs on them.
#include <unistd.h>

#include <algorithm>
#include <random>
#include <vector>

#include "system/hostile/victim.hpp"

namespace rnic::hostile {
namespace {

constexpr std::uint16_t kPort = 7901;  // and the victim's, behind it
constexpr std::uint32_t kHandlesMax = 2000;

rnic_address at(const bare::Application& app, std::uint16_t port) { return bare::address_of(app.device(), port); }

bare::Answer listen(bare::Application& app, std::uint16_t port) {
  return app.control.ask(RNIC_STREAM_LISTEN, rnic_stream_listen{at(app, port), 128, 0, 1});
}
bare::Answer call(bare::Application& app, std::uint16_t port) {
  return app.control.ask(RNIC_STREAM_CONNECT, rnic_stream_connect{{}, at(app, port), 0, 0, 1});
}
bare::Answer accept(bare::Application& app, std::uint32_t listener) {
  return app.control.ask(RNIC_STREAM_ACCEPT, rnic_stream_accept{listener, 0, 1});
}
bare::Answer send(bare::Application& app, std::uint32_t stream, std::uint32_t length) {
  static const rnic_stream_send kRubbish = [] {
    rnic_stream_send body{};
    std::fill_n(body.octets, sizeof body.octets, std::uint8_t{0xA5});
    return body;
  }();
  rnic_stream_send body = kRubbish;
  body.stream = stream;
  body.length = length;
  return app.control.ask(RNIC_STREAM_SEND, body);
}
bare::Answer start(bare::Application& app, std::uint32_t qp, std::uint32_t stream) {
  rnic_start_iwarp body{};
  body.qp_number = qp;
  body.stream = stream;
  return app.control.ask(RNIC_START_IWARP, body);
}
std::uint32_t handle_in(bare::Answer answer) { return answer.as<rnic_handle_reply>("a stream").handle; }

// Says what it can, and that its stream is as it was when it is asked.
void own_a_stream(const std::string& socket, Victim::Line line) {
  bare::Application app(socket);
  const std::uint32_t listener = handle_in(listen(app, kPort + 1)), caller = handle_in(call(app, kPort + 1));
  bare::Answer called;
  while (!(called = accept(app, listener)).good()) usleep(1000);
  line.tell(caller);
  std::uint64_t word;
  while (line.hear(word)) {
    const bool whole = send(app, caller, 4).good();
    bare::Answer heard;
    const rnic_stream_receive wanted{handle_in(std::move(called)), 100};
    while ((heard = app.control.ask(RNIC_STREAM_RECEIVE, wanted)).status == EAGAIN) usleep(1000);
    line.tell(whole && heard.good() ? heard.as<rnic_stream_received>().length : 0);
  }
}

// What it gets of streams that are not its own: it has none.
bool gets_another_s(Bench& bench) {
  const bare::QueuePair qp = bench.app.queue_pair(bench.pd, bench.cq.handle, bench.cq.handle, 4);
  bool any = false;
  for (std::uint32_t handle = 0; handle < kHandlesMax; ++handle) {
    any |= send(bench.app, handle, 1).good();
    any |= bench.app.control.ask(RNIC_STREAM_RECEIVE, rnic_stream_receive{handle, 1}).status != EINVAL;
    any |= bench.app.control.by_handle(RNIC_STREAM_QUERY, handle).good();
    any |= bench.app.control.by_handle(RNIC_STREAM_CLOSE, handle).good();
    any |= accept(bench.app, handle).status != EINVAL;
    any |= start(bench.app, qp.number, handle).status != ENOTCONN;
  }
  return any;
}

}  // namespace

int streams(const Options& options) {
  const Victim victim([&](Victim::Line line) { own_a_stream(options.socket, line); });
  (void)victim.hear();
  Bench bench(options.socket);
  bare::Application& app = bench.app;
  attacking();
  if (gets_another_s(bench)) {
    say("it may use another's streams");
    return 1;
  }

  (void)app.control.ask(RNIC_DIRECT_EVENTS);  // which nobody reads
  const std::uint32_t listener = handle_in(listen(app, kPort));
  std::mt19937_64 random(options.seed);
  std::vector<std::uint32_t> open;
  std::size_t made = 0, most = 0, rubbish = 0;
  const Seconds begun = now();
  while (now() - begun < options.seconds) {
    if (const bare::Answer called = call(app, kPort); called.good())
      open.push_back(called.as<rnic_handle_reply>().handle), ++made;
    if (const bare::Answer accepted = accept(app, listener); accepted.good())
      open.push_back(accepted.as<rnic_handle_reply>().handle), ++made;
    most = std::max(most, open.size());
    if (open.empty()) continue;
    const std::size_t which = random() % open.size();
    const std::uint32_t stream = open[which];
    switch (random() % 64) {
      case 0:  // FPDUs they are not
        if (const bare::Answer queue_pair = app.try_queue_pair(bench.pd, bench.cq.handle, bench.cq.handle, 1);
            queue_pair.good()) {
          const std::uint32_t number = queue_pair.as<rnic_create_qp_reply>().qp_number;
          if (start(app, number, stream).good()) {
            ++rubbish;
            open[which] = open.back();
            open.pop_back();
          }
          if (random() % 2 == 0) (void)app.control.by_handle(RNIC_DESTROY_QP, number);
        }
        break;
      case 1:
        for (int i = 0; i < 20; ++i) (void)send(app, stream, 1);
        break;
      case 2:  // as much as goes
        while (send(app, stream, RNIC_STREAM_OCTETS_MAX).good()) {
        }
        break;
      default:
        (void)send(app, stream, RNIC_STREAM_OCTETS_MAX);
        break;
    }
    if (random() % 1024 == 0)  // one end of many
      for (std::size_t i = open.size(); i-- > 0;)
        if (random() % 2 == 0) {
          (void)app.control.by_handle(RNIC_STREAM_CLOSE, open[i]);
          open[i] = open.back();
          open.pop_back();
        }
  }
  victim.tell(0);
  if (victim.hear() != 4) {
    say("another's stream is not as it was");
    return 1;
  }
  say(std::to_string(made) + " streams, " + std::to_string(most) + " at a time, " + std::to_string(rubbish) +
      " queue pairs on them");
  return 0;
}

}  // namespace rnic::hostile
