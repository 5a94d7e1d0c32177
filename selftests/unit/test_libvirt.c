// SPDX-License-Identifier: GPL-2.0-only
/* What libvirt leaves in /run of a running domain, in the form that its sources write it. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fake_proc.h"
#include "vmm/libvirt.h"

#define HEAD	"<!--\nWARNING: THIS IS AN AUTO-GENERATED FILE.\n-->\n\n" \
		"<domstatus state='running' reason='booted' pid='4711'>\n" \
		"  <monitor path='/var/lib/libvirt/qemu/domain-3-web/monitor.sock' type='unix'/>\n" \
		"  <vcpus>\n    <vcpu id='0' pid='4715'/>\n  </vcpus>\n" \
		"  <domain type='kvm' id='3' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>\n    <name>web</name>\n"
/* Any memory will do, and what libvirt writes if the operator says nothing is none of these. */
#define MEMORY	"    <memoryBacking>\n      <source type='file'/>\n      <access mode='shared'/>\n    </memoryBacking>\n"
#define QMP	"    <qemu:commandline>\n      <qemu:arg value='-device'/>\n      <qemu:arg value='unix:/no'/>\n" \
		"      <qemu:arg value='-qmp'/>\n      <qemu:arg value='unix:/run/a,,b/web.qmp,server=on,wait=off'/>\n" \
		"    </qemu:commandline>\n"
#define TAIL	"  </domain>\n</domstatus>\n"

static int find(const char *pid, const char *xml, struct domain *d, struct err *e)
{
	struct fake_proc f;
	int r;

	memset(e, 0, sizeof(*e));
	fake_new(&f);
	if (pid)
		fake_write(&f, "web.pid", pid);
	if (xml)
		fake_write(&f, "web.xml", xml);
	r = libvirt_find(f.dir, "web", d, e);
	fake_remove(&f);
	return r;
}

static void expect(const char *pid, const char *xml, enum gw_exit exit, const char *part)
{
	struct domain d;
	struct err e;

	assert_true(find(pid, xml, &d, &e) < 0);
	assert_int_equal(e.exit, exit);
	if (!strstr(e.text, part))
		print_message("%s\n", e.text);
	assert_non_null(strstr(e.text, part));
	assert_null(strchr(e.text, '\n'));
}

static void test_found(void **state)
{
	static const char *const good[] = {
		HEAD QMP TAIL,
		HEAD MEMORY QMP TAIL,
		HEAD QMP "<memoryBacking><hugepages/><access mode='private'/></memoryBacking>" TAIL,
		/* Another prefix is the same namespace; elements far down do not matter. */
		"<domstatus pid='4711'><domain xmlns:q='http://libvirt.org/schemas/domain/qemu/1.0'>" MEMORY
		"<metadata xmlns:m='urn:m'><m:a><m:b><m:c><m:d/></m:c></m:b></m:a></metadata>"
		"<q:commandline><q:arg value='--qmp'/><q:arg value='unix:/run/a,,b/web.qmp,server,nowait'/></q:commandline>" TAIL,
	};
	struct domain d;
	struct err e;

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_int_equal(find("4711\n", good[i], &d, &e), 0);
		assert_int_equal(d.pid, 4711);
		assert_string_equal(d.qmp_path, "/run/a,b/web.qmp");
	}
}

static void test_what_is_missing(void **state)
{
	(void)state;
	expect(NULL, HEAD MEMORY QMP TAIL, GW_NO_SOCKET, "virsh start web");
	expect("4711\n", NULL, GW_NO_SOCKET, "virsh start web");
	expect("4711\n", HEAD MEMORY TAIL, GW_NO_SOCKET, "<qemu:arg value='-qmp'/>");
	/* A guest agent's socket is no QMP, nor is an -qmp that is not a unix socket. */
	expect("4711\n", HEAD MEMORY "<qemu:commandline><qemu:arg value='-qmp'/><qemu:arg value='tcp:localhost:1'/>"
	       "<qemu:arg value='unix:/x'/></qemu:commandline>" TAIL, GW_NO_SOCKET, "no second QMP socket");
	/* In no namespace it is not what libvirt gives to QEMU. */
	expect("4711\n", HEAD MEMORY "<commandline><arg value='-qmp'/><arg value='unix:/x'/></commandline>" TAIL, GW_NO_SOCKET,
	       "no second QMP socket");
}

static void test_not_libvirts(void **state)
{
	char *deep = calloc(1, 400000);

	(void)state;
	expect("", HEAD MEMORY QMP TAIL, GW_INTERNAL, "web.pid: no process id");
	expect("-5\n", HEAD MEMORY QMP TAIL, GW_INTERNAL, "web.pid: no process id");
	expect("4712\n", HEAD MEMORY QMP TAIL, GW_INTERNAL, "another process id");
	expect("4711\n", "", GW_INTERNAL, "cannot read the XML");
	expect("4711\n", HEAD MEMORY QMP, GW_INTERNAL, "cannot read the XML");
	expect("4711\n", "<domain><name>web</name></domain>", GW_INTERNAL, "no <domstatus>");
	for (int i = 0; i < 10000; i++)
		strcat(deep + 5 * i, "<abc>");
	expect("4711\n", deep, GW_INTERNAL, "cannot read the XML");
	for (int i = 0; i < 10000; i++)
		strcat(deep + 50000 + 6 * i, "</abc>");
	expect("4711\n", deep, GW_INTERNAL, "no <domstatus>");
	free(deep);
}

static void test_names(void **state)
{
	static const char *const names[] = { "", "../web", "a/b", "a\nb" };
	struct domain d;

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct err e = { 0 };

		assert_true(libvirt_find("/nowhere", names[i], &d, &e) < 0);
		assert_int_equal(e.exit, GW_USAGE);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_found),
	cmocka_unit_test(test_what_is_missing),
	cmocka_unit_test(test_not_libvirts),
	cmocka_unit_test(test_names),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
