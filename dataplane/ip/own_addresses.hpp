// A station's own addresses: what each is for, whether it may be used yet, and whether somebody else
// claims it.
//
// On a wire that others share, an address is asked for before it is used: IPv4's by RFC 5227 (three
// probes, then announcements), IPv6's by RFC 4862 s5.4 (one solicitation, with the nonce of RFC
// 7527). Until nobody has answered it is tentative. One that is taken is left alone, and tried again
// after a while, or, where we made it up, made anew. One that is in use and claimed by another is
// defended (RFC 5227 s2.4 (c)): a server does not give up its address because somebody errs; but it
// is told, to the log and to `rnic show port`.
//
// Pure; nothing is allocated after construction. Owned by one worker.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/chance.hpp"
#include "base/time.hpp"
#include "wire/address.hpp"

namespace rnic::ip {

// What another station makes known of an address.
enum class Claim : std::uint8_t { has, asks };
enum class AddressOrigin : std::uint8_t { configured, link_local, advertised };
enum class AddressState : std::uint8_t {
  none,       // the place is empty
  tentative,  // asked for; not to be used
  preferred,
  deprecated,  // for what uses it already (RFC 4862 s5.5.4)
  duplicate,   // somebody else's
};
const char* name(AddressState state);

struct OwnAddress {
  wire::IpAddress address;
  std::uint8_t prefix_bits = 0;
  AddressOrigin origin = AddressOrigin::configured;
  AddressState state = AddressState::none;
  std::uint32_t conflicts = 0;  // how often somebody claimed it, as far as was told
  wire::Mac conflict_with{};    // the last who did
  Instant valid_until = kNever, preferred_until = kNever;

  bool usable() const { return state == AddressState::preferred || state == AddressState::deprecated; }
};

// The address of `prefix` (64 bits of it) that is ours: with the MAC as modified EUI-64 (RFC 4291
// appendix A), or `opaque`: with an identifier that is as stable and says nothing (RFC 7217). An
// attempt after the first is always opaque.
wire::IpAddress interface_address(const wire::IpAddress& prefix, const wire::Mac& mac, bool opaque, unsigned attempt);

struct AddressOptions {
  wire::Mac mac;
  bool probe = false;   // ask before use
  bool opaque = false;  // the kernel has our MAC, and with it the EUI-64
  std::uint64_t seed = 1;
};

class OwnAddresses {
 public:
  static constexpr std::size_t kMax = 8;

  explicit OwnAddresses(const AddressOptions& options);

  // False: there is no place, or it is there already.
  bool add(const wire::IpAddress& address, unsigned prefix_bits, AddressOrigin origin, Instant now);
  // What a router says of a prefix that hosts make addresses of (RFC 4862 s5.5.3). kNever: for ever.
  void on_prefix(const wire::IpAddress& prefix, Instant valid_until, Instant preferred_until, Instant now);
  void set_link(bool up, Instant now);
  void set_retransmit(Duration time) { retransmit_ = time; }

  // What is to be sent; until nothing.
  struct Action {
    enum class Kind : std::uint8_t { arp_probe, arp_announce, solicit, advertise } kind = Kind::arp_probe;
    wire::IpAddress address;
    std::uint64_t nonce = 0;  // of solicit
  };
  std::optional<Action> next_action(Instant now);
  Instant next_deadline() const { return earliest_; }  // may be early, never late

  // Somebody else speaks for `address`, or wants to and asks whether it is taken: of an address in use
  // that is no conflict.
  void on_claim(const wire::IpAddress& address, const wire::Mac& by, Claim claim, Instant now);
  // A solicitation with this nonce is our own, come back.
  bool is_our_nonce(const wire::IpAddress& address, std::uint64_t nonce) const;

  // As somebody else has them, who asks and defends.
  void adopt(const std::array<OwnAddress, kMax>& all);

  const OwnAddress* find(const wire::IpAddress& address) const;
  // Places keep their index for as long as the address is there.
  const std::array<OwnAddress, kMax>& all() const { return addresses_; }
  bool settled() const;  // none is tentative
  // Changes whenever something that others see has.
  std::uint64_t version() const { return version_; }

 private:
  enum class Phase : std::uint8_t { idle, asking, announcing, resting };
  struct Progress {
    Phase phase = Phase::idle;
    std::uint8_t sent = 0;
    std::uint8_t attempt = 0;  // of making it up
    std::uint64_t nonce = 0;
    Instant due = kNever;
    Instant defended = kNever, told = kNever;
  };

  void begin(std::size_t at, Instant now);
  void announce(std::size_t at, Instant now);
  void mark_taken(std::size_t at, Instant now);
  void check_lifetime(std::size_t at, Instant now);
  void find_earliest();

  AddressOptions options_;
  Chance chance_;
  std::array<OwnAddress, kMax> addresses_{};
  std::array<Progress, kMax> progress_{};
  bool link_up_ = false;
  Duration retransmit_ = seconds(1);
  Instant earliest_ = kNever;
  std::uint64_t version_ = 1;
};

}  // namespace rnic::ip
