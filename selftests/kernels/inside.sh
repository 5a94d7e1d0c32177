#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# inside.sh kselftest | e2e [--brief]: what runs on each kernel, inside the lab.
here=$(cd "$(dirname "$0")" && pwd)
case $1 in
kselftest)
	# Not kvm_test: it runs 6.1's tests of KVM, which are a kernel's own, and make check has it there.
	# shellcheck disable=SC2046 # two words for each line
	"$B/kselftest/run_kselftest.sh" $(sed '/:kvm_test$/d; s/^/-t /' "$B/kselftest/kselftest-list.txt") |
		"$here/../kselftest/verdict" "$B/kselftest/run_kselftest.sh" ;;
e2e)
	# A name that does not exist is an error, and a test that is skipped is named with its reason.
	cd "$here/../e2e" || exit 1
	[ "$2" = --brief ] && end='/^# Not in CI:/q;' || end=
	# shellcheck disable=SC2046 # one word for each line
	/usr/bin/python3 -m pytest -p no:cacheprovider -q --durations=5 $(sed -n "$end /^#/!p" "$here/cases") ;;
*)
	echo "usage: inside.sh kselftest | e2e [--brief]" >&2
	exit 2 ;;
esac
