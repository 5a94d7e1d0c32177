#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# check.sh SUITE kselftest | SUITE e2e [--brief]: the module, or the main migrations (or what CI runs of them), on the
# kernel, and with the QEMU, of another Debian (root.sh).
set -e
here=$(cd "$(dirname "$0")" && pwd)
top=$(dirname "$(dirname "$here")")
: "${B:=$top/build}"
export B
suite=$1
part=$2
brief=$3
usage()
{
	echo "usage: check.sh trixie-backports|bookworm-backports kselftest | e2e [--brief]" >&2
	exit 2
}

case $part$brief in
kselftest) nodes="--append numa=fake=2" ;;	# pages that migrate need two
e2e | e2e--brief) nodes= ;;
*) usage ;;
esac
case $suite in
trixie-backports) tested=7.3 ;;		# the newest series that this tree was tested with
bookworm-backports) tested=6.12 ;;
*) usage ;;
esac

"$top/selftests/check.sh" build
root=$("$here/root.sh" "$suite")
kernel=$("$top/selftests/lab/lab" setup --root "$root")
kver=${kernel##*/vmlinuz-}

# Debian 12's own, as the emulator, has trouble with kernels that patch their own text (see lab/inside.sh).
LAB_QEMU=$here/qemu.sh
export LAB_QEMU
status=0
# shellcheck disable=SC2086 # two words, or none
{
	"$here/build.sh" "$root" "$B/kernels/$suite" &&
	GODWIT_MODULE=$B/kernels/$suite/godwit.ko "$top/selftests/lab/lab" run --name "$suite-$part" \
		${LAB_CPUS:+--cpus "$LAB_CPUS"} --root "$root" --memory 8G --hugepages 2M:160,1G:2 --timeout 1800 $nodes -- \
		"$here/inside.sh" "$part" ${brief:+"$brief"}
} || status=$?
# Backports move on; what this tree does with a kernel that came after it says nothing against it.
case $kver in
"$tested".*) ;;
*)
	if [ "$(printf '%s\n' "$tested" "$kver" | sort -V | tail -n 1)" = "$kver" ]; then
		echo "check-kernels: $kver of $suite is newer than $tested, which this tree was tested with: its result (status $status) does not count"
		status=77	# selftests/run says so
	fi ;;
esac
exit $status
