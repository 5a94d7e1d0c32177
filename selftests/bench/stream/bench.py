#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""
bench.py [--quick] [--page] [--huge] [--private] [--idle] [--mib N] [--runs N] [--image NAME] [--net loopback|veth|both]
         [--channels N] [--ram DIR]

How fast guest RAM moves, beside QEMU's own migration of the same image, and what zero filters and bitmap scans reach.
Results go to build/bench.json and, with their spread, to standard output.

All contestants run in turns, in an order that is drawn anew for each turn: what one leaves behind in memory is found by
the next, which must not always be the same one. A ratio says how many times better godwit
is than the best of its peers; where the spreads of both overlap it says little, and the table tells.
"""
import argparse
import contextlib
import itertools
import mmap
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile

import images
import rig
import bench_json	# rig has said where
import emulators

CHANNELS = (0, 2, 4, 8)	# QEMU's own: plain, and multifd with so many
SPEED_GOALS = {'random': 1.5, '90 % untouched': 10, 'all touched zeros': 3, '50 % touched zeros': 0,
               'text and zeros by the page': 0, '95 % untouched': 0}
CPU_GOAL = 1 / 0.7
LIMIT_GOAL = 0.85
# Of private RAM at both ends.
PRIVATE_GOALS = {'random': 1.3, '90 % untouched': 10, 'all touched zeros': 2}
SHARED_GOAL = 0.9	# of the speed into a RAM file
BARE = 'bare copy'
SHARED = 'a RAM file'
# Below those that the kernel gives to clients.
PORTS = itertools.cycle(range(20000 + os.getpid() % 10000, 32000))
PAGE_GOALS = {'zero-cached': ('sse2', 1.25), 'zero-memory': ('read', 0.9), 'bitmap-empty': ('read', 0.8),
              'bitmap-random': ('bit by bit', 10), 'bitmap-words': ('bit by bit', 10)}


def touch(path, mib):
    """New pages for the destination, and they are given back: see rig.py."""
    with open(path, 'r+b') as f:
        f.truncate(0)
        f.truncate(mib * rig.MIB)
        with mmap.mmap(f.fileno(), mib * rig.MIB) as ram:
            ram.madvise(mmap.MADV_HUGEPAGE)
            for at in range(0, mib * rig.MIB, mmap.PAGESIZE):
                ram[at] = 1
        f.truncate(0)
        f.truncate(mib * rig.MIB)


def touch_private(mib):
    """The same for memory of a process."""
    with mmap.mmap(-1, mib * rig.MIB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as ram:
        ram.madvise(mmap.MADV_HUGEPAGE)
        for at in range(0, mib * rig.MIB, mmap.PAGESIZE):
            ram[at] = 1


def contestants(qemus, channels, of=emulators.DEBIAN):
    """name -> (emulator, channels): godwit, which moves the RAM of one QEMU, and each emulator by itself."""
    found = {'godwit': (of, None)}
    for qemu in qemus:
        for n in channels:
            found[emulators.version(qemu) + (f' multifd {n}' if n else '')] = (qemu, n)
    return found


def migrate(contestant, net, work, ram, mib, preallocated, port, idle=False):
    qemu, channels = contestant
    source, destination = ram
    if preallocated:
        touch(destination, mib)
    with rig.Pair(net, work, mib, source, destination, qemu, preallocated, idle=idle) as pair:
        if not preallocated:
            touch(destination, mib)
        return rig.by_godwit(pair, port) if channels is None else rig.by_qemu(pair, port, channels)


def migrate_private(contestant, net, work, ram, mib, kind, port):
    qemu, channels = contestant
    with rig.Pair(net, work, mib, *ram, qemu, private=kind) as pair:
        if kind != 'hugetlbfs':
            touch_private(mib)
        return rig.by_godwit(pair, port) if channels is None else rig.by_qemu(pair, port, channels)


def spread(values):
    return f'{statistics.median(values):8.2f} ({min(values):.2f}-{max(values):.2f})'


class Results:
    def __init__(self):
        self.entries = []

    def add(self, name, unit, values, goal=0, rivals=None):
        """
        values: contestant -> list. Bigger is better where the unit is a rate of GiB. The ratio is to the best peer, or to
        the slowest of the rivals, which are limits or the one way that counts.
        """
        bigger = unit == 'GiB/s'
        median = {contestant: statistics.median(v) for contestant, v in values.items()}
        peers = {contestant: m for contestant, m in median.items() if contestant != 'godwit'}
        if rivals:
            best = min(peers[contestant] for contestant in rivals)
        else:
            best = max(peers.values()) if bigger else min(peers.values())
        over, under = (median['godwit'], best) if bigger else (best, median['godwit'])
        ratio = over / under if under else None
        self.entries.append({'name': name, 'unit': unit, 'godwit': median['godwit'], 'peers': peers, 'ratio': ratio,
                             'goal': goal or None})
        print(f'\n{name}, {unit}')
        for contestant, v in values.items():
            print(f'  {contestant:19} {spread(v)}')
        if ratio:
            verdict = '' if not goal else f', goal {goal:.2f}: {"reached" if ratio >= goal else "MISSED"}'
            print(f'  ratio to {" or ".join(rivals or ["best"])} {ratio:.2f}{verdict}', flush=True)


def limits(mib, runs, directory, net):
    """What the memory and the network allow to a program that runs alone, GiB/s."""
    found = {}
    for _ in range(runs):
        said = subprocess.run([f'{rig.B}/bench/memory', str(mib), f'{directory}/limit'], check=True,
                              stdout=subprocess.PIPE, text=True).stdout
        for line in said.splitlines():
            name, value = line.split()
            found.setdefault(name, []).append(float(value))
        found.setdefault('network', []).append(rig.network_limit(net, mib, next(PORTS)))
    print(f'limits of this machine, {net.name}, GiB/s')
    for name, values in found.items():
        print(f'  {name:19} {spread(values)}')
    return found


def bench_page(results):
    """Zero filters and bitmap scans; page.c takes the best of several turns itself."""
    said = subprocess.run([f'{rig.B}/bench/page'], check=True, stdout=subprocess.PIPE, text=True).stdout
    groups = {}
    for line in said.splitlines():
        what, unit, value = line.rsplit(maxsplit=2)
        group, name = what.split('/')
        groups.setdefault((group, unit), {})[name] = [float(value)]
    for (group, unit), values in groups.items():
        rival, goal = PAGE_GOALS[group]
        results.add(f'page: {group}', unit, values, goal, (rival,))


def bench_image(image, net, args, ram, work, results, limit, kind, preallocated=False):
    images.write(image, ram[0], args.mib)
    samples = {name: [] for name in args.contestants}
    gib = args.mib / 1024
    bare = []
    against_limits = image == 'random' and not preallocated
    turns = [*samples, BARE] if against_limits else list(samples)
    draw = random.Random(args.runs)
    for _ in range(args.runs):
        for name in draw.sample(turns, len(turns)):
            if image in images.HOLES:
                images.write(image, ram[0], args.mib)
            if name == BARE:
                touch(ram[1], args.mib)
                bare.append(gib / rig.bare_copy(net, args.mib, *ram, next(PORTS)))
            else:
                samples[name].append(migrate(args.contestants[name], net, work, ram, args.mib,
                                             preallocated, next(PORTS), args.idle))
    where = f'{image}, {args.mib} MiB{kind}{", idle" if args.idle else ""}{", preallocated destination" if preallocated else ""}, {net.name}'
    speed = {name: [gib / s.seconds for s in v] for name, v in samples.items()}
    results.add(f'stream: {where}: speed', 'GiB/s', speed, 0 if preallocated else SPEED_GOALS[image])
    results.add(f'stream: {where}: CPU', 's/GiB',
                {name: [(s.cpu_send + s.cpu_receive) / gib for s in v]
                 for name, v in samples.items()},
                0 if preallocated else CPU_GOAL)
    results.add(f'stream: {where}: CPU of the sender', 's/GiB',
                {name: [s.cpu_send / gib for s in v] for name, v in samples.items()})
    results.add(f'stream: {where}: CPU of the receiver', 's/GiB',
                {name: [s.cpu_receive / gib for s in v] for name, v in samples.items()})
    results.add(f'stream: {where}: private memory at its peak', 'MiB',
                {name: [s.peak / 1024 for s in v] for name, v in samples.items()})
    if args.idle:
        for what, of in (('total', lambda s: s.seconds * 1e3), ('blackout', lambda s: s.blackout),
                         ('blackout without RAM', lambda s: s.without_ram)):
            results.add(f'stream: {where}: {what}', 'ms', {name: [of(s) for s in v] for name, v in samples.items()})
    if against_limits:
        # The others say what one part of it could do with all CPUs to itself.
        results.add(f'stream: {where}: against the limits', 'GiB/s', {'godwit': speed['godwit'], **limit, BARE: bare},
                    LIMIT_GOAL, (BARE,))


def bench_private(image, net, args, ram, work, results, kind):
    """Private RAM at both ends; the source's file has the image."""
    images.write(image, ram[0], args.mib)
    # Only a QEMU from 10.0 on lets godwit save a guest that stands still, and without it private RAM does not move.
    found = contestants(args.qemus, args.channels, emulators.NEWEST)
    samples = {name: [] for name in [*found, SHARED]}
    gib = args.mib / 1024
    draw = random.Random(args.runs)
    for _ in range(args.runs):
        for name in draw.sample(list(samples), len(samples)):
            if name == SHARED:
                samples[name].append(migrate(found['godwit'], net, work, ram, args.mib, False,
                                             next(PORTS)))
            else:
                samples[name].append(migrate_private(found[name], net, work, ram, args.mib, kind,
                                                     next(PORTS)))
    where = f'{image}, {args.mib} MiB, private, {kind}, {net.name}'
    shared = samples.pop(SHARED)
    speed = {name: [gib / s.seconds for s in v] for name, v in samples.items()}
    cpu = {name: [(s.cpu_send + s.cpu_receive) / gib for s in v] for name, v in samples.items()}
    results.add(f'stream: {where}: speed', 'GiB/s', speed, PRIVATE_GOALS[image])
    results.add(f'stream: {where}: CPU', 's/GiB', cpu, CPU_GOAL)
    results.add(f'stream: {where}: speed beside a RAM file', 'GiB/s',
                {'godwit': speed['godwit'], SHARED: [gib / s.seconds for s in shared]}, SHARED_GOAL)
    results.add(f'stream: {where}: CPU beside a RAM file', 's/GiB',
                {'godwit': cpu['godwit'], SHARED: [(s.cpu_send + s.cpu_receive) / gib for s in shared]}, SHARED_GOAL)


@contextlib.contextmanager
def huge_pages(n):
    """2 MiB pages of the host's; it has the others back afterwards."""
    path = '/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages'
    with open(path, 'r+', encoding='ascii') as f:
        before = int(f.read())
        try:
            f.write(str(before + n))
            f.flush()
            f.seek(0)
            if int(f.read()) < before + n:
                raise RuntimeError(f'this host has no {n} huge pages to spare')
            yield
        finally:
            f.write(str(before))
            f.flush()


def bench_all_private(args, chosen, results):
    with ram_files(args.ram, args.mib, False) as (work, ram), rig.Net(False) as net:
        for kind in args.kind or rig.PRIVATE:
            with huge_pages(args.mib + 16) if kind == 'hugetlbfs' else contextlib.nullcontext():
                for image in chosen:
                    bench_private(image, net, args, ram, work, results, kind)


@contextlib.contextmanager
def ram_files(directory, mib, huge):
    """(the directory, source, destination). huge: on a tmpfs of their own that has huge pages on request."""
    with tempfile.TemporaryDirectory(dir=directory) as work, contextlib.ExitStack() as stack:
        if huge:
            subprocess.run(['mount', '-t', 'tmpfs', '-o', f'huge=advise,size={3 * mib + 64}M', 'godwit-bench', work], check=True)
            stack.callback(subprocess.run, ['umount', work], check=True)
        ram = (f'{work}/src', f'{work}/dst')
        for path in ram:
            with open(path, 'wb') as f:
                f.truncate(mib * rig.MIB)
        yield work, ram


def bench_streams(args, chosen, results, huge):
    kind = ', huge pages' if huge else ''
    with ram_files(args.ram, args.mib, huge) as (work, ram):
        for veth in {'loopback': (False,), 'veth': (True,), 'both': (False, True)}[args.net]:
            with rig.Net(veth) as net:
                limit = limits(args.mib, args.runs, work, net) if 'random' in chosen else {}
                for image in chosen:
                    bench_image(image, net, args, ram, work, results, limit, kind)
                    if image == 'random':
                        bench_image(image, net, args, ram, work, results, limit, kind, preallocated=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--quick', action='store_true',
                        help="512 MiB, 3 runs, loopback, two images, Debian 12's QEMU plain and multifd 2")
    parser.add_argument('--mib', type=int, default=4096)
    parser.add_argument('--runs', type=int, default=5)
    parser.add_argument('--image', choices=images.IMAGES, action='append', help='only this one; may be given again')
    parser.add_argument('--net', choices=('loopback', 'veth', 'both'), default='both')
    parser.add_argument('--ram', default='/dev/shm', metavar='DIR', help='the tmpfs for the RAM of both (%(default)s)')
    parser.add_argument('--huge', action='store_true', help='on a tmpfs of its own, mounted with huge=advise')
    parser.add_argument('--private', action='store_true', help='memory of the QEMUs\' own, of each kind, and nothing else')
    parser.add_argument('--kind', choices=rig.PRIVATE, action='append', help='only this one; may be given again')
    parser.add_argument('--idle', action='store_true',
                        help='a guest that runs, and does nothing, of the newest QEMU, which is the only peer; its blackout as well')
    parser.add_argument('--channels', type=int, choices=CHANNELS, action='append', help='only these of QEMU\'s; may be given again')
    parser.add_argument('--page', action='store_true', help='zero filters and bitmap scans, and nothing else')
    args = parser.parse_args()
    if args.quick:
        args.mib, args.runs, args.net, chosen = 512, 3, 'loopback', ['random', '90 % untouched']
        args.qemus, args.channels = [emulators.DEBIAN], CHANNELS[:2]
    else:
        chosen = args.image or list(images.IMAGES)
        args.qemus = [emulators.NEWEST] if args.idle else [emulators.DEBIAN, emulators.NEWEST]
        args.channels = args.channels or CHANNELS
    args.contestants = contestants(args.qemus, args.channels, args.qemus[0])
    private = [image for image in chosen if image in PRIVATE_GOALS]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))	# leaves no namespace and no QEMU behind
    results = Results()
    if args.page or not (args.quick or args.image or args.private):
        bench_page(results)
    if args.private:
        bench_all_private(args, private, results)
    elif not args.page:
        bench_streams(args, chosen, results, args.huge)
        if not (args.quick or args.image or args.huge):
            bench_streams(args, ['random', 'all touched zeros'], results, True)
            bench_all_private(args, private, results)
    bench_json.add(results.entries)
    return 0


if __name__ == '__main__':
    sys.exit(main())
