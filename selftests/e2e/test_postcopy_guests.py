# SPDX-License-Identifier: GPL-2.0-only
"""Post-copy of guests whose RAM others read and write, too: the kernel for a network card, a disk with O_DIRECT, another process."""
import contextlib
import os
import tempfile

import godwit
import lab
import linux
import pytest
import vhost_user
from test_postcopy import LAZY, came_after, migrate, refused, source

pytestmark = pytest.mark.usefixtures('module')


def test_vhost_net(directory):
    """A thread of the kernel's, which uses QEMU's memory, waits for the pages of the card's rings and buffers like the guest."""
    src = source(directory, 'start=16 size=16 touch=16 rate=1000 random=1 net=1', devices=lab.tap('src', 'tap0', vhost=True))
    dst = godwit.destination(src, devices=lab.tap('dst', 'tap0', vhost=True))
    frames = [lab.send_frames(side, 'tap0', count=1000000, rate=200) for side in ('src', 'dst')]
    try:
        while not src.counters['net']:
            src.wait_ticks()
        lab.link('rate', 20)
        _, units, asked = migrate(src, dst)
        assert units > asked > 0	# few, where the host is busy
        before = dst.counters['net']
        assert before >= src.counters['net'] and dst.wait_ticks(3).check().counters['net'] > before, 'no frame has come'
    finally:
        for sender in frames:
            sender.kill()
            sender.wait()


def test_linux(directory):
    """Debian's own kernel on two vCPUs, which reads a disk past the page cache, into pages that have not come."""
    with lab.block_device('scsi_debug') as path, godwit.guests():
        def devices(side):
            return [*lab.disk(path), *lab.rng(), *lab.tap(side, 'tap0', vhost=True)]
        src = linux.start(directory, 'size=32 rate=400 disk=100', cpus=2, devices=devices('src'))
        dst = godwit.destination(src, devices=devices('dst'))
        before = src.counters
        lab.link('rate', 100)
        run = godwit.Run(src, dst, *LAZY, verify=False)
        run.wait()
        units, _, asked, _ = came_after(run)
        assert units > asked > 0	# few, where the host is busy
        linux.proof(src, dst)
        assert dst.counters['disk'] > before['disk']


def test_vhost_user_is_refused(directory):
    """Its backend maps the RAM itself, when the guest begins to run."""
    with contextlib.ExitStack() as ends, godwit.guests():
        alone = ends.enter_context(tempfile.TemporaryDirectory(dir='/dev/shm'))
        image = lab.fill_disk(os.path.join(alone, 'disk'), 8)

        def backend(side):
            disk = vhost_user.Disk(side, side, image)
            ends.callback(disk.end)
            return disk.devices

        src = source(directory, 'start=16 size=16 touch=8 rate=50', devices=backend('src'))
        dst = godwit.destination(src, devices=backend('dst'))
        refused(src, dst, 'vm-state', 'has a vhost-user device', 'migrate without post-copy')
