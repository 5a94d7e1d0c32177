#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
slowdown.py [--mib N] [--ws MIB] [--link MBIT] [--runs N]: how much slower does a guest run while it is moved, in the lab?

A guest that owns so many MiB writes pages of its working set as fast as it can. How many it has written is read out of its
RAM's file, which it does not notice: in godwit's first round and in the later ones, from the command to STOP by godwit and by
QEMU itself, and at the destination: writes per second, as a part of those before. In turns, median of the runs, from fresh
QEMUs. The guest has to find its data unharmed. Into build/bench.json.
"""
import argparse
import mmap
import os
import statistics
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.realpath(f'{HERE}/../../e2e'), os.path.realpath(f'{HERE}/..')]
import bench_json	# noqa: E402 pylint: disable=wrong-import-position
import godwit	# noqa: E402 pylint: disable=wrong-import-position
import lab	# noqa: E402 pylint: disable=wrong-import-position

DOWNTIME_MS = 1000
BEFORE, AFTER = 3, 3	# s


def counter():
    """Where in its memory the guest counts its writes: it is mapped one to one."""
    for line in subprocess.run(['nm', lab.PATTERN], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines():
        address, _, name = line.split()
        if name == 'seq':
            return int(address, 16)
    raise LookupError(f'{lab.PATTERN}: no symbol "seq"')


class Writes(threading.Thread):
    """(time, writes so far) of a guest, every few ms."""

    def __init__(self, vm, at):
        super().__init__(daemon=True)
        with open(vm.ram[0].path, 'rb') as f:
            self.view = mmap.mmap(f.fileno(), mmap.PAGESIZE, mmap.MAP_SHARED, mmap.PROT_READ,
                                  offset=at & -mmap.PAGESIZE)
        self.at = at & (mmap.PAGESIZE - 1)
        self.seen, self.over = [], False
        self.start()

    def run(self):
        while not self.over:
            self.seen.append((time.time(), int.from_bytes(self.view[self.at:self.at + 4], 'little')))
            time.sleep(0.005)

    def stop(self):
        self.over = True
        self.join()

    def rate(self, begin, end):
        """A second, between two times; None: too short to be said."""
        inside = [s for s in self.seen if begin <= s[0] <= end]
        if len(inside) < 4:
            return None
        return (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0])


def by_godwit(src, dst):
    """[(what, begin, end)] in s."""
    said = godwit.Run(src, dst, '--downtime-limit', str(DOWNTIME_MS), '--max-rounds', '1000', verify=False).wait()
    # By whose clock rounds are told: milliseconds since the command, whose total ends with RESUME.
    began = (lab.milliseconds(dst.qmp.wait_event('RESUME', 10)) - said['total-time']) / 1e3
    live = [r for r in said['rounds'] if not r['blackout']]
    spans = [('first round', live[0]['start-time'], live[0]['end-time'])]
    if len(live) > 1:
        spans.append(('all later rounds', live[1]['start-time'], live[-1]['end-time']))
    spans.append(('until STOP', 0, live[-1]['end-time']))
    return [(name, began + a / 1e3, began + b / 1e3) for name, a, b in spans]


def by_qemu(src, dst):
    begin = time.time()
    took = lab.qemu_migrate(src, dst, downtime_limit_ms=DOWNTIME_MS)
    return [('until STOP', begin, begin + (took.total_ms - took.downtime_ms) / 1e3)]


WAYS = {'godwit': by_godwit, 'QEMU': by_qemu}


def sample(way, args, at):
    """{what: part of the speed before}"""
    append = f'start=16 size={args.mib} touch={args.mib} ws={args.ws} rate=max random=1 verify=0'
    src = lab.Qemu('src', ram=args.mib + 64, append=append).wait_ticks(3 * lab.TICKS)
    dst = godwit.destination(src)
    writes = Writes(src, at)
    time.sleep(BEFORE)
    begin = time.time()
    before = writes.rate(begin - BEFORE, begin)
    spans = WAYS[way](src, dst)
    writes.stop()
    found = {name: writes.rate(a, b) for name, a, b in spans}
    writes = Writes(dst, at)
    time.sleep(AFTER)
    writes.stop()
    found['at the destination'] = writes.rate(0, time.time())
    dst.wait_ticks(2).check()
    for vm in (src, dst):
        vm.kill()
    return {name: rate / before for name, rate in found.items() if rate is not None}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--mib', type=int, default=96, help='(%(default)s)')
    parser.add_argument('--ws', type=int, default=8, help='MiB that it writes to (%(default)s)')
    parser.add_argument('--link', type=int, default=400, metavar='MBIT', help='(%(default)s)')
    parser.add_argument('--runs', type=int, default=5)
    args = parser.parse_args()

    lab.net()
    lab.link('rate', args.link)
    godwit.load()
    at, samples = counter(), {way: [] for way in WAYS}
    for _ in range(args.runs):
        for way, taken in samples.items():
            taken.append(sample(way, args, at))
            print(f'{way:6}: ' + ', '.join(f'{name} {part:.2f}' for name, part in taken[-1].items()), flush=True)
    godwit.unload()

    entries = []
    for what in dict.fromkeys(name for taken in samples.values() for one in taken for name in one):
        ours, peer = (statistics.median(s[what] for s in samples[way] if what in s)
                      if any(what in s for s in samples[way]) else None for way in WAYS)
        entries.append({'name': f"lab: guest's speed, {what}", 'unit': 'of that before', 'godwit': ours,
                        'peers': {'QEMU': peer} if peer else {}, 'ratio': ours / peer if ours and peer else None, 'goal': None})
        print(f"guest's speed, {what}: godwit {ours:.2f}" + (f', QEMU {peer:.2f}' if peer else ''))
    bench_json.add(entries)


if __name__ == '__main__':
    with godwit.guests():
        main()
