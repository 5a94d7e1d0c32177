#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# check.sh VERB: builds the module and the guests for the lab's kernel, and runs something in the lab.
#
#	build				only that
#	check [PYTEST-OPTIONS]		the end-to-end tests
#	kselftest [TESTS='godwit:attach_test ...']
#	shell				a shell; "t NAME" there runs end-to-end tests, again and again, without another boot
#	demo, demo-nfv, sweep, slowdown, distant, postcopy, packing	the demos, the benchmarks of migrations
#
# LAB_CPUS: how many the lab has for end-to-end tests and benchmarks, see docs/architecture/lab.md.
# LAB_NAME: labs of different names run side by side.
set -e
top=$(cd "$(dirname "$0")/.." && pwd)
: "${B:=$top/build}"
export B
mkdir -p "$B"
lab="$top/selftests/lab/lab"
name=${LAB_NAME:-lab}

usage()
{
	sed -n '3,11s/^# \?//p' "$0" >&2
	exit 2
}

# One at a time: they write the same files.
build()
{
	exec 9>"$B/build.lock"
	flock 9
	kernel=$("$lab" setup)		# the newest kernel of /boot that has headers
	kver=${kernel#/boot/vmlinuz-}
	mkdir -p "$B/kmod"
	make -s -C "/lib/modules/$kver/build" M="$top" GODWIT_TESTS=y modules
	# 164 KB that cross 9p, not 6 MB; replaced only when it changed, as a lab may be using it.
	strip --strip-debug -o "$B/kmod/new.ko" "$top/kmod/godwit.ko"
	cmp -s "$B/kmod/new.ko" "$B/kmod/godwit.ko" || mv "$B/kmod/new.ko" "$B/kmod/godwit.ko"
	make -s -C "$top" user
	make -s -C "$top/selftests/guest"
	make -s -C "$top/selftests/tools"
	"$top/selftests/guest/linux" "$kver" >/dev/null
	case $1 in
	build|kselftest) make -s -C "$top/selftests" all ;;
	esac
	exec 9>&-
}

[ $# -gt 0 ] || usage
verb=$1
shift
case $verb in
build|check|kselftest|shell|demo|demo-nfv|sweep|slowdown|distant|postcopy|packing) build "$verb" ;;
*) usage ;;
esac

# What tests for hours must not stumble over its emulator: with Debian 12's own QEMU a nested guest is now and then deaf
# to interrupts, and after a fork of its VMM may stay on a page from before.
if [ "$verb" != demo ]; then
	[ -n "$LAB_QEMU" ] || "$top/selftests/kernels/root.sh" qemu >/dev/null	# not where a machine is already waited for
	: "${LAB_QEMU:=$top/selftests/kernels/qemu.sh}"
	export LAB_QEMU
fi

case $verb in
demo)
	exec "$lab" run --name "$name" --memory 6G -- "$top/selftests/e2e/demo.py" ;;
demo-nfv)
	exec "$lab" run --name "$name" --memory 6G --hugepages 2M:224 -- "$top/selftests/e2e/demo_nfv.py" "$@" ;;
check)
	exec "$lab" run --name "$name" ${LAB_CPUS:+--cpus "$LAB_CPUS"} --memory 8G --hugepages 2M:160,1G:2 \
		--timeout "${LAB_TIMEOUT:-3600}" -- \
		/usr/bin/python3 -m pytest -p no:cacheprovider -q "$top/selftests/e2e" "$@" ;;
kselftest)
	exec "$lab" run --name "$name" --memory 6G --hugepages 2M:32,1G:2 --append numa=fake=2 --timeout "${LAB_TIMEOUT:-1800}" -- \
		make -s -C "$top/selftests" run_tests "$@" ;;
shell)
	exec "$lab" run --name "$name" --interactive --memory 8G --hugepages 2M:160,1G:2 --timeout 28800 -- \
		bash --rcfile "$top/selftests/lab/shellrc" -i ;;
sweep|slowdown|distant|postcopy|packing)
	exec "$lab" run --name "$name" ${LAB_CPUS:+--cpus "$LAB_CPUS"} --memory 8G --timeout 10800 -- "$top/selftests/bench/migrate/$verb.py" "$@" ;;
esac
