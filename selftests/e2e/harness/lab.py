# SPDX-License-Identifier: GPL-2.0-only
"""
The harness for tests in the lab: guests, their serial lines, their monitors.

    src = lab.Qemu('src', append='size=64 touch=16 rate=500').wait_ticks(2)
    dst = lab.Qemu('dst', side='dst', incoming=True)
    lab.qemu_migrate(src, dst)

A guest of name N leaves N.log (serial, at its end) and N.err (QEMU) in its directory. It has two monitors:
vm.main_qmp is a path, for the product; vm.qmp is a client, for the test. It works outside the lab too, with
TCG and without network namespaces, as far as no kernel module is needed.
"""
import collections
import contextlib
import dataclasses
import os
import re
import shutil
import signal
import socket
import time

from emulator import NoFirstTick
from hostdev import (ADDRESS, B, IN_LAB, TREE, Cgroup, MemoryCgroup, block_device, call, cards, disk, enter, fill_disk, link,
                     link_cleared, modules, mounted, net, popen, rng, send_frames, sent_bytes, swap, sysctl, tap)
from klog import KernelLog
from ours import Crashed, GuestStandsStill, ProofFailed
from qmp import Qmp, QmpError, milliseconds
from ramfile import allocated_bytes, differing_pages, extents

__all__ = ['ADDRESS', 'B', 'IN_LAB', 'TREE', 'Cgroup', 'KernelLog', 'MemoryCgroup', 'Migration', 'Qemu', 'Qmp', 'QmpError',
           'QemuMigration',
           'Ram', 'allocated_bytes', 'block_device', 'call', 'cards', 'differing_pages', 'disk', 'enter', 'extents',
           'fill_disk', 'link', 'link_cleared', 'milliseconds', 'modules', 'mounted', 'net', 'popen', 'qemu_migrate', 'rng', 'send_frames', 'sent_bytes',
           'swap', 'sysctl', 'tap']

QEMU = os.environ.get('GODWIT_QEMU', 'qemu-system-x86_64')
COPIES = '/run/godwit-copies'


def near(path):
    """A copy of what is used over and over: each byte of the build directory crosses 9p, uncached."""
    if not IN_LAB:
        return path
    copy = f'{COPIES}/{os.path.basename(path)}'
    if not os.path.exists(copy) or os.path.getmtime(copy) < os.path.getmtime(path):
        os.makedirs(COPIES, exist_ok=True)
        shutil.copy2(path, f'{copy}.part')
        os.rename(f'{copy}.part', copy)
    return copy


PATTERN = f'{B}/guest/pattern.elf'
TICK = re.compile(r'^tick=\d+ (?:\w+=\d+ ?)+$')
TICKS = 4	# a second, of the pattern guest (guest/main.c)
running = []


@dataclasses.dataclass
class Ram:
    """One memory backend. path: a file on tmpfs or hugetlbfs; 'memfd'; 'shm'; None is private memory. foreign: the file is another's."""
    mib: int
    path: str | None = None
    share: bool = True
    prealloc: bool = False
    align: str = ''
    foreign: bool = False

    def object(self, number):
        flags = f"size={self.mib}M,share={'on' if self.share and self.path else 'off'}," \
                f"prealloc={'on' if self.prealloc else 'off'}"
        if not self.path:
            return f'memory-backend-ram,id=ram{number},{flags}'
        if self.path in ('memfd', 'shm'):
            return f'memory-backend-{self.path},id=ram{number},{flags}'
        align = f',align={self.align}' if self.align else ''
        return f'memory-backend-file,id=ram{number},mem-path={self.path},{flags}{align}'


class Qemu:
    """
    ram: MiB (a fresh shared file in /dev/shm) or a list of Ram, the guest's memory in order.
    append: the command line of the kernel, see guest/cmd.c for the pattern guest's.
    devices: more arguments, as from disk(), rng(), tap().
    incoming: wait for a migration (-incoming defer).
    order: of ram in the guest, if it is another one.
    """

    def __init__(self, name, side='src', ram=128, append='', *, directory=None, machine='q35', kernel=PATTERN,
                 initrd=None, devices=(), incoming=False, cgroup=None, cpus=1, vga='none', qemu=QEMU, accel='', order=None, extra=()):
        for vm in running:
            if vm.name == name:
                vm.kill()	# one that was kept for tests that could use it
        self.name, self.side, self.incoming = name, side, incoming
        self.sender = None	# the last godwit that was to move it
        self.destinations = []	# where it was to go
        self.kind = None	# what sources.py made it for
        self.healthy = False	# it may serve the next test: nothing was done to it since it was found unharmed
        self.put_back = False	# a migration of a test before stopped it and let it run again
        self._stopped = self._resumed = False
        # What its twin at the destination needs as well.
        self.made = {'machine': machine, 'vga': vga, 'qemu': qemu, 'cpus': cpus, 'extra': extra}
        self.directory = directory or f'{B}/e2e'
        os.makedirs(self.directory, exist_ok=True)
        self.ram = [Ram(ram, f'/dev/shm/{name}.ram')] if isinstance(ram, int) else list(ram)
        # Not in the directory: a socket's path is short, and each byte of the serial line would cross 9p.
        self.run = f'/dev/shm/{name}.run'
        os.makedirs(self.run, exist_ok=True)
        self.main_qmp, self._test_qmp = f'{self.run}/main.qmp', f'{self.run}/test.qmp'
        self.log, self._err = f'{self.run}/serial.log', f'{self.run}/stderr'
        self._remove_files()
        self._last, self._errors, self._offset, self._unfinished, self._serial = {}, [], 0, '', None
        self._qmp = None
        self._said = collections.deque(maxlen=2000)

        command = [qemu, '-name', name, '-nodefaults', '-no-user-config', '-display', 'none', '-vga', vga,
                   '-accel', f'kvm{accel}' if IN_LAB else 'tcg', '-cpu', 'host' if IN_LAB else 'max',
                   '-smp', str(cpus), '-m', f'{sum(r.mib for r in self.ram)}M',
                   '-serial', f'file:{self.log}',
                   '-chardev', f'socket,id=commands,path={self.run}/serial,server=on,wait=off',
                   '-serial', 'chardev:commands',
                   '-qmp', f'unix:{self.main_qmp},server=on,wait=off',
                   '-qmp', f'unix:{self._test_qmp},server=on,wait=off',
                   '-kernel', near(kernel), '-append', append]
        for i, r in enumerate(self.ram):
            command += ['-object', r.object(i)]
        if len(self.ram) == 1:
            command += ['-machine', f'{machine},memory-backend=ram0']
        else:
            command += ['-machine', machine]
            for i in order or range(len(self.ram)):
                command += ['-numa', f'node,memdev=ram{i}']
        if initrd:
            command += ['-initrd', near(initrd)]
        if incoming:
            command += ['-incoming', 'defer']
        command += [*devices, *extra]
        with open(self._err, 'wb') as err:
            self.process = popen(side, command, cgroup, stdout=err, stderr=err)
        running.append(self)

    pid = property(lambda self: self.process.pid)

    @property
    def qmp(self):
        if not self._qmp:
            self._qmp = Qmp(self._test_qmp)
        return self._qmp

    def hang_up(self):
        """The next command finds a monitor that owes no client an answer."""
        self._look_at_events()
        if self._qmp:
            self._qmp.close()
        self._qmp = None

    def _look_at_events(self):
        if self._qmp:
            with contextlib.suppress(OSError, QmpError):
                self._qmp.drain()
            self._stopped |= 'STOP' in self._qmp.seen
            self._resumed |= 'RESUME' in self._qmp.seen

    def was_stopped(self):
        """Have its vCPUs ever been stopped, by whomever?"""
        self._look_at_events()
        return self._stopped

    def stops(self):
        """How often, as its monitor has told us so far. To ask it costs an emulated host more than to be told."""
        self._look_at_events()
        return self._qmp.seen['STOP'] if self._qmp else 0

    def has_run(self):
        """A destination: was it ever let run?"""
        self._look_at_events()
        return self._resumed

    def query_status(self):
        return self.qmp('query-status')['status']

    # The serial line. A line that was cut in two by a migration is no line of either side.

    def _read(self):
        if not self._serial:
            if not os.path.exists(self.log):
                return
            self._serial = open(self.log, 'rb', buffering=0)	# until kill()
        data = os.pread(self._serial.fileno(), os.fstat(self._serial.fileno()).st_size, self._offset)
        whole = data[:data.rfind(b'\n') + 1]
        self._offset += len(whole)
        self._unfinished = data[len(whole):].decode(errors='replace')
        for line in whole.decode(errors='replace').splitlines():
            line = line.strip()
            if TICK.match(line):
                self._last = {k: int(v) for k, v in (w.split('=') for w in line.split())}
            elif line.startswith(('error:', 'fatal:')):
                self._errors.append(line)
            self._said.append(line)

    @property
    def counters(self):
        """The last tick line as a dict; empty before the first."""
        self._read()
        return self._last

    ticks = property(lambda self: self.counters.get('tick', 0))
    errors = property(lambda self: self.counters.get('errors', 0) + (not self._last and len(self._errors)))

    @property
    def complaints(self):
        """The guest's own words for its errors, also those that it was stopped in."""
        self._read()
        return self._errors + [self._unfinished] * self._unfinished.startswith('error:')

    def said_on_stderr(self):
        with open(self._err, encoding='utf-8', errors='replace') as f:
            return ''.join(f'QEMU {self.name}: {line}' for line in f)

    def alive(self):
        if self.process.poll() is not None:
            kind = Crashed if self.process.returncode < 0 else RuntimeError
            raise kind(f'{self.name} ended with {self.process.returncode}: {self.said_on_stderr()}')

    def cpus(self):
        """Where they are and how often they left the guest, twice, a second apart, and what waits for them."""
        def look():
            said = self.qmp('human-monitor-command', command_line='info registers -a')
            exits = [s['value'] for cpu in self.qmp('query-stats', target='vcpu') for s in cpu['stats'] if s['name'] == 'exits']
            return list(zip(re.findall(r'[RE]IP=\w+ [RE]?FL=\w+.*HLT=\d', said), exits))
        first = look()
        time.sleep(1)
        waiting = ''.join(self.qmp('human-monitor-command', command_line=f'info {chip}') for chip in ('lapic', 'pic'))
        return first, look(), waiting

    def _wait(self, done, what, timeout):
        end = time.monotonic() + timeout
        while not done():
            self.alive()
            if time.monotonic() > end:
                self._too_late(f'{self.name}: no {what} in {timeout} s; last words: {list(self._said)[-3:]}')
            time.sleep(0.05)
        return self

    def _too_late(self, text):
        kind = GuestStandsStill if self.incoming or self.was_stopped() else TimeoutError if self._last else NoFirstTick
        with contextlib.suppress(OSError, QmpError, TimeoutError):
            text += f'; QEMU says {self.query_status()}, migration {self.qmp("query-migrate")}; {self.cpus()[:2]}'
        raise kind(text)

    def wait_ticks(self, more=1, timeout=90):
        """Until so many more ticks were said (a destination starts to count at its first)."""
        begin = self.ticks
        if not begin and more > 1:
            self._wait(lambda: self.ticks, 'first tick', timeout)
            begin, more = self.ticks, more - 1
        return self._wait(lambda: self.ticks >= begin + more and self.ticks, f'tick {begin + more}', timeout)

    def command(self, words, timeout=90):
        """Say something to the guest (guest/cmd.c) and wait until it is done."""
        self._read()
        with socket.socket(socket.AF_UNIX) as serial:
            serial.connect(f'{self.run}/serial')
            for word in words.split():
                self._said.clear()
                serial.sendall(word.encode() + b'\n')
                self._wait(lambda: self._heard(word), f'answer to {word}', timeout)	# pylint: disable=W0640
        return self

    def _heard(self, word):
        self._read()
        if f'refused: {word}' in self._said:
            raise RuntimeError(f'{self.name} refused {word}')
        return f'done: {word}' in self._said

    def check(self):
        """The guest checks all it wrote and read; ProofFailed with its words if anything is wrong."""
        return self.command('verify status').no_errors()

    def no_errors(self):
        """Nothing was wrong so far. What is found before a switchover no migration did."""
        if self.errors or self.complaints:
            raise ProofFailed(f'{self.name}: {self.errors} errors: ' + '; '.join(self.complaints[:5]))
        return self

    def page(self, address):
        """What its RAM's files hold there, a page; None if they are not at hand. address: the guest's"""
        for r in self.ram:
            if address < r.mib << 20:
                if not r.path or not r.path.startswith('/'):
                    return None
                with open(r.path, 'rb') as f:
                    f.seek(address)
                    return f.read(4096)
            address -= r.mib << 20
        return None

    def kill(self, keep=False):
        """keep: leave the RAM files."""
        self._look_at_events()
        crashed = self.process.poll() is not None and self.process.returncode < 0
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        if self._serial:
            self._serial.close()
            self._serial = None
        for path, kind in ((self.log, 'log'), (self._err, 'err')):
            if os.path.exists(path):
                shutil.copy(path, f'{self.directory}/{self.name}.{kind}')
        self.hang_up()
        self._remove_files(keep)
        if self in running:
            running.remove(self)
        if crashed:
            raise Crashed(f'{self.name} ended with {self.process.returncode}: {self.said_on_stderr()}')

    def _remove_files(self, keep=False):
        paths = [self.main_qmp, self._test_qmp, f'{self.run}/serial']
        if self.log and not hasattr(self, 'process'):
            paths.append(self.log)
        if not keep:
            paths += [r.path for r in self.ram if r.path and r.path.startswith('/') and not r.foreign]
        for path in paths:
            if os.path.exists(path):
                os.unlink(path)


Migration = collections.namedtuple('Migration', 'total_ms downtime_ms info')


class QemuMigration:
    """
    QEMU's own migration, which crawls when it has sent 2 MiB, until finish(): a page each time that it looks at its limit. Before, it
    is no faster than most guests write, so that it does not complete where this test sees it late.
    """

    def __init__(self, src, dst, timeout=60):
        self.src = src
        self.dst = dst
        uri = f'tcp:{ADDRESS[dst.side]}:4444'
        dst.qmp('migrate-incoming', uri=uri)
        src.qmp('migrate-set-capabilities', capabilities=[{'capability': c, 'state': False} for c in ('xbzrle', 'auto-converge')])
        src.qmp('migrate-set-parameters', max_bandwidth=1 << 21, downtime_limit=1)
        src.qmp('migrate', uri=uri)
        self._wait(lambda info: info.get('ram', {}).get('transferred', 0) > 2 << 20, 'pages', timeout)
        src.qmp('migrate-set-parameters', max_bandwidth=1 << 14)

    def _wait(self, seen, what, timeout):
        end = time.monotonic() + timeout
        while not seen(info := self.src.qmp('query-migrate')):
            if info['status'] not in ('setup', 'active', 'device') or time.monotonic() > end:
                raise RuntimeError(f'no {what}: {info}; {self.dst.said_on_stderr()}')
            time.sleep(0.01)

    def finish(self, timeout=60):
        self.src.qmp('migrate-set-parameters', max_bandwidth=1 << 40, downtime_limit=2000)
        self._wait(lambda info: info['status'] == 'completed', 'end', timeout)


def qemu_migrate(src, dst, uri=None, capabilities=(), downtime_limit_ms=300, timeout=300):
    """
    QEMU's own migration, at no bandwidth limit. total: from the command to RESUME on the destination.
    downtime: from STOP to RESUME. info: query-migrate of the source.
    """
    uri = uri or f"tcp:{ADDRESS[dst.side]}:4444"
    on = [{'capability': c, 'state': True} for c in capabilities]
    src.qmp('migrate-set-capabilities', capabilities=on)
    dst.qmp('migrate-set-capabilities', capabilities=on)
    src.qmp('migrate-set-parameters', max_bandwidth=1 << 40, downtime_limit=downtime_limit_ms)
    dst.qmp('migrate-incoming', uri=uri)
    begin = time.time() * 1e3
    src.qmp('migrate', uri=uri)
    stop = src.qmp.wait_event('STOP', timeout)
    resume = dst.qmp.wait_event('RESUME', timeout)
    # Not by its event: a guardian that puts settings back meanwhile switches events off again.
    end = time.monotonic() + timeout
    while (info := src.qmp('query-migrate'))['status'] != 'completed':
        if info['status'] not in ('device', 'active') or time.monotonic() > end:
            raise RuntimeError(f"migration: {info['status']}: {info.get('error-desc')}")
        time.sleep(0.02)
    return Migration(milliseconds(resume) - begin, milliseconds(resume) - milliseconds(stop), info)
