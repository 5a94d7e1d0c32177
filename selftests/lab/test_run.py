# SPDX-License-Identifier: GPL-2.0-only
"""How selftests/run shares a host out, and what it says of that, with jobs of a few lines."""
import importlib.machinery
import importlib.util
import json
import os

import pytest

RUN = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), 'run')


@pytest.fixture
def run(tmp_path, monkeypatch):
    """The program as a module, with a build directory of its own, on an emulated host with two CPUs."""
    monkeypatch.setenv('B', str(tmp_path))
    monkeypatch.setattr(os, 'cpu_count', lambda: 2)
    loader = importlib.machinery.SourceFileLoader('run', RUN)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader('run', loader))
    loader.exec_module(module)
    for path in (f'{tmp_path}/lab', module.SHARE, module.RESULTS, module.LOGS, module.SECOND_TRIES):
        os.makedirs(path)
    (tmp_path / 'lab/accel').write_text('tcg: emulated\n', encoding='ascii')
    return module


def job(run, name, lab=0, script='true'):
    """It notes when it begins and ends."""
    return run.Job(name, ['sh', '-c', f'echo + {name} >>"$B/order"; {script}; s=$?; echo - {name} >>"$B/order"; exit $s'], lab)


def side_by_side(tmp_path):
    """The jobs that ran at a time, each time one began."""
    running, seen = [], []
    for line in (tmp_path / 'order').read_text(encoding='ascii').splitlines():
        sign, name = line.split()
        if sign == '-':
            running.remove(name)
        else:
            running.append(name)
            seen.append(set(running))
    return seen


def results_of(run, name, *outcomes):
    with open(f'{run.RESULTS}/{name}', 'w', encoding='ascii') as f:
        for test, outcome in outcomes:
            f.write(json.dumps({'test': test, 'outcome': outcome}) + '\n')


def test_order(run):
    """What needs two CPUs first, and what several labs share last; each job of several targets once."""
    jobs = run.in_order(run.once(j for target in ('check', 'kernels', 'check') for j in run.TARGETS[target]))
    labs = [j for j in jobs if j.lab]
    assert [j.lab for j in labs] == sorted((j.lab for j in labs), reverse=True)
    assert [j.name for j in labs][-run.E2E_LABS:] == [f'e2e-{n + 1}' for n in range(run.E2E_LABS)]
    assert len({j.name for j in jobs}) == len(jobs) == len(run.TARGETS['check']) + len(run.TARGETS['kernels'])


def test_end_to_end_labs_have_one_cpu(run):
    """Two emulated ones damage a guest now and then."""
    for jobs in run.TARGETS.values():
        for one in jobs:
            if 'check' in one.command or 'e2e' in one.command:
                assert (one.lab == 1 and 'LAB_CPUS=1' in one.command) or not one.lab, one


def test_room(run, tmp_path, monkeypatch):
    """
    One lab of two CPUs at a time, and one of one CPU beside it, or three of those; one job at a time needs no lab, or those that
    share a list.
    """
    monkeypatch.setenv('B', str(tmp_path))
    lab = {'two': 2, 'too': 2, 'e2e-1': 1, 'e2e-2': 1, 'e2e-3': 1, 'a': 0, 'b': 0, 'e2e-native-1': 0, 'e2e-native-2': 0}
    took = {'e2e-1': 6, 'e2e-2': 6}	# until both labs of two have ended, also on a busy host
    jobs = [job(run, name, cpus, f'sleep {took.get(name, 0.6)}') for name, cpus in lab.items()]
    assert run.room() == 3
    assert len(run.run_all(jobs, {}, run.only_one())) == len(jobs)
    seen = side_by_side(tmp_path)
    assert not [names for names in seen if sum(lab[name] for name in names) > 3]
    assert any({'two', 'e2e-1'} <= names for names in seen), seen
    native = {'e2e-native-1', 'e2e-native-2'}
    assert not [names for names in seen if len(names) > 5 or {'a', 'b'} & names and sum(not lab[name] for name in names) > 1]
    assert any(native <= names for names in seen), seen
    assert any({'two', 'a'} <= names for names in seen) and any({'e2e-1', 'e2e-2', 'e2e-3'} <= names for names in seen), seen


def test_who_goes_first(run, tmp_path, monkeypatch):
    """An emulated lab of several CPUs has them when it wants them."""
    monkeypatch.setenv('B', str(tmp_path))
    jobs = [job(run, name, cpus, f'nice >"$B/nice-{name}"') for name, cpus in (('two', 2), ('one', 1), ('none', 0))]
    assert not any(status for *_, status in run.run_all(jobs, {}, run.only_one()))
    behind = {one.name: int((tmp_path / f'nice-{one.name}').read_text(encoding='ascii')) - os.nice(0) for one in jobs}
    most = min(5, 19 - os.nice(0))
    assert behind == {'two': 0, 'one': most, 'none': most}


def test_summary(run, monkeypatch, capsys):
    """A test counts where the list was shared; what another kernel's lab says of its namesake is another thing."""
    monkeypatch.setenv('B', run.B)
    wanted = {'not native': ['t::a', 't::b'], 'native': ['t::n']}
    results_of(run, 'e2e-1', ('t::a', 'passed'))
    results_of(run, 'e2e-native-2', ('t::n', 'passed'))
    results_of(run, 'other-e2e', ('t::a', 'failed'), ('t::b', 'passed'))
    done = run.run_all([job(run, 'e2e-1', 1), job(run, 'busy', 0, 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done')],
                       wanted, run.only_one())
    assert run.summary('check', 0, done, wanted, 0) == 1
    said = capsys.readouterr().out
    assert 'did not run: t::b' in said and 'INCOMPLETE' in said and 't::a' not in said.split('what ran')[1]
    assert dict((name, cpu > 0.02) for name, _, cpu, _ in done) == {'e2e-1': False, 'busy': True}
    results_of(run, 'e2e-2', ('t::b', 'failed'))
    assert run.summary('check', 0, done, wanted, 0) == 1
    assert 'FAILED: t::b' in capsys.readouterr().out
    # A lab for which nothing is left does not even boot.
    assert run.nothing_left(run.Job('e2e-3', []), wanted) and not run.nothing_left(run.Job('e2e-1', []), wanted)
    assert not run.nothing_left(run.Job('other-e2e', []), wanted)
    # Each list for itself; and of natively run tests, too, each must have.
    assert run.nothing_left(run.Job('e2e-3', []), {**wanted, 'native': ['t::m']})
    assert not run.nothing_left(run.Job('e2e-native-2', []), {**wanted, 'native': ['t::m']})
    assert run.summary('check', 0, done, {**wanted, 'native': ['t::m']}, 0) == 1
    assert 'did not run: t::m' in capsys.readouterr().out


def test_a_job_that_fails(run, monkeypatch, capsys):
    monkeypatch.setenv('B', run.B)
    done = run.run_all([job(run, 'well'), job(run, 'ill', 0, 'echo "E   the reason"; false')], {}, run.only_one())
    assert run.summary('native', 0, done, {}, 0) == 1
    said = capsys.readouterr().out
    assert 'FAILED: ill' in said and 'ill: E   the reason' in said.splitlines()
