/* SPDX-License-Identifier: GPL-2.0-only */
/* The rows of the ledger, by owning file; a part of internal.h. */
#ifndef GODWIT_LEDGER_H
#define GODWIT_LEDGER_H

struct anon_vma;

/* A VMA of private RAM. pgoff: of its own pages; root: of its anon_vma, or NULL; compared only. */
struct godwit_area {
	unsigned long start;
	unsigned long end;
	unsigned long pgoff;
	const struct anon_vma *root;
};

struct godwit_areas {
	struct rcu_head rcu;
	unsigned int nr;
	struct godwit_area area[];
};

/* dirtylog.c */
int godwit_dirtylog_harvest(struct godwit_session *s, u64 *pages);
int godwit_dirtylog_clear(struct godwit_session *s, struct godwit_scratch *sc,
			  const struct godwit_range *a);

/* ledger.c */
void godwit_ledger_note(struct godwit_ram *ram, enum godwit_row row, u64 first, u64 npages);
void godwit_ledger_note_unmapped(struct godwit_ram *ram, u64 first, u64 npages);
bool godwit_ledger_collect(struct godwit_ram *ram, u64 *pages);

/* flush.c */
void godwit_flush(void);

/* private.c */
struct vm_area_struct;
int godwit_private_kind(struct vm_area_struct *vma);

/* A range of the VMM, to be looked at; page_shift: out. */
struct godwit_look_private {
	unsigned long addr;
	u64 npages;
	unsigned int page_shift;
};

int godwit_job_look_private(struct godwit_session *s, void *arg);

/* sweep.c */
int godwit_mapping_sweep(struct godwit_session *s, bool discard, u64 *pages);

/* watch.c */
/**
 * struct godwit_span - a stretch of an mm that maps a stretch of a RAM file
 * @start: user address
 * @end: user address, exclusive
 * @pgoff: page of the file at @start
 * @seen: the last sweep that found it mapped
 * @gone_start: private RAM: mappings have been taken away from here on since the last look,
 * @gone_end: and up to here; 0: none has
 * @owed_start: entries have been taken away from here on that are not noted yet,
 * @owed_end: and up to here; 0: all are noted
 */
struct godwit_span {
	struct list_head node;
	struct godwit_ram *ram;
	unsigned long start;
	unsigned long end;
	u64 pgoff;
	u64 seen;
	unsigned long gone_start;
	unsigned long gone_end;
	unsigned long owed_start;
	unsigned long owed_end;
};

/**
 * struct godwit_mapper - an mm that maps RAM files
 * @mm: kept by its watch
 * @seen: a process has it
 */
struct godwit_mapper {
	struct mm_struct *mm;
	bool seen;
};

int godwit_watch_vm(struct godwit_session *s);
void godwit_watch_begin(struct godwit_session *s);
bool godwit_watch_knows(struct godwit_session *s, struct mm_struct *mm,
			const struct godwit_span *span);
int godwit_watch_add(struct godwit_session *s, struct mm_struct *mm,
		     const struct godwit_span *span);
u64 godwit_watch_events(struct godwit_session *s);
bool godwit_watch_take_gone(struct godwit_session *s, const struct godwit_ram *ram,
			    unsigned long *start, unsigned long *end);
void godwit_watch_prune(struct godwit_session *s);
unsigned int godwit_watch_mappers(struct godwit_session *s, struct godwit_mapper *mappers,
				  unsigned int max);
void godwit_watch_free(struct godwit_session *s);

/* unmap.c */
void godwit_unmap_in_flight(struct godwit_session *s);

/* mappers.c */
int godwit_mappers(struct godwit_session *s, struct godwit_mappers *arg, u32 *pids);

/* block.c */
int godwit_block_track(struct godwit_session *s, u32 *owner);
void godwit_block_untrack(struct godwit_session *s);

#endif /* GODWIT_LEDGER_H */
