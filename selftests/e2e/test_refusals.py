# SPDX-License-Identifier: GPL-2.0-only
"""Bad input: a message that names the thing and the way out, a status of its own, and a source that runs on."""
import errno
import json
import os
import signal
import socket
import stat
import threading
import time

import godwit
import lab
import pytest
from ours import proved

APPEND = 'start=16 size=16 touch=8 rate=50'
NOWHERE = f'{lab.ADDRESS["dst"]}:4436'	# no receiver listens there


def send(*words):
    p = godwit.Process('src', 'send', *words)
    return p.wait(), p.said


def refused(said, status, *words):
    assert said[0] == godwit.EXIT[status], said
    for word in words:
        assert word in said[1], said


@pytest.mark.native
def test_no_such_socket():
    refused(send('--qmp', '/dev/shm/none.sock', NOWHERE), 'no-socket', '/dev/shm/none.sock')


@pytest.mark.native
def test_not_qemu():
    path = f'/dev/shm/hmp.{time.time()}'
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()

        def serve():
            peer, _ = server.accept()
            peer.sendall(b'QEMU 7.2 monitor - type help\r\n(qemu) ')
            time.sleep(1)
            peer.close()
        thread = threading.Thread(target=serve)
        thread.start()
        refused(send('--qmp', path, NOWHERE), 'not-qemu', 'QMP')
        thread.join()


class FakeQemu(threading.Thread):
    """Speaks QMP, and refuses every command behind the first."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(path)
        self.server.listen()
        self.start()

    def run(self):
        peer, _ = self.server.accept()
        lines = peer.makefile('rw')

        def say(what):
            lines.write(json.dumps(what) + '\n')
            lines.flush()
        say({'QMP': {'version': {'qemu': {'major': 7, 'minor': 2, 'micro': 0}, 'package': ''}, 'capabilities': []}})
        answer = {'return': {}}
        for line in lines:
            say({**answer, 'id': json.loads(line)['id']})
            answer = {'error': {'class': 'CommandNotFound', 'desc': 'not in this build'}}


@pytest.mark.native
def test_qemu_refuses():
    path = f'/dev/shm/qmp.{time.time()}'
    FakeQemu(path)
    refused(send('--qmp', path, NOWHERE), 'qmp', 'refused "', 'not in this build (CommandNotFound)')


@pytest.mark.native
@pytest.mark.parametrize('words, says', [
    (['--streams', '17', NOWHERE], '--streams'),
    (['--io', 'epoll', NOWHERE], 'epoll'),
    ([], 'ADDR:PORT'),
    (['--json', '/nowhere/report.json', NOWHERE], '/nowhere/report.json'),
    (['--json', '/', NOWHERE], 'Is a directory'),
    (['--downtime-limit', 'soon', NOWHERE], 'soon')])
def test_usage(words, says):
    """Said before anything is opened."""
    refused(send('--qmp', '/nowhere.qmp', *words), 'usage', says)


@pytest.mark.native
def test_listens_to_strangers_only_when_told_to(directory):
    dst = lab.Qemu('dst', 'dst', directory=directory, incoming=True)
    dst.query_status()
    p = godwit.Process('dst', 'receive', '--qmp', dst.main_qmp, '--listen', '10.77.0.2:4433')
    refused((p.wait(), p.said), 'usage', '--insecure')


@pytest.mark.native
def test_nobody_listens(src):
    refused(send('--qmp', src.main_qmp, '--pause', NOWHERE), 'unreachable', 'godwit receive')
    refused(send('--qmp', src.main_qmp, '--pause', 'nowhere'), 'usage', 'ADDR:PORT')
    refused(send('--qmp', src.main_qmp, '--pause', 'no-host.invalid:1'), 'unreachable', 'no-host.invalid:1', 'does not resolve')
    godwit.unharmed(src)


@pytest.mark.native
def test_private_ram(directory):
    """A file that is not in memory. See test_ramblocks.py for RAM whose place is in doubt."""
    src = lab.Qemu('src', directory=directory, append=APPEND, ram=[lab.Ram(64, f'{directory}/src.ram', share=False)]).wait_ticks(1)
    refused(send('--qmp', src.main_qmp, NOWHERE), 'ram-private',
            f'RAM "ram0" is a private mapping of {os.path.realpath(directory)}/src.ram, which is not on tmpfs or hugetlbfs', 'memory-backend-ram')


@pytest.mark.native
@pytest.mark.parametrize('ram, says', [
    (lab.Ram(64, '/dev/zero', share=False, foreign=True), 'RAM "ram0" is memory of a device, /dev/zero'),
    (lab.Ram(64, 'shm'), 'RAM "ram0" is a memory-backend-shm, which godwit does not move')], ids=['device', 'shm'])
def test_other_ram(directory, qemu, ram, says):
    """By the backend's id, with what to use instead."""
    src = lab.Qemu('src', directory=directory, append=APPEND, qemu=qemu, ram=[ram]).wait_ticks(1)
    refused(send('--qmp', src.main_qmp, NOWHERE), 'ram-private', says, 'memory-backend-')
    src.wait_ticks(1).check()
    dst = lab.Qemu('dst', 'dst', directory=directory, incoming=True, qemu=qemu, ram=[ram])
    dst.query_status()
    p = godwit.receive(dst, at=NOWHERE)
    refused((p.wait(), p.said), 'ram-private', says)


@pytest.mark.native
def test_ram_differs(src):
    dst = godwit.destination(src, ram=[lab.Ram(64, '/dev/shm/dst.ram')])
    run = godwit.Run(src, dst, '--pause')
    run.wait('ram-differs')
    assert 'ram0' in run.send.said and '64 MiB' in run.send.said
    godwit.unharmed(src)


@pytest.mark.native
def test_qemu_migrates_already(src):
    """It is not touched, nor are the settings that it has."""
    src.qmp('migrate-set-parameters', max_bandwidth=1 << 12)
    src.qmp('migrate', uri='exec:cat >/dev/null')
    refused(send('--qmp', src.main_qmp, '--pause', NOWHERE), 'vm-state', 'is migrating the source VM already')
    # A busy host may not have come further.
    proved(src.qmp('query-migrate')['status'] in ('setup', 'active'), src.qmp('query-migrate'))
    src.qmp('migrate_cancel')
    src.qmp('migrate-set-parameters', max_bandwidth=src.settings_before[1]['max-bandwidth'])
    godwit.unharmed(src)


@pytest.mark.native
def test_destination_does_not_wait(directory):
    dst = lab.Qemu('dst', 'dst', directory=directory, append=APPEND)
    dst.query_status()
    p = godwit.receive(dst, at=NOWHERE)
    refused((p.wait(), p.said), 'vm-state', '-incoming defer')


@pytest.mark.usefixtures('module')
def test_no_more_processes(pair):
    """What a service manager's limit of tasks does: no guardian, no stream."""
    for most in 1, 2:
        with lab.Cgroup('pids', 'few') as group:
            group.write('pids.max', most)
            run = godwit.Run(*pair, cgroup=group)
            run.wait('internal')
            run.kill()
            assert os.strerror(errno.EAGAIN) in run.send.said
            godwit.unharmed(pair[0])


@pytest.mark.usefixtures('module')
def test_dirty_ring(directory):
    src = lab.Qemu('src', directory=directory, append=APPEND, accel=',dirty-ring-size=4096').wait_ticks(1)
    refused(send('--qmp', src.main_qmp, NOWHERE), 'dirty-ring', 'dirty-ring-size')


@pytest.mark.usefixtures('module')
@pytest.mark.parametrize('device,name', [('/dev/vfio/vfio', 'VFIO'), ('/dev/vhost-vdpa-0', 'vDPA'), ('/dev/vhost-scsi', 'vhost-scsi')])
def test_pinned(src, device, name):
    """A QEMU that has such a device open. The lab's kernel has but VFIO: the others are nodes that any user can open."""
    if name == 'VFIO':
        lab.modules('vfio')
    elif not os.path.exists(device):
        os.mknod(device, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    src.qmp('object-add', qom_type='rng-random', id='pin', filename=device)
    refused(send('--qmp', src.main_qmp, NOWHERE), 'pinned', name, device, 'device_del')
    src.qmp('object-del', id='pin')
    refused(send('--qmp', src.main_qmp, NOWHERE), 'unreachable')
    godwit.unharmed(src)


@pytest.mark.native
def test_no_compare(directory):
    """Nobody sees that the destination lacks a device, so QEMU refuses it, with the guest stopped; a twin is moved."""
    src = lab.Qemu('src', directory=directory, append=APPEND, devices=lab.rng()).wait_ticks(1)
    run = godwit.Run(src, godwit.destination(src), '--pause', '--no-compare')
    run.wait('device-state')
    assert 'virtio-rng' not in run.send.said and 'warning' not in run.send.said, run.send.said
    godwit.unharmed(src)
    dst = godwit.destination(src, 'dst2', devices=lab.rng())
    godwit.Run(src, dst, '--pause', '--no-compare').wait()
    godwit.proof(src, dst)


@pytest.mark.native
def test_a_stream_fails_at_once(directory):
    """Before the receiver has said that it joined: it says why all the same, and its status is no success."""
    src = lab.Qemu('src', directory=directory, append=APPEND, ram=64).wait_ticks(1)
    dst = godwit.destination(src)
    there = godwit.listen(dst, enter=['sh', '-c', 'ulimit -f 0 && exec "$@"', 'sh'])	# no file may grow: no buffer
    here = send('--qmp', src.main_qmp, '--pause', godwit.AT)
    refused(here, 'peer-failed', "a stream's buffer", os.strerror(errno.EFBIG))
    refused((there.wait(), there.said), 'internal', "a stream's buffer", os.strerror(errno.EFBIG))
    godwit.unharmed(src)


@pytest.mark.native
@pytest.mark.parametrize('command', [['send', '--pause', NOWHERE], ['check', '--pause'], ['estimate', '--bandwidth', '100'], ['rate']],
                         ids=lambda words: words[0])
def test_not_root(src, command):
    """A user who may open the monitor, and no more of QEMU."""
    for path in src.run, src.main_qmp:
        os.chmod(path, 0o777)
    p = godwit.Process('src', command[0], '--qmp', src.main_qmp, *command[1:],
                       enter=['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups', '--inh-caps=-all', '--bounding-set=-all'])
    refused((p.wait(), p.said), 'no-module', 'run godwit as root')
    src.wait_ticks(1).check()


@pytest.mark.native
def test_qemu_is_stopped(src):
    """By Ctrl-Z or a debugger. No client of ours can know that from the silence; the operator is told of it, too."""
    src.hang_up()
    src.process.send_signal(signal.SIGSTOP)
    try:
        refused(send('--qmp', src.main_qmp, '--pause', '--peer-timeout', '2', NOWHERE), 'timeout', src.main_qmp, 'another client', 'kill -CONT')
    finally:
        src.process.send_signal(signal.SIGCONT)
    godwit.unharmed(src)
