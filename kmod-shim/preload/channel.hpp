// An event channel: what an open of /dev/infiniband/rdma_cm gives.
//
// Its descriptor is a stream socket, on which the daemon sends an octet for each event that waits;
// so poll, select, epoll, fcntl and dup are the kernel's own and true. The socket's end is the
// daemon's, or that of our connection to it: then it is readable for ever. Beside it the stand-in keeps the second
// descriptor of CM_OPEN, the lifeline: its last copy, here or in a child of fork, is closed with the channel.
//
// What the daemon knows of ids is repeated here as far as its death makes it necessary: which
// ids there are, whose user pointer they have, how many events were reported of each. And as far as it spares
// questions: what it answers to INIT_QP_ATTR for all connections of a device, which librdmacm asks several times of
// each.
#pragma once

#include <cstdint>

#include "client.hpp"
#include "descriptors.hpp"

namespace rnic::preload {

struct Channel : Object {
  std::uint32_t handle = 0;
  std::uint8_t token[16] = {};
  std::uint64_t epoch = 0;
  pid_t pid = 0;      // whose connection `epoch` is of
  pid_t creator = 0;  // who opened it
  std::uint64_t forks_when_opened = 0;
  int lifeline = -1;
  std::uint64_t lifeline_cookie = 0;  // the number may name something else by now
  bool lost = false;                  // the daemon has gone
  Channel* next = nullptr;
};

struct RemovalEvent {
  std::uint32_t id = 0;
  std::uint64_t uid = 0;
};

// A descriptor, or -1 and errno. `flags` are open's.
int open_channel(int flags);

// Makes the channel known on this process's connection, where that is another than the one it was
// opened on (after fork). EIO when the daemon that it was opened at has gone.
int make_ready(Channel& channel);

// One request about the channel or its ids. kDisconnected becomes EIO.
int channel_call(Channel& channel, Call& call);

// The ids of this process's channels. Without `is_stream` it is one for datagrams.
void note_id(Channel& channel, std::uint32_t id, std::uint64_t uid, bool is_stream);
void note_uid(Channel& channel, std::uint32_t id, std::uint64_t uid);
void note_report(Channel& channel, std::uint32_t id);
void move_id(std::uint32_t id, Channel& from, Channel& to);
// How many events had been reported of it.
std::uint32_t drop_id(Channel& channel, std::uint32_t id);

// Which device an id for streams is of, as the daemon says; it may be another's once an address is bound or resolved.
void note_device(Channel& channel, std::uint32_t id, std::uint32_t device);
void forget_device(Channel& channel, std::uint32_t id);
// What the daemon said of an id, or of another of the same device, and what it would say again.
void note_attributes(Channel& channel, std::uint32_t id, std::uint32_t state, const rnic_cm_init_qp_attributes_reply&);
bool known_attributes(Channel& channel, std::uint32_t id, std::uint32_t state, rnic_cm_init_qp_attributes_reply&);

bool is_lost(Channel& channel);
// Of a lost channel: the next id whose DEVICE_REMOVAL has not been reported yet.
bool next_removal(Channel& channel, RemovalEvent& event);

// The daemon has ended the connection of `epoch`: every channel of it becomes readable for ever,
// tells DEVICE_REMOVAL once for each id, and is an error from then on.
void on_connection_lost(std::uint64_t epoch);

// The daemon has closed its end of the channel's socket, be it by dying.
void on_channel_end(Channel& channel);

// The lifeline that was at the first number is at the second.
void move_lifeline(int from, int to);

void lock_channels();
void unlock_channels();
void renew_channels();

}  // namespace rnic::preload
