/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A destination in miniature: a process that plays QEMU maps a RAM file with pages missing and
 * touches them; a helper has its userfaultfd and serves them.
 */
#ifndef KST_POSTCOPY_H
#define KST_POSTCOPY_H

#include <linux/userfaultfd.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "ram.h"

#define TOUCHES		4
#define TOKEN(n)	{ 'k', 's', 't', n }

/* How a page is touched. */
enum touch_how {
	TOUCH_LOAD,
	TOUCH_SYSCALL,	/* the kernel stores its last byte, as of a read */
	TOUCH_CALL,	/* not: calls the player's function */
};

enum touch_state { TOUCH_NONE, TOUCH_GO, TOUCH_BEGUN, TOUCH_DONE };

/**
 * struct touch - one thread of the player
 * @value: the page's first word
 * @differ: how many of its words are not equal to that
 */
struct touch {
	atomic_int state;
	enum touch_how how;
	uint64_t page;
	uint64_t value;
	uint64_t differ;
};

/**
 * struct player - the process
 * @at: where it maps the file, and nowhere else
 * @touches: shared with it
 * @call: NULL, or what TOUCH_CALL calls there
 */
struct player {
	pid_t pid;
	struct ram *ram;
	uint8_t *at;
	struct touch *touches;
	void (*call)(struct player *p);
};

/* The file is empty. Sets all but @call. */
void player_start(struct player *p, struct ram *ram);
void player_end(struct player *p);
/* It becomes another program. */
void player_exec(struct player *p);
/* Thread n touches a native page of the file. */
void player_touch(struct player *p, unsigned int n, enum touch_how how, uint64_t page);
/* Is it there within so many ms? */
bool player_touched(struct player *p, unsigned int n, unsigned int ms);
/* A proof: thread n comes back within 10 s and has seen what page_word() says. */
bool player_saw(struct player *p, unsigned int n);
/* What a page is full of at the source; never 0. */
uint64_t page_word(uint64_t page);
/* How many open files a process has. */
unsigned int files_open(pid_t pid);

/**
 * struct helper - an open /dev/godwit, with a keep and a userfaultfd
 * @kept: there was one already
 */
struct helper {
	int dev;
	int uffd;
	bool kept;
};

int open_godwit(void);
/* The descriptor or -errno. */
int open_mem(pid_t pid);
/* 0 or -errno. count may be NULL. */
int keep_begin(int dev, unsigned int token, unsigned int flags, unsigned int *count);
/* The same by descriptors; *kept may be NULL. The userfaultfd or -errno. */
int keep_uffd_by(int dev, int mem, int uffd_dev, bool *kept);
int keep_uffd(int dev, pid_t pid, bool *kept);
int keep_end(int dev);

/* All of it must work: registers the player's mapping, or takes over what another one had. */
void helper_begin(struct helper *h, struct player *p, unsigned int token);
void helper_take(struct helper *h, struct player *p, unsigned int token);
/* UFFDIO_API and UFFDIO_REGISTER, of the player's mapping. 0 or -errno. */
int helper_api(struct helper *h);
int helper_register(struct helper *h, const struct player *p);
/* Without end: the userfaultfd stays the keep's. */
void helper_close(struct helper *h);
/* The page that a fault is for, or -1 after ms without one. */
int64_t helper_fault(struct helper *h, const struct player *p, unsigned int ms);
/* Puts a page in place, and wakes. 0 or -errno. */
int helper_copy(struct helper *h, const struct player *p, uint64_t page);
int helper_zero(struct helper *h, const struct player *p, uint64_t page);
int helper_wake(struct helper *h, const struct player *p);

#endif /* KST_POSTCOPY_H */
