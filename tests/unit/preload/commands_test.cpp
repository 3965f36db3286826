// Each command of /dev/infiniband/rdma_cm: what the daemon is asked, and what the application is
// answered.
#include "kit/catch.hpp"

#include <arpa/inet.h>

#include "unit/preload/commands.hpp"

using namespace rnic::test;

namespace {

// On a daemon that says yes to what it is asked: it is the asking that is looked at.
struct OpenChannel {
  OpenChannel() { daemon_at_work().agree(); }
  int fd = open_cm(O_RDWR | O_CLOEXEC | O_NONBLOCK);
  ~OpenChannel() {
    close(fd);
    daemon_at_work().agree_no_more();
  }
};

// A channel with one id.
struct OneId : OpenChannel {
  std::uint32_t id = create_id(fd, 0x1234);
};

sockaddr_in ipv4(const char* text, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  inet_pton(AF_INET, text, &address.sin_addr);
  return address;
}

sockaddr_in6 ipv6(const char* text, std::uint16_t port) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  address.sin6_scope_id = 3;
  inet_pton(AF_INET6, text, &address.sin6_addr);
  return address;
}

template <class Place, class Address>
void put(Place& place, const Address& address) {
  static_assert(sizeof(Place) >= sizeof(Address));
  std::memcpy(&place, &address, sizeof address);
}

rnic_address daemon_ipv4(std::uint8_t last, std::uint16_t port) {
  rnic_address address{};
  address.family = AF_INET;
  address.port = htons(port);
  const std::uint8_t octets[4] = {127, 0, 1, last};
  std::memcpy(address.octets, octets, sizeof octets);
  return address;
}

template <class T>
T sent(std::uint32_t type) {
  return daemon_at_work().last(type).as<T>();
}

rdma_ucm_conn_param some_parameters() {
  rdma_ucm_conn_param parameters{};
  parameters.qp_num = 17;
  parameters.srq = 1;
  parameters.responder_resources = 4;
  parameters.initiator_depth = 5;
  parameters.flow_control = 1;
  parameters.retry_count = 6;
  parameters.rnr_retry_count = 7;
  parameters.valid = 1;
  parameters.private_data_len = 255;
  parameters.private_data[0] = 0xaa;
  parameters.private_data[254] = 0xbb;
  return parameters;
}

void check_some_parameters(const rnic_cm_parameters& parameters) {
  CHECK(parameters.qp_number == 17);
  CHECK(parameters.srq == 1);
  CHECK(parameters.responder_resources == 4);
  CHECK(parameters.initiator_depth == 5);
  CHECK(parameters.flow_control == 1);
  CHECK(parameters.retry_count == 6);
  CHECK(parameters.rnr_retry_count == 7);
  CHECK(parameters.valid == 1);
  CHECK(parameters.private_data_length == 255);
  CHECK(parameters.private_data[0] == 0xaa);
  CHECK(parameters.private_data[254] == 0xbb);
}

// What the daemon is asked for a BIND_IP to this address.
template <class Address>
rnic_cm_bind bind_ip(const OneId& one, const Address& address) {
  rdma_ucm_bind_ip body{};
  body.id = one.id;
  put(body.addr, address);
  REQUIRE(command(one.fd, RDMA_USER_CM_CMD_BIND_IP, body) == 0);
  return sent<rnic_cm_bind>(RNIC_CM_BIND);
}

}  // namespace

TEST_CASE("CREATE_ID gives the daemon the channel, port space and user pointer", "[preload][ucma]") {
  OneId one;
  REQUIRE(one.id != 0);
  const auto request = sent<rnic_cm_create_id>(RNIC_CM_CREATE_ID);
  CHECK(request.uid == 0x1234);
  CHECK(request.port_space == RDMA_PS_TCP);
}

TEST_CASE("CREATE_ID refuses the port space of the AF_IB probe without asking the daemon", "[preload][ucma]") {
  OpenChannel channel;
  const std::size_t before = daemon_at_work().count(RNIC_CM_CREATE_ID);
  rdma_ucm_create_id body{};
  body.ps = RDMA_PS_IB;
  rdma_ucm_create_id_resp response{};
  CHECK(command(channel.fd, RDMA_USER_CM_CMD_CREATE_ID, body, response) == EINVAL);
  CHECK(daemon_at_work().count(RNIC_CM_CREATE_ID) == before);
}

TEST_CASE("an error of the daemon is the errno of the write", "[preload][ucma]") {
  OneId one;
  daemon_at_work().relay().refuse(RNIC_CM_LISTEN, EADDRINUSE);
  CHECK(command(one.fd, RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{one.id, 3}) == EADDRINUSE);
  CHECK(command(one.fd, RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{one.id, 3}) == 0);
  const auto request = sent<rnic_cm_listen>(RNIC_CM_LISTEN);
  CHECK(request.id == one.id);
  CHECK(request.backlog == 3);
}

TEST_CASE("BIND_IP translates an IPv4 and an IPv6 address", "[preload][ucma]") {
  OneId one;
  auto request = bind_ip(one, ipv4("127.0.1.1", 7174));
  CHECK(request.id == one.id);
  CHECK(request.address.family == AF_INET);
  CHECK(ntohs(request.address.port) == 7174);
  CHECK(request.address.octets[3] == 1);

  request = bind_ip(one, ipv6("fd00::7", 7175));
  CHECK(request.address.family == AF_INET6);
  CHECK(request.address.scope == 3);
  CHECK(request.address.octets[0] == 0xfd);
  CHECK(request.address.octets[15] == 0x07);
}

TEST_CASE("an IPv4-mapped address is IPv4 to the daemon", "[preload][ucma]") {
  OneId one;
  const auto request = bind_ip(one, ipv6("::ffff:127.0.1.2", 5));
  CHECK(request.address.family == AF_INET);
  CHECK(request.address.octets[0] == 127);
  CHECK(request.address.octets[3] == 2);
}

TEST_CASE("BIND refuses AF_IB, and a size that is not its family's", "[preload][ucma]") {
  OneId one;
  rdma_ucm_bind body{};
  body.id = one.id;
  body.addr.ss_family = 27;
  body.addr_size = 48;
  CHECK(command(one.fd, RDMA_USER_CM_CMD_BIND, body) == EINVAL);
  put(body.addr, ipv4("127.0.1.1", 1));
  body.addr_size = sizeof(sockaddr_in) + 1;
  CHECK(command(one.fd, RDMA_USER_CM_CMD_BIND, body) == EINVAL);
  body.addr_size = sizeof(sockaddr_in);
  CHECK(command(one.fd, RDMA_USER_CM_CMD_BIND, body) == 0);
}

TEST_CASE("RESOLVE_IP and RESOLVE_ADDR give source, destination and timeout", "[preload][ucma]") {
  OneId one;
  rdma_ucm_resolve_ip old_form{};
  old_form.id = one.id;
  old_form.timeout_ms = 2000;
  put(old_form.dst_addr, ipv4("127.0.1.2", 9));
  REQUIRE(command(one.fd, RDMA_USER_CM_CMD_RESOLVE_IP, old_form) == 0);
  auto request = sent<rnic_cm_resolve_address>(RNIC_CM_RESOLVE_ADDRESS);
  CHECK(request.timeout_ms == 2000);
  CHECK(request.source.family == 0);
  CHECK(request.destination.octets[3] == 2);

  rdma_ucm_resolve_addr new_form{};
  new_form.id = one.id;
  new_form.src_size = sizeof(sockaddr_in6);
  new_form.dst_size = sizeof(sockaddr_in6);
  put(new_form.src_addr, ipv6("fd00::1", 0));
  put(new_form.dst_addr, ipv6("fd00::2", 9));
  REQUIRE(command(one.fd, RDMA_USER_CM_CMD_RESOLVE_ADDR, new_form) == 0);
  request = sent<rnic_cm_resolve_address>(RNIC_CM_RESOLVE_ADDRESS);
  CHECK(request.source.family == AF_INET6);
  CHECK(request.source.octets[15] == 1);
  CHECK(request.destination.octets[15] == 2);
}

TEST_CASE("RESOLVE_IP without a destination is refused", "[preload][ucma]") {
  OneId one;
  rdma_ucm_resolve_ip body{};
  body.id = one.id;
  CHECK(command(one.fd, RDMA_USER_CM_CMD_RESOLVE_IP, body) == EINVAL);
}

TEST_CASE("RESOLVE_ROUTE, DISCONNECT and NOTIFY name the id", "[preload][ucma]") {
  OneId one;
  REQUIRE(command(one.fd, RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{one.id, 1500}) == 0);
  CHECK(sent<rnic_cm_resolve_route>(RNIC_CM_RESOLVE_ROUTE).timeout_ms == 1500);
  REQUIRE(command(one.fd, RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{one.id}) == 0);
  CHECK(sent<rnic_handle>(RNIC_CM_DISCONNECT).handle == one.id);
  REQUIRE(command(one.fd, RDMA_USER_CM_CMD_NOTIFY, rdma_ucm_notify{one.id, 9}) == 0);
  CHECK(sent<rnic_cm_notify>(RNIC_CM_NOTIFY).event == 9);
}

TEST_CASE("QUERY_ROUTE answers addresses, GIDs and the device, and no paths", "[preload][ucma]") {
  OneId one;
  TestDaemon& daemon = daemon_at_work();
  daemon.query = {};
  daemon.query.node_guid = 0x77;
  daemon.query.port_number = 1;
  daemon.query.device_index = 2;
  daemon.query.source = daemon_ipv4(1, 4000);
  daemon.query.destination = daemon_ipv4(2, 7174);
  rdma_ucm_query body{};
  body.id = one.id;
  rdma_ucm_query_route_resp response{};
  REQUIRE(command(one.fd, RDMA_USER_CM_CMD_QUERY_ROUTE, body, response) == 0);
  CHECK(response.node_guid == 0x77);
  CHECK(response.port_num == 1);
  CHECK(response.ibdev_index == 2);
  CHECK(response.num_paths == 0);
  sockaddr_in source{};
  std::memcpy(&source, &response.src_addr, sizeof source);
  CHECK(source.sin_family == AF_INET);
  CHECK(ntohs(source.sin_port) == 4000);
  CHECK(ntohl(source.sin_addr.s_addr) == 0x7f000101);
  const std::uint8_t* const gid = response.ib_route[0].dgid;
  CHECK(gid[9] == 0);
  CHECK(gid[10] == 0xff);
  CHECK(gid[11] == 0xff);
  CHECK(gid[15] == 2);
}

TEST_CASE("QUERY_ROUTE of an id without a device has no node GUID", "[preload][ucma]") {
  OneId one;
  daemon_at_work().query = {};
  rdma_ucm_query body{};
  body.id = one.id;
  rdma_ucm_query_route_resp response{};
  REQUIRE(command(one.fd, RDMA_USER_CM_CMD_QUERY_ROUTE, body, response) == 0);
  CHECK(response.node_guid == 0);
  CHECK(response.src_addr.sin6_family == AF_UNSPEC);
}

TEST_CASE("QUERY answers addresses, no paths, and GIDs", "[preload][ucma]") {
  OneId one;
  TestDaemon& daemon = daemon_at_work();
  daemon.query = {};
  daemon.query.node_guid = 0x77;
  daemon.query.port_number = 1;
  daemon.query.source = daemon_ipv4(1, 4000);
  daemon.query.destination.family = AF_INET6;
  daemon.query.destination.octets[15] = 9;
  rdma_ucm_query body{};
  body.id = one.id;
  body.option = RDMA_USER_CM_QUERY_ADDR;
  rdma_ucm_query_addr_resp addresses{};
  REQUIRE(command(one.fd, RDMA_USER_CM_CMD_QUERY, body, addresses) == 0);
  CHECK(addresses.node_guid == 0x77);
  CHECK(addresses.src_size == sizeof(sockaddr_in));
  CHECK(addresses.dst_size == sizeof(sockaddr_in6));
  CHECK(addresses.src_addr.ss_family == AF_INET);

  body.option = RDMA_USER_CM_QUERY_GID;
  rdma_ucm_query_addr_resp gids{};
  REQUIRE(command(one.fd, RDMA_USER_CM_CMD_QUERY, body, gids) == 0);
  CHECK(gids.src_addr.ss_family == 27);
  CHECK(gids.src_size == 48);
  std::uint8_t octets[48];
  std::memcpy(octets, &gids.src_addr, sizeof octets);
  CHECK(octets[8 + 10] == 0xff);
  CHECK(octets[8 + 15] == 1);

  body.option = RDMA_USER_CM_QUERY_PATH;
  std::uint32_t paths[2] = {7, 7};
  REQUIRE(command(one.fd, RDMA_USER_CM_CMD_QUERY, body, paths) == 0);
  CHECK(paths[0] == 0);

  body.option = RDMA_USER_CM_QUERY_GID + 1;
  CHECK(command(one.fd, RDMA_USER_CM_CMD_QUERY, body, paths) == ENOSYS);
}

TEST_CASE("CONNECT carries the parameters and private data to the last octet", "[preload][ucma]") {
  OneId one;
  rdma_ucm_connect body{};
  body.id = one.id;
  body.conn_param = some_parameters();
  body.ece = {0x123456, 0xFEDCBA98};
  REQUIRE(command(one.fd, RDMA_USER_CM_CMD_CONNECT, body) == 0);
  const auto request = sent<rnic_cm_connect>(RNIC_CM_CONNECT);
  CHECK(request.id == one.id);
  CHECK(request.parameters.ece_vendor == 0x123456);
  CHECK(request.parameters.ece_options == 0xFEDCBA98);
  check_some_parameters(request.parameters);
  body.conn_param.valid = 0;
  CHECK(command(one.fd, RDMA_USER_CM_CMD_CONNECT, body) == EINVAL);
}

TEST_CASE("ACCEPT carries the parameters and the user pointer", "[preload][ucma]") {
  OneId one;
  rdma_ucm_accept body{};
  body.id = one.id;
  body.uid = 0x5678;
  body.conn_param = some_parameters();
  body.ece = {0x654321, 7};
  REQUIRE(command(one.fd, RDMA_USER_CM_CMD_ACCEPT, body) == 0);
  const auto request = sent<rnic_cm_connect>(RNIC_CM_ACCEPT);
  CHECK(request.parameters.ece_vendor == 0x654321);
  CHECK(request.parameters.ece_options == 7);
  CHECK(request.id == one.id);
  CHECK(request.uid == 0x5678);
  check_some_parameters(request.parameters);
}

TEST_CASE("REJECT carries the private data", "[preload][ucma]") {
  OneId one;
  rdma_ucm_reject body{};
  body.id = one.id;
  body.private_data_len = 2;
  body.private_data[1] = 0xcc;
  REQUIRE(command(one.fd, RDMA_USER_CM_CMD_REJECT, body) == 0);
  const auto request = sent<rnic_cm_reject>(RNIC_CM_REJECT);
  CHECK(request.private_data_length == 2);
  CHECK(request.private_data[1] == 0xcc);
  CHECK(request.for_ece == 0);
}

TEST_CASE("REJECT has one of InfiniBand's two reasons of applications, or none", "[preload][ucma]") {
  constexpr std::uint8_t kConsumer = 28, kVendorOption = 35;
  OneId one;
  rdma_ucm_reject body{};
  body.id = one.id;
  body.reason = kVendorOption;
  REQUIRE(command(one.fd, RDMA_USER_CM_CMD_REJECT, body) == 0);
  CHECK(sent<rnic_cm_reject>(RNIC_CM_REJECT).for_ece == 1);
  body.reason = kConsumer;
  REQUIRE(command(one.fd, RDMA_USER_CM_CMD_REJECT, body) == 0);
  CHECK(sent<rnic_cm_reject>(RNIC_CM_REJECT).for_ece == 0);
  body.reason = kConsumer + 1;
  CHECK(command(one.fd, RDMA_USER_CM_CMD_REJECT, body) == EINVAL);
}

TEST_CASE("INIT_QP_ATTR answers state and access as ibv_modify_qp takes them", "[preload][ucma]") {
  OneId one;
  rnic_cm_init_qp_attributes_reply& said = daemon_at_work().qp_attributes;
  said = {};
  said.mask = RNIC_CM_ATTRIBUTES_STATE | RNIC_CM_ATTRIBUTES_ACCESS;
  said.state = 1;
  said.access = RNIC_ACCESS_REMOTE_READ | RNIC_ACCESS_REMOTE_WRITE;
  rdma_ucm_init_qp_attr body{};
  body.id = one.id;
  body.qp_state = 1;
  ib_uverbs_qp_attr response{};
  REQUIRE(sizeof response == 144);
  REQUIRE(command(one.fd, RDMA_USER_CM_CMD_INIT_QP_ATTR, body, response) == 0);
  CHECK(response.qp_attr_mask == ((1u << 0) | (1u << 3)));
  CHECK(response.qp_state == 1);
  CHECK(response.qp_access_flags == ((1u << 1) | (1u << 2)));

  said = {};
  said.mask = RNIC_CM_ATTRIBUTES_STATE;
  said.state = 3;
  REQUIRE(command(one.fd, RDMA_USER_CM_CMD_INIT_QP_ATTR, body, response) == 0);
  CHECK(response.qp_attr_mask == 1u);
  CHECK(response.qp_state == 3);

  // Of a RoCE face: the masks that InfiniBand requires on the way to RTR and RTS.
  said.mask = RNIC_CM_ATTRIBUTES_STATE | RNIC_CM_ATTRIBUTES_RTR;
  said.peer_number = 0x123;
  said.receive_psn = 0x456;
  said.path_mtu = 3;
  said.gid_index = 1;
  said.peer_gid[15] = 7;
  REQUIRE(command(one.fd, RDMA_USER_CM_CMD_INIT_QP_ATTR, body, response) == 0);
  CHECK(response.qp_attr_mask == (1u << 0 | 1u << 7 | 1u << 8 | 1u << 12 | 1u << 15 | 1u << 17 | 1u << 20));
  CHECK(response.dest_qp_num == 0x123);
  CHECK(response.rq_psn == 0x456);
  CHECK(response.path_mtu == 3);
  CHECK(response.ah_attr.is_global == 1);
  CHECK(response.ah_attr.grh.sgid_index == 1);
  CHECK(response.ah_attr.grh.dgid[15] == 7);
  said.mask = RNIC_CM_ATTRIBUTES_STATE | RNIC_CM_ATTRIBUTES_RTS;
  REQUIRE(command(one.fd, RDMA_USER_CM_CMD_INIT_QP_ATTR, body, response) == 0);
  CHECK(response.qp_attr_mask == (1u << 0 | 1u << 9 | 1u << 10 | 1u << 11 | 1u << 13 | 1u << 16));
}

TEST_CASE("INIT_QP_ATTR of a device is asked for once each state, whatever the connection", "[preload][ucma]") {
  OneId one, other;
  TestDaemon& daemon = daemon_at_work();
  daemon.query = {};
  daemon.query.node_guid = 1;
  daemon.query.device_index = 5;
  rnic_cm_init_qp_attributes_reply& said = daemon.qp_attributes;
  said = {};
  said.mask = RNIC_CM_ATTRIBUTES_STATE | RNIC_CM_ATTRIBUTES_OF_DEVICE;
  said.state = 1;
  // Answers what was said, and counts the questions.
  const auto questions = [&](int fd, std::uint32_t id, std::uint32_t state) {
    const std::size_t before = daemon.count(RNIC_CM_INIT_QP_ATTRIBUTES);
    rdma_ucm_init_qp_attr body{};
    body.id = id;
    body.qp_state = state;
    ib_uverbs_qp_attr response{};
    REQUIRE(command(fd, RDMA_USER_CM_CMD_INIT_QP_ATTR, body, response) == 0);
    CHECK(response.qp_attr_mask == 1);
    CHECK(response.qp_state == 1);
    return daemon.count(RNIC_CM_INIT_QP_ATTRIBUTES) - before;
  };
  const auto query = [](int fd, std::uint32_t id) {
    rdma_ucm_query body{};
    body.id = id;
    rdma_ucm_query_route_resp response{};
    REQUIRE(command(fd, RDMA_USER_CM_CMD_QUERY_ROUTE, body, response) == 0);
  };
  CHECK(questions(one.fd, one.id, 1) == 1);  // of which device is not known yet
  CHECK(questions(one.fd, one.id, 1) == 1);
  query(one.fd, one.id);
  CHECK(questions(one.fd, one.id, 1) == 1);
  CHECK(questions(one.fd, one.id, 1) == 0);
  CHECK(questions(other.fd, other.id, 1) == 1);
  query(other.fd, other.id);
  CHECK(questions(other.fd, other.id, 1) == 0);
  CHECK(questions(other.fd, other.id, 2) == 1);
  CHECK(questions(one.fd, one.id, 2) == 0);

  // Another address may be another device's.
  rdma_ucm_resolve_ip resolve{};
  resolve.id = one.id;
  put(resolve.dst_addr, ipv4("192.0.2.9", 7));
  REQUIRE(command(one.fd, RDMA_USER_CM_CMD_RESOLVE_IP, resolve) == 0);
  CHECK(questions(one.fd, one.id, 1) == 1);
  daemon.query.device_index = 6;
  query(one.fd, one.id);
  CHECK(questions(one.fd, one.id, 1) == 1);
  CHECK(questions(one.fd, one.id, 1) == 0);
  rdma_ucm_bind_ip bind{};
  bind.id = one.id;
  put(bind.addr, ipv4("192.0.2.8", 7));
  REQUIRE(command(one.fd, RDMA_USER_CM_CMD_BIND_IP, bind) == 0);
  CHECK(questions(one.fd, one.id, 1) == 1);

  // What is not said to be the device's is of one connection, and asked for each time.
  said.mask = RNIC_CM_ATTRIBUTES_STATE;
  daemon.query.device_index = 7;
  query(one.fd, one.id);
  CHECK(questions(one.fd, one.id, 1) == 1);
  CHECK(questions(one.fd, one.id, 1) == 1);
}

// A device may have both: what is said of its streams is not said of an id for datagrams.
TEST_CASE("INIT_QP_ATTR of an id for datagrams is asked for each time", "[preload][ucma][datagrams]") {
  OneId stream;
  TestDaemon& daemon = daemon_at_work();
  daemon.query = {};
  daemon.query.node_guid = 1;
  daemon.query.device_index = 8;
  daemon.qp_attributes = {};
  daemon.qp_attributes.mask = RNIC_CM_ATTRIBUTES_STATE | RNIC_CM_ATTRIBUTES_OF_DEVICE;
  daemon.relay().harm(RNIC_CM_CREATE_ID, [](const Asked&, Passing& reply) {
    reply.header.status = 0;
    reply.put(rnic_handle_reply{4711, 0});
  });
  rdma_ucm_create_id create{};
  create.ps = RDMA_PS_UDP;
  rdma_ucm_create_id_resp created{};
  REQUIRE(command(stream.fd, RDMA_USER_CM_CMD_CREATE_ID, create, created) == 0);
  for (const std::uint32_t id : {stream.id, created.id}) {
    rdma_ucm_query query{};
    query.id = id;
    rdma_ucm_query_route_resp route{};
    REQUIRE(command(stream.fd, RDMA_USER_CM_CMD_QUERY_ROUTE, query, route) == 0);
    const std::size_t before = daemon.count(RNIC_CM_INIT_QP_ATTRIBUTES);
    for (int i = 0; i < 2; ++i) {
      rdma_ucm_init_qp_attr body{};
      body.id = id;
      body.qp_state = 1;
      ib_uverbs_qp_attr response{};
      REQUIRE(command(stream.fd, RDMA_USER_CM_CMD_INIT_QP_ATTR, body, response) == 0);
    }
    CHECK(daemon.count(RNIC_CM_INIT_QP_ATTRIBUTES) - before == (id == stream.id ? 1 : 2));
  }
}

TEST_CASE("SET_OPTION carries the value, up to 64 octets", "[preload][ucma]") {
  OneId one;
  std::uint8_t value[65] = {};
  value[0] = 1;
  rdma_ucm_set_option body{};
  body.id = one.id;
  body.level = RDMA_OPTION_ID;
  body.optname = RDMA_OPTION_ID_REUSEADDR;
  body.optval = reinterpret_cast<std::uint64_t>(value);
  body.optlen = 64;
  REQUIRE(command(one.fd, RDMA_USER_CM_CMD_SET_OPTION, body) == 0);
  const auto request = sent<rnic_cm_set_option>(RNIC_CM_SET_OPTION);
  CHECK(request.option == RDMA_OPTION_ID_REUSEADDR);
  CHECK(request.length == 64);
  CHECK(request.value[0] == 1);
  body.optlen = 65;
  CHECK(command(one.fd, RDMA_USER_CM_CMD_SET_OPTION, body) == EINVAL);
}

TEST_CASE("GET_OPTION and what came later are not served", "[preload][ucma]") {
  OneId one;
  for (const std::uint32_t number : {13u, 23u, 24u}) {
    CHECK(command(one.fd, number, rdma_ucm_join_mcast{}) == ENOSYS);
  }
  CHECK(command(one.fd, 25, rdma_ucm_join_mcast{}) == EINVAL);
}

TEST_CASE("CREATE_ID leaves the port spaces of datagrams to the daemon", "[preload][ucma][datagrams]") {
  OpenChannel channel;
  for (const rdma_ucm_port_space space : {RDMA_PS_UDP, RDMA_PS_IPOIB}) {
    rdma_ucm_create_id body{};
    body.ps = static_cast<__u16>(space);
    rdma_ucm_create_id_resp response{};
    // Which has no RoCE face here.
    CHECK(command(channel.fd, RDMA_USER_CM_CMD_CREATE_ID, body, response) == EINVAL);
    CHECK(sent<rnic_cm_create_id>(RNIC_CM_CREATE_ID).port_space == static_cast<std::uint32_t>(space));
  }
}

TEST_CASE("ACCEPT carries the Q_Key", "[preload][ucma][datagrams]") {
  OneId one;
  rdma_ucm_accept body{};
  body.id = one.id;
  body.conn_param = some_parameters();
  body.conn_param.qkey = 0x11223344;
  REQUIRE(command(one.fd, RDMA_USER_CM_CMD_ACCEPT, body) == 0);
  CHECK(sent<rnic_cm_connect>(RNIC_CM_ACCEPT).qkey == 0x11223344);
}

TEST_CASE("INIT_QP_ATTR answers the Q_Key of a queue pair for datagrams", "[preload][ucma][datagrams]") {
  OneId one;
  rnic_cm_init_qp_attributes_reply& said = daemon_at_work().qp_attributes;
  said = {};
  said.mask = RNIC_CM_ATTRIBUTES_STATE | RNIC_CM_ATTRIBUTES_INIT | RNIC_CM_ATTRIBUTES_QKEY;
  said.state = 1;
  said.qkey = 0x01234567;
  rdma_ucm_init_qp_attr body{};
  body.id = one.id;
  ib_uverbs_qp_attr response{};
  REQUIRE(command(one.fd, RDMA_USER_CM_CMD_INIT_QP_ATTR, body, response) == 0);
  CHECK(response.qp_attr_mask == ((1u << 0) | (1u << 4) | (1u << 5) | (1u << 6)));
  CHECK(response.qkey == 0x01234567);
  CHECK(response.port_num == 1);
}

TEST_CASE("JOIN_IP_MCAST and JOIN_MCAST give the group, and bring the membership", "[preload][ucma][datagrams]") {
  OneId one;
  daemon_at_work().relay().harm(
      RNIC_CM_JOIN,
      [](const Asked&, Passing& reply) {
        reply.header.status = 0;
        reply.put(rnic_handle_reply{0x4711, 0});
      },
      0);
  rdma_ucm_create_id_resp response{};
  {
    rdma_ucm_join_ip_mcast body{};
    body.id = one.id;
    body.uid = 0x5678;
    put(body.addr, ipv4("127.0.1.9", 0));  // which group it is, is the daemon's affair
    REQUIRE(command(one.fd, RDMA_USER_CM_CMD_JOIN_IP_MCAST, body, response) == 0);
    CHECK(response.id == 0x4711);
    const auto request = sent<rnic_cm_join>(RNIC_CM_JOIN);
    CHECK(request.id == one.id);
    CHECK(request.uid == 0x5678);
    CHECK(request.flags == 0);
    const rnic_address expected = daemon_ipv4(9, 0);
    CHECK(std::memcmp(&request.group, &expected, sizeof expected) == 0);
  }
  rdma_ucm_join_mcast body{};
  body.id = one.id;
  body.uid = 0x9abc;
  body.addr_size = sizeof(sockaddr_in6);
  put(body.addr, ipv6("ff05::7", 0));
  const bool sends_only = GENERATE(false, true);
  body.join_flags = sends_only ? RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER : RDMA_MC_JOIN_FLAG_FULLMEMBER;
  response = {};
  REQUIRE(command(one.fd, RDMA_USER_CM_CMD_JOIN_MCAST, body, response) == 0);
  CHECK(response.id == 0x4711);
  const auto request = sent<rnic_cm_join>(RNIC_CM_JOIN);
  CHECK(request.uid == 0x9abc);
  CHECK(request.flags == (sends_only ? RNIC_CM_SEND_ONLY : 0));
  CHECK(request.group.family == AF_INET6);

  const std::size_t before = daemon_at_work().count(RNIC_CM_JOIN);
  auto wrong = body;
  wrong.join_flags = RDMA_MC_JOIN_FLAG_RESERVED;
  CHECK(command(one.fd, RDMA_USER_CM_CMD_JOIN_MCAST, wrong, response) == EINVAL);
  wrong = body;
  wrong.addr_size = sizeof(sockaddr_in);
  CHECK(command(one.fd, RDMA_USER_CM_CMD_JOIN_MCAST, wrong, response) == EINVAL);
  wrong = body;
  wrong.addr.ss_family = 27;  // AF_IB
  CHECK(command(one.fd, RDMA_USER_CM_CMD_JOIN_MCAST, wrong, response) == EINVAL);
  CHECK(command(one.fd, RDMA_USER_CM_CMD_JOIN_MCAST, body, sizeof response - 1) == ENOSPC);
  CHECK(daemon_at_work().count(RNIC_CM_JOIN) == before);
}

TEST_CASE("LEAVE_MCAST names the membership, and says how many of its events were told", "[preload][ucma][datagrams]") {
  OneId one;
  daemon_at_work().relay().harm(
      RNIC_CM_LEAVE,
      [](const Asked&, Passing& reply) {
        reply.header.status = 0;
        reply.put(rnic_cm_leave_reply{3, 0, 0, 0});
      },
      0);
  rdma_ucm_destroy_id body{};
  body.id = 0x4711;
  rdma_ucm_destroy_id_resp response{};
  REQUIRE(command(one.fd, RDMA_USER_CM_CMD_LEAVE_MCAST, body, response) == 0);
  CHECK(sent<rnic_handle>(RNIC_CM_LEAVE).handle == 0x4711);
  CHECK(response.events_reported == 3);
}

TEST_CASE("an event of datagrams has number, Q_Key, way and private data", "[preload][ucma][datagrams]") {
  OneId one;
  rnic_cm_get_event_reply event = event_of(one.id, 0x1234, RNIC_CM_ESTABLISHED);
  event.datagrams = 1;
  event.parameters.qp_number = 0x777;
  event.parameters.private_data_length = 136;
  event.parameters.private_data[135] = 0xdd;
  event.way.qkey = 0x11223344;
  event.way.gid_index = 2;
  event.way.gid[15] = 9;
  event.way.traffic_class = 8;
  const bool known = GENERATE(true, false);
  event.way.hop_limit = known ? 64 : 0;
  daemon_at_work().post(channel_of_last_id(), event);
  rdma_ucm_event_resp response{};
  REQUIRE(get_event(one.fd, response) == 0);
  const rdma_ucm_ud_param& told = response.param.ud;
  CHECK(told.qp_num == 0x777);
  CHECK(told.qkey == 0x11223344);
  CHECK(told.private_data_len == 136);
  CHECK(told.private_data[135] == 0xdd);
  CHECK(told.ah_attr.is_global == (known ? 1 : 0));
  CHECK(told.ah_attr.port_num == (known ? 1 : 0));
  CHECK(told.ah_attr.grh.dgid[15] == (known ? 9 : 0));
  CHECK(told.ah_attr.grh.sgid_index == (known ? 2 : 0));
  CHECK(told.ah_attr.grh.hop_limit == (known ? 64 : 0));
  CHECK(told.ah_attr.grh.traffic_class == (known ? 8 : 0));
}

TEST_CASE("a command shorter than its header or its struct is refused", "[preload][ucma]") {
  OneId one;
  CHECK(write(one.fd, "1234567", 7) == -1);
  CHECK(errno == EINVAL);
  const rdma_ucm_cmd_hdr promise{RDMA_USER_CM_CMD_LISTEN, 8, 0};
  CHECK(write(one.fd, &promise, sizeof promise) == -1);
  CHECK(errno == EINVAL);
  CHECK(command(one.fd, RDMA_USER_CM_CMD_LISTEN, std::uint32_t{1}) == EINVAL);
}

TEST_CASE("an event carries its parameters and private data", "[preload][ucma]") {
  OneId one;
  rnic_cm_get_event_reply event = event_of(one.id, 0x1234, RNIC_CM_REJECTED);
  event.status = -ECONNREFUSED;
  event.parameters.initiator_depth = 8;
  event.parameters.private_data_length = 300;
  event.parameters.private_data[254] = 0xdd;
  daemon_at_work().post(channel_of_last_id(), event);
  rdma_ucm_event_resp response{};
  REQUIRE(get_event(one.fd, response) == 0);
  CHECK(response.uid == 0x1234);
  CHECK(response.id == one.id);
  CHECK(response.event == RNIC_CM_REJECTED);
  CHECK(static_cast<std::int32_t>(response.status) == -ECONNREFUSED);
  CHECK(response.param.conn.initiator_depth == 8);
  CHECK(response.param.conn.private_data_len == 255);
  CHECK(response.param.conn.private_data[254] == 0xdd);
}

TEST_CASE("an event's response may lack what came later, and not more", "[preload][ucma]") {
  OneId one;
  rdma_ucm_event_resp response{};
  rdma_ucm_get_event body{};
  body.response = reinterpret_cast<std::uint64_t>(&response);
  daemon_at_work().post(channel_of_last_id(), event_of(one.id, 1, RNIC_CM_ESTABLISHED));
  const std::size_t least = sizeof response - 12;
  CHECK(command(one.fd, RDMA_USER_CM_CMD_GET_EVENT, body, least - 1) == ENOSPC);
  CHECK(command(one.fd, RDMA_USER_CM_CMD_GET_EVENT, body, least) == 0);
}
