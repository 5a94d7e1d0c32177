# SPDX-License-Identifier: GPL-2.0-only
"""What moves a guest: each QEMU by itself, and godwit the guests of the same QEMUs."""
import dataclasses

import emulators
import godwit
import timed

CHANNELS = 2	# of multifd, for the lab's two CPUs


@dataclasses.dataclass
class Contestant:
    """
    qemu: the path of the emulator that both sides run; channels: of its multifd, or None for a godwit, which is tool. more: options of
    that godwit, capabilities of that QEMU.
    """
    emulator: str
    qemu: str
    channels: int | None
    tool: str = godwit.GODWIT
    more: tuple = ()

    def move(self, src, dst, limit_ms, patience=300):
        if self.channels is None:
            return timed.by_godwit(src, dst, limit_ms, '--max-rounds', '1000', *self.more, patience=patience, tool=self.tool)
        return timed.by_qemu(src, dst, limit_ms, channels=self.channels, patience=patience, capabilities=self.more)


def contestants(channels=CHANNELS, *, old_multifd=False, beside=None):
    """name -> Contestant. old_multifd: of the older QEMU, too. beside: another godwit, which takes turns with this one."""
    found = {}
    for qemu in (emulators.DEBIAN, emulators.NEWEST):
        version = emulators.version(qemu)
        found[f'godwit, {version}'] = Contestant(version, qemu, None)
        if beside:
            found[f'godwit beside, {version}'] = Contestant(version, qemu, None, beside)
        found[version] = Contestant(version, qemu, 0)
        if old_multifd or qemu == emulators.NEWEST:
            found[f'{version} multifd {channels}'] = Contestant(version, qemu, channels)
    return found
