# SPDX-License-Identifier: GPL-2.0-only
"""The product, as the tests use it: the module, `godwit receive` and `godwit send`, and the proof at the end."""
import contextlib
import dataclasses
import json
import os
import pty
import re
import signal
import socket
import subprocess
import termios
import time

import lab
from ours import Crashed, ModuleStays, ProofFailed, proved

GODWIT = f'{lab.B}/godwit'
MODULE = os.environ.get('GODWIT_MODULE', f'{lab.B}/kmod/godwit.ko')
ROWS = {'vcpu': 1, 'mapping': 2, 'block': 4, 'unmap': 8, 'change': 16}
PORT = 4433
DOWNTIME = '2000'	# ms
# Exit statuses, as user/err.h names them.
EXIT = {'ok': 0, 'internal': 1, 'usage': 2, 'no-socket': 3, 'not-qemu': 4, 'qmp': 5, 'vm-state': 6, 'no-module': 7,
        'ram-private': 8, 'ram-differs': 9, 'dirty-ring': 10, 'pinned': 11, 'busy': 12, 'unreachable': 13, 'version': 14,
        'bad-peer': 15, 'timeout': 16, 'link-lost': 17, 'device-state': 18, 'verify': 19, 'not-converged': 20, 'vm-gone': 21,
        'cancelled': 22, 'unknown': 23, 'peer-failed': 24, 'time-limit': 25, 'no-migration': 26}


def loaded():
    return os.path.exists('/sys/module/godwit')


def load():
    if not loaded():
        lab.call('insmod', lab.near(MODULE))


def tool(name):
    return lab.near(f'{lab.B}/tools/{name}')


def unload(timeout=10):
    """At once, or as soon as what is on its way out (a killed process's files) is gone."""
    end = time.monotonic() + timeout
    while loaded():
        done = subprocess.run(['rmmod', 'godwit'], stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode and time.monotonic() > end:
            raise ModuleStays(f'rmmod: {done.stderr.strip()}')
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
    """(memslots, how many of them have dirty logging on) as KVM has them; waits for a session that retires."""
    said = lab.call(tool('slots'), str(vm.pid))
    return tuple(map(int, re.findall(r'=(\d+)', said)))


def settings(vm):
    """QEMU's migration capabilities and parameters, whoever set them."""
    on = {c['capability']: c['state'] for c in vm.qmp('query-migrate-capabilities')}
    return on, vm.qmp('query-migrate-parameters')


def note(vm):
    """Before the first migration: what must be there again after each. (VGA has its own log.)"""
    if not hasattr(vm, 'settings_before'):
        vm.settings_before = settings(vm)
    if loaded() and not vm.incoming and not hasattr(vm, 'slots_before'):
        vm.slots_before = slots(vm)


def settings_kept(vm):
    if vm.process.poll() is None and hasattr(vm, 'settings_before'):
        for before, now in zip(vm.settings_before, settings(vm)):
            changed = {name: (before.get(name), now.get(name)) for name in before.keys() | now.keys()
                       if before.get(name) != now.get(name)}
            proved(not changed, f"{vm.name}: QEMU's settings are not what the operator had set (before, now):", changed)


commands = []	# of the test that runs


def none_crashed():
    """No godwit of this test ended by a signal but those that were sent to it."""
    ended = [(p, p.poll()) for p in commands]
    commands.clear()
    for p, status in ended:
        if status is not None and status < 0 and -status not in p.signals:
            raise Crashed(f'godwit {p.process.args[1]} ended by signal {-status}: {p.said}')


class Process:
    """A godwit command, its output (into a terminal of so many columns, or a pipe), and its peak of private memory."""

    def __init__(self, side, *words, columns=0, cgroup=None):
        self.output, to = pty.openpty() if columns else os.pipe()
        if columns:
            termios.tcsetwinsize(to, (24, columns))
        self.signals = set()	# that were sent to it
        self.process = lab.popen(side, [lab.near(GODWIT), *words], cgroup, stdout=to, stderr=to)
        os.close(to)
        commands.append(self)
        self.peak_kib = 0
        self.said = ''
        os.set_blocking(self.output, False)

    pid = property(lambda self: self.process.pid)

    def __del__(self):
        os.close(self.output)

    def _read(self):
        # BlockingIOError: nothing now. EIO: nobody has the terminal any more.
        with contextlib.suppress(OSError):
            while data := os.read(self.output, 65536):
                self.said += data.decode(errors='replace')

    def poll(self):
        ended = self.process.poll()
        self._read()
        with contextlib.suppress(OSError):
            with open(f'/proc/{self.pid}/status', encoding='ascii') as f:
                for line in f:
                    if line.startswith('RssAnon:'):
                        self.peak_kib = max(self.peak_kib, int(line.split()[1]))
        return ended

    def wait_for(self, text, timeout=60):
        end = time.monotonic() + timeout
        while text not in self.said:
            if self.poll() is not None and text not in self.said:
                raise RuntimeError(f'{self.process.args[1]} ended with {self.process.returncode}: {self.said}')
            if time.monotonic() > end:
                raise TimeoutError(f'no {text!r} from godwit: {self.said}')
            time.sleep(0.05)
        return self

    def wait(self, timeout=180):
        end = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > end:
                self.kill()
                raise TimeoutError(f'godwit does not end: {self.said}')
            time.sleep(0.05)
        return self.process.returncode

    def kill(self, how=signal.SIGKILL):
        self.signals.add(how)
        self.process.send_signal(how)
        return self


def control(pid, **command):
    """What the sender's control socket answers; without the command line, which an emulated host needs a second to start."""
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(30)
        peer.connect(f'/run/godwit/{pid}.sock')
        peer.sendall(json.dumps(command).encode() + b'\n')
        return json.loads(peer.recv(4096))['return']


class Run:
    """
    One migration under way: receiver on side dst, sender on side src (None: where the lab itself is), which connects to
    the receiver or to what lies between (to).
    """

    def __init__(self, src, dst, *options, verify=True, receiver=True, receive_options=(), columns=0, side='src',
                 to=None, cgroup=None):
        address = f'{lab.ADDRESS["dst"]}:{PORT}'
        self.src, self.dst = src, dst
        src.healthy = False
        src.destinations.append(dst)
        for vm in (src, dst):
            note(vm)
        self.json = f'{src.directory}/report.json'
        if os.path.exists(self.json):
            os.unlink(self.json)
        self.receive = None
        if receiver:
            self.receive = Process('dst', 'receive', '--qmp', dst.main_qmp, '--listen', address, '--insecure',
                                   *receive_options).wait_for('listening')
        # On an emulated host the device state alone may take longer than the default limit allows.
        self.send = Process(side, 'send', '--qmp', src.main_qmp, '--json', self.json, '--downtime-limit', DOWNTIME,
                            *(['--verify'] if verify else []), *options, to or address, columns=columns, cgroup=cgroup)
        src.sender = self.send

    def wait(self, expect='ok'):
        """Both end; returns the report."""
        status = self.send.wait()
        if self.receive:
            try:
                self.receive.wait(60 if status == 0 else 10)
            except TimeoutError:
                assert status, 'the receiver does not end'	# no sender came, so it listens on
        text = f'send:\n{self.send.said}\nreceive:\n{self.receive.said if self.receive else ""}\n' \
               f'{self.src.said_on_stderr()}{self.dst.said_on_stderr()}'
        wrong = f'exit {status}, not {EXIT[expect]} ({expect})\n{text}'
        if status < 0:
            raise Crashed(wrong)
        proved(status == EXIT[expect] or status != EXIT['verify'], wrong)
        assert status == EXIT[expect], wrong
        if expect == 'ok':
            assert not self.receive or self.receive.process.returncode == 0, text
        with open(self.json, encoding='utf-8') as f:
            report = json.load(f)
        assert report['status'] == expect
        return report

    def wait_status(self, *wanted, timeout=60):
        """Until the source QEMU's own migration has one of these states ('none' before it begins)."""
        end = time.monotonic() + timeout
        while True:
            status = self.src.qmp('query-migrate').get('status', 'none')
            if status in wanted:
                return status
            if self.send.poll() is not None:
                raise AssertionError(f'godwit send ended before {wanted}: {self.send.said}')
            if time.monotonic() > end:
                raise TimeoutError(f'{status}, not {wanted}: {self.send.said}')
            time.sleep(0.02)

    def kill(self):
        for p in (self.send, self.receive):
            if p and p.process.poll() is None:
                p.kill().wait()


def start_in(phase, pair, *options, **more):
    """
    A migration of the fixture "pair", in a phase that lasts long enough to be hit there, by a slow link and
      round      RAM to send
      later      the same, in a round after the first
      stream     QEMU's private RAM (a large flash) to send, while the guest runs
      paused     much RAM left for the last round, by a downtime limit that allows it
    """
    src, dst = pair
    lab.link('rate', {'round': 20, 'later': 60, 'stream': 40, 'paused': 40}[phase])
    run = Run(src, dst, '--downtime-limit', '60000' if phase in ('stream', 'paused') else '300', *options, **more)
    if phase in ('round', 'later'):
        run.send.wait_for('round 1' if phase == 'round' else 'round 2')
    else:
        run.wait_status({'stream': 'active', 'paused': 'pre-switchover'}[phase])
    return run


@contextlib.contextmanager
def guests():
    """What the guests stand on (a mount, a disk, a cgroup) can go only after them."""
    try:
        yield
    finally:
        for vm in list(lab.running):
            vm.kill()


def destination(src, name='dst', **more):
    """A QEMU that is src's twin, but for its devices, and waits for a migration."""
    ram = [dataclasses.replace(r, path=r.path and r.path.replace(src.name, name)) for r in src.ram]
    vm = lab.Qemu(name, 'dst', incoming=True, directory=src.directory, **{'ram': ram, **src.made, **more})
    vm.query_status()	# its monitors are there
    return vm


WRONG_PAGE = re.compile(r'error: page \d+ at (\w+): word (\d+) is (\w+),')


def check_moved(src, dst):
    """dst.check(), where the source's RAM, which nobody writes any more, tells whose fault a wrong page is."""
    try:
        dst.check()
    except ProofFailed as e:
        found = [WRONG_PAGE.match(words) for words in dst.complaints]
        if len(found) == dst.errors and all(m and src.word(int(m[1], 16) + 4 * int(m[2])) == int(m[3], 16) for m in found):
            raise ProofFailed(f'src: its RAM is wrong in the same places: {dst.complaints}') from e
        raise


def proof(src, dst, ticks=2, stopped='postmigrate'):
    """The guest goes on at the destination with all its data, and does not run at the source, which is stopped."""
    before = src.no_errors().counters
    proved(src.query_status() == stopped, f'the source is {src.query_status()}, not {stopped}')
    check_moved(src, dst.wait_ticks(ticks))
    proved(dst.query_status() == 'running', f'the destination is {dst.query_status()}')
    proved(dst.ticks > before['tick'], 'its own clock does not go on')
    proved(dst.counters['pages'] >= before['pages'], 'it has forgotten pages that it wrote')
    proved(src.ticks == before['tick'], 'it runs on at the source as well')
    settings_kept(src)
    settings_kept(dst)


def same_ram(src, dst):
    """Of a guest that stands still at both ends: all of it, compared by nobody but the test."""
    for ours, theirs in zip(src.ram, dst.ram):
        differ = lab.differing_pages(ours.path, theirs.path)
        proved(not differ, f'{ours.path} and {theirs.path} differ in pages {differ}')


def open_files(pid):
    """What the process's descriptors are of; some may go while we look, as QEMU's end of a monitor that was left."""
    links = []
    for fd in os.listdir(f'/proc/{pid}/fd'):
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(f'/proc/{pid}/fd/{fd}'))
    return links


# A mapping of the module's, and what QEMU was given to write to. The emulator's QEMU runs out of a cache of that name.
OURS = re.compile(r'/dev/godwit|memfd:godwit')


def never_ran(dst):
    """A destination after a migration that failed: it has ended, or waits on, and its guest was never let run."""
    if dst.process.poll() is None:
        status = dst.query_status()
        proved(status == 'inmigrate', f'{dst.name} is {status} after a migration that failed')
        settings_kept(dst)
    proved(not dst.has_run(), f'{dst.name} ran after a migration that failed')
    proved(not dst.counters, f'the guest ran in {dst.name}: {dst.counters}')


def unharmed(src, ticks=3):
    """The source VM is as it was before migrations that failed, and none of their destinations ever ran."""
    end = time.monotonic() + 30
    while src.query_status() != 'running':
        proved(time.monotonic() < end, f'the source is {src.query_status()}: {src.sender.said if src.sender else ""}')
        time.sleep(0.05)
    # Asked before a guardian acts, a source that is about to stop says running as well.
    src.wait_ticks(ticks).check()
    proved(src.query_status() == 'running', f'the source is {src.query_status()}')
    settings_kept(src)
    for dst in src.destinations:
        never_ran(dst)
    with open(f'/proc/{src.pid}/maps', encoding='ascii') as f:
        proved(not OURS.search(f.read()), 'the source has a mapping of the module')
    links = [to for to in open_files(src.pid) if OURS.search(to)]
    proved(not links, f'the source has {links} open')
    if lab.IN_LAB:
        if hasattr(src, 'slots_before'):
            proved(slots(src) == src.slots_before, f'the memslots are {slots(src)}, not {src.slots_before}')
        unload()
        load()
    src.healthy = True
