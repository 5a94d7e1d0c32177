# SPDX-License-Identifier: GPL-2.0-only
"""A process beside QEMU that maps the guest's RAM: what may write it there, unseen, ends the migration in words."""
import contextlib
import os
import subprocess

import godwit
import lab
import pytest
from ours import proved

pytestmark = pytest.mark.usefixtures('module')
LATER = ['--downtime-limit', '60000']	# whatever is left then: it comes to the stop after one round


class Holder:
    """Does what it is told (tools/ramholder.c) with the RAM of a VM."""

    def __init__(self, vm):
        self.process = lab.popen('src', [godwit.tool('ramholder'), vm.ram[0].path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    pid = property(lambda self: self.process.pid)

    def does(self, *lines):
        for line in lines:
            self.process.stdin.write(f'{line}\n')
            self.process.stdin.flush()
            assert self.process.stdout.readline() == 'done\n', line
        return self

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@contextlib.contextmanager
def holder(vm):
    held = Holder(vm)
    try:
        yield held
    finally:
        held.end()


def refused(run, phase, *words):
    report = run.wait('pinned')
    for word in words:
        assert word in run.send.said, run.send.said
    proved(report['phase'] == phase, f'it was refused in phase {report["phase"]}, not {phase}')


def test_pinned(pair):
    """By a device of its own, for which a fixed buffer of an io_uring stands here."""
    src, dst = pair
    with holder(src) as other:
        other.does('map', 'pin')
        refused(godwit.Run(src, dst), 'pre-copy', f'process {other.pid} (ramholder)', 'fixed buffers', 'of ram0', 'device_del')
        godwit.unharmed(src)


def test_device_without_guest_ram(pair):
    """As OVS with DPDK has one: the guest arrives, beside that process."""
    src, dst = pair
    lab.modules('vfio')
    with holder(src) as other, godwit.guests():
        other.does('map', 'open /dev/vfio/vfio')
        assert '/dev/vfio/vfio' in os.readlink(f'/proc/{other.pid}/fd/4')
        assert godwit.Run(src, dst).wait()['verified']
        godwit.proof(src, dst)


def test_device_that_pins_nothing(pair):
    """A UIO device writes by physical address. The lab has none: its node is one that any user can open."""
    src, dst = pair
    node = '/dev/uio0'
    if not os.path.exists(node):
        os.mknod(node, 0o600 | 0o020000, os.makedev(1, 3))
    with holder(src) as other:
        other.does('map', f'open {node}')
        refused(godwit.Run(src, dst), 'pre-copy', f'process {other.pid} (ramholder)', node, 'vfio-pci')
        godwit.unharmed(src)


def test_debugger(pair):
    """Of QEMU: refused before anything is begun."""
    src, dst = pair
    with holder(src) as debugger:
        debugger.does(f'trace {src.pid}')
        refused(godwit.Run(src, dst), 'connect', f'process {debugger.pid} (ramholder) traces QEMU', 'detach')
    godwit.unharmed(src)


def test_debugger_of_another(pair):
    src, dst = pair
    with holder(src) as other, holder(src) as debugger:
        other.does('map')
        debugger.does(f'trace {other.pid}')
        refused(godwit.Run(src, dst), 'pre-copy', f'process {debugger.pid} (ramholder) traces process {other.pid} (ramholder)', 'detach')
    godwit.unharmed(src)


def test_zeros_in_a_huge_page(directory):
    """
    One write of its makes a page of 1 GiB dirty, which as data would take the link seven minutes: what is zeros in it does not
    count, as it is read and not sent.
    """
    mount, limit = '/dev/hugepages-1G', 200000	# an emulated host may take a minute to read it
    with lab.mounted('hugetlbfs', 'pagesize=1G', mount), godwit.guests():
        src = lab.Qemu('src', directory=directory, append='start=16 size=16 touch=16 rate=50', ram=[lab.Ram(1024, f'{mount}/src')])
        dst = godwit.destination(src.wait_ticks(1))
        lab.net()
        lab.link('rate', 20)
        with holder(src) as other:
            other.does('map')
            run = godwit.Run(src, dst, '--downtime-limit', str(limit), '--max-rounds', '2', '--postcopy', 'off')
            run.send.wait_round(1)
            other.does('write 900')
            assert run.send.asked_round() == 1, run.send.said
            report = run.wait()
            first, *later = report['rounds']
            assert report['verified'] and sum(r['duplicate'] for r in later) > 200 << 10, report['rounds']
            assert first['expected-downtime'] < limit, first
            godwit.proof(src, dst)


@pytest.mark.parametrize('phase', ['round', 'stream'])
def test_at_the_stop(pair, phase):
    """
    It begins only when RAM is sent, by a process that has mapped the RAM long before, or that maps it when the last round
    but one is over: refused with the guest stopped, which then runs on.
    """
    src, dst = pair
    with holder(src) as other:
        if phase == 'round':
            other.does('map')
        run = godwit.start_in(phase, pair, *(LATER if phase == 'round' else []))
        other.does(*(['map'] if phase == 'stream' else []), 'pin')
        lab.link('clear')
        refused(run, 'switchover', f'process {other.pid} (ramholder)', 'fixed buffers')
        godwit.unharmed(src)


def test_in_rounds(pair):
    """A process that maps the RAM in a round is looked at when the round is over, while the guest runs."""
    src, dst = pair
    with holder(src) as other:
        run = godwit.start_in('later', pair)
        other.does('map', 'pin')
        refused(run, 'pre-copy', f'process {other.pid} (ramholder)', 'fixed buffers')
        godwit.unharmed(src)


@pytest.mark.parametrize('phase', ['pre-copy', 'switchover'])
def test_qemu_opens_a_device(pair, phase):
    """
    In a round, as for a device that is plugged; an entropy source stands for it here. Where a mapping came with it that is found
    when the round is over; else at the stop.
    """
    src, _ = pair
    lab.modules('vfio')
    with holder(src) as other:
        run = godwit.start_in('round', pair, *LATER)
        src.qmp('object-add', **{'qom-type': 'rng-random', 'id': 'device', 'filename': '/dev/vfio/vfio'})
        if phase == 'pre-copy':
            other.does('map')
        lab.link('clear')
        refused(run, phase, 'VFIO', '/dev/vfio/vfio', 'device_del')
    src.qmp('object-del', id='device')
    godwit.unharmed(src)
