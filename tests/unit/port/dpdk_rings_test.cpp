// How long the rings of af_xdp are, by the buffers that the queues of an interface share.
#include "kit/catch.hpp"
#include "port/dpdk_port.hpp"

namespace rnic::port {

TEST_CASE("af_xdp's rings are as long as buffers suffice for, beside those that its driver gives the kernel",
          "[port][dpdk]") {
  CHECK(xdp_descriptors(1, 16'384) == 2048);
  CHECK(xdp_descriptors(1, 2048 + 4096) == 2048);
  CHECK(xdp_descriptors(1, 2048 + 4095) == 1024);
  CHECK(xdp_descriptors(2, 2 * (2048 + 2048)) == 1024);
  CHECK(xdp_descriptors(2, 2 * (2048 + 2048) - 1) == 512);
  CHECK(xdp_descriptors(3, 16'384) == 1024);
  CHECK(xdp_descriptors(16, 4'194'304) == 2048);
}

TEST_CASE("af_xdp's queues have rings with as many buffers as they are said to want, and not with one less",
          "[port][dpdk]") {
  for (const unsigned queues : {1u, 2u, 3u, 16u}) {
    INFO(queues << " queues");
    CHECK(xdp_descriptors(queues, xdp_buffers_least(queues)) == kXdpDescriptorsMin);
    CHECK(xdp_descriptors(queues, xdp_buffers_least(queues) - 1) == 0);
  }
}

}  // namespace rnic::port
