# SPDX-License-Identifier: GPL-2.0-only
"""
A link that is away for 10 s, which TCP survives, or that resets or delays a stream, at a certain frame of the migration of a guest that runs:
without --reconnect, and with the patience that both ends have by default.
"""
import contextlib
import socket
import threading
import time

import godwit
import lab
import pytest
import relay
import sources
import wire

APPEND = 'start=16 size=16 touch=16 rate=50'
AWAY, LATE = 10, 5	# seconds
LAST = 1	# flag of ROUND
STREAMS = 2
MODES = pytest.mark.parametrize('mode', list(godwit.STOPPED))
# By the type and the flags of a frame, and how many there were of each type.
PHASES = {
    'set-up': lambda kind, flags, count: kind == wire.READY,
    'first': lambda kind, flags, count: kind == wire.RAM and count[kind] == 4,
    'later': lambda kind, flags, count: kind == wire.RAM and count.get(wire.ROUND, 0) > STREAMS,
    'private': lambda kind, flags, count: kind == wire.PRIVATE or kind == wire.DEVICE and not flags & wire.HELD,
    'last': lambda kind, flags, count: kind == wire.ROUND and flags & LAST,
    'state': lambda kind, flags, count: kind == wire.DEVICE and flags & wire.HELD,
    'answer': lambda kind, flags, count: kind == wire.RESUMED,
}
STOPPED = ('last', 'state')	# the guest waits for the link
pytestmark = pytest.mark.native


class Struck(relay.Losing):
    """strike(relay) is called once, before the first frame of this phase is passed on."""

    def __init__(self, phase, strike):
        self.phase, self.strike = PHASES[phase], strike
        self.began, self.struck, self.once = 0.0, threading.Event(), threading.Lock()
        super().__init__(godwit.TO, rate=16 << 20)

    def _pass(self, b, data):
        _, kind, flags, _, _, _ = wire.HEADER.unpack_from(data)
        with self.once:
            if not self.struck.is_set() and self.phase(kind, flags, self.count):
                self.began = time.monotonic()
                self.strike(self)
                self.struck.set()
        return super()._pass(b, data)


@pytest.fixture
def pair(directory):
    src = sources.plain(directory, APPEND)
    return src, godwit.destination(src)


def migrate(pair, between, phase, mode, **more):
    """All of its pages are dirty in each round, so that there is a later one if the limit does not allow the last."""
    run = godwit.Run(*pair, '--device-state', mode, '--streams', str(STREAMS), '--compress', 'off', '--delta', 'off', '--postcopy', 'off',
                     '--max-rounds', '10000', '--downtime-limit', '1' if phase == 'later' else '60000', to=between.address,
                     tool=f'{lab.B}/tools/alldirty', **more)
    assert between.struck.wait(120), (run.send.said, between.count)
    return run


@contextlib.contextmanager
def away(phase):
    back = threading.Timer(AWAY, lab.link, ['up'])

    def strike(_):
        lab.link('down')
        back.start()
    with Struck(phase, strike) as between:
        try:
            yield between
        finally:
            if between.struck.is_set():
                back.join()


def moved(pair, between, phase, mode):
    """'later' goes on with rounds until the limit, which none can keep, is lifted."""
    run = migrate(pair, between, phase, mode)
    if phase == 'later':
        godwit.control(run.send.pid, execute='set', arguments={'downtime-limit': 60000})
    return run, run.wait()


@pytest.mark.parametrize('phase', list(PHASES))
@MODES
def test_away(pair, phase, mode):
    with away(phase) as between:
        run, report = moved(pair, between, phase, mode)
        assert time.monotonic() - between.began >= AWAY
    assert report['verified'] and not report['reconnects'] and 'in doubt' not in run.send.said, run.send.said
    assert report['downtime'] >= AWAY * 1000 or phase not in STOPPED, report
    godwit.proof(*pair, stopped=godwit.STOPPED[mode])


class Delayed(Struck):
    """That frame, and what follows it on its connection, comes 5 s late. All others pass."""

    def __init__(self, phase):
        super().__init__(phase, lambda _: None)

    def _pass(self, b, data):
        _, kind, flags, _, _, _ = wire.HEADER.unpack_from(data)
        with self.once:
            late = not self.struck.is_set() and self.phase(kind, flags, self.count)
            if late:
                self.struck.set()
        if late:
            time.sleep(LATE)
        return relay.Losing._pass(b, data)


@pytest.mark.parametrize('phase', ['first', 'later', 'private', 'state'])
@MODES
def test_one_connection_is_late(pair, phase, mode):
    with Delayed(phase) as between:
        run, report = moved(pair, between, phase, mode)
    assert report['verified'] and report['total-time'] >= LATE * 1000 and 'in doubt' not in run.send.said, run.send.said
    godwit.proof(*pair, stopped=godwit.STOPPED[mode])


@pytest.mark.parametrize('phase', ['first', 'later', 'private', 'last', 'state'])
@MODES
def test_reset(pair, phase, mode):
    """Of one stream: refused, and the guest runs on at the source."""
    with Struck(phase, lambda between: between.lose(slice(STREAMS, None))) as between:
        # It waits so long for a question, which a sender that is in no doubt does not have.
        run = migrate(pair, between, phase, mode, receive_options=['--resolve-timeout', '20'])
        for p in run.send, run.receive:	# the end that sees it first says so to the other
            assert p.wait() in (godwit.EXIT['link-lost'], godwit.EXIT['peer-failed']), p.said
    assert 'the connection to the other host broke' in run.send.said and 'connect again' not in run.send.said, run.send.said
    godwit.unharmed(pair[0])


def test_it_is_a_reset():
    """What a link that is lost sends: no end, which would say that all before it has come."""
    with socket.create_server(('127.0.0.1', 0)) as server, relay.Losing(server.getsockname()) as between, \
            socket.create_connection(between.at, 30) as near:
        far = server.accept()[0]
        far.settimeout(30)
        between.wait(lambda: between.pairs)
        between.lose()
        for s in near, far:
            with pytest.raises(ConnectionResetError):
                s.recv(1)
        far.close()
