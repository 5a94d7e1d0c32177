// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "io/sock.h"
#include "migrate/hello.h"

int hello(const char *addr, const struct engine_ops *engine, unsigned int timeout_ms, struct channel **out,
	  struct err *e)
{
	struct wire_header h = { .type = WIRE_HELLO, .arg = WIRE_VERSION };
	int fd = sock_tcp_connect(addr, deadline_ms(timeout_ms));
	int r;

	*out = NULL;
	if (fd == -EINVAL)
		return err_set(e, GW_USAGE, EINVAL, "\"%s\" is not ADDR:PORT", addr);
	if (fd < 0)
		return err_set(e, GW_UNREACHABLE, -fd, "cannot connect to %s: %s; is \"godwit receive --listen\" running there?", addr,
			       strerror(-fd));
	sock_tune(fd, timeout_ms);
	r = channel_new(fd, engine, timeout_ms, out, e);
	if (r)
		return r;
	r = channel_send(*out, &h, NULL, e);
	return r ? r : channel_expect(*out, WIRE_HELLO, &h, e);
}

int hello_blocks(struct channel *ch, enum wire_type type, const struct vm *vm, struct err *e)
{
	struct wire_block *b = calloc(vm->nblocks, sizeof(*b));
	struct wire_header h = { .type = (uint16_t)type, .arg = vm->nblocks };
	uint8_t *body;
	int r;

	if (!b)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	for (unsigned int i = 0; i < vm->nblocks; i++) {
		b[i].pages = vm->blocks[i].pages;
		b[i].page_size = vm->blocks[i].page_size;
		memcpy(b[i].name, vm->blocks[i].name, sizeof(b[i].name));
	}
	h.length = (uint32_t)wire_blocks_size(b, vm->nblocks);
	body = malloc(h.length);
	if (body)
		wire_put_blocks(body, b, vm->nblocks);
	r = body ? channel_send(ch, &h, body, e) : err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	free(body);
	free(b);
	return r;
}
