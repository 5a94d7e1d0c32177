# SPDX-License-Identifier: GPL-2.0-only
"""Between a sender and a receiver: passes all connections on, until behind COMMIT a certain frame comes on the first one."""
import contextlib
import select
import socket
import threading

import lab
from wire import COMMIT, HEADER


class Relay:
    """cut: the type of the frame that goes nowhere: with it all connections end, whatever is under way on the others."""

    def __init__(self, to, cut):
        self.to, self.cut = to, cut
        self.sockets = []
        self.committed = False
        self.stopped = threading.Event()
        self.address = '10.77.0.1:4434'
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        # The sender's own network: a thread may live in another one than its process.
        lab.enter('src')()
        with socket.create_server(('10.77.0.1', 4434)) as server:
            server.settimeout(0.1)
            while not self.stopped.is_set():
                with contextlib.suppress(TimeoutError):
                    self._pair(server.accept()[0])
        for s in self.sockets:
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
            s.close()

    def _pair(self, near):
        far = socket.create_connection(self.to)
        control = not self.sockets
        self.sockets += [near, far]
        near.setblocking(True)
        for a, b in ((near, far), (far, near)):
            threading.Thread(target=self._frames if control else self._bytes, args=(a, b), daemon=True).start()

    def _receive(self, a, n):
        """Exactly so many bytes, or none."""
        data = b''
        while len(data) < n and not self.stopped.is_set():
            if not select.select([a], [], [], 0.1)[0]:
                continue
            more = a.recv(n - len(data))
            if not more:
                break
            data += more
        return data if len(data) == n else b''

    def _frames(self, a, b):
        with contextlib.suppress(OSError, ValueError):
            while head := self._receive(a, HEADER.size):
                _, kind, _, _, length, _ = HEADER.unpack(head)
                # Before it QEMU's private RAM comes in DEVICE frames, with the guest running.
                self.committed |= kind == COMMIT
                if self.committed and kind == self.cut:
                    break
                b.sendall(head + self._receive(a, length))
        self.stopped.set()

    def _bytes(self, a, b):
        with contextlib.suppress(OSError, ValueError):
            while not self.stopped.is_set():
                if select.select([a], [], [], 0.1)[0]:
                    data = a.recv(65536)
                    if not data:
                        break
                    b.sendall(data)

    def stop(self):
        self.stopped.set()
        self.thread.join()
