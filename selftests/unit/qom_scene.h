/* SPDX-License-Identifier: GPL-2.0-only */
/* A QEMU with one tree of objects, told by the human monitor's texts and by answers. Include after cmocka.h. */
#ifndef GODWIT_QOM_SCENE_H
#define GODWIT_QOM_SCENE_H

#include "qmp_peer.h"
#include "qom/qom.h"

#define OLD_GREETING	GREETING
#define NEW_GREETING	"{\"QMP\": {\"version\": {\"qemu\": {\"micro\": 0, \"minor\": 1, \"major\": 11}}, \"capabilities\": []}}\r\n"
#define KIND(name, kind)	"{\"name\": \"" name "\", \"type\": \"" kind "\"}"
#define VALUE(name, kind, value)	"{\"name\": \"" name "\", \"type\": \"" kind "\", \"value\": " value "}"
#define AT(path, name)	"\"path\":\"" path "\",\"property\":\"" name "\""
#define SYSBUS	"/machine/unattached/sysbus"

/*
 * A host bridge, a card with an id, two cards without, a DIMM that is on no bus, a virtio device, two vCPUs, and a bridge that
 * QEMU has given an id itself, with a card behind it.
 */
static const char tree_text[] =
	"/machine (pc-q35-7.2-machine)\r\n"
	"  /peripheral (container)\r\n"
	"    /dimm (pc-dimm)\r\n"
	"    /behind (e1000e)\r\n"
	"    /net0 (e1000)\r\n"
	"      /e1000-io[0] (memory-region)\r\n"
	"        /below (e1000)\r\n"
	"    /rng (virtio-rng-pci)\r\n"
	"      /virtio-backend (virtio-rng-device)\r\n"
	"      /virtio-bus (virtio-pci-bus)\r\n"
	"  /peripheral-anon (container)\r\n"
	"    /device[10] (e1000)\r\n"
	"    /device[2] (e1000)\r\n"
	"  /q35 (q35-pcihost)\r\n"
	"    /pcie.0 (PCIE)\r\n"
	"  /unattached (container)\r\n"
	"    /device[0] (max-x86_64-cpu)\r\n"
	"      /lapic (apic)\r\n"
	"    /device[1] (max-x86_64-cpu)\r\n"
	"      /lapic (apic)\r\n"
	"    /device[7] (pci-bridge)\r\n"
	"      /inner (PCI)\r\n"
	"    /odd (name) (irq)\r\n"
	"    /sysbus (System)\r\n";

static const char qtree_text[] =
	"bus: main-system-bus\r\n"
	"  type System\r\n"
	"  dev: q35-pcihost, id \"\"\r\n"
	"    gpio-out \"sysbus-irq\" 32\r\n"
	"    gpio-in \"\" 2\r\n"
	"    clock-in \"clk\" freq_hz=0 Hz\r\n"
	"    clock-out (alias) \"clk\" freq_hz=1 MHz\r\n"
	"    pci-hole64-size = 34359738368 (32 GiB)\r\n"
	"    mmio 00000000fed00000/0000000000000400\r\n"
	"    bus: pcie.0\r\n"
	"      type PCIE\r\n"
	"      dev: e1000, id \"net0\"\r\n"
	"        addr = 03.1\r\n"
	"        mac = \"52:54:00:12:34:56\"\r\n"
	"        romfile = <null>\r\n"
	"        x-mit = true\r\n"
	"        class Ethernet controller, addr 00:03.1, pci id 8086:100e (sub 1af4:1100)\r\n"
	"        bar 0: mem at 0xffffffffffffffff [0x1fffe]\r\n"
	"      dev: e1000, id \"\"\r\n"
	"        addr = 04.0\r\n"
	"        mac = \"52:54:00:00:00:04\"\r\n"
	"        romfile = \"\"\r\n"
	"        x-mit = true\r\n"
	"      dev: e1000, id \"\"\r\n"
	"        addr = 05.0\r\n"
	"        mac = \"52:54:00:00:00:05\"\r\n"
	"        romfile = \"\"\r\n"
	"        x-mit = true\r\n"
	"      dev: virtio-rng-pci, id \"rng\"\r\n"
	"        addr = 06.0\r\n"
	"        period = 65536 (0x10000)\r\n"
	"        bus: virtio-bus\r\n"
	"          type virtio-pci-bus\r\n"
	"          dev: virtio-rng-device, id \"\"\r\n"
	"            max-bytes = 9223372036854775807 (0x7fffffffffffffff)\r\n"
	"            event_idx = false\r\n"
	"      dev: pci-bridge, id \"inner\"\r\n"
	"        msi = \"auto\"\r\n"
	"        bus: inner\r\n"
	"          type PCI\r\n"
	"          dev: e1000e, id \"behind\"\r\n"
	"            addr = 01.0\r\n";

static const struct peer_answer answers[] = {
	{ "qom-list\"", "\"/machine\"", "[" KIND("peripheral", "child<container>") "," KIND("q35", "child<q35-pcihost>") ","
	  KIND("unattached", "child<container>") "," KIND("peripheral-anon", "child<container>") "]" },
	{ "qom-list\"", "\"/machine/peripheral\"", "[" KIND("net0", "child<e1000>") "," KIND("dimm", "child<pc-dimm>") ","
	  KIND("behind", "child<e1000e>") ","
	  KIND("rng", "child<virtio-rng-pci>") "]" },
	{ "qom-list\"", "\"/machine/peripheral/net0\"", "[" KIND("parent_bus", "link<bus>") ","
	  KIND("e1000-io[0]", "child<memory-region>") "]" },
	{ "qom-list\"", "\"/machine/peripheral/behind\"", "[" KIND("parent_bus", "link<bus>") "]" },
	{ "qom-list\"", "\"/machine/unattached/device[7]\"", "[" KIND("parent_bus", "link<bus>") "," KIND("inner", "child<PCI>") "]" },
	{ "qom-list\"", "\"/machine/peripheral/dimm\"", "[" KIND("parent_bus", "link<bus>") "]" },
	{ "qom-list\"", "\"/machine/peripheral/rng\"", "[" KIND("parent_bus", "link<bus>") ","
	  KIND("virtio-bus", "child<virtio-pci-bus>") "," KIND("virtio-backend", "child<virtio-rng-device>") "]" },
	{ "qom-list\"", "\"/machine/peripheral/rng/virtio-backend\"", "[" KIND("parent_bus", "link<bus>") "]" },
	{ "qom-list\"", "\"/machine/peripheral-anon\"", "[" KIND("device[2]", "child<e1000>") "," KIND("device[10]", "child<e1000>") "]" },
	{ "qom-list\"", "\"/machine/peripheral-anon/device", "[" KIND("parent_bus", "link<bus>") "]" },
	{ "qom-list\"", "\"/machine/q35\"", "[" KIND("parent_bus", "link<bus>") "," KIND("pcie.0", "child<PCIE>") "]" },
	{ "qom-list\"", "\"/machine/unattached\"", "[" KIND("device[0]", "child<max-x86_64-cpu>") ","
	  KIND("device[1]", "child<max-x86_64-cpu>") "," KIND("device[7]", "child<pci-bridge>") "," KIND("sysbus", "child<System>") "," KIND("odd (name)", "child<irq>") "]" },
	{ "qom-list\"", "\"/machine/unattached/device[0]\"", "[" KIND("parent_bus", "link<bus>") "," KIND("lapic", "child<apic>") "]" },
	{ "qom-list\"", "\"/machine/unattached/device[0]/lapic\"", "[" KIND("parent_bus", "link<bus>") "]" },
	{ "qom-list\"", "", "[]" },
	{ "device-list-properties", "\"e1000\"", "[" KIND("addr", "int32") "," KIND("mac", "str") "," KIND("romfile", "str") ","
	  KIND("x-mit", "bool") "," KIND("netdev", "link<net>") "," KIND("late", "bool") "]" },
	{ "device-list-properties", "\"e1000e\"", "[" KIND("addr", "int32") "]" },
	{ "device-list-properties", "\"pci-bridge\"", "[" KIND("msi", "OnOffAuto") "]" },
	{ "device-list-properties", "\"pc-dimm\"", "[" KIND("slot", "int32") "]" },
	{ "device-list-properties", "\"q35-pcihost\"", "[" KIND("pci-hole64-size", "size") "]" },
	{ "device-list-properties", "\"virtio-rng-pci\"", "[" KIND("addr", "int32") "," KIND("period", "uint32") ","
	  KIND("max-bytes", "uint64") "," KIND("event_idx", "bool") "]" },
	{ "device-list-properties", "\"virtio-rng-device\"", "[" KIND("max-bytes", "uint64") "]" },
	{ "device-list-properties", "\"max-x86_64-cpu\"", "[" KIND("family", "int") "]" },
	{ "device-list-properties", "\"apic\"", "[" KIND("version", "uint8") "]" },
	{ "qom-get", AT("/machine/peripheral/net0", "addr"), "25" },
	{ "qom-get", AT("/machine/peripheral/net0", "mac"), "\"52:54:00:12:34:56\"" },
	{ "qom-get", AT("/machine/peripheral/net0", "romfile"), "\"\"" },
	{ "qom-get", AT("/machine/peripheral/net0", "x-mit"), "true" },
	{ "qom-get", AT("/machine/peripheral/net0", "late"), "true" },
	{ "qom-get", AT("/machine/peripheral-anon/device[2]", "addr"), "40" },
	{ "qom-get", AT("/machine/peripheral-anon/device[2]", "mac"), "\"52:54:00:00:00:05\"" },
	{ "qom-get", AT("/machine/peripheral-anon/device[2]", "romfile"), "\"\"" },
	{ "qom-get", AT("/machine/peripheral-anon/device[10]", "addr"), "32" },
	{ "qom-get", AT("/machine/peripheral-anon/device[10]", "mac"), "\"52:54:00:00:00:04\"" },
	{ "qom-get", AT("/machine/peripheral-anon/device[10]", "romfile"), "\"\"" },
	{ "qom-get", AT("/machine/peripheral/rng", "addr"), "48" },
	{ "qom-get", AT("/machine/peripheral/rng", "period"), "65536" },
	{ "qom-get", AT("/machine/peripheral/rng", "max-bytes"), "9223372036854775807" },
	{ "qom-get", AT("/machine/peripheral/rng", "event_idx"), "false" },
	{ "qom-get", AT("/machine/peripheral/dimm", "slot"), "-1" },
	{ "qom-get", AT("/machine/peripheral/behind", "addr"), "8" },
	{ "qom-get", AT("/machine/peripheral/behind", "parent_bus"), "\"/machine/unattached/device[7]/inner\"" },
	{ "qom-get", AT("/machine/unattached/device[7]", "msi"), "\"auto\"" },
	{ "qom-get", AT("/machine/unattached/device[7]", "parent_bus"), "\"/machine/q35/pcie.0\"" },
	{ "qom-get", AT("/machine/q35", "pci-hole64-size"), "34359738368" },
	{ "qom-get", AT("/machine/unattached/device[0]", "family"), "15" },
	{ "qom-get", AT("/machine/unattached/device[0]/lapic", "version"), "20" },
	{ "qom-get", AT("/machine/peripheral/rng/virtio-backend", "parent_bus"), "\"/machine/peripheral/rng/virtio-bus\"" },
	{ "qom-get", AT("/machine/q35", "parent_bus"), "\"" SYSBUS "\"" },
	{ "qom-get", AT("/machine/unattached/device[0]", "parent_bus"), "\"\"" },
	{ "qom-get", AT("/machine/unattached/device[0]/lapic", "parent_bus"), "\"\"" },
	{ "qom-get", AT("/machine/peripheral/dimm", "parent_bus"), "\"\"" },
	{ "qom-get", "\"property\":\"parent_bus\"", "\"/machine/q35/pcie.0\"" },
	{ NULL, NULL, NULL },
};

/*
 * What a QEMU is, and what it was asked. tree, qtree: its texts; NULL: it has no such command. dies: at this command, from 1.
 * bulk: a version that lists values.
 */
struct scene {
	struct peer peer;
	const char *tree, *qtree;
	bool bulk;
	unsigned int dies, commands, gets, lists, types;
	struct qmp *q;
	struct qom qom;
	struct qom_known known;
	struct err e;
};

static void say_text(struct peer *p, const char *text)
{
	json_t *j = json_string(text ? text : "");
	char *dumped = json_dumps(j, JSON_ENCODE_ANY);

	if (text)
		peer_reply(p, "return", dumped);
	else
		peer_reply(p, "error", "{\"class\": \"CommandNotFound\", \"desc\": \"no\"}");
	free(dumped);
	json_decref(j);
}

static const char *answer_to(const char *line)
{
	const struct peer_answer *a = answers;

	while (a->command && !(strstr(line, a->command) && strstr(line, a->with)))
		a++;
	return a->command ? a->ret : NULL;
}

/* Each path's properties, with the values that qom-get would tell. */
static json_t *list_with_values(const char *path)
{
	json_t *all = json_array();
	char text[400];

	for (const struct peer_answer *a = answers; a->command; a++) {
		const char *property = strstr(a->with, "\"property\":\"");
		char name[80];

		snprintf(text, sizeof(text), "\"path\":\"%s\",", path);
		if (strcmp(a->command, "qom-get") || !property || strncmp(a->with, text, strlen(text)))
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(property + 12, "\""), property + 12);
		json_array_append_new(all, json_pack("{s:s, s:s, s:o}", "name", name, "type", "any", "value",
						     json_loads(a->ret, JSON_DECODE_ANY, NULL)));
	}
	if (!strcmp(path, "/machine/peripheral/net0") || strstr(path, "peripheral-anon/device") ||
	    !strcmp(path, "/machine/peripheral/rng"))
		json_array_append_new(all, json_pack("{s:s, s:s, s:s}", "name", "parent_bus", "type", "link<bus>", "value",
						     "/machine/q35/pcie.0"));
	return all;
}

static void answer_lists(struct peer *p)
{
	json_auto_t *said = json_loads(p->line, 0, NULL), *ret = json_array();
	const json_t *path;
	char *text;
	size_t i;

	json_array_foreach(json_object_get(json_object_get(said, "arguments"), "paths"), i, path)
		json_array_append_new(ret, json_pack("{s:o}", "properties", list_with_values(json_string_value(path))));
	text = json_dumps(ret, 0);
	peer_reply(p, "return", text);
	free(text);
}

static void qemu(struct peer *p)
{
	struct scene *s = (struct scene *)p->arg;

	peer_say(p, s->bulk ? NEW_GREETING : OLD_GREETING);
	peer_hear(p, "qmp_capabilities");
	peer_reply(p, "return", "{}");
	while (peer_line(p)) {
		const char *ret = answer_to(p->line);

		if (++s->commands == s->dies)
			return;
		s->gets += !!strstr(p->line, "qom-get");
		s->lists += !!strstr(p->line, "qom-list");
		s->types += !!strstr(p->line, "device-list-properties");
		if (strstr(p->line, "info qom-tree /machine"))
			say_text(p, s->tree);
		else if (strstr(p->line, "info qtree"))
			say_text(p, s->qtree);
		else if (strstr(p->line, "qom-list-get"))
			answer_lists(p);
		else if (ret)
			peer_reply(p, "return", ret);
		else
			peer_reply(p, "error", "{\"class\": \"GenericError\", \"desc\": \"no\"}");
	}
}

static bool all(const char *type, const char *property, const char *kind)
{
	(void)type;
	(void)property;
	(void)kind;
	return true;
}

static void open_scene(struct scene *s)
{
	assert_int_equal(peer_start(&s->peer, qemu, s, 4), 0);
	assert_int_equal(qmp_open(s->peer.path, 2000, &s->q, &s->e), 0);
}

static void close_scene(struct scene *s)
{
	qom_free(&s->qom);
	qom_known_free(&s->known);
	qmp_close(s->q);
	peer_stop(&s->peer);
	assert_string_equal(s->peer.missed, "");
}

static void read_scene(struct scene *s)
{
	open_scene(s);
	assert_int_equal(qom_read(s->q, all, &s->known, &s->qom, &s->e), 0);
}

static void assert_same_table(const struct qom *a, const struct qom *b)
{
	assert_int_equal(a->n, b->n);
	for (unsigned int i = 0; i < a->n; i++) {
		assert_string_equal(a->o[i].path, b->o[i].path);
		assert_string_equal(a->o[i].type, b->o[i].type);
		assert_int_equal(a->o[i].parent, b->o[i].parent);
		assert_int_equal(a->o[i].device, b->o[i].device);
		if (a->o[i].device)
			assert_string_equal(a->o[i].bus, b->o[i].bus);
		assert_int_equal(!a->o[i].props, !b->o[i].props);
		if (a->o[i].props && !json_equal(a->o[i].props, b->o[i].props)) {
			char *x = json_dumps(a->o[i].props, 0), *y = json_dumps(b->o[i].props, 0);

			print_message("%s\n", a->o[i].path);
			assert_string_equal(x, y);
		}
	}
}

#endif
