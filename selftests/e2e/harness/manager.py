# SPDX-License-Identifier: GPL-2.0-only
"""
A service manager for the lab, whose first process is none: systemd's manager for a user, root. Units of the system run in
it unchanged, with their users, capabilities and namespaces, since it has root's rights. It finds here what the first
process of a host would have prepared.
"""
import os
import shutil
import subprocess
import time

import lab

RUNTIME = '/run/user/0'
CGROUP = '/sys/fs/cgroup/manager'
UNITS = os.path.expanduser('~/.config/systemd/user')
SYSTEMD = '/lib/systemd/systemd'


def systemctl(*words, check=True):
    done = subprocess.run(['systemctl', '--user', *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, env={**os.environ, 'XDG_RUNTIME_DIR': RUNTIME})
    assert done.returncode == 0 or not check, f'systemctl {" ".join(words)}: {done.stdout}'
    return done.stdout.strip()


def _into_cgroup():
    with open(f'{CGROUP}/cgroup.procs', 'w', encoding='ascii') as f:
        f.write('0')


class Manager:
    """Runs while the with block does. units: paths of unit files; log: what services say, as there is no journal."""

    def __init__(self, *units, log):
        self.units = units
        self.log = log
        self.process = None

    def _drop_in(self, path):
        return f'{UNITS}/{os.path.basename(path)}.d'

    def said(self):
        if not os.path.exists(self.log):
            return ''
        with open(self.log, encoding='utf-8') as f:
            return f.read()

    def __enter__(self):
        for path in (RUNTIME, f'{RUNTIME}/systemd', '/run/systemd/system', UNITS, CGROUP):
            os.makedirs(path, exist_ok=True)
        if not os.path.lexists('/run/systemd/inaccessible'):
            os.symlink(f'{RUNTIME}/systemd/inaccessible', '/run/systemd/inaccessible')
        lab.call('mount', '--make-rshared', '/')
        for path in self.units:
            os.symlink(path, f'{UNITS}/{os.path.basename(path)}')
            if path.endswith('.service'):
                os.makedirs(self._drop_in(path))
                with open(f'{self._drop_in(path)}/log.conf', 'w', encoding='ascii') as f:
                    f.write(f'[Service]\nStandardOutput=append:{self.log}\nStandardError=append:{self.log}\n')
        self.process = subprocess.Popen([SYSTEMD, '--user', '--unit=basic.target'], preexec_fn=_into_cgroup,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        env={**os.environ, 'XDG_RUNTIME_DIR': RUNTIME})
        end = time.monotonic() + 60
        while systemctl('is-system-running', check=False) not in ('running', 'degraded'):
            assert time.monotonic() < end and self.process.poll() is None, 'systemd --user does not come up'
            time.sleep(0.2)
        return self

    def __exit__(self, *_):
        systemctl('exit', check=False)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        lab.call('mount', '--make-rprivate', '/')
        for path in self.units:
            os.unlink(f'{UNITS}/{os.path.basename(path)}')
            shutil.rmtree(self._drop_in(path), ignore_errors=True)
