// Chance: control messages and ring entries of which most are nearly right, from processes that die of what they do
// to themselves. The same seed says the same things in the same order; an odd one to a device with a RoCE face.
#include <fcntl.h>
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <span>

#include "base/chance.hpp"
#include "system/hostile/victim.hpp"

namespace rnic::hostile {
namespace {

constexpr int kNoAnswer = 3;  // exit code of a child that was not answered
constexpr int kAnswerMs = 60'000;
constexpr std::uint32_t kActs = 400;
constexpr std::uint32_t kTypeMax = 255;  // no message has a greater number

bool one_in(std::uint64_t n, Chance& chance) { return chance.below(n) == 0; }

// Every message that such a connection may send, but HELLO, which makes it what it is.
std::vector<const rnic_message*> asked_by(std::uint32_t who) {
  std::vector<const rnic_message*> messages;
  for (std::uint32_t type = 0; type <= kTypeMax; ++type) {
    const rnic_message* const each = rnic_message_of(type);
    if (each != nullptr && (each->who & who) != 0 && type != RNIC_HELLO) messages.push_back(each);
  }
  return messages;
}

class Player {
 public:
  Player(const std::string& socket, std::uint64_t seed)
      : datagrams_(seed % 2 != 0),
        chance_(seed),
        socket_(socket),
        pair_(socket, 64, datagrams_ ? RNIC_FACE_ROCE : RNIC_FACE_IWARP) {
    region_ = pair_.app.region(pair_.pd, bare::private_memory(kBytes), kBytes, bare::kAllAccess);
    for (const bare::QueuePair* each : {&pair_.caller, &pair_.called})
      pair_.app.control.ask(RNIC_TRANSMIT_MEMORY, rnic_transmit_memory{each->number, 0, kTransmitBytes});
    listening_at_ = pair_.channel.query(pair_.listener).source;
    shared_at_ = bare::shared_memory(kBytes, shared_);
    mapped_ = pair_.app.region(pair_.pd, shared_at_, kBytes, bare::kAllAccess, shared_.get());
    known_ = {pair_.pd,     pair_.cq.handle, pair_.caller.number, pair_.called.number, region_.handle,
              region_.stag, mapped_.handle,  mapped_.stag,        pair_.listener,      pair_.channel.number};
  }

  void act() {
    switch (chance_.below(16)) {
      case 0:
        return stranger();
      case 1:
      case 2:
      case 3:
        return request(pair_.app.control, verbs_);
      case 4:
      case 5:
        if (datagrams_ && one_in(4, chance_)) return take_event();
        return request(pair_.channel.control, management_);
      case 6:
        return scribble();
      case 7:
        return cut();
      default:
        return entries();
    }
  }

 private:
  static constexpr std::size_t kBytes = 64 * 4096;
  static constexpr std::uint64_t kTransmitBytes = std::uint64_t{1} << 20;

  std::uint32_t word() {
    switch (chance_.below(8)) {
      case 0:
        return 0;
      case 1:
        return static_cast<std::uint32_t>(chance_.below(32));
      case 2:
        return ~std::uint32_t{0} - static_cast<std::uint32_t>(chance_.below(2));
      case 3:
        return std::uint32_t{1} << chance_.below(32);
      case 4:
        return static_cast<std::uint32_t>(chance_.next());
      default:
        return known_[chance_.below(known_.size())] + static_cast<std::uint32_t>(one_in(8, chance_));
    }
  }

  bare::Descriptor descriptor() {
    switch (chance_.below(8)) {
      case 0:
        return bare::Descriptor(open("/proc/self/mem", O_RDWR | O_CLOEXEC));
      case 1:
        return bare::Descriptor(open("/dev/null", O_RDWR | O_CLOEXEC));
      case 2:
        return bare::Descriptor(open("/", O_RDONLY | O_CLOEXEC));
      case 3:
        return bare::Descriptor(eventfd(0, EFD_CLOEXEC));
      case 4:
        return bare::Descriptor(epoll_create1(EPOLL_CLOEXEC));
      case 5:
        return bare::Descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
      case 6:
        return bare::Descriptor(memfd_create("random", MFD_CLOEXEC));
      default:
        return bare::Descriptor(dup(shared_.get()));
    }
  }

  std::vector<std::byte> body(std::uint32_t size) {
    if (one_in(16, chance_)) size = static_cast<std::uint32_t>(chance_.below(RNIC_MSG_MAX - sizeof(rnic_msg) + 1));
    std::vector<std::byte> octets(size);
    for (std::size_t at = 0; at + sizeof(std::uint32_t) <= size; at += sizeof(std::uint32_t)) {
      const std::uint32_t value = at < 256 || one_in(8, chance_) ? word() : 0;
      std::memcpy(octets.data() + at, &value, sizeof value);
    }
    return octets;
  }

  // Whoever says something is answered, or told to go.
  void heard(bare::Connection& connection) {
    const bare::Answer answer = connection.hear(kAnswerMs);
    if (answer.status == bare::Answer::kSilent) _exit(kNoAnswer);
    if (answer.status == bare::Answer::kEnded) _exit(0);
    // What was made is of use later.
    if (answer.good() && answer.body.size() >= sizeof(std::uint32_t)) {
      std::uint32_t number = 0;
      std::memcpy(&number, answer.body.data(), sizeof number);
      known_[chance_.below(known_.size())] = number;
    }
  }

  // One that may well be taken: a region that is ours.
  void make_region_usual(std::span<std::byte> octets) {
    rnic_reg_mr usual{};
    std::memcpy(&usual, octets.data(), sizeof usual);
    usual.pd = pair_.pd;
    usual.access = static_cast<std::uint32_t>(chance_.below(128));
    usual.start = reinterpret_cast<std::uintptr_t>(one_in(2, chance_) ? region_.at : shared_at_) + chance_.below(64);
    usual.length = 1 + chance_.below(kBytes);
    usual.shared = static_cast<std::uint32_t>(chance_.below(3));
    usual.shared_offset = chance_.below(kBytes);
    std::memcpy(octets.data(), &usual, sizeof usual);
  }

  // Messages of netlink whose lengths fit, with attributes as chance has it.
  void make_netlink_usual(std::span<std::byte> octets) {
    rnic_netlink usual{};
    std::memcpy(&usual, octets.data(), sizeof usual);
    usual.length =
        static_cast<std::uint32_t>(NLMSG_HDRLEN + 4 * chance_.below(RNIC_NETLINK_MAX / 4 - NLMSG_HDRLEN / 4 + 1));
    nlmsghdr head{};
    head.nlmsg_len = usual.length;
    const auto command = static_cast<std::uint16_t>(chance_.below(RDMA_NLDEV_NUM_OPS + 1));
    head.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command);
    head.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | (one_in(2, chance_) ? NLM_F_DUMP : 0));
    std::memcpy(usual.octets, &head, sizeof head);
    for (std::size_t at = NLMSG_HDRLEN; at < usual.length; at += NLA_HDRLEN + 4) {
      const nlattr attribute{NLA_HDRLEN + 4, static_cast<std::uint16_t>(chance_.below(RDMA_NLDEV_ATTR_MAX))};
      std::memcpy(usual.octets + at, &attribute, std::min(sizeof attribute, usual.length - at));
    }
    std::memcpy(octets.data(), &usual, sizeof usual);
  }

  template <typename T>
  static void change(std::span<std::byte> octets, const auto& how) {
    T usual{};
    std::memcpy(&usual, octets.data(), sizeof usual);
    how(usual);
    std::memcpy(octets.data(), &usual, sizeof usual);
  }

  // Few of them: to be there already, or to be full.
  rnic_address group() { return bare::group_at(9, static_cast<std::uint8_t>(chance_.below(70))); }
  bare::QueuePair& some_pair() { return one_in(2, chance_) ? pair_.caller : pair_.called; }
  rnic_address own_address() {
    // Where somebody listens, and where nobody does.
    rnic_address at = bare::address_of(pair_.app.device());
    at.port = one_in(2, chance_) ? listening_at_.port : static_cast<std::uint16_t>(chance_.next());
    return at;
  }

  void make_pair_usual(std::span<std::byte> octets) {
    change<rnic_create_qp>(octets, [&](rnic_create_qp& usual) {
      usual.pd = pair_.pd;
      usual.send_cq = usual.recv_cq = pair_.cq.handle;
      usual.srq = 0;
      usual.send_wr_min = static_cast<std::uint32_t>(chance_.below(64));
      usual.recv_wr_min = static_cast<std::uint32_t>(chance_.below(64));
      usual.send_sge_max = usual.recv_sge_max = static_cast<std::uint32_t>(chance_.below(4));
      usual.inline_max = static_cast<std::uint32_t>(chance_.below(256));
      usual.type = static_cast<std::uint32_t>(chance_.below(3));
      usual.receive_limit = 0;
      usual.flags = 0;
    });
  }
  void make_modify_usual(std::span<std::byte> octets) {
    change<rnic_modify_qp>(octets, [&](rnic_modify_qp& usual) {
      usual.qp_number = some_pair().number;
      usual.mask = RNIC_MODIFY_STATE | (one_in(2, chance_) ? RNIC_MODIFY_Q_KEY : 0);
      usual.state = static_cast<std::uint32_t>(chance_.below(6));
      usual.idle_name = static_cast<std::uint32_t>(chance_.below(5));
      usual.q_key = kQkey;
    });
  }
  void make_group_usual(std::span<std::byte> octets) {
    change<rnic_mcast>(octets, [&](rnic_mcast& usual) {
      usual.qp_number = some_pair().number;
      std::memcpy(usual.gid, bare::gid_of(group()).data(), sizeof usual.gid);
    });
  }

  // Of ids that were told last: mostly they are known, in this state or another.
  void make_id_usual(std::uint32_t type, std::span<std::byte> octets) {
    const std::uint32_t id = known_[chance_.below(known_.size())];
    switch (type) {
      case RNIC_CM_CREATE_ID:
        return change<rnic_cm_create_id>(octets, [&](rnic_cm_create_id& usual) {
          usual.channel = pair_.channel.number;
          usual.port_space = one_in(2, chance_) ? bare::Channel::kUdp : one_in(2, chance_) ? 0x0002u : 0x0106u;
        });
      case RNIC_CM_RESOLVE_ADDRESS:
        return change<rnic_cm_resolve_address>(octets, [&](rnic_cm_resolve_address& usual) {
          usual = {id, 1000, {}, one_in(8, chance_) ? group() : own_address()};
        });
      case RNIC_CM_CONNECT:
      case RNIC_CM_ACCEPT:
        return change<rnic_cm_connect>(octets, [&](rnic_cm_connect& usual) {
          usual.id = id;
          usual.parameters.qp_number = some_pair().number;
          usual.parameters.responder_resources = usual.parameters.initiator_depth = 4;
          usual.parameters.valid = !one_in(8, chance_);
          usual.parameters.private_data_length = static_cast<std::uint16_t>(chance_.below(200));
        });
      case RNIC_CM_JOIN:
        return change<rnic_cm_join>(octets, [&](rnic_cm_join& usual) {
          usual.id = id;
          usual.flags = static_cast<std::uint32_t>(chance_.below(2));
          usual.group = group();
        });
      default:
        break;
    }
  }

  // What comes for its channel has its reply, too.
  void take_event() {
    if (const bare::Answer told = pair_.channel.control.by_handle(RNIC_CM_GET_EVENT, pair_.channel.number); told.good())
      known_[chance_.below(known_.size())] = told.as<rnic_cm_get_event_reply>().id;
  }

  void make_usual(std::uint32_t type, std::span<std::byte> octets) {
    if (type == RNIC_CREATE_QP) make_pair_usual(octets);
    if (type == RNIC_MODIFY_QP) make_modify_usual(octets);
    if (type == RNIC_ATTACH_MCAST || type == RNIC_DETACH_MCAST) make_group_usual(octets);
    make_id_usual(type, octets);
  }

  void request(bare::Connection& connection, const std::vector<const rnic_message*>& messages) {
    const rnic_message& message = *messages[chance_.below(messages.size())];
    const bool may_have_more = message.type == RNIC_CM_OPEN && one_in(2, chance_);
    std::vector<std::byte> octets = body(may_have_more ? sizeof(rnic_cm_open) : message.request_size);
    if (octets.size() >= message.request_size && !one_in(4, chance_)) {
      if (message.type == RNIC_REG_MR) make_region_usual(octets);
      if (message.type == RNIC_REREG_MR) {
        if (one_in(2, chance_)) std::memcpy(octets.data(), &known_[chance_.below(known_.size())], 4);
        make_region_usual(std::span(octets).subspan(offsetof(rnic_rereg_mr, to)));
      }
      if (message.type == RNIC_NETLINK) make_netlink_usual(octets);
      if (datagrams_ && one_in(2, chance_)) make_usual(message.type, octets);
    }
    std::vector<bare::Descriptor> fds;
    std::vector<int> numbers;
    while (fds.size() < RNIC_FDS_MAX + 4 && one_in(fds.size() < 2 ? 3 : 2, chance_)) {
      fds.push_back(descriptor());
      if (fds.back()) numbers.push_back(fds.back().get());
    }
    if (connection.say_octets(message.type, octets, numbers)) heard(connection);
  }

  // One who does not keep to the protocol, or not for long.
  void stranger() {
    bare::Connection other(socket_);
    if (!other.connected()) return;
    if (one_in(2, chance_) && !other.hello(static_cast<std::uint32_t>(1 + chance_.below(2))).good()) return;
    const std::uint64_t messages = chance_.below(4);
    for (std::uint64_t i = 0; i < messages; ++i) {
      std::vector<std::byte> octets = body(static_cast<std::uint32_t>(sizeof(rnic_msg) + chance_.below(64)));
      if (one_in(2, chance_) && octets.size() >= sizeof(rnic_msg)) {
        const rnic_msg header{static_cast<std::uint32_t>(chance_.below(RNIC_STOP)), 1, 0,
                              static_cast<std::uint32_t>(octets.size())};
        std::memcpy(octets.data(), &header, sizeof header);
      }
      if (octets.empty() || !other.say_raw(octets)) return;
      if (one_in(4, chance_)) return;  // without waiting for what is said
      if (other.hear(kAnswerMs).status == bare::Answer::kSilent) _exit(kNoAnswer);
    }
  }

  rnic_sge sge() {
    const bare::Region& region = one_in(2, chance_) ? region_ : mapped_;
    rnic_sge made = region.sge(chance_.below(kBytes), static_cast<std::uint32_t>(chance_.below(kBytes)));
    if (one_in(16, chance_)) made.lkey = word();
    if (one_in(16, chance_)) made.length = word();
    if (one_in(16, chance_)) made.address = chance_.next();
    return made;
  }

  rnic_ud_address somewhere() {
    const bool to_group = one_in(4, chance_);
    rnic_ud_address to{};
    std::memcpy(to.gid, bare::gid_of(to_group ? group() : bare::address_of(pair_.app.device())).data(), sizeof to.gid);
    if (one_in(16, chance_)) to.gid[chance_.below(sizeof to.gid)] = static_cast<std::uint8_t>(chance_.next());
    to.qp_number = one_in(8, chance_) ? word() : to_group ? 0xFFFFFFu : some_pair().number;
    to.q_key = one_in(8, chance_) ? word() : kQkey;
    to.flow_label = word();
    to.gid_index = static_cast<std::uint8_t>(one_in(8, chance_) ? chance_.next() : chance_.below(2));
    to.traffic_class = static_cast<std::uint8_t>(chance_.next());
    to.hop_limit = static_cast<std::uint8_t>(chance_.below(3));
    return to;
  }

  void entries() {
    bare::QueuePair& qp = some_pair();
    for (std::uint64_t count = 1 + chance_.below(8); count > 0; --count) {
      const rnic_sge target = sge();
      rnic_sqe entry{};
      entry.opcode = static_cast<std::uint8_t>(one_in(16, chance_) ? chance_.next() : chance_.below(11));
      entry.flags = static_cast<std::uint8_t>(one_in(8, chance_) ? chance_.next() : chance_.below(2));
      if (one_in(4, chance_)) entry.flags |= RNIC_SQE_STAGED;
      entry.sge_count = static_cast<std::uint8_t>(one_in(16, chance_) ? chance_.next() : chance_.below(2));
      entry.length = one_in(8, chance_) ? word() : static_cast<std::uint32_t>(chance_.below(256));
      entry.remote_address = target.address;
      entry.rkey = target.lkey;
      entry.invalidate = word();
      entry.argument = chance_.below(kTransmitBytes);
      const std::array<rnic_sge, 1> from{sge()};
      if (datagrams_)
        pair_.app.write_datagram(qp, entry, somewhere(), from);
      else
        pair_.app.write_entry(qp, entry, from);
      if (one_in(4, chance_)) pair_.app.post_receive(qp, sge());
    }
    if (one_in(64, chance_)) qp.send.produced += static_cast<std::uint32_t>(chance_.below(1 << 10));
    pair_.app.publish(qp.send);
    while (pair_.cq.poll()) {
    }
  }

  // Anywhere in what is shared but the status page.
  void scribble() {
    const auto spoil = [&](void* at, std::size_t size) {
      auto* words = static_cast<std::uint32_t*>(at);
      std::atomic_ref(words[chance_.below(size / sizeof *words)]).store(word(), std::memory_order_relaxed);
    };
    switch (chance_.below(4)) {
      case 0:
        spoil(pair_.app.doorbells, sizeof *pair_.app.doorbells);
        break;
      case 1:
        spoil(pair_.cq.control, sizeof *pair_.cq.control + pair_.cq.size * sizeof(rnic_cqe));
        break;
      case 2:
        spoil(pair_.called.send.control, sizeof(rnic_ring_control));
        break;
      default:
        spoil(pair_.caller.receive.control, sizeof(rnic_ring_control));
        break;
    }
    pair_.app.ring(word(), static_cast<std::uint32_t>(chance_.below(RNIC_DOORBELLS_MAX)));
  }

  // The file that the daemon maps, too.
  void cut() {
    const std::uint64_t what = chance_.below(8);
    if (what == 0) fallocate(shared_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBytes);
    if (what == 1) madvise(region_.at, kBytes, MADV_DONTNEED);
    [[maybe_unused]] const int done = ftruncate(shared_.get(), what == 2 ? 0 : kBytes);
  }

  const std::vector<const rnic_message*> verbs_ = asked_by(RNIC_OF_VERBS), management_ = asked_by(RNIC_OF_CM);
  const bool datagrams_;
  Chance chance_;
  std::string socket_;
  Pair pair_;
  bare::Region region_, mapped_;
  std::byte* shared_at_ = nullptr;
  bare::Descriptor shared_;
  std::vector<std::uint32_t> known_;
  rnic_address listening_at_{};
};

}  // namespace

int random(const Options& options) {
  say("seed " + std::to_string(options.seed) + ", a process for each from there on");
  attacking();
  const Seconds start = now();
  std::uint64_t seed = options.seed, died = 0;
  for (; now() - start < options.seconds; ++seed) {
    if (options.count != 0 && seed - options.seed >= options.count) break;
    const pid_t child = fork();
    if (child == 0) {
      Player player(options.socket, seed);
      for (std::uint32_t i = 0; i < kActs; ++i) player.act();
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) ++died;
    if (WIFEXITED(status) && WEXITSTATUS(status) == kNoAnswer) {
      say("seed " + std::to_string(seed) + ": a request was never answered");
      return 1;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 1) {  // it could not begin
      say("seed " + std::to_string(seed) + ": no application could begin");
      return 1;
    }
  }
  say(std::to_string(seed - options.seed) + " processes, " + std::to_string(died) + " died of it");
  return 0;
}

}  // namespace rnic::hostile
