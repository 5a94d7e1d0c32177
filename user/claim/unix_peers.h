/* SPDX-License-Identifier: GPL-2.0-only */
/* Which process is connected to which by unix sockets, as the kernel's socket diagnosis says. */
#ifndef GODWIT_UNIX_PEERS_H
#define GODWIT_UNIX_PEERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * struct unix_peers - inode numbers of the sockets at the far ends of one process's unix sockets
 * Those of this network namespace; elsewhere none are found, which makes nobody a friend by mistake.
 */
struct unix_peers {
	uint64_t *ino;
	size_t n;
};

/* proc: "/proc/PID". What cannot be found out is not there. */
void unix_peers_find(const char *proc, struct unix_peers *peers);
void unix_peers_free(struct unix_peers *peers);
/* Does that process hold one of them? */
bool unix_peers_has(const struct unix_peers *peers, const char *proc);

#endif
