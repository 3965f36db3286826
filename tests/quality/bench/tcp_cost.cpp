// What a segment costs in TCP, alone and with warm caches: ns each, the least of many rounds.
//
//   tcp-cost [rounds]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "tcp/connection.hpp"

using namespace rnic;
using tcp::Connection;

namespace {

constexpr unsigned kBatch = 64;  // segments of a round, as in a turn
constexpr std::uint32_t kBytes = 1448;

double since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
}

struct Pair {
  explicit Pair(const tcp::Options& options) : pool(8192, 2048), a(options), b(options) {
    a.open_active(tcp::Seq{1000});
    auto syn = a.next_segment(now);
    tcp::Handshake handshake = tcp::agree(syn->header, options, tcp::Seq{2000}, 0);
    handshake.sent = 1;
    handshake.sent_at = now;
    tcp::SegmentIn in;
    in.header = tcp::syn_ack(handshake, options, now);
    a.on_segment(std::move(in), now);
    auto third = a.next_segment(now);
    b.open_passive(handshake, third->header, now);
    // The window opens first: a batch and more is in flight at a time.
    for (int i = 0; i < 50; ++i) round(nullptr);
  }
  void pass(Connection& from, Connection& to) {
    while (auto out = from.next_segment(now)) {
      tcp::SegmentIn in;
      in.header = out->header;
      in.payload = out->payload;
      in.buffer = std::move(out->buffer);
      to.on_segment(std::move(in), now);
    }
  }
  struct Costs {
    double append = 1e9, out = 1e9, in = 1e9, consume = 1e9, acknowledge = 1e9, ack_in = 1e9;
  };
  void round(Costs* costs) {
    static std::unique_ptr<tcp::SegmentIn[]> segments(new tcp::SegmentIn[kBatch]);
    BufferRef buffers[kBatch];
    for (auto& buffer : buffers) {
      buffer = BufferRef::take(pool);
      buffer->append(kBytes);
    }
    now = now + microseconds(50);
    unsigned count = 0;
    auto start = std::chrono::steady_clock::now();
    for (auto& buffer : buffers)
      if (a.room_bytes() >= kBytes && a.append(std::move(buffer))) ++count;
    const double append = since(start);

    start = std::chrono::steady_clock::now();
    unsigned sent = 0;
    while (sent < kBatch) {
      auto out = a.next_segment(now);
      if (!out) break;
      segments[sent].header = out->header;
      segments[sent].payload = out->payload;
      segments[sent++].buffer = std::move(out->buffer);
    }
    const double out = since(start);

    now = now + microseconds(50);
    start = std::chrono::steady_clock::now();
    for (unsigned i = 0; i < sent; ++i) b.on_segment(std::move(segments[i]), now);
    const double in = since(start);

    start = std::chrono::steady_clock::now();
    for (unsigned i = 0; i < sent; ++i) b.consume(kBytes);
    const double consume = since(start);

    start = std::chrono::steady_clock::now();
    b.end_of_burst();
    unsigned acks = 0;
    while (auto ack = b.next_segment(now)) {
      segments[acks].header = ack->header;
      segments[acks].payload = {};
      segments[acks++].buffer = {};
    }
    const double acknowledge = since(start);
    now = now + microseconds(50);
    start = std::chrono::steady_clock::now();
    for (unsigned i = 0; i < acks; ++i) a.on_segment(std::move(segments[i]), now);
    const double ack_in = since(start);
    if (costs == nullptr || sent != kBatch) return;
    const auto keep = [&](double& least, double value) { least = std::min(least, value / sent); };
    keep(costs->append, append);
    keep(costs->out, out);
    keep(costs->in, in);
    keep(costs->consume, consume);
    keep(costs->acknowledge, acknowledge);
    keep(costs->ack_in, ack_in);
  }

  Instant now{seconds(1).ns};
  HeapPool pool;
  Connection a, b;
};

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 20'000;
  for (const bool timestamps : {false, true}) {
    tcp::Options options;
    options.timestamps = timestamps;
    options.mss_bytes = 1460;
    Pair pair(options);
    Pair::Costs costs;
    for (int i = 0; i < rounds; ++i) pair.round(&costs);
    std::printf(
        "%s ns a segment: append %.1f, out %.1f, in %.1f, consume %.1f; ACK of %u: made %.2f, taken %.2f; sum %.1f\n",
        timestamps ? "timestamps" : "plain     ", costs.append, costs.out, costs.in, costs.consume, kBatch,
        costs.acknowledge, costs.ack_in,
        costs.append + costs.out + costs.in + costs.consume + costs.acknowledge + costs.ack_in);
  }
  std::printf("a connection: %zu octets\n", sizeof(Connection));
  return 0;
}
