/* SPDX-License-Identifier: GPL-2.0-only */
/* What the guest runs: 64-bit, one flat mapping, no interrupts. Arguments come in registers; HLT ends it. */
	.section .rodata
	.global guest_code, guest_code_end, guest_dirty, guest_hot
guest_code:

/*
 * Writes each of rsi pages once. rdi: RAM, r8: seed, r9: cells - 1, r10: shift, r11: pages in a cell. The generator
 * has full period and the mix is one-to-one, so no cell comes twice.
 */
guest_dirty:
	imul	$1664525, %r8, %r8
	add	$1013904223, %r8
	and	%r9, %r8
	mov	%r8, %rax
	mov	%r10, %rcx
	shr	%cl, %rax
	xor	%r8, %rax
	imul	%r11, %rax
	shl	$12, %rax
	add	%rdi, %rax
	mov	%r11, %rdx
1:	mov	%rsi, (%rax)
	add	$4096, %rax
	dec	%rdx
	jnz	1b
	sub	%r11, %rsi
	ja	guest_dirty
	hlt

/*
 * Writes to page after page until struct control says stop, and adds up what any step took too long. rdi: RAM, rsi:
 * pages - 1, r8: struct control, r9: what a step takes, r10: log2 of the stride, r11: from when on it is too long.
 */
guest_hot:
	xor	%ebx, %ebx
	rdtsc
	shl	$32, %rdx
	or	%rax, %rdx
	mov	%rdx, %r12
2:	mov	%rbx, %rax
	and	%rsi, %rax
	mov	%r10, %rcx
	shl	%cl, %rax
	mov	%rbx, (%rdi, %rax)
	inc	%rbx
	mov	%rbx, 8(%r8)
	rdtsc
	shl	$32, %rdx
	or	%rax, %rdx
	mov	%rdx, %rax
	sub	%r12, %rdx
	mov	%rax, %r12
	cmp	%r11, %rdx
	jb	3f
	sub	%r9, %rdx
	add	%rdx, 16(%r8)
	incq	24(%r8)
3:	cmpq	$0, (%r8)
	je	2b
	hlt
guest_code_end:
	.section .note.GNU-stack, "", @progbits
