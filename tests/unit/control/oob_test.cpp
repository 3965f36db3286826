// Connection without rdma_cm at the daemon: what is refused to whom, GIDs, numbers, what is said in the log.
#include <filesystem>
#include <fstream>

#include "control/sysfs_tree.hpp"
#include "kit/server_world.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

constexpr const char* kOob =
    "sched_fifo = false\n"
    "[[device]]\nport = \"pair:o\"\naddress = [\"127.0.9.1/24\", \"127.0.10.1/24\"]\noob_connect = true\n"
    "[[device]]\nport = \"pair:o\"\naddress = \"127.0.9.2/24\"\n";

rnic_modify_qp to_idle(std::uint32_t qp, std::uint32_t name, std::uint32_t mask = 0) {
  rnic_modify_qp body{};
  body.qp_number = qp;
  body.mask = RNIC_MODIFY_STATE | mask;
  body.state = RNIC_QP_IDLE;
  body.idle_name = name;
  return body;
}

rnic_modify_qp to_rtr(std::uint32_t qp, std::uint32_t peer) {
  rnic_modify_qp body = to_idle(qp, RNIC_IDLE_RTR, RNIC_MODIFY_PEER);
  body.psn = 5;
  body.peer_number = peer;
  body.has_route = 1;
  body.peer_gid[10] = body.peer_gid[11] = 0xFF;
  body.peer_gid[12] = 127;
  body.peer_gid[14] = 9;
  body.peer_gid[15] = 2;
  return body;
}

}  // namespace

TEST_CASE("without oob_connect a peer is refused, and nobody listens", "[control][oob]") {
  Daemon daemon(kOob);
  App app(daemon, "rnic1");
  const auto qp = app.qp(app.pd(), app.cq());
  REQUIRE(app.ask(RNIC_MODIFY_QP, to_idle(qp, RNIC_IDLE_INIT)).status == 0);
  CHECK(app.ask(RNIC_MODIFY_QP, to_rtr(qp, 1234)).status == EINVAL);
  CHECK(app.ask(RNIC_MODIFY_QP, to_idle(qp, RNIC_IDLE_RTS)).status == EINVAL);
  REQUIRE(!daemon.log.empty());
  for (const char* needed : {"-R", "-cm1", "oob_connect = true"})
    CHECK(daemon.log.back().second.find(needed) != std::string::npos);
  CHECK(app.ask(RNIC_MODIFY_QP, to_idle(qp, RNIC_IDLE_RTR)).status == 0);  // as ever
  CHECK((app.opened.as<rnic_open_context_reply>().attributes.capabilities & RNIC_CAP_OOB_CONNECT) == 0);
  App other(daemon, "rnic0");
  CHECK((other.opened.as<rnic_open_context_reply>().attributes.capabilities & RNIC_CAP_OOB_CONNECT) != 0);
  // Its port is taken where it is on.
  const auto listens = [&](std::size_t device) {
    bool taken = false;
    daemon.machine.workers[0]->call([&](Instant) {
      taken = !daemon.machine.devices[device]->first().device->listen(wire::IpAddress(), 26580, 1, 1);
    });
    return taken;
  };
  CHECK(listens(0));
  CHECK_FALSE(listens(1));
}

TEST_CASE("a RoCE face keeps how patient a queue pair is to be", "[control][oob][roce]") {
  Daemon daemon(
      "sched_fifo = false\n"
      "[[device]]\nport = \"pair:o\"\naddress = \"127.0.9.1/24\"\nface = \"roce\"\n"
      "[[device]]\nport = \"pair:o\"\naddress = \"127.0.9.2/24\"\noob_connect = true\n");
  App app(daemon, "rnic0");
  const auto attributes = app.opened.as<rnic_open_context_reply>();
  CHECK(attributes.device.face == RNIC_FACE_ROCE);
  CHECK((attributes.attributes.capabilities & (RNIC_CAP_ROCE | RNIC_CAP_OOB_CONNECT)) ==
        (RNIC_CAP_ROCE | RNIC_CAP_OOB_CONNECT));
  const auto qp = app.qp(app.pd(), app.cq());
  const auto kept = [&] { return daemon.machine.qps.at(qp)->qp->config(); };
  CHECK(kept().face == Face::roce);
  CHECK(kept().patience == rdmap::Patience{});
  rnic_modify_qp body = to_idle(qp, RNIC_IDLE_INIT, RNIC_MODIFY_PATIENCE);
  body.timeout = 31;
  body.retry_count = 7;
  body.rnr_retry = 6;
  body.min_rnr_timer = 30;
  const auto set = [](std::uint8_t rnic_modify_qp::*field, std::uint8_t value, rnic_modify_qp to) {
    to.*field = value;
    return to;
  };
  CHECK(app.ask(RNIC_MODIFY_QP, set(&rnic_modify_qp::timeout, 32, body)).status == EINVAL);
  CHECK(app.ask(RNIC_MODIFY_QP, set(&rnic_modify_qp::retry_count, 8, body)).status == EINVAL);
  CHECK(app.ask(RNIC_MODIFY_QP, set(&rnic_modify_qp::rnr_retry, 8, body)).status == EINVAL);
  CHECK(app.ask(RNIC_MODIFY_QP, set(&rnic_modify_qp::min_rnr_timer, 32, body)).status == EINVAL);
  CHECK(kept().patience == rdmap::Patience{});
  CHECK(app.ask(RNIC_MODIFY_QP, body).status == 0);
  CHECK(kept().patience == rdmap::Patience{.timeout = 31, .retry_count = 7, .rnr_retry = 6, .min_rnr_timer = 30});

  App iwarp(daemon, "rnic1");
  CHECK(iwarp.opened.as<rnic_open_context_reply>().device.face == RNIC_FACE_IWARP);
  CHECK((iwarp.opened.as<rnic_open_context_reply>().attributes.capabilities & RNIC_CAP_ROCE) == 0);
  const auto other = iwarp.qp(iwarp.pd(), iwarp.cq());
  CHECK(iwarp.ask(RNIC_MODIFY_QP, to_idle(other, RNIC_IDLE_INIT, RNIC_MODIFY_PATIENCE)).status == EINVAL);
}

TEST_CASE("RTR without a GRH is refused, and the log says what to give the program", "[control][oob]") {
  Daemon daemon(kOob);
  App app(daemon, "rnic0");
  const auto qp = app.qp(app.pd(), app.cq());
  REQUIRE(app.ask(RNIC_MODIFY_QP, to_idle(qp, RNIC_IDLE_INIT)).status == 0);
  rnic_modify_qp body = to_rtr(qp, 1234);
  body.has_route = 0;
  CHECK(app.ask(RNIC_MODIFY_QP, body).status == EINVAL);
  REQUIRE(!daemon.log.empty());
  const std::string& line = daemon.log.back().second;
  CHECK(daemon.log.back().first == control::LogLevel::info);
  for (const char* needed : {"GRH", "-g 1", "-x 1", "-R", "-cm1"}) CHECK(line.find(needed) != std::string::npos);
  CHECK(app.by_handle(RNIC_QUERY_QP, qp).as<rnic_query_qp_reply>().idle_name == RNIC_IDLE_INIT);
}

TEST_CASE("what a provider of ours would not say is refused, too", "[control][oob]") {
  Daemon daemon(kOob);
  App app(daemon, "rnic0");
  const auto qp = app.qp(app.pd(), app.cq());
  const auto refused = [&](const rnic_modify_qp& body) {
    const auto before = app.by_handle(RNIC_QUERY_QP, qp).as<rnic_query_qp_reply>();
    const bool no = app.ask(RNIC_MODIFY_QP, body).status == EINVAL;
    const auto after = app.by_handle(RNIC_QUERY_QP, qp).as<rnic_query_qp_reply>();
    return no && before.idle_name == after.idle_name && before.state == after.state;
  };
  REQUIRE(app.ask(RNIC_MODIFY_QP, to_idle(qp, RNIC_IDLE_RESET)).status == 0);
  CHECK(refused(to_rtr(qp, 1234)));  // out of RESET
  REQUIRE(app.ask(RNIC_MODIFY_QP, to_idle(qp, RNIC_IDLE_INIT)).status == 0);
  CHECK(refused(to_idle(qp, RNIC_IDLE_RTS)));
  CHECK(refused(to_idle(qp, RNIC_IDLE_RTS, RNIC_MODIFY_PSN)));
  CHECK(refused(to_idle(qp, 4)));
  rnic_modify_qp body = to_rtr(qp, 1234);
  body.idle_name = RNIC_IDLE_INIT;
  CHECK(refused(body));
  body = to_rtr(qp, 1234);
  body.mask |= RNIC_MODIFY_PSN;
  CHECK(refused(body));
  body = to_rtr(qp, 1234);
  body.mask &= ~RNIC_MODIFY_STATE;
  CHECK(refused(body));
  body = to_rtr(qp, 1234);
  body.state = RNIC_QP_ERROR;
  CHECK(refused(body));
  body = to_rtr(qp, 1234);
  body.traffic_class = 0x100;
  CHECK(refused(body));
  for (const std::uint32_t number : {0u, 1u, 0xFFFFFFu, 0x1000000u}) CHECK(refused(to_rtr(qp, number)));
  CHECK(app.ask(RNIC_MODIFY_QP, to_rtr(qp, 1234)).status == 0);
  CHECK(daemon.server->rendezvous().known() == 1);
  CHECK(app.ask(RNIC_MODIFY_QP, to_idle(qp, RNIC_IDLE_RTS, RNIC_MODIFY_PSN)).status == 0);
  CHECK(refused(to_idle(qp, RNIC_IDLE_RTS, RNIC_MODIFY_PSN)));
  CHECK(app.by_handle(RNIC_QUERY_QP, qp).as<rnic_query_qp_reply>().idle_name == RNIC_IDLE_RTS);
}

TEST_CASE("a queue pair that is reset, fails, is destroyed or whose application goes waits for nobody",
          "[control][oob]") {
  Daemon daemon(kOob);
  {
    App app(daemon, "rnic0");
    const auto pd = app.pd(), cq = app.cq();
    const auto waiting = [&] {
      const auto qp = app.qp(pd, cq);
      REQUIRE(app.ask(RNIC_MODIFY_QP, to_idle(qp, RNIC_IDLE_INIT)).status == 0);
      REQUIRE(app.ask(RNIC_MODIFY_QP, to_rtr(qp, 1234)).status == 0);
      REQUIRE(daemon.server->rendezvous().known() == 1);
      return qp;
    };
    REQUIRE(app.ask(RNIC_MODIFY_QP, to_idle(waiting(), RNIC_IDLE_RESET)).status == 0);
    CHECK(daemon.server->rendezvous().known() == 0);
    rnic_modify_qp error = to_idle(waiting(), 0);
    error.state = RNIC_QP_ERROR;
    REQUIRE(app.ask(RNIC_MODIFY_QP, error).status == 0);
    CHECK(daemon.server->rendezvous().known() == 0);
    REQUIRE(app.by_handle(RNIC_DESTROY_QP, waiting()).status == 0);
    CHECK(daemon.server->rendezvous().known() == 0);
    waiting();
  }
  daemon.settle();
  CHECK(daemon.server->rendezvous().known() == 0);
}

TEST_CASE("the first address has the first two places of the GID table, and the next follow", "[control][oob]") {
  Daemon daemon(kOob);
  const auto& with = *daemon.machine.devices[0];
  const auto& without = *daemon.machine.devices[1];
  CHECK(with.gid(0) == wire::IpAddress::v4(127, 0, 9, 1));
  CHECK(with.gid(1) == wire::IpAddress::v4(127, 0, 9, 1));
  CHECK(with.gid(2) == wire::IpAddress::v4(127, 0, 10, 1));
  CHECK_FALSE(with.gid(3).has_value());
  CHECK(with.gid_count() == 9);
  CHECK(without.gid(0) == wire::IpAddress::v4(127, 0, 9, 2));
  CHECK_FALSE(without.gid(1).has_value());
  CHECK(without.gid_count() == 8);
  CHECK_FALSE(without.gid(8).has_value());

  char directory[] = "/tmp/rnic-oob-XXXXXX";
  REQUIRE(mkdtemp(directory) != nullptr);
  daemon.machine.run_directory = directory;
  REQUIRE(control::write_sysfs_trees(daemon.machine).empty());
  const auto gid = [&](const std::string& device, const std::string& index) {
    std::ifstream in(std::string(directory) + "/sysfs/class/infiniband/" + device + "/ports/1/gids/" + index);
    std::string text = "none";
    std::getline(in, text);
    return text;
  };
  CHECK(gid("rnic0", "0") == "0000:0000:0000:0000:0000:ffff:7f00:0901");
  CHECK(gid("rnic0", "1") == "0000:0000:0000:0000:0000:ffff:7f00:0901");
  CHECK(gid("rnic0", "2") == "0000:0000:0000:0000:0000:ffff:7f00:0a01");
  CHECK(gid("rnic1", "1") == "0000:0000:0000:0000:0000:0000:0000:0000");
  std::filesystem::remove_all(directory);
}

TEST_CASE("the numbers 0, 1 and 0xFFFFFF are nobody's", "[control][oob]") {
  Daemon daemon;
  // All but the last of the numbers that come are some queue pair's, so that the next is near.
  std::uint32_t last = daemon.machine.new_qp_number().value;
  std::uint32_t wraps = 0;
  for (std::uint32_t i = 0; i < 0x1000002; ++i) {
    const std::uint32_t number = daemon.machine.new_qp_number().value;
    REQUIRE((number >= 2 && number < 0xFFFFFF));
    wraps += number < last;
    last = number;
  }
  CHECK(wraps >= 1);
}

TEST_CASE("a queue pair for datagrams has InfiniBand's states, and neither Closing nor Terminate",
          "[control][roce][ud]") {
  Daemon daemon("sched_fifo = false\n[[device]]\nport = \"loopback\"\naddress = \"127.0.9.1/24\"\nface = \"roce\"\n");
  App app(daemon, "rnic0");
  rnic_create_qp body{};
  body.pd = app.pd();
  body.send_cq = body.recv_cq = app.cq();
  body.send_wr_min = body.recv_wr_min = body.send_sge_max = body.recv_sge_max = 1;
  body.type = RNIC_QP_UD;
  const auto qp = app.ask(RNIC_CREATE_QP, body).as<rnic_create_qp_reply>().qp_number;
  const auto modify = [&](std::uint32_t state, std::uint32_t name = 0) {
    rnic_modify_qp wish = to_idle(qp, name);
    wish.state = state;
    return app.ask(RNIC_MODIFY_QP, wish).status;
  };
  CHECK(modify(RNIC_QP_IDLE, RNIC_IDLE_INIT) == 0);
  CHECK(modify(RNIC_QP_IDLE, RNIC_IDLE_RTR) == 0);
  CHECK(modify(RNIC_QP_RTS) == 0);
  CHECK(modify(RNIC_QP_CLOSING) == EINVAL);
  CHECK(modify(RNIC_QP_TERMINATE) == EINVAL);
  CHECK(modify(RNIC_QP_ERROR) == 0);
  CHECK(modify(RNIC_QP_RTS) != 0);
  CHECK(modify(RNIC_QP_IDLE, RNIC_IDLE_RESET) == 0);
}
