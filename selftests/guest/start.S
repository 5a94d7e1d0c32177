/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Multiboot entry: own stack and segments, SSE on (main keeps a copy of the
 * writer's state in a CPU register), one interrupt gate for the timer that
 * ends a nap.
 */
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

	movl %cr0, %ecx
	andl $~0x4, %ecx		/* EM off */
	orl $0x2, %ecx			/* MP on */
	movl %ecx, %cr0
	movl %cr4, %ecx
	orl $0x600, %ecx		/* OSFXSR, OSXMMEXCPT */
	movl %ecx, %cr4

	movl $timer_entry, %ecx
	movw %cx, idt + 0x20 * 8
	shrl $16, %ecx
	movw %cx, idt + 0x20 * 8 + 6
	lidt idt_pointer

	pushl %ebx
	pushl %eax
	call main
1:	cli
	hlt
	jmp 1b

timer_entry:
	pushl %eax
	movb $0x20, %al
	outb %al, $0x20
	popl %eax
	iret

	.data
	.align 8
gdt:	.quad 0
	.quad 0x00cf9b000000ffff	/* 0x08: flat code */
	.quad 0x00cf93000000ffff	/* 0x10: flat data */
gdt_pointer:
	.word . - gdt - 1
	.long gdt

	.align 8
idt:	.fill 0x20, 8, 0		/* an exception is a triple fault */
	.word 0, 0x08, 0x8e00, 0
idt_pointer:
	.word idt_pointer - idt - 1
	.long idt

	.bss
	.align 16
	.skip 16384
stack_top:
	.section .note.GNU-stack, "", @progbits
