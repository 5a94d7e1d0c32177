/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef GODWIT_HOST_H
#define GODWIT_HOST_H
#include <jansson.h>
#include <stdbool.h>
#include "fit/findings.h"
#include "vmm/vm.h"
int host_view(json_t *view, struct qmp *q, const struct vm *vm, const char *proc, const char *sys, bool destination, struct err *e);
void host_compare(const json_t *src, const json_t *dst, struct findings *f);
void host_compare_clocks(int64_t offset_ns, uint64_t rtt_ns, struct findings *f);
#endif
