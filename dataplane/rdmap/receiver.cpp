#include "rdmap/receiver.hpp"

namespace rnic::rdmap {

Result<Inbound, Fault> check_form(Bytes head, std::uint32_t ulpdu_size, Extensions extensions) {
  const auto ddp = wire::parse_ddp(head);
  if (!ddp) return Failure{Fault::segment_size};
  if (ddp->version != wire::ddp_control::kVersion)
    return Failure{ddp->tagged ? Fault::ddp_version_tagged : Fault::ddp_version_untagged};
  // Version 0 is the RDMA Consortium's, which no MPA that we speak can carry (W-RDMAP-01).
  if (wire::rdmap_version(ddp->rdmap_control) != wire::kRdmapVersion) return Failure{Fault::rdmap_version};

  const wire::RdmapOpcode opcode = wire::rdmap_opcode(ddp->rdmap_control);
  const Message& of = message(opcode);
  if (!of.known()) return Failure{Fault::unexpected_opcode};
  const auto enabled = static_cast<std::uint8_t>(extensions);
  if ((of.needs & ~enabled) != 0) return Failure{Fault::unexpected_opcode};
  if (ddp->tagged != (of.model == Model::tagged)) return Failure{Fault::unexpected_opcode};

  if (!ddp->tagged && of.operation != Operation::terminate) {
    // A Terminate ends the connection whatever its queue says (W-RDMAP-35).
    const std::uint32_t queues = enabled >= known_by::kAcknowledged ? 5 : enabled == known_by::kExtension ? 4 : 3;
    if (ddp->queue >= queues) return Failure{Fault::queue_number};
    if (ddp->queue != of.queue) return Failure{Fault::unexpected_opcode};
  }
  return Inbound{*ddp, of, ulpdu_size - static_cast<std::uint32_t>(ddp->size())};
}

}  // namespace rnic::rdmap
