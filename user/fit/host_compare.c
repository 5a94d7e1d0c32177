// SPDX-License-Identifier: GPL-2.0-only
/*
 * Finds what does not fit about the hosts. Pure. The destination's facts come from the peer: the
 * type of each is checked, and what is missing is not compared.
 */
#include <inttypes.h>
#include <math.h>

#include "fit/host_internal.h"

/* How far a frequency may be off without scaling: QEMU's number, and the default of KVM. */
#define TSC_TOLERANCE	250e-6
/* No TSC runs outside of these. */
#define TSC_MIN_HZ	1e6
#define TSC_MAX_HZ	1e12

#define CLOCKS_DIFFER_NS	50000000ull

bool host_number(const json_t *in, const char *key, uint64_t *value)
{
	const json_t *n = json_object_get(in, key);
	double real = json_real_value(n);

	if (json_is_integer(n) && json_integer_value(n) >= 0)
		*value = (uint64_t)json_integer_value(n);
	else if (json_is_real(n) && real >= 0 && real < (double)INT64_MAX)
		*value = (uint64_t)real;
	else
		return false;
	return true;
}

bool host_is(const json_t *in, const char *key, bool value)
{
	const json_t *b = json_object_get(in, key);

	return json_is_boolean(b) && json_is_true(b) == value;
}

const char *host_text(const json_t *in, const char *key)
{
	return json_string_value(json_object_get(in, key));
}

static const struct {
	const char *feature;
	const char *module;
} nesting[] = {
	{ "vmx", "kvm_intel" },
	{ "svm", "kvm_amd" },
};

static void compare_nested(const json_t *cpu, const json_t *dst, struct findings *f)
{
	const json_t *nested = json_object_get(dst, "nested");

	for (size_t i = 0; i < sizeof(nesting) / sizeof(nesting[0]); i++) {
		const char *feature = nesting[i].feature, *module = nesting[i].module;

		if (!host_is(cpu, feature, true) || !host_is(nested, feature, false))
			continue;
		findings_add(f, FIT_HOST, FIT_FATAL,
			     "the guest's CPU has %s, and nested virtualization is off in the destination's KVM: switch it on there (modprobe -r %s; modprobe %s nested=1), or start the source with -cpu ...,%s=off",
			     feature, module, module, feature);
	}
}

static bool frequency(const json_t *in, const char *key, uint64_t *hz)
{
	return host_number(in, key, hz) && (double)*hz >= TSC_MIN_HZ && (double)*hz <= TSC_MAX_HZ;
}

/*
 * When QEMU loads a guest it compares the guest's frequency with one that was set, under TCG as
 * well.
 */
static void compare_tsc_option(uint64_t is, uint64_t there, struct findings *f)
{
	if (is == there)
		return;
	findings_add(f, FIT_HOST, FIT_IMPOSSIBLE,
		     "the destination QEMU was started with tsc-frequency=%" PRIu64 ", and refuses a guest whose TSC runs at %" PRIu64 " Hz: start it with -cpu ...,tsc-frequency=%" PRIu64,
		     there, is, is);
}

/*
 * Without scaling a TSC runs at the destination's own frequency. A guest with invtsc, or whose
 * operator has set the frequency, may count time by it. Other guests count by KVM's clock, which is
 * corrected, but have measured the TSC for their timers when they booted.
 */
static void compare_tsc_scaling(uint64_t is, uint64_t there, bool by_tsc, struct findings *f)
{
	const char *harm = by_tsc ? "the guest would count time wrongly" :
				    "the guest's timers would be off by as much";

	if (fabs((double)is - (double)there) <= (double)there * TSC_TOLERANCE)
		return;
	findings_add(f, FIT_HOST, by_tsc ? FIT_FATAL : FIT_WARNING,
		     "the guest's TSC runs at %.3f MHz, the destination's at %.3f MHz, and its KVM cannot scale it (tsc_scaling of VMX, tsc_scale of SVM): %s: use a host of the same frequency, or one whose KVM can",
		     (double)is / 1e6, (double)there / 1e6, harm);
}

static void compare_tsc(const json_t *cpu, const json_t *src, const json_t *dst, struct findings *f)
{
	bool by_tsc = host_is(cpu, "invtsc", true) || host_is(src, "tsc-set", true);
	uint64_t is, there;

	if (!frequency(cpu, "tsc-frequency", &is) || !frequency(dst, "tsc-hz", &there))
		return;
	if (host_is(dst, "tsc-set", true))
		compare_tsc_option(is, there, f);
	else if (host_is(src, "kvm", true) && host_is(dst, "kvm", true) &&
		 host_is(dst, "tsc-scaling", false))
		compare_tsc_scaling(is, there, by_tsc, f);
}

/* A warning: the guest keeps its device, and some managers set a tap up after the migration. */
static void compare_tap(const char *id, const json_t *backend, struct findings *f)
{
	const char *interface = host_text(backend, "interface");

	if (!interface || !host_is(backend, "up", false))
		return;
	findings_add(f, FIT_BACKEND, FIT_WARNING,
		     "network backend \"%.64s\" at the destination: %.15s is down, and the guest has no network until it is up: ip link set %.15s up",
		     id, interface, interface);
}

static void compare_vhost_user(const char *id, const json_t *backend, struct findings *f)
{
	const char *type = host_text(backend, "type"), *label = host_text(backend, "chardev");

	if (!label || !host_is(backend, "connected", false))
		return;
	findings_add(f, FIT_BACKEND, FIT_FATAL,
		     "nothing is connected to chardev \"%.64s\" at the destination, and the guest would lose \"%.64s\" (%.40s): start its backend there first",
		     label, id, type ? type : "vhost-user");
}

static void compare_backends(const json_t *dst, struct findings *f)
{
	json_t *backend, *all = json_object_get(dst, "backends");
	const char *id;

	json_object_foreach(all, id, backend) {
		compare_tap(id, backend, f);
		compare_vhost_user(id, backend, f);
	}
}

void host_compare(const json_t *src, const json_t *dst, struct findings *f)
{
	const json_t *cpu = json_object_get(src, "cpu");
	const json_t *s = json_object_get(src, "host"), *d = json_object_get(dst, "host");

	host_compare_room(src, dst, f);
	if (host_is(s, "kvm", true) && host_is(d, "kvm", true))
		compare_nested(cpu, d, f);
	compare_tsc(cpu, s, d, f);
	compare_backends(d, f);
}

void host_compare_clocks(int64_t offset_ns, uint64_t rtt_ns, struct findings *f)
{
	uint64_t by = offset_ns < 0 ? -(uint64_t)offset_ns : (uint64_t)offset_ns;

	if (by <= CLOCKS_DIFFER_NS + rtt_ns / 2)
		return;
	findings_add(f, FIT_HOST, FIT_WARNING,
		     "the destination's clock is %.0f ms %s the source's (to within %.0f ms), and the guest's real-time clock would jump by that: set both by NTP (chronyc makestep)",
		     (double)by / 1e6, offset_ns < 0 ? "behind" : "ahead of",
		     (double)(rtt_ns / 2) / 1e6);
}
