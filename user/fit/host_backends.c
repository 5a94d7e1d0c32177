// SPDX-License-Identifier: GPL-2.0-only
/*
 * What is behind the guest's devices: taps, sockets of vhost-user. QEMU reports all of it without
 * opening anything.
 *
 * QEMU reports network backends only by a command for people, "info network":
 *
 *	net0: index=0,type=nic,model=virtio-net-pci,macaddr=52:54:00:12:34:56
 *	 \ hn0: index=0,type=tap,ifname=tap0,script=no,downscript=no
 *
 * A tap that a manager has opened is "fd=33" there, and /proc/PID/fdinfo/33 has its name. QEMU does
 * not report which tap a helper has opened.
 */
#include <limits.h>
#include <linux/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fit/host_internal.h"
#include "qmp/chardev.h"

#define BACKENDS_MAX	1024u

/* The text after the prefix, or NULL. */
static const char *after(const char *text, const char *prefix)
{
	size_t len = strlen(prefix);

	return text && !strncmp(text, prefix, len) ? text + len : NULL;
}

/* Copies the text up to one of these characters; *name stays as it is if that does not fit. */
static void copy_until(char *name, size_t size, const char *text, const char *end)
{
	size_t len = strcspn(text, end);

	if (len >= size)
		return;
	memcpy(name, text, len);
	name[len] = '\0';
}

/* /sys shows the interfaces of our own network namespace. */
static bool same_network(const struct host_look *l)
{
	char ours[PATH_MAX], its[PATH_MAX];
	struct stat a, b;

	snprintf(ours, sizeof(ours), "%s/self/ns/net", l->proc);
	snprintf(its, sizeof(its), "%s/%d/ns/net", l->proc, (int)l->vm->pid);
	if (stat(ours, &a) < 0 || stat(its, &b) < 0)
		return false;
	return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Reads which tap this descriptor of the VMM's is: "iff:	tap0". */
static void read_interface(const struct host_look *l, const char *number, char *name, size_t size)
{
	char path[PATH_MAX], line[256], digits[16] = "";
	const char *found = NULL;
	FILE *f;

	copy_until(digits, sizeof(digits), number, ",");
	if (!*digits || strspn(digits, "0123456789") != strlen(digits))
		return;
	snprintf(path, sizeof(path), "%s/%d/fdinfo/%s", l->proc, (int)l->vm->pid, digits);
	f = fopen(path, "re");
	while (f && !found && fgets(line, sizeof(line), f))
		found = after(line, "iff:");
	if (found)
		copy_until(name, size, found + strspn(found, " \t"), "\n");
	if (f)
		fclose(f);
}

/* how: "ifname=tap0,script=no", or "fd=33". */
static void view_tap(const struct host_look *l, const char *id, const char *how, json_t *backends)
{
	const char *ifname = after(how, "ifname="), *fd = after(how, "fd=");
	char path[PATH_MAX], name[IFNAMSIZ] = "", line[32];
	json_t *o;

	if (ifname)
		copy_until(name, sizeof(name), ifname, ",");
	else if (fd)
		read_interface(l, fd, name, sizeof(name));
	if (!*name || *name == '.' || strchr(name, '/') || !same_network(l))
		return;
	snprintf(path, sizeof(path), "%s/class/net/%s/flags", l->sys, name);
	if (!host_read_line(path, line, sizeof(line)))
		return;
	o = host_object(backends, id);
	json_object_set_new(o, "type", json_string("tap"));
	json_object_set_new(o, "interface", json_string(name));
	json_object_set_new(o, "up", json_boolean(strtoul(line, NULL, 16) & IFF_UP));
}

static void view_vhost_user(const json_t *chardevs, const char *type, const char *label, json_t *o)
{
	json_t *chardev;
	size_t i;

	json_object_set_new(o, "type", json_string(type));
	json_object_set_new(o, "chardev", json_string(label));
	json_array_foreach(chardevs, i, chardev) {
		const char *its = host_text(chardev, "label");
		const char *name = host_text(chardev, "filename");

		if (its && name && !strcmp(its, label))
			json_object_set_new(o, "connected",
					    json_boolean(!chardev_is_dead(chardev)));
	}
}

/* Takes a line of "info network". The first of a backend's queues stands for all of them. */
static void view_netdev(const struct host_look *l, char *line, const json_t *chardevs,
			json_t *backends)
{
	char *id = line + strspn(line, " \\"), *end = strstr(id, ": index=0,type=");
	const char *type, *tap, *vhost_user;

	if (!end || json_object_size(backends) >= BACKENDS_MAX)
		return;
	type = after(end, ": index=0,type=");
	*end = '\0';
	tap = after(type, "tap,");
	if (tap)
		view_tap(l, id, tap, backends);
	vhost_user = after(type, "vhost-user,vhost-user0 to ");
	if (vhost_user)
		view_vhost_user(chardevs, "vhost-user", vhost_user, host_object(backends, id));
}

static int view_netdevs(const struct host_look *l, const json_t *chardevs, json_t *backends,
			struct err *e)
{
	char *text, *save, *line;
	int r = qmp_monitor(l->q, "info network", &text, e);

	line = text ? strtok_r(text, "\r\n", &save) : NULL;
	for (; line; line = strtok_r(NULL, "\r\n", &save))
		view_netdev(l, line, chardevs, backends);
	free(text);
	return r;
}

static int view_device(const struct host_look *l, const char *place, const json_t *device,
		       const json_t *chardevs, json_t *backends, struct err *e)
{
	const char *child = after(host_text(device, "type"), "child<");
	const char *name = host_text(device, "name");
	char path[256], type[64] = "";
	json_auto_t *chardev = NULL;
	const char *label;
	int r;

	if (!child || !name || !after(child, "vhost-user-"))
		return 0;
	copy_until(type, sizeof(type), child, ">");
	snprintf(path, sizeof(path), "%s/%s", place, name);
	r = host_ask_qom(l, path, "chardev", &chardev, e);
	label = json_string_value(chardev);
	if (label)
		view_vhost_user(chardevs, type, label, host_object(backends, name));
	return r;
}

/* vhost-user-blk and the like, with an id or without. */
static int view_devices(const struct host_look *l, const json_t *chardevs, json_t *backends,
			struct err *e)
{
	static const char *const places[] = { "/machine/peripheral", "/machine/peripheral-anon" };
	int r = 0;

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]) && !r; i++) {
		json_auto_t *list = NULL;
		json_t *device;
		size_t j;

		r = host_ask(l, "qom-list", json_pack("{s:s}", "path", places[i]), &list, e);
		json_array_foreach(list, j, device)
			if (!r && json_object_size(backends) < BACKENDS_MAX)
				r = view_device(l, places[i], device, chardevs, backends, e);
	}
	return r;
}

int host_view_backends(const struct host_look *l, struct err *e)
{
	json_t *backends = host_object(l->host, "backends");
	json_auto_t *chardevs = NULL;
	int r = host_ask(l, "query-chardev", NULL, &chardevs, e);

	if (!r)
		r = view_netdevs(l, chardevs, backends, e);
	return r ? r : view_devices(l, chardevs, backends, e);
}

int host_lost_links(struct qmp *q, const struct vm *vm, json_t **links, struct err *e)
{
	json_auto_t *chardevs = NULL, *backends = json_object();
	const struct host_look l = { .q = q, .vm = vm, .proc = "/proc", .sys = "/sys" };
	json_t *chardev, *backend;
	bool any = false;
	const char *id;
	size_t i;
	int r = host_ask(&l, "query-chardev", NULL, &chardevs, e);

	*links = NULL;
	json_array_foreach(chardevs, i, chardev)
		any |= chardev_is_dead(chardev);
	if (!r && any)
		r = view_netdevs(&l, chardevs, backends, e);
	json_object_foreach(backends, id, backend) {
		if (!host_is(backend, "connected", false))
			continue;
		*links = *links ? *links : json_array();
		json_array_append_new(*links, json_pack("{s:s, s:O}", "name", id, "chardev",
							json_object_get(backend, "chardev")));
	}
	return r;
}
