// The RoCE face as an application sees it, with the real provider, daemon and data plane.
#include "unit/provider/wired.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

constexpr const char* kRoceDevices =
    "sched_fifo = false\n"
    "[[device]]\nport = \"pair:r\"\naddress = \"127.0.9.1/24\"\nmtu = 1500\nface = \"roce\"\n"
    "[[device]]\nport = \"pair:r\"\naddress = \"127.0.9.2/24\"\nmtu = 9000\n";

}  // namespace

TEST_CASE("a device of face roce has InfiniBand's attributes, and one beside it iWARP's", "[wired][roce]") {
  Wired w(kRoceDevices);
  ibv_context* const roce = &w.a.context->verbs.context;
  ibv_context* const other_face = &w.b.context->verbs.context;
  ibv_port_attr port{}, other{};
  REQUIRE(provider::query_port(roce, 1, &port) == 0);
  REQUIRE(provider::query_port(other_face, 1, &other) == 0);
  CHECK(port.link_layer == IBV_LINK_LAYER_ETHERNET);
  CHECK(port.pkey_tbl_len == 1);
  CHECK(other.pkey_tbl_len == 0);
  CHECK((port.port_cap_flags & IBV_PORT_IP_BASED_GIDS) != 0);
  CHECK((other.port_cap_flags & IBV_PORT_IP_BASED_GIDS) == 0);
  CHECK(port.gid_tbl_len == other.gid_tbl_len + 1);
  CHECK(port.active_mtu == IBV_MTU_1024);
  CHECK(other.active_mtu == IBV_MTU_4096);

  ibv_device_attr_ex device{}, iwarp{};
  REQUIRE(provider::query_device_ex(roce, nullptr, &device, sizeof device) == 0);
  REQUIRE(provider::query_device_ex(other_face, nullptr, &iwarp, sizeof iwarp) == 0);
  CHECK(device.orig_attr.max_pkeys == 1);
  CHECK(iwarp.orig_attr.max_pkeys == 0);
  CHECK(device.orig_attr.atomic_cap == IBV_ATOMIC_HCA);

  CHECK(state_of(w.a.make_qp(w.a.make_cq(4), w.a.make_cq(4), 4, nullptr)) == IBV_QPS_RESET);
  CHECK(state_of(w.b.make_qp(w.b.make_cq(4), w.b.make_cq(4), 4, nullptr)) == IBV_QPS_INIT);
}
