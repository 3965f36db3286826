// What users write, and what they are told when it is wrong.
#include "control/configuration.hpp"
#include "control/build.hpp"

#include <sched.h>

#include <fstream>
#include <regex>
#include <set>

#include "control/nearest.hpp"
#include "kit/catch.hpp"

using namespace rnic;
using control::Configuration;
using control::DeviceOption;

namespace {

std::string parse(const std::string& text) {
  Configuration configuration;
  if (auto why = control::parse_configuration(text, "f.toml", configuration); !why.empty()) return why;
  return control::complete(configuration);
}

bool says(const std::string& text, const std::string& words) {
  INFO("it says: " << text);
  const bool found = text.find(words) != std::string::npos;
  CHECK(found);
  return found;
}

}  // namespace

TEST_CASE("without a word there is one loopback device at 127.0.1.1", "[control][configuration]") {
  Configuration c;
  REQUIRE(control::complete(c).empty());
  REQUIRE(c.devices.size() == 1);
  CHECK(c.devices[0].name == "rnic0");
  CHECK(c.devices[0].port->kind == port::PortSpec::Kind::loopback);
  REQUIRE(c.devices[0].addresses.size() == 1);
  CHECK(c.devices[0].addresses[0].address == wire::IpAddress::v4(127, 0, 1, 1));
  CHECK(c.devices[0].mode == core::AddressMode::local);
}

TEST_CASE("a file says all that a device can be", "[control][configuration]") {
  Configuration c;
  REQUIRE(control::parse_configuration(R"(
name = "a"
poll = "always"
cores = [2, 3]
[[device]]
port = "pair:x"
address = ["127.0.1.1/24"]
core = 2
[[device]]
port = "af_packet:eth9"
name = "rnic7"
address = "10.0.0.1/16"
mtu = 9000
gateway = "10.0.0.254"
mode = "own"
mac = "02:00:00:00:00:07"
crc = false
markers = "both"
peer_to_peer = false
mpa_revision = 1
congestion = "newreno"
rnr = "terminate"
rnr_timeout_s = 0
request_timeout_s = 3
reply_timeout_s = 70
read_sink = "strict"
nagle = true
keepalive_s = 7200
extensions = true
)",
                                       "f.toml", c)
              .empty());
  REQUIRE(control::complete(c).empty());
  CHECK(c.name == "a");
  CHECK(c.worker.poll_always);
  CHECK(c.cores == std::vector<int>{2, 3});
  REQUIRE(c.devices.size() == 2);
  CHECK(c.devices[0].core == 2);
  const auto& d = c.devices[1];
  CHECK(d.name == "rnic7");
  CHECK(d.port_options.mtu_bytes == 9000);
  CHECK(d.port_options.mac == wire::parse_mac("02:00:00:00:00:07"));
  CHECK(d.addresses[0].prefix_length == 16);
  CHECK(d.gateways == std::vector{wire::IpAddress::v4(10, 0, 0, 254)});
  CHECK_FALSE(d.options.crc_required);
  CHECK(d.options.markers == mpa::MarkerUse::both);
  CHECK_FALSE(d.options.peer_to_peer);
  CHECK(d.options.mpa_revision == 1);
  CHECK(d.options.tcp.congestion == tcp::Algorithm::newreno);
  CHECK_FALSE(d.ecn);
  CHECK_FALSE(d.queue_pairs.hold_without_receive);
  CHECK(d.queue_pairs.rnr_timeout == seconds(0));
  CHECK(d.options.request_timeout == seconds(3));
  CHECK(d.options.reply_timeout == seconds(70));
  CHECK(c.devices[0].options.request_timeout == seconds(10));
  CHECK(c.devices[0].options.reply_timeout == seconds(20));
  CHECK(d.queue_pairs.strict_read_sink);
  CHECK_FALSE(c.devices[0].queue_pairs.strict_read_sink);
  CHECK(d.options.tcp.nagle);
  CHECK(d.options.tcp.keepalive == seconds(7200));
  CHECK_FALSE(c.devices[0].options.tcp.nagle);
  CHECK(c.devices[0].options.tcp.keepalive == seconds(0));
  CHECK(d.extensions == true);
  CHECK(d.mode == core::AddressMode::own);
}

TEST_CASE("W-EXT-14: extensions are on where both ends are known to be rnic, or where it is said",
          "[control][configuration][W-EXT-14]") {
  const auto extensions = [](const std::string& words) {
    Configuration c;
    REQUIRE(control::parse_configuration("[[device]]\naddress = \"10.0.0.1/24\"\n" + words, "f.toml", c).empty());
    REQUIRE(control::complete(c).empty());
    return c.devices[0].extensions;
  };
  CHECK(extensions("port = \"loopback\"\n") == true);
  CHECK(extensions("port = \"pair:x\"\n") == true);
  CHECK(extensions("port = \"memif:/tmp/x.sock,role=server\"\n") == true);
  CHECK(extensions("port = \"af_packet:eth9\"\n") == false);
  CHECK(extensions("port = \"af_packet:eth9\"\nextensions = true\n") == true);
  CHECK(extensions("port = \"loopback\"\nextensions = false\n") == false);
  says(parse("[[device]]\nport = \"loopback\"\nextensions = 1\n"), "f.toml:3: extensions is true or false");
}

TEST_CASE("a device of face roce connects without rdma_cm, and has extensions on every port",
          "[control][configuration]") {
  const auto device = [](const std::string& words, std::string why = {}) {
    Configuration c;
    REQUIRE(control::parse_configuration("[[device]]\naddress = \"10.0.0.1/24\"\nport = \"af_packet:eth9\"\n" + words,
                                         "f.toml", c)
                .empty());
    CHECK(control::complete(c).find(why) != std::string::npos);
    return c.devices[0];
  };
  const auto roce = device("face = \"roce\"\noob_port = 4000\n");
  CHECK(roce.options.face == Face::roce);
  CHECK(roce.queue_pairs.face == Face::roce);
  CHECK(roce.options.oob_connect);
  CHECK(roce.options.oob_port == 4000);
  CHECK(roce.queue_pairs.extensions);
  for (const char* words : {"", "face = \"iwarp\"\n"}) {
    const auto iwarp = device(words);
    CHECK(iwarp.queue_pairs.face == Face::iwarp);
    CHECK(iwarp.options.face == Face::iwarp);
    CHECK_FALSE(iwarp.options.oob_connect);
    CHECK_FALSE(iwarp.queue_pairs.extensions);
  }
  device("face = \"roce\"\nextensions = false\n", "of face \"roce\" has extensions");
  device("face = \"roce\"\noob_connect = false\n", "of face \"roce\" has oob_connect");
  CHECK(device("face = \"roce\"\noob_connect = true\n").options.oob_connect);
  CHECK(device("oob_connect = true\n").options.oob_connect);
  says(parse("[[device]]\nport = \"loopback\"\nud_port = 4791\n"), "f.toml:3: ud_port is not 4791");
  says(parse("[[device]]\nport = \"loopback\"\nface = \"ib\"\n"), "f.toml:3: face is \"iwarp\" or \"roce\"");
}

TEST_CASE("the first and the last address of a network are no device's, but where there are no others",
          "[control][configuration]") {
  const auto why = [](const std::string& address) {
    Configuration c;
    REQUIRE(
        control::parse_configuration("[[device]]\nport = \"loopback\"\naddress = \"" + address + "\"\n", "f.toml", c)
            .empty());
    return control::complete(c);
  };
  says(why("10.77.0.0/24"), "10.77.0.0/24 is the address of a network; a device needs one of its own");
  says(why("10.77.0.255/24"), "10.77.0.255/24 is the broadcast address of its network");
  says(why("10.77.1.3/30"), "broadcast");
  says(why("127.255.255.255/8"), "broadcast");
  for (const char* good : {"10.77.0.1/24", "10.77.0.254/24", "10.77.0.255/23", "10.77.1.0/23", "10.77.0.0/31",
                           "10.77.0.1/31", "10.77.0.0/32", "fd00::/64"}) {
    CAPTURE(good);
    CHECK(why(good) == "");
  }
}

TEST_CASE("unknown keys are errors with their lines", "[control][configuration]") {
  says(parse("name = \"a\"\nbogus = 1\n"), "f.toml:2: there is no \"bogus\"");
  says(parse("[[device]]\nport = \"loopback\"\n\nmtuu = 1500\n"), "f.toml:4: a device has no \"mtuu\"");
}

TEST_CASE("an unknown key names the nearest that there is, or the table that has it", "[control][configuration]") {
  const std::string device = "[[device]]\nport = \"loopback\"\n";
  const auto whole = [](const std::string& text, const std::string& words) { CHECK(parse(text) == words); };
  whole(device + "mtuu = 1500\n", "f.toml:3: a device has no \"mtuu\"; did you mean \"mtu\"?");
  whole(device + "adress = \"10.0.0.1\"\n", "f.toml:3: a device has no \"adress\"; did you mean \"address\"?");
  whole(device + "gatewya = \"10.0.0.2\"\n", "f.toml:3: a device has no \"gatewya\"; did you mean \"gateway\"?");
  whole(device + "conges = \"cubic\"\n", "f.toml:3: a device has no \"conges\"; did you mean \"congestion\"?");
  whole(device + "prot = 3\n", "f.toml:3: a device has no \"prot\"; did you mean \"port\"?");
  whole("pol = \"always\"\n", "f.toml:1: there is no \"pol\"; did you mean \"poll\"?");
  whole("devices = 1\n", "f.toml:1: there is no \"devices\"; did you mean \"device\"?");
  // Nothing is near, or the word is no word.
  whole("wormhole = 1\n", "f.toml:1: there is no \"wormhole\"");
  whole(std::string(65, 'm') + " = 1\n", "f.toml:1: there is no \"" + std::string(65, 'm') + "\"");
  // What stands below a [[device]] is the device's, whatever was meant.
  whole(device + "poll = \"always\"\n", "f.toml:3: \"poll\" is a key of the daemon; put it above the first [[device]]");
  whole("mtu = 9000\n", "f.toml:1: \"mtu\" is a key of a device; put it below a [[device]]");
}

TEST_CASE("the nearest word is the one that is the fewest edits away", "[control][configuration]") {
  constexpr std::string_view known[] = {"port", "mtu", "mac", "address", "mode"};
  const auto nearest = [&](std::string_view word) { return control::nearest(word, known); };
  CHECK(nearest("port") == "port");
  CHECK(nearest("prot") == "port");
  CHECK(nearest("mut") == "mtu");
  CHECK(nearest("mod") == "mode");
  CHECK(nearest("modem") == "mode");
  CHECK(nearest("addr") == "address");
  CHECK(nearest("add") == "address");
  CHECK(nearest("ad") == "");
  CHECK(nearest("adresse") == "address");
  // With words of five letters two edits are forgiven, a third is not.
  CHECK(nearest("poxyt") == "port");
  CHECK(nearest("pxyzt") == "");
  CHECK(nearest("x") == "");
  CHECK(nearest("") == "");
  CHECK(control::nearest("port", {}) == "");
}

TEST_CASE("wrong values are errors with their lines", "[control][configuration]") {
  says(parse("name = 3\n"), "f.toml:1: name is a text");
  says(parse("[[device]]\nport = \"loopback\"\nmtu = 575\n"), "f.toml:3: mtu is a number from 576");
  CHECK(parse("[[device]]\nport = \"loopback\"\nmtu = 576\n").empty());
  CHECK(parse("[[device]]\nport = \"loopback\"\nmtu = 65535\n").empty());
  says(parse("[[device]]\nport = \"loopback\"\nmtu = 65536\n"), "f.toml:3:");
  says(parse("[[device]]\nport = \"loopback\"\nmpa_revision = 3\n"), "f.toml:3:");
  says(parse("[[device]]\nport = \"loopback\"\ncrc = 1\n"), "f.toml:3: crc is true, false or \"trust\"");
  says(parse("[[device]]\nport = \"loopback\"\ncrc = \"thrust\"\n"), "f.toml:3: crc is true, false or \"trust\"");
  CHECK(parse("[[device]]\nport = \"loopback\"\ncrc = \"trust\"\n").empty());
  says(parse("[[device]]\nport = \"tap:t0\"\naddress = \"10.0.0.1/24\"\ncrc = \"trust\"\n"), "is checked");
  says(parse("[[device]]\nport = \"loopback\"\naddress = [\"10.0.0.1/33\"]\n"), "f.toml:3: an address");
  says(parse("[[device]]\nport = \"loopback\"\nmode = \"shared\"\n"), "not served yet");
  says(parse("[[device]]\nport = \"wormhole:x\"\n"), "f.toml:2:");
  says(parse("[[device]]\naddress = \"10.0.0.1/24\"\n"), "needs a port");
  says(parse("device = 3\n"), "[[device]]");
  says(parse("name = \n"), "f.toml:1:");
  says(parse("cores = []\n"), "cores is a list");
}

TEST_CASE("a number is taken from its least to its most, and no further", "[control][configuration]") {
  struct Bound {
    const char* key;
    std::int64_t least, most;
  };
  constexpr Bound kOfDaemon[] = {{"sleep_delay_us", 0, 1'000'000}, {"page_wait_s", 0, 86'400}};
  constexpr Bound kOfDevice[] = {{"mtu", 576, 65'535},           {"vlan", 1, 4094},
                                 {"keepalive_s", 0, 86'400},     {"retransmissions", 3, 100},
                                 {"hop_limit", 1, 255},          {"mpa_revision", 1, 2},
                                 {"rnr_timeout_s", 0, 86'400},   {"buffers", 512, 4'194'304},
                                 {"streams_max", 16, 1'048'576}, {"core", 0, 4095},
                                 {"oob_port", 1, 65'535},        {"rto_min_ms", 1, 60'000},
                                 {"window_mib", 1, 256},         {"request_timeout_s", 1, 86'400},
                                 {"reply_timeout_s", 1, 86'400}};
  const auto check = [](const std::string& head, const Bound& bound) {
    INFO(bound.key);
    const auto why = [&](std::int64_t value) {
      Configuration c;
      return control::parse_configuration(head + bound.key + " = " + std::to_string(value) + "\n", "f.toml", c);
    };
    const std::string refused = std::string(bound.key) + " is a number from " + std::to_string(bound.least) + " to " +
                                std::to_string(bound.most);
    CHECK(why(bound.least) == "");
    CHECK(why(bound.most) == "");
    says(why(bound.least - 1), refused);
    says(why(bound.most + 1), refused);
  };
  for (const Bound& each : kOfDaemon) check("", each);
  for (const Bound& each : kOfDevice) check("[[device]]\nport = \"loopback\"\n", each);
}

TEST_CASE("of two words a setting is one", "[control][configuration]") {
  says(parse("poll = \"often\"\n"), "f.toml:1: poll is \"always\" or \"sleep\"");
  says(parse("[[device]]\nport = \"loopback\"\nrnr = \"drop\"\n"), "f.toml:3: rnr is \"hold\" or \"terminate\"");
  says(parse("[[device]]\nport = \"loopback\"\nread_sink = true\n"), "f.toml:3: read_sink is \"strict\" or \"local\"");
}

TEST_CASE("on the command line an address belongs to the port before it", "[control][configuration]") {
  Configuration c;
  REQUIRE(control::take_option(c, DeviceOption::port, "pair:a").empty());
  REQUIRE(control::take_option(c, DeviceOption::address, "127.0.1.1/24").empty());
  REQUIRE(control::take_option(c, DeviceOption::port, "pair:a").empty());
  REQUIRE(control::take_option(c, DeviceOption::address, "127.0.1.2/24").empty());
  REQUIRE(control::take_option(c, DeviceOption::mtu, "4000").empty());
  REQUIRE(control::complete(c).empty());
  REQUIRE(c.devices.size() == 2);
  CHECK(c.devices[0].name == "rnic0");
  CHECK(c.devices[1].name == "rnic1");
  CHECK(c.devices[1].addresses[0].address == wire::IpAddress::v4(127, 0, 1, 2));
  CHECK(c.devices[0].port_options.mtu_bytes == 0);
  CHECK(c.devices[1].port_options.mtu_bytes == 4000);
}

TEST_CASE("options before the first port are of all devices", "[control][configuration]") {
  Configuration c;
  REQUIRE(control::take_option(c, DeviceOption::mtu, "9000").empty());
  REQUIRE(control::take_option(c, DeviceOption::vlan, "7").empty());
  REQUIRE(control::take_option(c, DeviceOption::gateway, "10.0.0.254").empty());
  for (const char* address : {"10.0.0.1/24", "10.0.0.2/24", "10.0.0.3/24"}) {
    REQUIRE(control::take_option(c, DeviceOption::port, "af_packet:eth9").empty());
    REQUIRE(control::take_option(c, DeviceOption::address, address).empty());
  }
  REQUIRE(control::take_option(c, DeviceOption::mtu, "1500").empty());
  REQUIRE(control::take_option(c, DeviceOption::vlan, "8").empty());
  REQUIRE(control::take_option(c, DeviceOption::gateway, "10.0.0.253").empty());
  REQUIRE(control::complete(c) == "");
  REQUIRE(c.devices.size() == 3);
  for (const int i : {0, 1}) {
    CHECK(c.devices[static_cast<std::size_t>(i)].port_options.mtu_bytes == 9000);
    CHECK(c.devices[static_cast<std::size_t>(i)].options.vlan == 7);
    CHECK(c.devices[static_cast<std::size_t>(i)].gateways == std::vector{wire::IpAddress::v4(10, 0, 0, 254)});
  }
  // What is said of one device is that one's.
  CHECK(c.devices[2].port_options.mtu_bytes == 1500);
  CHECK(c.devices[2].options.vlan == 8);
  CHECK(c.devices[2].gateways == std::vector{wire::IpAddress::v4(10, 0, 0, 253)});
}

TEST_CASE("options before the first port are of the file's devices, too, and win over it", "[control][configuration]") {
  Configuration c;
  REQUIRE(control::parse_configuration("[[device]]\nport = \"loopback\"\naddress = \"127.0.1.1/24\"\nmtu = 2000\n"
                                       "gateway = \"127.0.1.254\"\n"
                                       "[[device]]\nport = \"loopback\"\naddress = \"127.0.1.2/24\"\n",
                                       "f.toml", c)
              .empty());
  REQUIRE(control::take_option(c, DeviceOption::mtu, "9000").empty());
  REQUIRE(control::take_option(c, DeviceOption::gateway, "127.0.1.253").empty());
  REQUIRE(control::take_option(c, DeviceOption::port, "loopback").empty());
  REQUIRE(control::take_option(c, DeviceOption::address, "127.0.1.3/24").empty());
  REQUIRE(control::complete(c) == "");
  REQUIRE(c.devices.size() == 3);
  for (const auto& device : c.devices) {
    CHECK(device.port_options.mtu_bytes == 9000);
    CHECK(device.gateways == std::vector{wire::IpAddress::v4(127, 0, 1, 253)});
  }
}

TEST_CASE("what a device has one of is not said twice of it on the command line", "[control][configuration]") {
  Configuration c;
  const auto once = [&] {
    REQUIRE(control::take_option(c, DeviceOption::mtu, "1500").empty());
    CHECK(control::take_option(c, DeviceOption::mtu, "1600") == "--mtu 1600 is the second --mtu of one device");
    REQUIRE(control::take_option(c, DeviceOption::vlan, "7").empty());
    CHECK(control::take_option(c, DeviceOption::vlan, "8") == "--vlan 8 is the second --vlan of one device");
    REQUIRE(control::take_option(c, DeviceOption::mac, "02:00:00:00:00:01").empty());
    CHECK(control::take_option(c, DeviceOption::mac, "02:00:00:00:00:02") ==
          "--mac 02:00:00:00:00:02 is the second --mac of one device");
  };
  once();  // of all
  REQUIRE(control::take_option(c, DeviceOption::port, "af_packet:eth8").empty());
  once();
  REQUIRE(control::take_option(c, DeviceOption::port, "af_packet:eth9").empty());
  once();
}

TEST_CASE("an address that one device has twice is not said to be two devices'", "[control][configuration]") {
  Configuration c;
  REQUIRE(control::take_option(c, DeviceOption::address, "127.0.1.1/24").empty());
  REQUIRE(control::take_option(c, DeviceOption::address, "127.0.1.1/24").empty());
  CHECK(control::complete(c) == "rnic0 has twice the address 127.0.1.1");
}

TEST_CASE("an address or a MAC before the first port is refused where it could be of several devices",
          "[control][configuration]") {
  const auto with = [](unsigned ports, DeviceOption option, const char* text) {
    Configuration c;
    REQUIRE(control::take_option(c, option, text).empty());
    for (unsigned i = 0; i < ports; ++i) {
      REQUIRE(control::take_option(c, DeviceOption::port, "loopback").empty());
      REQUIRE(control::take_option(c, DeviceOption::address, "127.0.1." + std::to_string(i + 1)).empty());
    }
    return std::pair{control::complete(c), c};
  };
  CHECK(with(2, DeviceOption::address, "127.0.2.1/24").first ==
        "--address 127.0.2.1 belongs to one device, and there are 2; put it behind the --port of its device");
  CHECK(with(2, DeviceOption::mac, "02:00:00:00:00:01").first ==
        "--mac 02:00:00:00:00:01 belongs to one device, and there are 2; put it behind the --port of its device");
  const auto [why, one] = with(1, DeviceOption::address, "127.0.2.1/24");
  CHECK(why == "");
  REQUIRE(one.devices.at(0).addresses.size() == 2);
  CHECK(one.devices[0].addresses[0].address == wire::IpAddress::v4(127, 0, 2, 1));
  CHECK(with(1, DeviceOption::mac, "02:00:00:00:00:01").second.devices.at(0).port_options.mac ==
        wire::parse_mac("02:00:00:00:00:01"));
  // Without any port it is the loopback device's.
  const auto alone = with(0, DeviceOption::mac, "02:00:00:00:00:01").second;
  REQUIRE(alone.devices.size() == 1);
  CHECK(alone.devices[0].port->kind == port::PortSpec::Kind::loopback);
  CHECK(alone.devices[0].port_options.mac == wire::parse_mac("02:00:00:00:00:01"));
  Configuration c;
  for (const char* wrong : {"", "02:00:00:00:00", "01:00:00:00:00:01"})
    CHECK_FALSE(control::take_option(c, DeviceOption::mac, wrong).empty());
}

TEST_CASE("without any port options are of the default device", "[control][configuration]") {
  Configuration c;
  REQUIRE(control::take_option(c, DeviceOption::mtu, "9000").empty());
  REQUIRE(control::complete(c).empty());
  REQUIRE(c.devices.size() == 1);
  CHECK(c.devices[0].port->kind == port::PortSpec::Kind::loopback);
  CHECK(c.devices[0].port_options.mtu_bytes == 9000);
}

TEST_CASE("a core that does not exist is said before anything is opened", "[control][configuration]") {
  const auto built = [](const std::string& cores) {
    Configuration c;
    REQUIRE(control::parse_configuration("cores = " + cores + "\n[[device]]\nport = \"loopback\"\nbuffers = 512\n",
                                         "f.toml", c)
                .empty());
    REQUIRE(control::complete(c).empty());
    control::Machine machine;
    const std::string why = control::build_machine(
        c, [](const std::string&) {}, machine);
    control::stop_machine(machine);
    return why;
  };
  cpu_set_t allowed;
  REQUIRE(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
  std::string one;
  for (int i = CPU_SETSIZE; i-- > 0;)
    if (CPU_ISSET(static_cast<std::size_t>(i), &allowed)) one = std::to_string(i);
  CHECK(built("[" + one + "]") == "");
  says(built("[" + one + ", 1000]"), "no core 1000");
  says(built("[4095]"), "no core 4095");
  cpu_set_t after;
  REQUIRE(sched_getaffinity(0, sizeof after, &after) == 0);
  CHECK(CPU_EQUAL(&allowed, &after));
}

TEST_CASE("an address alone is the default device's", "[control][configuration]") {
  Configuration c;
  REQUIRE(control::take_option(c, DeviceOption::address, "127.0.1.9/24").empty());
  REQUIRE(control::complete(c).empty());
  REQUIRE(c.devices.size() == 1);
  CHECK(c.devices[0].port->kind == port::PortSpec::Kind::loopback);
  CHECK(c.devices[0].addresses[0].address == wire::IpAddress::v4(127, 0, 1, 9));
}

TEST_CASE("what is wrong on the command line is said", "[control][configuration]") {
  Configuration c;
  CHECK_FALSE(control::take_option(c, DeviceOption::port, "pair:").empty());
  CHECK_FALSE(control::take_option(c, DeviceOption::address, "10.0.0/24").empty());
  CHECK_FALSE(control::take_option(c, DeviceOption::mtu, "15OO").empty());
  CHECK_FALSE(control::take_option(c, DeviceOption::mtu, "99999999999").empty());
  CHECK_FALSE(control::take_option(c, DeviceOption::mtu, "").empty());
}

TEST_CASE("what does not fit together is said", "[control][configuration]") {
  says(parse("[[device]]\nport = \"pair:a\"\n"), "has no address");
  says(parse("[[device]]\nport = \"af_packet:eth0\"\naddress = \"127.0.1.1/24\"\n"), "loopback, pair and memif");
  says(parse("[[device]]\nport = \"loopback\"\naddress = \"10.0.0.1/24\"\nmode = \"local\"\n"), "is none");
  says(parse("[[device]]\nport = \"loopback\"\naddress = \"127.0.1.1/24\"\nmode = \"own\"\n"),
       "whose mode is \"local\"");
  says(parse("[[device]]\nport = \"loopback\"\n[[device]]\nport = \"loopback\"\n"), "two devices have the address");
  says(parse("[[device]]\nport = \"loopback\"\ngateway = \"10.0.0.1\"\n"), "none of its networks");
  says(parse("[[device]]\nport = \"loopback\"\nname = \"mlx5_0\"\n"), "begins with \"rnic\"");
  says(parse("name = \"a/b\"\n"), "not a name");
  says(parse("[[device]]\nport = \"loopback\"\ncore = 3\n"), "none of the daemon's cores");
}

TEST_CASE("an interface whose frames are an af_xdp port's is no other device's", "[control][configuration]") {
  const auto two = [](const char* first, const char* second) {
    return parse(std::string("[[device]]\naddress = \"10.0.0.1/24\"\nport = \"") + first +
                 "\"\n[[device]]\naddress = \"10.0.0.2/24\"\nport = \"" + second + "\"\n");
  };
  says(two("af_packet:eth1", "af_xdp:eth1"), "nothing would come to rnic0");
  says(two("af_xdp:eth1", "af_packet:eth1"), "nothing would come to rnic1");
  says(two("af_xdp:eth1", "af_xdp:eth1"), "nothing would come to");
  CHECK(two("af_xdp:eth1", "af_packet:eth2").empty());
  CHECK(two("af_packet:eth1", "af_packet:eth1").empty());
}

TEST_CASE("the ends of a pair need the same core", "[control][configuration]") {
  const std::string text =
      "cores = [1, 2]\n[[device]]\nport = \"pair:a\"\naddress = \"127.0.1.1/24\"\ncore = 1\n"
      "[[device]]\nport = \"pair:a\"\naddress = \"127.0.1.2/24\"\ncore = ";
  CHECK(parse(text + "1\n").empty());
  says(parse(text + "2\n"), "need the same core");
}

TEST_CASE("names that are given are kept, and the others go round them", "[control][configuration]") {
  Configuration c;
  REQUIRE(
      control::parse_configuration("[[device]]\nport = \"loopback\"\naddress = \"127.0.1.1/24\"\n"
                                   "[[device]]\nport = \"loopback\"\nname = \"rnic0\"\naddress = \"127.0.1.2/24\"\n",
                                   "f.toml", c)
          .empty());
  REQUIRE(control::complete(c).empty());
  CHECK(c.devices[0].name == "rnic1");
  CHECK(c.devices[1].name == "rnic0");
}

TEST_CASE("a file says what a device's network is", "[control][configuration]") {
  Configuration c;
  REQUIRE(control::parse_configuration(R"(
[[device]]
port = "af_packet:eth9"
address = ["10.0.0.1/16", "2001:db8::1/48", "2001:db8:2::1"]
gateway = ["10.0.0.254", "fe80::1"]
routes = ["192.168.0.0/16 via 10.0.0.253", "2001:db8:7::/48 via 2001:db8::fe"]
vlan = 100
accept_ra = true
probe = false
)",
                                       "f.toml", c)
              .empty());
  CHECK(control::complete(c).empty());
  const auto& d = c.devices[0];
  REQUIRE(d.addresses.size() == 3);
  CHECK(d.addresses[1].address == *wire::parse_ip("2001:db8::1"));
  CHECK(d.addresses[1].prefix_length == 48);
  CHECK(d.addresses[2].prefix_length == 64);  // where none is said
  CHECK(d.gateways == std::vector{wire::IpAddress::v4(10, 0, 0, 254), *wire::parse_ip("fe80::1")});
  REQUIRE(d.routes.size() == 2);
  CHECK(d.routes[0] == ip::Route{.prefix = wire::IpAddress::v4(192, 168, 0, 0),
                                 .bits = 16,
                                 .gateway = wire::IpAddress::v4(10, 0, 0, 253)});
  CHECK(d.routes[1].bits == 48);
  CHECK(d.options.vlan == 100);
  CHECK(d.accept_ra == true);
  CHECK(d.probe == false);
  CHECK(d.options.ipv6);
}

TEST_CASE("where others are on the wire addresses are asked for, and routers believed if nobody else says the way",
          "[control][configuration]") {
  const auto device = [](const std::string& words) {
    Configuration c;
    REQUIRE(control::parse_configuration("[[device]]\n" + words, "f.toml", c).empty());
    REQUIRE(control::complete(c).empty());
    return c.devices[0];
  };
  const auto wire4 = device("port = \"af_packet:eth9\"\naddress = \"10.0.0.1/24\"\n");
  CHECK(wire4.probe == true);
  CHECK(wire4.accept_ra == false);
  CHECK_FALSE(wire4.options.ipv6);
  const auto wire6 = device("port = \"tap:t0\"\naddress = \"2001:db8::1/64\"\n");
  CHECK(wire6.probe == true);
  CHECK(wire6.accept_ra == true);
  const auto static6 = device("port = \"tap:t0\"\naddress = \"2001:db8::1/64\"\ngateway = \"2001:db8::fe\"\n");
  CHECK(static6.accept_ra == false);
  const auto static4 =
      device("port = \"tap:t0\"\naddress = [\"2001:db8::1/64\", \"10.0.0.1/24\"]\ngateway = \"10.0.0.254\"\n");
  CHECK(static4.accept_ra == true);
  for (const char* port : {"loopback", "pair:x", "memif:/tmp/x.sock,role=server"}) {
    const auto inside = device("port = \"" + std::string(port) + "\"\naddress = \"2001:db8::1/64\"\n");
    CHECK(inside.probe == false);
    CHECK(inside.accept_ra == false);
    CHECK(inside.options.ipv6);
    CHECK(inside.mode == core::AddressMode::own);
  }
  // Only routers' addresses.
  CHECK(device("port = \"af_packet:eth9\"\naddress = \"10.0.0.1/24\"\naccept_ra = true\n").options.ipv6);
  CHECK(device("port = \"loopback\"\naddress = \"::1/128\"\n").mode == core::AddressMode::local);
}

TEST_CASE("what is wrong with a network is said", "[control][configuration]") {
  const std::string head = "[[device]]\nport = \"af_packet:eth9\"\naddress = [\"10.0.0.1/24\", \"2001:db8::1/64\"]\n";
  says(parse(head + "vlan = 0\n"), "f.toml:4: vlan is a number from 1 to 4094");
  says(parse(head + "vlan = 4095\n"), "vlan is a number");
  says(parse(head + "gateway = \"10.0.0\"\n"), "f.toml:4: gateway is an IP address");
  says(parse(head + "gateway = \"0.0.0.0\"\n"), "gateway is an IP address");
  says(parse(head + "gateway = [\"10.0.0.2\", \"10.0.0.3\"]\n"), "one gateway of IPv4");
  says(parse(head + "gateway = [\"fe80::2\", \"fe80::3\"]\n"), "one gateway of IPv6");
  says(parse(head + "gateway = \"2001:db8:1::1\"\n"), "none of its networks");
  says(parse(head + "gateway = 3\n"), "gateway is a text");
  says(parse(head + "gateway = \"10.0.0.1\"\n"), "its gateway 10.0.0.1 is an address of its own");
  says(parse(head + "gateway = \"2001:db8::1\"\n"), "its gateway 2001:db8::1 is an address of its own");
  says(parse(head + "routes = \"192.168.0.0/16 via 10.0.0.1\"\n"),
       "the gateway 10.0.0.1 of a route is an address of its own");
  for (const char* route : {"192.168.0.0/16", "192.168.0.0 via 10.0.0.2", "192.168.0.0/16 by 10.0.0.2",
                            "192.168.0.0/16 via 10.0.0.2 x", "192.168.0.0/33 via 10.0.0.2", "via", ""})
    says(parse(head + "routes = \"" + route + "\"\n"), "f.toml:4: a route is written as");
  says(parse(head + "routes = \"192.168.0.0/16 via fe80::2\"\n"), "the other version");
  says(parse(head + "routes = \"0.0.0.0/0 via 10.0.0.2\"\n"), "written as gateway");
  says(parse(head + "routes = \"192.168.0.0/16 via 10.1.0.2\"\n"), "of a route is on none of its networks");
  says(parse(head + "probe = 1\n"), "probe is true or false");
  says(parse(head + "accept_ra = \"yes\"\n"), "accept_ra is true or false");
  says(parse(head + "mtu = 1279\n"), "IPv6 needs an MTU of at least 1280");
  CHECK(parse(head + "mtu = 1280\n").empty());
  says(parse("[[device]]\nport = \"af_packet:eth9\"\naddress = \"::1/128\"\n"), "loopback, pair and memif");
  says(parse("[[device]]\nport = \"af_packet:eth9\"\naddress = \"ff02::1/64\"\n"), "no address for a device");
  says(parse("[[device]]\nport = \"af_packet:eth9\"\naddress = \"::/64\"\n"), "no address for a device");
  // A link-local address takes one of the eight places.
  std::string many;
  for (int i = 1; i <= 8; ++i) many += (i > 1 ? ", " : "") + std::string("\"2001:db8::") + std::to_string(i) + "/64\"";
  says(parse("[[device]]\nport = \"loopback\"\naddress = [" + many + "]\n"), "its link-local one counted");
  many.replace(many.find("2001:db8::8"), 11, "fe80::8");
  CHECK(parse("[[device]]\nport = \"loopback\"\naddress = [" + many + "]\n").empty());
}

TEST_CASE("the command line gives a VLAN and gateways to the device before them", "[control][configuration]") {
  Configuration c;
  REQUIRE(control::take_option(c, DeviceOption::port, "af_packet:eth9").empty());
  REQUIRE(control::take_option(c, DeviceOption::address, "2001:db8::1").empty());
  REQUIRE(control::take_option(c, DeviceOption::vlan, "4094").empty());
  REQUIRE(control::take_option(c, DeviceOption::gateway, "fe80::1").empty());
  REQUIRE(control::complete(c).empty());
  CHECK(c.devices[0].options.vlan == 4094);
  CHECK(c.devices[0].gateways.size() == 1);
  for (const char* wrong : {"", "0", "4095", "99999999999", "1x", "-1"})
    CHECK_FALSE(control::take_option(c, DeviceOption::vlan, wrong).empty());
  CHECK_FALSE(control::take_option(c, DeviceOption::gateway, "fe80::2").empty());
}

TEST_CASE("W-TCP-13: what is said of TCP reaches the device: Nagle, keepalive, timestamps, congestion control, ECN",
          "[control][configuration][W-TCP-13]") {
  const auto options_of = [](const std::string& lines) {
    Configuration c;
    const std::string device = "[[device]]\nport = \"loopback\"\naddress = \"127.0.1.1/24\"\nbuffers = 512\n";
    REQUIRE(control::parse_configuration(device + lines, "f.toml", c).empty());
    REQUIRE(control::complete(c).empty());
    control::Machine machine;
    REQUIRE(control::build_machine(
                c, [](const std::string&) {}, machine)
                .empty());
    const core::DeviceOptions options = machine.devices.at(0)->options();
    control::stop_machine(machine);
    return options;
  };
  const core::DeviceOptions by_itself = options_of("");
  const tcp::Options& plain = by_itself.tcp;
  CHECK_FALSE(plain.nagle);
  CHECK(plain.keepalive == seconds(0));
  CHECK_FALSE(plain.timestamps);
  CHECK(plain.ecn == tcp::EcnUse::passive);
  CHECK(plain.retransmissions_max == 12);
  CHECK(plain.rto_min == milliseconds(200));
  CHECK(plain.widest_window_bytes() == 0xFFFFu << 12);  // 256 MiB, in steps of 4 KiB
  CHECK(plain.syn_wait_first == milliseconds(10));      // memory
  CHECK_FALSE(by_itself.hop_limit);
  const core::DeviceOptions asked = options_of(
      "nagle = true\nkeepalive_s = 7200\ntimestamps = true\ncongestion = \"dctcp\"\n"
      "retransmissions = 9\nhop_limit = 5\nrto_min_ms = 5\nwindow_mib = 16\n");
  const tcp::Options& other = asked.tcp;
  CHECK(other.retransmissions_max == 9);
  CHECK(other.rto_min == milliseconds(5));
  CHECK(other.widest_window_bytes() == 16u << 20);
  CHECK_FALSE(options_of("window_mib = 1\n").tcp.grows());
  CHECK(asked.hop_limit == 5);
  CHECK(other.nagle);
  CHECK(other.keepalive == seconds(7200));
  CHECK(other.timestamps);
  CHECK(other.congestion == tcp::Algorithm::dctcp);
  CHECK(other.ecn == tcp::EcnUse::on);
  says(parse("[[device]]\nport = \"loopback\"\nkeepalive_s = -1\n"), "keepalive_s");
  says(parse("[[device]]\nport = \"loopback\"\nnagle = 1\n"), "nagle");
  says(parse("[[device]]\nport = \"loopback\"\nretransmissions = 2\n"), "retransmissions");
  says(parse("[[device]]\nport = \"loopback\"\nhop_limit = 0\n"), "hop_limit");
  says(parse("[[device]]\nport = \"loopback\"\nwindow_mib = 257\n"), "window_mib");
  says(parse("[[device]]\nport = \"loopback\"\nrto_min_ms = 0\n"), "rto_min_ms");
}

TEST_CASE("W-TCP-26: timestamps are on on a wire of others, off within memory, or as it is said",
          "[control][configuration][W-TCP-26]") {
  const auto timestamps = [](const std::string& words) {
    Configuration c;
    REQUIRE(control::parse_configuration("[[device]]\naddress = \"10.0.0.1/24\"\n" + words, "f.toml", c).empty());
    REQUIRE(control::complete(c).empty());
    return c.devices[0].timestamps;
  };
  for (const char* memory : {"loopback", "pair:x", "memif:/tmp/x.sock,role=server"}) {
    const std::string port = std::string("port = \"") + memory + "\"\n";
    CHECK(timestamps(port) == false);
    CHECK(timestamps(port + "timestamps = true\n") == true);
  }
  for (const char* wire : {"af_packet:eth9", "af_xdp:eth9", "pci:0000:00:05.0"}) {
    const std::string port = std::string("port = \"") + wire + "\"\n";
    CHECK(timestamps(port) == true);
    CHECK(timestamps(port + "timestamps = false\n") == false);
  }
}

TEST_CASE("what one worker's queue pairs say to each other takes no wire on loopback and a pair, or as it is said",
          "[control][configuration]") {
  const auto direct = [](const std::string& words) {
    Configuration c;
    REQUIRE(control::parse_configuration("[[device]]\naddress = \"10.0.0.1/24\"\n" + words, "f.toml", c).empty());
    REQUIRE(control::complete(c).empty());
    return c.devices[0].options.local_direct;
  };
  for (const char* port : {"loopback", "pair:x"}) {
    const std::string words = std::string("port = \"") + port + "\"\n";
    CHECK(direct(words));
    CHECK_FALSE(direct(words + "local = \"wire\"\n"));
  }
  for (const char* port : {"memif:/tmp/x.sock,role=server", "af_packet:eth9"}) {
    const std::string words = std::string("port = \"") + port + "\"\n";
    CHECK_FALSE(direct(words));
    CHECK(direct(words + "local = \"direct\"\n"));
  }
}

TEST_CASE("a device's congestion control and its use of ECN are words", "[control][configuration]") {
  const auto device_of = [](const std::string& lines) {
    Configuration c;
    REQUIRE(control::parse_configuration("[[device]]\nport = \"loopback\"\n" + lines, "f.toml", c).empty());
    return c.devices.at(0);
  };
  CHECK(device_of("").options.tcp.congestion == tcp::Algorithm::cubic);
  CHECK_FALSE(device_of("").ecn);
  CHECK(device_of("congestion = \"cubic\"\n").options.tcp.congestion == tcp::Algorithm::cubic);
  CHECK(device_of("congestion = \"newreno\"\n").options.tcp.congestion == tcp::Algorithm::newreno);
  CHECK(device_of("congestion = \"dctcp\"\n").options.tcp.congestion == tcp::Algorithm::dctcp);
  CHECK(device_of("ecn = \"off\"\n").ecn == tcp::EcnUse::off);
  CHECK(device_of("ecn = \"passive\"\n").ecn == tcp::EcnUse::passive);
  CHECK(device_of("ecn = \"on\"\n").ecn == tcp::EcnUse::on);
  says(parse("[[device]]\nport = \"loopback\"\ncongestion = \"bbr\"\n"),
       "congestion is \"cubic\" or \"newreno\" or \"dctcp\"");
  says(parse("[[device]]\nport = \"loopback\"\necn = true\n"), "ecn is \"off\" or \"passive\" or \"on\"");
}

TEST_CASE("docs/configuration.md: its example is a configuration, and has every setting's line",
          "[docs][configuration]") {
  std::ifstream page(std::string(RNIC_SOURCE_DIR) + "/docs/configuration.md");
  std::string example;
  std::set<std::string> lines;
  for (std::string line; std::getline(page, line);) {
    if (!line.empty() && !line.starts_with("    ")) continue;
    example += line + "\n";
    lines.insert(std::regex_replace(line, std::regex(" +"), " "));
  }
  REQUIRE(example.size() > 1000);
  Configuration c;
  CHECK(control::parse_configuration(example, "docs/configuration.md", c) == "");
  const auto settings = control::settings();
  for (const control::Setting& each : settings) {
    const std::string key(each.name);
    const std::string left = each.example.empty() ? "[[" + key + "]]" : key + " = " + std::string(each.example);
    const std::string line = " " + left + " # " + std::string(each.says);
    INFO(line);
    CHECK(lines.contains(line));
  }
  CHECK(settings.size() > 25);
}
