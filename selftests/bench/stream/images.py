# SPDX-License-Identifier: GPL-2.0-only
"""What guest RAM looks like: an image is written into the source's RAM file, with the guest stopped."""
import glob
import mmap
import os
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.realpath(f'{HERE}/../../..')
sys.path.insert(0, os.path.realpath(f'{HERE}/..'))

import emulators	# noqa: E402 pylint: disable=wrong-import-position

PAGE, MIB = 4096, 1 << 20
LONGEST = 4 * MIB	# of a file: some programs are larger than all others together
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


def _idle(f, size):
    """A guest that has booted and does nothing: one huge page of twenty holds data, the others were never allocated."""
    for at in range(0, size, 40 * MIB):
        f.seek(at)
        f.write(os.urandom(min(2 * MIB, size - at)))


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


def _files(f, size):
    """The page cache of a host: its programs and libraries, each from a page on; a fifth of it are pages of zeros."""
    at, seen = 0, set()
    for path in sorted(glob.glob('/usr/lib/*/*.so*') + glob.glob('/usr/bin/*') + glob.glob('/usr/share/doc/*/*')):
        path = os.path.realpath(path)
        if path in seen or not os.path.isfile(path) or os.path.getsize(path) < PAGE:
            continue
        seen.add(path)
        with open(path, 'rb') as file:
            data = file.read(min(LONGEST, size - at))
        pages = (len(data) + PAGE - 1) // PAGE
        data = data.ljust((pages + pages // 4) * PAGE, b'\0')[:size - at]
        f.seek(at)
        f.write(data)
        at += len(data)
        if at >= size:
            return
    raise RuntimeError(f'this host has no {size // MIB} MiB of programs')


# It parses what this host has of Python, and keeps all of it: strings, dictionaries, trees of small objects.
PROGRAM = """
import ast, glob, sys
kept, size = [], int(sys.argv[1])
for path in sorted(glob.glob('/usr/lib/python3*/**/*.py', recursive=True)) * 100:
    try:
        text = open(path, encoding='utf-8').read()
        kept.append((text, ast.parse(text), {word: len(word) for word in text.split()}))
    except (SyntaxError, UnicodeDecodeError, ValueError):
        pass
    if int(open('/proc/self/statm').read().split()[1]) * 4096 >= size:
        break
print('ready', flush=True)
sys.stdin.read()
"""


def _process(f, size):
    """The memory of a program that has computed something."""
    with subprocess.Popen([sys.executable, '-c', PROGRAM, str(size + 32 * MIB)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as program:
        assert 'ready' in program.stdout.readline()
        with open(f'/proc/{program.pid}/maps', encoding='ascii') as maps:
            ranges = [[int(address, 16) for address in line.split()[0].split('-')] for line in maps if ' rw-p ' in line]
        with open(f'/proc/{program.pid}/mem', 'rb', buffering=0) as mem:
            f.seek(0)
            for begin, end in ranges:
                while begin < end and f.tell() < size:
                    data = os.pread(mem.fileno(), min(MIB, end - begin, size - f.tell()), begin)
                    f.write(data)
                    begin += len(data)
        program.stdin.close()
    if f.tell() < size:
        raise RuntimeError(f'the program has {f.tell() // MIB} MiB')


IMAGES = {'random': _random, '90 % untouched': _untouched, '50 % touched zeros': _half_zero,
          'all touched zeros': _all_zero, 'text and zeros by the page': _mix, '95 % untouched': _idle}
# Of real programs, for what packs them.
REAL = {'files': _files, 'process': _process}
# A guest: what it has not touched are holes.
IDLE = 'idle guest'
SETTLES_S = 5


# A QEMU that looks at a page that was never touched has it allocated: then the next contestant would find zeros.
HOLES = {'90 % untouched', '95 % untouched'}


def leave_and_go_on(path, old):
    """old becomes what is in path now; there, a page of twenty then is another: a guest that comes back after some minutes."""
    shutil.copyfile(path, old)
    with open(path, 'r+b') as f:
        for at in range(0, os.path.getsize(path), 20 * PAGE):
            f.seek(at)
            f.write(os.urandom(PAGE))


def boot(path, mib):
    """RAM of a guest with Debian's kernel that has booted, by emulation, and does nothing."""
    kernel, initrd = subprocess.run([f'{TOP}/selftests/guest/linux'], check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    with open(path, 'r+b') as f:
        f.truncate(0)
        f.truncate(mib * MIB)
    words = [emulators.DEBIAN, '-nodefaults', '-display', 'none', '-m', str(mib), '-machine', 'q35,accel=tcg,memory-backend=ram0',
             '-object', f'memory-backend-file,id=ram0,mem-path={path},share=on,size={mib}M', '-kernel', kernel, '-initrd', initrd,
             '-append', 'console=ttyS0 quiet size=1 rate=1 disk=0', '-serial', 'stdio']
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors='replace') as qemu:
        try:
            if not any(line.startswith('tick=') for line in qemu.stdout):
                raise RuntimeError('the guest does not boot')
            time.sleep(SETTLES_S)
        finally:
            qemu.kill()


def write(name, path, mib):
    """A file of its own, so that holes are holes. On a tmpfs with huge pages only a mapping gets some."""
    if name == IDLE:
        boot(path, mib)
        return
    with open(path, 'r+b') as f:
        f.truncate(0)
        f.truncate(mib * MIB)
        with mmap.mmap(f.fileno(), mib * MIB) as ram:
            ram.madvise(mmap.MADV_HUGEPAGE)
            (IMAGES.get(name) or REAL[name])(ram, mib * MIB)
