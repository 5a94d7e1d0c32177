# SPDX-License-Identifier: GPL-2.0-only
"""Two migrations from one host at a time: neither disturbs the other."""
import json
import os

import godwit
import lab
import pytest
from ours import proved

MARK = 16 << 20	# where the guests have nothing
pytestmark = pytest.mark.usefixtures('module')


def guest(directory, name, append):
    """With random bytes that no other guest has."""
    vm = lab.Qemu(name, directory=f'{directory}/{name}', append=append)
    vm.wait_ticks(1)
    with open(vm.ram[0].path, 'r+b', buffering=0) as ram:
        ram.seek(MARK)
        ram.write(os.urandom(1 << 20))
    return vm


def mark(vm):
    with open(vm.ram[0].path, 'rb') as ram:
        ram.seek(MARK)
        return ram.read(1 << 20)


@pytest.fixture
def pairs(directory):
    lab.net()
    one = guest(directory, 'src', 'start=32 size=16 touch=16 rate=1000')
    other = guest(directory, 'other', 'start=32 size=20 touch=12 rate=700 random=1')
    return (one, godwit.destination(one)), (other, godwit.destination(other, 'dst2'))


def start(pair, number, *options):
    """With a receiver of its own."""
    address = godwit.address(number)
    receive = godwit.listen(pair[1], at=address)
    run = godwit.Run(*pair, *options, receiver=False, to=address)
    run.receive = receive
    return run


def sessions():
    p = godwit.Process('src', 'list', '--json')
    assert p.wait() == 0, p.said
    return {s['vm-pid']: s['state'] for s in json.loads(p.said)}


def start_both(pairs):
    """Both are in a round, and stay before the switchover however long the other takes to begin."""
    stays = '--bandwidth', '2', '--downtime-limit', '1', '--max-rounds', '1000', '--postcopy', 'off'
    runs = [start(pair, number, *stays) for number, pair in enumerate(pairs)]
    for run in runs:
        run.send.wait_round(1)
    assert sessions() == {src.pid: 'started' for src, _ in pairs}
    return runs


def hurry(run):
    godwit.control(run.send.pid, execute='set', arguments={'bandwidth': 0, 'downtime-limit': 60000})


def arrives(run):
    hurry(run)
    assert run.wait()['verified']
    godwit.proof(run.src, run.dst)
    proved(mark(run.src) == mark(run.dst), 'its own data did not arrive')


def test_both_arrive(pairs):
    runs = start_both(pairs)
    for run in runs:
        hurry(run)
    for run in runs:
        assert run.wait()['verified']
    for run in runs:
        godwit.proof(run.src, run.dst)
        proved(mark(run.src) == mark(run.dst), 'its own data did not arrive')
    assert mark(pairs[0][1]) != mark(pairs[1][1])


@pytest.mark.parametrize('how', ['cancelled', 'killed'])
def test_one_ends(pairs, how):
    """The guest that stays here runs on without a log; the other keeps its log, and arrives."""
    ends, stays = start_both(pairs)
    if how == 'cancelled':
        assert godwit.control(ends.send.pid, execute='cancel')['status'] == 'cancelled'
        ends.wait('cancelled')
    else:
        ends.send.kill().wait()
    godwit.wait_unlogged(ends.src)
    assert godwit.kvm_logged(stays.src) and sessions()[stays.src.pid] == 'started'
    arrives(stays)
    godwit.unharmed(ends.src)
