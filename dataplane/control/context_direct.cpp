// What a context answers to the direct verbs (provider/rnicdv): questions about STags, regions that share their memory,
// STags without memory, and events that ibverbs has no type for.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "control/context.hpp"

namespace rnic::control {
namespace {

constexpr std::uint64_t kListPageBytes = 4096;
constexpr std::uint32_t kWritingAccess = RNIC_ACCESS_LOCAL_WRITE | RNIC_ACCESS_REMOTE_WRITE | RNIC_ACCESS_REMOTE_ATOMIC;

// Without its key where that means nothing (V-STAG-04).
std::uint32_t told(const tpt::StagInfo& info) { return info.valid ? info.stag.value : info.stag.index() << 8; }

std::uint32_t flags_of(const tpt::StagInfo& info) {
  return (info.valid ? RNIC_STAG_VALID : 0u) | (info.shared ? RNIC_STAG_SHARED : 0u);
}

rnic_rung rung_of(const tpt::Memory& memory) {
  if (memory.direct == nullptr) return RNIC_RUNG_REMOTE_COPY;
  return memory.whole_pages ? RNIC_RUNG_SWAPPED : RNIC_RUNG_SHARED;
}

}  // namespace

// An STag's is its owner's, whose objects it tells apart (V-RNIC-01).
std::optional<std::uint32_t> Context::handle_of(PdId pd) const {
  const auto found = std::find_if(pds_.begin(), pds_.end(), [pd](const auto& entry) { return entry.second->id == pd; });
  return found == pds_.end() ? std::nullopt : std::optional(found->first);
}

Reply Context::query_mr(Stag stag) {
  const auto info = device_.table->query(stag);
  const auto pd = info ? handle_of(info->pd) : std::nullopt;
  if (!pd || info->window) return Reply::error(EINVAL);  // V-MRA-04
  rnic_query_mr_reply reply{};
  reply.stag = told(*info);
  reply.pd = *pd;
  reply.access = static_cast<std::uint32_t>(info->rights);
  reply.flags = flags_of(*info);
  reply.pages = info->pages;
  reply.windows = info->windows_bound;
  reply.base = info->base;
  reply.length = info->size;
  reply.address = info->memory.address;
  reply.rung = rung_of(info->memory);
  return Reply::with(reply);
}

Reply Context::query_mw(Stag stag) {
  const auto info = device_.table->query(stag);
  const auto pd = info ? handle_of(info->pd) : std::nullopt;
  if (!pd || !info->window) return Reply::error(EINVAL);  // V-MWA-02
  rnic_query_mw_reply reply{};
  reply.stag = told(*info);
  reply.pd = *pd;
  reply.access = static_cast<std::uint32_t>(info->rights);
  reply.flags = flags_of(*info);
  reply.base = info->base;
  reply.length = info->size;
  reply.qp_number = info->valid ? info->qp.value : 0;
  reply.scope = info->scope == tpt::WindowScope::pd ? RNIC_WINDOW_OF_PD : RNIC_WINDOW_OF_QP;
  return Reply::with(reply);
}

Reply Context::reg_shared_mr(const rnic_reg_shared_mr& request) {
  const Region* source = find(regions_, request.mr);
  Pd* pd = find(pds_, request.pd);
  if (source == nullptr || source->ends || source->dead || pd == nullptr) return Reply::error(EINVAL);
  const auto info = device_.table->query(source->stag);
  if (!info || info->stag.index() != Stag{request.stag}.index()) return Reply::error(EINVAL);
  const bool zero_based = (request.access & RNIC_ACCESS_ZERO_BASED) != 0;
  // V-MR-12.
  if (!zero_based && (request.iova ^ info->memory.address) % kListPageBytes != 0) return Reply::error(EINVAL);

  auto region = std::make_unique<Region>();
  region->share = device_.stags.take(holder_);
  if (!region->share) return Reply::error(ENOMEM);
  // What is mapped here is mapped with the rights that were asked for then.
  const bool writes = (request.access & kWritingAccess) != 0;
  const bool same = !writes || (source->access & kWritingAccess) != 0;
  if (!same && copies_by() == 0 && !memory_fd_) return Reply::error(EOPNOTSUPP);
  tpt::RegionOptions options;
  options.pd = pd->id;
  options.rights = static_cast<tpt::Rights>(request.access);
  options.base = request.iova;
  options.key = static_cast<std::uint8_t>(request.key);
  const auto stag = device_.table->register_shared(Stag{request.stag}, options,
                                                   same ? tpt::Table::Reach::same : tpt::Table::Reach::by_copy);
  if (!stag) return Reply::error(stag.error() == tpt::RegisterError::no_resources ? ENOMEM : EINVAL);
  region->pd = pd;
  region->start = source->start;
  region->length = source->length;
  region->access = request.access;
  if (same) {
    region->rung = source->rung;
    region->mapping = source->mapping;
  }
  return keep(std::move(region), *stag);
}

Reply Context::alloc_stag(const rnic_alloc_stag& request) {
  Pd* pd = find(pds_, request.pd);
  if (pd == nullptr || (request.access & ~RNIC_ACCESS_NO_REMOTE) != 0) return Reply::error(EINVAL);
  if (request.pages == 0 || request.pages > tpt::kPageListMax) return Reply::error(EINVAL);  // V-PBL-09
  auto region = std::make_unique<Region>();
  region->share = device_.stags.take(holder_);
  if (!region->share) return Reply::error(ENOMEM);
  const auto stag = device_.table->allocate_region(pd->id, static_cast<tpt::Rights>(request.access), request.pages);
  if (!stag) return Reply::error(ENOMEM);
  region->pd = pd;
  region->access = request.access;
  rnic_alloc_stag_reply reply{};
  reply.stag = stag->value;
  reply.pages = device_.table->query(*stag)->pages;
  const Region& made = *region;
  (void)keep(std::move(region), *stag);
  reply.mr = made.handle;
  return Reply::with(reply);
}

Reply Context::direct_events(Loop& loop) {
  if (direct_ != nullptr) return Reply::error(EBUSY);
  constexpr std::uint64_t kEnds = 2;
  Share share = machine_.descriptors.take(holder_, kEnds);
  if (!share) return Reply::error(EMFILE);
  auto made = EventSocket::create(loop);
  if (made == nullptr) return Reply::error(errno);
  direct_share_ = std::move(share);
  direct_ = std::move(made);
  Reply reply;
  reply.add(direct_->take_reader());
  return reply;
}

}  // namespace rnic::control
