# SPDX-License-Identifier: GPL-2.0-only
"""What the tool itself says of its commands and options: pages and completion are held against it."""
import glob
import os
import re
import subprocess

TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
BUILD = os.path.abspath(os.environ.get('B') or os.path.join(TREE, 'build'))
PACKAGING = f'{TREE}/packaging'
DEBS = sorted(glob.glob(f'{BUILD}/deb/*.deb'))


def help_text(*words):
    return subprocess.run([f'{BUILD}/godwit', *words, '--help'], stdout=subprocess.PIPE, text=True, check=True).stdout


def options(command):
    """All that its help names, described or not; what it quotes of another command is not its own."""
    found = set(re.findall(r'--[a-z][a-z-]*', re.sub(r'"godwit [^"]*"', '', help_text(command))))
    assert found, f'godwit {command} --help names no option'
    return found


def described(command):
    """What its help lists: (names of an option, what stands there for its value or '')."""
    found = re.findall(r'^  ((?:-[a-z], )?--[a-z][a-z-]*)(?: ([^ \n]+))?(?:  .*)?$', help_text(command), re.MULTILINE)
    assert found, f'godwit {command} --help lists no option'
    return [(names.split(', '), value) for names, value in found]


COMMANDS = set(re.findall(r'^  ([a-z]+) ', help_text(), re.MULTILINE))
assert len(COMMANDS) > 2
