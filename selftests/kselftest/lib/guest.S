/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a vCPU runs: 32-bit protected mode, flat, no paging. ebx points to its struct guest_ctl (vm.h), ebp is its
 * place within a page, so that vCPUs do not overwrite each other.
 *
 *	do {
 *		seed = seed * 1664525 + 1013904223;
 *		*(table[seed * pages >> 32] + ebp) = value;
 *		value += step;
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
#define PORT		0x10

	.section .rodata
	.globl	guest_code, guest_code_end
	.code32
guest_code:
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
	cmpl	$0, CTL_STOP(%ebx)
	jne	2f
	dec	%ecx
	jnz	1b
2:	mov	%esi, CTL_SEED(%ebx)
	mov	%edi, CTL_VALUE(%ebx)
	out	%al, $PORT
	jmp	guest_code
guest_code_end:

	.section .note.GNU-stack, "", @progbits
