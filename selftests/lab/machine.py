# SPDX-License-Identifier: GPL-2.0-only
"""The machine that the lab boots a kernel in, and what comes out of it."""
import contextlib
import ctypes
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import termios
import time
import tty

import awake
import complaints

QEMU = os.environ.get('LAB_QEMU', 'qemu-system-x86_64')
# A thread for each emulated CPU. One for all takes two thirds of the CPU time where labs run side by side, but has each CPU
# stand still for 100 ms at a time, and guests that calibrate their clocks then do not boot: two in a hundred did not.
# Without "fast strings" the kernel and libc copy eight or more bytes at a time, which is emulated three times as fast as
# rep movsb, one byte after the other.
TCG = ['-machine', 'q35', '-accel', 'tcg,thread=multi', '-cpu', 'max,la57=off,-erms,-fsrm']
KVM = ['-machine', 'q35', '-accel', 'kvm', '-cpu', 'host,arch-capabilities=off']
# Emulation pays for every mitigation, and its clock and TSC are one.
# An NMI wakes any CPU, see awake.py.
# Debian's kernels clear what they allocate.
# RCU's readers may lose the one slow CPU to others for longer than the usual 21 s; a minute, as of the watchdog below, is a hang.
TCG_ARGS = 'mitigations=off nopti tsc=reliable no_timer_check apic_extnmi=all init_on_alloc=0 rcupdate.rcu_cpu_stall_timeout=60'
ARGS = ('console=ttyS0 panic=-1 oops=panic audit=0 rcupdate.rcu_expedited=1 '
        'random.trust_cpu=1 nokaslr '
        # a hang is a failure with a trace, not a timeout
        'watchdog_thresh=30 softlockup_panic=1 sysctl.kernel.hung_task_panic=1')
PROBE_SECONDS = 15
CLOCK_SECONDS = 15	# of difference between the clocks inside and here


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)	# PR_SET_PDEATHSIG
    os.setsid()


def base_command(accel, kernel, console, memory, cpus, append):
    args = f'{ARGS} {TCG_ARGS if accel is TCG else ""} {append}'
    return [QEMU, *accel, '-smp', str(cpus), '-m', memory, '-nodefaults', '-no-user-config',
            '-display', 'none', '-no-reboot', '-serial', f'file:{console}',
            '-kernel', kernel.boot, '-initrd', kernel.initrd, '-append', args]


def probe_kvm(kernel, directory):
    """Does an ordinary kernel boot under this machine's KVM, and could it run guests of its own?"""
    console = os.path.join(directory, 'probe.log')
    if not os.access('/dev/kvm', os.R_OK | os.W_OK):
        return 'tcg: no access to /dev/kvm'
    command = base_command(KVM, kernel, console, '1G', 1, 'lab.probe quiet')
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, preexec_fn=die_with_parent) as qemu:
        try:
            qemu.wait(PROBE_SECONDS)
        except subprocess.TimeoutExpired:
            qemu.kill()
    with open(console, encoding='utf-8', errors='replace') as f:
        said = f.read()
    if 'nested=yes' in said:
        return 'kvm: a kernel boots and has nested virtualization'
    if 'lab: alive' in said:
        return 'tcg: a kernel boots under KVM, but nested virtualization is off'
    return 'tcg: no kernel boots under KVM here'


def choose_accel(kernel, directory, again=False):
    answer = os.path.join(directory, 'accel')
    if again or not os.path.exists(answer):
        found = probe_kvm(kernel, directory)
        with open(answer, 'w', encoding='ascii') as f:
            f.write(found + '\n')
    with open(answer, encoding='ascii') as f:
        found = f.read().strip()
    return (KVM if found.startswith('kvm') else TCG), found


def trouble(console):
    """The console from its first bad line on, after the test that had begun; or nothing."""
    with open(console, encoding='utf-8', errors='replace') as f:
        lines = f.read().splitlines()
    # A test's name may quote a complaint.
    bad = complaints.first(('' if '] test: ' in line else line for line in lines),
                           complaints.ON_CONSOLE)
    if bad is None:
        return []
    begun = [line for line in lines[:bad] if '] test: ' in line]
    return begun[-1:] + lines[bad:bad + 100]


@contextlib.contextmanager
def raw_terminal():
    """Every key goes to the machine, Ctrl-C too."""
    before = termios.tcgetattr(0)
    tty.setraw(0)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


class Machine:
    """One boot: its ports are socket pairs, handed to QEMU by number. emulated: how many CPUs are."""
    PORTS = ('out', 'err', 'status')

    def __init__(self, command, shares, emulated, interactive=False):
        self.status = b''
        self.sockets, far = {}, []
        command = [*command, '-device', 'virtio-serial-pci']
        # Two cards with a cable between them; they scatter and gather, which the kernel wants for zero-copy sends.
        for i, end in enumerate(socket.socketpair()):
            far.append(end)
            command += ['-netdev', f'socket,id=card{i},fd={end.fileno()}', '-device', f'e1000e,netdev=card{i},romfile=']
        for port in (*self.PORTS, *(['in'] if interactive else [])):
            self.sockets[port], end = socket.socketpair()
            far.append(end)
            command += ['-chardev', f'socket,id={port},fd={end.fileno()}',
                        '-device', f'virtserialport,chardev={port},name=lab.{port}']
        monitor, end = socket.socketpair()
        far.append(end)
        command += ['-chardev', f'socket,id=monitor,fd={end.fileno()}', '-qmp', 'chardev:monitor']
        for tag, path, read_only in shares:
            only = ',readonly=on' if read_only else ''
            command += ['-fsdev', f'local,id={tag},path={path},security_model=none,multidevs=remap{only}',
                        '-device', f'virtio-9p-pci,fsdev={tag},mount_tag={tag}']
        self.qemu = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent,
                                     pass_fds=[s.fileno() for s in far])
        for end in far:
            end.close()
        self.watch = awake.Watch(monitor, emulated) if emulated else None

    def _forward(self, port):
        try:
            data = self.sockets[port].recv(65536)
        except BlockingIOError:
            return True
        if not data:
            return False
        if port == 'status':
            self.status += data
        else:
            view = memoryview(data)
            while view:
                view = view[os.write(1 if port == 'out' else 2, view):]
        return True

    def _forward_the_rest(self, ports):
        """What was written before the status, and may still be on its way through QEMU."""
        waiting = [self.sockets[port] for port in ports]
        while ready := select.select(waiting, [], [], 0.3)[0]:
            for port in ports:
                if self.sockets[port] in ready and not self._forward(port):
                    waiting.remove(self.sockets[port])

    def _type(self, stdin):
        """What is typed here is read there; at its end, a line does what the end of a file would."""
        data = os.read(stdin, 4096)
        self.sockets['in'].sendall(data or b'exit\n')
        return bool(data)

    def _compare_clocks(self, passed):
        """Both lines end with the uptime inside; passed: seconds between them here. An emulated clock may jump."""
        ready, done = (float(line.split()[1]) for line in self.status.splitlines())
        if abs(done - ready - passed) > CLOCK_SECONDS:
            print(f'lab: {done - ready:.0f} s passed inside in {passed:.0f} s: what timed out there was not slow', file=sys.stderr)

    def pump(self, timeout, stdin=None):
        """Until the command's status is here (returned), or the machine is gone (None). stdin: a descriptor for the command's."""
        end = time.monotonic() + timeout
        ready = None
        open_ports = set(self.PORTS)
        with selectors.DefaultSelector() as selector:
            for port in open_ports:
                self.sockets[port].setblocking(False)
                selector.register(self.sockets[port], selectors.EVENT_READ, port)
            if stdin is not None:
                selector.register(stdin, selectors.EVENT_READ, 'stdin')
            while open_ports:
                left = end - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                for key, _ in selector.select(min(left, 1)):
                    if key.data == 'stdin':
                        if not self._type(stdin):
                            selector.unregister(stdin)
                    elif not self._forward(key.data):
                        selector.unregister(key.fileobj)
                        open_ports.discard(key.data)
                lines = self.status.count(b'\n')
                # A kernel that still boots could not bear an NMI.
                if lines and self.watch and not self.watch.look():
                    self.watch = None
                if lines and ready is None:
                    ready = time.monotonic()
                if lines == 2:
                    self._compare_clocks(time.monotonic() - ready)
                    self._forward_the_rest(open_ports & {'out', 'err'})
                    return int(self.status.splitlines()[1].split()[0])
        return None

    def end(self):
        if self.qemu.poll() is None:
            self.qemu.kill()
        self.qemu.wait()
