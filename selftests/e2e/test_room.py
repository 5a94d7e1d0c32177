# SPDX-License-Identifier: GPL-2.0-only
"""The destination has no room for the guest's RAM: both ends say so, and the guest runs on at the source."""
import contextlib
import dataclasses
import os

import godwit
import lab
import paused
import pytest
import relay

pytestmark = [pytest.mark.usefixtures('module'), pytest.mark.compared]
SOURCE, DESTINATION = '/dev/room-src', '/dev/room-dst'


@dataclasses.dataclass
class Unreserved(lab.Ram):
    """QEMU starts although there are not enough huge pages for all of it."""

    def object(self, number):
        return f'{super().object(number)},reserve=off'


@contextlib.contextmanager
def two_mounts(kind, options, smaller):
    """The source's, and the destination's with one more option."""
    lab.net()
    with contextlib.ExitStack() as stack:
        for at, more in (SOURCE, ''), (DESTINATION, f',{smaller}'):
            os.makedirs(at, exist_ok=True)
            lab.call('mount', '-t', kind, '-o', options + more, kind, at)
            stack.callback(lab.call, 'umount', at)
        stack.enter_context(godwit.guests())
        yield


def refused(src, dst, *words):
    """
    It is known before a byte moves, with numbers. To a receiver that cannot tell it shows later: neither end dies, both say why,
    and the source is as before.
    """
    run = godwit.Run(src, dst)
    run.wait('no-room')
    assert 'MiB' in run.send.said and not lab.allocated_bytes(dst.ram[0].path), run.send.said
    godwit.unharmed(src)
    run.kill()
    between = relay.Watching((lab.ADDRESS['dst'], godwit.PORT), blind=True)
    try:
        run = godwit.Run(src, dst, to=between.address)
        run.wait('no-room')
    finally:
        between.stop()
    assert run.receive.process.returncode == godwit.EXIT['no-room'], run.receive.said
    for said in run.send.said, run.receive.said:
        assert 'no room at the destination for RAM "ram0"' in said
        assert all(word in said for word in words), said
    godwit.unharmed(src)


def test_tmpfs_with_huge_pages(directory):
    """Pages come to the source's mapping as to the destination's, until that is full in the middle of a round."""
    with two_mounts('tmpfs', 'huge=always', 'size=24M'):
        src = lab.Qemu('src', directory=directory, append='start=16 size=32 touch=32 rate=100',
                       ram=[lab.Ram(64, f'{SOURCE}/src', align='2M')]).wait_ticks(2)
        dst = godwit.destination(src)
        refused(src, dst, 'its tmpfs or its memory cgroup is full (No space left on device)', 'size=')


def test_hugetlbfs(directory):
    """Huge pages are reserved before the first round: it never begins."""
    with two_mounts('hugetlbfs', 'pagesize=2M', 'size=32M'):
        src = lab.Qemu('src', directory=directory, append='start=16 size=32 touch=32 rate=100',
                       ram=[lab.Ram(64, f'{SOURCE}/src')]).wait_ticks(2)
        dst = godwit.destination(src, ram=[Unreserved(64, f'{DESTINATION}/dst')])
        refused(src, dst, 'too few huge pages of 2048 KiB', 'hugepages-2048kB/nr_hugepages')


@pytest.mark.native
def test_without_a_comparison(directory):
    """Nobody has looked before: both ends end with the status for it all the same."""
    small = '/dev/shm/small'
    os.makedirs(small, exist_ok=True)
    lab.call('mount', '-t', 'tmpfs', '-o', 'size=4M', 'tmpfs', small)
    with contextlib.ExitStack() as stack:
        stack.callback(lab.call, 'umount', small)
        stack.enter_context(godwit.guests())
        src = paused.source(directory)
        dst = godwit.destination(src, ram=[lab.Ram(64, f'{small}/dst')])
        there = godwit.listen(dst)
        here = paused.send(src, '--no-compare')
        for p in here, there:
            assert p.wait() == godwit.EXIT['no-room'] and 'no room at the destination for RAM "ram0"' in p.said, p.said
        godwit.unharmed(src)
