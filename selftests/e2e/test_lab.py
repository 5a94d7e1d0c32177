# SPDX-License-Identifier: GPL-2.0-only
"""The harness itself: a guest runs, errors are noticed, QEMU's own migration works."""
import re
import subprocess
import sys
import time

import emulator
import godwit
import lab
import pytest

sys.path.append(f'{lab.TREE}/selftests/lab')
import awake	# noqa: E402 pylint: disable=wrong-import-position

native = pytest.mark.native


def test_migrates_with_qemu(directory):
    """
    256 MiB over the link, by QEMU alone: the guest goes on and finds nothing wrong. Under KVM: with TCG a guest of QEMU 7.2
    was found to have lost its last two writes.
    """
    begin = time.monotonic()
    src = lab.Qemu('src', ram=256, append='touch=64 size=192 rate=200', directory=directory).wait_ticks(2)
    print(f'\n  guest to its second tick: {time.monotonic() - begin:.1f} s')
    dst = lab.Qemu('dst', 'dst', ram=256, incoming=True, directory=directory)
    took = lab.qemu_migrate(src, dst)
    print(f'  QEMU moved {took.info["ram"]["transferred"] >> 20} MiB in {took.total_ms:.0f} ms, '
          f'downtime {took.downtime_ms:.0f} ms')
    ticks = src.ticks
    dst.wait_ticks(2).check()
    assert dst.ticks > ticks
    assert dst.counters['pages'] > src.counters['pages']
    assert src.query_status() == 'postmigrate'


@native
def test_a_benchmark_reads_what_the_guest_has_written(directory):
    """In its RAM, which says it more often than the guest does. The guest writes no more then, and says as much."""
    sys.path.append(f'{lab.TREE}/selftests/bench/migrate')
    # Here, as it wants no byte code of what is imported behind it.
    import slowdown	# pylint: disable=import-outside-toplevel
    vm = lab.Qemu('src', append='start=16 size=16 touch=16 rate=1000', directory=directory).wait_ticks(2)
    vm.command('rate=0')
    vm.wait_ticks(2)
    writes = slowdown.Writes(vm, slowdown.counter())
    writes.stop()
    assert writes.seen[-1][1] == vm.counters['pages'] > 0


@native
def test_guest_notices_a_lost_page(directory):
    """Put an old page back, as a migration does that missed a write."""
    vm = lab.Qemu('src', append='start=16 size=16 touch=16 rate=1000', directory=directory).wait_ticks(1)
    with open(vm.ram[0].path, 'r+b', buffering=0) as ram:
        vm.qmp('stop')
        ram.seek(20 << 20)
        old = ram.read(4096)
        vm.qmp('cont')
        vm.check()
        while vm.counters['pages'] < 2 * 4096 + 2048:
            vm.wait_ticks()
        vm.command('rate=0')
        ram.seek(20 << 20)
        ram.write(old)
        with pytest.raises(AssertionError, match='^src: its RAM is wrong in the same places: .*page 1024 at 1400000'):
            godwit.check_moved(vm, vm)
        # Of the guest that complains, and of the one that it was before.
        other = lab.Qemu('other', append='start=16 size=16', directory=directory).wait_ticks(1)
        with pytest.raises(AssertionError, match='^src: [0-9]+ errors: .*page 1024 at 1400000'):
            godwit.check_moved(other, vm)
        write = int(re.search(r'not of write (\d+)', vm.complaints[0])[1])
        ram.seek(20 << 20)
        ram.write(godwit.page_of(1024, write))
        with pytest.raises(AssertionError, match='^RAM holds what it should'):
            godwit.check_moved(vm, vm)


@native
@pytest.mark.parametrize('cpu, irr, imr, lost', [
    ('EIP=00101702 EFL=00000213 [----A-C] CPL=0 II=0 A20=1 SMM=0 HLT=1', '01', 'fe', True),
    ('EIP=00101702 EFL=00000213 [----A-C] CPL=0 II=0 A20=1 SMM=0 HLT=1', '00', 'fe', False),	# nothing waits
    ('EIP=00101702 EFL=00000213 [----A-C] CPL=0 II=0 A20=1 SMM=0 HLT=1', '01', 'ff', False),	# it is masked
    ('EIP=00101702 EFL=00000013 [----A-C] CPL=0 II=0 A20=1 SMM=0 HLT=1', '01', 'fe', False),	# interrupts are off
    ('EIP=00101702 EFL=00000213 [----A-C] CPL=0 II=0 A20=1 SMM=0 HLT=0', '01', 'fe', False)])	# it runs
def test_knows_a_deaf_cpu(cpu, irr, imr, lost):
    """What is given a second try as the emulator's own fault: no more than that."""
    waiting = f'ISR\t (none)\r\nIRR\t (none)\r\npic1: irr=00 imr=ff\r\npic0: irr={irr} imr={imr} isr=00\r\n'
    assert emulator.deaf([(cpu, 7)], [(cpu, 7)], waiting) == lost
    assert not emulator.deaf([(cpu, 7)], [(cpu, 8)], waiting), 'it came back'
    in_lapic = waiting.replace('IRR\t (none)', 'IRR\t 236')
    assert emulator.deaf([(cpu, 7)], [(cpu, 7)], in_lapic) == ('HLT=1' in cpu and 'FL=00000213' in cpu)


@native
@pytest.mark.parametrize('irr, ppr, waiting', [('236 251 ', '0x10', {236, 251}), ('236 251 ', '0xe0', {251}), ('236 ', '0xec', set()),
                                               (' (none)', '0x00', set()), ('48 ', '0x20', {48})])
def test_knows_untaken_interrupts(irr, ppr, waiting):
    """What the lab's emulated CPUs are sent an NMI for."""
    timer = 'Timer\t DCR=0x3 (divide by 16) initial_count = 245514 current_count = 0'
    lapic = f'{timer}\r\nISR\t (none)\r\nIRR\t {irr}\r\n\r\nAPR 0x00 TPR 0x10 DFR 0x0f LDR 0x01 PPR {ppr}\r\n'
    assert awake.untaken(lapic) == {(v, timer) for v in waiting}
    assert not awake.untaken(lapic) & awake.untaken(lapic.replace('245514', '245515')), 'it was set anew'


@native
@pytest.mark.parametrize('ip, lost', [('EIP=c044b20c', True), ('RIP=ffffffffc044b20c', True),
                                      ('EIP=c044b16f', False), ('EIP=c044b300', False), ('RIP=ffffffff8107e744', False)])
def test_knows_the_registers_of_the_host(ip, lost):
    cpu = f'{ip} EFL=00010246 [---Z-P-] CPL=0 II=0 A20=1 SMM=0 HLT=0'
    assert emulator.beside_itself([(cpu, 7)], range(0xffffffffc044b170, 0xffffffffc044b300)) == lost


def test_finds_where_guests_are_entered():
    there = emulator.entry()
    assert there.start >> 32 == 0xffffffff and 0x50 < len(there) < 0x1000


@native
def test_unwritten_memory_stays_a_hole(directory):
    vm = lab.Qemu('src', append='start=32 size=64 touch=4', directory=directory).wait_ticks(1)
    inside = [(b, e) for b, e in lab.extents(vm.ram[0].path) if b < 96 << 20 and e > 32 << 20]
    assert inside == [(32 << 20, 36 << 20)]


def test_kernel_log_is_watched(around):
    with open('/dev/kmsg', 'w', encoding='ascii') as f:
        f.write('<7>BUG: not a real one, test_lab.py says it\n')
    with pytest.raises(AssertionError, match='not a real one'):
        around.check()


def test_link_is_shaped():
    lab.net()

    script = f'''
import socket, time
begin = time.monotonic()
try:
    socket.create_connection(("{lab.ADDRESS['dst']}", 9), 10)
except ConnectionRefusedError:
    print(1e3 * (time.monotonic() - begin))
except OSError:
    pass
'''

    def ping():
        """Milliseconds until a closed port says so: one round trip."""
        done = lab.popen('src', ['/usr/bin/python3', '-S', '-c', script], stdout=subprocess.PIPE, text=True)
        said = done.communicate(timeout=30)[0]
        return float(said) if said else None

    plain = min(ping() for _ in range(5))
    lab.link('delay', 400)
    lab.link('rate', 100)
    assert ping() >= 800 > plain
    lab.link('down')
    assert ping() is None
    lab.link('clear')
    assert min(ping() for _ in range(5)) < 800
