/* SPDX-License-Identifier: GPL-2.0-only */
/* ram_find() over a scripted QEMU and a /proc/PID made of plain files. After cmocka.h. */
#ifndef GODWIT_RAM_BENCH_H
#define GODWIT_RAM_BENCH_H

#include "fake_proc.h"
#include "qmp_peer.h"
#include "vmm/ram.h"

#define MIB		(1u << 20)
#define PLACE		0x7f2569fff000ull

#define MEMDEV(id, size) "{\"id\": \"" id "\", \"size\": " size ", \"share\": true}"
#define ONE		"[" MEMDEV("ram0", "2097152") "]"
#define HVA	"0x00007f256a3ff000"	/* PLACE + 4 MiB */
#define LIST	"{\"human-readable-text\": \"Block Name PSize Offset Used Total HVA RO\\n" \
		"ram0 4 KiB 0x0000000000000000 0x0000000000200000 0x0000000000200000 " HVA " rw\\n\"}"

struct bench {
	struct fake_proc proc;
	struct vm vm;
	struct err e;
	int fds;
};

static inline void bench_new(struct bench *b)
{
	memset(b, 0, sizeof(*b));
	b->fds = open_fds();
	b->vm.pid = getpid();	/* whose pagemap private RAM is looked up in */
	b->vm.pidfd = -1;
	assert_int_equal(fake_new(&b->proc), 0);
	fake_file(&b->proc, "file0", 2 * MIB);
	fake_file(&b->proc, "file1", MIB);
}

static inline void bench_free(struct bench *b)
{
	for (unsigned int i = 0; i < b->vm.nblocks; i++)
		ram_block_close(&b->vm.blocks[i]);
	fake_remove(&b->proc);
	assert_int_equal(open_fds(), b->fds);	/* nothing leaked */
}

static inline int find(struct bench *b, const struct peer_answer *qemu, bool write)
{
	struct qmp *q;
	struct peer p;
	int r;

	q = peer_qemu(&p, qemu, &b->e);
	assert_non_null(q);
	r = ram_find(q, b->proc.dir, write, &b->vm, &b->e);
	peer_qemu_end(&p, q);
	assert_string_equal(p.missed, "");
	return r;
}

static inline void expect_found(struct bench *b, const struct peer_answer *qemu)
{
	int r = find(b, qemu, false);

	if (r)
		print_message("%s\n", b->e.text);
	assert_int_equal(r, 0);
	bench_free(b);
}

static inline void expect_refused(struct bench *b, const struct peer_answer *qemu, enum gw_exit exit, const char *part)
{
	assert_true(find(b, qemu, false) < 0);
	assert_int_equal(b->e.exit, exit);
	if (!strstr(b->e.text, part))
		print_message("not in it: %s\n%s\n", part, b->e.text);
	assert_non_null(strstr(b->e.text, part));
	assert_null(strchr(b->e.text, '\n'));
	bench_free(b);
}

#endif
