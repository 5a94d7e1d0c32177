# SPDX-License-Identifier: GPL-2.0-only
"""
A network function: a guest on huge pages that forwards frames between two vhost-user ports moves from one Open vSwitch with
DPDK to another. The switches write what arrives into its RAM, which they map themselves.
"""
import contextlib

import forwarding
import godwit
import lab
import pytest
from ours import proved

pytestmark = [pytest.mark.usefixtures('module'), pytest.mark.together]


@pytest.fixture(scope='module')
def hosts():
    """Two hosts, each with a switch: to start them takes longer than a test."""
    with forwarding.hosts(f'{lab.B}/e2e/test_forwarding') as switches:
        yield switches


@pytest.fixture
def src(hosts, directory):
    """It forwards."""
    vm = forwarding.source(directory, hosts['src'])
    godwit.note(vm)
    return vm


def twin(src, hosts, name='dst'):
    return godwit.destination(src, name, devices=forwarding.devices(hosts['dst']))


def goes_on(src, dst, traffic):
    """At the destination, and nothing that came through was another frame than was sent."""
    traffic.wait_flowing()
    godwit.proof(src, dst)
    proved(dst.counters['fwd'] > src.counters['fwd'], 'the guest forwards no more')


def unchanged(traffic):
    """Where hosts are busy, queues of several CPUs let frames overtake each other (veth's backlog): that is no migration's doing."""
    for way in ('ab', 'ba'):
        wrong = {what: traffic.report[way][what] for what in ('wrong', 'twice')}
        proved(not any(wrong.values()), 'frames were changed:', way, wrong)


def went_as_changed(report):
    """Of huge pages that the switch writes. Late rounds may leave nothing to the last one."""
    later = {kind: sum(r[kind] for r in report['rounds'][1:]) for kind in ('delta', 'unchanged', 'normal')}
    assert later['delta'] + later['unchanged'] > later['normal'] / 2, f'huge pages went whole: {later}'


def test_it_moves(hosts, src):
    """
    The proof fails without the row that sees the switch's writes. After that refusal the guest forwards as before, and the
    switch no longer logs what it writes. Then it moves. The huge pages that the switch writes go as what has changed.
    """
    with forwarding.Traffic() as traffic:
        traffic.wait_flowing()
        with godwit.row_off('mapping'):
            godwit.Run(src, twin(src, hosts)).never_arrives('verify')
        traffic.wait_flowing()
        proved(not hosts['src'].logs_writes(), 'the switch still logs writes:', hosts['src'].logs_writes())
        assert hosts['src'].have_logged_writes(), 'the switch was never told to log writes'
        dst = twin(src, hosts, 'dst2')
        # Packed pages have hashes anyhow.
        report = godwit.Run(src, dst, '--compress', 'off').wait()
        assert report['verified']
        went_as_changed(report)
        goes_on(src, dst, traffic)
    unchanged(traffic)


@contextlib.contextmanager
def guests_on(hosts, *mount):
    """On huge pages of a mount of their own, which is gone when the switches have let go of it."""
    with lab.mounted(*mount):
        try:
            with godwit.guests():
                yield mount[-1]
        finally:
            for switch in hosts.values():
                switch.wait_unmapped(mount[-1])


MOUNTS = {'1G': ('hugetlbfs', 'pagesize=1G', '/dev/hugepages-1G'), 'tmpfs': ('tmpfs', 'huge=always', '/dev/shm-huge')}


@pytest.mark.parametrize('kind,mib,align', [('1G', 1024, ''), ('tmpfs', forwarding.MIB, '2M')], ids=list(MOUNTS))
def test_other_huge_pages(hosts, directory, kind, mib, align):
    """One page of 1 GiB that is all of the RAM, and pages that a tmpfs makes huge: what has changed goes, of them, too."""
    # An emulated host may take a minute to read 1 GiB, another to clear it, and two to hash it.
    patience = ['--peer-timeout', '300']
    with guests_on(hosts, *MOUNTS[kind]) as mount:
        src = forwarding.source(directory, hosts['src'], mib=mib, mount=mount, align=align)
        mapped = hosts['src'].mapped(mount)
        assert mapped and all(one['KernelPageSize'] == 1 << 20 if kind == '1G' else one['ShmemPmdMapped'] for one in mapped), mapped
        with forwarding.Traffic() as traffic:
            traffic.wait_flowing()
            dst = twin(src, hosts)
            run = godwit.Run(src, dst, '--compress', 'off', '--downtime-limit', '60000', *patience, receive_options=patience)
            run.send.wait(360)
            report = run.wait()
            assert report['verified']
            went_as_changed(report)
            goes_on(src, dst, traffic)
        unchanged(traffic)


def test_several_queues(hosts, directory):
    """Two queue pairs a port, and buffers that may be merged; what comes in by one pair goes out by the other."""
    src = forwarding.source(directory, hosts['src'], pairs=2)
    godwit.note(src)
    with forwarding.Traffic() as traffic:
        traffic.wait_flowing()
        dst = godwit.destination(src, devices=forwarding.devices(hosts['dst'], pairs=2))
        assert godwit.Run(src, dst).wait()['verified']
        hosts['dst'].wait_connected(pairs=2)
        goes_on(src, dst, traffic)
    unchanged(traffic)


def in_a_round(src, dst):
    """A migration that is in its rounds until end_soon(), whatever the guest does."""
    lab.link('rate', 20)
    run = godwit.Run(src, dst, '--downtime-limit', '1', '--max-rounds', '1000', '--postcopy', 'off')
    run.send.wait_round(2)
    return run


def end_soon(run):
    lab.link('clear')
    godwit.control(run.send.pid, execute='set', arguments={'downtime-limit': int(godwit.DOWNTIME)})
    return run.wait()


@contextlib.contextmanager
def without_its_switch(hosts):
    """Afterwards there is another."""
    hosts['src'].kill()
    try:
        yield
    finally:
        hosts['src'].start().ready()


def test_its_switch_is_killed(hosts, src):
    """In a round. What it wrote last counts as written; the guest arrives with its links up, and forwards there."""
    try:
        with forwarding.Traffic() as traffic:
            traffic.wait_flowing()
            dst = twin(src, hosts)
            run = in_a_round(src, dst)
            hosts['src'].kill()
            while src.wait_ticks(1).counters['links']:
                assert run.send.poll() is None, 'the migration was over before that'
            assert end_soon(run)['verified']
            proved(src.counters['links'] == 0 and dst.wait_ticks().counters['links'] == 2, 'links:', src.counters, dst.counters)
            goes_on(src, dst, traffic)
        unchanged(traffic)
    finally:
        hosts['src'].start().ready()


def test_its_switch_was_killed(hosts, src):
    """A migration that ends in the blackout leaves the links to QEMU, which took them down, and takes them up with a new switch."""
    with forwarding.Traffic() as traffic:
        traffic.wait_flowing()
        with without_its_switch(hosts):
            run = godwit.start_in('paused', (src, twin(src, hosts)))
            run.receive.kill()
            run.send.wait()
            godwit.unharmed(src)
            proved(src.counters['links'] == 0, 'its links are up')
        hosts['src'].wait_connected()
        traffic.wait_flowing()
        proved(src.wait_ticks().counters['links'] == 2, 'its links stay down')
    unchanged(traffic)


def test_it_is_refused_without_its_switch(hosts, src):
    """
    QEMU's migration has completed when the destination refuses its device state. The guest goes on here, and its links are as
    QEMU had them; a switch that comes back takes them up.
    """
    with forwarding.Traffic() as traffic:
        traffic.wait_flowing()
        with without_its_switch(hosts):
            other = [word.replace('disable-legacy=off', 'disable-legacy=on') for word in forwarding.devices(hosts['dst'])]
            dst = godwit.destination(src, devices=other)
            godwit.Run(src, dst, '--device-state', 'migrate').wait('device-state')
            godwit.unharmed(src)
            proved(src.counters['links'] == 0, 'its links are up')
        hosts['src'].wait_connected()
        traffic.wait_flowing()
    unchanged(traffic)


def test_its_switch_begins_anew(hosts, src):
    """In a round: another process maps the guest's RAM from then on."""
    with forwarding.Traffic() as traffic:
        traffic.wait_flowing()
        dst = twin(src, hosts)
        run = in_a_round(src, dst)
        hosts['src'].kill().start().ready().wait_connected()
        traffic.wait_flowing()
        assert run.send.poll() is None, 'the migration was over before that'
        assert end_soon(run)['verified']
        goes_on(src, dst, traffic)
    unchanged(traffic)
