#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# root.sh SUITE: a directory with a Debian of that suite: its newest kernel, headers, compiler and QEMU, and what the
# tests call. Made once, in the user's cache, and used by later runs; prints its path. A run that is interrupted leaves
# nothing that a later one would take for whole. Remove the directory to get a newer kernel.
set -e
suite=$1
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
roots=${XDG_CACHE_HOME:-$HOME/.cache}/godwit/roots
root=$roots/$suite

packages="make kmod iproute2 dmsetup mount procps python3 python3-pytest python3-pytest-rerunfailures
	liburing2 libjansson4 libxxhash0 libnl-3-200 libnl-genl-3-200 libexpat1"
case $suite in
bookworm-backports)
	base=bookworm
	newest="linux-image-amd64/$suite linux-headers-amd64/$suite qemu-system-x86/$suite
		qemu-system-common/$suite qemu-system-data/$suite seabios/$suite" ;;
sid)
	base=sid
	newest="linux-image-amd64 linux-headers-amd64 qemu-system-x86 seabios" ;;
*)
	echo "root.sh: bookworm-backports or sid" >&2
	exit 2 ;;
esac
# shellcheck disable=SC2086 # lists of words
include=$(echo $packages $newest | tr ' ' ,)

mkdir -p "$roots"
exec 9>"$roots/$suite.lock"
flock 9
if [ "$(cat "$root/etc/godwit-root" 2>/dev/null)" != "$include" ]; then
	echo "root.sh: fetching a root of $suite" >&2
	rm -rf --one-file-system "$root.part"
	for s in "$base" "$suite"; do
		echo "deb $mirror $s main"
	done | sort -u >"$root.list"
	# In a namespace of its own, so that a run that is killed leaves no mount behind. Signed is enough: a mirror may
	# be a snapshot, whose index has expired; what is old at worst fails a test.
	unshare --mount mmdebstrap --quiet --mode=root --variant=minbase --include="$include" \
		--aptopt='Acquire::Check-Valid-Until "false"' --aptopt='Acquire::Retries "3"' \
		--aptopt='Acquire::Languages "none"' --aptopt='APT::Install-Recommends "false"' \
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
		"$base" "$root.part" "$root.list" >&2
	echo "$include" >"$root.part/etc/godwit-root"
	rm -rf --one-file-system "$root"
	mv "$root.part" "$root"
fi
echo "$root"
