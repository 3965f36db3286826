// The daemon's side of the direct verbs, where an application cannot show it.
#include <unistd.h>

#include <cstring>

#include "kit/server_world.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

template <typename T>
T body_of(const control::Reply& reply) {
  REQUIRE(reply.status == 0);
  REQUIRE(reply.body.size() >= sizeof(T));
  T value;
  std::memcpy(&value, reply.body.data(), sizeof value);
  return value;
}

}  // namespace

TEST_CASE("V-QP-05: a privileged queue pair is made for root and for the daemon's user alone",
          "[control][objects][V-QP-05]") {
  Daemon daemon;
  const auto made_for = [&](uid_t user, std::uint32_t flags) {
    control::Peer peer;
    peer.pid = getpid();
    peer.uid = user;
    auto opened =
        control::Context::open(daemon.machine, *daemon.machine.devices[0], daemon.loop, peer, {}, nullptr, nullptr);
    REQUIRE(opened);
    control::Context& context = **opened;
    rnic_create_cq cq{};
    cq.entries_min = 4;
    rnic_create_qp qp{};
    qp.pd = body_of<rnic_handle_reply>(context.alloc_pd()).handle;
    qp.send_cq = qp.recv_cq = body_of<rnic_create_cq_reply>(context.create_cq(cq, nullptr)).cq;
    qp.flags = flags;
    return context.create_qp(qp).status;
  };
  CHECK(made_for(geteuid(), RNIC_QP_PRIVILEGED) == 0);
  CHECK(made_for(0, RNIC_QP_PRIVILEGED) == 0);
  CHECK(made_for(geteuid() + 1, RNIC_QP_PRIVILEGED) == EPERM);
  CHECK(made_for(geteuid() + 1, RNIC_QP_NO_BIND) == 0);
  CHECK(made_for(0, 0x100) == EINVAL);
}
