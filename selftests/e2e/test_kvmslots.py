# SPDX-License-Identifier: GPL-2.0-only
"""The tool that asks KVM for its dirty logs: what it says, and that the VMM does not notice."""
import os
import signal
import subprocess
import sys
import time

import godwit
import lab
import pytest

# A VMM without slots. Its main thread sleeps in ppoll(); each signal leaves a byte in the pipe.
SLEEPER = '''
import ctypes, fcntl, os, signal
vm = fcntl.ioctl(os.open('/dev/kvm', os.O_RDWR), 0xae01, 0)
read, write = os.pipe2(os.O_NONBLOCK)
signal.set_wakeup_fd(write)
signal.signal(signal.SIGRTMIN, lambda *_: None)
class Poll(ctypes.Structure):
    _fields_ = [('fd', ctypes.c_int), ('events', ctypes.c_short), ('revents', ctypes.c_short)]
libc = ctypes.CDLL(None, use_errno=True)
seen = 0
print('ready', flush=True)
while True:
    n = libc.ppoll(ctypes.byref(Poll(0, 1, 0)), 1, None, None)
    if n < 0 and ctypes.get_errno() != 4:
        print('ppoll:', ctypes.get_errno(), flush=True)
    if n > 0:
        break
try:
    while data := os.read(read, 4096):
        seen += len(data)
except BlockingIOError:
    pass
print('signals:', seen, flush=True)
'''


@pytest.fixture
def src(directory):
    return lab.Qemu('src', directory=directory, append='start=16 size=32 touch=32 rate=400').wait_ticks(2)


def wait_logged(vm, as_wanted):
    end = time.monotonic() + 30
    while not as_wanted(found := godwit.kvm_logged(vm)):
        assert time.monotonic() < end, f'logged: {found}'
        time.sleep(0.1)


def mappings(vm):
    """Where they are; neighbours that the kernel has merged or split count as one."""
    with open(f'/proc/{vm.pid}/maps', encoding='ascii') as f:
        return {line.split('-')[0] for line in f}


def test_qemu_migrates(directory):
    """No log, but the display's own; QEMU's migration switches more on, and off when it is cancelled."""
    src = lab.Qemu('src', directory=directory, vga='std', append='start=16 size=32 touch=32 rate=400').wait_ticks(2)
    before = godwit.kvm_logged(src)
    assert len(before) == 1, "the display's alone"
    src.qmp('migrate-set-parameters', max_bandwidth=1 << 20)
    src.qmp('migrate', uri='exec:cat >/dev/null')
    wait_logged(src, lambda found: found > before)
    src.qmp('migrate_cancel')
    wait_logged(src, before.__eq__)


@pytest.mark.usefixtures('module')
def test_in_a_round(src, directory):
    """To ask clears nothing in KVM: the guest arrives."""
    assert godwit.kvm_logged(src) == set()
    dst = godwit.destination(src)
    run = godwit.start_in('round', (src, dst))
    for _ in range(5):
        assert godwit.kvm_logged(src)
    lab.link('rate', 200)
    godwit.control(run.send.pid, execute='set', arguments={'downtime-limit': 5000})
    assert run.wait()['verified']
    godwit.proof(src, dst)


def test_vmm_does_not_notice(src):
    before = mappings(src)
    for _ in range(10):
        assert godwit.kvm_logged(src) == set()
    assert mappings(src) == before
    src.wait_ticks(1).check()
    # One that SIGSTOP has stopped can be asked as well, and stays stopped.
    src.process.send_signal(signal.SIGSTOP)
    godwit.kvm_logged(src)
    with open(f'/proc/{src.pid}/stat', encoding='ascii') as f:
        assert f.read().split()[2] == 'T'
    src.process.send_signal(signal.SIGCONT)
    src.wait_ticks(1).check()


def test_no_signal_is_lost():
    """A system call that the tool interrupts goes on, and each signal that comes meanwhile is handled once."""
    lab.modules('kvm')
    with subprocess.Popen([sys.executable, '-c', SLEEPER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as vmm:
        assert vmm.stdout.readline() == 'ready\n'
        sent = 0
        for signals in (False, True) * 8:
            with subprocess.Popen([godwit.tool('kvmslots'), str(vmm.pid)], stdout=subprocess.PIPE, text=True) as tool:
                while tool.poll() is None:
                    if signals:
                        os.kill(vmm.pid, signal.SIGRTMIN)
                        sent += 1
                    time.sleep(0.002)
                assert tool.stdout.read() == 'logged=\n'
        vmm.stdin.write('\n')
        vmm.stdin.flush()
        assert vmm.stdout.readline() == f'signals: {sent}\n'
