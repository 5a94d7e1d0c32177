/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where a further vCPU begins: in real mode, in a copy of this below 1 MiB. It
 * takes a number, and a stack by it.
 */
	.set STACK, 8192
	.set CPUS_MAX, 8		/* guest.h */

	.text
	.globl ap_trampoline, ap_trampoline_end
	.code16
ap_trampoline:
	cli
	cld
	movw %cs, %ax
	movw %ax, %ds
	lgdtl pointer - ap_trampoline
	movl %cr0, %eax
	orl $0x1, %eax			/* PE */
	movl %eax, %cr0
	ljmpl $0x08, $ap_start
	.align 4
pointer:
	.word 3 * 8 - 1
	.long gdt
ap_trampoline_end:

	.code32
ap_start:
	movl $0x10, %ecx
	movl %ecx, %ds
	movl %ecx, %es
	movl %ecx, %fs
	movl %ecx, %gs
	movl %ecx, %ss
	movl $1, %ebx
	lock xaddl %ebx, next_number
	cmpl $CPUS_MAX, %ebx
	jae 1f
	movl %ebx, %esp
	imull $STACK, %esp
	addl $stacks, %esp
	call cpu_init
	pushl %ebx
	call ap_main
1:	cli
	hlt
	jmp 1b

	.data
	.align 4
next_number:
	.long 1				/* the first vCPU is 0 */

	.bss
	.align 16
	/* Number n's ends at stacks + n * STACK. */
stacks:	.skip (CPUS_MAX - 1) * STACK
	.section .note.GNU-stack, "", @progbits
