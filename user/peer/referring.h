/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The sender's end of content reuse (wire/reuse.h): asks the receiver what it has, and takes what
 * it refuses. All functions are for the thread that has the control connection; streams look up
 * @table only.
 */
#ifndef GODWIT_REFERRING_H
#define GODWIT_REFERRING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "codec/delta.h"
#include "net/channel.h"
#include "reuse/table.h"
#include "wire/blocks.h"

/**
 * struct referring - zeros: nothing is reused
 * @table: what the receiver has said; NULL: there is no file, or it is not agreed on
 * @off: nothing is referred to any more: the file was not what it had been
 * @referred: something was referred to: said by streams before it leaves
 * @asked: WANT_HASHES without an answer so far
 * @complete: all has been said that there is, or there is no more memory
 * @blocks: @pages: of RAM; @refused: a bit a page: dirty again, once no round is under way
 * @refused_pages: how many, each once: a receiver whose link was lost tells of all again;
 *	@counted: which, a bit a page
 * @waiting: some are in @refused
 * @index_ns: @left_out: the receiver's index
 */
struct referring {
	struct reuse_table *table;
	atomic_bool off, referred;
	unsigned int asked;
	atomic_bool complete;
	bool waiting;
	unsigned int blocks;
	uint64_t pages[WIRE_BLOCKS_MAX];
	uint64_t *refused[WIRE_BLOCKS_MAX];
	uint64_t *counted[WIRE_BLOCKS_MAX];
	uint64_t refused_pages;
	uint64_t index_ns, left_out;
};

/* What a receiver answers to a check. @entries: at most */
struct referring_there {
	enum wire_reuse_kind kind;
	uint64_t entries;
};

/* Asks the receiver for its file. */
int referring_want(struct channel *ch, struct err *e);
/**
 * referring_begin() - waits for the answer
 * @memory: bytes for the table, at most
 * No file is no error, and no memory for the table neither. Errors: GW_BAD_PEER, the channel's.
 */
int referring_begin(struct referring *r, struct channel *ch, const uint64_t *pages,
		    unsigned int blocks, uint64_t memory, struct err *e);
/* For a check: how much is there? */
int referring_look(struct channel *ch, struct referring_there *there, struct err *e);
void referring_free(struct referring *r);
/* Is there something to ask for, and nothing asked? Asks for it. Never waits for the answer. */
int referring_ask(struct referring *r, struct channel *ch, struct err *e);
/* The connection is gone, and with it all answers. */
void referring_disconnect(struct referring *r);
/* Serves HASHES or REFUSED, whose header has come. Return: 1, 0: none was due; or -errno. */
int referring_take(struct referring *r, struct channel *ch, const struct wire_header *h,
		   struct err *e);
/*
 * No round is under way: what was refused is dirty in @map again, and goes whole. @delta: may be
 * NULL. Return: there was some.
 */
bool referring_again(struct referring *r, struct delta *delta, uint64_t *const *map);

#endif
