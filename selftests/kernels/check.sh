#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# check.sh [SUITE...]: the module and the migrations on the kernels, and with the QEMUs, of other Debians.
set -e
here=$(cd "$(dirname "$0")" && pwd)
top=$(dirname "$(dirname "$here")")
: "${B:=$top/build}"
export B
mkdir -p "$B"
make -s -C "$top/selftests/guest"
make -s -C "$top/selftests/tools"
make -s -C "$top/selftests" all

# Says what was done since the last time, and how long it took.
said()
{
	now=$(date +%s)
	echo "check-kernels: $suite: $1: $((now - since)) s"
	since=$now
}

# Debian 12's own, as the emulator, has trouble with kernels that patch their own text (see lab/inside.sh).
LAB_QEMU=$here/qemu.sh
export LAB_QEMU

failed=
[ $# -gt 0 ] || set -- trixie-backports bookworm-backports
for suite; do
	since=$(date +%s)
	root=$("$here/root.sh" "$suite")
	said 'root'
	"$here/build.sh" "$root" "$B/kernels/$suite"
	said 'module'
	GODWIT_MODULE=$B/kernels/$suite/godwit.ko "$top/selftests/lab/lab" run --root "$root" \
		--memory 8G --hugepages 2M:160,1G:2 --timeout 1200 -- "$here/inside.sh" || failed="$failed $suite"
	said 'tests'
done
[ -z "$failed" ] || echo "check-kernels: failed on$failed" >&2
[ -z "$failed" ]
