// Regions as the direct verbs register them: all rights said, page lists, memory that is shared by regions.
#include <string>

#include "unit/rnicdv/pages.hpp"

using namespace rnic;
using namespace rnic::test;

TEST_CASE("V-ACC-01: each combination of rights is registered or refused as the table has it",
          "[wired][rnicdv][V-ACC-01][V-VB-19][V-STAG-02][V-IS-31]") {
  Wired t;
  alignas(kPage) static char memory[kPage];
  for (std::uint32_t access = 0; access < 16; ++access) {
    const bool reads = (access & RNICDV_LOCAL_READ) != 0, writes = (access & RNICDV_LOCAL_WRITE) != 0;
    const bool good = (reads || writes) && (reads || (access & RNICDV_REMOTE_READ) == 0) &&
                      (writes || (access & RNICDV_REMOTE_WRITE) == 0);
    const rnicdv_mr_init init{.iova = 0x1000, .access = access, .key = 0x30 + access};
    INFO(access);
    if (!good) {
      CHECK(refusal([&] { return rnicdv_reg_mr(t.a.pd, memory, 100, &init); }) == EINVAL);
      continue;
    }
    ibv_mr* mr = rnicdv_reg_mr(t.a.pd, memory, 100, &init);
    REQUIRE(mr != nullptr);
    CHECK((mr->rkey & 0xFF) == init.key);
    CHECK(direct_of(t.a, mr->rkey).access == access);
    CHECK(provider::dereg_mr(mr) == 0);
  }
  for (const auto& init : {rnicdv_mr_init{.iova = 0, .access = 0x100 | kLocal, .key = 0},
                           rnicdv_mr_init{.iova = 0, .access = kLocal, .key = 0x100}})
    CHECK(refusal([&] { return rnicdv_reg_mr(t.a.pd, memory, 100, &init); }) == EINVAL);
}

TEST_CASE("V-ACC-03: memory that may only be written is no source", "[wired][rnicdv][V-ACC-03][V-MR-04]") {
  WiredPair t;
  const rnicdv_mr_init init{
      .iova = reinterpret_cast<std::uintptr_t>(t.end_a.memory.data()), .access = RNICDV_LOCAL_WRITE, .key = 1};
  ibv_mr* mr = rnicdv_reg_mr(t.a.pd, t.end_a.memory.data(), 100, &init);
  REQUIRE(mr != nullptr);
  REQUIRE(post_receive(t.end_a.qp, 1, {sge_of(mr, t.end_a.memory.data(), 8)}) == 0);
  REQUIRE(post(t.end_b.qp, {2}, {t.end_b.sge(0, 8)}) == 0);
  expect(t.end_a.receive_cq, 1);
  REQUIRE(post(t.end_a.qp, {3}, {sge_of(mr, t.end_a.memory.data(), 8)}) == 0);
  expect(t.end_a.send_cq, 3, IBV_WC_LOC_PROT_ERR);
}

TEST_CASE("V-MR-18: with the Remote Access Flag off there are no remote rights, until it is registered anew",
          "[wired][rnicdv][V-MR-17][V-MR-18][V-MRA-03][V-MR-05]") {
  WiredPair t;
  char* const memory = t.end_b.memory.data();
  const std::uint64_t at = reinterpret_cast<std::uintptr_t>(memory);
  for (const std::uint32_t right : {RNICDV_REMOTE_READ, RNICDV_REMOTE_WRITE, RNICDV_REMOTE_ATOMIC}) {
    const rnicdv_mr_init init{.iova = at, .access = kLocal | RNICDV_NO_REMOTE | right, .key = 1};
    CHECK(refusal([&] { return rnicdv_reg_mr(t.b.pd, memory, 100, &init); }) == EINVAL);
  }
  const rnicdv_mr_init off{.iova = at, .access = kLocal | RNICDV_NO_REMOTE, .key = 1};
  ibv_mr* mr = rnicdv_reg_mr(t.b.pd, memory, 100, &off);
  REQUIRE(mr != nullptr);
  CHECK(direct_of(t.b, mr->rkey).remote_access == 0);
  is_refused(t, at, mr->rkey);
  // Its owner may do what it may.
  REQUIRE(post_receive(t.end_b.qp, 1, {sge_of(mr, memory, 8)}) == 0);
  REQUIRE(post(t.end_a.qp, {2}, {t.end_a.sge(0, 8)}) == 0);
  expect(t.end_b.receive_cq, 1);
  expect(t.end_a.send_cq, 2);
  // Registered anew it has the flag on, or off again.
  Pages pages(1);
  const std::vector<std::uint64_t> one{pages.page(0)};
  const auto list = list_of(one, 0, 64);
  const rnicdv_mr_init on{.iova = one[0], .access = kAll, .key = 2};
  REQUIRE(rnicdv_rereg_page_list(mr, t.b.pd, &list, &on, nullptr) == 0);
  CHECK(direct_of(t.b, mr->rkey).remote_access == 1);
  goes_through(t, one[0], mr->rkey, 'f', 50);
  const rnicdv_mr_init once_more{.iova = one[0], .access = kLocal | RNICDV_NO_REMOTE, .key = 2};
  REQUIRE(rnicdv_rereg_page_list(mr, t.b.pd, &list, &once_more, nullptr) == 0);
  CHECK(direct_of(t.b, mr->rkey).remote_access == 0);
  is_refused(t, one[0], mr->rkey);
  // An ordinary region has it.
  CHECK(direct_of(t.b, t.end_b.mr->rkey).remote_access == 1);
  const rnicdv_mr_init again{.iova = one[0], .access = kAll | RNICDV_NO_REMOTE, .key = 2};
  CHECK(rnicdv_rereg_page_list(mr, t.b.pd, &list, &again, nullptr) == EINVAL);
  CHECK(provider::dereg_mr(mr) == 0);
  t.end();
}

TEST_CASE("V-VB-23: another region over the memory of one, with rights, key, domain and addresses of its own",
          "[wired][rnicdv][V-VB-23][V-MR-11][V-MR-12][V-MR-13][V-MR-21][V-MRA-01][V-MRA-03]") {
  WiredPair t;
  const bool shared_memory = GENERATE(false, true);
  Pages pages(4, shared_memory ? MAP_SHARED : MAP_PRIVATE);
  const std::uint64_t at = pages.page(0) + 100;
  const rnicdv_mr_init local{.iova = at, .access = kLocal, .key = 0x11};
  ibv_mr* first = rnicdv_reg_mr(t.b.pd, pages.at + 100, 8192, &local);
  REQUIRE(first != nullptr);
  CHECK(direct_of(t.b, first->rkey).shared == 0);
  is_refused(t, at, first->rkey);

  // From elsewhere, as far behind a page's beginning.
  const rnicdv_mr_init remote{.iova = 0x7000'0000'0000 + 100, .access = kAll, .key = 0x22};
  ibv_mr* second = rnicdv_reg_shared_mr(first, t.b.pd, &remote);
  REQUIRE(second != nullptr);
  CHECK(second->rkey >> 8 != first->rkey >> 8);
  CHECK((second->rkey & 0xFF) == 0x22);
  const rnicdv_mr_attr is = direct_of(t.b, second->rkey);
  CHECK(is.shared == 1);
  CHECK(is.access == kAll);
  CHECK(is.iova == remote.iova);
  CHECK(is.length == 8192);
  CHECK(direct_of(t.b, first->rkey).shared == 1);
  CHECK(direct_of(t.b, first->rkey).access == kLocal);
  goes_through(t, remote.iova + 5000, second->rkey, 's', 64);
  CHECK(pages.at[100 + 5000] == 's');
  is_refused(t, remote.iova + 8192, second->rkey);

  // Neither can be made Invalid, and each goes by itself: the memory stays with the other.
  ibv_send_wr away{};
  away.opcode = IBV_WR_LOCAL_INV;
  away.send_flags = IBV_SEND_SIGNALED;
  away.invalidate_rkey = first->rkey;
  ibv_send_wr* bad = nullptr;
  REQUIRE(provider::post_send(t.end_b.qp, &away, &bad) == 0);
  CHECK(poll(t.end_b.send_cq, 1)[0].status != IBV_WC_SUCCESS);
  join_anew(t);
  REQUIRE(provider::dereg_mr(first) == 0);
  goes_through(t, remote.iova, second->rkey, 't', 64);
  CHECK(pages.at[100] == 't');
  REQUIRE(provider::dereg_mr(second) == 0);
  is_refused(t, remote.iova, second->rkey);
  t.end();
}

TEST_CASE("V-VB-23: what cannot be shared is refused, and nothing has changed",
          "[wired][rnicdv][V-VB-23][V-MR-11][V-MR-12][V-IS-29][V-IS-31][V-IS-35]") {
  WiredPair t;
  Pages pages(1);
  const rnicdv_mr_init init{.iova = pages.page(0), .access = kLocal, .key = 1};
  ibv_mr* mr = rnicdv_reg_mr(t.b.pd, pages.at, kPage, &init);
  const auto refused = [&](ibv_mr* of, ibv_pd* pd, const rnicdv_mr_init& as) {
    return refusal([&] { return rnicdv_reg_shared_mr(of, pd, &as); });
  };
  CHECK(refused(mr, t.b.pd, {.iova = pages.page(0) + 1, .access = kLocal, .key = 1}) == EINVAL);
  CHECK(refused(mr, t.b.pd, {.iova = pages.page(0), .access = RNICDV_REMOTE_READ, .key = 1}) == EINVAL);
  CHECK(refused(mr, t.b.pd, {.iova = pages.page(0), .access = kLocal, .key = 0x100}) == EINVAL);
  CHECK(refused(mr, t.a.pd, {.iova = pages.page(0), .access = kLocal, .key = 1}) == EINVAL);
  CHECK(direct_of(t.b, mr->rkey).shared == 0);
  // Its key is looked at.
  ibv_mr forged = *mr;
  forged.rkey ^= 1;
  provider::Mr copy{};
  copy.ibv = forged;
  CHECK(refused(&copy.ibv, t.b.pd, init) == EINVAL);
  t.end();
}

TEST_CASE("V-VB-23: memory that was registered for reading is written to by a region that may, and no daemon is hurt",
          "[wired][rnicdv][V-VB-23][V-MR-12][V-SEC-13]") {
  WiredPair t;
  Pages pages(4);
  const rnicdv_mr_init reads{.iova = pages.page(0), .access = RNICDV_LOCAL_READ | RNICDV_REMOTE_READ, .key = 1};
  ibv_mr* first = rnicdv_reg_mr(t.b.pd, pages.at, pages.size, &reads);
  REQUIRE(first != nullptr);
  const rnicdv_mr_init all{.iova = pages.page(0), .access = kAll, .key = 2};
  ibv_mr* second = rnicdv_reg_shared_mr(first, t.b.pd, &all);
  REQUIRE(second != nullptr);
  goes_through(t, pages.page(2), second->rkey, 'w', 64);
  CHECK(pages.at[2 * kPage] == 'w');
  t.end();
}

TEST_CASE("V-PBL-01: a page list is one region, wherever its pages are",
          "[wired][rnicdv][V-PBL-01][V-PBL-03][V-PBL-04][V-PBL-10][V-VB-19]") {
  WiredPair t;
  const bool zero_based = GENERATE(false, true);
  Pages pages(8), others(4);
  std::vector<std::uint64_t> order;
  SECTION("apart, in any order, of two mappings") {
    order = {pages.page(5), others.page(1), pages.page(0), pages.page(1), pages.page(7)};
  }
  SECTION("one behind the other") {
    order = {pages.page(2), pages.page(3), pages.page(4), pages.page(5), pages.page(6)};
  }
  SECTION("one of them twice") { order = {pages.page(2), pages.page(6), pages.page(2), pages.page(3), pages.page(0)}; }
  const std::uint64_t length = 4 * kPage + 50;  // from the middle of the first to that of the last
  const auto list = list_of(order, 1000, length);
  const std::uint64_t base = zero_based ? 0 : 0x10'0000'0000 + 1000;
  const rnicdv_mr_init init{.iova = base, .access = kAll | (zero_based ? RNICDV_ZERO_BASED : 0), .key = 0x77};
  rnicdv_list_error error{};
  ibv_mr* mr = rnicdv_reg_page_list(t.b.pd, &list, &init, &error);
  REQUIRE(mr != nullptr);
  CHECK(error == RNICDV_LIST_GOOD);
  CHECK(mr->length == length);
  const rnicdv_mr_attr is = direct_of(t.b, mr->rkey);
  CHECK(is.iova == base);
  CHECK(is.length == length);
  CHECK(is.max_page_list >= order.size());
  // Each octet of the region is one of its page's.
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::uint64_t offset = i == 0 ? 0 : i * kPage - 1000;
    const auto octet = static_cast<char>('A' + i);
    goes_through(t, base + offset, mr->rkey, octet, 8);
    const auto* there = reinterpret_cast<const char*>(order[i] + (i == 0 ? 1000 : 0));
    CHECK(std::string(there, 8) == std::string(8, octet));
  }
  // Across the seam of two.
  goes_through(t, base + kPage - 1000 - 4, mr->rkey, 'z', 8);
  CHECK(std::string(reinterpret_cast<char*>(order[0]) + kPage - 4, 4) == "zzzz");
  CHECK(std::string(reinterpret_cast<char*>(order[1]), 4) == "zzzz");
  // And no further than its last.
  goes_through(t, base + length - 8, mr->rkey, 'e', 8);
  is_refused(t, base + length - 7, mr->rkey);
  // As its owner's memory too.
  const std::uint64_t own = zero_based ? 0 : base;
  REQUIRE(post_receive(t.end_b.qp, 1, {{own + 3, 16, mr->lkey}}) == 0);
  std::fill_n(t.end_a.memory.begin(), 16, 'q');
  REQUIRE(post(t.end_a.qp, {2}, {t.end_a.sge(0, 16)}) == 0);
  expect(t.end_b.receive_cq, 1);
  CHECK(std::string(reinterpret_cast<char*>(order[0]) + 1003, 16) == std::string(16, 'q'));
  CHECK(provider::dereg_mr(mr) == 0);
  t.end();
}

TEST_CASE("V-PBL-01: pages may be larger than the smallest", "[wired][rnicdv][V-PBL-01][V-QRN-23]") {
  WiredPair t;
  Pages pages(64);
  constexpr std::uint64_t kLarge = 4 * kPage;
  const std::uint64_t start = (pages.page(0) + kLarge - 1) / kLarge * kLarge;
  const std::vector<std::uint64_t> order{start + 4 * kLarge, start};
  auto list = list_of(order, kLarge - 1, kLarge);
  list.page_size = kLarge;
  const rnicdv_mr_init init{.iova = kLarge - 1, .access = kAll, .key = 3};
  ibv_mr* mr = rnicdv_reg_page_list(t.b.pd, &list, &init, nullptr);
  REQUIRE(mr != nullptr);
  goes_through(t, kLarge - 1, mr->rkey, 'l', 8);
  CHECK(*reinterpret_cast<char*>(order[0] + kLarge - 1) == 'l');
  CHECK(std::string(reinterpret_cast<char*>(order[1]), 7) == "lllllll");
  t.end();
}

TEST_CASE("V-PBL-08: each thing that can be wrong with a page list is told by itself",
          "[wired][rnicdv][V-PBL-08][V-PBL-01][V-PBL-03][V-IS-32][V-IS-33][V-IS-34][V-VB-19][V-MR-02]") {
  Wired t;
  Pages pages(4);
  std::vector<std::uint64_t> order{pages.page(3), pages.page(1)};
  auto list = list_of(order, 16, 2 * kPage - 16);
  rnicdv_mr_init init{.iova = 16, .access = kAll, .key = 1};
  rnicdv_list_error expected = RNICDV_LIST_GOOD;
  SECTION("good, to its last octet") {}
  SECTION("a size that is no power of two") {
    list.page_size = 3 * kPage;
    expected = RNICDV_LIST_PAGE_SIZE;
  }
  SECTION("a size that is too small") {
    list.page_size = 2048;
    expected = RNICDV_LIST_PAGE_SIZE;
  }
  SECTION("no size") {
    list.page_size = 0;
    expected = RNICDV_LIST_PAGE_SIZE;
  }
  SECTION("no page") {
    list.count = 0;
    expected = RNICDV_LIST_TOO_LONG;
  }
  SECTION("too many") {
    order.assign(RNIC_PAGE_LIST_MAX + 1, pages.page(0));
    list = list_of(order, 16, 2 * kPage);
    expected = RNICDV_LIST_TOO_LONG;
  }
  SECTION("a page that is none") {
    order[1] += 8;
    expected = RNICDV_LIST_PAGE;
  }
  SECTION("a first octet behind the first page") {
    list.first_offset = kPage;
    expected = RNICDV_LIST_FIRST_OFFSET;
  }
  SECTION("an octet more than the pages hold") {
    ++list.length;
    expected = RNICDV_LIST_LENGTH;
  }
  SECTION("no octet") {
    list.length = 0;
    expected = RNICDV_LIST_LENGTH;
  }
  SECTION("an address that is not as far in its page") {
    init.iova = 17;
    expected = RNICDV_LIST_ADDRESS;
  }
  SECTION("an address past the end of all") {
    init.iova = ~std::uint64_t{0} - kPage + 17;
    expected = RNICDV_LIST_ADDRESS;
  }
  rnicdv_list_error error = RNICDV_LIST_MODE;
  const int result = refusal([&] { return rnicdv_reg_page_list(t.a.pd, &list, &init, &error); });
  CHECK(error == expected);
  CHECK(result == (expected == RNICDV_LIST_GOOD ? 0 : EINVAL));
  // The same for a region that there is; as the specification has it, that is gone then (V-MR-07).
  alignas(kPage) static char memory[kPage];
  ibv_mr* mr = t.a.make_mr(memory, kPage, WiredPair::kRemote);
  error = RNICDV_LIST_MODE;
  CHECK(rnicdv_rereg_page_list(mr, t.a.pd, &list, &init, &error) == result);
  CHECK(error == expected);
  rnicdv_mr_attr attr{};
  CHECK(rnicdv_query_mr(context_of(t.a), mr->rkey, &attr) == (expected == RNICDV_LIST_GOOD ? 0 : EINVAL));
  CHECK(provider::dereg_mr(mr) == 0);
  t.end();
}

TEST_CASE("V-PBL-10: private pages are taken where they lie, and not where they lie apart",
          "[wired][rnicdv][V-PBL-10][V-MR-02]") {
  WiredPair t;
  Pages pages(4, MAP_PRIVATE);
  const rnicdv_mr_init init{.iova = 0, .access = kAll, .key = 1};
  const std::vector<std::uint64_t> together{pages.page(1), pages.page(2)}, apart{pages.page(2), pages.page(1)};
  const auto good = list_of(together, 0, 2 * kPage), bad = list_of(apart, 0, 2 * kPage);
  rnicdv_list_error error{};
  CHECK(refusal([&] { return rnicdv_reg_page_list(t.b.pd, &bad, &init, &error); }) == EOPNOTSUPP);
  CHECK(error == RNICDV_LIST_GOOD);
  ibv_mr* mr = rnicdv_reg_page_list(t.b.pd, &good, &init, nullptr);
  REQUIRE(mr != nullptr);
  goes_through(t, kPage, mr->rkey, 'p', 8);
  CHECK(pages.at[2 * kPage] == 'p');
  const std::vector<std::uint64_t> nowhere{0x1000, 0x3000};
  const auto none = list_of(nowhere, 0, kPage);
  CHECK(refusal([&] { return rnicdv_reg_page_list(t.b.pd, &none, &init, nullptr); }) == EFAULT);
  t.end();
}

TEST_CASE("V-PBL-09: an STag has room for as long a list as was asked for, or longer",
          "[wired][rnicdv][V-PBL-09][V-VB-18][V-MR-03][V-STAG-03]") {
  WiredPair t;
  rnicdv_device_attr device{};
  REQUIRE(rnicdv_query_device(context_of(t.b), &device) == 0);
  for (const std::uint32_t wanted : {1u, 2u, 3u, 1000u, device.max_page_list}) {
    std::uint32_t pages = wanted;
    ibv_mr* mr = rnicdv_alloc_stag(t.b.pd, &pages, 0);
    REQUIRE(mr != nullptr);
    CHECK(pages >= wanted);
    CHECK(pages <= device.max_page_list);
    const rnicdv_mr_attr is = direct_of(t.b, mr->rkey);
    CHECK(is.max_page_list == pages);
    CHECK(is.valid == 0);
    CHECK(is.remote_access == 1);
    CHECK(is.pd_handle == t.b.pd->handle);
    CHECK(is.access == 0);
    CHECK(provider::dereg_mr(mr) == 0);
  }
  for (const std::uint32_t wanted : {0u, device.max_page_list + 1}) {
    std::uint32_t pages = wanted;
    CHECK(refusal([&] { return rnicdv_alloc_stag(t.b.pd, &pages, 0); }) == EINVAL);
  }
  std::uint32_t pages = 1;
  CHECK(refusal([&] { return rnicdv_alloc_stag(t.b.pd, &pages, kLocal); }) == EINVAL);
  ibv_mr* off = rnicdv_alloc_stag(t.b.pd, &pages, RNICDV_NO_REMOTE);
  REQUIRE(off != nullptr);
  CHECK(direct_of(t.b, off->rkey).remote_access == 0);
  CHECK(provider::dealloc_pd(t.b.pd) == EBUSY);

  // An STag without memory may be registered anew, and is Valid then.
  pages = 2;
  ibv_mr* mr = rnicdv_alloc_stag(t.b.pd, &pages, 0);
  Pages memory(3);
  const std::vector<std::uint64_t> order{memory.page(2), memory.page(0)};
  const auto list = list_of(order, 8, 2 * kPage - 8);
  const rnicdv_mr_init init{.iova = 8, .access = kAll, .key = 0x44};
  const std::uint32_t index = mr->rkey >> 8;
  is_refused(t, 8, mr->rkey);
  REQUIRE(rnicdv_rereg_page_list(mr, t.b.pd, &list, &init, nullptr) == 0);
  CHECK(mr->rkey >> 8 == index);
  CHECK((mr->rkey & 0xFF) == 0x44);
  goes_through(t, kPage, mr->rkey, 'r', 8);
  CHECK(memory.at[0] == 'r');
  CHECK(provider::dereg_mr(mr) == 0);
  t.end();
}
