/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef GODWIT_ESTIMATE_PRINT_H
#define GODWIT_ESTIMATE_PRINT_H

#include "estimate/estimate.h"

/* @reuse: of the file; zeros: there is none. To stdout. */
void estimate_print(const struct estimate_in *in, const struct reusable_state *reuse,
		    const struct estimate *out);
void estimate_print_json(const struct estimate_in *in, const struct reusable_state *reuse,
			 const struct estimate *out);

#endif
