#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# The QEMU of a root (QEMU_ROOT, "qemu" by default), run on the host with that root's own loader, libraries
# and firmware.
root=$("$(dirname "$0")/root.sh" "${QEMU_ROOT:-qemu}") || exit
exec "$root/lib64/ld-linux-x86-64.so.2" --library-path "$root/usr/lib/x86_64-linux-gnu" \
	"$root/usr/bin/qemu-system-x86_64" -L "$root/usr/share/qemu" -L "$root/usr/share/seabios" "$@"
