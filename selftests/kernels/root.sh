#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# root.sh NAME: a directory with another Debian, made once, in the user's cache, and used by later runs; prints its path.
#
#	qemu			the QEMU of Debian 13's backports and nothing else: the lab's emulator
#	trixie-backports	its kernel, headers, compiler and QEMU, and what the tests call
#	bookworm-backports	the same of Debian 12's backports
#
# A run that is interrupted leaves nothing that a later one would take for whole. Backports of a stable Debian move slowly
# and fit its libraries; unstable's packages broke runs of a day. Remove the directory to get newer ones.
set -e
name=$1
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/godwit/roots
root=$cache/$name
log=$cache/$name.log
tries=3

packages="make binutils kmod iproute2 dmsetup mount openssl procps python3 python3-pytest
	liburing2 libjansson4 libxxhash0 libgnutls30 libnl-3-200 libnl-genl-3-200
	libexpat1 liblz4-1 libzstd1 zlib1g"
kernel="linux-image-amd64 linux-headers-amd64"
qemu="qemu-system-x86 qemu-system-common qemu-system-data seabios"
case $name in
qemu)
	suite=trixie-backports packages='' kernel='' ;;
trixie-backports|bookworm-backports)
	suite=$name ;;
*)
	echo "root.sh: qemu, trixie-backports or bookworm-backports" >&2
	exit 2 ;;
esac
for p in $kernel $qemu; do
	packages="$packages $p/$suite"
done
# shellcheck disable=SC2086 # a list of words
include=$(echo $packages | tr ' ' ,)

# In a namespace of its own, so that a run that is killed leaves no mount behind. Signed is enough: a mirror may be a
# snapshot, whose index has expired; what is old at worst fails a test. apt tries again without a pause, see deps.sh.
fetch()
{
	rm -rf --one-file-system "$root.part"
	printf "deb $mirror %s main\n" "${suite%-backports}" "$suite" >"$root.list"
	unshare --mount mmdebstrap --mode=root --variant=minbase --include="$include" \
		--aptopt='Acquire::Check-Valid-Until "false"' --aptopt='Acquire::Retries "3"' --aptopt='Acquire::Retries::Delay "false"' \
		--aptopt='Acquire::Languages "none"' --aptopt='APT::Install-Recommends "false"' \
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
		"${suite%-backports}" "$root.part" "$root.list" >"$log" 2>&1
}

mkdir -p "$cache"
exec 9>"$cache/$name.lock"
flock 9
if [ "$(cat "$root/etc/godwit-root" 2>/dev/null)" != "$include" ]; then
	try=1
	echo "root.sh: fetching $name from $mirror" >&2
	until fetch; do
		echo "root.sh: try $try of $tries to fetch $name from $mirror failed:" >&2
		grep -E '^(E|W|Err|error)' "$log" >&2 || tail -n 5 "$log" >&2
		[ $try -lt $tries ] || { echo "root.sh: is the mirror reachable? All that was said is in $log" >&2; exit 1; }
		sleep $((try * 5))
		try=$((try + 1))
	done
	echo "$include" >"$root.part/etc/godwit-root"
	rm -rf --one-file-system "$root"
	mv "$root.part" "$root"
fi
echo "$root"
