# SPDX-License-Identifier: GPL-2.0-only
"""What the tool itself says of its commands and options: help, pages and completion are held against it."""
import collections
import glob
import os
import re
import subprocess

TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
BUILD = os.path.abspath(os.environ.get('B') or os.path.join(TREE, 'build'))
DEBS = sorted(glob.glob(f'{BUILD}/deb/*.deb'))
# A row of the table that pages and completion are made from.
Option = collections.namedtuple('Option', 'name letter value words initial least most help')


def call(*words):
    return subprocess.run([f'{BUILD}/godwit', *words], capture_output=True, text=True, check=False, timeout=30,
                          env={'LC_ALL': 'C'})


def help_text(*words):
    done = call(*words, '--help')
    assert done.returncode == 0 and not done.stderr, f'{words}: {done.stderr}'
    return done.stdout


def options(command):
    """All that getopt_long() knows: it names them when a prefix, here an empty one, may mean any."""
    found = set(re.findall(r"'(--[a-z-]+)'", call(command, '--=').stderr.partition('possibilities:')[2]))
    assert '--help' in found and len(found) > 1, f'getopt_long() knows no option of {command}'
    return found


def described(command):
    """What its help lists: (names of an option, what stands there for its value or '')."""
    found = re.findall(r'^  ((?:-[a-z], )?--[a-z][a-z-]*)(?: ([^ \n]+))?(?:  .*)?$', help_text(command), re.MULTILINE)
    assert found, f'godwit {command} --help lists no option'
    return [(names.split(', '), value) for names, value in found]


def table():
    """{command: its options}; that of godwit itself is ''."""
    found, done = {}, call('--options')
    assert done.returncode == 0 and not done.stderr
    for kind, *fields in (line.split('\t') for line in done.stdout.splitlines()):
        if kind == 'command':
            found[fields[0]] = rows = []
        elif kind == 'option':
            name, letter, value, words, initial, least, most, text = fields
            rows.append(Option(f'--{name}', letter, value, [word for word in words.split('|') if word], initial,
                               int(least), int(most), text))
    return found


COMMANDS = set(re.findall(r'^  ([a-z]+) ', help_text(), re.MULTILINE))
assert len(COMMANDS) > 2
TABLE = table()
# (command, option) of each option that takes one or some of a list of words.
WORDS = [(command, option) for command, rows in sorted(TABLE.items()) for option in rows if option.words]
