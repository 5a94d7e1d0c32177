# SPDX-License-Identifier: GPL-2.0-only
"""What the tool itself says of its commands and options: pages and completion are held against it."""
import os
import re
import subprocess

TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
BUILD = os.path.abspath(os.environ.get('B') or os.path.join(TREE, 'build'))
PACKAGING = f'{TREE}/packaging'


def _help(*words):
    return subprocess.run([f'{BUILD}/godwit', *words, '--help'], stdout=subprocess.PIPE, text=True, check=True).stdout


def options(command):
    """All that its help names, described or not."""
    found = set(re.findall(r'--[a-z][a-z-]*', _help(command)))
    assert found, f'godwit {command} --help names no option'
    return found


COMMANDS = set(re.findall(r'^  ([a-z]+) ', _help(), re.MULTILINE))
assert len(COMMANDS) > 2
