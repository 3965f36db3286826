// Netlink messages (<linux/netlink.h>): attributes, tables of them, and messages no longer than a small reader's
// buffer.
#pragma once

#include <linux/netlink.h>

#include <string.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.hpp"

namespace rnic::control {

// One attribute of a request, by its type; nothing where there is none. What is cut off is not there.
inline std::optional<Bytes> netlink_attribute(Bytes attributes, std::uint16_t type) {
  while (attributes.size() >= NLA_HDRLEN) {
    nlattr head;
    std::memcpy(&head, attributes.data(), sizeof head);
    if (head.nla_len < NLA_HDRLEN || head.nla_len > attributes.size()) return std::nullopt;
    if ((head.nla_type & NLA_TYPE_MASK) == type) return attributes.subspan(NLA_HDRLEN, head.nla_len - NLA_HDRLEN);
    attributes = attributes.subspan(std::min<std::size_t>(NLA_ALIGN(head.nla_len), attributes.size()));
  }
  return std::nullopt;
}

inline std::optional<std::uint32_t> netlink_number(Bytes attributes, std::uint16_t type) {
  const auto octets = netlink_attribute(attributes, type);
  if (!octets || octets->size() < sizeof(std::uint32_t)) return std::nullopt;
  std::uint32_t value;
  std::memcpy(&value, octets->data(), sizeof value);
  return value;
}

// Without the 0 at its end.
inline std::string_view netlink_text(Bytes attributes, std::uint16_t type) {
  const auto octets = netlink_attribute(attributes, type);
  if (!octets) return {};
  const auto* first = reinterpret_cast<const char*>(octets->data());
  return {first, strnlen(first, octets->size())};
}

// Answers to one request, one message behind the other.
class NetlinkWriter {
 public:
  // libmnl's readers have a buffer of a page at the least, and what is longer is lost.
  static constexpr std::size_t kMessageMax = 3584;

  NetlinkWriter(const nlmsghdr& request, std::uint32_t port_id) : request_(request), port_id_(port_id) {}

  void begin(std::uint16_t type, std::uint16_t flags) {
    message_ = octets_.size();
    nlmsghdr head{};
    head.nlmsg_type = type;
    head.nlmsg_flags = flags;
    head.nlmsg_seq = request_.nlmsg_seq;
    head.nlmsg_pid = port_id_;
    append(&head, sizeof head);
  }
  void end() {
    nlmsghdr head;
    std::memcpy(&head, octets_.data() + message_, sizeof head);
    head.nlmsg_len = static_cast<std::uint32_t>(octets_.size() - message_);
    std::memcpy(octets_.data() + message_, &head, sizeof head);
  }
  // Of the message that was begun last, so far.
  std::size_t message_size() const { return octets_.size() - message_; }

  void put(std::uint16_t type, const void* value, std::size_t size) {
    nlattr head{};
    head.nla_len = static_cast<std::uint16_t>(NLA_HDRLEN + size);
    head.nla_type = type;
    append(&head, sizeof head);
    append(value, size);
  }
  void put8(std::uint16_t type, std::uint8_t value) { put(type, &value, sizeof value); }
  void put32(std::uint16_t type, std::uint32_t value) { put(type, &value, sizeof value); }
  void put64(std::uint16_t type, std::uint64_t value) { put(type, &value, sizeof value); }
  void put(std::uint16_t type, std::string_view text) {
    std::vector<char> octets(text.begin(), text.end());
    octets.push_back('\0');
    put(type, octets.data(), octets.size());
  }

  // What is put until end_table() belongs into the attribute. The number is where it began.
  std::size_t begin_table(std::uint16_t type) {
    const std::size_t at = octets_.size();
    put(type | NLA_F_NESTED, nullptr, 0);
    return at;
  }
  void end_table(std::size_t at) {
    const auto length = static_cast<std::uint16_t>(octets_.size() - at);
    std::memcpy(octets_.data() + at + offsetof(nlattr, nla_len), &length, sizeof length);
  }

  // Ends a dump.
  void done() {
    begin(NLMSG_DONE, NLM_F_MULTI);
    const std::int32_t error = 0;
    append(&error, sizeof error);
    end();
  }
  // 0: it was done as asked.
  void acknowledge(int error) {
    begin(NLMSG_ERROR, NLM_F_CAPPED);
    const nlmsgerr body{-error, request_};
    append(&body, sizeof body);
    end();
  }

  std::vector<std::byte> take() { return std::move(octets_); }

 private:
  // All begins at multiples of four.
  void append(const void* value, std::size_t size) {
    const auto* first = static_cast<const std::byte*>(value);
    if (size != 0) octets_.insert(octets_.end(), first, first + size);
    octets_.resize(NLA_ALIGN(octets_.size()));
  }

  nlmsghdr request_;
  std::uint32_t port_id_;
  std::size_t message_ = 0;
  std::vector<std::byte> octets_;
};

}  // namespace rnic::control
