// What tests/quality/mutate learns of a run: a line when a test begins (S, its tags, its name), and one when it
// has ended (E, failed or not, milliseconds of processor time, the mutants that it came by).
#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "kit/catch.hpp"
#include "quality/mutation/mutant.hpp"

namespace rnic::mutation {

int chosen = std::getenv("RNIC_MUTANT") != nullptr ? std::atoi(std::getenv("RNIC_MUTANT")) : 0;
unsigned char reached[kMutantsMax];

}  // namespace rnic::mutation

namespace {

using namespace rnic::mutation;

class Witness : public Catch::TestEventListenerBase {
 public:
  using TestEventListenerBase::TestEventListenerBase;

  void testCaseStarting(const Catch::TestCaseInfo& test) override {
    std::memset(reached, 0, sizeof reached);
    begun_ = std::clock();
    if (log_ == nullptr) return;
    std::fprintf(log_, "S\t%s\t%s\n", test.tagsAsString().c_str(), test.name.c_str());
    std::fflush(log_);
  }
  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    if (log_ == nullptr) return;
    std::fprintf(log_, "E\t%d\t%ld\t", stats.totals.testCases.failed != 0 ? 1 : 0,
                 static_cast<long>((std::clock() - begun_) * 1000 / CLOCKS_PER_SEC));
    if (chosen == 0)
      for (int i = 1; i < kMutantsMax; ++i)
        if (reached[i] != 0) std::fprintf(log_, " %d", i);
    std::fprintf(log_, "\n");
    std::fflush(log_);
  }

 private:
  std::FILE* log_ =
      std::getenv("RNIC_MUTANT_LOG") != nullptr ? std::fopen(std::getenv("RNIC_MUTANT_LOG"), "w") : nullptr;
  std::clock_t begun_ = 0;
};

}  // namespace

CATCH_REGISTER_LISTENER(Witness)
