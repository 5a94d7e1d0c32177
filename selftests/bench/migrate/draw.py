#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
draw.py: what sweep.py has found, as a table, as entries of build/bench.json and as two curves, build/bench-lab/total.svg and
downtime.svg.
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
WAYS = ('godwit', 'QEMU')
MIB = 1 << 20


def taken(samples, rate, way):
    """None: not all of them have arrived, so the way does not converge at this rate."""
    took = [s['took'] for s in samples if s['rate'] == rate and s['way'] == way]
    return took if took and all(took) else None


def median(samples, rate, way, which):
    took = taken(samples, rate, way)
    return statistics.median(t[which] for t in took) if took else None


def prediction(samples, rate, told, was, goal):
    """What godwit foretold, and how good that was: 1 is right, 0.8 is wrong by a fifth."""
    took = [t for t in taken(samples, rate, 'godwit') or [] if t[told] is not None]
    good = [min(t[told], t[was]) / max(t[told], t[was]) for t in took]
    return {'name': f'lab: {was} as it was foretold, {rate} pages/s', 'unit': 'ms',
            'godwit': statistics.median(t[told] for t in took) if took else None,
            'peers': {was: statistics.median(t[was] for t in took)} if took else {},
            'ratio': statistics.median(good) if good else None, 'goal': goal if good else None}


def draw(found, rates, measure, values):
    chart = pygal.XY(title=f'{measure}: a guest with {found["mib"]} MiB, over {found["link_mbit"]} Mbit/s, in the lab',
                     x_title='written by the guest, MiB/s', y_title='ms', include_x_axis=True, legend_at_bottom=True,
                     js=[], style=pygal.style.CleanStyle)
    chart.range = (0, max((v for v in values.values() if v is not None), default=1) * 1.05)
    for way in WAYS:
        chart.add(way, [(rate * 4096 / MIB, values[rate, way]) for rate in rates if values[rate, way] is not None])
    chart.render_to_file(f'{DIRECTORY}/{measure}.svg')


def text(value):
    return f'{value:12.0f}' if value is not None else f'{"-":>12}'


def main():
    with open(f'{DIRECTORY}/samples.json', encoding='utf-8') as f:
        found = json.load(f)
    samples = found['samples']
    rates = sorted({s['rate'] for s in samples})
    entries = []
    print(f'\nmedians, ms; -: does not converge within {found["patience_s"]} s')
    print(f'{"pages/s":>8}{"total:":>9}' + ''.join(f'{w:>12}' for w in WAYS) + f'{"downtime:":>12}' +
          ''.join(f'{w:>12}' for w in WAYS) + f'{"foretold: total":>17}{"downtime":>12}')
    values = {m: {(r, w): median(samples, r, w, m) for r in rates for w in WAYS} for m in MEASURES}
    for rate in rates:
        foretold = [prediction(samples, rate, 'estimate', 'total', 0.75), prediction(samples, rate, 'expected', 'downtime', 0.8)]
        print(f'{rate:8}{"":9}' + ''.join(text(values['total'][rate, w]) for w in WAYS) + f'{"":12}' +
              ''.join(text(values['downtime'][rate, w]) for w in WAYS) + ' ' * 5 + ''.join(text(f['godwit']) for f in foretold))
        entries += foretold
        for measure in MEASURES:
            ours, peer = (values[measure][rate, w] for w in WAYS)
            entries.append({'name': f'lab: {measure}, {rate} pages/s', 'unit': 'ms', 'godwit': ours, 'peers': {'QEMU': peer},
                            'ratio': peer / ours if ours and peer else None, 'goal': 2 if ours and peer else None})
    for measure in MEASURES:
        draw(found, rates, measure, values[measure])
    bench_json.add(entries)
    print(f'curves: {DIRECTORY}/total.svg, {DIRECTORY}/downtime.svg')


if __name__ == '__main__':
    main()
