// What `rnic up` says is up, and what it warns of; addresses that the kernel has itself.
#include "control/report.hpp"

#include "control/ready.hpp"
#include "kit/catch.hpp"

using namespace rnic;
using control::DeviceView;
using ip::AddressState;

namespace {

using Lines = std::vector<std::string>;

DeviceView device(const char* port, const char* address, AddressState state = AddressState::preferred) {
  DeviceView view;
  view.name = "rnic0";
  view.port = *port::parse_spec(port);
  view.mtu_bytes = 9000;
  view.link_up = true;
  view.has_mate = true;
  view.own[0].address = *wire::parse_ip(address);
  view.own[0].prefix_bits = 24;
  view.own[0].state = state;
  return view;
}

}  // namespace

TEST_CASE("each device is said with its port, addresses, MTU and link", "[control][report]") {
  DeviceView first = device("loopback", "127.0.1.1");
  DeviceView second = device("af_packet:eth1", "10.0.0.1");
  second.name = "rnic1";
  second.vlan = 7;
  second.own[1] = second.own[0];
  second.own[1].address = *wire::parse_ip("fe80::1");
  const auto report = control::report_of({first, second});
  CHECK(report.devices == Lines{"rnic0: loopback, 127.0.1.1/24, MTU 9000, link up",
                                "rnic1: af_packet:eth1 VLAN 7, 10.0.0.1/24, fe80::1/24, MTU 9000, link up"});
  CHECK(report.warnings.empty());
  CHECK(control::text_of(report) == report.devices[0] + "\n" + report.devices[1] + "\n");
}

TEST_CASE("an address that somebody else has is warned of", "[control][report]") {
  DeviceView view = device("af_packet:eth1", "10.0.0.1", AddressState::duplicate);
  view.own[0].conflicts = 1;
  view.own[0].conflict_with = *wire::parse_mac("02:00:00:00:00:09");
  const auto report = control::report_of({view});
  REQUIRE(report.warnings.size() == 2);
  CHECK(report.warnings[0] ==
        "rnic0: 10.0.0.1 is not used: 02:00:00:00:00:09 has it already; give the device an "
        "address that nobody has");
  CHECK(report.warnings[1] == "rnic0 has no address that it may use; programs cannot connect by it");
  CHECK(control::text_of(report).find(std::string("\n") + control::kWarning + "rnic0: 10.0.0.1 is not") !=
        std::string::npos);

  view.own[1] = device("loopback", "10.0.0.2").own[0];
  CHECK(control::report_of({view}).warnings.size() == 1);
  // Ours still, but disputed.
  view.own[0].state = AddressState::preferred;
  CHECK(control::report_of({view}).warnings == Lines{"rnic0: 10.0.0.1 is claimed by 02:00:00:00:00:09, too"});
  // One that was made anew after a conflict is in none.
  view.own[0].origin = ip::AddressOrigin::link_local;
  CHECK(control::report_of({view}).warnings.empty());
}

TEST_CASE("a link that is down is warned of, with what to do", "[control][report]") {
  const auto warnings = [](const char* port, bool interface_up = true,
                           DeviceView::Socket socket = DeviceView::Socket::none) {
    DeviceView view = device(port, "10.0.0.1", AddressState::tentative);
    view.link_up = false;
    view.interface_up = interface_up;
    view.socket = socket;
    const auto report = control::report_of({view});
    CHECK(report.devices.at(0).find("link down") != std::string::npos);
    return report.warnings;
  };
  CHECK(warnings("af_packet:eth1") == Lines{"rnic0: eth1 has no carrier: is its other end connected and up?"});
  CHECK(warnings("af_packet:eth1", false) == Lines{"rnic0: eth1 is down; first: ip link set eth1 up"});
  CHECK(warnings("pci:0000:03:00.0") == Lines{"rnic0: the link of pci:0000:03:00.0 is down"});
  CHECK(warnings("memif:/m.sock,role=client") ==
        Lines{"rnic0: nobody serves /m.sock yet; the link comes up when a daemon with role=server does"});
  CHECK(warnings("memif:/m.sock,role=client", true, DeviceView::Socket::refused) ==
        Lines{"rnic0: this user may not connect to /m.sock; its server has to name it, as in "
              "memif:/m.sock,role=server,peer=USER"});
  CHECK(warnings("memif:/m.sock,role=client", true, DeviceView::Socket::there) ==
        Lines{"rnic0: no link by /m.sock yet; its server has another client, is of another user, or has gone"});
  CHECK(warnings("memif:/m.sock,role=server") ==
        Lines{"rnic0: /m.sock has no client yet; the link comes up when a daemon with role=client does"});
}

TEST_CASE("a core with several workers is warned of", "[control][report]") {
  CHECK(control::report_of({}, {}).warnings.empty());
  CHECK(control::report_of({}, {3, 1}).warnings.empty());
  CHECK(control::report_of({}, {1, 0, 1, 1}).warnings ==
        Lines{"core 1 has 3 workers (cores), of which one waits for the other"});
}

TEST_CASE("until a memif's other side has come its MTU is the most that it can be", "[control][report]") {
  DeviceView view = device("memif:/m.sock,role=server", "10.0.0.1");
  view.link_up = view.mtu_agreed = false;
  CHECK(control::report_of({view}).devices ==
        Lines{"rnic0: memif:/m.sock,role=server, 10.0.0.1/24, MTU up to 9000, link down"});

  struct Memif final : port::Port {
    const port::PortFacts& facts() const override { return facts_; }
    bool link_up() const override { return up; }
    std::uint32_t link_mtu() const override { return now; }
    BufferPool& pool() override { return pool_; }
    unsigned receive_burst(Buffer**, unsigned) override { return 0; }
    unsigned send_burst(Buffer* const*, unsigned) override { return 0; }
    int wake_descriptor() override { return -1; }
    bool arm() override { return true; }
    void disarm() override {}
    bool up = false;
    std::uint32_t now = 1500;
    port::PortFacts facts_{.kind = "memif", .name = {}, .mac = {}, .mtu_bytes = 65'535, .netdev = {}};
    HeapPool pool_{1, 64};
  } memif;
  CHECK(control::mtu_of(memif) == 65'535);
  memif.up = true;
  memif.now = 9000;
  CHECK(control::mtu_of(memif) == 9000);
}

TEST_CASE("a pair with one end is warned of", "[control][report]") {
  DeviceView view = device("pair:a", "127.0.1.1");
  CHECK(control::report_of({view}).warnings.empty());
  view.has_mate = view.link_up = false;
  CHECK(control::report_of({view}).warnings ==
        Lines{"rnic0: pair:a has one end; a second device of this daemon must name the same pair"});
}

TEST_CASE("that the kernel hears no more of its own interface is warned of", "[control][report]") {
  DeviceView view = device("af_xdp:eth1", "10.0.0.2");
  CHECK(control::report_of({view}).warnings.empty());
  view.kernel_address = "10.0.0.1";
  CHECK(control::report_of({view}).warnings ==
        Lines{"rnic0: what arrives at eth1 is rnic's alone now, and the kernel, which has 10.0.0.1 "
              "there, hears nothing of it; where both are to be reached: af_packet:eth1"});
}

TEST_CASE("an address of the kernel's is found on an interface and on those above it", "[control][report]") {
  const std::vector<port::KernelAddress> kernel = {{"eth0", *wire::parse_ip("10.1.0.1"), 24},
                                                   {"eth1", *wire::parse_ip("fe80::1"), 64},
                                                   {"br0", *wire::parse_ip("10.0.0.1"), 24}};
  CHECK(control::kernel_address_on({"eth1", "br0"}, kernel) == "10.0.0.1");
  CHECK(control::kernel_address_on({"eth0"}, kernel) == "10.1.0.1");
  // Each interface has a link-local address: nobody is reached by it but from that link.
  CHECK(control::kernel_address_on({"eth1"}, kernel).empty());
}

TEST_CASE("an address that the kernel has is refused on the kernel's interfaces", "[control][report]") {
  const std::vector<port::KernelAddress> kernel = {{"lo", *wire::parse_ip("127.0.0.1"), 8},
                                                   {"eth1", *wire::parse_ip("10.0.0.1"), 16},
                                                   {"eth2", *wire::parse_ip("10.2.0.1"), 24},
                                                   {"eth1", *wire::parse_ip("fe80::1"), 64},
                                                   {"eth1", *wire::parse_ip("2001:db8::1"), 64}};
  const auto why = [&](const char* port, std::initializer_list<const char*> addresses) {
    control::DeviceConfiguration device;
    device.name = "rnic0";
    device.port = *port::parse_spec(port);
    for (const char* each : addresses) device.addresses.push_back(*control::parse_cidr(each));
    return control::taken_by_kernel(device, kernel);
  };
  CHECK(why("af_packet:eth1", {"10.0.0.2/24", "10.0.0.1/24"}) ==
        "rnic0 (af_packet:eth1): 10.0.0.1 is the kernel's own address of eth1, and the kernel would reset every "
        "connection to it. Give the device another address of that network, one that nobody has; or take it from the "
        "kernel first: ip address del 10.0.0.1/16 dev eth1");
  CHECK(why("af_xdp:eth1", {"2001:db8::1/64"}).find("ip address del 2001:db8::1/64 dev eth1") != std::string::npos);
  // The kernel answers on every interface for what it has on any.
  CHECK(why("af_xdp:eth1", {"10.2.0.1/24"}).find("10.2.0.1 is the kernel's own address of eth2") != std::string::npos);
  CHECK(why("vdev:net_af_packet0,iface=eth1", {"10.0.0.1/24"}) != "");
  // Of a link-local address every link has its own.
  CHECK(why("af_packet:eth1", {"fe80::1/64"}) != "");
  CHECK(why("af_packet:eth2", {"fe80::1/64"}) == "");
  CHECK(why("af_packet:eth1", {"10.0.0.2/24", "2001:db8::2/64"}) == "");
  // Elsewhere the kernel hears nothing.
  for (const char* port :
       {"loopback", "pair:a", "memif:/m,role=server", "tap:t0", "pci:0000:03:00.0", "vdev:net_null0"})
    CHECK(why(port, {"10.0.0.1/24"}) == "");
}

TEST_CASE("the kernel's addresses are those that it has", "[control][report]") {
  const auto kernel = port::kernel_addresses();
  const auto has = [&](const char* interface, const char* address, unsigned bits) {
    for (const auto& each : kernel)
      if (each.interface == interface && each.address == *wire::parse_ip(address) && each.prefix_bits == bits)
        return true;
    return false;
  };
  CHECK(has("lo", "127.0.0.1", 8));
}
