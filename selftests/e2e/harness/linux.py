# SPDX-License-Identifier: GPL-2.0-only
"""A guest of Debian's kernel (guest/linux), for devices that the pattern guest has no driver for."""
import time

import lab
from ours import proved


def start(directory, append='', **more):
    kernel, initrd = lab.call(f'{lab.TREE}/selftests/guest/linux').split()
    return lab.Qemu('src', directory=directory, kernel=kernel, initrd=initrd, append=f'console=ttyS0 quiet {append}',
                    **{'ram': 192, **more}).wait_ticks(2, timeout=140)


def swept(dst, since):
    """The guest has looked at all it wrote once more. since: its counters before it was moved"""
    dst.wait_ticks(1)
    while dst.counters['sweeps'] < since['sweeps'] + 2:
        dst.wait_ticks(1)
    return dst.no_errors()


def proof(src, dst, stopped='postmigrate'):
    before = src.no_errors().counters
    proved(swept(dst, before).ticks > before['tick'], 'its own clock does not go on')
    proved(src.query_status() == stopped and src.ticks == before['tick'], 'it runs on at the source as well')


def give_back(vm, mib):
    """By the balloon, until so much is left."""
    vm.qmp('balloon', value=mib << 20)
    end = time.monotonic() + 60
    while vm.qmp('query-balloon')['actual'] > mib << 20:
        assert time.monotonic() < end, 'the balloon does not grow'
        time.sleep(0.1)
