#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
sweep.py [--quick] [--mib N] [--link MBIT] [--runs N] [--rates PAGES,...]: Appmembench's question, in the lab.

A guest owns so many MiB and writes so many 4 KiB pages of them a second, at random. It is moved by godwit and by QEMU itself,
in turns, with the same link and the same downtime limit, each time from fresh QEMUs, and has to find its data unharmed.
Both are timed by the same clock (timed.py). `godwit estimate` takes a turn of its own, on a fresh guest that is not moved, so
that it warms up no contestant's migration.
Samples go to build/bench-lab/samples.json, as they come. One that has not ended within --patience is no sample: that
contestant does not converge at this rate.
"""
import argparse
import json
import os
import random
import sys
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.realpath(f'{HERE}/../../e2e/harness'), os.path.realpath(f'{HERE}/..')]
import emulators	# noqa: E402 pylint: disable=wrong-import-position
import godwit	# noqa: E402 pylint: disable=wrong-import-position
import lab	# noqa: E402 pylint: disable=wrong-import-position
import timed	# noqa: E402 pylint: disable=wrong-import-position
from contestants import contestants	# noqa: E402 pylint: disable=wrong-import-position

DIRECTORY = f'{lab.B}/bench-lab'
DOWNTIME_MS = 1000	# an emulated host's device state alone takes a good part of it
PAYLOAD = 0.95		# of what the link carries
ESTIMATE = 'estimate'


def guest(rate, args, qemu):
    append = f'start=16 size={args.mib} touch={args.mib} rate={rate} random=1'
    return lab.Qemu('src', ram=args.mib + 64, directory=DIRECTORY, append=append, qemu=qemu).wait_ticks(3 * lab.TICKS)


def estimate(rate, args):
    """None: it will not end"""
    src = guest(rate, args, emulators.DEBIAN)
    mib = int(args.link * 1e6 / 8 * PAYLOAD / (1 << 20))
    p = godwit.Process('src', 'estimate', '--pid', src.pid, '--json', '--bandwidth', mib, '--downtime-limit', DOWNTIME_MS,
                       '--max-rounds', 1000, '--seconds', 4)
    status = p.wait()
    if status:
        raise RuntimeError(f'godwit estimate ended with {status}: {p.said}')
    src.kill()
    told = json.loads(p.said)
    return {'total': told['total-time']} if told['converges'] else None


def sample(contestant, rate, args):
    src = guest(rate, args, contestant.qemu)
    dst = godwit.destination(src, qemu=contestant.qemu)
    done = timed.sample(contestant, src, dst, DOWNTIME_MS, args.patience)
    if not done:
        return None
    moved, took = done
    if moved.report:
        took.update({'expected': moved.report['expected-downtime'], 'blackout': moved.report['blackout'],
                     'own-total': moved.report['total-time'], 'own-downtime': moved.report['downtime']})
    return took


def words(took):
    said = ', '.join(f'{what} {took[what]:.0f} ms' for what in ('total', 'downtime') if what in took)
    return f'{said} where {took["expected"]:.0f} were expected' if 'expected' in took else said


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--quick', action='store_true', help='three rates, three runs')
    parser.add_argument('--mib', type=int, default=96, help="the guest's working set (%(default)s)")
    parser.add_argument('--link', type=int, default=400, metavar='MBIT', help='(%(default)s)')
    parser.add_argument('--runs', type=int, default=5)
    parser.add_argument('--rates', default='0,250,500,1000,2000,4000,8000', metavar='PAGES,...', help='a second (%(default)s)')
    parser.add_argument('--patience', type=int, default=60, metavar='S')
    args = parser.parse_args()
    if args.quick:
        args.rates, args.runs = '0,1000,4000', 3
    rates = [int(r) for r in args.rates.split(',')]

    os.makedirs(DIRECTORY, exist_ok=True)
    lab.net()
    lab.link('rate', args.link)
    godwit.load()
    all_of_them = contestants()
    found = {'mib': args.mib, 'link_mbit': args.link, 'downtime_limit_ms': DOWNTIME_MS, 'patience_s': args.patience,
             'contestants': {name: c.emulator for name, c in all_of_them.items()}, 'samples': []}
    draw = random.Random(args.runs)
    for _ in range(args.runs):
        for rate in rates:
            for name in draw.sample([*all_of_them, ESTIMATE], len(all_of_them) + 1):
                begin = time.monotonic()
                took = estimate(rate, args) if name == ESTIMATE else sample(all_of_them[name], rate, args)
                found['samples'].append({'rate': rate, 'contestant': name, 'took': took})
                print(f'{rate:6} pages/s, {name:19}: {words(took) if took else "does not converge"} '
                      f'({time.monotonic() - begin:.0f} s)', flush=True)
                with open(f'{DIRECTORY}/samples.json', 'w', encoding='utf-8') as f:
                    json.dump(found, f, indent=1)
    godwit.unload()


if __name__ == '__main__':
    with godwit.guests():
        main()
