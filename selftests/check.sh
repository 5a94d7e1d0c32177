#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Builds the module for the lab's kernel, and runs the tests, the demo or the benchmarks of migrations in the lab.
set -e
top=$(cd "$(dirname "$0")/.." && pwd)
: "${B:=$top/build}"
export B
mkdir -p "$B"

kernel=$("$top/selftests/lab/lab" setup)		# the newest kernel of /boot that has headers
kver=${kernel#/boot/vmlinuz-}
mkdir -p "$B/kmod"
make -s -C "/lib/modules/$kver/build" M="$top" modules
cp "$top/kmod/godwit.ko" "$B/kmod/godwit.ko"
make -s -C "$top/selftests/guest"
make -s -C "$top/selftests/tools"
"$top/selftests/guest/linux" "$kver" >/dev/null

# What tests for hours must not stumble over its emulator: with Debian 12's own QEMU a nested guest is now and then deaf
# to interrupts, and after a fork of its VMM may stay on a page from before.
if [ "$1" != demo ]; then
	: "${LAB_QEMU:=$top/selftests/kernels/qemu.sh}"
	export LAB_QEMU
fi

case $1 in
demo)
	exec "$top/selftests/lab/lab" run --memory 6G -- "$top/selftests/e2e/demo.py" ;;
check)
	shift
	exec "$top/selftests/lab/lab" run --memory 8G --hugepages 2M:160,1G:2 --timeout 3600 -- \
		/usr/bin/python3 -m pytest -p no:cacheprovider -q "$top/selftests/e2e" "$@" ;;
kselftest)
	shift
	make -s -C "$top/selftests" all
	exec "$top/selftests/lab/lab" run --memory 6G --hugepages 2M:16,1G:2 --timeout 600 -- \
		make -s -C "$top/selftests" run_tests "$@" ;;
sweep|slowdown)
	bench=$top/selftests/bench/migrate/$1.py
	shift
	exec "$top/selftests/lab/lab" run --memory 8G --timeout 10800 -- "$bench" "$@" ;;
*)
	echo "usage: check.sh demo | check [PYTEST-OPTIONS] | kselftest [TESTS='godwit:attach_test ...'] | sweep|slowdown [OPTIONS]" >&2
	exit 2 ;;
esac
