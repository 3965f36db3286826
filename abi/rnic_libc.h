/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The calls of libc that rnic_trust.h, rnic_run.h and rnic_talk.h make, handed in: the stand-in takes some of them
 * over, and must reach libc's own behind itself; a test hands in what fails as it likes. C11 and C++20.
 */
#ifndef RNIC_LIBC_H
#define RNIC_LIBC_H

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

struct rnic_libc {
	int (*open)(const char *, int, ...);
	int (*openat)(int, const char *, int, ...);
	int (*close)(int);
	int (*stat)(const char *, struct stat *);
	int (*fstat)(int, struct stat *);
	int (*faccessat)(int, const char *, int, int);
	int (*connect)(int, const struct sockaddr *, socklen_t);
	ssize_t (*sendmsg)(int, const struct msghdr *, int);
	ssize_t (*recvmsg)(int, struct msghdr *, int);
	int (*poll)(struct pollfd *, nfds_t, int);
};

/* In C its second argument is a union. */
static inline int rnic_libc_connect(int fd, const struct sockaddr *address, socklen_t size)
{
	return connect(fd, address, size);
}

/* As the names say. */
static inline const struct rnic_libc *rnic_libc_plain(void)
{
	static const struct rnic_libc plain = {open,    openat,  close, stat, fstat, faccessat, rnic_libc_connect,
	                                       sendmsg, recvmsg, poll};
	return &plain;
}

#endif
