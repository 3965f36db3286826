// A queue pair that rdma_cm connects, whose peer's startup frames, markers and FPDUs are the test's; and the wire to
// it, on which what it says may be late. Provider, daemon and data plane on the near end.
#pragma once

#include <memory>
#include <optional>

#include "mpa/packer.hpp"
#include "unit/rnicdv/raw_peer.hpp"

namespace rnic::test::raw {

struct MpaPeer : RawPeer {
  // a's is the near end.
  static constexpr const char* kMarked =
      "sched_fifo = false\n"
      "[[device]]\nport = \"pair:w\"\naddress = \"127.0.9.1/24\"\nmtu = 1500\nmpa_revision = 1\nmarkers = \"both\"\n"
      "[[device]]\nport = \"pair:w\"\naddress = \"127.0.9.2/24\"\nmtu = 1500\n";
  struct Startup {
    wire::StartupHeader header;
    std::optional<wire::EnhancedBlock> block;
  };

  explicit MpaPeer(const char* devices = kTwoDevices, unsigned rights = kRemote)
      : RawPeer(Unopened::yes, devices, rights) {}

  // ---- startup ----
  // The application calls, and the peer has its Request.
  void call(bare::Channel::Depths depths = {}) {
    id = channel().create_id();
    REQUIRE(channel().bind(id, bare::address_of(a.context->device)).good());
    REQUIRE(channel().resolve_address(id, bare::address_of(b.context->device, streams::kPort)).good());
    channel().expect(RNIC_CM_ADDRESS_RESOLVED);
    REQUIRE(channel().resolve_route(id).good());
    channel().expect(RNIC_CM_ROUTE_RESOLVED);
    REQUIRE(channel().connect(id, qp_a->qp_num, depths).good());
    while ((stream_b = rnicdv_stream_accept(listener, nullptr)) == nullptr) {
      REQUIRE(errno == EAGAIN);
      REQUIRE(streams::wait_for(listener));
    }
    take_startup();
  }
  // And its Reply, of which private data are said by `block` alone.
  void answer(const Startup& reply) {
    say_startup(reply);
    channel().expect(RNIC_CM_ESTABLISHED);
  }
  // Revision 1, with CRC: as most have it.
  void connect() {
    call();
    answer({{.reply = true, .crc = true}, {}});
  }
  // The peer calls with this Request, and the application accepts.
  void be_called(const Startup& request, bare::Channel::Depths depths = {}) {
    const std::uint32_t door = bare::listening(channel(), bare::address_of(a.context->device));
    sockaddr_in to = streams::at(1, 0);
    to.sin_port = channel().query(door).source.port;
    stream_b = streams::open_to(b, to);
    REQUIRE(stream_b != nullptr);
    REQUIRE(streams::wait_for(stream_b));
    say_startup(request);
    id = channel().expect(RNIC_CM_CONNECT_REQUEST).id;
    REQUIRE(channel().accept(id, qp_a->qp_num, depths).good());
    take_startup();
  }
  void expect_disconnected() { CHECK(channel().expect(RNIC_CM_DISCONNECTED).id == id); }

  // ---- what the peer says ----
  // With markers where the near end asked for them.
  Octets framed(const Octets& ulpdu) {
    Octets out(packer->octets_for(static_cast<std::uint32_t>(ulpdu.size())), '\0');
    const auto pieces = std::make_unique<mpa::PieceList>();
    packer->begin(std::as_writable_bytes(std::span(out)), bytes_of(ulpdu), 0, *pieces);
    seal(out);
    return out;
  }
  void say(const Octets& ulpdu) { say_octets(framed(ulpdu)); }
  void seal(Octets& fpdu) const { packer->seal(std::as_writable_bytes(std::span(fpdu))); }

  // ---- the wire ----
  // `lost` is on its way until arrive(), and `rest` has overtaken it.
  void overtake(const Octets& lost, const Octets& rest) {
    turns(a, false);
    turns(b, false);
    put_on_the_wire(lost);
    at_device(a, [](control::ServedDevice& device, Instant) {
      Buffer* frame = nullptr;
      while (device.port->receive_burst(&frame, 1) == 1) BufferRef{frame}.reset();
    });
    put_on_the_wire(rest);
    turns(a, true);
  }
  // The peer's TCP says it again.
  void arrive() { turns(b, true); }
  // From here on no octet of the peer's comes, and it takes none.
  void fall_silent() { turns(b, false); }
  // As an administrator of the peer's would do it.
  void reset_stream() {
    at_device(b, [](control::ServedDevice& device, Instant now) {
      for (const core::StreamInfo& each : device.first().device->streams())
        device.first().device->kill(each.stream, now);
    });
  }
  template <typename Task>
  void at_device(const Application& of, Task&& task) {
    at_daemon([&](control::Machine& machine, control::Server&) {
      control::ServedDevice& device = *machine.devices[&of == &a ? 0 : 1];
      device.first().worker->call([&](Instant now) { task(device, now); });
    });
  }

  Startup theirs;
  std::uint32_t id = 0;
  std::optional<mpa::Packer> packer;

 private:
  void say_startup(const Startup& frame) {
    wire::StartupHeader header = frame.header;
    Octets block;
    if (frame.block) {
      header.revision = 2;
      header.enhanced = true;
      block = octets_of(*frame.block, wire::EnhancedBlock::kSize);
    }
    header.private_data_length = static_cast<std::uint16_t>(block.size());
    say_octets(octets_of(header, wire::StartupHeader::kSize) + block);
    if (header.reply) frame_from_here();
  }
  void take_startup() {
    const Octets octets = take(wire::StartupHeader::kSize);
    const auto header = wire::parse_startup(bytes_of(octets));
    REQUIRE(header);
    const Octets private_data = take(header->private_data_length);
    theirs = {*header, header->enhanced ? wire::parse_enhanced(bytes_of(private_data)) : std::nullopt};
    if (header->reply) frame_from_here();
  }
  void frame_from_here() {
    packer.emplace(mpa::Crc::on, theirs.header.markers ? mpa::Markers::inserted : mpa::Markers::none);
  }
  void turns(const Application& of, bool does) {
    at_device(of, [does](control::ServedDevice& device, Instant) {
      device.first().worker->remove_device(*device.first().device);
      if (does) REQUIRE(device.first().worker->add_device(*device.first().device) == 0);
    });
  }
  // Whole, by a turn of the peer's device that is no worker's.
  void put_on_the_wire(const Octets& octets) {
    say_octets(octets);
    at_device(b, [](control::ServedDevice& device, Instant now) {
      device.first().device->transmit(now);
      device.first().device->send(now);
    });
  }
};

}  // namespace rnic::test::raw
