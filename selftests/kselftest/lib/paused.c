// SPDX-License-Identifier: GPL-2.0-only
#include <pthread.h>
#include <stdio.h>

#include "host.h"
#include "paused.h"

#define PARAMETERS	"/sys/module/godwit/parameters/"
#define PAUSE		PARAMETERS "pause_in_harvest"
#define PAUSED		PARAMETERS "paused_in_harvest"
#define COMES_MS	20000	/* the module ends a pause itself after 30 s */

struct visit {
	enum harvest_pause where;
	void (*act)(void *arg);
	void *arg;
};

static void *act_there(void *arg)
{
	const struct visit *v = arg;
	uint64_t end = now_ms() + COMES_MS;

	while (file_number(PAUSED) != v->where && now_ms() < end)
		sleep_ms(5);
	require(file_number(PAUSED) == v->where, "the harvest comes to its pause");
	v->act(v->arg);
	require(file_number(PAUSED) == v->where, "the harvest still pauses");
	no_harvest_pauses();
	return NULL;
}

int harvest_while(struct session *s, struct godwit_harvest *h, enum harvest_pause where,
		  void (*act)(void *arg), void *arg)
{
	struct visit v = { .where = where, .act = act, .arg = arg };
	char text[4];
	pthread_t thread;
	int r;

	snprintf(text, sizeof(text), "%u", where);
	require(!file_write(PAUSE, text), PAUSE);
	require(!pthread_create(&thread, NULL, act_there, &v), "pthread_create");
	r = session_harvest(s, h);
	pthread_join(thread, NULL);
	return r;
}

void no_harvest_pauses(void)
{
	require(!file_write(PAUSE, "0"), PAUSE);
}
