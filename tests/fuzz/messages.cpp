// DDP segments and RDMAP messages into a queue pair that works: a program of what the peer says, in
// FPDUs that are good or not, and of what the application posts meanwhile. TCP's own input is
// others' subject: segments arrive in order, and all of ours are acknowledged.
#include <memory>

#include "fuzz/golden.hpp"
#include "fuzz/guarded_pool.hpp"
#include "fuzz/ulpdu.hpp"
#include "qp/queue_pair.hpp"
#include "sim/rnic.hpp"
#include "tcp/connection.hpp"
#include "wire/acknowledge.hpp"
#include "wire/rdmap.hpp"

namespace rnic::fuzz {

namespace {

constexpr std::uint32_t kBuffers = 96;

tcp::Options small() {
  tcp::Options options;
  options.send_segments_max = options.receive_segments_max = 64;
  options.out_of_order_segments_max = 16;
  options.receive_window_bytes = 64 * 1024;
  return options;
}

class LivePair {
 public:
  explicit LivePair(Input& input) : input_(input) {
    const unsigned choice = input.u8(), more = input.u8();
    mover_ = std::make_unique<test::PlainMover>((choice & 1) != 0 ? test::Moves::late : test::Moves::direct, more);
    memory_ = std::make_unique<Memory>(table_);
    qp::Config config;
    config.number = {7};
    config.pd = config.receive_pd = kPd;
    config.access = tpt::Rights::remote_read | tpt::Rights::remote_write | tpt::Rights::remote_atomic;
    config.ird = config.ord = 2;
    config.send_depth = 16;
    config.extensions = (choice & 2) != 0;
    config.hold_without_receive = (choice & 4) == 0;
    config.held_bytes_max = 2048;
    start_.initiator = (choice & 8) != 0;
    start_.crc = (choice & 16) != 0 ? mpa::Crc::off : mpa::Crc::on;
    start_.markers_in = (choice & 32) != 0 ? mpa::Markers::expected : mpa::Markers::none;
    start_.markers_out = (choice & 64) != 0;
    start_.peer_to_peer = (choice & 128) != 0;
    start_.rtr = static_cast<qp::Start::Rtr>((choice & 128) != 0 ? more & 3 : 0);
    start_.ird = start_.ord = 2;
    start_.acknowledged = (more & 128) != 0;
    if (start_.acknowledged) {
      config.face = Face::roce;
      config.extensions = true;
      // Half a second; 20 ms, or for ever.
      config.patience = {.timeout = 14,
                         .retry_count = 1,
                         .rnr_retry = static_cast<std::uint8_t>(more & 8 ? 7 : 1),
                         .min_rnr_timer = 20};
    }
    packer_ = std::make_unique<mpa::Packer>(start_.crc, start_.markers_in);
    qp_ = std::make_unique<qp::QueuePair>(config, host_, table_, *mover_, pool_, scratch_);
    open();
    qp_->attach(tcp_, start_, now_);
    turn();
  }

  void run() {
    for (unsigned acts = 0; acts < 200 && !input_.empty(); ++acts) {
      act();
      turn();
      check();
    }
    // Time decides what is still open: a first FPDU that never comes, a receive that is never
    // posted, a close that is not answered.
    for (int i = 0; i < 8; ++i) {
      now_ = now_ + seconds(8);
      turn();
      check();
    }
    qp_->detach(now_);
    tcp_.abort(now_);
    while (tcp_.next_segment(now_)) {
    }
    qp_.reset();
    tcp_.consume(tcp_.received() - tcp_.consumed());
    FUZZ_CHECK(pool_.available() + held_by_tcp() == kBuffers);
  }

 private:
  void open() {
    tcp_.open_active({1000});
    FUZZ_CHECK(tcp_.next_segment(now_).has_value());
    const tcp::Options options = small();
    const tcp::Handshake handshake = tcp::agree(wire::TcpHeader{.sequence = 1000,
                                                                .flags = wire::tcp_flags::kSyn,
                                                                .window = 65535,
                                                                .sack_permitted = true,
                                                                .mss = 1460,
                                                                .window_scale = 4},
                                                options, {kPeerInitial}, 0);
    tcp_.on_segment({tcp::syn_ack(handshake, options, now_), {}, {}}, now_);
    FUZZ_CHECK(tcp_.established());
    carry_out();
  }

  std::uint32_t held_by_tcp() {
    // After abort() nothing is held; consume() above has given back the rest.
    return 0;
  }

  void act() {
    switch (input_.below(16)) {
      case 0:
      case 1:
      case 2:
      case 3:
        say(fpdu_of(*packer_, next_ulpdu()));
        break;
      case 4: {  // no FPDU at all
        const Bytes octets = input_.take(input_.below(64));
        say({octets.begin(), octets.end()});
        break;
      }
      case 5: {  // one with an octet spoilt
        Octets fpdu = fpdu_of(*packer_, next_ulpdu());
        fpdu[input_.u16() % fpdu.size()] ^= static_cast<std::byte>(input_.u8());
        say(fpdu);
        break;
      }
      case 6:
      case 7:
        post_receive();
        break;
      case 8:
        post(qp::Opcode::send);
        break;
      case 9:
        post(qp::Opcode::write);
        break;
      case 10:
        post(qp::Opcode::read);
        break;
      case 11:
        post(static_cast<qp::Opcode>(input_.below(13)));
        break;
      case 12:
        now_ = now_ + milliseconds(1 << input_.below(15));
        break;
      case 13: {
        wire::TcpHeader header;
        header.flags = input_.flag() ? wire::tcp_flags::kRst : wire::tcp_flags::kFin;
        say_segment(header, {});
        break;
      }
      case 14:
        (void)qp_->modify_state(static_cast<qp::State>(1 + input_.below(4)), now_);
        break;
      case 15:
        if (input_.flag())
          acknowledges_ = !acknowledges_;
        else
          host_.room = host_.completions.size() + input_.below(4);
        break;
    }
  }

  void post_receive() {
    if (host_.receives.size() > 16) return;
    qp::ReceiveRequest request;
    request.slot = next_receive_++;
    request.sge_count = static_cast<std::uint8_t>(input_.below(3));
    for (unsigned i = 0; i < request.sge_count; ++i) request.sges[i] = sge();
    host_.receives.push_back(request);
    qp_->receive_posted();
  }

  void post(qp::Opcode opcode) {
    if (host_.sends.size() > 16) return;
    qp::WorkRequest request;
    const unsigned bits = input_.u8();
    request.opcode = opcode;
    request.slot = next_send_++;
    request.signaled = (bits & 1) == 0;
    request.fence = (bits & 2) != 0;
    request.solicited = (bits & 4) != 0;
    request.sge_count = static_cast<std::uint8_t>(bits >> 3 & 3);
    for (unsigned i = 0; i < request.sge_count; ++i) request.sges[i] = sge();
    request.remote_stag = {input_.u32()};
    request.remote_to = input_.u16();
    request.invalidate = memory_->stag(bits >> 5);
    host_.sends.push_back(request);
    qp_->work_posted();
  }

  qp::Sge sge() {
    const unsigned region = input_.below(5);
    const std::uint32_t at = input_.u16() % (Memory::kSize + 2), length = input_.u16() % (Memory::kSize + 2);
    return {memory_->address(region) + at, length, region == 4 ? Stag{0xFFFF0000} : memory_->stag(region)};
  }

  // A peer knows from its Request the STag that a Read has of its own (V-RD-03). So a Read Response to the
  // region that has no Remote Write names that one: of the first such Read, and from its last segment on
  // of the next.
  Octets next_ulpdu() {
    Octets ulpdu = take_ulpdu(input_, *memory_);
    const auto header = wire::parse_tagged(ulpdu);
    if (!header || header->stag != memory_->stag(Memory::local) ||
        wire::rdmap_opcode(header->rdmap_control) != wire::RdmapOpcode::read_response)
      return ulpdu;
    tpt::ReadStags stags{.stream = 0, .count = answered_};
    const auto sink =
        table_.check_read_sink(header->stag, kPd, {7}, tpt::Rights::none, memory_->address(Memory::local), 1, stags);
    if (sink) store_be(MutableBytes(ulpdu), 2, sink->stag.value);
    if (header->last) ++answered_;
    return ulpdu;
  }

  // In segments of TCP, of whatever size.
  void say(const Octets& octets) {
    Bytes left = octets;
    do {
      const Bytes piece = left.first(std::min<std::size_t>(left.size(), 1400));
      left = left.subspan(piece.size());
      say_segment({}, piece);
    } while (!left.empty());
  }
  void say_segment(wire::TcpHeader header, Bytes payload) {
    BufferRef buffer = BufferRef::take(pool_);
    if (!buffer) return;
    if (!payload.empty())
      std::memcpy(buffer->append(static_cast<std::uint32_t>(payload.size())).data(), payload.data(), payload.size());
    GuardedPool::hide_tail(*buffer);
    header.flags |= wire::tcp_flags::kAck;
    header.sequence = kPeerInitial + 1 + said_;
    header.acknowledgement = acknowledged_;
    header.window = 65535;
    const std::uint64_t before = tcp_.received();
    const Bytes octets = buffer->bytes();
    tcp_.on_segment({header, std::move(buffer), octets}, now_);
    tcp_.end_of_burst();
    said_ += static_cast<std::uint32_t>(tcp_.received() - before);
  }

  bool carry_out() {
    bool any = false;
    while (const auto out = tcp_.next_segment(now_)) {
      any = true;
      const auto end = out->header.sequence + static_cast<std::uint32_t>(out->payload.size()) +
                       (out->header.has(wire::tcp_flags::kFin | wire::tcp_flags::kSyn) ? 1 : 0);
      if (tcp::Seq{end}.after({sent_})) sent_ = end;
    }
    if (acknowledges_ && acknowledged_ != sent_) {
      acknowledged_ = sent_;
      say_segment({}, {});
      any = true;
    }
    return any;
  }

  void turn() {
    for (unsigned quiet = 0, n = 0; quiet < 3; ++n) {
      FUZZ_CHECK(n < 5000);  // it never comes to rest
      bool busy = qp_->receive(now_);
      mover_->flush();
      busy |= qp_->settle(now_);
      busy |= qp_->transmit(now_, 1u << 16);
      mover_->flush();
      busy |= qp_->settle(now_);
      busy |= carry_out();
      quiet = busy || !mover_->idle() ? 0 : quiet + 1;
    }
  }

  void check() {
    memory_->check();
    // Each work request and each receive completes once at most, and in the order of posting.
    for (; seen_ < host_.completions.size(); ++seen_) {
      const qp::Completion& completion = host_.completions[seen_];
      std::uint32_t& next = completion.of_send_queue ? next_sent_ : next_received_;
      FUZZ_CHECK(completion.slot >= next && (completion.of_send_queue || completion.slot == next));
      FUZZ_CHECK(completion.slot < (completion.of_send_queue ? next_send_ : next_receive_));
      next = completion.slot + 1;
      if (completion.status == qp::Status::success) FUZZ_CHECK(qp_->state() != qp::State::idle);
    }
  }

  static constexpr std::uint32_t kPeerInitial = 0xFFFFF000;

  Input& input_;
  Instant now_{seconds(1000).ns};
  GuardedPool pool_{kBuffers, 1536};
  tpt::Table table_{16, 1};
  std::unique_ptr<test::PlainMover> mover_;
  qp::Scratch scratch_;
  std::unique_ptr<Memory> memory_;
  test::QueueHost host_;
  qp::Start start_;
  tcp::Connection tcp_{small()};
  std::unique_ptr<mpa::Packer> packer_;
  std::unique_ptr<qp::QueuePair> qp_;
  std::uint32_t said_ = 0, sent_ = 1001, acknowledged_ = 1001;
  bool acknowledges_ = true;
  std::uint32_t next_send_ = 0, next_receive_ = 0, next_sent_ = 0, next_received_ = 0;
  std::size_t seen_ = 0;
  std::uint64_t answered_ = 0;
};

}  // namespace

void run_messages(Bytes octets) {
  Input input(octets);
  LivePair(input).run();
}

std::vector<Octets> seeds_messages() {
  std::vector<Octets> seeds;
  const auto say = [](Program& program, unsigned patch, const Octets& ulpdu) -> Program& {
    return program.u8(0).u8(patch).sized(ulpdu);
  };
  const auto receive = [](Program& program) -> Program& {
    return program.u8(6).u8(1).u8(Memory::local).u16(0).u16(2000);
  };
  for (const unsigned choice : {0u, 1u, 2u, 4u, 10u, 16u, 34u, 64u, 136u}) {
    const auto begin = [&] { return Program().u8(choice).u8(1); };
    for (const auto text : kGoldenFpdus) {
      const Octets fpdu = test::hex(text);
      Program program = begin();
      receive(program);
      say(program, 0, {fpdu.begin() + 2, fpdu.begin() + 2 + load_be<std::uint16_t>(fpdu, 0)});
      seeds.push_back(program.octets());
    }
    const Octets payload = test::pattern(100);
    Program writes = begin();
    say(writes, 1, tagged(0, false, 0, payload));
    say(writes, 1, tagged(0, true, 100, payload));
    say(writes, 1, tagged(0, true, 4090, payload));
    seeds.push_back(writes.octets());

    Program sends = begin();
    receive(receive(sends));
    say(sends, 0, untagged(3, false, 0, 1, 0, payload));
    say(sends, 0, untagged(3, true, 0, 1, 100, payload));
    say(sends, 0, untagged(5, true, 0, 2, 0, payload));
    say(sends, 0, untagged(3, true, 0, 3, 0, payload));
    receive(sends);
    seeds.push_back(sends.octets());

    Octets request(wire::ReadRequestHeader::kSize);
    wire::emit(wire::ReadRequestHeader{.sink_stag = {9}, .sink_to = 0, .size_bytes = 3000}, request);
    Program reads = begin();
    say(reads, 2 | 1 << 4, untagged(1, true, 1, 1, 0, request));
    say(reads, 2 | 1 << 4, untagged(1, true, 1, 2, 0, request));
    say(reads, 2 | 1 << 4, untagged(1, true, 1, 3, 0, request));
    seeds.push_back(reads.octets());

    Program own = begin();
    own.u8(10).u8(1 << 3).u8(Memory::both).u16(0).u16(200).u32(77).u16(0);
    say(own, 1, tagged(2, false, 0, payload));
    say(own, 1, tagged(2, true, 100, payload));
    own.u8(8).u8(1 << 3).u8(Memory::local).u16(8).u16(3000).u32(0).u16(0);
    own.u8(9).u8(2 << 3).u8(0).u16(0).u16(50).u8(1).u16(9).u16(90).u32(0x1234).u16(77);
    seeds.push_back(own.octets());

    Program local = begin();
    for (int i = 0; i < 2; ++i) {
      local.u8(10).u8(1 << 3).u8(Memory::local).u16(0).u16(200).u32(77).u16(0);
      say(local, 1 | Memory::local << 2, tagged(2, false, 0, payload));
      say(local, 1 | Memory::local << 2, tagged(2, true, 100, payload));
    }
    seeds.push_back(local.octets());

    Octets atomic(52);
    store_be<std::uint32_t>(atomic, 0, 0);
    store_be<std::uint32_t>(atomic, 4, 42);
    Program atomics = begin();
    say(atomics, 3, untagged(10, true, 1, 1, 0, atomic));
    seeds.push_back(atomics.octets());

    Program ends = begin();
    say(ends, 0, untagged(7, true, 2, 1, 0, test::hex("1101c000002ec140dead00010000000000009000")));
    seeds.push_back(ends.octets());
    seeds.push_back(begin().u8(14).u8(1).u8(12).u8(10).u8(13).u8(0).octets());
    seeds.push_back(begin().u8(13).u8(1).octets());
  }
  for (const unsigned choice : {0u, 1u, 34u, 136u}) {
    // Of acknowledged streams.
    const auto begin = [&] { return Program().u8(choice).u8(128 | 1); };
    const auto acknowledge = [&](std::uint32_t msn, const wire::AcknowledgeHeader& said) {
      Octets body(wire::AcknowledgeHeader::kSize);
      wire::emit(said, body);
      return untagged(12, true, 4, msn, 0, body);
    };
    const auto refuse = [&](std::uint32_t msn, const wire::NegativeAcknowledgeHeader& said) {
      Octets body(wire::NegativeAcknowledgeHeader::kSize);
      wire::emit(said, body);
      return untagged(13, true, 4, msn, 0, body);
    };
    const auto send = [](Program& program) -> Program& {
      return program.u8(8).u8(1 << 3).u8(Memory::local).u16(0).u16(100).u32(0).u16(0);
    };
    const Octets payload = test::pattern(100);
    Program told = begin();
    send(send(send(told)));
    say(told, 0, acknowledge(1, {.performed = 1}));
    say(told, 0, acknowledge(2, {.performed = 1, .waits = true, .timer = 12}));
    told.u8(12).u8(4);
    say(told, 0, acknowledge(4, {.performed = 2}));
    say(told, 0, acknowledge(5, {.performed = 3}));
    say(told, 0, acknowledge(6, {.performed = 4}));
    seeds.push_back(told.octets());

    Program late = begin();
    send(send(late));
    say(late, 0, acknowledge(1, {.performed = 0, .waits = true, .timer = 30}));
    late.u8(12).u8(14);
    seeds.push_back(late.octets());

    Program refused = begin();
    send(send(refused));
    refused.u8(9).u8(1 << 3).u8(0).u16(0).u16(50).u32(0x1234).u16(77);
    say(refused, 0, acknowledge(1, {.performed = 1}));
    say(refused, 0, refuse(2, {.request = 2, .code = 0x1101}));
    seeds.push_back(refused.octets());

    // Those that wait for receives, with values and without, and what comes behind them.
    Program values = begin();
    receive(values);
    for (std::uint32_t msn = 1; msn < 4; ++msn) {
      say(values, 0, untagged(14, false, 0, msn, 0, payload));
      say(values, 0, untagged(msn == 1 ? 14 : 15, true, 0, msn, 100, payload));
    }
    say(values, 1, tagged(0, true, 0, payload));
    say(values, 0, acknowledge(1, {.performed = 0}));
    receive(receive(values));
    seeds.push_back(values.octets());

    Program own = begin();
    own.u8(11).u8(11).u8(1 << 3).u8(Memory::local).u16(0).u16(100).u32(0).u16(0);
    own.u8(10).u8(2 << 3).u8(Memory::both).u16(0).u16(60).u8(Memory::local).u16(0).u16(40).u32(77).u16(0);
    say(own, 0, acknowledge(1, {.performed = 1}));
    say(own, 1, tagged(2, true, 0, test::pattern(60)));
    say(own, 1 | Memory::local << 2, tagged(2, true, 0, test::pattern(40)));
    say(own, 0, acknowledge(2, {.performed = 3}));
    seeds.push_back(own.octets());
  }
  return seeds;
}

}  // namespace rnic::fuzz
