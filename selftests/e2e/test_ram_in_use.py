# SPDX-License-Identifier: GPL-2.0-only
"""No other VM's RAM is touched: whatever an operator starts by mistake."""
import dataclasses
import hashlib
import os
import subprocess
import time

import godwit
import lab
import pytest
from ours import proved
from paused import APPEND, arrives, foreign_ram, send, source

pytestmark = pytest.mark.native


def digest(path):
    with open(path, 'rb') as f:
        return hashlib.sha256(f.read()).hexdigest()


@pytest.fixture
def other_name(directory, request):
    """A way to the file of src's RAM that is not its name."""
    made = []

    def make(how, path):
        new = f'{directory}/same'
        if how == 'name':
            return path
        if how == 'hard link':
            os.link(path, new := f'{path}.link')
            made.append(lambda: os.unlink(new))
        elif how == 'symbolic link':
            os.symlink(path, new)
            made.append(lambda: os.unlink(new))
        else:
            with open(new, 'wb'):
                pass
            subprocess.run(['mount', '--bind', path, new], check=True)
            made.append(lambda: subprocess.run(['umount', '-l', new], check=True))
        return new

    def undo():
        for step in made:
            step()
    request.addfinalizer(undo)
    return make


@pytest.mark.parametrize('how', ['name', 'hard link', 'symbolic link', 'bind mount'])
def test_the_source_s_own_file(directory, other_name, how):
    """The first thing that a newcomer tries: the same command line for both, on one host."""
    src = source(directory)
    path = other_name(how, src.ram[0].path)
    src.qmp('stop')
    before = digest(src.ram[0].path)
    with godwit.guests():
        dst = godwit.destination(src, ram=foreign_ram(path))
        there = godwit.receive(dst)
        assert there.wait() == godwit.EXIT['ram-in-use'], there.said
        assert f'process {src.pid}' in there.said and '"ram0"' in there.said and 'mem-path' in there.said, there.said
        dst.kill()
        proved(digest(src.ram[0].path) == before, 'the RAM of the source has changed')
        src.qmp('cont')
        godwit.unharmed(src)


def test_memfd_handed_over(directory):
    """RAM without a name, which the destination opens through the source's descriptors."""
    src = source(directory, ram=[lab.Ram(64, 'memfd')])
    fds = [fd for fd in os.listdir(f'/proc/{src.pid}/fd') if 'memfd:memory-backend' in os.readlink(f'/proc/{src.pid}/fd/{fd}')]
    dst = godwit.destination(src, ram=foreign_ram(f'/proc/{src.pid}/fd/{fds[0]}'))
    there = godwit.receive(dst)
    assert there.wait() == godwit.EXIT['ram-in-use'], there.said
    godwit.unharmed(src)


@pytest.mark.parametrize('share', [True, False], ids=['shared', 'private'])
def test_a_third_guest_s_file(directory, share):
    """Also one that maps it private: what it has not written yet is the file's."""
    src, third = source(directory), source(directory, 'third')
    with godwit.guests():
        if not share:
            third.kill(keep=True)
            private = dataclasses.replace(third.ram[0], share=False, foreign=True)
            third = lab.Qemu('third', directory=directory, ram=[private], append=APPEND).wait_ticks(1)
        before = digest('/dev/shm/third.ram') if not share else None
        dst = godwit.destination(src, ram=foreign_ram('/dev/shm/third.ram'))
        there = godwit.receive(dst)
        assert there.wait() == godwit.EXIT['ram-in-use'], there.said
        assert f'process {third.pid}' in there.said, there.said
        dst.kill()
        third.wait_ticks(2).check()
        proved(not before or digest('/dev/shm/third.ram') == before, 'the file has changed')
        godwit.unharmed(src)


def test_a_guest_that_starts_later(directory):
    """Between the receiver's first look and the sender's coming."""
    src = source(directory)
    dst = godwit.destination(src)
    there = godwit.listen(dst)
    with godwit.guests():
        third = lab.Qemu('third', directory=directory, ram=foreign_ram(dst.ram[0].path), append=APPEND).wait_ticks(1)
        here = send(src)
        assert here.wait() == godwit.EXIT['peer-failed'], here.said
        assert there.wait() == godwit.EXIT['ram-in-use'], there.said
        assert f'process {third.pid}' in here.said, here.said
        third.wait_ticks(2).check()
        godwit.unharmed(src)


def test_a_neighbour(directory):
    """Another VM that the destination is connected to is no backend of it."""
    src = source(directory)
    socket = f'{directory}/pipe'
    third = source(directory, 'third', devices=['-device', 'virtio-serial-pci', '-chardev', f'socket,id=pipe,path={socket},server=on,wait=off',
                                                '-device', 'virtserialport,chardev=pipe'])
    with godwit.guests():
        dst = godwit.destination(src, ram=foreign_ram(third.ram[0].path),
                                 devices=['-device', 'virtio-serial-pci', '-chardev', f'socket,id=pipe,path={socket}',
                                          '-device', 'virtserialport,chardev=pipe'])
        there = godwit.receive(dst)
        assert there.wait() == godwit.EXIT['ram-in-use'] and f'process {third.pid}' in there.said, there.said
        third.wait_ticks(2).check()
        godwit.never_ran(dst)


def test_a_helper_of_qemu_s_own(directory):
    """A process that shares QEMU's memory, as it is told to have for its end, is QEMU."""
    said = subprocess.run([lab.QEMU, '-help'], stdout=subprocess.PIPE, text=True, check=True).stdout
    option = ['-async-teardown'] if '-async-teardown' in said else ['-run-with', 'async-teardown=on']
    src = source(directory, devices=option)
    arrives(src, godwit.destination(src, devices=option))


def test_another_vm_shares_the_source_s_ram(directory):
    """RAM of two VMs cannot move with one of them."""
    src = source(directory)
    twin = lab.Qemu('twin', directory=directory, ram=foreign_ram(src.ram[0].path), incoming=True, **src.made)
    twin.query_status()
    here = send(src)
    assert here.wait() == godwit.EXIT['ram-in-use'], here.said
    assert f'process {twin.pid}' in here.said and 'two VMs share' in here.said, here.said
    twin.kill()
    godwit.unharmed(src)


def test_in_another_container(directory, tmp_path):
    """A receiver that sees no process of the source's: the file's lock and the host's identity are there all the same."""
    src = source(directory)
    init = subprocess.Popen(['unshare', '--pid', '--fork', '--mount-proc', '--kill-child', 'sleep', '1000'])	# pylint: disable=R1732
    try:
        # By the name that it has when its /proc is there.
        while not (children := subprocess.run(['pgrep', '-P', str(init.pid), '-x', 'sleep'], stdout=subprocess.PIPE, text=True,
                                              check=False).stdout):
            time.sleep(0.05)
        enter = f'nsenter -t {children.split()[0]} -p -m --'
        inside = tmp_path / 'qemu'
        inside.write_text(f'#!/bin/sh\nexec {enter} {src.made["qemu"]} "$@"\n', encoding='ascii')
        inside.chmod(0o755)
        dst = godwit.destination(src, ram=[dataclasses.replace(src.ram[0], foreign=True)], qemu=str(inside))
        there = godwit.listen(dst, enter=enter.split())
        p = godwit.Process('src', 'check', '--qmp', src.main_qmp, '--pause', '--to', godwit.AT)
        assert p.wait() == godwit.EXIT['ram-in-use'] and "source VM's own file" in p.said, p.said
        p = send(src)
        assert p.wait() in (godwit.EXIT['busy'], godwit.EXIT['ram-in-use']), p.said
        there.kill().wait()
        dst.kill()
    finally:
        init.kill()
        init.wait()
    godwit.unharmed(src)


def ivshmem(path, name='shared', master='on'):
    return ['-object', f'memory-backend-file,id={name},mem-path={path},size=1M,share=on',
            '-device', f'ivshmem-plain,id=pipe,memdev={name},master={master}']


@pytest.fixture
def pipes():
    """Files of an ivshmem device's, the first with something in it."""
    paths = ['/dev/shm/pipe.here', '/dev/shm/pipe.there']
    with open(paths[0], 'wb') as f:
        f.write(os.urandom(1 << 20))
    yield paths
    for path in paths:
        if os.path.exists(path):
            os.unlink(path)


def test_ivshmem(directory, qemu, pipes):
    """QEMU's own stream cannot leave such RAM out, so it takes save mode; it has no place there yet, so its size tells which it is."""
    src = source(directory, devices=ivshmem(pipes[0]), qemu=qemu)
    here = send(src, '--device-state', 'migrate')
    assert here.wait() == godwit.EXIT['ram-private'] and '"shared" is an ivshmem' in here.said and 'device_del' in here.said, here.said
    godwit.unharmed(src)
    dst = godwit.destination(src, devices=ivshmem(pipes[1], 'other'))
    there = godwit.listen(dst)
    here = send(src, '--verify')
    assert here.wait() == 0 and there.wait() == 0, here.said + there.said
    godwit.proof(src, dst, stopped='paused')
    proved(digest(pipes[0]) == digest(pipes[1]), 'what the device shows is not there')


def test_ivshmem_of_a_peer(directory, qemu, pipes):
    """Where another VM is its master QEMU refuses, in its own words."""
    src = source(directory, devices=ivshmem(pipes[0], master='off'), qemu=qemu)
    here = send(src)
    assert here.wait() == godwit.EXIT['vm-state'] and "'peer mode'" in here.said and "'ivshmem'" in here.said, here.said
    godwit.unharmed(src)


def test_ivshmem_of_two_vms(directory, qemu, pipes):
    """RAM of two VMs cannot move with one of them, nor may what another VM has at the destination be written."""
    src = source(directory, devices=ivshmem(pipes[0]), qemu=qemu)
    dst = godwit.destination(src, devices=ivshmem(pipes[1]))
    other = lab.Qemu('other', directory=directory, append=APPEND, devices=ivshmem(pipes[1])).wait_ticks(1)
    there = godwit.receive(dst)
    assert there.wait() == godwit.EXIT['ram-in-use'] and f'process {other.pid}' in there.said, there.said
    other.kill()
    twin = lab.Qemu('twin', directory=directory, append=APPEND, devices=ivshmem(pipes[0])).wait_ticks(1)
    here = send(src)
    assert here.wait() == godwit.EXIT['ram-in-use'] and f'process {twin.pid}' in here.said, here.said
    twin.kill()
    godwit.unharmed(src)
