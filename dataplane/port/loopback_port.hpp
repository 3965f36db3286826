// A port with no wire. Nothing is ever received from it, and what is sent to it is dropped: the
// device itself loops the frames that are for its own addresses, so what comes here had no
// receiver.
//
// Owned by one worker.
#pragma once

#include "port/options.hpp"
#include "port/port.hpp"
#include "port/silent_descriptor.hpp"

namespace rnic::port {

class LoopbackPort final : public Port {
 public:
  explicit LoopbackPort(const PortOptions& options);

  const PortFacts& facts() const override { return facts_; }
  bool link_up() const override { return true; }
  BufferPool& pool() override { return pool_; }
  unsigned receive_burst(Buffer**, unsigned) override { return 0; }
  unsigned send_burst(Buffer* const* frames, unsigned count) override;
  // Never readable: nothing ever waits here, so a worker may sleep as long as it likes.
  int wake_descriptor() override { return silent_.fd(); }
  bool arm() override { return true; }
  void disarm() override {}
  void tend() override {
    if (++tends_ % kTendsPerRelease == 0) pool_.release_unused();
  }

 private:
  PortFacts facts_;
  HeapPool pool_;
  unsigned tends_ = 0;
  SilentDescriptor silent_;
};

}  // namespace rnic::port
