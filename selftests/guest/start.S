/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Multiboot entry: own stack and segments, SSE on (main keeps a copy of the
 * writer's state in a CPU register), interrupt gates for the timers that end a
 * nap: the PIT of the first vCPU, the local APIC of each other.
 */
	.macro gate vector, entry
	movl $\entry, %ecx
	movw %cx, idt + \vector * 8
	shrl $16, %ecx
	movw %cx, idt + \vector * 8 + 6
	.endm

	.set MAGIC, 0x1badb002
	.set FLAGS, 3			/* page-aligned modules, memory map */

	.section .multiboot, "a"
	.align 4
	.long MAGIC, FLAGS, -(MAGIC + FLAGS)

	.text
	.globl _start
_start:
	cli
	cld
	movl $stack_top, %esp
	lgdt gdt_pointer
	ljmp $0x08, $1f
1:	movl $0x10, %ecx
	movl %ecx, %ds
	movl %ecx, %es
	movl %ecx, %fs
	movl %ecx, %gs
	movl %ecx, %ss

	gate 0x20, timer_entry
	gate 0x21, ap_timer_entry
	call cpu_init
	pushl %ebx
	pushl %eax
	call main
1:	cli
	hlt
	jmp 1b

/* SSE on, interrupts to the table; for every vCPU. Keeps all but %ecx. */
	.globl cpu_init
cpu_init:
	movl %cr0, %ecx
	andl $~0x4, %ecx		/* EM off */
	orl $0x2, %ecx			/* MP on */
	movl %ecx, %cr0
	movl %cr4, %ecx
	orl $0x600, %ecx		/* OSFXSR, OSXMMEXCPT */
	movl %ecx, %cr4
	lidt idt_pointer
	ret

ap_timer_entry:
	movl $0, 0xfee000b0		/* the local APIC's EOI */
	iret

timer_entry:
	pushl %eax
	movb $0x20, %al
	outb %al, $0x20
	popl %eax
	iret

	.data
	.align 8
	.globl gdt
gdt:	.quad 0
	.quad 0x00cf9b000000ffff	/* 0x08: flat code */
	.quad 0x00cf93000000ffff	/* 0x10: flat data */
gdt_pointer:
	.word . - gdt - 1
	.long gdt

	.align 8
idt:	.fill 0x20, 8, 0		/* an exception is a triple fault */
	.word 0, 0x08, 0x8e00, 0
	.word 0, 0x08, 0x8e00, 0
idt_pointer:
	.word idt_pointer - idt - 1
	.long idt

	.bss
	.align 16
	.skip 16384
stack_top:
	.section .note.GNU-stack, "", @progbits
