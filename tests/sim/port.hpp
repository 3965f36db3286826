// A port between a device and two simulated links.
#pragma once

#include <vector>

#include "port/port.hpp"
#include "port/run_cutter.hpp"
#include "sim/link.hpp"

namespace rnic::sim {

struct Clock {
  Instant now{seconds(1000).ns};  // far from 0, so that "never happened" is not confused with now
};

class SimPort final : public port::Port {
 public:
  SimPort(const port::PortFacts& facts, const PoolSize& buffers, Clock& clock, Link& out, Link& in)
      : facts_(facts), pool_(buffers), clock_(clock), out_(out), in_(in) {}

  const port::PortFacts& facts() const override { return facts_; }
  bool link_up() const override { return link_up_; }
  BufferPool& pool() override { return pool_; }

  unsigned receive_burst(Buffer** out, unsigned max) override {
    unsigned count = 0;
    while (count < max) {
      if (in_.next_arrival() > clock_.now) break;
      if (pool_.available() == 0) break;  // stays in the wire, as in a ring
      const auto frame = in_.receive(clock_.now);
      const auto size = static_cast<std::uint32_t>(frame->size());
      if (size > pool_.room_bytes()) continue;
      BufferRef buffer = BufferRef::take(pool_, size);
      if (!buffer) continue;  // lost, as where long frames come in pieces and are put together
      std::copy(frame->begin(), frame->end(), buffer->append(size).begin());
      out[count++] = buffer.release();
    }
    return count;
  }

  unsigned send_burst(Buffer* const* frames, unsigned count) override {
    if (!link_up_) return 0;
    const unsigned taken = count < accept_max_ ? count : accept_max_;
    for (unsigned i = 0; i < taken; ++i) {
      send(*frames[i]);
      BufferRef{frames[i]}.reset();
    }
    return taken;
  }

  int wake_descriptor() override { return -1; }
  bool arm() override { return true; }
  void disarm() override {}

  Instant next_arrival() const { return in_.next_arrival(); }
  void set_link_up(bool up) { link_up_ = up; }
  // Frames that one send_burst() takes at most: a port with a short ring.
  void set_accept_max(unsigned frames) { accept_max_ = frames; }
  HeapPool& heap() { return pool_; }
  std::uint64_t runs() const { return runs_; }  // that were cut

 private:
  void send(const Buffer& frame) {
    if (frame.unit_bytes == 0) return out_.send(frame.bytes(), clock_.now);
    ++runs_;
    const port::RunCutter run(frame);
    std::vector<std::byte> room(run.frame_bytes_max());
    for (std::uint32_t i = 0; i < run.count(); ++i) out_.send(Bytes(room).first(run.write(i, room)), clock_.now);
  }

  port::PortFacts facts_;
  HeapPool pool_;
  Clock& clock_;
  Link& out_;
  Link& in_;
  std::uint64_t runs_ = 0;
  bool link_up_ = true;
  unsigned accept_max_ = 0xFFFFFFFF;
};

}  // namespace rnic::sim
