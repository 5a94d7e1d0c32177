#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""
engines.py [--mib N] [--runs N] [--streams N] [--image NAME] [--every N] [--net loopback|veth]
           [--rate RATE] [--congestion NAME] [--engines A B] [--other FILE]

What a round costs the sender's streams by io_uring beside what it costs by poll(): CPU time, their
own and with the receiving end's, which drops what comes. Both take turns, and each ratio is the
median of the pairs, A over B: above 1 B is the better one. --every: one page of so many counts as
written. --rate: of the link, for veth, as tc(8) takes it. --congestion: TCP's congestion control:
bbr, which paces each stream by timers, costs half as much again as cubic. --other:
build/bench/engines of another build plays A, to compare two builds.
"""
import argparse
import itertools
import os
import statistics
import subprocess
import tempfile

import images
import rig
import bench_json	# rig has said where

PORTS = itertools.count(20000 + os.getpid() % 10000)


def one_round(program, net, ram, args, engine):
    """(CPU seconds of the sender, of both, seconds by the clock)"""
    address, streams = f'{net.address}:{next(PORTS)}', str(args.streams)
    with subprocess.Popen(net.there(program, 'receive', address, streams),
                          stdout=subprocess.PIPE, text=True) as receive:
        assert 'listening' in receive.stdout.readline()
        said = subprocess.run([program, 'send', ram, str(args.mib), address, streams, engine,
                               str(args.every), *filter(None, [args.congestion])], check=True,
                              stdout=subprocess.PIPE, text=True).stdout
        status, there = rig.wait4(receive)
        if status:
            raise RuntimeError(f'engines receive ended with {status}')
    cpu, seconds = map(float, said.split())
    return cpu, cpu + there, seconds


def limit_rate(rate):
    """Of this side's end of the pair."""
    words = f'qdisc add dev gwb{os.getpid() % 100000}a root tbf rate {rate} burst 512kb limit 8mb'
    subprocess.run(['tc', *words.split()], check=True)


def tell(pairs, name, engines):
    """pairs: ((A's round, B's), ...); engines: their names"""
    entries = []
    for i, what in enumerate(('CPU of the sender', 'CPU of both ends', 'time')):
        a, b = (statistics.median(pair[side][i] for pair in pairs) for side in (0, 1))
        ratios = [pair[0][i] / pair[1][i] for pair in pairs]
        ratio = statistics.median(ratios)
        print(f'{name}: {what}, s: {engines[0]} {a:.4f}, {engines[1]} {b:.4f}, '
              f'ratio {ratio:.3f} ({min(ratios):.2f}-{max(ratios):.2f})')
        entries.append({'name': f'engines: {name}: {what}', 'unit': 's', 'godwit': b,
                        'peers': {engines[0]: a}, 'ratio': ratio, 'goal': None})
    return entries


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--mib', type=int, default=1024)
    parser.add_argument('--runs', type=int, default=9)
    parser.add_argument('--streams', type=int, default=2)
    parser.add_argument('--image', choices=images.IMAGES, default='random')
    parser.add_argument('--every', type=int, default=1)
    parser.add_argument('--net', choices=('loopback', 'veth'), default='veth')
    parser.add_argument('--rate')
    parser.add_argument('--congestion')
    parser.add_argument('--engines', nargs=2, default=('poll', 'uring'), metavar=('A', 'B'))
    parser.add_argument('--other', metavar='FILE')
    args = parser.parse_args()
    mine = f'{bench_json.B}/bench/engines'
    programs = (args.other or mine, mine)
    with tempfile.NamedTemporaryFile(dir='/dev/shm') as ram, rig.Net(args.net == 'veth') as net:
        images.write(args.image, ram.name, args.mib)
        if args.rate:
            limit_rate(args.rate)
        pairs = []
        for turn in range(args.runs + 1):
            order = (0, 1) if turn % 2 else (1, 0)
            got = {side: one_round(programs[side], net, ram.name, args, args.engines[side])
                   for side in order}
            if turn:	# the first one warms up
                pairs.append((got[0], got[1]))
    every = f', 1 page of {args.every}' if args.every > 1 else ''
    rate = ''.join(f', {word}' for word in (args.rate, args.congestion) if word)
    engines = (f'{args.engines[0]}{" of the other build" if args.other else ""}', args.engines[1])
    bench_json.add(tell(pairs, f'{args.image}{every}, {args.mib} MiB, {net.name}{rate}', engines))


if __name__ == '__main__':
    main()
