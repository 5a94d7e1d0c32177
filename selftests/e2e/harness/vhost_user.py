# SPDX-License-Identifier: GPL-2.0-only
"""A disk that another process serves: it maps the guest's RAM and writes there what the guest reads (vhost-user)."""
import contextlib
import os
import time

import lab

STORAGE_DAEMON = 'qemu-storage-daemon'	# Debian: qemu-system-common
LISTENS = '00010000'	# /proc/PID/net/unix: SO_ACCEPTCON
# Where a FAT disk has its first file: a partition at 63 sectors, a boot sector, two FATs of 252, a root directory of 32.
FIRST_FILE = (63 + 1 + 2 * 252 + 32) * 512


class Disk:
    """
    image: what the guest finds on its disk, read-only, alone in its directory. A backend serves one QEMU, so each end of a
    migration has its own. devices: QEMU's arguments. Only guests with a driver for virtio 1.0 can use it.

    The image is served as the file on a FAT disk, because the daemon reads that one without letting go of the request: it
    breaks for good when a VM is stopped while a request is under way (QEMU 7.2: "Error writing eventfd").
    """

    def __init__(self, side, name, image):
        directory, size = os.path.dirname(image), os.path.getsize(image)
        self.path = f'/dev/shm/{name}.vhost-user'
        if os.path.exists(self.path):
            os.unlink(self.path)
        self.process = lab.popen(side, [
            STORAGE_DAEMON, '--blockdev', f'driver=vvfat,node-name=fat,dir={directory},read-only=on',
            '--blockdev', f'driver=raw,node-name=disk0,file=fat,offset={FIRST_FILE},size={size},read-only=on',
            '--export', f'type=vhost-user-blk,id=disk0,node-name=disk0,addr.type=unix,addr.path={self.path}'])
        end = time.monotonic() + 30
        while not self._listens():
            assert self.process.poll() is None and time.monotonic() < end, f'{STORAGE_DAEMON} does not serve'
            time.sleep(0.05)
        self.devices = ['-chardev', f'socket,id={name},path={self.path}',
                        '-device', f'vhost-user-blk-pci,chardev={name},num-queues=1']

    def _listens(self):
        """Its socket has its name a little earlier."""
        with contextlib.suppress(OSError), open(f'/proc/{self.process.pid}/net/unix', encoding='ascii') as f:
            return any(line.split()[3] == LISTENS and line.rstrip().endswith(f' {self.path}') for line in f)
        return False

    def end(self):
        self.process.kill()
        self.process.wait()
        if os.path.exists(self.path):
            os.unlink(self.path)
