// Contexts, protection domains, regions and windows. Queues and queue pairs: context_queues.cpp.
#include "control/context.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <fstream>
#include <set>
#include <utility>

#include "control/batches.hpp"
#include "control/limits.hpp"
#include "control/sent_file.hpp"

namespace rnic::control {
namespace {

std::string program_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

constexpr std::uint32_t kRegionAccess = RNIC_ACCESS_LOCAL_READ | RNIC_ACCESS_LOCAL_WRITE | RNIC_ACCESS_REMOTE_READ |
                                        RNIC_ACCESS_REMOTE_WRITE | RNIC_ACCESS_REMOTE_ATOMIC | RNIC_ACCESS_WINDOW_BIND |
                                        RNIC_ACCESS_ZERO_BASED | RNIC_ACCESS_NO_REMOTE;
constexpr std::uint32_t kWritingAccess = RNIC_ACCESS_LOCAL_WRITE | RNIC_ACCESS_REMOTE_WRITE | RNIC_ACCESS_REMOTE_ATOMIC;

int errno_of(tpt::RegisterError error) {
  switch (error) {
    case tpt::RegisterError::no_resources:
      return ENOMEM;
    case tpt::RegisterError::busy:
      return EBUSY;
    case tpt::RegisterError::bad_rights:
    case tpt::RegisterError::bad_range:
    case tpt::RegisterError::bad_stag:
      return EINVAL;
  }
  return EINVAL;
}

// Of a context: the status page, the doorbells, both ends of the async events, the application's memory,
// and its helper's thread and directory.
constexpr std::uint64_t kOwnDescriptors = 7;

}  // namespace

// ---- life ----------------------------------------------------------------------------------------

Context::Context(Machine& machine, ServedDevice& device, const Peer& peer)
    : machine_(machine), device_(device), peer_(peer), holder_(holder_of(peer)), handles_(machine.first_handles) {}

Result<std::unique_ptr<Context>, int> Context::open(Machine& machine, ServedDevice& device, Loop& loop,
                                                    const Peer& peer, Descriptor memory,
                                                    std::shared_ptr<const Descriptor> process,
                                                    std::unique_ptr<Helper> helper) {
  std::unique_ptr<Context> made(new Context(machine, device, peer));
  made->share_ = device.contexts.take(made->holder_);
  if (!made->share_) return Failure{ENOMEM};
  made->descriptors_ = machine.descriptors.take(made->holder_, kOwnDescriptors + machine.workers.size());
  if (!made->descriptors_) return Failure{EMFILE};
  if (memory && !is_process_memory(memory.get(), peer.pid)) return Failure{EINVAL};
  made->memory_fd_ = std::move(memory);
  made->process_ = std::move(process);
  made->helper_ = std::move(helper);
  made->program_ = program_of(peer.pid);

  auto shared = shm::ContextMemory::create(static_cast<unsigned>(machine.workers.size()), machine.generation);
  if (!shared) return Failure{shared.error()};
  made->memory_ = std::move(*shared);
  made->async_ = EventSocket::create(loop);
  if (made->async_ == nullptr) return Failure{errno};
  made->async_reader_ = made->async_->take_reader();

  static std::uint32_t next_number = 1;
  made->number_ = next_number++;
  made->space_ = machine.new_space();
  made->space_known_ = true;
  ++device.counts.contexts;
  const shm::SpaceReach reach{.helper_tid = made->copies_by(),
                              .mem_fd = made->memory_fd_.get(),
                              .process = made->process_ == nullptr ? -1 : made->process_->get(),
                              .user = peer.uid};
  for (const auto& worker : machine.workers)
    worker->call([&](Instant) { worker->mover().add_space(made->space_, reach); });
  int error = 0;
  device.on_each([&](Shard& shard, Instant) {
    if (error == 0) error = shard.worker->add_context(*made->memory_, made->space_);
  });
  if (error != 0) return Failure{error};
  return made;
}

void Context::describe(Reply& reply) {
  rnic_open_context_reply body{};
  body.context = number_;
  body.worker_count = memory_->worker_count();
  body.attributes = machine_.attributes(device_);
  body.device = machine_.info(device_);
  reply.append(&body, sizeof body);
  reply.add(memory_->status_fd());
  reply.add(memory_->doorbells_fd());
  reply.add(std::move(async_reader_));
  reply.add(async_->writer());
  for (unsigned worker = 0; worker < memory_->worker_count(); ++worker) reply.add(memory_->wake_fd(worker));
}

// Queue pairs first, so that none is there whose regions are gone already, which would turn the peer's
// last octets into a protection error. So many in a call of the worker: others wait meanwhile.
Context::~Context() {
  if (!space_known_) return;
  memory_->mark_dead();
  device_.on_each([&](Shard& shard, Instant) { shard.worker->remove_context(*memory_); });  // with all its bells
  end_streams();
  for_qps([&](Qp& qp, Instant now) { release(qp, now); });
  for (const auto& [handle, window] : windows_)
    if (!window->ends) (void)device_.table->deallocate_window(window->stag);
  for (const auto& [handle, region] : regions_)
    if (!region->ends) (void)device_.table->deregister(region->stag);
  for (Shard& shard : device_.shards)
    in_batches(*shard.worker, cqs_, [&](auto& entry, Instant) { shard.worker->forget(*entry.second->queue); });
  bool over = true;
  for (const auto& worker : machine_.workers)
    worker->call([&](Instant) { over &= worker->mover().remove_space(space_); });
  if (over)
    machine_.free_space(space_);
  else
    machine_.leaving.push_back({space_, std::move(memory_fd_), std::move(process_)});
  // Events that wait are looked through once, and not for each object.
  std::set<EventSocket*> channels{async_.get()};
  for (const auto& [number, qp] : qps_) qp->events.gone = true;
  for (const auto& [handle, srq] : srqs_) srq->events.gone = true;
  for (const auto& [handle, cq] : cqs_) {
    cq->events.gone = cq->completions.gone = true;
    if (cq->channel != nullptr) channels.insert(cq->channel.get());
  }
  port_events_.gone = true;
  direct_.reset();
  for (EventSocket* channel : channels) channel->forget_gone();
  for (const auto& [number, qp] : qps_) forget(*qp);
  for (const auto& [handle, srq] : srqs_) forget(*srq);
  for (const auto& [handle, cq] : cqs_) forget(*cq);
  for (const auto& [handle, pd] : pds_) machine_.free_pd(pd->id);
  auto& counts = device_.counts;
  --counts.contexts;
  counts.pds -= static_cast<std::uint32_t>(pds_.size());
  counts.regions -= static_cast<std::uint32_t>(regions_.size());
  counts.windows -= static_cast<std::uint32_t>(windows_.size());
  counts.cqs -= static_cast<std::uint32_t>(cqs_.size());
  counts.srqs -= static_cast<std::uint32_t>(srqs_.size());
  counts.qps -= static_cast<std::uint32_t>(qps_.size());
}

Result<shm::ContextMemory::Piece, int> Context::allocate(std::uint64_t bytes) {
  Share descriptor;
  if (memory_->needs_arena(bytes)) {
    descriptor = machine_.descriptors.take(holder_);
    if (!descriptor) return Failure{EMFILE};
  }
  auto piece = memory_->allocate(bytes);
  if (memory_->arena_count() > arenas_.size()) arenas_.push_back({std::move(descriptor), false});
  return piece;
}

void Context::kill_process() {
  if (process_ != nullptr) syscall(SYS_pidfd_send_signal, process_->get(), SIGKILL, nullptr, 0);
}

// A memfd is passed with the first piece of it that the application hears of; not always the first
// that was carved, which may have belonged to a command that failed.
void Context::describe(Reply& reply, rnic_area& area, const shm::ContextMemory::Piece& piece) {
  const bool is_new = !std::exchange(arenas_[piece.arena()].announced, true);
  area.arena = piece.arena();
  area.arena_is_new = is_new ? 1 : 0;
  area.arena_size = memory_->arena_size(piece.arena());
  area.offset = piece.offset();
  area.length = piece.length();
  if (is_new) reply.add(memory_->arena_fd(piece.arena()));
}

Reply Context::map_arena(std::uint32_t number) {
  if (number >= arenas_.size()) return Reply::error(EINVAL);
  arenas_[number].announced = true;
  const std::uint64_t size = memory_->arena_size(number);
  Reply reply = Reply::with(rnic_area{number, 1, size, 0, size});
  reply.add(memory_->arena_fd(number));
  return reply;
}

// One name space for all kinds of objects but queue pairs.
std::uint32_t Context::new_handle() {
  return handles_.next([this](std::uint32_t handle) {
    return pds_.contains(handle) || regions_.contains(handle) || windows_.contains(handle) || cqs_.contains(handle) ||
           srqs_.contains(handle) || streams_.contains(handle);
  });
}

// ---- protection domains --------------------------------------------------------------------------

Reply Context::alloc_pd() {
  Share share = device_.pds.take(holder_);
  if (!share) return Reply::error(ENOMEM);
  const std::uint32_t handle = new_handle();
  auto pd = std::make_unique<Pd>();
  pd->share = std::move(share);
  pd->id = machine_.new_pd();
  pds_.emplace(handle, std::move(pd));
  ++device_.counts.pds;
  return Reply::with(rnic_handle_reply{handle, 0});
}

Reply Context::dealloc_pd(std::uint32_t handle) {
  const Pd* pd = find(pds_, handle);
  if (pd == nullptr) return Reply::error(EINVAL);
  if (pd->uses != 0) return Reply::error(EBUSY);  // V-PD-04
  machine_.free_pd(pd->id);
  pds_.erase(handle);
  --device_.counts.pds;
  return {};
}

// ---- regions and windows -------------------------------------------------------------------------

Result<std::shared_ptr<shm::ApplicationMapping>, int> Context::map_part(int fd, std::uint64_t offset,
                                                                        std::uint64_t length, bool writable,
                                                                        std::optional<File> whole_of) {
  // Files can be much larger than what is in them: our addresses are used up before memory is. Shares remember who
  // was refused only while he has some; a context tells once.
  if (refused_mapping_ && !(machine_.mapped_octets.may_take(holder_, length) && machine_.mappings.may_take(holder_, 1)))
    return Failure{ENOMEM};
  Share octets = machine_.mapped_octets.take(holder_, length);
  Share place = octets ? machine_.mappings.take(holder_) : Share();
  refused_mapping_ = !place;
  if (!place) return Failure{ENOMEM};
  auto mapped = shm::ApplicationMapping::create(fd, offset, length, writable);
  if (!mapped) return Failure{mapped.error()};
  (*mapped)->owner = this;
  // std::function wants what can be copied.
  auto kept = std::make_shared<std::pair<Share, Share>>(std::move(octets), std::move(place));
  return std::shared_ptr<shm::ApplicationMapping>(mapped->release(),
                                                  [this, whole_of, kept](shm::ApplicationMapping* mapping) {
                                                    delete mapping;
                                                    *kept = {};
                                                    if (!whole_of) return;
                                                    const auto known = files_.find(*whole_of);
                                                    if (known != files_.end() && known->second.expired())
                                                      files_.erase(known);
                                                  });
}

// Small ranges of an application share files (provider/swap_files.cpp); so do they mappings.
Result<std::shared_ptr<shm::ApplicationMapping>, int> Context::map_whole(int fd, const File& file,
                                                                         std::uint64_t length) {
  const auto known = files_.find(file);
  if (known != files_.end()) {
    auto mapping = known->second.lock();
    if (mapping != nullptr && !mapping->dead()) return mapping;
  }
  auto mapping = map_part(fd, 0, length, file.writable, file);
  if (mapping) files_[file] = *mapping;
  return mapping;
}

// Only memory that behaves as memory: a file on a disk or across a network would let the
// application decide how long a worker waits.
Result<std::byte*, int> Context::map_shared(const rnic_reg_mr& request, std::uint64_t length, int fd, Region& region) {
  struct stat status {};
  if (!is_memory_file(fd) || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return Failure{EINVAL};
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (request.shared_offset > size || length > size - request.shared_offset) return Failure{EINVAL};
  const bool writes = (request.access & kWritingAccess) != 0;
  const int mode = fcntl(fd, F_GETFL) & O_ACCMODE;
  if (mode == O_WRONLY || (writes && mode != O_RDWR)) return Failure{EACCES};
  // What may shrink is mapped for each region: where the application takes away one region's memory, the
  // others keep theirs.
  const bool whole = request.shared == RNIC_MEMORY_SWAPPED && size <= shm::ApplicationMapping::kGranuleBytes;
  auto mapping = whole ? map_whole(fd, {status.st_dev, status.st_ino, writes}, size)
                       : map_part(fd, request.shared_offset, length, writes);
  if (!mapping) return Failure{mapping.error()};
  region.mapping = std::move(*mapping);
  return region.mapping->octets() + (whole ? request.shared_offset : 0);
}

// Rung 2: all of the range is mapped here too; rung 3: its whole pages are.
Result<std::byte*, int> Context::map_memory(const rnic_reg_mr& request, int fd, Region& region) {
  const bool swapped = request.shared == RNIC_MEMORY_SWAPPED;
  if (fd < 0 || (!swapped && request.shared != RNIC_MEMORY_SHARED)) return Failure{EINVAL};
  std::uint64_t before = 0;
  std::uint64_t length = request.length;
  if (swapped) {
    const auto pages = tpt::whole_pages(request.start, request.length);
    if (pages.end <= pages.start) return Failure{EINVAL};
    constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    if ((fcntl(fd, F_GET_SEALS) & kSeals) != kSeals) return Failure{EINVAL};
    before = pages.start - request.start;
    length = pages.end - pages.start;
  }
  const auto octets = map_shared(request, length, fd, region);
  if (!octets) return Failure{octets.error()};
  region.rung = swapped ? RNIC_RUNG_SWAPPED : RNIC_RUNG_SHARED;
  return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(*octets) - before);
}

int Context::prepare(const rnic_reg_mr& request, int fd, Region& region, tpt::RegionOptions& options) {
  region.pd = find(pds_, request.pd);
  if (region.pd == nullptr || request.length == 0 || (request.access & ~kRegionAccess) != 0) return EINVAL;
  if (request.start + request.length < request.start || request.pages > tpt::kPageListMax) return EINVAL;
  std::byte* direct = nullptr;
  if (request.shared != RNIC_MEMORY_APPLICATION) {
    const auto mapped = map_memory(request, fd, region);
    if (!mapped) return mapped.error();
    direct = *mapped;
  }
  if (region.rung != RNIC_RUNG_SHARED && copies_by() == 0 && !memory_fd_) return EOPNOTSUPP;  // no way to reach it

  region.start = request.start;
  region.length = request.length;
  region.access = request.access;
  options.pd = region.pd->id;
  options.rights = static_cast<tpt::Rights>(request.access);
  options.base = (request.access & RNIC_ACCESS_ZERO_BASED) != 0 ? 0 : request.iova;
  options.size = request.length;
  options.key = static_cast<std::uint8_t>(request.key);
  options.pages = request.pages;
  options.memory.space = space_;
  options.memory.address = request.start;
  options.memory.direct = direct;
  options.memory.whole_pages = region.rung == RNIC_RUNG_SWAPPED;
  return 0;
}

Reply Context::reg_mr(const rnic_reg_mr& request, Descriptor shared) {
  auto region = std::make_unique<Region>();
  region->share = device_.stags.take(holder_);
  if (!region->share) return Reply::error(ENOMEM);
  tpt::RegionOptions options;
  const int error = prepare(request, shared ? shared.get() : -1, *region, options);
  if (error != 0) return Reply::error(error);
  const auto stag = device_.table->register_region(options);
  if (!stag) return Reply::error(errno_of(stag.error()));
  return keep(std::move(region), *stag);
}

// What is registered. As REG_MR answers.
Reply Context::keep(std::unique_ptr<Region> region, Stag stag) {
  region->handle = new_handle();
  region->stag = stag;
  ++region->pd->uses;
  ++device_.counts.regions;
  const rnic_reg_mr_reply reply{region->handle, stag.value, region->rung, 0};
  regions_.emplace(region->handle, std::move(region));
  return Reply::with(reply);
}

// EBUSY: a window is bound to it, and it is as it was (V-MR-06). After anything else it is what was asked
// for, or nothing (V-MR-07).
int Context::change(Region& region, const rnic_rereg_mr& request, int fd) {
  tpt::Table& table = *device_.table;
  rnic_reg_mr to = request.to;
  Region made;
  tpt::RegionOptions options;
  int error = request.impossible != 0 ? EINVAL : prepare(to, fd, made, options);
  if (error != 0 && request.impossible == 0 && to.shared != RNIC_MEMORY_APPLICATION) {
    to.shared = RNIC_MEMORY_APPLICATION;  // what cannot be mapped is copied
    made = Region();
    error = prepare(to, -1, made, options);
  }
  if (error == 0) {
    const auto stag = table.reregister(region.stag, options);
    if (!stag && stag.error() == tpt::RegisterError::busy) return EBUSY;
    if (stag)
      region.stag = *stag;
    else
      error = errno_of(stag.error());
  } else if (!table.deregister(region.stag)) {
    return EBUSY;
  }
  --region.pd->uses;
  region.before = std::move(region.mapping);
  region.pd = error == 0 ? made.pd : nullptr;
  region.dead = region.ends = error != 0;
  if (error != 0) return error;  // its share stays with the handle
  ++region.pd->uses;
  region.start = made.start;
  region.length = made.length;
  region.access = made.access;
  region.rung = made.rung;
  region.mapping = std::move(made.mapping);
  return 0;
}

// Served again while it waits, by what it has noted in the region.
Reply Context::rereg_mr(const rnic_rereg_mr& request, const Descriptor& shared) {
  Region* region = find(regions_, request.mr);
  if (region == nullptr || (region->ends && !region->change)) return Reply::error(EINVAL);
  if (!region->change) {
    const int error = change(*region, request, shared ? shared.get() : -1);
    if (error == EBUSY) return Reply::error(error);
    region->change = error;
  }
  // Not one more octet by what it was when we answer (V-MR-10).
  if (!machine_.wait_for_grace(space_)) return Reply::not_yet();
  region->before.reset();
  const int error = *std::exchange(region->change, std::nullopt);
  if (error != 0) return Reply::error(error);
  return Reply::with(rnic_reg_mr_reply{region->handle, region->stag.value, region->rung, 0});
}

Reply Context::dereg_mr(std::uint32_t handle) {
  Region* region = find(regions_, handle);
  if (region == nullptr) return Reply::error(EINVAL);
  if (!region->ends && !device_.table->deregister(region->stag)) return Reply::error(EBUSY);  // V-MR-19
  region->ends = true;
  // Not one more octet when we answer (V-MR-20), and only then is the memory let go.
  if (!machine_.wait_for_grace(space_)) return Reply::not_yet();
  if (region->pd != nullptr) --region->pd->uses;
  --device_.counts.regions;
  regions_.erase(handle);
  return {};
}

// What is there instead of the application's memory is ours, and would grow as it is written to: the
// regions' STags name nothing any more, for local work and for peers (whoever uses them hears of it, and
// his queue pair fails), and then it is let go. Their handles stay until they are deregistered.
void Context::drop_dead_memory() {
  std::set<std::uint32_t> entries;
  tpt::Table& table = *device_.table;
  for (const auto& [handle, region] : regions_) {
    if (region->ends || region->mapping == nullptr || !region->mapping->dead()) continue;
    table.revoke(region->stag);
    region->dead = true;
    dead_mappings_.push_back(std::move(region->mapping));
    if (const auto info = table.query(region->stag)) entries.insert(info->region_entry);
  }
  if (dead_mappings_.empty()) return;
  // Nobody can bind one to them any more.
  for (const auto& [handle, window] : windows_) {
    if (window->ends) continue;
    if (const auto info = table.query(window->stag); info && info->valid && entries.contains(info->region_entry))
      table.revoke(window->stag);
  }
  // What waits behind a copy that waits for a page may go there still: we are called again when it is over.
  if (machine_.wait_for_grace(space_)) dead_mappings_.clear();
}

Reply Context::alloc_mw(const rnic_alloc_mw& request) {
  Pd* pd = find(pds_, request.pd);
  if (pd == nullptr) return Reply::error(EINVAL);
  if (request.scope > RNIC_WINDOW_OF_PD) return Reply::error(EINVAL);
  const auto scope = request.scope == RNIC_WINDOW_OF_PD ? tpt::WindowScope::pd : tpt::WindowScope::qp;
  Share share = device_.stags.take(holder_);
  if (!share) return Reply::error(ENOMEM);
  const auto stag = device_.table->allocate_window(pd->id, static_cast<std::uint8_t>(request.key), scope);
  if (!stag) return Reply::error(errno_of(stag.error()));
  const std::uint32_t handle = new_handle();
  auto window = std::make_unique<Window>();
  window->share = std::move(share);
  window->pd = pd;
  window->stag = *stag;
  windows_.emplace(handle, std::move(window));
  ++pd->uses;
  ++device_.counts.windows;
  return Reply::with(rnic_alloc_mw_reply{handle, stag->value});
}

Reply Context::dealloc_mw(std::uint32_t handle) {
  Window* window = find(windows_, handle);
  if (window == nullptr) return Reply::error(EINVAL);
  if (!window->ends && !device_.table->deallocate_window(window->stag)) return Reply::error(EBUSY);
  window->ends = true;
  if (!machine_.wait_for_grace(space_)) return Reply::not_yet();
  --window->pd->uses;
  --device_.counts.windows;
  windows_.erase(handle);
  return {};
}

}  // namespace rnic::control
