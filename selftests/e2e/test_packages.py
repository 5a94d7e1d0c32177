# SPDX-License-Identifier: GPL-2.0-only
"""The packages of `make deb`: installed, used for a migration, removed."""
import contextlib
import glob
import grp
import os
import shutil
import stat
import subprocess

import godwit
import lab
import pytest
from manager import Manager, systemctl

PACKAGES = ('godwit', 'godwit-dkms')
MODULES = f'/lib/modules/{os.uname().release}'
BUILT = '/usr/share/godwit-dkms'
SERVICE, SOCKET = 'godwit-receive@guest.service', 'godwit-receive@guest.socket'
UNITS = [f'/lib/systemd/system/godwit-receive@.{kind}' for kind in ('service', 'socket')]

pytestmark = pytest.mark.together


@contextlib.contextmanager
def nothing_but_updates():
    """depmod finds only what DKMS has put there: reading Debian's 4000 modules takes it minutes here."""
    lab.call('mount', '-t', 'tmpfs', 'none', f'{MODULES}/kernel')
    try:
        yield
    finally:
        lab.call('umount', f'{MODULES}/kernel')


def dpkg(*words):
    with nothing_but_updates():
        lab.call('dpkg', *words, env={**os.environ, 'DEBIAN_FRONTEND': 'noninteractive'})


def files_of(package):
    """All but the directories, which others have as well."""
    return [path for path in lab.call('dpkg', '-L', package).splitlines() if not os.path.isdir(path)]


@pytest.fixture(scope='module')
def installed():
    """Both packages; what DKMS has built of the package outside (selftests/dkms.sh) spares the compiler, nothing else."""
    godwit.unload()
    lab.net()	# needs modules that modprobe does not find for a while
    debs = [path for name in PACKAGES for path in glob.glob(f'{lab.B}/deb/{name}_*.deb')]
    built = glob.glob(f'{lab.B}/deb/godwit-*.dkms.tar.gz')
    assert len(debs) == 2 and len(built) == 1, 'selftests/run lab --prepare makes them'
    os.makedirs(BUILT, exist_ok=True)
    shutil.copy(built[0], BUILT)
    index = {path: open(path, 'rb').read() for path in glob.glob(f'{MODULES}/modules.*')}	# pylint: disable=R1732
    with contextlib.suppress(FileNotFoundError):
        os.unlink('/var/lib/man-db/auto-update')	# an index of all pages of this host: minutes
    dpkg('-i', *debs)
    try:
        yield [path for name in PACKAGES for path in files_of(name)]
    finally:
        godwit.unload()
        if os.path.exists('/usr/bin/godwit'):
            dpkg('--purge', *PACKAGES)
        for path, body in index.items():
            with open(path, 'wb') as f:
                f.write(body)
        shutil.rmtree(BUILT)


@pytest.mark.parametrize('how', ['pre-copy', 'post-copy'])
def test_migration(installed, directory, monkeypatch, how):
    """The module that modprobe finds, `godwit` of the PATH, and a receiver that the socket unit starts."""
    options = ('--streams', '4', '--peer-timeout', '90', *(('--postcopy', 'on') if how == 'post-copy' else ()))
    assert '/usr/bin/godwit' in installed
    monkeypatch.setattr(godwit, 'GODWIT', '/usr/bin/godwit')
    lab.call('modprobe', 'godwit')
    assert lab.call('modinfo', '-F', 'filename', 'godwit').strip().startswith(f'{MODULES}/updates/dkms/godwit.ko')
    src = lab.Qemu('src', directory=directory, append='start=16 size=32 touch=32 rate=200').wait_ticks(2)
    dst = godwit.destination(src)
    os.symlink(dst.main_qmp, '/run/guest.qmp')
    os.makedirs('/etc/godwit', exist_ok=True)
    with open('/etc/godwit/receive-guest.conf', 'w', encoding='ascii') as f:
        f.write('GODWIT_OPTIONS=--streams 2 --peer-timeout 90\n')
    with Manager(*UNITS, log='/run/receiver.log') as manager:
        systemctl('start', SOCKET)
        assert systemctl('is-active', SERVICE, check=False) == 'inactive'
        run = godwit.Run(src, dst, *options, receiver=False, side=None, to=f'127.0.0.1:{godwit.PORT}',
                         verify=how == 'pre-copy')
        try:
            report = run.wait()
        except AssertionError as e:
            raise AssertionError(f'{e}\n{systemctl("status", SERVICE, check=False)}\n{manager.said()}') from e
        assert 'listening on 127.0.0.1:4433\n' in manager.said() and 'the guest runs here' in manager.said()
        assert report['verified'] == (how == 'pre-copy') and bool(report['postcopy']['owed']) == (how == 'post-copy')
        godwit.proof(src, dst)
        # It stays, so that a second sender starts no second receiver.
        assert systemctl('is-active', SERVICE) == 'active'
        assert systemctl('show', '-P', 'SubState', SERVICE) == 'exited'
        systemctl('stop', SOCKET, SERVICE)
    os.unlink('/run/guest.qmp')
    os.unlink('/etc/godwit/receive-guest.conf')


def test_device_belongs_to_the_group(installed):
    assert '/lib/udev/rules.d/60-godwit.rules' in installed
    lab.call('modprobe', 'godwit')
    lab.call('udevadm', 'test', '--action=add', '/devices/virtual/misc/godwit')
    found = os.stat('/dev/godwit')
    assert grp.getgrgid(found.st_gid).gr_name == 'godwit' and stat.S_IMODE(found.st_mode) == 0o660
    # Which alone opens nothing: past the file's permissions it is the module that refuses.
    for group, reason in (('nogroup', 'Permission denied'), ('godwit', 'Operation not permitted')):
        done = subprocess.run(['setpriv', '--reuid=nobody', f'--regid={group}', '--clear-groups', 'cat', '/dev/godwit'],
                              stderr=subprocess.PIPE, text=True, check=False, env={**os.environ, 'LC_ALL': 'C'})
        assert done.returncode and reason in done.stderr


def test_removal(installed):
    """Nothing of them is left, and nothing was in the way."""
    godwit.unload()
    dpkg('--purge', *PACKAGES)
    assert [path for path in installed if os.path.lexists(path)] == []
    assert glob.glob('/usr/src/godwit-*') == []
    assert not os.path.exists('/var/lib/dkms/godwit')
    assert glob.glob(f'{MODULES}/updates/**/godwit*', recursive=True) == []
    assert lab.call('dkms', 'status', '-m', 'godwit').strip() == ''
