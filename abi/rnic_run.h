/*
 * Where daemons are in the file system: the rule that rnicd, the `rnic` command and the stand-in
 * follow alike. C11 and C++20; nothing but libc (rnic_libc.h), nothing allocated.
 *
 * A daemon's run directory is BASE/NAME. BASE is $RNIC_RUN_BASE, and nothing else where that is set; else
 * the first of these that this user may write in:
 *
 *	/run/rnic                 of uid 0 only
 *	$XDG_RUNTIME_DIR/rnic
 *	/tmp/rnic-UID             taken without a look
 *
 * Uid 0 of a user namespace is somebody else outside, whose /run/rnic is not his: he goes on to the
 * places of his own. UID is what the namespace around ours calls us, so that he has the same directory
 * within `unshare -Ur` as outside of it.
 *
 * A daemon of some name is looked for in all of these, and the first in which one of that name has been is
 * taken: what its directory was when it started may not be what a new one would get (no XDG_RUNTIME_DIR at
 * a login by cron, a /run that a sandbox shows read-only).
 *
 * BASE and NAME are opened without following links, and belong to us or root, and nobody else writes in them
 * (rnic_trust.h): a directory that is not so is no daemon's.
 */
#ifndef RNIC_RUN_H
#define RNIC_RUN_H

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rnic_libc.h"
#include "rnic_trust.h"

#define RNIC_RUN_OF_ROOT "/run/rnic"
#define RNIC_RUN_PLACES 3

/* Our uid as the user namespace around ours has it; ours where that cannot be learned. */
static inline unsigned long rnic_uid_outside(const struct rnic_libc *libc)
{
	const unsigned long uid = geteuid();
	char text[512];
	const int fd = libc->open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return uid;
	const ssize_t got = read(fd, text, sizeof text - 1);
	libc->close(fd);
	text[got > 0 ? got : 0] = '\0';
	for (const char *line = text; *line != '\0';) {
		unsigned long inside, outside, count;
		if (sscanf(line, "%lu %lu %lu", &inside, &outside, &count) == 3 && uid >= inside &&
		    uid - inside < count)
			return outside + (uid - inside);
		line = strchr(line, '\n');
		if (line == NULL)
			break;
		++line;
	}
	return uid;
}

/* The place of this number as BASE, into `base`; 0 if there is none or it does not fit. */
static inline int rnic_run_place(const struct rnic_libc *libc, int number, char *base, size_t size)
{
	const char *given = getenv("RNIC_RUN_BASE");
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	int length = -1;
	if (given != NULL && *given != '\0') {
		if (number == 0)
			length = snprintf(base, size, "%s", given);
	} else if (number == 0) {
		if (geteuid() == 0)
			length = snprintf(base, size, "%s", RNIC_RUN_OF_ROOT);
	} else if (number == 1) {
		if (runtime != NULL && *runtime != '\0')
			length = snprintf(base, size, "%s/rnic", runtime);
	} else if (number == 2) {
		length = snprintf(base, size, "/tmp/rnic-%lu", rnic_uid_outside(libc));
	}
	return length > 0 && (size_t)length < size;
}

/* Is `base` a directory of ours that we may write in, or could we make it? */
static inline int rnic_run_writable(const struct rnic_libc *libc, const char *base)
{
	struct stat found;
	char parent[4096];
	const char *slash = strrchr(base, '/');
	if (libc->stat(base, &found) == 0)
		return S_ISDIR(found.st_mode) && rnic_same_user(libc, found.st_uid, geteuid()) &&
		       libc->faccessat(AT_FDCWD, base, W_OK | X_OK, AT_EACCESS) == 0;
	if (errno != ENOENT || slash == NULL || slash == base || (size_t)(slash - base) >= sizeof parent)
		return 0;
	memcpy(parent, base, (size_t)(slash - base));
	parent[slash - base] = '\0';
	return libc->stat(parent, &found) == 0 && S_ISDIR(found.st_mode) &&
	       libc->faccessat(AT_FDCWD, parent, W_OK | X_OK, AT_EACCESS) == 0;
}

/* BASE for a daemon that is to be started. 0 if it does not fit. */
static inline int rnic_run_base(const struct rnic_libc *libc, char *base, size_t size)
{
	const char *given = getenv("RNIC_RUN_BASE");
	const int any = given != NULL && *given != '\0';
	for (int i = 0; i < RNIC_RUN_PLACES; ++i)
		if (rnic_run_place(libc, i, base, size) &&
		    (any || i == RNIC_RUN_PLACES - 1 || rnic_run_writable(libc, base)))
			return 1;
	return 0;
}

/* The directory of a daemon of this name: where one is or was, ours or root's, else where one would be.
 * 0 if it does not fit. */
static inline int rnic_run_directory(const struct rnic_libc *libc, const char *name, char *path, size_t size)
{
	for (int i = 0; i < RNIC_RUN_PLACES; ++i) {
		struct stat found;
		char why[RNIC_WHY_MAX];
		size_t length;
		if (!rnic_run_place(libc, i, path, size))
			continue;
		length = strlen(path);
		if (size - length <= strlen(name) + sizeof "//control.sock")
			continue;
		snprintf(path + length, size - length, "/%s/control.sock", name);
		const int there = libc->stat(path, &found) == 0;
		snprintf(path + length, size - length, "/%s", name);
		const int directory = there ? rnic_run_open(libc, path, why, sizeof why) : -1;
		if (directory >= 0) {
			libc->close(directory);
			return 1;
		}
	}
	if (!rnic_run_base(libc, path, size) || size - strlen(path) <= strlen(name) + 1)
		return 0;
	snprintf(path + strlen(path), size - strlen(path), "/%s", name);
	return 1;
}

#endif
