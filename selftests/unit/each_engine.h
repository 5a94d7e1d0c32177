/* SPDX-License-Identifier: GPL-2.0-only */
/* Tests that run once for each engine. Include after cmocka.h. */
#ifndef GODWIT_EACH_ENGINE_H
#define GODWIT_EACH_ENGINE_H

#include "net/engine.h"

/* The engine under test. */
static const struct engine_ops *engine;

/* How many of them failed, over all engines that this kernel supports. */
#define RUN_WITH_ENGINES(tests) ({ \
	int failed_ = 0; \
\
	for (unsigned int i_ = 0; i_ < engines_count; i_++) { \
		engine = engines[i_]; \
		print_message("engine %s%s\n", engine->name, engine->supported() ? ": not available here" : ""); \
		if (!engine->supported()) \
			failed_ += cmocka_run_group_tests(tests, NULL, NULL); \
	} \
	failed_; \
})

#endif
