# SPDX-License-Identifier: GPL-2.0-only
"""No other VM's RAM is touched, and a VM has one migration at a time: whatever an operator starts by mistake."""
import dataclasses
import hashlib
import os
import signal
import subprocess
import time

import godwit
import lab
import monitor
import pytest
import relay
import wire
from ours import proved

APPEND = 'start=16 size=16 touch=8 rate=50'
AT, TO = godwit.AT, godwit.TO
pytestmark = pytest.mark.native


def source(directory, name='src', **more):
    vm = lab.Qemu(name, directory=directory, **{'ram': 64, 'append': APPEND, **more}).wait_ticks(1)
    godwit.note(vm)
    return vm


def send(src, *options, qmp=None, to=AT):
    return godwit.Process('src', 'send', '--qmp', qmp or src.main_qmp, '--pid', str(src.pid), '--pause', *options, to)


def arrives(src, dst):
    there = godwit.listen(dst)
    here = send(src)
    assert here.wait() == 0 and there.wait() == 0, here.said + there.said
    godwit.proof(src, dst)


def mark(vm):
    return [o['name'] for o in vm.qmp('qom-list', path='/objects') if o['name'].startswith('godwit')]


def ram(path, share=True):
    """Of a QEMU that takes a file that is there already, and another's."""
    return [lab.Ram(64, path, share=share, foreign=True)]


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
        dst = godwit.destination(src, ram=ram(path))
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
    dst = godwit.destination(src, ram=ram(f'/proc/{src.pid}/fd/{fds[0]}'))
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
        dst = godwit.destination(src, ram=ram('/dev/shm/third.ram'))
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
        third = lab.Qemu('third', directory=directory, ram=ram(dst.ram[0].path), append=APPEND).wait_ticks(1)
        here = send(src)
        assert here.wait() == godwit.EXIT['peer-failed'], here.said
        assert there.wait() == godwit.EXIT['ram-in-use'], there.said
        assert f'process {third.pid}' in here.said, here.said
        third.wait_ticks(2).check()
        godwit.unharmed(src)


def test_two_receivers(directory):
    """For one QEMU, and for two that have one file."""
    src = source(directory)
    dst = godwit.destination(src)
    first = godwit.listen(dst)
    dst.hang_up()
    second = godwit.receive(dst, '--qmp', f'{dst.run}/test.qmp', at=godwit.address(1))
    assert second.wait() == godwit.EXIT['busy'], second.said
    twin = godwit.destination(src, 'twin', ram=ram(dst.ram[0].path))
    second = godwit.receive(twin, at=godwit.address(1))
    assert second.wait() in (godwit.EXIT['ram-in-use'], godwit.EXIT['busy']), second.said
    twin.kill()
    # One that waits for the first to end finds a guest that runs.
    second = godwit.receive(dst, '--qmp', f'{dst.run}/test.qmp', at=godwit.address(1))
    here = send(src)
    assert here.wait() == 0 and first.wait() == 0, here.said + first.said
    assert second.wait() in (godwit.EXIT['vm-state'], godwit.EXIT['busy']), second.said
    godwit.proof(src, dst)


CONTAINER = """#!/bin/sh
exec unshare --mount --pid --fork --kill-child --mount-proc %s "$@"
"""


@pytest.mark.parametrize('apart', ['directory', 'proc', 'container'])
def test_two_services(directory, qemu, apart):
    """For one QEMU with RAM of its own: they have no directory in common, and see /proc elsewhere, or other numbers in it."""
    src = source(directory, qemu=qemu, ram=[lab.Ram(64)])
    if apart == 'container':
        with open(f'{directory}/contained', 'w', encoding='ascii') as f:
            os.fchmod(f.fileno(), 0o755)
            f.write(CONTAINER % qemu)
        qemu = f'{directory}/contained'
    dst = godwit.destination(src, qemu=qemu)
    first = godwit.listen(dst)
    dst.hang_up()
    os.makedirs(f'{directory}/run', exist_ok=True)
    enter = ['env', f'RUNTIME_DIRECTORY={directory}/run']
    if apart == 'proc':
        enter += ['unshare', '--mount', 'sh', '-c', 'mount -t proc proc /proc && exec "$@"', 'sh']
    elif apart == 'container':
        inside = subprocess.run(['pgrep', '-P', str(dst.pid)], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
        enter += ['nsenter', '--mount', '--pid', '--target', inside]
    second = godwit.receive(dst, '--qmp', f'{dst.run}/test.qmp', at=godwit.address(1), enter=enter)
    assert second.wait() == godwit.EXIT['busy'] and 'at work on this VM' in second.said, second.said
    here = send(src)
    assert here.wait() == 0 and first.wait() == 0, here.said + first.said
    godwit.proof(src, dst, stopped='paused')


def test_a_guest_comes_by_another_way(directory):
    """By QEMU's own migration, to a QEMU that a receiver waits for: that guest is not overwritten."""
    src, other = source(directory), source(directory, 'third')
    dst = godwit.destination(src)
    there = godwit.listen(dst)
    lab.qemu_migrate(other, dst)
    dst.wait_ticks(1)
    here = send(src)
    assert here.wait() == godwit.EXIT['peer-failed'] and there.wait() == godwit.EXIT['vm-state'], here.said + there.said
    dst.wait_ticks(2).check()
    src.destinations.remove(dst)	# whose guest is another
    godwit.unharmed(src)


def test_a_neighbour(directory):
    """Another VM that the destination is connected to is no backend of it."""
    src = source(directory)
    socket = f'{directory}/pipe'
    third = source(directory, 'third', devices=['-device', 'virtio-serial-pci', '-chardev', f'socket,id=pipe,path={socket},server=on,wait=off',
                                                '-device', 'virtserialport,chardev=pipe'])
    with godwit.guests():
        dst = godwit.destination(src, ram=ram(third.ram[0].path),
                                 devices=['-device', 'virtio-serial-pci', '-chardev', f'socket,id=pipe,path={socket}',
                                          '-device', 'virtserialport,chardev=pipe'])
        there = godwit.receive(dst)
        assert there.wait() == godwit.EXIT['ram-in-use'] and f'process {third.pid}' in there.said, there.said
        third.wait_ticks(2).check()


def test_a_helper_of_qemu_s_own(directory):
    """A process that shares QEMU's memory, as it is told to have for its end, is QEMU."""
    said = subprocess.run([lab.QEMU, '-help'], stdout=subprocess.PIPE, text=True, check=True).stdout
    option = ['-async-teardown'] if '-async-teardown' in said else ['-run-with', 'async-teardown=on']
    src = source(directory, devices=option)
    arrives(src, godwit.destination(src, devices=option))


def test_another_vm_shares_the_source_s_ram(directory):
    """RAM of two VMs cannot move with one of them."""
    src = source(directory)
    twin = lab.Qemu('twin', directory=directory, ram=ram(src.ram[0].path), incoming=True, **src.made)
    twin.query_status()
    here = send(src)
    assert here.wait() == godwit.EXIT['ram-in-use'], here.said
    assert f'process {twin.pid}' in here.said and 'two VMs share' in here.said, here.said
    twin.kill()
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


@pytest.mark.parametrize('apart', [0, 0.1, 0.3, 1, 3])
def test_two_senders(directory, apart):
    """To two destinations, through two monitors of one QEMU: one of them moves the guest, once."""
    src = source(directory)
    one, two = godwit.destination(src, 'one'), godwit.destination(src, 'two')
    ports = f'{TO[0]}:{TO[1]}', f'{TO[0]}:{TO[1] + 1}'
    receivers = [godwit.listen(one, at=ports[0]), godwit.listen(two, at=ports[1])]
    src.hang_up()
    first = send(src, to=ports[0])
    time.sleep(apart)
    second = send(src, qmp=f'{src.run}/test.qmp', to=ports[1])
    statuses = [first.wait(), second.wait()]
    assert statuses.count(0) == 1, f'{statuses}\n{first.said}\n{second.said}'
    loser = 1 - statuses.index(0)
    assert statuses[loser] in (godwit.EXIT['busy'], godwit.EXIT['vm-state']), f'{statuses}\n{first.said}\n{second.said}'
    there, idle = (one, two) if loser == 1 else (two, one)
    receivers[1 - loser].wait()
    godwit.proof(src, there)
    proved(idle.query_status() == 'inmigrate' and not idle.has_run(), 'the guest runs twice')
    receivers[loser].kill(signal.SIGTERM).wait()


def held_in_the_blackout(src, dst, act, then=lambda: None):
    """A sender in the blackout, its guest stopped, and what happens to it there, and when it has ended. The receiver ends."""
    between = monitor.in_the_blackout(src, lambda: act(here))
    there = godwit.listen(dst, '--resolve-timeout', '1')
    here = send(src, qmp=between.path)
    here.wait()
    then()
    there.wait()


def test_after_a_sender_that_was_killed(directory):
    """At once: its guardian has the VM until all is put back, and no longer."""
    src = source(directory)
    again = godwit.destination(src, 'again')
    other = f'{TO[0]}:{TO[1] + 2}'	# the relay has the next one
    there = godwit.listen(again, at=other)
    second = []

    held_in_the_blackout(src, godwit.destination(src), lambda here: here.kill(signal.SIGKILL).wait(),
                                then=lambda: second.append(send(src, to=other)))
    assert second[0].wait() == 0 and there.wait() == 0, second[0].said + there.said
    godwit.proof(src, again)


def test_sender_and_guardian_killed(directory):
    """No program is left to put it back: the operator is told what there is to do, and it can be done."""
    src = source(directory)

    def act(here):
        for child in subprocess.run(['pgrep', '-P', str(here.pid)], stdout=subprocess.PIPE, text=True, check=True).stdout.split():
            os.kill(int(child), signal.SIGKILL)
        here.kill(signal.SIGKILL).wait()
    held_in_the_blackout(src, godwit.destination(src), act)
    p = send(src)
    assert p.wait() == godwit.EXIT['vm-state'] and 'resolve --forget' in p.said, p.said
    forget = 'src', 'resolve', '--qmp', src.main_qmp, '--forget'
    p = godwit.Process(*forget)
    if p.wait() == godwit.EXIT['vm-state']:
        assert 'migrate_cancel' in p.said, p.said
        src.qmp('migrate_cancel')
        while src.qmp('query-migrate')['status'] == 'cancelling':
            time.sleep(0.05)
        p = godwit.Process(*forget)
    assert p.wait() == 0 and 'x-ignore-shared' in p.said, p.said
    src.qmp('migrate-set-capabilities', capabilities=[{'capability': name, 'state': state} for name, state in src.settings_before[0].items()])
    src.qmp('migrate-set-parameters', **{name: src.settings_before[1][name] for name in ('downtime-limit', 'max-bandwidth')})
    godwit.unharmed(src)
    arrives(src, godwit.destination(src))


def test_the_guardian_keeps_it(directory):
    """The guest has moved, QEMU hangs, its settings are not back: until they are no migration begins."""
    src = source(directory)
    dst = godwit.destination(src)
    between = relay.Watching(TO, lambda kind: kind == wire.RESUMED and src.process.send_signal(signal.SIGSTOP))
    there = godwit.listen(dst)
    try:
        here = send(src, '--peer-timeout', '1', to=between.address)
        assert here.wait() == 0 and 'guardian' in here.said, here.said
        there.wait()
        held = subprocess.run(['flock', '-n', src.ram[0].path, 'true'], check=False).returncode
        proved(held != 0, 'the RAM file is free while a guardian is at work')
    finally:
        between.stop()
        src.process.send_signal(signal.SIGCONT)
    godwit.proof(src, dst)
    subprocess.run(['flock', '-w', '60', src.ram[0].path, 'true'], check=True)


def test_a_guest_that_has_moved(directory):
    """It is not sent twice, until the operator says that it is to run here."""
    src = source(directory)
    dst = godwit.destination(src)
    there = godwit.listen(dst)
    here = send(src)
    assert here.wait() == 0 and there.wait() == 0, here.said + there.said
    proved(mark(src) and not mark(dst), 'the mark is not where it belongs')
    for command in (('send', '--qmp', src.main_qmp, '--pause', AT), ('check', '--qmp', src.main_qmp, '--pause')):
        p = godwit.Process('src', *command)
        assert p.wait() == godwit.EXIT['vm-state'] and AT in p.said and 'resolve --forget' in p.said, p.said
    # The destination is lost, and the operator decides.
    dst.kill()
    p = godwit.Process('src', 'resolve', '--qmp', src.main_qmp, '--forget')
    assert p.wait() == 0 and not mark(src), p.said
    p = godwit.Process('src', 'resolve', '--qmp', src.main_qmp, '--forget')
    assert p.wait() == godwit.EXIT['no-migration'], p.said
    src.qmp('cont')
    src.sender = None
    arrives(src, godwit.destination(src))


def test_in_doubt(directory):
    """Neither is one whose end is not known; resolve finds out, and the mark stays where the guest has moved."""
    src = source(directory)
    dst = godwit.destination(src)
    between = relay.Relay(TO, wire.RESUMED)
    there = godwit.listen(dst, '--peer-timeout', '2')
    try:
        here = send(src, '--peer-timeout', '2', '--resolve-timeout', '1', to=between.address)
        assert here.wait() == godwit.EXIT['unknown'], here.said
    finally:
        between.stop()
    p = send(src)
    assert p.wait() == godwit.EXIT['vm-state'] and 'resolve' in p.said, p.said
    p = godwit.Process('src', 'resolve', '--qmp', src.main_qmp, '--to', AT)
    assert p.wait() == 0, p.said
    there.wait()
    proved(mark(src), 'the mark is gone')
    godwit.proof(src, dst)


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
        p = godwit.Process('src', 'check', '--qmp', src.main_qmp, '--pause', '--to', AT)
        assert p.wait() == godwit.EXIT['ram-in-use'] and "source VM's own file" in p.said, p.said
        p = send(src)
        assert p.wait() in (godwit.EXIT['busy'], godwit.EXIT['ram-in-use']), p.said
        there.kill().wait()
        dst.kill()
    finally:
        init.kill()
        init.wait()
    godwit.unharmed(src)
