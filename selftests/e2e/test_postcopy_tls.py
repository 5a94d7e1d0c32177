# SPDX-License-Identifier: GPL-2.0-only
"""
Post-copy over TLS: what the guest waits for comes by a connection of its own, of which the kernel makes the records (TCP) or the
library (UNIX sockets, of which the kernel makes none). Whatever is lost, changed or killed meanwhile, no page is lost.
"""
import json

import godwit
import lab
import pytest
import relay
from ours import proved
from test_postcopy import LAZY, came_after

pytestmark = pytest.mark.usefixtures('module')
REQUESTS = 3	# the number of that connection: behind the control connection and two streams


class Tunnel(relay.Sealed):
    """Between two UNIX sockets."""

    def __init__(self, path):
        self.at = f'{path}.tunnel'
        super().__init__(path)


class Lazy:
    """A migration with post-copy, between two ends with these credentials, for which some seconds' worth of RAM is still to come."""

    def __init__(self, pair, between, at, credentials):
        self.src, self.dst = pair
        self.between, self.at, self.options = between, at, credentials
        self.receive = self.listen()
        self.run = godwit.Run(*pair, *LAZY, '--pause', '--streams', '2', '--compress', 'off', *self.options,
                              verify=False, receiver=False, to=between.address)
        self.run.receive, self.send = self.receive, self.run.send
        self.receive.wait_for('are still to come')

    def listen(self, *options):
        return godwit.listen(self.dst, *options, *self.options, at=self.at)

    def send_on(self, *options):
        return godwit.Process('src', 'send', '--recover', '--qmp', self.src.main_qmp, *options, *self.options, self.between.address)

    def arrived(self, send, receive):
        """All of it, and nothing is left: neither a mark nor a note."""
        assert send.wait() == 0, send.said
        assert receive.wait() == 0 and 'all RAM is here' in receive.said, receive.said
        godwit.proof(self.src, self.dst)
        asked = godwit.Process('src', 'resolve', '--qmp', self.src.main_qmp)
        assert asked.wait() == godwit.EXIT['no-migration'], asked.said


@pytest.fixture
def lazy(directory, keys, tmp_path, by):
    # Stopped first it owes all of what it writes all the time, and checks: 8 s of the relay's.
    src = lab.Qemu('src', directory=directory, append='start=16 size=16 touch=16 rate=3000 random=1').wait_ticks(2)
    pair = src, godwit.destination(src)
    if by == 'kernel':
        lab.call('modprobe', 'tls')
        with relay.Sealed(godwit.TO) as between:
            yield Lazy(pair, between, godwit.AT, keys['creds'])
    else:
        with Tunnel(str(tmp_path / 'receiver')) as between:
            yield Lazy(pair, between, f'unix:{tmp_path}/receiver', keys['psk'])


@pytest.mark.parametrize('by', ['kernel'])
def test_faults_are_answered(lazy, by):
    report = lazy.run.wait()
    _, faults, asked, _ = came_after(lazy.run)
    told = report['postcopy']
    assert (told['faults'], told['requests']) == (faults, asked) and asked > 10
    assert 0 < told['latency-mean'] <= told['latency-worst'] >= told['latency-p99']
    assert report['encrypted'] and report['kernel-tls'] == (by == 'kernel') and not report['reconnects']
    godwit.proof(lazy.src, lazy.dst)


@pytest.mark.parametrize('by, which', [('kernel', slice(None)), ('library', slice(REQUESTS, None))], ids=['kernel-all', 'library-requests'])
def test_reset(lazy, by, which):
    """All of them are connected again, that of the requests, too."""
    lazy.between.wait_ram(2 << 20)
    lazy.between.lose(which)
    lazy.send.wait_for('connected again')
    report = lazy.run.wait()
    came_after(lazy.run)
    assert report['reconnects'] == 1 and report['encrypted'] and report['kernel-tls'] == (by == 'kernel')
    godwit.proof(lazy.src, lazy.dst)


@pytest.mark.parametrize('by', ['kernel', 'library'])
def test_an_answer_is_changed(lazy):
    """
    On the way to the guest that waits for it. Nothing of it is used, and the receiver ends. A sender that has heard why ends, too;
    one that has only seen the connections end tries on. Others bring the rest.
    """
    lazy.between.wait_ram(2 << 20)
    lazy.between.change = REQUESTS
    assert lazy.receive.wait() == godwit.EXIT['incomplete'], lazy.receive.said
    assert 'a record was changed on the way' in lazy.receive.said, lazy.receive.said
    send = lazy.send.wait_until(lambda: lazy.send.poll() is not None or 'trying to connect again' in lazy.send.said, 'end', 60)
    proved(not lazy.dst.errors, lazy.dst.complaints)
    receive = lazy.listen('--recover')
    if send.poll() is not None:
        assert send.poll() == godwit.EXIT['incomplete'] and 'do not continue it' in send.said, send.said
        send = lazy.send_on()
    lazy.arrived(send, receive)


@pytest.mark.parametrize('by, who', [('kernel', 'receiver'), ('library', 'both')])
def test_killed(lazy, by, who, tmp_path):
    """Another receiver takes over, to which the sender connects by itself; or another sender, which tells of TLS as well."""
    lazy.between.wait_ram(2 << 20)
    lazy.receive.kill().wait()
    if who == 'both':
        lazy.send.kill().wait()
    proved(not lazy.dst.errors, lazy.dst.complaints)
    receive, send, path = lazy.listen('--recover'), lazy.send, lazy.run.json
    if who == 'both':
        path = f'{tmp_path}/report.json'
        send = lazy.send_on('--json', path)
    lazy.arrived(send, receive)
    with open(path, encoding='utf-8') as f:
        report = json.load(f)
    assert report['reconnects'] == 1 and report['encrypted'] and report['kernel-tls'] == (by == 'kernel')
    assert report['cipher'] == 'AES-128-GCM'
