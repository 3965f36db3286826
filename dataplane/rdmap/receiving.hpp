// The receive that a message of queue 0 is placed in: one at a time, taken when its first segment comes, complete
// when its last is delivered.
//
// Owned by one queue pair, anew for each stream.
#pragma once

#include <array>
#include <cstdint>

#include "ddp/placer.hpp"
#include "rdmap/common.hpp"

namespace rnic::rdmap {

class Early;

class Receiving {
 public:
  explicit Receiving(Common& common) : common_(common) {}

  // The next that is posted, own or shared. False: there is none.
  bool take();
  bool active() const { return active_; }
  // The message has all its octets: what becomes of the receive is its delivery's.
  void done() { active_ = false; }
  // It will fail with that, when the queue pair goes down.
  void fails(Status status) { status_ = status; }
  // Goes down with its queue pair.
  void flush();

  std::uint32_t slot() const { return request_.slot; }
  bool shared() const { return request_.shared; }
  bool malformed() const { return request_.malformed; }
  std::uint64_t capacity() const { return capacity_; }
  // Each SGE whole, once in a turn: what the TPT permits now may be gone in the next (V-INV-10).
  Status check();
  // check() was asked: all of it is memory that the daemon has mapped.
  bool is_mapped() const;
  // The payload of a segment that follows the octets before, behind the ULPDU's first `header` octets. There is room
  // for it, and check() was asked. `early`: null, or what was placed before its turn.
  ddp::Placement place(const ddp::Ulpdu& ulpdu, std::size_t header, std::uint32_t size, bool last,
                       tpt::MoveTicket ticket, Early* early);

 private:
  Common& common_;
  bool active_ = false;
  Status status_ = Status::success;  // why it will fail, if it will
  ReceiveRequest request_;
  std::uint64_t capacity_ = 0;
  std::uint32_t sge_ = 0;  // where the next octet goes
  std::uint32_t sge_offset_ = 0;
  std::uint64_t checked_in_ = 0;  // the turn in which `access_` was made
  std::array<tpt::Access, kSgesMax> access_;
};

}  // namespace rnic::rdmap
