# SPDX-License-Identifier: GPL-2.0-only
"""A VM has one migration at a time: whatever an operator starts by mistake, or a program that is killed leaves."""
import os
import signal
import subprocess
import time

import godwit
import lab
import monitor
import pytest
import relay
import wire
from ours import proved
from paused import arrives, foreign_ram, send, source

AT, TO = godwit.AT, godwit.TO
pytestmark = pytest.mark.native


def mark(vm):
    return [o['name'] for o in vm.qmp('qom-list', path='/objects') if o['name'].startswith('godwit')]


def test_two_receivers(directory):
    """For one QEMU, and for two that have one file."""
    src = source(directory)
    dst = godwit.destination(src)
    first = godwit.listen(dst)
    dst.hang_up()
    second = godwit.receive(dst, '--qmp', f'{dst.run}/test.qmp', at=godwit.address(1))
    assert second.wait() == godwit.EXIT['busy'], second.said
    twin = godwit.destination(src, 'twin', ram=foreign_ram(dst.ram[0].path))
    second = godwit.receive(twin, at=godwit.address(1))
    assert second.wait() in (godwit.EXIT['ram-in-use'], godwit.EXIT['busy']), second.said
    twin.kill()
    # One that waits for the first to end finds a guest that runs.
    second = godwit.receive(dst, '--qmp', f'{dst.run}/test.qmp', at=godwit.address(1))
    here = send(src)
    assert here.wait() == 0 and first.wait() == 0, here.said + first.said
    assert second.wait() in (godwit.EXIT['vm-state'], godwit.EXIT['busy']), second.said
    godwit.proof(src, dst)


CONTAINER = """#!/bin/sh
exec unshare --mount --pid --fork --kill-child --mount-proc %s "$@"
"""


@pytest.mark.parametrize('apart', ['directory', 'proc', 'container'])
def test_two_services(directory, qemu, apart):
    """For one QEMU with RAM of its own: they have no directory in common, and see /proc elsewhere, or other numbers in it."""
    src = source(directory, qemu=qemu, ram=[lab.Ram(64)])
    if apart == 'container':
        with open(f'{directory}/contained', 'w', encoding='ascii') as f:
            os.fchmod(f.fileno(), 0o755)
            f.write(CONTAINER % qemu)
        qemu = f'{directory}/contained'
    dst = godwit.destination(src, qemu=qemu)
    first = godwit.listen(dst)
    dst.hang_up()
    os.makedirs(f'{directory}/run', exist_ok=True)
    enter = ['env', f'RUNTIME_DIRECTORY={directory}/run']
    if apart == 'proc':
        enter += ['unshare', '--mount', 'sh', '-c', 'mount -t proc proc /proc && exec "$@"', 'sh']
    elif apart == 'container':
        inside = subprocess.run(['pgrep', '-P', str(dst.pid)], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
        enter += ['nsenter', '--mount', '--pid', '--target', inside]
    second = godwit.receive(dst, '--qmp', f'{dst.run}/test.qmp', at=godwit.address(1), enter=enter)
    assert second.wait() == godwit.EXIT['busy'] and 'at work on this VM' in second.said, second.said
    here = send(src)
    assert here.wait() == 0 and first.wait() == 0, here.said + first.said
    godwit.proof(src, dst, stopped='paused')


def test_a_guest_comes_by_another_way(directory):
    """By QEMU's own migration, to a QEMU that a receiver waits for: that guest is not overwritten."""
    src, other = source(directory), source(directory, 'third')
    dst = godwit.destination(src)
    there = godwit.listen(dst)
    lab.qemu_migrate(other, dst)
    dst.wait_ticks(1)
    here = send(src)
    assert here.wait() == godwit.EXIT['peer-failed'] and there.wait() == godwit.EXIT['vm-state'], here.said + there.said
    dst.wait_ticks(2).check()
    src.destinations.remove(dst)	# whose guest is another
    godwit.unharmed(src)


@pytest.mark.parametrize('apart', [0, 0.1, 0.3, 1, 3])
def test_two_senders(directory, apart):
    """To two destinations, through two monitors of one QEMU: one of them moves the guest, once."""
    src = source(directory)
    one, two = godwit.destination(src, 'one'), godwit.destination(src, 'two')
    ports = f'{TO[0]}:{TO[1]}', f'{TO[0]}:{TO[1] + 1}'
    receivers = [godwit.listen(one, at=ports[0]), godwit.listen(two, at=ports[1])]
    src.hang_up()
    first = send(src, to=ports[0])
    time.sleep(apart)
    second = send(src, qmp=f'{src.run}/test.qmp', to=ports[1])
    statuses = [first.wait(), second.wait()]
    assert statuses.count(0) == 1, f'{statuses}\n{first.said}\n{second.said}'
    loser = 1 - statuses.index(0)
    assert statuses[loser] in (godwit.EXIT['busy'], godwit.EXIT['vm-state']), f'{statuses}\n{first.said}\n{second.said}'
    there, idle = (one, two) if loser == 1 else (two, one)
    receivers[1 - loser].wait()
    godwit.proof(src, there)
    proved(idle.query_status() == 'inmigrate' and not idle.has_run(), 'the guest runs twice')
    receivers[loser].kill(signal.SIGTERM).wait()


def held_in_the_blackout(src, dst, act, then=lambda: None):
    """A sender in the blackout, its guest stopped, and what happens to it there, and when it has ended. The receiver ends."""
    between = monitor.in_the_blackout(src, lambda: act(here))
    there = godwit.listen(dst, '--resolve-timeout', '1')
    here = send(src, qmp=between.path)
    here.wait()
    then()
    there.wait()


def test_after_a_sender_that_was_killed(directory):
    """At once: its guardian has the VM until all is put back, and no longer."""
    src = source(directory)
    again = godwit.destination(src, 'again')
    other = f'{TO[0]}:{TO[1] + 2}'	# the relay has the next one
    there = godwit.listen(again, at=other)
    second = []

    held_in_the_blackout(src, godwit.destination(src), lambda here: here.kill(signal.SIGKILL).wait(),
                                then=lambda: second.append(send(src, to=other)))
    assert second[0].wait() == 0 and there.wait() == 0, second[0].said + there.said
    godwit.proof(src, again)


def with_its_guardian(here):
    """Killed: no program is left to put anything back."""
    for child in subprocess.run(['pgrep', '-P', str(here.pid)], stdout=subprocess.PIPE, text=True, check=True).stdout.split():
        os.kill(int(child), signal.SIGKILL)
    here.kill(signal.SIGKILL).wait()


def put_settings_back(src):
    """By hand."""
    src.qmp('migrate-set-capabilities', capabilities=[{'capability': name, 'state': state} for name, state in src.settings_before[0].items()])
    src.qmp('migrate-set-parameters', **{name: src.settings_before[1][name] for name in ('downtime-limit', 'max-bandwidth')})


def test_sender_and_guardian_killed_behind_it(directory):
    """The same behind the commit point, of a guest that never arrives: it runs on, and the operator is told what QEMU still has."""
    src = source(directory)
    between = relay.Relay(TO, wire.DEVICE_END, at_cut=lambda: with_its_guardian(here))
    try:
        there = godwit.listen(godwit.destination(src), '--resolve-timeout', '1')
        here = send(src, to=between.address)
        here.wait()
        assert there.wait() == godwit.EXIT['link-lost'], there.said
    finally:
        between.stop()
    again = godwit.listen(godwit.destination(src, 'again'))
    p = godwit.Process('src', 'resolve', '--qmp', src.main_qmp, '--to', AT)
    assert p.wait() == 0 and 'as it was before' in p.said and 'x-ignore-shared' in p.said, p.said
    again.kill().wait()
    put_settings_back(src)
    godwit.unharmed(src)


def test_sender_and_guardian_killed(directory):
    """No program is left to put it back: the operator is told what there is to do, and it can be done."""
    src = source(directory)
    held_in_the_blackout(src, godwit.destination(src), with_its_guardian)
    p = send(src)
    assert p.wait() == godwit.EXIT['vm-state'] and 'resolve --forget' in p.said, p.said
    forget = 'src', 'resolve', '--qmp', src.main_qmp, '--forget'
    p = godwit.Process(*forget)
    if p.wait() == godwit.EXIT['vm-state']:
        assert 'migrate_cancel' in p.said, p.said
        src.qmp('migrate_cancel')
        while src.qmp('query-migrate')['status'] == 'cancelling':
            time.sleep(0.05)
        p = godwit.Process(*forget)
    assert p.wait() == 0 and 'x-ignore-shared' in p.said, p.said
    put_settings_back(src)
    godwit.unharmed(src)
    arrives(src, godwit.destination(src))


def test_the_guardian_keeps_it(directory):
    """The guest has moved, QEMU hangs, its settings are not back: until they are no migration begins."""
    src = source(directory)
    dst = godwit.destination(src)
    between = relay.Watching(TO, lambda kind: kind == wire.RESUMED and src.process.send_signal(signal.SIGSTOP))
    there = godwit.listen(dst)
    try:
        here = send(src, '--peer-timeout', '4', to=between.address)
        assert here.wait() == 0 and 'guardian' in here.said, here.said
        there.wait()
        held = subprocess.run(['flock', '-n', src.ram[0].path, 'true'], check=False).returncode
        proved(held != 0, 'the RAM file is free while a guardian is at work')
    finally:
        between.stop()
        src.process.send_signal(signal.SIGCONT)
    godwit.proof(src, dst)
    subprocess.run(['flock', '-w', '60', src.ram[0].path, 'true'], check=True)
    # Nothing was in doubt.
    p = godwit.Process('src', 'resolve', '--qmp', src.main_qmp, '--resolve-timeout', '1')
    assert p.wait() == godwit.EXIT['no-migration'], p.said


def test_killed_when_the_receiver_knows(directory):
    """The receiver forgets what its sender knows, and that dies with it: the note tells `resolve` where the guest runs."""
    src = source(directory)
    dst = godwit.destination(src)

    def seen(kind):
        if kind == wire.RESUMED:	# QEMU does not answer the sender then, which waits
            src.process.send_signal(signal.SIGSTOP)
        elif kind == wire.DONE:
            here.kill(signal.SIGKILL)
    between = relay.Watching(TO, seen)
    there = godwit.listen(dst)
    try:
        here = send(src, to=between.address)
        assert here.wait() == -signal.SIGKILL, here.said
        assert there.wait() == 0, there.said
    finally:
        between.stop()
        src.process.send_signal(signal.SIGCONT)
    subprocess.run(['flock', '-w', '60', src.ram[0].path, 'true'], check=True)
    p = godwit.Process('src', 'resolve', '--qmp', src.main_qmp, '--resolve-timeout', '1')
    assert p.wait() == 0 and 'is at the destination' in p.said, p.said
    godwit.proof(src, dst)


def test_a_guest_that_has_moved(directory):
    """It is not sent twice, until the operator says that it is to run here."""
    src = source(directory)
    dst = godwit.destination(src)
    there = godwit.listen(dst)
    here = send(src)
    assert here.wait() == 0 and there.wait() == 0, here.said + there.said
    proved(mark(src) and not mark(dst), 'the mark is not where it belongs')
    for command in (('send', '--qmp', src.main_qmp, '--pause', AT), ('check', '--qmp', src.main_qmp, '--pause')):
        p = godwit.Process('src', *command)
        assert p.wait() == godwit.EXIT['vm-state'] and AT in p.said and 'resolve --forget' in p.said, p.said
    # The destination is lost, and the operator decides.
    dst.kill()
    p = godwit.Process('src', 'resolve', '--qmp', src.main_qmp, '--forget')
    assert p.wait() == 0 and not mark(src), p.said
    p = godwit.Process('src', 'resolve', '--qmp', src.main_qmp, '--forget')
    assert p.wait() == godwit.EXIT['no-migration'], p.said
    src.qmp('cont')
    src.sender = None
    arrives(src, godwit.destination(src))


def test_in_doubt(directory):
    """Neither is one whose end is not known; resolve finds out, and the mark stays where the guest has moved."""
    src = source(directory)
    dst = godwit.destination(src)
    between = relay.Relay(TO, wire.RESUMED)
    there = godwit.listen(dst, '--peer-timeout', '8')
    try:
        here = send(src, '--peer-timeout', '8', '--resolve-timeout', '1', to=between.address)
        assert here.wait() == godwit.EXIT['unknown'], here.said
    finally:
        between.stop()
    p = send(src)
    assert p.wait() == godwit.EXIT['vm-state'] and 'resolve' in p.said, p.said
    p = godwit.Process('src', 'resolve', '--qmp', src.main_qmp, '--to', AT)
    assert p.wait() == 0, p.said
    there.wait()
    proved(mark(src), 'the mark is gone')
    godwit.proof(src, dst)
