# SPDX-License-Identifier: GPL-2.0-only
"""What an operator, a manager or a broken monitor does in the very moments of the switchover: the guest runs once."""
import os
import signal
import socket
import subprocess
import threading
import time

import godwit
import lab
import monitor
import pytest
import relay
import sources
import wire
from monitor import Monitor
from ours import proved

APPEND = 'start=16 size=16 touch=8 rate=50'
AT, TO = godwit.AT, godwit.TO
pytestmark = pytest.mark.native


def source(directory, **more):
    return sources.plain(directory, APPEND, **more)


@pytest.fixture
def pair(directory):
    src = source(directory)
    return src, godwit.destination(src)


def receive(dst, *options):
    return godwit.listen(dst, *options, '--peer-timeout', '8', '--resolve-timeout', '1')


def send(src, *options, to=AT):
    return godwit.Process('src', 'send', *(options or ('--qmp', src.main_qmp)), '--pause', '--peer-timeout', '8', '--resolve-timeout', '1',
                          to)


def stands_still(vm, seconds=1.5):
    before = vm.ticks
    time.sleep(seconds)
    return vm.ticks == before


def test_monitor_breaks_as_the_guest_runs(pair):
    """The receiver hears nothing more: that is no proof of anything, the destination is left alone, and the source stands still."""
    src, dst = pair
    between = Monitor(dst, lambda direction, data: direction == 'from' and b'"RESUME"' in data and Monitor.DROP)
    there, here = receive(dst, *between.options()), send(src)
    assert here.wait() == godwit.EXIT['unknown'], here.said
    assert there.wait() == godwit.EXIT['unknown'], there.said
    dst.wait_ticks(2).check()
    proved(src.query_status() == 'postmigrate' and stands_still(src), 'both run')


def test_an_undecided_verdict_stays(pair):
    """
    A receiver that lost its monitor says "in-doubt" when it is asked, which decides nothing: its file stays, and a receiver that
    is started when QEMU can be reached again looks, and knows. That another guest runs behind the same path says nothing.
    """
    src, dst = pair
    between = Monitor(dst, lambda direction, data: direction == 'from' and b'"RESUME"' in data and Monitor.DROP)
    there = godwit.listen(dst, *between.options(), '--peer-timeout', '8', '--resolve-timeout', '9')
    here = godwit.Process('src', 'send', '--qmp', src.main_qmp, '--pause', '--resolve-timeout', '6', AT)
    assert here.wait() == godwit.EXIT['unknown'] and 'says "in-doubt"' in here.said, here.said
    assert there.wait() == godwit.EXIT['unknown'], there.said
    assert there.said.count('how its migration ended: in-doubt') > 1, there.said
    other = godwit.destination(src, 'dst2')
    another = receive(other)
    ask = 'src', 'resolve', '--qmp', src.main_qmp, '--resolve-timeout', '2', '--to', AT
    stranger = lab.Qemu('stranger', 'dst', directory=src.directory, ram=64, append=APPEND).wait_ticks(1)
    between.step_aside(stranger)
    p = godwit.Process(*ask)
    assert p.wait() == godwit.EXIT['unknown'] and 'says "in-doubt"' in p.said, p.said
    stranger.kill()
    between.step_aside()
    p = godwit.Process(*ask)
    assert p.wait() == 0 and 'is at the destination' in p.said, p.said
    another.kill().wait()
    godwit.proof(src, dst)


def test_the_source_s_monitor_is_lost(pair):
    """Of a QEMU that lives, with the guest stopped: the guardian connects anew, and the guest runs on before the sender ends."""
    src, dst = pair
    lost = threading.Event()
    there = receive(dst)
    here = send(src, *monitor.in_the_blackout(src, lost.set).options())
    assert here.wait() != 0 and lost.is_set() and 'guardian' in here.said, here.said
    proved(src.query_status() == 'running', f'the source is {src.query_status()}')
    there.wait()
    proved(not dst.has_run(), 'the destination ran')
    godwit.unharmed(src)


@pytest.mark.parametrize('mode', ['migrate', 'save'])
def test_another_qemu_takes_the_socket(pair, mode):
    """
    The source QEMU hangs in the switchover, the sender is killed, and the operator starts another QEMU with the same path, and
    stops its guest: that one is left alone, and the first one's guest runs on as soon as it can.
    """
    src, dst = pair
    killed = threading.Event()
    here = None

    def hangs():
        here.kill(signal.SIGSTOP)
        os.kill(src.pid, signal.SIGSTOP)
        here.kill()
        killed.set()
    between = relay.Relay(TO, wire.RAM, at_cut=hangs)
    try:
        there = receive(dst)
        here = send(src, '--qmp', src.main_qmp, '--device-state', mode, '--compress', 'off', to=between.address)
        assert killed.wait(60), here.said
        here.wait()
        stranger = lab.Qemu('stranger', directory=src.directory, ram=64, append=APPEND).wait_ticks(1)
        stranger.qmp('stop')
        os.rename(stranger.main_qmp, src.main_qmp)
        end = time.monotonic() + 60
        while 'another program has the socket' not in here.said:
            here.poll()
            assert time.monotonic() < end, here.said
            time.sleep(0.05)
        assert f'process {src.pid}' in here.said and 'rolled back' not in here.said, here.said
    finally:
        os.kill(src.pid, signal.SIGCONT)
        between.stop()
    assert there.wait() != 0
    godwit.unharmed(src)
    here.poll()
    assert 'rolled back' in here.said, here.said
    proved(stranger.query_status() == 'paused', f'the other guest is {stranger.query_status()}')
    stranger.kill()


def test_cancelled_in_the_last_moment(directory):
    """By another client, while QEMU writes the device state: its stream then has an end, too, and the guest runs on."""
    src = source(directory, cpus=20)
    dst = godwit.destination(src)
    waits = threading.Event()
    here = None

    def hold(direction, data):
        if direction == 'to' and b'"migrate-continue"' in data:
            here.kill(signal.SIGSTOP)
            waits.set()
    between = Monitor(src, hold)
    there = receive(dst)
    here = send(src, *between.options())
    assert waits.wait(60), here.said
    time.sleep(1)
    src.hang_up()
    with socket.socket(socket.AF_UNIX) as other:
        other.connect(f'{src.run}/test.qmp')
        other.sendall(b'{"execute": "qmp_capabilities"}\n{"execute": "migrate_cancel"}\n')	# is answered when QEMU's lock is free
        time.sleep(0.5)
        here.kill(signal.SIGCONT)
        status = here.wait()
    there.wait()
    if status == 0:	# QEMU had completed before it heard of that
        godwit.proof(src, dst)
    else:
        godwit.unharmed(src)
        proved(not dst.has_run(), 'the destination ran')


def test_continued_before_the_end(pair, directory):
    """A client says `cont` when QEMU is done and DEVICE_END has not left: what the guest writes here now would be lost."""
    src, dst = pair
    slow = f'{directory}/slow'
    with open(f'{slow}.c', 'w', encoding='ascii') as f:	# the note of the doubt is locked just before that
        f.write('#include <unistd.h>\n#include <sys/syscall.h>\n'
                'int flock(int fd, int op) { sleep(3); return syscall(SYS_flock, fd, op); }\n')
    subprocess.run(['cc', '-shared', '-fPIC', '-o', f'{slow}.so', f'{slow}.c'], check=True)
    there = godwit.listen(dst, '--resolve-timeout', '1')	# it is still there when the check is over
    os.environ['LD_PRELOAD'] = f'{slow}.so'
    try:
        here = send(src)
    finally:
        del os.environ['LD_PRELOAD']
    while src.query_status() != 'postmigrate':
        assert here.poll() is None, here.said
        time.sleep(0.02)
    src.qmp('cont')
    assert here.wait() == godwit.EXIT['vm-state'] and 'cont' in here.said, here.said
    there.wait()
    godwit.unharmed(src)
    proved(not dst.has_run(), 'the destination ran')


def test_refused_while_the_source_hangs(directory):
    """Behind the commit point the destination says no, and the source's QEMU does not listen: the guardian lets it run later."""
    src = source(directory, devices=['-device', 'virtio-rng-pci'])
    dst = godwit.destination(src)	# without that device
    between = relay.Watching(TO, lambda kind: kind == wire.DEVICE_END and src.process.send_signal(signal.SIGSTOP), blind=True)
    try:
        there, here = receive(dst), send(src, to=between.address)
        assert here.wait() == godwit.EXIT['not-put-back'], here.said
        there.wait()
    finally:
        between.stop()
        src.process.send_signal(signal.SIGCONT)
    assert 'guardian' in here.said
    godwit.unharmed(src)
    status = godwit.Process('src', 'resolve', '--qmp', src.main_qmp).wait()
    assert status == godwit.EXIT['no-migration']


@pytest.mark.parametrize('how', ['cancelled', 'killed'])
def test_qemu_is_slow_to_begin(pair, how):
    """Seconds pass between our record of `migrate` and its beginning: it is ours all the same."""
    src, dst = pair
    there = godwit.listen(dst, '--resolve-timeout', '1')
    over = threading.Event()

    def slow(direction, data):
        if direction == 'to' and b'"getfd"' in data:
            time.sleep(4)
        if direction == 'to' and b'"migrate-continue"' in data:	# it gets no further
            over.wait(60)
            return Monitor.END
        return None
    between = Monitor(src, slow)
    here = godwit.Process('src', 'send', *between.options(), '--pause', AT)
    while src.qmp('query-migrate').get('status') != 'pre-switchover':
        assert here.poll() is None, here.said
        time.sleep(0.02)
    here.kill(signal.SIGKILL if how == 'killed' else signal.SIGINT)
    over.set()
    here.wait()
    there.wait()
    godwit.unharmed(src)


@pytest.mark.parametrize('how', ['arrives', 'cancelled'])
def test_stopped_while_private_ram_is_sent(directory, flash, how):
    """By an operator, when QEMU's migration runs already: it stays stopped, there or here."""
    src = source(directory, extra=flash)
    dst = godwit.destination(src)
    stopped = threading.Event()
    here = None

    def seen(kind):
        if kind == wire.DEVICE and not stopped.is_set():
            time.sleep(1)
            src.qmp('stop')
            stopped.set()
            if how == 'cancelled':	# the relay reads no more of that meanwhile, so that it is on its way still
                here.kill(signal.SIGINT)
                time.sleep(1)
    between = relay.Watching(TO, seen)
    try:
        there = receive(dst)
        here = godwit.Process('src', 'send', '--qmp', src.main_qmp, '--pause', between.address)
        status = here.wait()
        there.wait()
    finally:
        between.stop()
    assert stopped.is_set()
    if how == 'cancelled':
        assert status == godwit.EXIT['cancelled'], here.said
        proved(src.query_status() in ('paused', 'postmigrate') and stands_still(src), 'it runs here')
        godwit.never_ran(dst)
    else:
        assert status == 0, here.said
        proved(dst.query_status() == 'paused' and not dst.counters, 'it runs there')
        godwit.same_ram(src, dst)


def test_who_waits_can_be_stopped(pair):
    """`resolve` while it asks, and a receiver that waits to be asked."""
    src, dst = pair
    between = relay.Relay(TO, wire.RESUMED)
    try:
        there = godwit.listen(dst, '--peer-timeout', '8')
        here = send(src, to=between.address)
        assert here.wait() == godwit.EXIT['unknown'], here.said
    finally:
        between.stop()
    p = godwit.Process('src', 'resolve', '--qmp', src.main_qmp)
    time.sleep(1)
    assert p.kill(signal.SIGINT).wait(30) == godwit.EXIT['unknown'], p.said
    there.wait_for('waiting')
    assert there.kill(signal.SIGTERM).wait(30) == 0, there.said
    godwit.proof(src, dst)


def test_signs_of_life_for_ever(pair):
    """A receiver that says PONG and nothing else: the sender is in doubt after a while."""
    src, dst = pair

    class Pongs(relay.Relay):
        """RESUMED never comes."""

        def _frames(self, a, b):
            try:
                while head := self._head(a):
                    _, kind, _, _, length, _ = wire.HEADER.unpack(head)
                    body = self._receive(a, length)
                    while kind == wire.RESUMED and not self.stopped.is_set():
                        b.sendall(wire.frame(wire.PONG, 0, bytes(8)))
                        time.sleep(0.2)
                    b.sendall(head + body)
            except (OSError, ValueError):
                pass
    between = Pongs(TO, None)
    try:
        there = receive(dst)
        here = godwit.Process('src', 'send', '--qmp', src.main_qmp, '--pause', '--peer-timeout', '3', '--resolve-timeout', '1',
                              between.address)
        assert here.wait(60) == godwit.EXIT['unknown'] and 'the receiver answers' in here.said, here.said
    finally:
        between.stop()
    assert there.wait() == 0, there.said
    godwit.proof(src, dst)
