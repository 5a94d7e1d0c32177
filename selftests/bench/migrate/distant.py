#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
distant.py [--all] [--links RTT/MBIT/LOSS,...] [--runs N] [--only WORD] [--beside GODWIT]: migrations over a distance, in the lab.

The two hosts' namespaces are joined by a link with a round trip (ms), a rate, and a share of packets that get lost (%), each
way. A guest that owns so many MiB and writes so many pages a second is moved over it by godwit and by QEMU itself, plain and
with multifd, in turns, with the same downtime limit, each time from fresh QEMUs, and has to find its data unharmed. All are
timed by the same clock (timed.py). What has not ended within --patience is too long, takes no further turn on that link, and
counts as so long. On a link without a round trip only godwit takes a turn, as its downtime there is what the others are compared
with.
Samples go to build/bench-lab/distant.json as they come, medians and ratios to the best QEMU into build/bench.json.
"""
import argparse
import itertools
import json
import os
import random
import statistics
import sys
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.realpath(f'{HERE}/../../e2e/harness'), os.path.realpath(f'{HERE}/..')]
import bench_json	# noqa: E402 pylint: disable=wrong-import-position
import emulators	# noqa: E402 pylint: disable=wrong-import-position
import godwit	# noqa: E402 pylint: disable=wrong-import-position
import lab	# noqa: E402 pylint: disable=wrong-import-position
import timed	# noqa: E402 pylint: disable=wrong-import-position
from contestants import contestants	# noqa: E402 pylint: disable=wrong-import-position

DIRECTORY = f'{lab.B}/bench-lab'
CHANNELS = 4
# Round trip in ms, Mbit/s, loss in %.
QUICK = [(0, 100, 0), (80, 100, 0), (80, 100, 0.5), (20, 1000, 0), (200, 1000, 0)]
ALL = [(0, 100, 0), (0, 1000, 0), *itertools.product((20, 80, 200), (100, 1000), (0, 0.05, 0.5))]
WIRE = 1448 / 1514	# what TCP carries of a packet with its Ethernet header, which the link's rate counts
# How many times better than the best QEMU: of the downtime at 80 ms, of the total, and of the total where 0.5 % gets lost.
GOALS = {'downtime': 1 / 0.4, 'total': 1 / 0.95, 'lossy': 1 / 0.7}


def set_link(link):
    rtt, mbit, loss = link
    lab.link('clear')
    lab.link('rate', mbit)
    if rtt:
        lab.link('delay', rtt / 2)
    if loss:
        lab.link('loss', loss)


def words(link):
    return f'{link[0]} ms, {link[1]} Mbit/s, {link[2]} %'


def sample(contestant, link, args):
    """None: it took longer than the patience."""
    lab.link('clear')
    append = f'start=16 size={args.mib} touch={args.mib} rate={args.rate} random=1'
    src = lab.Qemu('src', ram=args.mib + 32, directory=DIRECTORY, append=append, qemu=contestant.qemu)
    src.wait_ticks(2 * lab.TICKS)
    dst = godwit.destination(src, qemu=contestant.qemu)
    set_link(link)
    done = timed.sample(contestant, src, dst, args.downtime, args.patience)
    if not done:
        return None
    moved, took = done
    if moved.report:
        took.update({what: moved.report[what] for what in ('expected-downtime', 'blackout', 'streams', 'rounds')})
        took['link'] = moved.report.get('link')	# of another godwit it may not be there
    return took


def takes_turn(samples, link, name):
    if not link[0]:
        return name.startswith('godwit')
    return all(s['took'] for s in samples if s['link'] == link and s['contestant'] == name)


def entries(samples, links, chosen, patience_ms):
    """One for each link, measure and QEMU. A peer that took too long has no number, and counts with the patience."""
    for link, emulator, measure in itertools.product(links, dict.fromkeys(c.emulator for c in chosen.values()),
                                                     ('total', 'downtime')):
        here = {name: timed.median(samples, measure, link=link, contestant=name) for name, c in chosen.items() if c.emulator == emulator}
        ours = here.pop(f'godwit, {emulator}', None)
        peers = [ms for name, ms in here.items() if not name.startswith('godwit')]
        late = patience_ms if link[0] and measure == 'total' else None
        best = min((ms or late for ms in peers if ms or late), default=None)
        goal = GOALS['lossy' if link[2] >= 0.5 and measure == 'total' else measure]
        if measure == 'downtime' and link[0] != 80:
            goal = None
        if ours:
            yield {'name': f'lab: distant: {measure}, {words(link)}, {emulator}', 'unit': 'ms', 'godwit': ours,
                   'peers': here, 'ratio': best / ours if best else None, 'goal': goal if best else None}


def show(samples, links, chosen):
    for link in links:
        print(f'{words(link)}{"total ms":>24}{"downtime ms":>24}{"link used":>12}')
        for name in chosen:
            took = [s['took'] for s in samples if s['link'] == link and s['contestant'] == name]
            if not took:
                continue
            if timed.median(samples, 'total', link=link, contestant=name) is None:
                print(f'  {name:26} too long ({sum(t is None for t in took)} of {len(took)})')
                continue
            cells = []
            for measure in ('total', 'downtime'):
                found = [t[measure] for t in took if t]
                cells.append(f'{statistics.median(found):8.0f} ({min(found):.0f}-{max(found):.0f})')
            used = statistics.median(t['transferred'] * 8 / (link[1] * 1e3 * WIRE) / t['total'] for t in took if t)
            parts = [t['blackout'] for t in took if t and 'blackout' in t]
            # Another godwit's report may know other parts.
            said = ', '.join(f'{part} {statistics.median(p.get(part, 0) for p in parts):.0f}'
                             for part in dict.fromkeys(part for p in parts for part in p))
            print(f'  {name:26} {cells[0]:24}{cells[1]:24}{used:6.2f}  {said}')


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument('--all', action='store_true', help='all links, with both QEMUs: hours')
    parser.add_argument('--links', metavar='RTT/MBIT/LOSS,...', help='(the quick ones: ' +
                        ','.join('/'.join(map(str, link)) for link in QUICK) + ')')
    parser.add_argument('--runs', type=int, default=3)
    parser.add_argument('--only', metavar='WORD', help="contestants with this in their name (the older QEMU's)")
    parser.add_argument('--mib', type=int, default=160, help='that the guest owns (%(default)s)')
    parser.add_argument('--rate', type=int, default=50, help='pages that it writes a second (%(default)s)')
    parser.add_argument('--downtime', type=int, default=300, metavar='MS', help='the limit (%(default)s)')
    parser.add_argument('--patience', type=int, default=60, metavar='S', help='(%(default)s)')
    parser.add_argument('--beside', metavar='GODWIT', help='another godwit, which takes turns')
    return parser.parse_args()


def main():
    args = arguments()
    links = ALL if args.all else QUICK
    if args.links:
        links = [tuple(float(n) if '.' in n else int(n) for n in link.split('/')) for link in args.links.split(',')]
    os.makedirs(DIRECTORY, exist_ok=True)
    lab.net()
    godwit.load()
    only = args.only or ('' if args.all else emulators.version(emulators.DEBIAN))
    chosen = {name: c for name, c in contestants(CHANNELS, old_multifd=True, beside=args.beside).items() if only in name}
    samples, draw = [], random.Random(args.runs)
    for _, link in itertools.product(range(args.runs), links):
        for name in draw.sample(list(chosen), len(chosen)):
            if not takes_turn(samples, link, name):
                continue
            begin = time.monotonic()
            took = sample(chosen[name], link, args)
            samples.append({'link': link, 'contestant': name, 'took': took})
            said = f'total {took["total"]:.0f}, downtime {took["downtime"]:.0f} ms' if took else 'too long'
            print(f'{words(link)}, {name}: {said} ({time.monotonic() - begin:.0f} s)', flush=True)
            with open(f'{DIRECTORY}/distant.json', 'w', encoding='utf-8') as f:
                json.dump(samples, f, indent=1)
    lab.link('clear')
    godwit.unload()
    show(samples, links, chosen)
    bench_json.add(list(entries(samples, links, chosen, args.patience * 1e3)))


if __name__ == '__main__':
    with godwit.guests():
        main()
