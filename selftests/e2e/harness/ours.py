# SPDX-License-Identifier: GPL-2.0-only
"""
Failures that are Godwit's until the opposite is shown: no second try hides them (second_try.py). A test raises them through
the helpers of godwit.py, lab.py and klog.py; a test with a proof of its own calls proved().
"""


class Ours(AssertionError):
    """One of those below."""


class ProofFailed(Ours):
    """Data was lost, a second copy runs, or something was left otherwise than it was found."""


class KernelComplained(Ours):
    """The lab's kernel has logged a warning or worse."""


class ModuleStays(Ours):
    """godwit.ko does not unload."""


class Crashed(Ours):
    """A process ended by a signal that no test has sent."""


class GuestStandsStill(Ours):
    """A guest that has arrived, or was let run again, does not go on."""


def proved(fact, *words):
    if not fact:
        raise ProofFailed(' '.join(map(str, words)))
