# SPDX-License-Identifier: GPL-2.0-only
"""A guest that has arrived moves again, from either mode of the device state to either."""

import godwit
import lab
import pytest

pytestmark = pytest.mark.usefixtures('module')


def leg(src, name, mode, **more):
    """One migration, and its proof; the QEMU that the guest is in now."""
    dst = godwit.destination(src, name, **more)
    report = godwit.Run(src, dst, '--device-state', mode).wait()
    assert report['verified'] and report['device-state-saved'] == (mode == 'save')
    assert len(report['rounds']) >= 2, 'its writes were in no dirty log'
    before = src.counters
    godwit.proof(src, dst, stopped=godwit.STOPPED[mode])
    for what in ('rng', 'vga'):
        assert dst.counters[what] > before[what], f'{what} does not go on'
    src.kill()
    return dst


@pytest.mark.parametrize('modes', [('migrate', 'migrate', 'save'), ('save', 'save', 'migrate')], ids='-'.join)
def test_three_times(directory, qemu, modes):
    lab.net()
    more = {'qemu': qemu, 'vga': 'std', 'devices': lab.rng(), 'cpus': 2}
    vm = lab.Qemu('src', directory=directory, ram=64, append='start=16 size=16 touch=16 rate=300 smp=2 rng=20 vga=20',
                  **more).wait_ticks(2)
    lab.link('rate', 200)
    for mode, name in zip(modes, ('dst', 'back', 'again')):
        vm = leg(vm, name, mode, **more)
