// Devices that do what a test says, and note what the connection manager asked of them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "control/addresses.hpp"
#include "control/connection_manager.hpp"
#include "core/device_options.hpp"

namespace rnic::test {

struct FakeCmHost final : control::CmHost {
  struct Listening {
    std::uint32_t device;
    wire::IpAddress address;
    std::uint16_t port;
    std::uint32_t backlog;
    std::uint64_t cookie;
    bool v6_only;
  };
  struct Connecting {
    std::uint32_t device;
    core::ConnectOptions options;
    control::QpClaim qp;
  };
  struct Accepting {
    std::uint32_t device;
    core::StreamId stream;
    core::AcceptOptions options;
    control::QpClaim qp;
  };
  using StreamOf = std::pair<std::uint32_t, core::StreamId>;

  std::vector<Listening> listening;
  std::vector<Connecting> connects;
  std::vector<Accepting> accepts;
  std::vector<Connecting> greetings;
  std::vector<Accepting> welcomes;
  std::vector<StreamOf> confirmed;
  std::vector<std::pair<StreamOf, core::PrivateData>> answers;
  std::vector<std::string> told;
  std::vector<std::pair<StreamOf, core::PrivateData>> rejects;
  std::optional<control::Rejects> last_rejects;
  std::vector<StreamOf> disconnects;
  std::size_t abrupt = 0;                         // of these
  std::size_t abandons = 0, unlistens = 0;        // calls
  std::map<std::uint32_t, std::uint64_t> counts;  // of each channel's descriptor
  // What the next commands answer, first of each kind first.
  std::vector<core::StreamError> connect_errors, accept_errors, listen_errors;
  std::uint64_t next_stream = 1;
  Instant time{1};

  Result<Done, core::StreamError> listen(std::uint32_t device, const wire::IpAddress& address, std::uint16_t port,
                                         std::uint32_t backlog, std::uint64_t cookie, bool v6_only) override {
    if (!listen_errors.empty()) return Failure{take(listen_errors)};
    listening.push_back({device, address, port, backlog, cookie, v6_only});
    return Done{};
  }
  void unlisten(std::uint32_t device, const std::vector<CmHost::Listening>& listeners) override {
    ++unlistens;
    for (const CmHost::Listening& each : listeners)
      std::erase_if(listening, [&](const Listening& it) {
        return it.device == device && it.address == each.address && it.port == each.port;
      });
  }
  Result<core::StreamId, core::StreamError> connect(std::uint32_t device, const core::ConnectOptions& options,
                                                    const control::QpClaim& qp) override {
    connects.push_back({device, options, qp});
    if (!connect_errors.empty()) return Failure{take(connect_errors)};
    return core::StreamId{next_stream++};
  }
  Result<Done, core::StreamError> accept(std::uint32_t device, core::StreamId stream,
                                         const core::AcceptOptions& options, const control::QpClaim& qp) override {
    accepts.push_back({device, stream, options, qp});
    if (!accept_errors.empty()) return Failure{take(accept_errors)};
    return Done{};
  }
  Result<core::StreamId, core::StreamError> greet(std::uint32_t device, const core::ConnectOptions& options) override {
    greetings.push_back({device, options, {}});
    if (!connect_errors.empty()) return Failure{take(connect_errors)};
    return core::StreamId{next_stream++};
  }
  Result<Done, core::StreamError> welcome(std::uint32_t device, core::StreamId stream,
                                          const core::AcceptOptions& options) override {
    welcomes.push_back({device, stream, options, {}});
    if (!accept_errors.empty()) return Failure{take(accept_errors)};
    return Done{};
  }
  Result<Done, core::StreamError> confirm(std::uint32_t device, core::StreamId stream) override {
    confirmed.push_back({device, stream});
    return Done{};
  }
  Result<Done, core::StreamError> answer_inquiry(std::uint32_t device, core::StreamId stream,
                                                 const core::PrivateData& said) override {
    answers.push_back({{device, stream}, said});
    if (!accept_errors.empty()) return Failure{take(accept_errors)};
    return Done{};
  }
  void tell_unfit(std::uint32_t, const wire::IpAddress& peer, const char* words) override {
    told.push_back(wire::to_string(peer) + " " + words);
  }
  Result<Done, core::StreamError> reject(std::uint32_t device, core::StreamId stream,
                                         const core::PrivateData& private_data, control::Rejects who) override {
    last_rejects = who;
    rejects.push_back({{device, stream}, private_data});
    return Done{};
  }
  void disconnect(std::uint32_t device, core::StreamId stream, core::Disconnect how) override {
    disconnects.push_back({device, stream});
    abrupt += how == core::Disconnect::abrupt;
  }
  void abandon(std::uint32_t device, const std::vector<Abandoned>& streams) override {
    ++abandons;
    for (const Abandoned& each : streams)
      if (each.unanswered)
        (void)reject(device, each.stream, {}, control::Rejects::application);
      else
        disconnect(device, each.stream, core::Disconnect::abrupt);
  }
  void events_added(std::uint32_t channel, std::uint32_t count) override { counts[channel] += count; }
  Instant now() const override { return time; }

 private:
  static core::StreamError take(std::vector<core::StreamError>& errors) {
    const core::StreamError first = errors.front();
    errors.erase(errors.begin());
    return first;
  }
};

inline rnic_address ipv4(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d, std::uint16_t port = 0) {
  return control::to_abi(wire::IpAddress::v4(a, b, c, d), port);
}

inline core::DeviceAddress cidr(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d, unsigned length) {
  return {wire::IpAddress::v4(a, b, c, d), static_cast<std::uint8_t>(length)};
}

// A daemon with four devices: the ends of a pair (0 and 1), one on a network with a gateway (2), and
// a loopback (3).
struct CmWorld {
  static control::CmDevice device(std::uint64_t guid, const std::vector<core::DeviceAddress>& addresses,
                                  int mate = -1) {
    control::CmDevice made;
    made.node_guid = guid;
    made.mate = mate;
    for (const core::DeviceAddress& each : addresses) {
      made.addresses.push_back(each.address);
      made.routes.add_own(each.address, each.prefix_length);
    }
    return made;
  }
  static std::vector<control::CmDevice> devices() {
    std::vector<control::CmDevice> list(4);
    list[0] = device(0xA0, {cidr(127, 0, 1, 1, 24)}, 1);
    list[1] = device(0xA1, {cidr(127, 0, 1, 2, 24)}, 0);
    list[2] = device(0xA2, {cidr(10, 0, 0, 1, 24), cidr(10, 9, 0, 1, 16)});
    list[2].routes.set_gateway(wire::IpAddress::v4(10, 0, 0, 254));
    list[3] = device(0xA3, {cidr(127, 0, 2, 1, 24)});
    return list;
  }

  explicit CmWorld(std::vector<control::CmDevice> list = devices()) : cm(std::move(list), host, 7) {}

  FakeCmHost host;
  control::ConnectionManager cm;
  std::uint32_t channel = cm.open_channel();
  static constexpr control::DeviceSet kAll = 0xF;

  std::uint32_t id(std::uint64_t user_pointer = 0x1000, control::DeviceSet visible = kAll) {
    return *cm.create_id(channel, 0x0106, user_pointer, visible);
  }
  // The event that must be there, with its count taken from the descriptor.
  rnic_cm_get_event_reply event() {
    const auto got = cm.get_event(channel);
    if (!got) {
      rnic_cm_get_event_reply none{};
      none.event = 0xFFFF;
      return none;
    }
    --host.counts[channel];
    return *got;
  }
  bool silent() { return !cm.get_event(channel).has_value(); }

  static rnic_cm_parameters parameters(std::uint32_t qp = 5, const std::string& private_data = {}) {
    rnic_cm_parameters p{};
    p.qp_number = qp;
    p.valid = 1;
    p.responder_resources = 3;
    p.initiator_depth = 2;
    p.private_data_length = static_cast<std::uint16_t>(private_data.size());
    std::copy(private_data.begin(), private_data.end(), p.private_data);
    return p;
  }

  // ---- ids in a state ----
  std::uint32_t route_resolved(const rnic_address& to = ipv4(10, 0, 0, 2, 7174)) {
    const std::uint32_t made = id();
    cm.resolve_address(made, {}, to);
    event();
    cm.resolve_route(made);
    event();
    return made;
  }
  std::uint32_t connecting() {
    const std::uint32_t made = route_resolved();
    cm.connect(made, parameters());
    return made;
  }
  std::uint32_t listening(const rnic_address& at = ipv4(0, 0, 0, 0, 7174)) {
    const std::uint32_t made = id(0x2000);
    cm.bind(made, at);
    cm.listen(made, 5);
    return made;
  }
  core::StreamEvent stream_event(core::StreamEvent::Kind kind, std::uint64_t cookie, const std::string& data = {}) {
    core::StreamEvent e;
    e.kind = kind;
    e.cookie = cookie;
    e.ird = 4;
    e.ord = 6;
    e.private_data.length = static_cast<std::uint16_t>(data.size());
    std::transform(data.begin(), data.end(), e.private_data.octets.begin(), [](char c) { return std::byte(c); });
    return e;
  }
  core::StreamEvent request_for(std::uint64_t listener_cookie, core::StreamId stream = {77}) {
    auto e = stream_event(core::StreamEvent::Kind::connect_request, listener_cookie, "hello");
    e.device = 2;
    e.stream = stream;
    e.local = wire::IpAddress::v4(10, 0, 0, 1);
    e.local_port = 7174;
    e.remote = wire::IpAddress::v4(10, 0, 0, 2);
    e.remote_port = 40000;
    return e;
  }
  // An id of a connect request that the application has been told of.
  std::uint32_t requested() {
    const std::uint32_t listener = listening();
    cm.on_stream_event(request_for(listener));
    return event().id;
  }
};

// Which device, by its GUID, a destination is reached by.
inline std::uint64_t device_toward(CmWorld& w, const rnic_address& to, control::DeviceSet visible = CmWorld::kAll) {
  const auto id = w.id(1, visible);
  w.cm.resolve_address(id, {}, to);
  w.event();
  return w.cm.query(id)->node_guid;
}

inline rnic_address ipv6(const char* text, std::uint16_t port = 0, std::uint32_t scope = 0) {
  rnic_address address = control::to_abi(*wire::parse_ip(text), port);
  address.scope = scope;
  return address;
}
inline core::DeviceAddress cidr6(const char* text, std::uint8_t length = 64) { return {*wire::parse_ip(text), length}; }

}  // namespace rnic::test
