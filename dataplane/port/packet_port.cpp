#include "port/packet_port.hpp"

#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "port/fanout_program.hpp"
#include "port/kernel_interface.hpp"
#include "port/netdev.hpp"
#include "wire/ethernet.hpp"
#include "wire/vlan.hpp"

namespace rnic::port {

namespace {

// Not in the headers of older C libraries.
constexpr int kIgnoreOutgoing = 23;            // PACKET_IGNORE_OUTGOING
constexpr int kFanoutIgnoreOutgoing = 0x4000;  // PACKET_FANOUT_FLAG_IGNORE_OUTGOING: of the group, not its sockets
// What each of several ports on one interface has at least: places to receive to, and as much again some times.
constexpr std::uint32_t kBuffersMin = 512;
// What waits in the kernel, either way: some milliseconds of a fast interface. It is not memory until it waits.
constexpr int kSocketBytes = 16 << 20;

// As large as may be: beyond the system's limit only with CAP_NET_ADMIN of the first user namespace.
void set_buffer(int socket, int forced, int plain) {
  if (setsockopt(socket, SOL_SOCKET, forced, &kSocketBytes, sizeof kSocketBytes) != 0)
    (void)setsockopt(socket, SOL_SOCKET, plain, &kSocketBytes, sizeof kSocketBytes);
}

// The kernel takes a tag off and tells it beside the frame.
const tpacket_auxdata* tag_of(const msghdr& message) {
  for (cmsghdr* each = CMSG_FIRSTHDR(&message); each != nullptr;
       each = CMSG_NXTHDR(const_cast<msghdr*>(&message), each)) {
    if (each->cmsg_level != SOL_PACKET || each->cmsg_type != PACKET_AUXDATA) continue;
    const auto* said = reinterpret_cast<const tpacket_auxdata*>(CMSG_DATA(each));
    return (said->tp_status & TP_STATUS_VLAN_VALID) != 0 ? said : nullptr;
  }
  return nullptr;
}

// Of one of `count` ports. All of them together have no more memory than one alone would, unless they are many.
PoolSize share_of(const PoolSize& all, unsigned count) {
  const auto part = [&](std::uint32_t buffers) { return std::max(buffers / count, std::min(buffers, kBuffersMin)); };
  PoolSize share = all;
  share.count = part(all.count);
  share.large_count = part(all.large_count);
  return share;
}

void put_tag_back(Buffer& frame, const tpacket_auxdata& said) {
  constexpr std::size_t kMacs = 2 * wire::Mac::kSize;
  const MutableBytes bytes = frame.prepend(wire::VlanTag::kSize);
  std::memmove(bytes.data(), bytes.data() + wire::VlanTag::kSize, kMacs);
  const MutableBytes tag = frame.bytes().subspan(kMacs);
  store_be(tag, 0, (said.tp_status & TP_STATUS_VLAN_TPID_VALID) != 0 ? said.tp_vlan_tpid : wire::ether_type::kVlan);
  store_be(tag, 2, said.tp_vlan_tci);
}

}  // namespace

// ---- opening -----------------------------------------------------------------------------------

PacketPort::PacketPort(const PortSpec& spec, const PoolSize& buffers, std::uint32_t mtu_bytes)
    : pool_(buffers),
      places_(std::make_unique<std::array<Place, kReceivedMax>>()),
      leaving_(std::make_unique<std::array<Leaving, kRunsMax>>()) {
  facts_.kind = name(spec.kind);
  facts_.name = to_string(spec);
  facts_.mtu_bytes = mtu_bytes;
  facts_.netdev = spec.target;
  facts_.fills_checksums = true;
  facts_.run_bytes =
      kRunBytesMax - wire::kLinkHeaderMax;  // with its link's header no longer than a kernel takes as one
}

// Several hear nothing before each knows what is its own.
std::vector<std::unique_ptr<Port>> PacketPort::open_queues(const PortSpec& spec, const PortOptions& options,
                                                           unsigned count, std::string& error) {
  RNIC_ASSERT(count >= 1);
  const std::optional<Netdev> netdev = find_netdev(spec.target);
  if (error = objection_of_kernel(spec, options, netdev); !error.empty()) return {};
  const std::uint32_t mtu_bytes = mtu_of(options, netdev);
  const PoolSize buffers = share_of(
      pool_size_for_runs(options.buffers, mtu_bytes + wire::kLinkHeaderMax, kRunBytesMax + wire::kLinkHeaderMax),
      count);
  const bool several = count > 1;
  std::vector<std::unique_ptr<PacketPort>> ports;
  bool good = true;
  int group = -1;
  while (good && ports.size() < count) {
    PacketPort& port = *ports.emplace_back(new PacketPort(spec, buffers, mtu_bytes));
    port.facts_.mac = netdev->mac;
    good =
        port.open_socket(netdev->index, options.groups, several, error) && (!several || port.join(group, count, error));
  }
  for (const auto& each : ports) good = good && (!several || each->hear(error));
  if (!good) {
    error = "port \"" + to_string(spec) + "\": " + error;
    return {};
  }
  return {std::move_iterator(ports.begin()), std::move_iterator(ports.end())};
}

// Bound last, so that nothing comes before all is set, nor from another interface.
bool PacketPort::open_socket(int interface, bool groups, bool deaf, std::string& error) {
  interface_ = interface;
  const auto fail = [&](const char* what) {
    error = std::string(what) + ": " + std::strerror(errno);
    return false;
  };
  socket_ = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket_ < 0) return fail("no packet socket");
  const int on = 1;
  if (setsockopt(socket_, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on) != 0)
    return fail("the kernel does not tell of checksums (PACKET_VNET_HDR)");
  if (setsockopt(socket_, SOL_PACKET, PACKET_AUXDATA, &on, sizeof on) != 0)
    return fail("the kernel does not tell of VLAN tags (PACKET_AUXDATA)");
  (void)setsockopt(socket_, SOL_PACKET, kIgnoreOutgoing, &on,
                   sizeof on);  // Linux 4.20: else we see them, and drop them
  set_buffer(socket_, SO_RCVBUFFORCE, SO_RCVBUF);
  set_buffer(socket_, SO_SNDBUFFORCE, SO_SNDBUF);
  if (groups) {
    packet_mreq request{};
    request.mr_ifindex = interface;
    request.mr_type = PACKET_MR_ALLMULTI;
    if (setsockopt(socket_, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &request, sizeof request) != 0)
      return fail("it cannot hear multicast");
  }
  if (deaf) {
    sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
    const sock_fprog program{.len = 1, .filter = &nothing};
    if (setsockopt(socket_, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) != 0)
      return fail("the socket has no filter");
  }
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = interface;
  if (bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return fail("the interface cannot be listened to");
  return true;
}

// Into the group; `group` -1: a new one, whose number the kernel chooses, and which gets the program. Members are
// counted in the order in which they join, and again in that of their making when the interface comes up anew.
bool PacketPort::join(int& group, unsigned members, std::string& error) {
  const bool first = group < 0;
  const int flags = PACKET_FANOUT_CBPF | kFanoutIgnoreOutgoing | (first ? PACKET_FANOUT_FLAG_UNIQUEID : 0);
  const int wanted = flags << 16 | (first ? 0 : group);
  int joined = 0;
  socklen_t size = sizeof joined;
  bool good = setsockopt(socket_, SOL_PACKET, PACKET_FANOUT, &wanted, sizeof wanted) == 0 &&
              getsockopt(socket_, SOL_PACKET, PACKET_FANOUT, &joined, &size) == 0;
  group = joined & 0xFFFF;
  if (good && first) {
    std::vector<sock_filter> instructions = fanout_program(members);
    const sock_fprog program{.len = static_cast<unsigned short>(instructions.size()), .filter = instructions.data()};
    good = setsockopt(socket_, SOL_PACKET, PACKET_FANOUT_DATA, &program, sizeof program) == 0;
  }
  if (!good)
    error = std::string("the kernel does not divide frames among sockets (PACKET_FANOUT): ") + std::strerror(errno);
  return good;
}

bool PacketPort::hear(std::string& error) {
  const int unused = 0;
  if (setsockopt(socket_, SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof unused) == 0) return true;
  error = std::string("the socket keeps its filter: ") + std::strerror(errno);
  return false;
}

PacketPort::~PacketPort() {
  while (stash_next_ < stash_count_) BufferRef dropped(stash_[stash_next_++]);
  if (socket_ >= 0) close(socket_);
}

// Another interface that has the name now is not ours: the socket hears nothing of it.
bool PacketPort::link_up() const { return netdev_link_up(facts_.netdev, interface_); }

// ---- receiving ---------------------------------------------------------------------------------

// Of the last place that has one, where the pool has none.
BufferRef PacketPort::take_from_behind(unsigned index, BufferRef Place::*which) {
  dirty_ = kReceivedMax;
  for (unsigned i = kReceivedMax; i-- > index + 1;)
    if (BufferRef& there = (*places_)[i].*which) return std::move(there);
  return {};
}

// Buffers for the places that were received to, as far as there are any; returns how many places have one. Where there
// is no large one, long frames are lost.
unsigned PacketPort::lay_out() {
  unsigned lacking = 0;  // behind the last place that lacks a large one
  for (unsigned i = 0; i < dirty_; ++i) {
    Place& place = (*places_)[i];
    if (!place.small) {
      Buffer* one = nullptr;
      place.small = pool_.take(&one, 1) == 1 ? BufferRef(one) : take_from_behind(i, &Place::small);
      if (!place.small) return i;
    }
    if (!place.large) place.large = BufferRef(pool_.take_large());
    if (!place.large) place.large = take_from_behind(i, &Place::large);
    if (!place.large) lacking = i + 1;
    const std::uint32_t head = pool_.small_room_bytes();
    place.pieces[0] = {&place.said, sizeof place.said};
    place.pieces[1] = {place.small->room + kHeadroom, head};
    if (place.large) place.pieces[2] = {place.large->room + kHeadroom + head, pool_.room_bytes() - head};
    msghdr& message = incoming_[i].msg_hdr;
    message.msg_iov = place.pieces.data();
    message.msg_iovlen = place.large ? 3 : 2;
    message.msg_control = place.control;
    message.msg_controllen = sizeof place.control;
  }
  dirty_ = lacking;
  return kReceivedMax;
}

// The frame in a place, whose buffer goes with it. None: it is of no use.
BufferRef PacketPort::take_frame(Place& place, const msghdr& message, std::uint32_t octets) {
  if (octets <= sizeof place.said || (message.msg_flags & MSG_TRUNC) != 0) return {};
  octets -= static_cast<std::uint32_t>(sizeof place.said);
  const std::uint32_t head = pool_.small_room_bytes();
  const bool is_long = octets > head;
  BufferRef& taken = is_long ? place.large : place.small;
  if (is_long) std::memcpy(place.large->room + kHeadroom, place.small->room + kHeadroom, head);
  taken->append(octets);
  const Received judged = judge(place.said, taken->bytes());
  if (judged == Received::unusable) {
    taken->length = 0;
    return {};
  }
  taken->checksum_good = judged == Received::good;
  if (const tpacket_auxdata* tag = tag_of(message)) put_tag_back(*taken, *tag);
  return std::move(taken);
}

unsigned PacketPort::receive_burst(Buffer** out, unsigned max) {
  if (stash_next_ == stash_count_) return receive_now(out, max);
  const unsigned n = std::min(max, stash_count_ - stash_next_);
  std::copy_n(stash_.begin() + stash_next_, n, out);
  stash_next_ += n;
  return n;
}

unsigned PacketPort::receive_now(Buffer** out, unsigned max) {
  const unsigned ready = std::min(max, lay_out());
  if (ready == 0) return 0;
  int received = 0;
  // One that the kernel has no words for (EINVAL) is gone, and others may wait behind it.
  for (int tries = 0; tries < 4; ++tries) {
    received = recvmmsg(socket_, incoming_.data(), ready, MSG_DONTWAIT, nullptr);
    if (received >= 0 || errno == EAGAIN) break;
    lost_ += errno == EINVAL ? 1 : 0;
  }
  if (received <= 0) return 0;
  const auto count = static_cast<unsigned>(received);
  dirty_ = std::max(dirty_, count);
  unsigned kept = 0;
  for (unsigned i = 0; i < count; ++i) {
    if (BufferRef frame = take_frame((*places_)[i], incoming_[i].msg_hdr, incoming_[i].msg_len))
      out[kept++] = frame.release();
    else
      ++lost_;
  }
  return kept;
}

bool PacketPort::arm() {
  if (stash_next_ < stash_count_) return false;
  stash_next_ = 0;
  stash_count_ = receive_now(stash_.data(), kReceivedMax);
  return stash_count_ == 0;
}

// ---- sending -----------------------------------------------------------------------------------

// Frames into runs, as many as a call takes; returns how many runs, and how many frames they hold.
unsigned PacketPort::collect(Buffer* const* frames, unsigned count, unsigned& taken) {
  unsigned runs = 0;
  taken = 0;
  while (taken < count && runs < kRunsMax) {
    Leaving& leaving = (*leaving_)[runs];
    SegmentRun& run = leaving.run;
    run.begin(*frames[taken++]);
    while (taken < count && run.add(*frames[taken])) ++taken;
    leaving.said = run.finish();
    leaving.pieces[0] = {&leaving.said, sizeof leaving.said};
    for (std::uint32_t i = 0; i < run.count(); ++i)
      leaving.pieces[1 + i] = {const_cast<std::byte*>(run.piece(i).data()), run.piece(i).size()};
    outgoing_[runs].msg_hdr.msg_iov = leaving.pieces.data();
    outgoing_[runs].msg_hdr.msg_iovlen = 1 + run.count();
    ++runs;
  }
  return runs;
}

unsigned PacketPort::send_burst(Buffer* const* frames, unsigned count) {
  unsigned sent = 0;
  while (sent < count) {
    unsigned taken = 0;
    const unsigned runs = collect(frames + sent, count - sent, taken);
    unsigned done = 0;
    while (done < runs) {
      const int n = sendmmsg(socket_, outgoing_.data() + done, runs - done, MSG_DONTWAIT);
      unsigned gone = n > 0 ? static_cast<unsigned>(n) : 0;
      if (n < 0) {
        if (errno == EINTR) continue;
        if (errno == EAGAIN) {  // the socket is full: again later
          for (unsigned run = done; run < runs; ++run) (*leaving_)[run].run.restore();
          return sent;
        }
        // The interface is down, or its queue full: as if lost on the wire.
        gone = 1;
        lost_ += (*leaving_)[done].run.frames();
      }
      for (; gone != 0; --gone, ++done)
        for (std::uint32_t i = (*leaving_)[done].run.count(); i != 0; --i) BufferRef{frames[sent++]}.reset();
    }
  }
  return sent;
}

// ---- now and then ------------------------------------------------------------------------------

void PacketPort::tend() {
  tpacket_stats since{};
  socklen_t size = sizeof since;
  if (getsockopt(socket_, SOL_PACKET, PACKET_STATISTICS, &since, &size) == 0) lost_ += since.tp_drops;
  if (++tends_ % kTendsPerRelease == 0) pool_.release_unused();
}

}  // namespace rnic::port
