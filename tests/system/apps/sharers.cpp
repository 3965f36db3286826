// Many connections between two processes, all of whose queue pairs share completion queues, one completion channel, and
// with `srq` a shared receive queue. Both sides send all the time, and every message is checked: its content, that it
// comes once, and in order. No side waits but for what the other must send by then, so that who waits for ever has lost
// something.
//
//   sharers events|srq|cq ADDRESS [-l] [-n CONNECTIONS] [-m MESSAGES] [-b BURST] [-k SIGNALED] [-1] [-s] [-r ROUNDS]
//
//   events  bursts of up to BURST messages, each answered by one message: the queues run empty again and again
//   srq     all take from one shared receive queue of 16 places, which is filled when it is empty, and its limit armed
//   cq      as events, while completion queues are resized; each second connection ends in the middle, ROUNDS times in
//           all, and is made anew
//   -l      listens, as the other then does not; all else is to be the same on both sides
//   -k      every so many sends are signaled     -1  one completion queue for sends and receives
//   -s      messages that end a burst are solicited, and receives are waited for only by these
//   -w      seconds without progress until it says what it has, and exits 2
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <random>

#include "rdma_app.hpp"

namespace {

constexpr std::uint32_t kLargest = 20'000, kPlace = 20'032;
constexpr std::uint32_t kSends = 32, kReceives = 32, kShared = 16, kLimit = 4;

struct Options {
  std::string mode, address;
  bool listens = false, one_cq = false, solicited = false;
  std::uint32_t connections = 12, messages = 300, burst = 6, signaled = 1, rounds = 40, patience = 60;
} options;

[[noreturn]] void wrong(const std::string& what);

enum Flag : std::uint32_t { kEndsBurst = 1, kAnswer = 2, kLast = 4, kDone = 8 };

struct Header {
  std::uint32_t index, generation, sequence, length, flags;
};

// What a connection says of itself when it is made.
struct Name {
  std::uint32_t index, generation;
};

void fill(std::byte* at, const Header& header) {
  std::memcpy(at, &header, sizeof header);
  const std::uint32_t seed = header.index * 89 + header.sequence * 37 + header.generation;
  for (std::uint32_t i = sizeof header; i < header.length; ++i) at[i] = static_cast<std::byte>(seed + i + (i >> 8));
}

bool is_as_filled(const std::byte* at, const Header& header) {
  const std::uint32_t seed = header.index * 89 + header.sequence * 37 + header.generation;
  std::uint32_t differs = 0;
  for (std::uint32_t i = sizeof header; i < header.length; ++i)
    differs |= static_cast<std::uint8_t>(at[i]) ^ static_cast<std::uint8_t>(seed + i + (i >> 8));
  return differs == 0;
}

struct Connection {
  rdma_cm_id* id = nullptr;
  std::uint32_t index = 0, generation = 0;
  bool up = false, dies = false;     // dies: the end of it was asked for, or it is the other's to ask
  bool waits = false, owes = false;  // for the answer to a burst; an answer
  bool sent_last = false, got_last = false;
  std::uint32_t sent = 0, received = 0;     // messages, answers not counted
  std::uint32_t posted = 0, completed = 0;  // of the send queue
  std::uint32_t number = 0;                 // its queue pair's
};

std::uint64_t wr_id(bool receive, const Connection& of, std::uint32_t number) {
  return std::uint64_t{receive} << 63 | std::uint64_t{of.generation & 0xFFFF} << 40 | std::uint64_t{of.index} << 32 |
         number;
}

class Side {
 public:
  Side();
  void run();
  void dump();

 private:
  bool is_mortal(const Connection& c) const { return options.mode == "cq" && c.index % 2 == 1; }
  bool ends_at(const Connection& c) const;
  void call(Connection& c);
  void make_queue_pair(Connection& c);
  void take_cm_event();
  void take_cm_events();
  void take_completion_event();
  void take_async_event();
  void drain(ibv_cq* cq);
  void complete(const ibv_wc& wc);
  void receive(Connection& c, const ibv_wc& wc);
  void refill();
  void post_receive(Connection& c, std::uint32_t place);
  void send(Connection& c);
  void post(Connection& c, std::uint32_t flags, std::uint32_t sequence, bool answer_soon);
  bool has_room(const Connection& c, std::uint32_t sends) const { return c.posted - c.completed + sends <= kSends; }
  void try_end();
  void kill(Connection& c);
  void destroy(Connection& c);
  void resize();
  void wait();
  void tear_down();
  std::uint32_t random(std::uint32_t below) { return static_cast<std::uint32_t>(random_() % below); }
  Connection* with_id(const rdma_cm_id* id);

  rdma_event_channel* cm_ = nullptr;
  rdma_cm_id* listener_ = nullptr;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq *send_cq_ = nullptr, *recv_cq_ = nullptr;
  int send_cqe_ = 0, recv_cqe_ = 0;
  ibv_srq* srq_ = nullptr;
  ibv_mr* mr_ = nullptr;
  std::byte *sends_ = nullptr, *receives_ = nullptr;
  std::vector<Connection> connections_;
  std::map<std::uint32_t, std::uint32_t> by_number_;
  std::uint32_t shared_out_ = 0, limits_armed_ = 0, limits_told_ = 0;
  std::vector<std::uint32_t> shared_places_;
  bool said_done_ = false, heard_done_ = false, ends_ = false;
  std::uint32_t rounds_ = 0, next_kill_ = 0, next_resize_ = 0, resizes_ = 0, dying_ = 0;
  std::uint64_t events_ = 0, completions_ = 0;
  std::chrono::steady_clock::time_point progress_ = std::chrono::steady_clock::now();
  std::mt19937 random_{static_cast<std::uint32_t>(getpid())};
};

Side* side = nullptr;

void wrong(const std::string& what) {
  std::fprintf(stderr, "sharers %s: %s\n", options.mode.c_str(), what.c_str());
  side->dump();
  std::exit(1);
}

// ---- what they share ---------------------------------------------------------------------------------------------

Side::Side() : connections_(options.connections) {
  for (std::uint32_t i = 0; i < options.connections; ++i) connections_[i].index = i;
  if (options.listens) {
    listener_ = app::listen(options.address.c_str(), "7471", 64);
    cm_ = listener_->channel;
    context_ = listener_->verbs;
    std::printf("listening\n");
    std::fflush(stdout);
  } else {
    const app::Endpoint first = app::resolve(options.address.c_str(), "7471");
    cm_ = first.channel;
    context_ = first.id->verbs;
    connections_[0].id = first.id;
  }
  pd_ = ibv_alloc_pd(context_);
  channel_ = ibv_create_comp_channel(context_);
  if (pd_ == nullptr || channel_ == nullptr) app::fail("protection domain and channel");
  const auto n = static_cast<int>(options.connections);
  send_cqe_ = n * static_cast<int>(kSends), recv_cqe_ = n * static_cast<int>(kReceives);
  if (options.one_cq) send_cqe_ += recv_cqe_;
  send_cq_ = ibv_create_cq(context_, send_cqe_, nullptr, channel_, 0);
  recv_cq_ = options.one_cq ? send_cq_ : ibv_create_cq(context_, recv_cqe_, nullptr, channel_, 0);
  if (send_cq_ == nullptr || recv_cq_ == nullptr) app::fail("ibv_create_cq");
  const std::size_t send_bytes = std::size_t{options.connections} * kSends * kPlace;
  const std::size_t recv_bytes = std::size_t{options.connections} * kReceives * kPlace;
  sends_ = static_cast<std::byte*>(std::aligned_alloc(4096, (send_bytes + recv_bytes + 4095) / 4096 * 4096));
  receives_ = sends_ + send_bytes;
  mr_ = ibv_reg_mr(pd_, sends_, send_bytes + recv_bytes, IBV_ACCESS_LOCAL_WRITE);
  if (mr_ == nullptr) app::fail("ibv_reg_mr");
  if (options.mode == "srq") {
    ibv_srq_init_attr attributes{};
    attributes.attr = {kShared, 1, 0};
    srq_ = ibv_create_srq(pd_, &attributes);
    if (srq_ == nullptr) app::fail("ibv_create_srq");
    for (std::uint32_t i = 0; i < kShared; ++i) shared_places_.push_back(i);
    refill();
  }
  for (const int fd : {context_->async_fd}) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  next_kill_ = 200;
  next_resize_ = 100;
}

void Side::make_queue_pair(Connection& c) {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = send_cq_;
  attributes.recv_cq = recv_cq_;
  attributes.srq = srq_;
  attributes.cap = {kSends, srq_ == nullptr ? kReceives : 0, 1, 1, 0};
  attributes.qp_type = IBV_QPT_RC;
  if (rdma_create_qp(c.id, pd_, &attributes) != 0) app::fail("rdma_create_qp");
  c.number = c.id->qp->qp_num;
  if (!by_number_.emplace(c.number, c.index).second) wrong("a queue pair's number is another's");
  if (srq_ != nullptr) return;
  for (std::uint32_t i = 0; i < kReceives; ++i) post_receive(c, i);
}

void Side::post_receive(Connection& c, std::uint32_t place) {
  std::byte* const at = receives_ + (std::size_t{c.index} * kReceives + place) * kPlace;
  ibv_sge sge{reinterpret_cast<std::uint64_t>(at), kPlace, mr_->lkey};
  ibv_recv_wr wr{};
  wr.wr_id = wr_id(true, c, place);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  if ((errno = ibv_post_recv(c.id->qp, &wr, &bad)) != 0) app::fail("ibv_post_recv");
}

// When it is empty, and the event of its limit was there: at once or a while later, one by one or all in one post.
void Side::refill() {
  if (shared_out_ != 0 || limits_told_ != limits_armed_) return;
  if (random(4) == 0) usleep(random(3000));
  ibv_srq_attr limit{};
  limit.srq_limit = kLimit;
  if ((errno = ibv_modify_srq(srq_, &limit, IBV_SRQ_LIMIT)) != 0) app::fail("ibv_modify_srq");
  ++limits_armed_;
  ibv_sge sges[kShared];
  ibv_recv_wr wrs[kShared];
  const bool at_once = random(2) == 0;
  ibv_recv_wr* bad = nullptr;
  shared_out_ = kShared;
  for (std::uint32_t i = 0; i < kShared; ++i) {
    const std::uint32_t place = shared_places_[i];
    sges[i] = {reinterpret_cast<std::uint64_t>(receives_ + std::size_t{place} * kPlace), kPlace, mr_->lkey};
    wrs[i] = {};
    wrs[i].wr_id = std::uint64_t{1} << 63 | place;
    wrs[i].sg_list = &sges[i];
    wrs[i].num_sge = 1;
    wrs[i].next = at_once && i + 1 < kShared ? &wrs[i + 1] : nullptr;
    if (!at_once && (errno = ibv_post_srq_recv(srq_, &wrs[i], &bad)) != 0) app::fail("ibv_post_srq_recv");
    if (!at_once && random(8) == 0) usleep(random(200));
  }
  shared_places_.clear();
  if (at_once && (errno = ibv_post_srq_recv(srq_, wrs, &bad)) != 0) app::fail("ibv_post_srq_recv");
}

// ---- connections -------------------------------------------------------------------------------------------------

Connection* Side::with_id(const rdma_cm_id* id) {
  for (Connection& c : connections_)
    if (c.id == id) return &c;
  return nullptr;
}

void Side::call(Connection& c) {
  if (c.id == nullptr) {
    if (rdma_create_id(cm_, &c.id, nullptr, RDMA_PS_TCP) != 0) app::fail("rdma_create_id");
    sockaddr_storage address = app::address_of(options.address.c_str(), "7471");
    if (rdma_resolve_addr(c.id, nullptr, reinterpret_cast<sockaddr*>(&address), 5000) != 0)
      app::fail("rdma_resolve_addr");
    return;
  }
  make_queue_pair(c);
  const Name name{c.index, c.generation};
  rdma_conn_param parameters{};
  parameters.private_data = &name;
  parameters.private_data_len = sizeof name;
  if (rdma_connect(c.id, &parameters) != 0) app::fail("rdma_connect");
}

void Side::take_cm_event() {
  rdma_cm_event* event = nullptr;
  if (rdma_get_cm_event(cm_, &event) != 0) app::fail("rdma_get_cm_event");
  const rdma_cm_event_type type = event->event;
  const int status = event->status;
  rdma_cm_id* const id = event->id;
  Name name{};
  if (type == RDMA_CM_EVENT_CONNECT_REQUEST && event->param.conn.private_data_len >= sizeof name)
    std::memcpy(&name, event->param.conn.private_data, sizeof name);
  rdma_ack_cm_event(event);
  progress_ = std::chrono::steady_clock::now();
  if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
    if (name.index >= options.connections) wrong("a call for a connection that there is not");
    Connection& c = connections_[name.index];
    if (c.id != nullptr) destroy(c);  // its end is yet to be told of
    c.id = id;
    c.generation = name.generation;
    c.dies = is_mortal(c);
    make_queue_pair(c);
    rdma_conn_param parameters{};
    if (rdma_accept(id, &parameters) != 0) app::fail("rdma_accept");
    return;
  }
  Connection* const c = with_id(id);
  if (c == nullptr) wrong(std::string("an event of an id that is gone: ") + rdma_event_str(type));
  switch (type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      if (rdma_resolve_route(id, 5000) != 0) app::fail("rdma_resolve_route");
      break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      call(*c);
      break;
    case RDMA_CM_EVENT_ESTABLISHED:
      c->up = true;
      send(*c);
      break;
    case RDMA_CM_EVENT_DISCONNECTED:
      c->up = false;
      if (ends_ || said_done_) break;
      if (!c->dies) wrong("connection " + std::to_string(c->index) + " was ended");
      destroy(*c);
      if (!options.listens) --dying_, call(*c);
      break;
    default:
      if (type == RDMA_CM_EVENT_TIMEWAIT_EXIT) break;
      wrong(std::string(rdma_event_str(type)) + " at " + std::to_string(c->index) + ", status " +
            std::to_string(status));
  }
}

// Those that are there, where completions come without end.
void Side::take_cm_events() {
  pollfd fd{cm_->fd, POLLIN, 0};
  while (poll(&fd, 1, 0) > 0) take_cm_event();
}

void Side::destroy(Connection& c) {
  by_number_.erase(c.number);
  rdma_destroy_qp(c.id);
  if (rdma_destroy_id(c.id) != 0) app::fail("rdma_destroy_id");
  c = {.index = c.index, .generation = c.generation + 1};
}

// In the middle of its messages: by the book, or without a word.
void Side::kill(Connection& c) {
  c.dies = true;
  ++rounds_;
  if (random(2) == 0) {
    ++dying_;
    if (rdma_disconnect(c.id) != 0) app::fail("rdma_disconnect");
    return;
  }
  destroy(c);
  call(c);
}

// ---- messages ----------------------------------------------------------------------------------------------------

bool Side::ends_at(const Connection& c) const {
  if (is_mortal(c) || c.sent + 1 < options.messages) return false;
  if (options.mode != "cq") return true;
  return options.listens ? c.got_last : rounds_ >= options.rounds;
}

void Side::post(Connection& c, std::uint32_t flags, std::uint32_t sequence, bool soon) {
  const std::uint32_t place = c.posted % kSends;
  std::byte* const at = sends_ + (std::size_t{c.index} * kSends + place) * kPlace;
  const std::uint32_t most = random(4) == 0 ? kLargest : 600;
  Header header{c.index, c.generation, sequence, 0, flags};
  header.length = static_cast<std::uint32_t>(sizeof header) + random(most - static_cast<std::uint32_t>(sizeof header));
  if ((flags & (kAnswer | kDone)) != 0) header.length = sizeof header;
  fill(at, header);
  ibv_sge sge{reinterpret_cast<std::uint64_t>(at), header.length, mr_->lkey};
  ibv_send_wr wr{};
  wr.wr_id = wr_id(false, c, c.posted);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  ++c.posted;
  if (c.posted % options.signaled == 0 || (flags & (kLast | kDone)) != 0) wr.send_flags |= IBV_SEND_SIGNALED;
  if (options.solicited && soon) wr.send_flags |= IBV_SEND_SOLICITED;
  ibv_send_wr* bad = nullptr;
  if ((errno = ibv_post_send(c.id->qp, &wr, &bad)) != 0) app::fail("ibv_post_send");
}

void Side::send(Connection& c) {
  if (!c.up || (c.dies && !options.listens)) return;
  if (c.owes && has_room(c, 1)) {
    c.owes = false;
    post(c, kAnswer, 0, true);
  }
  const bool answered = options.mode != "srq";
  while (!c.sent_last && !c.waits && !(said_done_ && is_mortal(c))) {
    const std::uint32_t burst = answered ? 1 + random(options.burst) : 1;
    if (!has_room(c, burst)) return;
    for (std::uint32_t i = 0; i < burst && !c.sent_last; ++i) {
      std::uint32_t flags = ends_at(c) ? std::uint32_t{kLast} : 0;
      if (answered && (i + 1 == burst || flags != 0)) flags |= kEndsBurst;
      c.sent_last = (flags & kLast) != 0;
      post(c, flags, c.sent++, flags != 0 || !answered);
    }
    c.waits = answered;
  }
  try_end();
}

// Each tells the other when it has all that there is to have, and goes only when it has been told so, too.
void Side::try_end() {
  if (said_done_) return;
  for (const Connection& c : connections_)
    if (!is_mortal(c) && (!c.sent_last || !c.got_last || c.owes)) return;
  Connection& first = connections_[0];
  if (!has_room(first, 1)) return;
  said_done_ = true;
  post(first, kDone, 0, true);
}

void Side::receive(Connection& c, const ibv_wc& wc) {
  const auto place = static_cast<std::uint32_t>(wc.wr_id);
  const std::byte* const at =
      receives_ + (srq_ != nullptr ? std::size_t{place} : std::size_t{c.index} * kReceives + place) * kPlace;
  Header header;
  std::memcpy(&header, at, sizeof header);
  const std::string where = "connection " + std::to_string(c.index) + ", message " + std::to_string(c.received) + ": ";
  if (header.index != c.index || header.generation != c.generation)
    wrong(where + "is one of connection " + std::to_string(header.index));
  if (header.length != wc.byte_len)
    wrong(where + std::to_string(wc.byte_len) + " octets of " + std::to_string(header.length));
  if (!is_as_filled(at, header)) wrong(where + "is not what was sent");
  if ((header.flags & kAnswer) != 0) {
    c.waits = false;
  } else if ((header.flags & kDone) != 0) {
    heard_done_ = true;
  } else {
    if (header.sequence != c.received) wrong(where + "is number " + std::to_string(header.sequence));
    ++c.received;
    if ((header.flags & kLast) != 0) c.got_last = true;
    if ((header.flags & kEndsBurst) != 0) c.owes = true;
  }
  if (srq_ == nullptr) return post_receive(c, place);
  shared_places_.push_back(place);
  --shared_out_;
  refill();
}

void Side::complete(const ibv_wc& wc) {
  ++completions_;
  progress_ = std::chrono::steady_clock::now();
  const auto found = by_number_.find(wc.qp_num);
  if (found == by_number_.end()) wrong("a completion of a queue pair that is gone");
  Connection& c = connections_[found->second];
  const bool receives = wc.wr_id >> 63 != 0;
  if ((!receives || srq_ == nullptr) &&
      ((wc.wr_id >> 32 & 0xFF) != c.index || (wc.wr_id >> 40 & 0xFFFF) != (c.generation & 0xFFFF)))
    wrong("a completion of another queue pair's work");
  if (wc.status != IBV_WC_SUCCESS) {
    if (said_done_ || ends_ || c.dies) return;
    wrong("connection " + std::to_string(c.index) + (receives ? ", a receive: " : ", a send: ") +
          ibv_wc_status_str(wc.status));
  }
  if (receives) {
    if (wc.opcode != IBV_WC_RECV) wrong("a receive completes as something else");
    if (c.dies && !options.listens) return;  // of what it is in the middle is nobody's affair any more
    receive(c, wc);
  } else {
    const auto number = static_cast<std::uint32_t>(wc.wr_id);
    if (wc.opcode != IBV_WC_SEND) wrong("a send completes as something else");
    if (number - c.completed >= kSends || number >= c.posted) wrong("a send completes that is none");
    if (options.signaled == 1 && number != c.completed) wrong("sends complete out of order");
    c.completed = number + 1;
  }
  send(c);
}

// ---- completions -------------------------------------------------------------------------------------------------

void Side::drain(ibv_cq* cq) {
  ibv_wc wcs[8];
  for (;;) {
    // One, where the next may be of a queue pair that the one before has destroyed.
    const int got = ibv_poll_cq(cq, options.mode == "cq" ? 1 : 8, wcs);
    if (got < 0) app::fail("ibv_poll_cq");
    if (got == 0) return;
    for (int i = 0; i < got; ++i) complete(wcs[i]);
    if (options.mode != "cq" || ends_ || said_done_) continue;
    if (completions_ % 32 == 0) take_cm_events();
    if (completions_ >= next_resize_) resize();
    if (options.listens || completions_ < next_kill_ || rounds_ >= options.rounds) continue;
    next_kill_ = static_cast<std::uint32_t>(completions_) + 20 + random(150);
    Connection& c = connections_[random(options.connections) | 1];
    if (c.index < options.connections && c.up && !c.dies) kill(c);
  }
}

void Side::resize() {
  next_resize_ = static_cast<std::uint32_t>(completions_) + 30 + random(200);
  const bool of_sends = options.one_cq || random(2) == 0;
  const int least = of_sends ? send_cqe_ : recv_cqe_;
  const int wanted = least + static_cast<int>(random(static_cast<std::uint32_t>(least) * 3));
  if ((errno = ibv_resize_cq(of_sends ? send_cq_ : recv_cq_, wanted)) != 0) app::fail("ibv_resize_cq");
  ++resizes_;
}

void Side::take_completion_event() {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  if (ibv_get_cq_event(channel_, &cq, &context) != 0) app::fail("ibv_get_cq_event");
  ++events_;
  ibv_ack_cq_events(cq, 1);
  if (random(16) == 0) usleep(random(300));
  if ((errno = ibv_req_notify_cq(cq, options.solicited && cq == recv_cq_ ? 1 : 0)) != 0) app::fail("ibv_req_notify_cq");
  drain(cq);
}

void Side::take_async_event() {
  ibv_async_event event;
  if (ibv_get_async_event(context_, &event) != 0) return;
  const ibv_event_type type = event.event_type;
  ibv_ack_async_event(&event);
  if (type == IBV_EVENT_SRQ_LIMIT_REACHED) {
    if (++limits_told_ > limits_armed_) wrong("more events of the limit than it was armed");
    progress_ = std::chrono::steady_clock::now();
    refill();
  } else if (type == IBV_EVENT_CQ_ERR || type == IBV_EVENT_SRQ_ERR) {
    wrong(ibv_event_type_str(type));
  } else if (type == IBV_EVENT_QP_FATAL && options.mode != "cq" && !ends_ && !said_done_) {
    wrong(ibv_event_type_str(type));
  }
}

// Whoever is not told sleeps: nothing else looks into the queues.
void Side::wait() {
  pollfd fds[] = {{channel_->fd, POLLIN, 0}, {cm_->fd, POLLIN, 0}, {context_->async_fd, POLLIN, 0}};
  if (poll(fds, 3, 1000) < 0) app::fail("poll");
  if ((fds[0].revents & POLLIN) != 0) take_completion_event();
  take_cm_events();
  if ((fds[2].revents & POLLIN) != 0) take_async_event();
  if (std::chrono::steady_clock::now() - progress_ > std::chrono::seconds(options.patience)) {
    std::fprintf(stderr, "sharers %s: no progress\n", options.mode.c_str());
    dump();
    std::exit(2);
  }
}

void Side::dump() {
  std::fprintf(stderr, "%llu events, %llu completions, done said %d heard %d, %u kills, %u resizes, %u dying\n",
               static_cast<unsigned long long>(events_), static_cast<unsigned long long>(completions_), said_done_,
               heard_done_, rounds_, resizes_, dying_);
  if (srq_ != nullptr)
    std::fprintf(stderr, "shared receives out %u, limit armed %u told %u\n", shared_out_, limits_armed_, limits_told_);
  for (const Connection& c : connections_)
    std::fprintf(stderr,
                 "%2u qp %u generation %u up %d dies %d: sent %u received %u posted %u completed %u waits %d owes %d "
                 "last sent %d got %d\n",
                 c.index, c.number, c.generation, c.up, c.dies, c.sent, c.received, c.posted, c.completed, c.waits,
                 c.owes, c.sent_last, c.got_last);
  for (ibv_cq* cq : {send_cq_, recv_cq_}) {
    ibv_wc wc;
    int there = 0;
    for (; ibv_poll_cq(cq, 1, &wc) > 0; ++there) {
    }
    std::fprintf(stderr, "%s: %d completions were there unannounced\n", cq == send_cq_ ? "sends" : "receives", there);
  }
}

void Side::tear_down() {
  ends_ = true;
  const auto any_up = [&] {
    return std::any_of(connections_.begin(), connections_.end(), [](const Connection& c) { return c.up; });
  };
  if (!options.listens)
    for (const Connection& c : connections_)
      if (c.up && rdma_disconnect(c.id) != 0) app::fail("rdma_disconnect");
  while (any_up()) wait();
  for (Connection& c : connections_)
    if (c.id != nullptr) destroy(c);
  if (srq_ != nullptr && (errno = ibv_destroy_srq(srq_)) != 0) app::fail("ibv_destroy_srq");
  if ((errno = ibv_destroy_cq(send_cq_)) != 0) app::fail("ibv_destroy_cq");
  if (!options.one_cq && (errno = ibv_destroy_cq(recv_cq_)) != 0) app::fail("ibv_destroy_cq");
  if ((errno = ibv_dereg_mr(mr_)) != 0) app::fail("ibv_dereg_mr");
  if ((errno = ibv_destroy_comp_channel(channel_)) != 0) app::fail("ibv_destroy_comp_channel");
  if ((errno = ibv_dealloc_pd(pd_)) != 0) app::fail("ibv_dealloc_pd");
}

void Side::run() {
  for (ibv_cq* cq : {send_cq_, recv_cq_}) {
    if ((errno = ibv_req_notify_cq(cq, options.solicited && cq == recv_cq_ ? 1 : 0)) != 0)
      app::fail("ibv_req_notify_cq");
    drain(cq);
  }
  if (!options.listens)
    for (Connection& c : connections_) call(c);
  // A connection that is ended before its last word is sent ends without it.
  while (!said_done_ || !heard_done_ || connections_[0].completed != connections_[0].posted || dying_ != 0) wait();
  std::uint64_t sent = 0, received = 0;
  for (const Connection& c : connections_) sent += c.sent, received += c.received;
  tear_down();
  std::printf("%s: %llu sent, %llu received, %llu events of %llu completions, %u limits, %u resizes, %u made anew\n",
              options.mode.c_str(), static_cast<unsigned long long>(sent), static_cast<unsigned long long>(received),
              static_cast<unsigned long long>(events_), static_cast<unsigned long long>(completions_), limits_told_,
              resizes_, rounds_);
}

}  // namespace

int main(int count, char** words) {
  for (int option; (option = getopt(count, words, "ln:m:b:k:1sr:w:")) != -1;) {
    const auto number = static_cast<std::uint32_t>(optarg != nullptr ? std::max(1, std::atoi(optarg)) : 0);
    switch (option) {
      case 'l':
        options.listens = true;
        break;
      case 'n':
        options.connections = number;
        break;
      case 'm':
        options.messages = number;
        break;
      case 'b':
        options.burst = number;
        break;
      case 'k':
        options.signaled = number;
        break;
      case '1':
        options.one_cq = true;
        break;
      case 's':
        options.solicited = true;
        break;
      case 'r':
        options.rounds = number;
        break;
      case 'w':
        options.patience = number;
        break;
      default:
        return 1;
    }
  }
  if (optind + 2 == count) options.mode = words[optind], options.address = words[optind + 1];
  if ((options.mode != "events" && options.mode != "srq" && options.mode != "cq") || options.connections > 200 ||
      options.burst > kReceives - 2 || options.signaled > 8 || (options.solicited && options.one_cq)) {
    std::fprintf(stderr, "usage: sharers events|srq|cq ADDRESS [-l] [-n CONNECTIONS] [-m MESSAGES] ...\n");
    return 1;
  }
  Side ours;
  side = &ours;
  ours.run();
  return 0;
}
