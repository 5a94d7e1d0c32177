/* SPDX-License-Identifier: GPL-2.0-only */
/* A VM with two RAM files and everybody who writes them, the session under test, and what must hold afterwards. */
#ifndef INJECT_RIG_H
#define INJECT_RIG_H

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
	STARTED,	/* with all RAM files that could be added before, and their bitmaps mapped */
};

/**
 * struct rig
 * @other: one more mapping of each RAM file, or NULL
 * @disk: a block device, open for direct reads
 * @before: how much the VMM has mapped without a session
 * @window: what ADD_RAM has answered; s.nr_rams of them
 * @extra: there is a memslot that came after START
 */
struct rig {
	struct vm vm;
	struct ram ram[RAMS];
	uint8_t *other[RAMS];
	int disk;
	long before;
	enum stage stage;
	struct session s;
	struct godwit_add_ram window[RAMS];
	bool extra;
};

void rig_init(struct rig *r, const char *disk);
/* From where the session is to stage; all of it has to work. */
void rig_reach(struct rig *r, enum stage stage);

/* The calls; 0 or -errno. They touch the session and nothing else. */
int rig_open(struct rig *r);
int rig_attach(struct rig *r);
int rig_add_ram(struct rig *r);
int rig_map(struct rig *r);
int rig_start(struct rig *r);
/* Returns when the session has retired. */
int rig_close(struct rig *r);

/* Everybody knows everything: no bit is set, and what is written next is news. */
void rig_settle(struct rig *r);
/* Everybody writes to each RAM file: the vCPU, the VMM, a disk, and a mapping that goes away. */
void rig_write(struct rig *r);
/* One memslot and one mapping more. */
void rig_change(struct rig *r);
/* NULL, or which written page is not in the bitmaps. */
const char *rig_missed(struct rig *r);
/* Ends the session. NULL, or what the VM has not got back. */
const char *rig_restored(struct rig *r);
/* After a failure: the VM as it is before a session, whatever the last one has left. */
void rig_reset(struct rig *r);

#endif /* INJECT_RIG_H */
