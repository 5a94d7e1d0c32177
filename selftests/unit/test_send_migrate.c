// SPDX-License-Identifier: GPL-2.0-only
/* Whether the guest ran when QEMU stopped it: what QEMU says counts, and not what the guest writes into QEMU's stream. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "send/sender_internal.h"

#define SECTION	"\4\0\0\0\7\x0bglobalstate\0\0\0\0\0\0\0\1\0\0\0"
#define BYTES	200u

/**
 * struct world - QEMU, and what the sender made of it
 * @ran: before `migrate`; @stops: QEMU says STOP
 * @ram, @device: what it writes before and after pre-switchover: "running", "paused" or NULL
 */
static struct world {
	bool ran, stops, continued;
	const char *ram[2], *device[2];
	int qemu, recorded;
	size_t bytes;
} w;

int __wrap_migration_running(struct qmp *q, bool *running, struct err *e);
int __wrap_migration_plan(struct migration *m, bool incoming, bool save, unsigned int ms, struct err *e);
int __wrap_migration_configure(struct migration *m, struct err *e);
int __wrap_migration_start(struct migration *m, bool incoming, struct err *e);
int __wrap_migration_continue(struct migration *m, struct err *e);
int __wrap_journal_command(struct journal *j, const char *execute, json_t *args, bool setting, struct err *e);
int __wrap_journal_completed(struct journal *j, struct qmp *q, bool running, struct err *e);
int __wrap_sender_events(struct sender *s, char *status, size_t len, struct err *e);
int __wrap_sender_wait_qemu(struct sender *s, int stream, unsigned int ms, struct err *e);
int __wrap_sender_device(struct sender *s, const uint8_t *p, size_t len, struct err *e);
int __wrap_backends_same(struct qmp *q, const struct vm *vm, struct err *e);
int __wrap_sender_check_same(struct sender *s, struct err *e);
int __wrap_late_rounds_step(struct sender *s, uint64_t since_ns, struct err *e);
int __wrap_late_rounds_end(struct sender *s, struct err *e);

static void writes(const char *const notes[2])
{
	for (unsigned int i = 0; i < 2; i++) {
		uint8_t bytes[BYTES] = { 0 };

		if (!notes[i])
			continue;
		memcpy(bytes, SECTION, sizeof(SECTION) - 1);
		bytes[sizeof(SECTION) - 1] = (uint8_t)(strlen(notes[i]) + 1);
		strcpy((char *)bytes + sizeof(SECTION), notes[i]);
		assert_int_equal(write(w.qemu, bytes, BYTES), BYTES);
	}
}

int __wrap_migration_running(struct qmp *q, bool *running, struct err *e)
{
	(void)q;
	(void)e;
	*running = w.ran;
	return 0;
}

int __wrap_migration_plan(struct migration *m, bool incoming, bool save, unsigned int ms, struct err *e)
{
	(void)incoming;
	(void)save;
	(void)ms;
	(void)e;
	m->old_caps = json_array();
	m->old_params = json_object();
	return 0;
}

int __wrap_migration_configure(struct migration *m, struct err *e)
{
	(void)m;
	(void)e;
	return 0;
}

int __wrap_migration_start(struct migration *m, bool incoming, struct err *e)
{
	(void)m;
	(void)incoming;
	(void)e;
	writes(w.ram);
	return 0;
}

/* All of it, and the end. */
int __wrap_migration_continue(struct migration *m, struct err *e)
{
	(void)m;
	(void)e;
	w.continued = true;
	writes(w.device);
	close(w.qemu);
	return 0;
}

int __wrap_journal_command(struct journal *j, const char *execute, json_t *args, bool setting, struct err *e)
{
	(void)j;
	(void)execute;
	(void)setting;
	(void)e;
	json_decref(args);
	return 0;
}

int __wrap_journal_completed(struct journal *j, struct qmp *q, bool running, struct err *e)
{
	(void)j;
	(void)q;
	(void)e;
	w.recorded = running;
	return 0;
}

/* It stops, and is to be continued, once RAM was taken. */
int __wrap_sender_events(struct sender *s, char *status, size_t len, struct err *e)
{
	(void)len;
	(void)e;
	if (!status || (!w.bytes && w.ram[0]))
		return 0;
	if (w.stops)
		s->stop_realtime_ns = 1;
	strcpy(status, w.continued ? "completed" : "pre-switchover");
	return 0;
}

int __wrap_sender_wait_qemu(struct sender *s, int stream, unsigned int ms, struct err *e)
{
	(void)s;
	(void)stream;
	(void)ms;
	(void)e;
	return 0;
}

int __wrap_sender_device(struct sender *s, const uint8_t *p, size_t len, struct err *e)
{
	(void)p;
	(void)e;
	s->report->device_bytes += len;
	w.bytes += len;
	return 0;
}

int __wrap_backends_same(struct qmp *q, const struct vm *vm, struct err *e)
{
	(void)q;
	(void)vm;
	(void)e;
	return 0;
}

int __wrap_sender_check_same(struct sender *s, struct err *e)
{
	(void)s;
	(void)e;
	return 0;
}

int __wrap_late_rounds_step(struct sender *s, uint64_t since_ns, struct err *e)
{
	(void)s;
	(void)since_ns;
	(void)e;
	return 0;
}

int __wrap_late_rounds_end(struct sender *s, struct err *e)
{
	(void)s;
	(void)e;
	return 0;
}

/* Does it run at the destination, and here, if it does not get there? */
static bool runs(struct world world)
{
	const struct sender_options o = { .timeout_ms = 2000, .pause = true };
	struct report report = { .round = 0 };
	struct sender s = { .o = &o, .report = &report, .journal = { .records = json_array(), .pipe = -1 } };
	struct err e = { 0 };
	bool ran, before;
	int pair[2];

	w = world;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
	w.qemu = pair[1];
	w.recorded = -1;
	s.migration.stream = pair[0];
	assert_int_equal(devstate_migrate.stand_still(&s, &e), 0);
	before = s.migration.was_running;
	assert_int_equal(before, w.ran);	/* or switchover_at_rest() misses a STOP */
	assert_int_equal(devstate_migrate.state(&s, &e), 0);
	ran = s.migration.was_running;
	assert_int_equal(w.recorded, ran);
	json_decref(s.journal.records);
	migration_free(&s.migration);
	return ran;
}

#define RAN	.ran = true, .stops = true
static void qemus_note_counts(void **state)
{
	(void)state;
	assert_true(runs((struct world) { RAN, .device = { "running" } }));
	/* An operator has paused it since, or continued it. */
	assert_false(runs((struct world) { RAN, .device = { "paused" } }));
	assert_true(runs((struct world) { .stops = true, .device = { "running" } }));
	assert_false(runs((struct world) { .device = { "paused" } }));
	/* An old machine type has none. */
	assert_true(runs((struct world) { RAN, .ram = { NULL } }));
	assert_false(runs((struct world) { .ram = { NULL } }));
}

static void a_guests_ram_does_not(void **state)
{
	(void)state;
	assert_false(runs((struct world) { .ram = { "running" }, .device = { "paused" } }));
	assert_false(runs((struct world) { RAN, .ram = { "running" }, .device = { "paused" } }));
	assert_true(runs((struct world) { RAN, .ram = { "paused" }, .device = { "running" } }));
}

/* In CMOS, before QEMU's own or behind it. */
static void nor_do_its_devices(void **state)
{
	(void)state;
	assert_false(runs((struct world) { .device = { "running", "paused" } }));
	assert_false(runs((struct world) { .device = { "paused", "running" } }));
	assert_false(runs((struct world) { .device = { "running" } }));
	/* Paused since. */
	assert_false(runs((struct world) { RAN, .device = { "running", "paused" } }));
	assert_false(runs((struct world) { RAN, .device = { "paused", "running" } }));
	/* They agree. */
	assert_true(runs((struct world) { RAN, .device = { "running", "running" } }));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(qemus_note_counts),
		cmocka_unit_test(a_guests_ram_does_not),
		cmocka_unit_test(nor_do_its_devices),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
