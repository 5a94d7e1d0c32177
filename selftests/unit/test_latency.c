// SPDX-License-Identifier: GPL-2.0-only
/* Times are counted in classes, against the same times sorted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "postcopy/latency.h"

#define N 5000u

static int by_length(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* The time that per_mille of n sorted ones do not exceed. */
static uint64_t exact(const uint64_t *sorted, unsigned int n, unsigned int per_mille)
{
	unsigned int at = n * per_mille / 1000;

	return sorted[at < n ? at : n - 1];
}

static void quantiles_are_right_within_a_quarter(void **state)
{
	static const unsigned int of[] = { 0, 1, 500, 900, 990, 999, 1000 };
	static uint64_t ns[N];
	struct latency l = { 0 };
	uint64_t seed = 1, sum = 0;

	(void)state;
	for (unsigned int i = 0; i < N; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		ns[i] = seed >> (24 + i % 40);
		sum += ns[i];
		latency_add(&l, ns[i]);
	}
	qsort(ns, N, sizeof(ns[0]), by_length);
	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
		const uint64_t right = exact(ns, N, of[i]);

		assert_in_range(latency_quantile(&l, of[i]), right, right + right / 4);
	}
	assert_int_equal(latency_quantile(&l, 1000), ns[N - 1]);
	assert_int_equal(l.worst_ns, ns[N - 1]);
	assert_int_equal(latency_mean(&l), sum / N);
}

static void the_ends_of_the_range(void **state)
{
	static const uint64_t ns[] = { 0, 1, 2, 3, 4, 5, 7, 8, UINT64_MAX / 2, UINT64_MAX };
	struct latency none = { 0 };

	(void)state;
	assert_int_equal(latency_quantile(&none, 990), 0);
	assert_int_equal(latency_mean(&none), 0);
	for (size_t i = 0; i < sizeof(ns) / sizeof(ns[0]); i++) {
		struct latency l = { 0 };

		latency_add(&l, ns[i]);
		assert_int_equal(latency_quantile(&l, 500), ns[i]);
	}
}

static void merged_is_as_counted_together(void **state)
{
	struct latency a = { 0 }, b = { 0 }, both = { 0 };

	(void)state;
	for (uint64_t i = 0; i < 100; i++) {
		latency_add(i % 3 ? &a : &b, i * i * 1000);
		latency_add(&both, i * i * 1000);
	}
	latency_merge(&a, &b);
	assert_memory_equal(&a, &both, sizeof(a));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(quantiles_are_right_within_a_quarter),
		cmocka_unit_test(the_ends_of_the_range),
		cmocka_unit_test(merged_is_as_counted_together),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
