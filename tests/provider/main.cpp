// The program that runs the provider's tests.
#define CATCH_CONFIG_MAIN
#include "support/catch.hpp"
