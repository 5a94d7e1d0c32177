# SPDX-License-Identifier: GPL-2.0-only
"""A running migration obeys: godwit cancel, godwit set, --timeout, --downtime-ramp."""
import glob
import json
import os
import random
import socket
import threading
import time

import godwit
import lab
import pytest
from ours import proved

pytestmark = pytest.mark.usefixtures('module')
# Seconds that a cancellation may take; an emulated host that is overrun takes longer for all, so there it has nearly as long as
# a client waits for its answer.
with open('/proc/cpuinfo', encoding='ascii') as cpuinfo:
    SOON = 25 if 'TCG' in cpuinfo.read() else 1
CRAWL = 1	# Mbit/s: what is under way then takes a minute and more


def control(*words, status='ok'):
    """What godwit cancel or set says."""
    p = godwit.Process('src', *words)
    assert p.wait(30) == godwit.EXIT[status], p.said
    return p.said


def cancel_soon(src, send):
    begin = time.monotonic()
    answer = godwit.control(send.pid, execute='cancel')
    seconds = time.monotonic() - begin
    assert answer['status'] == 'cancelled', answer
    proved(src.query_status() == 'running', 'it was answered, and the source does not run')
    assert seconds < SOON
    assert send.wait() == godwit.EXIT['cancelled'], send.said
    assert 'godwit cancel' in send.said
    assert not glob.glob('/run/godwit/*.sock')
    godwit.unharmed(src)


@pytest.mark.parametrize('phase', ['round', 'later', 'stream', 'paused'])
def test_cancel(pair, phase):
    """It waits for nothing that is on its way."""
    run = godwit.start_in(phase, pair, '--compress', 'off')
    lab.link('rate', CRAWL)
    cancel_soon(pair[0], run.send)
    lab.link('rate', 100)
    run.wait('cancelled')
    assert 'cancelled' in run.receive.said


def test_cancel_before_the_first_round(pair, waiting):
    cancel_soon(pair[0], waiting[0])


def test_cancel_command(pair):
    run = godwit.start_in('round', pair)
    assert 'runs on here' in control('cancel', '--qmp', pair[0].main_qmp)
    assert pair[0].query_status() == 'running'
    run.wait('cancelled')
    godwit.unharmed(pair[0])


def test_cancel_around_the_commit_point(pair):
    """With the guest stopped, at any moment up to the end: it runs here or there, and both commands say the same."""
    src, dst = pair
    run = godwit.Run(src, dst, verify=False)
    run.wait_status('pre-switchover', 'device', 'completed')
    time.sleep(random.uniform(0, 0.2))
    cancel = godwit.Process('src', 'cancel')
    status, told = run.send.wait(), cancel.wait(30)
    if status == godwit.EXIT['ok']:
        assert told == godwit.EXIT['no-migration'], cancel.said
        godwit.proof(src, dst)
    else:
        assert (status, told) == (godwit.EXIT['cancelled'], 0), (run.send.said, cancel.said)
        godwit.unharmed(src)


def test_set(pair):
    """It would not end for minutes, nor switch over: with other limits it does."""
    src, dst = pair
    run = godwit.Run(src, dst, '--bandwidth', '1', '--downtime-limit', '1')
    run.send.wait_round(1)
    assert 'bandwidth        1\n' in control('set')
    assert 'downtime-limit   60000\n' in control('set', '--bandwidth', '0', '--downtime-limit', '60000')
    run.wait()
    godwit.proof(src, dst)


@pytest.mark.parametrize('limit', [{'bandwidth': 1}, {'timeout': 1}], ids=['bandwidth', 'timeout'])
def test_set_in_a_late_round(pair, limit):
    """It is the last one before the stop, which does not wait for a limit."""
    src, dst = pair
    run = godwit.start_in('stream', pair, '--timeout', '3600', '--on-timeout', 'pause')
    godwit.control(run.send.pid, execute='set', arguments=limit)
    number = godwit.control(run.send.pid, execute='query')['round']
    lab.link('rate', 100)
    report = run.wait()
    assert report['verified'] and len(report['rounds']) == number + 1, report['rounds']
    assert [r['late'] for r in report['rounds']] == [False, *[True] * (number - 1), False], report['rounds']
    godwit.proof(src, dst)


def test_which(pair, waiting):
    """One of two is meant; the other one is played."""
    def answer():
        for _ in range(2):
            peer, _ = server.accept()
            peer.recv(1000)
            peer.sendall(json.dumps({'return': {'pid': 1, 'vm': 4711, 'qmp': '/run/other', 'to': 'there:1'}}).encode() + b'\n')
            peer.close()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind('/run/godwit/1.sock')
        server.listen()
        thread = threading.Thread(target=answer)
        thread.start()
        said = control('cancel', status='no-migration')
        assert '4711' in said and f'--pid {pair[0].pid}' in said
        control('cancel', '--pid', str(pair[0].pid))
        thread.join()
    # What a dead sender has left is passed over.
    assert 'no migration' in control('cancel', status='no-migration')
    os.unlink('/run/godwit/1.sock')
    assert waiting[0].wait() == godwit.EXIT['cancelled']
    godwit.unharmed(pair[0])


def test_timeout(pair):
    run = godwit.start_in('round', pair, '--timeout', '3600')
    # Over at once, however long it took until here.
    godwit.control(run.send.pid, execute='set', arguments={'timeout': 1})
    run.wait('time-limit')
    assert '--on-timeout pause' in run.send.said
    godwit.unharmed(pair[0])


def test_timeout_pauses(pair):
    """In the middle of a round, of a guest that writes faster than the link carries: it arrives."""
    src, dst = pair
    run = godwit.start_in('round', pair, '--timeout', '3600', '--on-timeout', 'pause', '--compress', 'off')
    number = godwit.control(run.send.pid, execute='query')['round']
    # Over at once, however long it took until here.
    godwit.control(run.send.pid, execute='set', arguments={'timeout': 1})
    report = run.wait()
    # The round may have come to its end just then, and another one begun.
    assert report['verified'] and number < report['ram']['dirty-sync-count'] <= number + 2
    assert report['downtime'] > 1000
    godwit.proof(src, dst)


def test_ramp(pair):
    """No guest gets below this limit: it arrives by the ramp, and not above its end. Which round brings it hangs on the lab."""
    src, dst = pair
    run = godwit.start_in('later', pair, '--downtime-limit', '1', '--downtime-ramp', '30000', '--max-rounds', '20')
    report = run.wait()
    assert 1 < report['expected-downtime'] <= report['downtime-limit'] <= 30000
    assert 3 <= report['ram']['dirty-sync-count'] <= 20 + 1
    godwit.proof(src, dst)


@pytest.mark.native
def test_usage():
    assert '--downtime-limit' in control('set', '--downtime-limit', 'soon', status='usage')
    assert 'cancel or pause' in control('set', '--on-timeout', 'never', status='usage')
    assert "unrecognized option '--bandwidth'" in control('cancel', '--bandwidth', '1', status='usage')
    assert 'no migration' in control('set', status='no-migration')
    assert '/dev/shm/none' in control('cancel', '--control', '/dev/shm/none', status='no-migration')
