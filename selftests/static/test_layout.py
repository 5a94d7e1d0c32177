# SPDX-License-Identifier: GPL-2.0-only
"""The layout of user/ that docs/architecture.md describes, and what kmod/ shares with it: read from the sources, so that
it stays true."""
import collections
import pathlib
import re

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
USER = TOP / 'user'

# Each folder includes itself and what stands behind it here. send/ and receive/ share no include in either direction.
LAYERS = ('cmd', 'check', 'estimate', 'receive', 'place', 'send', 'doubt', 'round', 'peer', 'postcopy', 'reuse', 'fit', 'qom', 'claim', 'txn', 'dirty', 'brake',
          'devstate', 'vmm', 'ram', 'proc', 'qmp', 'control', 'net', 'tls', 'kernel', 'report', 'plan', 'codec', 'wire', 'page', 'base')
APART = ({'send', 'receive'},)
FILES = 18	# .c files of a folder; a drawer has more
COLUMNS = 100

INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)
COMMENT_OR_STRING = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.S)
FUNCTION = re.compile(r'^(?!typedef|struct \w+ \{|enum |#|else\b|return\b)[A-Za-z_][\w \*]*?[\s\*](\w+)\([^;{}]*?\)\s*\{', re.M)


def sources(pattern='*/*.[ch]'):
    found = sorted(USER.glob(pattern))
    assert found
    return found


def module_sources():
    """Without what a build leaves there."""
    found = sorted(path for path in (TOP / 'kmod').rglob('*.[ch]') if not path.name.endswith('.mod.c'))
    assert found
    return found


HALVES = pytest.mark.parametrize('half', (sources, module_sources))


def arrows():
    """(folder, folder, file) of each include that leaves its folder."""
    for path in sources():
        for name in INCLUDE.findall(path.read_text()):
            assert '/' in name, f'{path}: "{name}" does not say which folder'
            assert (USER / name).exists(), f'{path}: no {name}'
            if name.split('/')[0] != path.parent.name:
                yield path.parent.name, name.split('/')[0], path.relative_to(USER)


def test_every_folder_has_its_place():
    assert sorted(LAYERS) == sorted(p.name for p in USER.iterdir() if p.is_dir())


def test_includes_point_downward():
    wrong = [f'{path} includes {there}/' for here, there, path in arrows() if LAYERS.index(there) < LAYERS.index(here)]
    assert not wrong


def test_sender_and_receiver_share_nothing():
    assert not [f'{path} includes {there}/' for here, there, path in arrows() if {here, there} in APART]


def test_no_folder_is_a_drawer():
    count = collections.Counter(path.parent.name for path in sources('*/*.c'))
    assert not [f'{name}/ has {n} files' for name, n in count.items() if n > FILES]


@pytest.mark.parametrize(('half', 'least'), ((sources, 500), (module_sources, 200)))
def test_a_function_has_one_name(half, least):
    """Static functions as well: a name in a backtrace, or in a grep, leads to one place."""
    where = collections.defaultdict(set)
    for path in half():
        if path.suffix == '.c':
            for name in FUNCTION.findall(COMMENT_OR_STRING.sub('', path.read_text())):
                where[name].add(str(path.relative_to(TOP)))
    assert len(where) > least	# the expression still finds functions
    assert not {name: paths for name, paths in where.items() if len(paths) > 1}


def columns(line):
    return len(line.expandtabs(8))


def shows_a_string(line):
    return '"' in line and not line.lstrip().startswith(('*', '/*', '//'))


@HALVES
def test_lines_are_no_longer_than_a_screen(half):
    """A string that a user reads, and greps for, stands in one line, whatever its length."""
    long = [f'{path.relative_to(TOP)}:{number}' for path in half()
            for number, line in enumerate(path.read_text().splitlines(), 1) if columns(line) > COLUMNS and not shows_a_string(line)]
    assert not long
