#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# DKMS builds, installs and removes the module out of the package, in trees of its own: nothing of this host is touched.
# What it has built is left in build/deb, as DKMS packs it: the lab's test of the packages installs that, to spare an
# emulated machine the compiler.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
: "${B:=$top/build}"
trees=$B/dkms
name=godwit
version=$(sed -n 's/^PACKAGE_VERSION="\(.*\)"/\1/p' "$top/dkms.conf")
kver=$("$top/selftests/lab/lab" setup)		# the newest kernel of /boot that has headers
kver=${kver#/boot/vmlinuz-}

fail()
{
	echo "dkms: $*" >&2
	exit 1
}

dkms_()
{
	dkms "$@" -m $name -v "$version" -k "$kver" --dkmstree "$trees/tree" --sourcetree "$trees/src" \
		--installtree "$trees/modules" --no-depmod >"$trees/log" 2>&1 || { cat "$trees/log" >&2; fail "$1 failed"; }
}

status()
{
	dkms status -m $name --dkmstree "$trees/tree" --sourcetree "$trees/src" --installtree "$trees/modules"
}

installed()
{
	find "$trees/modules" -name "$name.ko*"
}

rm -rf "$trees"
mkdir -p "$trees"/{tree,src} "$trees/modules/$kver"
dpkg-deb -x "$B"/deb/godwit-dkms_*_all.deb "$trees/root"
mv "$trees/root/usr/src/$name-$version" "$trees/src/"

dkms_ add
dkms_ build
[ -z "$(installed)" ] || fail "build has installed something"
dkms_ mktarball --archive "$B/deb/$name-$version.dkms.tar.gz"
dkms_ install
file=$(installed)
[ -n "$file" ] || fail "nothing was installed"
[ "$(modinfo -F version "$file")" = "$version" ] || fail "$file is not version $version"
case $(modinfo -F vermagic "$file") in
"$kver "*) ;;
*) fail "$file is not for $kver" ;;
esac
[ -z "$(modinfo -F parm "$file")" ] || fail "$file has the tests' hooks"
# Its checksum covers struct kvm, which the module looks into: a KVM that was built otherwise does not take the module.
modprobe --dump-modversions "$file" | grep '\<kvm_get_kvm$' >/dev/null || fail "$file does not hang on kvm_get_kvm()"
status | grep -q installed || fail "status does not say installed"
dkms_ remove
[ -z "$(installed)" ] || fail "remove has left $(installed)"
! status | grep -q . || fail "status still says $(status)"
echo "dkms: built, installed and removed $name $version for $kver"
