#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
packing.py [--guest NAME ...] [--mib N] [--own N] [--link MBIT] [--runs N] [--only WORD | --all]: what codecs and deltas make of
guests that run, in the lab.

idle is Debian's kernel, which has booted. The others own so many MiB and write so many pages of them a second: random has whole pages
of random numbers, parts writes 64 bytes of each page and leaves the rest zeros. They are moved by godwit as it is, by one that packs and
has no deltas, by a plain one, and by QEMU with XBZRLE, whose cache has room for all RAM; in turns, with the same link and the same
downtime limit, each time from fresh QEMUs, and have to find their data unharmed. All are timed by the same clock (timed.py), and all
bytes counted at the source's interface. Only what followed the first round ("later") is in each program's own words, since nobody else
knows when that ended; of QEMU some of it counts as of the first round, as it looks for dirty pages before that has ended.
Samples go to build/bench-lab/packing.json as they come, medians into build/bench.json, with the ratio to what the goal is about.
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
import linux	# noqa: E402 pylint: disable=wrong-import-position
import timed	# noqa: E402 pylint: disable=wrong-import-position
from contestants import Contestant	# noqa: E402 pylint: disable=wrong-import-position

DIRECTORY = f'{lab.B}/bench-lab'
OWN = {'godwit': (), 'godwit, no deltas': ('--delta', 'off'), 'godwit, plain': ('--compress', 'off', '--delta', 'off')}
PLAIN = 'godwit, plain'
# How many times better: beside the plain one, the seeds' table; of what is sent again, beside XBZRLE.
GOALS = {'total': 1 / 0.5, 'downtime': 1 / 0.3, 'carried': 1 / 0.25}
LATER_GOAL = 1 / 0.4
MEASURES = {'total': 'ms', 'downtime': 'ms', 'carried': 'bytes', 'later': 'bytes'}
IDLE = 'idle'
FILLS = {'random': 4096, 'parts': 64}	# bytes that each write of the guest gives its page


def rivals():
    """name -> Contestant"""
    found = {}
    for qemu in (emulators.DEBIAN, emulators.NEWEST):
        version = emulators.version(qemu)
        for name, options in OWN.items():
            found[f'{name}, {version}'] = Contestant(version, qemu, None, more=options)
        found[f'{version} xbzrle'] = Contestant(version, qemu, 0, more=('xbzrle',))
    return found


def start(guest, qemu, args):
    """The guest, and how it finds its data unharmed."""
    if guest == IDLE:
        src = linux.start(DIRECTORY, 'size=1 rate=1 disk=0', ram=args.mib, qemu=qemu)
        return src, lambda dst: linux.swept(dst, src.no_errors().counters)
    append = f'start=16 size={args.own} touch={args.own} random=1 rate={args.rate} fill={FILLS[guest]}'
    return lab.Qemu('src', ram=args.mib, directory=DIRECTORY, append=append, qemu=qemu).wait_ticks(2 * lab.TICKS), lab.Qemu.check


def sample(contestant, guest, args):
    """None: it took longer than the patience."""
    lab.link('clear')
    src, proof = start(guest, contestant.qemu, args)
    dst = godwit.destination(src, qemu=contestant.qemu)
    lab.link('rate', args.link)
    done = timed.sample(contestant, src, dst, args.downtime, args.patience, proof)
    if not done:
        return None
    moved, took = done
    took['later'] = moved.later
    if moved.report:
        took['rounds'] = len(moved.report['rounds'])
    return took


def entries(samples, args, chosen):
    """One for each guest, measure and QEMU. The ratio is to the plain one; of what is sent again, to XBZRLE."""
    for guest, emulator, measure in itertools.product(args.guest, dict.fromkeys(c.emulator for c in chosen.values()), MEASURES):
        here = {name: timed.median(samples, measure, guest=guest, contestant=name) for name, c in chosen.items() if c.emulator == emulator}
        ours = here.pop(f'godwit, {emulator}', None)
        again = guest == 'parts'
        other = here.get(f'{emulator} xbzrle' if again else f'{PLAIN}, {emulator}')
        ratio = other / ours if ours and other else None
        goal = LATER_GOAL if again and measure == 'later' else None if again else GOALS.get(measure)
        if ours is not None:
            yield {'name': f'lab: packing: {measure}, {guest}, {args.mib} MiB, {args.link} Mbit/s, {emulator}', 'unit': MEASURES[measure],
                   'godwit': ours, 'peers': here, 'ratio': ratio, 'goal': goal if ratio else None}


def show(samples, args, chosen):
    for guest in args.guest:
        print(f'{guest + f", {args.mib} MiB, {args.link} Mbit/s":40}' + ''.join(f'{measure:>26}' for measure in MEASURES))
        for name in chosen:
            took = [s['took'] for s in samples if (s['guest'], s['contestant']) == (guest, name)]
            cells = ''
            for measure, unit in MEASURES.items():
                found = [t[measure] / (1 << 20 if unit == 'bytes' else 1) for t in took if t]
                cell = f'{statistics.median(found):.1f} ({min(found):.1f}-{max(found):.1f})' if found else '-'
                cells += f'{cell:>26}'
            print(f'  {name:38}{cells}' + (f'  {took.count(None)} too long' if None in took else ''))
    print('ms, MiB')


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument('--guest', choices=[IDLE, *FILLS], action='append', help='only this one; may be given again')
    parser.add_argument('--mib', type=int, default=1024, help="of RAM; QEMU's own migration fills it at both ends (%(default)s)")
    parser.add_argument('--own', type=int, default=192, metavar='MIB', help='that a guest which writes owns (%(default)s)')
    parser.add_argument('--rate', type=int, default=400, help='pages that it writes a second (%(default)s)')
    parser.add_argument('--link', type=int, default=1000, metavar='MBIT', help='(%(default)s)')
    parser.add_argument('--runs', type=int, default=5)
    which = parser.add_mutually_exclusive_group()
    which.add_argument('--only', metavar='WORD', help="contestants with this in their name (the older QEMU's)")
    which.add_argument('--all', action='store_true', help='with both QEMUs')
    parser.add_argument('--downtime', type=int, default=300, metavar='MS', help='the limit (%(default)s)')
    parser.add_argument('--patience', type=int, default=120, metavar='S', help='(%(default)s)')
    args = parser.parse_args()
    args.guest = args.guest or [IDLE, *FILLS]
    return args


def refuse_without_room(chosen, mib):
    """A hole in a RAM file that QEMU reads by its mapping is none any more."""
    shm = os.statvfs('/dev/shm')
    most = shm.f_blocks * shm.f_frsize >> 20
    if any(c.channels is not None for c in chosen.values()) and 2 * mib > most:
        sys.exit(f"packing: QEMU's own migration fills both RAM files, {2 * mib} MiB, and /dev/shm has {most}: a smaller --mib, or "
                 '--only godwit')


def main():
    args = arguments()
    only = '' if args.all else args.only or emulators.version(emulators.DEBIAN)
    chosen = {name: c for name, c in rivals().items() if only in name}
    refuse_without_room(chosen, args.mib)
    os.makedirs(DIRECTORY, exist_ok=True)
    lab.net()
    godwit.load()
    samples, draw = [], random.Random(args.runs)
    for _, guest in itertools.product(range(args.runs), args.guest):
        for name in draw.sample(list(chosen), len(chosen)):
            begin = time.monotonic()
            took = sample(chosen[name], guest, args)
            samples.append({'guest': guest, 'contestant': name, 'took': took})
            said = ', '.join(f'{measure} {took[measure]:.0f} {unit}' for measure, unit in MEASURES.items()) if took else 'too long'
            print(f'{guest}, {name}: {said} ({time.monotonic() - begin:.0f} s)', flush=True)
            with open(f'{DIRECTORY}/packing.json', 'w', encoding='utf-8') as f:
                json.dump(samples, f, indent=1)
    lab.link('clear')
    godwit.unload()
    show(samples, args, chosen)
    bench_json.add(list(entries(samples, args, chosen)))


if __name__ == '__main__':
    with godwit.guests():
        main()
