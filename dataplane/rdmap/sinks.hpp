// Where the payload of a tagged segment may go: the sink of a peer's Write, and that of a Read of our own.
#pragma once

#include "rdmap/common.hpp"
#include "rdmap/reads.hpp"
#include "rdmap/receiver.hpp"

namespace rnic::rdmap {

// The order of the checks is V-ACC-08's; the QP's own enable is one of the access rights.
Result<tpt::Access, Fault> check_sink(const Common& common, const Inbound& in);
// A segment that names the STag of this Read's sink. One of the Read's own was made for what we asked for
// ourselves: the queue pair's enable, which says what a peer may begin, has no part in it.
Result<tpt::Access, Fault> check_response(const Common& common, const OutboundRead& read, const Inbound& in);

}  // namespace rnic::rdmap
