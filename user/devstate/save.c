// SPDX-License-Identifier: GPL-2.0-only
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "devstate/save.h"

/* QEMU's stream format; all its numbers are big-endian. */
#define FILE_MAGIC		0x5145564du	/* "QEVM" */
#define FILE_VERSION		3u
#define SECTION_END		0x00
#define SECTION_DESCRIPTION	0x06
#define SECTION_CONFIGURATION	0x07

#define OPAQUE	"godwit"		/* marks the descriptor set as godwit's */

#define STATE_BYTES	100		/* of the text in struct GlobalState */
static const char global_state[] = "\x0bglobalstate";	/* a section's name follows its length */

static int save_get_machine(struct save_state *s, struct qmp *q, struct err *e)
{
	static const char suffix[] = "-machine";
	json_auto_t *value = NULL;
	const char *type;
	size_t len;
	int r = qmp_call(q, "qom-get",
			 json_pack("{s:s, s:s}", "path", "/machine", "property", "type"), &value, e);

	if (r)
		return r;
	type = json_string_value(value);
	len = type ? strlen(type) : 0;
	if (len < sizeof(suffix) || strcmp(type + len - strlen(suffix), suffix) ||
	    len - strlen(suffix) >= sizeof(s->machine))
		return err_set(e, GW_NOT_QEMU, EPROTO,
			       "the machine is of no type that godwit knows: is this QEMU's own QMP socket?");
	memcpy(s->machine, type, len - strlen(suffix));
	return 0;
}

/*
 * QEMU searches the set for a descriptor that is open for writing only, and truncates the file: a
 * pipe does not work.
 */
static int save_add_file(struct save_state *s, struct qmp *q, struct err *e)
{
	json_auto_t *ret = NULL;
	char path[64];
	int fd, r;

	s->file = memfd_create("godwit-device-state", MFD_CLOEXEC);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", s->file);
	fd = s->file < 0 ? -1 : open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return err_set(e, GW_INTERNAL, errno, "memfd_create: %s", strerror(errno));
	r = qmp_call_fd(q, "add-fd", json_pack("{s:s}", "opaque", OPAQUE), fd, &ret, e);
	close(fd);
	if (!r)
		s->fdset = json_integer_value(json_object_get(ret, "fdset-id"));
	return r;
}

int save_open(struct save_state *s, struct qmp *q, struct err *e)
{
	int r;

	*s = SAVE_NONE;
	save_remove_fdset(q);
	r = save_get_machine(s, q, e);
	return r ? r : save_add_file(s, q, e);
}

int save_begin(struct save_state *s, struct qmp *q, struct err *e)
{
	char path[64];

	snprintf(path, sizeof(path), "/dev/fdset/%lld", s->fdset);
	/*
	 * live: QEMU gives up its disks, so that the destination may have them; `cont` takes them
	 * back.
	 */
	return qmp_begin(q, "xen-save-devices-state",
			 json_pack("{s:s, s:b}", "filename", path, "live", 1), e);
}

int save_active_disk(struct qmp *q, char *node, size_t len, struct err *e)
{
	json_auto_t *disks = NULL;
	const json_t *disk;
	size_t i;
	int r = qmp_version(q) < 100000 ? 0 : qmp_call(q, "query-block", NULL, &disks, e);

	json_array_foreach(disks, i, disk) {
		const json_t *inserted = json_object_get(disk, "inserted");
		const char *name = json_string_value(json_object_get(inserted, "node-name"));

		if (!r && json_is_true(json_object_get(inserted, "active")) &&
		    !json_is_true(json_object_get(inserted, "ro"))) {
			one_line(node, len, name ? name : "?");
			r = 1;
		}
	}
	return r;
}

int save_check_disks(struct qmp *q, struct err *e)
{
	char node[80];
	int r = save_active_disk(q, node, sizeof(node), e);

	return r <= 0 ? r : err_set(e, GW_VM_STATE, EBUSY,
				    "the source QEMU could not give up a disk (node \"%s\"): end what else uses that disk (QEMU's log may say why)",
				    node);
}

static uint32_t save_get_u32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return be32toh(v);
}

static uint8_t *save_put_u32(uint8_t *p, uint32_t v)
{
	v = htobe32(v);
	memcpy(p, &v, sizeof(v));
	return p + sizeof(v);
}

/*
 * The text of the next section of that name, after name, instance, version and length. NULL: there
 * is none, or not all of it. A guest can write such bytes, into CMOS or a card's buffers, which
 * come in the same stream: QEMU's own section is one of those that are found.
 */
static const uint8_t *save_find_global_state(const uint8_t *p, size_t len)
{
	const size_t before = sizeof(global_state) - 1 + 12;
	const uint8_t *at = memmem(p, len, global_state, sizeof(global_state) - 1);

	if (!at || (size_t)(p + len - at) < before + STATE_BYTES)
		return NULL;
	return at + before;
}

static bool save_text_runs(const uint8_t *text)
{
	static const char running[] = "running";

	return save_get_u32(text - 4) == sizeof(running) && !memcmp(text, running, sizeof(running));
}

unsigned int save_says(const uint8_t *p, size_t len)
{
	const uint8_t *end = p + len;
	unsigned int says = 0;

	static_assert(SAVE_OVERLAP >= sizeof(global_state) - 1 + 12 + STATE_BYTES,
		      "no section lies between two parts");
	while ((p = save_find_global_state(p, (size_t)(end - p))))
		says |= save_text_runs(p) ? SAVE_SAYS_RUNS : SAVE_SAYS_STANDS;
	return says;
}

bool save_ran(unsigned int says, bool ran, bool stopped)
{
	if (!says)
		return ran;
	return says == SAVE_SAYS_RUNS && (ran || stopped);
}

static int save_set_paused(uint8_t *p, size_t len)
{
	static const char paused[sizeof("running")] = "paused";	/* not longer than what it replaces */
	uint8_t *text = (uint8_t *)save_find_global_state(p, len);

	if (!text)
		return -EPROTO;
	if (memmem(text, (size_t)(p + len - text), global_state, sizeof(global_state) - 1))
		return -ENOTUNIQ;
	if (!save_text_runs(text))
		return -EPROTO;
	memcpy(text, paused, sizeof(paused));
	save_put_u32(text - 4, strlen(paused) + 1);
	return 0;
}

long save_to_stream(const uint8_t *state, size_t len, const char *machine, bool running,
		    uint8_t *out)
{
	size_t name = strlen(machine);
	uint8_t *p = out;
	int r;

	if (len < 9 || save_get_u32(state) != FILE_MAGIC ||
	    save_get_u32(state + 4) != FILE_VERSION || state[8] == SECTION_CONFIGURATION ||
	    state[len - 1] != SECTION_END)
		return -EPROTO;
	memcpy(p, state, 8);
	p += 8;
	*p++ = SECTION_CONFIGURATION;
	p = save_put_u32(p, (uint32_t)name);
	memcpy(p, machine, name);
	p += name;
	memcpy(p, state + 8, len - 8);
	r = running ? 0 : save_set_paused(p, len - 8);
	if (r)
		return r;
	p += len - 8;
	*p++ = SECTION_DESCRIPTION;
	p = save_put_u32(p, 2);
	*p++ = '{';
	*p++ = '}';
	return p - out;
}

int save_finish(struct save_state *s, bool running, struct err *e)
{
	struct stat st = { .st_size = 0 };
	CLEANUP_FREE uint8_t *raw = NULL;
	long n = -EPROTO;

	if (fstat(s->file, &st) || st.st_size <= 0 || (uint64_t)st.st_size > SAVE_MAX)
		return err_set(e, GW_QMP, EFBIG,
			       "QEMU has saved %lld bytes of device state, more than %u MiB or none: use --device-state migrate",
			       (long long)st.st_size, SAVE_MAX >> 20);
	raw = malloc((size_t)st.st_size);
	s->state = malloc((size_t)st.st_size + SAVE_MORE);
	if (!raw || !s->state)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	if (pread(s->file, raw, (size_t)st.st_size, 0) == st.st_size)
		n = save_to_stream(raw, (size_t)st.st_size, s->machine, running, s->state);
	if (n == -ENOTUNIQ)
		return err_set(e, GW_VM_STATE, ENOTUNIQ,
			       "the guest is paused, and its device state holds a second \"globalstate\", which the guest may have written to run at the destination all the same: use --device-state migrate");
	if (n < 0)
		return err_set(e, GW_QMP, EPROTO,
			       "this QEMU saves its device state in a format that godwit does not know: use --device-state migrate");
	s->len = (size_t)n;
	return 0;
}

/* Calls fn, if not NULL, for each descriptor set of godwit's. Return: how many there are. */
static unsigned int save_each_fdset(struct qmp *q, void (*fn)(struct qmp *q, json_t *id))
{
	unsigned int n = 0;
	json_auto_t *sets = NULL;
	struct err ignored = { 0 };
	json_t *set;
	size_t i;

	qmp_call(q, "query-fdsets", NULL, &sets, &ignored);
	json_array_foreach(sets, i, set) {
		const json_t *fd = json_array_get(json_object_get(set, "fds"), 0);
		const char *opaque = json_string_value(json_object_get(fd, "opaque"));

		if (!opaque || strcmp(opaque, OPAQUE))
			continue;
		n++;
		if (fn)
			fn(q, json_object_get(set, "fdset-id"));
	}
	return n;
}

static void save_remove_one(struct qmp *q, json_t *id)
{
	struct err ignored = { 0 };

	qmp_call(q, "remove-fd", json_pack("{s:O}", "fdset-id", id), NULL, &ignored);
}

void save_remove_fdset(struct qmp *q)
{
	save_each_fdset(q, save_remove_one);
}

bool save_has_fdset(struct qmp *q)
{
	return save_each_fdset(q, NULL);
}

void save_close(struct save_state *s)
{
	if (s->file >= 0)
		close(s->file);
	free(s->state);
	*s = SAVE_NONE;
}
