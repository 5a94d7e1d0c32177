# SPDX-License-Identifier: GPL-2.0-only
"""The source of most tests, kept from one to the next as long as it is well."""
import godwit
import lab

WRITES = 'start=32 size=16 touch=10 rate=1500'	# what most guests do: more than a slow link carries
# As an operator may have it; godwit needs both otherwise, and puts both back.
PARAMETERS = {'max_bandwidth': 77 << 20, 'downtime_limit': 123, 'cpu_throttle_initial': 11}
CAPABILITIES = ('auto-converge', 'xbzrle')


def healthy(directory, **more):
    """
    A guest that runs and writes: that of the test before, if it was found unharmed by all that was done to it, which says
    more than a new one; else a new one.
    """
    for vm in lab.running:
        if vm.healthy and vm.kind == more:
            vm.directory, vm.healthy, vm.sender, vm.put_back = directory, False, None, vm.was_stopped()
            vm.destinations.clear()
            return vm.wait_ticks(1)
    lab.net()
    vm = lab.Qemu('src', directory=directory, append=WRITES, **more).wait_ticks(2)
    vm.kind = more
    vm.qmp('migrate-set-parameters', **PARAMETERS)
    vm.qmp('migrate-set-capabilities', capabilities=[{'capability': c, 'state': True} for c in CAPABILITIES])
    godwit.note(vm)
    return vm


def plain(directory, append, **more):
    """A new guest with 64 MiB, which runs; nothing of it was set."""
    vm = lab.Qemu('src', directory=directory, ram=64, append=append, **more).wait_ticks(1)
    godwit.note(vm)
    return vm
