#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# What runs on each kernel, inside the lab: one command for each family of tests.
set -e
here=$(cd "$(dirname "$0")" && pwd)

# The module's own tests; the kernel under test is not the one that they were built on.
"$B/kselftest/run_kselftest.sh" | "$here/../kselftest/verdict"

# Migrations. A name that does not exist is an error, and a test that is skipped is named with its reason.
cd "$here/../e2e"
# shellcheck disable=SC2046 # one word for each line
/usr/bin/python3 -m pytest -p no:cacheprovider -v -rs --durations=0 $(grep -v '^#' "$here/cases")
