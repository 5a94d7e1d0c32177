# SPDX-License-Identifier: GPL-2.0-only
"""Between godwit and QEMU's monitor: passes all on, descriptors too, until a test has other plans."""
import contextlib
import os
import socket
import threading
import time


class Monitor:
    """
    hook('to' or 'from', bytes): is called with what goes to QEMU, or comes from it, before it is passed on; DROP: godwit loses
    its monitor, and QEMU does not notice; END: the bytes go nowhere, and both lose the other.
    """
    DROP, END = object(), object()

    def __init__(self, vm, hook):
        self.path, self.vm, self.hook = f'{vm.run}/between', vm, hook
        self.far = []
        self.server = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        self.server.bind(self.path)
        self.server.listen(4)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.server.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(self.vm.main_qmp)
                self.far.append(far)
                for a, b, direction in ((near, far, 'to'), (far, near, 'from')):
                    threading.Thread(target=self._pump, args=(a, b, near, direction), daemon=True).start()

    def _pump(self, a, b, near, direction):
        with contextlib.suppress(OSError):
            while True:
                data, fds, _, _ = socket.recv_fds(a, 65536, 4)
                if not data:
                    break
                verdict = self.hook(direction, data)
                if verdict is self.END:
                    break
                if verdict is self.DROP:
                    near.shutdown(socket.SHUT_RDWR)
                    while True:
                        time.sleep(1)
                if fds:
                    socket.send_fds(b, [data], fds)
                    for fd in fds:
                        os.close(fd)
                else:
                    b.sendall(data)
        with contextlib.suppress(OSError):
            b.shutdown(socket.SHUT_RDWR)

    def step_aside(self, vm=None):
        """From now on QEMU itself, which has its monitor back, or another one is at our path."""
        self.server.close()
        for far in self.far:
            with contextlib.suppress(OSError):
                far.shutdown(socket.SHUT_RDWR)
        os.unlink(self.path)
        os.symlink((vm or self.vm).main_qmp, self.path)

    def options(self):
        return ['--qmp', self.path, '--pid', str(self.vm.pid)]


def at_the_stop(vm, act):
    """A Monitor: act() is called when the guest has been stopped, before godwit hears of it; then its `over` is set."""
    def hook(direction, data):
        if direction == 'from' and b'"event": "STOP"' in data and not between.over.is_set():
            act()
            between.over.set()
    between = Monitor(vm, hook)
    between.over = threading.Event()
    return between


def saves_devices(direction, data):
    """Does this ask QEMU, whose guest stands still, for its device state, in whichever mode?"""
    return direction == 'to' and (b'"migrate-continue"' in data or b'"xen-save-devices-state"' in data)


def in_the_blackout(vm, act):
    """A Monitor: act() is called when the guest has been stopped for good, and QEMU is to yield its device state; it never does."""
    def hook(direction, data):
        if saves_devices(direction, data):
            act()
            return Monitor.END
        return None
    return Monitor(vm, hook)
