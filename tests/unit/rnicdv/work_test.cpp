// The work requests of the direct verbs: Fast-Register on a privileged queue pair, Read with Invalidate, and atomic
// operations with masks.
#include <string>

#include "regions.hpp"
#include "unit/provider/oob.hpp"
#include "unit/rnicdv/pages.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

constexpr std::uint64_t kBase = 0x40'0000'0000;

// As WiredPair, and on b's side a privileged queue pair of the same protection domain, which is connected too: it is
// there that STags are registered, and a's first queue pair writes to them.
struct Privileged : WiredPair {
  Privileged() : pages(16) {
    cq = b.make_cq(64);
    far_cq = a.make_cq(64);
    auto init = init_of(b, cq, cq);
    const rnicdv_qp_init_attr more{.flags = RNICDV_QP_PRIVILEGED, .rq_limit = 0};
    qp = rnicdv_create_qp(context_of(b), &init, &more);
    REQUIRE(qp != nullptr);
    peer = a.make_qp(far_cq, far_cq, 64);
    its_ids = join(peer, qp);
    order = {pages.page(3), pages.page(9), pages.page(1)};
  }
  ~Privileged() { end(); }
  ibv_mr* allocate(std::uint32_t room = 4, std::uint32_t access = 0) {
    ibv_mr* mr = rnicdv_alloc_stag(b.pd, &room, access);
    REQUIRE(mr != nullptr);
    return mr;
  }
  static int post(ibv_qp* to, ibv_mr* mr, const rnicdv_page_list& list, const rnicdv_mr_init& init,
                  unsigned flags = IBV_SEND_SIGNALED, std::uint64_t wr_id = 5) {
    ibv_qp_ex* ex = &provider::of(to).ex;
    ex->wr_start(ex);
    ex->wr_id = wr_id;
    ex->wr_flags = flags;
    rnicdv_wr_fast_register(ex, mr, &list, &init);
    return ex->wr_complete(ex);
  }
  void registers(ibv_mr* mr, const rnicdv_page_list& list, const rnicdv_mr_init& init) {
    REQUIRE(post(qp, mr, list, init) == 0);
    const ibv_wc wc = poll(cq, 1)[0];
    REQUIRE(wc.status == IBV_WC_SUCCESS);
    CHECK(wc.wr_id == 5);
    CHECK(wc.opcode == IBV_WC_DRIVER1);
  }
  void invalidates(std::uint32_t stag) {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_LOCAL_INV;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.invalidate_rkey = stag;
    ibv_send_wr* bad = nullptr;
    REQUIRE(provider::post_send(qp, &wr, &bad) == 0);
    REQUIRE(poll(cq, 1)[0].status == IBV_WC_SUCCESS);
  }
  rnicdv_page_list list(std::uint64_t first_offset = 0, std::uint64_t length = 3 * kPage) const {
    return list_of(order, first_offset, length);
  }

  Pages pages;
  std::vector<std::uint64_t> order;
  ibv_cq *cq = nullptr, *far_cq = nullptr;
  ibv_qp *qp = nullptr, *peer = nullptr;
  Ids its_ids;
};

constexpr rnicdv_mr_init kInit{.iova = kBase, .access = kAll, .key = 0x61};

}  // namespace

TEST_CASE("V-MR-15: a Fast-Register makes an STag Valid, of its list, rights and key",
          "[wired][rnicdv][V-MR-03][V-MR-15][V-MR-16][V-MWR-02][V-VB-18][V-STATE-01][V-STAG-02][V-STAG-03]") {
  Privileged t;
  ibv_mr* mr = nullptr;
  SECTION("of Allocate") { mr = t.allocate(); }
  SECTION("of RI-Register, Invalid") {
    mr = t.b.make_mr(t.pages.at, 4 * kPage, WiredPair::kRemote);
    t.invalidates(mr->rkey);
  }
  SECTION("of RI-Reregister, Invalid") {
    mr = t.allocate();
    const auto list = t.list();
    REQUIRE(rnicdv_rereg_page_list(mr, t.b.pd, &list, &kInit, nullptr) == 0);
    t.invalidates(mr->rkey);
  }
  const std::uint32_t index = mr->rkey >> 8;
  t.registers(mr, t.list(100, 2 * kPage), {.iova = kBase + 100, .access = kAll, .key = 0x61});
  CHECK(mr->rkey == (index << 8 | 0x61));
  CHECK(mr->lkey == mr->rkey);
  CHECK(mr->length == 2 * kPage);
  const rnicdv_mr_attr is = direct_of(t.b, mr->rkey);
  CHECK(is.valid == 1);
  CHECK(is.stag == mr->rkey);
  CHECK(is.iova == kBase + 100);
  CHECK(is.length == 2 * kPage);
  CHECK(is.access == kAll);
  goes_through(t, kBase + kPage, mr->rkey, 'f', 64);
  CHECK(std::string(t.pages.at + 9 * kPage, 4) == "ffff");
  // Octets of its owner's too: from it, and to it.
  REQUIRE(post_receive(t.end_a.qp, 1, {t.end_a.sge(0, 64)}) == 0);
  t.pages.at[3 * kPage + 100] = 'o';
  REQUIRE(test::post(t.end_b.qp, {2}, {{kBase + 100, 8, mr->lkey}}) == 0);
  expect(t.end_a.receive_cq, 1);
  CHECK(t.end_a.memory[0] == 'o');
  expect(t.end_b.send_cq, 2);
  is_refused(t, kBase + 99, mr->rkey);
}

TEST_CASE("V-STATE-04: an STag is invalidated and registered again, any number of times",
          "[wired][rnicdv][V-STATE-04][V-STATE-02][V-MR-15]") {
  Privileged t;
  ibv_mr* mr = t.allocate(4);
  for (std::uint32_t i = 0; i < 40; ++i) {
    t.order = {t.pages.page(i % 16), t.pages.page((i + 5) % 16), t.pages.page((i + 11) % 16)};
    t.order.resize(1 + i % 3);
    const auto list = t.list(0, t.order.size() * kPage);
    t.registers(mr, list, {.iova = kBase + i * 16 * kPage, .access = kAll, .key = i % 2});
    const auto octet = static_cast<char>('a' + i % 26);
    goes_through(t, kBase + i * 16 * kPage + (t.order.size() - 1) * kPage, mr->rkey, octet, 16);
    CHECK(*reinterpret_cast<char*>(t.order.back()) == octet);
    t.invalidates(mr->rkey);
  }
  // What lay apart was mapped a second time, and is not any more but for a few.
  std::size_t views = 0;
  for (auto* view = reinterpret_cast<provider::Mr*>(mr)->views; view != nullptr; view = view->next) ++views;
  CHECK(views <= 10);
  is_refused(t, kBase, mr->rkey);
}

TEST_CASE("V-MWR-04: work behind a Fast-Register finds it done", "[wired][rnicdv][V-MR-15][V-MWR-04]") {
  Privileged t;
  ibv_mr* mr = t.allocate();
  const auto list = t.list();
  ibv_qp_ex* ex = &provider::of(t.qp).ex;
  REQUIRE(post_receive(t.peer, 1, {t.end_a.sge(0, 64)}) == 0);
  t.pages.at[3 * kPage] = 'b';
  ex->wr_start(ex);
  ex->wr_id = 1;
  ex->wr_flags = IBV_SEND_SIGNALED;
  rnicdv_wr_fast_register(ex, mr, &list, &kInit);
  ex->wr_id = 2;
  ex->wr_send(ex);
  ex->wr_set_sge(ex, mr->lkey, kBase, 8);
  REQUIRE(ex->wr_complete(ex) == 0);
  expect(t.cq, 1);
  expect(t.cq, 2);
  expect(t.far_cq, 1);
  CHECK(t.end_a.memory[0] == 'b');
}

TEST_CASE("V-MR-16: what is wrong with a Fast-Register is its completion, and ends its queue pair",
          "[wired][rnicdv][V-MR-16][V-MR-17][V-CS-13][V-CS-14][V-CS-15][V-CS-17][V-CS-18][V-CS-19][V-CS-20]"
          "[V-CS-21][V-CS-22][V-CS-06][V-CS-09]") {
  Privileged t;
  ibv_mr* mr = t.allocate();
  ibv_qp* qp = t.qp;
  ibv_cq* cq = t.cq;
  auto list = t.list();
  rnicdv_mr_init init = kInit;
  std::uint32_t reason = 0;
  ibv_wc_status status = IBV_WC_LOC_QP_OP_ERR;
  SECTION("V-CS-13: on a queue pair that is not privileged") {
    auto plain = init_of(t.b, t.end_b.send_cq, t.end_b.receive_cq);
    qp = rnicdv_create_qp(context_of(t.b), &plain, nullptr);
    cq = t.end_b.send_cq;
    ibv_cq* far = t.a.make_cq(16);
    t.join(t.a.make_qp(far, far, 4), qp);
    reason = RNIC_WC_NOT_PRIVILEGED;
  }
  SECTION("V-CS-14: an STag that is Valid") {
    mr = t.end_b.mr;
    reason = RNIC_WC_STAG_NOT_INVALID;
  }
  SECTION("V-CS-14: a shared one") {
    mr = t.b.make_mr(t.pages.at, kPage, WiredPair::kRemote);
    const rnicdv_mr_init again{.iova = t.pages.page(0), .access = kLocal, .key = 1};
    REQUIRE(rnicdv_reg_shared_mr(mr, t.b.pd, &again) != nullptr);
    reason = RNIC_WC_STAG_NOT_INVALID;
  }
  SECTION("V-CS-15: a page of no size that there is") {
    list.page_size = 2048;
    reason = RNIC_WC_INVALID_PAGE_SIZE;
  }
  SECTION("V-CS-21: a list longer than the STag has room for") {
    for (std::size_t i = 0; i < 5; ++i) t.order.push_back(t.pages.page(i));
    list = t.list();
    reason = RNIC_WC_PBL_TOO_LONG;
  }
  SECTION("V-CS-17: a page that is none") {
    t.order[1] += 512;
    reason = RNIC_WC_INVALID_PBL_ENTRY;
  }
  SECTION("V-CS-18: a first octet behind the first page") {
    list.first_offset = kPage;
    reason = RNIC_WC_INVALID_FBO;
  }
  SECTION("V-CS-19: more than the pages hold") {
    ++list.length;
    reason = RNIC_WC_INVALID_FR_LENGTH;
  }
  SECTION("V-CS-22: an address that is not as far in its page") {
    init.iova += 4;
    reason = RNIC_WC_INVALID_VA;
  }
  SECTION("V-CS-20: a remote right without the local one") {
    init.access = RNICDV_LOCAL_READ | RNICDV_REMOTE_WRITE;
    reason = RNIC_WC_INVALID_FR_ACCESS;
  }
  SECTION("V-CS-20: no right at all") {
    init.access = 0;
    reason = RNIC_WC_INVALID_FR_ACCESS;
  }
  SECTION("V-MR-17: a remote right, and the Remote Access Flag is off") {
    mr = t.allocate(4, RNICDV_NO_REMOTE);
    reason = RNIC_WC_INVALID_FR_ACCESS;
  }
  SECTION("V-CS-09: another protection domain") {
    ibv_pd* other = provider::alloc_pd(context_of(t.b));
    std::uint32_t room = 4;
    other->context = context_of(t.b);
    mr = rnicdv_alloc_stag(other, &room, 0);
    reason = RNIC_WC_INVALID_PD;
    status = IBV_WC_LOC_PROT_ERR;
  }
  SECTION("V-CS-06: an STag that there is not any more") {
    static ibv_mr gone;
    gone = *mr;
    REQUIRE(provider::dereg_mr(mr) == 0);
    static provider::Mr copy;
    copy.ibv = gone;
    mr = &copy.ibv;
    reason = RNIC_WC_INVALID_STAG;
    status = IBV_WC_LOC_PROT_ERR;
  }
  REQUIRE(Privileged::post(qp, mr, list, init) == 0);
  const ibv_wc wc = poll(cq, 1)[0];
  CHECK(wc.wr_id == 5);
  CHECK(wc.vendor_err == reason);
  CHECK(wc.status == status);
  CHECK(comes_true([&] { return direct_of(qp).state == RNICDV_QPS_ERROR; }));
}

TEST_CASE("V-MR-17: an STag without the Remote Access Flag is registered for its owner",
          "[wired][rnicdv][V-MR-17][V-MR-03]") {
  Privileged t;
  ibv_mr* mr = t.allocate(4, RNICDV_NO_REMOTE);
  t.registers(mr, t.list(), {.iova = kBase, .access = kLocal, .key = 9});
  CHECK(direct_of(t.b, mr->rkey).remote_access == 0);
  is_refused(t, kBase, mr->rkey);
  // With it, with remote rights or without.
  ibv_mr* with = t.allocate();
  t.registers(with, t.list(), {.iova = kBase, .access = kLocal, .key = 9});
  CHECK(direct_of(t.b, with->rkey).remote_access == 1);
  t.invalidates(with->rkey);
  t.registers(with, t.list(), kInit);
  goes_through(t, kBase, with->rkey, 'x', 8);
}

TEST_CASE("V-MR-16: private pages that lie apart are not posted, and nothing of the batch is",
          "[wired][rnicdv][V-MR-16][V-PBL-10]") {
  Privileged t;
  ibv_mr* mr = t.allocate();
  Pages own(3, MAP_PRIVATE);
  const std::vector<std::uint64_t> apart{own.page(2), own.page(0)}, together{own.page(0), own.page(1)};
  CHECK(Privileged::post(t.qp, mr, list_of(apart, 0, kPage), kInit) == EOPNOTSUPP);
  CHECK(direct_of(t.b, mr->rkey).valid == 0);
  t.registers(mr, list_of(together, 0, 2 * kPage), kInit);
  goes_through(t, kBase + kPage, mr->rkey, 'y', 8);
  CHECK(own.at[kPage] == 'y');
  t.end();
}

TEST_CASE("V-RD-06: a Read with Invalidate places what it read, and then its sink is Invalid",
          "[wired][rnicdv][V-RD-06]") {
  Privileged t;
  const rnicdv_mr_init init{
      .iova = t.pages.page(0), .access = kLocal | RNICDV_REMOTE_WRITE | RNICDV_REMOTE_READ, .key = 0x21};
  ibv_mr* mr = rnicdv_reg_mr(t.b.pd, t.pages.at, kPage, &init);
  std::fill_n(t.end_a.memory.begin(), 100, 'i');
  ibv_qp_ex* ex = &provider::of(t.qp).ex;
  ex->wr_start(ex);
  ex->wr_id = 6;
  ex->wr_flags = IBV_SEND_SIGNALED;
  rnicdv_wr_rdma_read_inv(ex, t.end_a.mr->rkey, t.end_a.remote().address);
  ex->wr_set_sge(ex, mr->lkey, t.pages.page(0), 100);
  REQUIRE(ex->wr_complete(ex) == 0);
  const ibv_wc wc = poll(t.cq, 1)[0];
  CHECK(wc.wr_id == 6);
  CHECK(wc.status == IBV_WC_SUCCESS);
  CHECK(wc.opcode == IBV_WC_RDMA_READ);
  CHECK(std::string(t.pages.at, 100) == std::string(100, 'i'));
  CHECK(direct_of(t.b, mr->rkey).valid == 0);
  is_refused(t, t.pages.page(0), mr->rkey);
  // Two sinks it has not.
  const ibv_sge two[2] = {{t.pages.page(0), 8, mr->lkey}, {t.pages.page(0), 8, mr->lkey}};
  ex->wr_start(ex);
  ex->wr_id = 7;
  rnicdv_wr_rdma_read_inv(ex, t.end_a.mr->rkey, t.end_a.remote().address);
  ex->wr_set_sge_list(ex, 2, two);
  CHECK(ex->wr_complete(ex) == EINVAL);
}

namespace {

constexpr int kAtomicRemote = oob::kRemote | IBV_ACCESS_REMOTE_ATOMIC;

// Two devices of this.
std::string two(const char* device) {
  std::string text = "sched_fifo = false\n";
  for (const char* host : {"1", "2"})
    text += std::string("[[device]]\nport = \"pair:m\"\naddress = \"127.0.9.") + host + "/24\"\n" + device;
  return text;
}
constexpr const char* kWire = "oob_connect = true\nextensions = true\nlocal = \"wire\"\n";
constexpr const char* kDirect = "oob_connect = true\nextensions = true\nlocal = \"direct\"\n";
constexpr const char* kRoce = "face = \"roce\"\n";
constexpr const char* kPlain = "oob_connect = true\nextensions = false\n";

// Atomic operations on a word of y's, whose results come to words of x's.
struct Masked : oob::TwoEnds {
  explicit Masked(const char* device) : TwoEnds(two(device).c_str()) {
    auto init = init_of(a, x.cq, x.cq);
    REQUIRE(provider::destroy_qp(x.qp) == 0);
    x.qp = rnicdv_create_qp(context_of(a), &init, nullptr);
    REQUIRE(x.qp != nullptr);
    ex = &provider::of(x.qp).ex;
    word_mr = b.make_mr(y.memory.data(), 64, kAtomicRemote);
    REQUIRE(word_mr != nullptr);
    for (oob::End* end : {&x, &y}) {
      oob::End& peer = end == &x ? y : x;
      ibv_qp_attr idle = end->init();
      idle.qp_access_flags = kAtomicRemote;
      REQUIRE(end->modify(idle, oob::kInitMask) == 0);
      REQUIRE(end->to_rtr(peer) == 0);
      REQUIRE(end->to_rts() == 0);
    }
  }
  ~Masked() { provider::dereg_mr(word_mr); }
  static std::uint64_t& word(oob::End& end, std::size_t i) {
    return reinterpret_cast<std::uint64_t*>(end.memory.data())[i];
  }
  std::uint64_t& theirs() { return word(y, 0); }
  std::uint64_t& mine(std::size_t i) { return word(x, i); }
  std::uint64_t there() const { return reinterpret_cast<std::uintptr_t>(y.memory.data()); }
  std::uint32_t key() const { return word_mr->rkey; }
  void start(std::uint64_t wr_id) {
    ex->wr_start(ex);
    name(wr_id);
  }
  void name(std::uint64_t wr_id) const {
    ex->wr_id = wr_id;
    ex->wr_flags = IBV_SEND_SIGNALED;
  }
  ibv_sge place(std::size_t i) const { return sge_of(x.mr, x.memory.data() + 8 * i, 8); }
  void set(std::size_t i) const { ex->wr_set_sge(ex, place(i).lkey, place(i).addr, 8); }
  void done(std::uint64_t wr_id, ibv_wc_opcode opcode) {
    const ibv_wc wc = poll(x.cq, 1)[0];
    CHECK(wc.wr_id == wr_id);
    CHECK(wc.status == IBV_WC_SUCCESS);
    CHECK(wc.opcode == opcode);
    CHECK(wc.byte_len == 8);
  }
  // Messages that went without the wire.
  std::uint64_t direct() {
    std::uint64_t count = 0;
    at_daemon([&](control::Machine& machine, control::Server&) {
      control::Qp& qp = *machine.qps.at(x.qp->qp_num);
      qp.context->device().first().worker->call([&](Instant) { count = qp.qp->counters().direct_out; });
    });
    return count;
  }
  ibv_qp_ex* ex = nullptr;
  ibv_mr* word_mr = nullptr;
};

}  // namespace

TEST_CASE("W-EXT-02: atomic operations with masks, over the wire, without it, and on a RoCE face",
          "[wired][rnicdv][W-EXT-02][W-EXT-05][W-EXT-10]") {
  const char* const device = GENERATE(kWire, kDirect, kRoce);
  Masked t(device);
  oob::passes(t.x, t.y, 100);
  oob::passes(t.y, t.x, 200);
  const std::uint64_t before = t.direct();
  t.theirs() = 0x00000007'FFFFFFFF;
  // A batch: with masks, without, with others.
  t.start(1);
  rnicdv_wr_masked_fetch_add(t.ex, t.key(), t.there(), 0xFFFFFFFF'00000002, 0x80000000'80000000);
  t.set(0);
  t.name(2);
  t.ex->wr_atomic_fetch_add(t.ex, t.key(), t.there(), 0x00000000'FFFFFFFF);
  t.set(1);
  t.name(3);
  rnicdv_wr_masked_cmp_swp(t.ex, t.key(), t.there(), 0xAAAAAA00, 0xFF, 0x12345678, 0xFFFF0000);
  t.set(2);
  t.name(4);
  t.ex->wr_atomic_cmp_swp(t.ex, t.key(), t.there(), 0x00000007'12340000, 0x00000007'00000001);
  t.set(3);
  t.name(5);
  rnicdv_wr_masked_cmp_swp(t.ex, t.key(), t.there(), 0, 1, 0, UINT64_MAX);  // not equal
  t.set(4);
  t.name(6);
  rnicdv_wr_masked_cmp_swp(t.ex, t.key(), t.there(), 5, 0, 0x99, UINT64_MAX);  // whatever it was
  t.set(5);
  REQUIRE(t.ex->wr_complete(t.ex) == 0);
  t.done(1, IBV_WC_FETCH_ADD);
  t.done(2, IBV_WC_FETCH_ADD);
  for (std::uint64_t id = 3; id <= 6; ++id) t.done(id, IBV_WC_COMP_SWAP);
  CHECK(t.mine(0) == 0x00000007'FFFFFFFF);
  CHECK(t.mine(1) == 0x00000006'00000001);
  CHECK(t.mine(2) == 0x00000007'00000000);
  CHECK(t.mine(3) == 0x00000007'12340000);
  CHECK(t.mine(4) == 0x00000007'00000001);
  CHECK(t.mine(5) == 0x00000007'00000001);
  CHECK(t.theirs() == 0x99);
  CHECK((t.direct() != before) == (device != kWire));
}

TEST_CASE("W-EXT-02: what cannot be of an atomic operation with masks is told at its post, and nothing is posted",
          "[wired][rnicdv][W-EXT-02][W-EXT-14]") {
  const bool extended = GENERATE(true, false);
  Masked t(extended ? kWire : kPlain);
  t.theirs() = 5;
  const int expected = extended ? EINVAL : EOPNOTSUPP;
  const auto refused = [&](const auto& set) {
    for (const bool adds : {true, false}) {
      t.start(1);
      if (adds)
        rnicdv_wr_masked_fetch_add(t.ex, t.key(), t.there(), 1, 0);
      else
        rnicdv_wr_masked_cmp_swp(t.ex, t.key(), t.there(), 0, 0, 1, 1);
      set();
      CHECK(t.ex->wr_complete(t.ex) == expected);
    }
  };
  // Nowhere for the result, and two places; or any, of a device without.
  refused([] {});
  const ibv_sge places[2] = {t.place(0), t.place(1)};
  refused([&] { t.ex->wr_set_sge_list(t.ex, 2, places); });
  if (!extended) refused([&] { t.set(0); });
  // The queue pair is as good as before, and the word as it was.
  t.start(2);
  t.ex->wr_rdma_read(t.ex, t.key(), t.there());
  t.set(0);
  REQUIRE(t.ex->wr_complete(t.ex) == 0);
  t.done(2, IBV_WC_RDMA_READ);
  CHECK(t.mine(0) == 5);
}

TEST_CASE("W-EXT-04: an atomic operation with masks that the peer does not let ends its queue pair as one without",
          "[wired][rnicdv][W-EXT-03][W-EXT-04]") {
  Masked t(kWire);
  t.theirs() = 5;
  t.start(1);
  ibv_wc_status status = IBV_WC_REM_ACCESS_ERR;
  SECTION("an address that is not aligned") {
    rnicdv_wr_masked_fetch_add(t.ex, t.key(), t.there() + 4, 1, 0);
    status = IBV_WC_REM_INV_REQ_ERR;
  }
  SECTION("no right") {
    ibv_mr* readable = t.b.make_mr(t.y.memory.data(), 64, oob::kRemote);
    rnicdv_wr_masked_cmp_swp(t.ex, readable->rkey, t.there(), 0, 0, 1, 1);
  }
  t.set(0);
  REQUIRE(t.ex->wr_complete(t.ex) == 0);
  const ibv_wc wc = poll(t.x.cq, 1)[0];
  CHECK(wc.wr_id == 1);
  CHECK(wc.status == status);
  CHECK(t.theirs() == 5);
}
