# SPDX-License-Identifier: GPL-2.0-only
"""
Runs the pairs of pairs.py, two at a time: a minute for all is the aim, so a source serves every pair that it is left
unharmed by, and a guest is a small one.
"""
import collections
import concurrent.futures
import contextlib
import glob
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import time

import godwit
import lab
from ours import proved
from qmp import Qmp, QmpError

AT_ONCE = 2
CHUNK = 12	# pairs that one source serves
PORTS = itertools.count(5433)	# no two receivers have one, also if a connection lingers
NUMBERS = itertools.count()
QEMUS = {'own': lab.QEMU, 'new': f'{lab.TREE}/selftests/kernels/qemu.sh'}
GUEST = ['-display', 'none', '-nodefaults', '-no-user-config', '-kernel', lab.PATTERN,
         '-append', 'start=16 size=8 touch=1 rate=20 ticks=20']


def files(directory):
    """The images, in a directory that the pairs of one source have to themselves: they write to them, and resize them."""
    os.makedirs(directory)
    names = {}
    for name in 'raw32 raw64 raw96 copy64 second32 second64 second96 qcow32 qcow64 flash1 flash2'.split():
        path = names[name] = f'{directory}/{name}'
        mib = int(re.search(r'\d+', name)[0])
        if name.startswith('qcow'):
            shutil.copy(template(mib), path)
            continue
        with open(path, 'wb') as f:
            f.truncate(mib << 20)
            if name.startswith('flash'):
                with open('/usr/share/seabios/bios-256k.bin', 'rb') as bios:
                    code = bios.read()
                f.seek(-len(code), os.SEEK_END)
                f.write(code)
    return names


def template(mib):
    path = f'{lab.B}/e2e/fit/{mib}.qcow2'
    if not os.path.exists(path):
        lab.call('qemu-img', 'create', '-q', '-f', 'qcow2', path, f'{mib}M')
    return path


def filled(value, names):
    """value, with what its {names} stand for."""
    if isinstance(value, dict):
        return {k: filled(v, names) for k, v in value.items()}
    if isinstance(value, str):
        return re.sub(r'\{(\w+)\}', lambda m: names[m[1]], value)
    return value


class Machine:
    """A QEMU that runs a pattern guest with these groups of options, or waits for one."""

    def __init__(self, options, images, qemu='own', incoming=False):
        self.run = f'/dev/shm/fit-{next(NUMBERS)}'
        self.ram = f'{self.run}.ram'
        self.cleanup()
        os.makedirs(self.run)
        self.serial, self.main_qmp = f'{self.run}/serial', f'{self.run}/main.qmp'
        self.names = {**images, 'run': self.run, 'ram': self.ram, 'serial': self.serial}
        words = [w for group in options.values() for w in filled(group, self.names).split()]
        command = [QEMUS[qemu], '-name', os.path.basename(self.run), *GUEST, *words,
                   '-qmp', f'unix:{self.main_qmp},server=on,wait=off', '-qmp', f'unix:{self.run}/test.qmp,server=on,wait=off',
                   *(['-incoming', 'defer'] if incoming else [])]
        self.command = ' '.join(command)
        with open(f'{self.run}/stderr', 'wb') as err:
            self.process = lab.popen(None, command, stdin=subprocess.DEVNULL, stdout=err, stderr=err)
        try:
            self.qmp = self.connect()
        except BaseException:
            self.kill()
            raise

    def connect(self):
        while not os.path.exists(f'{self.run}/test.qmp'):
            assert self.process.poll() is None, f'{self.command}\n{self.said()}'
            time.sleep(0.01)
        try:
            return Qmp(f'{self.run}/test.qmp')
        except (OSError, QmpError) as e:	# it listens, and then dislikes an option
            raise RuntimeError(f'{self.command}\n{self.said()}') from e

    def said(self):
        with open(f'{self.run}/stderr', encoding='utf-8', errors='replace') as f:
            return f.read()

    def status(self):
        return self.qmp('query-status')['status']

    def ticks(self):
        with contextlib.suppress(FileNotFoundError):
            with open(self.serial, 'rb') as f:
                return f.read().count(b'tick=')
        return 0

    def wait_tick(self):
        """One more, of a guest that runs."""
        before, end = self.ticks(), time.monotonic() + 90
        while self.ticks() <= before:
            proved(self.process.poll() is None and time.monotonic() < end, f'the guest stands still: {self.said()}')
            time.sleep(0.02)
        return self

    def settings(self):
        return godwit.settings(self)

    def allocated(self):
        """Bytes of its RAM files."""
        return sum(os.stat(path).st_blocks * 512 for path in glob.glob(f'{self.ram}*'))

    def kill(self):
        self.process.kill()
        self.process.wait()
        if hasattr(self, 'qmp'):
            self.qmp.close()
        self.cleanup()

    def cleanup(self):
        shutil.rmtree(self.run, ignore_errors=True)
        for path in glob.glob(f'{self.ram}*'):
            os.unlink(path)


@contextlib.contextmanager
def destination(options, images, qemu):
    """A machine that waits, its receiver, and where that listens."""
    dst = Machine(options, images, qemu, incoming=True)
    there = None
    try:
        at = f'127.0.0.1:{next(PORTS)}'
        there = godwit.listen(dst, at=at, side=None)
        yield dst, there, at
    finally:
        if there and there.poll() is None:
            there.kill(signal.SIGTERM).wait()
        dst.kill()


def check(src, at, accept):
    """(exit status, rows) of a check."""
    p = godwit.Process(None, 'check', '--json', '--qmp', src.main_qmp, '--pause', '--probe', '0', '--to', at, *accept)
    status = p.wait()
    said = json.loads(p.said)
    assert said['exit'] == status, p.said
    rows = [(row['check'], row['result'], row['text']) for row in said['rows']]
    return status, [row for row in rows if row[0].startswith(('fit', 'destination'))]


def not_told(pair, rows):
    """Findings of which no row has all words."""
    def tells(row, kind, words):
        *warning, classes = kind.split()
        names = ['destination'] if classes == 'destination' else [f'fit: {c}' for c in classes.split('|')]
        return row[0] in (*names, 'send') and row[1] == ('warning' if warning else 'no') and all(word in row[2] for word in words)
    return [(kind, words) for kind, words in pair.findings if not any(tells(row, kind, words) for row in rows)]


def send(pair, src, at):
    """(exit status, rows as of a check, what it said). A single reason is in its last words, without a class."""
    here = godwit.Process(None, 'send', '--qmp', src.main_qmp, '--pause', *accepting(pair), at)
    status = here.wait()
    rows = [(f'fit: {m[2]}', 'warning' if m[1] == 'warning' else 'no', m[3])
            for m in re.finditer(r'godwit: (warning|does not fit): (\w+): (.*)', here.said)]
    if 'no' not in {row[1] for row in rows}:
        rows.append(('send', 'no', here.said))
    return status, rows, here.said


def accepting(pair):
    return ['--accept', pair.accept] if pair.accept else []


def refused(pair, src, dst, there, at):
    """Before anything was changed at either end; the receiver waits on."""
    before = src.settings()
    by_the_receiver = pair.findings[0][0] == 'destination'
    due = godwit.EXIT['ram-differs' if by_the_receiver else 'misfit']
    status, rows = check(src, at, accepting(pair))
    assert not (missed := not_told(pair, rows)), f'not told: {missed} by {status} {rows}'
    assert status == due, f'check: {status} {rows}'
    status, rows, said = send(pair, src, at)
    assert status == due, f'send: {status} {said}'
    assert not (missed := not_told(pair, rows)), f'not told: {missed} by {said}'
    proved(dst.status() == 'inmigrate' and 'RESUME' not in dst.qmp.seen, f'the destination is {dst.status()}')
    proved(dst.allocated() == 0, f'{dst.allocated()} bytes of RAM at the destination')
    proved(there.poll() is None or by_the_receiver, f'the receiver has ended: {there.said}')
    proved(src.status() == 'running', f'the source is {src.status()}')
    src.qmp.drain()
    proved('STOP' not in src.qmp.seen, 'the source was stopped')
    proved(src.settings() == before, "the source's settings have changed")
    src.wait_tick()


def arrives(pair, src, dst, there, at):
    """The guest goes on there, and not here; of what fits nothing is said."""
    status, rows = check(src, at, accepting(pair))
    assert not (missed := not_told(pair, rows)), f'not told: {missed} by {status} {rows}'
    assert status == 0, f'check: {status} {rows}'
    said_of = [row for row in rows if row[0].split(':')[0] == 'fit' and row[1] != 'ok']
    assert pair.findings or not said_of and ('fit', 'ok') in {row[:2] for row in rows}, rows
    status, rows, said = send(pair, src, at)
    assert status == 0 and there.wait() == 0, f'{status}\n{said}\n{there.said}\n{src.said()}{dst.said()}'
    assert not (missed := not_told(pair, rows)), f'not told: {missed} by {said}'
    proved(dst.status() == 'running', f'the destination is {dst.status()}')
    proved(src.status() == 'postmigrate', f'the source is {src.status()}')
    ticks = src.ticks()
    dst.wait_tick()
    proved(src.ticks() == ticks, 'the guest runs on at the source')


def is_refused(pair):
    return any(not kind.startswith('warning') for kind, _ in pair.findings)


def moves(pair, src, images):
    here = src
    with contextlib.ExitStack() as stack:
        for hop in range(pair.hops):
            options, qemu = ((pair.dst, pair.qemus[1]), (pair.src, pair.qemus[0]))[hop % 2]
            end = stack.enter_context(destination(options, images, qemu))
            (refused if is_refused(pair) else arrives)(pair, here, *end)
            here = end[0]


def started(pair, images):
    src = Machine(pair.src, images, pair.qemus[0])
    try:
        src.wait_tick()
        for command, arguments in pair.before:
            src.qmp(command, **filled(arguments, src.names))
        src.wait_tick()
        src.qmp.seen.clear()
    except BaseException:
        src.kill()
        raise
    return src


def serve(pairs, outcomes, directory):
    """Pairs of one source, in turn: a new one after each that has taken it away or failed."""
    images, src = files(directory), None
    try:
        for pair in pairs:
            outcome = outcomes[pair.name]
            try:
                src = src or started(pair, images)
                moves(pair, src, images)
                outcome.set_result(None)
                kept = is_refused(pair)
            except BaseException as e:	# pylint: disable=W0718
                outcome.set_exception(e)
                kept = False
            if src and not kept:
                src.kill()
                src = None
    finally:
        if src:
            src.kill()
        shutil.rmtree(directory, ignore_errors=True)


def run(pairs):
    """{name: Future} of all pairs, which have ended."""
    top = f'{lab.B}/e2e/fit'
    shutil.rmtree(top, ignore_errors=True)
    os.makedirs(top)
    for mib in 32, 64:
        template(mib)
    outcomes = {pair.name: concurrent.futures.Future() for pair in pairs}
    sources = collections.defaultdict(list)
    for pair in pairs:
        sources[repr((sorted(pair.src.items()), pair.qemus[0], pair.before))].append(pair)
    chunks = [of[i:i + CHUNK] for of in sources.values() for i in range(0, len(of), CHUNK)]
    chunks.sort(key=len, reverse=True)
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda numbered: serve(numbered[1], outcomes, f'{top}/{numbered[0]}'), enumerate(chunks)))
    return outcomes
