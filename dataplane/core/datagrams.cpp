#include "core/datagrams.hpp"

#include <algorithm>

#include "core/gids.hpp"
#include "wire/datagram.hpp"
#include "wire/ib_mtu.hpp"
#include "wire/ipv4.hpp"
#include "wire/ipv6.hpp"
#include "wire/udp.hpp"

namespace rnic::core {

namespace {

constexpr Duration kPause = microseconds(50);  // before who found no room or no buffer asks again

ud::Grh header_of(const host::Datagram& datagram) {
  ud::Grh grh{};
  const MutableBytes out(grh);
  const auto udp = static_cast<std::uint16_t>(wire::UdpHeader::kSize + datagram.payload.size());
  if (datagram.to.is_v6())
    wire::emit(wire::Ipv6Header{.traffic_class = datagram.traffic_class,
                                .flow_label = datagram.flow_label,
                                .payload_length = udp,
                                .next_header = wire::protocol::kUdp,
                                .hop_limit = datagram.hop_limit,
                                .source = datagram.from,
                                .destination = datagram.to},
               out);
  else
    wire::emit(wire::Ipv4Header{.traffic_class = datagram.traffic_class,
                                .total_length = static_cast<std::uint16_t>(wire::Ipv4Header::kSize + udp),
                                .dont_fragment = true,
                                .ttl = datagram.hop_limit,
                                .protocol = wire::protocol::kUdp,
                                .source = datagram.from,
                                .destination = datagram.to},
               out.subspan(ud::kGrhBytes - wire::Ipv4Header::kSize));
  return grh;
}

}  // namespace

// ---- whose they are -----------------------------------------------------------------------

void Datagrams::add(ud::QueuePair& qp) {
  by_number_[qp.config().number.value] = &qp;
  Holding& holding = holdings_[qp.config().space.value];
  ++holding.queue_pairs;
  qp.count_held_in(&holding.held);
}

void Datagrams::remove(ud::QueuePair& qp) {
  by_number_.erase(qp.config().number.value);
  qp.count_held_in(nullptr);
  const auto holding = holdings_.find(qp.config().space.value);
  if (--holding->second.queue_pairs == 0) holdings_.erase(holding);
  qp.ListLink<ud::ActiveTag>::unlink();
  for (std::size_t i = groups_.size(); i-- > 0;) (void)detach(qp, wire::IpAddress(groups_[i].address));
  count(counters_, qp);
}

std::vector<Datagrams::Group>::iterator Datagrams::find(const wire::IpAddress& group) {
  return std::find_if(groups_.begin(), groups_.end(), [&](const Group& each) { return each.address == group; });
}

bool Datagrams::attach(ud::QueuePair& qp, const wire::IpAddress& address, Instant now) {
  auto group = find(address);
  if (group == groups_.end()) {
    if (!host_.join(address, now)) return false;
    group = groups_.insert(groups_.end(), {address, {}});
  }
  if (std::find(group->attached.begin(), group->attached.end(), &qp) != group->attached.end()) return true;
  if (group->attached.size() == kAttachedMax) return false;
  group->attached.push_back(&qp);
  return true;
}

bool Datagrams::detach(ud::QueuePair& qp, const wire::IpAddress& address) {
  const auto group = find(address);
  if (group == groups_.end() || std::erase(group->attached, &qp) == 0) return false;
  if (!group->attached.empty()) return true;
  host_.leave(address);
  groups_.erase(group);
  return true;
}

std::vector<std::pair<QpNumber, wire::IpAddress>> Datagrams::attached() const {
  std::vector<std::pair<QpNumber, wire::IpAddress>> all;
  for (const Group& group : groups_)
    for (const ud::QueuePair* qp : group.attached) all.emplace_back(qp->config().number, group.address);
  return all;
}

// ---- in -----------------------------------------------------------------------------------

void Datagrams::on_datagram(host::Datagram&& datagram, Instant) {
  ++counters_.in;
  const auto header = wire::parse_datagram(datagram.payload);
  if (!header) {
    ++counters_.bad;
    return;
  }
  const bool to_group = datagram.to.is_multicast();
  // To a group is said twice.
  const auto group = to_group && header->destination == wire::Datagram::kToGroup ? find(datagram.to) : groups_.end();
  const auto one = to_group ? by_number_.end() : by_number_.find(header->destination.value);
  if (group == groups_.end() && one == by_number_.end()) {
    ++counters_.unknown;
    return;
  }
  if (to_group) {
    // To all of the group or to none: the last that fits goes over by no more than one group.
    const auto copies = static_cast<std::uint32_t>(group->attached.size());
    if (copies_left_ == 0) {
      counters_.overrun += copies;
      return;
    }
    copies_left_ -= std::min(copies, copies_left_);
  }
  const ud::Grh grh = header_of(datagram);
  const ud::Inbound inbound{.header = *header,
                            .grh = grh,
                            .ipv4 = !datagram.to.is_v6(),
                            .payload = datagram.payload.subspan(wire::Datagram::kSize),
                            .frame = datagram.frame.get()};
  if (!to_group)
    deliver(*one->second, inbound);
  else
    for (ud::QueuePair* qp : group->attached) deliver(*qp, inbound);
}

void Datagrams::deliver(ud::QueuePair& qp, const ud::Inbound& datagram) {
  qp.receive(datagram);
  touch(qp);
}

// ---- out ----------------------------------------------------------------------------------

std::uint32_t Datagrams::message_max() const {
  constexpr auto kHeader = static_cast<std::uint32_t>(wire::Datagram::kSize);
  const std::uint32_t payload = host_.datagrams().payload_max();
  const std::uint8_t code = wire::ib_mtu_code_within(payload - std::min(payload, kHeader));
  return code != 0 ? wire::ib_mtu_octets(code) : 0;
}

std::optional<wire::IpAddress> Datagrams::source(std::uint8_t gid_index) const {
  return gid_at(host_.station().own().all(), by_gids_, gid_index);
}

BufferRef Datagrams::take(std::uint32_t octets) {
  BufferRef buffer = BufferRef::take(host_.data_pool(), octets + kHeadroom);
  // Of two classes only the large one holds any frame.
  if (buffer && buffer->tailroom() < octets) buffer.reset();
  return buffer;
}

void Datagrams::send(BufferRef datagram, const wire::IpAddress& from, const ud::Address& address, Instant now) {
  host_.datagrams().send(std::move(datagram),
                         {.from = from,
                          .to = address.to,
                          .traffic_class = address.traffic_class,
                          .flow_label = address.flow_label,
                          .hop_limit = address.hop_limit},
                         now);
}

bool Datagrams::transmit(Instant) {
  std::uint32_t waiting = 0;
  for (ud::QueuePair* qp = active_.front(); qp != nullptr && waiting < kTurnFrames; qp = active_.after(*qp)) ++waiting;
  if (waiting == 0) return false;
  const std::uint32_t share = std::max(kTurnFrames / waiting, kShareMin);
  bool busy = false;
  for (std::uint32_t left = kTurnFrames; waiting != 0 && left != 0; --waiting) {
    ud::QueuePair& qp = *active_.pop_front();
    active_.push_back(qp);
    const std::uint32_t mine = std::min(share, left);
    std::uint32_t unused = mine;
    host_.data_pool().for_stream(holdings_.at(qp.config().space.value).held);
    busy |= qp.transmit(*this, unused);
    left -= mine - unused;
  }
  host_.data_pool().for_anybody();
  return busy;
}

bool Datagrams::settle(Instant now) {
  bool busy = false;
  for (ud::QueuePair* qp = active_.front(); qp != nullptr; qp = active_.after(*qp)) busy |= qp->settle(*this, now);
  return busy;
}

void Datagrams::end_turn(Instant now) {
  copies_left_ = kTurnCopies;
  // Those whose time has come in this turn have not been asked since.
  const bool came_back = waiting_.empty() && look_again_ <= now;
  if (came_back) look_again_ = kNever;
  QueuePairs again;
  while (ud::QueuePair* qp = active_.pop_front()) {
    if (qp->waits_for_room() && !came_back) {
      if (waiting_.empty()) look_again_ = now + kPause;
      waiting_.push_back(*qp);
    } else if (qp->waits_for_room() || !qp->idle()) {
      again.push_back(*qp);
    }
  }
  while (ud::QueuePair* qp = again.pop_front()) active_.push_back(*qp);
}

bool Datagrams::run_timers(Instant now) {
  if (waiting_.empty() || look_again_ > now) return false;
  while (ud::QueuePair* qp = waiting_.pop_front()) active_.push_back(*qp);
  return true;
}

// ---- what is counted ----------------------------------------------------------------------

void Datagrams::count(DatagramCounters& counters, const ud::QueuePair& qp) const {
  counters.refused += qp.counters().refused;
  counters.no_receive += qp.counters().without_receive;
  counters.overrun += qp.counters().overrun;
}

DatagramCounters Datagrams::counters() const {
  DatagramCounters all = counters_;
  for (const auto& [number, qp] : by_number_) count(all, *qp);
  return all;
}

}  // namespace rnic::core
