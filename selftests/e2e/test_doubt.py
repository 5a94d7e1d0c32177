# SPDX-License-Identifier: GPL-2.0-only
"""
The commit point, where the connection, a program or QEMU fails: the guest runs once, and an end in doubt asks until it
knows. Two QEMUs without KVM and --pause show that as well as a lab, but for what an operator does during rounds.
"""
import contextlib
import glob
import os
import signal
import socket
import threading
import time

import godwit
import monitor
import pytest
import relay
import sources
import wire
from ours import Crashed, proved

APPEND = 'start=16 size=16 touch=8 rate=50'
AT, TO = godwit.AT, godwit.TO
pytestmark = pytest.mark.native


@pytest.fixture
def src(directory):
    return sources.plain(directory, APPEND)


@pytest.fixture
def pair(src):
    return src, godwit.destination(src)


def migrate(pair, between=None, patience=20, receive_options=()):
    return godwit.Run(*pair, '--pause', '--resolve-timeout', str(patience), to=between and between.address,
                      receive_options=['--resolve-timeout', str(patience), *receive_options])


def resolve(src, *options):
    p = godwit.Process('src', 'resolve', '--qmp', src.main_qmp, '--resolve-timeout', '2', *options)
    return p.wait(), p.said


def arrived(src, dst):
    godwit.proof(src, dst)


def another(src, name):
    """A receiver for another QEMU at the same address."""
    dst = godwit.destination(src, name)
    return dst, godwit.listen(dst)


def test_the_end_is_lost(pair):
    """The receiver never got DEVICE_END, and says that the guest will not run there: the source runs on."""
    between = relay.Relay(TO, wire.DEVICE_END, lasting=True)
    try:
        run = migrate(pair, between)
        assert run.send.wait() == godwit.EXIT['link-lost'], run.send.said
        assert run.receive.wait() == godwit.EXIT['link-lost'], run.receive.said
    finally:
        between.stop()
    assert 'in doubt' in run.send.said and 'dead' in run.receive.said
    godwit.unharmed(pair[0])


@pytest.mark.parametrize('asks', ['sender', 'resolve'])
def test_silence_in_front_of_commit(pair, asks):
    """
    The last ACK came through and nothing after it: to the sender all has left, the receiver has not even seen COMMIT. It
    gives up, and what it then knows for sure it must still say: the guest does not run there.
    """
    src, _ = pair
    between = relay.Silent(TO)
    # The receiver gives up while the sender asks, or when that asks no more.
    patience, there = (20, 9) if asks == 'sender' else (1, 14)
    try:
        run = godwit.Run(*pair, '--pause', '--resolve-timeout', str(patience), '--peer-timeout', '6', to=between.address,
                         receive_options=['--resolve-timeout', str(patience), '--peer-timeout', str(there)])
        status = run.send.wait()
        assert 'in doubt' in run.send.said, run.send.said
        assert run.receive.wait() == godwit.EXIT['timeout'], run.receive.said
    finally:
        between.stop()
    if asks == 'sender':
        assert status == godwit.EXIT['timeout'], run.send.said
    else:
        assert status == godwit.EXIT['unknown'], run.send.said
        _, receive = another(src, 'dst2')
        status, said = resolve(src, '--to', AT)
        assert status == 0 and 'as it was before' in said, said
        receive.kill().wait()
    godwit.unharmed(src)


def test_the_answer_is_lost(pair):
    """RESUMED never came; the sender asks, hears that the guest runs, and has succeeded."""
    between = relay.Relay(TO, wire.RESUMED, lasting=True)
    try:
        run = migrate(pair, between)
        report = run.wait()
    finally:
        between.stop()
    assert 'in doubt' in run.send.said and 'runs' in run.receive.said
    assert report['downtime'] > 0
    arrived(*pair)


def test_the_time_is_over(pair):
    """--timeout is for what can be given up: a sender in doubt asks on."""
    between = relay.Relay(TO, wire.RESUMED)
    try:
        run = migrate(pair, between)
        run.send.wait_for('in doubt')
        godwit.control(run.send.pid, execute='set', arguments={'timeout': 1})
        time.sleep(2)
        assert run.send.poll() is None, run.send.said
    finally:
        between.stop()
    with relay.Losing(TO):
        run.wait()
    arrived(*pair)


def test_nobody_answers(pair):
    """The sender gives up in doubt. Later it can be asked: of the receiver that waits."""
    between = relay.Relay(TO, wire.RESUMED)
    src, dst = pair
    try:
        run = godwit.Run(*pair, '--pause', '--resolve-timeout', '1', to=between.address)
        assert run.send.wait() == godwit.EXIT['unknown'], run.send.said
    finally:
        between.stop()
    assert 'godwit resolve' in run.send.said
    status, said = resolve(src)
    assert status == godwit.EXIT['unknown'] and 'Nothing was changed' in said, said
    status, said = resolve(src, '--to', AT)
    assert status == 0 and 'is at the destination' in said, said
    assert run.receive.wait() == 0, run.receive.said
    arrived(src, dst)
    assert resolve(src)[0] == godwit.EXIT['no-migration']


def test_settings_while_it_asks(pair):
    """An operator who finds the guest stopped may save it: QEMU must be set as they had set it, or its RAM is left out."""
    src, dst = pair
    between = relay.Relay(TO, wire.RESUMED)
    try:
        run = migrate(pair, between)
        run.send.wait_for('in doubt')
        godwit.settings_kept(src, timeout=0)
        assert run.send.poll() is None
        run.send.kill(signal.SIGINT)	# enough of it
        assert run.send.wait() == godwit.EXIT['unknown'], run.send.said
    finally:
        between.stop()
    assert resolve(src, '--to', AT)[0] == 0
    assert run.receive.wait() == 0, run.receive.said
    arrived(src, dst)


def test_another_receiver_answers(pair):
    """The first one has gone, and left its verdict: the source runs on by `godwit resolve`."""
    src, _ = pair
    between = relay.Relay(TO, wire.DEVICE_END)
    try:
        run = migrate(pair, between, patience=1)
        assert run.send.wait() == godwit.EXIT['unknown'], run.send.said
        assert run.receive.wait() == godwit.EXIT['link-lost'], run.receive.said
    finally:
        between.stop()
    proved(src.query_status() == 'postmigrate', f'the source is {src.query_status()}')
    dst, receive = another(src, 'dst2')
    status, said = resolve(src, '--to', AT)
    assert status == 0 and 'as it was before' in said, said
    godwit.unharmed(src)
    # And whose migration was told of still serves its own.
    send = godwit.Process('src', 'send', '--qmp', src.main_qmp, '--pause', AT)
    assert send.wait() == 0, send.said
    assert receive.wait() == 0, receive.said
    arrived(src, dst)


@contextlib.contextmanager
def died_unheard(src, mode):
    """The guest never runs there, and what undoes that is yet to ask: the source stands still, in doubt."""
    between = relay.Relay(TO, wire.DEVICE_END)
    try:
        run = godwit.Run(src, godwit.destination(src), '--pause', '--device-state', mode, '--resolve-timeout', '1', to=between.address,
                         receive_options=['--resolve-timeout', '1'])
        assert run.send.wait() == godwit.EXIT['unknown'], run.send.said
        assert run.receive.wait() == godwit.EXIT['link-lost'], run.receive.said
    finally:
        between.stop()
    _, receive = another(src, 'dst2')
    yield
    receive.kill().wait()


def test_another_client_saves_it(src):
    """In doubt the operator saves the stopped guest to a file: it runs nowhere then, and that is no state of before."""
    with died_unheard(src, 'save'):
        src.qmp('migrate', uri='exec:cat >/dev/null')
        while src.query_status() != 'postmigrate':
            time.sleep(0.05)
        status, said = resolve(src, '--to', AT)
        assert status == godwit.EXIT['vm-state'] and 'left stopped here' in said, said
        proved(src.query_status() == 'postmigrate', f'the source is {src.query_status()}')
        src.qmp('cont')
        # Nothing is left to ask. (And QEMU drops what it was told to drop when a monitor closes while its guest runs.)
        assert resolve(src, '--to', AT)[0] == godwit.EXIT['no-migration']
    godwit.unharmed(src)


@pytest.mark.parametrize('mode', ['migrate', 'save'])
def test_it_is_reset(src, mode):
    """An operator who finds it stopped presses reset: it boots then, where it is to run."""
    with died_unheard(src, mode):
        src.qmp('system_reset')
        while src.query_status() != 'prelaunch':
            time.sleep(0.05)
        status, said = resolve(src, '--to', AT)
        assert status == 0, said
        proved(src.query_status() == 'running', f'the source is {src.query_status()}')


@contextlib.contextmanager
def service(wanted):
    """What is started here finds itself in the directory that the receiver's unit is given, or in none."""
    if wanted:
        os.environ['RUNTIME_DIRECTORY'] = '/run/godwit-receive'
    try:
        yield
    finally:
        os.environ.pop('RUNTIME_DIRECTORY', None)


@pytest.mark.parametrize('first', ['service', 'by hand'])
def test_a_receiver_of_another_kind_answers(pair, first):
    """A service keeps its verdicts elsewhere than a receiver that an operator starts: either answers for the other."""
    src, _ = pair
    between = relay.Relay(TO, wire.DEVICE_END)
    try:
        with service(first == 'service'):
            run = migrate(pair, between, patience=1)
        assert run.send.wait() == godwit.EXIT['unknown'], run.send.said
        assert run.receive.wait() == godwit.EXIT['link-lost'], run.receive.said
    finally:
        between.stop()
    with service(first != 'service'):
        _, receive = another(src, 'dst2')
    status, said = resolve(src, '--to', AT)
    assert status == 0 and 'as it was before' in said, said
    receive.kill().wait()
    godwit.unharmed(src)


@contextlib.contextmanager
def receiver_killed(pair, at):
    """A migration whose receiver was killed when this frame passed by; another one has been started since."""
    killed = threading.Event()
    run = None

    def kill():
        run.receive.kill().wait()
        killed.set()
    between = relay.Relay(TO, at, lasting=True, at_cut=kill)
    try:
        run = migrate(pair, between, patience=60)
        assert killed.wait(60), run.send.said
        if at == wire.DEVICE_END:
            pair[1].process.wait(30)	# its stream has ended
        dst, receive = another(pair[0], 'dst2')
        yield run
    finally:
        between.stop()
    receive.kill().wait()
    dst.kill()


def test_receiver_killed_before_the_end(pair):
    """It had not given QEMU anything: one that is started later says that the guest does not run there."""
    with receiver_killed(pair, wire.DEVICE_END) as run:
        assert run.send.wait() == godwit.EXIT['link-lost'], run.send.said
    godwit.unharmed(pair[0])


def test_receiver_killed_behind_it(pair):
    """The guest runs there, and the receiver that could say so is dead: its file says it to another one."""
    with receiver_killed(pair, wire.RESUMED) as run:
        assert run.send.wait() == 0, run.send.said
    arrived(*pair)


def given():
    """Has a receiver given QEMU everything?"""
    verdicts = []
    for path in glob.glob('/run/godwit/verdict-*'):
        with contextlib.suppress(FileNotFoundError), open(path, encoding='ascii') as f:
            verdicts.append(f.read())
    return any('"sent"' in verdict for verdict in verdicts)


def test_receiver_killed_while_qemu_loads(pair):
    """It knew nothing yet, and its QEMU goes on: another receiver looks at that, and gives it its settings back."""
    src, dst = pair
    between = relay.Watching(TO, lambda kind: kind == wire.COMMIT and dst.process.send_signal(signal.SIGSTOP), lasting=True)
    try:
        run = migrate(pair, between, patience=60)
        while not given():
            assert run.send.poll() is None, run.send.said
            time.sleep(0.05)
        time.sleep(1)	# QEMU's own socket has all of it
        run.receive.kill().wait()
        dst.process.send_signal(signal.SIGCONT)
        dst.wait_ticks(1)
        other, receive = another(src, 'dst2')
        assert run.send.wait() == 0, run.send.said
    finally:
        between.stop()
    receive.kill().wait()
    other.kill()
    arrived(src, dst)


def test_destination_hangs(pair):
    """Its QEMU is stopped when it has everything: it is ended before the source runs, and never runs when it goes on."""
    src, dst = pair
    between = relay.Watching(TO, lambda kind: kind == wire.COMMIT and dst.process.send_signal(signal.SIGSTOP))
    try:
        run = migrate(pair, between, receive_options=['--peer-timeout', '3'])
        assert run.send.wait() == godwit.EXIT['device-state'], run.send.said
        assert run.receive.wait() == godwit.EXIT['device-state'] and 'killed it' in run.receive.said, run.receive.said
    finally:
        between.stop()
    proved(dst.process.wait(60) == -signal.SIGKILL, 'the destination lives')
    with pytest.raises(Crashed):
        dst.kill()
    godwit.unharmed(src)


def test_destination_takes_long(pair):
    """To load the device state: much longer than the sender waits for a silent peer. The receiver says that it lives."""
    src, dst = pair
    behind = []	# frames, of which about one a second is a PONG

    def hang(kind):
        if kind == wire.COMMIT:
            dst.process.send_signal(signal.SIGSTOP)
        if kind == wire.COMMIT or behind:
            behind.append(kind)
        if behind.count(wire.PONG) == 8:
            dst.process.send_signal(signal.SIGCONT)
    between = relay.Watching(TO, hang)
    try:
        run = godwit.Run(*pair, '--pause', '--peer-timeout', '6', '--resolve-timeout', '0', to=between.address,
                         receive_options=['--peer-timeout', '60', '--resolve-timeout', '0'])
        run.wait()
    finally:
        between.stop()
    arrived(src, dst)


@pytest.mark.parametrize('paused,how', [(False, 'migrate'), (True, 'migrate'), (False, 'save')], ids=['running', 'paused', 'saved'])
def test_destination_with_S(src, paused, how):
    """As libvirt starts every QEMU: a guest that ran is let run, one that was paused is not."""
    dst = godwit.destination(src, extra=['-S'])
    if paused:
        src.qmp('stop')
    godwit.Run(src, dst, '--pause', '--device-state', how).wait()
    if paused:
        proved(dst.query_status() == 'paused' and not dst.counters, 'the guest runs')
        godwit.same_ram(src, dst)
        dst.qmp('cont')
        dst.wait_ticks(1).check()
    else:
        godwit.proof(src, dst, stopped=godwit.STOPPED[how])


def test_monitor_is_taken(pair):
    """The sender is dead and another client has QEMU's monitor: the guardian waits, and then lets the guest run."""
    src, dst = pair
    waits = threading.Event()
    here = None

    def act():
        waits.wait(30)
        here.kill().wait()
    between = monitor.in_the_blackout(src, act)
    there = godwit.listen(dst, '--resolve-timeout', '1')
    with socket.socket(socket.AF_UNIX) as other:
        here = godwit.Process('src', 'send', *between.options(), '--pause', AT)
        while src.qmp('query-migrate').get('status') != 'pre-switchover':
            assert here.poll() is None, here.said
            time.sleep(0.02)
        other.connect(src.main_qmp)	# is served when the sender has gone
        waits.set()
        here.wait()
        other.settimeout(60)
        assert b'QMP' in other.recv(4096)
        time.sleep(3)
        proved(src.query_status() == 'finish-migrate', f'the source is {src.query_status()}')
    assert there.wait() != 0
    godwit.unharmed(src)
