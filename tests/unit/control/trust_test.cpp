// abi/rnic_trust.h: whose directory and whose answer is a daemon's.
#include "rnic_trust.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "control/descriptor.hpp"
#include "control/run_directory.hpp"
#include "kit/catch.hpp"

using namespace rnic;
namespace fs = std::filesystem;

namespace {

constexpr uid_t kStranger = 61001;

struct Scratch {
  Scratch() {
    char name[] = "/tmp/rnic-trust-test-XXXXXX";
    root = mkdtemp(name);
  }
  ~Scratch() { fs::remove_all(root); }
  std::string make(const std::string& path, mode_t mode) const {
    const std::string whole = root + path;
    REQUIRE(mkdir(whole.c_str(), 0700) == 0);
    REQUIRE(chmod(whole.c_str(), mode) == 0);
    return whole;
  }
  std::string root;
};

// What is wrong with it; empty: it was opened.
std::string wrong_with(const std::string& path) {
  char why[RNIC_WHY_MAX];
  const control::Descriptor opened(rnic_run_open(rnic_libc_plain(), path.c_str(), why, sizeof why));
  CHECK(static_cast<bool>(opened) == (*why == '\0'));
  return why;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// One end of a pair that a process of this effective user made: so SO_PEERCRED says of the other.
control::Descriptor end_of_pair_of(uid_t uid) {
  REQUIRE(seteuid(uid) == 0);
  int ends[2] = {-1, -1};
  const int made = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);
  REQUIRE(seteuid(0) == 0);
  REQUIRE(made == 0);
  close(ends[1]);
  return control::Descriptor(ends[0]);
}

}  // namespace

TEST_CASE("a run directory of ours is opened, with a slash behind it or without", "[control][trust]") {
  const Scratch scratch;
  scratch.make("/base", 0755);
  const std::string directory = scratch.make("/base/default", 0700);
  CHECK(wrong_with(directory).empty());
  CHECK(wrong_with(directory + "/").empty());
  // A sticky directory of root's is a good place to stand in, but none to be.
  scratch.make("/sticky", 01777);
  scratch.make("/sticky/default", 0700);
  CHECK(wrong_with(scratch.root + "/sticky/default").empty());
  CHECK(has(wrong_with(scratch.root + "/sticky"), "others may write in " + scratch.root + "/sticky"));
}

TEST_CASE("where there is no run directory nothing is wrong with it", "[control][trust]") {
  const Scratch scratch;
  for (const std::string path : {"/base/default", "/default"}) {
    char why[RNIC_WHY_MAX] = "?";
    CHECK(rnic_run_open(rnic_libc_plain(), (scratch.root + path).c_str(), why, sizeof why) == -1);
    CHECK(errno == ENOENT);
    CHECK(*why == '\0');
  }
}

TEST_CASE("V-SEC-10: where others may write, and behind links, is no daemon", "[control][trust][V-SEC-10]") {
  const Scratch scratch;
  const std::string base = scratch.make("/base", 0755);
  const std::string directory = scratch.make("/base/default", 0700);
  for (const mode_t mode : {0777, 0770, 0722, 01777}) {
    REQUIRE(chmod(directory.c_str(), mode) == 0);
    CHECK(has(wrong_with(directory), "others may write in " + directory));
    CHECK(has(wrong_with(directory), "chmod go-w " + directory));
  }
  REQUIRE(chmod(directory.c_str(), 0700) == 0);
  for (const mode_t mode : {0777, 0775}) {
    REQUIRE(chmod(base.c_str(), mode) == 0);
    CHECK(has(wrong_with(directory), "others may write in " + base));
  }
  REQUIRE(chmod(base.c_str(), 0755) == 0);
  fs::create_symlink("base", scratch.root + "/link");
  CHECK(has(wrong_with(scratch.root + "/link/default"), scratch.root + "/link is a link"));
  fs::create_symlink("default", base + "/link");
  CHECK(has(wrong_with(base + "/link"), base + "/link is a link"));
  // What is before BASE is not a daemon's to make.
  fs::create_symlink(".", scratch.root + "/here");
  CHECK(wrong_with(scratch.root + "/here/base/default").empty());
}

TEST_CASE("V-SEC-10: a directory of another user is no daemon's", "[control][trust][V-SEC-10]") {
  if (geteuid() != 0) {  // whose directory is here that is neither ours nor root's? Root makes one below
    CHECK_FALSE(rnic_daemon_user(rnic_libc_plain(), geteuid() + 1));
    return;
  }
  const Scratch scratch;
  const std::string base = scratch.make("/base", 0755);
  const std::string directory = scratch.make("/base/default", 0700);
  REQUIRE(chown(directory.c_str(), kStranger, kStranger) == 0);
  CHECK(has(wrong_with(directory), directory + " belongs to uid 61001 and not to uid 0; run this as that user"));
  REQUIRE(chown(directory.c_str(), 0, 0) == 0);
  REQUIRE(chown(base.c_str(), kStranger, kStranger) == 0);
  CHECK(has(wrong_with(directory), base + " belongs to uid 61001"));
  REQUIRE(chmod(base.c_str(), 01777) == 0);  // sticky, but whose
  CHECK(has(wrong_with(directory), base + " belongs to uid 61001"));
}

TEST_CASE("V-SEC-10: a daemon makes no directory in one that another could have made", "[control][trust][V-SEC-10]") {
  const Scratch scratch;
  CHECK(control::make_directory(scratch.root + "/a/b/base/default").empty());
  for (const char* path : {"/a", "/a/b", "/a/b/base", "/a/b/base/default"}) {
    struct stat made {};
    REQUIRE(stat((scratch.root + path).c_str(), &made) == 0);
    CHECK((made.st_mode & 07777) == 0700);
  }
  CHECK(control::make_directory(scratch.root + "/a/b/base/default/").empty());
  scratch.make("/open", 0777);
  CHECK(has(control::make_directory(scratch.root + "/open/default"), "others may write in " + scratch.root + "/open"));
  CHECK_FALSE(fs::exists(scratch.root + "/open/default"));
  fs::create_symlink(scratch.root, scratch.root + "/a/link");
  CHECK(has(control::make_directory(scratch.root + "/a/link/default"), scratch.root + "/a/link is a link"));
  CHECK(control::make_directory(scratch.root + "/a/link/base/default").empty());
  fs::create_symlink("nowhere", scratch.root + "/dangling");
  CHECK(has(control::make_directory(scratch.root + "/dangling/default"), "is a link"));
  if (geteuid() == 0) {
    REQUIRE(chown(scratch.make("/theirs", 0755).c_str(), kStranger, kStranger) == 0);
    CHECK(has(control::make_directory(scratch.root + "/theirs/default"), "belongs to uid 61001"));
    CHECK_FALSE(fs::exists(scratch.root + "/theirs/default"));
  }
}

TEST_CASE("V-SEC-10: who stands for all strangers is nobody, not even himself", "[control][trust][V-SEC-10]") {
  const uid_t strangers = rnic_uid_of_strangers(rnic_libc_plain());
  CHECK(strangers != 0);
  CHECK_FALSE(rnic_same_user(rnic_libc_plain(), strangers, strangers));
  CHECK(rnic_same_user(rnic_libc_plain(), 0, 0));
  CHECK(rnic_same_user(rnic_libc_plain(), 61000, 61000));
  CHECK_FALSE(rnic_same_user(rnic_libc_plain(), 61000, 61001));
  CHECK_FALSE(rnic_daemon_user(rnic_libc_plain(), strangers));
  CHECK(rnic_daemon_user(rnic_libc_plain(), 0));
}

TEST_CASE("V-SEC-10: another user's answer is no daemon's", "[control][trust][V-SEC-10]") {
  char why[RNIC_WHY_MAX] = "";
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
  const control::Descriptor one(ends[0]), other(ends[1]);
  CHECK(rnic_daemon_answers(rnic_libc_plain(), one.get(), why, sizeof why));
  CHECK_FALSE(rnic_daemon_answers(rnic_libc_plain(), -1, why, sizeof why));
  CHECK(has(why, "nobody can tell whose daemon answers"));
  if (geteuid() != 0) {
    WARN("another user: needs root");
    return;
  }
  const control::Descriptor theirs = end_of_pair_of(kStranger);
  CHECK_FALSE(rnic_daemon_answers(rnic_libc_plain(), theirs.get(), why, sizeof why));
  CHECK(has(why, "what answers belongs to uid 61001 and not to uid 0 or root: nothing is sent to it"));
  const control::Descriptor nobodys = end_of_pair_of(rnic_uid_of_strangers(rnic_libc_plain()));
  CHECK_FALSE(rnic_daemon_answers(rnic_libc_plain(), nobodys.get(), why, sizeof why));
  CHECK(has(why, "has no number for"));
  // Another user has ours and root's.
  const control::Descriptor roots = end_of_pair_of(0);
  REQUIRE(seteuid(kStranger) == 0);
  const bool his = rnic_daemon_answers(rnic_libc_plain(), theirs.get(), why, sizeof why);
  const bool of_root = rnic_daemon_answers(rnic_libc_plain(), roots.get(), why, sizeof why);
  const bool of_strangers = rnic_daemon_answers(rnic_libc_plain(), nobodys.get(), why, sizeof why);
  REQUIRE(seteuid(0) == 0);
  CHECK(his);
  CHECK(of_root);
  CHECK_FALSE(of_strangers);
}
