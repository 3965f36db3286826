// abi/rnic_messages.h and abi/rnic_talk.h: the one conversation, with a real server at its other end and harm between.
#include <cerrno>
#include <filesystem>
#include <set>
#include <string>

#include "control/run_directory.hpp"
#include "kit/catch.hpp"
#include "kit/live_daemon.hpp"
#include "kit/server_world.hpp"
#include "rnic_talk.h"

using namespace rnic;
using namespace rnic::test;

namespace {

// What libc does with these before it does what is asked.
struct Interruptions {
  int left = 0;
  int made = 0;
  bool again(int result = -1) {
    if (left == 0) return false;
    --left;
    ++made;
    errno = EINTR;
    return result < 0;
  }
};
Interruptions interruptions;

int interrupted_connect(int fd, const sockaddr* address, socklen_t size) {
  return interruptions.again() ? -1 : connect(fd, address, size);
}
ssize_t interrupted_sendmsg(int fd, const msghdr* message, int flags) {
  return interruptions.again() ? -1 : sendmsg(fd, message, flags);
}
ssize_t interrupted_recvmsg(int fd, msghdr* message, int flags) {
  return interruptions.again() ? -1 : recvmsg(fd, message, flags);
}
int interrupted_poll(pollfd* fds, nfds_t count, int timeout_ms) {
  return interruptions.again() ? -1 : poll(fds, count, timeout_ms);
}

rnic_libc interrupted() {
  rnic_libc libc = *rnic_libc_plain();
  libc.connect = interrupted_connect;
  libc.sendmsg = interrupted_sendmsg;
  libc.recvmsg = interrupted_recvmsg;
  libc.poll = interrupted_poll;
  return libc;
}

// A client that has said HELLO.
struct Talker {
  explicit Talker(LiveDaemon& daemon, const rnic_libc* libc = rnic_libc_plain())
      : socket(daemon.relay->connect()), talk{libc, socket.get(), 1, 0} {
    REQUIRE(hello() == 0);
  }
  int hello() {
    rnic_hello hello{};
    hello.kind = RNIC_CLIENT_VERBS;
    rnic_hello_reply reply;
    return rnic_talk_hello(&talk, &hello, &reply);
  }
  // The descriptors that came are counted, and closed.
  int ask(std::uint32_t type, const void* request, std::size_t request_size, void* reply = nullptr,
          std::size_t room = 0) {
    rnic_question question{};
    question.type = type;
    question.request = request;
    question.request_size = request_size;
    question.reply = reply;
    question.reply_room = room;
    const int result = rnic_ask(&talk, &question);
    descriptors = 0;
    for (int fd; (fd = rnic_fds_take(&question.received)) >= 0; ++descriptors) close(fd);
    reply_size = question.reply_size;
    return result;
  }
  int show(rnic_handle_reply& reply) {
    const rnic_show request{};
    return ask(RNIC_SHOW, &request, sizeof request, &reply, sizeof reply);
  }
  bool shut() const {
    pollfd one{socket.get(), POLLRDHUP, 0};
    return poll(&one, 1, 0) == 1 && (one.revents & POLLRDHUP) != 0;
  }

  control::Descriptor socket;
  rnic_talk talk;
  std::size_t reply_size = 0;
  unsigned descriptors = 0;
};

}  // namespace

TEST_CASE("every message has a row, and its number and name are its own", "[abi]") {
  std::set<std::uint32_t> numbers;
  std::set<std::string> names;
#define RNIC_COUNT(NAME, word, number, who, request, reply, fds_in, fds_out) \
  CHECK(numbers.insert(number).second);                                      \
  CHECK(names.insert(#word).second);                                         \
  REQUIRE(rnic_message_of(RNIC_##NAME) != nullptr);                          \
  CHECK(rnic_message_of(RNIC_##NAME)->type == RNIC_##NAME);                  \
  CHECK(rnic_message_of(RNIC_##NAME)->name == std::string(#word));           \
  CHECK(sizeof(rnic_msg) + rnic_message_of(RNIC_##NAME)->request_size <= RNIC_MSG_MAX);
  RNIC_MESSAGES(RNIC_COUNT)
#undef RNIC_COUNT
  CHECK(rnic_message_of(0) == nullptr);
  CHECK(rnic_message_of(63) == nullptr);
  CHECK(rnic_message_of(RNIC_KILL + 1) == nullptr);
  CHECK(rnic_message_of(RNIC_STOP)->request_size == 0);
  CHECK(rnic_message_of(RNIC_REG_MR)->request_size == sizeof(rnic_reg_mr));
}

TEST_CASE("a question has its answer, with what comes along", "[abi][talk]") {
  LiveDaemon daemon(DataPlane::rests);
  Talker client(daemon);
  rnic_handle_reply reply{};
  CHECK(client.show(reply) == 0);
  CHECK(reply.handle > 0);
  CHECK(client.reply_size == sizeof reply);
  CHECK(client.descriptors == 1);
  CHECK(client.ask(RNIC_ALLOC_PD, nullptr, 0) == ENODEV);  // the server's own word
  CHECK(client.ask(999, nullptr, 0) == ENOSYS);            // no such message is sent
  CHECK(daemon.relay->count(999) == 0);
  CHECK_FALSE(client.shut());
}

TEST_CASE("an answer to another question is the end of the conversation", "[abi][talk]") {
  LiveDaemon daemon(DataPlane::rests);
  const std::size_t before = open_descriptors();
  for (const auto harm : {harm::wrong_id, harm::wrong_type, harm::cut_in_half, harm::close}) {
    Talker client(daemon);
    daemon.relay->harm(RNIC_SHOW, harm);
    rnic_handle_reply reply{77, 0};
    CHECK(client.show(reply) == RNIC_TALK_GONE);
    CHECK(reply.handle == 77);
    CHECK(client.descriptors == 0);
    CHECK(client.shut());
  }
  daemon.run([] {});
  for (int i = 0; i < 1000 && open_descriptors() != before; ++i) usleep(1000);
  CHECK(open_descriptors() == before);  // the one that came along, too
}

TEST_CASE("an answer shorter than its row is EPROTO, and the conversation goes on", "[abi][talk]") {
  LiveDaemon daemon(DataPlane::rests);
  Talker client(daemon);
  daemon.relay->harm(RNIC_SHOW, harm::cut_short);
  rnic_handle_reply reply{77, 0};
  CHECK(client.show(reply) == EPROTO);
  CHECK(reply.handle == 77);
  CHECK(client.descriptors == 0);
  CHECK(client.show(reply) == 0);
}

TEST_CASE("a descriptor that does not come is missed, not waited for", "[abi][talk]") {
  LiveDaemon daemon(DataPlane::rests);
  Talker client(daemon);
  daemon.relay->harm(RNIC_SHOW, harm::take_descriptors);
  rnic_handle_reply reply{};
  CHECK(client.show(reply) == 0);
  CHECK(client.descriptors == 0);
}

TEST_CASE("an answer that does not come is waited for as long as was said, and the connection given up",
          "[abi][talk]") {
  LiveDaemon daemon(DataPlane::rests);
  Talker client(daemon);
  client.talk.limit_ms = 2000;
  rnic_handle_reply reply{};
  daemon.relay->harm(RNIC_SHOW, harm::delay(50));
  CHECK(client.show(reply) == 0);
  client.talk.limit_ms = 50;
  daemon.relay->harm(RNIC_SHOW, harm::drop);
  CHECK(client.show(reply) == RNIC_TALK_LATE);
  CHECK(client.shut());
}

TEST_CASE("what is interrupted goes on, wherever it was", "[abi][talk]") {
  LiveDaemon daemon(DataPlane::rests);
  const rnic_libc libc = interrupted();
  const int limit_ms = GENERATE(0, 5000);
  Talker client(daemon, &libc);
  client.talk.limit_ms = limit_ms;
  rnic_handle_reply reply{};
  for (const int times : {1, 2, 7}) {
    interruptions = {times, 0};
    CHECK(client.show(reply) == 0);
    CHECK(interruptions.made == times);
  }
}

TEST_CASE("a socket that somebody has made non-blocking is waited on", "[abi][talk]") {
  LiveDaemon daemon(DataPlane::rests);
  Talker client(daemon);
  REQUIRE(fcntl(client.socket.get(), F_SETFL, O_RDWR | O_NONBLOCK) == 0);
  daemon.relay->harm(RNIC_SHOW, harm::delay(20));
  rnic_handle_reply reply{};
  CHECK(client.show(reply) == 0);
}

TEST_CASE("a daemon of another version is told from one that is gone", "[abi][talk]") {
  LiveDaemon daemon(DataPlane::rests);
  control::Descriptor socket(daemon.relay->connect());
  rnic_talk talk{rnic_libc_plain(), socket.get(), 1, 0};
  daemon.relay->harm(RNIC_HELLO, [](const Asked&, Passing& reply) {
    auto body = reply.as<rnic_hello_reply>();
    ++body.abi_version;
    reply.put(body);
  });
  rnic_hello hello{};
  hello.kind = RNIC_CLIENT_CM;
  rnic_hello_reply reply;
  CHECK(rnic_talk_hello(&talk, &hello, &reply) == EPROTONOSUPPORT);
}

TEST_CASE(
    "a daemon is reached in a directory of any length, through interruptions; and is absent, or not to be trusted",
    "[abi][talk]") {
  char name[] = "/tmp/rnic-talk-test-XXXXXX";
  const std::string root = mkdtemp(name);
  const std::string base = root + "/" + std::string(200, 'b'), run = base + "/n";
  REQUIRE(control::make_directory(run).empty());
  const rnic_libc libc = interrupted();
  char why[RNIC_WHY_MAX];
  const auto connect_to = [&](const std::string& directory) {
    const control::Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    return rnic_talk_connect(&libc, socket.get(), directory.c_str(), why, sizeof why);
  };
  {
    LiveDaemon daemon(DataPlane::rests, LiveDaemon::kTwoDevices, run);
    interruptions = {0, 0};
    CHECK(connect_to(run) == 0);
    interruptions = {3, 0};
    CHECK(connect_to(run) == 0);
    CHECK(interruptions.made == 3);
    CHECK(connect_to(base + "/other") == RNIC_TALK_ABSENT);
    CHECK(*why == '\0');
    REQUIRE(chmod(run.c_str(), 0777) == 0);
    CHECK(connect_to(run) == EPERM);
    CHECK(*why != '\0');
    REQUIRE(chmod(run.c_str(), 0700) == 0);
  }
  CHECK(connect_to(run) == RNIC_TALK_ABSENT);  // its socket is there still
  std::filesystem::remove_all(root);
}
