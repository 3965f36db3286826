/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// Our status and opcode to those of ibv_wc: the tables of V-CS-01..25.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "rnic_shm.h"

namespace rnic::provider {

// `detail` of a remote termination is 0xLTCC: layer, type, code of the Terminate (V-CS-05).
constexpr ibv_wc_status remote_termination(std::uint32_t detail) {
  switch (detail >> 8) {
    case 0x01:
    case 0x11:
      return IBV_WC_REM_ACCESS_ERR;
    case 0x02:
    case 0x12:
      return IBV_WC_REM_INV_REQ_ERR;
    default:
      return IBV_WC_REM_OP_ERR;
  }
}

constexpr ibv_wc_status wc_status(std::uint8_t status, std::uint8_t opcode, std::uint32_t detail) {
  const bool bind = opcode == RNIC_OP_BIND;
  switch (status) {
    case RNIC_WC_SUCCESS:
      return IBV_WC_SUCCESS;
    case RNIC_WC_FLUSHED:
      return IBV_WC_WR_FLUSH_ERR;
    case RNIC_WC_LOCAL_CATASTROPHIC:
      return IBV_WC_FATAL_ERR;
    case RNIC_WC_REMOTE_TERMINATION:
      return remote_termination(detail);
    case RNIC_WC_INVALID_STAG:
    case RNIC_WC_WRAP:
      return IBV_WC_LOC_PROT_ERR;
    case RNIC_WC_BASE_BOUNDS:
    case RNIC_WC_ACCESS:
    case RNIC_WC_INVALID_PD:
      return bind ? IBV_WC_MW_BIND_ERR : IBV_WC_LOC_PROT_ERR;
    case RNIC_WC_INVALIDATE_PD_ACCESS:
      return IBV_WC_LOC_ACCESS_ERR;
    case RNIC_WC_STAG_NOT_INVALID:
      return bind ? IBV_WC_MW_BIND_ERR : IBV_WC_LOC_QP_OP_ERR;
    case RNIC_WC_INVALID_REGION:
    case RNIC_WC_INVALID_WINDOW:
      return IBV_WC_MW_BIND_ERR;
    case RNIC_WC_INVALID_LENGTH:
    case RNIC_WC_MESSAGE_TOO_LONG:
      return IBV_WC_LOC_LEN_ERR;
    case RNIC_WC_RETRY_EXCEEDED:
      return IBV_WC_RETRY_EXC_ERR;
    case RNIC_WC_RNR_RETRY_EXCEEDED:
      return IBV_WC_RNR_RETRY_EXC_ERR;
    case RNIC_WC_INVALID_WQE:
    case RNIC_WC_ZERO_READ_RESOURCES:
    case RNIC_WC_NOT_PRIVILEGED:
    case RNIC_WC_INVALID_PAGE_SIZE:
    case RNIC_WC_INVALID_BUFFER_SIZE:
    case RNIC_WC_INVALID_PBL_ENTRY:
    case RNIC_WC_INVALID_FBO:
    case RNIC_WC_INVALID_FR_LENGTH:
    case RNIC_WC_INVALID_FR_ACCESS:
    case RNIC_WC_PBL_TOO_LONG:
    case RNIC_WC_INVALID_VA:
      return IBV_WC_LOC_QP_OP_ERR;
    default:
      return IBV_WC_GENERAL_ERR;
  }
}

constexpr ibv_wc_opcode wc_opcode(std::uint8_t opcode) {
  switch (opcode) {
    case RNIC_OP_WRITE:
    case RNIC_OP_WRITE_IMMEDIATE:
      return IBV_WC_RDMA_WRITE;
    case RNIC_OP_READ:
    case RNIC_OP_READ_INVALIDATE:
      return IBV_WC_RDMA_READ;
    case RNIC_OP_BIND:
      return IBV_WC_BIND_MW;
    case RNIC_OP_LOCAL_INVALIDATE:
      return IBV_WC_LOCAL_INV;
    case RNIC_OP_FETCH_ADD:
      return IBV_WC_FETCH_ADD;
    case RNIC_OP_COMPARE_SWAP:
      return IBV_WC_COMP_SWAP;
    case RNIC_OP_FAST_REGISTER:
      return IBV_WC_DRIVER1;
    case RNIC_OP_RECEIVE:
      return IBV_WC_RECV;
    case RNIC_OP_RECEIVE_WRITE_IMMEDIATE:
      return IBV_WC_RECV_RDMA_WITH_IMM;
    default:
      return IBV_WC_SEND;
  }
}

// Of a datagram it says what header is in front of it, as mlx5's devices have it, by which UCX reads that: 8 for UDP,
// and 2 for IPv4 or 1 for IPv6. There are no levels of service.
constexpr std::uint8_t service_level(std::uint8_t flags) {
  if ((flags & RNIC_CQE_DATAGRAM) == 0) return 0;
  return (flags & RNIC_CQE_IPV4) != 0 ? 0xA : 0x9;
}

}  // namespace rnic::provider
