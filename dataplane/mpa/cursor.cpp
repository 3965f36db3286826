#include "mpa/cursor.hpp"

#include <algorithm>
#include <cstring>

#include "base/assert.hpp"

namespace rnic::mpa {

void SpanList::copy(std::size_t offset, MutableBytes out) const {
  for (std::uint32_t i = 0; !out.empty(); ++i) {
    RNIC_ASSERT(i < count);
    if (offset >= spans[i].size()) {
      offset -= spans[i].size();
      continue;
    }
    const Bytes from = spans[i].subspan(offset, std::min(out.size(), spans[i].size() - offset));
    std::memcpy(out.data(), from.data(), from.size());
    out = out.subspan(from.size());
    offset = 0;
  }
}

void SpanList::trim_front(std::uint32_t n) {
  RNIC_ASSERT(n <= size);
  size -= n;
  std::uint32_t gone = 0;
  while (gone < count && spans[gone].size() <= n) n -= static_cast<std::uint32_t>(spans[gone++].size());
  if (gone != 0) {
    count -= gone;
    std::copy_n(spans.begin() + gone, count, spans.begin());
  }
  if (n != 0) spans[0] = spans[0].subspan(n);
}

}  // namespace rnic::mpa
