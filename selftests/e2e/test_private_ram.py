# SPDX-License-Identifier: GPL-2.0-only
"""Guests as they were started: RAM of every kind at the source, into RAM of every kind at the destination."""
import contextlib
import dataclasses
import os
import re
import time

import godwit
import lab
import pytest
from guestram import allocated, dump, write
from kinds import KINDS
from ours import proved

# Each kind at either end, and each that needs another way than the one before.
PAIRS = [('anonymous', 'anonymous'), ('anonymous', 'shared_file'), ('anonymous', 'private_file'), ('shared_file', 'anonymous'),
         ('private_file', 'anonymous'), ('private_file', 'private_file'), ('memfd', 'anonymous'), ('anonymous', 'memfd')]


@pytest.mark.native
@pytest.mark.parametrize('here, there', PAIRS)
def test_paused(directory, qemu, here, there):
    """Without KVM and module: a guest that stands still, by address in its process."""
    src = lab.Qemu('src', directory=directory, qemu=qemu, ram=[KINDS[here]('src')],
                   append='start=16 size=16 touch=8 rate=50').wait_ticks(1)
    dst = godwit.destination(src, qemu=qemu, ram=[KINDS[there]('dst')])
    src.qmp('stop')
    report = godwit.Run(src, dst, '--pause').wait()
    assert report['verified'] and report['device-state-saved']
    differ = lab.differing_pages(dump(src, 64), dump(dst, 64))
    proved(not differ, f'memory differs in pages {differ}')
    dst.qmp('cont')
    dst.wait_ticks(1).check()


def name_of(pid):
    with contextlib.suppress(OSError):
        with open(f'/proc/{pid}/comm', encoding='utf-8', errors='replace') as f:
            return f.read().strip()
    return ''


def guest(name, kind, qemu, directory, **more):
    """A source that QEMU's own threads write to as well as its vCPU."""
    return lab.Qemu(name, directory=directory, qemu=qemu, ram=[KINDS[kind](name)], devices=lab.rng(),
                    append='start=16 size=32 touch=24 rate=200 rng=20', **more).wait_ticks(2)


# Each kind at either end at least once; with this system's own QEMU, which need not say where its RAM is.
RUNNING = [('anonymous', 'anonymous', ''), ('anonymous', 'shared_file', ''), ('shared_file', 'anonymous', ''),
           ('private_file', 'huge', ''), ('huge', 'private_file', ''), ('huge', 'huge', ''), ('huge', 'anonymous', ''),
           ('anonymous', 'memfd', ''), ('memfd', 'anonymous', ''), ('memfd', 'huge', ''),
           ('anonymous', 'anonymous', 'own'), ('huge', 'huge', 'own'), ('shared_file', 'anonymous', 'own')]


@pytest.mark.compared
@pytest.mark.usefixtures('module')
@pytest.mark.parametrize('here, there, own', RUNNING)
def test_running(directory, qemu, here, there, own):
    if own:
        qemu = lab.QEMU
    src = guest('src', here, qemu, directory)
    lab.net()
    lab.link('rate', 100)
    dst = godwit.destination(src, qemu=qemu, devices=lab.rng(), ram=[KINDS[there]('dst')])
    # The hashes alone take an emulated host that is busy longer than the usual limit.
    report = godwit.Run(src, dst, '--downtime-limit', '10000').wait()
    assert report['verified'] and report['device-state-saved']
    godwit.proof(src, dst, stopped='paused')


@pytest.mark.usefixtures('module')
def test_gigantic_pages(directory, qemu):
    """One page of private hugetlbfs is all of the guest's RAM. QEMU writes nothing here: it would dirty all of that page."""
    with lab.mounted('hugetlbfs', 'pagesize=1G', '/dev/hugepages-1G'), godwit.guests():
        src = lab.Qemu('src', directory=directory, qemu=qemu, ram=[lab.Ram(1024, '/dev/hugepages-1G/src', share=False)],
                       append='start=16 size=32 touch=32 rate=100').wait_ticks(1)
        lab.net()
        dst = godwit.destination(src, qemu=qemu)
        report = godwit.Run(src, dst, '--downtime-limit', '10000').wait()
        assert report['verified'] and report['device-state-saved']
        godwit.proof(src, dst, stopped='paused')


@pytest.mark.usefixtures('module')
@pytest.mark.parametrize('kind', ['anonymous', 'huge'])
@pytest.mark.parametrize('row', ['vcpu', 'mapping'])
def test_rows_matter(directory, qemu, row, kind):
    """Without one of them pages of private RAM are missed, and the proof says so."""
    src = guest('src', kind, qemu, directory)
    lab.net()
    lab.link('rate', 100)
    with godwit.row_off(row):
        dst = godwit.destination(src, qemu=qemu, devices=lab.rng())
        godwit.Run(src, dst, '--downtime-limit', '10000').never_arrives('verify')
    godwit.unharmed(src)
    dst = godwit.destination(src, 'dst2', qemu=qemu, devices=lab.rng())
    assert godwit.Run(src, dst, '--downtime-limit', '10000').wait()['verified']
    godwit.proof(src, dst, stopped='paused')


def fork(vm):
    """QEMU forks, and its child runs a program."""
    script, ran = f'{vm.run}/script', f'{vm.run}/ran'
    with open(script, 'w', encoding='ascii') as f:
        f.write(f'#!/bin/sh\necho "$1" >{ran}\n')
    os.chmod(script, 0o755)
    vm.qmp('netdev_add', type='tap', id='forks', ifname='forks', script=script, downscript='no')
    vm.qmp('netdev_del', id='forks')
    with open(ran, encoding='ascii') as f:
        assert f.read() == 'forks\n'
    os.unlink(ran)


@pytest.mark.usefixtures('module')
def test_direct_disk(directory, qemu):
    """
    A disk that reads into anonymous memory, past QEMU's page tables: row "block". That memory was preallocated, at both ends,
    and stays so; and QEMU forks while it is sent.
    """
    with lab.block_device('brd') as path, godwit.guests():
        devices = lab.disk(path)
        ram = [dataclasses.replace(KINDS['anonymous']('src'), prealloc=True)]
        src = lab.Qemu('src', directory=directory, qemu=qemu, ram=ram, devices=devices,
                       append='start=16 size=16 touch=16 rate=50 disk=2000').wait_ticks(2)
        while src.counters['disk'] < 1024:
            src.wait_ticks()
        src.command('disk=200')
        lab.net()
        lab.modules('tun')
        lab.link('rate', 100)
        with godwit.row_off('block'):
            godwit.Run(src, godwit.destination(src, qemu=qemu, devices=devices)).never_arrives('verify')
        src.wait_ticks(1).check()
        dst = godwit.destination(src, 'dst2', qemu=qemu, devices=devices)
        run = godwit.Run(src, dst, '--downtime-limit', '1', '--max-rounds', '10000')
        run.send.wait_round(2)
        for _ in range(3):
            fork(src)
        assert src.query_status() == 'running', 'no round was left to fork in'
        godwit.control(run.send.pid, execute='set', arguments={'downtime-limit': 10000})
        assert run.wait()['verified']
        godwit.proof(src, dst, stopped='paused')
        proved(allocated(src) == allocated(dst) == 64 << 20, 'preallocated memory is gone')


@pytest.mark.usefixtures('module')
@pytest.mark.parametrize('phase', ['round', 'later', 'blackout'])
def test_killed(directory, qemu, phase):
    """The sender, or the receiver: the guest stays as it was, and can be moved afterwards."""
    src = guest('src', 'anonymous', qemu, directory)
    for victim in 'send', 'receive':
        dst = godwit.destination(src, qemu=qemu, devices=lab.rng())
        run = godwit.start_in(phase, (src, dst), receive_options=['--resolve-timeout', '1'])
        getattr(run, victim).kill().wait()
        other = run.receive if victim == 'send' else run.send
        assert other.wait() == godwit.EXIT['link-lost'], other.said
        dst.kill()
        godwit.unharmed(src, ticks=1)
    lab.link('rate', 100)
    dst = godwit.destination(src, 'dst2', qemu=qemu, devices=lab.rng())
    assert godwit.Run(src, dst).wait()['verified']
    godwit.proof(src, dst, stopped='paused')


@pytest.mark.usefixtures('module')
@pytest.mark.parametrize('phase', ['round', 'later', 'blackout'])
def test_destination_qemu_killed(directory, qemu, phase):
    """Its receiver tells the sender why; the guest stays as it was, and can be moved afterwards."""
    src = guest('src', 'anonymous', qemu, directory)
    dst = godwit.destination(src, qemu=qemu, devices=lab.rng())
    run = godwit.start_in(phase, (src, dst))
    dst.kill()
    ends = [p.wait() for p in (run.send, run.receive)]
    assert ends == [godwit.EXIT['peer-failed'], godwit.EXIT['vm-gone']], (ends, run.send.said, run.receive.said)
    assert re.search(r'the other host gave up: .* has (exited|ended)', run.send.said), run.send.said
    godwit.unharmed(src, ticks=1)
    lab.link('rate', 100)
    dst = godwit.destination(src, 'dst2', qemu=qemu, devices=lab.rng())
    assert godwit.Run(src, dst).wait()['verified']
    godwit.proof(src, dst, stopped='paused')


@pytest.mark.usefixtures('module')
@pytest.mark.parametrize('phase', ['round', 'later', 'blackout'])
def test_source_qemu_killed(directory, qemu, phase):
    """The guest has ended with its QEMU: it does not live on at the destination with half of its memory."""
    src = guest('src', 'anonymous', qemu, directory)
    dst = godwit.destination(src, qemu=qemu, devices=lab.rng())
    run = godwit.start_in(phase, (src, dst))
    src.kill()
    assert run.send.wait() == godwit.EXIT['vm-gone'], run.send.said
    assert run.receive.wait() in (godwit.EXIT['peer-failed'], godwit.EXIT['link-lost']), run.receive.said
    dst.process.wait(30)	# which waits for no other guest: what has come of this one must never run
    godwit.never_ran(dst)
    godwit.unload()
    godwit.load()
    guardians = [p for p in os.listdir('/proc') if p.isdigit() and name_of(p) == 'godwit-guardian']
    proved(not guardians, f'guardians are left: {guardians}')


def huge_pages_of(vm):
    """KiB of huge pages that the process has of its own."""
    with open(f'/proc/{vm.pid}/smaps', encoding='ascii', errors='replace') as f:
        return sum(int(line.split()[1]) for line in f if line.startswith('Private_Hugetlb'))


@pytest.mark.compared
@pytest.mark.usefixtures('module')
def test_looking_makes_no_pages(directory, qemu):
    """A private huge page that the guest has not touched is none after the migration, too."""
    src = guest('src', 'huge', qemu, directory)
    src.command('rate=0')
    src.wait_ticks(2)
    before = huge_pages_of(src)
    assert 0 < before < 64 << 10
    dst = godwit.destination(src, qemu=qemu, devices=lab.rng(), ram=[KINDS['huge']('dst')])
    godwit.Run(src, dst).wait()
    godwit.proof(src, dst, stopped='paused')
    proved(huge_pages_of(src) == before, huge_pages_of(src), before)
    proved(huge_pages_of(dst) == before, huge_pages_of(dst), before)


def ksm(name, value=None):
    with open(f'/sys/kernel/mm/ksm/{name}', 'r' if value is None else 'w', encoding='ascii') as f:
        return int(f.read()) if value is None else f.write(str(value))


@contextlib.contextmanager
def merging():
    ksm('sleep_millisecs', 1)
    ksm('pages_to_scan', 4000)
    ksm('run', 1)
    try:
        yield
    finally:
        ksm('run', 2)	# and all pages are their own again
        ksm('run', 0)


@pytest.mark.usefixtures('module')
def test_merged_pages_stay_merged(directory, qemu):
    """To read the source's RAM takes no memory: what KSM has merged is not copied."""
    src = lab.Qemu('src', directory=directory, qemu=qemu, ram=[KINDS['anonymous']('src')],
                   append='start=16 size=16 touch=8 rate=20').wait_ticks(2)
    pages = 2048
    write(src, 48 << 20, (b'the same' * 512) * pages)	# where the guest writes nothing
    with merging():
        end = time.monotonic() + 120
        while ksm('pages_sharing') < pages - 64:
            assert time.monotonic() < end, ksm('pages_sharing')
            time.sleep(0.5)
        dst = godwit.destination(src, qemu=qemu)
        run = godwit.Run(src, dst)
        run.wait()
        godwit.proof(src, dst, stopped='paused')
        proved(ksm('pages_sharing') >= pages - 64, ksm('pages_sharing'))


@pytest.mark.usefixtures('module')
def test_there_and_back(directory, qemu):
    """A guest moves through all kinds."""
    lab.net()
    lab.link('rate', 200)
    vm = guest('src', 'anonymous', qemu, directory)
    for name, kind in (('dst', 'huge'), ('back', 'shared_file'), ('again', 'private_file'), ('once', 'memfd'),
                       ('home', 'anonymous')):
        dst = godwit.destination(vm, name, qemu=qemu, devices=lab.rng(), ram=[KINDS[kind](name)])
        report = godwit.Run(vm, dst, '--device-state', 'save').wait()
        assert report['verified'] and len(report['rounds']) >= 2
        godwit.proof(vm, dst, stopped='paused')
        vm.kill()
        vm = dst
