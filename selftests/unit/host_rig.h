/* SPDX-License-Identifier: GPL-2.0-only */
/* One end as fit/host.h looks at it: RAM files, a tree like /proc and /sys, a scripted QEMU. After cmocka.h. */
#ifndef GODWIT_HOST_RIG_H
#define GODWIT_HOST_RIG_H

#include <sys/mman.h>

#include "fake_proc.h"
#include "fit/host.h"
#include "page/page.h"
#include "qmp_peer.h"

#define PID		4711

/**
 * struct end - one end, and what it says
 * @tree: with proc and sys in it
 * @view: that look() has made
 */
struct end {
	struct fake_proc tree;
	struct vm vm;
	json_t *view;
	struct err e;
};

static inline int setup(void **state)
{
	struct end *end = calloc(1, sizeof(*end));

	*state = end;
	end->vm.pid = PID;
	return fake_new(&end->tree);
}

static inline int teardown(void **state)
{
	struct end *end = *state;

	for (unsigned int i = 0; i < end->vm.nblocks; i++) {
		struct ram_block *b = &end->vm.blocks[i];

		if (b->hva)
			munmap((void *)(uintptr_t)b->hva, b->pages * PAGE_BYTES);
		ram_block_close(b);
	}
	json_decref(end->view);
	fake_remove(&end->tree);
	free(end);
	return 0;
}

/* A file and the directories above it. */
static inline void put(struct end *end, const char *name, const char *text)
{
	char path[512];

	fake_path(&end->tree, name, path);
	for (char *c = path + strlen(end->tree.dir) + 1; (c = strchr(c, '/')); *c++ = '/') {
		*c = '\0';
		mkdir(path, 0700);
	}
	unlink(path);
	fake_write(&end->tree, name, text);
}

static inline void add_block(struct end *end, const char *name, int fd, off_t bytes)
{
	struct ram_block *b = &end->vm.blocks[end->vm.nblocks++];

	assert_return_code(fd, errno);
	assert_return_code(ftruncate(fd, bytes), errno);
	strcpy(b->name, name);
	b->pages = (uint64_t)bytes / PAGE_BYTES;
	b->fd = fd;
}

/* Private RAM, of this process: anonymous (fd -1), or copied from that file. */
static inline void add_private(struct end *end, const char *name, int fd, off_t bytes)
{
	struct ram_block *b = &end->vm.blocks[end->vm.nblocks++];
	void *at = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);

	assert_ptr_not_equal(at, MAP_FAILED);
	strcpy(b->name, name);
	b->pages = (uint64_t)bytes / PAGE_BYTES;
	b->fd = fd;
	b->hva = (uint64_t)(uintptr_t)at;
	b->pid = getpid();
	b->pidfd = -1;
	assert_int_equal(ram_process_open(b, &end->e), 0);
}

/* With that QEMU, which refuses what is not in its table. */
static inline void look(struct end *end, bool destination, const struct peer_answer *answers)
{
	static const struct peer_answer none[] = { { NULL, NULL, NULL } };
	char proc[512], sys[512];
	struct peer peer;
	struct qmp *q = peer_qemu(&peer, answers ? answers : none, &end->e);

	assert_non_null(q);
	json_decref(end->view);
	end->view = json_object();
	assert_int_equal(host_view(end->view, q, &end->vm, fake_path(&end->tree, "proc", proc),
				   fake_path(&end->tree, "sys", sys), destination, &end->e), 0);
	peer_qemu_end(&peer, q);
}

/* A fact by its path, "ram/ram0/bytes"; NULL: it is not known. */
static inline json_t *fact(struct end *end, const char *path)
{
	char copy[256], *save, *word;
	json_t *at = json_object_get(end->view, "host");

	snprintf(copy, sizeof(copy), "%s", path);
	for (word = strtok_r(copy, "/", &save); word; word = strtok_r(NULL, "/", &save))
		at = json_is_array(at) ? json_array_get(at, strtoul(word, NULL, 10)) :
					 json_object_get(at, word);
	return at;
}

static inline void assert_number(struct end *end, const char *path, uint64_t n)
{
	if (!json_is_integer(fact(end, path)))
		fail_msg("%s is not known", path);
	assert_int_equal(json_integer_value(fact(end, path)), n);
}

static inline void assert_text(struct end *end, const char *path, const char *text)
{
	if (!json_is_string(fact(end, path)))
		fail_msg("%s is not known", path);
	assert_string_equal(json_string_value(fact(end, path)), text);
}

static inline void assert_bool(struct end *end, const char *path, bool value)
{
	if (!json_is_boolean(fact(end, path)))
		fail_msg("%s is not known", path);
	assert_int_equal(json_is_true(fact(end, path)), value);
}

#endif
