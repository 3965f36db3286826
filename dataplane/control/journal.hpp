// What becomes of connections, in words for the log: who began it, and why. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "core/connection.hpp"
#include "qp/queue_pair.hpp"
#include "wire/address.hpp"

namespace rnic::control {

// The two ends of a connection, as they were last known; port 0: not at all.
struct Ends {
  wire::IpAddress local, remote;
  std::uint16_t local_port = 0, remote_port = 0;
};

// "127.0.1.1:4711 - 127.0.1.2:7174", IPv6 in brackets; empty where nothing is known.
std::string in_words(const Ends& ends);

// Of a connection, as its device tells it.
std::string in_words(const core::StreamEvent& event);

// "RTS to Terminate, the peer's Terminate 0/0/00 (…); 0 sends and 2 receives flushed". `record`: the
// queue pair's by now, or one without octets.
std::string in_words(const qp::Change& change, const qp::TerminateRecord& record);

}  // namespace rnic::control
