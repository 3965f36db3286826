// docs/wire.md says what the code does: its examples in octets are decoded, and its files are there.
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "decode/hex_lines.hpp"
#include "decode/packet.hpp"
#include "kit/catch.hpp"
#include "kit/hex.hpp"
#include "wire/checksum.hpp"
#include "wire/ipv4.hpp"
#include "wire/ipv6.hpp"

namespace {

using namespace rnic;
using tool::Json;

struct Block {
  std::string kind;
  std::string text;
};

// The fenced blocks of the page, in order.
std::vector<Block> blocks_of(const std::string& page) {
  std::vector<Block> blocks;
  std::istringstream lines(page);
  std::optional<Block> open;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("```")) {
      if (open) open->text += line + "\n";
    } else if (open) {
      blocks.push_back(std::move(*open));
      open.reset();
    } else {
      open = Block{line.substr(3), ""};
    }
  }
  return blocks;
}

std::string page() {
  std::ifstream file(std::string(RNIC_SOURCE_DIR) + "/docs/wire.md");
  REQUIRE(file);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// As the command in the block's first line reads it.
std::string decoded(const std::string& text) {
  std::istringstream command(text.substr(0, text.find('\n')));
  tool::HexOptions options;
  std::string word;
  command >> word >> word >> word;  // # rnic decode
  REQUIRE(word == "decode");
  while (command >> word) {
    if (word == "--stream") {
      options.one_stream = true;
    } else if (word == "--markers") {
      options.framing.markers = mpa::Markers::expected;
    } else if (word == "--crc") {
      REQUIRE((command >> word && word == "off"));
      options.framing.crc = mpa::Crc::off;
    } else if (word == "--position") {
      REQUIRE(command >> options.position);
    } else {
      FAIL("option " + word);
    }
  }
  std::string units;
  std::istringstream lines(text);
  CHECK(tool::decode_hex(
      lines, options, [&](Json&& unit) { units += unit.dump() + "\n"; },
      [](const std::string& words) { FAIL(words); }));
  return units;
}

// A whole frame: what its headers say, and what its payload is.
std::string framed(const std::string& text, std::vector<std::byte>& payload) {
  std::vector<std::byte> frame;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto octets = tool::parse_hex(line);
    REQUIRE(octets);
    test::append(frame, *octets);
  }
  tool::PacketParser parser;
  REQUIRE(parser.parse(tool::LinkType::ethernet, frame, static_cast<std::uint32_t>(frame.size())) ==
          tool::PacketParser::Outcome::tcp);
  const bool v6 = parser.packet().source.is_v6();  // and a VLAN tag
  const Bytes ip = Bytes(frame).subspan(v6 ? 18 : 14);
  if (!v6) CHECK(wire::ipv4_checksum_is_good(ip, *wire::parse_ipv4(ip)));
  CHECK(wire::transport_checksum(parser.packet().source, parser.packet().destination, wire::protocol::kTcp,
                                 ip.subspan(v6 ? wire::Ipv6Header::kSize : wire::Ipv4Header::kSize)) == 0);
  const auto& packet = parser.packet();
  payload = test::copy_of(packet.payload);
  const auto place = [](const wire::IpAddress& address, std::uint16_t port) {
    const std::string host = wire::to_string(address);
    return (address.is_v6() ? "[" + host + "]" : host) + ":" + std::to_string(port);
  };
  REQUIRE(packet.header.timestamps);
  return Json{{"source", place(packet.source, packet.header.source_port)},
              {"destination", place(packet.destination, packet.header.destination_port)},
              {"sequence", packet.header.sequence},
              {"acknowledgement", packet.header.acknowledgement},
              {"flags", packet.header.flags},
              {"window", packet.header.window},
              {"timestamps", {packet.header.timestamps->value, packet.header.timestamps->echo}},
              {"payload_length", packet.payload.size()}}
             .dump() +
         "\n";
}

}  // namespace

TEST_CASE("docs/wire.md: every example in octets is what is said under it", "[docs][wire-page]") {
  const auto blocks = blocks_of(page());
  std::size_t examples = 0;
  std::set<std::string> names;
  for (std::size_t i = 0; i + 1 < blocks.size(); ++i) {
    if (blocks[i].kind != "octets" && blocks[i].kind != "frame") continue;
    ++examples;
    INFO(blocks[i].text);
    REQUIRE(blocks[i + 1].kind == "json");
    if (blocks[i].kind == "octets") {
      CHECK(decoded(blocks[i].text) == blocks[i + 1].text);
      const Json unit = Json::parse(blocks[i + 1].text);
      CHECK(unit["kind"] != "error");
      names.insert(unit.value("name", unit["kind"].get<std::string>()));
    } else {
      std::vector<std::byte> payload;
      CHECK(framed(blocks[i].text, payload) == blocks[i + 1].text);
      CHECK(tool::to_hex(payload) == "001741430000000000000000000000010000000052444d41000000007b2f44ff");
    }
  }
  CHECK(examples >= 15);
  // One of each layout.
  for (const char* name : {"mpa", "RDMA Write", "Send", "Send with SE and Invalidate", "RDMA Read Request", "Terminate",
                           "Atomic Request", "Atomic Response", "Immediate Data with SE", "datagram"})
    CHECK(names.count(name) == 1);
}

TEST_CASE("docs/wire.md: every file in its table is there", "[docs][wire-page]") {
  const std::string text = page();
  const std::string table = text.substr(text.find("| RFC |"));
  const std::regex row(R"(\| [^|]* \| [^|]* \| ([^|]*) \| ([^|]*) \|)");
  const std::regex path("`([^`]+)`");
  std::size_t found = 0;
  for (auto line = std::sregex_iterator(table.begin(), table.end(), row); line != std::sregex_iterator(); ++line) {
    for (const int column : {1, 2}) {
      const std::string cell = (*line)[static_cast<std::size_t>(column)];
      for (auto each = std::sregex_iterator(cell.begin(), cell.end(), path); each != std::sregex_iterator(); ++each) {
        const auto file =
            std::filesystem::path(RNIC_SOURCE_DIR) / (column == 1 ? "dataplane" : "tests") / (*each)[1].str();
        INFO(file);
        CHECK(std::filesystem::exists(file));
        ++found;
      }
    }
  }
  CHECK(found > 80);
}
