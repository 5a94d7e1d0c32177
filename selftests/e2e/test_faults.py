# SPDX-License-Identifier: GPL-2.0-only
"""Whatever dies, and whenever: the source runs on, nothing is left behind, the module unloads."""
import os
import signal
import subprocess
import time

import godwit
import lab
import pytest

# What holds a migration in a phase long enough to be hit there: a slow link, and
#   round      RAM to send
#   stream     QEMU's private RAM (a large flash) to send, while the guest runs
#   paused     much RAM left for the last round, by a downtime limit that allows it
PHASES = ['round', 'stream', 'paused']
pytestmark = pytest.mark.usefixtures('module')
BIOS = '/usr/share/seabios/bios-256k.bin'


@pytest.fixture(scope='session')
def flash():
    """QEMU's arguments for 8 MiB of firmware that do not compress: the BIOS, behind random bytes."""
    path = '/dev/shm/flash'
    with open(BIOS, 'rb') as bios, open(path, 'wb') as f:
        code = bios.read()
        f.write(os.urandom((8 << 20) - len(code)) + code)
    return ['-drive', f'if=pflash,unit=0,format=raw,readonly=on,file={path}']


@pytest.fixture
def pair(directory, flash):
    lab.net()
    src = lab.Qemu('src', directory=directory, extra=flash, append='start=32 size=24 touch=16 rate=1500').wait_ticks(2)
    yield src, godwit.destination(src, extra=flash)


def start_in(phase, pair, *options, **more):
    src, dst = pair
    lab.link('rate', {'round': 20, 'stream': 40, 'paused': 40}[phase])
    run = godwit.Run(src, dst, '--downtime-limit', '300' if phase == 'round' else '60000', *options, **more)
    if phase == 'round':
        run.send.wait_for('round 1')
    else:
        run.wait_status({'stream': 'active', 'paused': 'pre-switchover'}[phase])
    return run


@pytest.mark.parametrize('phase', PHASES)
def test_sender_killed(pair, phase):
    src, dst = pair
    run = start_in(phase, pair)
    run.send.kill().wait()
    godwit.unharmed(src)
    assert run.receive.wait() in (godwit.EXIT['link-lost'], godwit.EXIT['peer-failed'])
    assert dst.process.poll() is not None or dst.query_status() == 'inmigrate'


@pytest.fixture
def waiting(pair):
    """A sender that has connected and waits for the word of a receiver that is stopped."""
    src, dst = pair
    godwit.note_slots(src)
    receive = godwit.Process('dst', 'receive', '--qmp', dst.main_qmp, '--listen', f'10.77.0.2:{godwit.PORT}',
                             '--insecure').wait_for('listening')
    receive.kill(signal.SIGSTOP)
    run = godwit.Run(src, dst, receiver=False)
    time.sleep(2)
    assert run.send.poll() is None
    yield run.send, receive
    receive.kill().wait()


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
    run = start_in(phase, pair)
    run.receive.kill().wait()
    assert run.send.wait() == godwit.EXIT['link-lost'], run.send.said
    godwit.unharmed(src)


@pytest.mark.parametrize('phase', PHASES)
def test_ctrl_c(pair, phase):
    src, dst = pair
    run = start_in(phase, pair)
    begin = time.monotonic()
    run.send.kill(signal.SIGINT)
    run.wait('cancelled')
    assert time.monotonic() - begin < 30
    assert 'cancelled' in run.receive.said
    godwit.unharmed(src)


@pytest.mark.parametrize('phase', PHASES)
def test_link_lost(pair, phase):
    src, dst = pair
    run = start_in(phase, pair, '--timeout', '4', receive_options=['--timeout', '4'])
    lab.link('down')
    assert run.send.wait(60) in (godwit.EXIT['timeout'], godwit.EXIT['link-lost']), run.send.said
    lab.link('up')
    godwit.unharmed(src)
    assert run.receive.wait() in (godwit.EXIT['timeout'], godwit.EXIT['link-lost']), run.receive.said


def test_signal_while_the_link_is_down(pair):
    run = start_in('round', pair)
    lab.link('down')
    time.sleep(1)
    run.send.kill(signal.SIGINT)
    assert run.send.wait(20) == godwit.EXIT['cancelled'], run.send.said
    lab.link('up')
    godwit.unharmed(pair[0])
    run.receive.kill().wait()


def test_source_qemu_killed(pair):
    src, dst = pair
    run = start_in('round', pair)
    src.kill()
    assert run.send.wait() == godwit.EXIT['vm-gone'], run.send.said
    run.receive.wait()
    godwit.unload()


def test_destination_qemu_killed(pair):
    src, dst = pair
    run = start_in('round', pair)
    dst.kill(keep=True)
    lab.link('rate', 400)
    status = run.send.wait()
    assert status in (godwit.EXIT['vm-gone'], godwit.EXIT['peer-failed'], godwit.EXIT['device-state']), run.send.said
    godwit.unharmed(src)


def test_device_state_refused(directory):
    """The destination has a device less."""
    src = lab.Qemu('src', directory=directory, append='start=16 size=16 touch=8 rate=50',
                   devices=lab.rng()).wait_ticks(2)
    run = godwit.Run(src, godwit.destination(src))
    run.wait('device-state')
    assert 'same machine type and devices' in run.send.said
    godwit.unharmed(src)


def test_unload_is_refused(directory):
    src = lab.Qemu('src', directory=directory, append='start=16 size=16 touch=4').wait_ticks(1)
    godwit.note_slots(src)
    with subprocess.Popen([f'{godwit.TOOLS}/slots', str(src.pid), 'hold'], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline().startswith('memslots=')
        done = subprocess.run(['rmmod', 'godwit'], stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode and 'in use' in done.stderr
        run = godwit.Run(src, godwit.destination(src))
        run.wait('busy')
        holder.stdin.close()
    godwit.unharmed(src)
