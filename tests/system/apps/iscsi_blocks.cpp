// A disk by iSCSI, as libiscsi has it: reads all of its blocks and compares them with a file, writes others and reads
// them back.
//
//   iscsi_blocks URL INITIATOR FILE        URL: iser://ADDRESS/TARGET/LUN
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

namespace {

using Octets = std::vector<unsigned char>;

constexpr std::uint32_t kBlock = 512, kPiece = 128 * kBlock;

void need(bool so, const char* what, const char* why) {
  if (so) return;
  std::printf("%s: %s\n", what, why);
  std::exit(1);
}

class Disk {
 public:
  Disk(const char* url, const char* initiator) : iscsi_(iscsi_create_context(initiator)) {
    need(iscsi_ != nullptr, "iscsi_create_context", initiator);
    iscsi_url* const parsed = iscsi_parse_full_url(iscsi_, url);
    need(parsed != nullptr, "the URL", iscsi_get_error(iscsi_));
    iscsi_set_targetname(iscsi_, parsed->target);
    iscsi_set_session_type(iscsi_, ISCSI_SESSION_NORMAL);
    need(iscsi_full_connect_sync(iscsi_, parsed->portal, parsed->lun) == 0, "login", iscsi_get_error(iscsi_));
    lun_ = parsed->lun;
    iscsi_destroy_url(parsed);
  }
  ~Disk() {
    iscsi_logout_sync(iscsi_);
    iscsi_destroy_context(iscsi_);
  }
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;

  Octets read(std::uint32_t from, std::uint32_t length) {
    scsi_task* const task = iscsi_read10_sync(iscsi_, lun_, from / kBlock, length, kBlock, 0, 0, 0, 0, 0);
    need(task != nullptr && task->status == SCSI_STATUS_GOOD, "read", iscsi_get_error(iscsi_));
    const Octets data(task->datain.data, task->datain.data + task->datain.size);
    scsi_free_scsi_task(task);
    return data;
  }
  void write(std::uint32_t to, Octets data) {
    scsi_task* const task = iscsi_write10_sync(iscsi_, lun_, to / kBlock, data.data(),
                                               static_cast<std::uint32_t>(data.size()), kBlock, 0, 0, 0, 0, 0);
    need(task != nullptr && task->status == SCSI_STATUS_GOOD, "write", iscsi_get_error(iscsi_));
    scsi_free_scsi_task(task);
  }

 private:
  iscsi_context* iscsi_;
  int lun_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  // libiscsi 1.19 makes lists of what it has from malloc and takes for zeros (iser_reg_mr): so they are.
  mallopt(M_PERTURB, 0xff);
  std::ifstream file(argv[3], std::ios::binary);
  const Octets wanted{std::istreambuf_iterator<char>(file), {}};
  need(!wanted.empty() && wanted.size() % kPiece == 0, argv[3], "not whole pieces");
  Disk disk(argv[1], argv[2]);
  const auto size = static_cast<std::uint32_t>(wanted.size());
  for (std::uint32_t at = 0; at < size; at += kPiece) {
    const Octets found = disk.read(at, kPiece);
    need(std::equal(found.begin(), found.end(), wanted.begin() + at, wanted.begin() + at + kPiece), "read",
         "not what is in the file");
  }
  std::uint32_t octets = size;
  for (std::uint32_t length = kBlock; length <= kPiece; length *= 2) {
    Octets mine(length);
    for (std::uint32_t i = 0; i < length; ++i) mine[i] = static_cast<unsigned char>(i * 13 + length);
    disk.write(length * 4, mine);
    need(disk.read(length * 4, length) == mine, "write", "not what was written");
    octets += 2 * length;
  }
  std::printf("%u octets right\n", octets);
  return 0;
}
