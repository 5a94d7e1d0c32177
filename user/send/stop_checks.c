// SPDX-License-Identifier: GPL-2.0-only
/*
 * With the guest at rest the sender looks once more for what writes guest RAM unseen: a device, a
 * debugger or direct I/O of QEMU's, or of a process that maps the RAM. These are walks over /proc,
 * and took up to a tenth of a second of the blackout. Nothing but the commit depends on what they
 * find, so threads make them beside the last round, and the main thread waits for their result
 * before it announces the end of that round.
 *
 * A check finds no less than it would with the main thread waiting. It begins no later: that of
 * QEMU's files at the stop, that of other processes after the last harvest, which tells which ones
 * map the RAM. And nothing that the sender does meanwhile changes what it looks at: as QEMU gives
 * up its disks to save its devices it opens some of their files anew, under other numbers, which a
 * walk along the numbers may miss. So the check of QEMU's files is over before that begins. A
 * writer that came before the guest stopped, and is still there, is seen, and its guest does not
 * move. (One that has gone by then is seen by neither.)
 *
 * A refusal for other processes may come when QEMU has given up its disks and saved its devices.
 * The guest would have to wait for an earlier one: the last harvest says which processes to look
 * at, and to look at the files of a switch takes as long as QEMU takes for its devices. While the
 * guest runs there is none but those of pre-copy, as its disk I/O pins pages, too, which on huge
 * pages look like those of a device until it has been drained. And what QEMU has given up nobody
 * takes meanwhile: the destination's QEMU gets the device state, with which it opens the disks,
 * only behind the commit point. So this is undone as when the destination refuses that state, or
 * when the operator cancels then.
 *
 * The check of other processes asks the module, which serves one call of a session at a time, and
 * writes @beside and @changed of the source, which are atomic; nothing in it touches the maps. The
 * main thread has QMP for itself, so what QEMU must be asked is not here: struct devstate_ops.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/thread.h"
#include "send/sender_internal.h"
#include "vmm/ram.h"

/*
 * A device that was plugged, or opened, since the migration began may write RAM where the module
 * cannot see it: what it wrote was lost. While QEMU migrates it refuses to plug devices; in save
 * mode the guest is stopped, and cannot use one.
 */
int sender_check_writers(struct sender *s, struct err *e)
{
	int r = vm_check_devices(s->qmp, s->vm.pid, s->brake.pid, e);

	return r ? r : vm_check_direct_io(s->vm.pid, e);
}

int stop_check_files(struct sender *s, struct err *e)
{
	int r = vm_check_open_devices(s->vm.pid, s->brake.pid, e);

	return r ? r : vm_check_direct_io(s->vm.pid, e);
}

int sender_check_mapped(struct sender *s, struct err *e)
{
	char proc[32];

	snprintf(proc, sizeof(proc), "/proc/%d", (int)s->vm.pid);
	return ram_check_mapped(&s->vm, proc, e);
}

int stop_check_mappers(struct sender *s, struct err *e)
{
	int r = sender_check_mapped(s, e);

	return r ? r : source_check_mappers(s->source, "/proc", e);
}

static void *stop_check_main(void *arg)
{
	struct stop_check *c = arg;

	c->r = c->check(c->s, &c->err);
	atomic_store(&c->over, true);
	return NULL;
}

int stop_check_begin(struct sender *s, int (*check)(struct sender *s, struct err *e), struct err *e)
{
	struct stop_check *c = &s->stop_checks[s->nstop_checks];
	int r;

	*c = (struct stop_check) { .s = s, .check = check };
	r = thread_start(&c->thread, stop_check_main, c);
	if (r)
		return err_set(e, GW_INTERNAL, -r, "cannot start a thread that looks for writers of guest RAM: %s",
			       strerror(-r));
	s->nstop_checks++;
	return 0;
}

/* The phase is that of the checks, wherever their result is taken. */
static int stop_check_result(struct sender *s, const struct stop_check *c, struct err *e)
{
	if (!c->r)
		return 0;
	*e = c->err;
	s->report->phase = "switchover";
	return c->r;
}

static int stop_check_join(struct sender *s, struct stop_check *c, struct err *e)
{
	if (!c->joined)
		pthread_join(c->thread, NULL);
	c->joined = true;
	return e ? stop_check_result(s, c, e) : 0;
}

int stop_check_wait(struct sender *s, int (*check)(struct sender *s, struct err *e), struct err *e)
{
	int r = 0;

	for (unsigned int i = 0; i < s->nstop_checks && !r; i++)
		if (s->stop_checks[i].check == check)
			r = stop_check_join(s, &s->stop_checks[i], e);
	return r;
}

int stop_checks_look(struct sender *s, struct err *e)
{
	int r = 0;

	for (unsigned int i = 0; i < s->nstop_checks && !r; i++)
		if (atomic_load(&s->stop_checks[i].over))
			r = stop_check_result(s, &s->stop_checks[i], e);
	return r;
}

int stop_checks_end(struct sender *s, struct err *e)
{
	int r = 0;

	for (unsigned int i = 0; i < s->nstop_checks; i++) {
		const int found = stop_check_join(s, &s->stop_checks[i], r ? NULL : e);

		r = r ? r : found;
	}
	s->nstop_checks = 0;
	return r;
}
