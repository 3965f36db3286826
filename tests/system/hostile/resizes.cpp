// The largest completion queue there is, of which the application says that nothing has been polled, is resized without
// end: each time all of it is to be moved.
#include <atomic>

#include "system/hostile/hostile.hpp"

namespace rnic::hostile {
namespace {

constexpr std::uint32_t kEntries = 1U << 20;

}  // namespace

int resizes(const Options& options) {
  bare::Application app(options.socket);
  const bare::CompletionQueue cq = app.completion_queue(kEntries);
  std::atomic_ref(cq.control->consumed).store(0U - kEntries);
  attacking();
  std::size_t resized = 0;
  for (const Seconds start = now(); now() - start < options.seconds;) {
    bare::Answer answer = app.control.ask(RNIC_RESIZE_CQ, rnic_resize_cq{cq.handle, kEntries});
    if (!answer.good()) {
      say("refused: " + answer.words());
      return 1;
    }
    const auto reply = answer.as<rnic_resize_cq_reply>();
    auto* control = reinterpret_cast<rnic_cq_control*>(app.map(reply.area, answer));
    if (reply.entries == 0) continue;  // the area is made known first
    ++resized;
    std::atomic_ref(control->consumed).store(0);
  }
  say(std::to_string(resized) + " times a queue of " + std::to_string(kEntries) + " entries was resized");
  return resized > 0 ? 0 : 1;
}

}  // namespace rnic::hostile
