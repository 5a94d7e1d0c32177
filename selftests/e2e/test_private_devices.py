# SPDX-License-Identifier: GPL-2.0-only
"""Private RAM, and the devices and settings that guests have with it."""
import os
import time

import godwit
import lab
import linux
import pytest
from guestram import allocated, dump, fill_holes, write
from kinds import KINDS
from ours import proved

PLUGGED_AT, PLUGGED_MIB = 4 << 30, 64	# where the guest finds what virtio-mem has plugged


# What is plugged goes to programs and balloons before all else, and no bounce buffers make the rest scarce.
GUEST = 'mitigations=off memhp_default_state=online_movable swiotlb=noforce'


def virtio_mem(ram):
    """128 MiB, as Linux takes no less."""
    return ['-m', 'maxmem=1G', '-object', ram.object(1),
            '-device', f'virtio-mem-pci,id=vmem0,memdev=ram1,requested-size={PLUGGED_MIB}M,'
            'unplugged-inaccessible=on']	# "auto" goes by the kind of RAM


def pages_with_data(path):
    with open(path, 'rb') as f:
        return sum(any(page) for page in iter(lambda: f.read(4096), b''))


@pytest.mark.native
@pytest.mark.parametrize('here, there, own', [('anonymous', 'memfd', ''), ('memfd', 'anonymous', 'own')])
def test_virtio_mem(directory, qemu, here, there, own):
    """QEMU puts the device's address before the name of its RAM; what is plugged the destination learns from the device state."""
    more = {'qemu': lab.QEMU if own else qemu}
    src = linux.start(directory, f'{GUEST} size=8 rate=500',
                      ram=[KINDS[here]('src', 128)], extra=virtio_mem(KINDS[here]('src.more', 128)), **more)
    dst = godwit.destination(src, ram=[KINDS[there]('dst', 128)], extra=virtio_mem(KINDS[there]('dst.more', 128)))
    report = godwit.Run(src, dst, '--pause').wait()
    assert report['verified'] and report['device-state-saved']
    assert pages_with_data(dump(src, PLUGGED_MIB, PLUGGED_AT)) > 200, 'the guest does not use what was plugged'
    linux.proof(src, dst, stopped='paused')
    plugged = dst.qmp('query-memory-devices')[0]['data']
    proved(plugged['size'] == PLUGGED_MIB << 20, plugged)


PARTS_MIB = (1 << 10) + 64	# QEMU shows 1 GiB at a time
IN_THE_SECOND = (PARTS_MIB - 1) << 20


def virtio_mem_in_parts(ram, number=1, parts='on'):
    """Of this device's RAM the guest, and KVM, are shown what is plugged, in parts: QEMU 8.2 or newer."""
    return ['-m', 'maxmem=8G', '-object', ram.object(number),
            '-device', f'virtio-mem-pci,id=vmem0,memdev=ram{number},requested-size={PARTS_MIB}M,'
            f'unplugged-inaccessible=on,dynamic-memslots={parts}']


def moves_in_parts(directory, qemu, here, there, *options, **device):
    """device: the destination's, where it differs. Return: the report."""
    more = KINDS[here]('src.more', 3072)
    src = linux.start(directory, f'{GUEST} size=8 rate=200', qemu=qemu, ram=[KINDS[here]('src', 192)], extra=virtio_mem_in_parts(more))
    src.ram.append(more)
    write(src, IN_THE_SECOND, os.urandom(1 << 20), number=1)	# which Linux fills last
    shown = src.qmp('human-monitor-command', command_line='info mtree -f')
    assert f'ram1 @{1 << 30:016x}' in shown, 'the guest is shown one part, or none'
    more = KINDS[there]('dst.more', 3072)
    dst = godwit.destination(src, ram=[KINDS[there]('dst', 192)], extra=virtio_mem_in_parts(more, **device))
    dst.ram.append(more)
    report = godwit.Run(src, dst, *options).wait()
    assert report['verified']
    assert pages_with_data(dump(src, 1, PLUGGED_AT + IN_THE_SECOND)) > 200, 'the second part is empty'
    linux.proof(src, dst, stopped='paused' if report['device-state-saved'] else 'postmigrate')
    plugged = dst.qmp('query-memory-devices')[0]['data']
    proved(plugged['size'] == PARTS_MIB << 20, plugged)
    return report


@pytest.mark.native
@pytest.mark.parametrize('here, there, device', [('anonymous', 'shared_file', {'number': 7}), ('shared_file', 'anonymous', {'parts': 'off'})])
def test_shown_in_parts(directory, qemu, here, there, device):
    """
    No list of what the guest is shown tells where all of it is in the guest: it is matched by where the device is, where its
    backend has another name, or is shown as a whole.
    """
    assert moves_in_parts(directory, qemu, here, there, '--pause', **device)['device-state-saved']


@pytest.mark.native
def test_shown_in_parts_migrated(directory, qemu):
    report = moves_in_parts(directory, qemu, 'shared_file', 'shared_file', '--pause', '--device-state', 'migrate')
    assert not report['device-state-saved']


@pytest.mark.usefixtures('module')
@pytest.mark.parametrize('here, there', [('anonymous', 'anonymous'), ('shared_file', 'shared_file')])
def test_shown_in_parts_running(directory, qemu, here, there):
    """A memslot of KVM's for each part."""
    lab.net()
    lab.link('rate', 200)
    report = moves_in_parts(directory, qemu, here, there)
    assert report['device-state-saved'] == (here == 'anonymous')


@pytest.mark.compared
@pytest.mark.usefixtures('module')
def test_ivshmem_running(directory, qemu):
    """The RAM that such a device shows moves beside private RAM of a guest that runs."""
    def pipe(name):
        return ['-object', KINDS['shared_file'](f'{name}.pipe', 2).object(1), '-device', 'ivshmem-plain,id=pipe,memdev=ram1,master=on']
    src = lab.Qemu('src', directory=directory, qemu=qemu, ram=[KINDS['anonymous']('src')], devices=pipe('src'),
                   append='start=16 size=32 touch=24 rate=200').wait_ticks(2)
    data = os.urandom(2 << 20)
    with open('/dev/shm/src.pipe.ram', 'r+b', buffering=0) as f:
        f.write(data)
    dst = godwit.destination(src, devices=pipe('dst'), ram=[KINDS['huge']('dst')])
    report = godwit.Run(src, dst).wait()
    assert report['verified'] and report['device-state-saved']
    godwit.proof(src, dst, stopped='paused')
    with open('/dev/shm/dst.pipe.ram', 'rb') as f:
        proved(f.read() == data, 'what the device shows is not there')
    for name in 'src', 'dst':
        os.unlink(f'/dev/shm/{name}.pipe.ram')


REPORTING = ['-device', 'virtio-balloon-pci,id=balloon0,free-page-reporting=on']


@pytest.mark.usefixtures('module')
def test_free_pages(directory, qemu):
    """
    What a guest reports as free after it was sent is lost at the destination as well, where it reads as zeros: no process
    can take pages away from another. Some of its memory virtio-mem has plugged; some it gave to a balloon, and took again.
    """
    src = linux.start(directory, f'{GUEST} size=8 rate=200', qemu=qemu,
                      ram=[KINDS['anonymous']('src', 192)], extra=virtio_mem(lab.Ram(128)), devices=REPORTING)
    fill_holes(src)
    linux.give_back(src, 192 - 120)
    fill_holes(src, 32)	# of what the balloon has: there are no others
    dst = godwit.destination(src, devices=REPORTING)
    run = godwit.Run(src, dst, '--downtime-limit', '1', '--max-rounds', '10000')
    run.send.wait_round(2)
    godwit.control(run.send.pid, execute='set', arguments={'bandwidth': 1})
    before = allocated(src)
    src.qmp('balloon', value=192 << 20)
    end = time.monotonic() + 120
    while allocated(src) > before - (4 << 20):
        assert time.monotonic() < end, ('the guest reports too little', before, allocated(src))
        time.sleep(0.2)
    godwit.control(run.send.pid, execute='set', arguments={'bandwidth': 0, 'downtime-limit': 10000})
    report = run.wait()
    assert report['verified'] and report['device-state-saved']
    assert pages_with_data(dump(src, PLUGGED_MIB, PLUGGED_AT)) > 200, 'the guest does not use what was plugged'
    linux.proof(src, dst, stopped='paused')


ROOM = ['-m', 'slots=2,maxmem=1G', '-overcommit', 'mem-lock=on']
PLUGGED = ['-object', lab.Ram(16).object(2), '-device', 'pc-dimm,id=dimm0,memdev=ram2']
DIMM_AT, DIMM_MIB = 4 << 30, 16


def plug(vm):
    vm.qmp('object-add', qom_type='memory-backend-ram', id='ram2', size=DIMM_MIB << 20)
    vm.qmp('device_add', driver='pc-dimm', id='dimm0', memdev='ram2')
    vm.ram.append(lab.Ram(DIMM_MIB))
    write(vm, 0, os.urandom(DIMM_MIB << 20), number=2)


@pytest.mark.usefixtures('module')
def test_locked_nodes(directory, qemu):
    """
    Two NUMA nodes of two kinds and a DIMM that was plugged, all of it locked in memory. vhost-net writes to it, which only row
    "mapping" sees, and then also a disk behind the page cache.
    """
    path = lab.fill_disk('/dev/shm/disk', 8)
    kinds = KINDS['anonymous'], KINDS['huge']

    def more(side):
        return {'qemu': qemu, 'devices': [*lab.tap(side, 'tap0', vhost=True), *lab.disk(path, direct=False)]}

    with godwit.guests():
        src = lab.Qemu('src', directory=directory, ram=[kind('src') for kind in kinds], extra=ROOM, **more('src'),
                       append='start=48 size=32 touch=32 rate=50 net=1').wait_ticks(2)
        plug(src)
        lab.link('rate', 100)
        with lab.send_frames('src', 'tap0', count=100000, rate=200) as frames:
            while not src.counters['net']:
                src.wait_ticks()
            there = {'ram': [kind('dst') for kind in reversed(kinds)], 'extra': [*ROOM, *PLUGGED]}
            with godwit.row_off('mapping'):
                godwit.Run(src, godwit.destination(src, **there, **more('dst'))).never_arrives('verify')
            src.wait_ticks(1).check()
            src.command('disk=100')
            dst = godwit.destination(src, 'dst2', **there, **more('dst'))
            before = src.counters
            report = godwit.Run(src, dst).wait()
            assert report['verified'] and report['device-state-saved']
            assert all(src.counters[what] > before[what] for what in ('net', 'disk'))
            godwit.proof(src, dst, stopped='paused')
            frames.kill()
        assert dst.counters['disk'] > src.counters['disk']
        differ = lab.differing_pages(dump(src, DIMM_MIB, DIMM_AT), dump(dst, DIMM_MIB, DIMM_AT))
        proved(not differ, f'the plugged RAM differs in pages {differ}')
        proved(allocated(src) == (64 + 64 + DIMM_MIB) << 20, 'what was locked is gone')
    os.unlink(path)
