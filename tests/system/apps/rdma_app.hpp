// The little that the test applications share: ordinary librdmacm and libibverbs code, as any user
// would write it. Nothing here knows rnic.
#pragma once

#include <netdb.h>
#include <rdma/rdma_cma.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace app {

[[noreturn]] inline void fail(const std::string& what) {
  std::fprintf(stderr, "%s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

// What the passive side tells the active one in its private data.
struct Target {
  std::uint64_t address;
  std::uint32_t rkey;
  std::uint32_t length;
};

struct Endpoint {
  rdma_cm_id* id = nullptr;
  rdma_event_channel* channel = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* send_cq = nullptr;
  ibv_cq* recv_cq = nullptr;
  ibv_mr* mr = nullptr;
  std::byte* memory = nullptr;
  std::size_t size = 0;

  void make_queues(std::uint32_t depth) {
    pd = ibv_alloc_pd(id->verbs);
    send_cq = ibv_create_cq(id->verbs, static_cast<int>(depth) + 1, nullptr, nullptr, 0);
    recv_cq = ibv_create_cq(id->verbs, static_cast<int>(depth) + 1, nullptr, nullptr, 0);
    if (pd == nullptr || send_cq == nullptr || recv_cq == nullptr) fail("queues");
    ibv_qp_init_attr attributes{};
    attributes.send_cq = send_cq;
    attributes.recv_cq = recv_cq;
    attributes.cap = {depth, depth, 1, 1, 64};
    attributes.qp_type = IBV_QPT_RC;
    if (rdma_create_qp(id, pd, &attributes) != 0) fail("rdma_create_qp");
  }
  void make_memory(std::size_t bytes, int access) {
    size = bytes;
    memory = static_cast<std::byte*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
    std::memset(memory, 0, bytes);
    mr = ibv_reg_mr(pd, memory, bytes, access);
    if (mr == nullptr) fail("ibv_reg_mr");
  }
  void post_receive(std::size_t offset, std::uint32_t length, std::uint64_t wr_id) {
    ibv_sge sge{reinterpret_cast<std::uint64_t>(memory) + offset, length, mr->lkey};
    ibv_recv_wr wr{};
    wr.wr_id = wr_id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    if ((errno = ibv_post_recv(id->qp, &wr, &bad)) != 0) fail("ibv_post_recv");
  }
  int post(ibv_wr_opcode opcode, std::size_t offset, std::uint32_t length, const Target* target, std::uint64_t wr_id) {
    ibv_sge sge{reinterpret_cast<std::uint64_t>(memory) + offset, length, mr->lkey};
    ibv_send_wr wr{};
    wr.wr_id = wr_id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    if (target != nullptr) {
      wr.wr.rdma.remote_addr = target->address;
      wr.wr.rdma.rkey = target->rkey;
    }
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(id->qp, &wr, &bad);
  }
  static ibv_wc poll(ibv_cq* cq) {
    ibv_wc wc{};
    int got;
    while ((got = ibv_poll_cq(cq, 1, &wc)) == 0) {
    }
    if (got < 0) fail("ibv_poll_cq");
    return wc;
  }
};

inline rdma_cm_event* expect(rdma_event_channel* channel, rdma_cm_event_type type) {
  rdma_cm_event* event = nullptr;
  if (rdma_get_cm_event(channel, &event) != 0) fail("rdma_get_cm_event");
  if (event->event != type) {
    std::fprintf(stderr, "expected %s, got %s, status %d\n", rdma_event_str(type), rdma_event_str(event->event),
                 event->status);
    std::exit(1);
  }
  return event;
}

// IPv4 or IPv6, in figures.
inline sockaddr_storage address_of(const char* text, const char* port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (getaddrinfo(text, port, &hints, &found) != 0) fail(text);
  sockaddr_storage address{};
  std::memcpy(&address, found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  return address;
}

// Of the device that has this address.
inline ibv_pd* protection_domain(const char* address) {
  rdma_event_channel* channel = rdma_create_event_channel();
  rdma_cm_id* id = nullptr;
  if (channel == nullptr || rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) != 0) fail("rdma_create_id");
  sockaddr_storage at = address_of(address, "0");
  if (rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&at)) != 0) fail("rdma_bind_addr");
  ibv_pd* pd = ibv_alloc_pd(id->verbs);
  if (pd == nullptr) fail("ibv_alloc_pd");
  return pd;
}

// With an event channel of its own.
inline rdma_cm_id* listen(const char* address_text, const char* port, int backlog = 4) {
  rdma_event_channel* channel = rdma_create_event_channel();
  rdma_cm_id* listener = nullptr;
  if (channel == nullptr || rdma_create_id(channel, &listener, nullptr, RDMA_PS_TCP) != 0) fail("rdma_create_id");
  sockaddr_storage address = address_of(address_text, port);
  if (rdma_bind_addr(listener, reinterpret_cast<sockaddr*>(&address)) != 0) fail("rdma_bind_addr");
  if (rdma_listen(listener, backlog) != 0) fail("rdma_listen");
  return listener;
}

// The next connection request; the caller makes queues and calls accept().
inline Endpoint next_request(const rdma_cm_id* listener) {
  rdma_cm_event* event = expect(listener->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  Endpoint end;
  end.channel = listener->channel;
  end.id = event->id;
  rdma_ack_cm_event(event);
  return end;
}

// Listens and takes one connection request.
inline Endpoint listen_one(const char* address_text, const char* port) {
  const rdma_cm_id* listener = listen(address_text, port);
  std::printf("listening\n");
  std::fflush(stdout);
  return next_request(listener);
}

inline void accept(Endpoint& end, const Target& target) {
  rdma_conn_param parameters{};
  parameters.private_data = &target;
  parameters.private_data_len = sizeof target;
  parameters.responder_resources = 16;
  parameters.initiator_depth = 16;
  if (rdma_accept(end.id, &parameters) != 0) fail("rdma_accept");
  rdma_ack_cm_event(expect(end.channel, RDMA_CM_EVENT_ESTABLISHED));
}

inline Endpoint resolve(const char* address_text, const char* port) {
  Endpoint end;
  end.channel = rdma_create_event_channel();
  if (end.channel == nullptr || rdma_create_id(end.channel, &end.id, nullptr, RDMA_PS_TCP) != 0) fail("rdma_create_id");
  sockaddr_storage address = address_of(address_text, port);
  if (rdma_resolve_addr(end.id, nullptr, reinterpret_cast<sockaddr*>(&address), 2000) != 0) fail("rdma_resolve_addr");
  rdma_ack_cm_event(expect(end.channel, RDMA_CM_EVENT_ADDR_RESOLVED));
  if (rdma_resolve_route(end.id, 2000) != 0) fail("rdma_resolve_route");
  rdma_ack_cm_event(expect(end.channel, RDMA_CM_EVENT_ROUTE_RESOLVED));
  return end;
}

inline Target connect(Endpoint& end) {
  rdma_conn_param parameters{};
  parameters.responder_resources = 16;
  parameters.initiator_depth = 16;
  if (rdma_connect(end.id, &parameters) != 0) fail("rdma_connect");
  rdma_cm_event* event = expect(end.channel, RDMA_CM_EVENT_ESTABLISHED);
  Target target{};
  if (event->param.conn.private_data_len >= sizeof target)
    std::memcpy(&target, event->param.conn.private_data, sizeof target);
  rdma_ack_cm_event(event);
  return target;
}

}  // namespace app
