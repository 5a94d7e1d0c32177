# SPDX-License-Identifier: GPL-2.0-only
"""
Peers that are none: whatever they say, a message that names the thing, a status of its own, a source that runs on, and not a
byte of guest RAM written. Nothing here needs the module or KVM, so it runs on any host.
"""
import socket
import struct
import threading
import time

import godwit
import lab
import pytest
from wire import (ABORT, ACK, ASK, BLOCKS, COMMIT, DEVICE, DEVICE_END, HEADER, HELD, JOIN, KEEP, ONE_WAY, PING, RAM, READY, RECONNECT,
                  RECONNECTS, ROUND, STREAMS, SWITCHOVER, VERDICT, VERDICTS, VERIFY, VERSION, frame, hello)

SECRET = bytes(range(16))
APPEND = 'start=16 size=16 touch=8 rate=50'
pytestmark = pytest.mark.native


def refused(said, status, *words):
    assert said[0] == godwit.EXIT[status], said
    for word in words:
        assert word in said[1], said


class FakeReceiver(threading.Thread):
    """Answers as told: a list of bytes, each after one frame was read; then silence, or the end."""

    def __init__(self, answers, then_close=True):
        super().__init__()
        self.answers, self.then_close = answers, then_close
        # In the sender's own namespace.
        self.done = threading.Event()
        self.server = self._listen()
        self.start()

    @staticmethod
    def _listen():
        made = []

        def inside():
            lab.enter('src')()
            made.append(socket.create_server((lab.ADDRESS['src'], 4434)))
        thread = threading.Thread(target=inside)
        thread.start()
        thread.join()
        return made[0]

    def run(self):
        peer, _ = self.server.accept()
        for answer in self.answers:
            head = peer.recv(HEADER.size, socket.MSG_WAITALL)
            if len(head) < HEADER.size:
                break
            peer.recv(HEADER.unpack(head)[4] or 0, socket.MSG_WAITALL)
            peer.sendall(answer)
        if not self.then_close:
            self.done.wait(60)
        time.sleep(0.5)
        peer.close()
        self.server.close()


@pytest.mark.parametrize('answers,status,then_close', [
    ([hello(99)], 'version', True),
    ([hello(needs=1 << 40)], 'version', True),
    ([b'HTTP/1.1 400 Bad Request\r\n\r\n' + b' ' * 64], 'version', True),
    ([hello(), frame(77)], 'bad-peer', True),
    ([hello(), frame(ACK, 1)], 'bad-peer', True),
    ([hello()], 'link-lost', True),
    ([hello()], 'timeout', False),
    ([hello(), frame(READY, 17, SECRET)], 'bad-peer', True),
    ([hello(), frame(READY, 4, SECRET), frame(STREAMS, 5)], 'bad-peer', True),
    ([hello(), frame(READY, 4, SECRET)], 'timeout', False),
], ids=['version', 'needs-more', 'http', 'garbage', 'out-of-turn', 'hangs-up', 'silent', 'too-many-streams', 'other-streams', 'no-streams'])
def test_strange_receiver(src, answers, status, then_close):
    fake = FakeReceiver(answers, then_close)
    p = godwit.Process('src', 'send', '--qmp', src.main_qmp, '--pause', '--peer-timeout', '2', f'{lab.ADDRESS["src"]}:4434')
    refused((p.wait(), p.said), status)
    fake.done.set()
    fake.join()
    godwit.unharmed(src)


def block(name, mib):
    return struct.pack('<QQIHH', mib << 8, 0, 4096, len(name), 0) + name


def receive_exactly(peer, n):
    """MSG_WAITALL does not go with a timeout."""
    answer = b''
    while len(answer) < n and (more := peer.recv(n - len(answer))):
        answer += more
    return answer


def strange_sender(directory, speak, strangers=(), offers=VERDICTS | ONE_WAY | RECONNECTS, receive_options=()):
    """
    A receiver and a sender that has agreed with it on everything; speak(control, streams) does the rest.

    strangers: what each client says that connects before it, and goes.
    """
    lab.net()
    dst = lab.Qemu('dst', None, directory=directory, append=APPEND, incoming=True)
    dst.query_status()
    receive = godwit.listen(dst, '--peer-timeout', '3', '--resolve-timeout', '1', *receive_options, at='127.0.0.1:4435', side=None)
    for said in strangers:
        with socket.create_connection(('127.0.0.1', 4435)) as stranger:
            stranger.sendall(said)
    with socket.create_connection(('127.0.0.1', 4435)) as control:
        control.settimeout(30)
        control.sendall(hello(offers=offers) + frame(BLOCKS, 1, block(b'ram0', 128)))
        answer = receive_exactly(control, 80)	# HELLO and READY
        assert answer[44:46] == struct.pack('<H', READY), receive.wait() and receive.said
        streams = []
        try:
            speak(control, streams, answer[64:])
            status = receive.wait()
        finally:
            for stream in streams:
                stream.close()
    assert lab.allocated_bytes(dst.ram[0].path) == 0
    return status, receive.said


def join(control, streams, secret, count=2):
    control.sendall(frame(STREAMS, count))
    for i in range(count):
        streams.append(socket.create_connection(('127.0.0.1', 4435)))
        streams[i].sendall(frame(JOIN, i, secret))
    assert receive_exactly(control, 24)[4:6] == struct.pack('<H', STREAMS)


@pytest.mark.parametrize('tail,status', [
    (frame(RAM, 1, struct.pack('<HHIQ', 0, 1, 1, 1 << 40)), 'bad-peer'),
    (frame(RAM, 1, struct.pack('<HHIQ', 3, 1, 1, 0)), 'bad-peer'),
    (frame(RAM, 1, struct.pack('<HHIQ', 0, 0, 2, (128 << 8) - 1) + bytes(8192)), 'bad-peer'),
    (frame(COMMIT), 'bad-peer'),
    (frame(ROUND, 2), 'bad-peer'),
    (frame(ROUND, 1) + frame(ROUND, 1), 'bad-peer'),
    (frame(VERIFY, 0, struct.pack('<HHIQ', 0, 1, 1, 0)), 'bad-peer'),
    (frame(DEVICE, 0, struct.pack('<Q', 1 << 40) + b'x', flags=HELD), 'bad-peer'),
    (2 * frame(DEVICE, 0, struct.pack('<Q', 0) + b'x', flags=HELD), 'bad-peer'),
    (b'\xff' * 64, 'version'),
    (b'', 'link-lost'),
], ids=['far-outside', 'no-such-block', 'last-page-and-one-more', 'no-ram', 'round-left-out', 'round-twice', 'hashes-too-early',
        'state-too-large', 'state-twice', 'garbage', 'hangs-up'])
def test_strange_stream(directory, tail, status):
    """What comes on a stream that has joined, while the control connection stays well."""
    def speak(control, streams, secret):
        join(control, streams, secret)
        if tail:
            streams[1].sendall(tail)
        else:
            streams[1].close()
    refused(strange_sender(directory, speak), status)


@pytest.mark.parametrize('tail,status', [
    (frame(RAM, 1, struct.pack('<HHIQ', 0, 1, 1, 0)), 'bad-peer'),
    (frame(DEVICE_END, 0, bytes(8)), 'bad-peer'),
    (frame(ROUND, 1, flags=1), 'bad-peer'),
    (frame(SWITCHOVER) + frame(COMMIT), 'bad-peer'),
    (frame(SWITCHOVER) + frame(ROUND, 1, flags=1), 'timeout'),
    (frame(DEVICE, 0, bytes(9)), 'bad-peer'),
    (frame(COMMIT), 'bad-peer'),
    (frame(ROUND, 1), 'timeout'),
    (frame(READY, 1, bytes(16)), 'bad-peer'),
    (b'\xff' * 64, 'version'),
    (b'', 'link-lost'),
], ids=['ram', 'end-without-commit', 'last-round-unannounced', 'commit-without-round', 'last-round-without-its-streams',
        'device-on-control', 'commit-without-last-round', 'round-without-its-streams', 'out-of-turn', 'garbage',
        'hangs-up'])
def test_strange_sender(directory, tail, status):
    """What comes on the control connection, when all streams have joined."""
    def speak(control, streams, secret):
        join(control, streams, secret)
        if tail:
            control.sendall(tail)
        else:
            control.close()
    refused(strange_sender(directory, speak), status)


def test_streams_that_do_not_come(directory):
    def speak(control, streams, secret):
        control.sendall(frame(STREAMS, 2))
        streams.append(socket.create_connection(('127.0.0.1', 4435)))
        streams[0].sendall(frame(JOIN, 0, secret))
    refused(strange_sender(directory, speak), 'timeout', 'streams')


def test_strangers_before_the_sender(directory):
    """A scan of ports, a browser, a godwit of another version: the receiver goes on waiting for the guest."""
    strangers = [b'', b'GET / HTTP/1.1\r\n\r\n' + bytes(64), hello(VERSION + 1), hello(), hello() + b'\xff' * 64, hello(needs=1 << 63),
                 frame(ABORT, 22), hello() + frame(ABORT, 22), hello() + frame(PING, 1, bytes(8)), hello() + frame(COMMIT),
                 hello() + frame(RECONNECT, 1, bytes(16))]
    status, said = strange_sender(directory, lambda control, streams, secret: control.sendall(frame(COMMIT)), strangers)
    refused((status, said), 'bad-peer', 'COMMIT')
    assert said.count('rejected a connection') + said.count('gave up before the migration began') == len(strangers), said
    assert 'rejected a connection: this receiver waits for no sender that has lost its link' in said, said


def test_strangers_at_the_door(directory):
    """They are hung up on, or left waiting, and the streams join past them."""
    def speak(control, streams, secret):
        strangers = []
        for said in (bytes(16), secret[:15] + bytes([secret[15] ^ 1]), secret):
            strangers.append(socket.create_connection(('127.0.0.1', 4435)))
            strangers[-1].sendall(frame(JOIN, 0 if said != secret else 9, said))
        strangers += [socket.create_connection(('127.0.0.1', 4435)) for _ in range(40)]
        join(control, streams, secret)
        for stranger in strangers[:3]:
            stranger.settimeout(30)
            try:
                assert stranger.recv(1) == b''
            except ConnectionResetError:
                pass
        for stranger in strangers:
            stranger.close()
        control.sendall(frame(DEVICE_END, 0, bytes(8)))
    refused(strange_sender(directory, speak), 'bad-peer', 'COMMIT')


@pytest.mark.parametrize('io', ['uring', 'poll'])
def test_a_stranger_that_trickles(directory, io):
    """A byte now and then is no frame: the receiver waits for a whole one no longer than for any other."""
    dst = lab.Qemu('dst', None, directory=directory, append=APPEND, incoming=True)
    dst.query_status()
    receive = godwit.listen(dst, '--io', io, '--peer-timeout', '2', at='127.0.0.1:4435', side=None)
    begin = time.monotonic()
    with socket.create_connection(('127.0.0.1', 4435)) as stranger:
        try:
            for byte in hello():
                stranger.sendall(bytes([byte]))
                time.sleep(0.5)
        except (BrokenPipeError, ConnectionResetError):
            pass
    assert time.monotonic() - begin < 10
    receive.wait_for('not a godwit sender')
    assert receive.poll() is None


def switched(control, streams, secret):
    """Up to the last round, which has come on all streams and on the control connection."""
    join(control, streams, secret)
    control.sendall(frame(SWITCHOVER))
    assert receive_exactly(control, 24)[4:6] == struct.pack('<H', SWITCHOVER)
    for stream in streams:
        stream.sendall(frame(ROUND, 1, flags=1))
    control.sendall(frame(ROUND, 1, flags=1))


@pytest.mark.parametrize('tail,end,status,words', [
    (frame(RAM, 1, struct.pack('<HHIQ', 0, 1, 1, 0)), b'', 'bad-peer', 'after the last round'),
    (frame(ROUND, 2), b'', 'bad-peer', 'the last'),
    (frame(VERIFY, 1, struct.pack('<HHIQ', 0, 0, 1, 0) + b'8 bytes!'), frame(COMMIT) + frame(DEVICE_END, 1, struct.pack('<Q', 1)),
     'verify', 'ram0:0'),
    (b'', frame(COMMIT) + frame(DEVICE_END, 1, struct.pack('<Q', 1)), 'timeout', 'no data'),
    (b'', frame(COMMIT) + frame(DEVICE_END, 0, struct.pack('<Q', 2)), 'timeout', 'no data'),
    (b'', frame(COMMIT) + frame(DEVICE_END, 0, struct.pack('<Q', 0)), 'bad-peer', 'more device state'),
    (b'', frame(COMMIT) + frame(ROUND, 2), 'bad-peer', 'after COMMIT'),
], ids=['ram', 'another-round', 'wrong-hash', 'no-hash', 'state-cut', 'state-too-long', 'round-after-commit'])
def test_strange_switchover(directory, tail, end, status, words):
    """What comes behind the last round. The receiver passes nothing to QEMU that it did not get whole."""
    def speak(control, streams, secret):
        switched(control, streams, secret)
        if end:	# one byte of device state, which is not enough to be one
            streams[0].sendall(frame(DEVICE, 0, bytes(8) + b'x', flags=HELD))
        streams[1].sendall(tail)
        control.sendall(end)
    refused(strange_sender(directory, speak), status, words)


@pytest.mark.parametrize('said,offers,words', [
    (frame(KEEP, 5), VERDICTS | ONE_WAY, 'wrong time'),
    (frame(KEEP, 0), RECONNECTS | ONE_WAY, 'no sense'),
    (frame(KEEP, 3601), RECONNECTS | ONE_WAY, 'no sense'),
    (2 * frame(KEEP, 5), RECONNECTS | ONE_WAY, 'wrong time'),
    (frame(SWITCHOVER) + frame(KEEP, 5), RECONNECTS | ONE_WAY, 'wrong time'),
    (frame(KEEP, 5) + frame(RECONNECT, 1, bytes(16)), RECONNECTS | ONE_WAY, 'wrong time'),
], ids=['not-offered', 'zero', 'too-long', 'twice', 'too-late', 'reconnect-while-connected'])
def test_strange_keep(directory, said, offers, words):
    def speak(control, streams, secret):
        join(control, streams, secret)
        control.sendall(said)
    refused(strange_sender(directory, speak, offers=offers), 'bad-peer', words)


def on_a_new_connection(said, answer, wait=30):
    """
    The connection, the arg of the frame that the receiver sends after its HELLO, and the body. As long as it still mourns
    the connection before, and sees a stream in this one or refuses it, another one is tried.
    """
    end = time.monotonic() + wait
    while True:
        try:
            peer = socket.create_connection(('127.0.0.1', 4435), timeout=30)
            peer.sendall(hello(offers=RECONNECTS | VERDICTS | ONE_WAY) + said)
            if head := receive_exactly(peer, 40 + HEADER.size)[40:]:
                break
        except (ConnectionRefusedError, ConnectionResetError, BrokenPipeError):
            pass
        assert time.monotonic() < end, 'it does not listen'
        time.sleep(0.1)
    _, kind, _, arg, length, _ = HEADER.unpack(head)
    body = receive_exactly(peer, length)
    assert kind == answer, (kind, arg, body)
    return peer, arg, body


def listens():
    try:
        socket.create_connection(('127.0.0.1', 4435)).close()
    except ConnectionRefusedError:
        return False
    return True


def ends_to_listen():
    """Soon: it may still mourn the connection before, or have just said that the streams are there."""
    end = time.monotonic() + 30
    while listens():
        assert time.monotonic() < end, 'it listens on'
        time.sleep(0.1)


def lost(control, streams, secret, seconds=4):
    """A round has come to its end, another one has not, and the link is lost."""
    join(control, streams, secret)
    control.sendall(frame(KEEP, seconds))
    for stream in streams:
        stream.sendall(frame(ROUND, 1))
    control.sendall(frame(ROUND, 1))
    assert receive_exactly(control, 24)[4:12] == struct.pack('<HHI', ACK, 0, 1)
    control.close()
    for stream in streams:
        stream.close()
    streams.clear()


def test_strangers_while_it_waits(directory):
    """None of them is let in, none prolongs the wait: by as long again, or for as long as a silent one is borne with."""
    begin = []

    def speak(control, streams, secret):
        lost(control, streams, secret, seconds=10)
        begin.append(time.monotonic())
        for said, words in ((frame(RECONNECT, 1, bytes(16)), b'another migration'),
                            (frame(RECONNECT, 1, secret[:15] + bytes([secret[15] ^ 1])), b'another migration'),
                            (frame(RECONNECT, 0, secret), b'round 0'),
                            (frame(BLOCKS, 1, block(b'ram0', 128)), b'busy')):
            peer, _, text = on_a_new_connection(said, ABORT)
            assert words in text, text
            peer.close()
        peer, verdict, _ = on_a_new_connection(frame(ASK, 0, bytes(16)), VERDICT)
        peer.close()
        assert verdict == 255
        time.sleep(max(0, begin[0] + 6 - time.monotonic()))
        peer, _, _ = on_a_new_connection(frame(RECONNECT, 1, bytes(16)), ABORT)
        peer.close()
        streams.append(socket.create_connection(('127.0.0.1', 4435)))	# says nothing
    refused(strange_sender(directory, speak, receive_options=['--peer-timeout', '20']),
            'link-lost', 'did not connect again within 10 s', 'rejected a connection')
    assert time.monotonic() - begin[0] < 16


def test_keep_and_no_reconnect_without_it(directory):
    """Without KEEP a lost link is the end, and no token opens the door again."""
    def speak(control, streams, secret):
        join(control, streams, secret)
        control.close()
        ends_to_listen()
    refused(strange_sender(directory, speak), 'link-lost')


def test_reconnect(directory):
    """
    The sender comes back: the streams join by a new secret and not by the old one, rounds count on from the one that it
    named, and until one of them has come the receiver names the round that it had before.
    """
    def speak(control, streams, secret):
        lost(control, streams, secret, seconds=20)
        peer, stands, _ = on_a_new_connection(frame(RECONNECT, 7, secret), RECONNECT)
        assert stands == 1
        peer.close()	# the answer was lost
        peer, _, text = on_a_new_connection(frame(RECONNECT, 6, secret), ABORT)
        assert b'round 6' in text
        peer.close()
        peer, stands, fresh = on_a_new_connection(frame(RECONNECT, 7, secret), RECONNECT)
        assert stands == 1 and fresh != secret
        with socket.create_connection(('127.0.0.1', 4435), timeout=30) as stale:
            stale.sendall(frame(JOIN, 0, secret))
            join(peer, streams, fresh)
            try:
                assert stale.recv(1) == b''
            except ConnectionResetError:
                pass
        ends_to_listen()
        for stream in streams:
            stream.sendall(frame(ROUND, 8))
        peer.sendall(frame(ROUND, 8))
        assert receive_exactly(peer, 24)[4:12] == struct.pack('<HHI', ACK, 0, 8)
        peer.sendall(frame(ROUND, 7))
        assert receive_exactly(peer, 24)[4:6] == struct.pack('<H', ABORT)
        peer.close()
    refused(strange_sender(directory, speak), 'bad-peer', 'ROUND 7 after round 7')


def test_a_question_ends_the_wait(directory):
    """A sender in doubt is told that the guest does not run here. After that it never will: RECONNECT comes too late."""
    def speak(control, streams, secret):
        lost(control, streams, secret, seconds=60)
        peer, verdict, _ = on_a_new_connection(frame(ASK, 0, secret), VERDICT)
        assert verdict == 4	# dead
        peer.close()
        ends_to_listen()
    refused(strange_sender(directory, speak), 'link-lost', 'the sender has given up', 'dead')
