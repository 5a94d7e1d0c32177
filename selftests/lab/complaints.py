# SPDX-License-Identifier: GPL-2.0-only
"""What no test may make the kernel say."""
import os
import re

HERE = os.path.dirname(os.path.realpath(__file__))
with open(os.path.join(HERE, 'complaints'), encoding='ascii') as f:
    LINES = [line.rstrip('\n') for line in f if not re.match(r'#|\n', line)]
KNOWN = [line[1:] for line in LINES if line.startswith('!')]
TEXTS = [line.removeprefix('~') for line in LINES if not line.startswith('!')]
ON_CONSOLE = [line for line in LINES if not line.startswith(('~', '!'))]
TRACE = 40	# lines between a WARNING and its call trace


def first(lines, texts=None):
    """The index of the first line that is a complaint, or None."""
    complaint = re.compile('|'.join(map(re.escape, texts or TEXTS)))
    known = re.compile('WARNING:.*(' + '|'.join(map(re.escape, KNOWN)) + ')')
    spared = 0
    for i, line in enumerate(lines):
        if known.search(line):
            spared = TRACE
        elif spared and 'Call Trace' in line:
            spared = 0
        elif complaint.search(line):
            return i
        spared -= spared > 0
    return None
