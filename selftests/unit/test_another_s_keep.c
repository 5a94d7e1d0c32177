// SPDX-License-Identifier: GPL-2.0-only
/*
 * receive --recover takes over what the module keeps by the word of a sender that comes: whose guest's that is shows only then, and
 * whether RAM is numbered as that sender does.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "recover_scene.h"

int __wrap_postcopy_take(struct receiver *r, const uint8_t with[WIRE_SECRET], struct err *e);
int __wrap_agree_ram(struct receiver *r, const struct wire_header *h, struct err *e);
int __wrap_postcopy_taken(struct receiver *r, struct err *e);

static unsigned int takes, looks;
static bool exchanges;	/* the sender numbers RAM in another way than it stands here */

int __wrap_agree_ram(struct receiver *r, const struct wire_header *h, struct err *e)
{
	const struct ram_block first = r->vm.blocks[0];

	(void)h, (void)e;
	if (exchanges) {
		r->vm.blocks[0] = r->vm.blocks[1];
		r->vm.blocks[1] = first;
	}
	return 0;
}

/* There is no QEMU: what is kept is another's. */
int __wrap_postcopy_taken(struct receiver *r, struct err *e)
{
	(void)r;
	looks++;
	return err_set(e, GW_NO_MIGRATION, ENOENT, "not those of this QEMU");
}

/* The module keeps something of either. */
int __wrap_postcopy_take(struct receiver *r, const uint8_t with[WIRE_SECRET], struct err *e)
{
	struct postcopy *p = &r->postcopy;

	(void)e;
	takes++;
	p->dev = open("/dev/null", O_RDONLY | O_CLOEXEC);
	p->taken = p->agreed = p->announced = p->begun = true;
	memcpy(r->token, with, sizeof(r->token));
	return 0;
}

/*
 * receive --recover, where the sender of another guest comes first, whose receiver was killed: what is kept of that guest is left as it
 * was, and the own sender is not taken for the wrong one.
 */
static void a_stranger_s_keep_is_left(void **state)
{
	const uint8_t *const comes_with[] = { other, token };
	struct scene s;

	(void)state;
	no_record();
	takes = 0;
	for (unsigned int i = 0; i < 2; i++) {
		open_scene(&s, WIRE_RECOVER, comes_with[i]);
		s.o.recover = s.silent = true;
		s.o.recover_s = 1;
		/* Its RAM is never named, or is another's. */
		answer(&s, wait_for);
		assert_int_equal(takes, 1 + i);
		assert_false(s.r.postcopy.taken || s.r.postcopy.begun || s.r.postcopy.dev >= 0);
		assert_memory_equal(s.r.token, zeros, sizeof(zeros));
	}
}

/* A record of that migration, by a receiver that was killed, whose QEMU lives: no process is taken for another. */
static void have_record_of(pid_t vmm)
{
	char name[RECORD_NAME], text[256];

	assert_int_equal(record_name_vm(name, "doubt", vmm), 0);
	snprintf(text, sizeof(text), "{\"state\":\"runs\",\"vmm\":\"%s\",\"owing\":true,\"lost\":false}", name);
	have_record(text);
}

/*
 * receive --recover, and the sender of another guest comes, whose QEMU waits here for RAM: what is kept of that is not taken, and the
 * sender hears nothing, as it may find its own receiver here later. By the record; and where that does not tell, by the module.
 */
static void a_stranger_s_sender_tries_on(void **state)
{
	const struct wire_header blocks = { .type = WIRE_BLOCKS, .arg = 1, .length = 64 };
	const struct {
		pid_t of;
		const char *vmm;
		unsigned int takes;
	} each[] = {
		{ getppid(), "doubt-7-8", 0 },
		/* Who does not know which QEMU it has, or whose it is, asks the module. */
		{ getppid(), "", 1 }, { 0, "doubt-7-8", 1 }, { getpid(), NULL, 1 },
	};
	char ours[RECORD_NAME];

	(void)state;
	assert_int_equal(record_name_vm(ours, "doubt", getpid()), 0);
	for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
		uint8_t head[WIRE_HEADER];
		struct scene s;

		no_record();
		if (each[i].of)
			have_record_of(each[i].of);
		takes = 0;
		open_scene(&s, WIRE_RECOVER, token);
		s.o.recover = true;
		s.o.recover_s = 1;
		snprintf(s.r.vmm, sizeof(s.r.vmm), "%s", each[i].vmm ? each[i].vmm : ours);
		wire_put_header(head, &blocks);
		assert_int_equal(send(s.peer, head, sizeof(head), 0), sizeof(head));
		assert_int_not_equal(answer(&s, wait_for), 0);
		assert_said(&s, SILENCE, 0, false);
		assert_int_equal(takes, each[i].takes);
		assert_false(s.r.postcopy.taken || s.r.postcopy.begun || s.r.postcopy.dev >= 0);
		assert_memory_equal(s.r.token, zeros, sizeof(zeros));
	}
}

/* By a note RAM stands in the sender's order already: a sender that orders it in another way would fill one block with another's. */
static void what_a_note_has_numbered_stays(void **state)
{
	const struct wire_header blocks = { .type = WIRE_BLOCKS, .arg = 2, .length = 64 };

	(void)state;
	no_record();
	for (unsigned int i = 0; i < 4; i++) {
		const bool numbered = i & 1, refused = numbered && i & 2;
		uint8_t head[WIRE_HEADER];
		struct scene s;

		takes = 0;
		looks = 0;
		exchanges = i & 2;
		open_scene(&s, WIRE_RECOVER, token);
		s.o.recover = true;
		s.o.recover_s = 1;
		s.r.numbered = numbered;
		s.r.vm.nblocks = 2;
		strcpy(s.r.vm.blocks[0].name, "b");
		strcpy(s.r.vm.blocks[1].name, "a");
		wire_put_header(head, &blocks);
		assert_int_equal(send(s.peer, head, sizeof(head), 0), sizeof(head));
		assert_int_not_equal(answer(&s, wait_for), 0);
		assert_said(&s, refused ? WIRE_ABORT : SILENCE, refused ? GW_RAM_DIFFERS : 0, false);
		assert_int_equal(looks, !refused);
		assert_true(!refused || !strcmp(s.r.vm.blocks[0].name, "b"));
	}
	exchanges = false;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_stranger_s_keep_is_left),
		cmocka_unit_test(a_stranger_s_sender_tries_on),
		cmocka_unit_test(what_a_note_has_numbered_stays),
	};

	engine = &engine_poll;
	return cmocka_run_group_tests(tests, run_dir_make, remove_records);
}
