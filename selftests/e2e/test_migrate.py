# SPDX-License-Identifier: GPL-2.0-only
"""Guests that arrive: whoever writes their RAM, whatever it lies on."""
import contextlib
import os
import subprocess
import time

import godwit
import lab
import pytest


@pytest.fixture(autouse=True)
def module():
    godwit.load()
    yield
    godwit.unload()


def source(directory, append, **more):
    return lab.Qemu('src', directory=directory, append=append, **more).wait_ticks(2)


def migrate(src, dst, *options, **more):
    report = godwit.Run(src, dst, *options, **more).wait()
    assert report['verified']
    godwit.proof(src, dst)
    return report


def test_idle(directory):
    """Never touched memory stays a hole on both sides, and nobody needs much memory of their own."""
    src = source(directory, 'start=16 size=64 touch=24', ram=256)
    before = lab.allocated_bytes(src.ram[0].path)
    dst = godwit.destination(src)
    run = godwit.Run(src, dst)
    report = run.wait()
    assert lab.allocated_bytes(src.ram[0].path) <= before + (64 << 10)
    assert lab.allocated_bytes(dst.ram[0].path) <= before + (64 << 10)
    assert report['pages-untouched'] > 200 << 8
    assert report['pages'] == 256 << 8
    assert max(run.send.peak_kib, run.receive.peak_kib) < 64 << 10
    godwit.proof(src, dst)


def test_slower_than_the_link(directory):
    src = source(directory, 'start=16 size=32 touch=32 rate=300 random=1')
    lab.net()
    lab.link('rate', 200)
    report = migrate(src, godwit.destination(src))
    assert report['rounds'] >= 2
    assert report['downtime-ms'] > 0


def test_faster_than_the_link(directory):
    """It never converges, so nothing happens; with a limit that allows it, it migrates."""
    src = source(directory, 'start=16 size=48 touch=48 rate=6000')
    dst = godwit.destination(src)
    lab.link('rate', 60)
    godwit.Run(src, dst, '--max-rounds', '3').wait('not-converged')
    godwit.unharmed(src)
    dst.kill()
    report = migrate(src, godwit.destination(src, 'dst2'), '--max-rounds', '3', '--downtime-limit', '60000')
    assert report['pages-sent'] > 48 << 8


def rows_matter(src, row, make_dst, prepare=lambda: None, options=()):
    """With the row switched off the proof fails and the source runs on; with it, the guest arrives."""
    with godwit.row_off(row):
        dst = make_dst('dst')
        prepare()
        godwit.Run(src, dst, *options).wait('verify')
        dst.kill()
    src.wait_ticks(1).check()
    prepare()
    migrate(src, make_dst('dst2'), *options)


@pytest.mark.parametrize('kind', ['scsi_debug', 'brd', 'dm-crypt'])
def test_direct_disk(directory, kind):
    with lab.block_device(kind) as path, godwit.guests():
        devices = lab.disk(path)
        src = source(directory, 'start=16 size=16 touch=16 rate=50 disk=200', devices=devices)
        lab.net()
        lab.link('rate', 100)
        rows_matter(src, 'block', lambda name: godwit.destination(src, name, devices=devices))


def test_vmm_threads(directory):
    """virtio-blk through the page cache, virtio-rng: QEMU itself writes guest RAM."""
    path = lab.fill_disk('/dev/shm/disk', 8)
    devices = [*lab.disk(path, direct=False), *lab.rng()]
    src = source(directory, 'start=16 size=16 touch=16 rate=50 disk=100 rng=50', devices=devices)
    lab.net()
    lab.link('rate', 100)
    rows_matter(src, 'mapping', lambda name: godwit.destination(src, name, devices=devices))
    os.unlink(path)


def test_vhost_net(directory):
    src = source(directory, 'start=16 size=16 touch=16 rate=50 net=1', devices=lab.tap('src', 'tap0', vhost=True))
    lab.link('rate', 100)
    frames = lab.send_frames('src', 'tap0', count=100000, rate=200)
    src.wait_ticks(2)
    assert src.counters['net'] > 0
    try:
        rows_matter(src, 'mapping',
                    lambda name: godwit.destination(src, name, devices=lab.tap('dst', 'tap0', vhost=True)))
    finally:
        frames.kill()
        frames.wait()


class Writer:
    """Another process that maps the RAM, as a vhost-user backend does; it has stopped before the guest stops."""

    def __init__(self, vm, at, mib, rate, seconds, cgroup=None):
        self.process = lab.popen('src', [f'{godwit.TOOLS}/ramwriter', vm.ram[0].path, at, mib, rate, seconds], cgroup,
                                 stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == 'writing\n'

    def end(self):
        self.process.kill()
        self.process.wait()


def test_other_process(directory):
    src = source(directory, 'start=32 size=24 touch=24 rate=50')
    lab.net()
    lab.link('rate', 30)
    with contextlib.ExitStack() as writers, godwit.guests():
        def prepare():
            # Below the guest's own, so that the first round has passed when it is written again.
            writers.callback(Writer(src, 16, 8, 1000, 7).end)
        rows_matter(src, 'mapping', lambda name: godwit.destination(src, name), prepare)


def test_reclaim(directory):
    """A memory cgroup below the guest's size: what is swapped out takes its dirty bits along, and loses no data."""
    with lab.swap(256), lab.MemoryCgroup('vmm', 400) as cgroup, contextlib.ExitStack() as writers, godwit.guests():
        src = source(directory, 'start=48 size=24 touch=24 rate=100 random=1', cgroup=cgroup)
        lab.net()
        lab.link('rate', 100)

        def prepare():
            cgroup.limit(44)
            writers.callback(Writer(src, 16, 30, 6000, 4, cgroup).end)
        # What is swapped in and out counts as written each time, so a machine that thrashes has no low downtime.
        rows_matter(src, 'unmap', lambda name: godwit.destination(src, name), prepare, ['--downtime-limit', '20000'])
        assert cgroup.swapped_bytes() > 4 << 20


def test_two_backends(directory):
    ram = [lab.Ram(64, '/dev/shm/src.n0'), lab.Ram(64, '/dev/shm/src.n1')]
    src = source(directory, 'start=16 size=108 touch=100 rate=200 random=1', ram=ram)
    migrate(src, godwit.destination(src))


@contextlib.contextmanager
def mounted(kind, options, at):
    os.makedirs(at, exist_ok=True)
    lab.call('mount', '-t', kind, '-o', options, kind, at)
    try:
        yield
    finally:
        lab.call('umount', at)


@pytest.mark.parametrize('mib,size', [(64, '2M'), (1024, '1G')])
def test_hugetlbfs(directory, mib, size):
    lab.net()
    mount = f'/dev/hugepages-{size}'
    with mounted('hugetlbfs', f'pagesize={size}', mount), godwit.guests():
        src = source(directory, 'start=16 size=32 touch=32 rate=100', ram=[lab.Ram(mib, f'{mount}/src')])
        report = migrate(src, godwit.destination(src), '--downtime-limit', '10000')
        assert report['pages-sent'] >= 32 << 8


def test_huge_tmpfs(directory):
    """tmpfs with huge=always: the host maps 2 MiB at a time."""
    mount = '/dev/shm-huge'
    with mounted('tmpfs', 'huge=always', mount), godwit.guests():
        src = source(directory, 'start=16 size=32 touch=32 rate=100', ram=[lab.Ram(64, f'{mount}/src')],
                     devices=lab.rng())
        migrate(src, godwit.destination(src, devices=lab.rng()), '--downtime-limit', '10000')


def test_reboot_in_the_middle(directory):
    src = source(directory, 'start=16 size=32 touch=32 rate=300')
    lab.net()
    lab.link('rate', 40)
    dst = godwit.destination(src)
    run = godwit.Run(src, dst)
    run.send.wait_for('round 1')
    src.qmp('system_reset')
    report = run.wait()
    assert report['verified']
    time.sleep(0.1)
    assert src.query_status() == 'postmigrate'
    dst.wait_ticks(2).check()


def test_without_module(directory):
    """--pause needs no godwit.ko; without it, the message says how to load it."""
    godwit.unload()
    src = source(directory, 'start=16 size=32 touch=16 rate=300')
    run = godwit.Run(src, godwit.destination(src))
    run.wait('no-module')
    assert 'modprobe godwit' in run.send.said
    src.wait_ticks(1).check()
    dst = godwit.destination(src, 'dst2')
    report = godwit.Run(src, dst, '--pause').wait()
    assert report['rounds'] == 1
    godwit.load()
    godwit.proof(src, dst)


def test_paused_guest_stays_paused(directory):
    src = source(directory, 'start=16 size=16 touch=16')
    src.qmp('stop')
    dst = godwit.destination(src)
    report = godwit.Run(src, dst).wait()
    assert report['guest-was-paused']
    assert dst.query_status() == 'paused'
    dst.qmp('cont')
    dst.wait_ticks(1).check()


def test_linux_guest(directory):
    """Debian's own kernel, with disk (O_DIRECT), entropy and network devices at once."""
    kernel, initrd = lab.call(f'{lab.TREE}/selftests/guest/linux').split()
    with lab.block_device('scsi_debug') as path, godwit.guests():
        devices = [*lab.disk(path), *lab.rng(), *lab.tap('src', 'tap0', vhost=True)]
        src = lab.Qemu('src', directory=directory, ram=192, kernel=kernel, initrd=initrd, devices=devices,
                       append='console=ttyS0 quiet size=32 rate=200 disk=100').wait_ticks(2, timeout=140)
        lab.link('rate', 200)
        there = [*lab.disk(path), *lab.rng(), *lab.tap('dst', 'tap0', vhost=True)]
        dst = godwit.destination(src, devices=there)
        before = src.counters
        report = godwit.Run(src, dst).wait()
        assert report['verified']
        dst.wait_ticks(3)
        assert dst.counters['errors'] == 0 and not dst.complaints
        assert dst.ticks > before['tick'] and dst.counters['disk'] > before['disk']
        assert src.query_status() == 'postmigrate'
