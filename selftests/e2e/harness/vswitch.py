# SPDX-License-Identifier: GPL-2.0-only
"""
Open vSwitch with the DPDK datapath, one on each side: two bridges, each with an uplink (DPDK's af_packet) and a vhost-user
port, of which QEMU is the server, so that a switch may come, go and come again (type dpdkvhostuserclient).
"""
import os
import re
import shutil
import subprocess
import time

import lab

VSWITCHD = '/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk'
SCHEMA = '/usr/share/openvswitch/vswitch.ovsschema'
PORTS = 2
CGROUPS = '/sys/fs/cgroup'
F_LOG_ALL = 1 << 26	# VHOST_F_LOG_ALL
OPTIONS = {
    'dpdk-init': 'true',
    # All ports share one pool of buffers, which is halved until it fits into this.
    'dpdk-socket-mem': '64', 'dpdk-socket-limit': '64',
    'dpdk-extra': '"--no-pci --no-telemetry"',
}


class Ovs:
    """
    Its polling threads poll without a pause, for `percent` of the time. (pmd-maxsleep has them notice late that a guest has
    come: a sleeping thread looks for one once in 1024 turns.)
    """

    def __init__(self, side, directory, cpu=0, percent=20):
        self.side, self.directory, self.percent, self.switch = side, directory, percent, None
        self.run = f'/run/ovs-{side}'
        shutil.rmtree(self.run, ignore_errors=True)
        os.makedirs(self.run)
        self.env = dict(os.environ, **{f'OVS_{name}DIR': self.run for name in ('RUN', 'LOG', 'DB', 'SYSCONF')})
        lab.modules('tun')	# of which a bridge's own port is
        self.call('ovsdb-tool', 'create', f'{self.run}/conf.db', SCHEMA)
        self.database = lab.popen(side, ['ovsdb-server', f'{self.run}/conf.db', f'--remote=punix:{self.run}/db.sock',
                                         f'--unixctl={self.run}/db.ctl', '-vconsole:off'], env=self.env)
        end = time.monotonic() + 60
        while not os.path.exists(f'{self.run}/db.sock'):
            assert time.monotonic() < end and self.database.poll() is None, f'{side}: ovsdb-server does not answer'
            time.sleep(0.05)
        self._configure({**OPTIONS, 'dpdk-lcore-mask': hex(1 << cpu), 'pmd-cpu-mask': hex(1 << cpu)})
        self.start()

    @staticmethod
    def version():
        """The first line: "ovs-vswitchd-dpdk (Open vSwitch) 3.1.0", the second "DPDK 22.11.11"."""
        said = subprocess.run([VSWITCHD, '--version'], stdout=subprocess.PIPE, text=True, check=True).stdout
        return ', '.join(said.splitlines()[:2])

    def socket(self, port):
        """Where QEMU listens for it."""
        return f'{self.run}/vhu{port}'

    def _configure(self, options):
        words = ['set', 'Open_vSwitch', '.', *(f'other_config:{name}={value}' for name, value in options.items())]
        for i in range(PORTS):
            words += ['--', 'add-br', f'br{i}', '--', 'set', 'bridge', f'br{i}', 'datapath_type=netdev',
                      '--', 'add-port', f'br{i}', f'pup{i}', '--', 'set', 'Interface', f'pup{i}', 'type=dpdk',
                      f'options:dpdk-devargs=net_af_packet_{i},iface=up{i}',
                      '--', 'add-port', f'br{i}', f'vhu{i}', '--', 'set', 'Interface', f'vhu{i}', 'type=dpdkvhostuserclient',
                      f'options:vhost-server-path={self.socket(i)}']
        self.vsctl('--no-wait', 'init', '--', *words)

    def start(self):
        if self.switch:
            self.kill()
        self.switch = lab.popen(self.side, [VSWITCHD, f'unix:{self.run}/db.sock', f'--log-file={self.run}/vswitchd.log',
                                            '-vconsole:off', f'--unixctl={self.run}/vs.ctl'], env=self.env)
        return self

    def ready(self):
        """It has all its ports; its threads are rationed."""
        self.vsctl('--timeout=120', 'set', 'Open_vSwitch', '.', f'external_ids:asked={time.monotonic()}')
        self._ration()
        return self

    def call(self, *words):
        done = subprocess.run(words, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f'{words}: {done.stdout}\n{self.log()}')
        return done.stdout

    def vsctl(self, *words):
        return self.call('ovs-vsctl', f'--db=unix:{self.run}/db.sock', *words)

    def connected(self, pairs=1):
        """Does it poll its guest's queues, so many of each port? (What its database says of that may be from before.)"""
        said = self.call('ovs-appctl', '-t', f'{self.run}/vs.ctl', 'dpif-netdev/pmd-rxq-show')
        return len(re.findall(r'vhu\d +queue-id: +\d+ \(enabled\)', said)) == PORTS * pairs

    def wait_connected(self, pairs=1, timeout=60):
        end = time.monotonic() + timeout
        while not self.connected(pairs):
            assert time.monotonic() < end, f'OVS {self.side}: the guest\'s ports do not come up\n{self.log()}'
            time.sleep(0.2)
        return self

    def mapped(self, mount):
        """What it maps of the files below: for each mapping what smaps says of it, in KiB."""
        found, inside = [], False
        with open(f'/proc/{self.switch.pid}/smaps', encoding='utf-8') as f:
            for line in f:
                words = line.split()
                if not words[0].endswith(':'):
                    inside = len(words) > 5 and words[5].startswith(f'{mount}/')
                    if inside:
                        found.append({})
                elif inside and words[-1] == 'kB':
                    found[-1][words[0][:-1]] = int(words[1])
        return found

    def wait_unmapped(self, mount, timeout=60):
        """Of a guest that has ended it hears by its socket, and lets go then."""
        end = time.monotonic() + timeout
        while self.mapped(mount):
            assert time.monotonic() < end, f'OVS {self.side} maps files of {mount} still\n{self.log()}'
            time.sleep(0.1)

    def _said(self):
        with open(f'{self.run}/vswitchd.log', encoding='utf-8') as f:
            return f.read()

    def log(self, lines=25):
        """Its last words, without what it says of its own slowness."""
        if not os.path.exists(f'{self.run}/vswitchd.log'):
            return ''
        return '\n'.join([x[:190] for x in self._said().splitlines() if not re.search(r'coverage\||poll_loop|timeval', x)][-lines:])

    def logs_writes(self):
        """Which ports have been told to log what they write into the guest's RAM (VHOST_F_LOG_ALL), and not told to end that."""
        last = dict(re.findall(rf'{re.escape(self.run)}/(vhu\d)\) negotiated Virtio features: (0x[0-9a-f]+)', self._said()))
        return [port for port, features in sorted(last.items()) if int(features, 16) & F_LOG_ALL]

    def have_logged_writes(self):
        """How often they were told to."""
        told = re.findall(r'negotiated Virtio features: (0x[0-9a-f]+)', self._said())
        return sum(bool(int(features, 16) & F_LOG_ALL) for features in told)

    def _ration(self):
        path = f'{CGROUPS}/ovs-{self.side}'
        if not os.path.isdir(path):
            with open(f'{CGROUPS}/cgroup.subtree_control', 'w', encoding='ascii') as f:
                f.write('+cpu')
            os.mkdir(path)
            for name, value in (('cgroup.type', 'threaded'), ('cpu.max', f'{self.percent * 100} 10000')):
                with open(f'{path}/{name}', 'w', encoding='ascii') as f:
                    f.write(value)
        for task in os.listdir(f'/proc/{self.switch.pid}/task'):
            with open(f'/proc/{self.switch.pid}/task/{task}/comm', encoding='ascii') as f:
                if not f.read().startswith('pmd-'):
                    continue
            with open(f'{path}/cgroup.threads', 'w', encoding='ascii') as f:
                f.write(task)

    def kill(self):
        """The switch; its database stays, so that start() may begin another one."""
        if self.switch.poll() is None:
            self.switch.kill()
        self.switch.wait()
        return self

    def end(self):
        self.kill()
        self.database.kill()
        self.database.wait()
        if os.path.isdir(f'{CGROUPS}/ovs-{self.side}'):
            os.rmdir(f'{CGROUPS}/ovs-{self.side}')
        os.makedirs(self.directory, exist_ok=True)
        shutil.copy(f'{self.run}/vswitchd.log', f'{self.directory}/ovs-{self.side}.log')
