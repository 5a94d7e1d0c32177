# SPDX-License-Identifier: GPL-2.0-only
"""A peer that is none: what says to a receiver what a test wants said, and what the receiver must have made of it."""
import socket
import struct

import godwit
import lab
from wire import BLOCKS, JOIN, ONE_WAY, READY, RECONNECTS, STREAMS, VERDICTS, frame, hello

APPEND = 'start=16 size=16 touch=8 rate=50'


def refused(said, status, *words):
    assert said[0] == godwit.EXIT[status], said
    for word in words:
        assert word in said[1], said


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
    godwit.never_ran(dst)
    return status, receive.said


def join(control, streams, secret, count=2):
    control.sendall(frame(STREAMS, count))
    for i in range(count):
        streams.append(socket.create_connection(('127.0.0.1', 4435)))
        streams[i].sendall(frame(JOIN, i, secret))
    assert receive_exactly(control, 24)[4:6] == struct.pack('<H', STREAMS)
