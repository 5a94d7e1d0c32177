# SPDX-License-Identifier: GPL-2.0-only
"""What guest RAM looks like: an image is written into the source's RAM file, with the guest stopped."""
import mmap
import os

PAGE, MIB = 4096, 1 << 20
TEXT = (b'The bar-tailed godwit flies eleven thousand kilometres without landing. ' * 57)[:PAGE].ljust(PAGE, b'.')


def _random(f, size):
    for at in range(0, size, MIB):
        f.seek(at)
        f.write(os.urandom(MIB))


def _untouched(f, size):
    """One MiB of ten holds data, the others were never allocated."""
    for at in range(0, size, 10 * MIB):
        f.seek(at)
        f.write(os.urandom(min(MIB, size - at)))


def _half_zero(f, size):
    for at in range(0, size, MIB):
        f.seek(at)
        f.write(os.urandom(MIB) if at // MIB % 2 else bytes(MIB))


def _all_zero(f, size):
    for at in range(0, size, MIB):
        f.seek(at)
        f.write(bytes(MIB))


def _mix(f, size):
    """Pages of text and of zeros in turns."""
    both = (TEXT + bytes(PAGE)) * (MIB // PAGE // 2)
    for at in range(0, size, MIB):
        f.seek(at)
        f.write(both)


IMAGES = {'random': _random, '90 % untouched': _untouched, '50 % touched zeros': _half_zero,
          'all touched zeros': _all_zero, 'text and zeros by the page': _mix}


# A QEMU that looks at a page that was never touched has it allocated: then the next contestant would find zeros.
HOLES = {'90 % untouched'}


def write(name, path, mib):
    """A file of its own, so that holes are holes. On a tmpfs with huge pages only a mapping gets some."""
    with open(path, 'r+b') as f:
        f.truncate(0)
        f.truncate(mib * MIB)
        with mmap.mmap(f.fileno(), mib * MIB) as ram:
            ram.madvise(mmap.MADV_HUGEPAGE)
            IMAGES[name](ram, mib * MIB)
