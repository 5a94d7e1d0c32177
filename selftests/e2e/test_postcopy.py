# SPDX-License-Identifier: GPL-2.0-only
"""Guests that run at the destination before their RAM is there: each page is checked by the guest, when it touches it and at the end."""
import dataclasses
import json
import os
import re
import time

import godwit
import lab
import pytest
import relay
import wire
from kinds import KINDS
from ours import proved

pytestmark = pytest.mark.usefixtures('module')
LAZY = ('--postcopy', 'on')


def source(directory, append, **more):
    return lab.Qemu('src', directory=directory, append=append, **more).wait_ticks(2)


def came_after(run):
    """(units that came after the guest, faults, of them asked for, zero), as the receiver counts."""
    m = re.search(r'all RAM is here: (\d+) units came after the guest, (\d+) faults, (\d+) of them asked for, (\d+) zero',
                  run.receive.said)
    assert m, run.receive.said
    return tuple(map(int, m.groups()))


def migrate(src, dst, *options, during=lambda run: None):
    run = godwit.Run(src, dst, *LAZY, *options, verify=False)
    during(run)
    report = run.wait()
    units, faults, asked, zeros = came_after(run)
    godwit.proof(src, dst)
    assert asked + zeros <= faults and asked <= units
    told = report['postcopy']
    assert (told['faults'], told['requests'], told['zero-faults']) == (faults, asked, zeros)
    assert told['latency-mean'] <= told['latency-worst'] >= told['latency-p99'] and told['time'] > 0
    assert (told['latency-mean'] > 0) == (asked > 0)
    return report, units, asked


def test_faster_than_the_link(directory):
    """Also where the host lets it do a tenth of what it wants to: it stands still for less than its RAM would take."""
    src = source(directory, 'start=16 size=16 touch=16 rate=6000 random=1')
    dst = godwit.destination(src)
    # A check asks for nothing that would be in the way.
    receive = godwit.listen(dst)
    p = godwit.Process('src', 'check', '--json', '--qmp', src.main_qmp, '--to', godwit.AT, '--probe', '0', '--postcopy', 'on')
    p.wait()
    row = next(row for row in json.loads(p.said)['rows'] if row['check'] == 'post-copy')
    assert row['result'] == 'ok' and 'would cost the guest' in row['text'], row
    receive.kill().wait()
    lab.link('rate', 10)

    def slower(run):
        """Its device state takes an emulated host that is overrun a while, too."""
        run.wait_stopped()
        lab.link('rate', 4)
    report, units, asked = migrate(src, dst, during=slower)
    assert units > 1000 and asked > 10
    # At 4 Mbit/s, in ms.
    assert report['downtime'] < report['postcopy']['owed'] * 8 / 4000
    assert len(report['rounds']) == 2


@pytest.mark.parametrize('options', [(), ('--reconnect', '60')], ids=['at once', 'in parts'])
def test_written_again_is_not_sent_before(directory, options):
    """What the guest writes before the round has come to it follows it anyway, so the round leaves it out."""
    pages = 24 << 8
    src = source(directory, 'start=16 size=24 touch=24 rate=6000 random=1')
    dst = godwit.destination(src)
    lab.link('rate', 1)
    run = godwit.Run(src, dst, *LAZY, *options, verify=False)
    run.send.wait_round(1)
    # At most one page in seven has been left alone by then, and the round takes 200 s.
    begin = src.counters['pages']
    while src.counters['pages'] < begin + 2 * pages:
        src.wait_ticks(1)
    lab.link('rate', 200)
    report = run.wait()
    units, _, _, _ = came_after(run)
    godwit.proof(src, dst)
    first = report['rounds'][0]
    assert first['normal'] < pages * 2 / 3 and units > pages / 2, (first, units)


def test_auto(directory):
    """Rounds do not help, so it is chosen, before they are used up: without any option for that."""
    src = source(directory, 'start=16 size=2 touch=2 rate=6000 random=1')
    dst = godwit.destination(src)
    lab.link('rate', 2)
    # What the guest writes takes 8.5 s, and what a busy host takes for the rest is less than the limit.
    run = godwit.Run(src, dst, '--downtime-limit', '5000', '--compress', 'off', '--delta', 'off', verify=False)
    report = run.wait()
    units, _, _, _ = came_after(run)
    godwit.proof(src, dst)
    assert 'rounds do not help' in run.send.said
    assert units > 200 and report['expected-downtime'] < 5000
    assert 3 <= len(report['rounds']) < 30


def test_auto_where_rounds_help(directory):
    src = source(directory, 'start=16 size=16 touch=16 rate=50')
    dst = godwit.destination(src)
    run = godwit.Run(src, dst, '--postcopy', 'auto', verify=False)
    run.wait()
    godwit.proof(src, dst)
    assert 'are still to come' not in run.receive.said


def test_now(directory):
    """In the first round, which would take a minute: it is cut."""
    src = source(directory, 'start=16 size=40 touch=40 rate=2000 random=1')
    dst = godwit.destination(src)
    lab.link('rate', 5)
    run = godwit.Run(src, dst, '--postcopy', 'auto', verify=False)
    run.send.wait_round(1)
    lab.call(godwit.GODWIT, 'set', '--qmp', src.main_qmp, '--postcopy', 'now')
    run.receive.wait_for('are still to come')
    lab.link('rate', 200)
    report = run.wait()
    assert len(report['rounds']) == 2
    units, _, _, _ = came_after(run)
    assert units > 2000
    godwit.proof(src, dst)


@pytest.mark.compared	# or it would not be known that save mode is needed
@pytest.mark.parametrize('began,status,said', [('auto', 'ram-private', 'is private to its QEMU'), ('off', 'vm-state', 'began with')])
def test_now_is_refused(directory, began, status, said):
    """In words, and the migration goes on as it was."""
    src = source(directory, 'start=16 size=16 touch=16 rate=50', ram=[KINDS['shared_file']('src')])
    dst = godwit.destination(src, ram=[KINDS['anonymous']('dst')])
    lab.link('rate', 20)
    run = godwit.Run(src, dst, '--postcopy', began, verify=False)
    run.send.wait_round(1)
    asked = godwit.Process('src', 'set', '--qmp', src.main_qmp, '--postcopy', 'now')
    assert asked.wait() == godwit.EXIT[status] and said in asked.said, asked.said
    lab.link('clear')
    run.wait()
    godwit.proof(src, dst, stopped='paused')


@pytest.mark.parametrize('mode', ['migrate', 'save'])
def test_nothing_was_sent_before(directory, mode):
    """Stopped first: all of the guest's RAM is owed, what it runs on as well."""
    src = source(directory, 'start=16 size=32 touch=24 rate=500 random=1 rng=20', devices=lab.rng())
    dst = godwit.destination(src, devices=lab.rng())
    lab.link('rate', 20)	# slower than any host asks
    run = godwit.Run(src, dst, '--pause', *LAZY, '--device-state', mode, verify=False)
    run.wait()
    units, _, asked, _ = came_after(run)
    assert units > 24 << 8 and asked > 10
    godwit.proof(src, dst, stopped='paused' if mode == 'save' else 'postmigrate')


@pytest.fixture
def scattered(directory):
    """A guest that writes a page here and one there: each would be a call of the receiver's kernel in the downtime."""
    src = source(directory, 'start=16 size=64 touch=64 rate=400 random=1')
    dst = godwit.destination(src)
    lab.link('rate', 40)
    return src, dst


# Slowly at first: on a host of any speed the guest is to write enough in the round.
SCATTERING = ('--delta', 'on', '--bandwidth', '1')


def scatter(run):
    enough = run.src.counters['pages'] + 3000
    while run.src.counters['pages'] < enough:
        run.src.wait_ticks(1)
        assert run.send.poll() is None and run.send.round() < 2, run.send.said
    godwit.control(run.send.pid, execute='set', arguments={'bandwidth': 0})


def test_most_is_emptied_before_the_stop(scattered):
    report, *_ = migrate(*scattered, *SCATTERING, during=scatter)
    told = report['postcopy']
    assert told['early'] * 2 > told['owed'] and told['early'] > 1024 << 12, told


@pytest.mark.parametrize('frame', [(wire.OWED, 1), (wire.SWITCHOVER, 3), (wire.SWITCHOVER, 4)], ids=['named', 'named, all', 'emptied'])
def test_lost_while_it_is_emptied(scattered, frame):
    """
    The rounds that follow bring it, whole, as the destination may have nothing that it could change, and what was named before
    is not emptied any more.
    """
    with relay.Losing(godwit.TO, rate=5 << 20, drop=[frame]) as between:
        run = godwit.Run(*scattered, *LAZY, *SCATTERING, '--reconnect', '30', verify=False, to=between.address)
        scatter(run)
        report = run.wait()
        came_after(run)
        assert report['reconnects'] == 1 and not between.drop
        godwit.proof(*scattered)


def test_an_idle_guest(directory):
    """Little is owed, and what was never touched stays a hole."""
    src = source(directory, 'start=16 size=64 touch=24', ram=256)
    before = lab.allocated_bytes(src.ram[0].path)
    dst = godwit.destination(src)
    migrate(src, dst)
    assert lab.allocated_bytes(dst.ram[0].path) <= before + (1 << 20)


@pytest.mark.parametrize('options', [(), ('--delta', 'on')], ids=['', 'delta'])
def test_hugetlbfs(directory, options):
    """Units of 2 MiB, of which each is made at once: also where the sender knows of most of it that it is as it was sent."""
    mount = '/dev/hugepages-2M'
    with lab.mounted('hugetlbfs', 'pagesize=2M', mount), godwit.guests():
        src = source(directory, 'start=16 size=32 touch=32 rate=500 random=1 rng=20', ram=[lab.Ram(64, f'{mount}/src')], devices=lab.rng())
        dst = godwit.destination(src, devices=lab.rng())
        lab.link('rate', 200)
        report, units, _ = migrate(src, dst, *options)
        assert units >= 16
        assert not report['ram']['delta'] and not report['ram']['unchanged'] and not report['postcopy']['early']


def test_a_killed_sender(directory):
    """What has not come never comes, and no page is zeros for it: the guest waits, as long as its QEMU lives."""
    src = source(directory, 'start=16 size=16 touch=16 rate=6000 random=1')
    dst = godwit.destination(src)
    lab.link('rate', 20)
    run = godwit.Run(src, dst, *LAZY, verify=False, receive_options=['--recover-timeout', '5'])
    run.wait_stopped()
    lab.link('rate', 2)	# it lacks them still, however late it is
    run.receive.wait_for('are still to come')
    run.send.kill().wait()
    status = run.receive.wait()
    assert status == godwit.EXIT['incomplete'], run.receive.said
    assert 'of RAM that the source still has: end neither QEMU' in run.receive.said
    # Neither to a third host, nor for all of it at the next question.
    on = godwit.Process('dst', 'send', '--qmp', dst.main_qmp, '127.0.0.1:4433')
    assert on.wait() == godwit.EXIT['busy'] and 'may lack RAM that only its source has' in on.said, on.said
    answers = godwit.listen(godwit.destination(src, 'dst2'))
    for _ in range(2):
        asked = godwit.Process('src', 'resolve', '--qmp', src.main_qmp, '--resolve-timeout', '2')
        assert asked.wait() == godwit.EXIT['incomplete'] and 'may lack RAM that is only here' in asked.said, asked.said
    answers.kill().wait()
    time.sleep(3)
    proved(not dst.errors, f'the guest has read what it never wrote: {dst.complaints}')
    proved(src.query_status() == 'postmigrate', 'the source runs')
    dst.kill()


def owing(directory, *options):
    """A migration whose guest runs at the destination, and lacks some seconds' worth of its RAM."""
    src = source(directory, 'start=16 size=16 touch=16 rate=6000 random=1')
    dst = godwit.destination(src)
    lab.link('rate', 10)
    run = godwit.Run(src, dst, *LAZY, *options, verify=False)
    run.receive.wait_for('are still to come')
    lab.link('rate', 1)	# it lacks them still, however late it is
    return run


def test_too_late_to_cancel(directory):
    """It would cost the guest: refused, and the rest comes."""
    run = owing(directory)
    run.send.wait_until(lambda: godwit.control(run.send.pid, execute='query')['phase'] == 'post-copy', 'post-copy', 60)
    asked = godwit.Process('src', 'cancel', '--qmp', run.src.main_qmp)
    assert asked.wait() == godwit.EXIT['no-migration'], asked.said
    assert 'too late to cancel: the guest runs at the destination, and lacks RAM' in asked.said, asked.said
    lab.link('clear')
    run.wait()
    came_after(run)
    godwit.proof(run.src, run.dst)


def test_destination_qemu_killed(directory):
    """
    What cannot be survived: the receiver says so, to its sender as well, which looks for no other one. As the guest has run there,
    with all that it did, it does not go on at the source.
    """
    run = owing(directory, '--recover-timeout', '600')
    run.dst.kill()
    ends = [p.wait() for p in (run.send, run.receive)]
    assert ends == [godwit.EXIT['guest-lost'], godwit.EXIT['vm-gone']], (ends, run.send.said, run.receive.said)
    assert 'the destination QEMU has exited before all of its RAM was there: the guest is lost' in run.receive.said, run.receive.said
    assert 'the guest is lost' in run.send.said and 'do not continue this QEMU' in run.send.said, run.send.said
    assert 'trying to connect again' not in run.send.said, run.send.said
    time.sleep(3)
    proved(run.src.query_status() == 'postmigrate', f'the source is {run.src.query_status()}')


def refused(src, dst, status, *said):
    run = godwit.Run(src, dst, *LAZY, verify=False)
    run.wait(status)
    for words in said:
        assert words in run.send.said, run.send.said
    godwit.unharmed(src)


@pytest.mark.compared
@pytest.mark.parametrize('kind,prealloc,status,said', [('anonymous', False, 'ram-private', 'is private to its QEMU'),
                                                       ('shared_file', True, 'vm-state', 'is preallocated'),
                                                       ('huge_tmpfs', False, 'vm-state', 'is in a tmpfs with huge pages')])
def test_refused(directory, kind, prealloc, status, said):
    mount = '/dev/shm-always'
    with lab.mounted('tmpfs', 'huge=always', mount), godwit.guests():
        src = source(directory, 'start=16 size=16 touch=8 rate=50', ram=[KINDS['shared_file']('src')])
        ram = lab.Ram(64, f'{mount}/dst', align='2M') if kind == 'huge_tmpfs' else KINDS[kind]('dst')
        dst = godwit.destination(src, ram=[dataclasses.replace(ram, prealloc=prealloc)])
        refused(src, dst, status, said, 'migrate without post-copy')


@pytest.mark.native
def test_without_the_module(directory):
    """The source needs none with --pause. The destination does."""
    if lab.IN_LAB:
        godwit.unload()
    src = lab.Qemu('src', directory=directory, append='start=16 size=16 touch=8 rate=50').wait_ticks(1)
    run = godwit.Run(src, godwit.destination(src), '--pause', *LAZY, verify=False)
    run.never_arrives('no-module')
    assert 'the receiver cannot do post-copy' in run.send.said and os.path.basename('/dev/godwit') in run.send.said
    src.wait_ticks(1).check()
    if lab.IN_LAB:
        godwit.load()
