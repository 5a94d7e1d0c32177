// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>

#include "qmp/qmp_internal.h"

bool qmp_is_event(const json_t *msg)
{
	return json_object_get(msg, "event");
}

static bool qmp_event_well_formed(const json_t *msg)
{
	const json_t *data = json_object_get(msg, "data");

	return json_is_string(json_object_get(msg, "event")) && (!data || json_is_object(data));
}

int qmp_events_add(struct qmp_events *q, json_t *msg, size_t bytes)
{
	if (bytes > QMP_EVENT_MAX || !qmp_event_well_formed(msg)) {
		json_decref(msg);
		return -EPROTO;
	}
	if (!q->queue)
		q->queue = json_array();
	if (json_array_size(q->queue) >= QMP_EVENTS_MAX)
		json_array_remove(q->queue, 0);
	return json_array_append_new(q->queue, msg) ? -ENOMEM : 0;
}

/* QEMU sends -1 when it does not know the time; jansson may have read the numbers as doubles. */
static uint64_t qmp_event_ns(const json_t *msg)
{
	const json_t *t = json_object_get(msg, "timestamp");
	double s = json_number_value(json_object_get(t, "seconds"));
	double us = json_number_value(json_object_get(t, "microseconds"));

	if (!(s >= 0 && s < 1e10 && us >= 0 && us < 1e6))
		return 0;
	return (uint64_t)s * 1000000000 + (uint64_t)us * 1000;
}

bool qmp_events_take(struct qmp_events *q, struct qmp_event *ev)
{
	json_decref(q->current);
	q->current = json_incref(json_array_get(q->queue, 0));
	if (!q->current)
		return false;
	json_array_remove(q->queue, 0);
	ev->name = json_string_value(json_object_get(q->current, "event"));
	ev->data = json_object_get(q->current, "data");
	ev->realtime_ns = qmp_event_ns(q->current);
	return true;
}

void qmp_events_free(struct qmp_events *q)
{
	json_decref(q->queue);
	json_decref(q->current);
}
