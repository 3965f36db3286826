#include "port/spec.hpp"

#include <algorithm>
#include <array>

namespace rnic::port {
namespace {

using Kind = PortSpec::Kind;
using Role = PortSpec::Role;
using Answer = Result<PortSpec, std::string>;

struct Row {
  Kind kind;
  std::string_view name;
  std::string_view form;  // what is accepted
};
constexpr std::array<Row, 8> kRows{{
    {Kind::loopback, "loopback", "loopback"},
    {Kind::pair, "pair", "pair:NAME"},
    {Kind::memif, "memif", "memif:SOCKET,role=server|client[,peer=USER]"},
    {Kind::af_packet, "af_packet", "af_packet:IFACE"},
    {Kind::af_xdp, "af_xdp", "af_xdp:IFACE"},
    {Kind::tap, "tap", "tap:IFACE"},
    {Kind::pci, "pci", "pci:ADDRESS"},
    {Kind::vdev, "vdev", "vdev:STRING"},
}};

const Row& row(Kind kind) { return kRows[static_cast<std::size_t>(kind)]; }

Failure<std::string> refuse(std::string_view text, const std::string& why) {
  return Failure<std::string>{"port \"" + std::string(text) + "\": " + why};
}

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
}
bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool is_printable(char c) { return c > ' ' && c < 0x7f; }

// The kernel takes nearly any octet; DPDK's argument syntax does not.
bool is_interface(std::string_view s) {
  constexpr std::size_t kInterfaceMax = 15;  // IFNAMSIZ less its zero
  return !s.empty() && s.size() <= kInterfaceMax && s != "." && s != ".." &&
         std::all_of(s.begin(), s.end(), [](char c) {
           return is_printable(c) && c != '/' && c != ',' && c != '=' && c != '[' && c != ']' && c != ':';
         });
}

// 0000:00:05.0, or the same without its domain. Empty if it is neither.
std::string pci_address(std::string_view s) {
  std::string full(s);
  if (std::count(s.begin(), s.end(), ':') == 1) full = "0000:" + full;
  constexpr std::string_view kForm = "hhhh:hh:hh.h";
  if (full.size() != kForm.size()) return {};
  for (std::size_t i = 0; i < kForm.size(); ++i)
    if (kForm[i] == 'h' ? !is_hex(full[i]) : full[i] != kForm[i]) return {};
  if (full.back() > '7') return {};
  std::transform(full.begin(), full.end(), full.begin(),
                 [](char c) { return c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c; });
  return full;
}

Answer parse_memif(std::string_view text, std::string_view rest) {
  PortSpec spec{.kind = Kind::memif, .target = {}, .role = Role::none, .peer = {}};
  const auto comma = rest.find(',');
  spec.target = rest.substr(0, comma);
  if (spec.target.empty()) return refuse(text, "no socket is named; write memif:SOCKET,role=server|client");
  if (spec.target.front() != '/')
    return refuse(text, "the socket's path must begin with \"/\", for the daemon has a directory of its own");
  if (!std::all_of(spec.target.begin(), spec.target.end(), is_printable) ||
      spec.target.find_first_of("=[]") != std::string::npos)
    return refuse(text, "the socket's path may hold no blanks and none of , = [ ]");
  if (spec.target.size() > kSocketPathMax)
    return refuse(text, "the socket's path is longer than " + std::to_string(kSocketPathMax) + " characters");

  std::string_view options = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
  while (!options.empty()) {
    const auto end = options.find(',');
    const std::string_view option = options.substr(0, end);
    options = end == std::string_view::npos ? std::string_view{} : options.substr(end + 1);
    if (option == "role=server" || option == "role=client") {
      if (spec.role != Role::none) return refuse(text, "the role is given twice");
      spec.role = option == "role=server" ? Role::server : Role::client;
    } else if (option.starts_with("role=")) {
      return refuse(text, "there is no role \"" + std::string(option.substr(5)) + "\"; it is server or client");
    } else if (option.starts_with("peer=")) {
      if (!spec.peer.empty()) return refuse(text, "the peer is given twice");
      spec.peer = option.substr(5);
      if (spec.peer.empty() || !std::all_of(spec.peer.begin(), spec.peer.end(), is_printable))
        return refuse(text, "peer= is a user's name or number");
    } else {
      return refuse(text,
                    "memif knows no option \"" + std::string(option) + "\"; it has role=server|client and peer=USER");
    }
  }
  if (spec.role == Role::none)
    return refuse(text, "one side of a memif is its server and the other its client: add role=server or role=client");
  return spec;
}

}  // namespace

const char* name(PortSpec::Kind kind) { return row(kind).name.data(); }

bool is_memory(PortSpec::Kind kind) { return kind == Kind::loopback || kind == Kind::pair || kind == Kind::memif; }

std::string to_string(const PortSpec& spec) {
  std::string text(row(spec.kind).name);
  if (spec.kind != Kind::loopback) text += ":" + spec.target;
  if (spec.role == Role::server) text += ",role=server";
  if (spec.role == Role::client) text += ",role=client";
  if (!spec.peer.empty()) text += ",peer=" + spec.peer;
  return text;
}

Answer parse_spec(std::string_view text) {
  const auto colon = text.find(':');
  const std::string_view word = text.substr(0, colon);
  const std::string_view rest = colon == std::string_view::npos ? std::string_view{} : text.substr(colon + 1);
  const auto* found = std::find_if(kRows.begin(), kRows.end(), [&](const Row& r) { return r.name == word; });
  if (found == kRows.end()) {
    std::string forms;
    for (const Row& r : kRows) forms += (forms.empty() ? "" : ", ") + std::string(r.form);
    return refuse(text, "there is no such kind of port; the kinds are " + forms);
  }
  const std::string form(found->form);
  PortSpec spec{.kind = found->kind, .target = std::string(rest), .role = Role::none, .peer = {}};

  switch (found->kind) {
    case Kind::loopback:
      if (colon != std::string_view::npos) return refuse(text, "loopback takes nothing behind it");
      return spec;
    case Kind::pair:
      if (rest.empty() || !std::all_of(rest.begin(), rest.end(), is_name_character))
        return refuse(text, "a pair's name is letters, digits and _ - . ; write " + form);
      return spec;
    case Kind::memif:
      return parse_memif(text, rest);
    case Kind::af_packet:
    case Kind::af_xdp:
    case Kind::tap:
      if (!is_interface(rest))
        return refuse(text, "\"" + spec.target +
                                "\" cannot be an interface's name (1 to 15 characters, none of / : , = [ ] or blank); "
                                "write " +
                                form);
      return spec;
    case Kind::pci:
      spec.target = pci_address(rest);
      if (spec.target.empty())
        return refuse(text, "\"" + std::string(rest) + "\" is no PCI address; write pci:0000:00:05.0 or pci:00:05.0");
      return spec;
    case Kind::vdev:
      if (rest.empty() || !std::all_of(rest.begin(), rest.end(), is_printable))
        return refuse(text, "a DPDK device string without blanks is needed, as in vdev:net_null0,size=64");
      return spec;
  }
  return refuse(text, "there is no such kind of port");
}

}  // namespace rnic::port
