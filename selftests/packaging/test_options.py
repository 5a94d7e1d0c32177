# SPDX-License-Identifier: GPL-2.0-only
"""
The table of options: what --help says is so, each value that it names is accepted and one beside it refused. Nothing is done:
--help follows, or there is no value, or no QEMU.
"""
import re

import pytest
from helptext import COMMANDS, TABLE, WORDS, call, described, help_text, options

NUMBERS = [(command, option) for command, rows in sorted(TABLE.items()) for option in rows
           if option.value in ('MIB', 'MS', 'N', 'PAGES', 'PID', 'S')]
# What a command needs to get past its command line; there is no QEMU, and no migration.
NEEDS = {
    'send': ('--qmp', '/nonexistent/qmp', '127.0.0.1:1'),
    'receive': ('--qmp', '/nonexistent/qmp', '--listen', '127.0.0.1:0'),
    'check': ('--qmp', '/nonexistent/qmp'),
    'estimate': ('--qmp', '/nonexistent/qmp', '--bandwidth', '1'),
    'set': ('--control', '/nonexistent/control'),
}


def name(case):
    return case if isinstance(case, str) else case.name


def refused(command, option, value):
    """Its message."""
    done = call(command, option.name, value, '--help')
    assert done.returncode == 2 and not done.stdout, f'{option.name} {value!r} was accepted: {done.stdout}'
    assert done.stderr.startswith(f'godwit: {option.name} takes '), done.stderr
    assert f'not "{value}"' in done.stderr
    return done.stderr


def test_commands():
    assert TABLE.keys() - {''} == COMMANDS


@pytest.mark.parametrize('command', sorted(COMMANDS))
def test_help_names_all_that_is_known(command):
    assert {names[-1] for names, _ in described(command)} == options(command) == {row.name for row in TABLE[command]}
    assert len(TABLE[command]) == len(options(command))


@pytest.mark.parametrize('command', sorted(COMMANDS))
def test_values(command):
    """An option takes a value if --help names one, and none if not; a short form is no other option."""
    for names, value in described(command):
        for each in names:
            if value:
                done = call(command, each)
                assert done.returncode == 2 and 'requires an argument' in done.stderr, f'{each} {value}: {done.stderr}'
            else:
                done = call(command, each, '--help')
                assert done.returncode == 0 and not done.stderr, f'{each}: {done.stderr}'


@pytest.mark.parametrize('command', sorted(COMMANDS))
def test_unknown_option(command):
    done = call(command, '--nonesuch')
    assert done.returncode == 2 and "unrecognized option '--nonesuch'" in done.stderr


@pytest.mark.parametrize('command,option', WORDS, ids=name)
def test_words(command, option):
    """Each does what it is there for, and so does the option's whole parser, not only its list of words."""
    several = [','.join(option.words)] if option.value else []
    for word in [*option.words, *several]:
        done = call(command, option.name, word, *NEEDS[command])
        assert done.returncode != 2 and ' takes ' not in done.stderr, f'{option.name} {word}: {done.stderr}'
    first, last = option.words[0], option.words[-1]
    beside = ['', first[:-1], f'{first}x', first.upper(), f'{first}|{last}', '|']
    for word in [*beside, *([f'{first},', f',{first}', f'{first},none'] if option.value else [f'{first},{last}'])]:
        said = refused(command, option, word)
        listed = re.search(r' takes (.*?)(, or several|, not )', said)[1]
        assert re.split(', | or ', listed) == option.words


@pytest.mark.parametrize('command,option', NUMBERS, ids=name)
def test_numbers(command, option):
    for value in ('', 'x', '1x', '-1', '99999999999999999999'):
        said = refused(command, option, value)
    least, most = map(int, re.search(r' takes a whole number from (\d+) to (\d+), not ', said).groups())
    assert (option.least, option.most) in ((least, most), (0, 0))
    for value in (least, most):
        done = call(command, option.name, str(value), '--help')
        assert done.returncode == 0 and not done.stderr, f'{option.name} {value}: {done.stderr}'
    for value in (least - 1, most + 1):
        refused(command, option, str(value))


@pytest.mark.parametrize('command', sorted(COMMANDS))
def test_defaults(command):
    """What counts without the option stands in its text, and nowhere else."""
    said = re.sub(r'\s+', ' ', help_text(command))
    for row in TABLE[command]:
        text = said.partition(f' {row.name} ')[2].partition(' --')[0]
        assert re.findall(r'\(default: (\S+)\)', text) == [row.initial] * bool(row.initial), f'{row.name}: {text}'


@pytest.mark.parametrize('command', ['', *sorted(COMMANDS)])
def test_lines_fit(command):
    words = [command] if command else []
    assert [line for line in help_text(*words).splitlines() if len(line) > 80] == []
