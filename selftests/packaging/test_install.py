# SPDX-License-Identifier: GPL-2.0-only
"""Where `make install` puts what."""
import os
import subprocess

import pytest
from helptext import BUILD, COMMANDS, TREE

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
