#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# deps.sh [GROUP | PACKAGE...]: installs what a build and a test need, and what is named, and this Debian 12 lacks. Does
# nothing when all is here. Tried three times: one broken connection is no reason to fail.
set -e
build="build-essential pkg-config linux-image-amd64 linux-headers-amd64 kmod dkms
	liburing-dev libjansson-dev libxxhash-dev libgnutls28-dev
	libnl-genl-3-dev libexpat1-dev liblz4-dev libzstd-dev zlib1g-dev libcmocka-dev clang libclang-rt-14-dev
	qemu-system-x86 seabios busybox-static cpio xz-utils iproute2 dmsetup btrfs-progs trace-cmd python3 python3-pytest
	python3-jsonschema openssl"
deb="debhelper dh-dkms"
# The lab's tests: other Debians' programs, and a service manager for the receiver's units.
lab="mmdebstrap zstd systemd udev qemu-utils qemu-block-extra"
# Pages, completion, lintian, and a real libvirtd.
packaging="$deb mandoc man-db zsh bash-completion lintian systemd libvirt-daemon libvirt-daemon-driver-qemu libvirt-clients"
# Two switches that serve guests by vhost-user. The tests start their own: none is to run, or to begin with this host.
nfv="openvswitch-switch-dpdk librte-net-af-packet23 librte-mempool-ring23"
tries=3

wanted=$build
for word; do
	case $word in
	deb) wanted="$wanted $deb" ;;
	lab) wanted="$wanted $lab" ;;
	nfv) wanted="$wanted $nfv" ;;
	packaging) wanted="$wanted $packaging" ;;
	*) wanted="$wanted $word" ;;
	esac
done
missing=
for p in $wanted; do
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing="$missing $p"
done
[ -n "$missing" ] || exit 0

echo "installing:$missing"
if [ "$(id -u)" != 0 ]; then
	echo "not root: run \"apt-get install$missing\" as root first" >&2
	exit 1
fi

# apt's own tries, without the pause before each: after one in which two files of a host have failed Debian 12's apt waits
# for ever.
at_once="-o Acquire::Retries=3 -o Acquire::Retries::Delay=false"

# shellcheck disable=SC2086 # lists of words
install()
{
	# "Any": a list that could not be fetched is an error, not the old list.
	apt-get update -o APT::Update::Error-Mode=any $at_once || return
	DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $at_once $missing
}

# Of a switch that came with what was installed, not of one that this host had.
no_switch()
{
	service openvswitch-switch stop
	[ ! -d /run/systemd/system ] || systemctl disable openvswitch-switch
}

switch=/etc/init.d/openvswitch-switch
[ ! -e $switch ] || switch=
try=1
until install; do
	echo "deps.sh: try $try of $tries failed, for the reason above" >&2
	[ $try -lt $tries ] || exit 1
	sleep $((try * 5))
	try=$((try + 1))
done
[ ! -e "$switch" ] || no_switch
