#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
postcopy.py [--mib N] [--link MBIT] [--times X] [--runs N] [--only WORD] [--kind KIND] [--idle] [--no-compare]: a guest that writes X times what the link carries, in the lab.

It moves by post-copy, of godwit and of QEMU (plain, and with postcopy-preempt), which all begin it after the first round; and
slowed until rounds help, by godwit (--throttle auto) and by QEMU (auto-converge). In turns, in an order that is drawn, each time
from fresh QEMUs; the guest has to find its data unharmed. By the same clock (timed.py): until all RAM is there, the downtime, how
much the guest has written meanwhile, as a part of what it would have written before, and how long its longest wait was by its own
clock. How long faults took is each program's own word (QEMU has it from 10.1 on), and so is how long the guest was blocked by
them in all. QEMU's postcopy-blocktime is the time in which all vCPUs waited for pages: with one vCPU, the sum of its waits,
each from where QEMU reads the fault until the page is in place (7.2 adds whole ms). godwit's is requests x latency-mean of its
report: the sum of all waits, each from where the fault is read until its answer is. So for this guest the two mean the same, but
godwit's lacks the last step (to copy a unit to its place), and counts waits of QEMU's own threads too, and those that a stream had
ended before the answer came. The guest takes no interrupts while it writes, so KVM leaves none of its faults to another thread.

--idle: no QEMU by itself; godwit moves that guest by post-copy, and one that writes next to nothing by its defaults, in turns. How
many times the downtime of the idle one the other's is, of the medians, is the last that is printed.

Samples, and what the guest had written every tenth of a second, go to build/bench-lab/postcopy.json as they come, medians and
ratios to the best of the same QEMU into build/bench.json, and the guest's speed in the last run of each into
build/bench-lab/postcopy.svg.
"""
import argparse
import dataclasses
import json
import os
import random
import statistics
import sys
import threading
import time

import pygal

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.realpath(f'{HERE}/../../e2e/harness'), os.path.realpath(f'{HERE}/..')]
import bench_json	# noqa: E402 pylint: disable=wrong-import-position
import emulators	# noqa: E402 pylint: disable=wrong-import-position
import godwit	# noqa: E402 pylint: disable=wrong-import-position
import lab	# noqa: E402 pylint: disable=wrong-import-position
import timed	# noqa: E402 pylint: disable=wrong-import-position

DIRECTORY = f'{lab.B}/bench-lab'
DOWNTIME_MS = 1000
BEFORE = 3	# s
WIRE = 0.95	# of what the link carries
TICK_HZ = 10
ALIKE = ('--compress', 'off', '--delta', 'off')	# its pages pack well, and QEMU packs none
MEASURES = {'whole': 'ms', 'downtime': 'ms', 'work': 'of that before', 'gap': 'ms', 'blocked': 'ms', 'latency': 'ms',
            'latency-p99': 'ms'}
IDLE_TIMES = 1.5	# the downtime of an idle guest
GOALS = {'post-copy': {'whole': 1 / 0.7, 'downtime': 1 / 0.5, 'work': 1.2, 'latency': 1 / 0.8}, 'slowed': {'whole': 1, 'work': 1}}


@dataclasses.dataclass
class Contestant:
    """kind: what it is compared with. options: of godwit; capabilities: of QEMU. idle: its guest writes next to nothing."""
    kind: str
    emulator: str
    qemu: str
    options: tuple = ()
    capabilities: tuple = ()
    idle: bool = False

    def move(self, src, dst, args):
        if self.options:
            compare = [] if args.compare else ['--no-compare']
            return timed.by_godwit(src, dst, DOWNTIME_MS, *self.options, *ALIKE, *compare, patience=args.patience)
        return timed.by_qemu(src, dst, DOWNTIME_MS, patience=args.patience, capabilities=self.capabilities)


def contestants():
    found = {}
    for qemu in (emulators.DEBIAN, emulators.NEWEST):
        version = emulators.version(qemu)
        found |= {
            f'godwit, {version}': Contestant('post-copy', version, qemu, ('--postcopy', 'on')),
            version: Contestant('post-copy', version, qemu, (), ('postcopy-ram', 'postcopy-blocktime')),
            f'{version} preempt': Contestant('post-copy', version, qemu, (), ('postcopy-ram', 'postcopy-blocktime', 'postcopy-preempt')),
            f'godwit slows, {version}': Contestant('slowed', version, qemu,
                                                   ('--postcopy', 'off', '--throttle', 'auto', '--max-rounds', '1000')),
            f'{version} auto-converge': Contestant('slowed', version, qemu, (), ('auto-converge',)),
        }
    return found


def beside_idle(found):
    """Of these, godwit's post-copies, and a migration of an idle guest for each."""
    for name, c in found.items():
        if c.kind == 'post-copy' and c.options:
            yield name, c
            yield f'{name}, idle', dataclasses.replace(c, kind='idle', options=('--postcopy', 'auto'), idle=True)


class Writes(threading.Thread):
    """
    [(ms of the host's clock, pages written so far, how long the guest was not on a CPU since it said so last, us)], as the guest
    itself says, at either end.
    """

    def __init__(self, *vms):
        super().__init__(daemon=True)
        self.vms, self.seen, self.over = vms, [], threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(1 / TICK_HZ / 4):
            last = max((vm.counters for vm in self.vms), key=lambda said: said.get('tick', 0))
            if last and (not self.seen or self.seen[-1][1] != last['pages']):
                self.seen.append((time.time() * 1e3, last['pages'], last['gap_us']))

    def stop(self):
        self.over.set()
        self.join()

    def rate(self, begin, end):
        """A second. What was written at a time is what was said last before it."""
        first, last = (max((s for s in self.seen if s[0] <= at), default=self.seen[0]) for at in (begin, end))
        return (last[1] - first[1]) / (end - begin) * 1e3

    def gap(self, begin):
        """The longest since then, ms."""
        return max(us for at, _, us in self.seen if at >= begin) / 1e3


def waits_of(contestant, moved, dst):
    """
    How long the guest's vCPU waited for pages in all, and for each on average and in 99 of 100 cases, ms. Of what is missing nobody
    tells.
    """
    if moved.report:
        told = moved.report['postcopy']
        if not told['requests']:
            return {}
        mean = told['latency-mean']
        return {'blocked': told['requests'] * mean, 'latency': mean, 'latency-p99': told['latency-p99']}
    found = {}
    if 'postcopy-blocktime' not in contestant.capabilities:
        return found
    told = dst.qmp('query-migrate')
    if 'postcopy-blocktime' in told:
        found['blocked'] = told['postcopy-blocktime']
    if 'postcopy-latency' in told:
        found['latency'] = told['postcopy-latency'] / 1e6
        buckets, seen = told.get('postcopy-latency-dist', []), 0
        for n, count in enumerate(buckets):	# bucket n ends at 2^(n + 1) us
            seen += count
            if seen >= 0.99 * sum(buckets):
                return found | {'latency-p99': 2 ** (n + 1) / 1e3}
    return found


def sample(contestant, args):
    """None: it took longer than the patience."""
    rate = TICK_HZ if contestant.idle else int(args.times * args.link * 1e6 / 8 * WIRE / 4096)
    append = (f'start=16 size={args.mib} touch={args.mib} ws={args.ws} rate={rate} random=1 fill=16 ticks={TICK_HZ}')
    lab.link('clear')
    src = lab.Qemu('src', ram=args.mib + 32, directory=DIRECTORY, append=append, qemu=contestant.qemu).wait_ticks(2 * TICK_HZ)
    dst = godwit.destination(src, qemu=contestant.qemu)
    lab.link('rate', args.link)
    writes = Writes(src, dst)
    time.sleep(BEFORE)
    begin = time.time() * 1e3
    try:
        moved = contestant.move(src, dst, args)
    except timed.NotMoved:
        moved = None
    took = None
    time.sleep(2 / TICK_HZ)
    writes.stop()	# it reads what the guest says, as wait_ticks() does
    if moved:
        took = {'whole': moved.whole, 'downtime': moved.downtime, 'transferred': moved.sent, **waits_of(contestant, moved, dst)}
        dst.wait_ticks(TICK_HZ).check()
        before = writes.rate(begin - BEFORE * 1e3, begin)
        took |= {'before': before, 'work': writes.rate(moved.began, moved.ended) / before, 'gap': writes.gap(moved.began),
                 'speed': [((at - moved.began) / 1e3, pages) for at, pages, _ in writes.seen]}
    for vm in (src, dst):
        vm.kill()
    return took


def values(samples, name, measure):
    return [s['took'][measure] for s in samples if s['contestant'] == name and s['took'] and measure in s['took']]


def entries(samples, chosen):
    """A ratio says how many times better godwit is than the best of what its QEMU does by itself."""
    for kind, emulator in dict.fromkeys((c.kind, c.emulator) for c in chosen.values()):
        for measure, unit in MEASURES.items():
            here = {name: statistics.median(found) for name, c in chosen.items()
                    if (c.kind, c.emulator) == (kind, emulator) and (found := values(samples, name, measure))}
            ours = next((here.pop(name) for name in list(here) if name.startswith('godwit')), None)
            ratio = None
            if ours and here:
                ratio = ours / max(here.values()) if measure == 'work' else min(here.values()) / ours
            yield {'name': f'lab: {kind}: {measure}, {emulator}', 'unit': unit, 'godwit': ours, 'peers': here, 'ratio': ratio,
                   'goal': GOALS.get(kind, {}).get(measure) if ratio else None}


def idle_entries(samples, chosen):
    """How many times shorter than an idle guest's its downtime is, so 1 / IDLE_TIMES is good enough."""
    for name, c in chosen.items():
        idle, busy = values(samples, f'{name}, idle', 'downtime'), values(samples, name, 'downtime')
        if c.idle or not idle or not busy:
            continue
        idle, busy = statistics.median(idle), statistics.median(busy)
        print(f'{name}: downtime {busy:.0f} ms, of an idle guest {idle:.0f} ms: {busy / idle:.2f} times (at most {IDLE_TIMES})')
        yield {'name': f'lab: post-copy: downtime beside that of an idle guest, {c.emulator}', 'unit': 'ms', 'godwit': busy,
               'peers': {'idle': idle}, 'ratio': idle / busy, 'goal': 1 / IDLE_TIMES}


def show(samples, chosen):
    print(f'{"":28}' + ''.join(f'{measure:>26}' for measure in MEASURES))
    for name in chosen:
        late = sum(s['contestant'] == name and not s['took'] for s in samples)
        cells = ''
        for measure in MEASURES:
            found = values(samples, name, measure)
            cells += f'{statistics.median(found):10.2f} ({min(found):.2f}-{max(found):.2f})'.rjust(26) if found else f'{"-":>26}'
        print(f'{name:28}{cells}' + (f'  {late} too long' if late else ''))


def draw(samples, args):
    chart = pygal.XY(title=f'A guest that writes {args.times} times what a link of {args.link} Mbit/s carries', x_title='s',
                     y_title='pages that it writes a second', include_x_axis=True, legend_at_bottom=True, show_dots=False, js=[],
                     style=pygal.style.CleanStyle)
    last = {s['contestant']: s['took']['speed'] for s in samples if s['took']}
    for name, seen in last.items():
        chart.add(name, [(b[0], (b[1] - a[1]) / (b[0] - a[0])) for a, b in zip(seen, seen[1:]) if b[0] > a[0]])
    chart.render_to_file(f'{DIRECTORY}/postcopy.svg')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--mib', type=int, default=96, help='that the guest owns (%(default)s)')
    parser.add_argument('--ws', type=int, default=48, help='MiB that it writes to (%(default)s)')
    parser.add_argument('--link', type=int, default=100, metavar='MBIT', help='(%(default)s)')
    parser.add_argument('--times', type=float, default=4, help='what it writes, in parts of what the link carries (%(default)s)')
    parser.add_argument('--runs', type=int, default=5)
    parser.add_argument('--only', metavar='WORD', default='', help='contestants with this in their name')
    parser.add_argument('--kind', choices=list(GOALS), help='contestants of this kind')
    parser.add_argument('--idle', action='store_true', help="godwit's downtime only, beside that of an idle guest")
    parser.add_argument('--no-compare', dest='compare', action='store_false', help='godwit does not compare both QEMUs first: QEMU does not')
    parser.add_argument('--patience', type=int, default=120, metavar='S', help='(%(default)s)')
    args = parser.parse_args()

    os.makedirs(DIRECTORY, exist_ok=True)
    lab.net()
    godwit.load()
    chosen = {name: c for name, c in contestants().items() if args.only in name and args.kind in (None, c.kind)}
    if args.idle:
        chosen = dict(beside_idle(chosen))
    samples, turns = [], random.Random(args.runs)
    for _ in range(args.runs):
        for name in turns.sample(list(chosen), len(chosen)):
            begin = time.monotonic()
            took = sample(chosen[name], args)
            samples.append({'contestant': name, 'took': took})
            said = ', '.join(f'{measure} {took[measure]:.2f}' for measure in MEASURES if measure in took) if took else 'too long'
            print(f'{name:28}: {said} ({time.monotonic() - begin:.0f} s)', flush=True)
            with open(f'{DIRECTORY}/postcopy.json', 'w', encoding='utf-8') as f:
                json.dump(samples, f, indent=1)
    lab.link('clear')
    godwit.unload()
    show(samples, chosen)
    draw(samples, args)
    bench_json.add(list((idle_entries if args.idle else entries)(samples, chosen)))


if __name__ == '__main__':
    with godwit.guests():
        main()
