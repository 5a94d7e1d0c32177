# SPDX-License-Identifier: GPL-2.0-only
"""What is plugged into a VM, or into its RAM, while RAM is sent: memory, a balloon, a device that another process serves."""
import contextlib
import glob
import os
import tempfile

import godwit
import lab
import linux
import pytest
import vhost_user
from guestram import allocated, fill_holes
from ours import proved

MORE = 16 << 20
ROOM = ['-m', 'slots=2,maxmem=1G']
pytestmark = [pytest.mark.usefixtures('module'), pytest.mark.compared]


def more_ram(name):
    return f'/dev/shm/{name}.more'


@pytest.fixture
def roomy(directory):
    """A pair that memory can be plugged into."""
    lab.net()
    src = lab.Qemu('src', directory=directory, append='start=16 size=24 touch=24 rate=300', extra=ROOM).wait_ticks(2)
    with godwit.guests():
        yield src, godwit.destination(src, extra=ROOM)
    for path in glob.glob('/dev/shm/*.more'):
        os.unlink(path)


def plug(vm, content=None):
    vm.qmp('object-add', qom_type='memory-backend-file', id='more', size=MORE, mem_path=more_ram(vm.name), share=True)
    vm.qmp('device_add', driver='pc-dimm', id='dimm0', memdev='more')
    if content:
        with open(more_ram(vm.name), 'r+b', buffering=0) as ram:
            ram.write(content)


@pytest.mark.parametrize('where', ['here', 'at-both-ends'])
def test_memory(roomy, where):
    """
    RAM that was plugged meanwhile is in no round, and QEMU leaves shared RAM out of its stream: a destination that has it too
    would have it empty. The migration is refused before the guest stops, and the next one takes it along.
    """
    src, dst = roomy
    run = godwit.start_in('round', roomy)
    plug(src, os.urandom(MORE))
    if where == 'at-both-ends':
        plug(dst)
    lab.link('rate', 200)
    godwit.control(run.send.pid, execute='set', arguments={'downtime-limit': 5000})
    run.never_arrives('misfit' if where == 'here' else 'vm-state')
    assert ('dimm0' if where == 'here' else 'plugged') in run.send.said and not src.was_stopped()
    src.wait_ticks(2).check()
    assert src.query_status() == 'running'
    godwit.wait_unlogged(src)
    dst = godwit.destination(src, 'dst2', extra=[
        *ROOM, '-object', f'memory-backend-file,id=more,size={MORE},mem-path={more_ram("dst2")},share=on',
        '-device', 'pc-dimm,id=dimm0,memdev=more'])
    assert godwit.Run(src, dst).wait()['verified']
    godwit.proof(src, dst)
    proved(not lab.differing_pages(more_ram('src'), more_ram('dst2')), 'the plugged RAM differs')


def test_memory_is_exchanged(directory):
    """It goes, and comes again under its name and with its size, in another file: what we hold open is no longer the guest's."""
    def dimm(name):
        return [*ROOM, '-object', f'memory-backend-file,id=more,size={MORE},mem-path={more_ram(name)},share=on',
                '-device', 'pc-dimm,id=dimm0,memdev=more']
    with godwit.guests():
        lab.net()
        src = lab.Qemu('src', directory=directory, append='start=16 size=24 touch=24 rate=300', extra=dimm('src')).wait_ticks(2)
        dst = godwit.destination(src, extra=dimm('dst'))
        run = godwit.start_in('round', (src, dst))
        # What a guest does by ACPI that gives it back: the slot, and out with it.
        for word in ('/w 0xa00 0', '/b 0xa14 8'):
            src.qmp('human-monitor-command', command_line=f'o {word}')
        src.qmp('object-del', id='more')
        os.rename(more_ram('src'), more_ram('old'))
        plug(src, os.urandom(MORE))
        godwit.control(run.send.pid, execute='set', arguments={'downtime-limit': 20000})
        lab.link('clear')
        run.wait('vm-state')
        assert 'does not map the file of RAM "more" any more' in run.send.said and not src.was_stopped(), run.send.said
        godwit.unharmed(src)
        godwit.never_ran(dst)
    for path in glob.glob('/dev/shm/*.more'):
        os.unlink(path)


@pytest.mark.parametrize('where', ['here', 'at-both-ends'])
def test_device(directory, where):
    """Plugged in a round: at the source alone the guest would not stop for it; at both ends it arrives with it."""
    lab.net()
    # The bus of q35 itself takes nothing later.
    src = lab.Qemu('src', directory=directory, machine='pc', append='start=32 size=16 touch=10 rate=1500').wait_ticks(2)
    dst = godwit.destination(src)
    run = godwit.start_in('round', (src, dst))
    src.qmp('device_add', driver='virtio-rng-pci', id='late', addr='0x1e')
    if where == 'at-both-ends':
        dst.qmp('device_add', driver='virtio-rng-pci', id='late', addr='0x1e')
    lab.link('clear')
    if where == 'here':
        run.wait('misfit')
        assert 'late (virtio-rng-pci' in run.send.said and not src.was_stopped()
        godwit.unharmed(src)
    else:
        godwit.control(run.send.pid, execute='set', arguments={'downtime-limit': 10000})
        run.wait()
        assert 'compared both ends again' in run.send.said
        godwit.proof(src, dst)


def test_disk_grows(directory):
    """The guest has been told of its larger disk when the round was under way: the destination's is too small."""
    disks = {name: lab.fill_disk(f'/dev/shm/{name}.disk', 8) for name in ('src', 'dst')}

    def devices(name):
        return ['-blockdev', f'driver=file,node-name=file,filename={disks[name]}', '-blockdev', 'driver=raw,node-name=disk,file=file',
                '-device', 'virtio-blk-pci,drive=disk,id=disk0']
    with godwit.guests():
        lab.net()
        src = lab.Qemu('src', directory=directory, append='start=16 size=24 touch=24 rate=300', devices=devices('src')).wait_ticks(2)
        pair = src, godwit.destination(src, devices=devices('dst'))
        run = godwit.start_in('round', pair)
        src.qmp('block_resize', node_name='disk', size=16 << 20)
        godwit.control(run.send.pid, execute='set', arguments={'downtime-limit': 10000})
        lab.link('clear')
        run.wait('misfit')
        assert 'disk0' in run.send.said and str(16 << 20) in run.send.said and not src.was_stopped()
        godwit.unharmed(src)
    for path in disks.values():
        os.unlink(path)


def test_balloon(directory):
    """What a guest gives back after it was sent is a hole at the destination as well, and the rest is as it was."""
    balloon = ['-device', 'virtio-balloon-pci,id=balloon0']
    src = linux.start(directory, 'size=8 rate=200', devices=balloon)
    fill_holes(src, 24)
    dst = godwit.destination(src, devices=balloon)
    run = godwit.Run(src, dst, '--downtime-limit', '1', '--max-rounds', '10000')
    run.send.wait_round(2)
    godwit.control(run.send.pid, execute='set', arguments={'bandwidth': 1})
    before = allocated(src), allocated(dst)
    linux.give_back(src, 192 - 100)
    godwit.control(run.send.pid, execute='set', arguments={'bandwidth': 0, 'downtime-limit': 10000})
    assert run.wait()['verified']
    after = allocated(src), allocated(dst)
    assert before[0] - after[0] > 16 << 20, 'the balloon took only pages that were holes'
    assert before[1] - after[1] > 16 << 20
    linux.proof(src, dst)


def test_vhost_user(directory):
    """Its backend reads a disk into the guest's RAM, which it maps itself: the proof fails without the row that sees that."""
    with contextlib.ExitStack() as ends, godwit.guests():
        alone = ends.enter_context(tempfile.TemporaryDirectory(dir='/dev/shm'))
        image = lab.fill_disk(f'{alone}/disk', 8)

        def backend(side, name):
            disk = vhost_user.Disk(side, name, image)
            ends.callback(disk.end)
            return disk.devices

        src = linux.start(directory, 'size=8 rate=50 disk=100', devices=backend('src', 'src'))
        lab.link('rate', 100)
        with godwit.row_off('mapping'):
            godwit.Run(src, godwit.destination(src, devices=backend('dst', 'dst'))).never_arrives('verify')
        before = src.wait_ticks(1).no_errors().counters
        dst = godwit.destination(src, 'dst2', devices=backend('dst', 'dst2'))
        assert godwit.Run(src, dst).wait()['verified']
        assert src.counters['disk'] > before['disk'], 'it reads nothing'
        linux.proof(src, dst)
        assert dst.counters['disk'] > src.counters['disk']
