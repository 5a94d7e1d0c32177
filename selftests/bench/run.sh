#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# run.sh [--quick] [--only sync|retire|sweep] [--match TEXT]: the module's benchmarks, in the lab; results go to build/bench.json.
set -e
top=$(cd "$(dirname "$0")/../.." && pwd)
: "${B:=$top/build}"
export B

kernel=$("$top/selftests/lab/lab" setup)
mkdir -p "$B/kmod"
make -s -C "/lib/modules/${kernel#/boot/vmlinuz-}/build" M="$top" modules
cp "$top/kmod/godwit.ko" "$B/kmod/godwit.ko"
make -s -C "$top/selftests/bench"
make -s -C "$top/selftests" "$B/kselftest/kvm/dirty_log_perf_test"
# The emulator that the tests and the other benchmarks of the lab run in.
[ -n "$LAB_QEMU" ] || "$top/selftests/kernels/root.sh" qemu >/dev/null	# not where a machine is already waited for
: "${LAB_QEMU:=$top/selftests/kernels/qemu.sh}"
export LAB_QEMU
# shellcheck disable=SC2016 # expanded in the lab
exec "$top/selftests/lab/lab" run --memory 8G --hugepages 2M:520 --timeout 1500 -- /bin/sh -c '
	"$LAB_INSIDE" modules kvm && insmod "$B/kmod/godwit.ko" && "$B/bench/kernel-bench" "$@" "$B/bench.json" || exit
	case "$*" in
	""|--quick) exec "$0" "$B/kselftest/kvm/dirty_log_perf_test" "$B/bench.json" ;;
	esac' "$top/selftests/bench/kvm_perf" "$@"
