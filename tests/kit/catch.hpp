// The one file that knows which Catch2 this is: version 2, one header, or version 3, which is linked.
#pragma once

#if __has_include(<catch2/catch_test_macros.hpp>)

#include <catch2/catch_approx.hpp>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

using Catch::Approx;

// As version 2 has them, for who asks.
#ifdef CATCH_CONFIG_RUNNER
#include <catch2/catch_session.hpp>
#endif
#ifdef CATCH_CONFIG_EXTERNAL_INTERFACES
#include <catch2/catch_test_case_info.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
namespace Catch {
using TestEventListenerBase = EventListenerBase;
}
#endif

#else

#include <catch2/catch.hpp>

#endif
