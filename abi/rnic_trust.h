/*
 * Whom a process of ours takes for the daemon: the rule that the stand-in, the provider and the `rnic` command
 * follow before they say a word, and rnicd where it makes its directory. C11 and C++20, with _GNU_SOURCE; nothing
 * but libc (rnic_libc.h), nothing allocated.
 *
 * What stands in a directory, or answers at a socket in it, is as good as who could have put it there. So both are
 * looked at: the directory when it is opened, and who answers by what the kernel says of him. The latter decides.
 */
#ifndef RNIC_TRUST_H
#define RNIC_TRUST_H

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rnic_libc.h"

/* Room for what is wrong and what to do about it. */
#define RNIC_WHY_MAX 4608
#define RNIC_WHY_STRANGER                                                                                              \
	"which stands for any user that this user namespace has no number for; run rnic as a user of its own"

/* Whom our user namespace has no number for is told to us as this one, and so is everybody else of that kind. */
static inline uid_t rnic_uid_of_strangers(const struct rnic_libc *libc)
{
	char text[16] = "";
	const int fd = libc->open("/proc/sys/kernel/overflowuid", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 65534;
	const ssize_t got = read(fd, text, sizeof text - 1);
	libc->close(fd);
	return got > 0 ? (uid_t)strtoul(text, NULL, 10) : 65534;
}

/* Are these two numbers one user? The strangers' number is nobody's, not even its own. */
static inline int rnic_same_user(const struct rnic_libc *libc, uid_t one, uid_t other)
{
	return one == other && (one == 0 || one != rnic_uid_of_strangers(libc));
}

/* May a daemon of this user have our memory, and a directory of his be a daemon's? Ourselves and root; for root
 * that is root alone. The user of a system daemon would be added here, and nowhere else. */
static inline int rnic_daemon_user(const struct rnic_libc *libc, uid_t uid)
{
	return uid == 0 || rnic_same_user(libc, uid, geteuid());
}

/* Who listens where `socket` is connected to: a daemon that we may speak with? 0 if not; why tells. */
static inline int rnic_daemon_answers(const struct rnic_libc *libc, int socket, char *why, size_t size)
{
	struct ucred peer;
	socklen_t length = sizeof peer;
	if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
		snprintf(why, size, "nobody can tell whose daemon answers (%s)", strerror(errno));
		return 0;
	}
	if (rnic_daemon_user(libc, peer.uid))
		return 1;
	if (peer.uid == rnic_uid_of_strangers(libc))
		snprintf(why, size, "what answers belongs to uid %lu, " RNIC_WHY_STRANGER, (unsigned long)peer.uid);
	else
		snprintf(why, size,
		         "what answers belongs to uid %lu and not to uid %lu or root: nothing is sent to it; start a "
		         "daemon of yours, or set RNIC_RUN_BASE to a directory of yours",
		         (unsigned long)peer.uid, (unsigned long)geteuid());
	return 0;
}

/* A directory of a daemon's, by a descriptor of it; `path` is for the words. Where others may write, they may put
 * their own in the place of what we look for, but for entries of a sticky directory of root's or ours (/tmp): these
 * have owners, which are looked at in their turn. So `entered` says that another component follows. */
static inline int rnic_directory_good(const struct rnic_libc *libc, int directory, const char *path, int entered,
                                      char *why, size_t size)
{
	struct stat found;
	if (libc->fstat(directory, &found) != 0) {
		snprintf(why, size, "cannot look at %s: %s", path, strerror(errno));
		return 0;
	}
	if (!rnic_daemon_user(libc, found.st_uid)) {
		if (found.st_uid == rnic_uid_of_strangers(libc))
			snprintf(why, size, "%s belongs to uid %lu, " RNIC_WHY_STRANGER, path,
			         (unsigned long)found.st_uid);
		else if (geteuid() == 0)
			snprintf(why, size,
			         "%s belongs to uid %lu and not to uid 0; run this as that user, or set "
			         "RNIC_RUN_BASE to a directory of root's",
			         path, (unsigned long)found.st_uid);
		else
			snprintf(
				why, size,
				"%s belongs to uid %lu and not to uid %lu or root; set RNIC_RUN_BASE to a directory of "
				"yours, or remove it",
				path, (unsigned long)found.st_uid, (unsigned long)geteuid());
		return 0;
	}
	if ((found.st_mode & (S_IWGRP | S_IWOTH)) != 0 && !(entered && (found.st_mode & S_ISVTX) != 0)) {
		snprintf(why, size, "others may write in %s (mode %04o); take that away with: chmod go-w %s", path,
		         (unsigned)(found.st_mode & 07777), path);
		return 0;
	}
	return 1;
}

/* Opens a component that is ours to make, within `at`: no link, and as rnic_directory_good() wants it. -1 with errno;
 * `why` tells, but stays empty where there is nothing (ENOENT). */
static inline int rnic_directory_enter(const struct rnic_libc *libc, int at, const char *name, const char *path,
                                       int entered, char *why, size_t size)
{
	const int fd = libc->openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0) {
		if (rnic_directory_good(libc, fd, path, entered, why, size))
			return fd;
		libc->close(fd);
		errno = EPERM;
		return -1;
	}
	const int error = errno;
	if (error == ENOTDIR || error == ELOOP)
		snprintf(why, size,
		         "%s is a link, or no directory; remove it, or set RNIC_RUN_BASE to a directory of yours",
		         path);
	else if (error != ENOENT)
		snprintf(why, size, "cannot open %s: %s%s", path, strerror(error),
		         error == EACCES ? "; a daemon serves its own user: run this as that one, or set RNIC_RUN_BASE "
		                           "to a directory of yours and start a daemon there"
		                         : "");
	errno = error;
	return -1;
}

/* Opens (O_PATH) the run directory BASE/NAME: both are a daemon's to make, what is before them is not. -1 with errno;
 * `why` tells, but stays empty where there is none. */
static inline int rnic_run_open(const struct rnic_libc *libc, const char *directory, char *why, size_t size)
{
	char path[4096];
	size_t length = strlen(directory);
	why[0] = '\0';
	while (length > 1 && directory[length - 1] == '/')
		--length;
	if (length == 0 || length >= sizeof path) {
		errno = length == 0 ? ENOENT : ENAMETOOLONG;
		return -1;
	}
	memcpy(path, directory, length);
	path[length] = '\0';

	char *name = strrchr(path, '/');
	int parent = -1, base = -1;
	if (name == NULL || name == path) { /* NAME, or /NAME */
		base = libc->open(name == NULL ? "." : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
		name = name == NULL ? path : path + 1;
	} else {
		*name++ = '\0';
		char *last = strrchr(path, '/');
		if (last == NULL || last == path) {
			parent = libc->open(last == NULL ? "." : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
		} else {
			*last = '\0';
			parent = libc->open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
			*last = '/';
		}
		if (parent >= 0)
			base = rnic_directory_enter(libc, parent, last == NULL ? path : last + 1, path, 1, why, size);
	}
	int opened = -1;
	if (base >= 0)
		opened = rnic_directory_enter(libc, base, name, directory, 0, why, size);
	const int error = errno;
	if (parent >= 0)
		libc->close(parent);
	if (base >= 0)
		libc->close(base);
	errno = error;
	return opened;
}

#endif
