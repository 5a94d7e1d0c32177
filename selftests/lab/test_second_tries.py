# SPDX-License-Identifier: GPL-2.0-only
"""How many second tries a run grants. /usr/bin/python3 -m pytest selftests/lab/test_second_tries.py"""
import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.append(HERE)
import second_tries	# noqa: E402 pylint: disable=wrong-import-position

CLAIM = 'import second_tries, sys; sys.exit(not second_tries.claim(sys.argv[1], "a guest that is deaf"))'


def claim_elsewhere(name):
    return subprocess.Popen([sys.executable, '-B', '-c', CLAIM, name], cwd=HERE)


@pytest.fixture(name='directory')
def _directory(tmp_path, monkeypatch):
    monkeypatch.setenv('GODWIT_SECOND_TRIES', str(tmp_path))
    return tmp_path


def test_two_and_no_third(directory):
    answers = [second_tries.claim(f'kselftest {name}', 'the guest has lost count') for name in 'abc']
    assert answers == [True, True, False]
    assert sorted(path.name for path in directory.iterdir()) == ['1', '2']
    assert (directory / '1').read_text() == 'kselftest a: the guest has lost count\n'
    assert (directory / '2').read_text() == 'kselftest b: the guest has lost count\n'


def test_all_processes_of_a_run_share_them(directory):
    processes = [claim_elsewhere(f'e2e test_{i}') for i in range(6)]
    assert sorted(p.wait() for p in processes) == [0, 0, 1, 1, 1, 1]
    told = {path.name: path.read_text() for path in directory.iterdir()}
    assert set(told) == {'1', '2'} and told['1'] != told['2']
    assert not second_tries.claim('kselftest a', 'too late')


def test_a_lost_directory_grants_nothing(directory):
    directory.rmdir()
    with pytest.raises(FileNotFoundError):
        second_tries.claim('kselftest a', 'evidence')


def test_each_process_has_its_own_where_none_is_named(monkeypatch):
    monkeypatch.delenv('GODWIT_SECOND_TRIES', raising=False)
    monkeypatch.setattr(second_tries, 'own', [])
    assert [second_tries.claim('kselftest a', 'evidence') for _ in range(3)] == [True, True, False]
    assert claim_elsewhere('kselftest a').wait() == 0
