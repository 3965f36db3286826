// abi/rnic_run.h: where daemons are.
#include "control/run_directory.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "kit/catch.hpp"
#include "rnic_run.h"

using namespace rnic;
namespace fs = std::filesystem;

namespace {

// A scratch directory, and the environment of the rule; both as before at the end.
class Place {
 public:
  Place() {
    char name[] = "/tmp/rnic-run-test-XXXXXX";
    root = mkdtemp(name);
    for (const char* each : {"RNIC_RUN_BASE", "XDG_RUNTIME_DIR"}) {
      const char* value = std::getenv(each);
      before_.emplace_back(each, value == nullptr ? std::nullopt : std::optional<std::string>(value));
      unsetenv(each);
    }
  }
  ~Place() {
    for (const auto& [each, value] : before_) value ? setenv(each, value->c_str(), 1) : unsetenv(each);
    fs::remove_all(root);
  }
  std::string root;

 private:
  std::vector<std::pair<const char*, std::optional<std::string>>> before_;
};

}  // namespace

TEST_CASE("RNIC_RUN_BASE is the only place where it is set", "[control][run_directory]") {
  const Place place;
  setenv("RNIC_RUN_BASE", (place.root + "/base").c_str(), 1);
  setenv("XDG_RUNTIME_DIR", place.root.c_str(), 1);
  fs::create_directories(place.root + "/rnic/a");
  std::ofstream(place.root + "/rnic/a/control.sock") << "";
  CHECK(control::run_base() == place.root + "/base");
  CHECK(control::run_directory("a") == place.root + "/base/a");
  CHECK(control::new_run_directory("a") == place.root + "/base/a");
}

TEST_CASE("a daemon is looked for in all places, and started in the first that may be written",
          "[control][run_directory]") {
  const Place place;
  setenv("XDG_RUNTIME_DIR", place.root.c_str(), 1);
  const std::string name = "test" + std::to_string(getpid());
  const bool root = geteuid() == 0 && rnic_run_writable(rnic_libc_plain(), RNIC_RUN_OF_ROOT) != 0;
  CHECK(control::run_base() == (root ? std::string(RNIC_RUN_OF_ROOT) : place.root + "/rnic"));
  CHECK(control::run_directory(name) == control::run_base() + "/" + name);
  // One that is there is found, though a new one would be elsewhere; a directory alone is none.
  fs::create_directories(place.root + "/rnic/" + name);
  CHECK(control::run_directory(name) == control::run_base() + "/" + name);
  std::ofstream(place.root + "/rnic/" + name + "/control.sock") << "";
  CHECK(control::run_directory(name) == place.root + "/rnic/" + name);
  CHECK(control::new_run_directory(name) == control::run_base() + "/" + name);
  if (geteuid() == 0) {
    // Somebody else's is no daemon of ours.
    REQUIRE(chown((place.root + "/rnic/" + name).c_str(), 65534, 65534) == 0);
    CHECK(control::run_directory(name) == control::run_base() + "/" + name);
  }
  // Where XDG_RUNTIME_DIR names nothing there is a place in /tmp.
  setenv("XDG_RUNTIME_DIR", "/nonexistent", 1);
  if (!root) CHECK(control::run_base() == "/tmp/rnic-" + std::to_string(rnic_uid_outside(rnic_libc_plain())));
}

TEST_CASE("a place is of use where it is ours and may be written, or could be made", "[control][run_directory]") {
  const Place place;
  const auto usable = [&](const std::string& path) {
    return rnic_run_writable(rnic_libc_plain(), (place.root + path).c_str()) != 0;
  };
  CHECK(usable("/absent"));
  CHECK_FALSE(usable("/absent/below"));
  fs::create_directory(place.root + "/ours");
  CHECK(usable("/ours"));
  std::ofstream(place.root + "/file") << "";
  CHECK_FALSE(usable("/file"));
  CHECK_FALSE(usable("/file/below"));
  if (geteuid() == 0) {
    fs::create_directory(place.root + "/theirs");
    REQUIRE(chown((place.root + "/theirs").c_str(), 65534, 65534) == 0);
    CHECK_FALSE(usable("/theirs"));
  } else {
    fs::permissions(place.root + "/ours", fs::perms::owner_read | fs::perms::owner_exec);
    CHECK_FALSE(usable("/ours"));
    CHECK_FALSE(usable("/ours/below"));
  }
}

TEST_CASE("what does not fit is no path", "[control][run_directory]") {
  const Place place;
  setenv("RNIC_RUN_BASE", "/abc", 1);
  char path[9];
  CHECK(rnic_run_directory(rnic_libc_plain(), "nam", path, sizeof path) != 0);
  CHECK(std::string(path) == "/abc/nam");
  CHECK(rnic_run_directory(rnic_libc_plain(), "name", path, sizeof path) == 0);
  CHECK(rnic_run_base(rnic_libc_plain(), path, 5) != 0);
  CHECK(rnic_run_base(rnic_libc_plain(), path, 4) == 0);
  // Nor that of another whose name it begins with.
  setenv("RNIC_RUN_BASE", place.root.c_str(), 1);
  fs::create_directory(place.root + "/nam");
  std::string cut(place.root.size() + std::strlen("/nam"), ' ');
  CHECK(rnic_run_directory(rnic_libc_plain(), "name", cut.data(), cut.size() + 1) == 0);
}
