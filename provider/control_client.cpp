/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "control_client.hpp"

#include <unistd.h>

#include <atomic>

namespace rnic::provider {

void ControlClient::open(int socket) {
  fd = socket;
  owner = getpid();
  next_id = 1;
  broken = 0;
  pthread_mutex_init(&mutex, nullptr);
}

void ControlClient::close() { pthread_mutex_destroy(&mutex); }

bool ControlClient::in_forked_child() const { return getpid() != owner; }

int ControlClient::call(std::uint32_t type, const void* request, std::size_t request_size, void* reply,
                        std::size_t reply_size, int fd_in, Descriptors* fds_out) {
  if (in_forked_child()) return EPERM;
  rnic_question question{};
  question.type = type;
  question.request = request;
  question.request_size = request_size;
  question.fds = &fd_in;
  question.fd_count = fd_in >= 0 ? 1 : 0;
  question.reply = reply;
  question.reply_room = reply_size;

  pthread_mutex_lock(&mutex);
  const std::atomic_ref gone(broken);
  int error = RNIC_TALK_GONE;
  if (gone.load() == 0) {
    rnic_talk talk{rnic_libc_plain(), fd, next_id, 0};
    error = rnic_ask(&talk, &question);
    next_id = talk.next_id;
    if (error < 0) gone.store(1);  // by the hang-up the watcher learns of it too
  }
  pthread_mutex_unlock(&mutex);
  Descriptors fds{question.received};
  if (fds_out != nullptr) {
    *fds_out = fds;
  } else {
    fds.close_rest();
  }
  return error < 0 ? EIO : error;
}

}  // namespace rnic::provider
