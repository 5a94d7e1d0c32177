# SPDX-License-Identifier: GPL-2.0-only
"""The device state that QEMU saves and godwit carries, with QEMU's private RAM; and RAM that has no name."""
import ctypes
import os
import re
import signal
import time

import godwit
import lab
import pytest
import relay
import wire
from heap import Forger
from ours import proved

SAVE = ['--device-state', 'save']
VRAM = 'vga.vram'
COMMON = 'pc-q35-7.2'	# every QEMU has it
pytestmark = pytest.mark.usefixtures('module')


def told(vm):
    """Does this QEMU say where its RAM is?"""
    return vm.qmp('query-version')['qemu']['major'] >= 8


def private_blocks(vm):
    """{name: (address, bytes)} of all that is not the guest's RAM."""
    text = vm.qmp('x-query-ramblock')['human-readable-text']
    rows = [line.split() for line in text.splitlines()[1:]]
    return {row[0]: (int(row[6], 16), int(row[4], 16)) for row in rows if len(row) == 8 and not row[0].startswith('ram')}


class Iovec(ctypes.Structure):
    _fields_ = [('base', ctypes.c_void_p), ('len', ctypes.c_size_t)]


def move(call, vm, address, buffer):
    libc = ctypes.CDLL(None, use_errno=True)
    ours, theirs = Iovec(ctypes.addressof(buffer), len(buffer)), Iovec(address, len(buffer))
    n = getattr(libc, call)(vm.pid, ctypes.byref(ours), ctypes.c_ulong(1), ctypes.byref(theirs), ctypes.c_ulong(1), ctypes.c_ulong(0))
    assert n == len(buffer), os.strerror(ctypes.get_errno())


def peek(vm, address, n):
    buffer = ctypes.create_string_buffer(n)
    move('process_vm_readv', vm, address, buffer)
    return buffer.raw


def poke(vm, address, data):
    move('process_vm_writev', vm, address, (ctypes.c_char * len(data)).from_buffer_copy(data))


def display(vm):
    """The address of its memory."""
    return next(address for name, (address, _) in private_blocks(vm).items() if name.endswith(VRAM))


def same_private_ram(src, dst):
    ours, theirs = private_blocks(src), private_blocks(dst)
    proved(ours.keys() == theirs.keys(), 'private RAM differs:', ours.keys(), theirs.keys())
    for name, (address, n) in ours.items():
        proved(peek(src, address, n) == peek(dst, theirs[name][0], n), f'private RAM differs: {name}')


def start_in_blackout(pair, *options, **more):
    return godwit.start_in('blackout', pair, *SAVE, *options, **more)


@pytest.mark.parametrize('here, there', [('own', 'own'), ('own', 'newer'), ('newer', 'newer')])
def test_memfd(directory, qemu, here, there):
    """Which way the device state goes depends on what this QEMU leaves out of its own migration."""
    lab.net()
    here, there = (lab.QEMU if which == 'own' else qemu for which in (here, there))
    src = lab.Qemu('src', directory=directory, qemu=here, ram=[lab.Ram(64, 'memfd'), lab.Ram(64, 'memfd')], devices=lab.rng(),
                   machine=COMMON, append='start=16 size=100 touch=90 rate=300 rng=20').wait_ticks(2)
    lab.link('rate', 200)
    dst = godwit.destination(src, devices=lab.rng(), machine=COMMON, qemu=there)
    report = godwit.Run(src, dst).wait()
    assert report['verified'] and report['device-state-saved'] == told(src)
    godwit.proof(src, dst, stopped='paused' if told(src) else 'postmigrate')


def test_saved(saving):
    """Private RAM that is written before, and while RAM is sent; all of it is there afterwards."""
    src, dst = saving
    address = display(src)
    poke(src, address, os.urandom(1 << 20))
    poke(src, address + (8 << 20), b'\1' * 4096)
    lab.link('rate', 5)	# the round lasts until all of this is done, also on a host that is slow
    run = godwit.Run(src, dst, *SAVE)
    run.send.wait_round(1)
    src.qmp('stop')
    src.qmp('cont')	# before the switchover any client may do that
    poke(src, address + (1 << 20), os.urandom(8192))
    poke(src, address + 8192, bytes(4096))
    poke(src, address + (8 << 20), bytes(4096))
    lab.link('rate', 100)
    report = run.wait()
    assert report['verified'] and report['device-state-saved']
    assert report['ram']['device-bytes'] > 9 << 20
    godwit.proof(src, dst, stopped='paused')
    same_private_ram(src, dst)
    # It stands still as any paused VM does, but is not to be moved a second time.
    again = godwit.Process('src', 'send', '--qmp', src.main_qmp, godwit.AT)
    assert again.wait() == godwit.EXIT['vm-state'] and 'was sent to' in again.said


@pytest.mark.parametrize('blind', [False, True], ids=['', 'older'])
def test_memfds_swapped(directory, qemu, blind):
    """What holds the guest's upper half has the name of the lower one at the destination: places count. An older sender asks less."""
    lab.net()
    ram = [lab.Ram(64, 'memfd'), lab.Ram(64, 'memfd')]
    src = lab.Qemu('src', directory=directory, qemu=qemu, ram=ram, append='start=16 size=100 touch=20 rate=100').wait_ticks(2)
    dst = godwit.destination(src, ram=ram, order=[1, 0])
    between = relay.Watching(godwit.TO, blind=blind)
    try:
        report = godwit.Run(src, dst, to=between.address).wait()
    finally:
        between.stop()
    assert report['verified'] and report['device-state-saved']
    godwit.proof(src, dst, stopped='paused')


@pytest.mark.parametrize('way', ['save', 'migrate'])
def test_display(saving, way):
    """
    The guest writes to the display up to the stop, and finds there what it wrote. KVM keeps the last of that to itself
    (coalesced MMIO): QEMU's own migration loses it in every other run.
    """
    src, dst = saving
    src.command('rate=300 vga=50').wait_ticks(2).check()
    lab.link('rate', 100)
    report = godwit.Run(src, dst, '--device-state', way).wait()
    assert report['device-state-saved'] == (way == 'save')
    godwit.proof(src, dst, stopped='paused' if way == 'save' else 'postmigrate')
    assert dst.counters['vga'] > src.counters['vga'] > 0
    # And would say if it were otherwise. Stopped when it has looked and not yet written, it writes over what is put there.
    end = time.monotonic() + 60
    while not any('display shows' in words for words in dst.complaints):
        assert time.monotonic() < end
        dst.qmp('stop')
        dst.qmp('human-monitor-command', command_line='i /xw 0xcf8')
        poke(dst, display(dst), bytes([peek(dst, display(dst), 1)[0] ^ 1]))
        dst.qmp('cont')
        dst.wait_ticks(1)


def test_link_lost_behind_the_commit_point(saving):
    src, dst = saving
    between = relay.Relay(godwit.TO, wire.DEVICE_END)
    try:
        run = godwit.Run(src, dst, *SAVE, '--resolve-timeout', '1', verify=False, to=between.address,
                         receive_options=['--resolve-timeout', '1'])
        assert run.send.wait() == godwit.EXIT['unknown'], run.send.said
        assert run.receive.wait() == godwit.EXIT['link-lost'], run.receive.said
    finally:
        between.stop()
    assert 'look at both ends' in run.send.said
    proved(src.query_status() == 'paused', 'the source runs')
    dst.process.wait(30)	# what has come must never run
    proved(not dst.has_run(), 'the destination ran')
    # An operator who has looked at both ends can let it run here.
    src.qmp('cont')
    src.wait_ticks(2).check()


def test_refused_by_the_destination(directory, qemu):
    """It has the same private RAM, but a device less."""
    lab.net()
    src = lab.Qemu('src', directory=directory, qemu=qemu, append='start=16 size=16 touch=8 rate=50', devices=lab.rng()).wait_ticks(2)
    between = relay.Watching(godwit.TO, blind=True)
    try:
        run = godwit.Run(src, godwit.destination(src), *SAVE, to=between.address)
        run.wait('device-state')
    finally:
        between.stop()
    assert run.send.said.count('private RAM') == 0 and 'same machine type and devices' in run.send.said
    godwit.unharmed(src)


def test_check(saving):
    """It asks both sides, and the receiver says why it cannot: also to one that does not compare more than that."""
    src, dst = saving
    dst.kill()
    other = godwit.destination(src, 'dst2', extra=())
    receive = godwit.listen(other)
    question = ['src', 'check', '--qmp', src.main_qmp, '--probe', '0', '--to']
    asked = godwit.Process(*question, godwit.AT, *SAVE)
    assert asked.wait() == godwit.EXIT['misfit'] and re.search(r'no +device there', asked.said), asked.said
    assert 'system.flash0 is missing' in asked.said
    for options, status in ((SAVE, 'ram-differs'), ((), 'ok')):
        between = relay.Watching(godwit.TO, blind=True)
        try:
            asked = godwit.Process(*question, between.address, *options)
            assert asked.wait() == godwit.EXIT[status] and re.search(r'warning +fit ', asked.said), asked.said
        finally:
            between.stop()
    assert "by a migration of QEMU's own" in asked.said, asked.said
    assert receive.kill(signal.SIGINT).wait() == godwit.EXIT['cancelled'] and 'private RAM "' in receive.said


def test_paused_guest_stays_paused(saving):
    src, dst = saving
    src.qmp('stop')
    report = godwit.Run(src, dst, *SAVE).wait()
    assert report['guest-was-paused'] and report['device-state-saved']
    proved(dst.query_status() == 'paused', 'the guest does not stand still')
    same_private_ram(src, dst)
    godwit.same_ram(src, dst)
    dst.qmp('cont')
    dst.wait_ticks(1).check()


def test_sender_killed(saving):
    start_in_blackout(saving).send.kill().wait()
    godwit.unharmed(saving[0])


def test_receiver_killed(saving):
    run = start_in_blackout(saving)
    run.receive.kill().wait()
    assert run.send.wait() == godwit.EXIT['link-lost'], run.send.said
    godwit.unharmed(saving[0])


def test_ctrl_c(saving):
    run = start_in_blackout(saving)
    run.send.kill(signal.SIGINT)
    run.wait('cancelled')
    godwit.unharmed(saving[0])


def test_link_lost(saving):
    run = start_in_blackout(saving, '--peer-timeout', '4', receive_options=['--peer-timeout', '4'])
    lab.link('down')
    assert run.send.wait(60) in (godwit.EXIT['timeout'], godwit.EXIT['link-lost']), run.send.said
    lab.link('up')
    godwit.unharmed(saving[0])


def test_stopped_meanwhile(saving):
    """A guest that an operator stops while RAM is sent is not let run at the destination."""
    src, dst = saving
    lab.link('rate', 40)
    run = godwit.Run(src, dst, '--downtime-limit', '60000', *SAVE)
    run.send.wait_round(1)
    src.qmp('stop')
    run.wait('vm-state')
    assert 'stopped during the migration' in run.send.said
    assert src.query_status() == 'paused'
    src.qmp('cont')
    godwit.unharmed(src)


@pytest.mark.compared
def test_plugged_meanwhile(saving):
    """RAM that comes while RAM is sent is in no round."""
    src, dst = saving
    lab.link('rate', 40)
    run = godwit.Run(src, dst, '--downtime-limit', '60000', *SAVE)
    run.send.wait_round(1)
    src.qmp('object-add', qom_type='memory-backend-ram', id='more', size=1 << 20)
    run.wait('vm-state')
    assert 'plugged' in run.send.said
    src.qmp('object-del', id='more')
    godwit.unharmed(src)


def test_somebody_continues(saving):
    """A source that is continued in the blackout would lose its writes: the migration gives up, the guest runs on."""
    run = start_in_blackout(saving, verify=False)
    saving[0].qmp('cont')
    run.wait('vm-state')
    assert 'leave the VM alone' in run.send.said
    godwit.unharmed(saving[0])


def test_other_devices(saving):
    """A destination with other private RAM, while nothing but saving was allowed."""
    src, dst = saving
    dst.kill()
    other = godwit.destination(src, 'dst2', extra=())
    between = relay.Watching(godwit.TO, blind=True)
    try:
        run = godwit.Run(src, other, *SAVE, to=between.address)
        run.wait('ram-differs')
    finally:
        between.stop()
    assert 'private RAM "' in run.receive.said
    godwit.unharmed(src)


def old(directory, **more):
    """A QEMU that does not say where its RAM is."""
    src = lab.Qemu('src', directory=directory, append='start=16 size=16 touch=8 rate=100', **more).wait_ticks(1)
    if told(src):
        pytest.skip("this system's QEMU says where its RAM is")
    return src


def test_old(directory, flash):
    src = old(directory, vga='std', extra=flash)
    dst = godwit.destination(src)
    report = godwit.Run(src, dst, *SAVE).wait()
    assert report['verified'] and report['device-state-saved']
    godwit.proof(src, dst, stopped='paused')


def test_old_and_moved(directory):
    """What was where it was found may be elsewhere when the guest stands still: a device was unplugged, and plugged again."""
    src = old(directory)
    forger = Forger(src)
    lab.net()
    lab.link('rate', 40)
    run = godwit.Run(src, godwit.destination(src), '--downtime-limit', '60000', *SAVE)
    run.send.wait_round(1)
    with open(f'/proc/{src.pid}/maps', encoding='ascii') as maps:	# that is writable, and of no block
        forger.put_block('pc.rom', next(int(line.split('-')[0], 16) for line in maps if line.endswith('[stack]\n')))
    run.wait('vm-state')
    assert '"pc.rom" was found in two places' in run.send.said and 'meanwhile' in run.send.said
    forger.put()
    godwit.unharmed(src)
