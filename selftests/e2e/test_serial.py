# SPDX-License-Identifier: GPL-2.0-only
"""A client takes what a port of the guest has for it, which QEMU's main loop sees to, also while the guest stands still."""
import contextlib
import socket
import threading
import time

import godwit
import monitor
import pytest
import sources
from ours import proved

APPEND = 'start=16 size=16 touch=8 rate=50'
DEVICE = '/machine/peripheral/ser/virtio-backend'
PORT_OUT = 5	# port 1's queue (guest/vser.c)
pytestmark = pytest.mark.native


def port(name):
    return ['-device', 'virtio-serial-pci,id=ser,max_ports=2,disable-legacy=off', '-device', 'virtserialport,nr=1,chardev=port',
            '-chardev', f'socket,id=port,path=/dev/shm/{name}.run/port,server=on,wait=off']


@pytest.fixture
def pair(directory):
    src = sources.plain(directory, APPEND, devices=port('src'))
    return src, godwit.destination(src, devices=port('dst'))


class Client:
    """It has the guest begin to talk, and lets it wait."""

    def __init__(self, vm):
        self.vm, self.socket = vm, socket.socket(socket.AF_UNIX)
        self.socket.connect(f'{vm.run}/port')
        self.socket.sendall(b'x')
        self._until(lambda: self._queue()['inuse'], 'output is held up')

    def _queue(self):
        return self.vm.qmp('x-query-virtio-queue-status', path=DEVICE, queue=PORT_OUT)

    def _until(self, done, what):
        end = time.monotonic() + 60
        while not done():
            assert time.monotonic() < end, f'not so in 60 s: {what}'
            time.sleep(0.01)

    def take(self):
        before = self._queue()['used-idx']
        self.socket.setblocking(False)

        def came():
            with contextlib.suppress(BlockingIOError):
                self.socket.recv(1 << 20)
            return self._queue()['used-idx'] != before
        self._until(came, 'the device has written its ring')

    def close(self):
        self.socket.close()


def has_taken(vm, count):
    end = time.monotonic() + 60
    while vm.counters.get('ser') != count:
        proved(time.monotonic() < end, f'{vm.name} has taken {vm.counters.get("ser")} of {count} bytes')
        time.sleep(0.05)


@pytest.mark.parametrize('mode', ['migrate', 'save'])
def test_served_in_the_blackout(pair, mode):
    """The guest runs on with its client at the source; the next try moves it, and the destination serves a client."""
    src, dst = pair
    due, served = threading.Event(), threading.Event()

    def hook(direction, data):
        if monitor.saves_devices(direction, data):
            due.set()
            served.wait(60)
    client = Client(src)
    run = godwit.Run(src, dst, '--pause', '--device-state', mode, *monitor.Monitor(src, hook).options())
    assert due.wait(60), run.send.poll() or run.send.said
    client.take()
    served.set()
    run.wait('vm-state')
    assert f'{DEVICE} (virtio-serial)' in run.send.said, run.send.said
    godwit.unharmed(src)
    client.take()
    has_taken(src, 1)
    client.close()
    dst.kill()
    dst = godwit.destination(src, 'dst2', devices=port('dst2'))
    run = godwit.Run(src, dst, '--pause', '--device-state', mode)
    run.wait()
    godwit.proof(src, dst, stopped=godwit.STOPPED[mode])
    Client(dst).close()
    has_taken(dst, 2)
