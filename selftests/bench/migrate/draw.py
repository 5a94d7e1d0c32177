#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
draw.py: what sweep.py has found, as a table, as entries of build/bench.json and as two curves, build/bench-lab/total.svg and
downtime.svg. A ratio says how many times better godwit is than the best of what the same QEMU does by itself.
"""
import json
import os
import statistics
import sys

import pygal

sys.path.insert(0, os.path.realpath(f'{os.path.dirname(os.path.abspath(__file__))}/..'))
import bench_json	# noqa: E402 pylint: disable=wrong-import-position

DIRECTORY = f'{bench_json.B}/bench-lab'
MEASURES = ('total', 'downtime')
ESTIMATE = 'estimate'
MIB = 1 << 20


def taken(samples, rate, contestant):
    """None: not all of them have arrived, so the contestant does not converge at this rate."""
    took = [s['took'] for s in samples if s['rate'] == rate and s['contestant'] == contestant]
    return took if took and all(took) else None


def values(samples, rate, contestant, which):
    return [t[which] for t in taken(samples, rate, contestant) or []]


def median(numbers):
    return statistics.median(numbers) if numbers else None


def prediction(name, told, was, goal):
    """What godwit foretold, and how good that was: 1 is right, 0.8 is wrong by a fifth."""
    good = [min(t, w) / max(t, w) for t, w in zip(told, was)]
    return {'name': name, 'unit': 'ms', 'godwit': median(told), 'peers': {'what it took': median(was)} if was else {},
            'ratio': median(good), 'goal': goal if good else None}


def predictions(samples, rate, emulator, estimated):
    """estimated: whether `godwit estimate` looked at guests of this QEMU."""
    ours = taken(samples, rate, f'godwit, {emulator}') or []
    if estimated and (told := values(samples, rate, ESTIMATE, 'total')):
        yield prediction(f'lab: total as it was estimated, {rate} pages/s, {emulator}', told, [t['total'] for t in ours], 0.75)
    known = [t for t in ours if t['expected'] is not None]
    yield prediction(f'lab: downtime as it was foretold, {rate} pages/s, {emulator}', [t['expected'] for t in known],
                     [t['downtime'] for t in known], 0.8)


def compared(samples, rate, contestants):
    """One entry for each measure and QEMU."""
    entries = []
    for measure in MEASURES:
        for emulator in dict.fromkeys(contestants.values()):
            here = {name: median(values(samples, rate, name, measure)) for name, e in contestants.items() if e == emulator}
            ours = here.pop(f'godwit, {emulator}')
            best = min((v for v in here.values() if v is not None), default=None)
            both = ours and best
            entries.append({'name': f'lab: {measure}, {rate} pages/s, {emulator}', 'unit': 'ms', 'godwit': ours, 'peers': here,
                            'ratio': best / ours if both else None, 'goal': 2 if both else None})
    return entries


def draw(found, rates, measure):
    chart = pygal.XY(title=f'{measure}: a guest with {found["mib"]} MiB, over {found["link_mbit"]} Mbit/s, in the lab',
                     x_title='written by the guest, MiB/s', y_title='ms', include_x_axis=True, legend_at_bottom=True,
                     js=[], style=pygal.style.CleanStyle)
    curves = {name: [(rate, median(values(found['samples'], rate, name, measure))) for rate in rates]
              for name in found['contestants']}
    chart.range = (0, max((ms for curve in curves.values() for _, ms in curve if ms is not None), default=1) * 1.05)
    for name, curve in curves.items():
        chart.add(name, [(rate * 4096 / MIB, ms) for rate, ms in curve if ms is not None])
    chart.render_to_file(f'{DIRECTORY}/{measure}.svg')


def spread(numbers):
    return f'{median(numbers):10.0f} ({min(numbers):.0f}-{max(numbers):.0f})' if numbers else f'{"-":>10}'


def main():
    with open(f'{DIRECTORY}/samples.json', encoding='utf-8') as f:
        found = json.load(f)
    samples, contestants = found['samples'], found['contestants']
    rates = sorted({s['rate'] for s in samples})
    first = next(iter(contestants.values()))
    entries = []
    print(f'\nms, median (smallest-largest); -: does not converge within {found["patience_s"]} s')
    for rate in rates:
        print(f'{rate} pages/s{"total":>31}{"downtime":>24}')
        for name in [*contestants, ESTIMATE]:
            row = [spread(values(samples, rate, name, measure)) for measure in MEASURES[:1 if name == ESTIMATE else None]]
            print(f'  {name:20}' + ''.join(f'{cell:26}' for cell in row).rstrip())
        here = compared(samples, rate, contestants)
        for emulator in dict.fromkeys(contestants.values()):
            here += predictions(samples, rate, emulator, emulator == first)
        for entry in here:
            if entry['ratio']:
                print(f'  ratio {entry["ratio"]:5.2f} {entry["name"]}')
        entries += here
    for measure in MEASURES:
        draw(found, rates, measure)
    bench_json.add(entries)
    print(f'curves: {DIRECTORY}/total.svg, {DIRECTORY}/downtime.svg')


if __name__ == '__main__':
    main()
