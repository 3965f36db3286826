/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The conversation of rnic_control.h, for whoever holds it: the provider, the stand-in, the `rnic` command, the
 * daemon and tests. C11 and C++20, with _GNU_SOURCE; nothing but libc (rnic_libc.h), nothing allocated, no state but
 * the caller's.
 *
 * One way for all of them: EINTR is gone on after. A descriptor that nobody takes is closed. An answer is to the
 * question (type, id) and as long as it says, or there is nobody to talk to any more: then the socket is shut down, so
 * that who watches it learns of it too.
 */
#ifndef RNIC_TALK_H
#define RNIC_TALK_H

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "rnic_control.h"
#include "rnic_libc.h"
#include "rnic_trust.h"

/* ---- Descriptors that come along --------------------------------------------------------- */

struct rnic_fds {
	int fd[RNIC_FDS_MAX];
	unsigned count, taken;
	int cut; /* more came than there was room for */
};

/* The next one, which is the caller's from now on; -1: there is none. */
static inline int rnic_fds_take(struct rnic_fds *fds)
{
	return fds->taken < fds->count ? fds->fd[fds->taken++] : -1;
}

static inline void rnic_fds_close(const struct rnic_libc *libc, struct rnic_fds *fds)
{
	while (fds->taken < fds->count)
		libc->close(fds->fd[fds->taken++]);
}

/* ---- One message ------------------------------------------------------------------------- */

/* header->length is of the whole message, and `body` what of it is behind the header. MSG_DONTWAIT, or 0. 0, or an
 * errno. */
static inline int rnic_say(const struct rnic_libc *libc, int socket, int flags, const struct rnic_msg *header,
                           const void *body, const int *fds, unsigned fd_count)
{
	/* Aligned as a struct cmsghdr is. */
	size_t control[(CMSG_SPACE(sizeof(int) * RNIC_FDS_MAX) + sizeof(size_t) - 1) / sizeof(size_t)];
	struct iovec parts[2];
	struct msghdr message;
	ssize_t sent;
	if (header->length < sizeof *header || header->length > RNIC_MSG_MAX || fd_count > RNIC_FDS_MAX)
		return EMSGSIZE;
	parts[0].iov_base = (void *)(uintptr_t)header;
	parts[0].iov_len = sizeof *header;
	parts[1].iov_base = (void *)(uintptr_t)body;
	parts[1].iov_len = header->length - sizeof *header;
	memset(&message, 0, sizeof message);
	message.msg_iov = parts;
	message.msg_iovlen = parts[1].iov_len > 0 ? 2 : 1;
	if (fd_count > 0) {
		struct cmsghdr *rights;
		memset(control, 0, sizeof control);
		message.msg_control = control;
		message.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
		rights = CMSG_FIRSTHDR(&message);
		rights->cmsg_level = SOL_SOCKET;
		rights->cmsg_type = SCM_RIGHTS;
		rights->cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
		memcpy(CMSG_DATA(rights), fds, sizeof(int) * fd_count);
	}
	do
		sent = libc->sendmsg(socket, &message, flags | MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	if (sent < 0)
		return errno;
	return (size_t)sent == header->length ? 0 : EIO;
}

/* recvmsg(), gone on after EINTR. */
static inline ssize_t rnic_recvmsg(const struct rnic_libc *libc, int socket, struct msghdr *message, int flags)
{
	const size_t room = message->msg_controllen;
	ssize_t got;
	do {
		message->msg_controllen = room;
		got = libc->recvmsg(socket, message, flags | MSG_CMSG_CLOEXEC);
	} while (got < 0 && errno == EINTR);
	return got;
}

/* The descriptors that came with a message, at most `room`; their number. */
static inline unsigned rnic_rights(struct msghdr *message, int *fds, unsigned room)
{
	struct cmsghdr *part;
	unsigned taken = 0;
	for (part = CMSG_FIRSTHDR(message); part != NULL; part = CMSG_NXTHDR(message, part)) {
		size_t count, i;
		if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
			continue;
		count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (i = 0; i < count && taken < room; ++i)
			memcpy(&fds[taken++], CMSG_DATA(part) + i * sizeof(int), sizeof(int));
	}
	return taken;
}

/* Is what came, with these flags of recvmsg(), one message, and as long as its header says? */
static inline int rnic_is_whole(const struct rnic_msg *header, size_t got, int flags)
{
	return (flags & MSG_TRUNC) == 0 && got >= sizeof *header && got <= RNIC_MSG_MAX && header->length == got;
}

enum rnic_heard {
	RNIC_HEARD_MESSAGE = 0,
	RNIC_HEARD_NOTHING,  /* none waits */
	RNIC_HEARD_END,      /* the other end has closed, or the socket is broken */
	RNIC_HEARD_MALFORMED /* too long, too short, or its length is not what it says */
};

/* The next message, its body in `body`, of `room` octets; more is malformed. Descriptors come with a message only. */
static inline enum rnic_heard rnic_hear(const struct rnic_libc *libc, int socket, int flags, struct rnic_msg *header,
                                        void *body, size_t room, size_t *body_size, struct rnic_fds *fds)
{
	size_t control[(CMSG_SPACE(sizeof(int) * RNIC_FDS_MAX) + sizeof(size_t) - 1) / sizeof(size_t)];
	struct iovec parts[2];
	struct msghdr message;
	ssize_t got;
	memset(fds, 0, sizeof *fds);
	*body_size = 0;
	parts[0].iov_base = header;
	parts[0].iov_len = sizeof *header;
	parts[1].iov_base = body;
	parts[1].iov_len = room;
	memset(&message, 0, sizeof message);
	message.msg_iov = parts;
	message.msg_iovlen = 2;
	message.msg_control = control;
	message.msg_controllen = sizeof control;
	got = rnic_recvmsg(libc, socket, &message, flags);
	if (got < 0)
		return errno == EAGAIN ? RNIC_HEARD_NOTHING : RNIC_HEARD_END;
	fds->count = rnic_rights(&message, fds->fd, RNIC_FDS_MAX);
	fds->cut = (message.msg_flags & MSG_CTRUNC) != 0;
	if (rnic_is_whole(header, (size_t)got, message.msg_flags)) {
		*body_size = (size_t)got - sizeof *header;
		return RNIC_HEARD_MESSAGE;
	}
	rnic_fds_close(libc, fds);
	return got == 0 ? RNIC_HEARD_END : RNIC_HEARD_MALFORMED;
}

/* ---- Questions and answers --------------------------------------------------------------- */

/* What became of a question; what is more than 0 is the daemon's status, or an errno of ours. */
#define RNIC_TALK_GONE (-1)   /* there is no daemon at this socket any more, or none that answers what it is asked */
#define RNIC_TALK_ABSENT (-2) /* nobody listens where a daemon would */
#define RNIC_TALK_LATE (-3)   /* no answer within the time; the connection is of no more use */

/* One connection. Questions are asked one at a time: who shares it between threads has a lock. */
struct rnic_talk {
	const struct rnic_libc *libc;
	int socket;
	uint32_t next_id;
	int limit_ms; /* for each answer; 0: as long as it takes */
};

struct rnic_question {
	uint32_t type;
	const void *request;
	size_t request_size;
	const int *fds; /* that go along: the caller's still */
	unsigned fd_count;
	void *reply;              /* written with a status of 0 only */
	size_t reply_room;        /* of what is longer the rest is dropped */
	size_t reply_size;        /* what was written */
	struct rnic_fds received; /* the caller's, who takes or closes them; none with an error */
};

static inline long long rnic_talk_now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Waits on a socket that may be non-blocking. 0 when the time is over (until_ms, if more than 0). */
static inline int rnic_talk_wait(const struct rnic_talk *talk, short events, long long until_ms)
{
	for (;;) {
		struct pollfd one;
		const long long left = until_ms > 0 ? until_ms - rnic_talk_now_ms() : -1;
		one.fd = talk->socket;
		one.events = events;
		one.revents = 0;
		if (until_ms > 0 && left <= 0)
			return 0;
		if (talk->libc->poll(&one, 1, (int)left) != 0 && one.revents != 0)
			return 1;
	}
}

static inline int rnic_talk_give_up(const struct rnic_talk *talk, int result)
{
	shutdown(talk->socket, SHUT_RDWR);
	return result;
}

/* Asks, and waits for the answer: 0, RNIC_TALK_GONE, RNIC_TALK_LATE, or a status. EPROTO: it is shorter than its row in
 * rnic_messages.h says. */
static inline int rnic_ask(struct rnic_talk *talk, struct rnic_question *question)
{
	const struct rnic_message *row = rnic_message_of(question->type);
	const struct rnic_libc *libc = talk->libc;
	const long long until_ms = talk->limit_ms > 0 ? rnic_talk_now_ms() + talk->limit_ms : 0;
	/* Aligned for every structure. */
	uint64_t body[RNIC_MSG_MAX / sizeof(uint64_t)];
	struct rnic_msg header, answer;
	enum rnic_heard heard;
	size_t size;
	int error;
	memset(&question->received, 0, sizeof question->received);
	question->reply_size = 0;
	if (row == NULL)
		return ENOSYS;
	header.type = question->type;
	header.id = talk->next_id++;
	header.status = 0;
	header.length = (uint32_t)(sizeof header + question->request_size);
	while ((error = rnic_say(libc, talk->socket, 0, &header, question->request, question->fds,
	                         question->fd_count)) == EAGAIN)
		if (!rnic_talk_wait(talk, POLLOUT, until_ms))
			return rnic_talk_give_up(talk, RNIC_TALK_LATE);
	if (error == EMSGSIZE)
		return error;
	if (error != 0)
		return rnic_talk_give_up(talk, RNIC_TALK_GONE);

	do {
		if (until_ms > 0 && !rnic_talk_wait(talk, POLLIN, until_ms))
			return rnic_talk_give_up(talk, RNIC_TALK_LATE);
		heard = rnic_hear(libc, talk->socket, 0, &answer, body, sizeof body, &size, &question->received);
		if (heard == RNIC_HEARD_NOTHING)
			rnic_talk_wait(talk, POLLIN, until_ms);
	} while (heard == RNIC_HEARD_NOTHING);
	if (heard != RNIC_HEARD_MESSAGE)
		return rnic_talk_give_up(talk, RNIC_TALK_GONE);
	if (answer.type != header.type || answer.id != header.id) {
		rnic_fds_close(libc, &question->received);
		return rnic_talk_give_up(talk, RNIC_TALK_GONE);
	}
	if (answer.status != 0 || size < row->reply_size) {
		rnic_fds_close(libc, &question->received);
		memset(&question->received, 0, sizeof question->received);
		if (answer.status == 0)
			return EPROTO;
		return answer.status > 0 ? answer.status : -answer.status;
	}
	question->reply_size = size < question->reply_room ? size : question->reply_room;
	if (question->reply_size > 0)
		memcpy(question->reply, body, question->reply_size);
	return 0;
}

/* ---- The beginning ----------------------------------------------------------------------- */

/* Where the socket of a daemon is, by a descriptor of its run directory: the directory that was looked at, whatever
 * has its name by now; and no name is too long. */
static inline void rnic_talk_address(struct sockaddr_un *address, int directory)
{
	memset(address, 0, sizeof *address);
	address->sun_family = AF_UNIX;
	snprintf(address->sun_path, sizeof address->sun_path, "/proc/self/fd/%d/control.sock", directory);
}

/* Connects a socket (AF_UNIX, SOCK_SEQPACKET) to the daemon of this run directory, if it is one that we may speak with
 * (rnic_trust.h). 0; RNIC_TALK_ABSENT; or an errno: with EPERM, why tells who or what is not to be trusted, or is
 * empty. */
static inline int rnic_talk_connect(const struct rnic_libc *libc, int socket, const char *run_directory, char *why,
                                    size_t size)
{
	struct sockaddr_un address;
	const int directory = rnic_run_open(libc, run_directory, why, size);
	int error = 0;
	if (directory < 0)
		return why[0] != '\0' ? EPERM : errno == ENOENT ? RNIC_TALK_ABSENT : errno;
	rnic_talk_address(&address, directory);
	while (libc->connect(socket, (const struct sockaddr *)&address, sizeof address) != 0) {
		error = errno;
		if (error != EINTR)
			break;
		error = 0;
	}
	if (error == 0 && !rnic_daemon_answers(libc, socket, why, size))
		error = EPERM;
	libc->close(directory);
	return error == ENOENT || error == ECONNREFUSED || error == ENOTDIR ? RNIC_TALK_ABSENT : error;
}

/* The first question; of `hello`, all but version and pid. As rnic_ask(); EPROTONOSUPPORT: a daemon of another
 * version. */
static inline int rnic_talk_hello(struct rnic_talk *talk, struct rnic_hello *hello, struct rnic_hello_reply *reply)
{
	struct rnic_question question;
	int error;
	hello->abi_version = RNIC_ABI_VERSION;
	hello->pid = (uint32_t)getpid();
	memset(&question, 0, sizeof question);
	memset(reply, 0, sizeof *reply);
	question.type = RNIC_HELLO;
	question.request = hello;
	question.request_size = sizeof *hello;
	question.reply = reply;
	question.reply_room = sizeof *reply;
	error = rnic_ask(talk, &question);
	rnic_fds_close(talk->libc, &question.received);
	if (error == 0 && reply->abi_version != RNIC_ABI_VERSION)
		return EPROTONOSUPPORT;
	return error;
}

#endif
