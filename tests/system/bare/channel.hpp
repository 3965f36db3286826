// Connection management without librdmacm: a channel of rdma_cm, its ids and its events.
#pragma once

#include <optional>

#include "system/bare/application.hpp"

namespace rnic::bare {

class Channel {
 public:
  explicit Channel(const std::string& socket);
  explicit Channel(Connection connection);  // of kind CM, introduced

  static constexpr std::uint32_t kTcp = 0x0106, kUdp = 0x0111;  // RDMA_PS_TCP, RDMA_PS_UDP
  std::uint32_t create_id(std::uint64_t uid = 0, std::uint32_t port_space = kTcp);
  Answer try_id(std::uint64_t uid = 0, std::uint32_t port_space = kTcp);
  Answer bind(std::uint32_t id, const rnic_address& address);
  Answer listen(std::uint32_t id, std::uint32_t backlog);
  Answer resolve_address(std::uint32_t id, const rnic_address& destination);
  Answer resolve_route(std::uint32_t id);
  // With the depths of rdma_conn_param.
  struct Depths {
    std::uint8_t responder_resources = 4, initiator_depth = 4;
  };
  Answer connect(std::uint32_t id, std::uint32_t qp_number, Depths depths = {4, 4});
  Answer accept(std::uint32_t id, std::uint32_t qp_number, Depths depths = {4, 4});
  Answer confirm(std::uint32_t id);  // of a RoCE face: what CONNECT_RESPONSE is answered by
  Answer join(std::uint32_t id, const rnic_address& group);
  Answer disconnect(std::uint32_t id) { return control.by_handle(RNIC_CM_DISCONNECT, id); }
  Answer destroy_id(std::uint32_t id) { return control.by_handle(RNIC_CM_DESTROY_ID, id); }
  rnic_cm_query_reply query(std::uint32_t id);

  // The next event; nothing within the time: none.
  std::optional<rnic_cm_get_event_reply> event(int limit_ms);
  // The next event, which has to be this one.
  rnic_cm_get_event_reply expect(rnic_cm_event wanted, int limit_ms = 20'000);

  Connection control;
  std::uint32_t number = 0;
  std::array<std::uint8_t, 16> token{};
  Descriptor events;    // readable: there are some
  Descriptor lifeline;  // held while the channel is to live
};

// The first address of a device, with this port (host order).
rnic_address address_of(const rnic_device_info& device, std::uint16_t port = 0);

// An id that listens at a port of its own (`port` 0) or this one; query() says where.
std::uint32_t listening(Channel& channel, const rnic_address& at, std::uint32_t backlog = 128,
                        std::uint32_t port_space = Channel::kTcp);
// As far as the route: what is left is CONNECT.
std::uint32_t resolved(Channel& channel, const rnic_address& to, std::uint32_t port_space = Channel::kTcp);

// Two queue pairs of one device, the one calling the other: both are in RTS when this comes back. Calls come to
// `listener` of the same channel.
struct Joined {
  std::uint32_t caller_id = 0;
  std::uint32_t called_id = 0;
};
Joined join(Channel& channel, std::uint32_t listener, const QueuePair& caller, const QueuePair& called);

}  // namespace rnic::bare
