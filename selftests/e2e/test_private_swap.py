# SPDX-License-Identifier: GPL-2.0-only
"""A guest whose private RAM is swapped out while it is sent."""
import ctypes
import os
import signal

import godwit
import lab
import pytest
from guestram import address_of
from kinds import KINDS
from ours import proved

LIBC = ctypes.CDLL(None, use_errno=True)
PROCESS_MADVISE = 440
MADV_PAGEOUT = 21
BUFFERS = 1024	# pages that the guest has its disk read into, one after the other
WRITTEN = 300	# of them
PATIENT = ['--peer-timeout', '600']


def swapped_out():
    """Pages that this host ever has."""
    with open('/proc/vmstat', encoding='ascii') as f:
        return next(int(line.split()[1]) for line in f if line.startswith('pswpout '))


def page_out(vm):
    """All of its RAM, as reclaim does it; more than once, as the guest and the kernel hold on to pages for moments."""
    ram = (ctypes.c_size_t * 2)(address_of(vm), vm.ram[0].mib << 20)
    before = swapped_out()
    fd = os.pidfd_open(vm.pid)
    try:
        for _ in range(3):
            paged_out = LIBC.syscall(PROCESS_MADVISE, fd, ram, 1, MADV_PAGEOUT, 0)
            assert paged_out > 0, os.strerror(ctypes.get_errno())
    finally:
        os.close(fd)
    assert swapped_out() - before >= WRITTEN, swapped_out() - before


def reads(vm, more):
    """Until the guest has had its disk read so often since now."""
    vm.wait_ticks()
    before = vm.counters['disk']
    while vm.counters['disk'] < before + more:
        vm.wait_ticks()


def written_and_swapped_out(src, dst, touched):
    """
    A migration, in which QEMU writes to pages that the destination has, and they are swapped out before the next harvest: the
    sender stands still meanwhile, in a round that has none of them, as the disk has rested since before the first one. The vCPU
    writes to none of them. It may read them afterwards, and has them read in again, with entries that have no dirty bit; or it
    leaves them alone.
    """
    src.command('disk=0')
    src.wait_ticks(1)
    run = godwit.Run(src, dst, '--downtime-limit', '1', '--max-rounds', '10000', *PATIENT, receive_options=PATIENT)
    run.send.wait_round(3)
    assert src.query_status() == 'running', 'no round was left'
    run.send.freeze()
    src.command('disk=1000')
    reads(src, WRITTEN)
    src.command('disk=0 verify=0')
    src.wait_ticks(1)
    page_out(src)
    src.wait_ticks(1)
    if touched:
        src.check()
    run.send.kill(signal.SIGCONT)
    godwit.control(run.send.pid, execute='set', arguments={'downtime-limit': 60000})
    return run


@pytest.mark.usefixtures('module')
@pytest.mark.parametrize('touched', [False, True], ids=['left', 'touched'])
def test_written_by_qemu(directory, qemu, touched):
    """
    An entry that goes takes its dirty bit along: row "unmap". What a vCPU has written KVM has in its log, so this takes a disk
    that QEMU reads for the guest, and a swap between the write and the harvest. And no vCPU may touch such a page before the
    harvest, if a missing row is to be seen: on Linux 6.12 or newer a swapped page comes back writable also for a read, and
    KVM's log has all that it maps writable.
    """
    with lab.swap(256), godwit.guests():
        devices = lab.disk(lab.fill_disk('/dev/shm/disk', 8), direct=False)
        src = lab.Qemu('src', directory=directory, qemu=qemu, ram=[KINDS['anonymous']('src')], devices=devices,
                       append='start=16 size=16 touch=8 rate=50 disk=1000').wait_ticks(2)
        reads(src, BUFFERS)
        lab.net()
        lab.link('rate', 100)
        if not touched:
            with godwit.row_off('unmap'):
                dst = godwit.destination(src, qemu=qemu, devices=devices)
                written_and_swapped_out(src, dst, touched).never_arrives('verify')
            src.command('verify=1000')
            src.wait_ticks(1).check()
        dst = godwit.destination(src, 'dst2', qemu=qemu, devices=devices)
        proved(written_and_swapped_out(src, dst, touched).wait()['verified'], 'a page was missed')
        godwit.proof(src, dst, stopped='paused')
    os.unlink('/dev/shm/disk')
