# SPDX-License-Identifier: GPL-2.0-only
"""The kernel that the lab boots: find it, unpack it, make an initramfs for it."""
import glob
import gzip
import lzma
import os
import re
import shutil
import struct
import subprocess
import zlib

HERE = os.path.dirname(os.path.realpath(__file__))
BOOT_MODULES = ('virtio_pci', 'virtio_console', '9pnet_virtio', '9p', 'overlay',
                'kvm', 'kvm_amd', 'kvm_intel')


class LabError(Exception):
    pass


def version_of(image):
    """What `uname -r` will say; from the header of a bzImage."""
    with open(image, 'rb') as f:
        head = f.read(0x10000)
    if head[0x202:0x206] != b'HdrS' and head[0x202:0x206] != b'SrdH':
        raise LabError(f'{image} is not a bzImage')
    at = struct.unpack_from('<H', head, 0x20e)[0] + 0x200
    return head[at:head.index(b'\0', at)].split()[0].decode()


def natural(version):
    return [int(p) if p.isdigit() else p for p in re.split(r'(\d+)', version)]


def newest(root='/'):
    """The newest kernel of root's /boot whose headers are there, so that a module was built for it."""
    found = [path.split('/')[-2] for path in glob.glob(os.path.join(root, 'lib/modules/*/build'))]
    found = [v for v in found if os.path.exists(os.path.join(root, f'boot/vmlinuz-{v}'))]
    if not found:
        raise LabError(f'no kernel with headers in {os.path.join(root, "boot")}: apt-get install '
                       'linux-image-amd64 linux-headers-amd64, or use --kernel')
    return os.path.join(root, f'boot/vmlinuz-{max(found, key=natural)}')


def find_modules(root, image, version):
    """The directory of its modules: the root's, or one beside an unpacked package's boot/."""
    top = os.path.dirname(os.path.dirname(os.path.realpath(image)))
    for base in (root, top, os.path.join(top, 'usr')):
        path = os.path.join(base, 'lib/modules', version)
        if os.path.isdir(os.path.join(path, 'kernel')):
            return path
    raise LabError(f'no modules of {version} in /lib/modules or near {image}: use --modules')


def unpack(packed):
    # Decompressor objects, since the kernel's build appends the size to the stream.
    if packed.startswith(b'\xfd7zXZ\0'):
        return lzma.LZMADecompressor().decompress(packed)
    if packed.startswith(b'\x1f\x8b'):
        return zlib.decompressobj(31).decompress(packed)
    for magic, tool in ((b'\x28\xb5\x2f\xfd', ['zstd', '-dcq']), (b'\x02\x21\x4c\x18', ['lz4', '-dcq'])):
        if packed.startswith(magic) and shutil.which(tool[0]):
            # The size at the end makes the tool complain after it has written all.
            return subprocess.run(tool, input=packed, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                  check=False).stdout
    return b''


def vmlinux(image):
    """The ELF file in a bzImage, if it has a PVH entry: emulation need not unpack it on each boot."""
    with open(image, 'rb') as f:
        data = f.read()
    sectors = data[0x1f1] or 4
    at, size = struct.unpack_from('<II', data, 0x248)
    at += (sectors + 1) * 512
    elf = unpack(data[at:at + size])
    pvh = struct.pack('<III', 4, 8, 18) + b'Xen\0'
    pvh32 = struct.pack('<III', 4, 4, 18) + b'Xen\0'
    if elf.startswith(b'\x7fELF') and (pvh in elf or pvh32 in elf):
        return elf
    return None


def plain_module(path):
    with open(path, 'rb') as f:
        data = f.read()
    if path.endswith('.xz'):
        return lzma.decompress(data)
    if path.endswith('.gz'):
        return gzip.decompress(data)
    if path.endswith('.zst'):
        return subprocess.run(['zstd', '-dcq'], input=data, stdout=subprocess.PIPE, check=True).stdout
    return data


def module_list(modules, version):
    """Paths in the order of loading. Built-in ones are left out."""
    if not os.path.exists(os.path.join(modules, 'modules.dep')):
        base = modules[:-len(f'/lib/modules/{version}')] or '/'
        subprocess.run(['/sbin/depmod', '-b', base, version], check=True)
    with open(os.path.join(modules, 'modules.dep'), encoding='ascii') as f:
        depends = dict(line.rstrip('\n').split(':', 1) for line in f)
    by_name = {os.path.basename(p).split('.ko')[0].replace('-', '_'): p for p in depends}
    order = []
    for name in BOOT_MODULES:
        path = by_name.get(name)
        for one in reversed(depends[path].split()) if path else ():
            if one not in order:
                order.append(one)
        if path and path not in order:
            order.append(path)
    return [os.path.join(modules, p) for p in order]


def cpio(entries):
    """newc archive of (name, mode, bytes)."""
    out = bytearray()
    for ino, (name, mode, body) in enumerate([*entries, ('TRAILER!!!', 0, b'')], 1):
        head = [ino, mode, 0, 0, 1, 0, len(body), 0, 0, 0, 0, len(name) + 1, 0]
        out += b'070701' + b''.join(b'%08x' % v for v in head)
        out += name.encode() + b'\0'
        out += bytes(-len(out) % 4)
        out += body
        out += bytes(-len(out) % 4)
    return bytes(out)


def initramfs(modules, version):
    busybox = '/bin/busybox'
    if not os.path.exists(busybox):
        raise LabError('no busybox: apt-get install busybox-static')
    with open(busybox, 'rb') as f:
        entries = [('bin', 0o40755, b''), ('bin/busybox', 0o100755, f.read())]
    for tool in ('sh', 'mount', 'insmod', 'mkdir', 'cat', 'ln', 'grep', 'sleep', 'uname', 'switch_root'):
        entries.append((f'bin/{tool}', 0o120777, b'busybox'))
    for name in ('proc', 'sys', 'dev', 'lower', 'upper', 'new', 'modules'):
        entries.append((name, 0o40755, b''))
    for i, path in enumerate(module_list(modules, version)):
        name = os.path.basename(path).split('.ko')[0]
        entries.append((f'modules/{i:02}-{name}.ko', 0o100644, plain_module(path)))
    with open(os.path.join(HERE, 'init'), 'rb') as f:
        entries.append(('init', 0o100755, f.read()))
    return cpio(entries)


def newer(path, *sources):
    return os.path.exists(path) and all(os.path.getmtime(path) >= os.path.getmtime(s) for s in sources)


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = f'{path}.{os.getpid()}'
    with open(temporary, 'wb') as f:
        f.write(data)
    os.replace(temporary, path)


class Kernel:
    """image: what the user named. boot, initrd: what QEMU gets, made once and kept below `cache`."""

    def __init__(self, cache, image=None, modules=None, root='/'):
        self.image = os.path.realpath(image or newest(root))
        self.version = version_of(self.image)
        self.modules = os.path.realpath(modules or find_modules(root, self.image, self.version))
        own = os.path.join(cache, self.version)
        self.boot = os.path.join(own, 'vmlinux')
        self.initrd = os.path.join(own, 'initrd')
        if not newer(self.boot, self.image):
            write(self.boot, vmlinux(self.image) or open(self.image, 'rb').read())
        if not newer(self.initrd, self.modules, os.path.join(HERE, 'init'), __file__):
            write(self.initrd, initramfs(self.modules, self.version))
