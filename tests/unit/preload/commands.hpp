// The commands of <rdma/rdma_user_cm.h> as librdmacm writes them, for tests.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <unistd.h>

#include <rdma/rdma_user_cm.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "unit/preload/daemon.hpp"

namespace rnic::test {

// 0, or the errno of the write.
template <class Body>
int command(int fd, std::uint32_t number, const Body& body, std::size_t out = 0) {
  std::vector<std::uint8_t> octets(sizeof(rdma_ucm_cmd_hdr) + sizeof body);
  const rdma_ucm_cmd_hdr header{number, static_cast<__u16>(sizeof body), static_cast<__u16>(out)};
  std::memcpy(octets.data(), &header, sizeof header);
  std::memcpy(octets.data() + sizeof header, &body, sizeof body);
  const ssize_t written = write(fd, octets.data(), octets.size());
  if (written < 0) return errno;
  return written == static_cast<ssize_t>(octets.size()) ? 0 : ENODATA;
}

// With a response that the body's `response` points to.
template <class Body, class Response>
int command(int fd, std::uint32_t number, Body body, Response& response) {
  body.response = reinterpret_cast<std::uint64_t>(&response);
  return command(fd, number, body, sizeof response);
}

inline int open_cm(int flags = O_RDWR | O_CLOEXEC) { return open("/dev/infiniband/rdma_cm", flags); }

// The number of the channel that was opened last.
inline std::uint32_t create_id(int fd, std::uint64_t uid) {
  rdma_ucm_create_id body{};
  body.uid = uid;
  body.ps = RDMA_PS_TCP;
  rdma_ucm_create_id_resp response{};
  if (command(fd, RDMA_USER_CM_CMD_CREATE_ID, body, response) != 0) return 0;
  return response.id;
}

inline std::uint32_t channel_of_last_id() {
  return daemon_at_work().last(RNIC_CM_CREATE_ID).as<rnic_cm_create_id>().channel;
}

inline int destroy_id(int fd, std::uint32_t id, std::uint32_t& events_reported) {
  rdma_ucm_destroy_id body{};
  body.id = id;
  rdma_ucm_destroy_id_resp response{};
  const int error = command(fd, RDMA_USER_CM_CMD_DESTROY_ID, body, response);
  events_reported = response.events_reported;
  return error;
}

inline int get_event(int fd, rdma_ucm_event_resp& event) {
  return command(fd, RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{}, event);
}

inline rnic_cm_get_event_reply event_of(std::uint32_t id, std::uint64_t uid, std::uint32_t kind) {
  rnic_cm_get_event_reply event{};
  event.id = id;
  event.uid = uid;
  event.event = kind;
  return event;
}

}  // namespace rnic::test
