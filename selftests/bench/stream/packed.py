#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""
packed.py [--quick] [--mib N] [--runs N] [--link LINK ...] [--image NAME ...] [--only WORD ...]

RAM of real programs over links that are slow: what each of godwit's codecs makes of it, and what QEMU's own do, in the clear and
over TLS; and of a guest that comes back to a host that has what was in 19 of 20 pages. Over TLS QEMU has godwit's cipher, and beside
that the one that GnuTLS takes if nobody says. --image 'idle guest', for --mib 4096, is the RAM of a guest that has booted. Results go
to build/bench.json, as those of bench.py; bytes are counted at the source's interface, for all alike.
"""
import argparse
import dataclasses
import os
import random
import signal
import sys

import bench
import images
import rig
import bench_json	# rig has said where
import credentials
import emulators

LINKS = {'loopback': (False, None), '10G': (True, 10000), '1G': (True, 1000), '100M': (True, 100)}
SLOW = 2	# over 100 Mb/s so many times less RAM moves
# Of auto, to the best of QEMU's: time, bytes. Where nothing is said: none.
GOALS = {'1G': (2.0, 1.0), '10G': (1.25, None), '100M': (1.0, 1 / .97)}
CPU_GOAL = 1 / .75
OFF_GOAL, FIXED_GOAL = 1 / 1.03, 1 / 1.1	# of auto, to none at all and to the best fixed codec
X509_GOAL, PSK_GOAL, TLS_CPU_GOAL, PLAIN_GOAL = 1.35, 4, 1.3, 1 / 1.1
PRIORITY = 'NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+AES-128-GCM'	# what godwit's own leaves: user/tls/creds.c
IDLE_GOALS = 2, 4	# of auto, to none at all, over 1 Gb/s: time, bytes
BACK_GOALS = 6, 1 / .15	# of a guest that comes back, to the newest QEMU's zstd: time, bytes
BACK = {'godwit back': ['--reuse'], 'godwit back to a strange image': ['--reuse-other', '--reuse']}
AUTO, OWN = 'godwit', ('off', 'lz4', 'zstd', 'zlib')


@dataclasses.dataclass
class Contestant:
    """
    qemu: by whose own migration; None: godwit's. tls: 'x509', 'psk' or None. priority: GnuTLS's, for QEMU; None: the library's own.
    back: the receiver's options before the old image.
    """
    qemu: str = None
    channels: int = 0
    packing: str = None
    tls: str = None
    priority: str = None
    back: list = None


def contestants(quick):
    """name -> contestant. 'godwit' is --compress auto."""
    found = {AUTO: Contestant()}
    for how in OWN:
        found[f'godwit {how}'] = Contestant(packing=how)
    for tls in ('x509', 'psk'):
        found[f'godwit {tls}'] = Contestant(tls=tls)
    for name, options in BACK.items():
        found[name] = Contestant(back=options)
    for qemu in (emulators.DEBIAN,) if quick else (emulators.DEBIAN, emulators.NEWEST):
        name = emulators.version(qemu)
        newest = qemu == emulators.NEWEST
        for n in (2,) if quick else (2, 4, 8):
            found[f'{name} multifd {n}'] = Contestant(qemu, n)
            for packing in ('zstd', 'zlib'):
                found[f'{name} {packing} {n}'] = Contestant(qemu, n, packing)
            if not newest and not quick:
                found[f'{name} compress {n}'] = Contestant(qemu, n, 'compress')
        if newest or quick:
            for tls in ('x509', 'psk'):
                found[f'{name} {tls}'] = Contestant(qemu, 2, None, tls, PRIORITY)
                if not quick:
                    found[f'{name} default {tls}'] = Contestant(qemu, 2, None, tls)
    return found


class Keys:
    """Credentials for both kinds, in the form that both take."""

    def __init__(self, directory):
        self.x509 = credentials.Authority(f'{directory}/ca', 'bench').directory(f'{directory}/x509', 'IP:127.0.0.1,IP:10.78.0.2')
        os.makedirs(f'{directory}/psk')
        self.psk = credentials.shared_key(f'{directory}/psk/keys.psk', 'qemu')

    def options(self, tls):
        return {None: ('--insecure',), 'x509': ('--tls-creds', self.x509), 'psk': ('--tls-psk', self.psk)}[tls]

    def objects(self, tls, priority):
        """For QEMU: side -> object."""
        if not tls:
            return None
        more = {'priority': priority} if priority else {}
        ends = {'src': 'client', 'dst': 'server'}
        if tls == 'x509':
            return {side: {'qom-type': 'tls-creds-x509', 'id': 'tls0', 'dir': self.x509, 'endpoint': end, 'verify-peer': True, **more}
                    for side, end in ends.items()}
        return {side: {'qom-type': 'tls-creds-psk', 'id': 'tls0', 'dir': os.path.dirname(self.psk), 'endpoint': end, **more}
                for side, end in ends.items()}


def migrate(contestant, net, work, ram, mib, keys):
    port = next(bench.PORTS)
    with rig.Pair(net, work, mib, *ram, contestant.qemu or emulators.DEBIAN) as pair:
        bench.touch(ram[1], mib)
        if contestant.qemu:
            return rig.by_qemu(pair, port, contestant.channels, contestant.packing, keys.objects(contestant.tls, contestant.priority))
        how = ('--compress', contestant.packing) if contestant.packing else ()
        back = [*contestant.back, f'{work}/old'] if contestant.back else ()
        return rig.by_godwit(pair, port, how, keys.options(contestant.tls), back)


def own(names):
    return [name for name in names if name.startswith('godwit ') and name.split()[1] in OWN]


def foreign(names, tls=()):
    """QEMU's, in the clear, or those over one of tls."""
    return [name for name in names if name.startswith('QEMU') and
            (name.endswith(tls) if tls else not name.endswith(('x509', 'psk')))]


def show(results, where, link, samples):
    """As many rows as there are questions."""
    gib = {name: [s.seconds for s in v] for name, v in samples.items()}
    sent = {name: [s.sent / rig.MIB for s in v] for name, v in samples.items()}
    cpu = {name: [s.cpu_send + s.cpu_receive for s in v] for name, v in samples.items()}
    faster, fewer = GOALS.get(link, (None, None))

    def part(values, names, first=AUTO):
        return {AUTO: values[first], **{name: values[name] for name in names if name != first}}

    theirs, ours = foreign(samples), own(samples)
    if theirs:
        results.add(f'packed: {where}: time', 's', part(gib, ours + theirs), faster or 0, theirs)
        results.add(f'packed: {where}: bytes', 'MiB', part(sent, ours + theirs), fewer or 0, theirs)
        results.add(f'packed: {where}: CPU', 's', part(cpu, ours + theirs), CPU_GOAL if link == '1G' else 0, theirs)
    if 'godwit off' in samples:
        idle = where.startswith(images.IDLE) and link == '1G'
        results.add(f'packed: {where}: auto beside off', 's', part(gib, ['godwit off']), IDLE_GOALS[0] if idle else OFF_GOAL)
        if idle:
            results.add(f'packed: {where}: auto beside off, bytes', 'MiB', part(sent, ['godwit off']), IDLE_GOALS[1])
    if len(ours) > 1:
        results.add(f'packed: {where}: auto beside the best codec', 's', part(gib, ours), FIXED_GOAL)
    zstd = [name for name in theirs if name.startswith(emulators.version(emulators.NEWEST)) and ' zstd ' in name]
    for name in BACK:
        if name in samples and zstd and link == '1G':
            results.add(f'packed: {where}: {name}, time', 's', part(gib, zstd, name), BACK_GOALS[0], zstd)
            results.add(f'packed: {where}: {name}, bytes', 'MiB', part(sent, zstd, name), BACK_GOALS[1], zstd)
    for tls, goal in (('x509', X509_GOAL), ('psk', PSK_GOAL)):
        mine, rivals = f'godwit {tls}', foreign(samples, (tls,))
        if mine in samples and rivals and link == 'loopback':
            results.add(f'packed: {where}: TLS, {tls}', 's', part(gib, rivals, mine), goal, rivals)
            results.add(f'packed: {where}: TLS, {tls}, CPU', 's', part(cpu, rivals, mine), TLS_CPU_GOAL, rivals)
        if mine in samples and link in ('1G', '10G'):
            results.add(f'packed: {where}: TLS, {tls}, beside none', 's', {AUTO: gib[mine], 'in the clear': gib[AUTO]}, PLAIN_GOAL)


def bench_link(link, args, found, results):
    draw = random.Random(args.runs)
    mib = args.mib // SLOW if link == '100M' else args.mib
    with bench.ram_files(args.ram, mib, False) as (work, ram), rig.Net(*LINKS[link]) as net:
        keys = Keys(work)
        for image in args.image:
            samples = {name: [] for name in found}
            images.write(image, ram[0], mib)
            if any(c.back for c in found.values()):
                images.leave_and_go_on(ram[0], f'{work}/old')
            for _ in range(args.runs):
                for name in draw.sample(list(found), len(found)):
                    samples[name].append(migrate(found[name], net, work, ram, mib, keys))
            show(results, f'{image}, {mib} MiB, {net.name}', link, samples)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--quick', action='store_true', help="128 MiB, 3 runs, 1 Gb/s, one image, Debian 12's QEMU with 2 channels")
    parser.add_argument('--mib', type=int, default=512)
    parser.add_argument('--runs', type=int, default=5)
    parser.add_argument('--link', choices=LINKS, action='append', help='only this one; may be given again')
    parser.add_argument('--image', choices=[*images.REAL, 'random', images.IDLE], action='append', help='only this one; may be given again')
    parser.add_argument('--only', action='append', metavar='WORD', help='only contestants with it in their name, and godwit')
    parser.add_argument('--ram', default='/dev/shm', metavar='DIR', help='the tmpfs for the RAM of both (%(default)s)')
    args = parser.parse_args()
    args.link = args.link or (['1G'] if args.quick else list(LINKS))
    args.image = args.image or (['files'] if args.quick else [*images.REAL, 'random'])
    if args.quick:
        args.mib, args.runs = 128, 3
    found = {name: c for name, c in contestants(args.quick).items()
             if name == AUTO or not args.only or any(word in name for word in args.only)}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))	# leaves no namespace and no QEMU behind
    results = bench.Results()
    for link in args.link:
        bench_link(link, args, found, results)
        bench_json.add(results.entries)
    return 0


if __name__ == '__main__':
    sys.exit(main())
