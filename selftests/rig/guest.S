/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The programs that vCPUs run (vcpu.h). Each tells the host by an OUT that it has ended.
 */
#define PORT		0x10

	.section .rodata
	.globl	guest_code, guest_code_end, guest_batch, guest_dirty, guest_hot
guest_code:

/*
 * Flat mode: 32-bit, no paging. ebx points to its struct guest_ctl, ebp is its place within a page,
 * so that vCPUs do not overwrite each other.
 *
 *	do {
 *		seed = seed * 1664525 + 1013904223;
 *		*(table[seed * pages >> 32] + ebp) = value;
 *		ctl->value = value += step;
 *	} while (!stop && --count);
 *	tell the host; begin again
 */
#define CTL_SEED	0
#define CTL_VALUE	4
#define CTL_COUNT	8
#define CTL_STOP	12
#define CTL_PAGES	16
#define CTL_STEP	20
#define CTL_TABLE	24

	.code32
guest_batch:
	mov	CTL_SEED(%ebx), %esi
	mov	CTL_VALUE(%ebx), %edi
	mov	CTL_COUNT(%ebx), %ecx
1:	imul	$1664525, %esi, %esi
	add	$1013904223, %esi
	mov	%esi, %eax
	mull	CTL_PAGES(%ebx)
	shl	$2, %edx
	add	CTL_TABLE(%ebx), %edx
	mov	(%edx), %edx
	mov	%edi, (%edx, %ebp)
	add	CTL_STEP(%ebx), %edi
	mov	%edi, CTL_VALUE(%ebx)
	cmpl	$0, CTL_STOP(%ebx)
	jne	2f
	dec	%ecx
	jnz	1b
2:	mov	%esi, CTL_SEED(%ebx)
	out	%al, $PORT
	jmp	guest_batch

/*
 * Long mode, every address is its physical one. Writes each of rsi pages once. rdi: RAM, r8: seed,
 * r9: cells - 1, r10: shift, r11: pages in a cell. The generator has full period and the mix is
 * one-to-one, so no cell comes twice.
 */
	.code64
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
	out	%al, $PORT

/*
 * Long mode. Writes to page after page until struct guest_hot_ctl says stop, and adds up what any
 * step took too long. rdi: RAM, rsi: pages - 1, r8: struct guest_hot_ctl, r9: what a step takes,
 * r10: log2 of the stride, r11: from when on it is too long.
 */
#define HOT_STOP	0
#define HOT_STEPS	8
#define HOT_LOST_TSC	16
#define HOT_GAPS	24

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
	mov	%rbx, HOT_STEPS(%r8)
	rdtsc
	shl	$32, %rdx
	or	%rax, %rdx
	mov	%rdx, %rax
	sub	%r12, %rdx
	mov	%rax, %r12
	cmp	%r11, %rdx
	jb	3f
	sub	%r9, %rdx
	add	%rdx, HOT_LOST_TSC(%r8)
	incq	HOT_GAPS(%r8)
3:	cmpq	$0, HOT_STOP(%r8)
	je	2b
	out	%al, $PORT
guest_code_end:

	.section .note.GNU-stack, "", @progbits
