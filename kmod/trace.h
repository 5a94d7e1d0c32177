/* SPDX-License-Identifier: GPL-2.0-only */
/* Tracepoints: /sys/kernel/tracing/events/godwit/, for perf and trace-cmd. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM godwit

#if !defined(GODWIT_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define GODWIT_TRACE_H

#include <linux/tracepoint.h>

#include "internal.h"

TRACE_DEFINE_ENUM(GODWIT_ROW_VCPU);
TRACE_DEFINE_ENUM(GODWIT_ROW_MAPPING);
TRACE_DEFINE_ENUM(GODWIT_ROW_BLOCK);
TRACE_DEFINE_ENUM(GODWIT_ROW_UNMAP);
TRACE_DEFINE_ENUM(GODWIT_ROW_CHANGE);

#define show_row(row)							\
	__print_symbolic(row,						\
		{ GODWIT_ROW_VCPU,	"vcpu" },			\
		{ GODWIT_ROW_MAPPING,	"mapping" },			\
		{ GODWIT_ROW_BLOCK,	"block" },			\
		{ GODWIT_ROW_UNMAP,	"unmap" },			\
		{ GODWIT_ROW_CHANGE,	"change" })

TRACE_EVENT(godwit_attach,
	TP_PROTO(const struct godwit_session *s, const struct godwit_attach *a),
	TP_ARGS(s, a),
	TP_STRUCT__entry(
		__field(u32, id)
		__field(pid_t, owner_pid)
		__field(pid_t, vm_pid)
		__field(u32, memslots)
		__field(u32, logged)
		__field(u32, manual_protect)
	),
	TP_fast_assign(
		__entry->id = s->id;
		__entry->owner_pid = s->owner_pid;
		__entry->vm_pid = s->vm_pid;
		__entry->memslots = a->memslots;
		__entry->logged = a->logged;
		__entry->manual_protect = a->manual_protect;
	),
	TP_printk("session=%u owner_pid=%d vm_pid=%d memslots=%u logged=%u manual_protect=%u",
		  __entry->id, __entry->owner_pid, __entry->vm_pid, __entry->memslots,
		  __entry->logged, __entry->manual_protect)
);

TRACE_EVENT(godwit_harvest,
	TP_PROTO(const struct godwit_session *s, const struct godwit_harvest *h, int ret),
	TP_ARGS(s, h, ret),
	TP_STRUCT__entry(
		__field(u32, id)
		__field(u64, generation)
		__array(u64, pages, GODWIT_ROWS)
		__field(u32, changes)
		__field(u64, ns)
		__field(int, ret)
	),
	TP_fast_assign(
		__entry->id = s->id;
		__entry->generation = h->generation;
		memcpy(__entry->pages, h->pages, sizeof(__entry->pages));
		__entry->changes = h->changes;
		__entry->ns = h->ns;
		__entry->ret = ret;
	),
	TP_printk("session=%u generation=%llu vcpu=%llu mapping=%llu block=%llu unmap=%llu change=%llu changes=%u ns=%llu ret=%d",
		  __entry->id, __entry->generation, __entry->pages[GODWIT_ROW_VCPU],
		  __entry->pages[GODWIT_ROW_MAPPING], __entry->pages[GODWIT_ROW_BLOCK],
		  __entry->pages[GODWIT_ROW_UNMAP], __entry->pages[GODWIT_ROW_CHANGE],
		  __entry->changes, __entry->ns, __entry->ret)
);

TRACE_EVENT(godwit_clear,
	TP_PROTO(const struct godwit_session *s, const struct godwit_range *range, int ret),
	TP_ARGS(s, range, ret),
	TP_STRUCT__entry(
		__field(u32, id)
		__field(u32, ram)
		__field(u64, first_page)
		__field(u64, npages)
		__field(int, ret)
	),
	TP_fast_assign(
		__entry->id = s->id;
		__entry->ram = range->ram;
		__entry->first_page = range->first_page;
		__entry->npages = range->npages;
		__entry->ret = ret;
	),
	TP_printk("session=%u ram=%u first_page=%#llx npages=%llu ret=%d",
		  __entry->id, __entry->ram, __entry->first_page, __entry->npages, __entry->ret)
);

/* A writer was noted, in any context; fresh: pages not noted yet since the last harvest. */
TRACE_EVENT(godwit_ledger_hit,
	TP_PROTO(const struct godwit_ram *ram, enum godwit_row row, u64 first_page, u64 npages,
		 u64 fresh),
	TP_ARGS(ram, row, first_page, npages, fresh),
	TP_STRUCT__entry(
		__field(u32, id)
		__field(u32, ram)
		__field(u32, row)
		__field(u64, first_page)
		__field(u64, npages)
		__field(u64, fresh)
	),
	TP_fast_assign(
		__entry->id = ram->session_id;
		__entry->ram = ram->index;
		__entry->row = row;
		__entry->first_page = first_page;
		__entry->npages = npages;
		__entry->fresh = fresh;
	),
	TP_printk("session=%u ram=%u row=%s first_page=%#llx npages=%llu fresh=%llu",
		  __entry->id, __entry->ram, show_row(__entry->row), __entry->first_page,
		  __entry->npages, __entry->fresh)
);

/* One memslot got its flags back. */
TRACE_EVENT(godwit_retire,
	TP_PROTO(const struct godwit_session *s, const struct godwit_slot *slot, u64 ns, int ret),
	TP_ARGS(s, slot, ns, ret),
	TP_STRUCT__entry(
		__field(u32, id)
		__field(u32, as_id)
		__field(u32, slot)
		__field(u64, npages)
		__field(u64, ns)
		__field(int, ret)
	),
	TP_fast_assign(
		__entry->id = s->id;
		__entry->as_id = slot->as_id;
		__entry->slot = slot->id;
		__entry->npages = slot->npages;
		__entry->ns = ns;
		__entry->ret = ret;
	),
	TP_printk("session=%u slot=%u:%u npages=%llu ns=%llu ret=%d",
		  __entry->id, __entry->as_id, __entry->slot, __entry->npages, __entry->ns,
		  __entry->ret)
);

TRACE_EVENT(godwit_detach,
	TP_PROTO(const struct godwit_session *s, bool vm_gone, u64 ns),
	TP_ARGS(s, vm_gone, ns),
	TP_STRUCT__entry(
		__field(u32, id)
		__field(pid_t, vm_pid)
		__field(bool, vm_gone)
		__field(u64, ns)
	),
	TP_fast_assign(
		__entry->id = s->id;
		__entry->vm_pid = s->vm_pid;
		__entry->vm_gone = vm_gone;
		__entry->ns = ns;
	),
	TP_printk("session=%u vm_pid=%d vm_gone=%d ns=%llu",
		  __entry->id, __entry->vm_pid, __entry->vm_gone, __entry->ns)
);

#endif /* GODWIT_TRACE_H */

/* Outside of the guard: read once more for each stage. */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
