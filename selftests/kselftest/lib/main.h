/* SPDX-License-Identifier: GPL-2.0-only */
/* What surrounds the tests of a program. */
#ifndef KST_MAIN_H
#define KST_MAIN_H

/*
 * Runs the tests in a child, since the harness ends its process; afterwards the kernel's log must be clean and the
 * module, if this program loaded it, must unload. Exit status: kselftest's.
 */
int host_main(int argc, char **argv, int (*tests)(int argc, char **argv));

#endif /* KST_MAIN_H */
