// The control socket against clients that make mistakes, or mean no good.
#include <sys/eventfd.h>

#include <nlohmann/json.hpp>

#include "kit/server_world.hpp"

using namespace rnic;
using namespace rnic::test;

TEST_CASE("a client that does not begin with HELLO is told EPROTO, and is gone", "[control][server]") {
  Daemon daemon;
  Client client(daemon);
  CHECK(client.ask(RNIC_LIST_DEVICES).status == EPROTO);
  daemon.settle();
  CHECK(daemon.server->session_count() == 0);
}

TEST_CASE("HELLO is refused for another version, an unknown device, an unknown kind", "[control][server]") {
  Daemon daemon;
  CHECK(Client(daemon).hello(RNIC_CLIENT_CM, "", RNIC_ABI_VERSION + 1).status == EPROTONOSUPPORT);
  CHECK(Client(daemon).hello(RNIC_CLIENT_CM, "rnic2").status == ENODEV);
  CHECK(Client(daemon).hello(0).status == EINVAL);
  CHECK(Client(daemon).hello(4).status == EINVAL);
  CHECK(Client(daemon).hello(RNIC_CLIENT_CM, std::string(RNIC_NAME_MAX, 'x')).status == ENODEV);
  Client twice(daemon);
  REQUIRE(twice.hello(RNIC_CLIENT_CM).status == 0);
  CHECK(twice.hello(RNIC_CLIENT_CM).status == EPROTO);
}

TEST_CASE("HELLO tells who the daemon is", "[control][server]") {
  Daemon daemon;
  const auto reply = Client(daemon).hello(RNIC_CLIENT_ADMIN).as<rnic_hello_reply>();
  CHECK(reply.abi_version == RNIC_ABI_VERSION);
  CHECK(reply.daemon_pid == static_cast<std::uint32_t>(getpid()));
  CHECK(reply.device_count == 2);
  CHECK(reply.control_mode == 1);
}

TEST_CASE("a message whose length is not what it says ends the connection", "[control][server]") {
  Daemon daemon;
  for (const std::uint32_t length : {0u, 15u, 17u, 8193u}) {
    Client client(daemon, RNIC_CLIENT_CM, "");
    rnic_msg header{RNIC_LIST_DEVICES, 1, 0, length};
    std::vector<std::byte> octets(sizeof header);
    std::memcpy(octets.data(), &header, sizeof header);
    client.send_octets(octets);
    CHECK(client.receive().status == -1);
  }
  CHECK(daemon.server->session_count() == 0);
}

TEST_CASE("a message shorter than a header, or longer than any, ends the connection", "[control][server]") {
  Daemon daemon;
  for (const std::size_t size : {std::size_t{1}, std::size_t{15}, std::size_t{RNIC_MSG_MAX + 1}, std::size_t{30'000}}) {
    Client client(daemon, RNIC_CLIENT_CM, "");
    std::vector<std::byte> octets(size);
    if (size >= sizeof(rnic_msg)) {
      rnic_msg header{RNIC_LIST_DEVICES, 1, 0, static_cast<std::uint32_t>(size)};
      std::memcpy(octets.data(), &header, sizeof header);
    }
    client.send_octets(octets);
    CHECK(client.receive().status == -1);
  }
}

TEST_CASE("the longest message is read; its octets too many are not looked at", "[control][server]") {
  Daemon daemon;
  Client client(daemon, RNIC_CLIENT_CM, "");
  std::vector<std::byte> body(RNIC_MSG_MAX - sizeof(rnic_msg));
  CHECK(client.ask_octets(RNIC_LIST_DEVICES, body.data(), body.size(), {}).status == 0);
}

TEST_CASE("a body that is an octet too short is EINVAL, and the connection lives on", "[control][server]") {
  Daemon daemon;
  App app(daemon);
  Client cm(daemon, RNIC_CLIENT_CM, "");
  const std::vector<std::byte> zeros(RNIC_MSG_MAX);
  const auto short_of = [&](Client& client, std::uint32_t type, std::size_t size) {
    INFO("type " << type);
    CHECK(client.ask_octets(type, zeros.data(), size - 1, {}).status == EINVAL);
  };
  short_of(app, RNIC_DEALLOC_PD, sizeof(rnic_handle));
  short_of(app, RNIC_REG_MR, sizeof(rnic_reg_mr));
  short_of(app, RNIC_REREG_MR, sizeof(rnic_rereg_mr));
  short_of(app, RNIC_CREATE_CQ, sizeof(rnic_create_cq));
  short_of(app, RNIC_RESIZE_CQ, sizeof(rnic_resize_cq));
  short_of(app, RNIC_CREATE_SRQ, sizeof(rnic_create_srq));
  short_of(app, RNIC_MODIFY_SRQ, sizeof(rnic_modify_srq));
  short_of(app, RNIC_CREATE_QP, sizeof(rnic_create_qp));
  short_of(app, RNIC_MODIFY_QP, sizeof(rnic_modify_qp));
  short_of(app, RNIC_ALLOC_MW, sizeof(rnic_alloc_mw));
  short_of(app, RNIC_MAP_ARENA, sizeof(rnic_handle));
  short_of(app, RNIC_NOT_OFFERED, sizeof(rnic_not_offered));
  short_of(cm, RNIC_CM_CREATE_ID, sizeof(rnic_cm_create_id));
  short_of(cm, RNIC_CM_BIND, sizeof(rnic_cm_bind));
  short_of(cm, RNIC_CM_RESOLVE_ADDRESS, sizeof(rnic_cm_resolve_address));
  short_of(cm, RNIC_CM_CONNECT, sizeof(rnic_cm_connect));
  short_of(cm, RNIC_CM_REJECT, sizeof(rnic_cm_reject));
  short_of(cm, RNIC_CM_SET_OPTION, sizeof(rnic_cm_set_option));
  short_of(cm, RNIC_CM_OPEN, sizeof(rnic_cm_open));
  CHECK(app.ask(RNIC_ALLOC_PD).status == 0);
}

TEST_CASE("unknown commands are ENOSYS, and those of another kind of client are refused", "[control][server]") {
  Daemon daemon;
  App app(daemon);
  Client cm(daemon, RNIC_CLIENT_CM, ""), admin(daemon, RNIC_CLIENT_ADMIN, "");
  CHECK(app.ask(0).status == ENOSYS);
  CHECK(app.ask(999).status == ENOSYS);
  CHECK(app.ask(RNIC_STOP).status == EPERM);
  CHECK(app.ask(RNIC_CM_OPEN).status == EPERM);
  CHECK(cm.ask(RNIC_ALLOC_PD).status == ENOSYS);
  CHECK(cm.ask(RNIC_STOP).status == EPERM);
  CHECK(admin.ask(RNIC_ALLOC_PD).status == EPERM);
  CHECK(admin.ask(RNIC_CREATE_CHANNEL).status == EPERM);
}

TEST_CASE("verbs before a context are ENODEV, and a second context is EBUSY",
          "[control][server][V-RNIC-03][V-VB-01][V-IS-05][V-IS-06]") {
  Daemon daemon;
  Client client(daemon, RNIC_CLIENT_VERBS, "");
  CHECK(client.ask(RNIC_ALLOC_PD).status == ENODEV);
  CHECK(client.ask(RNIC_CREATE_CQ, rnic_create_cq{}).status == ENODEV);
  CHECK(client.by_handle(RNIC_QUERY_QP, 1).status == ENODEV);
  App app(daemon);
  const auto number = app.qp(app.pd(), app.cq());
  CHECK(app.ask(RNIC_OPEN_CONTEXT, rnic_open_context{}).status == EBUSY);
  CHECK(app.by_handle(RNIC_QUERY_QP, number).status == 0);
  CHECK(app.by_handle(RNIC_DESTROY_QP, number).status == 0);
}

TEST_CASE("a client that sees one device cannot open another", "[control][server]") {
  Daemon daemon;
  Client client(daemon, RNIC_CLIENT_VERBS, "rnic1");
  rnic_open_context body{};
  std::strcpy(body.device, "rnic0");
  CHECK(client.ask(RNIC_OPEN_CONTEXT, body).status == ENODEV);
  const auto list = client.ask(RNIC_LIST_DEVICES);
  REQUIRE(list.status == 0);
  REQUIRE(list.body.size() == sizeof(rnic_list_devices_reply) + sizeof(rnic_device_info));
  rnic_device_info info;
  std::memcpy(&info, list.body.data() + sizeof(rnic_list_devices_reply), sizeof info);
  CHECK(std::string(info.name) == "rnic1");
  CHECK(info.address_count == 1);
  CHECK(info.address_mode == 2);
}

TEST_CASE("descriptors that nobody asked for are closed", "[control][server]") {
  Daemon daemon;
  App app(daemon);
  const std::size_t before = open_descriptors();
  const control::Descriptor file(eventfd(0, EFD_CLOEXEC));
  for (int i = 0; i < 10; ++i) {
    CHECK(app.ask(RNIC_ALLOC_PD, rnic_handle{}, {file.get(), file.get(), file.get()}).status == 0);
    CHECK(app.ask(999, rnic_handle{}, {file.get()}).status == ENOSYS);
  }
  CHECK(app.ask_octets(RNIC_ALLOC_PD, nullptr, 0, std::vector<int>(RNIC_FDS_MAX + 8, file.get())).status == EMFILE);
  CHECK(open_descriptors() == before + 1);
}

TEST_CASE("OPEN_CONTEXT takes a process's memory, and no other file", "[control][server]") {
  Daemon daemon;
  const auto open_with = [&](const char* path, int flags) {
    Client client(daemon, RNIC_CLIENT_VERBS, "rnic0");
    const control::Descriptor file(open(path, flags | O_CLOEXEC));
    REQUIRE(file);
    return client.ask(RNIC_OPEN_CONTEXT, rnic_open_context{}, {file.get()}).status;
  };
  CHECK(open_with("/proc/self/mem", O_RDWR) == 0);
  CHECK(open_with("/proc/self/mem", O_RDONLY) == EINVAL);
  CHECK(open_with("/proc/self/maps", O_RDONLY) == EINVAL);
  CHECK(open_with("/proc/self/oom_score_adj", O_RDWR) == EINVAL);
  CHECK(open_with("/dev/null", O_RDWR) == EINVAL);
}

TEST_CASE("V-RNIC-12: a context's end leaves neither object nor descriptor behind",
          "[control][server][V-RNIC-12][V-RNIC-09][V-VB-03]") {
  Daemon daemon;
  const std::size_t before = open_descriptors();
  {
    App app(daemon);
    const auto pd = app.pd(), cq = app.cq();
    const auto srq = app.try_srq(pd, 4).as<rnic_create_srq_reply>().srq;
    app.qp(pd, cq);
    app.qp(pd, cq, srq);
    int word = 0;
    REQUIRE(app.reg(pd, &word, sizeof word, RNIC_ACCESS_LOCAL_READ).status == 0);
    rnic_alloc_mw window{};
    window.pd = pd;
    REQUIRE(app.ask(RNIC_ALLOC_MW, window).status == 0);
    CHECK(daemon.machine.devices[0]->table->used() == 2);
    CHECK(daemon.server->context_count() == 1);
  }
  daemon.settle();
  CHECK(daemon.server->context_count() == 0);
  CHECK(daemon.machine.devices[0]->table->used() == 0);
  CHECK(daemon.machine.qps.empty());
  const auto& counts = daemon.machine.devices[0]->counts;
  CHECK(counts.contexts + counts.pds + counts.regions + counts.windows + counts.cqs + counts.srqs + counts.qps == 0);
  CHECK(open_descriptors() == before);
}

TEST_CASE("V-RNIC-01: a handle of another context names nothing", "[control][server][V-RNIC-01][V-SEC-11]") {
  Daemon daemon;
  App one(daemon), other(daemon);
  const auto pd = one.pd(), cq = one.cq();
  const auto number = one.qp(pd, cq);
  CHECK(other.by_handle(RNIC_DEALLOC_PD, pd).status == EINVAL);
  CHECK(other.by_handle(RNIC_DESTROY_CQ, cq).status == EINVAL);
  CHECK(other.by_handle(RNIC_QUERY_QP, number).status == EINVAL);
  CHECK(other.by_handle(RNIC_DESTROY_QP, number).status == EINVAL);
  CHECK(one.by_handle(RNIC_QUERY_QP, number).status == 0);
}

TEST_CASE("SHOW gives JSON, and EINVAL for what it does not know", "[control][server]") {
  Daemon daemon;
  App app(daemon);
  const auto pd = app.pd();
  app.qp(pd, app.cq());
  int word = 0;
  app.reg(pd, &word, sizeof word, RNIC_ACCESS_LOCAL_READ);
  Client admin(daemon, RNIC_CLIENT_ADMIN, "");
  rnic_show what{};
  auto shown = admin.ask(RNIC_SHOW, what);
  const auto length = shown.as<rnic_handle_reply>().handle;
  REQUIRE(shown.fds.size() == 1);
  std::string text(length, '\0');
  REQUIRE(pread(shown.fds[0].get(), text.data(), text.size(), 0) == static_cast<ssize_t>(length));
  const auto document = nlohmann::json::parse(text, nullptr, false);
  REQUIRE(document.is_object());
  CHECK(document["dev"].size() == 2);
  CHECK(document["qp"].size() == 1);
  CHECK(document["qp"][0]["state"] == "Idle");
  CHECK(document["mr"][0]["reach"] == "remote-copy");
  CHECK(document["cq"].size() == 1);
  std::strcpy(what.what, "nonsense");
  CHECK(admin.ask(RNIC_SHOW, what).status == EINVAL);
  std::memset(what.what, 'q', sizeof what.what);
  CHECK(admin.ask(RNIC_SHOW, what).status == EINVAL);
}

TEST_CASE("STOP is obeyed from an administrator", "[control][server]") {
  Daemon daemon;
  bool stopped = false;
  daemon.server->on_stop([&] { stopped = true; });
  Client admin(daemon, RNIC_CLIENT_ADMIN, "");
  CHECK(admin.ask(RNIC_STOP).status == 0);
  CHECK(stopped);
}

TEST_CASE("an operation that a device could offer and does not is logged once of each, with the key that allows it",
          "[control][server]") {
  const auto lines = [](Daemon& daemon) {
    std::vector<std::string> of_it;
    for (const auto& [level, line] : daemon.log)
      if (level == control::LogLevel::info && line.find("extensions = true") != std::string::npos)
        of_it.push_back(line);
    return of_it;
  };
  const auto tell = [](App& app, std::uint32_t extension) {
    return app.ask(RNIC_NOT_OFFERED, rnic_not_offered{extension, 0}).status;
  };
  Daemon without("[[device]]\nport = \"loopback\"\naddress = \"127.0.9.1/24\"\nextensions = false\n");
  App app(without);
  for (int i = 0; i < 2; ++i) {
    CHECK(tell(app, RNIC_EXTENSION_ATOMICS) == 0);
    CHECK(tell(app, RNIC_EXTENSION_IMMEDIATE) == 0);
  }
  CHECK(tell(app, 0) == EINVAL);
  CHECK(tell(app, 3) == EINVAL);
  REQUIRE(lines(without).size() == 2);
  CHECK(lines(without)[0].find("atomic") != std::string::npos);
  CHECK(lines(without)[1].find("immediate") != std::string::npos);
  for (const std::string& line : lines(without)) CHECK(line.find("rnic0") != std::string::npos);

  Daemon with("[[device]]\nport = \"loopback\"\naddress = \"127.0.9.1/24\"\nextensions = true\n");
  App other(with);
  CHECK(tell(other, RNIC_EXTENSION_ATOMICS) == 0);
  CHECK(lines(with).empty());
}
