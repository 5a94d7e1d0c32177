# SPDX-License-Identifier: GPL-2.0-only
"""
A receiver that waits for a sender which has lost its link: peers that say KEEP and RECONNECT where they have no sense, strangers
at its door meanwhile, and a sender that comes back.
"""
import socket
import struct
import time

import pytest
from strangers import block, join, receive_exactly, refused, strange_sender
from wire import (ABORT, ACK, ASK, BLOCKS, HEADER, JOIN, KEEP, ONE_WAY, RECONNECT, RECONNECTS, ROUND, SWITCHOVER, VERDICT,
                  VERDICTS, frame, hello)

pytestmark = pytest.mark.native


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
