/* SPDX-License-Identifier: GPL-2.0-only */
/* Releases at the end of a scope, for a function with more than one way out. */
#ifndef GODWIT_CLEANUP_H
#define GODWIT_CLEANUP_H

#include <stdio.h>
#include <stdlib.h>

static inline void cleanup_free(void *p)
{
	free(*(void **)p);
}

static inline void cleanup_fclose(FILE **f)
{
	if (*f)
		fclose(*f);
}

/*
 * free() or fclose() of the variable when it goes out of scope; set the variable where it is
 * declared.
 */
#define CLEANUP_FREE	__attribute__((cleanup(cleanup_free)))
#define CLEANUP_FCLOSE	__attribute__((cleanup(cleanup_fclose)))

#endif
