/* SPDX-License-Identifier: GPL-2.0-only */
/* A VM of raw KVM ioctls, two ways to learn what its vCPU wrote, and what is measured of them. */
#ifndef GODWIT_BENCH_H
#define GODWIT_BENCH_H

#include <linux/kvm.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdnoreturn.h>

#define PAGE		4096ull
#define MIB		(1ull << 20)
#define GIB		(1ull << 30)
#define RAM_GPA		(4 * GIB)
#define WORD_PAGES	64u

/* main.c */
noreturn void __attribute__((format(printf, 1, 2))) die(const char *fmt, ...);
uint64_t now_ns(void);
void sleep_ms(unsigned int ms);
void pin(unsigned int cpu);

/* What the guest and the host tell each other; guest.S knows the offsets. */
struct control {
	volatile uint64_t stop;
	volatile uint64_t steps;
	volatile uint64_t lost_tsc;
	volatile uint64_t gaps;
};

/**
 * struct vm - a VM with one vCPU; slot 0 is its code, slots 1 to @slots show @ram one after the other
 * @ram_fd: the RAM file; sparse, or of 2 MiB pages
 * @logged: whether slots are made with dirty logging on
 * @step_tsc: what one step of the hot program takes, undisturbed
 */
struct vm {
	int kvm, fd, vcpu, ram_fd, stats;
	struct kvm_run *run;
	uint8_t *low, *ram;
	struct control *control;
	uint64_t bytes, pages, step_tsc;
	unsigned int slots, tsc_khz;
	pthread_t thread;
	pthread_mutex_t lock;	/* protects work and quit */
	pthread_cond_t cond;
	bool work, quit;
};

/* A set of pages: @pages in cells of @run pages next to each other. */
struct pattern {
	const char *name;
	uint64_t pages;
	uint64_t run;
	uint64_t seed;
};

/* What a disturbed guest lost, so far. */
struct loss {
	uint64_t steps;
	uint64_t lost_ns;
	uint64_t gaps;
};

/* vm.c */
void vm_open(struct vm *vm, uint64_t bytes, unsigned int slots, bool huge);
void vm_close(struct vm *vm);
uint64_t vm_slot_pages(const struct vm *vm);
void vm_set_logging(struct vm *vm, unsigned int slot, bool on);
/* A statistic of KVM's, by its name. */
uint64_t vm_stat(const struct vm *vm, const char *name);

/* vcpu.c */
void vcpu_open(struct vm *vm);
void vcpu_close(struct vm *vm);
/* Writes the set, waits for the end, and says how long it took. */
uint64_t vcpu_dirty(struct vm *vm, const struct pattern *p);
/* Writes to @pages pages (a power of two) that lie 1 << @stride_shift bytes apart, until vcpu_stop(). */
void vcpu_hot(struct vm *vm, uint64_t pages, unsigned int stride_shift);
void vcpu_stop(struct vm *vm);
struct loss vcpu_loss(const struct vm *vm);

/* peer.c: what QEMU does */
struct peer;
enum peer_phase { PEER_GET, PEER_MERGE, PEER_CLEAR, PEER_PHASES };

struct peer *peer_new(struct vm *vm);
void peer_free(struct peer *p);
/* GET and merge: which pages are dirty. */
void peer_learn(struct peer *p);
/* CLEAR of each chunk that peer_learn() has found a dirty page in. */
void peer_clear(struct peer *p);
/* How long a phase of the last synchronization took. */
uint64_t peer_ns(const struct peer *p, enum peer_phase phase);
/* How many pages are dirty in what it found; forgets them. */
uint64_t peer_take(struct peer *p);

/* session.c: what godwit does */
struct session {
	int fd;
	uint64_t *map;
	uint64_t bytes;
	uint64_t pages;
};

void session_open(struct session *s, struct vm *vm);
void session_harvest(struct session *s);
/* Re-arms all that is marked. */
void session_clear(struct session *s);
uint64_t session_take(struct session *s);
/* Forgets without counting. */
void session_forget(struct session *s);
/* What the module says of itself, a counter in sysfs. The session is the only one. */
uint64_t session_stat(const char *name);
void session_close(struct session *s);
/* Until none is left: retiring 512 slots takes its time, and session_stat() reads the only session. */
void session_wait_retired(void);

/* result.c */
uint64_t median(uint64_t *values, unsigned int n);
/* @goal is 0 for none. A ratio of 0 over 0 is 1. */
void result_add(const char *name, const char *unit, double godwit, const char *peer, double peer_value, double goal);
/* Merges with what other benchmarks have left in the file. */
void results_write(const char *path);

/* sync.c, retire.c; @match: only the cells whose name has it, or NULL */
void bench_sync(bool quick, const char *match);
void bench_retire(bool quick);

#endif
