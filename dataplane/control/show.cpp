#include "control/show.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "control/network.hpp"
#include "control/report.hpp"

namespace rnic::control {
namespace {

using Json = nlohmann::ordered_json;

std::string hex(std::uint64_t value) {
  char text[20];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

std::string guid_text(std::uint64_t network_order) {
  const std::uint64_t guid = from_big(network_order);
  char text[24];
  std::snprintf(text, sizeof text, "%04x:%04x:%04x:%04x", static_cast<unsigned>(guid >> 48),
                static_cast<unsigned>(guid >> 32 & 0xffff), static_cast<unsigned>(guid >> 16 & 0xffff),
                static_cast<unsigned>(guid & 0xffff));
  return text;
}

std::string rights_text(std::uint32_t access) {
  struct Letter {
    std::uint32_t right;
    const char* text;
  };
  constexpr std::array<Letter, 6> kLetters{{{RNIC_ACCESS_LOCAL_READ, "lr"},
                                            {RNIC_ACCESS_LOCAL_WRITE, "lw"},
                                            {RNIC_ACCESS_REMOTE_READ, "rr"},
                                            {RNIC_ACCESS_REMOTE_WRITE, "rw"},
                                            {RNIC_ACCESS_REMOTE_ATOMIC, "ra"},
                                            {RNIC_ACCESS_WINDOW_BIND, "mw"}}};
  std::string text;
  for (const Letter& letter : kLetters)
    if ((access & letter.right) != 0) text += std::string(text.empty() ? "" : "+") + letter.text;
  return text;
}

const char* rung_text(rnic_rung rung) {
  switch (rung) {
    case RNIC_RUNG_SHARED:
      return "shared";
    case RNIC_RUNG_SWAPPED:
      return "swapped";
    case RNIC_RUNG_REMOTE_COPY:
      return "remote-copy";
  }
  return "?";
}

const char* mode_text(core::AddressMode mode) {
  switch (mode) {
    case core::AddressMode::own:
      return "own";
    case core::AddressMode::local:
      return "local";
    case core::AddressMode::shared:
      return "shared";
  }
  return "?";
}

// Whose an object is.
void put_owner(Json& row, Context& context) {
  row["device"] = context.device().name;
  row["pid"] = context.peer().pid;
  row["program"] = context.program();
}

// Its index, or where there are several, each.
Json workers_of(const ServedDevice& device) {
  if (device.shards.size() == 1) return device.first().worker->index();
  Json indexes = Json::array();
  for (const Shard& shard : device.shards) indexes.push_back(shard.worker->index());
  return indexes;
}

Json devices(const Machine& machine) {
  Json rows = Json::array();
  for (const auto& device : machine.devices) {
    Json addresses = Json::array();
    for (const ip::OwnAddress& address : device->own)
      if (address.state != ip::AddressState::none) addresses.push_back(describe(address));
    const auto& counts = device->counts;
    rows.push_back({{"name", device->name},
                    {"port", device->port_spec},
                    {"state", device->port_is_up() ? "up" : "down"},
                    {"face", device->face() == Face::roce ? "roce" : "iwarp"},
                    {"addresses", addresses},
                    {"mode", mode_text(device->options().mode)},
                    {"mtu", mtu_of(device->first().device->port())},
                    {"guid", guid_text(device->node_guid)},
                    {"worker", workers_of(*device)},
                    {"contexts", counts.contexts},
                    {"pd", counts.pds},
                    {"mr", counts.regions},
                    {"mw", counts.windows},
                    {"cq", counts.cqs},
                    {"srq", counts.srqs},
                    {"qp", counts.qps}});
  }
  return rows;
}

Json queue_pairs(const std::vector<Context*>& contexts) {
  Json rows = Json::array();
  for (Context* context : contexts) {
    // Values first: JSON is made where only control waits.
    struct Seen {
      const Qp* qp;
      qp::State state;
      qp::QpCounters counters;
      std::string terminate;
      std::uint32_t receives_held = 0;
      std::optional<ud::State> datagrams{};  // of one of type UD
      std::uint64_t dropped = 0;
    };
    std::vector<Seen> seen;
    std::multimap<QpNumber, wire::IpAddress> groups;
    context->device().on_each([&](Shard& shard, Instant) {
      for (const auto& [number, group] : shard.device->datagrams().attached()) groups.emplace(number, group);
      for (const auto& [number, qp] : context->qps()) {
        if (qp->shard != &shard) continue;
        if (qp->ud != nullptr) {
          const ud::Counters& counted = qp->ud->counters();
          Seen it{.qp = qp.get(), .state = {}, .counters = {}, .terminate = {}, .datagrams = qp->ud->state()};
          it.counters.sends_out = counted.sends_out;
          it.counters.sends_in = counted.sends_in;
          it.counters.bytes_out = counted.bytes_out;
          it.counters.bytes_in = counted.bytes_in;
          it.counters.errors = counted.errors;
          it.dropped = counted.refused + counted.without_receive + counted.overrun;
          seen.push_back(std::move(it));
          continue;
        }
        seen.push_back({qp.get(), qp->qp->state(), qp->qp->counters(), qp::describe(qp->qp->terminate_record()),
                        qp->qp->receive_limit().in_progress});
      }
    });
    for (const Seen& it : seen) {
      Json row;
      row["qp"] = it.qp->number.value;
      put_owner(row, *context);
      row["type"] = it.datagrams ? "UD" : "RC";
      row["state"] = it.datagrams ? ud::name(*it.datagrams) : qp::name(it.state);
      row["peer_qp"] = it.qp->meets ? Json(it.qp->meets->meeting.peer_number.value) : Json();
      row["send_cq"] = it.qp->send_cq->handle;
      row["recv_cq"] = it.qp->recv_cq->handle;
      row["srq"] = it.qp->srq != nullptr ? Json(it.qp->srq->handle) : Json();
      row["sends_out"] = it.counters.sends_out;
      row["writes_out"] = it.counters.writes_out;
      row["reads_out"] = it.counters.reads_out;
      row["atomics_out"] = it.counters.atomics_out;
      row["sends_in"] = it.counters.sends_in;
      row["writes_in"] = it.counters.writes_in;
      row["reads_in"] = it.counters.reads_in;
      row["atomics_in"] = it.counters.atomics_in;
      row["bytes_out"] = it.counters.bytes_out;
      row["bytes_in"] = it.counters.bytes_in;
      row["fpdus_out"] = it.counters.fpdus_out;
      row["fpdus_in"] = it.counters.fpdus_in;
      row["direct_out"] = it.counters.direct_out;
      row["direct_in"] = it.counters.direct_in;
      row["receives_held"] = it.receives_held;
      row["errors"] = it.counters.errors;
      row["terminate"] = it.terminate;
      row["dropped"] = it.dropped;
      row["groups"] = Json::array();
      const auto [first, last] = groups.equal_range(it.qp->number);
      for (auto each = first; each != last; ++each) row["groups"].push_back(wire::to_string(each->second));
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

Json completion_queues(const std::vector<Context*>& contexts) {
  Json rows = Json::array();
  for (Context* context : contexts)
    for (const auto& [handle, cq] : context->cqs()) {
      Json row;
      row["cq"] = handle;
      put_owner(row, *context);
      row["entries"] = cq->queue->size();
      row["unpolled"] = cq->queue->unpolled();
      row["work_queues"] = cq->uses;
      row["channel"] = cq->channel != nullptr;
      row["events_sent"] = cq->completions.sent;
      row["overflowed"] = cq->queue->overflowed();
      rows.push_back(std::move(row));
    }
  return rows;
}

Json regions(const std::vector<Context*>& contexts) {
  Json rows = Json::array();
  for (Context* context : contexts)
    for (const auto& [handle, region] : context->regions()) {
      Json row;
      row["mr"] = handle;
      put_owner(row, *context);
      // Not the key: whoever may ask for this is not thereby to reach the memory.
      row["stag_index"] = hex(region->stag.value >> 8);
      row["address"] = hex(region->start);
      row["length"] = region->length;
      row["rights"] = rights_text(region->access);
      row["rung"] = static_cast<std::uint32_t>(region->rung);
      row["reach"] = rung_text(region->rung);
      row["dead"] = region->dead;
      rows.push_back(std::move(row));
    }
  return rows;
}

// Bound, to which region; of a window of a queue pair, on which.
Json windows(const std::vector<Context*>& contexts) {
  Json rows = Json::array();
  for (Context* context : contexts) {
    const tpt::Table& table = *context->device().table;
    std::map<std::uint32_t, std::uint32_t> regions;  // by entry
    if (!context->windows().empty())
      for (const auto& [handle, region] : context->regions())
        if (const auto info = table.query(region->stag); info && !region->ends) regions[info->region_entry] = handle;
    for (const auto& [handle, window] : context->windows()) {
      const auto info = table.query(window->stag);
      if (!info || window->ends) continue;
      Json row;
      row["mw"] = handle;
      put_owner(row, *context);
      row["stag_index"] = hex(info->stag.value >> 8);
      row["type"] = info->scope == tpt::WindowScope::pd ? 1 : 2;
      row["bound"] = info->valid;
      const auto region = regions.find(info->region_entry);
      row["mr"] = info->valid && region != regions.end() ? Json(region->second) : Json();
      row["qp"] = info->valid && info->qp.value != 0 ? Json(info->qp.value) : Json();
      row["address"] = info->valid ? Json(hex(info->memory.address)) : Json();
      row["length"] = info->valid ? Json(info->size) : Json();
      row["rights"] = rights_text(static_cast<std::uint32_t>(info->rights));
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

Json connections(Machine& machine) {
  Json rows = Json::array();
  for (const auto& device : machine.devices) {
    std::vector<core::StreamInfo> streams;
    device->on_each([&](Shard& shard, Instant) {
      const std::vector<core::StreamInfo> its = shard.device->streams();
      streams.insert(streams.end(), its.begin(), its.end());
    });
    for (const core::StreamInfo& stream : streams)
      rows.push_back({{"device", device->name},
                      {"local", endpoint(stream.local, stream.local_port)},
                      {"remote", endpoint(stream.remote, stream.remote_port)},
                      {"phase", stream.phase},
                      {"tcp", stream.tcp_state},
                      {"qp", stream.qp_number != 0 ? Json(stream.qp_number) : Json()},
                      {"mss", stream.mss_bytes},
                      {"congestion", stream.congestion},
                      {"ecn", stream.ecn},
                      {"cwnd", stream.congestion_window_bytes},
                      {"in_flight", stream.in_flight_bytes},
                      {"rtt_us", stream.rtt_us},
                      {"segments_out", stream.tcp.segments_out},
                      {"segments_in", stream.tcp.segments_in},
                      {"retransmitted", stream.tcp.retransmitted},
                      {"timeouts", stream.tcp.timeouts},
                      {"spurious", stream.tcp.spurious_recoveries},
                      {"ecn_reductions", stream.tcp.ecn_reductions},
                      {"out_of_order", stream.tcp.out_of_order}});
  }
  return rows;
}

Json cm_ids(const Machine& machine, const ConnectionManager& cm) {
  Json rows = Json::array();
  for (const IdInfo& id : cm.ids())
    rows.push_back(
        {{"id", id.id},
         {"port_space", port_spaces::name(id.port_space)},
         {"state", name(id.state)},
         {"device", id.device >= 0 ? Json(machine.devices[static_cast<std::size_t>(id.device)]->name) : Json()},
         {"source", endpoint(id.source, id.source_port)},
         {"destination", endpoint(id.destination, id.destination_port)}});
  return rows;
}

// "10.0.0.1: 02:00:00:00:00:09", for each that somebody else has claimed.
Json conflicts(const ServedDevice& device) {
  Json rows = Json::array();
  for (const ip::OwnAddress& own : device.own)
    if (own.state != ip::AddressState::none && own.conflicts != 0)
      rows.push_back(wire::to_string(own.address) + ": " + wire::to_string(own.conflict_with));
  return rows.empty() ? Json() : rows;
}

Json gateways(const ServedDevice& device) {
  Json rows = Json::array();
  for (const ip::Route& route : device.routes.routes())
    if (route.bits == 0) rows.push_back(wire::to_string(route.gateway));
  return rows.empty() ? Json() : rows;
}

Json ports(Machine& machine) {
  Json rows = Json::array();
  for (const auto& device : machine.devices) {
    const auto& facts = device->port_facts();
    core::DeviceCounters counters;
    core::DatagramCounters datagrams;
    std::size_t half_open = 0;
    std::uint64_t lost = 0;
    device->on_each([&](Shard& shard, Instant) {
      counters += shard.device->counters();
      half_open += shard.device->half_open_count();
      lost += shard.device->port().frames_lost();
      if (&shard == &device->first()) datagrams = shard.device->datagrams().counters();
    });
    rows.push_back({{"device", device->name},
                    {"kind", facts.kind},
                    {"name", facts.name},
                    {"link", device->port_is_up() ? "up" : "down"},
                    {"mac", wire::to_string(facts.mac)},
                    {"mtu", mtu_of(device->first().device->port())},
                    {"run_bytes", facts.run_bytes},
                    {"vlan", device->options().vlan ? Json(*device->options().vlan) : Json()},
                    {"gateways", gateways(*device)},
                    {"conflicts", conflicts(*device)},
                    {"frames_in", counters.frames_in},
                    {"frames_out", counters.frames_out},
                    {"continued_in", counters.continued_in},
                    {"bytes_in", counters.bytes_in},
                    {"bytes_out", counters.bytes_out},
                    {"direct_bytes_in", counters.direct_bytes_in},
                    {"direct_bytes_out", counters.direct_bytes_out},
                    {"bad_frames", counters.bad_frames},
                    {"bad_checksums", counters.bad_checksums},
                    {"dropped", counters.frames_dropped},
                    {"lost_at_port", lost},
                    {"no_buffer", counters.no_buffer},
                    {"ended_for_buffers", counters.ended_for_buffers},
                    {"no_listener", counters.no_listener},
                    {"half_open", half_open},
                    {"syns_dropped", counters.syns_dropped},
                    {"cookies_sent", counters.cookies_sent},
                    {"cookies_good", counters.cookies_good},
                    {"backlog_waits", counters.backlog_waits},
                    {"other_vlan", counters.other_vlan},
                    {"fragments_in", counters.fragments_in},
                    {"reassembled", counters.reassembled},
                    {"fragments_dropped", counters.fragments_dropped},
                    {"icmp_errors_out", counters.icmp_errors_out},
                    {"datagrams_in", datagrams.in},
                    {"datagrams_out", counters.datagrams_out},
                    {"datagrams_without_way", counters.datagrams_without_way},
                    {"datagrams_bad", datagrams.bad},
                    {"datagrams_unknown", datagrams.unknown},
                    {"datagrams_refused", datagrams.refused},
                    {"datagrams_no_receive", datagrams.no_receive},
                    {"datagrams_overrun", datagrams.overrun}});
  }
  return rows;
}

Json statistics(Machine& machine, const std::vector<Context*>& contexts, const ConnectionManager& cm) {
  Json stats;
  stats["daemon"] = {{"name", machine.name},
                     {"pid", getpid()},
                     {"contexts", contexts.size()},
                     {"cm_ids", cm.id_count()},
                     {"cm_channels", cm.channel_count()}};
  for (const auto& worker : machine.workers) {
    core::WorkerCounters counters;
    shm::MoverCounters moved;
    worker->call([&](Instant) {
      counters = worker->counters();
      moved = worker->mover().counters();
    });
    stats["worker" + std::to_string(worker->index())] = {
        {"turns", counters.turns},     {"busy_turns", counters.busy_turns},
        {"sleeps", counters.sleeps},   {"wakes_by_timer", counters.wakes_by_timer},
        {"calls", counters.calls},     {"calls_in_place", counters.in_place},
        {"moves", counters.moves},     {"naps", counters.naps},
        {"copy_calls", moved.calls},   {"copy_pieces", moved.pieces},
        {"copy_bytes", moved.bytes},   {"copy_failures", moved.failures},
        {"copies_stuck", moved.stuck}, {"copies_refused", moved.refused}};
  }
  return stats;
}

}  // namespace

std::string endpoint(const wire::IpAddress& address, std::uint16_t port) {
  const std::string text = wire::to_string(address);
  return (address.is_v4() ? text : "[" + text + "]") + ":" + std::to_string(port);
}

bool is_shown(const std::string& what) {
  constexpr std::array kSections{"", "dev", "port", "qp", "cq", "mr", "mw", "conn", "cm", "stats"};
  return std::ranges::find(kSections, what) != kSections.end();
}

std::string show_json(Machine& machine, const std::vector<Context*>& contexts, const ConnectionManager& cm,
                      const std::string& what) {
  Json document = Json::object();
  const auto wants = [&](const char* section) { return what.empty() || what == section; };
  if (wants("dev")) document["dev"] = devices(machine);
  if (wants("port")) document["port"] = ports(machine);
  if (wants("qp")) document["qp"] = queue_pairs(contexts);
  if (wants("cq")) document["cq"] = completion_queues(contexts);
  if (wants("mr")) document["mr"] = regions(contexts);
  if (wants("mw")) document["mw"] = windows(contexts);
  if (wants("conn")) document["conn"] = connections(machine);
  if (wants("cm") || wants("conn")) document["cm"] = cm_ids(machine, cm);
  if (wants("stats")) document["stats"] = statistics(machine, contexts, cm);
  // Names of programs are any octets: what is not UTF-8 is replaced, and nothing is thrown.
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace rnic::control
