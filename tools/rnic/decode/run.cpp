#include "decode/run.hpp"

#include "decode/startup_scan.hpp"

namespace rnic::tool {

Run::Run(Framing framing, std::uint64_t position, Sink sink)
    : framing_(framing), position_(position), sink_(std::move(sink)) {}

// False: it is not there in full, or makes no sense.
bool Run::read_startup() {
  StartupScan scan = scan_startup(held_);
  awaited_ = scan.size;
  if (scan.kind == StartupScan::Kind::more) return false;
  phase_ = Phase::fpdus;
  if (scan.kind == StartupScan::Kind::none) return true;
  sink_(std::move(scan.object));
  if (scan.kind == StartupScan::Kind::bad) {
    sink_(error_object(0, scan.reason, wire::terminate_code::kMpaStartupFrame));
    phase_ = Phase::over;
    return false;
  }
  held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(scan.size));
  position_ = 0;
  return true;
}

void Run::feed(Bytes octets) {
  if (phase_ == Phase::over) return;
  held_.insert(held_.end(), octets.begin(), octets.end());
  if (phase_ == Phase::start && !read_startup()) return;
  std::size_t done = 0;
  while (done < held_.size()) {
    const Step step = decode_fpdu(Bytes(held_).subspan(done), framing_, position_, sink_);
    awaited_ = step.octets;
    if (step.kind == Step::Kind::failed) phase_ = Phase::over;
    if (step.kind != Step::Kind::fpdu) break;
    done += step.octets;
    position_ += step.octets;
  }
  held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(done));
}

void Run::end(const std::string& advice) {
  if (phase_ == Phase::start && !held_.empty())
    sink_(error_object(0, cut_off("a startup frame", held_.size(), awaited_) + advice));
  if (phase_ == Phase::fpdus && !held_.empty())
    sink_(error_object(position_, cut_off("an FPDU", held_.size(), awaited_) + advice));
  phase_ = Phase::over;
}

}  // namespace rnic::tool
