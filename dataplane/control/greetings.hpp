// What two RoCE faces say to each other for rdma_cm, as InfiniBand's connection manager does: REQ, REP and REJ, in
// marks (wire/mark.hpp) with the consumers' private data behind them; and what of it ibv_modify_qp is to be given.
//
// Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.hpp"
#include "base/face.hpp"
#include "base/time.hpp"
#include "core/connection.hpp"
#include "rnic_control.h"
#include "wire/mark.hpp"

namespace rnic::control {

// Of the consumers, in RDMA_PS_TCP. They hear as many, filled up with zeros.
inline constexpr std::size_t kRequestDataMax = 56, kReplyDataMax = 196, kRejectDataMax = 148;
// And in the port spaces of datagrams.
inline constexpr std::size_t kInquiryDataMax = 180, kAnswerDataMax = 136;

// Why a call was rejected, as InfiniBand numbers it (enum ib_cm_rej_reason).
namespace reject_reason {
inline constexpr int kNoResources = 3, kUnsupported = 5, kNobodyListens = 8, kOtherTransport = 9, kInvalidGid = 12,
                     kConsumer = 28, kVendorOption = 35;
}  // namespace reject_reason

// Why an inquiry came to nothing, as InfiniBand numbers it (enum ib_cm_sidr_status).
namespace inquiry_status {
inline constexpr int kUnsupported = 1, kRejected = 2, kNoQueuePair = 3, kUnsupportedVersion = 5;
}  // namespace inquiry_status

// Of queue pairs for datagrams that rdma_cm makes, and of groups that it joins (RDMA_UDP_QKEY).
inline constexpr std::uint32_t kDatagramQkey = 0x01234567;

// How long a queue pair may still be spoken to by its last peer.
inline constexpr Duration kTimeWait = seconds(2);
// In InfiniBand's code: what rdma_cm takes for RoCE, 4.096 us * 2^n.
inline constexpr std::uint8_t kPathLifeTime = 18;
inline constexpr std::uint8_t kHopLimit = 64;

core::PrivateData greeting_data(const wire::Greeting& greeting, Bytes consumers);
core::PrivateData inquiry_data(const wire::Inquiry& inquiry, Bytes consumers);
core::PrivateData answer_data(const wire::Answer& answer, Bytes consumers);
core::PrivateData refusal_data(Face face, wire::MarkRefusal why, Bytes consumers = {});
// Nothing: it is no greeting of a RoCE face.
std::optional<wire::Greeting> greeting_in(Bytes private_data);
std::optional<wire::Answer> answer_in(Bytes private_data);
// Whether it asks for a queue pair for datagrams, whoever asks.
bool is_inquiry(Bytes private_data);
// What follows the mark; nothing where there is none.
Bytes behind_mark(Bytes private_data);
// Of a rejecting Reply.
int reject_reason_in(Bytes private_data);
int inquiry_status_in(Bytes private_data);

// What an application is told of its peer's.
void fill(rnic_cm_parameters& to, const wire::Greeting& peer, Bytes consumers, std::size_t filled_up);
void fill_private_data(rnic_cm_parameters& to, Bytes consumers, std::size_t filled_up);
// What an application says of itself.
void fill(wire::Greeting& to, const rnic_cm_parameters& own);

// Of a call: what the attributes of ibv_modify_qp are made of.
struct Acquaintance {
  wire::Greeting own, peer;
  bool calls = false;  // it is the caller
  std::uint32_t gid_index = 0;
  std::uint8_t traffic_class = 0;
  std::optional<std::uint8_t> timeout;  // that the application has chosen
};
// The step to `state`, of enum ibv_qp_state: INIT before a peer is known, too.
std::optional<rnic_cm_init_qp_attributes_reply> attributes_for(std::uint32_t state, const Acquaintance* known);

}  // namespace rnic::control
