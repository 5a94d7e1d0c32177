// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdlib.h>

#include "fit/compare.h"
#include "fit/fit.h"

/* A body of VIEW after the other, up to the last. */
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

int fit_ask(struct channel *ch, struct qmp *q, struct vm *vm, struct fit *fit, struct err *e)
{
	struct wire_header h = { .type = WIRE_ASK_VIEW };
	char *text = NULL;
	size_t len = 0;
	int r = channel_send(ch, &h, NULL, e);

	/* While the receiver looks at its own. */
	if (!r)
		r = view_make(q, vm, false, &fit->here, e);
	if (!r)
		r = receive(ch, &text, &len, e);
	if (!r) {
		fit->there = view_decode(text, len);
		r = fit->there ? 0 : err_set(e, GW_BAD_PEER, EPROTO, "the receiver's view of its QEMU makes no sense");
	}
	if (!r)
		fit_compare(fit->here, fit->there, &policy, &fit->findings);
	free(text);
	return r;
}

int fit_answer(struct channel *ch, struct qmp *q, struct vm *vm, struct err *e)
{
	json_t *view = NULL;
	char *text = NULL;
	size_t len = 0, at = 0;
	int r = view_make(q, vm, true, &view, e);

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
	fit->here = fit->there = NULL;
	findings_free(&fit->findings);
}
