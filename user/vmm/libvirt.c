// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <expat.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/libvirt.h"
#include "vmm/text.h"

#define QEMU_NS		"http://libvirt.org/schemas/domain/qemu/1.0"
#define QEMU_MARK	QEMU_NS " "	/* what expat puts before the names of that namespace */
#define XML_MAX		(16l << 20)	/* bytes; a domain with many devices has some 100 KiB */

/**
 * struct status - what a status file says, as far as it matters here
 * @path: of the element that is open: "/domstatus/domain/qemu:commandline"
 * @deep: elements in it that are too far down to matter
 * @is_file: the memory is in files
 * @is_shared: which are shared
 * @after_qmp: the last argument for QEMU was -qmp
 * @qmp_path: what followed it
 */
struct status {
	char path[256];
	unsigned int deep;
	long pid;
	bool is_domain, is_file, is_shared, after_qmp;
	char qmp_path[sizeof(((struct domain *)0)->qmp_path)];
};

static int odd(const char *path, const char *what, struct err *e)
{
	return err_set(e, GW_INTERNAL, EPROTO, "%s: %s: is it libvirt's? Name the socket with --qmp and the process with --pid", path,
		       what);
}

/* "unix:PATH,server=on,wait=off", where a comma in the path is doubled. */
static bool unix_path(const char *value, char *path, size_t size)
{
	size_t n = 0;

	if (strncmp(value, "unix:", 5))
		return false;
	for (value += 5; *value && (*value != ',' || value[1] == ','); value++) {
		if (n + 1 == size)
			return false;
		value += *value == ',';
		path[n++] = *value;
	}
	path[n] = '\0';
	return n > 0;
}

static const char *attribute(const char **attributes, const char *name)
{
	for (; *attributes; attributes += 2)
		if (!strcmp(attributes[0], name))
			return attributes[1];
	return "";
}

static void take_argument(struct status *s, const char *value)
{
	char path[sizeof(s->qmp_path)];

	if (s->after_qmp && !*s->qmp_path && unix_path(value, path, sizeof(path)))
		strcpy(s->qmp_path, path);
	s->after_qmp = !strcmp(value, "-qmp") || !strcmp(value, "--qmp") || !strcmp(value, "-qmp-pretty");
}

static void take_element(struct status *s, const char **attributes)
{
	static const char domain[] = "/domstatus/domain";
	const char *below = s->path + sizeof(domain) - 1;

	if (!strcmp(s->path, "/domstatus"))
		s->pid = strtol(attribute(attributes, "pid"), NULL, 10);
	if (strncmp(s->path, domain, sizeof(domain) - 1))
		return;
	s->is_domain |= !*below;
	if (!strcmp(below, "/memoryBacking/source"))
		s->is_file |= !strcmp(attribute(attributes, "type"), "file") || !strcmp(attribute(attributes, "type"), "memfd");
	else if (!strcmp(below, "/memoryBacking/hugepages"))
		s->is_file = true;
	else if (!strcmp(below, "/memoryBacking/access"))
		s->is_shared |= !strcmp(attribute(attributes, "mode"), "shared");
	else if (!strcmp(below, "/cpu/numa/cell"))
		s->is_shared |= !strcmp(attribute(attributes, "memAccess"), "shared");
	else if (!strcmp(below, "/qemu:commandline/qemu:arg"))
		take_argument(s, attribute(attributes, "value"));
}

static void on_start(void *status, const char *name, const char **attributes)
{
	struct status *s = status;
	bool qemu = !strncmp(name, QEMU_MARK, sizeof(QEMU_MARK) - 1);
	const char *local = qemu ? name + sizeof(QEMU_MARK) - 1 : strchr(name, ' ') ? "other" : name;
	size_t len = strlen(s->path);

	if (s->deep || len + strlen(local) + sizeof("/qemu:") > sizeof(s->path)) {
		s->deep++;
		return;
	}
	snprintf(s->path + len, sizeof(s->path) - len, "/%s%s", qemu ? "qemu:" : "", local);
	take_element(s, attributes);
}

static void on_end(void *status, const char *name)
{
	struct status *s = status;

	(void)name;
	if (s->deep)
		s->deep--;
	else
		*strrchr(s->path, '/') = '\0';
}

static int parse(const char *path, FILE *f, struct status *s, struct err *e)
{
	XML_Parser parser = XML_ParserCreateNS(NULL, ' ');
	enum XML_Status status = XML_STATUS_OK;
	char buf[4096], why[128];
	long total = 0;
	size_t n;

	if (!parser)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	XML_SetUserData(parser, s);
	XML_SetElementHandler(parser, on_start, on_end);
	do {
		n = fread(buf, 1, sizeof(buf), f);
		total += (long)n;
		status = XML_Parse(parser, buf, (int)n, !n);
	} while (n && status == XML_STATUS_OK && total <= XML_MAX);
	snprintf(why, sizeof(why), "no XML that can be read (line %lu: %s)", XML_GetCurrentLineNumber(parser),
		 total > XML_MAX ? "it does not end" : XML_ErrorString(XML_GetErrorCode(parser)));
	XML_ParserFree(parser);
	return status != XML_STATUS_OK || total > XML_MAX ? odd(path, why, e) : 0;
}

static int check(const char *path, const char *name, const struct status *s, const struct domain *d, struct err *e)
{
	if (!s->is_domain)
		return odd(path, "no <domstatus> with a <domain> in it", e);
	if (s->pid != d->pid)
		return odd(path, "another process id than in the .pid file", e);
	if (!s->is_file || !s->is_shared)
		return err_set(e, GW_RAM_PRIVATE, EINVAL,
			       "the libvirt domain \"%s\" does not have its memory in shared files: virsh edit %s, put into <domain>: <memoryBacking><source type='file'/><access mode='shared'/></memoryBacking> (or <hugepages/> in place of <source>), and into /etc/libvirt/qemu.conf: memory_backing_dir = \"/dev/shm\"; then shut it down and start it again",
			       name, name);
	if (!*s->qmp_path)
		return err_set(e, GW_NO_SOCKET, ENOENT,
			       "the libvirt domain \"%s\" has no second QMP socket, and libvirt holds the first: virsh edit %s, make it <domain ... xmlns:qemu='" QEMU_NS "'>, and put before </domain>: <qemu:commandline><qemu:arg value='-qmp'/><qemu:arg value='unix:/var/lib/libvirt/qemu/%s.qmp,server=on,wait=off'/></qemu:commandline>; then shut it down and start it again",
			       name, name, name);
	return 0;
}

/* A file of libvirt's, "RUN/NAME.SUFFIX". */
static FILE *open_file(const char *run, const char *name, const char *suffix, char *path, size_t size, struct err *e)
{
	FILE *f;

	snprintf(path, size, "%s/%s.%s", run, name, suffix);
	f = fopen(path, "re");
	if (!f && (errno == ENOENT || errno == ENAMETOOLONG))
		err_set(e, GW_NO_SOCKET, ENOENT, "the libvirt domain \"%s\" does not run here (there is no %s): virsh start %s", name, path,
			name);
	else if (!f)
		err_set(e, GW_INTERNAL, errno, "%s: %s: run godwit as root", path, strerror(errno));
	return f;
}

static int read_pid(const char *run, const char *name, struct domain *out, struct err *e)
{
	char path[PATH_MAX];
	FILE *f = open_file(run, name, "pid", path, sizeof(path), e);
	int pid, n;

	if (!f)
		return -ENOENT;
	n = fscanf(f, "%d", &pid);
	fclose(f);
	if (n != 1 || pid <= 0)
		return odd(path, "no process id in it", e);
	out->pid = pid;
	return 0;
}

static int read_status(const char *run, const char *name, struct domain *out, struct err *e)
{
	struct status s = { .path = "" };
	char path[PATH_MAX];
	FILE *f = open_file(run, name, "xml", path, sizeof(path), e);
	int r;

	if (!f)
		return -ENOENT;
	r = parse(path, f, &s, e);
	fclose(f);
	if (!r)
		r = check(path, name, &s, out, e);
	strcpy(out->qmp_path, s.qmp_path);
	return r;
}

int libvirt_find(const char *run, const char *name, struct domain *out, struct err *e)
{
	char shown[128];
	int r;

	*out = (struct domain) { 0 };
	one_line(shown, sizeof(shown), name);
	if (!*name || strchr(name, '/') || strcmp(shown, name))
		return err_set(e, GW_USAGE, EINVAL, "--domain takes the name of a libvirt domain (virsh list), not \"%s\"", shown);
	r = read_pid(run, name, out, e);
	return r ? r : read_status(run, name, out, e);
}
