# SPDX-License-Identifier: GPL-2.0-only
"""Disks that a guest may write, under their image locks: they go with the guest, and come back when it stays."""
import os
import subprocess

import godwit
import lab
import pytest
import sources
from ours import proved

pytestmark = [pytest.mark.usefixtures('module'), pytest.mark.compared]


def make(form):
    """The content that the guests expect, in that format."""
    raw, path = lab.fill_disk('/dev/shm/disk.raw', 8), f'/dev/shm/disk.{form}'
    if form != 'raw':
        subprocess.run(['qemu-img', 'convert', '-O', form, raw, path], check=True, stdout=subprocess.DEVNULL)
    return path


def drive(path, form):
    return ['-blockdev', f'driver={form},node-name=disk,file.driver=file,file.filename={path},file.locking=on',
            '-device', 'virtio-blk-pci,drive=disk,id=disk0']


def is_locked(path, form):
    """Does any process have it for writing?"""
    done = subprocess.run(['qemu-io', '-f', form, '-c', 'write -P 0 0 0', path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    assert done.returncode == 0 or 'lock' in done.stdout, done.stdout
    return done.returncode != 0


@pytest.mark.parametrize('mode', ['migrate', 'save'])
@pytest.mark.parametrize('form', ['raw', 'qcow2'])
def test_writable(directory, qemu, form, mode):
    """A sender is killed, in a round and in the blackout: the guest goes on here with its disk. Then it moves."""
    path = make(form)
    with godwit.guests():
        lab.net()
        src = lab.Qemu('src', directory=directory, qemu=qemu, append='start=16 size=16 touch=10 rate=1500 disk=50',
                       devices=drive(path, form)).wait_ticks(2)
        for phase in ('round', 'paused'):
            dst = godwit.destination(src, devices=drive(path, form))
            run = godwit.start_in(phase, (src, dst), '--device-state', 'migrate' if phase == 'paused' else mode)
            run.send.kill().wait()
            run.receive.wait()
            before = src.counters['disk']
            godwit.unharmed(src)
            dst.kill()
            proved(is_locked(path, form), 'the source has lost the lock of its disk')
            while src.counters['disk'] <= before:
                src.wait_ticks()
            lab.link('clear')
        dst = godwit.destination(src, 'dst2', devices=drive(path, form))
        godwit.Run(src, dst, '--device-state', mode).wait()
        godwit.proof(src, dst, stopped='paused' if mode == 'save' else 'postmigrate')
        src.kill()
        proved(is_locked(path, form), 'the destination has no lock of its disk')
        before = dst.counters['disk']
        while dst.counters['disk'] <= before:
            dst.wait_ticks()
        dst.kill()
        assert not is_locked(path, form)
    os.unlink(path)


def test_a_weaker_cpu(directory, qemu):
    """The host's own CPU here, and there one with a feature less, under KVM."""
    lab.net()
    src = sources.plain(directory, sources.WRITES, qemu=qemu)
    dst = godwit.destination(src, extra=['-cpu', 'host,-popcnt'])
    run = godwit.Run(src, dst)
    run.wait('misfit')
    assert 'popcnt' in run.send.said and dst.query_status() == 'inmigrate'
    godwit.unharmed(src)
    run.kill()
    assert godwit.Run(src, dst, '--accept', 'cpu').wait()['verified']
    godwit.proof(src, dst)
