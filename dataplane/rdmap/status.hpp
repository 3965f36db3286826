// What a refusal of the TPT means for a work request (verbs.md s8.2).
#pragma once

#include "rdmap/work.hpp"
#include "tpt/table.hpp"

namespace rnic::rdmap {

// A local SGE, or an STag to invalidate.
constexpr Status status_of(tpt::Refusal refusal) {
  switch (refusal) {
    case tpt::Refusal::invalid_stag:
    case tpt::Refusal::invalid_window:
    case tpt::Refusal::invalid_region:
    case tpt::Refusal::window:
      return Status::invalid_stag;  // V-SGL-04
    case tpt::Refusal::not_associated:
      return Status::invalid_pd;
    case tpt::Refusal::access_rights:
    case tpt::Refusal::not_invalid:
    case tpt::Refusal::cannot_invalidate:
      return Status::access;
    case tpt::Refusal::to_wrap:
      return Status::wrap;
    case tpt::Refusal::base_or_bounds:
      return Status::base_bounds;
  }
  return Status::access;
}

constexpr Status status_of_bind(tpt::Refusal refusal) {
  switch (refusal) {
    case tpt::Refusal::invalid_stag:
    case tpt::Refusal::invalid_region:
      return Status::invalid_region;
    case tpt::Refusal::window:
    case tpt::Refusal::invalid_window:
      return Status::invalid_window;
    case tpt::Refusal::not_associated:
      return Status::invalid_pd;
    case tpt::Refusal::access_rights:
      return Status::access;
    case tpt::Refusal::to_wrap:
      return Status::wrap;
    case tpt::Refusal::base_or_bounds:
      return Status::base_bounds;
    case tpt::Refusal::cannot_invalidate:
    case tpt::Refusal::not_invalid:
      return Status::stag_not_invalid;
  }
  return Status::invalid_window;
}

}  // namespace rnic::rdmap
