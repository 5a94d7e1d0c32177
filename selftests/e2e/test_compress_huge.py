# SPDX-License-Identifier: GPL-2.0-only
"""--compress: RAM in huge pages is packed like any other, and what is unpacked into huge pages is as it was."""
import contextlib
import mmap

import godwit
import lab
import pytest
from guestram import AT, content
from test_compress import APPEND, arrived

MOUNT = '/dev/hugepages-2M'


def write(ram, at, data):
    """By a mapping: hugetlbfs has no write()."""
    with open(ram.path, 'r+b') as f, mmap.mmap(f.fileno(), ram.mib << 20) as there:
        there[at:at + len(data)] = data


@contextlib.contextmanager
def source(directory):
    with lab.mounted('hugetlbfs', 'pagesize=2M', MOUNT), godwit.guests():
        src = lab.Qemu('src', directory=directory, ram=[lab.Ram(64, f'{MOUNT}/src')], append=APPEND).wait_ticks(1)
        src.qmp('stop')
        write(src.ram[0], AT << 20, content())
        yield src


@pytest.mark.parametrize('how', ['lz4', 'zstd'])
def test_hugetlbfs(directory, how):
    with source(directory) as src:
        dst = godwit.destination(src)
        report = godwit.Run(src, dst, '--pause', '--compress', how).wait()
        assert report['ram'][how] > 1000 and report['ram']['same-byte'] > 400
        arrived(src, dst, report)
