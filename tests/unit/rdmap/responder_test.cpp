// What comes in, message by message: sequence numbers, depths, what waits for a receive, and the order of deliveries.

#include "rdmap/responder.hpp"

#include "kit/catch.hpp"
#include "kit/rdmap_end.hpp"
#include "wire/acknowledge.hpp"

using namespace rnic;
using namespace rnic::test;
using rdmap::Fault;
using rdmap::Status;

namespace {

constexpr std::uint8_t kWrite = 0, kReadResponse = 2, kSend = 3, kSendInvalidate = 4, kTerminate = 7, kImmediate = 8;

Octets send_of(std::uint32_t msn, const Octets& payload = {}) { return untagged(kSend, true, 0, msn, 0, payload); }
Octets request_of(std::uint32_t msn, const Region& source, std::uint32_t size) {
  return read_request(msn,
                      {.sink_stag = {7}, .size_bytes = size, .source_stag = source.stag, .source_to = source.base});
}

}  // namespace

// ---- sequence numbers ----------------------------------------------------------------------------------

TEST_CASE("W-DDP-05: Sends are numbered from 1, and each number is taken once", "[rdmap][W-DDP-05]") {
  End end;
  for (int i = 0; i < 3; ++i) end.post_receive();
  CHECK(end.hear(send_of(1)));
  CHECK(end.hear(send_of(2)));
  CHECK(end.receives_completed() == std::vector<std::uint32_t>{0, 1});
  CHECK_FALSE(end.fault);
  SECTION("a number that was had is out of range") {
    end.hear(send_of(2));
    CHECK(end.fault == Fault::receive_msn_range);
  }
  SECTION("one ahead is a gap") {
    end.hear(send_of(4));
    CHECK(end.fault == Fault::receive_msn_gap);
  }
  SECTION("the last number that is a gap, and the first that is not") {
    const std::uint32_t msn = GENERATE(3u + 0x7FFF'FFFF, 3u + 0x8000'0000);
    end.hear(send_of(msn));
    CHECK(end.fault == (msn == 3u + 0x7FFF'FFFF ? Fault::receive_msn_gap : Fault::receive_msn_range));
  }
  CHECK(end.receives_completed().size() == 2);
}

TEST_CASE("W-DDP-07: a Send's segments follow each other without a gap", "[rdmap][W-DDP-07][W-DDP-13]") {
  End end;
  Region& buffer = end.region(64);
  end.post_receive({End::sge(buffer, 0, 64)});
  CHECK(end.hear(untagged(kSend, false, 0, 1, 0, filled(16))));
  CHECK(end.app.completions.empty());
  SECTION("the next octet: delivered with its last segment, in its whole length") {
    CHECK(end.hear(untagged(kSend, true, 0, 1, 16, filled(8))));
    REQUIRE(end.app.completions.size() == 1);
    CHECK(end.app.completions[0].length == 24);
    CHECK_FALSE(end.fault);
  }
  SECTION("not the next octet") {
    const std::uint32_t offset = GENERATE(0u, 15u, 17u);
    end.hear(untagged(kSend, true, 0, 1, offset, filled(8)));
    CHECK(end.fault == Fault::receive_offset);
    CHECK(end.app.completions.empty());
  }
}

TEST_CASE("W-EXT-11: an Immediate stands between messages and in none", "[rdmap][W-EXT-11][W-EXT-13]") {
  End end(with([](rdmap::Settings& s) { s.extensions = true; }));
  Region& buffer = end.region(64);
  end.post_receive({End::sge(buffer, 0, 64)});
  end.post_receive();
  SECTION("between two") {
    CHECK(end.hear(untagged(kImmediate, true, 0, 1, 0, filled(8))));
    REQUIRE(end.app.completions.size() == 1);
    CHECK(end.app.completions[0].immediate);
    CHECK(buffer.memory == std::vector<std::byte>(64));
  }
  SECTION("within a Send") {
    end.hear(untagged(kSend, false, 0, 1, 0, filled(8)));
    end.hear(untagged(kImmediate, true, 0, 1, 8, filled(8)));
    CHECK(end.fault == Fault::unexpected_opcode);
  }
  SECTION("of another size") {
    end.hear(untagged(kImmediate, true, 0, 1, 0, filled(GENERATE(7u, 9u))));
    CHECK(end.fault == Fault::immediate_size);
  }
}

// ---- Reads that the peer asks for ------------------------------------------------------------------------

TEST_CASE("V-IRD-02: as many Requests as IRD are kept, and not one more", "[rdmap][W-RDMAP-13]") {
  End end(with([](rdmap::Settings& s) { s.ird = 2; }));
  Region& source = end.region(64, 3);
  CHECK(end.hear(request_of(1, source, 8)));
  CHECK(end.hear(request_of(2, source, 8)));
  CHECK(end.reads.owed() == 2);
  CHECK_FALSE(end.fault);
  SECTION("one more") {
    end.hear(request_of(3, source, 8));
    CHECK(end.fault == Fault::read_too_many);
  }
  SECTION("a place is free when a Response is generated") {
    CHECK(end.say().size() == 2);
    CHECK(end.hear(request_of(3, source, 8)));
    CHECK_FALSE(end.fault);
  }
  SECTION("a number ahead is a gap within IRD, and out of range from there on") {
    const std::uint32_t msn = GENERATE(4u, 5u);
    end.hear(request_of(msn, source, 8));
    CHECK(end.fault == (msn == 4 ? Fault::read_msn_gap : Fault::read_msn_range));
  }
}

TEST_CASE("W-RDMAP-10: Requests are answered in their order, with the octets that they name", "[rdmap][W-RDMAP-10]") {
  End end;
  Region& source = end.region(64, 3);
  end.hear(request_of(1, source, 8));
  end.hear(request_of(2, source, 16));
  end.hear(request_of(3, source, 0));
  const auto said = end.say();
  REQUIRE(said.size() == 3);
  const std::uint32_t sizes[] = {8, 16, 0};
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(said[i] ==
          tagged(kReadResponse, true, {7}, 0, Octets(source.memory.begin(), source.memory.begin() + sizes[i])));
  }
  CHECK(end.app.completions.empty());
}

TEST_CASE("W-MPA-49: only the first message may be a Read that was not agreed on, and it has no octets",
          "[rdmap][W-MPA-49]") {
  const rdmap::Settings none = with([](rdmap::Settings& s) {
    s.ird = 0;
    s.access = tpt::Rights::none;
  });
  End end(none, Moves::direct, {.may_be_read = true});
  Region& source = end.region(8);
  SECTION("of no octets, first") {
    CHECK(end.hear(request_of(1, source, 0)));
    CHECK_FALSE(end.fault);
    CHECK(end.say().size() == 1);
  }
  SECTION("of one octet, first") {
    end.hear(request_of(1, source, 1));
    CHECK(end.fault == Fault::reads_disabled);
  }
  SECTION("of no octets, second") {
    CHECK(end.hear(tagged(kWrite, true, {1}, 0)));
    end.hear(request_of(1, source, 0));
    CHECK(end.fault == Fault::reads_disabled);
  }
}

// ---- what waits for a receive ----------------------------------------------------------------------------

TEST_CASE("V-SR-06: Sends without a receive wait, Writes and Responses go on, Requests wait behind them",
          "[rdmap][V-SR-06][V-ORD-05]") {
  End end;
  Region& target = end.region(64);
  Region& source = end.region(64, 5);
  CHECK(end.hear(send_of(1)));
  CHECK(end.hear(tagged(kWrite, true, target.stag, target.base, filled(16))));
  CHECK(end.hear(request_of(1, source, 8)));
  CHECK(end.hear(send_of(2)));
  CHECK(end.app.completions.empty());
  CHECK(target.memory[0] == octet_at(0, 7));
  CHECK(end.say().empty());
  CHECK(end.responder.held_since() == end.now);

  end.post_receive();
  CHECK(end.receives_completed() == std::vector<std::uint32_t>{0});
  CHECK(end.say().size() == 1);
  CHECK(end.responder.holds());
  end.post_receive();
  CHECK(end.receives_completed() == std::vector<std::uint32_t>{0, 1});
  CHECK_FALSE(end.responder.holds());
  CHECK(end.responder.held_since() == kNever);
  CHECK_FALSE(end.fault);
}

TEST_CASE("V-SR-06: a receive that is posted behind a held Send is its, not the next one's", "[rdmap][V-SR-06]") {
  End end;
  Region& buffers = end.region(64);
  end.hear(send_of(1, filled(4, 1)));
  end.hear(send_of(2, filled(4, 2)));
  end.post_receive({End::sge(buffers, 0, 8)});
  end.post_receive({End::sge(buffers, 8, 8)});
  CHECK(buffers.memory[0] == octet_at(0, 1));
  CHECK(buffers.memory[8] == octet_at(0, 2));
}

TEST_CASE("V-SR-06: with rnr = terminate a Send without a receive is refused", "[rdmap][V-SR-06]") {
  End end(with([](rdmap::Settings& s) { s.hold_without_receive = false; }));
  end.hear(send_of(1));
  CHECK(end.fault == Fault::receive_no_buffer);
}

TEST_CASE("V-SR-06: what finds no more room waits outside, and is refused where it never will", "[rdmap][V-SR-06]") {
  End end(with([](rdmap::Settings& s) { s.held_bytes_max = 128; }));
  SECTION("it comes in when there is room") {
    CHECK(end.hear(send_of(1, filled(64))));
    CHECK_FALSE(end.hear(send_of(2, filled(64))));
    CHECK_FALSE(end.fault);
    Region& buffer = end.region(128);
    end.post_receive({End::sge(buffer, 0, 64)});
    CHECK(end.hear(send_of(2, filled(64))));
    CHECK(end.responder.holds());
  }
  SECTION("larger than all of it") {
    CHECK_FALSE(end.hear(send_of(1, filled(128))));
    CHECK(end.fault == Fault::receive_no_buffer);
  }
}

TEST_CASE("V-SR-06: what has waited for rnr_timeout is refused, and 0 is for ever", "[rdmap][V-SR-06]") {
  const bool never = GENERATE(false, true);
  rdmap::Settings settings = default_settings();
  settings.rnr_timeout = never ? Duration{0} : seconds(3);
  End end(settings);
  CHECK(end.responder.held_deadline() == kNever);
  end.hear(send_of(1));
  CHECK(end.responder.held_deadline() == (never ? kNever : end.now + seconds(3)));
  rdmap::Verdict verdict;
  end.responder.refuse_held(verdict);
  CHECK(verdict.fault == Fault::receive_no_buffer);
  CHECK(verdict.culprit->size == wire::UntaggedHeader::kSize);
}

// ---- the order of deliveries -------------------------------------------------------------------------------

TEST_CASE("W-DDP-13: a Send is delivered when its octets are placed, and all before it",
          "[rdmap][W-DDP-13][W-RDMAP-42]") {
  End end(default_settings(), Moves::at_flush);
  Region& buffer = end.region(64);
  Region& target = end.region(64);
  end.post_receive({End::sge(buffer, 0, 16)});
  end.post_receive();
  CHECK(end.hear(tagged(kWrite, true, target.stag, target.base, filled(16))));
  CHECK(end.hear(send_of(1, filled(16))));
  CHECK(end.hear(send_of(2)));  // nothing of it is to be placed
  CHECK(end.app.completions.empty());
  CHECK(end.responder.delivered_up_to() == 0);
  end.settle();
  CHECK(end.receives_completed() == std::vector<std::uint32_t>{0, 1});
  CHECK(end.responder.delivered_up_to() == 3);
}

TEST_CASE("V-STOP-06: an error takes effect when all before it is delivered, and nothing behind it is looked at",
          "[rdmap][V-STOP-06]") {
  End end(default_settings(), Moves::at_flush);
  Region& buffer = end.region(64);
  end.post_receive({End::sge(buffer, 0, 16)});
  end.post_receive();
  end.hear(send_of(1, filled(16)));
  end.hear(send_of(3));
  CHECK_FALSE(end.fault);
  CHECK(end.responder.stopped());
  end.settle();
  CHECK(end.fault == Fault::receive_msn_gap);
  CHECK(end.receives_completed() == std::vector<std::uint32_t>{0});
}

TEST_CASE("W-ACK-09: an acknowledgement, good or bad, takes one place among the deliveries, and that may be the last",
          "[rdmap][W-ACK-09]") {
  constexpr std::uint8_t kAcknowledge = 12;
  End end(default_settings(), Moves::at_flush, {}, true);
  Region& target = end.region(64);
  for (std::uint32_t i = 1; i < rdmap::kDeliveriesMax; ++i)
    REQUIRE(end.hear(tagged(kWrite, true, target.stag, target.base, filled(8))));
  REQUIRE_FALSE(end.responder.full());
  const std::uint32_t performed = GENERATE(0u, 1u);  // of none that was sent
  Octets body(8);
  wire::emit(wire::AcknowledgeHeader{.performed = performed}, body);
  CHECK(end.hear(untagged(kAcknowledge, true, 4, 1, 0, body)));
  CHECK(end.responder.full());
  CHECK(end.responder.stopped() == (performed != 0));
  CHECK_FALSE(end.fault);
  end.settle();
  CHECK_FALSE(end.responder.open());
  CHECK(end.fault == (performed != 0 ? std::optional(Fault::acknowledge_range) : std::nullopt));
}

TEST_CASE("W-RDMAP-35: a Terminate takes effect when all before it is delivered", "[rdmap][W-RDMAP-35][V-STOP-06]") {
  End end(default_settings(), Moves::at_flush);
  Region& buffer = end.region(64);
  end.post_receive({End::sge(buffer, 0, 16)});
  end.hear(send_of(1, filled(16)));
  end.hear(untagged(kTerminate, true, 2, 1, 0, filled(4)));
  CHECK_FALSE(end.peer_terminated);
  end.settle();
  CHECK(end.peer_terminated);
  CHECK(end.receives_completed().size() == 1);
  CHECK(end.responder.terminate().size() == 4);
}

TEST_CASE("V-SR-07: an STag is invalidated when the payload is placed, and before the completion", "[rdmap][V-SR-07]") {
  End end(default_settings(), Moves::at_flush);
  Region& buffer = end.region(16);
  Region& window = end.region(16);
  end.post_receive({End::sge(buffer, 0, 16)});
  CHECK(end.hear(untagged(kSendInvalidate, true, 0, 1, 0, filled(8), window.stag)));
  CHECK(end.table.check_remote(window.stag, kPd, {1}, tpt::Rights::remote_read, window.base, 1));
  end.settle();
  CHECK_FALSE(end.table.check_remote(window.stag, kPd, {1}, tpt::Rights::remote_read, window.base, 1));
  REQUIRE(end.app.completions.size() == 1);
  CHECK(end.app.completions[0].word == window.stag.value);
}

TEST_CASE("V-INV-10: that an STag is invalidated is told when what others had submitted to it is done",
          "[rdmap][V-INV-10][V-SR-07]") {
  End end(default_settings(), GENERATE(Moves::direct, Moves::at_flush));
  Region& window = end.region(8);
  Region& buffer = end.region(32);
  for (std::uint32_t i = 0; i < 3; ++i) end.post_receive({End::sge(buffer, 8 * i, 8)});
  const std::uint32_t payload = GENERATE(0u, 8u);
  const auto may_be_reached = [&] {
    return end.table.check_remote(window.stag, kPd, {1}, tpt::Rights::remote_read, window.base, 1).has_value();
  };
  const auto told = [&](std::size_t count) { return end.receives_completed().size() == count; };
  const bool behind_another = GENERATE(false, true);
  if (behind_another) end.hear(send_of(1, filled(8)));
  end.mover.pending = true;
  end.hear(untagged(kSendInvalidate, true, 0, behind_another ? 2 : 1, 0, filled(payload), window.stag));
  end.hear(send_of(behind_another ? 3 : 2));
  const std::size_t before = behind_another ? 1 : 0;
  end.settle();
  // Nobody comes to it any more; those who came before are on their way.
  CHECK_FALSE(may_be_reached());
  CHECK(told(before));
  CHECK(end.responder.waits_for_flush());
  end.settle();
  CHECK(told(before));
  SECTION("they are done") {
    end.mover.pending = false;
    end.settle();
  }
  SECTION("they are done, and others have come meanwhile to what is theirs") {
    ++end.mover.flushed;
    end.settle();
  }
  SECTION("one of them waits for a page") {
    end.mover.stuck = true;
    ++end.mover.flushed;
    end.settle();
    CHECK(told(before));
    end.mover.stuck = end.mover.pending = false;
    end.settle();
  }
  SECTION("it ends before they are") {
    end.responder.flush(0);
    CHECK_FALSE(end.responder.waits_for_flush());
    REQUIRE(told(before + 2));
    for (std::size_t i = before; i < before + 2; ++i) CHECK(end.app.completions[i].status == Status::flushed);
    return;
  }
  REQUIRE(told(before + 2));
  CHECK_FALSE(end.responder.waits_for_flush());
  CHECK(end.app.completions[before].status == Status::success);
  CHECK(end.app.completions[before].invalidated);
  CHECK(end.app.completions[before].word == window.stag.value);
  CHECK_FALSE(end.app.completions[before + 1].invalidated);
  CHECK_FALSE(end.fault);
}

TEST_CASE("V-INV-10: an STag that cannot be invalidated is told as such, whoever else has submitted something",
          "[rdmap][V-INV-10][V-INV-07]") {
  End end;
  end.post_receive();
  end.mover.pending = true;
  end.hear(untagged(kSendInvalidate, true, 0, 1, 0, {}, {0x7FFFFF00}));
  end.settle();
  REQUIRE(end.app.completions.size() == 1);
  CHECK(end.app.completions[0].status == Status::invalidate_pd_access);
  CHECK(end.fault == Fault::invalidate_invalid_stag);
  CHECK_FALSE(end.responder.waits_for_flush());
}

TEST_CASE("V-ORD-05: a Request is served when all before it is placed", "[rdmap][V-ORD-05]") {
  End end(default_settings(), Moves::at_flush);
  Region& memory = end.region(16);
  end.hear(tagged(kWrite, true, memory.stag, memory.base, filled(8)));
  end.hear(request_of(1, memory, 8));
  CHECK(end.say().empty());
  end.settle();
  const auto said = end.say();
  REQUIRE(said.size() == 1);
  CHECK(said[0] == tagged(kReadResponse, true, {7}, 0, filled(8)));
}

// ---- payloads that are memory of another application ---------------------------------------------------------

TEST_CASE("a message that never was a frame is checked and placed as one that was", "[rdmap][memory][V-ORD-09]") {
  const Moves moves = GENERATE(Moves::direct, Moves::at_flush);
  End end(default_settings(), moves);
  Region& target = end.region(64);
  End other;
  const Octets payload = filled(32);
  Region& there = other.region(32);
  there.memory = payload;
  const tpt::Access memory{
      .space = {2}, .address = 0xdead0000, .direct = there.memory.data(), .length = 32, .stag = {}};

  SECTION("a Write: its last octets by themselves, behind the others") {
    CHECK(end.hear(tagged(kWrite, true, target.stag, target.base, {}), &memory));
    end.settle();
    CHECK(std::equal(payload.begin(), payload.end(), target.memory.begin()));
    CHECK(end.mover.parts() ==
          std::vector<std::pair<tpt::Part, std::uint32_t>>{{tpt::Part::body, 24}, {tpt::Part::tail, 8}});
  }
  SECTION("a Write that leads past its region places nothing") {
    end.hear(tagged(kWrite, true, target.stag, target.base + 33, {}), &memory);
    CHECK(end.fault == Fault::tagged_bounds);
    CHECK(end.mover.places.empty());
  }
  SECTION("a Send, over the SGEs of its receive") {
    end.post_receive({End::sge(target, 0, 10), End::sge(target, 20, 40)});
    CHECK(end.hear(send_of(1), &memory));
    end.settle();
    CHECK(std::equal(payload.begin(), payload.begin() + 10, target.memory.begin()));
    CHECK(std::equal(payload.begin() + 10, payload.end(), target.memory.begin() + 20));
    REQUIRE(end.app.completions.size() == 1);
    CHECK(end.app.completions[0].length == 32);
  }
  SECTION("a Send without a receive stays where it is") {
    CHECK_FALSE(end.hear(send_of(1), &memory));
    CHECK_FALSE(end.fault);
    CHECK(end.responder.held_since() == end.now);
    end.post_receive({End::sge(target, 0, 32)});
    CHECK(end.hear(send_of(1), &memory));
    end.settle();
    CHECK(end.app.completions.size() == 1);
  }
  SECTION("a Read Response") {
    end.post(read({End::sge(target, 0, 32)}, {9}, 0));
    REQUIRE(end.say().size() == 1);
    CHECK(end.hear(tagged(kReadResponse, true, target.stag, target.base, {}), &memory));
    end.settle();
    CHECK(std::equal(payload.begin(), payload.end(), target.memory.begin()));
    CHECK(end.sends_completed() == std::vector<std::uint32_t>{0});
  }
}

TEST_CASE("V-ORD-09: only what ends a message has a tail, and eight octets are all tail", "[rdmap][memory][V-ORD-09]") {
  End end;
  Region& target = end.region(64);
  Region& there = end.region(64, 5);
  const bool last = GENERATE(false, true);
  const std::uint32_t size = GENERATE(1u, 8u, 9u);
  const tpt::Access memory{.space = {2}, .address = 0, .direct = there.memory.data(), .length = size, .stag = {}};
  CHECK(end.hear(tagged(kWrite, last, target.stag, target.base, {}), &memory));
  using Places = std::vector<std::pair<tpt::Part, std::uint32_t>>;
  if (!last)
    CHECK(end.mover.parts() == Places{{tpt::Part::body, size}});
  else if (size <= 8)
    CHECK(end.mover.parts() == Places{{tpt::Part::tail, size}});
  else
    CHECK(end.mover.parts() == Places{{tpt::Part::body, 1}, {tpt::Part::tail, 8}});
}

TEST_CASE("memory that is not mapped here is reached by a mover that can", "[rdmap][memory]") {
  End end;
  Region& target = end.region(64);
  const tpt::Access memory{.space = {2}, .address = 0xdead0000, .direct = nullptr, .length = 16, .stag = {}};
  CHECK(end.hear(tagged(kWrite, true, target.stag, target.base, {}), &memory));
  CHECK(end.fault == Fault::catastrophic);
}

TEST_CASE("whether a message would be taken is known before, and only a receive is taken by asking",
          "[rdmap][memory]") {
  End end;
  Region& target = end.region(64);
  Region& locked = end.region(64, 0, tpt::Rights::local_read | tpt::Rights::local_write);
  const Octets payload = filled(32);
  const tpt::Access memory{
      .space = {2}, .address = 0, .direct = const_cast<std::byte*>(payload.data()), .length = 32, .stag = {}};
  const auto would_take = [&](const Octets& header, std::uint32_t more = 0) {
    const std::array<Bytes, 1> spans{Bytes(header)};
    ++end.common.turn;
    return end.responder.would_take({spans, static_cast<std::uint32_t>(header.size()) + 32, &memory}, more);
  };
  SECTION("a Write: the whole of it") {
    CHECK(would_take(tagged(kWrite, true, target.stag, target.base + 32, {})));
    CHECK_FALSE(would_take(tagged(kWrite, true, target.stag, target.base + 33, {})));
    CHECK(would_take(tagged(kWrite, false, target.stag, target.base, {}), 32));
    CHECK_FALSE(would_take(tagged(kWrite, false, target.stag, target.base, {}), 33));
    CHECK_FALSE(would_take(tagged(kWrite, true, locked.stag, locked.base, {})));
  }
  SECTION("a Send: a receive, its room, its memory, and room for its completion") {
    CHECK_FALSE(would_take(send_of(1)));
    end.post_receive({End::sge(target, 0, 40)});
    CHECK(would_take(send_of(1)));
    CHECK(end.app.receives.empty());
    CHECK(would_take(send_of(1), 8));
    CHECK_FALSE(would_take(send_of(1), 9));
    CHECK_FALSE(would_take(send_of(2)));
    end.app.room = 0;
    CHECK_FALSE(would_take(send_of(1)));
    end.app.room = 1;
    CHECK(would_take(send_of(1)));
    (void)end.table.deregister(target.stag);
    CHECK_FALSE(would_take(send_of(1)));
  }
  SECTION("nothing behind what is held") {
    end.hear(send_of(1));
    CHECK(end.responder.holds());
    CHECK_FALSE(would_take(tagged(kWrite, true, target.stag, target.base, {})));
  }
  SECTION("a Read Response: to the oldest Read, and all that it asked for") {
    CHECK_FALSE(would_take(tagged(kReadResponse, true, target.stag, target.base, {})));
    end.post(read({End::sge(target, 0, 40)}, {9}, 0));
    REQUIRE(end.say().size() == 1);
    CHECK(would_take(tagged(kReadResponse, false, target.stag, target.base, {}), 8));
    CHECK_FALSE(would_take(tagged(kReadResponse, true, target.stag, target.base, {})));
    CHECK_FALSE(would_take(tagged(kReadResponse, false, target.stag, target.base + 1, {}), 8));
    CHECK_FALSE(would_take(tagged(kReadResponse, false, locked.stag, target.base, {}), 8));
  }
  CHECK_FALSE(end.fault);
  CHECK(end.mover.places.empty());
  CHECK(end.app.completions.empty());
}

// ---- the way down ------------------------------------------------------------------------------------------

TEST_CASE("V-ERRST-03: receives are flushed in steps, and those of a shared queue are left",
          "[rdmap][V-ERRST-03][V-SRQ-19]") {
  const bool shared = GENERATE(false, true);
  rdmap::Settings settings = default_settings();
  settings.shared_receive = shared;
  End end(settings);
  for (int i = 0; i < 3; ++i) end.post_receive();
  CHECK(end.responder.flush(2) == !shared);
  CHECK(end.receives_completed().size() == (shared ? 0 : 2));
  CHECK_FALSE(end.responder.flush(2));
  CHECK(end.receives_completed().size() == (shared ? 0 : 3));
}
