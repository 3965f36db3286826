#include "control/rdma_netlink.hpp"

#include <net/if.h>
#include <netinet/in.h>
#include <rdma/rdma_netlink.h>
#include <rdma/rdma_user_cm.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/bytes.hpp"
#include "control/limits.hpp"
#include "control/netlink_writer.hpp"
#include "control/sysfs_tree.hpp"

namespace rnic::control {
namespace {

constexpr std::uint32_t kPort = 1;
// enum ib_port_state and ib_port_phys_state, enum rdma_node_type, ib_qp_type, rdma_cm_state, ib_srq_type of the kernel.
constexpr std::uint8_t kPortDown = 1, kPortActive = 4;
constexpr std::uint8_t kPhysDisabled = 3, kPhysLinkUp = 5;
constexpr std::uint8_t kNodeCa = 1, kNodeRnic = 4;
constexpr std::uint8_t kTypeRc = 2, kTypeUd = 4;
constexpr std::uint8_t kSrqBasic = 0;
constexpr std::uint64_t kMemoryManagementExtensions = 1u << 21;  // enum ib_uverbs_device_cap_flags

std::uint16_t type_of(std::uint32_t command) {
  return static_cast<std::uint16_t>(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command));
}

std::uint8_t state_of(qp::State state, qp::IdleName idle) {
  switch (state) {
    case qp::State::idle:
      return static_cast<std::uint8_t>(idle);
    case qp::State::rts:
      return 3;
    case qp::State::closing:
      return 4;  // SQD
    case qp::State::terminate:
      return 5;  // SQE
    case qp::State::error:
      return 6;
  }
  return 6;
}

// As ibv_query_qp says it.
std::uint8_t state_of(const Qp& qp) {
  if (qp.ud != nullptr) {
    constexpr std::array<std::uint8_t, ud::kStates> kNames{0, 1, 2, 3, 5, 6};
    return kNames[static_cast<std::size_t>(qp.ud->state())];
  }
  const bool receives_only = qp.meets && !qp.meets->counts;
  if (receives_only && qp.qp->state() == qp::State::rts) return static_cast<std::uint8_t>(qp::IdleName::rtr);
  return state_of(qp.qp->state(), qp.qp->idle_name());
}

std::uint8_t state_of(IdState state) {
  switch (state) {
    case IdState::idle:
      return 0;
    case IdState::bound:
      return 7;
    case IdState::address_resolved:
      return 2;
    case IdState::route_resolved:
      return 4;
    case IdState::listening:
      return 8;
    case IdState::connecting:
    case IdState::answered:
    case IdState::requested:
    case IdState::accepting:
    case IdState::connected:
      return 5;
    case IdState::ended:
      return 6;
  }
  return 6;
}

// A message of `command` for each device, or for the one that is asked for.
class Answer {
 public:
  Answer(Machine& machine, const std::vector<Context*>& contexts, const ConnectionManager& cm, DeviceSet visible,
         const nlmsghdr& head, Bytes attributes, std::uint32_t port_id)
      : machine_(machine),
        contexts_(contexts),
        cm_(cm),
        visible_(visible),
        command_(RDMA_NL_GET_OP(head.nlmsg_type)),
        dump_((head.nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP),
        acknowledge_((head.nlmsg_flags & NLM_F_ACK) != 0),
        attributes_(attributes),
        out_(head, port_id) {}

  std::vector<std::byte> make() {
    const int error = serve();
    if (error != 0)
      out_.acknowledge(error);
    else if (dump_)
      out_.done();
    else if (acknowledge_)
      out_.acknowledge(0);
    return out_.take();
  }

 private:
  int serve() {
    switch (command_) {
      case RDMA_NLDEV_CMD_GET:
        return devices();
      case RDMA_NLDEV_CMD_PORT_GET:
        return of_one([&](ServedDevice& device) { port(device); });
      case RDMA_NLDEV_CMD_SYS_GET:
        return system();
      case RDMA_NLDEV_CMD_GET_CHARDEV:
        return character_device();
      case RDMA_NLDEV_CMD_RES_GET:
        return devices();
      case RDMA_NLDEV_CMD_RES_QP_GET:
        return resources(RDMA_NLDEV_ATTR_RES_QP, RDMA_NLDEV_ATTR_RES_QP_ENTRY, RDMA_NLDEV_ATTR_RES_LQPN,
                         &Answer::queue_pairs);
      case RDMA_NLDEV_CMD_RES_CM_ID_GET:
        return resources(RDMA_NLDEV_ATTR_RES_CM_ID, RDMA_NLDEV_ATTR_RES_CM_ID_ENTRY, RDMA_NLDEV_ATTR_RES_CM_IDN,
                         &Answer::ids);
      case RDMA_NLDEV_CMD_RES_CQ_GET:
        return resources(RDMA_NLDEV_ATTR_RES_CQ, RDMA_NLDEV_ATTR_RES_CQ_ENTRY, RDMA_NLDEV_ATTR_RES_CQN,
                         &Answer::completion_queues);
      case RDMA_NLDEV_CMD_RES_MR_GET:
        return resources(RDMA_NLDEV_ATTR_RES_MR, RDMA_NLDEV_ATTR_RES_MR_ENTRY, RDMA_NLDEV_ATTR_RES_MRN,
                         &Answer::regions);
      case RDMA_NLDEV_CMD_RES_PD_GET:
        return resources(RDMA_NLDEV_ATTR_RES_PD, RDMA_NLDEV_ATTR_RES_PD_ENTRY, RDMA_NLDEV_ATTR_RES_PDN, &Answer::pds);
      case RDMA_NLDEV_CMD_RES_CTX_GET:
        return resources(RDMA_NLDEV_ATTR_RES_CTX, RDMA_NLDEV_ATTR_RES_CTX_ENTRY, RDMA_NLDEV_ATTR_RES_CTXN,
                         &Answer::device_contexts);
      case RDMA_NLDEV_CMD_RES_SRQ_GET:
        return resources(RDMA_NLDEV_ATTR_RES_SRQ, RDMA_NLDEV_ATTR_RES_SRQ_ENTRY, RDMA_NLDEV_ATTR_RES_SRQN,
                         &Answer::shared_receive_queues);
      case RDMA_NLDEV_CMD_STAT_GET:
        return statistics();
      default:
        return EOPNOTSUPP;
    }
  }

  ServedDevice* asked_for() const {
    const auto index = netlink_number(attributes_, RDMA_NLDEV_ATTR_DEV_INDEX);
    if (!index || *index >= machine_.devices.size() || (visible_ >> *index & 1u) == 0) return nullptr;
    return machine_.devices[*index].get();
  }

  void begin(const ServedDevice& device) {
    out_.begin(type_of(command_), dump_ ? NLM_F_MULTI : 0);
    out_.put32(RDMA_NLDEV_ATTR_DEV_INDEX, device.index);
    out_.put(RDMA_NLDEV_ATTR_DEV_NAME, device.name);
  }

  // ---- devices ----
  void describe(ServedDevice& device) {
    begin(device);
    if (command_ == RDMA_NLDEV_CMD_GET)
      facts(device);
    else
      summary(device);
    out_.end();
  }

  int devices() {
    if (!dump_) return of_one([&](ServedDevice& device) { describe(device); });
    for (const auto& device : machine_.devices)
      if ((visible_ >> device->index & 1u) != 0) describe(*device);
    return 0;
  }

  template <typename Put>
  int of_one(Put put) {
    ServedDevice* device = asked_for();
    if (device == nullptr) return EINVAL;
    if (const auto number = netlink_number(attributes_, RDMA_NLDEV_ATTR_PORT_INDEX);
        number && *number != kPort && command_ != RDMA_NLDEV_CMD_GET)
      return EINVAL;
    put(*device);
    return 0;
  }

  void facts(const ServedDevice& device) {
    out_.put32(RDMA_NLDEV_ATTR_PORT_INDEX, kPort);  // the last one's
    out_.put64(RDMA_NLDEV_ATTR_CAP_FLAGS, kMemoryManagementExtensions);
    out_.put(RDMA_NLDEV_ATTR_FW_VERSION, RNIC_VERSION);
    out_.put64(RDMA_NLDEV_ATTR_NODE_GUID, from_big(device.node_guid));
    out_.put64(RDMA_NLDEV_ATTR_SYS_IMAGE_GUID, from_big(device.node_guid));
    const bool roce = device.face() == Face::roce;
    out_.put8(RDMA_NLDEV_ATTR_DEV_NODE_TYPE, roce ? kNodeCa : kNodeRnic);
    out_.put(RDMA_NLDEV_ATTR_DEV_PROTOCOL, roce ? "roce" : "iw");
  }

  void port(const ServedDevice& device) {
    begin(device);
    const bool up = device.port_is_up();
    out_.put32(RDMA_NLDEV_ATTR_PORT_INDEX, kPort);
    out_.put8(RDMA_NLDEV_ATTR_PORT_STATE, up ? kPortActive : kPortDown);
    out_.put8(RDMA_NLDEV_ATTR_PORT_PHYS_STATE, up ? kPhysLinkUp : kPhysDisabled);
    const std::string netdev = device.port_facts().netdev.empty() ? "lo" : device.port_facts().netdev;
    if (const unsigned index = if_nametoindex(netdev.c_str()); index != 0)
      out_.put32(RDMA_NLDEV_ATTR_NDEV_INDEX, index);
    out_.put(RDMA_NLDEV_ATTR_NDEV_NAME, netdev);
    out_.end();
  }

  void summary(const ServedDevice& device) {
    const auto& counts = device.counts;
    const auto ids =
        std::ranges::count_if(cm_.ids(), [&](const IdInfo& id) { return id.device == static_cast<int>(device.index); });
    const std::size_t table = out_.begin_table(RDMA_NLDEV_ATTR_RES_SUMMARY);
    const auto entry = [&](const char* name, std::uint64_t count) {
      const std::size_t at = out_.begin_table(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY);
      out_.put(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME, name);
      out_.put64(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR, count);
      out_.end_table(at);
    };
    entry("pd", counts.pds);
    entry("cq", counts.cqs);
    entry("qp", counts.qps);
    entry("cm_id", static_cast<std::uint64_t>(ids));
    entry("mr", counts.regions);
    entry("ctx", counts.contexts);
    entry("srq", counts.srqs);
    out_.end_table(table);
  }

  int system() {
    out_.begin(type_of(command_), 0);
    out_.put8(RDMA_NLDEV_SYS_ATTR_NETNS_MODE, 1);  // shared
    out_.end();
    return 0;
  }

  // Where /dev has it. libibverbs asks for "uverbs" of a device, librdmacm for "rdma_cm".
  int character_device() {
    const std::string_view kind = netlink_text(attributes_, RDMA_NLDEV_ATTR_CHARDEV_TYPE);
    std::string name(kind);
    dev_t number = makedev(kCmMajor, kCmMinor);
    std::uint64_t abi = RDMA_USER_CM_ABI_VERSION;
    if (kind == "uverbs") {
      const ServedDevice* device = asked_for();
      if (device == nullptr) return EINVAL;
      name += std::to_string(device->index);
      number = makedev(kVerbsMajor, kVerbsMinor + device->index);
      abi = kVerbsAbi;
    } else if (kind != "rdma_cm") {
      return EOPNOTSUPP;
    }
    out_.begin(type_of(command_), 0);
    out_.put64(RDMA_NLDEV_ATTR_CHARDEV, number);
    out_.put64(RDMA_NLDEV_ATTR_CHARDEV_ABI, abi);
    out_.put(RDMA_NLDEV_ATTR_CHARDEV_NAME, name);
    out_.end();
    return 0;
  }

  // ---- objects of a device ----
  // One entry of a table, or all of the message where one object is asked for.
  template <typename Put>
  void entry(std::uint32_t number, Put put) {
    if (wanted_) {
      if (*wanted_ != number || found_) return;
      begin(*device_);
      put();
      out_.end();
      found_ = true;
      return;
    }
    if (table_ != 0 && out_.message_size() > NetlinkWriter::kMessageMax - kEntryMax) end_tables();
    if (table_ == 0) {
      begin(*device_);
      table_ = out_.begin_table(table_type_);
    }
    const std::size_t at = out_.begin_table(entry_type_);
    put();
    out_.end_table(at);
  }
  void end_tables() {
    if (table_ == 0) return;
    out_.end_table(table_);
    out_.end();
    table_ = 0;
  }

  int resources(std::uint16_t table, std::uint16_t entry, std::uint16_t number, void (Answer::*put)()) {
    device_ = asked_for();
    if (device_ == nullptr) return EINVAL;
    table_type_ = table;
    entry_type_ = entry;
    if (!dump_) {
      wanted_ = netlink_number(attributes_, number);
      if (!wanted_) return EINVAL;
    }
    (this->*put)();
    end_tables();
    return dump_ || found_ ? 0 : ENOENT;
  }

  // Handles are a context's; a cookie is given once.
  template <typename Object>
  static std::uint32_t number_of(const Object& object) {
    return static_cast<std::uint32_t>(object.cookie);
  }
  template <typename Each>
  void of_contexts(Each each) {
    for (Context* context : contexts_)
      if (&context->device() == device_) each(*context);
  }
  void owner(const Context& context) {
    out_.put32(RDMA_NLDEV_ATTR_RES_PID, static_cast<std::uint32_t>(context.peer().pid));
  }

  void queue_pairs() {
    struct Seen {
      const Context* context;
      const Qp* qp;
      std::uint8_t state;
    };
    std::vector<Seen> seen;
    device_->on_each([&](Shard& shard, Instant) {
      of_contexts([&](const Context& context) {
        for (const auto& [number, qp] : context.qps())
          if (qp->shard == &shard && (!wanted_ || *wanted_ == number))
            seen.push_back({&context, qp.get(), state_of(*qp)});
      });
    });
    for (const Seen& it : seen)
      entry(it.qp->number.value, [&] {
        out_.put32(RDMA_NLDEV_ATTR_PORT_INDEX, kPort);
        out_.put32(RDMA_NLDEV_ATTR_RES_LQPN, it.qp->number.value);
        // rdma_cm's peers on an iWARP face have no numbers.
        const wire::Meeting meeting = it.qp->meets ? it.qp->meets->meeting : wire::Meeting{};
        out_.put32(RDMA_NLDEV_ATTR_RES_RQPN, meeting.peer_number.value);
        out_.put32(RDMA_NLDEV_ATTR_RES_RQ_PSN, meeting.due_psn);
        out_.put32(RDMA_NLDEV_ATTR_RES_SQ_PSN, meeting.own_psn.value_or(0));
        out_.put8(RDMA_NLDEV_ATTR_RES_PATH_MIG_STATE, 0);
        out_.put8(RDMA_NLDEV_ATTR_RES_TYPE, it.qp->ud != nullptr ? kTypeUd : kTypeRc);
        out_.put8(RDMA_NLDEV_ATTR_RES_STATE, it.state);
        out_.put32(RDMA_NLDEV_ATTR_RES_PDN, it.qp->pd->id.value);
        owner(*it.context);
      });
  }

  void completion_queues() {
    of_contexts([&](const Context& context) {
      for (const auto& [handle, cq] : context.cqs())
        entry(number_of(*cq), [&, &cq = cq] {
          out_.put32(RDMA_NLDEV_ATTR_RES_CQE, static_cast<std::uint32_t>(cq->queue->size()));
          out_.put64(RDMA_NLDEV_ATTR_RES_USECNT, cq->uses);
          out_.put32(RDMA_NLDEV_ATTR_RES_CQN, number_of(*cq));
          out_.put32(RDMA_NLDEV_ATTR_RES_CTXN, context.number());
          owner(context);
        });
    });
  }

  void regions() {
    of_contexts([&](const Context& context) {
      for (const auto& [handle, region] : context.regions()) {
        if (region->pd == nullptr) continue;  // nothing but a handle is left of it (V-MR-07)
        entry(region->stag.value >> 8, [&, &region = region] {
          out_.put64(RDMA_NLDEV_ATTR_RES_MRLEN, region->length);
          out_.put32(RDMA_NLDEV_ATTR_RES_MRN, region->stag.value >> 8);  // not the key
          out_.put32(RDMA_NLDEV_ATTR_RES_PDN, region->pd->id.value);
          owner(context);
        });
      }
    });
  }

  void pds() {
    of_contexts([&](const Context& context) {
      for (const auto& [handle, pd] : context.pds())
        entry(pd->id.value, [&, &pd = pd] {
          out_.put64(RDMA_NLDEV_ATTR_RES_USECNT, pd->uses);
          out_.put32(RDMA_NLDEV_ATTR_RES_PDN, pd->id.value);
          out_.put32(RDMA_NLDEV_ATTR_RES_CTXN, context.number());
          owner(context);
        });
    });
  }

  void device_contexts() {
    of_contexts([&](const Context& context) {
      entry(context.number(), [&] {
        out_.put32(RDMA_NLDEV_ATTR_RES_CTXN, context.number());
        owner(context);
      });
    });
  }

  void shared_receive_queues() {
    of_contexts([&](const Context& context) {
      for (const auto& [handle, srq] : context.srqs())
        entry(number_of(*srq), [&, &srq = srq] {
          out_.put32(RDMA_NLDEV_ATTR_RES_SRQN, number_of(*srq));
          out_.put8(RDMA_NLDEV_ATTR_RES_TYPE, kSrqBasic);
          out_.put32(RDMA_NLDEV_ATTR_RES_PDN, srq->pd->id.value);
          out_.put32(RDMA_NLDEV_ATTR_RES_CTXN, context.number());
          owner(context);
        });
    });
  }

  void put_address(std::uint16_t type, const wire::IpAddress& address, std::uint16_t port) {
    sockaddr_storage storage{};
    if (address.is_v4()) {
      sockaddr_in in{};
      in.sin_family = AF_INET;
      in.sin_port = to_big(port);
      std::memcpy(&in.sin_addr, address.octets().data() + 12, 4);
      std::memcpy(&storage, &in, sizeof in);
    } else {
      sockaddr_in6 in{};
      in.sin6_family = AF_INET6;
      in.sin6_port = to_big(port);
      std::memcpy(&in.sin6_addr, address.octets().data(), 16);
      std::memcpy(&storage, &in, sizeof in);
    }
    out_.put(type, &storage, sizeof storage);
  }

  void ids() {
    for (const IdInfo& id : cm_.ids()) {
      if (id.device != static_cast<int>(device_->index)) continue;
      entry(id.id, [&] {
        out_.put32(RDMA_NLDEV_ATTR_PORT_INDEX, kPort);
        out_.put8(RDMA_NLDEV_ATTR_RES_TYPE, port_spaces::has_datagrams(id.port_space) ? kTypeUd : kTypeRc);
        out_.put32(RDMA_NLDEV_ATTR_RES_PS, id.port_space);
        out_.put8(RDMA_NLDEV_ATTR_RES_STATE, state_of(id.state));
        put_address(RDMA_NLDEV_ATTR_RES_SRC_ADDR, id.source, id.source_port);
        put_address(RDMA_NLDEV_ATTR_RES_DST_ADDR, id.destination, id.destination_port);
        out_.put32(RDMA_NLDEV_ATTR_RES_CM_IDN, id.id);
        out_.put32(RDMA_NLDEV_ATTR_RES_PID, static_cast<std::uint32_t>(id.pid));
      });
    }
  }

  // ---- counters ----
  // Those of the port. There are none that queue pairs could be bound to.
  int statistics() {
    if (netlink_attribute(attributes_, RDMA_NLDEV_ATTR_STAT_RES)) return dump_ ? 0 : EOPNOTSUPP;
    if (!dump_) return of_one([&](ServedDevice& device) { counters(device); });
    for (const auto& device : machine_.devices)
      if ((visible_ >> device->index & 1u) != 0) counters(*device);
    return 0;
  }

  void counters(ServedDevice& device) {
    core::DeviceCounters seen;
    device.on_each([&](Shard& shard, Instant) { seen += shard.device->counters(); });
    begin(device);
    out_.put32(RDMA_NLDEV_ATTR_PORT_INDEX, kPort);
    const std::size_t table = out_.begin_table(RDMA_NLDEV_ATTR_STAT_HWCOUNTERS);
    const auto counter = [&](const char* name, std::uint64_t value) {
      const std::size_t at = out_.begin_table(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY);
      out_.put(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME, name);
      out_.put64(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE, value);
      out_.end_table(at);
    };
    counter("frames_in", seen.frames_in);
    counter("frames_out", seen.frames_out);
    counter("bytes_in", seen.bytes_in);
    counter("bytes_out", seen.bytes_out);
    counter("direct_bytes_in", seen.direct_bytes_in);
    counter("direct_bytes_out", seen.direct_bytes_out);
    counter("bad_frames", seen.bad_frames);
    counter("bad_checksums", seen.bad_checksums);
    counter("dropped", seen.frames_dropped);
    counter("no_buffer", seen.no_buffer);
    counter("no_listener", seen.no_listener);
    counter("syns_dropped", seen.syns_dropped);
    out_.end_table(table);
    out_.end();
  }

  // The longest entry is an id's: two addresses of 128 octets.
  static constexpr std::size_t kEntryMax = 512;

  Machine& machine_;
  const std::vector<Context*>& contexts_;
  const ConnectionManager& cm_;
  DeviceSet visible_;
  std::uint32_t command_;
  bool dump_, acknowledge_;
  Bytes attributes_;
  NetlinkWriter out_;

  ServedDevice* device_ = nullptr;  // whose objects are told
  std::optional<std::vector<IdInfo>> ids_;
  std::uint16_t table_type_ = 0, entry_type_ = 0;
  std::size_t table_ = 0;                // that is begun
  std::optional<std::uint32_t> wanted_;  // one object, by its number
  bool found_ = false;
};

}  // namespace

std::vector<std::byte> answer_netlink(Machine& machine, const std::vector<Context*>& contexts,
                                      const ConnectionManager& cm, DeviceSet visible, Bytes request,
                                      std::uint32_t port_id) {
  std::vector<std::byte> answers;
  nlmsghdr head;
  while (request.size() >= sizeof head) {
    std::memcpy(&head, request.data(), sizeof head);
    if (head.nlmsg_len < sizeof head || head.nlmsg_len > request.size()) break;
    const Bytes attributes = request.subspan(sizeof head, head.nlmsg_len - sizeof head);
    request = request.subspan(std::min<std::size_t>(NLMSG_ALIGN(head.nlmsg_len), request.size()));
    if ((head.nlmsg_flags & NLM_F_REQUEST) == 0) continue;
    std::vector<std::byte> answer;
    if (RDMA_NL_GET_CLIENT(head.nlmsg_type) == RDMA_NL_NLDEV) {
      answer = Answer(machine, contexts, cm, visible, head, attributes, port_id).make();
    } else {
      NetlinkWriter refusal(head, port_id);
      refusal.acknowledge(EINVAL);
      answer = refusal.take();
    }
    answers.insert(answers.end(), answer.begin(), answer.end());
  }
  return answers;
}

}  // namespace rnic::control
