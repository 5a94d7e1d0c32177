# SPDX-License-Identifier: GPL-2.0-only
"""What must be true at the end: of a migration that succeeded, proof(); of one that failed, unharmed()."""
import contextlib
import os
import re
import struct
import time

import lab
from kmod import kvm_logged, load, unload, wait_unlogged
from ours import ProofFailed, proved


PAGE = 0x50574447	# guest/content.h: CONTENT_PAGE


def settings(vm):
    """QEMU's migration capabilities and parameters, with the changes of all clients."""
    on = {c['capability']: c['state'] for c in vm.qmp('query-migrate-capabilities')}
    return on, vm.qmp('query-migrate-parameters')


def note(vm):
    """Before the first migration: what must be there again after each."""
    if not hasattr(vm, 'settings_before'):
        vm.settings_before = settings(vm)
    if lab.IN_LAB and not vm.incoming and not hasattr(vm, 'logged_before'):
        vm.logged_before = kvm_logged(vm)


def settings_kept(vm, timeout=60):
    """The guardian of a sender that was killed may still be at it."""
    if vm.process.poll() is None and hasattr(vm, 'settings_before'):
        end = time.monotonic() + timeout
        while vm.settings_before != settings(vm) and time.monotonic() < end:
            time.sleep(0.1)
        for before, now in zip(vm.settings_before, settings(vm)):
            changed = {name: (before.get(name), now.get(name)) for name in before.keys() | now.keys()
                       if before.get(name) != now.get(name)}
            proved(not changed, f"{vm.name}: QEMU's settings are not what the operator had set (before, now):", changed)


def unmarked(vm, timeout=60):
    """It may be sent again. The guardian of a sender that was killed does this last."""
    end = time.monotonic() + timeout
    while objects := [o['name'] for o in vm.qmp('qom-list', path='/objects') if o['name'].startswith('godwit')]:
        proved(time.monotonic() < end, f'{vm.name} has {objects}')
        time.sleep(0.1)


# guest/pattern.c's; the write cleared the page, or filled it.
WRONG_PAGE = re.compile(r'error: page (\d+) at (\w+): word \d+ is \w+, (?:write \d+ cleared it|not of write (\d+))')


def page_of(number, write):
    """What guest/content.h puts into a page, whole ones only; write: None: zeros."""
    if write is None:
        return bytes(4096)
    x = (number * 0x9e3779b1 ^ write * 0x85ebca6b ^ PAGE) & 0xffffffff | 1
    words = [PAGE, number, write]
    while len(words) < 1024:
        x ^= x << 13 & 0xffffffff
        x ^= x >> 17
        x ^= x << 5 & 0xffffffff
        words.append(x)
    return struct.pack('<1024I', *words)


def whose_fault(src, dst):
    """Where the guest at the destination calls pages wrong: what both RAMs hold there. The source's is written no more."""
    found = [WRONG_PAGE.match(words) for words in dst.complaints]
    if len(found) != dst.errors or not all(found):
        return None
    pages = [(src.page(int(m[2], 16)), dst.page(int(m[2], 16)), page_of(int(m[1]), m[3] and int(m[3]))) for m in found]
    if any(None in of for of in pages):
        return None
    if all(there == right for _, there, right in pages):
        return 'RAM holds what it should: the vCPU that looked at it was wrong'
    if all(here == there for here, there, _ in pages):
        return 'src: its RAM is wrong in the same places'
    return None


def check_moved(src, dst):
    """dst.check(); if that fails, and it can be told, with whose fault it is."""
    try:
        dst.check()
    except ProofFailed as e:
        if whose := whose_fault(src, dst):
            raise ProofFailed(f'{whose}: {dst.complaints}') from e
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
    """Of a guest that stands still at both ends: all of it, compared by the test alone."""
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


def ours_in(vm):
    """What of the module's, and of what QEMU was given to write to, the process still has."""
    with open(f'/proc/{vm.pid}/maps', encoding='ascii') as f:
        return [line.strip() for line in f if OURS.search(line)] + [to for to in open_files(vm.pid) if OURS.search(to)]


def let_go(vm, timeout=60):
    """Of all that: QEMU closes its end of a migration that was cancelled some time after it says so."""
    end = time.monotonic() + timeout
    while found := ours_in(vm):
        proved(time.monotonic() < end, f'{vm.name} has {found}')
        time.sleep(0.1)


def never_ran(dst):
    """A destination after a migration that failed: it has ended, or waits on, and its guest was never let run."""
    if dst.process.poll() is None:
        try:
            status = dst.query_status()
            proved(status == 'inmigrate', f'{dst.name} is {status} after a migration that failed')
            settings_kept(dst)
        except (OSError, lab.QmpError):
            dst.process.wait(30)	# it was about to end, or this fails
    proved(not dst.has_run(), f'{dst.name} ran after a migration that failed')
    proved(not dst.counters, f'the guest ran in {dst.name}: {dst.counters}')


def unharmed(src, ticks=3):
    """The source VM is as it was before migrations that failed, and none of their destinations ever ran."""
    end = time.monotonic() + 60
    while src.query_status() != 'running':
        proved(time.monotonic() < end, f'the source is {src.query_status()}: {src.sender.said if src.sender else ""}')
        time.sleep(0.05)
    # Asked before a guardian acts, a source that is about to stop says running as well.
    src.wait_ticks(ticks).check()
    proved(src.query_status() == 'running', f'the source is {src.query_status()}')
    settings_kept(src)
    unmarked(src)
    for dst in src.destinations:
        never_ran(dst)
    let_go(src)
    if lab.IN_LAB:
        if hasattr(src, 'logged_before'):
            wait_unlogged(src, but=src.logged_before)
        unload()
        load()
    src.healthy = True
