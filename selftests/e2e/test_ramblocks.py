# SPDX-License-Identifier: GPL-2.0-only
"""Where the RAM of a QEMU is that does not say so (before 8.0): found, right, and not believed when in doubt."""
import os
import re
import subprocess

import godwit
import lab
import pytest
from heap import Forger, ram_blocks

pytestmark = pytest.mark.native
NET = ['-netdev', 'user,id=n', '-device', 'virtio-net-pci,netdev=n']
APPEND = 'start=16 size=16 touch=4 rate=50'
MANY = [word for i in range(28) for word in ('-netdev', f'user,id=n{i}', '-device', f'virtio-net-pci,netdev=n{i},romfile=')]
# Displays, ROMs, NUMA nodes on both sides of the hole below 4 GiB, files, a memfd, a QEMU that waits.
MACHINES = {
    'q35': {'ram': [lab.Ram(64)], 'vga': 'std', 'devices': NET},
    'pc': {'ram': [lab.Ram(64, 'memfd')], 'machine': 'pc', 'vga': 'cirrus', 'devices': [*NET, '-device', 'secondary-vga']},
    'nodes': {'ram': [lab.Ram(3 << 10), lab.Ram(2 << 10), lab.Ram(64, '/dev/shm/nodes.ram')]},
    'waits': {'ram': [lab.Ram(64)], 'vga': 'std', 'incoming': True},
    'large heap': {'ram': [lab.Ram(64)], 'vga': 'std', 'devices': MANY, 'cpus': 4},
}


def tool(vm):
    return subprocess.run([godwit.tool('ramblocks'), vm.main_qmp, str(vm.pid)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)


def located(vm):
    """{name: (where the tool finds it, where QEMU says that it is, bytes)}"""
    done = tool(vm)
    assert done.returncode == 0, done.stdout
    rows = [line.split() for line in done.stdout.splitlines()]
    return {row[0]: (int(row[1], 16), int(row[2], 16), int(row[3])) for row in rows if len(row) == 4}


def peek(vm, address, n):
    with open(f'/proc/{vm.pid}/mem', 'rb', buffering=0) as mem:
        mem.seek(address)
        return mem.read(n)


def poke(vm, address, data):
    with open(f'/proc/{vm.pid}/mem', 'r+b', buffering=0) as mem:
        mem.seek(address)
        mem.write(data)


def seen_by_guest(vm, address, n):
    path = f'{vm.run}/memory'
    vm.qmp('pmemsave', val=address, size=n, filename=path)
    with open(path, 'rb') as f:
        return f.read()


def heap_mib(vm):
    with open(f'/proc/{vm.pid}/maps', encoding='ascii') as f:
        start, end = next(line for line in f if '[heap]' in line).split()[0].split('-')
    return (int(end, 16) - int(start, 16)) >> 20


def boot(vm):
    vm.query_status()
    return vm if vm.incoming else vm.wait_ticks(1)


@pytest.mark.parametrize('machine', MACHINES)
def test_as_said(directory, qemu, machine):
    """A newer QEMU says where its RAM is: that is where it is found."""
    vm = lab.Qemu('src', directory=directory, qemu=qemu, append=APPEND, **MACHINES[machine])
    boot(vm)
    found = located(vm)
    assert found.keys() == ram_blocks(vm).keys() and len(found) >= 5
    for name, (address, said, _) in found.items():
        assert address == said != 0, (name, found)
    assert machine != 'large heap' or heap_mib(vm) > 64


@pytest.mark.parametrize('machine', MACHINES)
def test_contents(directory, machine):
    """What is found is what the guest sees, or what that ROM file has."""
    vm = lab.Qemu('src', directory=directory, append=APPEND, **MACHINES[machine])
    boot(vm).qmp('stop')
    found = located(vm)
    assert found.keys() == ram_blocks(vm).keys() and len(found) >= 5
    poke(vm, found['ram0'][0] + (2 << 20), b'here' * 1024)
    assert seen_by_guest(vm, 2 << 20, 4096) == b'here' * 1024
    if vm.incoming:	# which has not filled its ROMs yet
        return
    for name, text in ('/rom@etc/acpi/rsdp', b'RSD PTR '), ('/rom@etc/table-loader', b'etc/acpi/tables'), \
            ('/rom@etc/acpi/tables', b'FACP'), ('pc.bios', b'SeaBIOS'), ('virtio-net-pci.rom', b'iPXE'), ('vga.rom', b'VGA'):
        for block in (one for one in found if one.endswith(name)):
            assert text in peek(vm, found[block][0], found[block][2]), block
    if machine == 'q35':
        views = vm.qmp('human-monitor-command', **{'command-line': 'info mtree -f'})
        at = int(re.search(r'^ +(\w+)-\w+ \(prio 1, ram\): vga.vram', views, re.M)[1], 16)
        poke(vm, found['0000:00:01.0/vga.vram'][0] + (3 << 20), b'shown' * 800)
        assert seen_by_guest(vm, at + (3 << 20), 4000) == b'shown' * 800


def test_plugged(directory, qemu):
    """What comes, goes and comes again is where it is now."""
    for one in lab.QEMU, qemu:
        vm = lab.Qemu('src', directory=directory, qemu=one, ram=[lab.Ram(64)], machine='pc', append=APPEND).wait_ticks(1)
        before = located(vm)
        for _ in range(3):
            vm.qmp('device_add', driver='virtio-net-pci', id='plugged', addr='6')
            now = located(vm)
            assert now.keys() - before.keys() == {'0000:00:06.0/virtio-net-pci.rom'}
            for name, (address, said, n) in now.items():
                assert said in (0, address), now
                assert not name.endswith('pci.rom') or b'iPXE' in peek(vm, address, n)
            vm.qmp('device_del', id='plugged')
            vm.qmp('system_reset')
            vm.qmp.wait_event('DEVICE_DELETED')
            assert located(vm).keys() == before.keys()
        vm.kill()


def test_forged(directory):
    """No address is guessed: a guest that can put bytes into QEMU's heap gets a refusal."""
    vm = lab.Qemu('src', directory=directory, ram=[lab.Ram(64)], append=APPEND).wait_ticks(1)
    forger = Forger(vm)
    found = located(vm)
    elsewhere = found['ram0'][0] + (1 << 20)
    for name in 'pc.rom', '/rom@etc/acpi/rsdp', 'pc.bios':
        forger.put_block(name, elsewhere)
        done = tool(vm)
        assert done.returncode == godwit.EXIT['ram-private'] and f'"{name}" was found in two places' in done.stdout, done.stdout
        forger.put_block(name, found['ram0'][0] + 8)	# no address of a block's
        assert located(vm) == found
    if found['ram0'][1]:
        pytest.skip("this system's QEMU says where its RAM is")
    forger.put_block('pc.rom', elsewhere)
    send = godwit.Process('src', 'send', '--qmp', vm.main_qmp, '--pause', '127.0.0.1:9')
    assert send.wait() == godwit.EXIT['ram-private']
    assert 'found in two places' in send.said and 'memory-backend-file' in send.said
    forger.put()
    vm.wait_ticks(1).check()


def test_cost(directory):
    """Once per look, and once more while the guest stands still."""
    vm = lab.Qemu('src', directory=directory, ram=[lab.Ram(64)], append=APPEND).wait_ticks(1)
    times = [[float(line.split()[1]) for line in tool(vm).stdout.splitlines() if 'ms' in line.split()[0]] for _ in range(5)]
    print(os.path.basename(lab.QEMU), 'ms, first and again:', min(times))
    assert min(t for _, t in times) < 100
