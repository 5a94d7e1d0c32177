# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's log since a mark."""
import os
import re

from ours import KernelComplained

BAD = re.compile(r'WARNING: |BUG: |kernel BUG|Oops|Call Trace|KASAN|UBSAN|KCSAN|general protection fault|'
                 r'INFO: (task|rcu)|possible (circular|recursive|irq lock)|inconsistent lock state|'
                 r'soft lockup|segfault at|traps: |unreferenced object|refcount_t:|leaked|Unable to handle')


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
        for i, line in enumerate(lines):
            if BAD.search(line):
                raise KernelComplained('the kernel complained:\n' + '\n'.join(lines[i:i + 60]))
        return lines

    def close(self):
        os.close(self._fd)
