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
#include "lock.hpp"
#include "rnic_control_events.h"

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
  // What the daemon has lent us: told by now, or next to be told. Their octets are in the socket still.
  Mutex events_mutex;
  rnic_cm_told lent[RNIC_CM_TOLD_MAX];
  std::uint32_t lent_first = 0, lent_count = 0;
  std::uint64_t settled_before_fork = 0;  // nothing is lent, where this is the next one
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

// The channel's next event, for which an octet was read: one that was lent to us, or the daemon's answer, which may
// lend us more. EAGAIN: there is none.
int next_event(Channel& channel, rnic_cm_told& told);
// Before a fork: what is lent to us goes back, as the child may come for it, and nothing is until allow_lending(),
// here. A fetch that is under way is waited for.
void end_lending();
void allow_lending();

// As long as it lives, no event of the id, or (0) of any, is lent to us, and none is fetched: for the request that
// destroys it or moves it, so that the daemon knows what was not told of it.
class NothingLent {
 public:
  NothingLent(Channel& channel, std::uint32_t id);

 private:
  const Locked locked_;
};

// The ids of this process's channels. Without `is_stream` it is one for datagrams.
void note_id(Channel& channel, std::uint32_t id, std::uint64_t uid, bool is_stream);
void note_uid(Channel& channel, std::uint32_t id, std::uint64_t uid);
void note_report(Channel& channel, std::uint32_t id);
// What a CM_QUERY would be answered next; nothing, once something else was asked for the id.
void note_answer(Channel& channel, std::uint32_t id, const rnic_cm_query_reply&);
void forget_answer(Channel& channel, std::uint32_t id);
bool take_answer(Channel& channel, std::uint32_t id, rnic_cm_query_reply&);
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
