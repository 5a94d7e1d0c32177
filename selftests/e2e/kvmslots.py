# SPDX-License-Identifier: GPL-2.0-only
"""Which memslots of a VM have their dirty log on, as KVM itself says: no word of the module's is in it."""
import re

import lab


def kvm_logged(vm):
    """Their ids. (A display has its own log, also while no migration is under way.)"""
    said = lab.call(f'{lab.B}/tools/kvmslots', str(vm.pid))
    return {int(slot) for slot in re.findall(r'\d+', said)}
