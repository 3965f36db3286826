// Which queue pairs are each other's peers on one worker: those whose streams are the two ends of one connection, from
// the device to itself or over a pair. They are joined when the second of them is attached (qp/local_path.hpp).
#include "core/rdma_streams.hpp"

namespace rnic::core {

void RdmaStreams::join_local_peer(Stream& stream, const qp::Start& start) {
  if (!options_.local_direct) return;
  // Markers are asked for so that the wire is exercised.
  if (start.markers_in != mpa::Markers::none || start.markers_out) return;
  RdmaStreams* const there = stream.local_peer ? this : mate_;
  if (there == nullptr || !there->options_.local_direct) return;
  const host::Flow& flow = stream.flow;
  Stream* const peer = own(there->host_.find(host::Flow{
      .local = flow.remote, .remote = flow.local, .local_port = flow.remote_port, .remote_port = flow.local_port}));
  if (peer == nullptr || peer == &stream || peer->initiator == stream.initiator) return;
  if (!peer->attached() || !peer->qp->attached()) return;
  stream.side = std::make_unique<StreamSide>(host_, stream, there->host_);
  peer->side = std::make_unique<StreamSide>(there->host_, *peer, host_);
  stream.qp->join(*peer->qp, *stream.side, *peer->side);
}

}  // namespace rnic::core
