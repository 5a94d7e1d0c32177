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
import termios
import time

import lab
import monitor
from kmod import kvm_logged, load, loaded, row_off, slots, tool, unload, wait_unlogged
from ours import Crashed, proved
from proofs import check_moved, never_ran, note, page_of, proof, same_ram, settings, settings_kept, unharmed

__all__ = ['AT', 'DOWNTIME', 'EXIT', 'GODWIT', 'PORT', 'SOON_LATE', 'TO', 'Process', 'Run', 'address', 'at_port', 'check_moved',
           'control', 'destination', 'end_senders', 'guests', 'kvm_logged', 'listen', 'load',
           'loaded', 'never_ran', 'none_crashed', 'note', 'page_of', 'proof', 'receive', 'row_off',
           'same_ram', 'settings', 'settings_kept', 'slots', 'start_in', 'tool', 'unharmed',
           'unload', 'wait_unlogged']

GODWIT = f'{lab.B}/godwit'
PORT = 4433
TO = (lab.ADDRESS['dst'], PORT)
# The second round is late. QEMU, which knows the limit and not the ramp, sends nearly all of its private RAM while the guest runs.
SOON_LATE = ['--downtime-limit', '300', '--downtime-ramp', '60000', '--max-rounds', '1']
STOPPED = {'migrate': 'postmigrate', 'save': 'paused'}	# a source that has moved, by --device-state
DOWNTIME = '4000'	# ms; a host that is overrun expects two thirds of it with nothing left to send
# Exit statuses, as user/base/err.h names them.
EXIT = {'ok': 0, 'internal': 1, 'usage': 2, 'no-socket': 3, 'not-qemu': 4, 'qmp': 5, 'vm-state': 6, 'no-module': 7,
        'ram-private': 8, 'ram-differs': 9, 'dirty-ring': 10, 'pinned': 11, 'busy': 12, 'unreachable': 13, 'version': 14,
        'bad-peer': 15, 'timeout': 16, 'link-lost': 17, 'device-state': 18, 'verify': 19, 'not-converged': 20, 'vm-gone': 21,
        'cancelled': 22, 'unknown': 23, 'peer-failed': 24, 'time-limit': 25, 'no-migration': 26, 'not-put-back': 27,
        'ram-in-use': 28, 'misfit': 29, 'no-room': 30, 'tls': 31, 'incomplete': 32, 'guest-lost': 33, 'ran-twice': 34}


def address(number=0):
    """Where receiver number so many of the destination listens."""
    return f'{TO[0]}:{PORT + number}'


AT = address()
commands = []	# of the test that runs


def kill_all(processes):
    for p in processes:
        if p.poll() is None:
            p.kill().wait()


def end_senders():
    """Those that a test which failed has left hold the module; that it unloads behind them is still to be shown."""
    kill_all(p for p in commands if 'send' in p.process.args)


def none_crashed():
    """No godwit of this test ended by a signal but those that were sent to it."""
    mine = commands[:]
    commands.clear()
    # Some hear only now that their QEMU has gone; what listens on is ended.
    end = time.monotonic() + 1
    while any(p.poll() is None for p in mine) and time.monotonic() < end:
        time.sleep(0.05)
    kill_all(mine)
    for p in mine:
        status = p.process.returncode
        if status < 0 and -status not in p.signals:
            raise Crashed(f'godwit {p.process.args[1]} ended by signal {-status}: {p.said}')


class Process:
    """
    A godwit command, and its output (into a terminal of so many columns, or a pipe).
    enter: a command that runs it somewhere else. tool: another godwit than the one of this tree.
    peak_kib: of its private memory, if it was set to 0: to look costs as much as all the rest of poll().
    """

    def __init__(self, side, *words, columns=0, cgroup=None, enter=(), tool=GODWIT):
        self.output, to = pty.openpty() if columns else os.pipe()
        if columns:
            termios.tcsetwinsize(to, (24, columns))
        self.signals = set()	# that were sent to it
        self.process = lab.popen(side, [*enter, lab.near(tool), *words], cgroup, stdout=to, stderr=to)
        os.close(to)
        commands.append(self)
        if 'send' in words:
            for vm in lab.running:
                vm.healthy = False	# until it is found unharmed by this one, too
                if vm.main_qmp in words:
                    vm.sender = self
        self.peak_kib = None
        self.said = ''
        os.set_blocking(self.output, False)

    pid = property(lambda self: self.process.pid)

    def __del__(self):
        os.close(self.output)

    def _read(self):
        # BlockingIOError: nothing now. EIO: no process has the terminal any more.
        with contextlib.suppress(OSError):
            while data := os.read(self.output, 65536):
                self.said += data.decode(errors='replace')

    def poll(self):
        ended = self.process.poll()
        self._read()
        if self.peak_kib is not None:
            self._look_at_memory()
        return ended

    def _look_at_memory(self):
        with contextlib.suppress(OSError):
            with open(f'/proc/{self.pid}/status', encoding='ascii') as f:
                for line in f:
                    if line.startswith('RssAnon:'):
                        self.peak_kib = max(self.peak_kib, int(line.split()[1]))

    def wait_until(self, said, what, timeout):
        end = time.monotonic() + timeout
        while not said():
            if self.poll() is not None and not said():
                raise RuntimeError(f'{self.process.args[1]} ended with {self.process.returncode}: {self.said}')
            if time.monotonic() > end:
                raise TimeoutError(f'no {what!r} from godwit: {self.said}')
            time.sleep(0.05)
        return self

    def wait_for(self, text, timeout=120, times=1):
        return self.wait_until(lambda: self.said.count(text) >= times, text, timeout)

    def round(self):
        """The last one that it has told of: not each of them is told."""
        return max(map(int, re.findall(r', round (\d+): ', self.said)), default=0)

    def asked_round(self):
        """The one under way, as the control socket says; 0 if there is none."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            return control(self.pid, execute='query')['round']
        return 0

    def wait_round(self, number, timeout=120):
        """Later rounds may pass between two lines of progress."""
        return self.wait_until(lambda: self.round() >= number or number > 1 and self.asked_round() >= number,
                               f'round {number}', timeout)

    def wait(self, timeout=180):
        end = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > end:
                self.kill()
                raise TimeoutError(f'godwit does not end: {self.said}')
            time.sleep(0.05)
        return self.process.returncode

    def freeze(self):
        """Stopped, and none of its threads waits in a call of the module's any more, which may still be at work."""
        self.kill(signal.SIGSTOP)
        return self.wait_until(lambda: set(self._thread_states()) == {'T'}, 'stop of all threads', 60)

    def _thread_states(self):
        with contextlib.suppress(OSError):	# it, or one of them, has ended
            for task in os.listdir(f'/proc/{self.pid}/task'):
                with open(f'/proc/{self.pid}/task/{task}/stat', encoding='ascii') as f:
                    yield f.read().rpartition(') ')[2][0]

    def kill(self, how=signal.SIGKILL):
        self.signals.add(how)
        self.process.send_signal(how)
        return self


def receive(vm, *options, at=AT, side='dst', **more):
    """
    A receiver as it begins: for this VM, unless the options name a monitor. On side None (where the
    tests run themselves), or with credentials, it listens where no --insecure is needed.
    """
    monitor = [] if '--qmp' in options else ['--qmp', vm.main_qmp]
    strangers = ['--insecure'] if side and not {'--tls-creds', '--tls-psk'} & set(options) else []
    return Process(side, 'receive', *monitor, '--listen', at, *strangers, *options, **more)


def listen(vm, *options, **more):
    """A receiver that listens."""
    return receive(vm, *options, **more).wait_for('listening')


def at_port(pid, state):
    """
    Has this process' network a TCP socket of the receiver's port that is 'listening', or 'connected'? That is what the kernel
    does, also where the receiver is stopped.
    """
    with contextlib.suppress(OSError):	# it has ended
        with open(f'/proc/{pid}/net/tcp', encoding='ascii') as f:
            return any(line.split()[1].endswith(f':{PORT:04X}') and line.split()[3] == {'connected': '01', 'listening': '0A'}[state]
                       for line in f)
    return False


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
    the receiver or to what lies between (to). tool: another godwit than the one of this tree sends.
    """
    compares = True	# in the lab only in tests that are marked so

    def __init__(self, src, dst, *options, verify=True, receiver=True, receive_options=(), columns=0, side='src',
                 to=None, cgroup=None, tool=GODWIT):
        self.src, self.dst = src, dst
        if dst not in src.destinations:
            src.destinations.append(dst)	# one that the test has made itself
        for vm in (src, dst):
            note(vm)
        self.stops = src.stops()
        self.json = f'{src.directory}/report.json'
        if os.path.exists(self.json):
            os.unlink(self.json)
        self.receive = listen(dst, *receive_options) if receiver else None
        # On an emulated host the device state alone may take longer than the default limit allows.
        self.send = Process(side, 'send', '--qmp', src.main_qmp, '--json', self.json, '--downtime-limit', DOWNTIME,
                            *(['--verify'] if verify else []), *([] if self.compares else ['--no-compare']), *options,
                            to or AT,
                            columns=columns, cgroup=cgroup, tool=tool)

    def wait(self, expect='ok'):
        """Both end; returns the report."""
        status = self.send.wait()
        if self.receive:
            self._wait_receiver(status)
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

    def never_arrives(self, status):
        """It ends so, and its destination, which was never let run, is done with."""
        self.wait(status)
        never_ran(self.dst)
        self.dst.kill()

    def _wait_receiver(self, status):
        """
        It closes its port when it has taken a sender, and ends then. Where it took none, or waits for one to connect again, it
        listens, and is ended.
        """
        begin = time.monotonic()
        while self.receive.poll() is None:
            seconds = time.monotonic() - begin
            assert status or seconds < 60, 'the receiver does not end'
            # 10 s: it may be about to say whom it has refused, or to close its port. (Others than TCP's are not looked at.)
            if status and seconds > 10 and (at_port(self.receive.pid, 'listening') or
                                            any(word.startswith('unix:') for word in self.receive.process.args)):
                self.receive.kill().wait()
            assert seconds < 120, 'the receiver does not end'
            time.sleep(0.05)

    def converge_after(self, number):
        """Started with a downtime limit that no host meets, it may end once this many rounds are over, however fast the host is."""
        self.send.wait_round(number + 1)
        control(self.send.pid, execute='set', arguments={'downtime-limit': int(DOWNTIME)})
        return self

    def wait_status(self, *wanted, timeout=120):
        """Until the source QEMU's own migration has one of these states ('none' before it begins)."""
        end = time.monotonic() + timeout
        while True:
            ended = self.send.poll() is not None	# what QEMU says after that is the last word
            status = self.src.qmp('query-migrate').get('status', 'none')
            if status in wanted:
                return status
            if ended:
                raise AssertionError(f'godwit send ended before {wanted}: {self.send.said}')
            if time.monotonic() > end:
                raise TimeoutError(f'{status}, not {wanted}: {self.send.said}')
            time.sleep(0.02)

    def wait_late(self, number, timeout=120):
        """Until round so many or a later one is under way, and late: the switchover has begun, and the guest runs still."""
        end = time.monotonic() + timeout
        now = {}
        while not (now.get('phase') == 'switchover' and now['round'] >= number and self.src.query_status() == 'running'):
            assert self.send.poll() is None and now.get('phase') != 'device state' and time.monotonic() < end, self.send.said
            time.sleep(0.02)
            with contextlib.suppress(OSError):
                now = control(self.send.pid, execute='query')

    def wait_stopped(self, timeout=120):
        """Until the guest is stopped; what QEMU's migration is at then lasts only moments in each state."""
        end = time.monotonic() + timeout
        while True:
            ended = self.send.poll() is not None
            if self.src.stops() > self.stops:
                return
            assert not ended and time.monotonic() < end, self.send.said
            time.sleep(0.02)

    def kill(self):
        for p in (self.send, self.receive):
            if p and p.process.poll() is None:
                p.kill().wait()


def start_in(phase, pair, *options, **more):
    """
    A migration of the fixture "pair", in a phase that lasts long enough to be hit there, by a slow link and
      round      RAM to send
      later      the same, in a round after the first; it ends by no limit, as a guest on a slow host writes little
      stream     QEMU's private RAM (a large flash) to send, while the guest runs, and a late round beside it, which is the
                 second: see SOON_LATE
      paused     the guest stopped, with much RAM left for the last round, by a downtime limit that allows it; the link is slower
                 before godwit hears of the stop, or all would be over before a test that is held up acts
      blackout   the same in save mode
    """
    src, dst = pair
    lab.link('rate', {'round': 20, 'later': 60, 'stream': 16, 'paused': 20, 'blackout': 40}[phase])
    limits = {'round': ['--downtime-limit', '300'],
              # Rounds that help no more would end by post-copy.
              'later': ['--downtime-limit', '1', '--max-rounds', '10000', '--postcopy', 'off'],
              'stream': SOON_LATE}
    between = monitor.at_the_stop(src, lambda: lab.link('rate', 5)) if phase in ('paused', 'blackout') else None
    run = Run(src, dst, *limits.get(phase, ['--downtime-limit', '60000']), *options, *(between.options() if between else []), **more)
    if phase in ('round', 'later'):
        run.send.wait_round(1 if phase == 'round' else 2)
    elif phase == 'stream':
        run.wait_late(2)
    else:
        run.wait_stopped()
        assert between.over.wait(60), 'godwit did not hear of the stop'
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
    """A QEMU that is src's twin, but for its devices, and waits for a migration; unharmed(src) looks at it."""
    ram = [dataclasses.replace(r, path=r.path and r.path.replace(src.name, name)) for r in src.ram]
    vm = lab.Qemu(name, 'dst', incoming=True, directory=src.directory, **{'ram': ram, **src.made, **more})
    src.destinations.append(vm)
    vm.query_status()	# its monitors are there
    return vm
