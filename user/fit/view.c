// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fit/host.h"
#include "fit/place.h"
#include "fit/policy.h"
#include "fit/view_internal.h"
#include "page/page.h"
#include "vmm/mtree.h"
#include "vmm/ramblocks.h"

int view_no_memory(struct err *e)
{
	return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
}

/* Does the view have this property of the machine? */
static bool is_of_machine(const json_t *property)
{
	const char *name = json_string_value(json_object_get(property, "name")),
		   *type = json_string_value(json_object_get(property, "type"));
	const struct policy_row *row =
		name ? policy_find(&policy, PART_MACHINE, NULL, name) : NULL;

	return name && type && qom_is_value(type) && !(row && row->rule == POLICY_ANY);
}

/* QEMU lists the machine with all values. */
static int take_machine(struct making *m, json_t *machine, struct err *e)
{
	json_auto_t *said = NULL;
	const json_t *one;
	size_t i;
	int r = qmp_call(m->q, "qom-list-get", json_pack("{s:[s]}", "paths", "/machine"), &said, e);

	json_array_foreach(json_object_get(json_array_get(said, 0), "properties"), i, one)
		if (is_of_machine(one) && json_object_get(one, "value"))
			json_object_set(machine, json_string_value(json_object_get(one, "name")),
					json_object_get(one, "value"));
	return r;
}

static int ask_machine(struct making *m, json_t *machine, struct err *e)
{
	json_auto_t *list = NULL, *names = json_array();
	struct qmp_batch *b = NULL;
	const json_t *one;
	size_t i, n;
	int r = qmp_call(m->q, "qom-list", json_pack("{s:s}", "path", "/machine"), &list, e);

	json_array_foreach(list, i, one)
		if (is_of_machine(one))
			json_array_append(names, json_object_get(one, "name"));
	n = json_array_size(names);
	b = qom_batch(n, e);
	for (i = 0; b && i < n; i++)
		b[i] = qom_get("/machine", json_string_value(json_array_get(names, i)));
	if (!r)
		r = b ? qmp_call_all(m->q, b, n, e) : -ENOMEM;
	for (i = 0; b && i < n; i++)
		if (b[i].ret)
			json_object_set(machine, json_string_value(json_array_get(names, i)),
					b[i].ret);
	qom_batch_free(b, n);
	return r;
}

/* device-list-properties does not cover the machine itself. */
static int add_machine(struct making *m, struct err *e)
{
	json_auto_t *machine = json_object();
	int r = m->qom.bulk ? take_machine(m, machine, e) : ask_machine(m, machine, e);

	/*
	 * The receiver compares the RAM blocks and their sizes (BLOCKS): a size that differs has a
	 * message of its own there.
	 */
	json_object_del(json_object_get(machine, "memory"), "size");
	json_object_set(m->view, "machine", machine);
	return r;
}

static unsigned int count_text(const char *text, const char *part)
{
	unsigned int n = 0;

	for (; text && (text = strstr(text, part)); text += strlen(part))
		n++;
	return n;
}

/* Facts that no object of QEMU's has. */
static int add_more_of_machine(struct making *m, struct err *e)
{
	struct qmp_batch uuid = { .command = "query-uuid" };
	json_t *machine = json_object_get(m->view, "machine");
	char *numa = NULL, *network = NULL;
	unsigned int nodes;
	int r = qmp_call_all(m->q, &uuid, 1, e);

	if (!r)
		r = qmp_monitor(m->q, "info numa", &numa, e);
	if (!r)
		r = qmp_monitor(m->q, "info network", &network, e);
	if (json_object_get(uuid.ret, "UUID"))
		json_object_set(machine, "uuid", json_object_get(uuid.ret, "UUID"));
	if (numa && sscanf(numa, "%u nodes", &nodes) == 1)
		json_object_set_new(machine, "nodes", json_integer(nodes));
	/* User networks have a part in QEMU's stream, other backends have none. */
	if (network)
		json_object_set_new(m->view, "user-networks",
				    json_integer(count_text(network, ",type=user,")));
	json_decref(uuid.ret);
	free(numa);
	free(network);
	return r;
}

/*
 * QEMU's private RAM, by its names in QEMU's stream. Left out are blocks of the guest's ACPI tables
 * and the like ("/rom@"): their sizes depend on the devices, at either end.
 */
static int add_private(struct making *m, const struct vm *vm, struct err *e)
{
	struct ramblocks *all = calloc(1, sizeof(*all));
	json_t *private = json_object();
	char *text = NULL;
	int r = all ? ramblocks_text(m->q, &text, e) : view_no_memory(e);

	/* Before 8.0 it has no addresses, which do not matter here. */
	if (!r)
		ramblocks_sizes(text, all);
	for (unsigned int i = 0; !r && i < all->n; i++) {
		const struct ramblock *b = &all->b[i];
		bool guests = !strncmp(b->name, "/rom@", 5);

		for (unsigned int k = 0; k < vm->nblocks; k++)
			guests |= ramblocks_find_backend(all, vm->blocks[k].name,
							 vm->blocks[k].pages * PAGE_BYTES) == b;
		if (!guests)
			json_object_set_new(private, b->name, json_integer((json_int_t)b->bytes));
	}
	json_object_set_new(m->view, "private", private);
	free(text);
	free(all);
	return r;
}

/* "socket 0, core 1, thread 0", by the number of the vCPU. */
static void add_topology(json_t *vcpus, const json_t *cpu)
{
	static const char *const parts[] = { "node-id",	  "socket-id", "die-id",
					     "module-id", "core-id",   "thread-id" };
	const json_t *props = json_object_get(cpu, "props");
	char name[40], text[200] = "";
	size_t len = 0;

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (json_object_get(props, parts[i]))
			len += (size_t)snprintf(
				text + len, sizeof(text) - len, "%s%s %lld", len ? ", " : "",
				parts[i],
				(long long)json_integer_value(json_object_get(props, parts[i])));
	snprintf(name, sizeof(name), "vCPU %lld",
		 (long long)json_integer_value(json_object_get(cpu, "cpu-index")));
	json_object_set_new(vcpus, name, json_string(text));
}

static int add_vcpus(struct making *m, struct err *e)
{
	json_auto_t *list = NULL, *kvm = NULL, *smp = NULL;
	json_t *vcpus = json_object();
	const json_t *cpu;
	size_t i;
	int r = qmp_call(m->q, "query-cpus-fast", NULL, &list, e);

	json_object_set_new(m->view, "vcpus", vcpus);
	if (!r)
		r = qmp_call(m->q, "query-kvm", NULL, &kvm, e);
	if (!r)
		r = qmp_call(m->q, "qom-get",
			     json_pack("{s:s, s:s}", "path", "/machine", "property", "smp"), &smp,
			     e);
	if (r)
		return r;
	/* "count" has their number: some may have been plugged. */
	json_object_del(smp, "cpus");
	json_object_set(vcpus, "smp", smp);
	json_object_set_new(vcpus, "count", json_integer((json_int_t)json_array_size(list)));
	json_object_set_new(
		vcpus, "accelerator",
		json_string(json_is_true(json_object_get(kvm, "enabled")) ? "kvm" : "tcg"));
	json_array_foreach(list, i, cpu)
		add_topology(vcpus, cpu);
	for (unsigned int k = 0; k < m->qom.n; k++) {
		const struct qom_object *o = &m->qom.o[k];

		if (!qom_is_cpu(o) || !o->props)
			continue;
		json_object_set(m->view, "cpu", o->props);
		json_object_set_new(vcpus, "model", json_string(o->type));
		break;
	}
	return 0;
}

static int add_ram(struct making *m, struct vm *vm, struct err *e)
{
	json_t *ram = json_object();
	int r = mtree_query(m->q, vm, e);

	for (unsigned int i = 0; !r && i < vm->nblocks; i++)
		if (vm->blocks[i].address != WIRE_NO_ADDRESS)
			json_object_set_new(
				ram, vm->blocks[i].name,
				json_pack("{s:I}", "address", (json_int_t)vm->blocks[i].address));
	json_object_set_new(m->view, "ram", ram);
	return r;
}

static bool below_a_cpu(const struct qom *t, unsigned int i)
{
	for (; i != QOM_ROOT; i = t->o[i].parent)
		if (qom_is_cpu(&t->o[i]))
			return true;
	return false;
}

/* The id that the operator gave it, or NULL. */
static const char *id_of(const struct qom *t, unsigned int i)
{
	uint32_t above = t->o[i].parent;

	return above != QOM_ROOT && !strcmp(t->o[above].path, "/machine/peripheral") ? t->o[i].name
										     : NULL;
}

/*
 * Is the device on a bus that devices are plugged into, or has the operator given it (a DIMM is on
 * no bus)? Such a device a guest finds, or misses.
 */
static bool is_plugged(const struct qom *t, unsigned int i)
{
	const struct qom_object *o = &t->o[i];

	if (!strcmp(o->name, "virtio-backend"))
		return false;
	if (o->parent != QOM_ROOT && qom_is_container(&t->o[o->parent]))
		return true;
	return *o->bus && strcmp(o->bus, "/machine/unattached/sysbus");
}

static void add_devices(struct making *m)
{
	json_t *devices = json_object();

	for (unsigned int i = 0; i < m->qom.n; i++) {
		const struct qom_object *o = &m->qom.o[i];
		const char *id = id_of(&m->qom, i);
		json_t *device;

		if (!o->device || !o->props || below_a_cpu(&m->qom, i))
			continue;
		device = json_pack("{s:s, s:b, s:O}", "type", place_type(o->type), "plugged",
				   is_plugged(&m->qom, i), "props", o->props);
		if (id)
			json_object_set_new(device, "id", json_string(id));
		json_object_set_new(devices, m->places[i], device);
	}
	json_object_set_new(m->view, "devices", devices);
}

static qom_wanted wanted_of(struct qmp *q, bool brief)
{
	return brief && qmp_version(q) < QOM_BULK ? policy_wants_in_brief : policy_wants;
}

int view_learn(struct qmp *q, struct qom_known *known, struct err *e)
{
	struct qom qom;
	int r = qom_read(q, wanted_of(q, true), known, &qom, e);

	qom_free(&qom);
	return r;
}

int view_make(struct qmp *q, struct vm *vm, struct qom_known *known, bool destination, bool brief,
	      json_t **view, struct err *e)
{
	struct making m = { .q = q, .view = json_object() };
	int r = qom_read(q, wanted_of(q, brief), known, &m.qom, e);

	*view = NULL;
	if (!r) {
		m.places = place_all(&m.qom);
		r = m.places && m.view ? 0 : view_no_memory(e);
	}
	if (!r)
		r = add_machine(&m, e);
	if (!r)
		r = add_more_of_machine(&m, e);
	if (!r)
		r = add_vcpus(&m, e);
	if (!r)
		r = add_ram(&m, vm, e);
	if (!r)
		r = add_private(&m, vm, e);
	if (!r)
		add_devices(&m);
	if (!r)
		r = view_add_disks(&m, e);
	if (!r)
		r = view_add_usb(&m, e);
	if (!r)
		r = view_add_virtio(&m, e);
	if (!r)
		r = host_view(m.view, q, vm, "/proc", "/sys", destination, e);
	places_free(m.places, &m.qom);
	qom_free(&m.qom);
	if (r)
		json_decref(m.view);
	else
		*view = m.view;
	return r;
}

int view_encode(const json_t *view, char **text, size_t *len, struct err *e)
{
	*text = json_dumps(view, JSON_COMPACT);
	if (!*text)
		return view_no_memory(e);
	*len = strlen(*text);
	if (*len <= VIEW_BYTES_MAX)
		return 0;
	free(*text);
	*text = NULL;
	return err_set(e, GW_INTERNAL, E2BIG, "QEMU lists more of its machine than %u MiB of text",
		       VIEW_BYTES_MAX >> 20);
}

json_t *view_decode(const char *text, size_t len)
{
	json_t *view = json_loadb(text, len, 0, NULL);

	if (json_is_object(view))
		return view;
	json_decref(view);
	return NULL;
}
