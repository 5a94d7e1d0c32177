# SPDX-License-Identifier: GPL-2.0-only
"""Whatever dies, and whenever: the source runs on, nothing is left behind, the module unloads."""
import signal
import subprocess
import time

import godwit
import lab
import pytest
import relay
import wire
from ours import proved

PHASES = ['round', 'stream', 'paused']
SOON = ['--resolve-timeout', '1']	# no sender is left that could ask the receiver
pytestmark = pytest.mark.usefixtures('module')


@pytest.mark.parametrize('phase', PHASES)
def test_sender_killed(pair, phase):
    src, dst = pair
    run = godwit.start_in(phase, pair, receive_options=SOON)
    run.send.kill().wait()
    assert run.receive.wait() in (godwit.EXIT['link-lost'], godwit.EXIT['peer-failed'])
    godwit.unharmed(src)


def test_sender_killed_before_the_first_round(pair, waiting):
    waiting[0].kill().wait()
    godwit.unharmed(pair[0])


def test_receiver_killed_before_the_first_round(pair, waiting):
    waiting[1].kill().wait()
    assert waiting[0].wait() == godwit.EXIT['link-lost'], waiting[0].said
    godwit.unharmed(pair[0])


@pytest.mark.parametrize('phase', PHASES)
def test_receiver_killed(pair, phase):
    src, dst = pair
    run = godwit.start_in(phase, pair)
    run.receive.kill().wait()
    assert run.send.wait() == godwit.EXIT['link-lost'], run.send.said
    godwit.unharmed(src)


@pytest.mark.parametrize('phase', ['stream', 'paused'])
def test_ctrl_c(pair, phase):
    """
    In a late round, or in the blackout. The sender finds all requests in one place (unit/test_stop.c); test_control.py asks
    in every phase.
    """
    run = godwit.start_in(phase, pair)
    run.send.kill(signal.SIGINT)
    report = run.wait('cancelled')
    assert 'cancelled' in run.receive.said
    assert report['rounds'][-1]['late'] or phase != 'stream', report['rounds']
    godwit.unharmed(pair[0])


@pytest.mark.parametrize('phase', PHASES)
def test_link_lost(pair, phase):
    src, dst = pair
    run = godwit.start_in(phase, pair, '--peer-timeout', '4', receive_options=['--peer-timeout', '4', *SOON])
    lab.link('down')
    assert run.send.wait(60) in (godwit.EXIT['timeout'], godwit.EXIT['link-lost']), run.send.said
    lab.link('up')
    assert run.receive.wait() in (godwit.EXIT['timeout'], godwit.EXIT['link-lost']), run.receive.said
    godwit.unharmed(src)


def test_link_lost_beside_qemus_own_stream(pair):
    """Which cannot be sent again: --reconnect, which is for rounds of pre-copy, does not have either host wait."""
    run = godwit.start_in('stream', pair, '--reconnect', '600', '--peer-timeout', '4', receive_options=['--peer-timeout', '4', *SOON])
    time.sleep(4)	# RAM goes before it
    lab.link('down')
    assert run.send.wait(60) in (godwit.EXIT['timeout'], godwit.EXIT['link-lost']), run.send.said
    assert 'connect again' not in run.send.said, run.send.said
    assert run.receive.wait(60) in (godwit.EXIT['timeout'], godwit.EXIT['link-lost']), run.receive.said
    assert 'to connect again' not in run.receive.said, run.receive.said
    lab.link('up')
    godwit.unharmed(pair[0])


def test_signal_while_the_link_is_down(pair):
    run = godwit.start_in('round', pair)
    lab.link('down')
    time.sleep(1)
    run.send.kill(signal.SIGINT)
    assert run.send.wait(20) == godwit.EXIT['cancelled'], run.send.said
    lab.link('up')
    run.receive.kill().wait()
    godwit.unharmed(pair[0])


@pytest.mark.parametrize('cut', [wire.DEVICE_END, wire.RESUMED], ids=['before-it-arrives', 'before-the-answer'])
def test_link_lost_behind_the_commit_point(pair, cut):
    """A sender asks in vain. The guest runs once, or nowhere until an operator has looked."""
    src, dst = pair
    between = relay.Relay((lab.ADDRESS['dst'], godwit.PORT), cut)
    try:
        run = godwit.Run(src, dst, '--resolve-timeout', '1', verify=False, to=between.address,
                         receive_options=['--resolve-timeout', '1'])
        assert run.send.wait() == godwit.EXIT['unknown'], run.send.said
        there = run.receive.wait()
    finally:
        between.stop()
    assert 'look at both ends' in run.send.said
    proved(src.query_status() == 'postmigrate', 'the source does not stay where it stopped')
    if cut == wire.DEVICE_END:
        assert there == godwit.EXIT['link-lost'], run.receive.said
        dst.process.wait(30)	# what has come must never run
        proved(not dst.has_run(), 'the destination ran')
    else:
        godwit.proof(src, dst)


def test_link_lost_in_the_device_state(pair):
    """It is on its way, but the word to use it is not: the source runs on."""
    src, dst = pair
    between = relay.Relay((lab.ADDRESS['dst'], godwit.PORT), wire.DEVICE)
    try:
        run = godwit.Run(src, dst, verify=False, to=between.address, receive_options=['--resolve-timeout', '1'])
        assert run.send.wait() == godwit.EXIT['link-lost'], run.send.said
        assert run.receive.wait() == godwit.EXIT['link-lost'], run.receive.said
    finally:
        between.stop()
    godwit.unharmed(src)


def test_source_qemu_killed(pair):
    src, dst = pair
    run = godwit.start_in('round', pair)
    src.kill()
    assert run.send.wait() == godwit.EXIT['vm-gone'], run.send.said
    run.receive.wait()
    godwit.never_ran(dst)
    godwit.unload()


def test_destination_qemu_killed(pair):
    src, dst = pair
    run = godwit.start_in('round', pair)
    dst.kill(keep=True)
    lab.link('rate', 400)
    status = run.send.wait()
    assert status in (godwit.EXIT['vm-gone'], godwit.EXIT['peer-failed'], godwit.EXIT['device-state']), run.send.said
    godwit.unharmed(src)


@pytest.mark.compared
def test_device_state_refused(directory):
    """The destination has a device less: that is seen before anything is sent, but with an older receiver QEMU refuses it."""
    src = lab.Qemu('src', directory=directory, append='start=16 size=16 touch=8 rate=50',
                   devices=lab.rng()).wait_ticks(2)
    dst = godwit.destination(src)
    run = godwit.Run(src, dst)
    run.wait('misfit')
    assert 'virtio-rng-pci' in run.send.said and dst.query_status() == 'inmigrate'
    assert lab.allocated_bytes(dst.ram[0].path) == 0
    godwit.unharmed(src)
    run.kill()
    between = relay.Watching((lab.ADDRESS['dst'], godwit.PORT), blind=True)
    try:
        run = godwit.Run(src, dst, to=between.address)
        run.wait('device-state')
    finally:
        between.stop()
    assert 'same machine type and devices' in run.send.said and 'too old to describe' in run.send.said
    godwit.unharmed(src)


def test_unload_is_refused(directory):
    src = lab.Qemu('src', directory=directory, append='start=16 size=16 touch=4').wait_ticks(1)
    godwit.note(src)
    with subprocess.Popen([godwit.tool('slots'), str(src.pid), 'hold'], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline().startswith('memslots=')
        done = subprocess.run(['rmmod', 'godwit'], stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode and 'in use' in done.stderr
        run = godwit.Run(src, godwit.destination(src))
        run.wait('busy')
        holder.stdin.close()
    godwit.unharmed(src)
