// SPDX-License-Identifier: GPL-2.0-only
/* Which engine? */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <time.h>

#include "base/say.h"
#include "net/engine.h"
#include "net/sock.h"

const struct engine_ops *const engines[] = { &engine_uring, &engine_poll };
const unsigned int engines_count = sizeof(engines) / sizeof(engines[0]);

#define WHY "(sysctl kernel.io_uring_disabled, seccomp, memlock limit?)"

static const struct engine_ops *choose_any(void)
{
	unsigned int i = 0;
	int r;

	while ((r = engines[i]->supported()) && i + 1 < engines_count) {
		say("%s is not available here: %s %s; using %s, without zero-copy sends", engines[i]->name,
			strerror(-r), WHY, engines[i + 1]->name);
		i++;
	}
	return engines[i];
}

int engine_choose(const char *name, const struct engine_ops **out, struct err *e)
{
	int r;

	if (!name || !strcmp(name, "auto")) {
		*out = choose_any();
		return 0;
	}
	for (unsigned int i = 0; i < engines_count; i++) {
		if (strcmp(engines[i]->name, name))
			continue;
		r = engines[i]->supported();
		if (r)
			return err_set(e, GW_INTERNAL, -r, "%s is not available here: %s %s: use --io auto", name, strerror(-r), WHY);
		*out = engines[i];
		return 0;
	}
	return err_set(e, GW_USAGE, EINVAL, "--io takes auto, uring or poll, not \"%s\"", name);
}

int engine_poll_wait(const struct engine *en, uint64_t ns, short *revents)
{
	struct timespec ts = {
		.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000),
	};
	struct pollfd fd = { .fd = en->fd };
	int r;

	fd.events = (short)((en->sending ? POLLOUT : 0) | (en->receiving ? POLLIN : 0));
	/* With nothing under way it is a pause, and a peer that hangs up must not end it. */
	if (!fd.events)
		fd.fd = -1;
	r = ppoll(&fd, 1, &ts, NULL) < 0 && errno != EINTR ? -errno : 0;
	*revents = fd.revents;
	return r;
}

void engine_poll_cancel_recv(struct engine *en)
{
	en->receiving = false;
}

ssize_t engine_plain_take(struct engine *en, void *buf, size_t len)
{
	return sock_recv_some(en->fd, buf, len);
}

int engine_plain_say(struct engine *en, const void *buf, size_t len, uint64_t deadline)
{
	return sock_send(en->fd, buf, len, deadline);
}

int engine_zero_copy(const char *name, enum engine_zero_copy *out, struct err *e)
{
	static const char *const names[] = { [ENGINE_ZC_AUTO] = "auto", [ENGINE_ZC_ON] = "on", [ENGINE_ZC_OFF] = "off" };

	for (unsigned int i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(names[i], name))
			continue;
		*out = (enum engine_zero_copy)i;
		return 0;
	}
	return err_set(e, GW_USAGE, EINVAL, "--zero-copy takes auto, on or off, not \"%s\"", name);
}
