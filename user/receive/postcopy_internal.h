/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the files of the receiver's part in post-copy share.
 */
#ifndef GODWIT_RECEIVE_POSTCOPY_INTERNAL_H
#define GODWIT_RECEIVE_POSTCOPY_INTERNAL_H

#include "receive/postcopy.h"

/* Closes what is open. */
void postcopy_close(int *fd);
/*
 * Opens a session of godwit.ko, and begins the keep of this token, or takes over (@take) that of a
 * receiver that has ended.
 * Errors: those of device_keep() and of the files. What is open then stays open.
 */
int postcopy_keep(struct receiver *r, const uint8_t token[WIRE_SECRET], bool take, struct err *e);
/* Registers all mappings of the RAM, QEMU's and our own: their page faults come here. */
int postcopy_register(struct receiver *r, struct err *e);
/* Begins the thread that serves page faults, with the connection that has joined for it. */
int postcopy_serve(struct receiver *r, struct err *e);
/*
 * Connects to QEMU's monitor, if that is not done: QEMU may answer nobody before page faults are
 * served, so a receiver that takes over waits for it only then.
 */
void postcopy_monitor(struct receiver *r, unsigned int ms);
/* What QEMU has said of its guest ("running", "shutdown"). */
void postcopy_saw(struct receiver *r, const char *status);
/* Somebody has started it. */
void postcopy_started(struct receiver *r);
/*
 * All of its RAM is here: a guest that ran at the source, and that the receiver before had not
 * started when it was killed (r->unstarted), is started. r->unstarted afterwards: it could not be.
 */
void postcopy_start(struct receiver *r);
/* Reads what QEMU has said. Return: its guest has ended of its own accord. */
bool postcopy_hear(struct receiver *r);
/*
 * Where QEMU does not answer the mark stays: "godwit resolve --forget" removes it. Return: QEMU has
 * not closed its monitor.
 */
bool postcopy_unmark(struct receiver *r);

#endif
