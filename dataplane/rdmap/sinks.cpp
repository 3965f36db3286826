#include "rdmap/sinks.hpp"

namespace rnic::rdmap {

Result<tpt::Access, Fault> check_sink(const Common& common, const Inbound& in) {
  const Settings& own = common.settings;
  const auto access = common.table.check_remote(in.ddp.stag, own.pd, own.number, tpt::Rights::remote_write,
                                                in.ddp.tagged_offset, in.payload);
  if (!tpt::permits(own.access, tpt::Rights::remote_write) &&
      (access || (access.error() != tpt::Refusal::invalid_stag && access.error() != tpt::Refusal::not_associated)))
    return Failure{Fault::writes_disabled};
  if (!access) return Failure{tagged_fault(access.error())};
  return *access;
}

Result<tpt::Access, Fault> check_response(const Common& common, const OutboundRead& read, const Inbound& in) {
  if (!read.sink.own_stag()) return check_sink(common, in);
  const auto access = common.table.check_read(read.sink, in.ddp.tagged_offset, in.payload);
  if (!access) return Failure{tagged_fault(access.error())};
  return *access;
}

}  // namespace rnic::rdmap
