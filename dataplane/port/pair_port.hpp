// Two devices of one daemon, joined in memory. No octet is copied: a frame crosses as a reference.
//
// Both ends, and whatever they hand out, belong to ONE worker: rings and reference counts are not
// atomic. Whoever places devices on workers puts the two ends of a pair on the same one.
//
// What crosses. A frame that the sender holds no other reference of goes over as the very buffer.
// One that it keeps (a retransmit queue does) goes over as a *view*: a buffer of its own, with its
// own head, length, link and mark, whose storage is the sender's, and which holds one reference of
// the sender's buffer for as long as it lives. So the receiver may trim what it got, and the sender
// may take its headers off again, and neither sees the other do it. The octets themselves are
// nobody's to change meanwhile: pool().shared() is true for the view and for what it looks at.
//
// Wake-ups: what is sent by one end is sent by the worker that polls the other, so frames never
// appear while it sleeps; arm() says no while some wait.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "port/options.hpp"
#include "port/port.hpp"
#include "port/silent_descriptor.hpp"

namespace rnic::port {

// The buffers of both ends, and the views of them.
class PairPool final : public BufferPool {
 public:
  explicit PairPool(const PoolSize& size);
  ~PairPool() override;

  unsigned take(Buffer** out, unsigned n) override { return buffers_.take(out, n); }
  Buffer* take_large() override { return buffers_.take_large(); }
  void give(Buffer* const* buffers, unsigned n) override;
  bool shared(const Buffer& buffer) const override;
  std::uint32_t room_bytes() const override { return buffers_.room_bytes(); }
  std::uint32_t small_room_bytes() const override { return buffers_.small_room_bytes(); }
  std::uint32_t available() const override { return buffers_.available(); }
  std::uint32_t large_available() const override { return buffers_.large_available(); }
  void release_unused() { buffers_.release_unused(); }

  // A view of what `original` holds now; it takes over one reference of it. Null when there are no
  // more views.
  Buffer* view(Buffer* original);

 private:
  struct View : Buffer {
    Buffer* original = nullptr;
  };

  HeapPool buffers_;
  std::unique_ptr<View[]> views_;
  std::uint32_t view_count_;
  std::vector<View*> free_views_;
};

class PairWire;

class PairPort final : public Port {
 public:
  // Frames that wait in one direction. More than a window of 1 MiB at MTU 1500.
  static constexpr unsigned kRing = 2048;

  // Ends 0 and 1 of one wire; the wire lives while one of them does.
  PairPort(std::shared_ptr<PairWire> wire, unsigned end, const PortOptions& options);
  ~PairPort() override;

  const PortFacts& facts() const override { return facts_; }
  bool link_up() const override;
  BufferPool& pool() override;
  unsigned receive_burst(Buffer** out, unsigned max) override;
  // Frames are dropped while the other end is not there, as on a cable with nobody at it, and when they
  // are longer than the other end's MTU allows.
  unsigned send_burst(Buffer* const* frames, unsigned count) override;
  std::uint64_t frames_lost() const override { return lost_; }
  int wake_descriptor() override { return silent_.fd(); }
  bool arm() override;
  void disarm() override {}
  void tend() override;

 private:
  std::shared_ptr<PairWire> wire_;
  unsigned end_;
  unsigned tends_ = 0;
  std::uint64_t lost_ = 0;
  PortFacts facts_;
  SilentDescriptor silent_;
};

// What the two ends share. `mtu_bytes`: of either end; its buffers hold such frames, and with ends of
// unequal MTU none longer than the smaller one's crosses.
class PairWire {
 public:
  PairWire(std::string name, std::uint32_t mtu_bytes, std::uint32_t buffers);
  ~PairWire();

  const std::string& name() const { return name_; }

 private:
  friend class PairPort;

  // Frames on their way to one end. Indexes only grow.
  struct Ring {
    std::array<Buffer*, PairPort::kRing> slots{};
    std::uint32_t produced = 0;
    std::uint32_t taken = 0;
    void drop_all();
  };

  std::string name_;
  PairPool pool_;
  std::array<Ring, 2> toward_;
  std::array<bool, 2> attached_{};
  std::array<std::uint32_t, 2> frame_max_{};  // that an end receives
};

}  // namespace rnic::port
