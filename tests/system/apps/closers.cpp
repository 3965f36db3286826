// Memory that is closed while the peer writes to it through several queue pairs: from then on nothing may come. Whoever
// closes it fills it once that is complete, and looks whether it stays as it is.
//
//   closers ADDRESS [-l] [-r ROUNDS]    -l: whose memory it is. The other writes until it is refused
//
// Eight connections a round, in pairs A, B:
//   0  a window of type 2 bound on A and written through it, closed by LOCAL_INV; B writes beside it, into the same
//      region by its own key, and is not to be disturbed
//   1  a window of type 1 bound on A, written to through B; closed by a Bind of length 0 on A
//   2  a region, written to through A and B, deregistered
//   3  as 1, deallocated
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <random>

#include "rdma_app.hpp"

namespace {

constexpr std::uint32_t kPairs = 4, kCount = 2 * kPairs;
constexpr std::uint32_t kPart = 65'536, kWrite = 16'384, kWrites = 6, kSlot = 2 * kPart;
constexpr std::byte kWritten{0x5A}, kFilled{0xEE}, kLast{0x77};
constexpr const char* kPort = "7472";

std::uint32_t round_ = 0, rounds = 30, patience = 60;
const char* step_ = "";

[[noreturn]] void wrong(const std::string& what) {
  std::fprintf(stderr, "closers: round %u: %s\n", round_, what.c_str());
  std::exit(1);
}

void on_alarm(int) {
  std::fprintf(stderr, "closers: round %u: no progress: %s\n", round_, step_);
  _exit(2);
}

void next_step(const char* what) {
  step_ = what;
  alarm(patience);
}

// What is written to through this pair, and beside it by the region's own key.
struct Open {
  app::Target closing, beside;
};

struct Link {
  rdma_cm_id* id = nullptr;
  bool established = false, ended = false;
};

// Both sides' queues: one completion queue for all.
struct Queues {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  void make(ibv_context* of) {
    context = of;
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 1024, nullptr, nullptr, 0);
    if (pd == nullptr || cq == nullptr) app::fail("queues");
  }
  void make_queue_pair(rdma_cm_id* id) const {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = cq;
    attributes.cap = {16, 4, 1, 1, 0};
    attributes.qp_type = IBV_QPT_RC;
    if (rdma_create_qp(id, pd, &attributes) != 0) app::fail("rdma_create_qp");
  }
};

// The cores are the data plane's too.
ibv_wc poll(ibv_cq* cq) {
  ibv_wc wc{};
  int got;
  while ((got = ibv_poll_cq(cq, 1, &wc)) == 0) sched_yield();
  if (got < 0) app::fail("ibv_poll_cq");
  return wc;
}

void post(ibv_qp* qp, ibv_wr_opcode opcode, const ibv_mr* mr, const std::byte* from, std::uint32_t length,
          std::uint64_t wr_id, std::uint64_t to = 0, std::uint32_t key = 0) {
  ibv_sge sge{reinterpret_cast<std::uint64_t>(from), length, mr == nullptr ? 0 : mr->lkey};
  ibv_send_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = &sge;
  wr.num_sge = mr == nullptr ? 0 : 1;
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = to;
  wr.wr.rdma.rkey = key;
  if (opcode == IBV_WR_LOCAL_INV) wr.invalidate_rkey = key;
  ibv_send_wr* bad = nullptr;
  if ((errno = ibv_post_send(qp, &wr, &bad)) != 0) app::fail("ibv_post_send");
}

void post_receive(ibv_qp* qp, const ibv_mr* mr, std::byte* to, std::uint32_t length, std::uint64_t wr_id) {
  ibv_sge sge{reinterpret_cast<std::uint64_t>(to), length, mr->lkey};
  ibv_recv_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  if ((errno = ibv_post_recv(qp, &wr, &bad)) != 0) app::fail("ibv_post_recv");
}

std::byte* pages(std::size_t bytes) {
  auto* const at = static_cast<std::byte*>(std::aligned_alloc(4096, bytes));
  std::memset(at, 0, bytes);
  return at;
}

// ---- whose memory it is ------------------------------------------------------------------------------------------

constexpr std::uint64_t kReceive = 100, kSaid = 200, kBound = 300, kClosed = 400;

class Owner {
 public:
  explicit Owner(const char* address) : listener_(app::listen(address, kPort, 64)) {
    std::printf("listening\n");
    std::fflush(stdout);
    queues_.make(listener_->verbs);
    memory_ = pages(kPairs * kSlot);
    said_ = pages(4096);
    said_mr_ = ibv_reg_mr(queues_.pd, said_, 4096, IBV_ACCESS_LOCAL_WRITE);
    if (said_mr_ == nullptr) app::fail("ibv_reg_mr");
  }
  void round();

 private:
  void take_cm_event();
  int await(std::uint64_t wr_id);
  void open(std::uint32_t pair);
  void close(std::uint32_t pair);
  void look(std::uint32_t pair, const char* when) const;
  std::byte* part(std::uint32_t pair) const { return memory_ + std::size_t{pair} * kSlot; }
  std::uint32_t random(std::uint32_t below) { return static_cast<std::uint32_t>(random_() % below); }

  rdma_cm_id* listener_;
  Queues queues_;
  std::byte *memory_ = nullptr, *said_ = nullptr;
  ibv_mr *said_mr_ = nullptr, *regions_[kPairs] = {};
  ibv_mw* windows_[kPairs] = {};
  std::uint32_t key_ = 0;  // of the window of type 2
  Link links_[kCount];
  std::vector<std::pair<std::uint32_t, rdma_cm_id*>> requests_;
  std::vector<std::pair<std::uint64_t, int>> completed_;
  std::mt19937 random_{static_cast<std::uint32_t>(getpid())};
};

void Owner::take_cm_event() {
  rdma_cm_event* event = nullptr;
  if (rdma_get_cm_event(listener_->channel, &event) != 0) app::fail("rdma_get_cm_event");
  std::uint32_t index = kCount;
  if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST && event->param.conn.private_data_len >= sizeof index) {
    std::memcpy(&index, event->param.conn.private_data, sizeof index);
    requests_.emplace_back(index, event->id);
  }
  for (Link& link : links_) {
    if (link.id != event->id) continue;
    link.established |= event->event == RDMA_CM_EVENT_ESTABLISHED;
    link.ended |= event->event == RDMA_CM_EVENT_DISCONNECTED;
  }
  rdma_ack_cm_event(event);
}

int Owner::await(std::uint64_t wr_id) {
  for (;;) {
    const auto found = std::find_if(completed_.begin(), completed_.end(), [&](auto& c) { return c.first == wr_id; });
    if (found != completed_.end()) {
      const int status = found->second;
      completed_.erase(found);
      return status;
    }
    const ibv_wc wc = poll(queues_.cq);
    completed_.emplace_back(wc.wr_id, wc.status);
  }
}

void Owner::open(std::uint32_t pair) {
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | (pair == 2 ? 0 : IBV_ACCESS_MW_BIND);
  ibv_mr*& region = regions_[pair];
  region = ibv_reg_mr(queues_.pd, part(pair), kSlot, access);
  if (region == nullptr) app::fail("ibv_reg_mr");
  ibv_qp* const a = links_[2 * pair].id->qp;
  std::uint32_t key = region->rkey;
  const auto address = reinterpret_cast<std::uint64_t>(part(pair));
  if (pair != 2) {
    ibv_mw*& window = windows_[pair];
    window = ibv_alloc_mw(queues_.pd, pair == 0 ? IBV_MW_TYPE_2 : IBV_MW_TYPE_1);
    if (window == nullptr) app::fail("ibv_alloc_mw");
    const ibv_mw_bind_info info{region, address, kPart, IBV_ACCESS_REMOTE_WRITE};
    if (pair == 0) {
      key_ = key = ibv_inc_rkey(window->rkey);
      ibv_send_wr wr{}, *bad = nullptr;
      wr.wr_id = kBound + pair;
      wr.opcode = IBV_WR_BIND_MW;
      wr.send_flags = IBV_SEND_SIGNALED;
      wr.bind_mw = {window, key, info};
      if ((errno = ibv_post_send(a, &wr, &bad)) != 0) app::fail("IBV_WR_BIND_MW");
    } else {
      ibv_mw_bind bind{kBound + pair, IBV_SEND_SIGNALED, info};
      if ((errno = ibv_bind_mw(a, window, &bind)) != 0) app::fail("ibv_bind_mw");
      key = window->rkey;
    }
    if (await(kBound + pair) != IBV_WC_SUCCESS) wrong("a window is not bound");
  }
  const Open said{{address, key, kPart}, {address + kPart, region->rkey, kPart}};
  for (const std::uint32_t index : {2 * pair, 2 * pair + 1}) {
    std::byte* const at = said_ + std::size_t{index} * sizeof said;
    std::memcpy(at, &said, sizeof said);
    post(links_[index].id->qp, IBV_WR_SEND, said_mr_, at, sizeof said, kSaid + index);
  }
}

// Fills it when nobody comes there any more.
void Owner::close(std::uint32_t pair) {
  ibv_qp* const a = links_[2 * pair].id->qp;
  if (pair == 0) {
    post(a, IBV_WR_LOCAL_INV, nullptr, nullptr, 0, kClosed, 0, key_);
    // The peer's next write may end the queue pair in the middle of it.
    const int status = await(kClosed);
    if (status == IBV_WC_WR_FLUSH_ERR) {
      if ((errno = ibv_dealloc_mw(windows_[pair])) != 0) app::fail("ibv_dealloc_mw");
      windows_[pair] = nullptr;
    } else if (status != IBV_WC_SUCCESS) {
      wrong("LOCAL_INV: " + std::to_string(status));
    }
  } else if (pair == 1) {
    ibv_mw_bind bind{kClosed + pair, IBV_SEND_SIGNALED, {regions_[pair], 0, 0, 0}};
    if ((errno = ibv_bind_mw(a, windows_[pair], &bind)) != 0) app::fail("ibv_bind_mw");
    if (const int status = await(kClosed + pair); status != IBV_WC_SUCCESS)
      wrong("a Bind of length 0: " + std::to_string(status));
  } else if (pair == 2) {
    if ((errno = ibv_dereg_mr(regions_[pair])) != 0) app::fail("ibv_dereg_mr");
    regions_[pair] = nullptr;
  } else {
    if ((errno = ibv_dealloc_mw(windows_[pair])) != 0) app::fail("ibv_dealloc_mw");
    windows_[pair] = nullptr;
  }
  std::memset(part(pair), static_cast<int>(kFilled), kPart);
}

void Owner::look(std::uint32_t pair, const char* when) const {
  for (std::uint32_t i = 0; i < kPart; ++i)
    if (const std::byte there = static_cast<volatile std::byte*>(part(pair))[i]; there != kFilled)
      wrong("pair " + std::to_string(pair) + " was written to " + when + ": octet " + std::to_string(i) + " is " +
            std::to_string(static_cast<int>(there)));
}

void Owner::round() {
  next_step("connecting");
  std::memset(memory_, 0, kPairs * kSlot);
  completed_.clear();
  const auto all = [&](auto has) { return std::all_of(std::begin(links_), std::end(links_), has); };
  while (!all([](const Link& link) { return link.established; })) {
    if (requests_.empty()) {
      take_cm_event();
      continue;
    }
    const auto [index, id] = requests_.back();
    requests_.pop_back();
    if (index >= kCount || links_[index].id != nullptr) wrong("a call that is none");
    links_[index].id = id;
    queues_.make_queue_pair(id);
    post_receive(id->qp, said_mr_, said_ + 2048 + std::size_t{index} * 64, 64, kReceive + index);
    rdma_conn_param parameters{};
    if (rdma_accept(id, &parameters) != 0) app::fail("rdma_accept");
  }
  next_step("opening");
  std::uint32_t order[kPairs] = {0, 1, 2, 3};
  for (const std::uint32_t pair : order) open(pair);
  next_step("closing");
  std::shuffle(std::begin(order), std::end(order), random_);
  for (const std::uint32_t pair : order) {
    for (const volatile std::byte* first = part(pair); *first == std::byte{0};) sched_yield();
    usleep(random(1000));
    close(pair);
    look(pair, "at once");
  }
  usleep(2000);
  for (const std::uint32_t pair : order) look(pair, "a while later");
  next_step("waiting for B's last words");
  if (const int status = await(kReceive + 1); status != IBV_WC_SUCCESS)
    wrong("B beside a window that was closed: " + std::to_string(status));
  for (std::uint32_t i = 0; i < kWrite; ++i)
    if (part(0)[kPart + i] != kLast) wrong("B's last write is not there");
  next_step("ending");
  while (!all([](const Link& link) { return link.ended; })) take_cm_event();
  for (const std::uint32_t pair : order) look(pair, "at the end");
  if (windows_[0] != nullptr && (errno = ibv_dealloc_mw(windows_[0])) != 0) app::fail("ibv_dealloc_mw");
  if ((errno = ibv_dealloc_mw(windows_[1])) != 0) app::fail("ibv_dealloc_mw");
  for (Link& link : links_) {
    rdma_destroy_qp(link.id);
    if (rdma_destroy_id(link.id) != 0) app::fail("rdma_destroy_id");
    link = {};
  }
  for (ibv_mr* region : regions_)
    if (region != nullptr && (errno = ibv_dereg_mr(region)) != 0) app::fail("ibv_dereg_mr");
}

// ---- who writes --------------------------------------------------------------------------------------------------

class Writer {
 public:
  explicit Writer(const char* address) : address_(address) {}
  void round();

 private:
  void connect(std::uint32_t index);
  bool writes(std::uint32_t index) const { return index / 2 == 0 || index / 2 == 2 || index % 2 == 1; }
  void write(std::uint32_t index);
  void say_last();

  const char* address_;
  rdma_event_channel* channel_ = nullptr;
  Queues queues_;
  std::byte* memory_ = nullptr;
  ibv_mr* mr_ = nullptr;
  rdma_cm_id* ids_[kCount] = {};
  Open open_[kCount] = {};
  bool dead_[kCount] = {};
  std::uint32_t count_ = 0;
};

constexpr std::uint64_t kHeard = 500, kWriting = 600, kLastWords = 700;

void Writer::connect(std::uint32_t index) {
  app::Endpoint end = app::resolve(address_, kPort);
  if (queues_.context == nullptr) {
    queues_.make(end.id->verbs);
    memory_ = pages(3 * kWrite);
    std::memset(memory_, static_cast<int>(kWritten), kWrite);
    std::memset(memory_ + kWrite, static_cast<int>(kLast), kWrite);
    mr_ = ibv_reg_mr(queues_.pd, memory_, 3 * kWrite, IBV_ACCESS_LOCAL_WRITE);
    if (mr_ == nullptr) app::fail("ibv_reg_mr");
  }
  ids_[index] = end.id;
  queues_.make_queue_pair(end.id);
  post_receive(end.id->qp, mr_, memory_ + 2 * kWrite + std::size_t{index} * sizeof(Open), sizeof(Open), kHeard + index);
  rdma_conn_param parameters{};
  parameters.private_data = &index;
  parameters.private_data_len = sizeof index;
  if (rdma_connect(end.id, &parameters) != 0) app::fail("rdma_connect");
  rdma_ack_cm_event(app::expect(end.channel, RDMA_CM_EVENT_ESTABLISHED));
}

void Writer::write(std::uint32_t index) {
  const app::Target& to = index == 1 ? open_[index].beside : open_[index].closing;
  const std::uint64_t offset = index == 1 || count_ % 2 == 0 ? 0 : (count_ / 2 % (kPart / kWrite)) * kWrite;
  ++count_;
  post(ids_[index]->qp, IBV_WR_RDMA_WRITE, mr_, memory_, kWrite, kWriting + index, to.address + offset, to.rkey);
}

void Writer::say_last() {
  ibv_qp* const b = ids_[1]->qp;
  post(b, IBV_WR_RDMA_WRITE, mr_, memory_ + kWrite, kWrite, kLastWords, open_[1].beside.address, open_[1].beside.rkey);
  post(b, IBV_WR_SEND, mr_, memory_, 8, kLastWords);
}

void Writer::round() {
  next_step("connecting");
  for (std::uint32_t i = 0; i < kCount; ++i) connect(i);
  next_step("writing");
  std::uint32_t last_words = 0, under_way = 0;
  const auto all_refused = [&] {
    for (std::uint32_t i = 0; i < kCount; ++i)
      if (i != 1 && writes(i) && !dead_[i]) return false;
    return true;
  };
  while (last_words < 2 || !all_refused()) {
    const ibv_wc wc = poll(queues_.cq);
    const auto index = static_cast<std::uint32_t>(wc.wr_id % 100);
    const std::uint64_t kind = wc.wr_id - index;
    if (wc.status != IBV_WC_SUCCESS) {
      if (kind != kWriting || index == 1)
        wrong("connection " + std::to_string(index) + ", " + std::to_string(kind) + ": " +
              ibv_wc_status_str(wc.status));
      dead_[index] = true;
    } else if (kind == kHeard) {
      std::memcpy(&open_[index], memory_ + 2 * kWrite + std::size_t{index} * sizeof(Open), sizeof(Open));
      for (std::uint32_t i = 0; writes(index) && i < kWrites; ++i) write(index);
      under_way += index == 1 ? kWrites : 0;
    } else if (kind == kLastWords) {
      ++last_words;
    } else if (index == 1 && all_refused()) {
      if (--under_way == 0) say_last();
    } else if (!dead_[index]) {
      write(index);
    }
  }
  next_step("ending");
  for (std::uint32_t i = 0; i < kCount; ++i) {
    rdma_event_channel* const channel = ids_[i]->channel;
    rdma_disconnect(ids_[i]);
    rdma_destroy_qp(ids_[i]);
    if (rdma_destroy_id(ids_[i]) != 0) app::fail("rdma_destroy_id");
    rdma_destroy_event_channel(channel);
    dead_[i] = false;
  }
}

}  // namespace

int main(int count, char** words) {
  bool owner = false;
  for (int option; (option = getopt(count, words, "lr:w:")) != -1;) {
    if (option == 'l') owner = true;
    if (option == 'r') rounds = static_cast<std::uint32_t>(std::atoi(optarg));
    if (option == 'w') patience = static_cast<std::uint32_t>(std::atoi(optarg));
    if (option == '?') return 1;
  }
  if (optind + 1 != count) {
    std::fprintf(stderr, "usage: closers ADDRESS [-l] [-r ROUNDS]\n");
    return 1;
  }
  std::signal(SIGALRM, on_alarm);
  if (owner) {
    Owner ours(words[optind]);
    for (; round_ < rounds; ++round_) ours.round();
  } else {
    Writer ours(words[optind]);
    for (; round_ < rounds; ++round_) ours.round();
  }
  std::printf("closers: %u rounds\n", rounds);
  return 0;
}
