#include "port/xdp_program.hpp"

#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <iterator>

namespace rnic::port {

namespace {

constexpr unsigned kHasPieces = 1u << 5;  // BPF_F_XDP_HAS_FRAGS, of Linux 5.18

constexpr bpf_insn instruction(unsigned code, unsigned to, unsigned from, int offset, int value) {
  return {.code = static_cast<__u8>(code),
          .dst_reg = static_cast<__u8>(to & 0xF),
          .src_reg = static_cast<__u8>(from & 0xF),
          .off = static_cast<__s16>(offset),
          .imm = value};
}

void close_if_open(int descriptor) {
  if (descriptor >= 0) close(descriptor);
}

}  // namespace

// return bpf_redirect_map(&sockets, context->rx_queue_index, XDP_PASS);
bool XdpProgram::load(bool pieces) {
  const bpf_insn instructions[] = {
      instruction(BPF_LDX | BPF_MEM | BPF_W, BPF_REG_2, BPF_REG_1, offsetof(xdp_md, rx_queue_index), 0),
      instruction(BPF_LD | BPF_IMM | BPF_DW, BPF_REG_1, BPF_PSEUDO_MAP_FD, 0, sockets_),
      instruction(0, 0, 0, 0, 0),  // the number's upper half
      instruction(BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_3, 0, 0, XDP_PASS),
      instruction(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_redirect_map),
      instruction(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
  };
  bpf_prog_load_opts options{};
  options.sz = sizeof options;
  options.prog_flags = pieces ? kHasPieces : 0;
  const int loaded =
      bpf_prog_load(BPF_PROG_TYPE_XDP, "rnic", "Dual MIT/GPL", instructions, std::size(instructions), &options);
  if (loaded < 0) return false;
  close_if_open(program_);
  program_ = loaded;
  return true;
}

bool XdpProgram::link(int interface, unsigned flags) {
  bpf_link_create_opts options{};
  options.sz = sizeof options;
  options.flags = flags;
  link_ = bpf_link_create(program_, interface, BPF_XDP, &options);
  return link_ >= 0;
}

std::unique_ptr<XdpProgram> XdpProgram::attach(int interface, unsigned queues, bool pieces, std::string& error) {
  std::unique_ptr<XdpProgram> made(new XdpProgram);
  const auto fail = [&](const char* what, const char* hint = "") {
    error = std::string(what) + ": " + std::strerror(errno) + hint;
    return nullptr;
  };
  made->sockets_ = bpf_map_create(BPF_MAP_TYPE_XSKMAP, "rnic", sizeof(int), sizeof(int), queues, nullptr);
  if (made->sockets_ < 0) return fail("the kernel makes no map of XDP sockets");
  if (!made->load(pieces))
    return fail("the kernel takes no XDP program", pieces ? " (for such an MTU it has to be Linux 6.6 at least)" : "");
  const auto is_taken = [] { return errno == EBUSY || errno == EEXIST; };
  if (made->link(interface, XDP_FLAGS_DRV_MODE)) return made;
  // Some drivers go by what others may send here, and not by what we receive.
  if (!is_taken() && !pieces && made->load(true) && made->link(interface, XDP_FLAGS_DRV_MODE)) return made;
  if (!is_taken() && made->link(interface, XDP_FLAGS_SKB_MODE)) {
    made->generic_ = true;
    return made;
  }
  return fail("the interface takes no XDP program",
              is_taken() ? " (does another program have the interface's XDP or one of its queues?)" : "");
}

XdpProgram::~XdpProgram() {
  close_if_open(link_);
  close_if_open(program_);
  close_if_open(sockets_);
}

bool XdpProgram::give(unsigned queue, int socket) {
  return bpf_map_update_elem(sockets_, &queue, &socket, BPF_ANY) == 0;
}

}  // namespace rnic::port
