// Fuzz targets: each takes any octets at all, does with them what a peer, a router or an
// application could make the data plane do, and ends the process where something is wrong: a failed
// assertion, a sanitizer's finding, or a FUZZ_CHECK.
//
// They run under libFuzzer (tools/fuzz) and, over their seeds and some mutations of them, in the
// unit tests (smoke_test.cpp). What they found is kept beside this, as tests.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"

namespace rnic::fuzz {

using Octets = std::vector<std::byte>;

struct Target {
  std::string_view name;
  std::string_view what;
  void (*run)(Bytes input);
  std::vector<Octets> (*seeds)();
};

std::span<const Target> targets();
// Null if there is none of that name.
const Target* find(std::string_view name);

// One for each target: its run and its seeds.
void run_tcp_options(Bytes input);
std::vector<Octets> seeds_tcp_options();
void run_icmp(Bytes input);
std::vector<Octets> seeds_icmp();
void run_startup(Bytes input);
std::vector<Octets> seeds_startup();
void run_fpdus(Bytes input);
std::vector<Octets> seeds_fpdus();
void run_marked_fpdus(Bytes input);
std::vector<Octets> seeds_marked_fpdus();
void run_messages(Bytes input);
std::vector<Octets> seeds_messages();
void run_frames(Bytes input);
std::vector<Octets> seeds_frames();
void run_datagrams(Bytes input);
std::vector<Octets> seeds_datagrams();
void run_conversation(Bytes input);
std::vector<Octets> seeds_conversation();

[[noreturn]] void finding(const char* claim, const char* file, int line);

}  // namespace rnic::fuzz

// A claim about what the code under test did. Always on.
#define FUZZ_CHECK(claim) ((claim) ? (void)0 : ::rnic::fuzz::finding(#claim, __FILE__, __LINE__))
