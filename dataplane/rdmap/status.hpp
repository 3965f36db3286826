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

constexpr Status status_of_fast_register(tpt::FastRefusal refusal) {
  switch (refusal) {
    case tpt::FastRefusal::invalid_stag:
      return Status::invalid_stag;
    case tpt::FastRefusal::not_associated:
      return Status::invalid_pd;
    case tpt::FastRefusal::not_invalid:
      return Status::stag_not_invalid;
    case tpt::FastRefusal::page_size:
      return Status::invalid_page_size;
    case tpt::FastRefusal::list_too_long:
      return Status::list_too_long;
    case tpt::FastRefusal::list_entry:
      return Status::invalid_list_entry;
    case tpt::FastRefusal::first_offset:
      return Status::invalid_first_offset;
    case tpt::FastRefusal::length:
      return Status::invalid_list_length;
    case tpt::FastRefusal::address:
      return Status::invalid_list_address;
    case tpt::FastRefusal::access_rights:
      return Status::invalid_list_access;
  }
  return Status::invalid_stag;
}

}  // namespace rnic::rdmap
