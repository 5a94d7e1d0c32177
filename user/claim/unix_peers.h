/* SPDX-License-Identifier: GPL-2.0-only */
/* Which processes unix sockets connect with each other, by the kernel's socket diagnosis. */
#ifndef GODWIT_UNIX_PEERS_H
#define GODWIT_UNIX_PEERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * struct unix_peers - inode numbers of the sockets at the far ends of one process's unix sockets
 * Only sockets of this network namespace are found, so no process of another one is taken for a
 * peer by mistake.
 */
struct unix_peers {
	uint64_t *ino;
	size_t n;
};

/* proc: "/proc/PID". A socket whose peer cannot be found out is left out. */
void unix_peers_find(const char *proc, struct unix_peers *peers);
void unix_peers_free(struct unix_peers *peers);
/* Does the process hold one of these sockets? */
bool unix_peers_has(const struct unix_peers *peers, const char *proc);

#endif
