#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
slowdown.py [--mib N] [--ws MIB] [--link MBIT] [--runs N]: how much slower does a guest run while it is moved, in the lab?

A guest that owns so many MiB writes pages of its working set as fast as it can. How many it has written is read out of its
RAM's file, which it does not notice: from the command to STOP by godwit and by QEMU itself, both by the same clock
(timed.py), in godwit's first round and in the later ones, and at the destination: writes per second, as a part of those
before. In turns, in an order that is drawn, median of the runs, from fresh QEMUs. The guest has to find its data unharmed. Into
build/bench.json.
"""
import argparse
import mmap
import os
import random
import statistics
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.realpath(f'{HERE}/../../e2e/harness'), os.path.realpath(f'{HERE}/..')]
import bench_json	# noqa: E402 pylint: disable=wrong-import-position
import godwit	# noqa: E402 pylint: disable=wrong-import-position
import lab	# noqa: E402 pylint: disable=wrong-import-position
from contestants import contestants	# noqa: E402 pylint: disable=wrong-import-position

DOWNTIME_MS = 1000
BEFORE, AFTER = 3, 3	# s


def counter():
    """Where in its memory the guest's one vCPU counts its writes (pattern.c, struct writer): it is mapped one to one."""
    for line in subprocess.run(['nm', lab.PATTERN], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines():
        address, _, name = line.split()
        if name == 'writers':
            return int(address, 16)
    raise LookupError(f'{lab.PATTERN}: no symbol "writers"')


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
        while True:
            self.seen.append((time.time(), int.from_bytes(self.view[self.at:self.at + 4], 'little')))
            if self.over:
                return
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


def spans_of(moved):
    """[(what, begin, end)] in s. Rounds are godwit's to tell, in ms since it began; its total ends with RESUME."""
    spans = [('until STOP', moved.began / 1e3, moved.stopped / 1e3)]
    if not moved.report:
        return spans
    began = (moved.resumed - moved.report['total-time']) / 1e3
    live = [(r['start-time'], r['end-time']) for r in moved.report['rounds'] if not r['blackout']]
    for name, rounds in (('first round', live[:1]), ('all later rounds', live[1:])):
        if rounds:
            spans.append((name, began + rounds[0][0] / 1e3, began + rounds[-1][1] / 1e3))
    return spans


def sample(contestant, args, at):
    """{what: part of the speed before}"""
    append = f'start=16 size={args.mib} touch={args.mib} ws={args.ws} rate=max random=1 verify=0'
    src = lab.Qemu('src', ram=args.mib + 64, append=append, qemu=contestant.qemu).wait_ticks(3 * lab.TICKS)
    dst = godwit.destination(src, qemu=contestant.qemu)
    writes = Writes(src, at)
    time.sleep(BEFORE)
    begin = time.time()
    before = writes.rate(begin - BEFORE, begin)
    moved = contestant.move(src, dst, DOWNTIME_MS)
    writes.stop()
    found = {name: writes.rate(a, b) for name, a, b in spans_of(moved)}
    writes = Writes(dst, at)
    time.sleep(AFTER)
    writes.stop()
    found['at the destination'] = writes.rate(0, time.time())
    dst.wait_ticks(2).check()
    for vm in (src, dst):
        vm.kill()
    return {name: rate / before for name, rate in found.items() if rate is not None}


def report(samples, emulator_of):
    """A ratio says how much faster the guest runs beside godwit than beside the best of what its QEMU does by itself."""
    entries = []
    for what in dict.fromkeys(name for taken in samples.values() for one in taken for name in one):
        found = {name: [s[what] for s in taken if what in s] for name, taken in samples.items()}
        print(f"guest's speed, {what}")
        for name, parts in found.items():
            if parts:
                print(f'  {name:19} {statistics.median(parts):.2f} ({min(parts):.2f}-{max(parts):.2f})')
        for emulator in dict.fromkeys(emulator_of.values()):
            here = {name: statistics.median(parts) for name, parts in found.items() if parts and emulator_of[name] == emulator}
            ours = here.pop(f'godwit, {emulator}', None)
            entries.append({'name': f"lab: guest's speed, {what}, {emulator}", 'unit': 'of that before', 'godwit': ours,
                            'peers': here, 'ratio': ours / max(here.values()) if ours and here else None, 'goal': None})
    bench_json.add(entries)


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
    at, chosen = counter(), contestants()
    samples = {name: [] for name in chosen}
    draw = random.Random(args.runs)
    for _ in range(args.runs):
        for name in draw.sample(list(chosen), len(chosen)):
            samples[name].append(sample(chosen[name], args, at))
            print(f'{name:19}: ' + ', '.join(f'{what} {part:.2f}' for what, part in samples[name][-1].items()), flush=True)
    godwit.unload()
    report(samples, {name: c.emulator for name, c in chosen.items()})


if __name__ == '__main__':
    with godwit.guests():
        main()
