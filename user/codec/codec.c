// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/codec.h"
#include "page/page.h"

const struct codec *const codecs[CODECS] = { &codec_lz4, &codec_zstd, &codec_zlib };

static int codec_parse_level(const struct codec *c, const char *text, unsigned int *level,
			     struct err *e)
{
	char *end;
	unsigned long v;

	errno = 0;
	v = strtoul(text, &end, 10);
	if (!errno && *text >= '0' && *text <= '9' && !*end && v >= c->level_min &&
	    v <= c->level_max) {
		*level = (unsigned int)v;
		return 0;
	}
	return err_set(e, GW_USAGE, EINVAL, "--compress %s:LEVEL takes a level from %u to %u, not \"%.40s\"",
		       c->name, c->level_min, c->level_max, text);
}

int codec_parse(const char *text, struct codec_wish *out, struct err *e)
{
	size_t len = strcspn(text, ":");

	*out = (struct codec_wish) { .kind = CODEC_AUTO };
	if (!strcmp(text, "auto"))
		return 0;
	out->kind = CODEC_OFF;
	if (!strcmp(text, "off"))
		return 0;
	out->kind = CODEC_FIXED;
	for (unsigned int i = 0; i < CODECS; i++) {
		const struct codec *c = codecs[i];

		if (strlen(c->name) != len || strncmp(c->name, text, len))
			continue;
		out->choice = (struct codec_choice) { c, c->level };
		if (!text[len])
			return 0;
		if (c->level_max)
			return codec_parse_level(c, text + len + 1, &out->choice.level, e);
	}
	return err_set(e, GW_USAGE, EINVAL,
		       "--compress takes auto, off, lz4, zstd[:LEVEL] or zlib[:LEVEL], not \"%.40s\"",
		       text);
}

const char *codec_text(const struct codec_choice *c, char text[CODEC_TEXT])
{
	if (!c->codec)
		snprintf(text, CODEC_TEXT, "raw");
	else if (!c->codec->level_max)
		snprintf(text, CODEC_TEXT, "%s", c->codec->name);
	else
		snprintf(text, CODEC_TEXT, "%s:%u", c->codec->name, c->level);
	return text;
}

const char *codec_wish_text(const struct codec_wish *wish, char text[CODEC_TEXT])
{
	if (wish->kind == CODEC_FIXED)
		return codec_text(&wish->choice, text);
	snprintf(text, CODEC_TEXT, wish->kind == CODEC_AUTO ? "auto" : "off");
	return text;
}

int codec_check(const struct codec_wish *wish, uint64_t features, struct err *e)
{
	const struct codec *c = wish->choice.codec;

	if (wish->kind != CODEC_FIXED || features & c->feature)
		return 0;
	return err_set(e, GW_VERSION, EPROTONOSUPPORT, "the receiver's godwit is too old for --compress %s: give auto or off, or install the same version at both ends",
		       c->name);
}

const char *codec_list(uint64_t features, char text[CODEC_LIST])
{
	size_t n = 0;

	text[0] = '\0';
	for (unsigned int i = 0; i < CODECS && n < CODEC_LIST; i++)
		if (features & codecs[i]->feature)
			n += (size_t)snprintf(text + n, CODEC_LIST - n, "%s%s (%s %s)",
					      n ? ", " : "", codecs[i]->name, codecs[i]->library,
					      codecs[i]->version());
	return text;
}

/* From the lowest byte on: the kind, the codec's number, the level. */
uint32_t codec_wish_word(const struct codec_wish *wish)
{
	uint32_t word = wish->kind;

	if (wish->kind == CODEC_FIXED)
		word |= wish->choice.codec->number << 8 | wish->choice.level << 16;
	return word;
}

struct codec_wish codec_word_wish(uint32_t word)
{
	struct codec_wish wish = { .kind = word & 0xff };

	if (wish.kind == CODEC_FIXED)
		wish.choice = (struct codec_choice) { codecs[(word >> 8 & 0xff) - 1], word >> 16 };
	return wish;
}

void codec_states_free(struct codec_states *s)
{
	for (unsigned int i = 0; i < CODECS; i++) {
		if (s->packer[i])
			codecs[i]->free_packer(s->packer[i]);
		if (s->unpacker[i])
			codecs[i]->free_unpacker(s->unpacker[i]);
	}
	*s = (struct codec_states) { .packer = { NULL } };
}

size_t codec_worth(size_t len)
{
	return len - (len / 8 < PAGE_BYTES ? len / 8 : PAGE_BYTES);
}

size_t codec_pack(struct codec_states *s, const struct codec_choice *c, const void *in, size_t len,
		  void *out, size_t room)
{
	void **state;

	if (!c->codec)
		return 0;
	state = &s->packer[c->codec->number - 1];
	if (!*state)
		*state = c->codec->new_packer();
	return *state ? c->codec->pack(*state, c->level, in, len, out, room) : 0;
}

int codec_unpack(struct codec_states *s, unsigned int number, const void *in, size_t len, void *out,
		 size_t size)
{
	const struct codec *c;
	void **state;

	if (number < 1 || number > CODECS)
		return -ENOENT;
	c = codecs[number - 1];
	state = &s->unpacker[number - 1];
	if (!*state)
		*state = c->new_unpacker();
	return *state ? c->unpack(*state, in, len, out, size) : -ENOMEM;
}
