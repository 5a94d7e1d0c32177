# SPDX-License-Identifier: GPL-2.0-only
"""QEMU's heap with what a guest may have there: its bytes, of a packet or a sector, that look like something of QEMU's own."""
import base64
import struct


class Forger:
    """A buffer of 1 KiB that QEMU has allocated."""

    def __init__(self, vm):
        self.vm = vm
        vm.qmp('chardev-add', id='forged', backend={'type': 'ringbuf', 'data': {'size': 1024}})

    def put(self, data=b''):
        data = base64.b64encode(data.ljust(1024, b'\0')).decode()
        self.vm.qmp('ringbuf-write', device='forged', data=data, format='base64')

    def put_block(self, name, address):
        """A RAM block, as QEMU (7.2 at least) has them, that begins at that address."""
        self.put(struct.pack('<5Q12x', address, 0, *ram_blocks(self.vm)[name]) + name.encode() + b'\0')


def ram_blocks(vm):
    """{name: (offset, used, total)}, as QEMU says."""
    text = vm.qmp('x-query-ramblock')['human-readable-text']
    rows = [line.split() for line in text.splitlines()[1:]]
    return {row[0]: tuple(int(x, 16) for x in row[3:6]) for row in rows if len(row) in (6, 8)}
