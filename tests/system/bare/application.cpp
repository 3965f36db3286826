#include "system/bare/application.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <future>
#include <utility>

namespace rnic::bare {
namespace {

template <typename T>
T* map_descriptor(const Descriptor& fd, std::size_t size, int protection) {
  void* at = mmap(nullptr, size, protection, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) fail("mapping what the daemon sent", errno);
  return static_cast<T*>(at);
}

template <typename T>
void set_once(T& word, T bits) {
  const std::atomic_ref ref(word);
  if ((ref.load(std::memory_order_relaxed) & bits) == 0) ref.fetch_or(bits);
}

}  // namespace

Helper::Helper() : end_(eventfd(0, EFD_CLOEXEC)) {
  std::promise<std::uint32_t> known;
  std::future<std::uint32_t> tid = known.get_future();
  thread_ = std::thread([this, &known] {
    known.set_value(static_cast<std::uint32_t>(syscall(SYS_gettid)));
    std::uint64_t count;
    while (read(end_.get(), &count, sizeof count) < 0 && errno == EINTR) {
    }
  });
  tid_ = tid.get();
}

Helper::~Helper() { end(); }

void Helper::end() {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(end_.get(), &one, sizeof one);
  thread_.join();
}

std::optional<rnic_cqe> CompletionQueue::poll() {
  rnic_cqe& entry = entries[consumed & (size - 1)];
  // Pairs with the release with which the data plane writes the phase last.
  if (std::atomic_ref(entry.phase).load(std::memory_order_acquire) != consumed / size + 1) return std::nullopt;
  const rnic_cqe copy = entry;
  ++consumed;
  std::atomic_ref(control->consumed).store(consumed, std::memory_order_release);
  return copy;
}

void CompletionQueue::arm(std::uint32_t kind) {
  const std::uint32_t sequence = (control->arm >> 2) + 1;
  std::atomic_ref(control->arm).store(sequence << 2 | kind, std::memory_order_seq_cst);
}

Application::Application(const std::string& socket, const ContextOptions& options)
    : control(socket, RNIC_CLIENT_VERBS), helper_(options.helper ? std::make_unique<Helper>() : nullptr) {
  rnic_open_context request{};
  options.device.copy(request.device, sizeof request.device - 1);
  if (request.device[0] == '\0') {
    // The first of the devices: a name has to be given.
    const Answer answer = control.ask(RNIC_LIST_DEVICES);
    rnic_device_info first{};
    if (answer.as<rnic_list_devices_reply>("LIST_DEVICES").count == 0) fail("no device");
    std::memcpy(&first, answer.body.data() + sizeof(rnic_list_devices_reply), sizeof first);
    std::memcpy(request.device, first.name, sizeof request.device);
  }
  if (helper_ != nullptr) request.helper_tid = helper_->tid();
  const Descriptor memory(options.memory ? open("/proc/self/mem", O_RDWR | O_CLOEXEC) : -1);
  const int fds[] = {memory.get()};
  Answer answer = control.ask(RNIC_OPEN_CONTEXT, request, std::span(fds).first(options.memory ? 1 : 0));
  opened = answer.as<rnic_open_context_reply>("OPEN_CONTEXT");
  if (opened.worker_count == 0 || opened.worker_count > RNIC_WORKERS_MAX) fail("OPEN_CONTEXT: no workers");
  status = map_descriptor<rnic_status_page>(answer.take(0), sizeof(rnic_status_page), PROT_READ);
  doorbells = map_descriptor<rnic_doorbells>(answer.take(1), opened.worker_count * sizeof(rnic_doorbells),
                                             PROT_READ | PROT_WRITE);
  async_reader = answer.take(2);
  async_writer = answer.take(3);
  for (std::uint32_t i = 0; i < opened.worker_count; ++i) wakes[i] = answer.take(4 + i);
}

Application::~Application() {
  for (const auto& [number, arena] : arenas_) munmap(arena.at, arena.size);
  munmap(const_cast<rnic_status_page*>(status), sizeof *status);
  munmap(doorbells, opened.worker_count * sizeof *doorbells);
}

std::uint32_t Application::end_helper() {
  helper_->end();
  return helper_->tid();
}

std::byte* Application::map(const rnic_area& area, Answer& answer) {
  Arena& arena = arenas_[area.arena];
  if (area.arena_is_new != 0) {
    if (answer.fds.empty()) fail("a new arena came without its descriptor");
    arena.size = area.arena_size;
    arena.at = map_descriptor<std::byte>(answer.fds.front(), arena.size, PROT_READ | PROT_WRITE);
    answer.fds.erase(answer.fds.begin());
  }
  if (arena.at == nullptr || area.offset > arena.size || area.length > arena.size - area.offset)
    fail("an area outside of its arena");
  return arena.at + area.offset;
}

std::uint32_t Application::protection_domain() {
  return control.ask(RNIC_ALLOC_PD).as<rnic_handle_reply>("ALLOC_PD").handle;
}

Answer Application::try_completion_queue(std::uint32_t entries, std::uint64_t channel_cookie, std::uint64_t pointer) {
  return control.ask(RNIC_CREATE_CQ, rnic_create_cq{entries, 0, pointer, channel_cookie, 0, 0});
}

CompletionQueue Application::completion_queue(std::uint32_t entries, std::uint64_t channel_cookie) {
  Answer answer = try_completion_queue(entries, channel_cookie);
  const auto reply = answer.as<rnic_create_cq_reply>("CREATE_CQ");
  CompletionQueue cq;
  cq.handle = reply.cq;
  cq.size = reply.entries;
  std::byte* area = map(reply.area, answer);
  cq.control = reinterpret_cast<rnic_cq_control*>(area);
  cq.entries = reinterpret_cast<rnic_cqe*>(area + sizeof(rnic_cq_control));
  cq.event_writer = answer.take(0);
  return cq;
}

Answer Application::try_queue_pair(std::uint32_t pd, std::uint32_t send_cq, std::uint32_t receive_cq,
                                   std::uint32_t depth) {
  rnic_create_qp request{};
  request.pd = pd;
  request.send_cq = send_cq;
  request.recv_cq = receive_cq;
  request.send_wr_min = request.recv_wr_min = depth;
  request.send_sge_max = request.recv_sge_max = 1;
  request.user_pointer = 0x9B;
  return control.ask(RNIC_CREATE_QP, request);
}

Answer Application::try_datagram_pair(std::uint32_t pd, std::uint32_t cq, std::uint32_t depth) {
  rnic_create_qp request{};
  request.pd = pd;
  request.send_cq = request.recv_cq = cq;
  request.send_wr_min = request.recv_wr_min = depth;
  request.send_sge_max = request.recv_sge_max = 1;
  request.type = RNIC_QP_UD;
  request.user_pointer = 0x9C;
  return control.ask(RNIC_CREATE_QP, request);
}

void Application::to_rts(std::uint32_t qp_number, std::uint32_t q_key) {
  rnic_modify_qp change{};
  change.mask = RNIC_MODIFY_STATE | RNIC_MODIFY_Q_KEY;
  change.state = RNIC_QP_IDLE;
  change.idle_name = RNIC_IDLE_INIT;
  change.q_key = q_key;
  Answer answer = modify(qp_number, change);
  change.mask = RNIC_MODIFY_STATE;
  change.idle_name = RNIC_IDLE_RTR;
  if (answer.good()) answer = modify(qp_number, change);
  change.state = RNIC_QP_RTS;
  if (answer.good()) answer = modify(qp_number, change);
  if (!answer.good()) fail("MODIFY_QP of a queue pair for datagrams: " + answer.words());
}

Answer Application::attach(std::uint32_t qp_number, const rnic_address& group) {
  rnic_mcast request{qp_number, 0, {}};
  std::memcpy(request.gid, gid_of(group).data(), sizeof request.gid);
  return control.ask(RNIC_ATTACH_MCAST, request);
}

Answer Application::detach(std::uint32_t qp_number, const rnic_address& group) {
  rnic_mcast request{qp_number, 0, {}};
  std::memcpy(request.gid, gid_of(group).data(), sizeof request.gid);
  return control.ask(RNIC_DETACH_MCAST, request);
}

QueuePair Application::adopt(Answer answer) {
  const auto reply = answer.as<rnic_create_qp_reply>("CREATE_QP");
  const auto queue = [&](const rnic_area& area, std::uint32_t size, std::uint32_t stride, std::uint32_t doorbell) {
    WorkQueue made;
    if (area.length == 0) return made;  // of a shared receive queue
    std::byte* at = map(area, answer);
    made.control = reinterpret_cast<rnic_ring_control*>(at);
    made.slots = at + sizeof(rnic_ring_control);
    made.size = size;
    made.stride = stride;
    made.doorbell = doorbell;
    return made;
  };
  QueuePair qp;
  qp.number = reply.qp_number;
  qp.send = queue(reply.send_area, reply.send_entries, reply.send_stride, reply.send_doorbell);
  qp.receive = queue(reply.recv_area, reply.recv_entries, reply.recv_stride, reply.recv_doorbell);
  return qp;
}

QueuePair Application::queue_pair(std::uint32_t pd, std::uint32_t send_cq, std::uint32_t receive_cq,
                                  std::uint32_t depth) {
  QueuePair qp = adopt(try_queue_pair(pd, send_cq, receive_cq, depth));
  rnic_modify_qp change{};
  change.mask = RNIC_MODIFY_ACCESS;
  change.access = RNIC_ACCESS_REMOTE_READ | RNIC_ACCESS_REMOTE_WRITE;
  const Answer answer = modify(qp.number, change);
  if (!answer.good()) fail("MODIFY_QP: " + answer.words());
  return qp;
}

Answer Application::modify(std::uint32_t qp_number, rnic_modify_qp change) {
  change.qp_number = qp_number;
  return control.ask(RNIC_MODIFY_QP, change);
}

Answer Application::to_error(std::uint32_t qp_number) {
  rnic_modify_qp change{};
  change.mask = RNIC_MODIFY_STATE;
  change.state = RNIC_QP_ERROR;
  return modify(qp_number, change);
}

Answer Application::try_region(std::uint32_t pd, void* at, std::size_t size, std::uint32_t access, int shared_fd,
                               std::uint64_t offset, rnic_memory kind) {
  rnic_reg_mr request{};
  request.pd = pd;
  request.access = access;
  request.start = request.iova = reinterpret_cast<std::uintptr_t>(at);
  request.length = size;
  const int fds[] = {shared_fd};
  if (shared_fd < 0) return control.ask(RNIC_REG_MR, request);
  request.shared = kind;
  request.shared_offset = offset;
  return control.ask(RNIC_REG_MR, request, fds);
}

Region Application::region(std::uint32_t pd, void* at, std::size_t size, std::uint32_t access, int shared_fd) {
  const auto reply = try_region(pd, at, size, access, shared_fd).as<rnic_reg_mr_reply>("REG_MR");
  return {reply.mr, reply.stag, reply.rung, static_cast<std::byte*>(at), size};
}

void Application::write_entry(QueuePair& qp, const rnic_sqe& entry, std::span<const rnic_sge> sges) {
  std::byte* slot = qp.send.next();
  if (sizeof entry + sges.size_bytes() > qp.send.stride) fail("an entry longer than its slot");
  std::memcpy(slot, &entry, sizeof entry);
  if (!sges.empty()) std::memcpy(slot + sizeof entry, sges.data(), sges.size_bytes());
  ++qp.send.produced;
}

void Application::write_datagram(QueuePair& qp, const rnic_sqe& entry, const rnic_ud_address& to,
                                 std::span<const rnic_sge> sges) {
  std::byte* slot = qp.send.next();
  if (sizeof entry + sizeof to + sges.size_bytes() > qp.send.stride) fail("an entry longer than its slot");
  std::memcpy(slot, &entry, sizeof entry);
  std::memcpy(slot + sizeof entry, &to, sizeof to);
  if (!sges.empty()) std::memcpy(slot + sizeof entry + sizeof to, sges.data(), sges.size_bytes());
  ++qp.send.produced;
}

void Application::publish(WorkQueue& queue) {
  std::atomic_ref(queue.control->produced).store(queue.produced, std::memory_order_release);
  ring(std::atomic_ref(queue.control->worker).load(std::memory_order_relaxed), queue.doorbell);
}

void Application::post(QueuePair& qp, const rnic_sqe& entry, std::span<const rnic_sge> sges) {
  write_entry(qp, entry, sges);
  publish(qp.send);
}

void Application::post_write(QueuePair& qp, const rnic_sge& from, std::uint64_t to, std::uint32_t rkey, bool signaled) {
  rnic_sqe entry{};
  entry.opcode = RNIC_OP_WRITE;
  entry.flags = signaled ? RNIC_SQE_SIGNALED : 0;
  entry.sge_count = 1;
  entry.remote_address = to;
  entry.rkey = rkey;
  post(qp, entry, {&from, 1});
}

void Application::post_read(QueuePair& qp, const rnic_sge& to, std::uint64_t from, std::uint32_t rkey) {
  rnic_sqe entry{};
  entry.opcode = RNIC_OP_READ;
  entry.flags = RNIC_SQE_SIGNALED;
  entry.sge_count = 1;
  entry.remote_address = from;
  entry.rkey = rkey;
  post(qp, entry, {&to, 1});
}

void Application::post_receive(QueuePair& qp, const rnic_sge& to) {
  rnic_rqe entry{};
  entry.sge_count = 1;
  std::byte* slot = qp.receive.next();
  std::memcpy(slot, &entry, sizeof entry);
  std::memcpy(slot + sizeof entry, &to, sizeof to);
  ++qp.receive.produced;
  publish(qp.receive);
}

// The fence orders the store of `produced` before the looks at bits already set (abi/rnic_shm.h).
void Application::ring(std::uint32_t worker, std::uint32_t doorbell) {
  if (worker >= opened.worker_count) worker = 0;
  rnic_doorbells& area = doorbells[worker];
  const std::uint32_t word = doorbell / 64;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  set_once(area.words[word], std::uint64_t{1} << (doorbell % 64));
  set_once(area.summary[word / 64], std::uint64_t{1} << (word % 64));
  set_once(area.any, 1U);
  auto& asleep = const_cast<std::uint32_t&>(status->worker[worker].asleep);
  if (std::atomic_ref(asleep).load(std::memory_order_seq_cst) == 0) return;
  std::atomic_ref(area.rung_from).store(static_cast<std::uint32_t>(sched_getcpu() + 1), std::memory_order_relaxed);
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wakes[worker].get(), &one, sizeof one);
}

std::string device_of(const std::string& socket, rnic_face face) {
  Connection asks(socket, RNIC_CLIENT_VERBS);
  const Answer answer = asks.ask(RNIC_LIST_DEVICES);
  const std::uint32_t count = answer.as<rnic_list_devices_reply>("LIST_DEVICES").count;
  rnic_device_info each{};
  for (std::size_t i = 0, at = sizeof(rnic_list_devices_reply); i < count; ++i, at += sizeof each) {
    if (at + sizeof each > answer.body.size()) break;
    std::memcpy(&each, answer.body.data() + at, sizeof each);
    if (each.face == static_cast<std::uint32_t>(face)) return each.name;
  }
  fail("no device of that face");
}

rnic_address group_at(std::uint8_t c, std::uint8_t d) { return {AF_INET, 0, 0, {239, 1, c, d}}; }

std::array<std::uint8_t, 16> gid_of(const rnic_address& address) {
  std::array<std::uint8_t, 16> gid{};
  gid[10] = gid[11] = 0xFF;
  std::memcpy(gid.data() + 12, address.octets, 4);
  return gid;
}

std::byte* private_memory(std::size_t size) {
  void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (at == MAP_FAILED) fail("memory", errno);
  return static_cast<std::byte*>(at);
}

std::byte* shared_memory(std::size_t size, Descriptor& file) {
  file = Descriptor(memfd_create("bare", MFD_CLOEXEC));
  if (!file || ftruncate(file.get(), static_cast<off_t>(size)) != 0) fail("memfd", errno);
  return map_descriptor<std::byte>(file, size, PROT_READ | PROT_WRITE);
}

}  // namespace rnic::bare
