// SPDX-License-Identifier: GPL-2.0-only
/* What is said of CPU features that one side has and the other has not. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fit_both.h"

/* Hundreds of features are one line, sorted, without QEMU's second names. */
static void test_features(void **state)
{
	static const char *const lost[] = { "fma", "avx2", "sse4-1", "sse4_1" };
	struct both *b = *state;
	struct err e = { 0 };

	for (size_t i = 0; i < sizeof(lost) / sizeof(lost[0]); i++)
		json_object_set_new(json_object_get(b->dst, "cpu"), lost[i], json_false());
	json_object_set_new(json_object_get(b->dst, "cpu"), "x2apic", json_true());
	json_object_set_new(json_object_get(b->dst, "vcpus"), "model",
			    json_string("qemu64-x86_64-cpu"));
	compare(b);
	assert_int_equal(b->f.n, 2);
	assert_found(b, FIT_CPU, FIT_FATAL,
		     "(qemu64) lacks avx2, fma, sse4-1, which the source's (max) has");
	assert_found(b, FIT_CPU, FIT_WARNING, "has x2apic,");
	assert_int_equal(findings_verdict(&b->f, &e), -EINVAL);
	assert_int_equal(e.exit, GW_MISFIT);
	assert_non_null(strstr(e.text, "avx2"));
}

/* In brief, as QEMU before 10.1: bits, and names only where those do not say it. */
static void test_brief(void **state)
{
	static const char words[] =
		"[{\"cpuid-register\": \"EDX\", \"cpuid-input-eax\": 1, \"features\": 4294967295},"
		" {\"cpuid-register\": \"ECX\", \"cpuid-input-eax\": 1, \"features\": 4294967263}]";
	struct both *b = *state;
	json_t *src = json_object(), *dst = json_object(), *word;

	json_object_set_new(b->src, "cpu", src);
	json_object_set_new(b->dst, "cpu", dst);
	assert_true(fit_needs_features(b->src, b->dst));
	json_object_set_new(src, "feature-words", json_loads(words, 0, NULL));
	assert_true(fit_needs_features(b->src, b->dst));
	json_object_set_new(dst, "feature-words", json_loads(words, 0, NULL));
	assert_false(fit_needs_features(b->src, b->dst));
	/* One bit. */
	word = json_array_get(json_object_get(dst, "feature-words"), 1);
	json_object_set_new(word, "features", json_integer(4294967262));
	assert_true(fit_needs_features(b->src, b->dst));
	/* What VMX has is in no CPUID leaf. */
	json_object_set_new(word, "features", json_integer(4294967295));
	json_object_set_new(json_array_get(json_object_get(src, "feature-words"), 1), "features",
			    json_integer(4294967295));
	assert_true(fit_needs_features(b->src, b->dst));
	/* All features are there, by name. */
	json_object_set_new(src, "sse2", json_true());
	assert_true(fit_needs_features(b->src, b->dst));
	json_object_set_new(dst, "sse2", json_true());
	assert_false(fit_needs_features(b->src, b->dst));
}

/* A feature that an older QEMU does not know. */
static void test_unknown_features(void **state)
{
	struct both *b = *state;

	json_object_set_new(json_object_get(b->src, "cpu"), "fsrm", json_true());
	json_object_set_new(json_object_get(b->src, "cpu"), "x-odd", json_true());
	compare(b);
	assert_int_equal(b->f.n, 0);	/* it has not said all that it has */
	json_object_set_new(json_object_get(b->src, "cpu"), "sse2", json_true());
	json_object_set_new(json_object_get(b->dst, "cpu"), "sse2", json_true());
	compare(b);
	assert_found(b, FIT_CPU, FIT_WARNING, "does not know fsrm, which");
	assert_int_equal(b->f.n, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_features), TEST(test_brief), TEST(test_unknown_features),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
