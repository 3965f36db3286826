// A test for each way to learn what is mapped: by query, and as on a kernel that has not got that. However much is
// mapped in this process (a sanitizer maps hundreds), no page is far.
#pragma once

#include <cstdint>

#include "kit/catch.hpp"
#include "mappings.hpp"

namespace rnic::test {

struct EachWay {
  EachWay() {
    provider::use_mapping_query(query);
    provider::limit_smaps(SIZE_MAX);
  }
  ~EachWay() {
    provider::use_mapping_query(true);
    provider::limit_smaps(0);
  }
  EachWay(const EachWay&) = delete;
  EachWay& operator=(const EachWay&) = delete;
  bool query = GENERATE(true, false);
};

}  // namespace rnic::test
