#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# deps.sh [PACKAGE...]: installs what a build and a test need, and what is named, and this Debian 12 lacks. Does nothing
# when all is here.
set -e
PACKAGES="build-essential pkg-config linux-image-amd64 linux-headers-amd64 kmod dkms
	liburing-dev libjansson-dev libxxhash-dev libnl-genl-3-dev libexpat1-dev libcmocka-dev clang libclang-rt-14-dev
	qemu-system-x86 seabios busybox-static cpio xz-utils iproute2 dmsetup trace-cmd python3 python3-pytest
	python3-pytest-rerunfailures python3-jsonschema"

missing=
for p in $PACKAGES "$@"; do
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing="$missing $p"
done
[ -n "$missing" ] || exit 0

echo "installing:$missing"
if [ "$(id -u)" != 0 ]; then
	echo "not root: run \"apt-get install$missing\" as root first" >&2
	exit 1
fi
apt-get update
# shellcheck disable=SC2086 # a list of words
DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing
