#include "port/spec.hpp"

#include "kit/catch.hpp"

namespace rnic::port {
namespace {

using Kind = PortSpec::Kind;
using Role = PortSpec::Role;

std::string refusal(const std::string& text) {
  const auto parsed = parse_spec(text);
  return parsed ? std::string() : parsed.error();
}
bool says(const std::string& text, const std::string& part) {
  const std::string why = refusal(text);
  INFO(text << " -> " << why);
  return why.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("each kind of port is read, and written again as it was", "[port]") {
  for (const char* text : {"loopback", "pair:wire", "memif:/run/rnic/m.sock,role=server", "memif:/m,role=client",
                           "memif:/m,role=client,peer=alice", "af_packet:eth0", "af_xdp:veth-a", "tap:rnic.7",
                           "pci:0000:00:05.0", "vdev:net_null0,size=64,copy=1"}) {
    const auto spec = parse_spec(text);
    INFO(text);
    REQUIRE(spec);
    CHECK(to_string(*spec) == text);
  }
  CHECK(parse_spec("memif:/m,role=server")->role == Role::server);
  CHECK(parse_spec("memif:/m,role=client")->role == Role::client);
  CHECK(parse_spec("vdev:net_null0,size=64")->target == "net_null0,size=64");
}

TEST_CASE("loopback, pair and memif are memory, and nothing else is", "[port]") {
  for (const Kind kind : {Kind::loopback, Kind::pair, Kind::memif}) CHECK(is_memory(kind));
  for (const Kind kind : {Kind::af_packet, Kind::af_xdp, Kind::tap, Kind::pci, Kind::vdev})
    CHECK_FALSE(is_memory(kind));
}

TEST_CASE("a PCI address gets its domain, in lower case", "[port]") {
  CHECK(parse_spec("pci:3B:00.1")->target == "0000:3b:00.1");
  CHECK(parse_spec("pci:0001:3b:1f.7")->target == "0001:3b:1f.7");
  CHECK(says("pci:3b:00.8", "no PCI address"));
  CHECK(says("pci:3b:00", "no PCI address"));
  CHECK(says("pci:", "no PCI address"));
}

TEST_CASE("an unknown kind is answered with those there are", "[port]") {
  CHECK(says("mlx5:0", "pair:NAME"));
  CHECK(says("", "there is no such kind"));
  CHECK(says("Loopback", "there is no such kind"));
}

TEST_CASE("a memif needs a socket and a role, and says which is missing", "[port]") {
  CHECK(says("memif:", "no socket is named"));
  CHECK(says("memif:/m", "add role=server or role=client"));
  CHECK(says("memif:/m,role=master", "no role \"master\""));
  CHECK(says("memif:/m,role=server,role=server", "twice"));
  CHECK(says("memif:/m,rsize=3,role=server", "no option \"rsize=3\""));
  CHECK(says("memif:m,role=server", "must begin with"));
  CHECK(says("memif:/a b,role=server", "blanks"));
  CHECK(parse_spec("memif:/m,peer=1000,role=client")->peer == "1000");
  CHECK(says("memif:/m,role=client,peer=", "a user's name or number"));
  CHECK(says("memif:/m,role=client,peer=a,peer=b", "twice"));
}

TEST_CASE("a memif's socket path may be 102 characters long, and no longer", "[port]") {
  CHECK(parse_spec("memif:/" + std::string(101, 'x') + ",role=server"));
  CHECK(says("memif:/" + std::string(102, 'x') + ",role=server", "longer than 102"));
}

TEST_CASE("an interface's name has 1 to 15 characters", "[port]") {
  CHECK(parse_spec("af_packet:123456789012345"));
  CHECK(says("af_packet:1234567890123456", "cannot be an interface's name"));
  CHECK(says("af_xdp:", "cannot be an interface's name"));
  CHECK(says("tap", "cannot be an interface's name"));
  CHECK(says("af_packet:a/b", "cannot be an interface's name"));
  CHECK(says("af_packet:a,qpairs=4", "cannot be an interface's name"));  // nothing slips into DPDK's arguments
}

TEST_CASE("loopback takes nothing, a pair a plain name, a vdev no blanks", "[port]") {
  CHECK(says("loopback:", "takes nothing"));
  CHECK(says("pair:", "letters, digits"));
  CHECK(says("pair:a b", "letters, digits"));
  CHECK(says("vdev:", "without blanks"));
  CHECK(says("vdev:net_null0 --huge-dir", "without blanks"));
}

}  // namespace rnic::port
