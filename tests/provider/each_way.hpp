// A test for each way to learn what is mapped: by query, and as on a kernel that has not got that.
#pragma once

#include "mappings.hpp"
#include "support/catch.hpp"

namespace rnic::test {

struct EachWay {
  EachWay() { provider::use_mapping_query(query); }
  ~EachWay() { provider::use_mapping_query(true); }
  EachWay(const EachWay&) = delete;
  EachWay& operator=(const EachWay&) = delete;
  bool query = GENERATE(true, false);
};

}  // namespace rnic::test
