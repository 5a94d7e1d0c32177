# SPDX-License-Identifier: GPL-2.0-only
"""
Which failures verdict gives a second try: what the kernel's runner would print is played to it, and a runner that is none
plays what comes of the second try. /usr/bin/python3 -m pytest selftests/kselftest/test_verdict.py
"""
import os
import subprocess

import pytest

VERDICT = os.path.join(os.path.dirname(os.path.realpath(__file__)), 'verdict')
EVIDENCE = '# emulator: the guest has lost count: 7 instead of 8, 1 of 1'
ABORT = '# writes: Test terminated by assertion'
STEP = '# writes: Test failed at step #5'


def check(expected, line='Expected'):
    return f'# row_test.c:72:writes:{line} {expected}'


def proof(expected, text):
    return [check(expected), f'# proof failed: row_test.c:72: {text}']


def harness(*said, result='not ok', planned=2, end='ok'):
    """What one program prints: two tests, the first of which says these lines."""
    first = ['#  RUN           row.writes ...', *said, f'#          {"OK" if result == "ok" else "FAIL"}  row.writes',
             f'{result} 1 row.writes']
    second = ['#  RUN           row.reads ...', '#            OK  row.reads', f'{end} 2 row.reads']
    return ['TAP version 13', f'1..{planned}', f'# Starting {planned} tests from 1 test cases.', *first, *second,
            '# FAILED: 1 / 2 tests passed.' if result != 'ok' else '# PASSED: 2 / 2 tests passed.',
            '# Totals: pass:1 fail:1 xfail:0 xpass:0 skip:0 error:0']


def runner(*programs):
    """What runner.sh and prefix.pl make of programs: (name, lines, what stands behind its result)."""
    out = ['TAP version 13', f'1..{len(programs)}']
    for number, (name, lines, end) in enumerate(programs, 1):
        out += [f'# selftests: godwit: {name}', *(f'# {line}' for line in lines)]
        if 'TIMEOUT' in end:
            out.append('#')
        ok = 'ok' if not end or 'SKIP' in end else 'not ok'
        out.append(f'{ok} {number} selftests: godwit: {name}{end}')
    return ''.join(f'{line}\n' for line in out)


def failed(*said, **how):
    return 'row_test', harness(*said, **how), ' # exit=1'


GOOD = ('row_test', harness(result='ok'), '')
EXCUSED = failed(EVIDENCE, ABORT)


class Played:
    """What verdict made of it: .status, .said, .tries (programs that ran once more), .granted (lines of the run's files)."""

    def __init__(self, path, programs, again=GOOD, text=None):
        fake, ran, granted = path / 'runner', path / 'ran', path / 'granted'
        granted.mkdir(exist_ok=True)
        (path / 'again').write_text(runner(again))
        fake.write_text(f'#!/bin/sh\necho "$@" >>{ran}\ncat {path}/again\n')
        fake.chmod(0o755)
        done = subprocess.run([VERDICT, fake], input=text or runner(*programs), capture_output=True, text=True, check=False,
                              env={**os.environ, 'GODWIT_SECOND_TRIES': str(granted)})
        assert not done.stderr
        self.status, self.said = done.returncode, done.stdout
        self.tries = ran.read_text().splitlines() if ran.exists() else []
        self.granted = sorted(p.read_text() for p in granted.iterdir())

    def is_red(self):
        return self.status == 1 and not self.tries and not self.granted and '#   second tries: 0\n' in self.said


@pytest.fixture(name='play')
def _play(tmp_path):
    return lambda *programs, **how: Played(tmp_path, programs, **how)


def test_all_passed(play):
    played = play(GOOD, ('attach_test', harness(result='ok'), ''))
    assert played.status == 0 and not played.tries
    assert played.said.endswith('# verdict: 6 passed, 0 failed, 0 skipped\n#   second tries: 0\n')


def test_skipped(play):
    played = play(GOOD, ('attach_test', ['TAP version 13', '1..0 # SKIP not root'], ' # SKIP'))
    assert played.status == 4
    assert '# verdict: 3 passed, 0 failed, 1 skipped\n#   skipped: selftests: godwit: attach_test # SKIP\n' in played.said


def test_what_was_not_shown(play):
    """Once in a run it is said; twice it is red."""
    def control(name):
        return name, harness(f'# flush_test.c:389:{name}:not shown: sum.lost', result='ok'), ''
    played = play(GOOD, control('one_test'))
    assert played.status == 0 and '#   not shown: 1 of at most 1\n#     one_test: sum.lost\n' in played.said
    assert play(GOOD, control('one_test'), control('other_test')).status == 1


def test_evidence_alone_gets_a_second_try(play):
    played = play(('attach_test', harness(result='ok'), ''), EXCUSED)
    assert played.status == 0 and played.tries == ['-t godwit:row_test']
    assert played.granted == ['kselftest row_test: the guest has lost count: 7 instead of 8, 1 of 1\n']
    assert played.said.endswith('# verdict: 6 passed, 0 failed, 0 skipped\n#   second tries: 1\n'
                                '#     kselftest row_test: the guest has lost count: 7 instead of 8, 1 of 1\n')


@pytest.mark.parametrize('again', [
    EXCUSED, failed(STEP), failed(*proof('0 (0) == missed (1)', 'ASSERT_EQ(0, missed)'), ABORT),
    ('row_test', harness('# kernel log: WARNING: ', result='ok'), ' # exit=1'),
], ids=['evidence', 'plain', 'proof', 'kernel'])
def test_a_second_try_that_fails_is_red(play, again):
    played = play(EXCUSED, again=again)
    assert played.status == 1 and len(played.tries) == 1
    assert '#   second tries: 1\n' in played.said and '#   failed: ' in played.said


def test_a_runner_that_says_nothing_the_second_time_is_red(play, tmp_path):
    played = play(EXCUSED)
    assert played.status == 0
    (tmp_path / 'again').write_text('')
    done = subprocess.run([VERDICT, tmp_path / 'runner'], input=runner(EXCUSED), capture_output=True, text=True, check=False,
                          env={**os.environ, 'GODWIT_SECOND_TRIES': str(tmp_path / 'granted')})
    assert done.returncode == 1 and '#   failed: no plan' in done.stdout


PROOFS = {
    'missed': proof('0 (0) == missed (3)', 'ASSERT_EQ(0, missed)'),
    'invented': proof('0 (0) == invented (1)', 'ASSERT_EQ(0, invented)'),
    'stops_that_missed': proof('0 (0) == stops_that_missed(&self->rig) (2)', 'EXPECT_EQ(0, stops_that_missed(&self->rig))'),
    'run_and_stop': proof('0 (0) == run_and_stop(&self->rig) (1)', 'EXPECT_EQ(0, run_and_stop(&self->rig))'),
    'bits_count': proof('102 (102) == bits_count(&s->ram[0]) (101)', 'EXPECT_EQ(102, bits_count(&s->ram[0]))'),
    'changed': proof('0 (0) != changed(&self->s, 0, HALF) (0)', 'EXPECT_TRUE(changed(&self->s, 0, HALF))'),
    'logged': proof('1 (1) == logged(&self->vm) (6)', 'EXPECT_EQ(1, logged(&self->vm))'),
    'shadow_differs': proof('0 (0) == shadow_differs(&sh) (1)', 'EXPECT_EQ(0, shadow_differs(&sh))'),
    'of a worker': ['# proof failed: module_test.c:131: the guest has written, and no page is reported'],
    'behind half a line': [check('0 (0) == missed (3)'), 'half a line# proof failed: row_test.c:72: ASSERT_EQ(0, missed)'],
}


@pytest.mark.parametrize('evidence', [[], [EVIDENCE]], ids=['alone', 'beside evidence'])
@pytest.mark.parametrize('what', PROOFS)
def test_a_failed_proof_is_red(play, what, evidence):
    """In whatever order; and evidence of one test does not help another one of the program."""
    assert play(failed(*evidence, *PROOFS[what], STEP)).is_red()
    assert play(failed(*PROOFS[what], *evidence, ABORT)).is_red()
    lines = harness(*evidence, ABORT, end='not ok')
    at = lines.index('#            OK  row.reads')
    assert play(('row_test', lines[:at] + PROOFS[what] + [STEP] + lines[at:], ' # exit=1')).is_red()


FAULTS = {
    'kernel log': ('# kernel log: WARNING: CPU: 1 PID: 7 at kmod/ram.c:12', ' # exit=1'),
    'kernel log that ran over': ('# kernel log: it ran over, lines were lost', ' # exit=1'),
    'module stays': ('# the module does not unload: Resource temporarily unavailable', ' # exit=1'),
    'crash': ('# writes: Test terminated unexpectedly by signal 11', ' # exit=1'),
    'timeout of a test': ('# writes: Test terminated by timeout', ' # exit=1'),
    'strange end': ('# writes: Test ended in some other way [4991]', ' # exit=1'),
    'required': ('# required: lib/session.c:16: /dev/godwit: No such device', ' # exit=1'),
    'crash of the program': ('', ' # exit=139'),
    'abort of the program': ('', ' # exit=134'),
    'timeout of the program': ('', ' # TIMEOUT 420 seconds'),
    'kill of the program': ('', ' # exit=137'),
}


@pytest.mark.parametrize('evidence', [[], [EVIDENCE, ABORT]], ids=['alone', 'beside evidence'])
@pytest.mark.parametrize('what', FAULTS)
def test_another_fault_is_red(play, what, evidence):
    line, end = FAULTS[what]
    assert play(('row_test', harness(*evidence, *filter(None, [line])), end)).is_red()
    if line:
        assert play(('row_test', harness(*evidence) + [line], end)).is_red()


def test_a_kernel_log_after_tests_that_passed_is_red(play):
    assert play(('row_test', harness(EVIDENCE, result='ok') + ['# kernel log: BUG: '], ' # exit=1')).is_red()


@pytest.mark.parametrize('evidence', [[], [EVIDENCE, ABORT]], ids=['alone', 'beside evidence'])
def test_a_hole_in_the_plan_is_red(play, evidence):
    assert play(('row_test', harness(*evidence, planned=3), ' # exit=1')).is_red()
    assert play(('row_test', harness(*evidence, planned=3, result='ok'), '')).is_red()
    assert play(text=runner(failed(*evidence)).rsplit('not ok', 1)[0]).is_red()
    assert play(text='\n').is_red()
    # A program without any result: that of another one may be excused, this is not.
    assert play(text=runner(failed(*evidence)).replace('1..1\n', '1..2\n', 1)).status == 1


def test_a_plain_failure_is_red(play):
    assert play(failed(check('0 (0) == r (1)'), STEP)).is_red()
    assert play(failed(ABORT)).is_red()
    # What had failed before says nothing of the emulator; nor does an abort with another reason, or another program's.
    assert play(failed(check('0 (0) == r (1)'), EVIDENCE, ABORT)).is_red()
    assert play(failed(EVIDENCE, 'free(): invalid pointer', ABORT)).is_red()
    assert play(('attach_test', harness(EVIDENCE, result='ok'), ''), failed(check('0 (0) == r (1)'), STEP)).is_red()
    assert play(('row_test', ['# Warning: file row_test is missing!'], ' # exit=1')).is_red()


def test_each_failed_test_needs_evidence(play):
    lines = harness(EVIDENCE, ABORT, end='not ok')
    assert play(('row_test', lines, ' # exit=1')).is_red()
    at = lines.index('#            OK  row.reads')
    both = lines[:at] + ['# emulator: deaf', '# reads: Test terminated by assertion'] + lines[at:]
    assert play(('row_test', both, ' # exit=1')).tries == ['-t godwit:row_test']


def test_evidence_of_another_process(play):
    """A worker ends by it, and the test sees that the worker has ended."""
    played = play(failed(EVIDENCE, check('0 (0) == ended (1)'), check('', 'a worker ended'), STEP))
    assert played.status == 0 and played.tries == ['-t godwit:row_test']


def test_evidence_excuses_its_own_program_alone(play):
    played = play(EXCUSED, ('attach_test', harness(STEP), ' # exit=1'))
    assert played.status == 1 and played.tries == ['-t godwit:row_test']


def test_the_third_second_try_of_a_run_is_red(play):
    names = 'row_test', 'attach_test', 'stats_test'
    played = play(*((name, *EXCUSED[1:]) for name in names))
    assert played.status == 1 and played.tries == [f'-t godwit:{name}' for name in names[:2]] and len(played.granted) == 2
    assert '# verdict: stats_test: this run has no second try left\n' in played.said
    assert '#   failed: selftests: godwit: stats_test # exit=1\n' in played.said and '#   second tries: 2\n' in played.said


def test_other_labs_and_tests_of_the_run_count(play, tmp_path):
    (tmp_path / 'granted').mkdir()
    for number in '12':
        (tmp_path / 'granted' / number).write_text('e2e test_idle: a guest that is deaf\n')
    played = play(EXCUSED)
    assert played.status == 1 and not played.tries and '#   second tries: 0\n' in played.said
