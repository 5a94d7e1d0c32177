# SPDX-License-Identifier: GPL-2.0-only
"""
The rule for second tries itself. Each failure here once turned green by a second try, or could have; it is played with guests
that are not there, and stays red. Only evidence of the emulator on a source before its switchover gives one.
"""
import json
import os
import subprocess
import sys
import textwrap

import lab
import pytest

pytestmark = pytest.mark.native

HEAD = '''
import contextlib, os, signal, subprocess, sys
import emulator, godwit, lab, pytest
from ours import *

HOST = range(0xffffffffc044b170, 0xffffffffc044b300)
emulator.entry = lambda: HOST
WELL = ('EIP=00101702 EFL=00000213 HLT=0', 7)
BESIDE_ITSELF = ('EIP=c044b20c EFL=00000213 HLT=0', 7)
DEAF = ('EIP=00101702 EFL=00000213 [----A-C] CPL=0 II=0 A20=1 SMM=0 HLT=1', 7)
NOTHING_WAITS, WAITS = 'IRR\\t (none)\\r\\n', 'IRR\\t 236\\r\\n'


class Vm:
    """As much of a Qemu as the rule looks at."""

    def __init__(self, name='src', incoming=False, stopped=False, cpu=WELL, waits=NOTHING_WAITS, status='running', migrate='none'):
        self.name, self.incoming, self.stopped, self.sender, self.put_back = name, incoming, stopped, None, False
        self.process = self
        self.look, self.status, self.migrate = ([cpu], [cpu], waits), status, migrate
        lab.running.append(self)

    def poll(self):
        return None

    def was_stopped(self):
        return self.stopped

    def hang_up(self):
        pass

    def query_status(self):
        return self.status

    def qmp(self, command):
        return {'status': self.migrate}

    def cpus(self):
        return self.look

    def said_on_stderr(self):
        return ''


@pytest.fixture(autouse=True)
def no_vm_stays():
    yield
    lab.running.clear()


def fail_first(error):
    """A test that gets a second try passes."""
    path = os.environ['PLAYED'] + os.environ['PYTEST_CURRENT_TEST'].split('::')[1].split()[0]
    if not os.path.exists(path):
        open(path, 'w').close()
        raise error
'''

# Evidence, on a source that no switchover has stopped.
CAUGHT = "Vm(cpu=BESIDE_ITSELF)"
RED = {
    # Replayed in review against the rule of then: all of these were retried.
    'a lost page that the guest reports': "Vm('dst2', incoming=True); fail_first(ProofFailed('dst2: 1 errors: page 7 at 107000'))",
    'it runs on at the source as well': "Vm(stopped=True); fail_first(ProofFailed('it runs on at the source as well'))",
    'a source left paused': "Vm(stopped=True, status='paused'); fail_first(ProofFailed('the source is paused'))",
    'never resumes at the destination': "Vm('dst', incoming=True); fail_first(GuestStandsStill('dst: no tick 1 in 90 s'))",
    'godwit ended by a signal': "fail_first(Crashed('exit -11, not 0 (ok)'))",
    'private RAM differs': "fail_first(ProofFailed('private RAM differs: vga.vram'))",
    'a plain failure': "Vm(); fail_first(AssertionError('exit 17, not 0 (ok)'))",
    'a timeout': "Vm(); fail_first(TimeoutError('the test takes longer than 150 s'))",
    # What looks like the emulator's doing, where something of ours has already touched the guest.
    'a deaf destination': "Vm('dst', incoming=True, cpu=DEAF, waits=WAITS); fail_first(TimeoutError('dst: no tick'))",
    'a destination with the registers of its host': "Vm('dst', incoming=True, cpu=BESIDE_ITSELF); fail_first(TimeoutError('no tick'))",
    'a deaf source after a switchover': "Vm(stopped=True, cpu=DEAF, waits=WAITS); fail_first(TimeoutError('src: no tick'))",
    'registers of its host after a switchover': "Vm(stopped=True, cpu=BESIDE_ITSELF); fail_first(AssertionError('exit 16'))",
    'an internal error after a switchover': "Vm(stopped=True, status='internal-error', migrate='cancelled').sender = 1\n"
                                            "    fail_first(AssertionError('src is internal-error'))",
    'registers of its host, after a migration of a test before': f"vm = {CAUGHT}; vm.put_back = True\n"
                                                                "    fail_first(AssertionError('exit 16'))",
    # Evidence excuses none of these.
    'evidence beside a failed proof': f"{CAUGHT}; fail_first(ProofFailed('RAM differs'))",
    'evidence beside a kernel complaint': f"{CAUGHT}; fail_first(KernelComplained('the kernel complained: BUG'))",
    'evidence beside a crash': f"{CAUGHT}; fail_first(Crashed('exit -6'))",
    'evidence beside a proof that was wrapped': f"{CAUGHT}\n    try:\n        fail_first(ProofFailed('lost'))\n"
                                               "    except AssertionError as e:\n        raise RuntimeError('wrapped') from e",
    'evidence beside a proof that was swallowed': f"{CAUGHT}\n    try:\n        fail_first(ProofFailed('lost'))\n"
                                                 "    except AssertionError:\n        raise RuntimeError('another')",
}
GREEN = {
    'registers of its host': f"{CAUGHT}; fail_first(AssertionError('exit 17'))",
    'deaf': "Vm(cpu=DEAF, waits=WAITS); fail_first(TimeoutError('src: no tick 8'))",
    'refused to run': "Vm(stopped=True, status='internal-error'); fail_first(AssertionError('src is internal-error'))",
    'never a first tick': "Vm(); fail_first(emulator.NoFirstTick('src: no first tick in 90 s'))",
}


def play(tmp_path, body, tries=None, options=()):
    """(exit status, what pytest said) of a test with this body."""
    (tmp_path / 'conftest.py').write_text("pytest_plugins = ['second_try']\n", encoding='utf-8')
    (tmp_path / 'pytest.ini').write_text('[pytest]\nmarkers =\n\ttogether: x\n', encoding='utf-8')
    (tmp_path / 'test_played.py').write_text(HEAD + textwrap.dedent(body), encoding='utf-8')
    granted = tmp_path / 'granted' if tries is None else tries
    granted.mkdir(exist_ok=True)
    env = {**os.environ, 'PYTHONPATH': os.path.dirname(os.path.realpath(lab.__file__)), 'GODWIT_SECOND_TRIES': str(granted),
           'PLAYED': str(tmp_path / 'played'), 'GODWIT_RESULTS': str(tmp_path / 'results')}
    done = subprocess.run([sys.executable, '-m', 'pytest', '-q', '-p', 'no:cacheprovider', *options, str(tmp_path)], env=env,
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout, sorted(f.name for f in granted.iterdir())


def a_test(body, number=''):
    return f'\n\ndef test_it{number}():\n    {body}\n'


def outcomes(tmp_path):
    rows = [json.loads(line) for line in (tmp_path / 'results').read_text(encoding='utf-8').splitlines()]
    return [row['outcome'] for row in rows]


def test_stays_red(tmp_path):
    """All in one run, which could have granted two."""
    status, said, granted = play(tmp_path, ''.join(a_test(body, n) for n, body in enumerate(RED.values())))
    assert (status, granted) == (1, []), said
    assert dict(zip(RED, outcomes(tmp_path), strict=True)) == dict.fromkeys(RED, 'failed'), said


@pytest.mark.parametrize('name', GREEN)
def test_gets_one(tmp_path, name):
    status, said, granted = play(tmp_path, a_test(GREEN[name]))
    assert (status, granted) == (0, ['1']), said
    assert '1 passed, 1 rerun' in said, said


def test_a_second_try_that_skips(tmp_path):
    """It proves nothing."""
    status, said, _ = play(tmp_path, a_test(f"{CAUGHT}; fail_first(AssertionError('exit 17')); pytest.skip('no')"))
    assert status == 1 and '1 failed' in said, said


def test_only_one(tmp_path):
    """It fails again, with evidence again."""
    status, said, granted = play(tmp_path, a_test(f"{CAUGHT}\n    raise AssertionError('exit 17')"))
    assert (status, granted) == (1, ['1']), said


@pytest.mark.parametrize('late', ["raise ModuleStays('rmmod: in use')", "raise KernelComplained('WARNING: ')",
                                  "raise Crashed('exit -11')"])
def test_teardown_counts(tmp_path, late):
    """The call's failure has evidence; what teardown then finds is ours all the same."""
    body = f"""

@pytest.fixture
def last():
    yield
    {late}


def test_it(last):
    {CAUGHT}
    fail_first(AssertionError('exit 17'))
"""
    status, said, granted = play(tmp_path, body)
    assert status == 1 and granted == [], said


def test_a_failure_of_teardown_alone(tmp_path):
    body = f"\n\n@pytest.fixture\ndef last():\n    yield\n    raise ModuleStays('rmmod: in use')\n\n\ndef test_it(last):\n    {CAUGHT}\n"
    status, said, granted = play(tmp_path, body)
    assert status == 1 and granted == [], said


def test_two_in_a_run(tmp_path):
    """Second tries of another lab, or of a kselftest, count as well."""
    granted = tmp_path / 'granted'
    granted.mkdir()
    for name in '1', '2':
        (granted / name).write_text('kselftest races_vm_test: evidence\n', encoding='utf-8')
    status, said, _ = play(tmp_path, a_test(GREEN['deaf']), granted)
    assert status == 1, said


def test_a_signal_that_nobody_sent(tmp_path):
    """godwit's own end is looked at whether or not the test did."""
    body = f"""

@pytest.fixture(autouse=True)
def crashes():
    yield
    godwit.none_crashed()


def test_it():
    {CAUGHT}
    p = godwit.Process(None, '-c', 'kill -SEGV $$', tool='/bin/sh')
    p.process.wait()
    fail_first(AssertionError('no report'))
"""
    status, said, granted = play(tmp_path, body)
    assert status == 1 and granted == [] and 'ended by signal 11' in said, said


def test_times(tmp_path):
    """Each time it is set up anew."""
    body = """

@pytest.fixture
def fresh():
    made.append(1)
    return len(made)


made = []


def test_it(fresh):
    assert fresh == len(made)


def test_last():
    assert len(made) == 3
"""
    status, said, _ = play(tmp_path, body, options=('--times', '3'))
    assert status == 0 and outcomes(tmp_path) == ['passed'] * 6, said


def test_shares(tmp_path):
    """Two runs of one list: each test runs once."""
    body = '\n\n@pytest.mark.parametrize("n", range(20))\ndef test_it(n):\n    pass\n'
    share = tmp_path / 'share'
    share.mkdir()
    play(tmp_path, body)
    (tmp_path / 'results').unlink()
    command = [sys.executable, '-m', 'pytest', '-q', '-p', 'no:cacheprovider', '--share', str(share), str(tmp_path)]
    env = {**os.environ, 'PYTHONPATH': os.path.dirname(os.path.realpath(lab.__file__)), 'PLAYED': '',
           'GODWIT_RESULTS': str(tmp_path / 'results')}
    both = [subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert {p.wait() for p in both} <= {0, 5}	# 5: the other one was faster
    ran = [json.loads(line)['test'] for line in (tmp_path / 'results').read_text(encoding='utf-8').splitlines()]
    assert len(ran) == len(set(ran)) == 20
