// SPDX-License-Identifier: GPL-2.0-only
/* A receiver that says that it listens serves stop requests at once: what it asks QEMU first is behind it then. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/stop.h"
#include "qmp_peer.h"
#include "receive/receiver_internal.h"

/* Refuses all questions; at the first one an operator stops the receiver. */
static void qemu(struct peer *p)
{
	peer_say(p, GREETING);
	peer_hear(p, "qmp_capabilities");
	peer_reply(p, "return", "{}");
	while (peer_line(p)) {
		stop_request(STOP_COMMAND);
		peer_reply(p, "error", "{\"class\": \"CommandNotFound\", \"desc\": \"no\"}");
	}
}

static void stopped_before_it_says_that_it_listens(void **state)
{
	struct peer peer;
	struct err e = { 0 };
	char address[160];
	struct receiver_options o = { .listen = address, .listen_fd = -1 };
	struct receiver r = { .o = &o, .lfd = -1, .vm = { .pidfd = -1 }, .postcopy = POSTCOPY_NONE, .record = RECORD_NONE };
	FILE *said = tmpfile();
	int before, ret;

	(void)state;
	assert_non_null(said);
	assert_int_equal(peer_start(&peer, qemu, NULL, 4), 0);
	snprintf(address, sizeof(address), "unix:%s/listen", peer.dir);
	assert_int_equal(qmp_open(peer.path, 2000, &r.qmp, &e), 0);
	fflush(stdout);
	before = dup(STDOUT_FILENO);
	dup2(fileno(said), STDOUT_FILENO);
	ret = accept_sender(&r, &e);
	fflush(stdout);
	dup2(before, STDOUT_FILENO);
	close(before);
	assert_int_equal(ret, -EINTR);
	assert_int_equal(e.exit, GW_CANCELLED);
	assert_true(r.lfd >= 0);
	assert_int_equal(lseek(fileno(said), 0, SEEK_END), 0);
	assert_int_equal(unlink(address + strlen("unix:")), 0);
	close(r.lfd);
	fclose(said);
	qom_known_free(&r.known);
	qmp_close(r.qmp);
	peer_stop(&peer);
	assert_string_equal(peer.missed, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stopped_before_it_says_that_it_listens),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
