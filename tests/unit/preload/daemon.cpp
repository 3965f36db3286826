// The daemon that the stand-in's tests talk to.
#include "unit/preload/daemon.hpp"

#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>

namespace rnic::test {
namespace {

// With an IPv6 address, too; with no way to 198.51.100.1.
constexpr const char* kOneDevice =
    "sched_fifo = false\n"
    "[[device]]\nport = \"loopback\"\naddress = [\"127.0.1.1/8\", \"fd00::7/64\"]\n";

int ask(rnic_talk& talk, std::uint32_t type, const void* request, std::size_t size, void* reply, std::size_t room,
        rnic_fds* fds = nullptr) {
  rnic_question question{};
  question.type = type;
  question.request = request;
  question.request_size = size;
  question.reply = reply;
  question.reply_room = room;
  const int error = rnic_ask(&talk, &question);
  if (fds != nullptr) {
    *fds = question.received;
  } else {
    rnic_fds_close(rnic_libc_plain(), &question.received);
  }
  return error;
}

}  // namespace

TestDaemon::TestDaemon() {
  char name[] = "/tmp/rnic-preload-test-XXXXXX";
  run_dir_ = mkdtemp(name);
  setenv("RNIC_RUN_DIR", run_dir_.c_str(), 1);
  unsetenv("RNIC_DEVICE");
  unsetenv("SYSFS_PATH");
}

TestDaemon::~TestDaemon() {
  die();
  std::filesystem::remove_all(run_dir_);
}

void TestDaemon::start() {
  if (live_ != nullptr) return;
  live_ = std::make_unique<LiveDaemon>(DataPlane::turns, kOneDevice, run_dir_);
  agree_no_more();
}

void TestDaemon::agree_no_more() {
  relay().no_harm();
  relay().harm(RNIC_CM_LISTEN, harm::status(0), 0);
  relay().harm(
      RNIC_CM_OPEN,
      [this](const Asked&, Passing& reply) {
        const auto opened = reply.as<rnic_cm_open_reply>();
        std::memcpy(tokens_[opened.channel].token, opened.token, sizeof opened.token);
      },
      0);
  relay().harm(
      RNIC_CREATE_CHANNEL,
      [this](const Asked&, Passing& reply) { completion_cookie_ = reply.as<rnic_create_channel_reply>().cookie; }, 0);
  relay().harm(
      RNIC_CM_GET_EVENT,
      [this](const Asked& asked, Passing& reply) {
        const auto request = asked.as<rnic_handle>();
        auto& instead = told_instead_[request.handle];
        auto& lent = lent_instead_[request.handle];
        if (reply.header.status != 0) return;
        if ((request.reserved & RNIC_CM_GIVE_BACK) != 0) {
          for (std::uint32_t count = request.reserved & ~RNIC_CM_GIVE_BACK; count > 0 && !lent.empty(); --count) {
            instead.push_front(lent.back());
            lent.pop_back();
          }
          return;
        }
        lent.clear();
        for (std::size_t at = 0; at < reply.body.size() && !instead.empty(); at += sizeof(rnic_cm_told)) {
          std::memcpy(reply.body.data() + at, &instead.front(), sizeof instead.front());
          lent.push_back(instead.front());
          instead.pop_front();
        }
        if (tells_one_event) reply.put(reply.as<rnic_cm_get_event_reply>());
      },
      0);
}

unsigned TestDaemon::address_count() {
  unsigned count = 0;
  live_->run([&] { count = live_->machine.info(*live_->machine.devices.front()).address_count; });
  return count;
}

void TestDaemon::die() {
  if (live_ == nullptr) return;
  relay().end_listening();
  relay().cut();
  live_.reset();
  told_instead_.clear();
  lent_instead_.clear();
  tokens_.clear();
}

void TestDaemon::agree() {
  for (const std::uint32_t type :
       {RNIC_CM_BIND, RNIC_CM_RESOLVE_ADDRESS, RNIC_CM_RESOLVE_ROUTE, RNIC_CM_CONNECT, RNIC_CM_ACCEPT, RNIC_CM_REJECT,
        RNIC_CM_DISCONNECT, RNIC_CM_SET_OPTION, RNIC_CM_NOTIFY})
    relay().harm(type, harm::status(0), 0);
  const auto say = [](const auto& body) {
    return [&body](const Asked&, Passing& reply) {
      reply.header.status = 0;
      reply.put(body);
    };
  };
  relay().harm(RNIC_CM_QUERY, say(query), 0);
  relay().harm(RNIC_CM_INIT_QP_ATTRIBUTES, say(qp_attributes), 0);
}

// Its address cannot be resolved: that is told by an event, and changes nothing, however often.
void TestDaemon::bring_about_event(std::uint32_t id) {
  rnic_cm_resolve_address body{};
  body.id = id;
  body.destination.family = AF_INET;
  const std::uint8_t nowhere[] = {198, 51, 100, 1};
  std::memcpy(body.destination.octets, nowhere, sizeof nowhere);
  if (relay().ask_for(relay().last(RNIC_CM_CREATE_ID).connection, RNIC_CM_RESOLVE_ADDRESS, &body, sizeof body) != 0)
    abort();
}

void TestDaemon::post(std::uint32_t channel, const rnic_cm_get_event_reply& event) {
  told_instead_[channel].push_back(event);
  bring_about_event(event.event == RNIC_CM_CONNECT_REQUEST ? event.listener : event.id);
}

void TestDaemon::post_count_only(std::uint32_t channel, std::uint32_t id) {
  relay().refuse_if(RNIC_CM_GET_EVENT, EAGAIN, 1,
                    [channel](const Asked& asked) { return asked.as<rnic_handle>().handle == channel; });
  bring_about_event(id);
}

rnic_talk TestDaemon::introduce(std::uint32_t kind) {
  auto hello = last(RNIC_HELLO).as<rnic_hello>();
  hello.kind = kind;
  rnic_talk talk{rnic_libc_plain(), relay().connect(), 1, 0};
  rnic_hello_reply reply;
  if (rnic_talk_hello(&talk, &hello, &reply) != 0) abort();
  return talk;
}

void TestDaemon::post_completion(std::uint64_t user_pointer) {
  rnic_talk talk = introduce(RNIC_CLIENT_VERBS);
  rnic_open_context open{};
  std::strcpy(open.device, "rnic0");
  rnic_open_context_reply opened;
  if (ask(talk, RNIC_OPEN_CONTEXT, &open, sizeof open, &opened, sizeof opened) != 0) abort();
  rnic_create_cq create{};
  create.entries_min = 1;
  create.channel_cookie = completion_cookie_;
  rnic_create_cq_reply created;
  rnic_fds fds;
  if (ask(talk, RNIC_CREATE_CQ, &create, sizeof create, &created, sizeof created, &fds) != 0) abort();
  rnic_fds_take(&fds);  // the arena
  const int writer = rnic_fds_take(&fds);
  if (send(writer, &user_pointer, sizeof user_pointer, MSG_NOSIGNAL) != sizeof user_pointer) abort();
  close(writer);
  close(talk.socket);
}

bool TestDaemon::is_gone(std::uint32_t channel) {
  for (int i = 0; i < 3; ++i) live_->run([] {});  // what has hung up is heard
  rnic_talk talk = introduce(RNIC_CLIENT_CM);
  rnic_cm_open_reply reply;
  const int error = ask(talk, RNIC_CM_OPEN, &tokens_.at(channel), sizeof(rnic_cm_open), &reply, sizeof reply);
  close(talk.socket);
  return error == ENOENT;
}

}  // namespace rnic::test
