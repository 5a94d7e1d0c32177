/* SPDX-License-Identifier: GPL-2.0-only */
/* A session that has attached this process's VM and has no RAM yet. Include after kst.h. */
#ifndef KST_PRIVATE_FIXTURE_H
#define KST_PRIVATE_FIXTURE_H

FIXTURE(private) {
	struct vm vm;
	struct session s;
};

FIXTURE_SETUP(private)
{
	vm_create(&self->vm, 1, 3);
	session_open(&self->s);
	ASSERT_EQ(0, session_attach(&self->s, self->vm.fd));
}

FIXTURE_TEARDOWN(private)
{
	rows_on(ALL_ROWS);
	session_close(&self->s);
	vm_destroy(&self->vm);
}

#endif /* KST_PRIVATE_FIXTURE_H */
