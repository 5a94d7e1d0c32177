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
from strangers import APPEND, join, receive_exactly, refused, strange_sender
from wire import (ABORT, ACK, COMMIT, DEVICE, DEVICE_END, HEADER, HELD, JOIN, PING, RAM, READY, RECONNECT, ROUND, STREAMS,
                  SWITCHOVER, VERIFY, VERSION, frame, hello)

SECRET = bytes(range(16))
pytestmark = pytest.mark.native


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
    seconds = '2' if status == 'timeout' else '8'
    p = godwit.Process('src', 'send', '--qmp', src.main_qmp, '--pause', '--peer-timeout', seconds, f'{lab.ADDRESS["src"]}:4434')
    refused((p.wait(), p.said), status)
    fake.done.set()
    fake.join()
    godwit.unharmed(src)


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
