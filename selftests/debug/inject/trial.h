/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A VM with a RAM file, private RAM and all kinds of writers, the session under test, and what must hold
 * afterwards.
 */
#ifndef INJECT_TRIAL_H
#define INJECT_TRIAL_H

#include "ram.h"
#include "session.h"
#include "vm.h"

#define RAMS	2

/* How far the session has come. */
enum stage {
	NOTHING,
	OPENED,
	ATTACHED,
	ADDED,		/* the first RAM file */
	STARTED,	/* with all RAM files that could be added, and their bitmaps mapped */
};

/**
 * struct trial
 * @other: one more mapping of the RAM file, or NULL
 * @disk: a block device, open for direct reads
 * @before: how much the VMM has mapped without a session
 * @extra: there is a memslot that came after START
 * @kept: the session has a keep, which would outlive it
 */
struct trial {
	struct vm vm;
	struct ram ram[RAMS];
	uint8_t *other[RAMS];
	int disk;
	long before;
	enum stage stage;
	struct session s;
	bool extra;
	bool kept;
};

void trial_init(struct trial *t, const char *disk);
/* From where the session is to stage; all of it has to work. */
void trial_reach(struct trial *t, enum stage stage);

/* The calls; 0 or -errno. They touch the session and nothing else. */
int trial_open(struct trial *t);
int trial_attach(struct trial *t);
int trial_add_ram(struct trial *t);
int trial_map(struct trial *t);
int trial_start(struct trial *t);
/* The session may name a process: this one. */
int trial_keep(struct trial *t);
int trial_keep_end(struct trial *t);
/* Returns when the session has retired, and nothing is kept for it. */
int trial_close(struct trial *t);

/* No bit is set and every log is armed, so that what is written next is news. */
void trial_settle(struct trial *t);
/* All writers write to each RAM: the vCPU, the VMM, a disk, and a mapping that goes away. */
void trial_write(struct trial *t);
/* One memslot and one mapping more. */
void trial_change(struct trial *t);
/* NULL, or which written page is not in the bitmaps. */
const char *trial_missed(struct trial *t);
/* Ends the session. NULL, or what the VM has not got back. */
const char *trial_restored(struct trial *t);
/* After a failure: the VM as it is before a session, whatever the last one has left. */
void trial_reset(struct trial *t);

#endif /* INJECT_TRIAL_H */
