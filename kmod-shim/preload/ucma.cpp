// One row for each command of /dev/infiniband/rdma_cm: how much it must bring, and the function
// that asks the daemon and fills the response as drivers/infiniband/core/ucma.c would.
//
// librdmacm issues two sets of commands. It begins with a probe of AF_IB; since that is refused,
// it stays with the older set (BIND_IP, RESOLVE_IP, QUERY_ROUTE). Both are served.
#include "ucma.hpp"

#include <errno.h>
#include <netinet/in.h>  // before the kernel's headers, which then leave its names alone
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rdma_user_cm.h>

#include <array>
#include <type_traits>

#include "address.hpp"
#include "libc.hpp"
#include "lock.hpp"

namespace rnic::preload {
namespace {

struct Command {
  Channel& channel;
  int fd;
  const unsigned char* in;
  std::size_t in_size;
  std::size_t out_size;
  const NoCancel& no_cancel;
};

// Older callers bring less, newer ones more, than we know.
template <class T>
T load(const Command& command) {
  T value{};
  memcpy(&value, command.in, command.in_size < sizeof value ? command.in_size : sizeof value);
  return value;
}

template <class T>
int answer(const Command& command, std::uint64_t place, const T& response) {
  const std::size_t size = command.out_size < sizeof response ? command.out_size : sizeof response;
  memcpy(reinterpret_cast<void*>(place), &response, size);
  return 0;
}

struct Nothing {};

template <class Request, class Reply>
int ask(Channel& channel, std::uint32_t type, const Request& request, Reply& reply) {
  Call call{.type = type, .request = &request, .request_size = sizeof request};
  if constexpr (!std::is_same_v<Reply, Nothing>) {
    call.reply = &reply;
    call.reply_room = sizeof reply;
  }
  return channel_call(channel, call);
}

template <class Request>
int tell(Channel& channel, std::uint32_t type, const Request& request) {
  Nothing nothing;
  return ask(channel, type, request, nothing);
}

// Takes off the octets of `count` events that the daemon has withdrawn. Another thread may have
// taken one of them and found nothing: it must not make us wait.
void take_back(int fd, std::uint32_t count) {
  char octets[64];
  while (count > 0) {
    const std::size_t size = count < sizeof octets ? count : sizeof octets;
    const ssize_t got = libc().recv(fd, octets, size, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;
    count -= static_cast<std::uint32_t>(got);
  }
}

// ---- Ids --------------------------------------------------------------------------------

int create_id(const Command& command) {
  const auto in = load<rdma_ucm_create_id>(command);
  if (command.out_size < sizeof(rdma_ucm_create_id_resp)) return ENOSPC;
  // RDMA_PS_IB is the probe of AF_IB.
  if (in.ps == RDMA_PS_IB) return EINVAL;
  rnic_cm_create_id request{};
  request.channel = command.channel.handle;
  request.port_space = in.ps;
  request.qp_type = in.qp_type;
  request.uid = in.uid;
  rnic_handle_reply reply{};
  const int error = ask(command.channel, RNIC_CM_CREATE_ID, request, reply);
  if (error != 0) return error;
  note_id(command.channel, reply.handle, in.uid, in.ps == RDMA_PS_TCP);
  return answer(command, in.response, rdma_ucm_create_id_resp{reply.handle});
}

// Once what was just told of it has been fetched, or nobody has come for it for a while.
int ask_to_destroy(Channel& channel, std::uint32_t id, rnic_cm_destroy_id_reply& reply) {
  // Longer than the daemon says so of one event: others may be told meanwhile.
  constexpr int kTries = 16;
  const timespec pause{0, 200'000};
  const auto ask_once = [&](std::uint32_t flags) {
    const NothingLent nothing_lent(channel, id);
    return ask(channel, RNIC_CM_DESTROY_ID, rnic_handle{id, flags}, reply);
  };
  for (int i = 0; i < kTries; ++i) {
    const int error = ask_once(RNIC_CM_UNLESS_JUST_TOLD);
    if (error != EAGAIN) return error;
    nanosleep(&pause, nullptr);
  }
  return ask_once(0);
}

// librdmacm waits until as many events are acknowledged as are said here to have been reported.
// Of a daemon that has gone, our own count says it: ids must be destroyable.
int destroy_id(const Command& command) {
  const auto in = load<rdma_ucm_destroy_id>(command);
  if (command.out_size < sizeof(rdma_ucm_destroy_id_resp)) return ENOSPC;
  rnic_cm_destroy_id_reply reply{};
  int error = make_ready(command.channel);
  if (error == 0) error = ask_to_destroy(command.channel, in.id, reply);
  if (error != 0 && !is_lost(command.channel)) return error;
  const std::uint32_t counted = drop_id(command.channel, in.id);
  if (error != 0) reply = {counted, 0};
  take_back(command.fd, reply.purged);
  return answer(command, in.response, rdma_ucm_destroy_id_resp{reply.events_reported});
}

// The number is of the channel that the id comes from; the command is written to the one it
// goes to.
int migrate_id(const Command& command) {
  const auto in = load<rdma_ucm_migrate_id>(command);
  if (command.out_size < sizeof(rdma_ucm_migrate_resp)) return ENOSPC;
  const int old_fd = static_cast<int>(in.fd);
  if (kind_of(old_fd) != Kind::cm_channel) return EINVAL;
  Object* const object = hold(old_fd);
  if (object == nullptr) return EINVAL;
  auto& from = static_cast<Channel&>(*object);
  rnic_cm_migrate_id_reply reply{};
  int error = make_ready(from);
  if (error == 0) {
    const NothingLent nothing_lent(from, in.id);
    const rnic_cm_migrate_id request{in.id, command.channel.handle};
    error = ask(command.channel, RNIC_CM_MIGRATE_ID, request, reply);
  }
  if (error == 0) {
    if (&from != &command.channel) take_back(old_fd, reply.purged);
    move_id(in.id, from, command.channel);
    error = answer(command, in.response, rdma_ucm_migrate_resp{reply.events_reported});
  }
  release(*object);
  return error;
}

// ---- Addresses and routes ---------------------------------------------------------------

int bind_to(Channel& channel, std::uint32_t id, const void* octets) {
  rnic_cm_bind request{};
  request.id = id;
  if (!to_daemon(octets, request.address)) return EINVAL;
  forget_device(channel, id);
  return tell(channel, RNIC_CM_BIND, request);
}

int bind_ip(const Command& command) {
  const auto in = load<rdma_ucm_bind_ip>(command);
  return bind_to(command.channel, in.id, &in.addr);
}

int bind_any(const Command& command) {
  const auto in = load<rdma_ucm_bind>(command);
  if (in.reserved != 0 || in.addr_size == 0) return EINVAL;
  if (in.addr_size != sockaddr_size(in.addr.ss_family)) return EINVAL;
  return bind_to(command.channel, in.id, &in.addr);
}

int resolve(Channel& channel, std::uint32_t id, std::uint32_t timeout_ms, const void* source, const void* destination) {
  rnic_cm_resolve_address request{};
  request.id = id;
  request.timeout_ms = timeout_ms;
  std::uint16_t family = 0;
  memcpy(&family, source, sizeof family);
  if (family != AF_UNSPEC && !to_daemon(source, request.source)) return EINVAL;
  if (!to_daemon(destination, request.destination)) return EINVAL;
  forget_device(channel, id);
  return tell(channel, RNIC_CM_RESOLVE_ADDRESS, request);
}

int resolve_ip(const Command& command) {
  const auto in = load<rdma_ucm_resolve_ip>(command);
  return resolve(command.channel, in.id, in.timeout_ms, &in.src_addr, &in.dst_addr);
}

int resolve_addr(const Command& command) {
  const auto in = load<rdma_ucm_resolve_addr>(command);
  if (in.reserved != 0 || in.dst_size == 0) return EINVAL;
  if (in.dst_size != sockaddr_size(in.dst_addr.ss_family)) return EINVAL;
  if (in.src_size != 0 && in.src_size != sockaddr_size(in.src_addr.ss_family)) return EINVAL;
  const __kernel_sockaddr_storage none{};
  return resolve(command.channel, in.id, in.timeout_ms, in.src_size == 0 ? &none : &in.src_addr, &in.dst_addr);
}

int resolve_route(const Command& command) {
  const auto in = load<rdma_ucm_resolve_route>(command);
  forget_answer(command.channel, in.id);
  return tell(command.channel, RNIC_CM_RESOLVE_ROUTE, rnic_cm_resolve_route{in.id, in.timeout_ms});
}

constexpr std::uint16_t kDefaultPkey = 0xffff;

// As the kernel has it of RoCE: a rate that says nothing, "exactly" of all that is selected.
ib_user_path_rec path_of(const rnic_cm_query_reply& reply) {
  constexpr __u8 kExactly = 2;
  ib_user_path_rec path{};
  memcpy(path.sgid, reply.source_gid, sizeof path.sgid);
  memcpy(path.dgid, reply.destination_gid, sizeof path.dgid);
  path.reversible = 1;
  path.mtu = reply.path_mtu;
  path.pkey = kDefaultPkey;
  path.hop_limit = reply.hop_limit;
  path.traffic_class = reply.traffic_class;
  path.numb_path = 1;
  path.mtu_selector = path.rate_selector = path.packet_life_time_selector = kExactly;
  path.packet_life_time = reply.path_life_time;
  return path;
}

int ask_about(const Command& command, std::uint32_t id, rnic_cm_query_reply& reply) {
  int error = 0;
  if (!take_answer(command.channel, id, reply)) error = ask(command.channel, RNIC_CM_QUERY, rnic_handle{id, 0}, reply);
  if (error == 0 && reply.node_guid != 0) note_device(command.channel, id, reply.device_index);
  return error;
}

// iWARP has no path records, and librdmacm asks for none.
int query_route(const Command& command) {
  const auto in = load<rdma_ucm_query>(command);
  rnic_cm_query_reply reply{};
  const int error = ask_about(command, in.id, reply);
  if (error != 0) return error;
  rdma_ucm_query_route_resp response{};
  from_daemon(reply.source, &response.src_addr, sizeof response.src_addr);
  from_daemon(reply.destination, &response.dst_addr, sizeof response.dst_addr);
  if (reply.node_guid != 0) {
    response.node_guid = reply.node_guid;
    response.port_num = static_cast<__u8>(reply.port_number);
    response.ibdev_index = reply.device_index;
    to_gid(reply.source, response.ib_route[0].sgid);
    to_gid(reply.destination, response.ib_route[0].dgid);
    if (reply.path_count != 0) {
      response.num_paths = 1;
      response.ib_route[0] = path_of(reply);
    }
  }
  return answer(command, in.response, response);
}

// struct sockaddr_ib of librdmacm's <infiniband/ib.h>, in which QUERY answers for GIDs.
struct SockaddrIb {
  std::uint16_t family;
  std::uint16_t pkey;
  std::uint32_t flow_information;
  std::uint8_t gid[16];
  std::uint64_t service_id;
  std::uint64_t service_id_mask;
  std::uint64_t scope;
};
static_assert(sizeof(SockaddrIb) == 48);
constexpr std::uint16_t kFamilyIb = 27;

std::uint16_t put_gid(const rnic_address& address, __kernel_sockaddr_storage& place) {
  SockaddrIb ib{};
  ib.family = kFamilyIb;
  ib.pkey = kDefaultPkey;
  to_gid(address, ib.gid);
  memcpy(&place, &ib, sizeof ib);
  return sizeof ib;
}

int query(const Command& command) {
  const auto in = load<rdma_ucm_query>(command);
  if (in.option > RDMA_USER_CM_QUERY_GID) return ENOSYS;
  rnic_cm_query_reply reply{};
  const int error = ask_about(command, in.id, reply);
  if (error != 0) return error;
  if (in.option == RDMA_USER_CM_QUERY_PATH) {
    return answer(command, in.response, rdma_ucm_query_path_resp{});
  }
  rdma_ucm_query_addr_resp response{};
  if (in.option == RDMA_USER_CM_QUERY_GID) {
    response.src_size = put_gid(reply.source, response.src_addr);
    response.dst_size = put_gid(reply.destination, response.dst_addr);
  } else {
    response.src_size = static_cast<__u16>(from_daemon(reply.source, &response.src_addr, sizeof response.src_addr));
    response.dst_size =
        static_cast<__u16>(from_daemon(reply.destination, &response.dst_addr, sizeof response.dst_addr));
  }
  if (reply.node_guid != 0) {
    response.node_guid = reply.node_guid;
    response.port_num = static_cast<__u8>(reply.port_number);
    response.pkey = kDefaultPkey;
    response.ibdev_index = reply.device_index;
  }
  return answer(command, in.response, response);
}

// ---- Connections ------------------------------------------------------------------------

rnic_cm_parameters parameters_of(const rdma_ucm_conn_param& in) {
  rnic_cm_parameters out{};
  out.qp_number = in.qp_num;
  out.srq = in.srq;
  out.responder_resources = in.responder_resources;
  out.initiator_depth = in.initiator_depth;
  out.flow_control = in.flow_control;
  out.retry_count = in.retry_count;
  out.rnr_retry_count = in.rnr_retry_count;
  out.valid = in.valid;
  out.private_data_length = in.private_data_len;
  memcpy(out.private_data, in.private_data, in.private_data_len);
  return out;
}

// Of CONNECT and ACCEPT, with the options of enhanced connection establishment, which came later than the rest.
template <class Ucm>
rnic_cm_parameters parameters_with_ece(const Ucm& in) {
  rnic_cm_parameters out = parameters_of(in.conn_param);
  out.ece_vendor = in.ece.vendor_id;
  out.ece_options = in.ece.attr_mod;
  return out;
}

// The length of private data is one octet here; of what MPA carries, up to 512 octets, the
// application sees the first 255.
rdma_ucm_conn_param parameters_of(const rnic_cm_parameters& in) {
  rdma_ucm_conn_param out{};
  out.qp_num = in.qp_number;
  out.srq = static_cast<__u8>(in.srq);
  out.responder_resources = in.responder_resources;
  out.initiator_depth = in.initiator_depth;
  out.flow_control = in.flow_control;
  out.retry_count = in.retry_count;
  out.rnr_retry_count = in.rnr_retry_count;
  out.valid = in.valid;
  out.private_data_len = static_cast<__u8>(in.private_data_length < 255 ? in.private_data_length : 255);
  memcpy(out.private_data, in.private_data, out.private_data_len);
  return out;
}

int connect_id(const Command& command) {
  const auto in = load<rdma_ucm_connect>(command);
  if (in.conn_param.valid == 0) return EINVAL;
  rnic_cm_connect request{};
  request.id = in.id;
  request.parameters = parameters_with_ece(in);
  forget_answer(command.channel, in.id);
  return tell(command.channel, RNIC_CM_CONNECT, request);
}

int accept_id(const Command& command) {
  const auto in = load<rdma_ucm_accept>(command);
  rnic_cm_connect request{};
  request.id = in.id;
  request.uid = in.uid;
  request.qkey = in.conn_param.qkey;
  request.parameters = parameters_with_ece(in);
  forget_answer(command.channel, in.id);
  const int error = tell(command.channel, RNIC_CM_ACCEPT, request);
  // Without parameters it answers a CONNECT_RESPONSE, and the id keeps its user pointer.
  if (error == 0 && in.conn_param.valid != 0) note_uid(command.channel, in.id, in.uid);
  return error;
}

// InfiniBand's reasons (enum ib_cm_rej_reason) that an application may give; 0 means the first.
constexpr std::uint8_t kRejectConsumer = 28, kRejectVendorOption = 35;

int reject_id(const Command& command) {
  const auto in = load<rdma_ucm_reject>(command);
  if (in.reason != 0 && in.reason != kRejectConsumer && in.reason != kRejectVendorOption) return EINVAL;
  rnic_cm_reject request{};
  request.id = in.id;
  request.for_ece = in.reason == kRejectVendorOption ? 1 : 0;
  request.private_data_length = in.private_data_len;
  memcpy(request.private_data, in.private_data, in.private_data_len);
  return tell(command.channel, RNIC_CM_REJECT, request);
}

int listen_id(const Command& command) {
  const auto in = load<rdma_ucm_listen>(command);
  return tell(command.channel, RNIC_CM_LISTEN, rnic_cm_listen{in.id, in.backlog});
}

int disconnect_id(const Command& command) {
  const auto in = load<rdma_ucm_disconnect>(command);
  return tell(command.channel, RNIC_CM_DISCONNECT, rnic_handle{in.id, 0});
}

int notify_id(const Command& command) {
  const auto in = load<rdma_ucm_notify>(command);
  return tell(command.channel, RNIC_CM_NOTIFY, rnic_cm_notify{in.id, in.event});
}

// What ibv_modify_qp is to be called with: enum ibv_qp_attr_mask and ibv_access_flags.
constexpr std::uint32_t kMaskPkeyIndex = 1u << 4, kMaskPort = 1u << 5, kMaskQkey = 1u << 6, kMaskAv = 1u << 7,
                        kMaskPathMtu = 1u << 8, kMaskTimeout = 1u << 9, kMaskRetryCnt = 1u << 10,
                        kMaskRnrRetry = 1u << 11, kMaskRqPsn = 1u << 12, kMaskMaxRdAtomic = 1u << 13,
                        kMaskMinRnrTimer = 1u << 15, kMaskSqPsn = 1u << 16, kMaskMaxDestRdAtomic = 1u << 17,
                        kMaskDestQpn = 1u << 20;
struct MaskName {
  std::uint32_t ours;
  std::uint32_t theirs;
};
constexpr MaskName kMaskNames[] = {
    {RNIC_CM_ATTRIBUTES_STATE, 1u << 0},
    {RNIC_CM_ATTRIBUTES_ACCESS, 1u << 3},
    {RNIC_CM_ATTRIBUTES_INIT, kMaskPkeyIndex | kMaskPort},
    {RNIC_CM_ATTRIBUTES_RTR,
     kMaskAv | kMaskPathMtu | kMaskRqPsn | kMaskMinRnrTimer | kMaskMaxDestRdAtomic | kMaskDestQpn},
    {RNIC_CM_ATTRIBUTES_RTS, kMaskTimeout | kMaskRetryCnt | kMaskRnrRetry | kMaskMaxRdAtomic | kMaskSqPsn},
    {RNIC_CM_ATTRIBUTES_QKEY, kMaskQkey},
};
struct AccessName {
  std::uint32_t ours;
  std::uint32_t theirs;
};
constexpr AccessName kAccessNames[] = {
    {RNIC_ACCESS_LOCAL_WRITE, 1u << 0},   {RNIC_ACCESS_REMOTE_WRITE, 1u << 1}, {RNIC_ACCESS_REMOTE_READ, 1u << 2},
    {RNIC_ACCESS_REMOTE_ATOMIC, 1u << 3}, {RNIC_ACCESS_WINDOW_BIND, 1u << 4},
};

ib_uverbs_ah_attr address_of(const std::uint8_t (&gid)[16], std::uint32_t gid_index, std::uint8_t hop_limit,
                             std::uint8_t traffic_class) {
  ib_uverbs_ah_attr address{};
  memcpy(address.grh.dgid, gid, sizeof address.grh.dgid);
  address.grh.sgid_index = static_cast<__u8>(gid_index);
  address.grh.hop_limit = hop_limit;
  address.grh.traffic_class = traffic_class;
  address.is_global = 1;
  address.port_num = 1;
  return address;
}

int init_qp_attr(const Command& command) {
  const auto in = load<rdma_ucm_init_qp_attr>(command);
  if (command.out_size < sizeof(ib_uverbs_qp_attr)) return ENOSPC;
  rnic_cm_init_qp_attributes_reply reply{};
  if (!known_attributes(command.channel, in.id, in.qp_state, reply)) {
    const rnic_cm_init_qp_attributes request{in.id, in.qp_state};
    const int error = ask(command.channel, RNIC_CM_INIT_QP_ATTRIBUTES, request, reply);
    if (error != 0) return error;
    if ((reply.mask & RNIC_CM_ATTRIBUTES_OF_DEVICE) != 0) note_attributes(command.channel, in.id, in.qp_state, reply);
  }
  ib_uverbs_qp_attr response{};
  for (const MaskName& name : kMaskNames) {
    if ((reply.mask & name.ours) != 0) response.qp_attr_mask |= name.theirs;
  }
  response.qp_state = static_cast<__u8>(reply.state);
  for (const AccessName& name : kAccessNames) {
    if ((reply.access & name.ours) != 0) response.qp_access_flags |= name.theirs;
  }
  response.port_num = 1;
  response.path_mtu = reply.path_mtu;
  response.dest_qp_num = reply.peer_number;
  response.rq_psn = reply.receive_psn;
  response.sq_psn = reply.send_psn;
  response.max_dest_rd_atomic = reply.responder_resources;
  response.max_rd_atomic = reply.initiator_depth;
  response.timeout = reply.timeout;
  response.retry_cnt = reply.retry_count;
  response.rnr_retry = reply.rnr_retry;
  response.min_rnr_timer = reply.min_rnr_timer;
  response.qkey = reply.qkey;
  if ((reply.mask & RNIC_CM_ATTRIBUTES_RTR) != 0)
    response.ah_attr = address_of(reply.peer_gid, reply.gid_index, reply.hop_limit, reply.traffic_class);
  return answer(command, in.response, response);
}

int set_option(const Command& command) {
  const auto in = load<rdma_ucm_set_option>(command);
  // RDMA_OPTION_IB brings path records, which iWARP has none of.
  if (in.level != RDMA_OPTION_ID) return ENOSYS;
  rnic_cm_set_option request{};
  if (in.optlen > sizeof request.value) return EINVAL;
  request.id = in.id;
  request.level = in.level;
  request.option = in.optname;
  request.length = in.optlen;
  if (in.optlen > 0) memcpy(request.value, reinterpret_cast<void*>(in.optval), in.optlen);
  return tell(command.channel, RNIC_CM_SET_OPTION, request);
}

// ---- Groups -----------------------------------------------------------------------------

int join(const Command& command, std::uint64_t place, std::uint32_t id, std::uint64_t uid, std::uint32_t flags,
         const void* group) {
  if (command.out_size < sizeof(rdma_ucm_create_id_resp)) return ENOSPC;
  rnic_cm_join request{};
  request.id = id;
  request.flags = flags;
  request.uid = uid;
  if (!to_daemon(group, request.group)) return EINVAL;
  rnic_handle_reply reply{};
  const int error = ask(command.channel, RNIC_CM_JOIN, request, reply);
  if (error != 0) return error;
  return answer(command, place, rdma_ucm_create_id_resp{reply.handle});
}

int join_ip_mcast(const Command& command) {
  const auto in = load<rdma_ucm_join_ip_mcast>(command);
  return join(command, in.response, in.id, in.uid, 0, &in.addr);
}

int join_mcast(const Command& command) {
  const auto in = load<rdma_ucm_join_mcast>(command);
  if (in.addr_size == 0 || in.addr_size != sockaddr_size(in.addr.ss_family)) return EINVAL;
  if (in.join_flags >= RDMA_MC_JOIN_FLAG_RESERVED) return EINVAL;
  const bool sends_only = in.join_flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
  return join(command, in.response, in.id, in.uid, sends_only ? RNIC_CM_SEND_ONLY : 0, &in.addr);
}

int leave_mcast(const Command& command) {
  const auto in = load<rdma_ucm_destroy_id>(command);
  if (command.out_size < sizeof(rdma_ucm_destroy_id_resp)) return ENOSPC;
  rnic_cm_leave_reply reply{};
  const NothingLent nothing_lent(command.channel, 0);
  const int error = ask(command.channel, RNIC_CM_LEAVE, rnic_handle{in.id, 0}, reply);
  if (error != 0) return error;
  take_back(command.fd, reply.purged);
  return answer(command, in.response, rdma_ucm_destroy_id_resp{reply.events_reported});
}

// ---- Events -----------------------------------------------------------------------------

constexpr std::size_t kEventSizeMin =
    sizeof(rdma_ucm_event_resp) - sizeof(rdma_ucm_event_resp::reserved) - sizeof(rdma_ucm_event_resp::ece);

int report_removal(const Command& command, std::uint64_t place) {
  RemovalEvent removal;
  if (!next_removal(command.channel, removal)) return EIO;
  rdma_ucm_event_resp response{};
  response.uid = removal.uid;
  response.id = removal.id;
  response.event = RNIC_CM_DEVICE_REMOVAL;
  return answer(command, place, response);
}

rdma_ucm_ud_param datagrams_of(const rnic_cm_get_event_reply& event) {
  const rdma_ucm_conn_param parameters = parameters_of(event.parameters);
  const rnic_cm_way& way = event.way;
  rdma_ucm_ud_param out{};
  out.qp_num = parameters.qp_num;
  out.qkey = way.qkey;
  if (way.hop_limit != 0) out.ah_attr = address_of(way.gid, way.gid_index, way.hop_limit, way.traffic_class);
  out.private_data_len = parameters.private_data_len;
  memcpy(out.private_data, parameters.private_data, parameters.private_data_len);
  return out;
}

int report(const Command& command, std::uint64_t place, const rnic_cm_told& told) {
  const rnic_cm_get_event_reply& event = told.event;
  rdma_ucm_event_resp response{};
  response.uid = event.uid;
  response.id = event.id;
  response.event = event.event;
  response.status = static_cast<__u32>(event.status);
  if (event.datagrams != 0)
    response.param.ud = datagrams_of(event);
  else
    response.param.conn = parameters_of(event.parameters);
  response.ece.vendor_id = event.parameters.ece_vendor;
  response.ece.attr_mod = event.parameters.ece_options;
  if (event.event == RNIC_CM_CONNECT_REQUEST) {
    note_id(command.channel, event.id, 0, event.datagrams == 0);
    note_report(command.channel, event.listener);
  } else {
    note_report(command.channel, event.id);
  }
  note_answer(command.channel, event.id, told.about);
  return answer(command, place, response);
}

void release_channel(void* channel) { release(*static_cast<Channel*>(channel)); }

// Takes one count, or says why not. The thread may be cancelled here; it then lets go of the
// channel, which write() has held for it.
int wait_for_count(const Command& command) {
  volatile int error = 0;  // without exceptions a clean-up is a longjmp
  pthread_cleanup_push(release_channel, &command.channel);
  {
    const Cancellable cancellable(command.no_cancel);
    char octet = 0;
    // Once it is closed, the number may be another file's.
    const ssize_t got = is_closed(command.channel) ? 0 : ::read(command.fd, &octet, sizeof octet);
    if (got != sizeof octet) error = got == 0 ? kDisconnected : errno;
    // Closed here, by another thread: the kernel leaves who waits where it is, and programs count on that.
    if ((got == 0 || error == EBADF) && is_closed(command.channel)) {
      pause();
      error = errno;
    }
  }
  pthread_cleanup_pop(0);
  return error;
}

// Waits as the application set the descriptor up: until an event comes, not at all (EAGAIN), or
// until a signal (EINTR). A count without an event is one that was withdrawn meanwhile.
int get_event(const Command& command) {
  const auto in = load<rdma_ucm_get_event>(command);
  if (command.out_size < kEventSizeMin) return ENOSPC;
  for (;;) {
    if (make_ready(command.channel) != 0) return report_removal(command, in.response);
    const int error_of_wait = wait_for_count(command);
    if (error_of_wait == kDisconnected) {
      on_channel_end(command.channel);
      continue;
    }
    if (error_of_wait != 0) return error_of_wait;
    if (is_lost(command.channel)) continue;
    rnic_cm_told told;
    const int error = next_event(command.channel, told);
    if (error == 0) return report(command, in.response, told);
    // The count was of an event that went with its id, and then another thread closed the channel: that is to wait,
    // too.
    if (error != EAGAIN && !is_lost(command.channel) && !is_closed(command.channel)) return error;
  }
}

// ---- The table --------------------------------------------------------------------------

int not_served(const Command&) { return ENOSYS; }

struct Row {
  std::size_t in_min;
  int (*serve)(const Command&);
  bool of_lost_too = false;  // decides itself what to do after the daemon's end
};

// `ece` came later than the rest of CONNECT and ACCEPT.
constexpr std::size_t kConnectMin = offsetof(rdma_ucm_connect, ece);
constexpr std::size_t kAcceptMin = offsetof(rdma_ucm_accept, ece);
constexpr std::size_t kJoinIpMin = offsetof(rdma_ucm_join_ip_mcast, id) + sizeof(__u32);
constexpr std::size_t kBindIpMin = offsetof(rdma_ucm_bind_ip, id) + sizeof(__u32);

constexpr std::array<Row, 25> kRows{{
    {sizeof(rdma_ucm_create_id), create_id},          // 0
    {sizeof(rdma_ucm_destroy_id), destroy_id, true},  // 1
    {kBindIpMin, bind_ip},                            // 2
    {sizeof(rdma_ucm_resolve_ip), resolve_ip},        // 3
    {sizeof(rdma_ucm_resolve_route), resolve_route},  // 4
    {sizeof(rdma_ucm_query), query_route},            // 5
    {kConnectMin, connect_id},                        // 6
    {sizeof(rdma_ucm_listen), listen_id},             // 7
    {kAcceptMin, accept_id},                          // 8
    {sizeof(rdma_ucm_reject), reject_id},             // 9
    {sizeof(rdma_ucm_disconnect), disconnect_id},     // 10
    {sizeof(rdma_ucm_init_qp_attr), init_qp_attr},    // 11
    {sizeof(rdma_ucm_get_event), get_event, true},    // 12
    {0, not_served, true},                            // 13 GET_OPTION: no kernel has it
    {sizeof(rdma_ucm_set_option), set_option},        // 14
    {sizeof(rdma_ucm_notify), notify_id},             // 15
    {kJoinIpMin, join_ip_mcast},                      // 16
    {sizeof(rdma_ucm_destroy_id), leave_mcast},       // 17
    {sizeof(rdma_ucm_migrate_id), migrate_id},        // 18
    {sizeof(rdma_ucm_query), query},                  // 19
    {sizeof(rdma_ucm_bind), bind_any},                // 20
    {sizeof(rdma_ucm_resolve_addr), resolve_addr},    // 21
    {sizeof(rdma_ucm_join_mcast), join_mcast},        // 22
    {0, not_served, true},                            // 23 RESOLVE_IB_SERVICE, of later kernels
    {0, not_served, true},                            // 24 WRITE_CM_EVENT
}};
static_assert(kRows[RDMA_USER_CM_CMD_BIND_IP].serve == bind_ip);
static_assert(kRows[RDMA_USER_CM_CMD_REJECT].serve == reject_id);
static_assert(kRows[RDMA_USER_CM_CMD_GET_EVENT].serve == get_event);
static_assert(kRows[RDMA_USER_CM_CMD_SET_OPTION].serve == set_option);
static_assert(kRows[RDMA_USER_CM_CMD_LEAVE_MCAST].serve == leave_mcast);
static_assert(kRows[RDMA_USER_CM_CMD_MIGRATE_ID].serve == migrate_id);
static_assert(kRows[RDMA_USER_CM_CMD_RESOLVE_ADDR].serve == resolve_addr);
static_assert(kRows[RDMA_USER_CM_CMD_JOIN_MCAST].serve == join_mcast);

int serve(const Command& command, std::uint32_t number) {
  if (number >= kRows.size()) return EINVAL;
  const Row& row = kRows[number];
  if (command.in_size < row.in_min) return EINVAL;
  if (!row.of_lost_too) {
    const int error = make_ready(command.channel);
    if (error != 0) return error;
  }
  return row.serve(command);
}

}  // namespace

ssize_t write_ucma(Channel& channel, int fd, const void* data, std::size_t size) {
  const NoCancel no_cancel;
  rdma_ucm_cmd_hdr header{};
  int error = EINVAL;
  if (size >= sizeof header) {
    memcpy(&header, data, sizeof header);
    if (sizeof header + header.in <= size) {
      const Command command{channel,   fd,         static_cast<const unsigned char*>(data) + sizeof header,
                            header.in, header.out, no_cancel};
      error = serve(command, header.cmd);
    }
  }
  if (error == 0) return static_cast<ssize_t>(size);
  errno = error;
  return -1;
}

}  // namespace rnic::preload
