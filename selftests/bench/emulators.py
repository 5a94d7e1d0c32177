# SPDX-License-Identifier: GPL-2.0-only
"""The QEMUs that benchmarks run: Debian 12's own, and that of Debian 13's backports, out of a root of its own."""
import os
import re
import subprocess

TOP = os.path.realpath(f'{os.path.dirname(os.path.abspath(__file__))}/../..')
DEBIAN = os.environ.get('GODWIT_QEMU', 'qemu-system-x86_64')
NEWEST = f'{TOP}/selftests/kernels/qemu.sh'


def version(qemu):
    """'QEMU 7.2', of an emulator's path; the first call of the newest one may have to fetch it."""
    said = subprocess.run([qemu, '--version'], check=True, stdout=subprocess.PIPE, text=True).stdout
    return 'QEMU ' + re.search(r'version (\d+\.\d+)', said)[1]
