# SPDX-License-Identifier: GPL-2.0-only
"""What --help says is so."""
import subprocess

import pytest
from helptext import BUILD, COMMANDS, described, help_text, options


def call(*words):
    return subprocess.run([f'{BUILD}/godwit', *words], capture_output=True, text=True, check=False, timeout=30,
                          env={'LC_ALL': 'C'})


@pytest.mark.parametrize('command', sorted(COMMANDS))
def test_options_are_known(command):
    """An option takes a value if --help names one, and none if not. Nothing is done: there is no value, or --help follows."""
    assert {names[-1] for names, _ in described(command)} == options(command) - {'--help'}
    for names, value in described(command):
        for name in names:
            if value:
                done = call(command, name)
                assert done.returncode == 2 and 'requires an argument' in done.stderr, f'{name} {value}: {done.stderr}'
            else:
                done = call(command, name, '--help')
                assert done.returncode == 0 and not done.stderr, f'{name}: {done.stderr}'


@pytest.mark.parametrize('command', sorted(COMMANDS))
def test_lines_fit(command):
    assert [line for line in help_text(command).splitlines() if len(line) > 120] == []
