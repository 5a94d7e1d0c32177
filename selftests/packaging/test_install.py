# SPDX-License-Identifier: GPL-2.0-only
"""Where `make install` and the packages put what, and that lintian and systemd have nothing to say about it."""
import os
import subprocess

import pytest
from helptext import BUILD, COMMANDS, DEBS, TREE

PAGES = [f'godwit{suffix}.1' for suffix in ('', *(f'-{command}' for command in COMMANDS))]


def call(*words, **more):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **more)
    assert done.returncode == 0, f'{" ".join(map(str, words))}: {done.stdout}'
    return done.stdout


def make(*words):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(('MAKE', 'MFLAGS'))}
    return call('make', '-s', '-C', TREE, *words, env={**environment, 'B': BUILD})


def files(top):
    return {os.path.relpath(os.path.join(at, name), top) for at, _, names in os.walk(top) for name in names}


def expected(bin_='bin', share='share', lib='lib', zsh='site-functions'):
    return {f'{bin_}/godwit', *(f'{share}/man/man1/{page}' for page in PAGES),
            f'{share}/bash-completion/completions/godwit', f'{share}/zsh/{zsh}/_godwit',
            f'{lib}/systemd/system/godwit-receive@.socket', f'{lib}/systemd/system/godwit-receive@.service',
            f'{lib}/sysusers.d/godwit.conf', f'{lib}/udev/rules.d/60-godwit.rules'}


@pytest.mark.parametrize('options,prefix,bin_', [
    ((), 'usr/local', 'usr/local/bin'),
    (('PREFIX=/opt/godwit',), 'opt/godwit', 'opt/godwit/bin'),
    (('PREFIX=/usr', 'BINDIR=/usr/sbin'), 'usr', 'usr/sbin'),
])
def test_make_install(tmp_path, options, prefix, bin_):
    make('install', f'DESTDIR={tmp_path}', *options)
    assert files(tmp_path) == expected(bin_, f'{prefix}/share', f'{prefix}/lib')
    assert call(f'{tmp_path}/{bin_}/godwit', '--version') == call(f'{BUILD}/godwit', '--version')
    service = (tmp_path / prefix / 'lib/systemd/system/godwit-receive@.service').read_text(encoding='utf-8')
    assert f'\nExecStart=/{bin_}/godwit receive ' in service
    make('uninstall', f'DESTDIR={tmp_path}', *options)
    assert files(tmp_path) == set()


def unpacked(name, to):
    deb, = (path for path in DEBS if os.path.basename(path).startswith(f'{name}_'))
    call('dpkg-deb', '-x', deb, to)
    return files(to)


def test_package_of_the_tool(tmp_path):
    found = {path[:-3] if path.startswith('usr/share/man/') else path for path in unpacked('godwit', tmp_path)}
    wanted = {path.replace('usr/lib/systemd', 'lib/systemd').replace('usr/lib/udev', 'lib/udev')
              for path in expected('usr/bin', 'usr/share', 'usr/lib', 'vendor-completions')}
    assert {path for path in found if not path.startswith(('usr/share/doc/', 'usr/share/lintian/'))} == wanted


def test_package_of_the_module(tmp_path):
    """What DKMS needs, the same as `make dkms-source` installs, and nothing that was built."""
    make('dkms-source', f'DESTDIR={tmp_path}/made')
    made = files(tmp_path / 'made') - {path for path in files(tmp_path / 'made') if path.endswith('/LICENSE')}
    found = unpacked('godwit-dkms', tmp_path / 'deb')
    assert {path for path in found if path.startswith('usr/src/')} == made
    assert 'usr/share/doc/godwit-dkms/README.Debian' in found


def test_lintian(outcome):
    assert len(DEBS) == 3
    status, said = outcome
    assert status == 0, said


def test_units(tmp_path):
    """Words that systemd knows, and what it makes of the hardening; a capability more than is needed would be 2.8."""
    unpacked('godwit', tmp_path)
    units = tmp_path / 'lib/systemd/system'
    for unit in ('socket', 'service'):
        os.rename(units / f'godwit-receive@.{unit}', units / f'godwit-receive@guest.{unit}')
    said = call('systemd-analyze', 'verify', '--man=no', '--recursive-errors=no', f'--root={tmp_path}',
                'godwit-receive@guest.socket', 'godwit-receive@guest.service')
    assert 'godwit' not in said, said
    call('systemd-analyze', 'security', '--offline=yes', '--threshold=27', f'--root={tmp_path}', 'godwit-receive@guest.service')
