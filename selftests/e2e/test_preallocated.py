# SPDX-License-Identifier: GPL-2.0-only
"""A destination whose RAM was preallocated: no page of the guest's can lack memory later."""
import godwit
import lab
import pytest

pytestmark = pytest.mark.native


def test_it_stays_so(directory):
    """Zeros, rewritten or never touched, make no hole; and nothing is left of what the waiting QEMU had put there."""
    src = lab.Qemu('src', directory=directory, ram=64, append='start=16 size=16 touch=8 rate=50').wait_ticks(1)
    dst = godwit.destination(src, ram=[lab.Ram(64, '/dev/shm/dst.ram', prealloc=True)])
    with open(dst.ram[0].path, 'r+b') as f:
        for at in 40 << 20, (40 << 20) + 4096, (64 << 20) - 1:
            f.seek(at)
            f.write(b'x')
    src.qmp('stop')
    godwit.Run(src, dst, '--pause').wait()
    godwit.same_ram(src, dst)
    assert lab.allocated_bytes(dst.ram[0].path) == 64 << 20
    dst.qmp('cont')
    dst.wait_ticks(1).check()
