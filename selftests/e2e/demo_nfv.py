#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
make demo-nfv: a guest that forwards frames between two vhost-user ports moves from one Open vSwitch with DPDK to another in
the lab, in turn by QEMU alone and by godwit, while a tester sends frames through it both ways. A picture shows how many
passed around the stop: build/demo-nfv/frames.svg.
"""
import argparse
import collections
import json
import os
import statistics
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.append(os.path.realpath(f'{os.path.dirname(os.path.abspath(__file__))}/harness'))
sys.path.append(os.path.realpath(f'{os.path.dirname(os.path.abspath(__file__))}/../bench/migrate'))
import forwarding	# noqa: E402
import godwit	# noqa: E402
import lab	# noqa: E402
import pygal	# noqa: E402
import timed	# noqa: E402

DIRECTORY = f'{lab.B}/demo-nfv'
MIB = 128
APPEND = 'start=16 size=64 touch=32 rate=100'
LIMIT_MS = 1000		# as in demo.py
# The comparison of both ends, which an operator makes before (godwit check), takes an emulated host ten seconds.
OPTIONS = ['--no-compare']
NEWER = f'{lab.TREE}/selftests/kernels/qemu.sh'
Contestant = collections.namedtuple('Contestant', 'move qemu options', defaults=[()])
CONTESTANTS = {
    'QEMU': Contestant(timed.by_qemu, lab.QEMU),
    'godwit': Contestant(timed.by_godwit, lab.QEMU, OPTIONS),
    'QEMU, newer': Contestant(timed.by_qemu, NEWER),
    'godwit, newer': Contestant(timed.by_godwit, NEWER, OPTIONS),
    'migrate, newer': Contestant(timed.by_godwit, NEWER, [*OPTIONS, '--device-state', 'migrate']),
    'save, newer': Contestant(timed.by_godwit, NEWER, [*OPTIONS, '--device-state', 'save']),
}
MEASURES = ('silence', 'lost', 'downtime', 'total', 'sent')
TITLES = {'silence': 'longest silence ms', 'lost': 'frames lost', 'downtime': 'downtime ms', 'total': 'total ms', 'sent': 'sent MiB'}
BEFORE_MS, AFTER_MS, SMOOTH = 1500, 1500, 5	# of the picture; slots that a point is the mean of


class Turn:
    """One migration of a new guest."""

    def __init__(self, name, number, hosts):
        contestant = CONTESTANTS[name]
        src = forwarding.source(DIRECTORY, hosts['src'], f'n{number}', append=APPEND, mib=MIB, qemu=contestant.qemu)
        dst = godwit.destination(src, f'n{number}-there', devices=forwarding.devices(hosts['dst']))
        with forwarding.Traffic() as traffic:
            traffic.wait_flowing(250)	# for a second: what comes first is slower
            moved = contestant.move(src, dst, LIMIT_MS, *contestant.options)
            traffic.wait_flowing(250)
        dst.wait_ticks(1).check()
        report = traffic.report
        ways = [report[way] for way in ('ab', 'ba')]
        self.odd = {what: sum(way[what] for way in ways) for what in ('wrong', 'twice', 'late')}
        self.took = {'silence': max(way['silence_ms'] for way in ways), 'lost': sum(way['sent'] - way['got'] for way in ways),
                     'downtime': moved.downtime, 'total': moved.total, 'sent': moved.sent / 2**20}
        self.silences = [(way['silence_at_ms'] + report['began_ms'] - moved.stopped, way['silence_ms']) for way in ways]
        with open(f'{DIRECTORY}/turn-{number}.json', 'w', encoding='utf-8') as f:
            json.dump({'by': name, 'took': self.took, 'traffic': report, 'stopped_ms': moved.stopped, 'report': moved.report}, f)
        self.points = list(self._points(report, moved.stopped))
        for vm in (src, dst):
            vm.kill()

    @staticmethod
    def _points(report, stopped):
        """(ms after the stop, frames per slot, both ways)"""
        frames = [a + b for a, b in zip(report['ab']['slots'], report['ba']['slots'])]
        for i in range(len(frames) - SMOOTH + 1):
            at = report['began_ms'] + (i + SMOOTH / 2) * report['slot_ms'] - stopped
            if -BEFORE_MS <= at <= AFTER_MS:
                yield at, statistics.mean(frames[i:i + SMOOTH])

    def __str__(self):
        return ', '.join(f'{TITLES[m]} {self.took[m]:.0f}' for m in MEASURES) + '; silent from ' + ' and '.join(
            f'{at:.0f} to {at + ms:.0f}' for at, ms in self.silences) + ' ms after the stop' + f'; {self.odd}'


def draw(turns):
    """Of each contestant the turn whose silence is the median."""
    chart = pygal.XY(title='Frames that pass the guest', x_title='ms after the stop at the source', y_title='frames per 10 ms, both ways',
                     dots_size=1, height=500)
    for name, its in turns.items():
        chart.add(name, sorted(its, key=lambda turn: turn.took['silence'])[len(its) // 2].points)
    chart.render_to_file(f'{DIRECTORY}/frames.svg')


def table(turns):
    print(f'\n== medians of {min(map(len, turns.values()))} turns; {2 * forwarding.RATE} frames a second')
    print(f'{"":16}' + ''.join(f'{TITLES[m]:>20}' for m in MEASURES))
    for name, its in turns.items():
        print(f'{name:16}' + ''.join(f'{statistics.median(t.took[m] for t in its):20.0f}' for m in MEASURES))
    print('silence: nothing came out one way; downtime: from STOP at the source to RESUME at the destination')
    print('(emulated machines: compare the two, not with real hardware)', flush=True)


def main():
    if not lab.IN_LAB:
        sys.exit('run it by "make demo-nfv": it needs the lab')
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument('--turns', type=int, default=3)
    arguments.add_argument('--by', nargs='+', choices=CONTESTANTS, default=['QEMU', 'godwit'])
    asked = arguments.parse_args()
    turns = {name: [] for name in asked.by}
    os.makedirs(DIRECTORY, exist_ok=True)
    with forwarding.hosts(DIRECTORY, warm=True) as hosts:
        print(f'{hosts["src"].version()}: a switch on each of two hosts, and a guest behind one', flush=True)
        godwit.load()
        for number in range(asked.turns * len(turns)):
            name = asked.by[number % len(turns)]
            turns[name].append(Turn(name, number, hosts))
            print(f'   {name}: {turns[name][-1]}', flush=True)
    godwit.unload()
    table(turns)
    draw(turns)
    return 0


if __name__ == '__main__':
    try:
        sys.exit(main())
    except (subprocess.SubprocessError, RuntimeError, TimeoutError, AssertionError, timed.NotMoved) as e:
        sys.exit(f'demo-nfv: {e}')
