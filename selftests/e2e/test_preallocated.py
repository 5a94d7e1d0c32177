# SPDX-License-Identifier: GPL-2.0-only
"""A destination whose RAM was preallocated: no page of the guest's can lack memory later."""
import dataclasses

import godwit
import lab
import pytest
from guestram import allocated, dump, write
from kinds import KINDS
from ours import proved

pytestmark = pytest.mark.native


@pytest.mark.parametrize('kind', ['shared_file', 'anonymous'])
def test_it_stays_so(directory, qemu, kind):
    """Zeros, rewritten or never touched, make no hole; and nothing is left of what the waiting QEMU had put there."""
    src = lab.Qemu('src', directory=directory, qemu=qemu, ram=[KINDS[kind]('src')], append='start=16 size=16 touch=8 rate=50')
    src.wait_ticks(1).qmp('stop')
    dst = godwit.destination(src, ram=[dataclasses.replace(KINDS[kind]('dst'), prealloc=True)])
    for at in 40 << 20, (40 << 20) + 4096, (64 << 20) - 1:
        write(dst, at, b'x')
    godwit.Run(src, dst, '--pause').wait()
    proved(allocated(dst) == 64 << 20, f'{allocated(dst) >> 10} KiB are there')	# before it is read, which allocates holes of a file
    differ = lab.differing_pages(dump(src, 64), dump(dst, 64))
    proved(not differ, f'memory differs in pages {differ}')
    dst.qmp('cont')
    dst.wait_ticks(1).check()
