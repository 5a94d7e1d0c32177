// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdlib.h>

#include "fit/compare.h"
#include "fit/fit.h"

/* The next VIEW. While rounds go on the receiver may have said that it lives. */
static int next(struct channel *ch, struct wire_header *h, struct err *e)
{
	uint8_t clock[8];
	int r;

	while (!(r = channel_recv(ch, h, false, e)) && h->type == WIRE_PONG) {
		r = channel_body(ch, clock, sizeof(clock), e);
		if (r)
			return r;
	}
	if (!r && h->type != WIRE_VIEW)
		r = err_set(e, GW_BAD_PEER, EPROTO, "the other side sent %s where VIEW was due", wire_type_name(h->type));
	return r;
}

/* A body of VIEW after the other, up to the last. */
static int receive(struct channel *ch, char **text, size_t *len, struct err *e)
{
	struct wire_header h = { .flags = WIRE_MORE };
	int r = 0;

	*text = NULL;
	*len = 0;
	while (!r && h.flags & WIRE_MORE) {
		char *more;

		r = next(ch, &h, e);
		if (r)
			return r;
		if (*len + h.length > VIEW_BYTES_MAX)
			return err_set(e, GW_BAD_PEER, EPROTO, "the receiver's view of its QEMU has more than %u MiB", VIEW_BYTES_MAX >> 20);
		more = realloc(*text, *len + h.length);
		if (!more)
			return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
		*text = more;
		r = channel_body(ch, *text + *len, h.length, e);
		*len += h.length;
	}
	return r;
}

/* Of a disk what does not change by itself. */
static json_t *disk_glance(const json_t *disk)
{
	const json_t *inserted = json_object_get(disk, "inserted");

	return json_pack("{s:O*, s:O*, s:O*, s:O*}", "qdev", json_object_get(disk, "qdev"), "device", json_object_get(disk, "device"),
			 "ro", json_object_get(inserted, "ro"), "bytes",
			 json_object_get(json_object_get(inserted, "image"), "virtual-size"));
}

/* What somebody could change while the guest runs. NULL at @out: QEMU did not say. */
static int glance(struct qmp *q, json_t **out, struct err *e)
{
	struct qmp_batch b[] = {
		{ .command = "qom-list", .args = json_pack("{s:s}", "path", "/machine/peripheral") },
		{ .command = "qom-list", .args = json_pack("{s:s}", "path", "/machine/peripheral-anon") },
		{ .command = "query-memory-devices" },
		{ .command = "query-cpus-fast" },
		{ .command = "query-block" },
	};
	const size_t n = sizeof(b) / sizeof(b[0]);
	int r = qmp_call_all(q, b, n, e);

	*out = json_array();
	for (size_t i = 0; i < n; i++) {
		json_t *one;
		size_t k;

		json_array_foreach(b[i].ret, k, one)
			json_array_append_new(*out, i + 1 < n ? json_incref(one) : disk_glance(one));
		json_decref(b[i].ret);
	}
	return r;
}

/* Both views. */
static int look(struct channel *ch, struct qmp *q, struct vm *vm, bool brief, struct fit *fit, struct err *e)
{
	struct wire_header h = { .type = WIRE_ASK_VIEW, .flags = brief ? WIRE_BRIEF : 0 };
	char *text = NULL;
	size_t len = 0;
	int r = channel_send(ch, &h, NULL, e);

	json_decref(fit->here);
	json_decref(fit->there);
	fit->here = fit->there = NULL;
	/* While the receiver looks at its own. */
	if (!r)
		r = view_make(q, vm, false, brief, &fit->here, e);
	if (!r)
		r = receive(ch, &text, &len, e);
	if (!r) {
		fit->there = view_decode(text, len);
		r = fit->there ? 0 : err_set(e, GW_BAD_PEER, EPROTO, "the receiver's view of its QEMU makes no sense");
	}
	free(text);
	return r;
}

int fit_ask(struct channel *ch, struct qmp *q, struct vm *vm, struct fit *fit, struct err *e)
{
	int r;

	/* Before the views: what changes after this is seen by fit_again(). */
	json_decref(fit->glance);
	r = glance(q, &fit->glance, e);
	if (!r)
		r = look(ch, q, vm, true, fit, e);
	if (!r && fit_needs_features(fit->here, fit->there))
		r = look(ch, q, vm, false, fit, e);
	if (!r)
		fit_compare(fit->here, fit->there, &policy, &fit->findings);
	return r;
}

int fit_again(struct channel *ch, struct qmp *q, struct vm *vm, struct fit *fit, bool *changed, struct err *e)
{
	json_t *now = NULL;
	unsigned int accepted = fit->findings.accepted;
	int r = glance(q, &now, e);

	*changed = !r && !json_equal(now, fit->glance);
	json_decref(now);
	if (!*changed)
		return r;
	fit_free(fit);
	fit->findings.accepted = accepted;
	return fit_ask(ch, q, vm, fit, e);
}

int fit_answer(struct channel *ch, struct qmp *q, struct vm *vm, bool brief, struct err *e)
{
	json_t *view = NULL;
	char *text = NULL;
	size_t len = 0, at = 0;
	int r = view_make(q, vm, true, brief, &view, e);

	if (!r)
		r = view_encode(view, &text, &len, e);
	while (!r && at < len) {
		struct wire_header h = { .type = WIRE_VIEW, .length = (uint32_t)(len - at < WIRE_VIEW_MAX ? len - at : WIRE_VIEW_MAX) };

		h.flags = at + h.length < len ? WIRE_MORE : 0;
		r = channel_send(ch, &h, text + at, e);
		at += h.length;
	}
	free(text);
	json_decref(view);
	return r;
}

void fit_free(struct fit *fit)
{
	json_decref(fit->here);
	json_decref(fit->there);
	json_decref(fit->glance);
	fit->here = fit->there = fit->glance = NULL;
	findings_free(&fit->findings);
}
