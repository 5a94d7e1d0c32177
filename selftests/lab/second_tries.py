# SPDX-License-Identifier: GPL-2.0-only
"""
Second tries in a whole run, for what the lab's emulator did to a guest: two, over all labs, kselftest and end-to-end tests.

GODWIT_SECOND_TRIES names a directory that all of a run share. A file in it, "1" or "2", is a second try that was granted, and
says to what, and why. Without the variable this process has two of its own.
"""
import os

MOST = 2
own = []	# claims of this process, where no directory is named


def claim(kind_and_name, evidence):
    """Whether this test may run once more; if so it is counted. kind_and_name: 'kselftest attach_test'."""
    line = f'{kind_and_name}: {evidence}\n'
    directory = os.environ.get('GODWIT_SECOND_TRIES')
    if not directory:
        if len(own) < MOST:
            own.append(line)
            return True
        return False
    for number in range(1, MOST + 1):
        try:
            f = open(os.path.join(directory, str(number)), 'x', encoding='utf-8')
        except FileExistsError:
            continue	# another process has claimed it
        with f:
            f.write(line)
        return True
    return False
