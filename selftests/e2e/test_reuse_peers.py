# SPDX-License-Identifier: GPL-2.0-only
"""--reuse: peers that say nothing, or what they should not."""
import os
import socket
import struct

import godwit
import lab
import pytest
import relay
import wire
from strangers import APPEND, block, join, receive_exactly, refused, strange_sender
from test_reuse import old_ram, source
from wire import extent

pytestmark = pytest.mark.native


def test_a_peer_that_never_answers(directory):
    """The receiver's hashes go astray: the sender gives up in time, and its guest runs on."""
    src = source(directory)
    file = old_ram(src)
    for kind in (wire.REUSE, wire.HASHES):
        with relay.Losing(godwit.TO, swallow={kind}) as between:
            dst = godwit.destination(src)
            run = godwit.Run(src, dst, '--pause', '--peer-timeout', '3', to=between.address,
                             receive_options=['--reuse', file, '--peer-timeout', '3', '--resolve-timeout', '1'])
            assert run.send.wait(60) in (godwit.EXIT['timeout'], godwit.EXIT['link-lost']), run.send.said
            run.receive.wait(60)
            godwit.unharmed(src)
            dst.kill()


@pytest.mark.parametrize('has', [False, True], ids=['no-file', 'a-file'])
@pytest.mark.parametrize('soon', [False, True], ids=['older', 'soon'])
def test_when_it_is_asked(directory, soon, has):
    """With BLOCKS, which costs no round trip; a receiver that does not offer that is asked once its streams have joined."""
    src = source(directory)
    dst = godwit.destination(src)
    file = ['--reuse', old_ram(src)] if has else []
    with relay.Losing(godwit.TO, rate=1 << 30, offers=~0 if soon else ~wire.REUSES_SOON) as between:
        report = godwit.Run(src, dst, '--pause', to=between.address, receive_options=file).wait()
    # Question and answer.
    assert between.count[wire.REUSE] == 2 and between.before[wire.STREAMS].get(wire.REUSE, 0) == (2 if soon else 0), between.before
    assert bool(report['ram']['reused']) == has, report['ram']
    godwit.proof(src, dst)


ALL = wire.VERDICTS | wire.ONE_WAY | wire.REUSES
SOON = ALL | wire.REUSES_SOON


def references(*entries, pages=1, first=0):
    return wire.frame(wire.REFERENCES, len(entries), b''.join(extent(0, pages, first) + struct.pack('<Q', entry) for entry in entries))


def ask(control, most=100):
    """All that the receiver has is said."""
    control.sendall(wire.frame(wire.REUSE, 1))
    head = wire.HEADER.unpack(receive_exactly(control, 24))
    assert head[1] == wire.REUSE and head[3] == 1 and len(receive_exactly(control, head[4])) == 8 + 384
    flags = 8
    while flags:
        control.sendall(wire.frame(wire.WANT_HASHES, most, struct.pack('<Q', 0)))
        _, kind, flags, n, length, _ = wire.HEADER.unpack(receive_exactly(control, 24))
        receive_exactly(control, length)
    assert kind == wire.HASHES and n == 8


@pytest.mark.parametrize('frame,asks,words', [
    (references(0), None, 'not agreed on'),
    (references(0), False, 'malformed'),
    (references(8), True, 'malformed'),
    (references(7, pages=2), True, 'malformed'),
    (references((1 << 64) - 1), True, 'malformed'),
    (references(0, first=128 << 8), True, 'malformed'),
    (references(0)[:-8] + struct.pack('<Q', 1 << 63), True, 'malformed'),
    (wire.frame(wire.REFERENCES, 1, extent(1, 1, 0) + bytes(8)), True, 'malformed'),
], ids=['no-file', 'nothing-was-said', 'behind', 'over-the-end', 'wraps', 'outside', 'far', 'kind'])
def test_hostile(directory, frame, asks, words):
    """A stream that refers to what there is not. asks: has the sender heard what there is? None: there is no file."""
    file = f'{directory}/old.ram'
    with open(file, 'wb') as f:
        f.write(os.urandom(8 * 4096))

    def speak(control, streams, secret):
        join(control, streams, secret)
        if asks:
            ask(control)
        streams[0].sendall(frame)
    refused(strange_sender(directory, speak, offers=ALL, receive_options=['--reuse', file] if asks is not None else []), 'bad-peer', words)


@pytest.mark.parametrize('frame,words', [
    (wire.frame(wire.REUSE, 1, bytes(8)), 'malformed'),
    (wire.frame(wire.REUSE, 2), 'malformed'),
    (wire.frame(wire.WANT_HASHES, 1, bytes(8)), 'no file to reuse'),
    (wire.frame(wire.REFUSED, 1, extent(0, 1, 0)), 'at the wrong time'),
    (wire.frame(wire.HASHES, 0, bytes(24)), 'at the wrong time'),
], ids=['body', 'arg', 'no-file', 'refused', 'hashes'])
def test_hostile_questions(directory, frame, words):
    def speak(control, streams, secret):
        join(control, streams, secret)
        control.sendall(frame)
    refused(strange_sender(directory, speak, offers=ALL), 'bad-peer', words)


@pytest.mark.parametrize('offers,frames,words', [
    (ALL, wire.frame(wire.REUSE, 1), 'REUSE where STREAMS was due'),
    (SOON, wire.frame(wire.REUSE, 1) * 2, 'REUSE where STREAMS was due'),
    (SOON, wire.frame(wire.REUSE, 2), 'malformed'),
    (SOON, wire.frame(wire.WANT_HASHES, 1, bytes(8)), 'WANT_HASHES where STREAMS was due'),
], ids=['not-offered', 'twice', 'arg', 'hashes'])
def test_hostile_before_the_streams(directory, offers, frames, words):
    def speak(control, streams, secret):
        control.sendall(frames + wire.frame(wire.STREAMS, 2))
    refused(strange_sender(directory, speak, offers=offers), 'bad-peer', words)


def test_references_in_the_last_round(directory):
    """Nobody would send what is refused there: the guest stays at the source."""
    file = f'{directory}/old.ram'
    with open(file, 'wb') as f:
        f.write(os.urandom(8 * 4096))

    def speak(control, streams, secret):
        join(control, streams, secret)
        ask(control)
        os.truncate(file, 4096)
        control.sendall(wire.frame(wire.SWITCHOVER))
        assert wire.HEADER.unpack(receive_exactly(control, 24))[1] == wire.SWITCHOVER
        for stream in streams:
            stream.sendall(references(5) + wire.frame(wire.ROUND, 1, flags=1))
        control.sendall(wire.frame(wire.ROUND, 1, flags=1))
    refused(strange_sender(directory, speak, offers=ALL, receive_options=['--reuse', file]), 'bad-peer', 'in the last round', file)


def test_a_check_gets_no_secret(directory):
    """Anybody may check. The secret is for the sender that will refer to pages."""
    file = f'{directory}/old.ram'
    with open(file, 'wb') as f:
        f.write(os.urandom(8 * 4096))
    lab.net()
    dst = lab.Qemu('dst', None, directory=directory, append=APPEND, incoming=True)
    dst.query_status()
    at = ('127.0.0.1', 4435)
    receive = godwit.listen(dst, '--peer-timeout', '3', '--resolve-timeout', '1', '--reuse', file, at='127.0.0.1:4435', side=None)
    for asks, answer in ((0, wire.REUSE), (1, wire.ABORT)):
        with socket.create_connection(at) as control:
            control.settimeout(10)
            control.sendall(wire.hello(offers=ALL) + wire.frame(wire.CHECK, 1, block(b'ram0', 128)))
            receive_exactly(control, 24 + 16)
            receive_exactly(control, wire.HEADER.unpack(receive_exactly(control, 24))[4])
            control.sendall(wire.frame(wire.REUSE, asks))
            _, kind, _, _, length, _ = wire.HEADER.unpack(receive_exactly(control, 24))
            assert kind == answer and (asks or length == 8), (kind, length)
    receive.kill().wait()
