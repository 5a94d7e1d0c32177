# SPDX-License-Identifier: GPL-2.0-only
"""No option: a guest that idles, one that is busy and one that writes faster than the link all arrive, each in the way that it needs."""
import re

import godwit
import lab
import pytest

pytestmark = pytest.mark.usefixtures('module')
MBIT = 5	# slower than any host's CPUs, and than its guests: so the link decides on packing and on post-copy


def move(directory, append, during=lambda run: None):
    """
    The one option is a limit for the downtime that an emulated host can keep: its device state alone may take longer than the
    300 ms of the default. What the sender foretells is within it; what this host makes of that is printed, and decides nothing.
    """
    src = lab.Qemu('src', directory=directory, append=append).wait_ticks(2)
    dst = godwit.destination(src)
    lab.link('rate', MBIT)
    run = godwit.Run(src, dst, verify=False)
    during(run)
    report = run.wait()
    godwit.proof(src, dst)
    limit = int(godwit.DOWNTIME)
    print(f'\n  downtime {report["downtime"]:.0f} ms, foretold {report["expected-downtime"]:.0f}, limit {limit}, {report["blackout"]}')
    assert report['downtime-limit'] == limit >= report['expected-downtime']
    assert not report['throttle']
    return run, report


@pytest.mark.compared
@pytest.mark.parametrize('append', ['start=16 size=64 touch=4', 'start=16 size=16 touch=8 rate=60'], ids=['idle', 'busy'])
def test_rounds_help(directory, append):
    """The busy one needs several: in the first one it writes what would stop it for longer than the limit."""
    run, report = move(directory, append)
    assert 'are still to come' not in run.receive.said and not report['postcopy']['owed']


@pytest.mark.compared
def test_faster_than_the_link(directory):
    """
    Rounds alone would never end. It stands still for less than the link takes for its RAM: from the stop on that is a time in
    which an emulated host that is overrun has loaded the device state, too.
    """
    def crawl(run):
        run.wait_stopped(300)
        lab.link('rate', 1)
    run, report = move(directory, 'start=16 size=4 touch=4 rate=6000 random=1', crawl)
    assert 'rounds do not help' in run.send.said and re.search(r' [1-9]\d* units of its RAM are still to come', run.receive.said)
    owed_ms = report['postcopy']['owed'] * 8 / 1000	# at a megabit a second
    assert report['downtime-limit'] < owed_ms / MBIT and report['downtime'] < owed_ms, (report['downtime'], owed_ms)
