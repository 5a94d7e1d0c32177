# SPDX-License-Identifier: GPL-2.0-only
"""Guests whose vCPUs are slowed until rounds help, and what is left of that when it ends, however it ends."""
import glob
import signal
import time

import godwit
import lab
import pytest
from ours import proved

pytestmark = pytest.mark.usefixtures('module')
LIMIT = 3000	# ms
SLOWED = ('--downtime-limit', str(LIMIT), '--compress', 'off', '--delta', 'off')
HOLDS = ('--postcopy', 'off', '--downtime-limit', '1', '--max-rounds', '10000')	# no host meets that


@pytest.fixture
def busy(directory):
    """
    (source, destination), and a link that carries a tenth of what the guest writes when nothing slows it, on this host, and more
    than 99 % leave of that, also where they leave more than a hundredth. Its working set would take 2.5 times the limit.
    """
    src = lab.Qemu('src', directory=directory, append='start=16 size=64 touch=1 rate=max random=1').wait_ticks(2)
    dst = godwit.destination(src)
    before, begin = src.counters['pages'], time.monotonic()
    written = src.wait_ticks(3 * lab.TICKS).counters['pages'] - before
    carried = min(max(written / (time.monotonic() - begin) / 10, 60), 2500)	# pages a second
    src.command(f'ws={max(1, round(carried * 2.5 * LIMIT / 1000) >> 8)}')
    lab.link('rate', round(carried * 4096 * 8 / 1e6, 2))
    return src, dst


def traced(vm):
    for path in glob.glob(f'/proc/{vm.pid}/task/*/status'):
        try:
            with open(path, encoding='ascii') as f:
                if 'TracerPid:\t0\n' not in f.read():
                    return True
        except (FileNotFoundError, ProcessLookupError):
            pass
    return False


def wait_slowed(vm):
    end = time.monotonic() + 90
    while not traced(vm):
        assert time.monotonic() < end, 'no vCPU stands still'


def runs_freely(vm, within=0):
    """Nothing stops a vCPU any more: at none of so many looks, which are closer together than two stops."""
    end, looks = time.monotonic() + within, 0
    while looks < 200:
        looks = 0 if traced(vm) else looks + 1
        proved(looks or time.monotonic() < end, 'a vCPU is traced')
        time.sleep(0.003)
    vm.wait_ticks(2).check()


def test_auto(busy):
    """Each round leaves half of what the one before has, when the guest is slow enough."""
    run = godwit.Run(*busy, '--throttle', 'auto', '--postcopy', 'off', *SLOWED, verify=False)
    report = run.wait()
    godwit.proof(*busy)
    slowed = [r['throttle'] for r in report['rounds'] if not r['blackout']]
    assert slowed[:2] == [0, 0] and slowed == sorted(slowed) and 50 <= slowed[-1] <= report['throttle'] <= 99, slowed
    assert report['throttled-time'] > 0 and not report['postcopy']['owed']
    runs_freely(busy[1])


def test_it_comes_before_postcopy(busy):
    """Both are possible."""
    run = godwit.Run(*busy, '--throttle', 'auto', *SLOWED, verify=False)
    report = run.wait()
    godwit.proof(*busy)
    assert report['throttle'] >= 50 and not report['postcopy']['owed']


def test_set(busy):
    src, _ = busy
    run = godwit.Run(*busy, *HOLDS, verify=False)
    run.send.wait_round(2)
    assert not traced(src)
    lab.call(godwit.GODWIT, 'set', '--qmp', src.main_qmp, '--throttle', '80')
    wait_slowed(src)
    lab.call(godwit.GODWIT, 'set', '--qmp', src.main_qmp, '--throttle', 'off')
    runs_freely(src, 20)
    lab.call(godwit.GODWIT, 'set', '--qmp', src.main_qmp, '--throttle', '60', '--downtime-limit', '60000')
    report = run.wait()
    godwit.proof(*busy)
    assert report['throttled-time'] > 0


@pytest.mark.parametrize('how', ['killed', 'cancelled', 'receiver'])
def test_ended(busy, how):
    """The guest was slowed by 90 %, and runs on as if it had never been."""
    src, _ = busy
    run = godwit.Run(*busy, *HOLDS, '--throttle', '90', verify=False)
    wait_slowed(src)
    if how == 'killed':
        run.send.kill().wait()
    elif how == 'cancelled':
        lab.call(godwit.GODWIT, 'cancel', '--qmp', src.main_qmp)
    else:
        run.receive.kill().wait()
        run.send.wait()
    runs_freely(src, 20)
    if how == 'receiver':
        godwit.unharmed(src)
    run.kill()


def test_stopped(busy):
    """A sender that is stopped (Ctrl-Z) slows nothing. It goes on when it is continued."""
    src, _ = busy
    run = godwit.Run(*busy, *HOLDS, '--throttle', '80', verify=False)
    wait_slowed(src)
    run.send.process.send_signal(signal.SIGSTOP)
    try:
        runs_freely(src, 20)
    finally:
        run.send.process.send_signal(signal.SIGCONT)
    wait_slowed(src)
    lab.call(godwit.GODWIT, 'set', '--qmp', src.main_qmp, '--downtime-limit', '60000')
    run.wait()
    godwit.proof(*busy)
