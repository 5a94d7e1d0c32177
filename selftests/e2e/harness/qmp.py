# SPDX-License-Identifier: GPL-2.0-only
"""A minimal QMP client. No thread: events are collected while a reply or an event is awaited."""
import collections
import json
import select
import socket
import time


class QmpError(Exception):
    pass


class Qmp:
    def __init__(self, to, timeout=60):
        """to: a path, or a socket with a monitor at its other end."""
        self.events = []
        self.seen = collections.Counter()	# how often each event came, by name
        self._buffer = b''
        end = time.monotonic() + timeout
        self._socket = to if isinstance(to, socket.socket) else self._connect(to, end)
        self._receive(end)
        self('qmp_capabilities')

    @staticmethod
    def _connect(path, end):
        while True:
            to = socket.socket(socket.AF_UNIX)
            try:
                to.connect(path)
                return to
            except OSError:
                to.close()
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def close(self):
        self._socket.close()

    def _receive(self, end):
        """One message; TimeoutError after `end`, QmpError if QEMU is gone."""
        while b'\n' not in self._buffer:
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError('QMP')
            self._socket.settimeout(left)
            data = self._socket.recv(65536)
            if not data:
                raise QmpError('QEMU closed the monitor')
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b'\n')
        message = json.loads(line)
        self.seen[message.get('event')] += 1
        return message

    def drain(self):
        """Takes the events that have come meanwhile. An answer that no call waited for is lost."""
        while b'\n' in self._buffer or select.select([self._socket], [], [], 0)[0]:
            message = self._receive(time.monotonic() + 1)
            if 'event' in message:
                self.events.append(message)

    def __call__(self, command, timeout=60, **arguments):
        """What the command returns; arguments with '-' are written with '_'."""
        arguments = {k.replace('_', '-'): v for k, v in arguments.items()}
        message = {'execute': command, **({'arguments': arguments} if arguments else {})}
        end = time.monotonic() + timeout
        self._socket.settimeout(timeout)
        # Short: an old QEMU (7.2) reads it byte by byte, and looks at all of its files in between.
        self._socket.sendall(json.dumps(message, separators=(',', ':')).encode() + b'\n')
        while True:
            reply = self._receive(end)
            if 'event' in reply:
                self.events.append(reply)
            elif 'error' in reply:
                raise QmpError(f"{command}: {reply['error']['desc']}")
            else:
                return reply['return']

    def wait_event(self, name, timeout=60, **data):
        """The first event of this name and data that was not waited for yet."""
        end = time.monotonic() + timeout
        seen = 0
        while True:
            for event in self.events[seen:]:
                seen += 1
                got = event.get('data', {})
                if event['event'] == name and all(got.get(k) == v for k, v in data.items()):
                    self.events.remove(event)
                    return event
            message = self._receive(end)
            if 'event' in message:
                self.events.append(message)


def milliseconds(event):
    """When it happened, by the host's clock."""
    at = event['timestamp']
    return at['seconds'] * 1e3 + at['microseconds'] / 1e3
