/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What must outlive a program that is killed at the commit point: a line of JSON in a file below
 * /run/godwit. The receiver's verdict on a migration is named by its token, the sender's doubt and
 * what a destination in post-copy keeps by their VM. Its writer holds the first two locked as long
 * as it lives. A host that goes down takes all along, and its guests.
 */
#ifndef GODWIT_RECORD_H
#define GODWIT_RECORD_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "txn/commit.h"

#define RECORD_DIR	"/run/godwit"
#define RECORD_DIR_SERVICE "/run/godwit-receive"	/* godwit-receive@.service's */
#define RECORD_NAME	80u
/* Bytes of a file. It is written at once, so a reader finds the old line or the new one. */
#define RECORD_MAX	4096u

/**
 * struct record - a file that this process writes
 * @fd: -1: the file could not be made, and what is written to it is lost
 */
struct record {
	int fd;
	char path[256];
};

#define RECORD_NONE ((struct record) { .fd = -1 })

/* The directory that the service manager gives (RUNTIME_DIRECTORY), or RECORD_DIR. */
const char *record_dir(void);
/*
 * Makes the file and locks it, and the directory if there is none. 0 or -errno; -EBUSY: another
 * program holds it; -EPERM: other users may look into the directory.
 */
int record_open(struct record *r, const char *dir, const char *name);
/* What such an error means, in words. */
const char *record_error(int r);
/* j: stolen. 0 or -errno. */
int record_write(struct record *r, json_t *j);
/* Room for what is to be written: record_read() finds no sense in it. 0 or -errno. */
int record_reserve(struct record *r);
void record_close(struct record *r);	/* the file stays */
void record_remove(struct record *r);	/* unlinks the file, unless it is another program's */
/*
 * What the file says, a new reference, or NULL: there is no file, or its text makes no sense. held:
 * its writer lives.
 */
json_t *record_read(const char *dir, const char *name, bool *held);

/*
 * record_read() in each directory that a receiver on this host may have used: the receiver that
 * wrote the record may have been a service with a directory of its own, and need not be the one
 * that is asked. If several have one of that name, the one that says most: one that took the guest
 * over writes its own.
 */
json_t *record_find(const char *name, bool *held);
json_t *record_find_in(const char *const *dirs, size_t n, const char *name, bool *held);
/* The name of a record of that kind ("verdict-") which is wanted. false: there is none. */
typedef bool record_wanted_fn(const char *name, const json_t *record, const void *arg);
bool record_search(const char *kind, record_wanted_fn *wanted, const void *arg,
		   char name[RECORD_NAME]);
/* Unlinks it in each of these directories. */
void record_forget(const char *name);

/* "verdict-" and the token in hex. name: RECORD_NAME bytes. */
void record_name_verdict(char *name, const uint8_t *token, size_t len);
/* The token of such a name. */
bool record_parse_verdict(const char *name, uint8_t *token, size_t len);
/* kind ("doubt", "claim"), the VMM's PID, and when its process began. name: RECORD_NAME bytes. */
int record_name_vm(char *name, const char *kind, pid_t vmm);
/* The process that a record of such a name is of, if it lives in our pid namespace; else 0. */
pid_t record_process(const char *name);
/* Unlinks the record of this VM, if there is one. */
void record_unlink_vm(const char *dir, const char *kind, pid_t vmm);

#endif
