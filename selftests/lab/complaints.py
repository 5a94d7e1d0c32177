# SPDX-License-Identifier: GPL-2.0-only
"""What no test may make the kernel say."""
import os
import re

HERE = os.path.dirname(os.path.realpath(__file__))
with open(os.path.join(HERE, 'complaints'), encoding='ascii') as f:
    LINES = [line.rstrip('\n') for line in f if not re.match(r'#|\n', line)]
TEXTS = [line.removeprefix('~') for line in LINES]
ON_CONSOLE = [line for line in LINES if not line.startswith('~')]


def first(lines, texts=None):
    """The index of the first line that is a complaint, or None."""
    complaint = re.compile('|'.join(map(re.escape, texts or TEXTS)))
    return next((i for i, line in enumerate(lines) if complaint.search(line)), None)
