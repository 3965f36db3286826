// Everything that the daemon serves: workers, devices, and the names by which workers' news find
// the objects they are about. Built by main(), then used by the control thread alone.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/ids.hpp"
#include "control/descriptor.hpp"
#include "control/limits.hpp"
#include "control/numbers.hpp"
#include "control/shares.hpp"
#include "core/device.hpp"
#include "core/worker.hpp"
#include "port/port.hpp"
#include "port/steered_ports.hpp"
#include "qp/queue_pair.hpp"
#include "rnic_control.h"
#include "shm/mapping.hpp"
#include "tpt/table.hpp"

namespace rnic::control {

class Context;
struct Cq;
struct DirectStream;
struct Qp;
struct Srq;

// A multicast group that queue pairs of a device are attached to.
struct ServedGroup {
  Shares places = Shares::for_one("places in a multicast group", kGroupPlacesMax);
  Share share;  // of the groups: whose was the first that was attached, as long as any of its are
  Holder payer = 0;
};

// A worker's part of a device: the connections that it has, and the queue pairs that have these, or none yet.
struct Shard {
  core::Worker* worker = nullptr;
  std::unique_ptr<core::Device> device;
};

struct ServedDevice {
  std::uint32_t index = 0;
  std::string name;
  std::string port_spec;
  std::unique_ptr<port::Port> port;                 // of one shard
  std::unique_ptr<port::SteeredPorts> port_queues;  // of several
  std::vector<Shard> shards;  // the first speaks for the device's addresses, and has all datagrams
  std::unique_ptr<tpt::Table> table;
  std::uint64_t node_guid = 0;  // network order
  int mate = -1;                // the device at the other end of its pair
  qp::Config queue_pairs;       // what they have in common
  Face face() const { return queue_pairs.face; }
  Shard& first() { return shards.front(); }
  const Shard& first() const { return shards.front(); }
  const core::DeviceOptions& options() const { return first().device->options(); }
  const port::PortFacts& port_facts() const { return first().device->port().facts(); }
  bool port_is_up() const { return first().device->port().link_up(); }
  Shard& of(core::StreamId stream) { return shards[stream.shard() < shards.size() ? stream.shard() : 0]; }
  // Whose a call is: by its ports; where it leaves its own to us, whose turn it is.
  Shard& of(const core::ConnectOptions& call);
  Shard& next_shard() { return shards[next_shard_++ % shards.size()]; }
  // Where the stream is. Within its worker's Worker::call().
  void of_stream(core::StreamId stream, const std::function<void(core::Device& device, Instant now)>& task);
  // On every shard, or on none.
  Result<Done, core::StreamError> listen(const wire::IpAddress& address, std::uint16_t listened_port,
                                         std::uint32_t backlog, std::uint64_t cookie, bool v6_only);
  // On each, in turn. Within the shard's Worker::call().
  void on_each(const std::function<void(Shard& shard, Instant now)>& task);

  struct Counts {
    std::uint32_t contexts = 0, pds = 0, regions = 0, windows = 0, cqs = 0, srqs = 0, qps = 0;
  } counts;

  Shares contexts = Shares::for_one("contexts", kContextsMax);
  Shares pds = Shares::for_one("protection domains", kPdsMax);
  Shares stags = Shares::for_one("regions and windows", kRegionsMax);
  Shares cqs = Shares::for_one("completion queues", kCqsMax);
  Shares srqs = Shares::for_one("shared receive queues", kSrqsMax);
  Shares qps = Shares::for_one("queue pairs", kQpsMax);
  Shares groups = Shares::for_one("multicast groups", kGroupsMax);
  std::map<wire::IpAddress, ServedGroup> in_groups;

  // Its network, as it was when it last had news of it: control's own copy.
  std::array<ip::OwnAddress, ip::OwnAddresses::kMax> own{};
  ip::Routes routes;
  bool link_up = false;
  std::uint32_t scope = 0;                             // sin6_scope_id of its link-local addresses
  std::vector<core::DeviceAddress> addresses() const;  // those in use

  // Its table of GIDs (core/gids.hpp).
  std::size_t gid_count() const;
  std::optional<wire::IpAddress> gid(std::size_t index) const;  // none: an empty place, or no place

 private:
  std::size_t next_shard_ = 0;
};

// What is left of a context, until a copy that waits for a page of its application's is over.
struct Leaving {
  SpaceId space;
  Descriptor memory;
  std::shared_ptr<const Descriptor> process;
};

struct Machine {
  std::string name;
  std::string run_directory;
  std::uint32_t generation = 0;
  std::unique_ptr<shm::Grace> grace;   // of the workers, where there are several
  std::unique_ptr<core::Wakes> wakes;  // the same
  std::vector<std::unique_ptr<core::Worker>> workers;
  std::vector<std::unique_ptr<ServedDevice>> devices;

  // Cookies are never given twice: late news of an object that is gone find nobody.
  std::uint64_t next_cookie = 1;
  std::unordered_map<std::uint64_t, Qp*> qps_by_cookie;
  std::unordered_map<std::uint64_t, Cq*> cqs_by_cookie;
  std::unordered_map<std::uint64_t, Srq*> srqs_by_cookie;
  std::unordered_map<std::uint64_t, DirectStream*> streams_by_cookie;
  std::unordered_map<std::uint32_t, Qp*> qps;  // by number, over all devices
  UsedNumbers pds;                             // over all devices
  Numbers first_handles;                       // what each context begins with

  Shares sessions = Shares::for_one("connections to rnicd", kSessionsMax);
  Shares completion_channels = Shares::for_one("completion channels", kCompletionChannelsMax);
  Shares cm_channels = Shares::for_one("event channels", kChannelsMax);
  // What the daemon has open for applications. All but kDescriptorsKept of what it may have, as it begins.
  Shares descriptors;
  // Of shared files that are mapped here: as many octets as this machine has memory for one process alone, and the
  // places for mappings (shm/mapping.hpp). What finds no place is reached by remote copy.
  Shares mapped_octets;
  Shares transmit_memory{"transmit memory", kTransmitMemoryAll};
  Shares mappings{"mappings of shared memory", shm::application_mappings_max()};
  // To whoever is to hear of refusals.
  void tell_refusals(const Shares::Tell& tell);
  Shares::Tell refusals;  // that; never empty

  Machine();
  ServedDevice* find_device(const std::string& wanted);
  // Unused so far; reused as late as possible (V-SEC-26).
  QpNumber new_qp_number();
  shm::Copier* copier = nullptr;    // null: the kernel's
  Duration page_wait = seconds(2);  // how long a copy may wait for a page; 0: for ever
  std::vector<Leaving> leaving;
  SpaceId new_space();
  void free_space(SpaceId space) { free_spaces_.push_back(space); }
  PdId new_pd() { return PdId{pds.take()}; }
  void free_pd(PdId pd) { pds.give(pd.value); }

  // Runs `task` while every worker stands between two turns.
  void with_all_stopped(const std::function<void(Instant now)>& task, std::size_t from = 0);
  // Every worker has passed between two turns since the call: what an invalidation waits for.
  // False: a copy of this space waits for a page.
  bool wait_for_grace(SpaceId space);
  // Its last copy is over.
  void space_is_free(SpaceId space);

  rnic_device_info info(const ServedDevice& device) const;
  rnic_device_attributes attributes(const ServedDevice& device) const;

 private:
  std::uint32_t next_qp_number_ = 0;
  std::uint32_t next_space_ = 0;
  std::vector<SpaceId> free_spaces_;
};

// From the MAC, as an EUI-64 with the local bit as IPv6 has it, in network order; so no two devices
// of a network have the same.
std::uint64_t node_guid_of(const wire::Mac& mac, std::uint32_t index);

}  // namespace rnic::control
