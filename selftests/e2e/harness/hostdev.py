# SPDX-License-Identifier: GPL-2.0-only
"""What a test borrows from the lab's kernel: links, taps, block devices, swap, cgroups."""
import contextlib
import ctypes
import glob
import json
import os
import stat
import subprocess
import time

TREE = os.path.realpath(f'{os.path.dirname(os.path.realpath(__file__))}/../../..')
B = os.path.abspath(os.environ.get('B') or os.path.join(TREE, 'build'))
INSIDE = os.path.join(TREE, 'selftests/lab/inside.sh')
IN_LAB = os.environ.get('LAB') == '1'
# Outside the lab only the harness itself can be tried: TCG, one network.
ADDRESS = {'src': '10.77.0.1', 'dst': '10.77.0.2'} if IN_LAB else {'src': '127.0.0.1', 'dst': '127.0.0.1'}
CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)
PATIENCE = 60	# seconds: for what the kernel does in the background, also on a host that is overrun
_shape = {}	# of the link, as tc has it
_segments = {}	# of a packet at most, by side, where it was set
_loaded = set()	# by modules(): these stay loaded


def call(*words, **more):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, **more)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stdout.strip()}")
    return done.stdout


def modules(*names):
    """Loads what is not there yet."""
    missing = [name for name in names if name not in _loaded]
    if missing:
        call(INSIDE, 'modules', *missing)
        _loaded.update(missing)


def net():
    """Namespaces src and dst, made at the first use."""
    if IN_LAB and not os.path.exists('/run/netns/dst'):
        call(INSIDE, 'net')


def link(what, value=None):
    """
    rate MBIT, delay MS (one way), loss PERCENT, reorder PERCENT (overtake what is delayed), down, up, clear: what happens to both
    directions of the link. Packets that get lost or overtake are of one segment each; otherwise up to 64 KiB pass as one.
    Outside the lab: only down and up.
    """
    net()
    if what in ('down', 'up'):
        if not IN_LAB:
            with open('/proc/net/route', encoding='ascii') as routes:
                assert len(routes.readlines()) == 1, "this is the host's network: use e2e/alone"
        call('ip', *(['-n', 'src', 'link', 'set', 'link0'] if IN_LAB else ['link', 'set', 'lo']), what)
        _shape['down'] = what == 'down'
        return
    if what == 'clear':
        if _shape.get('down'):
            link('up')
        _shape.clear()
    else:
        modules('sch_tbf' if what == 'rate' else 'sch_netem')
        _shape[what] = value
    # One process a side, as each costs here: tbf for the rate, netem below it for the delay and the loss.
    lines, at = ['qdisc del dev link0 root'], 'root'
    if 'rate' in _shape:
        lines.append(f'qdisc add dev link0 root handle 1: tbf rate {_shape["rate"]}mbit burst 256kb latency 50ms')
        at = 'parent 1:1'
    if _shape.get('delay') or _shape.get('loss'):
        overtake = f'reorder {_shape["reorder"]}% ' if _shape.get('reorder') else ''
        lines.append(f'qdisc add dev link0 {at} handle 10: netem delay {_shape.get("delay", 0)}ms loss {_shape.get("loss", 0)}% '
                     f'{overtake}limit 100000')
    segments = 1 if _shape.get('loss') or _shape.get('reorder') else 65535
    for side in 'src', 'dst':
        if segments != _segments.get(side, 65535):
            call('ip', '-n', side, 'link', 'set', 'link0', 'gso_max_segs', str(segments))
            _segments[side] = segments
        done = subprocess.run(['tc', '-n', side, '-force', '-batch', '-'], input='\n'.join(lines), text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        # The first line fails where there is nothing yet.
        if done.stdout.count('Command failed') > 1:
            raise RuntimeError(f'tc: {done.stdout.strip()}')


def sent_bytes(device, *where):
    """By all layers, so far. where: options of ip."""
    return json.loads(call('ip', *where, '-s', '-j', 'link', 'show', 'dev', device))[0]['stats64']['tx']['bytes']


def link_cleared():
    """After a test, whatever it did to the link."""
    if _shape:
        link('clear')


@contextlib.contextmanager
def sysctl(side, name, value):
    """One of that side's network."""
    path, within = f'/proc/sys/{name.replace(".", "/")}', ['ip', 'netns', 'exec', side, 'sh', '-c']
    before = call(*within, f'cat {path}').strip()
    call(*within, f'echo {value} >{path}')
    try:
        yield
    finally:
        call(*within, f'echo {before} >{path}')


@contextlib.contextmanager
def mounted(kind, options, at):
    os.makedirs(at, exist_ok=True)
    call('mount', '-t', kind, '-o', options, kind, at)
    try:
        yield
    finally:
        call('umount', at)


@contextlib.contextmanager
def cards(loss='0%'):
    """Two emulated network cards in place of the link: they send the sender's own pages as hardware does, and lose some."""
    net()
    modules('sch_netem')
    call(INSIDE, 'cards', 'up')
    call('tc', '-n', 'src', 'qdisc', 'add', 'dev', 'eth0', 'root', 'netem', 'loss', loss)
    try:
        yield
    finally:
        call('tc', '-n', 'src', 'qdisc', 'del', 'dev', 'eth0', 'root')
        call(INSIDE, 'cards', 'down')


def enter(side, cgroup=None):
    """A preexec_fn: move to this side's network, and into a cgroup."""
    def run():
        LIBC.prctl(1, 9)	# die with the test run
        if cgroup:
            cgroup.add(os.getpid())
        if side and IN_LAB:
            fd = os.open(f'/run/netns/{side}', os.O_RDONLY)
            if LIBC.setns(fd, CLONE_NEWNET):
                os._exit(125)
            os.close(fd)
    return run


@contextlib.contextmanager
def network_of(side):
    """This thread is there, with what it starts."""
    here, there = (os.open(path, os.O_RDONLY) for path in ('/proc/thread-self/ns/net', f'/run/netns/{side}'))
    try:
        if LIBC.setns(there, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f'setns: {side}')
        yield
    finally:
        if LIBC.setns(here, CLONE_NEWNET):
            os._exit(125)	# nothing that follows would be where it belongs
        os.close(here)
        os.close(there)


def popen(side, words, cgroup=None, **more):
    """A process on side 'src' or 'dst'."""
    net()
    words = list(map(str, words))
    if cgroup or not IN_LAB:
        return subprocess.Popen(words, preexec_fn=enter(side, cgroup), **more)
    # For a preexec_fn Python forks: all that it maps is copied, and faulted in again, which an emulated host is slow at; else
    # it needs neither. That a process ends with the test run is of no use where the machine does.
    with network_of(side) if side else contextlib.nullcontext():
        return subprocess.Popen(words, **more)


def tap(side, name, vhost=False):
    """QEMU's arguments for a virtio-net on a fresh tap. vhostforce: our guest uses no MSI-X."""
    net()
    modules('tun', *(['vhost_net'] if vhost else []))
    if name not in os.listdir('/sys/class/net') and name not in call('ip', '-n', side, '-br', 'link'):
        call('ip', '-n', side, 'tuntap', 'add', name, 'mode', 'tap')
        call('ip', '-n', side, 'link', 'set', name, 'up')
    kind = 'vhost=on,vhostforce=on' if vhost else 'vhost=off'
    return ['-netdev', f'tap,id={name},ifname={name},script=no,downscript=no,{kind}',
            '-device', f'virtio-net-pci,netdev={name},mac=52:54:00:67:64:01,disable-legacy=off']


def send_frames(side, name, first=0, count=1000, rate=500):
    """Numbered frames to the guest behind a tap; the process prints the next number."""
    return popen(side, [f'{B}/guest/sendframes', name, first, count, rate],
                 stdout=subprocess.PIPE, text=True)


def rng():
    return ['-device', 'virtio-rng-pci,disable-legacy=off']


def disk(path, direct=True, aio='threads'):
    """QEMU's arguments for a disk, read-only, so that both sides can have it open. direct (O_DIRECT)
    needs a block device: tmpfs has none."""
    driver = 'host_device' if stat.S_ISBLK(os.stat(path).st_mode) else 'file'
    return ['-blockdev', f'driver={driver},node-name=disk0,filename={path},aio={aio},read-only=on,'
            f"cache.direct={'on' if direct else 'off'}",
            '-device', 'virtio-blk-pci,drive=disk0,disable-legacy=off']


def fill_disk(path, mib):
    """The content that the guests expect."""
    call(f'{B}/guest/mkdisk', path, str(mib))
    return path


def _new_disk(make, pattern):
    before, end = set(glob.glob(pattern)), time.monotonic() + PATIENCE
    make()
    while True:
        fresh = sorted(set(glob.glob(pattern)) - before)
        if fresh:
            return fresh[0]
        if time.monotonic() > end:
            raise RuntimeError(f'no {pattern} appeared')
        time.sleep(0.05)


def _gone(*names):
    end = time.monotonic() + PATIENCE
    for name in names:
        while subprocess.run(['modprobe', '-r', name], stderr=subprocess.DEVNULL, check=False).returncode:
            if time.monotonic() > end:
                raise RuntimeError(f'{name} does not unload')
            time.sleep(0.1)


@contextlib.contextmanager
def block_device(kind, mib=16):
    """null_blk, scsi_debug (request-based), brd (bio-based), dm-linear, dm-crypt (on brd, remapped);
    filled with what the guests expect."""
    if kind == 'null_blk':
        path = _new_disk(lambda: call('modprobe', 'null_blk', 'nr_devices=1', 'memory_backed=1',
                                      f'gb={max(1, mib >> 10)}', 'bs=512'), '/dev/nullb*')
        drop = ['null_blk']
    elif kind == 'scsi_debug':
        modules('sd_mod')
        path = _new_disk(lambda: call('modprobe', 'scsi_debug', f'dev_size_mb={mib}', 'delay=0'), '/dev/sd?')
        drop = ['scsi_debug']
    elif kind in ('brd', 'dm-linear', 'dm-crypt'):
        path = _new_disk(lambda: call('modprobe', 'brd', 'rd_nr=1', f'rd_size={mib << 10}'), '/dev/ram*')
        drop = ['brd']
    else:
        raise ValueError(kind)
    name = None
    if kind.startswith('dm-'):
        name = f'lab-{kind}'
        modules('dm-mod', *(['dm-crypt'] if kind == 'dm-crypt' else []))
        table = f'0 {mib * 2048} ' + (f'linear {path} 0' if kind == 'dm-linear' else
                                      f"crypt aes-xts-plain64 {'5a' * 64} 0 {path} 0")
        call('dmsetup', '--noudevsync', '--noudevrules', 'create', name, '--table', table)
        # without udev the node of this name may not be one, devtmpfs's is
        path = '/dev/dm-' + call('dmsetup', 'info', '-c', '--noheadings', '-o', 'minor', name).strip()
    try:
        yield fill_disk(path, mib)
    finally:
        if name:
            call('dmsetup', '--noudevsync', 'remove', '--retry', name)
        _gone(*drop)


@contextlib.contextmanager
def swap(mib):
    """Swap on a RAM disk: no compression to pay for, random data cannot overflow it."""
    path = _new_disk(lambda: call('modprobe', 'brd', 'rd_nr=1', f'rd_size={mib << 10}'), '/dev/ram*')
    call('mkswap', path)
    call('swapon', path)
    try:
        yield path
    finally:
        call('swapoff', path)
        _gone('brd')


class Cgroup:
    """For the processes started in it (Qemu(cgroup=...)); version 2 or 1, what the kernel has."""

    def __init__(self, controller, name):
        self.v2 = os.path.exists('/sys/fs/cgroup/cgroup.controllers')
        top = '/sys/fs/cgroup' if self.v2 else f'/sys/fs/cgroup/{controller}'
        if self.v2:
            with open(f'{top}/cgroup.subtree_control', 'w', encoding='ascii') as f:
                f.write(f'+{controller}')
        self.path = f'{top}/{name}'
        os.mkdir(self.path)

    def write(self, name, value):
        with open(f'{self.path}/{name}', 'w', encoding='ascii') as f:
            f.write(str(value))

    def add(self, pid):
        self.write('cgroup.procs', pid)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                os.rmdir(self.path)
                return
            time.sleep(0.1)	# the last process is still on its way out
        os.rmdir(self.path)


class MemoryCgroup(Cgroup):
    """So much memory, and no more."""

    def __init__(self, name, mib):
        super().__init__('memory', name)
        self.limit(mib)

    def limit(self, mib):
        self.write('memory.max' if self.v2 else 'memory.limit_in_bytes', mib << 20)

    def reclaim(self, mib):
        """Swap so much out now, or as much as can be."""
        with contextlib.suppress(OSError):
            self.write('memory.reclaim', mib << 20)

    def swapped_bytes(self):
        if self.v2:
            with open(f'{self.path}/memory.swap.current', encoding='ascii') as f:
                return int(f.read())
        with open(f'{self.path}/memory.stat', encoding='ascii') as f:
            return int(dict(line.split() for line in f).get('swap', 0))
