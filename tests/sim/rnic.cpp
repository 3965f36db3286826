#include "sim/rnic.hpp"

#include <algorithm>

namespace rnic::sim {

namespace {
constexpr std::uint32_t kRunBytes = 65'535;

port::PortFacts facts_of(const RnicOptions& options) {
  port::PortFacts facts;
  facts.kind = "sim";
  facts.name = "sim";
  facts.mac = options.mac;
  facts.mtu_bytes = options.mtu_bytes;
  facts.verifies_checksums = !options.checksums;
  if (options.runs) facts.run_bytes = kRunBytes;
  return facts;
}
core::DeviceOptions device_options_of(const RnicOptions& options) {
  core::DeviceOptions device = options.device;
  device.name = "sim";
  device.addresses = {{options.address, options.address.is_v4() ? std::uint8_t{24} : std::uint8_t{64}}};
  device.ipv6 = options.address.is_v6();
  device.seed = options.seed;
  device.streams_max = std::min(device.streams_max, options.streams_max);
  return device;
}
}  // namespace

PoolSize buffers_of(const RnicOptions& options) {
  PoolSize size = options.runs ? pool_size_for_runs(options.buffers, options.mtu_bytes + 64, kRunBytes + 64)
                               : pool_size_for(options.buffers, options.mtu_bytes + 64);
  size.large_count = std::min(size.large_count, options.large_buffers);
  return size;
}

Rnic::Rnic(const RnicOptions& options, Clock& its_clock, Link& out, Link& in, port::Port* wire)
    : clock(its_clock),
      port(facts_of(options), buffers_of(options), its_clock, out, in),
      table(256, options.seed),
      mover(options.late_mover ? test::Moves::late : test::Moves::direct, options.seed ^ 0x55),
      device(device_options_of(options), wire != nullptr ? *wire : port, *this),
      wire_(wire),
      next_qp_number_(static_cast<std::uint32_t>(options.seed % 1000) + 1) {
  mover.notes_places = false;  // there are too many
}

Rnic::~Rnic() {
  for (auto& endpoint : endpoints)
    if (endpoint->qp != nullptr) device.release(*endpoint->qp, clock.now);
}

bool Rnic::turn() {
  const Instant now = clock.now;
  bool busy = device.receive(now);
  mover.flush();
  busy |= device.settle(now);
  busy |= device.transmit(now);
  mover.flush();
  busy |= device.settle(now);
  if (device.next_deadline() <= now) busy |= device.run_timers(now);
  busy |= device.send(now);
  return busy;
}

Instant Rnic::next_deadline() const { return std::min(device.next_deadline(), port.next_arrival()); }

Endpoint& Rnic::make_qp(qp::Config config) {
  auto& endpoint = *endpoints.emplace_back(std::make_unique<Endpoint>());
  config.number = {next_qp_number_++};
  if (config.pd == PdId{}) config.pd = PdId{1};
  config.receive_pd = config.pd;
  endpoint.qp =
      std::make_unique<qp::QueuePair>(config, endpoint.host, table, mover, device.data_pool(), device.scratch());
  return endpoint;
}

void Rnic::post_send(Endpoint& endpoint, const qp::WorkRequest& request) {
  endpoint.host.sends.push_back(request);
  if (endpoint.qp != nullptr) device.work_posted(*endpoint.qp);
}

void Rnic::post_receive(Endpoint& endpoint, const qp::ReceiveRequest& request) {
  endpoint.host.receives.push_back(request);
  if (endpoint.qp != nullptr) device.receive_posted(*endpoint.qp);
}

void Rnic::destroy_qp(Endpoint& endpoint) {
  if (endpoint.qp == nullptr) return;
  direct += endpoint.qp->counters().direct_out;
  device.release(*endpoint.qp, clock.now);
  endpoint.qp.reset();
}

Stag Rnic::register_memory(MutableBytes memory, tpt::Rights rights, PdId pd, std::uint8_t key, std::uint64_t base,
                           bool mapped) {
  return test::register_memory(table, memory, rights, pd, key, base, mapped);
}

void Rnic::on_stream_event(const core::StreamEvent& event) {
  events.push_back(event);
  if (on_event) on_event(event);
}

}  // namespace rnic::sim
