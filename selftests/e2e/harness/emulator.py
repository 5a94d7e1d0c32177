# SPDX-License-Identifier: GPL-2.0-only
"""
What the lab's emulated CPU was seen to do to guests and nothing of ours can have done (docs/architecture/lab.md).
Evidence, not a guess; which failures get a second try for it says second_try.py.
"""
import re

import qmp


class NoFirstTick(TimeoutError):
    """A source never said anything: no migration has touched it yet."""


def entry():
    """Where this host's KVM enters guests: addresses. No guest ever runs there."""
    with open('/proc/kallsyms', encoding='ascii') as f:
        symbols = sorted((int(line.split()[0], 16), line.split()[2]) for line in f if line.endswith('[kvm_amd]\n'))
    for (begin, name), (end, _) in zip(symbols, symbols[1:]):
        if name == '__svm_vcpu_run':
            return range(begin, end)
    raise LookupError('kvm_amd has no __svm_vcpu_run')


def deaf(first, second, waiting):
    """
    The first CPU halts with interrupts on, and did not leave that state for a second, while its interrupt controller holds
    one for it: KVM has lost it, whatever was migrated. What Qemu.cpus() returns.
    """
    halted = [cpu for (cpu, exits), then in zip(first[:1], second) if (cpu, exits) == then and 'HLT=1' in cpu
              and int(re.search(r'FL=(\w+)', cpu)[1], 16) & 0x200]
    pending = re.search(r'^IRR\t.*\d', waiting, re.M) or any(
        int(irr, 16) & ~int(imr, 16) for irr, imr in re.findall(r'^pic\d: irr=(\w+) imr=(\w+)', waiting, re.M))
    return bool(halted and pending)


def beside_itself(cpus, host):
    """A CPU that is where only its host can be: an exit left the host's registers in its VMCB. RIP may be cut to 32 bits."""
    low = range(host.start & 0xffffffff, host.stop & 0xffffffff)
    return any(int(ip, 16) & 0xffffffff in low for cpu, _ in cpus for ip in re.findall(r'[RE]IP=(\w+)', cpu))


def before_its_switchover(vm):
    """
    A source whose vCPUs no sender or migration has stopped yet. One that KVM refused to run has stopped by itself
    ("internal-error"), which is certain only while neither can have stopped it: without a sender, or while a migration of
    QEMU's still runs.
    """
    if vm.incoming or vm.put_back:
        return False
    if not vm.was_stopped():
        return True
    return vm.query_status() == 'internal-error' and (
        not vm.sender or vm.qmp('query-migrate').get('status') in ('setup', 'active'))


def evidence(vm):
    """What the emulator has done to a source before its switchover, or None."""
    if vm.process.poll() is not None:
        return None	# a process that crashed is never the emulator's
    try:
        if not before_its_switchover(vm):
            return None
        vm.hang_up()	# a test that was cut short may not have heard every answer
        if vm.query_status() == 'internal-error':
            return f'KVM does not run its registers: {vm.said_on_stderr()}'
        cpus = vm.cpus()
        if beside_itself(cpus[1], entry()):
            return f'a guest with the registers of its host: {cpus[1]}'
        if vm.query_status() == 'running' and deaf(*cpus):
            return f'a guest that is deaf: {cpus[1]}\n{cpus[2]}'
    except (OSError, LookupError, TimeoutError, qmp.QmpError):
        pass	# a QEMU that does not answer is no evidence
    return None
