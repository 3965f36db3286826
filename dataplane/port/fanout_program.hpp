// The program by which the kernel divides an interface's frames among several packet sockets (packet(7),
// PACKET_FANOUT_CBPF): to each socket the connections of its shard, as wire/rss.hpp has it.
//
// Pure.
#pragma once

#include <linux/filter.h>

#include <vector>

namespace rnic::port {

// Returns the number of a frame's socket, less than `queues`: wire::rss::place() of a segment of TCP in an IPv4 packet
// that is no fragment or an IPv6 packet without extension headers, and 0 of everything else and of what is cut off: the
// shard of steer(). It begins at the frame's IP header, as the kernel does, which has taken off a tag of 802.1Q by
// then; behind another tag everything is "else". (One of 802.1ad is off, too, but not for steer(): whoever gets such a
// frame hands it over.) `queues`: at least 1.
std::vector<sock_filter> fanout_program(unsigned queues);

}  // namespace rnic::port
