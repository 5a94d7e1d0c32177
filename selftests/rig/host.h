/* SPDX-License-Identifier: GPL-2.0-only */
/* What the rig asks of the host: the module, its files in sysfs, the kernel's log, processes. */
#ifndef RIG_HOST_H
#define RIG_HOST_H

#include <stdbool.h>
#include <stdint.h>
#include <stdnoreturn.h>
#include <sys/types.h>

#define ARRAY_LEN(a)	(sizeof(a) / sizeof((a)[0]))
#define SYSFS		"/sys/class/misc/godwit/"
#define ROWS_OFF	"/sys/module/godwit/parameters/unsafe_rows_off"

/* Ends the process, with errno's text. For what is not under test but has to work. */
#define require(ok, what)	((ok) ? (void)0 : require_failed(what, __FILE__, __LINE__))
noreturn void require_failed(const char *what, const char *file, int line);
/* The same for a proof (see PROOF() in kst.h), where there is no test of the harness' at hand. */
#define prove(ok, what)		((ok) ? (void)0 : prove_failed(what, __FILE__, __LINE__))
noreturn void prove_failed(const char *what, const char *file, int line);
/* Prints the line by which verdict knows a failed proof. Always true. */
bool proof_failed(const char *what, const char *file, int line);
/*
 * Ends the process: what happened to the guest is the emulated CPU's doing, and nothing under test
 * can have done it. That is evidence, for which verdict may run the program once more.
 */
noreturn void emulator_failed(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * 0 or -errno. load: GODWIT_MODULE names the file, else modprobe finds it. unload: never waits for
 * users.
 */
bool module_loaded(void);
int module_load(void);
int module_unload(void);
/*
 * Unloads as soon as what is on its way out (files of killed processes, jobs) is gone; -EBUSY after
 * ms.
 */
int module_unload_within(unsigned int ms);

/* 0 or -errno. */
int file_write(const char *path, const char *text);
long file_number(const char *path);
/* How many sessions there are; *newest: the number of the last one, may be NULL. */
unsigned int sessions_count(long *newest);
/* A counter of the newest one. */
long session_number(const char *name);
/* Until those that retire are gone. within: 0 or -ETIMEDOUT; it opens no file. */
void sessions_wait_none(void);
int sessions_wait_none_within(unsigned int ms);
/* Only these rows of the ledger work (bits 1 << enum godwit_row). */
#define ALL_ROWS	0x1fU
void rows_on(unsigned int mask);
/* All rows work, and no TLB is flushed. */
void flush_off(void);

uint64_t now_ns(void);
uint64_t now_ms(void);
void sleep_ms(unsigned int ms);
/* Waits for a process; its exit status, or 128 + the signal. */
int wait_process(pid_t pid);
void kill_process(pid_t pid);
/* The letter in /proc/PID/stat, which is read without any lock of the process's. */
char process_state(pid_t pid);
/* A child that dies with its parent. */
pid_t fork_child(void);
/* One that has run run() when this returns, and waits to be killed. */
pid_t fork_ready(void (*run)(void *arg), void *arg);
/*
 * Exits with what run() returns, in a child that is charged for at most so many bytes of memory.
 * Its exit status, or -1: the host cannot limit it (no cgroups of version 2 with memory).
 */
int run_charged(const char *bytes, int (*run)(void *arg), void *arg);
/* How many times the module has flushed the TLBs of all CPUs. */
unsigned long flushes(void);
/* For the rest of this process. */
void drop_sys_admin(void);
void pin_to_cpu(unsigned int cpu);
/* KST_SEED, else a new one; printed. */
uint32_t random_seed(void);

#endif /* RIG_HOST_H */
