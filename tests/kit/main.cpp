// The main function of the unit tests.
#define CATCH_CONFIG_RUNNER
#include "kit/catch.hpp"

int main(int argc, char** argv) { return Catch::Session().run(argc, argv); }
