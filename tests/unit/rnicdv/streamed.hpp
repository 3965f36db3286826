// Streams in streaming mode as their applications use them: two of them, and queue pairs that have no connection yet.
#pragma once

#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "unit/rnicdv/world.hpp"

namespace rnic::test::streams {

inline constexpr std::uint16_t kPort = 7800;

// Of b's device, or of a's.
inline sockaddr_in at(std::uint8_t host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(0x7F000900u + host);
  return address;
}
inline const sockaddr* as_socket(const sockaddr_in& address) { return reinterpret_cast<const sockaddr*>(&address); }

inline rnicdv_stream* open_to(const Application& app, const sockaddr_in& to, void* own = nullptr) {
  return rnicdv_stream_connect(context_of(app), nullptr, as_socket(to), own);
}
inline rnicdv_stream_attr direct_of(rnicdv_stream* stream) {
  rnicdv_stream_attr attr{};
  REQUIRE(rnicdv_stream_query(stream, &attr) == 0);
  return attr;
}
// Waits for its events, as an application does: other streams' are not looked at.
inline bool wait_for(rnicdv_stream* stream) {
  rnicdv_event told{};
  for (;;) {
    pollfd one{rnicdv_event_fd(stream->context), POLLIN, 0};
    if (::poll(&one, 1, 30'000) != 1) return false;
    REQUIRE(rnicdv_get_event(stream->context, &told) == 0);
    CHECK(told.type == RNICDV_EVENT_STREAM_READY);
    if (told.stream == stream) return true;
  }
}
inline void send(rnicdv_stream* stream, std::string_view text) {
  while (!text.empty()) {
    std::size_t sent = 0;
    const int error = rnicdv_stream_send(stream, text.data(), text.size(), &sent);
    if (error != EAGAIN) REQUIRE(error == 0);
    text.remove_prefix(sent);
    if (!text.empty()) REQUIRE(wait_for(stream));
  }
}
// So many octets; fewer, and the peer has closed.
inline std::string receive(rnicdv_stream* stream, std::size_t size) {
  std::string text;
  while (text.size() < size) {
    char octets[6000];
    std::size_t received = 0;
    const int error = rnicdv_stream_receive(stream, octets, std::min(size - text.size(), sizeof octets), &received);
    if (error == EAGAIN) {
      REQUIRE(wait_for(stream));
      continue;
    }
    REQUIRE(error == 0);
    if (received == 0) break;
    text.append(octets, received);
  }
  return text;
}
inline int attach(ibv_qp* qp, rnicdv_stream* stream, std::string_view last = {}, std::uint32_t more = 0,
                  std::uint32_t limit = 0, std::uint32_t ord = 0, std::uint32_t ird = 0) {
  rnicdv_qp_mod mod = mod_of(RNICDV_QPS_RTS, limit, ord, ird);
  mod.stream = stream;
  mod.message = last.data();
  mod.message_length = static_cast<std::uint32_t>(last.size());
  return modify(qp, RNICDV_QP_STATE | RNICDV_QP_STREAM | more, mod);
}

// A stream from a to b, whose queue pairs have no connection yet.
struct Streamed : Wired {
  explicit Streamed(std::uint32_t depth = 64, const char* devices = kTwoDevices) : Wired(devices) {
    for (Application* app : {&a, &b}) {
      ibv_cq* cq = app->make_cq(256);
      (app == &a ? cq_a : cq_b) = cq;
      ibv_qp* qp = app->make_qp(cq, cq, depth);
      REQUIRE(to_state(qp, IBV_QPS_INIT, IBV_QP_ACCESS_FLAGS) == 0);
      (app == &a ? qp_a : qp_b) = qp;
    }
    mr_a = a.make_mr(memory_a.data(), memory_a.size(), kAll);
    mr_b = b.make_mr(memory_b.data(), memory_b.size(), kAll);
    const auto anywhere = at(2, kPort);
    listener = rnicdv_stream_listen(context_of(b), as_socket(anywhere), 8, nullptr);
    REQUIRE(listener != nullptr);
  }
  ~Streamed() { end(); }
  void open() {
    stream_a = open_to(a, at(2, kPort), this);
    REQUIRE(stream_a != nullptr);
    REQUIRE(wait_for(stream_a));
    while ((stream_b = rnicdv_stream_accept(listener, nullptr)) == nullptr) {
      REQUIRE(errno == EAGAIN);
      REQUIRE(wait_for(listener));
    }
  }
  static constexpr int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  std::vector<char> memory_a = std::vector<char>(4096), memory_b = std::vector<char>(4096);
  ibv_cq *cq_a = nullptr, *cq_b = nullptr;
  ibv_qp *qp_a = nullptr, *qp_b = nullptr;
  ibv_mr *mr_a = nullptr, *mr_b = nullptr;
  rnicdv_stream *listener = nullptr, *stream_a = nullptr, *stream_b = nullptr;
};

}  // namespace rnic::test::streams
