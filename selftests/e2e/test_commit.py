# SPDX-License-Identifier: GPL-2.0-only
"""A sender is killed behind its commit point: the source stays stopped, whatever the destination does."""
import contextlib
import threading
import time

import godwit
import lab
import pytest
import relay
import wire
from kinds import KINDS
from ours import proved

pytestmark = pytest.mark.usefixtures('module')


class Gate(relay.Relay):
    """
    Holds frames back on each connection, from the first of type `first` or `last` on (of DEVICE: one that is to be kept).
    reached: one of type `last` is here. release(but): passes them on, without those of type `but`. When one peer dies the gate keeps its
    connection to the other, until stop().
    """

    def __init__(self, first, last):
        self.last = last
        self.reached, self.released = threading.Event(), threading.Event()
        self.left_out = None
        super().__init__((lab.ADDRESS['dst'], godwit.PORT), first)

    def _frames(self, a, b):
        held = []
        with contextlib.suppress(OSError, ValueError):
            while head := self._head(a):
                _, kind, flags, _, length, _ = wire.HEADER.unpack(head)
                frame = head + self._receive(a, length)
                if not (held or kind == self.last or kind == self.cut and (kind != wire.DEVICE or flags & wire.HELD)):
                    b.sendall(frame)
                    continue
                held.append((kind, frame))
                if kind == self.last:
                    self.reached.set()
        if held:
            self._pass_on(b, held)

    def _pass_on(self, b, held):
        while not self.stopped.is_set() and not self.released.wait(0.1):
            pass
        with contextlib.suppress(OSError):
            for kind, frame in held:
                if not self.stopped.is_set() and kind != self.left_out:
                    b.sendall(frame)

    def release(self, but=None):
        self.left_out = but
        self.released.set()


@pytest.fixture(params=[*godwit.STOPPED, 'private'])
def moving(request, directory, qemu):
    """A pair, with RAM in files or of the processes alone, and how the device state goes."""
    lab.net()
    more = {'qemu': lab.QEMU if request.param == 'migrate' else qemu}
    if request.param == 'private':
        more['ram'] = [KINDS['anonymous']('src')]
    src = lab.Qemu('src', directory=directory, append='start=16 size=16 touch=12 rate=300', **more).wait_ticks(2)
    return src, godwit.destination(src, **more), 'migrate' if request.param == 'migrate' else 'save'


@contextlib.contextmanager
def killed_behind_it(moving, first, last, patience='600'):
    """
    A migration whose sender is dead since the gate holds the frame `last`. patience: of the receiver, with a peer that is silent; it
    hears of the death when this ends.
    """
    src, dst, how = moving
    gate = Gate(first, last)
    try:
        run = godwit.Run(src, dst, '--device-state', how, to=gate.address, receive_options=['--resolve-timeout', '1', '--peer-timeout', patience])
        assert gate.reached.wait(60), run.send.said
        run.send.kill().wait()
        yield run, gate
    finally:
        gate.stop()


def stays_stopped(src, how):
    """For longer than a guardian would need to let the guest run; and a second sender refuses it."""
    before = src.ticks
    time.sleep(2)
    proved(src.query_status() == godwit.STOPPED[how], f'the source is {src.query_status()}')
    proved(src.ticks == before, 'the source runs')
    again = godwit.Process('src', 'send', '--qmp', src.main_qmp, godwit.address(1))
    assert again.wait() == godwit.EXIT['vm-state'], again.said


def test_before_the_device_state_arrives(moving):
    """The guest runs nowhere while its device state is on the way, and then at the destination."""
    src, dst, how = moving
    with killed_behind_it(moving, wire.DEVICE, wire.DEVICE_END) as (run, gate):
        stays_stopped(src, how)
        proved(dst.query_status() == 'inmigrate', f'the destination is {dst.query_status()}')
        gate.release()
        dst.wait_ticks(1)
    assert run.receive.wait() == 0, run.receive.said
    godwit.proof(src, dst, stopped=godwit.STOPPED[how])


def test_the_device_state_never_arrives(moving):
    """The guest runs nowhere, and at the source again when an operator continues it."""
    src, dst, how = moving
    with killed_behind_it(moving, wire.DEVICE, wire.DEVICE_END) as (run, _):
        stays_stopped(src, how)
    assert run.receive.wait() == godwit.EXIT['link-lost'], run.receive.said
    dst.process.wait(30)
    proved(not dst.has_run(), 'the destination ran')
    proved(src.query_status() == godwit.STOPPED[how], f'the source is {src.query_status()}')
    src.qmp('cont')
    src.wait_ticks(2).check()


def test_the_end_never_arrives(moving):
    """The receiver has all of the device state, but not the word to use it: the guest runs at the source when it is asked."""
    src, dst, how = moving
    with killed_behind_it(moving, wire.DEVICE, wire.DEVICE_END) as (run, gate):
        gate.release(but=wire.DEVICE_END)
        stays_stopped(src, how)
        proved(dst.query_status() == 'inmigrate', f'the destination is {dst.query_status()}')
    assert run.receive.wait() == godwit.EXIT['link-lost'], run.receive.said
    dst.process.wait(30)
    proved(not dst.has_run(), 'the destination ran')
    again = godwit.destination(src, 'dst2')
    receive = godwit.listen(again)
    p = godwit.Process('src', 'resolve', '--qmp', src.main_qmp, '--to', godwit.AT)
    assert p.wait() == 0 and 'as it was before' in p.said, p.said
    receive.kill().wait()
    godwit.unharmed(src)


def test_before_the_answer(moving):
    """The guest runs at the destination already when the sender dies."""
    src, dst, how = moving
    with killed_behind_it(moving, wire.RESUMED, wire.RESUMED, '5') as (run, _):
        stays_stopped(src, how)
        assert run.receive.wait() == 0, run.receive.said
    godwit.proof(src, dst, stopped=godwit.STOPPED[how])
