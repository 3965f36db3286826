#include "control/machine.hpp"
#include "core/gids.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "control/addresses.hpp"
#include "control/limits.hpp"

namespace rnic::control {

std::vector<core::DeviceAddress> ServedDevice::addresses() const {
  std::vector<core::DeviceAddress> used;
  for (const ip::OwnAddress& each : own)
    if (each.usable()) used.push_back({each.address, each.prefix_bits});
  return used;
}

Shard& ServedDevice::of(const core::ConnectOptions& call) {
  if (shards.size() == 1) return first();
  const auto local = call.local.is_unspecified() ? routes.source_for(call.remote) : call.local;
  if (call.local_port == 0 || !local) return next_shard();
  return shards[wire::rss::shard_of(*local, call.local_port, call.remote, call.remote_port,
                                    static_cast<unsigned>(shards.size()))];
}

void ServedDevice::of_stream(core::StreamId stream, const std::function<void(core::Device&, Instant)>& task) {
  Shard& shard = of(stream);
  shard.worker->call([&](Instant now) { task(*shard.device, now); });
}

Result<Done, core::StreamError> ServedDevice::listen(const wire::IpAddress& address, std::uint16_t listened_port,
                                                     std::uint32_t backlog, std::uint64_t cookie, bool v6_only) {
  Result<Done, core::StreamError> listens = Done{};
  std::size_t listening = 0;
  for (; listens && listening < shards.size(); ++listening) {
    Shard& shard = shards[listening];
    shard.worker->call(
        [&](Instant) { listens = shard.device->listen(address, listened_port, backlog, cookie, v6_only); });
  }
  if (listens) return Done{};
  for (std::size_t i = 0; i + 1 < listening; ++i)
    shards[i].worker->call([&](Instant now) { shards[i].device->unlisten(address, listened_port, now); });
  return listens;
}

void ServedDevice::on_each(const std::function<void(Shard&, Instant)>& task) {
  for (Shard& shard : shards) shard.worker->call([&](Instant now) { task(shard, now); });
}

std::size_t ServedDevice::gid_count() const { return core::gid_count(options().oob_connect); }

std::optional<wire::IpAddress> ServedDevice::gid(std::size_t index) const {
  return core::gid_at(own, options().oob_connect, index);
}

namespace {
std::uint64_t descriptors_for_applications() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = 1024;
  return limit.rlim_cur - std::min<std::uint64_t>(kDescriptorsKept, limit.rlim_cur / 2);
}
std::uint64_t memory_octets() {
  return static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}
}  // namespace

Machine::Machine()
    : descriptors("descriptors", descriptors_for_applications()),
      mapped_octets(Shares::for_one("octets of shared memory", memory_octets())),
      refusals([](Holder, const std::string&) {}) {}

void Machine::tell_refusals(const Shares::Tell& tell) {
  refusals = tell;
  for (Shares* each : {&sessions, &completion_channels, &cm_channels, &descriptors, &mapped_octets, &mappings})
    each->tell_by(tell);
  for (const auto& device : devices)
    for (Shares* each :
         {&device->contexts, &device->pds, &device->stags, &device->cqs, &device->srqs, &device->qps, &device->groups})
      each->tell_by(tell);
}

ServedDevice* Machine::find_device(const std::string& wanted) {
  for (const auto& device : devices)
    if (device->name == wanted) return device.get();
  return nullptr;
}

QpNumber Machine::new_qp_number() {
  constexpr std::uint32_t kMask = 0xFFFFFF;
  if (next_qp_number_ == 0) next_qp_number_ = std::random_device{}();
  do next_qp_number_ = (next_qp_number_ + 1) & kMask;
  while (next_qp_number_ < 2 || next_qp_number_ == kMask || qps.contains(next_qp_number_));  // special on InfiniBand
  return QpNumber{next_qp_number_};
}

SpaceId Machine::new_space() {
  if (free_spaces_.empty()) return SpaceId{next_space_++};
  const SpaceId space = free_spaces_.back();
  free_spaces_.pop_back();
  return space;
}

void Machine::with_all_stopped(const std::function<void(Instant)>& task, std::size_t from) {
  workers[from]->call([&](Instant now) {
    if (from + 1 == workers.size())
      task(now);
    else
      with_all_stopped(task, from + 1);
  });
}

bool Machine::wait_for_grace(SpaceId space) {
  bool stuck = false;
  for (const auto& each : workers) each->call([&](Instant) { stuck |= each->mover().is_stuck(space); });
  return !stuck;
}

// Not while another worker has a copy there that waits, which it will tell of, too.
void Machine::space_is_free(SpaceId space) {
  bool stuck = false;
  for (const auto& worker : workers) worker->call([&](Instant) { stuck |= worker->mover().is_stuck(space); });
  if (stuck) return;
  if (std::erase_if(leaving, [&](const Leaving& left) { return left.space == space; }) != 0) free_space(space);
}

std::uint64_t node_guid_of(const wire::Mac& mac, std::uint32_t index) {
  const auto& m = mac.octets;
  // The index in the middle, where an EUI-64 made of a MAC has FF:FE: two devices of a daemon may
  // share a port's MAC.
  const std::uint8_t octets[8] = {static_cast<std::uint8_t>(m[0] | 0x02),  m[1], m[2], 0xff,
                                  static_cast<std::uint8_t>(0xfe - index), m[3], m[4], m[5]};
  std::uint64_t guid;
  std::memcpy(&guid, octets, sizeof guid);
  return guid;
}

rnic_device_info Machine::info(const ServedDevice& device) const {
  rnic_device_info info{};
  const auto& facts = device.port_facts();
  const auto copy_name = [](char(&to)[RNIC_NAME_MAX], const std::string& from) {
    std::memcpy(to, from.data(), std::min(from.size(), sizeof to - 1));
  };
  copy_name(info.name, device.name);
  copy_name(info.netdev, facts.netdev.empty() ? "lo" : facts.netdev);
  info.node_guid = device.node_guid;
  info.index = device.index;
  info.mtu = facts.mtu_bytes;
  std::memcpy(info.mac, facts.mac.octets.data(), sizeof info.mac);
  info.link_up = device.port_is_up() ? 1 : 0;
  info.face = device.face() == Face::roce ? RNIC_FACE_ROCE : RNIC_FACE_IWARP;
  info.address_mode = static_cast<std::uint8_t>(device.options().mode);
  for (const core::DeviceAddress& address : device.addresses()) {
    if (info.address_count == std::size(info.addresses)) break;
    info.addresses[info.address_count] = to_abi(address.address, 0);
    if (address.address.is_v6() && address.address.is_link_local())
      info.addresses[info.address_count].scope = device.scope;
    info.prefix_lengths[info.address_count++] = address.prefix_length;
  }
  return info;
}

rnic_device_attributes Machine::attributes(const ServedDevice& device) const {
  rnic_device_attributes a{};
  a.max_mr_size = ~std::uint64_t{0};
  a.page_size_cap = tpt::kPageSizes;  // every size of a page up to 2 GiB
  a.node_guid = device.node_guid;
  a.vendor_id = kVendorId;
  a.vendor_part_id = kVendorPart;
  a.hw_version = 0;
  a.max_qp = kQpsMax;
  a.max_qp_wr = kWorkRequestsMax;
  a.max_sge = kSgesMax;
  a.max_sge_read = device.face() == Face::roce ? a.max_sge : kReadSgesMax;
  a.max_cq = kCqsMax;
  a.max_cqe = kCqesMax;
  a.max_mr = kRegionsMax;
  a.max_pd = kPdsMax;
  a.max_mw = kRegionsMax;  // of one kind with regions: who has as many of these has no windows
  a.max_read_in = kReadDepthMax;
  a.max_read_out = kReadDepthMax;
  a.max_srq = kSrqsMax;
  a.max_srq_wr = kSrqWorkRequestsMax;
  a.max_srq_sge = kSgesMax;
  a.max_inline = kInlineMax;
  a.completion_vectors = kCompletionVectors;
  a.atomics = device.queue_pairs.extensions ? 1 : 0;
  a.capabilities = RNIC_CAP_INVALIDATE | (device.queue_pairs.extensions ? RNIC_CAP_IMMEDIATE : 0u) |
                   (device.options().oob_connect ? RNIC_CAP_OOB_CONNECT : 0u) |
                   (device.face() == Face::roce ? RNIC_CAP_ROCE | RNIC_CAP_UD : 0u) | RNIC_CAP_MODIFY_IRD |
                   RNIC_CAP_RAISE_ORD | RNIC_CAP_CQ_OVERFLOW | RNIC_CAP_SRQ_ARRIVAL;
  a.mtu = device.port_facts().mtu_bytes;
  if (device.face() == Face::roce)
    device.first().worker->call([&](Instant) { a.mtu = device.first().device->datagrams().message_max(); });
  a.speed_mbps = device.port_facts().speed_mbps;
  std::strncpy(a.firmware, RNIC_VERSION, sizeof a.firmware - 1);
  return a;
}

}  // namespace rnic::control
