// SPDX-License-Identifier: GPL-2.0-only
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/godwit.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host.h"
#include "postcopy.h"

#define SEEN_MS	10000

uint64_t page_word(uint64_t page)
{
	return (page + 1) * 0x9e3779b97f4a7c15;
}

static void look_at(struct touch *t, const struct player *p)
{
	const volatile uint64_t *word = (void *)(p->at + t->page * p->ram->page);
	uint64_t i;

	t->value = word[0];
	for (i = 1; i < p->ram->page / sizeof(*word); i++)
		t->differ += word[i] != t->value;
}

/* The kernel writes the byte that is there already at the source, before the page is looked at. */
static void have_it_written(const struct touch *t, const struct player *p)
{
	uint64_t word = page_word(t->page);
	int pipes[2];

	require(!pipe(pipes) && write(pipes[1], (uint8_t *)&word + 7, 1) == 1, "a pipe");
	require(read(pipes[0], p->at + (t->page + 1) * p->ram->page - 1, 1) == 1, "read");
	close(pipes[0]);
	close(pipes[1]);
}

struct thread {
	struct player *p;
	unsigned int n;
};

static void *touch_when_told(void *arg)
{
	struct thread *of = arg;
	struct touch *t = &of->p->touches[of->n];

	for (;;) {
		if (atomic_load(&t->state) != TOUCH_GO) {
			sleep_ms(1);
			continue;
		}
		t->differ = 0;
		atomic_store(&t->state, TOUCH_BEGUN);
		if (t->how == TOUCH_CALL)
			of->p->call(of->p);
		if (t->how == TOUCH_SYSCALL)
			have_it_written(t, of->p);
		if (t->how != TOUCH_CALL)
			look_at(t, of->p);
		atomic_store(&t->state, TOUCH_DONE);
	}
	return NULL;
}

static void become_another(int signal)
{
	(void)signal;
	execl("/bin/sleep", "sleep", "1000", NULL);
	_exit(1);
}

static void play(void *arg)
{
	static struct thread threads[TOUCHES];
	struct player *p = arg;
	pthread_t thread;
	unsigned int n;

	/* Inherited, at the same place. */
	require(!munmap(p->ram->map, p->ram->bytes), "munmap");
	require(mmap(p->at, p->ram->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
		     p->ram->fd, 0) == p->at, "mmap");
	signal(SIGUSR1, become_another);
	for (n = 0; n < TOUCHES; n++) {
		threads[n] = (struct thread) { p, n };
		require(!pthread_create(&thread, NULL, touch_when_told, &threads[n]),
			"pthread_create");
	}
}

void player_start(struct player *p, struct ram *ram)
{
	p->ram = ram;
	p->at = aligned_room(ram->bytes, ram->page);
	p->touches = mmap(NULL, TOUCHES * sizeof(*p->touches), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	require(p->touches != MAP_FAILED, "mmap");
	p->pid = fork_ready(play, p);
}

void player_end(struct player *p)
{
	if (p->pid)
		kill_process(p->pid);
	p->pid = 0;
	munmap(p->touches, TOUCHES * sizeof(*p->touches));
	munmap(p->at, p->ram->bytes);
}

void player_exec(struct player *p)
{
	char path[64], name[16] = "";

	snprintf(path, sizeof(path), "/proc/%d/comm", p->pid);
	kill(p->pid, SIGUSR1);
	while (strcmp(name, "sleep\n")) {
		int fd = open(path, O_RDONLY | O_CLOEXEC);

		memset(name, 0, sizeof(name));
		require(fd >= 0 && read(fd, name, sizeof(name) - 1) > 0, path);
		close(fd);
	}
}

void player_touch(struct player *p, unsigned int n, enum touch_how how, uint64_t page)
{
	p->touches[n].how = how;
	p->touches[n].page = page;
	atomic_store(&p->touches[n].state, TOUCH_GO);
}

bool player_touched(struct player *p, unsigned int n, unsigned int ms)
{
	uint64_t begin = now_ms();

	while (atomic_load(&p->touches[n].state) != TOUCH_DONE) {
		if (now_ms() - begin >= ms)
			return false;
		sleep_ms(1);
	}
	return true;
}

bool player_saw(struct player *p, unsigned int n)
{
	const struct touch *t = &p->touches[n];

	if (!player_touched(p, n, SEEN_MS)) {
		printf("# the fault for page %lu waits without end\n", t->page);
		return false;
	}
	if (t->value == page_word(t->page) && !t->differ)
		return true;
	printf("# page %lu: %#lx, to be %#lx, and %lu words differ from it\n", t->page, t->value,
	       page_word(t->page), t->differ);
	return false;
}

unsigned int files_open(pid_t pid)
{
	unsigned int n = 0;
	char path[64];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = opendir(path);
	require(dir, path);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

int open_mem(pid_t pid)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	fd = open(path, O_RDWR | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int keep_begin(int dev, unsigned int token, unsigned int flags, unsigned int *count)
{
	struct godwit_keep a = { .token = TOKEN(token), .flags = flags };

	if (ioctl(dev, GODWIT_KEEP, &a))
		return -errno;
	if (count)
		*count = a.count;
	return 0;
}

int keep_uffd_by(int dev, int mem, int uffd_dev, bool *kept)
{
	struct godwit_uffd a = { .mem_fd = mem, .dev_fd = uffd_dev };

	if (ioctl(dev, GODWIT_UFFD, &a))
		return -errno;
	if (kept)
		*kept = a.flags & GODWIT_UFFD_KEPT;
	return a.fd;
}

int keep_uffd(int dev, pid_t pid, bool *kept)
{
	int mem = open_mem(pid), uffd_dev = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC), r;

	require(uffd_dev >= 0, "/dev/userfaultfd");
	r = mem < 0 ? mem : keep_uffd_by(dev, mem, uffd_dev, kept);
	if (mem >= 0)
		close(mem);
	close(uffd_dev);
	return r;
}

int keep_end(int dev)
{
	return ioctl(dev, GODWIT_KEEP_END, 0) ? -errno : 0;
}

int open_godwit(void)
{
	int dev = open("/dev/godwit", O_RDWR | O_CLOEXEC);

	require(dev >= 0, "/dev/godwit");
	return dev;
}

static void begin(struct helper *h, struct player *p, unsigned int token, unsigned int flags)
{
	h->dev = open_godwit();
	errno = -keep_begin(h->dev, token, flags, NULL);
	require(!errno, "GODWIT_KEEP");
	h->uffd = keep_uffd(h->dev, p->pid, &h->kept);
	errno = -h->uffd;
	require(h->uffd >= 0, "GODWIT_UFFD");
}

int helper_api(struct helper *h)
{
	struct uffdio_api api = {
		.api = UFFD_API,
		.features = UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_MISSING_HUGETLBFS,
	};

	return ioctl(h->uffd, UFFDIO_API, &api) ? -errno : 0;
}

int helper_register(struct helper *h, const struct player *p)
{
	struct uffdio_register range = {
		.range = { (uintptr_t)p->at, p->ram->bytes },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};

	return ioctl(h->uffd, UFFDIO_REGISTER, &range) ? -errno : 0;
}

void helper_begin(struct helper *h, struct player *p, unsigned int token)
{
	begin(h, p, token, 0);
	require(!h->kept, "a new userfaultfd");
	require(!helper_api(h) && !helper_register(h, p), "UFFDIO_API, UFFDIO_REGISTER");
}

void helper_take(struct helper *h, struct player *p, unsigned int token)
{
	begin(h, p, token, GODWIT_KEEP_TAKE);
	require(h->kept, "the userfaultfd that is kept");
}

void helper_close(struct helper *h)
{
	close(h->uffd);
	close(h->dev);
}

int64_t helper_fault(struct helper *h, const struct player *p, unsigned int ms)
{
	struct pollfd poll_for = { h->uffd, POLLIN, 0 };
	const uint64_t until = now_ms() + ms;
	uint64_t at, now;
	struct uffd_msg msg;
	ssize_t n;

	/* A signal may have ended the fault in between, and its thread comes again. */
	do {
		now = now_ms();
		if (poll(&poll_for, 1, now < until ? until - now : 0) != 1)
			return -1;
		n = read(h->uffd, &msg, sizeof(msg));
	} while (n < 0 && errno == EAGAIN);
	require(n == sizeof(msg), "a userfaultfd");
	require(msg.event == UFFD_EVENT_PAGEFAULT, "a fault");
	at = msg.arg.pagefault.address;
	require(at - (uintptr_t)p->at < p->ram->bytes, "an address in the RAM");
	return (at - (uintptr_t)p->at) / p->ram->page;
}

int helper_copy(struct helper *h, const struct player *p, uint64_t page)
{
	uint64_t *source = aligned_alloc(p->ram->page, p->ram->page), i;
	struct uffdio_copy copy = {
		.dst = (uintptr_t)p->at + page * p->ram->page,
		.src = (uintptr_t)source,
		.len = p->ram->page,
	};
	int r;

	require(source, "memory");
	for (i = 0; i < p->ram->page / sizeof(*source); i++)
		source[i] = page_word(page);
	r = ioctl(h->uffd, UFFDIO_COPY, &copy) ? -errno : 0;
	free(source);
	return r;
}

int helper_zero(struct helper *h, const struct player *p, uint64_t page)
{
	struct uffdio_zeropage zero = {
		.range = { (uintptr_t)p->at + page * p->ram->page, p->ram->page },
	};

	return ioctl(h->uffd, UFFDIO_ZEROPAGE, &zero) ? -errno : 0;
}

int helper_wake(struct helper *h, const struct player *p)
{
	struct uffdio_range all = { (uintptr_t)p->at, p->ram->bytes };

	return ioctl(h->uffd, UFFDIO_WAKE, &all) ? -errno : 0;
}
