# SPDX-License-Identifier: GPL-2.0-only
"""Who moves a guest: each QEMU by itself, and godwit the guests of the same QEMUs."""
import dataclasses

import emulators
import timed

CHANNELS = 2	# of multifd, for the lab's two CPUs


@dataclasses.dataclass
class Contestant:
    """qemu: the path of the emulator that both sides run; channels: of its multifd, or None for godwit."""
    emulator: str
    qemu: str
    channels: int | None

    def move(self, src, dst, limit_ms, patience=300):
        if self.channels is None:
            return timed.by_godwit(src, dst, limit_ms, '--max-rounds', '1000', patience=patience)
        return timed.by_qemu(src, dst, limit_ms, channels=self.channels, patience=patience)


def contestants():
    """name -> Contestant"""
    found = {}
    for qemu in (emulators.DEBIAN, emulators.NEWEST):
        version = emulators.version(qemu)
        found[f'godwit, {version}'] = Contestant(version, qemu, None)
        found[version] = Contestant(version, qemu, 0)
    found[f'{version} multifd {CHANNELS}'] = Contestant(version, qemu, CHANNELS)
    return found
