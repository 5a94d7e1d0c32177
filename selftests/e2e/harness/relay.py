# SPDX-License-Identifier: GPL-2.0-only
"""Between a sender and a receiver: passes all connections on, until a certain frame comes on one of them."""
import contextlib
import ctypes
import os
import select
import socket
import struct
import threading
import time

import lab
from wire import ACK, COMMIT, DELTA, DEVICE, HEADER, HELD, HELLO, PACKED, PONG, RAM, RESUMED, VIEWS, Head


LIBC = ctypes.CDLL(None, use_errno=True)


def reset(s):
    """
    TCP: at once, whoever waits on the socket, and with nothing sent before it: shutdown() would send an end, and close() only lets
    go when nobody waits any more. A UNIX socket has nothing but its end.
    """
    if s.family == socket.AF_UNIX:
        with contextlib.suppress(OSError):
            s.shutdown(socket.SHUT_RDWR)
    elif s.fileno() >= 0 and LIBC.connect(s.fileno(), struct.pack('H14x', socket.AF_UNSPEC), 16):
        raise AssertionError(f'no reset: {os.strerror(ctypes.get_errno())}')


def connect(to):
    """An (ADDRESS, PORT), or the path of a UNIX socket."""
    if not isinstance(to, str):
        return socket.create_connection(to)
    far = socket.socket(socket.AF_UNIX)
    try:
        far.connect(to)
    except OSError:
        far.close()
        raise
    return far


def serve(at):
    if not isinstance(at, str):
        return socket.create_server(at)
    server = socket.socket(socket.AF_UNIX)
    server.bind(at)
    server.listen(128)
    return server


class Relay:
    """
    to, at: where it passes on to, and where it listens: an (ADDRESS, PORT), or the path of a UNIX socket.
    cut: the type of the frame that goes nowhere (of DEVICE: one that is kept, not QEMU's private RAM): with it all connections
    end, whatever is under way on the others. at_cut: is called first. lasting: those that come afterwards are passed on. blind: neither end hears that the other can tell what machine
    it has, as before there was that: what does not fit is QEMU's to refuse.
    at_head[TYPE](a, head): is called when the head of such a frame has come from the socket a, before it is passed on. What it returns,
    if not None, passes in its place: another head; of b'' neither that frame nor any that follows from there.
    """

    at = lab.ADDRESS['src'], 4434
    side = 'src'	# whose network that is

    def __init__(self, to, cut, lasting=False, at_cut=lambda: None, blind=False):
        self.to, self.cut, self.lasting, self.at_cut, self.blind = to, cut, lasting, at_cut, blind
        self.sockets, self.at_head = [], {}
        self.listens, self.stopped = threading.Event(), threading.Event()
        self.address = f'unix:{self.at}' if isinstance(self.at, str) else f'{self.at[0]}:{self.at[1]}'
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        assert self.listens.wait(60), f'nothing listens on {self.address}'

    def _run(self):
        # A thread may live in another network than its process.
        lab.enter(self.side)()
        with serve(self.at) as server:
            self.listens.set()
            server.settimeout(0.1)
            while not self.stopped.is_set():
                with contextlib.suppress(TimeoutError):
                    self._pair(server.accept()[0])
        self._hang_up()

    def _hang_up(self):
        for s in self.sockets:
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
            s.close()
        self.sockets.clear()

    def _pair(self, near):
        try:
            far = connect(self.to)
        except (ConnectionError, FileNotFoundError):	# refused, or reset: the receiver has just stopped to listen
            near.close()
            return
        self._connected(near, far)
        near.setblocking(True)
        for a, b in ((near, far), (far, near)):
            threading.Thread(target=self._frames, args=(a, b), daemon=True).start()

    def _connected(self, near, far):
        """Before anything passes."""
        self.sockets += [near, far]

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

    def _head(self, a):
        """The next frame's, as at_head has it."""
        data = self._receive(a, HEADER.size)
        head = Head(*HEADER.unpack(data)) if data else None
        called = head and self.at_head.get(head.kind)
        instead = called(a, head) if called else None
        return data if instead is None else instead

    def _frames(self, a, b):
        with contextlib.suppress(OSError, ValueError):
            while head := self._head(a):
                _, kind, flags, _, length, _ = HEADER.unpack(head)
                if kind == self.cut and (kind != DEVICE or flags & HELD):
                    self.at_cut()
                    if self.lasting:
                        self._hang_up()
                        return
                    break
                body = self._receive(a, length)
                if self.blind and kind == HELLO:
                    offers, needs = struct.unpack('<QQ', body)
                    body = struct.pack('<QQ', offers & ~VIEWS, needs)
                b.sendall(head + body)
        if not self.lasting:
            self.stopped.set()

    def stop(self):
        self.stopped.set()
        self.thread.join()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


class Silent(Relay):
    """
    A link that goes silent as COMMIT comes by: nothing more passes on any connection, in either direction, not even its end.
    What the sender writes fits into buffers. Connections that come afterwards are passed on.
    """

    def __init__(self, to):
        self.silent = set()
        super().__init__(to, None, lasting=True)
        self.at_head[COMMIT] = self._fall

    def _fall(self, *_):
        self.silent = set(self.sockets)
        self.stopped.wait()
        return b''

    def _receive(self, a, n):
        data = b'' if a in self.silent else super()._receive(a, n)
        if a in self.silent:
            self.stopped.wait()
            return b''
        return data


class Watching(Relay):
    """Cuts nothing. seen(type): is called when a frame comes by, on any connection, before it is passed on."""

    def __init__(self, to, seen=lambda kind: None, blind=False, lasting=False):
        self.seen = seen
        super().__init__(to, None, lasting, blind=blind)

    def _head(self, a):
        head = super()._head(a)
        if head:
            self.seen(HEADER.unpack(head)[1])
        return head


class Losing(Relay):
    """
    A slow link (bytes per second, over all connections) that can be lost, and can come back. Connections have numbers in the order
    in which they come: the control connection, then the streams. Frames to swallow, by type, go no further. At a frame to drop, a
    type or (type, n) for the n-th of it, the link is lost.
    """

    def __init__(self, to, rate=2 << 20, offers=~0, drop=(), swallow=()):
        self.rate, self.offers, self.drop, self.swallow = rate, offers, set(drop), set(swallow)
        self.pairs, self.silent, self.broken = [], set(), set()
        self.down, self.silently = False, False
        self.hello = 0.0	# seconds that a HELLO is on its way
        self.count, self.passed = {}, 0	# frames by type; bytes of RAM
        self.before = {}	# by type: what was counted when the first of it came
        self.lock, self.free = threading.Lock(), 0.0
        super().__init__(to, None, lasting=True)

    def _pair(self, near):
        if self.down and not self.silently:
            near.close()
            return
        if self.down:	# the end that connects waits, and gets no answer
            self.sockets.append(near)
            return
        near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 128 << 10)	# what it holds is not on its way
        super()._pair(near)

    def _connected(self, near, far):
        super()._connected(near, far)
        self.pairs.append((near, far))

    def _throttle(self, n):
        with self.lock:
            self.free = max(self.free, time.monotonic()) + n / self.rate
            until = self.free
        time.sleep(max(0, until - time.monotonic()))

    @staticmethod
    def _pass(b, data):
        """False: that end is gone. Its last words may still be on their way back: the other thread ends both, behind them."""
        try:
            b.sendall(data)
        except OSError:
            return False
        return True

    def _receive(self, a, n):
        while a in self.silent and not self.stopped.is_set():
            time.sleep(0.05)
        return super()._receive(a, n)

    def _frames(self, a, b):
        with contextlib.suppress(OSError, ValueError):
            while head := self._head(a):
                _, kind, _, _, length, _ = HEADER.unpack(head)
                body = self._receive(a, length)
                if due := self.drop & {kind, (kind, self.count.get(kind, 0) + 1)}:
                    self.drop.remove(due.pop())
                    self.lose()
                    return
                if kind == HELLO:
                    time.sleep(self.hello)
                    offers, needs = struct.unpack('<QQ', body)
                    body = struct.pack('<QQ', offers & self.offers, needs)
                if kind in (RAM, PACKED, DELTA):
                    self._throttle(length)
                    self.passed += length
                self.before.setdefault(kind, dict(self.count))
                self.count[kind] = self.count.get(kind, 0) + 1
                if kind in self.swallow:
                    continue
                if a not in self.silent and not self._pass(b, head + body):
                    return
        self._end(a, b)

    def _end(self, a, b):
        """Behind all that came from a. Where both are being reset no end may go before that."""
        if a not in self.silent and a not in self.broken:
            for s in (a, b):
                with contextlib.suppress(OSError):
                    s.shutdown(socket.SHUT_RDWR)

    def wait(self, what, timeout=60):
        end = time.monotonic() + timeout
        while not what():
            assert time.monotonic() < end, f'the link saw {self.count}'
            time.sleep(0.02)

    def wait_ram(self, more):
        """Until so many bytes have passed from now on."""
        goal = self.passed + more
        self.wait(lambda: self.passed >= goal)

    def wait_acknowledged(self, run, more=1 << 20):
        """Until the sender has read that a part stands: it has been passed on, and so much RAM after it."""
        self.wait(lambda: self.count.get(ACK) or run.send.poll() is not None)
        assert run.send.poll() is None, run.send.said
        self.wait_ram(more)

    def lose(self, which=slice(None), latest=0):
        """Resets connections: of all, or of so many that came last."""
        for pair in self.pairs[-latest:][which]:
            self.broken.update(pair)
            for s in pair:
                reset(s)

    def fall(self, silently=False):
        """From now on nothing passes: no end gets an answer (silently), or all connections are reset and refused."""
        self.silently, self.down = silently, True
        if silently:
            self.silent.update(self.sockets)
        else:
            self.lose()

    def rise(self):
        """New connections pass. Of the old ones nothing ever will."""
        self.down = False


class Sealed(Losing):
    """The same of a link whose bytes make no sense to it, as those of TLS. wait_ram() counts all bytes."""

    def __init__(self, to, rate=2 << 20):
        self.change = None	# the number of the connection of which the next byte to the receiver is changed
        super().__init__(to, rate)

    def _frames(self, a, b):
        with contextlib.suppress(OSError, ValueError):
            while not self.stopped.is_set():
                if not select.select([a], [], [], 0.1)[0]:
                    continue
                data = a.recv(16384)
                if not data:
                    break
                self._throttle(len(data))
                while a in self.silent and not self.stopped.is_set():
                    time.sleep(0.05)
                if self.change is not None and len(self.pairs) > self.change and self.pairs[self.change][0] is a:
                    middle = len(data) // 2
                    data = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1:]
                    self.change = None
                self.passed += len(data)
                if not self._pass(b, data):
                    return
        self._end(a, b)


class Cut(Sealed):
    """
    Of one of TLS's records to the receiver so many bytes pass, and then the end of the connection: no farewell, and no reset. number: the
    connection's; record: the record's on it; keep: of its length.
    """

    def __init__(self, to, number, record, keep, rate=1 << 30):
        self.number, self.record, self.keep = number, record, keep
        self.done = threading.Event()
        super().__init__(to, rate)

    def _frames(self, a, b):
        if len(self.pairs) <= self.number or self.pairs[self.number][0] is not a:
            super()._frames(a, b)
            return
        with contextlib.suppress(OSError):
            for _ in range(self.record):
                self._pass(b, self._record(a))
            self._pass(b, (data := self._record(a))[:self.keep(len(data))])
            self.done.set()
            b.shutdown(socket.SHUT_WR)

    def _record(self, a):
        head = self._receive(a, 5)	# RFC 8446, 5.1: a type, a version, a length
        data = head + self._receive(a, int.from_bytes(head[3:], 'big'))
        self._throttle(len(data))
        self.passed += len(data)
        return data


class Far(Losing):
    """
    The other end is far away, as the first PONGs show, by which a sender measures the round trip (seconds); all else passes at
    once. resumed(near): is called when RESUMED comes by; if it returns False nothing passes any more on that connection.
    """

    def __init__(self, to, trip, resumed=lambda near: True):
        self.trip, self.resumed, self.pongs = trip, resumed, 0
        super().__init__(to, rate=1 << 30)
        self.at_head.update({PONG: self._at_pong, RESUMED: self._at_resumed})

    def _at_pong(self, *_):
        if self.pongs < 2:
            self.pongs += 1
            time.sleep(self.trip)

    def _at_resumed(self, a, _):
        return None if self.resumed(next(near for near, far in self.pairs if far is a)) else b''
