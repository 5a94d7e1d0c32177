// SPDX-License-Identifier: GPL-2.0-only
/* What is behind a guest's devices, as QEMU tells it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "host_rig.h"

#define MONITOR(lines)	{ "human-monitor-command", "info network", "\"" lines "\"" }
#define END		{ NULL, NULL, NULL }
#define NIC		"net0: index=0,type=nic,model=virtio-net-pci,macaddr=52:54:00:12:34:56\\r\\n"

/* Whether both are in one network namespace. */
static void put_network(struct end *end, const char *its)
{
	char ours[512], link[512];

	put(end, "proc/self/ns/net", "");
	put(end, "proc/4711/ns/other", "");
	fake_path(&end->tree, "proc/4711/ns/net", link);
	unlink(link);
	assert_return_code(symlink(fake_path(&end->tree, its, ours), link), errno);
}

static void test_taps(void **state)
{
	static const struct peer_answer answers[] = {
		MONITOR(NIC " \\\\ hn0: index=0,type=tap,ifname=tap0,script=no,downscript=no\\r\\n"
			" \\\\ hn0: index=1,type=tap,ifname=tap1,script=no,downscript=no\\r\\n"
			NIC " \\\\ hn1: index=0,type=tap,fd=33\\r\\n"
			NIC " \\\\ hn2: index=0,type=tap,helper=/usr/lib/qemu/qemu-bridge-helper\\r\\n"
			"hn3: index=0,type=user,net=10.0.2.0,restrict=off\\r\\n"
			"hn4: index=0,type=tap,ifname=gone\\r\\nhn5: index=0,type=tap,fd=34\\r\\n"
			"hn6: index=0,type=tap,ifname=tap33/../tap0\\r\\nhn7: index=0,type=tap,ifname=\\r\\nhn8: index=0,type=tap"),
		END,
	};
	struct end *end = *state;

	put_network(end, "proc/self/ns/net");
	put(end, "proc/4711/fdinfo/33", "pos:\t0\nflags:\t0104002\niff:\ttap33\n");
	put(end, "proc/4711/fdinfo/34", "pos:\t0\n");
	put(end, "sys/class/net/tap0/flags", "0x1003\n");
	put(end, "sys/class/net/tap33/flags", "0x1002\n");
	look(end, true, answers);
	assert_int_equal(json_object_size(fact(end, "backends")), 2);
	assert_text(end, "backends/hn0/interface", "tap0");
	assert_text(end, "backends/hn0/type", "tap");
	assert_bool(end, "backends/hn0/up", true);
	assert_text(end, "backends/hn1/interface", "tap33");
	assert_bool(end, "backends/hn1/up", false);
	/* The interface of that name here is another one. */
	put_network(end, "proc/4711/ns/other");
	look(end, true, answers);
	assert_int_equal(json_object_size(fact(end, "backends")), 0);
}

static void test_vhost_user(void **state)
{
	static const struct peer_answer answers[] = {
		{ "query-chardev", "",
		  "[{\"frontend-open\": true, \"filename\": \"disconnected:unix:/run/a,server=on\", \"label\": \"vu0\"},"
		  " {\"frontend-open\": true, \"filename\": \"unix:/run/b\", \"label\": \"vu1\"},"
		  " {\"frontend-open\": true, \"filename\": \"tcp:10.0.0.1:5\", \"label\": \"vu2\"},"
		  " {\"frontend-open\": false, \"filename\": \"disconnected:unix:/run/c\", \"label\": \"serial0\"}, 5, {\"label\": 7}]" },
		MONITOR(NIC " \\\\ hn0: index=0,type=vhost-user,vhost-user0 to vu0\\r\\n"
			" \\\\ hn0: index=1,type=vhost-user,vhost-user1 to vu0\\r\\n"
			NIC " \\\\ hn1: index=0,type=vhost-user,vhost-user0 to vu1\\r\\n"),
		{ "qom-list", "\"/machine/peripheral\"",
		  "[{\"name\": \"type\", \"type\": \"string\"}, {\"name\": \"d0\", \"type\": \"child<vhost-user-blk-pci>\"},"
		  " {\"name\": \"d1\", \"type\": \"child<virtserialport>\"}, {\"name\": \"d2\", \"type\": \"child<vhost-user-fs-pci>\"},"
		  " {\"name\": \"d3\", \"type\": \"child<vhost-user-input-pci>\"}, {\"type\": \"child<vhost-user-blk-pci>\"}, 3]" },
		{ "qom-list", "\"/machine/peripheral-anon\"", "[{\"name\": \"device[0]\", \"type\": \"child<vhost-user-scsi-pci>\"}]" },
		{ "qom-get", "\"/machine/peripheral/d0\"", "\"vu0\"" },
		{ "qom-get", "\"/machine/peripheral/d1\"", "\"serial0\"" },
		{ "qom-get", "\"/machine/peripheral/d2\"", "\"vu2\"" },
		{ "qom-get", "\"/machine/peripheral-anon/device[0]\"", "\"nobody\"" },
		END,
	};
	struct end *end = *state;

	look(end, true, answers);
	assert_int_equal(json_object_size(fact(end, "backends")), 5);
	assert_text(end, "backends/hn0/type", "vhost-user");
	assert_text(end, "backends/hn0/chardev", "vu0");
	assert_bool(end, "backends/hn0/connected", false);
	assert_bool(end, "backends/hn1/connected", true);
	assert_text(end, "backends/d0/type", "vhost-user-blk-pci");
	assert_bool(end, "backends/d0/connected", false);
	assert_bool(end, "backends/d2/connected", true);
	assert_text(end, "backends/device[0]/chardev", "nobody");
	assert_null(fact(end, "backends/device[0]/connected"));
}

static void find_lost(struct end *end, const struct peer_answer *answers, json_t **links)
{
	struct peer peer;
	struct qmp *q = peer_qemu(&peer, answers, &end->e);

	assert_non_null(q);
	assert_int_equal(host_lost_links(q, &end->vm, links, &end->e), 0);
	peer_qemu_end(&peer, q);
}

static void test_lost_links(void **state)
{
	static const struct peer_answer answers[] = {
		{ "query-chardev", "",
		  "[{\"filename\": \"disconnected:unix:/run/a,server=on\", \"label\": \"vu0\"},"
		  " {\"filename\": \"unix:/run/b\", \"label\": \"vu1\"}, {\"filename\": \"disconnected:unix:/run/c\", \"label\": \"serial0\"}]" },
		MONITOR(NIC " \\\\ hn0: index=0,type=vhost-user,vhost-user0 to vu0\\r\\n"
			NIC " \\\\ hn1: index=0,type=vhost-user,vhost-user0 to vu1\\r\\nhn2: index=0,type=tap,ifname=gone\\r\\n"),
		END,
	};
	/* Such a QEMU is not asked for its network. */
	static const struct peer_answer connected[] = {
		{ "query-chardev", "", "[{\"filename\": \"unix:/run/b\", \"label\": \"vu1\"}, 5]" },
		END,
	};
	struct end *end = *state;
	json_t *links;

	find_lost(end, answers, &links);
	assert_int_equal(json_array_size(links), 1);
	assert_string_equal(json_string_value(json_object_get(json_array_get(links, 0), "name")), "hn0");
	assert_string_equal(json_string_value(json_object_get(json_array_get(links, 0), "chardev")), "vu0");
	json_decref(links);
	find_lost(end, connected, &links);
	assert_null(links);
}

int main(void)
{
#define TEST(name)	cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = { TEST(test_taps), TEST(test_vhost_user), TEST(test_lost_links) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
