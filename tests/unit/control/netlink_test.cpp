// RDMA netlink, as iproute2's `rdma` and libibverbs ask: what a server with devices and objects answers, message by
// message.
#include <netinet/in.h>
#include <rdma/rdma_netlink.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>

#include <array>
#include <map>
#include <set>

#include "control/netlink_writer.hpp"
#include "unit/control/cm_app.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

constexpr std::uint32_t kPortId = 4711;
constexpr std::uint32_t kSequence = 99;

struct Message {
  nlmsghdr head;
  std::vector<std::byte> body;

  std::uint32_t command() const { return head.nlmsg_type & 0x3ff; }
  int error() const {
    std::int32_t value = 1;
    if (head.nlmsg_type == NLMSG_ERROR) std::memcpy(&value, body.data(), sizeof value);
    return -value;
  }
  template <typename T = std::uint32_t>
  T get(std::uint16_t type) const {
    return number<T>(body, type);
  }
  std::string text(std::uint16_t type) const { return std::string(control::netlink_text(body, type)); }

  template <typename T>
  static T number(Bytes attributes, std::uint16_t type) {
    const auto octets = control::netlink_attribute(attributes, type);
    REQUIRE(octets);
    REQUIRE(octets->size() == sizeof(T));
    T value;
    std::memcpy(&value, octets->data(), sizeof value);
    return value;
  }
};

// Attributes of a table, each whole.
std::vector<Bytes> entries(Bytes table) {
  std::vector<Bytes> all;
  while (table.size() >= NLA_HDRLEN) {
    nlattr head;
    std::memcpy(&head, table.data(), sizeof head);
    REQUIRE(head.nla_len >= NLA_HDRLEN);
    REQUIRE(head.nla_len <= table.size());
    all.push_back(table.subspan(NLA_HDRLEN, head.nla_len - NLA_HDRLEN));
    table = table.subspan(std::min<std::size_t>(NLA_ALIGN(head.nla_len), table.size()));
  }
  return all;
}

class Asker {
 public:
  explicit Asker(Daemon& daemon, const std::string& device = {}) : client_(daemon, RNIC_CLIENT_CM, device) {}

  Asker& with(std::uint16_t type, std::uint32_t value) { return with(type, &value, sizeof value); }
  Asker& with(std::uint16_t type, const std::string& text) { return with(type, text.c_str(), text.size() + 1); }
  Asker& with(std::uint16_t type, const void* value, std::size_t size) {
    nlattr head{static_cast<std::uint16_t>(NLA_HDRLEN + size), type};
    append(&head, sizeof head);
    append(value, size);
    return *this;
  }

  // All that comes back; what was put by with() goes along, once.
  std::vector<Message> ask(std::uint32_t command, std::uint16_t flags = 0) {
    return ask_type(static_cast<std::uint16_t>(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command)), flags);
  }
  std::vector<Message> dump(std::uint32_t command) { return ask(command, NLM_F_DUMP); }
  std::vector<Message> ask_type(std::uint16_t type, std::uint16_t flags) {
    nlmsghdr head{};
    head.nlmsg_len = static_cast<std::uint32_t>(sizeof head + attributes_.size());
    head.nlmsg_type = type;
    head.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
    head.nlmsg_seq = kSequence;
    std::vector<std::byte> octets(head.nlmsg_len);
    std::memcpy(octets.data(), &head, sizeof head);
    if (!attributes_.empty()) std::memcpy(octets.data() + sizeof head, attributes_.data(), attributes_.size());
    attributes_.clear();
    return ask_octets(octets);
  }
  std::vector<Message> ask_octets(const std::vector<std::byte>& octets) {
    rnic_netlink request{};
    REQUIRE(octets.size() <= sizeof request.octets);
    request.length = static_cast<std::uint32_t>(octets.size());
    request.port_id = kPortId;
    if (!octets.empty()) std::memcpy(request.octets, octets.data(), octets.size());
    return messages_of(client_.ask(RNIC_NETLINK, request));
  }
  int refused(std::uint32_t length) {
    rnic_netlink request{};
    request.length = length;
    return client_.ask(RNIC_NETLINK, request).status;
  }

 private:
  void append(const void* value, std::size_t size) {
    const auto* first = static_cast<const std::byte*>(value);
    attributes_.insert(attributes_.end(), first, first + size);
    attributes_.resize(NLA_ALIGN(attributes_.size()));
  }
  static std::vector<Message> messages_of(const Answer& answer) {
    const std::size_t size = answer.as<rnic_handle_reply>().handle;
    REQUIRE(answer.fds.size() == 1);
    std::vector<std::byte> octets(size);
    REQUIRE(pread(answer.fds[0].get(), octets.data(), size, 0) == static_cast<ssize_t>(size));
    std::vector<Message> all;
    for (std::size_t at = 0; at < size;) {
      Message message;
      REQUIRE(size - at >= sizeof message.head);
      std::memcpy(&message.head, octets.data() + at, sizeof message.head);
      REQUIRE(message.head.nlmsg_len <= size - at);
      REQUIRE(message.head.nlmsg_len >= sizeof message.head);
      message.body.assign(octets.begin() + static_cast<std::ptrdiff_t>(at + sizeof message.head),
                          octets.begin() + static_cast<std::ptrdiff_t>(at + message.head.nlmsg_len));
      CHECK(message.head.nlmsg_seq == kSequence);
      CHECK(message.head.nlmsg_pid == kPortId);
      at += NLMSG_ALIGN(message.head.nlmsg_len);
      all.push_back(std::move(message));
    }
    return all;
  }

  Client client_;
  std::vector<std::byte> attributes_;
};

// Entries of a dumped table, through all messages; the last of which ends it.
std::vector<std::vector<std::byte>> table_of(const std::vector<Message>& messages, std::uint16_t table) {
  std::vector<std::vector<std::byte>> all;
  REQUIRE(!messages.empty());
  CHECK(messages.back().head.nlmsg_type == NLMSG_DONE);
  for (const Message& message : messages) {
    CHECK((message.head.nlmsg_flags & NLM_F_MULTI) != 0);
    CHECK(message.head.nlmsg_len <= control::NetlinkWriter::kMessageMax);
    if (message.head.nlmsg_type == NLMSG_DONE) continue;
    const auto found = control::netlink_attribute(message.body, table);
    REQUIRE(found);
    for (const Bytes entry : entries(*found)) all.emplace_back(entry.begin(), entry.end());
  }
  return all;
}

}  // namespace

TEST_CASE("a dump of devices tells each one, and ends", "[control][netlink]") {
  Daemon daemon;
  const auto told = Asker(daemon).dump(RDMA_NLDEV_CMD_GET);
  REQUIRE(told.size() == 3);
  for (std::uint32_t i = 0; i < 2; ++i) {
    CHECK(told[i].command() == RDMA_NLDEV_CMD_GET);
    CHECK(told[i].head.nlmsg_flags == NLM_F_MULTI);
    CHECK(told[i].get(RDMA_NLDEV_ATTR_DEV_INDEX) == i);
    CHECK(told[i].text(RDMA_NLDEV_ATTR_DEV_NAME) == "rnic" + std::to_string(i));
    CHECK(told[i].get(RDMA_NLDEV_ATTR_PORT_INDEX) == 1);
    CHECK(told[i].get<std::uint64_t>(RDMA_NLDEV_ATTR_NODE_GUID) == from_big(daemon.machine.devices[i]->node_guid));
    CHECK(told[i].get<std::uint8_t>(RDMA_NLDEV_ATTR_DEV_NODE_TYPE) == 4);
    CHECK(told[i].text(RDMA_NLDEV_ATTR_DEV_PROTOCOL) == "iw");
  }
  CHECK(told[2].head.nlmsg_type == NLMSG_DONE);
}

TEST_CASE("a device of face roce is a channel adapter to netlink", "[control][netlink]") {
  Daemon daemon("sched_fifo = false\n[[device]]\nport = \"loopback\"\nface = \"roce\"\n");
  const auto told = Asker(daemon).dump(RDMA_NLDEV_CMD_GET);
  REQUIRE(told.size() == 2);
  CHECK(told[0].get<std::uint8_t>(RDMA_NLDEV_ATTR_DEV_NODE_TYPE) == 1);
  CHECK(told[0].text(RDMA_NLDEV_ATTR_DEV_PROTOCOL) == "roce");
}

TEST_CASE("one device is told alone, with an acknowledgement where it is asked for", "[control][netlink]") {
  Daemon daemon;
  Asker asker(daemon);
  auto told = asker.with(RDMA_NLDEV_ATTR_DEV_INDEX, 1).ask(RDMA_NLDEV_CMD_GET);
  REQUIRE(told.size() == 1);
  CHECK(told[0].text(RDMA_NLDEV_ATTR_DEV_NAME) == "rnic1");
  CHECK(told[0].head.nlmsg_flags == 0);
  told = asker.with(RDMA_NLDEV_ATTR_DEV_INDEX, 1).ask(RDMA_NLDEV_CMD_GET, NLM_F_ACK);
  REQUIRE(told.size() == 2);
  CHECK(told[1].head.nlmsg_type == NLMSG_ERROR);
  CHECK(told[1].error() == 0);
}

TEST_CASE("a port is told with its link and an interface", "[control][netlink]") {
  Daemon daemon;
  Asker asker(daemon);
  const auto port = [&] {
    return asker.with(RDMA_NLDEV_ATTR_DEV_INDEX, 0).with(RDMA_NLDEV_ATTR_PORT_INDEX, 1).ask(RDMA_NLDEV_CMD_PORT_GET);
  };
  auto told = port();
  REQUIRE(told.size() == 1);
  CHECK(told[0].get<std::uint8_t>(RDMA_NLDEV_ATTR_PORT_STATE) == 4);
  CHECK(told[0].get<std::uint8_t>(RDMA_NLDEV_ATTR_PORT_PHYS_STATE) == 5);
  CHECK(told[0].text(RDMA_NLDEV_ATTR_NDEV_NAME) == "lo");
  // There is one port.
  told = asker.with(RDMA_NLDEV_ATTR_DEV_INDEX, 0).with(RDMA_NLDEV_ATTR_PORT_INDEX, 2).ask(RDMA_NLDEV_CMD_PORT_GET);
  REQUIRE(told.size() == 1);
  CHECK(told[0].error() == EINVAL);
}

TEST_CASE("who sees one device only is not told of others", "[control][netlink]") {
  Daemon daemon;
  Asker asker(daemon, "rnic1");
  const auto told = asker.dump(RDMA_NLDEV_CMD_GET);
  REQUIRE(told.size() == 2);
  CHECK(told[0].text(RDMA_NLDEV_ATTR_DEV_NAME) == "rnic1");
  for (const std::uint32_t index : {0u, 2u, ~0u}) {
    const auto one = asker.with(RDMA_NLDEV_ATTR_DEV_INDEX, index).ask(RDMA_NLDEV_CMD_GET);
    REQUIRE(one.size() == 1);
    CHECK(one[0].error() == EINVAL);
  }
}

TEST_CASE("the numbers of character devices are those of /dev", "[control][netlink]") {
  Daemon daemon;
  Asker asker(daemon);
  auto told = asker.with(RDMA_NLDEV_ATTR_CHARDEV_TYPE, std::string("uverbs"))
                  .with(RDMA_NLDEV_ATTR_DEV_INDEX, 1)
                  .ask(RDMA_NLDEV_CMD_GET_CHARDEV);
  REQUIRE(told.size() == 1);
  CHECK(told[0].get<std::uint64_t>(RDMA_NLDEV_ATTR_CHARDEV) == makedev(231, 193));
  CHECK(told[0].get<std::uint64_t>(RDMA_NLDEV_ATTR_CHARDEV_ABI) == 1);
  CHECK(told[0].text(RDMA_NLDEV_ATTR_CHARDEV_NAME) == "uverbs1");
  told = asker.with(RDMA_NLDEV_ATTR_CHARDEV_TYPE, std::string("rdma_cm")).ask(RDMA_NLDEV_CMD_GET_CHARDEV);
  REQUIRE(told.size() == 1);
  CHECK(told[0].get<std::uint64_t>(RDMA_NLDEV_ATTR_CHARDEV) == makedev(10, 58));
  told = asker.with(RDMA_NLDEV_ATTR_CHARDEV_TYPE, std::string("umad")).ask(RDMA_NLDEV_CMD_GET_CHARDEV);
  REQUIRE(told.size() == 1);
  CHECK(told[0].error() == EOPNOTSUPP);
}

TEST_CASE("objects of each kind are counted, and told with their process", "[control][netlink]") {
  Daemon daemon;
  App app(daemon);
  const auto pd = app.pd();
  const auto cq = app.cq();
  const auto qp = app.qp(pd, cq);
  int word = 0;
  const auto mr = app.reg(pd, &word, sizeof word, RNIC_ACCESS_LOCAL_READ).as<rnic_reg_mr_reply>();
  REQUIRE(app.try_srq(pd, 1).status == 0);
  Asker asker(daemon);

  const auto summary = asker.with(RDMA_NLDEV_ATTR_DEV_INDEX, 0).ask(RDMA_NLDEV_CMD_RES_GET);
  REQUIRE(summary.size() == 1);
  std::map<std::string, std::uint64_t> counts;
  for (const Bytes entry : entries(*control::netlink_attribute(summary[0].body, RDMA_NLDEV_ATTR_RES_SUMMARY)))
    counts[std::string(control::netlink_text(entry, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME))] =
        Message::number<std::uint64_t>(entry, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR);
  CHECK(counts == std::map<std::string, std::uint64_t>{
                      {"pd", 1}, {"cq", 1}, {"qp", 1}, {"cm_id", 0}, {"mr", 1}, {"ctx", 1}, {"srq", 1}});

  struct Kind {
    std::uint32_t command;
    std::uint16_t table, number;
    std::uint32_t expected;  // 0: any
  };
  const Kind kinds[] = {
      {RDMA_NLDEV_CMD_RES_QP_GET, RDMA_NLDEV_ATTR_RES_QP, RDMA_NLDEV_ATTR_RES_LQPN, qp},
      {RDMA_NLDEV_CMD_RES_CQ_GET, RDMA_NLDEV_ATTR_RES_CQ, RDMA_NLDEV_ATTR_RES_CQN, 0},
      {RDMA_NLDEV_CMD_RES_MR_GET, RDMA_NLDEV_ATTR_RES_MR, RDMA_NLDEV_ATTR_RES_MRN, mr.stag >> 8},
      {RDMA_NLDEV_CMD_RES_SRQ_GET, RDMA_NLDEV_ATTR_RES_SRQ, RDMA_NLDEV_ATTR_RES_SRQN, 0},
      {RDMA_NLDEV_CMD_RES_PD_GET, RDMA_NLDEV_ATTR_RES_PD, RDMA_NLDEV_ATTR_RES_PDN, 0},
      {RDMA_NLDEV_CMD_RES_CTX_GET, RDMA_NLDEV_ATTR_RES_CTX, RDMA_NLDEV_ATTR_RES_CTXN, 0},
  };
  for (const Kind& kind : kinds) {
    INFO("command " << kind.command);
    const auto all = table_of(asker.with(RDMA_NLDEV_ATTR_DEV_INDEX, 0).dump(kind.command), kind.table);
    REQUIRE(all.size() == 1);
    CHECK(Message::number<std::uint32_t>(all[0], RDMA_NLDEV_ATTR_RES_PID) == static_cast<std::uint32_t>(getpid()));
    const auto number = Message::number<std::uint32_t>(all[0], kind.number);
    if (kind.expected != 0) CHECK(number == kind.expected);
    // The same, by its number.
    const auto one = asker.with(RDMA_NLDEV_ATTR_DEV_INDEX, 0).with(kind.number, number).ask(kind.command);
    REQUIRE(one.size() == 1);
    CHECK(one[0].get(kind.number) == number);
    const auto none = asker.with(RDMA_NLDEV_ATTR_DEV_INDEX, 0).with(kind.number, number + 1000).ask(kind.command);
    REQUIRE(none.size() == 1);
    CHECK(none[0].error() == ENOENT);
    // The other device has none, and no device is not a device.
    CHECK(asker.with(RDMA_NLDEV_ATTR_DEV_INDEX, 1).dump(kind.command).size() == 1);
    CHECK(asker.dump(kind.command)[0].error() == EINVAL);
  }
}

TEST_CASE("V-MR-07: a region that could not become another is none to netlink", "[control][netlink][V-MR-07]") {
  Daemon daemon;
  App app(daemon);
  int word = 0;
  rnic_rereg_mr change{};
  change.mr = app.reg(app.pd(), &word, sizeof word, RNIC_ACCESS_LOCAL_READ).as<rnic_reg_mr_reply>().mr;
  change.impossible = 1;
  REQUIRE(app.ask(RNIC_REREG_MR, change).status == EINVAL);
  Asker asker(daemon);
  const auto all = asker.with(RDMA_NLDEV_ATTR_DEV_INDEX, 0).dump(RDMA_NLDEV_CMD_RES_MR_GET);
  CHECK(table_of(all, RDMA_NLDEV_ATTR_RES_MR).empty());
}

TEST_CASE("the states of queue pairs and ids are those of the kernel's lists", "[control][netlink]") {
  Daemon daemon;
  App app(daemon);
  const auto qp = app.qp(app.pd(), app.cq());
  Asker asker(daemon);
  const auto state = [&] {
    const auto all =
        table_of(asker.with(RDMA_NLDEV_ATTR_DEV_INDEX, 0).dump(RDMA_NLDEV_CMD_RES_QP_GET), RDMA_NLDEV_ATTR_RES_QP);
    REQUIRE(all.size() == 1);
    CHECK(Message::number<std::uint8_t>(all[0], RDMA_NLDEV_ATTR_RES_TYPE) == 2);
    return Message::number<std::uint8_t>(all[0], RDMA_NLDEV_ATTR_RES_STATE);
  };
  CHECK(state() == 1);  // INIT
  rnic_modify_qp modify{};
  modify.qp_number = qp;
  modify.mask = RNIC_MODIFY_STATE;
  modify.state = RNIC_QP_ERROR;
  REQUIRE(app.ask(RNIC_MODIFY_QP, modify).status == 0);
  CHECK(state() == 6);

  CmApp cm(daemon);
  REQUIRE(cm.bind(cm.id(), control::to_abi(*wire::parse_ip("127.0.9.1"), 7171)).status == 0);
  const auto ids =
      table_of(asker.with(RDMA_NLDEV_ATTR_DEV_INDEX, 0).dump(RDMA_NLDEV_CMD_RES_CM_ID_GET), RDMA_NLDEV_ATTR_RES_CM_ID);
  REQUIRE(ids.size() == 1);
  CHECK(Message::number<std::uint8_t>(ids[0], RDMA_NLDEV_ATTR_RES_STATE) == 7);
  CHECK(Message::number<std::uint32_t>(ids[0], RDMA_NLDEV_ATTR_RES_PS) == 0x0106);
  CHECK(Message::number<std::uint32_t>(ids[0], RDMA_NLDEV_ATTR_RES_PID) == static_cast<std::uint32_t>(getpid()));
  const auto address = *control::netlink_attribute(ids[0], RDMA_NLDEV_ATTR_RES_SRC_ADDR);
  REQUIRE(address.size() == sizeof(sockaddr_storage));
  sockaddr_in source;
  std::memcpy(&source, address.data(), sizeof source);
  CHECK(source.sin_family == AF_INET);
  CHECK(source.sin_port == to_big(std::uint16_t{7171}));
  CHECK(source.sin_addr.s_addr == to_big(std::uint32_t{0x7f000901}));
}

TEST_CASE("a queue pair is told with the peer that its application has named", "[control][netlink][oob]") {
  Daemon daemon(
      "sched_fifo = false\n[[device]]\nport = \"loopback\"\naddress = \"127.0.9.1/24\"\noob_connect = true\n");
  App app(daemon);
  const auto qp = app.qp(app.pd(), app.cq());
  Asker asker(daemon);
  const auto told = [&] {
    const auto all =
        table_of(asker.with(RDMA_NLDEV_ATTR_DEV_INDEX, 0).dump(RDMA_NLDEV_CMD_RES_QP_GET), RDMA_NLDEV_ATTR_RES_QP);
    REQUIRE(all.size() == 1);
    return std::vector{Message::number<std::uint32_t>(all[0], RDMA_NLDEV_ATTR_RES_RQPN),
                       Message::number<std::uint32_t>(all[0], RDMA_NLDEV_ATTR_RES_RQ_PSN),
                       Message::number<std::uint32_t>(all[0], RDMA_NLDEV_ATTR_RES_SQ_PSN)};
  };
  CHECK(told() == std::vector<std::uint32_t>{0, 0, 0});
  rnic_modify_qp modify{};
  modify.qp_number = qp;
  modify.mask = RNIC_MODIFY_STATE;
  modify.state = RNIC_QP_IDLE;
  modify.idle_name = RNIC_IDLE_INIT;
  REQUIRE(app.ask(RNIC_MODIFY_QP, modify).status == 0);
  modify.mask = RNIC_MODIFY_STATE | RNIC_MODIFY_PEER;
  modify.idle_name = RNIC_IDLE_RTR;
  modify.psn = 55;
  modify.peer_number = 1234;
  modify.has_route = 1;
  modify.peer_gid[10] = modify.peer_gid[11] = 0xFF;
  modify.peer_gid[12] = 127;
  modify.peer_gid[14] = 9;
  modify.peer_gid[15] = 2;
  REQUIRE(app.ask(RNIC_MODIFY_QP, modify).status == 0);
  CHECK(told() == std::vector<std::uint32_t>{1234, 55, 0});
  modify.mask = RNIC_MODIFY_STATE | RNIC_MODIFY_PSN;
  modify.idle_name = RNIC_IDLE_RTS;
  modify.psn = 77;
  REQUIRE(app.ask(RNIC_MODIFY_QP, modify).status == 0);
  CHECK(told() == std::vector<std::uint32_t>{1234, 55, 77});
}

TEST_CASE("an id for datagrams is told with its port space", "[control][netlink][datagrams]") {
  Daemon daemon("sched_fifo = false\n[[device]]\nport = \"loopback\"\nface = \"roce\"\n");
  CmApp app(daemon);
  rnic_cm_create_id body{};
  body.channel = app.reply.channel;
  body.port_space = 0x0111;
  const auto id = app.ask(RNIC_CM_CREATE_ID, body).as<rnic_handle_reply>().handle;
  REQUIRE(app.bind(id, control::to_abi(*wire::parse_ip("127.0.1.1"), 7171)).status == 0);
  Asker asker(daemon);
  const auto ids =
      table_of(asker.with(RDMA_NLDEV_ATTR_DEV_INDEX, 0).dump(RDMA_NLDEV_CMD_RES_CM_ID_GET), RDMA_NLDEV_ATTR_RES_CM_ID);
  REQUIRE(ids.size() == 1);
  CHECK(Message::number<std::uint32_t>(ids[0], RDMA_NLDEV_ATTR_RES_PS) == 0x0111);
  CHECK(Message::number<std::uint8_t>(ids[0], RDMA_NLDEV_ATTR_RES_TYPE) == 4);
}

TEST_CASE("many objects come in messages that a page has room for, and none is left out", "[control][netlink]") {
  Daemon daemon;
  App app(daemon);
  const auto pd = app.pd();
  int word = 0;
  std::set<std::uint32_t> made, told;
  for (int i = 0; i < 300; ++i)
    made.insert(app.reg(pd, &word, sizeof word, RNIC_ACCESS_LOCAL_READ).as<rnic_reg_mr_reply>().stag >> 8);
  const auto messages = Asker(daemon).with(RDMA_NLDEV_ATTR_DEV_INDEX, 0).dump(RDMA_NLDEV_CMD_RES_MR_GET);
  CHECK(messages.size() > 3);
  for (const auto& entry : table_of(messages, RDMA_NLDEV_ATTR_RES_MR)) {
    told.insert(Message::number<std::uint32_t>(entry, RDMA_NLDEV_ATTR_RES_MRN));
    // Whoever may ask is not thereby to reach the memory.
    CHECK_FALSE(control::netlink_attribute(entry, RDMA_NLDEV_ATTR_RES_RKEY));
    CHECK_FALSE(control::netlink_attribute(entry, RDMA_NLDEV_ATTR_RES_LKEY));
  }
  CHECK(told == made);
}

TEST_CASE("objects of two applications have different numbers", "[control][netlink]") {
  Daemon daemon;
  App one(daemon), other(daemon);
  int word = 0;
  for (App* app : {&one, &other}) {
    const auto pd = app->pd();
    app->cq();
    REQUIRE(app->try_srq(pd, 1).status == 0);
    REQUIRE(app->reg(pd, &word, sizeof word, RNIC_ACCESS_LOCAL_READ).status == 0);
  }
  Asker asker(daemon);
  const std::array<std::uint32_t, 3> kinds[] = {
      {RDMA_NLDEV_CMD_RES_CQ_GET, RDMA_NLDEV_ATTR_RES_CQ, RDMA_NLDEV_ATTR_RES_CQN},
      {RDMA_NLDEV_CMD_RES_MR_GET, RDMA_NLDEV_ATTR_RES_MR, RDMA_NLDEV_ATTR_RES_MRN},
      {RDMA_NLDEV_CMD_RES_SRQ_GET, RDMA_NLDEV_ATTR_RES_SRQ, RDMA_NLDEV_ATTR_RES_SRQN}};
  for (const auto& [command, table, number] : kinds) {
    const auto all =
        table_of(asker.with(RDMA_NLDEV_ATTR_DEV_INDEX, 0).dump(command), static_cast<std::uint16_t>(table));
    REQUIRE(all.size() == 2);
    CHECK(Message::number<std::uint32_t>(all[0], static_cast<std::uint16_t>(number)) !=
          Message::number<std::uint32_t>(all[1], static_cast<std::uint16_t>(number)));
  }
}

TEST_CASE("two messages in one request are both answered, in their order", "[control][netlink]") {
  Daemon daemon;
  nlmsghdr head{};
  head.nlmsg_len = sizeof head;
  head.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET);
  head.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  head.nlmsg_seq = kSequence;
  std::vector<std::byte> octets(2 * sizeof head);
  std::memcpy(octets.data(), &head, sizeof head);
  head.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_RES_GET);
  std::memcpy(octets.data() + sizeof head, &head, sizeof head);
  const auto told = Asker(daemon).ask_octets(octets);
  REQUIRE(told.size() == 6);
  CHECK(told[0].command() == RDMA_NLDEV_CMD_GET);
  CHECK(told[2].head.nlmsg_type == NLMSG_DONE);
  CHECK(told[3].command() == RDMA_NLDEV_CMD_RES_GET);
}

TEST_CASE("who does not read an answer in memory gets no second", "[control][netlink]") {
  Daemon daemon;
  for (const std::uint32_t type : {RNIC_NETLINK, RNIC_SHOW}) {
    Client client(daemon, RNIC_CLIENT_ADMIN, "");
    const auto send = [&] {
      std::vector<std::byte> octets(sizeof(rnic_msg) + sizeof(rnic_netlink));
      const rnic_msg header{type, 1, 0, static_cast<std::uint32_t>(octets.size())};
      std::memcpy(octets.data(), &header, sizeof header);
      client.send_octets(octets);
      daemon.settle();
    };
    send();
    send();
    const Answer first = client.receive(), second = client.receive();
    CHECK(first.status == 0);
    CHECK(first.fds.size() == 1);
    CHECK(second.status == EBUSY);
    CHECK(second.fds.empty());
    send();
    CHECK(client.receive().status == 0);
  }
}

TEST_CASE("a port's counters have names and values; nothing is bound to queue pairs", "[control][netlink]") {
  Daemon daemon;
  Asker asker(daemon);
  const auto told =
      asker.with(RDMA_NLDEV_ATTR_DEV_INDEX, 0).with(RDMA_NLDEV_ATTR_PORT_INDEX, 1).ask(RDMA_NLDEV_CMD_STAT_GET);
  REQUIRE(told.size() == 1);
  std::set<std::string> names;
  for (const Bytes entry : entries(*control::netlink_attribute(told[0].body, RDMA_NLDEV_ATTR_STAT_HWCOUNTERS))) {
    names.insert(std::string(control::netlink_text(entry, RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME)));
    Message::number<std::uint64_t>(entry, RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE);
  }
  CHECK(names.contains("frames_in"));
  CHECK(names.contains("bytes_out"));
  CHECK(asker.dump(RDMA_NLDEV_CMD_STAT_GET).size() == 3);
  CHECK(asker.with(RDMA_NLDEV_ATTR_STAT_RES, RDMA_NLDEV_ATTR_RES_QP).dump(RDMA_NLDEV_CMD_STAT_GET).size() == 1);
}

TEST_CASE("what would change something, or is of another part of RDMA, is refused", "[control][netlink]") {
  Daemon daemon;
  Asker asker(daemon);
  for (const std::uint32_t command :
       {RDMA_NLDEV_CMD_SET, RDMA_NLDEV_CMD_NEWLINK, RDMA_NLDEV_CMD_DELLINK, RDMA_NLDEV_CMD_SYS_SET,
        RDMA_NLDEV_CMD_STAT_SET, RDMA_NLDEV_CMD_STAT_DEL, RDMA_NLDEV_CMD_RES_QP_GET_RAW, RDMA_NLDEV_CMD_UNSPEC}) {
    const auto told = asker.with(RDMA_NLDEV_ATTR_DEV_INDEX, 0).ask(command, NLM_F_ACK);
    REQUIRE(told.size() == 1);
    CHECK(told[0].error() == EOPNOTSUPP);
  }
  const auto other = asker.ask_type(RDMA_NL_GET_TYPE(RDMA_NL_LS, 0), 0);
  REQUIRE(other.size() == 1);
  CHECK(other[0].error() == EINVAL);
}

TEST_CASE("what is no message, or says that it is longer than it is, harms nobody", "[control][netlink]") {
  Daemon daemon;
  Asker asker(daemon);
  CHECK(asker.refused(RNIC_NETLINK_MAX + 1) == EMSGSIZE);
  CHECK(asker.refused(~0u) == EMSGSIZE);
  CHECK(asker.ask_octets({}).empty());
  CHECK(asker.ask_octets(std::vector<std::byte>(15)).empty());
  nlmsghdr head{};
  head.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET);
  head.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  head.nlmsg_seq = kSequence;
  for (const std::uint32_t length : {0u, 15u, 17u, ~0u}) {
    head.nlmsg_len = length;
    std::vector<std::byte> octets(sizeof head);
    std::memcpy(octets.data(), &head, sizeof head);
    CHECK(asker.ask_octets(octets).empty());
  }
  // An attribute that is cut off is not there.
  for (const int length : {0, 3, 5, 7, 9, 0xffff}) {
    head.nlmsg_len = sizeof head + 8;
    head.nlmsg_flags = NLM_F_REQUEST;
    const nlattr attribute{static_cast<__u16>(length), RDMA_NLDEV_ATTR_DEV_INDEX};
    std::vector<std::byte> octets(head.nlmsg_len);
    std::memcpy(octets.data(), &head, sizeof head);
    std::memcpy(octets.data() + sizeof head, &attribute, sizeof attribute);
    const auto told = asker.ask_octets(octets);
    REQUIRE(told.size() == 1);
    CHECK(told[0].error() == EINVAL);
  }
}
