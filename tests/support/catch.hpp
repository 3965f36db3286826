// The one file that knows which Catch2 this is.
#pragma once

#include <catch2/catch.hpp>
