// A DPDK device that divides what it receives by a hash (net_null has all of that, but frames).
#include <rte_ethdev.h>

#include <algorithm>
#include <array>

#include "kit/catch.hpp"
#include "port/dpdk_runtime.hpp"
#include "port/open.hpp"
#include "wire/rss.hpp"

namespace rnic::port {
namespace {

std::vector<std::unique_ptr<Port>> open(const std::string& device, unsigned shards, std::uint32_t buffers) {
  const auto spec = parse_spec("vdev:" + device);
  REQUIRE(spec);
  // DPDK's memory is what its first ports need.
  static PortFactory factory(std::vector<PortSpec>(4, *spec));
  std::string error;
  auto queues = factory.open_queues(*spec, {.name = "rnic0", .mac = {}, .buffers = buffers}, shards, error);
  INFO(error);
  REQUIRE(!queues.empty());
  dpdk_register_thread();
  return queues;
}

}  // namespace

TEST_CASE("a device with a hash is told to divide TCP's connections as the workers are, queue by queue",
          "[port][dpdk][hash]") {
  static int number = 0;
  const std::string name = "net_null" + std::to_string(number++);
  // Of three workers two have queues: what is the third's comes to the queue by which it sends.
  const auto [shards, buffers, queues_wanted] =
      GENERATE(std::tuple(3u, 16384u, 3u), std::tuple(3u, 8192u, 2u), std::tuple(3u, 4096u, 1u));
  auto queues = open(name, shards, buffers);
  REQUIRE(queues.size() == queues_wanted);
  std::uint16_t id = 0;
  REQUIRE(rte_eth_dev_get_port_by_name(name.c_str(), &id) == 0);
  rte_eth_dev_info info{};
  REQUIRE(rte_eth_dev_info_get(id, &info) == 0);
  CHECK(info.nb_rx_queues == queues_wanted);
  CHECK(info.nb_tx_queues == queues_wanted);
  if (queues_wanted == 1) return;

  REQUIRE(info.reta_size % wire::rss::kTable == 0);
  std::vector<rte_eth_rss_reta_entry64> table(info.reta_size / RTE_ETH_RETA_GROUP_SIZE);
  for (auto& group : table) group.mask = ~std::uint64_t{0};
  REQUIRE(rte_eth_dev_rss_reta_query(id, table.data(), info.reta_size) == 0);
  for (unsigned hash = 0; hash < 1024; ++hash) {
    const unsigned place = hash % info.reta_size;
    const unsigned shard = hash % wire::rss::kTable % shards;
    CHECK(table[place / RTE_ETH_RETA_GROUP_SIZE].reta[place % RTE_ETH_RETA_GROUP_SIZE] == shard % queues_wanted);
  }
  std::array<std::uint8_t, 64> key{};
  rte_eth_rss_conf hashed{.rss_key = key.data(), .rss_key_len = key.size(), .rss_hf = 0};
  REQUIRE(rte_eth_dev_rss_hash_conf_get(id, &hashed) == 0);
  CHECK((hashed.rss_hf & RTE_ETH_RSS_NONFRAG_IPV4_TCP) != 0);
  CHECK((hashed.rss_hf & RTE_ETH_RSS_NONFRAG_IPV6_TCP) != 0);
  for (std::size_t i = 0; i < 40; ++i) CHECK(key[i] == (i % 2 == 0 ? 0x6D : 0x5A));
}

}  // namespace rnic::port
