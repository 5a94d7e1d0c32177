# SPDX-License-Identifier: GPL-2.0-only
"""
--reconnect that does not help: the link stays lost or carries nothing, an end of it is killed, cancelled or lies, or what has broken
with it cannot go on. The source is as it was.
"""
import signal
import time

import godwit
import lab
import pytest
import relay
import wire
from test_reconnect import HOW, LATE, PATIENT, SLOW, TO, arrived, in_a_round, migrate, native, pair, running, src  # noqa: F401 pylint: disable=unused-import


@native
def test_a_receiver_that_claims_too_much(pair):
    """It says that it has a round which was never sent: the sender would not send that RAM again."""
    with relay.Losing(TO) as between:
        run = migrate(pair, between)
        in_a_round(between, run)
        seen = []

        def lie(a, head):
            seen.append(a)
            return wire.HEADER.pack(*head._replace(arg=head.arg + 1)) if len(seen) == 2 else None
        between.at_head[wire.RECONNECT] = lie
        between.lose()
        assert run.send.wait() == godwit.EXIT['bad-peer'], run.send.said
        run.receive.kill().wait()
    godwit.unharmed(pair[0])


@native
@pytest.mark.parametrize('mode', ['migrate', 'save'])
def test_before_an_ack(pair, mode):
    """What goes ahead of the rounds is not sent twice: the sender does not connect again before it knows that it has arrived."""
    with relay.Losing(TO, rate=SLOW, offers=~wire.REUSES) as between:
        run = migrate(pair, between, PATIENT, '--device-state', mode)
        between.wait_ram(64 << 10)
        ahead = between.count.get(wire.DEVICE if mode == 'migrate' else wire.PRIVATE)
        assert not between.count.get(wire.ACK) and (ahead or mode == 'migrate')
        between.rate = 16 << 20
        between.lose()
        if run.send.wait() == godwit.EXIT['ok'] and not ahead:	# QEMU had written nothing yet
            arrived(pair, run)
            return
        run.wait('link-lost')
        assert 'trying' not in run.send.said and run.receive.wait(LATE) == godwit.EXIT['link-lost']
    godwit.unharmed(pair[0])


def lose_at_the_state(between):
    """As the first frame of device state that the guest's stop waits for comes by."""
    def lose(_, head):
        if head.flags == wire.HELD:
            between.lose()
    between.at_head[wire.DEVICE] = lose


def cannot_go_on(pair, mode, at):
    """
    In the switchover, where QEMU's own stream breaks with the link, the migration ends. The receiver, which was told to wait for
    much longer, hears that as soon as there is a link again, or knows it by what has come.
    """
    with relay.Losing(TO, drop=[] if at == 'state' else [at]) as between:
        if at == 'state':
            lose_at_the_state(between)
        run = migrate(pair, between, PATIENT, '--device-state', mode)
        assert run.send.wait() == godwit.EXIT['link-lost'], run.send.said
        assert 'connect again' not in run.send.said, run.send.said
        assert run.receive.wait(LATE) == godwit.EXIT['link-lost'], run.receive.said
    godwit.never_ran(pair[1])
    godwit.unharmed(pair[0])
    return run.receive.said


@native
@pytest.mark.parametrize('mode,at', [('migrate', (wire.SWITCHOVER, 2)), ('migrate', wire.DEVICE), ('migrate', 'state'), ('save', 'state')],
                         ids=['answer', 'stream', 'state', 'saved'])
def test_it_cannot_go_on(pair, mode, at):
    said = cannot_go_on(pair, mode, at)
    # Saved, the last round may have come: then it waits for nothing but the question.
    assert f'waiting {PATIENT} s' in said or at == 'state', said
    assert f'waiting {PATIENT} s' not in said or 'the sender has given up' in said, said


@native
def test_the_link_stays_lost(pair):
    with relay.Losing(TO) as between:
        run = migrate(pair, between, 4)
        in_a_round(between, run)
        begin = time.monotonic()
        between.fall()
        run.wait('link-lost')
        assert 3 < time.monotonic() - begin < 4 + LATE
        assert 'tried to connect again for up to 4 s' in run.send.said and 'did not connect again within 4 s' in run.receive.said
        assert run.receive.process.returncode == godwit.EXIT['link-lost']
    godwit.unharmed(pair[0])


@native
def test_the_link_carries_no_round(pair):
    """It comes back each time, and breaks as soon as there is RAM on it. That does not prolong the wait, at either end."""
    class Always(set):
        def remove(self, _):
            pass

    with relay.Losing(TO) as between:
        run = migrate(pair, between, 6)
        in_a_round(between, run)
        between.drop = Always([wire.RAM])
        begin = time.monotonic()
        between.lose()
        run.wait('link-lost')
        assert 5 < time.monotonic() - begin < 6 + LATE
        assert 'carried no round' in run.send.said or 'tried to connect again for up to 6 s' in run.send.said, run.send.said
        assert len(between.pairs) > 4	# it has tried again and again
        assert run.receive.wait(LATE) == godwit.EXIT['link-lost']
    godwit.unharmed(pair[0])


@native
def test_without_the_option(pair):
    """As before: a link that is lost ends the migration at once."""
    with relay.Losing(TO) as between:
        run = godwit.Run(*pair, *HOW, '--streams', '2', to=between.address, receive_options=['--resolve-timeout', '1'])
        between.wait_ram(4 << 20)
        between.lose()
        assert run.wait('link-lost')['reconnects'] == 0
        assert 'connect again' not in run.send.said and run.receive.process.returncode == godwit.EXIT['link-lost']
    godwit.unharmed(pair[0])


@native
def test_the_receiver_is_killed(pair):
    """The sender tries in vain; of another receiver, which knows nothing of it, it hears that at once."""
    src = pair[0]
    with relay.Losing(TO) as between:
        run = migrate(pair, between)
        in_a_round(between, run)
        run.receive.kill().wait()
        run.send.wait_for('trying to connect again')
        dst2 = godwit.destination(src, 'dst2')
        other = godwit.listen(dst2)
        assert run.send.wait(LATE) == godwit.EXIT['peer-failed'], run.send.said
        assert 'waits for no sender' in run.send.said
        assert other.poll() is None
        other.kill().wait()
    godwit.unharmed(src)


@native
def test_the_sender_is_killed(pair):
    """The receiver waits as long as it was told to, and has QEMU go on waiting."""
    src, dst = pair
    with relay.Losing(TO) as between:
        run = migrate(pair, between, 5)
        in_a_round(between, run)
        begin = time.monotonic()
        run.send.kill()
        assert run.receive.wait() == godwit.EXIT['link-lost'], run.receive.said
        assert 4 < time.monotonic() - begin < 5 + LATE
    godwit.never_ran(dst)
    godwit.unharmed(src)


@native
def test_a_signal_while_there_is_no_link(pair):
    with relay.Losing(TO) as between:
        run = migrate(pair, between)
        in_a_round(between, run)
        between.fall()
        run.send.wait_for('trying to connect again')
        run.send.kill(signal.SIGINT)
        run.receive.kill(signal.SIGINT)
        assert run.send.wait(LATE) == godwit.EXIT['cancelled'], run.send.said
        assert run.receive.wait(LATE) == godwit.EXIT['cancelled'], run.receive.said
    godwit.unharmed(pair[0])


@running
@pytest.mark.parametrize('mode,at', [('migrate', wire.DEVICE), ('migrate', 'state'), ('save', 'state')], ids=['stream', 'state', 'saved'])
def test_running_it_cannot_go_on(pair, mode, at):
    cannot_go_on(pair, mode, at)


@running
def test_running_link_stays_down(pair):
    """The source is as it was: the guest runs, and KVM logs nothing any more."""
    lab.link('rate', 20)
    run = godwit.Run(*pair, '--reconnect', '4', '--peer-timeout', '5', '--downtime-limit', '1', '--max-rounds', '10000', '--postcopy', 'off',
                     receive_options=['--peer-timeout', '5'])
    run.send.wait_round(1)
    time.sleep(3)
    lab.link('down')
    run.send.wait_for('trying to connect again')
    assert run.send.wait(60) == godwit.EXIT['link-lost'], run.send.said
    assert run.receive.wait(60) in (godwit.EXIT['timeout'], godwit.EXIT['link-lost']), run.receive.said
    lab.link('up')
    godwit.unharmed(pair[0])


@running
def test_running_killed(pair):
    """The sender, while it has no link: the guardian undoes what there is, and the receiver ends after a while."""
    with relay.Losing(TO) as between:
        run = migrate(pair, between, 6)
        in_a_round(between, run)
        between.fall()
        run.send.wait_for('trying to connect again')
        run.send.kill()
        assert run.receive.wait(60) == godwit.EXIT['link-lost'], run.receive.said
    godwit.unharmed(pair[0])


@running
def test_running_cancelled(pair):
    with relay.Losing(TO) as between:
        run = migrate(pair, between, 60)
        in_a_round(between, run)
        between.fall()
        run.send.wait_for('trying to connect again')
        assert godwit.control(run.send.pid, execute='cancel')['status'] == 'cancelled'
        assert run.send.wait() == godwit.EXIT['cancelled'], run.send.said
        run.receive.kill(signal.SIGINT)
        run.receive.wait()
    godwit.unharmed(pair[0])
