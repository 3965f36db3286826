// Connection without rdma_cm (docs/architecture.md s5): what control/rendezvous.hpp decides, done on devices; and what
// applications and devices say, told to it. Of devices with oob_connect; of others nothing comes here.
//
// Owned by the control thread.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "control/connection_manager.hpp"
#include "control/context.hpp"
#include "control/descriptor.hpp"
#include "control/log.hpp"
#include "control/loop.hpp"
#include "control/machine.hpp"
#include "control/rendezvous.hpp"
#include "control/shares.hpp"

namespace rnic::control {

class Oob {
 public:
  // Listens on its devices.
  Oob(Machine& machine, Loop& loop, ConnectionManager& cm, const Log& log);
  ~Oob();

  // A Modify that has been done, by which the queue pair may have a peer, or have none any more.
  void modified(Qp& qp, const rnic_modify_qp& request);
  // It is destroyed, or about to be.
  void gone(QpNumber qp);
  // Of a cookie that Rendezvous::is_ours().
  void on_stream_event(const core::StreamEvent& event);
  // One that a Modify to RTR names has no GRH: what its user can do.
  void tell_no_route(const Qp& qp);
  // One that is to be in RTS by a Modify, on a device where only rdma_cm connects.
  void tell_not_here(const Qp& qp);

  const Rendezvous& rendezvous() const { return rendezvous_; }

  Oob(const Oob&) = delete;
  Oob& operator=(const Oob&) = delete;

 private:
  void act();
  void call(const Rendezvous::Act& act);
  void answer(const Rendezvous::Act& act);
  void probe(const Rendezvous::Act& act);
  void unprobe(const Rendezvous::Act& act);
  void disconnect(std::uint32_t device, core::StreamId stream);
  void on_probe_event(const core::StreamEvent& event, Instant now);
  void refuse(const Rendezvous::Act& act);
  void look(const Rendezvous::Act& act);
  void give_up(QpNumber number);
  void tell_refused(const Qp& qp, const core::StreamEvent& event);
  void set_timer();
  Qp* find(QpNumber number) const;
  bool take_share(Qp& qp);

  Machine& machine_;
  Loop& loop_;
  ConnectionManager& cm_;
  const Log& log_;
  LineLimit lines_;
  Rendezvous rendezvous_;
  struct Probe {
    core::StreamId stream{};
    Share share;
  };
  std::unordered_map<std::uint64_t, Probe> probes_;  // by cookie: that have no answer yet
  Descriptor timer_;
  Instant timer_at_ = kNever;  // it is set to
  Loop::Watch watch_ = Loop::kNone;
};

}  // namespace rnic::control
