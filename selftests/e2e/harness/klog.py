# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's log since a mark."""
import os
import sys

from ours import KernelComplained

sys.path.append(os.path.realpath(f'{os.path.dirname(os.path.realpath(__file__))}/../../lab'))
import complaints	# noqa: E402 pylint: disable=wrong-import-position


class KernelLog:
    def __init__(self):
        self._fd = os.open('/dev/kmsg', os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(self._fd, 0, os.SEEK_END)

    def lines(self):
        """What was logged since the last call."""
        found = []
        while True:
            try:
                record = os.read(self._fd, 8192).decode(errors='replace')
            except BlockingIOError:
                return found
            except BrokenPipeError:
                found.append('(lines were lost: the log ran over)')
                continue
            found.append(record.split(';', 1)[-1].split('\n')[0])

    def check(self):
        lines = self.lines()
        bad = complaints.first(lines)
        if bad is not None:
            raise KernelComplained('the kernel complained:\n' + '\n'.join(lines[bad:bad + 60]))
        return lines

    def close(self):
        os.close(self._fd)
