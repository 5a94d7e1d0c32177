#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
sweep.py [--quick] [--mib N] [--link MBIT] [--runs N] [--rates PAGES,...]: Appmembench's question, in the lab.

A guest owns so many MiB and writes so many 4 KiB pages of them a second, at random. It is moved by godwit and by QEMU itself,
in turns, with the same link and the same downtime limit, each time from fresh QEMUs, and has to find its data unharmed.
Before godwit moves it, `godwit estimate` says how long that will take.
Samples go to build/bench-lab/samples.json, as they come. One that has not ended within --patience is no sample: that way
does not converge at this rate.
"""
import argparse
import json
import os
import random
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.realpath(f'{os.path.dirname(os.path.abspath(__file__))}/../../e2e'))
import godwit	# noqa: E402 pylint: disable=wrong-import-position
import lab	# noqa: E402 pylint: disable=wrong-import-position

DIRECTORY = f'{lab.B}/bench-lab'
DOWNTIME_MS = 1000	# an emulated host's device state alone takes a good part of it
PAYLOAD = 0.95		# of what the link carries


def estimated_total(src, args):
    """ms; None: it will not end"""
    mib = int(args.link * 1e6 / 8 * PAYLOAD / (1 << 20))
    p = godwit.Process('src', 'estimate', '--pid', src.pid, '--json', '--bandwidth', mib, '--downtime-limit', DOWNTIME_MS,
                       '--max-rounds', 1000, '--seconds', 4)
    p.wait()
    told = json.loads(p.said)
    return told['total-time'] if told['converges'] else None


def by_godwit(src, dst, args):
    estimate = estimated_total(src, args)
    run = godwit.Run(src, dst, '--downtime-limit', str(DOWNTIME_MS), '--max-rounds', '1000', '--timeout', str(args.patience),
                     verify=False)
    status = run.send.wait(args.patience + 60)
    if status in (godwit.EXIT['time-limit'], godwit.EXIT['not-converged']):
        run.kill()
        return None
    said = run.wait()
    return {'total': said['total-time'], 'estimate': estimate, 'downtime': said['downtime'],
            'expected': said['expected-downtime'], 'transferred': said['ram']['transferred'], 'blackout': said['blackout']}


def by_qemu(src, dst, args):
    try:
        took = lab.qemu_migrate(src, dst, downtime_limit_ms=DOWNTIME_MS, timeout=args.patience)
    except TimeoutError:
        return None
    return {'total': took.total_ms, 'downtime': took.downtime_ms, 'transferred': took.info['ram']['transferred']}


WAYS = {'godwit': by_godwit, 'QEMU': by_qemu}


def sample(way, rate, args):
    append = f'start=16 size={args.mib} touch={args.mib} rate={rate} random=1'
    src = lab.Qemu('src', ram=args.mib + 64, directory=DIRECTORY, append=append).wait_ticks(3 * lab.TICKS)
    dst = godwit.destination(src)
    took = WAYS[way](src, dst, args)
    if took:
        dst.wait_ticks(2).check()
    for vm in (src, dst):
        vm.kill()
    return took


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
    found = {'mib': args.mib, 'link_mbit': args.link, 'downtime_limit_ms': DOWNTIME_MS, 'patience_s': args.patience,
             'samples': []}
    draw = random.Random(args.runs)
    for _ in range(args.runs):
        for rate in rates:
            for way in draw.sample(list(WAYS), len(WAYS)):
                begin = time.monotonic()
                took = sample(way, rate, args)
                found['samples'].append({'rate': rate, 'way': way, 'took': took})
                said = 'does not converge' if not took else f'total {took["total"]:.0f} ms, downtime {took["downtime"]:.0f} ms'
                if took and 'expected' in took:
                    said += f' where {took["expected"]:.0f} were expected'
                print(f'{rate:6} pages/s, {way:6}: {said} ({time.monotonic() - begin:.0f} s)', flush=True)
                with open(f'{DIRECTORY}/samples.json', 'w', encoding='utf-8') as f:
                    json.dump(found, f, indent=1)
    godwit.unload()


if __name__ == '__main__':
    with godwit.guests():
        main()
