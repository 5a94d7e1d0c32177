# SPDX-License-Identifier: GPL-2.0-only
"""What QEMU is at besides running the guest, and disks that cannot change hands: the guest goes on in one place."""
import os
import signal
import subprocess
import threading
import time

import godwit
import lab
import pytest
import relay
import wire
from ours import proved

APPEND = 'start=16 size=16 touch=8 rate=50'
AT, TO = godwit.AT, godwit.TO
MIB = 1 << 20
pytestmark = pytest.mark.native


@pytest.fixture
def disk(tmp_path):
    path = tmp_path / 'disk'
    with open(path, 'wb') as f:
        f.truncate(64 * MIB)
    return path


def drive(path):
    """Writable, and locked by the QEMU that has it active."""
    return ['-blockdev', f'raw,node-name=disk,file.driver=file,file.filename={path}', '-device', 'virtio-blk-pci,drive=disk,share-rw=off']


def source(directory, disk):
    vm = lab.Qemu('src', directory=directory, ram=64, append=APPEND, devices=drive(disk)).wait_ticks(1)
    godwit.note(vm)
    return vm


def send(src, *options, to=AT):
    return godwit.Process('src', 'send', '--qmp', src.main_qmp, '--pause', *options, to)


def backup(src, tmp_path):
    """A job that does not end by itself."""
    with open(tmp_path / 'copy', 'wb') as f:
        f.truncate(64 * MIB)
    src.qmp('blockdev-add', **{'driver': 'raw', 'node-name': 'copy', 'file': {'driver': 'file', 'filename': str(tmp_path / 'copy')}})
    src.qmp('blockdev-backup', **{'job-id': 'nightly', 'device': 'disk', 'target': 'copy', 'sync': 'full', 'speed': 4096})


def test_disks_change_hands(directory, disk):
    """As they do when nothing is in the way."""
    src = source(directory, disk)
    dst = godwit.destination(src, devices=drive(disk))
    there, here = godwit.listen(dst), send(src)
    assert here.wait() == 0 and there.wait() == 0, here.said + there.said
    godwit.proof(src, dst)


def test_a_job_is_under_way(directory, disk, tmp_path):
    src = source(directory, disk)
    backup(src, tmp_path)
    dst = godwit.destination(src, devices=drive(disk))
    there, here = godwit.listen(dst), send(src)
    assert here.wait() == godwit.EXIT['vm-state'] and '"nightly", backup' in here.said and 'job-cancel' in here.said, here.said
    p = godwit.Process('src', 'check', '--qmp', src.main_qmp, '--pause')
    assert p.wait() == godwit.EXIT['vm-state'] and '"nightly"' in p.said, p.said
    godwit.unharmed(src)
    src.qmp('job-cancel', id='nightly')
    src.qmp.wait_event('BLOCK_JOB_CANCELLED')
    here = send(src)
    assert here.wait() == 0 and there.wait() == 0, here.said + there.said
    godwit.proof(src, dst)


def test_a_job_begins_meanwhile(directory, disk, tmp_path):
    """Before the guest is stopped: it is not stopped for nothing."""
    src = source(directory, disk)
    dst = godwit.destination(src, devices=drive(disk))
    begun = threading.Event()

    def seen(kind):
        if kind == wire.STREAMS and not begun.is_set():
            backup(src, tmp_path)
            begun.set()
    between = relay.Watching(TO, seen)
    try:
        there, here = godwit.listen(dst), send(src, to=between.address)
        assert here.wait() == godwit.EXIT['vm-state'] and '"nightly"' in here.said, here.said
    finally:
        between.stop()
    there.wait()
    proved(not src.was_stopped(), 'the guest was stopped')
    godwit.unharmed(src)


@pytest.mark.parametrize('mode', ['migrate', 'save'])
def test_the_disk_is_locked(directory, disk, qemu, mode):
    """By another QEMU at the destination, where the guest cannot run: it runs on here, with its disk."""
    src = lab.Qemu('src', directory=directory, ram=64, append=APPEND, devices=drive(disk), qemu=qemu).wait_ticks(1)
    godwit.note(src)
    dst = godwit.destination(src, devices=drive(disk), qemu=qemu)
    locker = []

    def seen(kind):
        # Free as soon as the source has given it up, and taken at once.
        if kind == wire.DEVICE_END and not locker:
            at = f'{disk}.qmp'
            locker.append(subprocess.Popen([qemu, '-S', '-display', 'none', '-nodefaults', '-qmp', f'unix:{at},server=on,wait=off',	# pylint: disable=R1732
                                            *drive(disk)]))
            lab.Qmp(at).close()	# it answers when it has the disk
    between = relay.Watching(TO, seen)
    try:
        there, here = godwit.listen(dst), send(src, '--device-state', mode, to=between.address)
        # The source does not get it back either, until the locker has gone: then its guardian lets it run.
        assert here.wait() == godwit.EXIT['not-put-back'] and 'lock' in here.said, here.said
        assert there.wait() == godwit.EXIT['device-state'] and 'lock' in there.said, there.said
        proved(not dst.has_run() and dst.process.wait(60) == -signal.SIGKILL, 'the destination lives')
        proved(src.query_status() != 'running', 'it runs without its disk')
        locker[0].kill()
        locker[0].wait()
        godwit.unharmed(src)
        dst.process.returncode = 0	# by its receiver
    finally:
        between.stop()
        for p in locker:
            if p.poll() is None:
                p.send_signal(signal.SIGKILL)
    assert os.path.exists(disk)
