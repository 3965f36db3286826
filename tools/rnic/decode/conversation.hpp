// Both directions of one TCP connection, decoded as MPA: the startup frames tell CRC and markers,
// FPDUs follow.
//
// Where the startup frames are not to be seen (the capture begins later, or has one direction only)
// the FPDUs are looked for, and what was found out by that is said in words. A connection that is
// not MPA says nothing.
//
// Pure.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "decode/finder.hpp"
#include "decode/fpdu.hpp"
#include "decode/tcp_half.hpp"
#include "wire/mpa.hpp"
#include "wire/tcp.hpp"

namespace rnic::tool {

// What to take for granted where no startup frame tells; nothing: what is found.
struct Assumed {
  std::optional<mpa::Crc> crc;
  std::optional<mpa::Markers> markers;
};

class Conversation {
 public:
  enum class Direction : std::uint8_t { unknown, to_responder, to_initiator };
  // `side` is who sent the unit: 0 or 1, as in on_segment().
  using ConversationSink = std::function<void(unsigned side, Direction direction, Json&& unit)>;

  Conversation(Assumed assumed, ConversationSink sink);

  // `cut` octets behind the payload were sent and not captured.
  void on_segment(unsigned side, const wire::TcpHeader& header, Bytes payload, std::size_t cut);
  // Whether this segment begins another connection between the same ports.
  bool is_succeeded_by(unsigned side, const wire::TcpHeader& header) const;
  // Nothing more comes: what was begun and is not whole is said.
  void end();

 private:
  enum class Phase : std::uint8_t {
    startup,    // a startup frame is due, or being read
    waiting,    // for the other direction's
    running,    // FPDUs
    searching,  // for the next FPDU
    ignored,    // no MPA, or no more
  };
  enum class End : std::uint8_t { open, fin, reset };
  struct Half {
    TcpHalf tcp;
    bool from_start = false;        // its SYN was seen
    std::int64_t acknowledged = 0;  // by the other side: up to there it was received, captured or not
    unsigned patience = 0;          // segments since the other side acknowledged what is missing here
    End ended = End::open;

    Phase phase = Phase::startup;
    std::vector<std::byte> held;  // in order and not decoded
    std::int64_t held_at = 0;     // where it begins
    std::size_t awaited = 0;      // what it is to be
    std::optional<wire::StartupHeader> frame;
    std::optional<std::int64_t> base;  // where position 0 is
    std::optional<Framing> framing;
    std::vector<Finder> finders;
    bool has_run = false;
  };

  // ---- TCP ----
  void drain(unsigned side);
  void skip_gap(unsigned side);
  void skip_what_was_not_captured(unsigned side);
  // ---- MPA ----
  void decode(unsigned side);
  bool read_startup(unsigned side);
  void on_startup_frame(unsigned side, const wire::StartupHeader& header);
  bool read_fpdus(unsigned side);
  // ---- where a beginning was not seen ----
  void begin_search(unsigned side);
  std::vector<Framing> possible_framings(unsigned side) const;
  bool search(unsigned side);
  void search_for_the_last_time(unsigned side);
  void go_on_at(unsigned side, const Finder::Found& found, const Framing& framing, const char* markers);
  void give_up_search(unsigned side);
  std::string how_found(unsigned side, const char* markers) const;

  void finish(unsigned side);
  void drop(unsigned side, std::size_t octets);
  void ignore_all();
  bool is_mpa() const;
  std::uint64_t position(unsigned side) const;  // of held's first octet
  Direction direction(unsigned side) const;
  void say(unsigned side, Json&& unit);

  Assumed assumed_;
  ConversationSink sink_;
  std::array<Half, 2> halves_;
  std::optional<unsigned> initiator_;
  bool ended_ = false;
};

const char* name(Conversation::Direction direction);

}  // namespace rnic::tool
