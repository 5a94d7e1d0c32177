#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# build.sh ROOT TO: builds the module for ROOT's kernel with ROOT's own compiler, and leaves it as TO/godwit.ko.
set -e
top=$(cd "$(dirname "$0")/../.." && pwd)
root=$1
to=$2
image=$("$top/selftests/lab/lab" setup --root "$root")
kver=${image##*/vmlinuz-}

# The tree itself belongs to the build for 6.1. One build at a time of one kernel's.
mkdir -p "$to"
exec 9>"$to/lock"
flock 9
# A lab may be using it.
unchanged()
{
	[ -e "$to/built" ] && [ "$(cat "$to/built")" = "$kver" ] &&
		[ -z "$(find "$top/kmod" "$top/Kbuild" "$top/dkms.conf" \( -name '*.[ch]' -o -name Kbuild -o -name dkms.conf \) \
			! -name '*.mod.c' -newer "$to/built")" ]
}

if unchanged; then
	exit 0
fi
rm -rf "$to/src"
make -s -C "$top" dkms-source TO="$to/src"
# Mounts in a namespace of their own: however this ends, none is left.
# shellcheck disable=SC2016 # the inner shell's words
unshare --mount sh -ec '
	mount --bind "$2/src" "$1/mnt"
	mount -t proc proc "$1/proc"
	exec chroot "$1" make -s -C "/lib/modules/$3/build" M=/mnt GODWIT_TESTS=y modules' build "$root" "$to" "$kver"
strip --strip-debug -o "$to/godwit.ko" "$to/src/kmod/godwit.ko"
echo "$kver" >"$to/built"
