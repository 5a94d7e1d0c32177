# SPDX-License-Identifier: GPL-2.0-only
"""godwit.ko, and the memslots that it and KVM know."""
import contextlib
import ctypes
import os
import re
import signal
import time

import lab
from ours import ModuleStays, proved

MODULE = os.environ.get('GODWIT_MODULE', f'{lab.B}/kmod/godwit.ko')
LIBC = ctypes.CDLL(None, use_errno=True)
SYS_FINIT_MODULE, SYS_DELETE_MODULE = 313, 176	# of x86-64
ROWS = {'vcpu': 1, 'mapping': 2, 'block': 4, 'unmap': 8, 'change': 16}


def loaded():
    return os.path.exists('/sys/module/godwit')


def syscall(*words):
    """The errno, or 0. Not insmod and rmmod: to start a program costs an emulated host more than all that these two do."""
    return ctypes.get_errno() if LIBC.syscall(*words) else 0


def load():
    if not loaded():
        with open(lab.near(MODULE), 'rb') as f:
            error = syscall(SYS_FINIT_MODULE, f.fileno(), b'', 0)
        if error:
            raise RuntimeError(f'{MODULE} does not load: {os.strerror(error)}')


def tool(name):
    return lab.near(f'{lab.B}/tools/{name}')


def unload(timeout=60):
    """At once, or as soon as what is on its way out (a killed process's files) is gone."""
    end = time.monotonic() + timeout
    while loaded():
        error = syscall(SYS_DELETE_MODULE, b'godwit', os.O_NONBLOCK)
        if error and time.monotonic() > end:
            raise ModuleStays(f'it does not unload: {os.strerror(error)}')
        time.sleep(0.01)


@contextlib.contextmanager
def row_off(name):
    """Without this row of the writer ledger pages are missed: that is what a test must notice."""
    path = '/sys/module/godwit/parameters/unsafe_rows_off'

    def write(value):
        with open(path, 'w', encoding='ascii') as f:
            f.write(str(value))
    write(ROWS[name])
    try:
        yield
    finally:
        write(0)


def slots(vm):
    """(memslots, how many of them have dirty logging on) as the module has them; waits for a session that retires."""
    said = lab.call(tool('slots'), str(vm.pid))
    return tuple(map(int, re.findall(r'=(\d+)', said)))


def kvm_logged(vm):
    """The ids of the memslots whose log is on, as KVM itself says. (A display always has its own.)"""
    # A test that is out of time must not kill the tool while a thread of QEMU's is in its hands.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    try:
        said = lab.call(tool('kvmslots'), str(vm.pid))
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    return {int(slot) for slot in re.findall(r'\d+', said)}


def wait_unlogged(vm, but=frozenset(), timeout=60):
    """Until no log is on but these, and these are: a session of the module's ends in the background."""
    end = time.monotonic() + timeout
    while (on := kvm_logged(vm)) != but:
        proved(time.monotonic() < end, f'{vm.name}: KVM logs slots {on}, not {set(but)}')
        time.sleep(0.1)
