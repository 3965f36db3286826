#include "client.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "control/run_directory.hpp"

namespace rnic::tool {
namespace {

// What became of a question, for strerror().
int error_of(int asked) {
  if (asked == RNIC_TALK_GONE) return ECONNRESET;
  return asked == RNIC_TALK_LATE ? ETIMEDOUT : asked;
}

}  // namespace

Client::~Client() {
  if (talk_.socket >= 0) close(talk_.socket);
}

bool Client::connect(const std::string& name) {
  if (!control::good_name(name)) {
    why_ = "\"" + name + "\" is not a name: letters, digits, '-', '_' and '.' only";
    return false;
  }
  const std::string directory = control::run_directory(name);
  const std::string absent = "no daemon \"" + name + "\" of yours is running (start one with: rnic up" +
                             (name == "default" ? std::string() : " --name " + name) + ")";
  char wrong[RNIC_WHY_MAX] = "";
  talk_.socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  int error =
      talk_.socket < 0 ? errno : rnic_talk_connect(talk_.libc, talk_.socket, directory.c_str(), wrong, sizeof wrong);
  if (error != 0) {
    if (*wrong != '\0')
      why_ = wrong;
    else if (error == EACCES || error == EPERM)
      why_ = "the daemon \"" + name + "\" belongs to another user";
    else
      why_ = absent;
    return false;
  }

  rnic_hello hello{};
  hello.kind = RNIC_CLIENT_ADMIN;
  error = rnic_talk_hello(&talk_, &hello, &hello_);
  if (error != 0) {
    why_ = error == EPROTONOSUPPORT || error == EPROTO
               ? "the daemon \"" + name + "\" is of another version of rnic; restart it with this one"
               : "the daemon \"" + name + "\" does not answer (" + std::strerror(error_of(error)) + ")";
    return false;
  }
  daemon_pid_ = hello_.daemon_pid;
  return true;
}

int Client::ask(std::uint32_t type, const void* body, std::size_t size, void* reply, std::size_t reply_size,
                int* descriptor) {
  std::vector<int> descriptors;
  const int status = ask(type, body, size, reply, reply_size, descriptors);
  for (std::size_t i = 0; i < descriptors.size(); ++i) {
    if (descriptor != nullptr && i == 0)
      *descriptor = descriptors[i];
    else
      close(descriptors[i]);
  }
  return status;
}

int Client::ask(std::uint32_t type, const void* body, std::size_t size, void* reply, std::size_t reply_size,
                std::vector<int>& descriptors) {
  rnic_question question{};
  question.type = type;
  question.request = body;
  question.request_size = size;
  question.reply = reply;
  question.reply_room = reply_size;
  const int error = rnic_ask(&talk_, &question);
  for (int fd; (fd = rnic_fds_take(&question.received)) >= 0;) descriptors.push_back(fd);
  return error < 0 ? -error_of(error) : error;
}

}  // namespace rnic::tool
