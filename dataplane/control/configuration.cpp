#include "control/configuration.hpp"

#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <map>
#include <set>
#include <span>
#include <sstream>

#include "control/limits.hpp"
#include "control/nearest.hpp"
#include "control/run_directory.hpp"
#include "ip/icmp.hpp"
#include "rnic_control.h"

namespace rnic::control {
namespace {

constexpr const char* kDefaultPort = "loopback";
constexpr const char* kDefaultAddress = "127.0.1.1/24";
constexpr std::uint32_t kVlanMin = 1, kVlanMax = 4094;  // IEEE 802.1Q s9.6
constexpr std::uint16_t kRoceV2Port = 4791;             // of UDP, assigned by IANA
constexpr std::size_t kAddressesMax = ip::OwnAddresses::kMax;

// The first thing that is wrong, and where.
class Reader {
 public:
  explicit Reader(std::string path) : path_(std::move(path)) {}

  const std::string& why() const { return why_; }
  bool good() const { return why_.empty(); }
  void fail(const toml::source_position& where, const std::string& words) {
    if (why_.empty()) why_ = path_ + ":" + std::to_string(where.line) + ": " + words;
  }

 private:
  std::string path_;
  std::string why_;
};

// A key of a table with its value, which is read, or said to be wrong.
struct Field {
  Reader& reader;
  const toml::node& node;
  std::string key;

  void fail(const std::string& words) const { reader.fail(node.source().begin, words); }

  void take(std::string& out) const {
    if (const auto value = node.value_exact<std::string>())
      out = *value;
    else
      fail(key + " is a text in quotes");
  }
  void take(bool& out) const {
    if (const auto value = node.value_exact<bool>())
      out = *value;
    else
      fail(key + " is true or false");
  }
  template <typename T>
  void take_number(std::int64_t least, std::int64_t most, T& out) const {
    const auto value = node.value_exact<std::int64_t>();
    if (value && *value >= least && *value <= most)
      out = static_cast<T>(*value);
    else
      fail(key + " is a number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  void take_seconds(std::int64_t least, std::int64_t most, Duration& out) const {
    std::int64_t value = 0;
    take_number(least, most, value);
    out = seconds(value);
  }
  // One of two words.
  void take_choice(const char* yes, const char* no, bool& out) const {
    const auto value = node.value_exact<std::string>();
    if (value && (*value == yes || *value == no))
      out = *value == yes;
    else
      fail(key + " is \"" + yes + "\" or \"" + no + "\"");
  }
  // One of some words, each with what it means.
  template <typename T>
  void take_word(std::initializer_list<std::pair<const char*, T>> words, T& out) const {
    const auto value = node.value_exact<std::string>();
    std::string all;
    for (const auto& [word, meaning] : words) {
      if (value && *value == word) {
        out = meaning;
        return;
      }
      all += std::string(all.empty() ? "\"" : " or \"") + word + "\"";
    }
    fail(key + " is " + all);
  }
  // A text, or each text in a list; `one` says what is wrong with it, or nothing.
  template <typename One>
  void take_texts(One&& one) const {
    for_each_value([&](const Field& each) {
      const auto text = each.node.template value_exact<std::string>();
      if (!text) return each.fail(key + " is a text in quotes, or a list of them");
      if (const std::string why = one(*text); !why.empty()) each.fail(why);
    });
  }
  template <typename Take>
  void for_each_value(Take&& take) const {
    if (const toml::array* list = node.as_array()) {
      for (const toml::node& each : *list) take(Field{reader, each, key});
    } else {
      take(*this);
    }
  }
};

// A setting: a key of a table, its line of docs/configuration.md, and what its value is checked against and does to
// `T`.
template <typename T>
struct Key {
  std::string_view name;
  std::string_view example;
  std::string_view says;  // what it is without the key, too
  void (*read)(const Field&, T&);
};

template <typename T>
const Key<T>* find_key(std::span<const Key<T>> keys, std::string_view name) {
  const auto found = std::ranges::find(keys, name, &Key<T>::name);
  return found == keys.end() ? nullptr : &*found;
}

// Reads all keys of the table, until one is wrong; `unknown` says what is wrong with one that is not in `keys`.
template <typename T, typename Unknown>
void read_table(Reader& reader, const toml::table& table, std::span<const Key<T>> keys, T& out, Unknown&& unknown) {
  for (const auto& [key, node] : table) {
    const Key<T>* known = find_key(keys, key.str());
    if (known != nullptr)
      known->read({reader, node, std::string(key.str())}, out);
    else
      reader.fail(key.source().begin, unknown(std::string(key.str())));
    if (!reader.good()) return;
  }
}

// A key in quotes, and which one may have been meant.
template <typename T>
std::string with_suggestion(const std::string& key, std::span<const Key<T>> keys) {
  std::vector<std::string_view> names;
  for (const Key<T>& each : keys) names.push_back(each.name);
  return "\"" + key + "\"" + did_you_mean(key, names, "\"");
}

// ---- a device -------------------------------------------------------------------------------

void read_port(const Field& field, DeviceConfiguration& device) {
  std::string text;
  field.take(text);
  if (!field.reader.good()) return;
  const auto spec = port::parse_spec(text);
  if (spec)
    device.port = *spec;
  else
    field.fail(spec.error());
}

void read_addresses(const Field& field, DeviceConfiguration& device) {
  field.for_each_value([&](const Field& each) {
    const auto text = each.node.value_exact<std::string>();
    const auto address = text ? parse_cidr(*text) : std::nullopt;
    if (!address)
      each.fail("an address is written as \"10.0.0.1/24\" or \"2001:db8::1/64\"");
    else
      device.addresses.push_back(*address);
  });
}

void read_crc(const Field& field, DeviceConfiguration& device) {
  const auto word = field.node.value_exact<std::string>();
  const auto required = field.node.value_exact<bool>();
  device.options.crc_trusted = word == "trust";
  device.options.crc_required = required.value_or(true);
  if (!required && !device.options.crc_trusted) field.fail(field.key + " is true, false or \"trust\"");
}

std::string take_gateway(DeviceConfiguration& device, const std::string& text) {
  const auto gateway = wire::parse_ip(text);
  if (!gateway || gateway->is_unspecified() || gateway->is_multicast())
    return "gateway is an IP address, not \"" + text + "\"";
  for (const wire::IpAddress& other : device.gateways)
    if (other.is_v4() == gateway->is_v4())
      return std::string("a device has one gateway of ") + (gateway->is_v4() ? "IPv4" : "IPv6");
  device.gateways.push_back(*gateway);
  return {};
}

// "PREFIX/LEN via GATEWAY".
std::string take_route(DeviceConfiguration& device, const std::string& text) {
  constexpr const char* kForm = "a route is written as \"192.168.0.0/16 via 10.0.0.254\"";
  constexpr std::size_t kRoutesMax = 32;
  std::istringstream words(text);
  std::string prefix, via, gateway, more;
  words >> prefix >> via >> gateway;
  const auto network = prefix.find('/') == std::string::npos ? std::nullopt : parse_cidr(prefix);
  const auto hop = wire::parse_ip(gateway);
  if (!network || via != "via" || !hop || words >> more) return kForm;
  if (hop->is_v4() != network->address.is_v4() || hop->is_unspecified() || hop->is_multicast())
    return "\"" + text + "\": the gateway is of the other version of IP, or none";
  if (network->prefix_length == 0) return "\"" + text + "\": the default route is written as gateway";
  if (device.routes.size() == kRoutesMax) return "a device has up to " + std::to_string(kRoutesMax) + " routes";
  device.routes.push_back({.prefix = network->address, .bits = network->prefix_length, .gateway = *hop});
  return {};
}

void read_mode(const Field& field, DeviceConfiguration& device) {
  const auto text = field.node.value_exact<std::string>();
  if (text == "own")
    device.mode = core::AddressMode::own;
  else if (text == "local")
    device.mode = core::AddressMode::local;
  else if (text == "shared")
    field.fail("mode \"shared\" is not served yet; give the device an address of its own");
  else
    field.fail("mode is \"own\" or \"local\"");
}

void read_mac(const Field& field, DeviceConfiguration& device) {
  std::string text;
  field.take(text);
  const auto mac = wire::parse_mac(text);
  if (mac && !mac->is_multicast())
    device.port_options.mac = *mac;
  else
    field.fail("mac is a unicast address such as \"02:00:00:00:00:01\"");
}

void read_markers(const Field& field, DeviceConfiguration& device) {
  const auto text = field.node.value_exact<std::string>();
  if (text == "never")
    device.options.markers = mpa::MarkerUse::never;
  else if (text == "send")
    device.options.markers = mpa::MarkerUse::send;
  else if (text == "both")
    device.options.markers = mpa::MarkerUse::both;
  else
    field.fail("markers is \"never\", \"send\" or \"both\"");
}

void read_congestion(const Field& field, DeviceConfiguration& device) {
  using tcp::Algorithm;
  field.take_word<Algorithm>(
      {{"cubic", Algorithm::cubic}, {"newreno", Algorithm::newreno}, {"dctcp", Algorithm::dctcp}},
      device.options.tcp.congestion);
}

void read_ecn(const Field& field, DeviceConfiguration& device) {
  using tcp::EcnUse;
  field.take_word<EcnUse>({{"off", EcnUse::off}, {"passive", EcnUse::passive}, {"on", EcnUse::on}},
                          device.ecn.emplace());
}

void read_rto_min(const Field& field, DeviceConfiguration& device) {
  std::int64_t value = device.options.tcp.rto_min.ns / 1'000'000;
  field.take_number(1, 60'000, value);
  device.options.tcp.rto_min = milliseconds(value);
}

void read_window(const Field& field, DeviceConfiguration& device) {
  std::uint32_t mib = 256;
  field.take_number(1, 256, mib);
  device.options.tcp.window_max_bytes = std::min(mib << 20, tcp::Options::kWindowMax);
}

constexpr Key<DeviceConfiguration> kDeviceKeys[] = {
    {"port", R"("af_packet:eth1")", "what `rnic --help` lists", read_port},
    {"address", R"(["10.0.0.1/24", "2001:db8::1/64"])", "loopback, left out: 127.0.1.1/24", read_addresses},
    {"name", R"("rnic0")", "begins with \"rnic\"; left out: rnic0, rnic1, … in order",
     [](const Field& field, auto& device) { field.take(device.name); }},
    {"mode", R"("own")", "addresses are the device's alone; \"local\": 127.x.x.x, for this host only", read_mode},
    {"mtu", "9000", "in memory 65535; else the interface's, otherwise 1500; 576 at least, with IPv6 1280",
     [](const Field& field, auto& device) {
       field.take_number(port::kMtuMin, port::kMtuMax, device.port_options.mtu_bytes);
     }},
    {"mac", R"("02:00:00:00:00:01")", "the driver's or the interface's, otherwise by chance", read_mac},
    {"vlan", "100", "untagged",
     [](const Field& field, auto& device) { field.take_number(kVlanMin, kVlanMax, device.options.vlan.emplace()); }},
    {"gateway", R"(["10.0.0.254", "fe80::1"])", "none; one of each version of IP",
     [](const Field& field, auto& device) {
       field.take_texts([&](const std::string& text) { return take_gateway(device, text); });
     }},
    {"routes", R"(["192.168.0.0/16 via 10.0.0.253"])", "none",
     [](const Field& field, auto& device) {
       field.take_texts([&](const std::string& text) { return take_route(device, text); });
     }},
    {"accept_ra", "false", "believe IPv6 routers; on for IPv6 on a wire of others without a gateway",
     [](const Field& field, auto& device) { field.take(device.accept_ra.emplace()); }},
    {"probe", "true", "ask whether an address is taken before using it; on on a wire of others",
     [](const Field& field, auto& device) { field.take(device.probe.emplace()); }},

    {"congestion", R"("cubic")", "or \"newreno\", or \"dctcp\" where switches mark early", read_congestion},
    {"ecn", R"("passive")", "agree when asked; \"on\": ask too (with dctcp: on); \"off\"", read_ecn},
    {"nagle", "false", "hold back what is small while something is on its way",
     [](const Field& field, auto& device) { field.take(device.options.tcp.nagle); }},
    {"keepalive_s", "0", "ask a silent peer so often whether it is there; 0: never",
     [](const Field& field, auto& device) { field.take_seconds(0, 86'400, device.options.tcp.keepalive); }},
    {"retransmissions", "12", "then a peer that does not answer is given up: five minutes and more; 9: two",
     [](const Field& field, auto& device) { field.take_number(3, 100, device.options.tcp.retransmissions_max); }},
    {"rto_min_ms", "200",
     "the least time after which what is not acknowledged is sent again; less only in a data centre",
     [](const Field& field, auto& device) { read_rto_min(field, device); }},
    {"window_mib", "256", "a connection's windows begin with 1 and grow up to it where the path is long; 1 to 256",
     [](const Field& field, auto& device) { read_window(field, device); }},
    {"hop_limit", "64", "TTL; of IPv6 what a router advertises, else 64",
     [](const Field& field, auto& device) { field.take_number(1, 255, device.options.hop_limit.emplace()); }},
    {"timestamps", "true", "RFC 7323, 12 octets of each segment: PAWS; off on loopback, pair and memif",
     [](const Field& field, auto& device) { field.take(device.timestamps.emplace()); }},

    {"crc", "true", "false: only where the peer wants it; \"trust\": made, not checked, on loopback, pair and memif",
     [](const Field& field, auto& device) { read_crc(field, device); }},
    {"markers", R"("send")", "to a peer that asks; \"both\": ask, too, which lets data be placed early; \"never\"",
     read_markers},
    {"mpa_revision", "2", "1: no IRD and ORD, no ready-to-receive message",
     [](const Field& field, auto& device) { field.take_number(1, 2, device.options.mpa_revision); }},
    {"request_timeout_s", "10", "who connects and has not asked by then is let go",
     [](const Field& field, auto& device) { field.take_seconds(1, 86'400, device.options.request_timeout); }},
    {"reply_timeout_s", "20", "so long a call waits for the peer's application to accept it or not",
     [](const Field& field, auto& device) { field.take_seconds(1, 86'400, device.options.reply_timeout); }},
    {"peer_to_peer", "true", "as initiator offer to send first (RFC 6581)",
     [](const Field& field, auto& device) { field.take(device.options.peer_to_peer); }},
    {"extensions", "true", "atomics and immediate data (RFC 7306); on on loopback, pair and memif",
     [](const Field& field, auto& device) { field.take(device.extensions.emplace()); }},

    {"rnr", R"("hold")", "a Send that finds no receive waits; \"terminate\": it ends the connection",
     [](const Field& field, auto& device) {
       field.take_choice("hold", "terminate", device.queue_pairs.hold_without_receive);
     }},
    {"rnr_timeout_s", "30", "for so long; 0: for ever",
     [](const Field& field, auto& device) { field.take_seconds(0, 86'400, device.queue_pairs.rnr_timeout); }},
    {"read_sink", R"("local")", "what an RDMA Read goes to needs Local Write; \"strict\": Remote Write",
     [](const Field& field, auto& device) {
       field.take_choice("strict", "local", device.queue_pairs.strict_read_sink);
     }},
    {"face", R"("iwarp")", "or \"roce\": shown as such a device; with other rnics only, and with oob_connect",
     [](const Field& field, auto& device) {
       field.take_word<Face>({{"iwarp", Face::iwarp}, {"roce", Face::roce}}, device.options.face);
     }},
    {"oob_connect", "false", "connect queue pairs by ibv_modify_qp too, without rdma_cm; with other rnics only",
     [](const Field& field, auto& device) { field.take(device.oob_connect.emplace()); }},
    {"oob_port", "26580", "the TCP port where they meet, the same at both ends",
     [](const Field& field, auto& device) { field.take_number(1, 65'535, device.options.oob_port); }},
    {"ud_port", "26581", "the UDP port of the RoCE face's datagrams, the same at both ends",
     [](const Field& field, auto& device) {
       field.take_number(1, 65'535, device.options.ud_port);
       if (device.options.ud_port == kRoceV2Port)
         field.fail("ud_port is not 4791: that is RoCE v2's, and these are none");
     }},
    {"local", R"("direct")",
     "between queue pairs of one worker: without the wire; \"wire\": by it, as is usual on ports but loopback and pair",
     [](const Field& field, auto& device) { field.take_choice("direct", "wire", device.local_direct.emplace()); }},
    {"streams_max", "16384", "connections",
     [](const Field& field, auto& device) { field.take_number(16, 1'048'576, device.options.streams_max); }},

    {"buffers", "16384", "frames in the port's pool; long ones besides, 128 MiB at most, or 512 (af_packet, long MTU)",
     [](const Field& field, auto& device) { field.take_number(512, 4'194'304, device.port_options.buffers); }},
    {"core", "2", "which of `cores` serves the device",
     [](const Field& field, auto& device) { field.take_number(0, 4095, device.core); }},
    {"workers", "1", "so many of them share the device's connections, from that one on",
     [](const Field& field, auto& device) { field.take_number(1, RNIC_WORKERS_MAX, device.workers); }},
};
constexpr std::span<const Key<DeviceConfiguration>> device_keys() { return kDeviceKeys; }
std::span<const Key<Configuration>> root_keys();

void read_device(Reader& reader, const toml::table& table, DeviceConfiguration& device) {
  read_table(reader, table, device_keys(), device, [](const std::string& key) {
    return find_key(root_keys(), key) != nullptr
               ? "\"" + key + "\" is a key of the daemon; put it above the first [[device]]"
               : "a device has no " + with_suggestion(key, device_keys());
  });
  if (reader.good() && !device.port)
    reader.fail(table.source().begin, "a device needs a port, such as port = \"loopback\"");
}

// ---- the daemon -----------------------------------------------------------------------------

void read_devices(const Field& field, Configuration& configuration) {
  const toml::array* list = field.node.as_array();
  if (list == nullptr) return field.fail("devices are written as [[device]]");
  for (const toml::node& each : *list) {
    const toml::table* table = each.as_table();
    if (table == nullptr) return field.reader.fail(each.source().begin, "devices are written as [[device]]");
    read_device(field.reader, *table, configuration.devices.emplace_back());
    if (!field.reader.good()) return;
  }
}

void read_log_level(const Field& field, Configuration& configuration) {
  static constexpr const char* kLevels[] = {"trace", "debug", "info", "warn", "error"};
  field.take(configuration.log_level);
  if (std::find(std::begin(kLevels), std::end(kLevels), configuration.log_level) == std::end(kLevels))
    field.fail("log_level is \"trace\", \"debug\", \"info\", \"warn\" or \"error\"");
}

void read_cores(const Field& field, Configuration& configuration) {
  const toml::array* list = field.node.as_array();
  if (list == nullptr || list->empty() || list->size() > RNIC_WORKERS_MAX)
    return field.fail("cores is a list of up to " + std::to_string(RNIC_WORKERS_MAX) + " numbers, such as [2]");
  for (const toml::node& each : *list)
    Field{field.reader, each, "each of cores"}.take_number(0, 4095, configuration.cores.emplace_back());
}

constexpr Key<Configuration> kRootKeys[] = {
    {"name", R"("default")", "of the daemon: rnic run --name …",
     [](const Field& field, auto& daemon) { field.take(daemon.name); }},
    {"log_level", R"("info")", "trace, debug, info, warn, error; debug tells of each connection's life",
     read_log_level},
    {"cores", "[2, 3]", "a worker on each, which must exist; left out: one worker on any core", read_cores},
    {"poll", R"("sleep")", "or \"always\": the workers do not sleep and fill their cores, while nobody else runs there",
     [](const Field& field, auto& daemon) { field.take_choice("always", "sleep", daemon.worker.poll_always); }},
    {"sleep_delay_us", "0", "how long a worker stays awake after its last work",
     [](const Field& field, auto& daemon) {
       std::int64_t value = 0;
       field.take_number(0, 1'000'000, value);
       daemon.worker.sleep_delay = microseconds(value);
     }},
    {"sched_fifo", "true", "real-time priority for the workers, where allowed",
     [](const Field& field, auto& daemon) { field.take(daemon.worker.realtime); }},
    {"page_wait_s", "2", "an application whose page does not come for so long is ended; 0: never",
     [](const Field& field, auto& daemon) { field.take_seconds(0, 86'400, daemon.page_wait); }},
    {"device", {}, "as often as there are devices", read_devices},
};
std::span<const Key<Configuration>> root_keys() { return kRootKeys; }

void read_root(Reader& reader, const toml::table& table, Configuration& configuration) {
  read_table(reader, table, root_keys(), configuration, [](const std::string& key) {
    return find_key(device_keys(), key) != nullptr ? "\"" + key + "\" is a key of a device; put it below a [[device]]"
                                                   : "there is no " + with_suggestion(key, root_keys());
  });
}

// Whose an option of the command line is: the device's of the --port before it, else everybody's.
DeviceConfiguration& addressee(Configuration& configuration) {
  const bool begun = !configuration.devices.empty() && configuration.devices.back().of_command_line;
  return begun ? configuration.devices.back() : configuration.for_all;
}

// For what a device has one of: not said twice on the command line.
std::string twice(const char* option, const std::string& text) {
  return std::string(option) + " " + text + " is the second " + option + " of one device";
}

std::string add_port(Configuration& configuration, const std::string& spec) {
  const auto parsed = port::parse_spec(spec);
  if (!parsed) return parsed.error();
  DeviceConfiguration& device = configuration.devices.emplace_back();
  device.port = *parsed;
  device.of_command_line = true;
  return {};
}

std::string add_address(Configuration& configuration, const std::string& text) {
  const auto address = parse_cidr(text);
  if (!address) {
    const bool prefix = wire::parse_ip(text.substr(0, text.find('/'))).has_value();
    return "\"" + text + (prefix ? "\": no such prefix" : "\" is no address") +
           "; one is written as 10.0.0.1/24 or 2001:db8::1/64";
  }
  addressee(configuration).addresses.push_back(*address);
  return {};
}

std::string set_mtu(Configuration& configuration, const std::string& text) {
  std::uint32_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9' || value > port::kMtuMax)
      return "\"" + text + "\" is no MTU: it is a number of octets, as 9000";
    value = value * 10 + static_cast<std::uint32_t>(c - '0');
  }
  if (value < port::kMtuMin || value > port::kMtuMax)
    return "an MTU is between " + std::to_string(port::kMtuMin) + " and " + std::to_string(port::kMtuMax) + ", not " +
           text;
  auto& mtu = addressee(configuration).port_options.mtu_bytes;
  if (mtu != 0) return twice("--mtu", text);
  mtu = value;
  return {};
}

std::string set_vlan(Configuration& configuration, const std::string& text) {
  std::uint32_t value = 0;
  for (const char c : text)
    value = c < '0' || c > '9' || value > kVlanMax ? kVlanMax + 1 : value * 10 + static_cast<std::uint32_t>(c - '0');
  if (value < kVlanMin || value > kVlanMax)
    return "a VLAN is a number from " + std::to_string(kVlanMin) + " to " + std::to_string(kVlanMax) + ", not \"" +
           text + "\"";
  auto& vlan = addressee(configuration).options.vlan;
  if (vlan) return twice("--vlan", text);
  vlan = static_cast<std::uint16_t>(value);
  return {};
}

std::string set_mac(Configuration& configuration, const std::string& text) {
  const auto mac = wire::parse_mac(text);
  if (!mac || mac->is_multicast())
    return "\"" + text + "\" is no MAC; one is a unicast address such as 02:00:00:00:00:01";
  auto& before = addressee(configuration).port_options.mac;
  if (before) return twice("--mac", text);
  before = *mac;
  return {};
}

// What was said of all devices. It wins over the file, and gives way to what the command line says of one.
void take_general(const DeviceConfiguration& general, DeviceConfiguration& device) {
  const bool wins = !device.of_command_line;
  if (general.port_options.mtu_bytes != 0 && (wins || device.port_options.mtu_bytes == 0))
    device.port_options.mtu_bytes = general.port_options.mtu_bytes;
  if (general.options.vlan && (wins || !device.options.vlan)) device.options.vlan = general.options.vlan;
  for (const wire::IpAddress& gateway : general.gateways) {
    const auto same = std::find_if(device.gateways.begin(), device.gateways.end(),
                                   [&](const wire::IpAddress& other) { return other.is_v4() == gateway.is_v4(); });
    if (same == device.gateways.end())
      device.gateways.push_back(gateway);
    else if (wins)
      *same = gateway;
  }
  // These are here only where there is one device.
  device.addresses.insert(wins ? device.addresses.end() : device.addresses.begin(), general.addresses.begin(),
                          general.addresses.end());
  if (general.port_options.mac && (wins || !device.port_options.mac))
    device.port_options.mac = general.port_options.mac;
}

std::string spread_general(Configuration& configuration) {
  const DeviceConfiguration& general = configuration.for_all;
  if (configuration.devices.size() > 1 && (!general.addresses.empty() || general.port_options.mac))
    return std::string(general.addresses.empty() ? "--mac" : "--address") + " " +
           (general.addresses.empty() ? wire::to_string(*general.port_options.mac)
                                      : wire::to_string(general.addresses.front().address)) +
           " belongs to one device, and there are " + std::to_string(configuration.devices.size()) +
           "; put it behind the --port of its device";
  for (DeviceConfiguration& device : configuration.devices) take_general(general, device);
  return {};
}

// What an address of IPv4 is, if not a host's; null: it is one. Networks of two addresses, or one, have no other (RFC
// 3021).
const char* no_host(const core::DeviceAddress& each) {
  constexpr std::uint8_t kPrefixMax = 30;
  if (!each.address.is_v4() || each.prefix_length > kPrefixMax) return nullptr;
  const std::uint32_t hosts = 0xFFFFFFFF >> each.prefix_length;
  const std::uint32_t host = each.address.to_v4() & hosts;
  if (host == 0) return "the address of a network";
  return host == hosts ? "the broadcast address of its network" : nullptr;
}

std::string complete_device(DeviceConfiguration& device) {
  using Kind = port::PortSpec::Kind;
  const std::string port_text = port::to_string(*device.port);
  const std::string called = device.name + " (" + port_text + ")";
  if (device.addresses.empty()) {
    if (device.port->kind != Kind::loopback)
      return called + " has no address; give it one, such as --address 10.0.0.1/24";
    device.addresses.push_back(*parse_cidr(kDefaultAddress));
  }
  const auto v6 = [](const core::DeviceAddress& each) { return each.address.is_v6(); };
  device.options.ipv6 =
      device.accept_ra.value_or(false) || std::any_of(device.addresses.begin(), device.addresses.end(), v6);
  device.port_options.groups = device.options.ipv6;
  const bool link_local = std::any_of(device.addresses.begin(), device.addresses.end(),
                                      [&](const auto& each) { return v6(each) && each.address.is_link_local(); });
  if (device.addresses.size() + (device.options.ipv6 && !link_local ? 1 : 0) > kAddressesMax)
    return called + " has more than 8 addresses" + (device.options.ipv6 ? ", its link-local one counted" : "");
  if (device.options.ipv6 && device.port_options.mtu_bytes != 0 && device.port_options.mtu_bytes < ip::kPathMtuMinV6)
    return called + ": IPv6 needs an MTU of at least " + std::to_string(ip::kPathMtuMinV6);
  // The kernel serves the same address for the application's own TCP, so ours must not be on a wire
  // that the kernel hears (docs/configuration.md, mode).
  const bool may_be_local = port::is_memory(device.port->kind);
  if (device.options.crc_trusted && !may_be_local)
    return called + ": crc \"trust\" is for loopback, pair and memif ports only; on a wire each CRC is checked";
  // Nobody but rnic is at the other end of such a port.
  if (device.options.face == Face::roce) {
    if (device.extensions == false) return called + ": a device of face \"roce\" has extensions, always";
    if (device.oob_connect == false) return called + ": a device of face \"roce\" has oob_connect, always";
    device.extensions = device.oob_connect = true;
    device.queue_pairs.face = Face::roce;
  }
  device.options.oob_connect = device.oob_connect.value_or(false);
  if (!device.extensions) device.extensions = may_be_local;
  // An old segment comes late only on a wire (PAWS), and there SYN cookies need room for SACK and window scale.
  if (!device.timestamps) device.timestamps = !may_be_local;
  bool some_local = false;
  for (const core::DeviceAddress& each : device.addresses) {
    const std::string text = wire::to_string(each.address);
    if (each.address.is_unspecified() || each.address.is_multicast() || each.address.is_limited_broadcast())
      return called + ": " + text + " is no address for a device";
    if (const char* const what = no_host(each); what != nullptr)
      return called + ": " + text + "/" + std::to_string(each.prefix_length) + " is " + what +
             "; a device needs one of its own";
    const bool local = each.address.is_loopback();
    some_local |= local;
    if (local && !may_be_local)
      return called + ": addresses of 127.0.0.0/8 and ::1 are for loopback, pair and memif ports only; " + text +
             " is one";
    if (local && device.mode == core::AddressMode::own)
      return called + ": " + text + " is of 127.0.0.0/8 or ::1, whose mode is \"local\"";
    if (!local && device.mode == core::AddressMode::local)
      return called + ": mode \"local\" is for addresses of 127.0.0.0/8 and ::1; " + text + " is none";
  }
  if (!device.mode) device.mode = some_local ? core::AddressMode::local : core::AddressMode::own;
  const auto on_link = [&](const wire::IpAddress& gateway) {
    if (gateway.is_v6() && gateway.is_link_local()) return device.options.ipv6;
    return std::any_of(device.addresses.begin(), device.addresses.end(),
                       [&](const auto& each) { return wire::same_network(each.address, gateway, each.prefix_length); });
  };
  const auto is_own = [&](const wire::IpAddress& gateway) {
    return std::any_of(device.addresses.begin(), device.addresses.end(),
                       [&](const core::DeviceAddress& own) { return own.address == gateway; });
  };
  bool gateway_v6 = false;
  for (const wire::IpAddress& gateway : device.gateways) {
    gateway_v6 |= gateway.is_v6();
    if (!on_link(gateway)) return called + ": its gateway " + wire::to_string(gateway) + " is on none of its networks";
    if (is_own(gateway)) return called + ": its gateway " + wire::to_string(gateway) + " is an address of its own";
  }
  for (const ip::Route& route : device.routes) {
    const std::string words = called + ": the gateway " + wire::to_string(route.gateway) + " of a route is ";
    if (!on_link(route.gateway)) return words + "on none of its networks";
    if (is_own(route.gateway)) return words + "an address of its own";
  }
  // Where nobody but rnic is on the wire there is no router, and the daemon's own addresses are looked
  // through below.
  if (!device.accept_ra) device.accept_ra = device.options.ipv6 && !may_be_local && !gateway_v6;
  if (!device.probe) device.probe = !may_be_local;
  device.options.mode = *device.mode;
  device.options.accept_ra = *device.accept_ra;
  device.options.probe = *device.probe;
  device.options.tcp.timestamps = *device.timestamps;
  const bool dctcp = device.options.tcp.congestion == tcp::Algorithm::dctcp;
  device.options.tcp.ecn = device.ecn.value_or(dctcp ? tcp::EcnUse::on : tcp::EcnUse::passive);
  device.queue_pairs.extensions = *device.extensions;
  const bool in_memory = device.port->kind == Kind::loopback || device.port->kind == Kind::pair;
  device.options.local_direct = device.local_direct.value_or(in_memory);
  return {};
}

}  // namespace

std::optional<core::DeviceAddress> parse_cidr(const std::string& text) {
  const auto slash = text.find('/');
  const auto address = wire::parse_ip(text.substr(0, slash));
  if (!address) return std::nullopt;
  core::DeviceAddress parsed{*address, address->is_v4() ? std::uint8_t{24} : std::uint8_t{64}};
  if (slash == std::string::npos) return parsed;
  const std::string length = text.substr(slash + 1);
  if (length.empty() || length.size() > 3) return std::nullopt;
  unsigned value = 0;
  for (const char c : length) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<unsigned>(c - '0');
  }
  if (value > (address->is_v4() ? 32u : 128u)) return std::nullopt;
  parsed.prefix_length = static_cast<std::uint8_t>(value);
  return parsed;
}

std::string read_configuration(const std::string& path, Configuration& configuration) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return "cannot read " + path + ": " + std::strerror(errno);
  return parse_configuration(text.str(), path, configuration);
}

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const auto& key : root_keys()) all.push_back({key.name, key.example, key.says});
  for (const auto& key : device_keys()) all.push_back({key.name, key.example, key.says});
  return all;
}

std::string parse_configuration(const std::string& text, const std::string& path, Configuration& configuration) {
  Reader reader(path);
  const toml::parse_result result = toml::parse(text);
  if (!result) {
    reader.fail(result.error().source().begin, std::string(result.error().description()));
    return reader.why();
  }
  read_root(reader, result.table(), configuration);
  return reader.why();
}

std::string take_option(Configuration& configuration, DeviceOption option, const std::string& text) {
  switch (option) {
    case DeviceOption::port:
      return add_port(configuration, text);
    case DeviceOption::address:
      return add_address(configuration, text);
    case DeviceOption::mtu:
      return set_mtu(configuration, text);
    case DeviceOption::vlan:
      return set_vlan(configuration, text);
    case DeviceOption::gateway:
      return take_gateway(addressee(configuration), text);
    case DeviceOption::mac:
      return set_mac(configuration, text);
  }
  return {};
}

std::string complete(Configuration& configuration) {
  if (!good_name(configuration.name))
    return "\"" + configuration.name + "\" is not a name: letters, digits, '-', '_' and '.' only";
  if (configuration.devices.empty()) {
    if (auto why = add_port(configuration, kDefaultPort); !why.empty()) return why;
  }
  if (auto why = spread_general(configuration); !why.empty()) return why;
  if (configuration.devices.size() > kDevicesMax)
    return "a daemon has up to " + std::to_string(kDevicesMax) + " devices, not " +
           std::to_string(configuration.devices.size());

  std::set<std::string> names;
  for (const DeviceConfiguration& device : configuration.devices)
    if (!device.name.empty()) {
      if (!good_name(device.name) || device.name.size() >= RNIC_NAME_MAX)
        return "\"" + device.name + "\" is not a device's name: letters, digits, '-', '_' and '.' only, at most " +
               std::to_string(RNIC_NAME_MAX - 1);
      // The provider is chosen by the device's name.
      if (device.name.rfind("rnic", 0) != 0)
        return "\"" + device.name + "\": the name of a device begins with \"rnic\"";
      if (!names.insert(device.name).second) return "two devices are called " + device.name;
    }
  unsigned number = 0;
  for (DeviceConfiguration& device : configuration.devices) {
    while (device.name.empty()) {
      std::string name = "rnic" + std::to_string(number++);
      if (names.insert(name).second) device.name = std::move(name);
    }
    device.port_options.name = device.name;
    if (auto why = complete_device(device); !why.empty()) return why;
    if (device.core >= 0 &&
        std::find(configuration.cores.begin(), configuration.cores.end(), device.core) == configuration.cores.end())
      return device.name + ": core " + std::to_string(device.core) + " is none of the daemon's cores";
    const std::size_t workers = std::max<std::size_t>(configuration.cores.size(), 1);
    if (device.workers > workers)
      return device.name + ": workers = " + std::to_string(device.workers) + ", and the daemon has " +
             std::to_string(workers) + ": one for each of its cores, as in cores = [2, 3]";
    using Kind = port::PortSpec::Kind;
    if (device.workers > 1 && (device.port->kind == Kind::loopback || device.port->kind == Kind::pair))
      return device.name + ": a device of a port \"" + port::to_string(*device.port) + "\" is one worker's";
  }

  std::map<wire::IpAddress, const DeviceConfiguration*> addresses;
  for (const DeviceConfiguration& device : configuration.devices)
    for (const core::DeviceAddress& each : device.addresses)
      if (const auto [had, fresh] = addresses.emplace(each.address, &device); !fresh)
        return (had->second == &device ? device.name + " has twice" : std::string("two devices have")) +
               " the address " + wire::to_string(each.address);

  // The ends of a pair share memory that is one worker's (port/pair_port.hpp).
  for (const DeviceConfiguration& a : configuration.devices)
    for (const DeviceConfiguration& b : configuration.devices)
      if (&a != &b && a.port->kind == port::PortSpec::Kind::pair && *a.port == *b.port && a.core != b.core)
        return a.name + " and " + b.name + " are the ends of a pair and need the same core";
  // What comes to an interface is one af_xdp port's alone.
  for (const DeviceConfiguration& a : configuration.devices)
    for (const DeviceConfiguration& b : configuration.devices)
      if (&a != &b && a.port->kind == port::PortSpec::Kind::af_xdp && a.port->target == b.port->target &&
          (b.port->kind == port::PortSpec::Kind::af_packet || b.port->kind == port::PortSpec::Kind::af_xdp))
        return a.name + " takes all that comes to " + a.port->target + " (af_xdp): nothing would come to " + b.name +
               "; give it another interface, or give one device all addresses";
  return {};
}

}  // namespace rnic::control
