// Speaking with a TCP connection under test.
#include "kit/tcp_conversation.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace rnic::test {

namespace flag = wire::tcp_flags;

Line syn() { return Line{.flags = flag::kSyn, .mss_ = 1460, .sack_permitted_ = true}; }
Line syn_ack() { return Line{.flags = flag::kSyn | flag::kAck, .ack_ = 1, .mss_ = 1460, .sack_permitted_ = true}; }
namespace {
constexpr std::uint32_t kWhereWeAre = 0xFFFFFFFF;
}
Line ack(std::uint32_t n) { return Line{.flags = flag::kAck, .sequence = kWhereWeAre, .ack_ = n}; }
Line data(std::uint32_t first, std::string text) {
  return Line{.flags = flag::kAck | flag::kPsh, .sequence = first, .text = std::move(text)};
}
Line fin(std::uint32_t sequence) { return Line{.flags = flag::kAck | flag::kFin, .sequence = sequence}; }
Line rst(std::uint32_t sequence) { return Line{.flags = flag::kRst, .sequence = sequence}; }

tcp::Options no_tail_probe() {
  tcp::Options options;
  options.tail_loss_probe = false;
  return options;
}

std::string pattern(std::size_t octets, std::size_t from) {
  std::string text(octets, ' ');
  for (std::size_t i = 0; i < octets; ++i) text[i] = static_cast<char>('a' + ((from + i) * 7 + (from + i) / 26) % 26);
  return text;
}

Conversation::Conversation(const tcp::Options& options)
    : options_(options),
      pool_(std::make_unique<HeapPool>(4096, 2048)),
      connection_(std::make_unique<tcp::Connection>(options)) {}

Conversation Conversation::established(const tcp::Options& options, std::uint16_t window, double round_trip_ms) {
  Conversation c(options);
  c.at(-round_trip_ms).answers(syn().window(window));
  c.says(syn_ack());
  c.at(0).hears(Line{.flags = flag::kAck, .sequence = 1, .ack_ = 1, .window_ = window});
  c.is_silent();
  REQUIRE(c->state() == tcp::State::established);
  return c;
}

Conversation Conversation::established_without_sack(const tcp::Options& options) {
  Conversation c(options);
  c.at(-1).answers(syn().sack_permitted(false));
  c.says(syn_ack().sack_permitted(false));
  c.at(0).hears(Line{.flags = flag::kAck, .sequence = 1, .ack_ = 1});
  c.is_silent();
  return c;
}

Conversation& Conversation::opens() {
  connection_->open_active(tcp::Seq{kOurStart});
  return *this;
}

Conversation& Conversation::answers(Line line) {
  half_open_ = tcp::agree(incoming(line).header, options_, tcp::Seq{kOurStart}, 0);
  half_open_->sent = 1;
  half_open_->sent_at = now_;
  replies_.push_back(tcp::syn_ack(*half_open_, options_, now_));
  return *this;
}

std::optional<tcp::SegmentOut> Conversation::say() {
  if (!half_open_ && replies_.empty()) return connection_->next_segment(now_);
  if (replies_.empty()) return std::nullopt;
  std::optional<tcp::SegmentOut> out(std::in_place);
  out->header = replies_.front();
  replies_.pop_front();
  out->may_be_marked = half_open_ && out->header.has(flag::kSyn) && tcp::syn_ack_may_be_marked(*half_open_, options_);
  return out;
}

Conversation& Conversation::at(double milliseconds) {
  now_ = start_ + nanoseconds(static_cast<std::int64_t>(milliseconds * 1e6));
  return *this;
}

tcp::SegmentIn Conversation::incoming(const Line& line) {
  tcp::SegmentIn in;
  wire::TcpHeader& header = in.header;
  const std::uint32_t sequence = line.sequence == kWhereWeAre ? peer_next_ : line.sequence;
  header.flags = line.flags;
  header.sequence = kPeerStart + sequence;
  if (line.ack_) peer_ack_ = std::max(peer_ack_, *line.ack_);
  if ((line.flags & flag::kAck) != 0) header.acknowledgement = kOurStart + line.ack_.value_or(peer_ack_);
  if (line.window_) peer_window_ = *line.window_;
  header.window = peer_window_;
  in.marked = line.ce_;
  header.mss = line.mss_;
  header.window_scale = line.scale_;
  header.sack_permitted = line.sack_permitted_.value_or(false);
  header.timestamps = line.timestamps_;
  for (const auto& block : line.blocks)
    header.sack[header.sack_count++] = {kOurStart + block.first, kOurStart + block.end};
  in.buffer = BufferRef::take(*pool_);
  REQUIRE(in.buffer);
  const auto room = in.buffer->append(static_cast<std::uint32_t>(line.text.size()));
  std::memcpy(room.data(), line.text.data(), line.text.size());
  in.payload = room;
  peer_next_ = std::max(peer_next_, sequence + static_cast<std::uint32_t>(line.text.size()) +
                                        ((line.flags & (flag::kSyn | flag::kFin)) != 0 ? 1 : 0));
  return in;
}

Conversation& Conversation::hears(Line line) {
  tcp::SegmentIn in = incoming(line);
  if (half_open_) {
    switch (tcp::on_half_open(*half_open_, options_, in.header, in.payload.size())) {
      case tcp::HalfOpenStep::ignore:
        return *this;
      case tcp::HalfOpenStep::answer:
        tcp::on_syn_again(*half_open_, in.header);
        replies_.push_back(tcp::syn_ack(*half_open_, options_, now_));
        return *this;
      case tcp::HalfOpenStep::acknowledge:
        replies_.push_back(tcp::acknowledge(*half_open_, options_, now_));
        return *this;
      case tcp::HalfOpenStep::reset:
        replies_.push_back(*tcp::reset_in_reply(in.header, in.payload.size()));
        return *this;
      case tcp::HalfOpenStep::forget:
        half_open_.reset();
        return *this;
      case tcp::HalfOpenStep::complete:
        connection_->open_passive(*half_open_, in.header, now_);
        half_open_.reset();
        break;
    }
  }
  connection_->on_segment(std::move(in), now_);
  return *this;
}

namespace {

std::string flags_text(std::uint8_t flags) {
  static constexpr const char* kNames[] = {"FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"};
  std::string text;
  for (unsigned i = 0; i < 8; ++i)
    if ((flags & 1u << i) != 0) text += (text.empty() ? "" : ",") + std::string(kNames[i]);
  return text;
}

std::string describe(const tcp::SegmentOut& out) {
  std::ostringstream s;
  s << flags_text(out.header.flags) << " seq " << out.header.sequence - Conversation::kOurStart << " ack "
    << out.header.acknowledgement - Conversation::kPeerStart << " window " << out.header.window << " with "
    << out.payload.size() << " octets";
  for (unsigned i = 0; i < out.header.sack_count; ++i)
    s << " [" << out.header.sack[i].first - Conversation::kPeerStart << ","
      << out.header.sack[i].end - Conversation::kPeerStart << ")";
  return s.str();
}

}  // namespace

Conversation& Conversation::says(Line line) {
  const double ms = static_cast<double>((now_ - start_).ns) / 1e6;
  INFO("at " << ms << " ms");
  auto out = say();
  REQUIRE(out);
  INFO("it said: " << describe(*out));
  const wire::TcpHeader& header = out->header;
  CHECK(flags_text(header.flags) == flags_text(line.flags));
  CHECK(out->may_be_marked == line.ect_);
  const std::uint32_t sequence = header.sequence - kOurStart;
  CHECK(sequence == (line.sequence == kWhereWeAre ? our_next_ : line.sequence));
  if (line.ack_) CHECK(header.acknowledgement - kPeerStart == *line.ack_);
  if (line.window_) CHECK(header.window == *line.window_);
  CHECK(std::string(reinterpret_cast<const char*>(out->payload.data()), out->payload.size()) == line.text);
  // RFC 9293's MUST-65, RFC 7323 s2.2, RFC 2018 s2.
  if (!header.has(flag::kSyn)) CHECK_FALSE((header.mss || header.window_scale || header.sack_permitted));
  if (line.mss_) CHECK(header.mss == line.mss_);
  if (line.scale_) CHECK(header.window_scale == line.scale_);
  if (line.sack_permitted_) CHECK(header.sack_permitted == *line.sack_permitted_);
  if (line.timestamps_) {
    REQUIRE(header.timestamps);
    CHECK(header.timestamps->echo == line.timestamps_->echo);
  }
  REQUIRE(header.sack_count == line.blocks.size());
  for (unsigned i = 0; i < header.sack_count; ++i) {
    CHECK(header.sack[i].first - kPeerStart == line.blocks[i].first);
    CHECK(header.sack[i].end - kPeerStart == line.blocks[i].end);
  }
  our_next_ = std::max(our_next_, sequence + static_cast<std::uint32_t>(out->payload.size()) +
                                      (header.has(flag::kSyn | flag::kFin) ? 1 : 0));
  return *this;
}

Conversation& Conversation::is_silent() {
  const double ms = static_cast<double>((now_ - start_).ns) / 1e6;
  INFO("at " << ms << " ms");
  auto out = say();
  if (out) INFO("it said: " << describe(*out));
  const std::string said = out ? describe(*out) : "nothing";
  CHECK(said == "nothing");
  return *this;
}

Conversation& Conversation::is_silent_until(double milliseconds) {
  is_silent();
  const double deadline = static_cast<double>((connection_->next_deadline() - start_).ns) / 1e6;
  CHECK(deadline >= milliseconds - 1e-6);
  at(milliseconds - 0.001).is_silent();
  return at(milliseconds);
}

double Conversation::wakes() {
  const Instant deadline = connection_->next_deadline();
  REQUIRE(deadline != kNever);
  now_ = std::max(now_, deadline);
  return static_cast<double>((now_ - start_).ns) / 1e6;
}

Conversation& Conversation::appends(const std::string& text) {
  BufferRef buffer = BufferRef::take(*pool_);
  REQUIRE(buffer);
  const auto room = buffer->append(static_cast<std::uint32_t>(text.size()));
  std::memcpy(room.data(), text.data(), text.size());
  REQUIRE(connection_->append(std::move(buffer)));
  return *this;
}

Conversation& Conversation::appends(std::size_t count, std::size_t each) {
  for (std::size_t i = 0; i < count; ++i) appends(pattern(each, connection_->appended()));
  return *this;
}

std::string Conversation::reads() {
  return reads(static_cast<std::size_t>(connection_->received() - connection_->consumed()));
}

std::string Conversation::reads(std::size_t octets) {
  std::string text;
  for (std::size_t i = 0; i < connection_->readable_count() && text.size() < octets; ++i) {
    const Bytes span = connection_->readable(i).span;
    text.append(reinterpret_cast<const char*>(span.data()), std::min(span.size(), octets - text.size()));
  }
  connection_->consume(text.size());
  return text;
}

}  // namespace rnic::test
