# SPDX-License-Identifier: GPL-2.0-only
# The verbs. Each delegates; `make demo` and `make check` first install what they lack.
DESTDIR ?=
KVER    ?= $(shell uname -r)
KDIR    ?= /lib/modules/$(KVER)/build
VERSION := $(shell sed -n 's/^PACKAGE_VERSION="\(.*\)"/\1/p' dkms.conf)
override B := $(abspath $(or $(B),build))
export B

.PHONY: all user module demo check check-native check-lab check-kernels check-debug check-static bench bench-lab \
	bench-kernel check-packaging check-packages deps man install uninstall deb dkms dkms-source clean

all: user module

user:
	$(MAKE) -C user $(B)/godwit

# For KVER: the running kernel by default.
module:
	$(MAKE) -C $(KDIR) M=$(CURDIR) modules

deps:
	selftests/deps.sh

# A guest moves from one QEMU to another, in the lab; beside it, QEMU's own migration of the same guest.
demo: deps user
	selftests/check.sh demo

# Unit tests, fuzzing, then the module and the migrations under KVM in the lab.
check: check-native check-lab

check-native: deps user check-packaging
	$(MAKE) -C selftests/unit check check-sanitize
	$(MAKE) -C selftests/fuzz check

check-lab: deps user check-packages
	selftests/deps.sh mmdebstrap zstd systemd udev
	selftests/check.sh kselftest
	selftests/check.sh check

# Pages, completion, what make install and the packages put where; a domain of a real libvirtd.
check-packaging: check-packages man
	selftests/deps.sh mandoc man-db zsh bash-completion lintian systemd \
		libvirt-daemon libvirt-daemon-driver-qemu libvirt-clients
	$(MAKE) -C selftests/guest
	/usr/bin/python3 -m pytest -p no:cacheprovider -q selftests/packaging

# The packages of this tree, and DKMS builds the module out of its own; the lab's tests install both.
check-packages: deps user deb
	selftests/dkms.sh

# The module and the main migrations on other kernels with other QEMUs: Debian 12's backport, Debian unstable.
check-kernels: deps user
	selftests/deps.sh mmdebstrap zstd
	selftests/kernels/check.sh

# How fast RAM moves, beside QEMU's own migration; on this host, without KVM or module, an hour or more; the first run also
# fetches unstable's QEMU. BENCH=--quick: a minute.
bench: deps user
	selftests/deps.sh iperf3 mmdebstrap
	$(MAKE) -C selftests/bench/stream
	selftests/bench/stream/bench.py $(BENCH)

# How long migrations take and stop the guest, by godwit and by QEMU, as the guest writes faster, and how much they slow it
# down; in the lab, an hour. BENCH=--quick: a quarter of that.
bench-lab: deps user
	selftests/deps.sh mmdebstrap zstd python3-pygal
	selftests/check.sh sweep $(BENCH)
	selftests/bench/migrate/draw.py
	selftests/check.sh slowdown

# What the module costs, against what QEMU does; in the lab, 15 minutes. BENCH=--quick: 3 minutes.
bench-kernel: deps
	selftests/bench/run.sh $(BENCH)

# In a kernel of its own, with KASAN, lockdep and kmemleak, where every allocation fails once. Builds it first.
check-debug:
	selftests/deps.sh flex bison bc libelf-dev mmdebstrap zstd
	selftests/debug/check

# What can be said without running it: sparse, checkpatch, coccicheck, shellcheck.
check-static:
	selftests/deps.sh sparse coccinelle shellcheck
	selftests/static/check

# The manual pages, in $(B)/packaging/man.
man:
	$(MAKE) -C packaging

# The tool, its pages, completion and units, below DESTDIR and PREFIX (/usr/local); packaging/Makefile has each directory.
install: user
	$(MAKE) -C packaging install

uninstall:
	$(MAKE) -C packaging uninstall

# godwit and godwit-dkms for this Debian, in $(B)/deb. Needs no root.
deb:
	selftests/deps.sh debhelper dh-dkms
	packaging/deb

# The module's source, and nothing that was built from it, in TO: where dkms looks for it by default.
dkms-source: TO ?= $(DESTDIR)/usr/src/godwit-$(VERSION)
dkms-source:
	install -d $(TO)/kmod/uapi/linux
	install -m 644 Kbuild dkms.conf LICENSE $(TO)/
	install -m 644 kmod/Kbuild $(filter-out %.mod.c,$(wildcard kmod/*.[ch])) $(TO)/kmod/
	install -m 644 kmod/uapi/linux/*.h $(TO)/kmod/uapi/linux/

dkms: dkms-source
	dkms install -m godwit -v $(VERSION) -k $(KVER)

clean:
	rm -rf $(B)
	rm -f kmod/*.o kmod/*.ko kmod/*.mod kmod/*.mod.c kmod/.*.cmd kmod/modules.order .*.cmd modules.order Module.symvers
