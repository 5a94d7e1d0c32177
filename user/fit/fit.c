// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "fit/compare.h"
#include "fit/compare_internal.h"
#include "fit/fit.h"

/* The facts of a disk that do not change by themselves. */
static json_t *disk_glance(const json_t *disk)
{
	const json_t *inserted = json_object_get(disk, "inserted");

	return json_pack("{s:O*, s:O*, s:O*, s:O*}", "qdev", json_object_get(disk, "qdev"),
			 "device", json_object_get(disk, "device"), "ro",
			 json_object_get(inserted, "ro"), "bytes",
			 json_object_get(json_object_get(inserted, "image"), "virtual-size"));
}

/*
 * What an operator could change while the guest runs. disks: QEMU reads their images, which may lie
 * on a slow network. *out: also after an error.
 */
static int glance(struct qmp *q, bool disks, json_t **out, struct err *e)
{
	struct qmp_batch b[] = {
		{ .command = "qom-list",
		  .args = json_pack("{s:s}", "path", "/machine/peripheral") },
		{ .command = "qom-list",
		  .args = json_pack("{s:s}", "path", "/machine/peripheral-anon") },
		{ .command = "query-memory-devices" },
		{ .command = "query-cpus-fast" },
		{ .command = "query-block" },
	};
	const size_t all = sizeof(b) / sizeof(b[0]);
	json_t *devices = json_array(), *images = json_array();
	const json_t *one;
	size_t i;
	int r = qmp_call_all(q, b, disks ? all : all - 1, e);

	for (size_t k = 0; k + 1 < all; k++) {
		json_array_append(devices, b[k].ret ? b[k].ret : json_null());
		json_decref(b[k].ret);
	}
	json_array_foreach(b[all - 1].ret, i, one)
		json_array_append_new(images, disk_glance(one));
	json_decref(b[all - 1].ret);
	*out = json_pack("{s:o, s:o}", "devices", devices, "disks", images);
	return r || *out ? r : err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
}

/* Receives the bodies of VIEW, up to the last. */
static int receive(struct channel *ch, char **text, size_t *len, struct err *e)
{
	struct wire_header h = { .flags = WIRE_MORE };
	int r = 0;

	*text = NULL;
	*len = 0;
	while (!r && h.flags & WIRE_MORE) {
		char *more;

		r = channel_expect(ch, WIRE_VIEW, &h, e);
		if (r)
			return r;
		if (*len + h.length > VIEW_BYTES_MAX)
			return err_set(e, GW_BAD_PEER, EPROTO,
				       "the receiver's view of its QEMU has more than %u MiB",
				       VIEW_BYTES_MAX >> 20);
		more = realloc(*text, *len + h.length);
		if (!more)
			return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
		*text = more;
		r = channel_body(ch, *text + *len, h.length, e);
		*len += h.length;
	}
	return r;
}

/**
 * struct asked - what both ends are asked for
 * @flags: WIRE_BRIEF, WIRE_GLANCE
 * @here, @there: where the answers go; older ones are dropped
 */
struct asked {
	unsigned int flags;
	struct qmp *q;
	struct vm *vm;
	struct qom_known *known;
	json_t **here, **there;
};

static int make(struct qmp *q, struct vm *vm, struct qom_known *known, bool destination,
		unsigned int flags, json_t **out, struct err *e)
{
	return flags & WIRE_GLANCE ? glance(q, true, out, e)
				   : view_make(q, vm, known, destination, flags & WIRE_BRIEF, out,
					       e);
}

/* Asks the receiver, and makes the own view meanwhile. The answer is view_answer()'s. */
static int view_ask(struct channel *ch, const struct asked *a, struct err *e)
{
	struct wire_header h = { .type = WIRE_ASK_VIEW, .flags = (uint16_t)a->flags };
	int r = channel_send(ch, &h, NULL, e);

	json_decref(*a->here);
	json_decref(*a->there);
	*a->here = *a->there = NULL;
	return r ? r : make(a->q, a->vm, a->known, false, a->flags, a->here, e);
}

static int view_answer(struct channel *ch, const struct asked *a, struct err *e)
{
	char *text = NULL;
	size_t len = 0;
	int r = receive(ch, &text, &len, e);

	if (!r) {
		*a->there = view_decode(text, len);
		r = *a->there ? 0
			      : err_set(e, GW_BAD_PEER, EPROTO,
					"the receiver's view of its QEMU makes no sense");
	}
	free(text);
	return r;
}

static int view_both(struct channel *ch, const struct asked *a, struct err *e)
{
	int r = view_ask(ch, a, e);

	return r ? r : view_answer(ch, a, e);
}

int fit_ask(struct channel *ch, struct qmp *q, struct vm *vm, struct fit *fit, struct err *e)
{
	const struct asked first = { WIRE_GLANCE, q, vm, &fit->known, &fit->glance_here,
				      &fit->glance_there };
	struct asked a = { WIRE_BRIEF, q, vm, &fit->known, &fit->here, &fit->there };
	int r;

	/* Before the views, but in one round trip: fit_again() sees what changes after this. */
	r = view_ask(ch, &first, e);
	if (!r)
		r = view_ask(ch, &a, e);
	if (!r)
		r = view_answer(ch, &first, e);
	if (!r)
		r = view_answer(ch, &a, e);
	a.flags = 0;
	if (!r && fit_needs_features(fit->here, fit->there))
		r = view_both(ch, &a, e);
	if (!r)
		fit_compare(fit->here, fit->there, &policy, &fit->findings);
	return r;
}

static void fit_drop_views(struct fit *fit)
{
	json_t **all[] = { &fit->here, &fit->there, &fit->glance_here, &fit->glance_there };

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		json_decref(*all[i]);
		*all[i] = NULL;
	}
	findings_free(&fit->findings);
}

int fit_again(struct channel *ch, struct qmp *q, struct vm *vm, struct fit *fit, bool *changed,
	      struct err *e)
{
	unsigned int accepted = fit->findings.accepted;
	json_t *here = NULL, *there = NULL;
	const struct asked a = { WIRE_GLANCE, q, vm, &fit->known, &here, &there };
	int r = view_both(ch, &a, e);

	*changed = !r &&
		   (!json_equal(here, fit->glance_here) || !json_equal(there, fit->glance_there));
	json_decref(here);
	json_decref(there);
	if (!*changed)
		return r;
	fit_drop_views(fit);
	fit->findings.accepted = accepted;
	return fit_ask(ch, q, vm, fit, e);
}

int fit_check_same(struct qmp *q, const struct fit *fit, struct err *e)
{
	json_t *now = NULL;
	int r = glance(q, false, &now, e);

	if (!r && !json_equal(json_object_get(now, "devices"),
			      json_object_get(fit->glance_here, "devices")))
		r = err_set(
			e, GW_VM_STATE, EAGAIN,
			"a device of the source VM was plugged or unplugged just before the switchover: try again");
	json_decref(now);
	return r;
}

int fit_answer(struct channel *ch, struct qmp *q, struct vm *vm, struct qom_known *known,
	       unsigned int flags, struct err *e)
{
	json_t *view = NULL;
	char *text = NULL;
	size_t len = 0, at = 0;
	int r = make(q, vm, known, true, flags, &view, e);

	if (!r)
		r = view_encode(view, &text, &len, e);
	while (!r && at < len) {
		struct wire_header h = {
			.type = WIRE_VIEW,
			.length = (uint32_t)(len - at < WIRE_VIEW_MAX ? len - at : WIRE_VIEW_MAX)
		};

		h.flags = at + h.length < len ? WIRE_MORE : 0;
		r = channel_send(ch, &h, text + at, e);
		at += h.length;
	}
	free(text);
	json_decref(view);
	return r;
}

/* QEMU's own migration goes by names. Only where both ends say where the block is. */
static bool fit_is_elsewhere(const struct fit *fit, const char *name)
{
	const json_t *here = json_object_get(json_object_get(fit->here, "ram"), name);
	const json_t *there = json_object_get(json_object_get(fit->there, "ram"), name);

	return here && there && !fit_alike(here, there);
}

/*
 * Of the views: can only save mode fill the destination's RAM, which is private, or has other
 * names?
 */
static bool fit_needs_save(const struct fit *fit)
{
	const json_t *here = json_object_get(json_object_get(fit->here, "host"), "ram");
	json_t *block, *there = json_object_get(json_object_get(fit->there, "host"), "ram");
	const char *name;

	json_object_foreach(there, name, block)
		if (json_is_true(json_object_get(block, "private")) ||
		    !json_object_get(here, name) || fit_is_elsewhere(fit, name))
			return true;
	return false;
}

int fit_choose_mode(const struct fit *fit, enum mode_wish wish, struct qmp *q, struct vm *vm,
		    bool running, enum devstate_mode *mode, struct private_ram *ram, struct err *e)
{
	if (*mode != MODE_MIGRATE || !fit_needs_save(fit))
		return 0;
	private_ram_free(ram);
	return mode_choose(wish, true, q, vm, running, mode, ram, e);
}

void fit_free(struct fit *fit)
{
	fit_drop_views(fit);
	qom_known_free(&fit->known);
}
