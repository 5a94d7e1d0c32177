# SPDX-License-Identifier: GPL-2.0-only
"""What guests are: of several vCPUs, with RAM on both sides of the PCI hole; and what they see of a blackout."""
import os
import struct
import threading
import time

import godwit
import lab
import pytest
from ours import proved

pytestmark = pytest.mark.usefixtures('module')
PAGE = 4096
CONTENT_PAGE = 0x50574447	# guest/content.h


@pytest.mark.parametrize('cpus', [2, 4])
def test_vcpus(directory, cpus):
    """Each of them writes while RAM is sent, and goes on with its own registers and its own RAM."""
    lab.net()
    src = lab.Qemu('src', directory=directory, cpus=cpus,
                   append=f'start=16 size=32 touch=16 rate={400 // cpus} smp={cpus}').wait_ticks(2)
    dst = godwit.destination(src, cpus=cpus)
    lab.link('rate', 100)
    before = src.counters
    report = godwit.Run(src, dst, '--downtime-limit', '1').converge_after(1).wait()
    assert report['verified'] and len(report['rounds']) >= 3
    assert before['smp'] == cpus and src.counters['least'] > before['least'] + 20, 'a vCPU hardly wrote'
    godwit.proof(src, dst)
    least = dst.counters['least']
    assert dst.wait_ticks(2).counters['least'] > least > src.counters['least'], 'a vCPU stands still'


def writes(path, begin, end, step=4):
    """{offset: number} of the writes that the pattern guest's pages there hold, of each step-th page."""
    found = {}
    with open(path, 'rb', buffering=0) as f:
        for at in range(begin, end, step * PAGE):
            kind, _, number = struct.unpack('<3I', os.pread(f.fileno(), 12, at))
            if kind == CONTENT_PAGE:
                found[at] = number
    return found


def test_both_sides_of_the_pci_hole(directory):
    """KVM has two slots of one RAM file: 64 MiB at 0 and the rest at 4 GiB."""
    lab.net()
    more = {'machine': 'q35,max-ram-below-4g=64M', 'ram': [lab.Ram(112, '/dev/shm/src.ram')], 'cpus': 2}
    src = lab.Qemu('src', directory=directory, append='start=16 size=16 high=24 touch=40 rate=300 random=1 smp=2',
                   **more).wait_ticks(2)
    more.pop('ram')
    dst = godwit.destination(src, **more)
    sides = [(16 << 20, 32 << 20), (64 << 20, 88 << 20)]
    lab.link('rate', 150)
    run = godwit.Run(src, dst, '--downtime-limit', '1')
    run.send.wait_round(1)
    before = [writes(src.ram[0].path, *side) for side in sides]
    report = run.converge_after(1).wait()
    assert report['verified'] and len(report['rounds']) >= 3
    for side, then in zip(sides, before):
        now = writes(src.ram[0].path, *side)
        assert sum(now[at] != then.get(at) for at in now) > 20, f'hardly anything was written to {side} while RAM was sent'
        assert writes(dst.ram[0].path, *side).keys() >= now.keys()
    godwit.proof(src, dst)


class Watch:
    """
    What is seen of guests from outside: for each VM, when its serial line brought something (self.life), and when its whole
    tick lines were there (self.ticks: pairs with the counters). Milliseconds of this host's clock. self.stall: the longest that
    this host did not let it look.
    """

    def __init__(self, *vms):
        self.life, self.ticks, self.stall = {vm: [] for vm in vms}, {vm: [] for vm in vms}, 0
        self._rest = dict.fromkeys(vms, b'')
        self._files = {vm: open(vm.log, 'rb') for vm in vms}	# pylint: disable=R1732
        for f in self._files.values():
            f.seek(0, os.SEEK_END)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        before = time.monotonic()
        while not self._end.wait(0.004):
            self.stall, before = max(self.stall, 1000 * (time.monotonic() - before)), time.monotonic()
            for vm, f in self._files.items():
                data = f.read()
                if data:
                    self._note(vm, 1000 * time.monotonic(), data)

    def _note(self, vm, now, data):
        self.life[vm].append(now)
        *lines, self._rest[vm] = (self._rest[vm] + data).split(b'\n')
        for line in (line.decode(errors='replace').strip() for line in lines):
            if lab.TICK.match(line):
                self.ticks[vm].append((now, {k: int(v) for k, v in (w.split('=') for w in line.split())}))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()
        for f in self._files.values():
            f.close()

    def silence(self):
        """The longest that a guest that runs is not heard of on this host, now."""
        return max(b - a for times in self.life.values() for a, b in zip(times, times[1:]))

    def lag(self, vm):
        """What this host's clock is ahead of the guest's, by the line that came soonest: others were held up on their way."""
        return min(now - counters['clock_ms'] for now, counters in self.ticks[vm])

    def stutter(self):
        """The longest gap that a guest has seen that runs, now. Its first ticks after a blackout tell of that."""
        return max(counters['gap_us'] for said in self.ticks.values() for _, counters in said[2:]) / 1000


class Blackout:
    """
    One migration with a long blackout, seen from outside and by the guest; milliseconds.
    downtime, parts     what the report says
    seen                from the last that was heard of the guest at the source to the first at the destination
    hidden              how long the guest's own clock stood still
    gap                 the longest gap that it saw by that clock
    """

    def __init__(self, src, dst, mode):
        with Watch(src, dst) as self.watch:
            # The first round takes seconds, in which the guest writes all its pages again: they are the last one.
            self.report = godwit.Run(src, dst, '--downtime-limit', '60000', '--max-rounds', '1', '--device-state', mode,
                                     verify=False).wait()
            dst.wait_ticks(4)
        assert self.report['device-state-saved'] == (mode == 'save')
        self.downtime, self.parts = self.report['downtime'], self.report['blackout']
        self.seen = self.watch.life[dst][0] - self.watch.life[src][-1]
        self.hidden = self.watch.lag(dst) - self.watch.lag(src)
        self.gap = max(counters['gap_us'] for _, counters in self.watch.ticks[dst][:2]) / 1000
        self.slack = max(0.2 * self.downtime, 20)

    def agree(self, noise, *pairs):
        """
        (One, other, how many measured times one is the sum of): these must be within a fifth of the blackout or 20 ms. False: a
        pair is not, but by no more than the noise of its times, for which this host was seen to hold up a guest that runs, or
        the test: nothing can be told from it.
        """
        noise = max(noise, self.watch.stall)
        off = [(abs(one - other), times) for one, other, times in pairs]
        said = f'{", ".join(f"{one:.0f} and {other:.0f}" for one, other, _ in pairs)}: downtime {self.downtime:.0f}, ' \
               f'seen {self.seen:.0f}, hidden {self.hidden:.0f}, gap {self.gap:.0f}, slack {self.slack:.0f}, noise {noise:.0f}, ' \
               f'stall {self.watch.stall:.0f}, {self.parts}'
        print(f'\n  {said}')
        assert all(ms <= self.slack + times * noise for ms, times in off), said
        return max(off)[0] <= self.slack


MEASURED = 5	# times at most, on a host that is too busy


def measured(vm, mode, agree, **more):
    """
    Moves the guest, until the blackout could be measured; returns (source, destination) of the last. agree(blackout): as
    above.
    """
    for _ in range(MEASURED):
        dst = godwit.destination(vm, 'again' if vm.name == 'dst' else 'dst', **more)
        if agree(Blackout(vm, dst, mode)):
            return vm, dst
        proved(vm.query_status() == godwit.STOPPED[mode], f'the source is {vm.query_status()}')
        vm.kill()
        vm = dst
    raise AssertionError(f'this host is too busy: nothing could be told from {MEASURED} blackouts')


def of_age(vm, ms=8000):
    """
    Before Linux 6.7 KVM does not set a TSC that comes within a second of what a VM that is as old as the destination would
    have: it takes that for an attempt to give all vCPUs one value, and the guest's clock jumps. So the guest must be older
    than its destination by more than that and the blackout.
    """
    while vm.counters['clock_ms'] < ms:
        vm.wait_ticks(1)


@pytest.mark.parametrize('mode', ['migrate', 'save'])
def test_blackout(directory, qemu, mode):
    """The downtime that is told is how long nothing is heard of the guest; and its TSC stands still as long, so it sees no gap."""
    lab.net()
    src = lab.Qemu('src', directory=directory, qemu=qemu, ram=64,
                   append='start=16 size=6 touch=6 rate=1200 verify=100 ticks=25').wait_ticks(8)
    lab.link('rate', 30)
    of_age(src)

    def agree(b):
        return b.agree(b.watch.silence(), (b.seen, b.downtime, 1), (b.hidden, b.downtime, 1), (b.gap + b.hidden, b.downtime, 2))
    godwit.proof(*measured(src, mode, agree, qemu=qemu), stopped=godwit.STOPPED[mode])


def test_linux(directory, qemu):
    """
    Debian's kernel on two vCPUs, half of its RAM above 4 GiB; there, and on, in either mode. Its clock (kvmclock) goes on
    in the blackout until its device state is taken: in migrate mode that is as the last round begins, in save mode at the stop.
    """
    lab.net()
    kernel, initrd = lab.call(f'{lab.TREE}/selftests/guest/linux').split()
    more = {'qemu': qemu, 'cpus': 2, 'machine': 'q35,max-ram-below-4g=128M', 'kernel': kernel, 'initrd': initrd,
            'append': 'console=ttyS0 quiet mitigations=off size=16 rate=1500'}
    vm = lab.Qemu('src', directory=directory, ram=256, **more).wait_ticks(2, timeout=140)
    lab.link('rate', 80)

    def agree(b):
        hidden = b.downtime if b.report['device-state-saved'] else sum(b.parts[part] for part in ('ram', 'save', 'load'))
        return b.agree(b.watch.stutter(), (b.gap + b.hidden, b.downtime, 2), (b.hidden, hidden, 1))
    for mode in godwit.STOPPED:
        before = vm.counters
        vm, dst = measured(vm, mode, agree, **more)
        proved(vm.query_status() == godwit.STOPPED[mode], f'the source is {vm.query_status()}')
        dst.no_errors()
        assert dst.counters['smp'] == 2 and dst.counters['least'] > vm.counters['least'] > before['least']
        vm.kill()
        vm = dst
