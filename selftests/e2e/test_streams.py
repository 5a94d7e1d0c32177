# SPDX-License-Identifier: GPL-2.0-only
"""One of several streams is late, silent, or breaks, when all the others have delivered and DEVICE_END is there."""
import contextlib
import os
import signal
import socket
import struct
import subprocess
import threading
import time

import godwit
import lab
import pytest
import relay
import wire
from ours import proved

pytestmark = pytest.mark.native

TO = lab.ADDRESS['dst'], godwit.PORT
LAST = 1	# flag of ROUND
# The guest runs until the blackout; without the module all of its pages are dirty in each round.
RUNNING = {'tool': f'{lab.B}/tools/alldirty'}
MODES = pytest.mark.parametrize('mode', list(godwit.STOPPED))


class OneStream(relay.Relay):
    """
    From its last ROUND on stream 1 is held back: for so many seconds behind DEVICE_END, or for ever (None); 'reset': it breaks then.
    at_end: is called when DEVICE_END has been passed on; cut: and then the control connection ends; ping: a PING goes before it.
    """

    def __init__(self, late, at_end=lambda: None, cut=False, ping=False):
        self.late, self.at_end, self.cut_control, self.ping = late, at_end, cut, ping
        self.end, self.held = threading.Event(), threading.Event()
        super().__init__(TO, None, lasting=True)

    def _frames(self, a, b):
        stream = None
        with contextlib.suppress(OSError, ValueError):
            while head := self._head(a):
                _, kind, flags, arg, length, _ = wire.HEADER.unpack(head)
                body = self._receive(a, length)
                if kind == wire.JOIN:
                    stream = arg
                if stream == 1 and kind == wire.ROUND and flags & LAST:
                    self._hold(b)
                if kind == wire.DEVICE_END and self.ping:
                    b.sendall(wire.frame(wire.PING, 1, bytes(8)))
                b.sendall(head + body)
                if kind == wire.DEVICE_END:
                    self.held.wait(60)
                    self.end.set()
                    self.at_end()
                    if self.cut_control:
                        for s in a, b:
                            s.shutdown(socket.SHUT_RDWR)

    def _hold(self, b):
        self.held.set()
        self.end.wait(60)
        if self.late == 'reset':
            b.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
            b.close()
            raise OSError('as the test has it')
        self.stopped.wait(self.late)


def migrate(pair, between, *options, seconds='2', resolve='20', **more):
    how = ['--downtime-limit', '60000', '--postcopy', 'off'] if more else ['--pause']
    return godwit.Run(*pair, *how, '--streams', '4', '--peer-timeout', seconds, '--resolve-timeout', resolve, *options,
                      to=between.address, receive_options=['--peer-timeout', seconds, '--resolve-timeout', resolve], **more)


@contextlib.contextmanager
def one_stream(*args, **more):
    between = OneStream(*args, **more)
    try:
        yield between
    finally:
        between.stop()


def refused(run, pair, *statuses):
    status = run.send.wait()
    assert status in [godwit.EXIT[s] for s in statuses], run.send.said
    assert run.receive.wait() != 0
    godwit.unharmed(pair[0])
    proved(not pair[1].has_run(), 'the destination ran')


def test_late(pair):
    """It is waited for."""
    with one_stream(1) as between:
        migrate(pair, between, seconds='10').wait()
    godwit.proof(*pair)


@MODES
def test_late_while_it_runs(pair, mode):
    """Five seconds: of a guest that was stopped for them."""
    with one_stream(5) as between:
        migrate(pair, between, '--device-state', mode, seconds='20', **RUNNING).wait()
    godwit.proof(*pair, stopped=godwit.STOPPED[mode])


@MODES
def test_too_late_while_it_runs(pair, mode):
    with one_stream(5) as between:
        refused(migrate(pair, between, '--device-state', mode, **RUNNING), pair, 'timeout', 'peer-failed')


@pytest.mark.parametrize('seconds', [None, 5], ids=['silent', 'delayed'])
def test_too_late(pair, seconds):
    """With the same patience at both ends: whichever gives up first, the guest goes on at the source, without a question."""
    with one_stream(seconds) as between:
        refused(migrate(pair, between), pair, 'timeout', 'peer-failed')


def test_breaks(pair):
    with one_stream('reset') as between:
        refused(migrate(pair, between, seconds='8'), pair, 'link-lost', 'peer-failed')


def test_sender_killed(pair):
    """All has left: the guest runs at the destination, and only there."""
    run = None
    with one_stream(1, at_end=lambda: run.send.kill().wait()) as between:
        run = migrate(pair, between, seconds='10', resolve='3')
        assert run.receive.wait() == 0, run.receive.said
    godwit.proof(*pair)


@MODES
def test_sender_killed_while_it_runs(pair, mode):
    run = None
    with one_stream(1, at_end=lambda: run.send.kill().wait()) as between:
        run = migrate(pair, between, '--device-state', mode, seconds='10', resolve='3', **RUNNING)
        assert run.receive.wait() == 0, run.receive.said
    godwit.proof(*pair, stopped=godwit.STOPPED[mode])


@pytest.mark.parametrize('ping', [False, True], ids=['unasked', 'asked'])
def test_control_cut(pair, ping):
    """
    It is not needed any more, and the sender asks by another. The receiver has found out when the stream comes, twice; and
    once more, where it was asked before whether it lives.
    """
    with one_stream(2.6, cut=True, ping=ping) as between:
        run = migrate(pair, between, seconds='5', resolve='90')
        run.wait()
    assert 'in doubt' in run.send.said
    godwit.proof(*pair)


def test_receiver_killed(pair):
    """Before it passed anything to QEMU: the guest runs on at the source."""
    run = None
    with one_stream(None, at_end=lambda: run.receive.kill().wait()) as between:
        run = migrate(pair, between, seconds='6')
        run.receive.wait()
        dst = godwit.destination(pair[0], 'dst2')
        there = godwit.listen(dst)
        assert run.send.wait() == godwit.EXIT['timeout'], run.send.said	# the relay passes no end on
    there.kill().wait()
    godwit.unharmed(pair[0])


@pytest.mark.parametrize('asks', ['sender', 'resolve'])
@MODES
def test_receiver_killed_while_it_runs(pair, mode, asks):
    """
    The last round and the device state are on their way, and all has left the sender: it stays in doubt, with the guest at rest at
    both ends, until another receiver says that the guest does not run there.
    """
    src, dst = pair
    run = None
    with one_stream(None, at_end=lambda: run.receive.kill().wait()) as between:
        run = migrate(pair, between, '--device-state', mode, seconds='6', resolve='60' if asks == 'sender' else '1', **RUNNING)
        run.receive.wait()
        if asks == 'resolve':
            assert run.send.wait() == godwit.EXIT['unknown'], run.send.said
            proved(src.query_status() == godwit.STOPPED[mode], f'the source is {src.query_status()}')
        there = godwit.listen(godwit.destination(src, 'dst2'))
        if asks == 'sender':
            assert run.send.wait() == godwit.EXIT['timeout'], run.send.said	# the relay passes no end on
    assert 'in doubt' in run.send.said, run.send.said
    godwit.never_ran(dst)
    if asks == 'resolve':
        p = godwit.Process('src', 'resolve', '--qmp', src.main_qmp, '--to', godwit.AT)
        assert p.wait() == 0 and 'as it was before' in p.said, p.said
    there.kill().wait()
    godwit.unharmed(src)


def test_cancelled(pair):
    """Behind the commit point it is too late for that: the sender says so, and the guest arrives."""
    run = None
    with one_stream(1, at_end=lambda: run.send.kill(signal.SIGINT)) as between:
        run = migrate(pair, between, seconds='10')
        run.wait()
    godwit.proof(*pair)


SLOW = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <time.h>

uint64_t XXH3_64bits(const void *p, size_t n)
{
	static uint64_t (*real)(const void *, size_t);

	if (!real)
		real = dlsym(RTLD_NEXT, "XXH3_64bits");
	nanosleep(&(struct timespec) { .tv_nsec = NAP_NS }, 0);
	return real(p, n);
}
"""


@pytest.mark.parametrize('how', ['arrives', 'cancelled'])
def test_hashing_takes_long(pair, directory, how):
    """Longer than either end waits for a silent peer: the sender is not silent, and does not turn a deaf ear."""
    slow = f'{directory}/slow'
    with open(f'{slow}.c', 'w', encoding='ascii') as f:
        f.write(SLOW)
    # One that is to be cancelled is not over before that on any host.
    subprocess.run(['cc', '-shared', '-fPIC', '-DNAP_NS=5000000', '-o', f'{slow}.so', f'{slow}.c', '-ldl'], check=True)
    there = godwit.listen(pair[1], '--peer-timeout', '6', '--resolve-timeout', '1')
    os.environ['LD_PRELOAD'] = f'{slow}.so'
    try:
        here = godwit.Process('src', 'send', '--qmp', pair[0].main_qmp, '--pause', '--verify', '--peer-timeout', '6', godwit.AT)
    finally:
        del os.environ['LD_PRELOAD']
    if how == 'arrives':
        assert here.wait() == 0 and there.wait() == 0, here.said + there.said
        godwit.proof(*pair)
        return
    while pair[0].query_status() == 'running':
        time.sleep(0.05)
    time.sleep(1)	# in the hashes
    begin = time.monotonic()
    here.kill(signal.SIGINT)
    assert here.wait() == godwit.EXIT['cancelled'] and time.monotonic() - begin < 10, here.said
    there.wait()
    godwit.unharmed(pair[0])


def test_destination_does_not_read(directory, flash):
    """QEMU's private RAM waits on several streams for a QEMU that hangs: one timeout ends them all, and the source runs on."""
    src = lab.Qemu('src', directory=directory, append='start=16 size=16 touch=4', extra=flash).wait_ticks(1)
    dst = godwit.destination(src)
    godwit.note(src)
    between = relay.Watching(TO, lambda kind: kind == wire.SWITCHOVER and dst.process.send_signal(signal.SIGSTOP))
    try:
        run = godwit.Run(src, dst, '--pause', '--streams', '8', '--device-state', 'migrate', to=between.address,
                         receive_options=['--peer-timeout', '2', '--resolve-timeout', '20'])
        begin = time.monotonic()
        assert run.send.wait() != 0, run.send.said
        assert time.monotonic() - begin < 15
    finally:
        dst.process.send_signal(signal.SIGCONT)
        between.stop()
    godwit.unharmed(src)
