// SPDX-License-Identifier: GPL-2.0-only
/* The frame header: its layout, and a table of what each type of frame may hold. */
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "wire/blocks.h"
#include "wire/extent.h"
#include "wire/owed.h"
#include "wire/reuse.h"
#include "wire/wire.h"

struct header_le {
	uint32_t magic;
	uint16_t type;
	uint16_t flags;
	uint32_t arg;
	uint32_t length;
	uint64_t reserved;
} __attribute__((packed));
static_assert(sizeof(struct header_le) == WIRE_HEADER, "the header's layout is the protocol");

/**
 * struct frame_limits - what the header of a frame of one type may hold
 * @flags: allowed flags
 * @arg_min, @arg_max: range of arg
 * @body_min, @body_max: range of the body without the items that arg counts, in bytes
 * @item_min, @item_max: range of one item that arg counts, in bytes
 */
struct frame_limits {
	uint16_t flags;
	uint32_t arg_min, arg_max;
	uint32_t body_min, body_max;
	uint32_t item_min, item_max;
};

#define BLOCK_FIXED	24	/* a block record without its name, see struct wire_block */
#define CLOCK_BYTES	8
#define VERSION_BYTES	8

static const struct frame_limits frame_limits[] = {
	[WIRE_HELLO] = { .arg_min = WIRE_VERSION,
			 .arg_max = WIRE_VERSION,
			 .body_min = WIRE_HELLO_BODY,
			 .body_max = WIRE_HELLO_BODY },
	[WIRE_BLOCKS] = { .arg_min = 1,
			  .arg_max = WIRE_BLOCKS_MAX,
			  .item_min = BLOCK_FIXED + 1,
			  .item_max = BLOCK_FIXED + WIRE_NAME_MAX },
	[WIRE_READY] = { .flags = WIRE_SAVE_MODE,
			 .arg_min = 1,
			 .arg_max = WIRE_STREAMS_MAX,
			 .body_min = WIRE_SECRET,
			 .body_max = WIRE_SECRET },
	[WIRE_PING] = { .arg_max = UINT32_MAX, .body_min = CLOCK_BYTES, .body_max = CLOCK_BYTES },
	[WIRE_PONG] = { .arg_max = UINT32_MAX, .body_min = CLOCK_BYTES, .body_max = CLOCK_BYTES },
	[WIRE_RAM] = { .arg_min = 1,
		       .arg_max = WIRE_EXTENTS_MAX,
		       .body_max = WIRE_RAM_MAX,
		       .item_min = WIRE_EXTENT,
		       .item_max = WIRE_EXTENT },
	[WIRE_ROUND] = { .flags = WIRE_ROUND_LAST, .arg_max = UINT32_MAX },
	[WIRE_ACK] = { .arg_max = UINT32_MAX },
	[WIRE_VERIFY] = { .arg_max = WIRE_HASHES_MAX,
			  .body_min = WIRE_EXTENT,
			  .body_max = WIRE_EXTENT,
			  .item_min = WIRE_HASH,
			  .item_max = WIRE_HASH },
	[WIRE_SWITCHOVER] = { .flags = WIRE_OWING },
	[WIRE_COMMIT] = { 0 },
	[WIRE_DEVICE] = { .flags = WIRE_HELD,
			  .body_min = WIRE_PLACE + 1,
			  .body_max = WIRE_PLACE + WIRE_DEVICE_MAX },
	[WIRE_DEVICE_END] = { .flags = WIRE_RUNS,
			      .arg_max = UINT32_MAX,
			      .body_min = WIRE_PLACE,
			      .body_max = WIRE_PLACE },
	[WIRE_RESUMED] = { .body_min = CLOCK_BYTES, .body_max = CLOCK_BYTES },
	/* Any exit status but 0: a newer peer may have more, and its text must not be lost. */
	[WIRE_ABORT] = { .arg_min = 1, .arg_max = 255, .body_max = WIRE_TEXT_MAX },
	[WIRE_STREAMS] = { .arg_min = 1, .arg_max = WIRE_STREAMS_MAX },
	[WIRE_JOIN] = { .arg_max = WIRE_STREAMS_MAX - 1,
			.body_min = WIRE_SECRET,
			.body_max = WIRE_SECRET },
	[WIRE_CHECK] = { .arg_min = 1,
			 .arg_max = WIRE_BLOCKS_MAX,
			 .item_min = BLOCK_FIXED + 1,
			 .item_max = BLOCK_FIXED + WIRE_NAME_MAX },
	[WIRE_CHECKED] = { .flags = WIRE_SAVE_MODE,
			   .arg_min = 1,
			   .arg_max = WIRE_STREAMS_MAX,
			   .body_min = VERSION_BYTES,
			   .body_max = VERSION_BYTES },
	[WIRE_PROBE] = { .body_min = 1, .body_max = WIRE_PROBE_MAX },
	[WIRE_PRIVATE_BLOCKS] = { .arg_min = 1,
				  .arg_max = WIRE_BLOCKS_MAX,
				  .item_min = BLOCK_FIXED + 1,
				  .item_max = BLOCK_FIXED + WIRE_NAME_MAX },
	[WIRE_PRIVATE] = { .arg_min = 1,
			   .arg_max = WIRE_EXTENTS_MAX,
			   .body_max = WIRE_PRIVATE_MAX,
			   .item_min = WIRE_EXTENT,
			   .item_max = WIRE_EXTENT },
	[WIRE_DONE] = { 0 },
	[WIRE_ASK] = { .body_min = WIRE_SECRET, .body_max = WIRE_SECRET },
	[WIRE_VERDICT] = { .flags = WIRE_OWING | WIRE_LOST,
			   .arg_max = 255,
			   .body_min = CLOCK_BYTES,
			   .body_max = CLOCK_BYTES },
	[WIRE_RAM_FILES] = { .arg_min = 1,
			     .arg_max = WIRE_BLOCKS_MAX,
			     .body_min = WIRE_BOOT_ID,
			     .body_max = WIRE_BOOT_ID,
			     .item_min = WIRE_FILE,
			     .item_max = WIRE_FILE },
	[WIRE_ASK_VIEW] = { .flags = WIRE_BRIEF | WIRE_GLANCE },
	[WIRE_VIEW] = { .flags = WIRE_MORE, .body_min = 1, .body_max = WIRE_VIEW_MAX },
	[WIRE_KEEP] = { .arg_min = 1, .arg_max = WIRE_KEEP_MAX },
	[WIRE_RECONNECT] = { .arg_max = WIRE_ROUND_MAX,
			     .body_min = WIRE_SECRET,
			     .body_max = WIRE_SECRET },
	[WIRE_PACKED] = { .arg_min = 1,
			  .arg_max = WIRE_EXTENTS_MAX,
			  .body_min = WIRE_PACKED_HEAD + 1,
			  .body_max = WIRE_PACKED_HEAD + WIRE_PACKED_MAX - 1,
			  .item_min = WIRE_EXTENT,
			  .item_max = WIRE_EXTENT },
	[WIRE_LOAD] = { .arg_max = WIRE_LOAD_MAX },
	[WIRE_DELTA] = { .arg_min = 1,
			 .arg_max = WIRE_EXTENTS_MAX,
			 .body_min = WIRE_PACKED_HEAD + 2,
			 .body_max = WIRE_PACKED_HEAD + WIRE_PARTS_MAX + WIRE_PACKED_MAX,
			 .item_min = WIRE_EXTENT,
			 .item_max = WIRE_EXTENT },
	[WIRE_POSTCOPY_ASK] = { .arg_max = WIRE_BLOCKS_MAX,
				.item_min = WIRE_UNIT,
				.item_max = WIRE_UNIT },
	[WIRE_CANNOT] = { .arg_min = 1, .arg_max = 255, .body_max = WIRE_TEXT_MAX },
	[WIRE_OWED] = { .arg_max = WIRE_OWED_WORDS,
			.body_min = WIRE_EXTENT,
			.body_max = WIRE_EXTENT,
			.item_min = 8,
			.item_max = 8 },
	[WIRE_WANT] = { .arg_min = 1,
			.arg_max = WIRE_WANT_MAX,
			.item_min = WIRE_EXTENT,
			.item_max = WIRE_EXTENT },
	[WIRE_COMPLETE] = { 0 },
	[WIRE_RECOVER] = { .arg_max = WIRE_ROUND_MAX,
			   .body_min = WIRE_SECRET,
			   .body_max = WIRE_SECRET },
	[WIRE_FAULTS] = { .body_min = WIRE_FAULTS_BYTES, .body_max = WIRE_FAULTS_BYTES },
	[WIRE_REUSE] = { .arg_max = WIRE_REUSE_KINDS - 1,
			 .body_max = WIRE_REUSE_HEAD + WIRE_REUSE_SECRET },
	[WIRE_WANT_HASHES] = { .arg_min = 1,
			       .arg_max = WIRE_ENTRIES_FRAME,
			       .body_min = 8,
			       .body_max = 8 },
	[WIRE_HASHES] = { .flags = WIRE_MORE,
			  .arg_max = WIRE_ENTRIES_FRAME,
			  .body_min = WIRE_HASHES_HEAD,
			  .body_max = WIRE_HASHES_HEAD,
			  .item_min = WIRE_ENTRY,
			  .item_max = WIRE_ENTRY },
	[WIRE_REFERENCES] = { .arg_min = 1,
			      .arg_max = WIRE_REFERENCES_MAX,
			      .item_min = WIRE_REFERENCE,
			      .item_max = WIRE_REFERENCE },
	[WIRE_REFUSED] = { .arg_min = 1,
			   .arg_max = WIRE_REFUSED_MAX,
			   .item_min = WIRE_EXTENT,
			   .item_max = WIRE_EXTENT },
};
static_assert(sizeof(frame_limits) / sizeof(frame_limits[0]) == WIRE_TYPES,
	      "a frame type has no limits");

static const char *const type_names[] = {
	[0] = "?",
	[WIRE_HELLO] = "HELLO",
	[WIRE_BLOCKS] = "BLOCKS",
	[WIRE_READY] = "READY",
	[WIRE_PING] = "PING",
	[WIRE_PONG] = "PONG",
	[WIRE_RAM] = "RAM",
	[WIRE_ROUND] = "ROUND",
	[WIRE_ACK] = "ACK",
	[WIRE_VERIFY] = "VERIFY",
	[WIRE_SWITCHOVER] = "SWITCHOVER",
	[WIRE_COMMIT] = "COMMIT",
	[WIRE_DEVICE] = "DEVICE",
	[WIRE_DEVICE_END] = "DEVICE_END",
	[WIRE_RESUMED] = "RESUMED",
	[WIRE_ABORT] = "ABORT",
	[WIRE_STREAMS] = "STREAMS",
	[WIRE_JOIN] = "JOIN",
	[WIRE_CHECK] = "CHECK",
	[WIRE_CHECKED] = "CHECKED",
	[WIRE_PROBE] = "PROBE",
	[WIRE_PRIVATE_BLOCKS] = "PRIVATE_BLOCKS",
	[WIRE_PRIVATE] = "PRIVATE",
	[WIRE_DONE] = "DONE",
	[WIRE_ASK] = "ASK",
	[WIRE_VERDICT] = "VERDICT",
	[WIRE_RAM_FILES] = "RAM_FILES",
	[WIRE_ASK_VIEW] = "ASK_VIEW",
	[WIRE_VIEW] = "VIEW",
	[WIRE_KEEP] = "KEEP",
	[WIRE_RECONNECT] = "RECONNECT",
	[WIRE_PACKED] = "PACKED",
	[WIRE_LOAD] = "LOAD",
	[WIRE_DELTA] = "DELTA",
	[WIRE_POSTCOPY_ASK] = "POSTCOPY",
	[WIRE_CANNOT] = "CANNOT",
	[WIRE_OWED] = "OWED",
	[WIRE_WANT] = "WANT",
	[WIRE_COMPLETE] = "COMPLETE",
	[WIRE_RECOVER] = "RECOVER",
	[WIRE_FAULTS] = "FAULTS",
	[WIRE_REUSE] = "REUSE",
	[WIRE_WANT_HASHES] = "WANT_HASHES",
	[WIRE_HASHES] = "HASHES",
	[WIRE_REFERENCES] = "REFERENCES",
	[WIRE_REFUSED] = "REFUSED",
};
static_assert(sizeof(type_names) / sizeof(type_names[0]) == WIRE_TYPES, "a frame type has no name");

/* A value above its range exceeds a limit; if only one value is right, any other is malformed. */
static int header_in_range(uint64_t v, uint64_t min, uint64_t max)
{
	if (v < min)
		return -EPROTO;
	if (v > max)
		return min == max ? -EPROTO : -EMSGSIZE;
	return 0;
}

static int header_check_limits(const struct wire_header *h)
{
	const struct frame_limits *l;
	int ret;

	if (h->type == 0 || h->type >= WIRE_TYPES || !type_names[h->type])
		return -EPROTO;
	l = &frame_limits[h->type];
	if (h->flags & ~l->flags)
		return -EPROTO;
	ret = header_in_range(h->arg, l->arg_min, l->arg_max);
	if (ret)
		return ret;
	return header_in_range(h->length, l->body_min + (uint64_t)h->arg * l->item_min,
			l->body_max + (uint64_t)h->arg * l->item_max);
}

void wire_put_header(uint8_t p[WIRE_HEADER], const struct wire_header *h)
{
	struct header_le le = {
		.magic = htole32(WIRE_MAGIC),
		.type = htole16(h->type),
		.flags = htole16(h->flags),
		.arg = htole32(h->arg),
		.length = htole32(h->length),
	};

	memcpy(p, &le, sizeof(le));
}

int wire_get_header(const uint8_t p[WIRE_HEADER], struct wire_header *h)
{
	struct header_le le;
	struct wire_header got;
	int ret;

	memcpy(&le, p, sizeof(le));
	got.type = le16toh(le.type);
	got.flags = le16toh(le.flags);
	got.arg = le32toh(le.arg);
	got.length = le32toh(le.length);

	/* The version first, as all else in another version's HELLO may differ. */
	if (le32toh(le.magic) != WIRE_MAGIC || (got.type == WIRE_HELLO && got.arg != WIRE_VERSION))
		return -EPROTONOSUPPORT;
	if (le.reserved)
		return -EPROTO;
	ret = header_check_limits(&got);
	if (ret)
		return ret;
	*h = got;
	return 0;
}

unsigned int wire_header_type(const uint8_t p[WIRE_HEADER])
{
	struct header_le le;

	memcpy(&le, p, sizeof(le));
	return le16toh(le.type);
}

const char *wire_type_name(unsigned int type)
{
	return type < WIRE_TYPES && type_names[type] ? type_names[type] : type_names[0];
}
