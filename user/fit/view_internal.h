/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The parts of view_make(): the machine and its devices (view.c), and what is in and behind them
 * (view_behind.c).
 */
#ifndef GODWIT_VIEW_INTERNAL_H
#define GODWIT_VIEW_INTERNAL_H

#include "qom/qom.h"
#include "fit/view.h"

/**
 * struct making - a view that is being made
 * @places: of the objects in @qom, by their index
 */
struct making {
	struct qmp *q;
	struct qom qom;
	char **places;
	json_t *view;
};

int view_no_memory(struct err *e);
/* Add disks, what is plugged into USB, and what the guest has negotiated with virtio backends. */
int view_add_disks(struct making *m, struct err *e);
int view_add_usb(struct making *m, struct err *e);
int view_add_virtio(struct making *m, struct err *e);

#endif
