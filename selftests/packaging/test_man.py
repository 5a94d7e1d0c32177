# SPDX-License-Identifier: GPL-2.0-only
"""The manual pages: every command and option that there is, and no other; nothing that a formatter warns of."""
import glob
import os
import re
import subprocess

import pytest
from helptext import BUILD, COMMANDS, TABLE, TREE, options

MAN = f'{BUILD}/packaging/man'
PAGES = sorted(os.path.basename(path) for path in glob.glob(f'{MAN}/*.1'))


def text(page):
    with open(f'{MAN}/{page}', encoding='utf-8') as f:
        return f.read()


def rendered(page):
    done = subprocess.run(['mandoc', '-Tascii', f'{MAN}/{page}'], stdout=subprocess.PIPE, text=True, check=True)
    return re.sub(r'.\x08', '', done.stdout)


def items(page):
    return re.findall(r'^\.It Fl (?:\w , )?-(\S+)', text(page), re.MULTILINE)


def letters(said):
    """Without what a formatter sets in another way."""
    return re.sub('[^a-z0-9]', '', said.lower())


def test_each_command_has_a_page():
    assert set(PAGES) == {'godwit.1'} | {f'godwit-{command}.1' for command in COMMANDS}
    assert set(re.findall(r'^\.It Cm (\S+)$', text('godwit.1'), re.MULTILINE)) == COMMANDS


@pytest.mark.parametrize('command', sorted(COMMANDS))
def test_options(command):
    assert {f'--{option}' for option in items(f'godwit-{command}.1')} == options(command)


def test_options_of_godwit_itself():
    assert set(items('godwit.1')) == {'help', 'version'}


@pytest.mark.parametrize('command', sorted(COMMANDS))
def test_texts(command):
    """An entry begins with the text of --help, and ends with the default and the range."""
    entries = dict(re.findall(r'\n\n? {5}(?:-\w, )?(--[\w-]+)(.*?)(?=\n\n)', rendered(f'godwit-{command}.1'), re.DOTALL))
    assert entries.keys() == options(command)
    for row in TABLE[command]:
        entry = entries[row.name]
        assert letters(re.sub(r'"godwit ([a-z]+)"', r'godwit-\1(1)', row.help)) in letters(entry), f'{row.help}: {entry}'
        for word in row.words:
            assert word in entry
        if row.initial:
            assert re.search(rf'The\s+default\s+is\s+{row.initial}[.,]', entry), entry
        if row.most:
            assert re.search(rf'range\s+(is\s+)?{row.least}\s+to\s+{row.most}\.', entry), entry


@pytest.mark.parametrize('source', sorted(glob.glob(f'{TREE}/packaging/man/*.1')))
def test_no_second_copy(source):
    """Of an option's text, of a command's summary or synopsis."""
    with open(source, encoding='utf-8') as f:
        body = f.read()
    assert '.It Fl' not in body and ('options come here' in body)
    command = os.path.basename(source)[:-2].partition('-')[2]
    assert not command or ('\n.Nd' not in body and f'.Nm godwit {command}' not in body)


@pytest.mark.parametrize('page', PAGES)
def test_renders_without_warnings(page):
    for command in (['mandoc', '-T', 'lint', '-W', 'warning'], ['man', '--warnings=w', '-E', 'UTF-8', '-l']):
        done = subprocess.run([*command, f'{MAN}/{page}'], capture_output=True, text=True, check=False,
                              env={**os.environ, 'MANROFFSEQ': '', 'MANWIDTH': '80', 'MANPAGER': 'cat', 'LC_ALL': 'C.UTF-8'})
        warnings = done.stdout + done.stderr if command[0] == 'mandoc' else done.stderr
        assert done.returncode == 0 and not warnings, f'{" ".join(command)}: {warnings}'


@pytest.mark.parametrize('page', PAGES)
def test_refers_to_pages_that_exist(page):
    named = re.findall(r'^\.Xr (godwit\S*) (\d)', text(page), re.MULTILINE)
    assert named and {f'{name}.{section}' for name, section in named} <= set(PAGES)


def test_exit_statuses():
    """All of docs/exit-status.md is in the page, in its order."""
    with open(f'{TREE}/docs/exit-status.md', encoding='utf-8') as f:
        listed = re.findall(r'^\| (\d+) \| (\S+) \|', f.read(), re.MULTILINE)
    section = rendered('godwit.1').partition('\nEXIT STATUS\n')[2].partition('\nEXAMPLES\n')[0]
    assert len(listed) > 20
    assert re.findall(r'^ +(\w+) \(([\w-]+)\)', section, re.MULTILINE) == listed
    assert '`' not in section and 'modprobe godwit' in section
