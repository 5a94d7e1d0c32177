# SPDX-License-Identifier: GPL-2.0-only
"""Looking at a guest's RAM file without changing it: read() fills no holes, a mapping would."""
import os

PAGE = 4096
CHUNK = 1 << 20


def allocated_bytes(path):
    return os.stat(path).st_blocks * 512


def extents(path):
    """(begin, end) of what is not a hole. A file system without holes has one extent."""
    found = []
    with open(path, 'rb') as f:
        size, at = os.fstat(f.fileno()).st_size, 0
        while at < size:
            try:
                begin = os.lseek(f.fileno(), at, os.SEEK_DATA)
                at = os.lseek(f.fileno(), begin, os.SEEK_HOLE)
            except OSError:
                break	# ENXIO: only a hole is left
            found.append((begin, at))
    return found


def differing_pages(one, other, most=16):
    """Page numbers that differ, the first few. A hole equals zeros."""
    found = []
    chunks = {c for path in (one, other) for b, e in extents(path)
              for c in range(b // CHUNK, (e + CHUNK - 1) // CHUNK)}
    with open(one, 'rb', buffering=0) as f, open(other, 'rb', buffering=0) as g:
        if os.fstat(f.fileno()).st_size != os.fstat(g.fileno()).st_size:
            raise AssertionError('the files are not of one size')
        for chunk in sorted(chunks):
            a = os.pread(f.fileno(), CHUNK, chunk * CHUNK)
            b = os.pread(g.fileno(), CHUNK, chunk * CHUNK)
            if a == b:
                continue
            for at in range(0, len(a), PAGE):
                if a[at:at + PAGE] != b[at:at + PAGE]:
                    found.append((chunk * CHUNK + at) // PAGE)
                    if len(found) == most:
                        return found
    return found
