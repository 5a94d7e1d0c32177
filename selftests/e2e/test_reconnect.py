# SPDX-License-Identifier: GPL-2.0-only
"""
--reconnect: the link is lost while RAM is on its way, and comes back. Most of it two QEMUs without KVM show as well, with --pause,
as RAM at rest goes in the same rounds then; in the lab the guest runs, and writes. --verify finds each page that is missing.
"""
import os
import time

import godwit
import lab
import pytest
import relay
import sources
import wire
from kinds import KINDS

APPEND = 'start=16 size=16 touch=16 rate=50'
HOW = [] if lab.IN_LAB else ['--pause']
TO = godwit.TO
# Seconds: how long both ends try to get together again where that is not what is tested, and what no host is late by.
PATIENT, LATE = 600, 60
SLOW = 256 << 10	# bytes per second: the first ACK takes many seconds
native = pytest.mark.native
running = pytest.mark.usefixtures('module')


@pytest.fixture
def src(directory):
    return sources.plain(directory, APPEND)


@pytest.fixture
def pair(src):
    return src, godwit.destination(src)


def migrate(pair, between, seconds=PATIENT, *options, receive_options=(), timeout=30):
    return godwit.Run(*pair, *HOW, '--reconnect', str(seconds), '--peer-timeout', str(timeout), *options, to=between.address,
                      receive_options=['--peer-timeout', str(timeout), '--resolve-timeout', '1', *receive_options])


def in_a_round(between, run):
    """The receiver has acknowledged a part, and has some of the next."""
    between.wait_acknowledged(run, 2 << 20)


def arrived(pair, run, most=1):
    report = run.wait()
    times = report['reconnects']
    assert 1 <= times <= most and report['verified'], run.send.said
    assert 'connected again' in run.send.said and 'connected again' in run.receive.said
    assert f'Reconnected       {times:10d}' in run.send.said
    godwit.proof(*pair, stopped='paused' if report['device-state-saved'] else 'postmigrate')


@native
@pytest.mark.parametrize('mode', ['migrate', 'save'])
@pytest.mark.parametrize('which', [slice(None), slice(1), slice(1, 2)], ids=['all', 'control', 'stream'])
def test_reset(pair, which, mode):
    """Of one connection, or of all of them."""
    with relay.Losing(TO) as between:
        run = migrate(pair, between, PATIENT, '--device-state', mode, '--streams', '2')
        in_a_round(between, run)
        between.lose(which)
        arrived(pair, run)


@native
def test_the_link_goes_silent(pair):
    """
    Longer than both ends wait for a sign of life. They give up the connections, and find each other on new ones; once more where
    this host holds up an end for as long.
    """
    with relay.Losing(TO) as between:
        run = migrate(pair, between, timeout=8)
        in_a_round(between, run)
        between.fall(silently=True)
        run.send.wait_for('trying to connect again')
        run.receive.wait_for(f'waiting {PATIENT} s')
        assert run.send.poll() is None and run.receive.poll() is None
        between.rise()
        arrived(pair, run, most=9)


@native
def test_lost_again_and_again(pair):
    """Also while the sender connects again: its RECONNECT, the answer, the streams, and the end of the first round after that."""
    with relay.Losing(TO, drop=[]) as between:
        run = migrate(pair, between)
        in_a_round(between, run)
        for kind in (wire.RECONNECT, wire.STREAMS, wire.JOIN, wire.ROUND):
            between.drop.add(kind)
            between.lose()
            between.wait(lambda kind=kind: kind not in between.drop)
        between.wait_ram(1 << 20)
        assert run.wait()['reconnects'] >= 2, run.send.said
        godwit.proof(*pair)


@native
def test_the_answer_is_lost(pair):
    """The receiver has heard the sender, which does not know: it must not take for granted that the sender knows what to repeat."""
    with relay.Losing(TO) as between:
        run = migrate(pair, between)
        in_a_round(between, run)
        seen = []

        def drop_the_answer(a, _):
            seen.append(a)
            if len(seen) == 2:	# of the receiver: the sender's is passed on
                between.lose()
        between.at_head[wire.RECONNECT] = drop_the_answer
        between.lose()
        between.wait(lambda: len(seen) >= 4)
        arrived(pair, run)


def firmware(vm):
    """What it has below 4 GiB."""
    path = f'{vm.run}/firmware'
    vm.qmp('pmemsave', val=(1 << 32) - (256 << 10), size=256 << 10, filename=path)
    with open(path, 'rb') as f:
        return f.read()


@native
@pytest.mark.parametrize('at', [(wire.PRIVATE, 2), wire.REUSE, (wire.REUSE, 2)], ids=['private', 'question', 'answer'])
def test_before_the_first_round(directory, at):
    """Nothing has shown yet that the private RAM has come, and none of it has: all of it goes again."""
    path = f'{directory}/bios'
    with open('/usr/share/seabios/bios-256k.bin', 'rb') as ours, open(path, 'wb') as f:
        f.write(os.urandom(4096) + ours.read()[4096:])	# there is no code yet
    src = sources.plain(directory, APPEND, extra=('-bios', path))
    dst = godwit.destination(src, extra=())
    assert firmware(src) != firmware(dst)
    with relay.Losing(TO, drop={at}, swallow={wire.PRIVATE}) as between:
        def lose(lose=between.lose):
            between.swallow.clear()
            lose()
        between.lose = lose
        run = migrate((src, dst), between, PATIENT, '--device-state', 'save')
        arrived((src, dst), run)
    assert run.wait()['device-state-saved'] and firmware(src) == firmware(dst)


@native
def test_before_an_ack_and_behind_an_answer(pair):
    """That a receiver has no file to reuse it says behind the private RAM, so that has come."""
    with relay.Losing(TO, rate=SLOW) as between:
        run = migrate(pair, between, PATIENT, '--device-state', 'save')
        between.wait_ram(64 << 10)
        assert not between.count.get(wire.ACK) and between.count[wire.REUSE] == 2
        between.rate = 16 << 20
        between.lose()
        report = run.wait()
    assert report['reconnects'] == 1 and report['verified']
    godwit.proof(*pair, stopped='paused')


@native
def test_an_older_receiver(pair):
    """It says that it cannot wait; the migration begins all the same, and the operator is told."""
    with relay.Losing(TO, offers=~wire.RECONNECTS, rate=64 << 20) as between:
        run = migrate(pair, between)
        assert run.wait()['reconnects'] == 0
        assert 'too old for --reconnect' in run.send.said and not between.count.get(wire.KEEP)
    godwit.proof(*pair)


@native
def test_another_sender_meanwhile(pair, directory):
    """One migration is what the receiver waits for: another sender is refused in words."""
    other = lab.Qemu('other', directory=directory, ram=64, append=APPEND).wait_ticks(1)
    with relay.Losing(TO) as between:
        run = migrate(pair, between)
        in_a_round(between, run)
        between.fall()
        run.receive.wait_for(f'waiting {PATIENT} s')
        send = godwit.Process('src', 'send', '--qmp', other.main_qmp, *HOW, godwit.AT)
        assert send.wait() == godwit.EXIT['peer-failed'] and 'busy' in send.said, send.said
        between.rise()
        arrived(pair, run)


@running
@pytest.mark.parametrize('which', [slice(None), slice(1), slice(2, 3)], ids=['all', 'control', 'stream'])
def test_running_reset(pair, which):
    """Twice, in the first round and in a later one, where the guest has written to what was lost."""
    with relay.Losing(TO) as between:
        run = migrate(pair, between, 30, '--streams', '2', '--downtime-limit', '1', '--max-rounds', '10000')
        in_a_round(between, run)
        between.lose(which)
        run.send.wait_for('connected again')
        run.send.wait_round(2)
        between.wait_ram(128 << 10)
        between.lose(which, latest=3)
        run.send.wait_for('connected again', times=2)
        godwit.control(run.send.pid, execute='set', arguments={'downtime-limit': 10000})
        assert run.wait()['reconnects'] == 2, run.send.said
        godwit.proof(*pair)


@running
@pytest.mark.parametrize('mode', ['migrate', 'save'])
def test_running_link_down(pair, mode):
    """Half a minute, in which the guest writes on. Both ends give up the connections meanwhile."""
    lab.link('rate', 10)
    run = godwit.Run(*pair, '--reconnect', '60', '--peer-timeout', '5', '--device-state', mode, receive_options=['--peer-timeout', '5'])
    run.send.wait_round(1)
    time.sleep(6)
    lab.link('down')
    time.sleep(32)
    lab.link('clear')
    arrived(pair, run)


@running
def test_running_private_ram(directory, qemu):
    """Anonymous memory at both ends, by addresses."""
    src = lab.Qemu('src', directory=directory, qemu=qemu, ram=[KINDS['anonymous']('src')], append=APPEND).wait_ticks(1)
    dst = godwit.destination(src, qemu=qemu, ram=[KINDS['anonymous']('dst')])
    with relay.Losing(TO) as between:
        run = migrate((src, dst), between)
        in_a_round(between, run)
        between.lose()
        arrived((src, dst), run)
