# SPDX-License-Identifier: GPL-2.0-only
"""A guest's RAM wherever it is, a file that its QEMU shares or memory of that process alone: what is there of it, without a change."""
import array
import os

from ramfile import PAGE, extents

PRESENT = 3 << 62	# /proc/PID/pagemap: in memory, or in swap
AT_A_TIME = 4096	# entries
AT = 40	# MiB: where the tests write content(), and no guest of theirs looks
HERE = os.path.dirname(os.path.realpath(__file__))


def content(mib=12):
    """Programs, text, noise, poison, poison with one other byte, and zeros, in pieces of odd lengths."""
    programs = b''.join(open(f'/usr/bin/{name}', 'rb').read() for name in ('bash', 'tar', 'find'))
    text = open(f'{HERE}/lab.py', 'rb').read() * 40
    kinds = [programs, text, None, b'\xcc' * 4096, b'\xcc' * 99 + b'!' + b'\xcc' * 3996, bytes(4096)]
    out, at = bytearray(), 0
    while len(out) < mib << 20:
        kind, n = kinds[at % 6], (1 + at * 37 % 90) * 4096
        out += os.urandom(n) if kind is None else (kind * (n // len(kind) + 1))[:n]
        at += 1
    return bytes(out[:mib << 20])


def own(vm, number):
    """Is this backend memory of the process alone?"""
    return not vm.ram[number].path or not vm.ram[number].share


def address_of(vm, number=0):
    """Where this backend begins in QEMU, which has to be one that says so (8.0)."""
    text = vm.qmp('x-query-ramblock')['human-readable-text']
    rows = [line.split() for line in text.splitlines()[1:]]
    return next(int(row[6], 16) for row in rows if len(row) == 8 and row[0].rsplit('/', 1)[-1] == f'ram{number}')


def parts(vm, number=0):
    """(begin, end) of what is not a hole."""
    if not own(vm, number):
        return extents(vm.ram[number].path)
    found, first, end = [], address_of(vm, number) // PAGE, (vm.ram[number].mib << 20) // PAGE
    with open(f'/proc/{vm.pid}/pagemap', 'rb', buffering=0) as f:
        for at in range(0, end, AT_A_TIME):
            entries = array.array('Q', os.pread(f.fileno(), 8 * min(AT_A_TIME, end - at), 8 * (first + at)))
            for page, entry in enumerate(entries, at):
                if entry & PRESENT and found and found[-1][1] == page * PAGE:
                    found[-1] = found[-1][0], (page + 1) * PAGE
                elif entry & PRESENT:
                    found.append((page * PAGE, (page + 1) * PAGE))
    return found


def allocated(vm):
    """Bytes of all backends."""
    return sum(end - begin for number in range(len(vm.ram)) for begin, end in parts(vm, number))


def write(vm, at, data, number=0):
    """As another process does that is not seen: where the guest does not, and before it is sent, or into a hole."""
    path, at = (f'/proc/{vm.pid}/mem', address_of(vm, number) + at) if own(vm, number) else (vm.ram[number].path, at)
    with open(path, 'r+b', buffering=0) as f:
        f.seek(at)
        assert f.write(data) == len(data)


def fill_holes(vm, mib=None, number=0):
    """Random bytes where the guest has not touched its RAM, and cannot know what is there; None: in all of the holes."""
    there = [(0, 0), *parts(vm, number), (vm.ram[number].mib << 20, 0)]
    holes = [(begin, end) for (_, begin), (end, _) in zip(there, there[1:])]
    left = sum(end - begin for begin, end in holes) if mib is None else mib << 20
    for begin, end in sorted(holes, key=lambda hole: hole[0] - hole[1]):
        n = min(end - begin, left)
        for at in range(begin, begin + n, 1 << 20):
            write(vm, at, os.urandom(min(1 << 20, begin + n - at)), number)
        left -= n
    assert not left, 'the guest has touched nearly all of its RAM'


def dump(vm, mib, at=0):
    """What its guest sees there, in a file, as QEMU itself reads it."""
    path = f'{vm.run}/memory'
    vm.qmp('pmemsave', val=at, size=mib << 20, filename=path)
    return path
