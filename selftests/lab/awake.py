# SPDX-License-Identifier: GPL-2.0-only
"""
An emulated CPU that runs a nested guest now and then does not notice an interrupt: its local APIC holds it for ever, the
other CPUs wait for an answer, and the kernel complains of a stall. A CPU of silicon leaves the guest at once. What wakes it
is an NMI, which the kernel reports and ignores.
"""
import os
import re
import sys
import time

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), 'e2e/harness'))
from qmp import Qmp, QmpError	# noqa: E402 pylint: disable=wrong-import-position

PERIOD = 2	# seconds
PATIENCE = 4	# looks at the same interrupt: well below a stall's 21 s, and above what a busy host takes


def untaken(lapic):
    """
    What waits in a local APIC, though it may interrupt with it: vectors, each with the timer as it stands. A CPU that takes
    its interrupts has set that anew; the same vector alone may be the next one. lapic: the text of "info lapic".
    """
    waiting = re.search(r'^IRR[ \t]+([\d ]+)', lapic, re.M)
    priority = re.search(r'\bPPR (0x\w+)', lapic)
    timer = re.search(r'^Timer.*', lapic, re.M)
    if not waiting or not priority or not timer:
        return set()
    return {(int(v), timer[0].rstrip()) for v in waiting[1].split() if int(v) >> 4 > int(priority[1], 16) >> 4}


class Watch:
    """monitor: a socket with QEMU's QMP monitor behind it."""

    def __init__(self, monitor, cpus):
        self.monitor, self.cpus = monitor, cpus
        self.ask = None		# until QEMU's monitor answers
        self.next = 0
        self.seen = [(set(), 0)] * cpus

    def _look(self, cpu):
        now = untaken(self.ask('human-monitor-command', 20, command_line=f'info lapic {cpu}'))
        before, times = self.seen[cpu]
        both = before & now
        self.seen[cpu] = (both, times + 1) if both else (now, 1)
        if both and times == PATIENCE:
            print(f'lab: CPU {cpu} has not noticed interrupts {sorted(v for v, _ in both)} for {PATIENCE * PERIOD} s: an NMI for it',
                  file=sys.stderr, flush=True)
            self.ask('inject-nmi', 20)
            self.seen[cpu] = (set(), 0)

    def look(self):
        """Now and then; False: the monitor does not answer any more."""
        if time.monotonic() < self.next:
            return True
        self.next = time.monotonic() + PERIOD
        try:
            self.ask = self.ask or Qmp(self.monitor)
            for cpu in range(self.cpus):
                self._look(cpu)
        except (OSError, QmpError) as e:
            print(f'lab: stopped watching for CPUs that miss interrupts: {e}', file=sys.stderr, flush=True)
            return False
        return True
