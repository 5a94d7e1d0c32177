// SPDX-License-Identifier: GPL-2.0-only
/* The QMP client's first contact, its ends, its timeouts and its bounds. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/clock.h"
#include "net/sock.h"
#include "net/unix.h"
#include "qmp/qmp.h"
#include "qmp/qmp_internal.h"
#include "qmp_peer.h"

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))
#define TIMEOUT_MS	600
#define SLACK_MS	10000

/* qmp_open() on a peer with this script must fail so. */
static void expect_no_open(peer_script *script, const void *arg, int r, enum gw_exit exit, const char *part)
{
	struct qmp *q = (struct qmp *)&r;
	struct err e = { 0 };
	struct peer p;

	assert_int_equal(peer_start(&p, script, arg, 4), 0);
	assert_int_equal(qmp_open(p.path, TIMEOUT_MS, &q, &e), r);
	assert_null(q);
	assert_int_equal(e.exit, exit);
	assert_non_null(strstr(e.text, part));
	assert_null(strpbrk(e.text, "\r\n"));
	peer_stop(&p);
	assert_string_equal(p.missed, "");
}

static void open_peer(struct peer *p)
{
	peer_negotiate(p);
	peer_line(p);
}

static void test_open(void **state)
{
	struct err e = { 0 };
	struct qmp *q;
	struct peer p;

	(void)state;
	assert_int_equal(peer_start(&p, open_peer, NULL, 4), 0);
	assert_int_equal(qmp_open(p.path, TIMEOUT_MS, &q, &e), 0);
	assert_int_equal(qmp_version(q), 70222);
	assert_int_equal(qmp_peer_pid(q), getpid());
	assert_true(fcntl(qmp_fd(q), F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(qmp_fd(q), F_GETFD) & FD_CLOEXEC);
	qmp_close(q);
	peer_stop(&p);
	assert_string_equal(p.missed, "");
	qmp_close(NULL);
}

static void test_no_socket(void **state)
{
	char file[] = "/tmp/godwit-test-XXXXXX", longer[200];
	const struct { const char *path; int r; const char *part; } cases[] = {
		{ "/tmp/godwit-test-none", -ENOENT, "server=on" },
		{ "", -ENOENT, "no such socket" },
		{ file, -ECONNREFUSED, "no process listens" },
		{ longer, -ENAMETOOLONG, "too long" },
		{ "/dev/null/x", -ENOTDIR, "cannot connect" },
	};

	(void)state;
	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	close(mkstemp(file));
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct err e = { 0 };
		struct qmp *q;

		assert_int_equal(qmp_open(cases[i].path, TIMEOUT_MS, &q, &e), cases[i].r);
		assert_int_equal(e.exit, GW_NO_SOCKET);
		assert_non_null(strstr(e.text, cases[i].part));
		assert_null(q);
	}
	unlink(file);
}

static void saying_peer(struct peer *p)
{
	peer_say(p, p->arg);
	while (peer_line(p))
		;
}

static void closing_peer(struct peer *p)
{
	peer_say(p, p->arg);
}

static void test_not_qemu(void **state)
{
	static const char *const others[] = {
		"RFB 003.008\n", "220 mail ESMTP\r\n", "\x15\x03\x01", "[]\n", "{}\n", "{\"QMP\": 5}\n",
		"{\"QMP\": {\"version\": {\"qemu\": {\"major\": \"7\", \"minor\": 2, \"micro\": 1}}}}\n",
		"{\"QMP\": {\"version\": {\"qemu\": {\"major\": 7, \"minor\": 2}}}}\n",
		"{\"QMP\": {\"version\": {\"qemu\": {\"major\": 7, \"minor\": -2, \"micro\": 1}}}}\n",
		"{\"QMP\": {\"version\": {\"qemu\": {\"major\": 4294967303, \"minor\": 2, \"micro\": 1}}}}\n",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		expect_no_open(saying_peer, others[i], -EPROTO, GW_NOT_QEMU, "-qmp option");
	expect_no_open(saying_peer, "QEMU 7.2.22 monitor - type 'help' for more information\r\n(qemu) ", -EPROTO, GW_NOT_QEMU,
		       "human monitor");
	expect_no_open(saying_peer, "hello\r\n\x1b[31m", -EPROTO, GW_NOT_QEMU, "it sent \"hello");
	expect_no_open(closing_peer, "", -EPROTO, GW_NOT_QEMU, "without a QMP greeting");
	expect_no_open(closing_peer, "{\"QMP\": {\"ver", -EPROTO, GW_NOT_QEMU, "without a QMP greeting");
	/* Between the greeting and the answer it is QEMU, and has gone. */
	expect_no_open(closing_peer, GREETING, -ECONNRESET, GW_VM_GONE, "closed");
}

static void test_silence_at_first(void **state)
{
	uint64_t start = now_ns();

	(void)state;
	expect_no_open(saying_peer, "", -ETIMEDOUT, GW_TIMEOUT, "one client at a time");
	assert_in_range(now_ns() - start, (TIMEOUT_MS - 1) * 1000000ull, (TIMEOUT_MS + SLACK_MS) * 1000000ull);
	expect_no_open(saying_peer, "{\"QMP\": ", -ETIMEDOUT, GW_TIMEOUT, "one client at a time");
	expect_no_open(saying_peer, GREETING, -ETIMEDOUT, GW_TIMEOUT, "qmp_capabilities");
}

/* Others queue for the socket already, so that connect() itself is put off. */
static void test_full_queue(void **state)
{
	struct err e = { 0 };
	int waiting[8], n = 0;
	struct qmp *q;
	struct peer p;

	(void)state;
	assert_int_equal(peer_start(&p, NULL, NULL, 0), 0);
	do {
		waiting[n] = sock_unix_connect(p.path);
	} while (waiting[n] >= 0 && ++n < 8);
	assert_in_range(n, 1, 7);
	assert_int_equal(waiting[n], -EAGAIN);
	assert_int_equal(qmp_open(p.path, TIMEOUT_MS, &q, &e), -ETIMEDOUT);
	assert_int_equal(e.exit, GW_TIMEOUT);
	assert_non_null(strstr(e.text, "one client at a time"));
	while (n)
		close(waiting[--n]);
	peer_stop(&p);
}

/**
 * struct ending - what a peer says to the first command before it closes
 * @hears: it reads the command first
 */
struct ending {
	const char *says;
	bool hears;
};

static void ending_peer(struct peer *p)
{
	const struct ending *x = p->arg;

	peer_negotiate(p);
	if (x->hears)
		peer_hear(p, "stop");
	peer_say(p, x->says);
}

static void test_end_during_command(void **state)
{
	static const struct ending endings[] = {
		{ "", false }, { "", true }, { "{", true }, { "{\"return\": {}, \"id\": 2}", true }, { "{\"event\": \"SHUTDOWN\"}\n", true },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(endings); i++) {
		struct err e = { 0 }, e2 = { 0 };
		struct qmp *q;
		struct peer p;

		assert_int_equal(peer_start(&p, ending_peer, &endings[i], 4), 0);
		assert_int_equal(qmp_open(p.path, 2000, &q, &e), 0);
		if (!endings[i].hears)
			pthread_join(p.thread, NULL);	/* gone before we speak */
		assert_int_equal(qmp_call(q, "stop", NULL, NULL, &e), -ECONNRESET);
		assert_int_equal(e.exit, GW_VM_GONE);
		assert_int_equal(!!strstr(e.text, "middle of a message"), i == 2 || i == 3);
		assert_int_equal(qmp_call(q, "cont", NULL, NULL, &e2), -ECONNRESET);
		assert_int_equal(e2.exit, GW_VM_GONE);
		qmp_close(q);
		if (!endings[i].hears)
			p.script = NULL;	/* joined */
		peer_stop(&p);
	}
}

/* Says its text again and again, until the client has had enough. */
static void endless_peer(struct peer *p)
{
	uint64_t until = now_ns() + 60000000000ull;
	int bytes = 16 << 20;

	/* So that the client never finds the socket empty; only root may have that much. */
	setsockopt(p->fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes));
	peer_negotiate(p);
	peer_hear(p, "stop");
	while (now_ns() < until && send(p->fd, p->arg, strlen(p->arg), MSG_NOSIGNAL) > 0)
		if (strlen(p->arg) == 1)
			peer_nap(1);
}

static void expect_no_answer(peer_script *script, const char *arg, int r, enum gw_exit exit, unsigned int timeout_ms)
{
	struct err e = { 0 };
	uint64_t start;
	struct qmp *q;
	struct peer p;

	assert_int_equal(peer_start(&p, script, arg, 4), 0);
	assert_int_equal(qmp_open(p.path, timeout_ms, &q, &e), 0);
	start = now_ns();
	assert_int_equal(qmp_call(q, "stop", NULL, NULL, &e), r);
	assert_int_equal(e.exit, exit);
	assert_in_range(now_ns() - start, 0, (timeout_ms + SLACK_MS) * 1000000ull);
	qmp_close(q);
	peer_stop(&p);
}

static void test_talk_without_an_answer(void **state)
{
	static const char event[] = "{\"event\": \"NOISE\"}\n";
	static char events[1000 * sizeof(event)];	/* faster than they can be read */

	(void)state;
	for (int i = 0; i < 1000; i++)
		strcpy(events + i * (sizeof(event) - 1), event);
	expect_no_answer(endless_peer, events, -ETIMEDOUT, GW_TIMEOUT, TIMEOUT_MS);
	expect_no_answer(endless_peer, " ", -ETIMEDOUT, GW_TIMEOUT, TIMEOUT_MS);
	expect_no_answer(endless_peer, "{", -ETIMEDOUT, GW_TIMEOUT, TIMEOUT_MS);
}

/* arg: how many bytes of string the reply holds. */
static void large_peer(struct peer *p)
{
	size_t len = *(const size_t *)p->arg;
	char *text = malloc(len);

	memset(text, 'x', len);
	peer_negotiate(p);
	peer_hear(p, "stop");
	peer_say(p, "{\"return\": \"");
	peer_write(p, text, len);
	peer_say(p, "\", \"id\": 2}\n");
	free(text);
	peer_line(p);
}

static void test_large_replies(void **state)
{
	static const size_t lens[] = { 65536 - 11, 65536, 3000000, QMP_LINE_MAX - 4096, QMP_LINE_MAX + 65536 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
		bool fits = lens[i] < QMP_LINE_MAX;
		struct err e = { 0 };
		json_t *ret = NULL;
		struct qmp *q;
		struct peer p;

		assert_int_equal(peer_start(&p, large_peer, &lens[i], 4), 0);
		assert_int_equal(qmp_open(p.path, 20000, &q, &e), 0);
		assert_int_equal(qmp_call(q, "stop", NULL, &ret, &e), fits ? 0 : -EPROTO);
		assert_int_equal(e.exit, fits ? GW_OK : GW_NOT_QEMU);
		assert_int_equal(json_string_length(ret), fits ? lens[i] : 0);
		json_decref(ret);
		qmp_close(q);
		peer_stop(&p);
	}
}

#define FLOOD (QMP_EVENTS_MAX + 100)

static void flooding_peer(struct peer *p)
{
	char line[64];

	peer_negotiate(p);
	peer_hear(p, "stop");
	for (int i = 0; i < FLOOD; i++) {
		snprintf(line, sizeof(line), "{\"event\": \"E\", \"data\": {\"n\": %d}}\n", i);
		peer_say(p, line);
	}
	peer_reply(p, "return", "{}");
	peer_line(p);
}

/* The newest stay, in order. */
static void test_event_queue_is_bounded(void **state)
{
	struct err e = { 0 };
	struct qmp_event ev;
	int n = FLOOD - QMP_EVENTS_MAX;
	struct qmp *q;
	struct peer p;

	(void)state;
	assert_int_equal(peer_start(&p, flooding_peer, NULL, 4), 0);
	assert_int_equal(qmp_open(p.path, 5000, &q, &e), 0);
	assert_int_equal(qmp_call(q, "stop", NULL, NULL, &e), 0);
	while (qmp_event(q, 0, &ev, &e) == 1)
		assert_int_equal(json_integer_value(json_object_get(ev.data, "n")), n++);
	assert_int_equal(n, FLOOD);
	qmp_close(q);
	peer_stop(&p);
}

static void fat_event_peer(struct peer *p)
{
	char *text = malloc(QMP_EVENT_MAX + 1);

	memset(text, 'x', QMP_EVENT_MAX + 1);
	peer_negotiate(p);
	peer_hear(p, "stop");
	peer_say(p, "{\"event\": \"");
	peer_write(p, text, QMP_EVENT_MAX + 1);
	peer_say(p, "\"}\n");
	free(text);
	peer_line(p);
}

static void test_fat_event(void **state)
{
	(void)state;
	expect_no_answer(fat_event_peer, NULL, -EPROTO, GW_NOT_QEMU, 2000);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_open),
	cmocka_unit_test(test_no_socket),
	cmocka_unit_test(test_not_qemu),
	cmocka_unit_test(test_silence_at_first),
	cmocka_unit_test(test_full_queue),
	cmocka_unit_test(test_end_during_command),
	cmocka_unit_test(test_talk_without_an_answer),
	cmocka_unit_test(test_large_replies),
	cmocka_unit_test(test_event_queue_is_bounded),
	cmocka_unit_test(test_fat_event),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
