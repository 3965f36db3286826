// The program that runs the provider's tests.
#define CATCH_CONFIG_RUNNER
#include "kit/catch.hpp"

int main(int argc, char** argv) { return Catch::Session().run(argc, argv); }
