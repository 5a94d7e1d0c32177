/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The parts of a check: check.c (order, the VM), ram.c (its RAM), host.c (this host), peer.c (the
 * receiver).
 */
#ifndef GODWIT_CHECK_INTERNAL_H
#define GODWIT_CHECK_INTERNAL_H

#include <jansson.h>

#include "check/check.h"
#include "plan/loss.h"
#include "plan/window.h"
#include "send/preflight.h"

/* Adds a row; printf format. */
void check_add(struct check *c, const char *name, enum check_result result, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* Adds a row that says no. */
void check_refuse(struct check *c, const char *name, const struct err *e);

/* Adds rows for the kernel, the module, io_uring, the memlock limit and the zero filter. */
void check_host(const struct preflight *l, struct check *c);
/* Is godwit made for this kernel? release: that of uname(2). */
void check_kernel(const char *release, struct check *c);
/*
 * err: the result of setting up a ring, 0 or -errno. limit: RLIMIT_MEMLOCK, bytes; UINT64_MAX:
 * none.
 */
void check_io_uring(int err, uint64_t limit, struct check *c);
/* Says what socket buffers let a long link carry. No row: the link is not long. */
void check_window(const struct window *w, struct check *c);
/*
 * Says what a long link loses, and how much it carries nevertheless: over as many streams as the
 * sender would use (l->streams), or over more, of which the receiver allows so many.
 */
void check_loss(const struct loss *l, unsigned int streams, struct check *c);
/* Adds a row for how godwit reads this RAM, and what would be faster. */
void check_ram_access(const struct vm *vm, struct check *c);
/*
 * Adds a row for the pages at both ends. there: the receiver's view; no row: it does not say what
 * pages it has.
 */
void check_page_sizes(const struct vm *vm, const json_t *there, struct check *c);
/* Adds a row for the certificate or key that this host shows. */
void check_credentials(const struct tls_creds *creds, struct check *c);
/* Adds rows for the receiver's answers and the link to it. */
void check_peer(const struct check_options *o, const struct preflight *l, struct check *c);

#endif
