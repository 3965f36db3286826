// RDMA Reads into memory that was registered with Local Write and nothing else, as programs written for
// InfiniBand do; or without even that.
//
//   local_sink server ADDRESS PORT
//   local_sink client ADDRESS PORT many|one|forbidden
//
// many: 200 Reads, 16 of them outstanding, all of whose octets are compared; the client ends with 1 if one
// is wrong. one: a single Read. forbidden: one into memory that may not be written to. What became of
// them is printed.
#include <algorithm>
#include <string_view>

#include "ending.hpp"

namespace {

constexpr std::uint32_t kReads = 200, kDepth = 16, kSize = 30'001;  // more than one segment, and odd
constexpr std::size_t kGap = 64;                                    // between two sinks
constexpr std::byte kBefore{0x11};

std::byte octet_of(std::uint32_t read, std::size_t i) { return static_cast<std::byte>(read * 7 + i * 131 + (i >> 8)); }

int serve(char** words) {
  app::Endpoint end = app::listen_one(words[2], words[3]);
  end.make_queues(kDepth);
  end.make_memory(std::size_t{kReads} * kSize, IBV_ACCESS_REMOTE_READ);
  for (std::uint32_t read = 0; read < kReads; ++read)
    for (std::size_t i = 0; i < kSize; ++i) end.memory[std::size_t{read} * kSize + i] = octet_of(read, i);
  app::accept(end, {reinterpret_cast<std::uint64_t>(end.memory), end.mr->rkey, kSize});
  return app::tell_ending(end, 0) ? 0 : 1;
}

ibv_wc wait_for_one(app::Endpoint& end) {
  const ibv_wc wc = app::Endpoint::poll(end.send_cq);
  if (wc.status != IBV_WC_SUCCESS)
    std::printf("read %llu: %s\n", static_cast<unsigned long long>(wc.wr_id), ibv_wc_status_str(wc.status));
  return wc;
}

int read_many(app::Endpoint& end, app::Target target) {
  std::fill_n(end.memory, end.size, kBefore);
  std::uint32_t done = 0;
  bool good = true;
  for (std::uint32_t posted = 0; done < kReads;) {
    while (posted < kReads && posted - done < kDepth) {
      app::Target from = target;
      from.address += std::uint64_t{posted} * kSize;
      if ((errno = end.post(IBV_WR_RDMA_READ, posted * (kSize + kGap), kSize, &from, posted)) != 0)
        app::fail("ibv_post_send");
      ++posted;
    }
    if (wait_for_one(end).status != IBV_WC_SUCCESS) return 1;
    ++done;
  }
  for (std::uint32_t read = 0; read < kReads; ++read) {
    const std::byte* sink = end.memory + std::size_t{read} * (kSize + kGap);
    for (std::size_t i = 0; i < kSize; ++i) good &= sink[i] == octet_of(read, i);
    for (std::size_t i = 0; i < kGap; ++i) good &= sink[kSize + i] == kBefore;
  }
  std::printf("%u reads: %s\n", done, good ? "all octets right" : "octets WRONG");
  return good ? 0 : 1;
}

int ask(char** words) {
  const std::string_view what = words[4];
  app::Endpoint end = app::resolve(words[2], words[3]);
  end.make_queues(kDepth);
  end.make_memory(std::size_t{kReads} * (kSize + kGap), what == "forbidden" ? 0 : IBV_ACCESS_LOCAL_WRITE);
  const app::Target target = app::connect(end);
  int result = 0;
  if (what == "many") {
    result = read_many(end, target);
    rdma_disconnect(end.id);
  } else {
    if ((errno = end.post(IBV_WR_RDMA_READ, 0, kSize, &target, 0)) != 0) app::fail("ibv_post_send");
    if (wait_for_one(end).status == IBV_WC_SUCCESS) {
      std::printf("read 0: success\n");
      rdma_disconnect(end.id);
    }
  }
  return app::tell_ending(end, 0) ? result : 1;
}

}  // namespace

int main(int count, char** words) {
  if (count >= 4 && std::string_view(words[1]) == "server") return serve(words);
  if (count == 5) return ask(words);
  std::fprintf(stderr,
               "usage: local_sink server ADDRESS PORT\n       local_sink client ADDRESS PORT many|one|forbidden\n");
  return 2;
}
