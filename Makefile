# SPDX-License-Identifier: GPL-2.0-only
# The verbs. Each delegates; `make demo` and `make check` first install what they lack.
DESTDIR ?=
KVER    ?= $(shell uname -r)
KDIR    ?= /lib/modules/$(KVER)/build
VERSION := $(shell sed -n 's/^PACKAGE_VERSION="\(.*\)"/\1/p' dkms.conf)
override B := $(abspath $(or $(B),build))
export B

.PHONY: all user module demo demo-nfv check check-native check-lab check-kernels check-all check-debug check-static bench bench-lab \
	bench-kernel deps man install uninstall deb dkms dkms-source clean

all: user module

# One at a time: unit tests and fuzzing have the same objects built.
user:
	@mkdir -p $(B)
	flock $(B)/libgodwit.a.lock $(MAKE) -C user $(B)/godwit

# For KVER: the running kernel by default.
module:
	@test -e $(KDIR)/Makefile || { echo "no headers of kernel $(KVER) in $(KDIR): apt-get install linux-headers-$(KVER); or make user, for a host that needs the tool alone" >&2; exit 1; }
	$(MAKE) -C $(KDIR) M=$(CURDIR) modules

deps:
	selftests/deps.sh

# A guest moves from one QEMU to another, in the lab; beside it, QEMU's own migration of the same guest.
demo: deps user
	selftests/check.sh demo

# A guest that forwards frames moves from one Open vSwitch with DPDK to another, by QEMU and by godwit in turn; three minutes.
demo-nfv: deps user
	selftests/deps.sh lab nfv python3-pygal
	selftests/check.sh demo-nfv

# What a newcomer runs: unit tests, fuzzing, packaging, then the module and all migrations under KVM in the lab. "run" fetches
# what it needs by itself; the interpreter that it needs first comes with deps.
check: deps
	selftests/run check

# Its two halves.
check-native check-lab: check-%: deps
	selftests/run $*

# The module and the main migrations on other kernels with other QEMUs: the backports of Debian 12 and 13.
check-kernels: deps
	selftests/run kernels

# Everything there is; hours.
check-all: check check-kernels check-static check-debug
	selftests/run long

# How fast RAM moves, beside QEMU's own migration, and what codecs and TLS make of it over slow links; on this host, without KVM or
# module, two hours each; the first run also fetches the QEMU of Debian 13's backports. BENCH=--quick: some minutes.
bench: deps user
	selftests/deps.sh lab iperf3
	$(MAKE) -C selftests/bench/stream
	selftests/bench/stream/bench.py $(BENCH)
	$(if $(filter-out --quick,$(BENCH)),,selftests/bench/stream/packed.py $(BENCH))

# How long migrations take and stop the guest, by godwit and by QEMU, as the guest writes faster, and how much they slow it
# down; in the lab, two hours, with BENCH=--quick a quarter of that. A guest that writes faster than the link carries, another
# hour. Then over a distance, a quarter of an hour; DISTANT=--all: hours. Then what codecs and deltas make of guests that run.
bench-lab: deps user
	selftests/deps.sh lab python3-pygal
	selftests/check.sh sweep $(BENCH)
	selftests/bench/migrate/draw.py
	selftests/check.sh slowdown
	selftests/check.sh postcopy
	selftests/check.sh distant $(DISTANT)
	selftests/check.sh packing

# What the module costs, against what QEMU does; in the lab, 15 minutes. BENCH=--quick: 3 minutes.
bench-kernel: deps
	selftests/deps.sh lab
	selftests/bench/run.sh $(BENCH)

# In a kernel of its own, with KASAN, lockdep and kmemleak, where every allocation fails once. Builds it first.
check-debug:
	selftests/deps.sh flex bison bc libelf-dev lab
	selftests/debug/check

# What can be said without running it: sparse, checkpatch, coccicheck, shellcheck.
check-static:
	selftests/deps.sh sparse coccinelle ocaml shellcheck
	selftests/static/check

# The manual pages and the completion, in $(B)/packaging.
man: user
	$(MAKE) -C packaging

# The tool, its pages, completion and units, below DESTDIR and PREFIX (/usr/local); packaging/Makefile has each directory.
install: user
	$(MAKE) -C packaging install

uninstall:
	$(MAKE) -C packaging uninstall

# godwit and godwit-dkms for this Debian, in $(B)/deb. Needs no root.
deb:
	selftests/deps.sh deb
	packaging/deb

# The module's source, and nothing that was built from it, in TO: where dkms looks for it by default.
dkms-source: TO ?= $(DESTDIR)/usr/src/godwit-$(VERSION)
dkms-source:
	install -d $(TO)/kmod/uapi/linux $(TO)/kmod/ledger
	install -m 644 Kbuild dkms.conf LICENSE $(TO)/
	install -m 644 kmod/Kbuild $(filter-out %.mod.c,$(wildcard kmod/*.[ch])) $(TO)/kmod/
	install -m 644 kmod/ledger/*.[ch] $(TO)/kmod/ledger/
	install -m 644 kmod/uapi/linux/*.h $(TO)/kmod/uapi/linux/

dkms: dkms-source
	@# Of the same version, from an older tree, DKMS would keep what it has built, and say that all is well.
	dkms build --force -m godwit -v $(VERSION) -k $(KVER)
	dkms install --force -m godwit -v $(VERSION) -k $(KVER)

clean:
	rm -rf $(B)
	find selftests -name __pycache__ -prune -exec rm -r {} +
	rm -f kmod/*.o kmod/ledger/*.o kmod/*.ko kmod/*.mod kmod/*.mod.c kmod/.*.cmd kmod/ledger/.*.cmd kmod/modules.order .*.cmd modules.order Module.symvers
