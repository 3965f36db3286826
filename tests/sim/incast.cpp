#include "sim/incast.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

#include "sim/world.hpp"

namespace rnic::sim {
namespace {

WorldOptions world_of(const Incast& asked) {
  WorldOptions options;
  options.seed = asked.seed;
  options.link.delay = asked.round_trip / 2;
  options.link.line_mbps = asked.line_mbps;
  options.link.queue_max = asked.queue_max;
  options.link.mark_above = asked.mark_above;
  for (RnicOptions* side : {&options.a, &options.b}) {
    side->mtu_bytes = asked.mtu_bytes;
    side->buffers = 32'768;
    side->device.tcp.congestion = asked.congestion;
    side->device.tcp.ecn =
        asked.congestion == tcp::Algorithm::dctcp ? tcp::EcnUse::on : tcp::EcnUse::passive;  // as rnicd has them
  }
  return options;
}

}  // namespace

IncastFigures incast(const Incast& asked) {
  World world(world_of(asked));
  qp::Config config;
  config.access = tpt::Rights::remote_write;
  std::vector<Connected> flows(asked.flows);
  for (std::uint32_t i = 0; i < asked.flows; ++i) {
    flows[i] = connect(world, config, config, static_cast<std::uint16_t>(7471 + i));
    if (!flows[i].established) return {.mbps = -1};
  }

  std::vector<std::byte> source(asked.message_bytes), target(asked.message_bytes);
  using tpt::Rights;
  qp::WorkRequest write;
  write.opcode = qp::Opcode::write;
  write.signaled = true;
  write.sge_count = 1;
  write.sges[0] = {reinterpret_cast<std::uintptr_t>(source.data()), asked.message_bytes,
                   world.a.register_memory(source, Rights::local_read)};
  write.remote_stag = world.b.register_memory(target, Rights::local_read | Rights::local_write | Rights::remote_write);
  write.remote_to = reinterpret_cast<std::uintptr_t>(target.data());

  const Instant start = world.clock.now;
  std::vector<double> rounds_us;
  for (unsigned round = 1; round <= asked.rounds; ++round) {
    const Instant begun = world.clock.now;
    for (const Connected& flow : flows) world.a.post_send(*flow.a, write);
    const auto here = [&](const Connected& flow) {
      return flow.b->qp->counters().bytes_in >= std::uint64_t{round} * asked.message_bytes;
    };
    if (!world.run_until([&] { return std::all_of(flows.begin(), flows.end(), here); }, seconds(60)))
      return {.mbps = -1};
    rounds_us.push_back(static_cast<double>((world.clock.now - begun).ns) / 1e3);
  }
  IncastFigures figures;
  figures.mbps = static_cast<double>(asked.rounds) * asked.flows * asked.message_bytes * 8000 /
                 static_cast<double>((world.clock.now - start).ns);
  std::sort(rounds_us.begin(), rounds_us.end());
  figures.median_us = rounds_us[rounds_us.size() / 2];
  figures.longest_us = rounds_us.back();
  figures.dropped = world.a_to_b.dropped();
  for (const core::StreamInfo& stream : world.a.device.streams()) {
    figures.retransmitted += stream.tcp.retransmitted;
    figures.timeouts += stream.tcp.timeouts;
  }
  return figures;
}

std::string incast_page() {
  struct Control {
    const char* name;
    tcp::Algorithm algorithm;
    Duration mark_above;
  };
  constexpr std::array kControls{Control{"CUBIC", tcp::Algorithm::cubic, {}},
                                 Control{"NewReno", tcp::Algorithm::newreno, {}},
                                 Control{"DCTCP", tcp::Algorithm::dctcp, microseconds(80)}};
  std::string page =
      "\n"
      "## Thirty-two to one\n"
      "\n"
      "10 Gbit/s, 100 us there and back, and 32 flows that begin at once, each with one Write; when all are there, "
      "the\n"
      "next, 100 times. The queue in front of the wire holds 240 us; where DCTCP is, it marks from 80 us on.\n"
      "\n"
      "| each | MTU | congestion control | Gbit/s | a round, median | longest | frames dropped | sent again | timeouts "
      "|\n"
      "|---|--:|---|--:|--:|--:|--:|--:|--:|\n";
  for (const std::uint32_t size : {65'536u, 1u << 20})
    for (const std::uint32_t mtu : {1500u, 9000u})
      for (const Control& control : kControls) {
        const IncastFigures figures = incast({.message_bytes = size,
                                              .mark_above = control.mark_above,
                                              .mtu_bytes = mtu,
                                              .congestion = control.algorithm});
        char text[200];
        std::snprintf(text, sizeof text, "| %u KiB | %u | %s | %.2f | %.2f ms | %.2f ms | %llu | %llu | %llu |\n",
                      size >> 10, mtu, control.name, figures.mbps / 1000, figures.median_us / 1e3,
                      figures.longest_us / 1e3, static_cast<unsigned long long>(figures.dropped),
                      static_cast<unsigned long long>(figures.retransmitted),
                      static_cast<unsigned long long>(figures.timeouts));
        page += text;
      }
  return page;
}

}  // namespace rnic::sim
