// What a queue pair owns of a stream, made anew for each: the half that knows messages, and the half that knows the
// stream. Each part has a header of its own; here they are only put together.
#pragma once

#include <memory>
#include <optional>

#include "qp/gate.hpp"
#include "qp/local_path.hpp"
#include "qp/stream_in.hpp"
#include "qp/stream_out.hpp"
#include "rdmap/acknowledgements.hpp"
#include "rdmap/early.hpp"
#include "rdmap/early_placer.hpp"
#include "rdmap/reads.hpp"
#include "rdmap/requester.hpp"
#include "rdmap/responder.hpp"

namespace rnic::qp {

// RDMAP's half of a queue pair. Without a stream it holds nothing, and what is posted can be flushed.
struct Messages {
  std::unique_ptr<rdmap::Early> early;                        // with markers toward us
  std::optional<rdmap::EarlyPlacer> early_placer;             // the same
  std::unique_ptr<rdmap::Acknowledgements> acknowledgements;  // of acknowledged streams
  rdmap::Reads reads;
  rdmap::Requester requester;
  rdmap::Responder responder;

  explicit Messages(rdmap::Common& common)
      : requester(common, reads, nullptr), responder(common, reads, requester, nullptr) {}
  Messages(rdmap::Common& common, const Start& start, const tpt::ReadStags& stags)
      : early(start.markers_in == mpa::Markers::expected ? std::make_unique<rdmap::Early>() : nullptr),
        acknowledgements(start.acknowledged ? std::make_unique<rdmap::Acknowledgements>(common.settings.patience)
                                            : nullptr),
        reads(start.ird, start.ord, stags),
        requester(common, reads, early.get(), acknowledgements.get()),
        responder(common, reads, requester, early.get(), acknowledgements.get()) {
    if (early) early_placer.emplace(common, reads, *early, start.acknowledged);
    requester.begin_stream();
    responder.begin_stream(
        {.may_be_read = !start.initiator, .may_be_send = !start.initiator && start.rtr == Start::Rtr::send});
  }
};

// The stream's half: there as long as the queue pair is attached.
struct Stream {
  tcp::Connection& connection;
  Gate gate;
  StreamOut out;
  StreamIn in;
  std::optional<LocalPath> local;

  Stream(tcp::Connection& its_connection, const Start& start, Instant now, Messages& messages, rdmap::Common& common,
         QpCounters& counters, BufferPool& pool, Scratch& scratch)
      : connection(its_connection),
        gate(start, now),
        out({connection, messages.requester, gate, common, counters, pool}, start.crc,
            start.markers_out ? mpa::Markers::inserted : mpa::Markers::none),
        in({connection, messages.responder, messages.requester,
            messages.early_placer ? &*messages.early_placer : nullptr, gate, counters, scratch},
           start.checks_crc ? start.crc : mpa::Crc::off, start.markers_in) {}
};

}  // namespace rnic::qp
