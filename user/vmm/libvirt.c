// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <expat.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "vmm/libvirt.h"

#define QEMU_NS		"http://libvirt.org/schemas/domain/qemu/1.0"
#define QEMU_MARK	QEMU_NS " "	/* expat puts it before the names of that namespace */
#define XML_MAX		(16l << 20)	/* bytes; a domain with many devices has some 100 KiB */

/**
 * struct status - the part of a status file that matters here
 * @path: of the element that is open: "/domstatus/domain/qemu:commandline"
 * @deep: open elements that are too far down to be in @path
 * @pid: as the file says
 * @is_domain: the file has a domain
 * @after_qmp: the argument for QEMU that was read last is -qmp
 * @qmp_path: of the first argument after -qmp that is a Unix socket
 */
struct status {
	char path[256];
	unsigned int deep;
	long pid;
	bool is_domain, after_qmp;
	char qmp_path[sizeof(((struct domain *)0)->qmp_path)];
};

static int libvirt_odd(const char *path, const char *what, struct err *e)
{
	return err_set(e, GW_INTERNAL, EPROTO,
		       "%s: %s: is the file libvirt's? Name the socket with --qmp and the process with --pid",
		       path, what);
}

/* Takes PATH from "unix:PATH,server=on,wait=off", where a comma in the path is doubled. */
static bool libvirt_unix_path(const char *value, char *path, size_t size)
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

static const char *libvirt_attribute(const char **attributes, const char *name)
{
	for (; *attributes; attributes += 2)
		if (!strcmp(attributes[0], name))
			return attributes[1];
	return "";
}

static void libvirt_take_argument(struct status *s, const char *value)
{
	char path[sizeof(s->qmp_path)];

	if (s->after_qmp && !*s->qmp_path && libvirt_unix_path(value, path, sizeof(path)))
		strcpy(s->qmp_path, path);
	s->after_qmp = !strcmp(value, "-qmp") || !strcmp(value, "--qmp") ||
		       !strcmp(value, "-qmp-pretty");
}

static void libvirt_take_element(struct status *s, const char **attributes)
{
	static const char domain[] = "/domstatus/domain";
	const char *below = s->path + sizeof(domain) - 1;

	if (!strcmp(s->path, "/domstatus"))
		s->pid = strtol(libvirt_attribute(attributes, "pid"), NULL, 10);
	if (strncmp(s->path, domain, sizeof(domain) - 1))
		return;
	s->is_domain |= !*below;
	if (!strcmp(below, "/qemu:commandline/qemu:arg"))
		libvirt_take_argument(s, libvirt_attribute(attributes, "value"));
}

static void libvirt_on_start(void *status, const char *name, const char **attributes)
{
	struct status *s = status;
	bool qemu = !strncmp(name, QEMU_MARK, sizeof(QEMU_MARK) - 1);
	const char *element = name;
	size_t len = strlen(s->path);

	if (qemu)
		element = name + sizeof(QEMU_MARK) - 1;
	else if (strchr(name, ' '))
		element = "other";	/* of another namespace */
	if (s->deep || len + strlen(element) + sizeof("/qemu:") > sizeof(s->path)) {
		s->deep++;
		return;
	}
	snprintf(s->path + len, sizeof(s->path) - len, "/%s%s", qemu ? "qemu:" : "", element);
	libvirt_take_element(s, attributes);
}

static void libvirt_on_end(void *status, const char *name)
{
	struct status *s = status;

	(void)name;
	if (s->deep)
		s->deep--;
	else
		*strrchr(s->path, '/') = '\0';
}

static int libvirt_parse(const char *path, FILE *f, struct status *s, struct err *e)
{
	XML_Parser parser = XML_ParserCreateNS(NULL, ' ');
	enum XML_Status status = XML_STATUS_OK;
	char buf[4096], why[128];
	long total = 0;
	size_t n;

	if (!parser)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	XML_SetUserData(parser, s);
	XML_SetElementHandler(parser, libvirt_on_start, libvirt_on_end);
	do {
		n = fread(buf, 1, sizeof(buf), f);
		total += (long)n;
		status = XML_Parse(parser, buf, (int)n, !n);
	} while (n && status == XML_STATUS_OK && total <= XML_MAX);
	snprintf(why, sizeof(why), "cannot read the XML (line %lu: %s)",
		 XML_GetCurrentLineNumber(parser),
		 total > XML_MAX ? "too long" : XML_ErrorString(XML_GetErrorCode(parser)));
	XML_ParserFree(parser);
	return status != XML_STATUS_OK || total > XML_MAX ? libvirt_odd(path, why, e) : 0;
}

static int libvirt_check(const char *path, const char *name, const struct status *s,
			 const struct domain *d, struct err *e)
{
	if (!s->is_domain)
		return libvirt_odd(path, "no <domstatus> with a <domain> in it", e);
	if (s->pid != d->pid)
		return libvirt_odd(path, "another process id than in the .pid file", e);
	if (!*s->qmp_path)
		return err_set(e, GW_NO_SOCKET, ENOENT,
			       "the libvirt domain \"%s\" has no second QMP socket, and libvirt holds the first: virsh edit %s, make it <domain ... xmlns:qemu='" QEMU_NS "'>, and put before </domain>: <qemu:commandline><qemu:arg value='-qmp'/><qemu:arg value='unix:/var/lib/libvirt/qemu/%s.qmp,server=on,wait=off'/></qemu:commandline>; then shut it down and start it again (AppArmor must allow that path: docs/libvirt.md)",
			       name, name, name);
	return 0;
}

/* Opens libvirt's file "RUN/NAME.SUFFIX". */
static FILE *libvirt_open(const char *run, const char *name, const char *suffix, char *path,
			  size_t size, struct err *e)
{
	FILE *f;

	snprintf(path, size, "%s/%s.%s", run, name, suffix);
	f = fopen(path, "re");
	if (!f && (errno == ENOENT || errno == ENAMETOOLONG))
		err_set(e, GW_NO_SOCKET, ENOENT,
			"the libvirt domain \"%s\" does not run here (there is no %s): virsh start %s",
			name, path, name);
	else if (!f)
		err_set(e, GW_NO_MODULE, errno, "%s: %s: run godwit as root", path, strerror(errno));
	return f;
}

static int libvirt_read_pid(const char *run, const char *name, struct domain *out, struct err *e)
{
	char path[PATH_MAX];
	CLEANUP_FCLOSE FILE *f = libvirt_open(run, name, "pid", path, sizeof(path), e);
	int pid;

	if (!f)
		return -ENOENT;
	if (fscanf(f, "%d", &pid) != 1 || pid <= 0)
		return libvirt_odd(path, "no process id in it", e);
	out->pid = pid;
	return 0;
}

static int libvirt_read_status(const char *run, const char *name, struct domain *out, struct err *e)
{
	struct status s = { .path = "" };
	char path[PATH_MAX];
	CLEANUP_FCLOSE FILE *f = libvirt_open(run, name, "xml", path, sizeof(path), e);
	int r;

	if (!f)
		return -ENOENT;
	r = libvirt_parse(path, f, &s, e);
	if (!r)
		r = libvirt_check(path, name, &s, out, e);
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
		return err_set(e, GW_USAGE, EINVAL,
			       "--domain takes the name of a libvirt domain (virsh list), not \"%s\"",
			       shown);
	r = libvirt_read_pid(run, name, out, e);
	return r ? r : libvirt_read_status(run, name, out, e);
}
