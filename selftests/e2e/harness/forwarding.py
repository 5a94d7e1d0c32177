# SPDX-License-Identifier: GPL-2.0-only
"""
A guest that forwards frames between two ports, two hosts that it may be on, and a tester that sends frames through it both
ways, as a user of the network would:

    crossframes -- tor0 (bridge) -+- up0 | OVS src | vhu0 -- guest, port 0 --+
                                  +- up0 | OVS dst | vhu0                    | forwards
                -- tor1 (bridge) -+- up1 | OVS src | vhu1 -- guest, port 1 --+
                                  +- up1 | OVS dst | vhu1
"""
import contextlib
import json
import os
import signal
import time

import godwit
import lab
from kinds import HUGE
from vswitch import PORTS, Ovs

WRITES = 'start=16 size=32 touch=16 rate=100'
RATE = 250	# frames a second, each way
BYTES = 64
MIB = 64


def fabric():
    """The two switches that the hosts are connected to; once."""
    lab.net()
    if os.path.exists('/sys/class/net/tor0'):
        return
    lab.modules('bridge')
    for i in range(PORTS):
        lab.call('ip', 'link', 'add', f'tor{i}', 'address', f'02:67:64:77:74:0{"ab"[i]}', 'type', 'bridge', 'mcast_snooping', '0')
        for side in ('src', 'dst'):
            lab.call('ip', 'link', 'add', f'tor{i}-{side}', 'type', 'veth', 'peer', 'name', f'up{i}', 'netns', side)
            lab.call('ip', 'link', 'set', f'tor{i}-{side}', 'master', f'tor{i}', 'up')
            lab.call('ip', '-n', side, 'link', 'set', f'up{i}', 'up')
        lab.call('ip', 'link', 'set', f'tor{i}', 'up')


def devices(switch, pairs=1):
    several = (f',queues={pairs}', f',mq=on,mrg_rxbuf=on,vectors={2 * pairs + 2}') if pairs > 1 else ('', '')
    return [word for i in range(PORTS) for word in (
        '-chardev', f'socket,id=vhu{i},path={switch.socket(i)},server=on,wait=off',
        '-netdev', f'vhost-user,id=net{i},chardev=vhu{i}{several[0]}',
        '-device', f'virtio-net-pci,netdev=net{i},mac=52:54:00:67:64:0{i + 1},disable-legacy=off{several[1]}')]


@contextlib.contextmanager
def hosts(directory, warm=False, **more):
    """
    {'src': Ovs, 'dst': Ovs}. warm: their ports have had a guest, as the first one costs a switch two reconfigurations, which
    are none of a migration's.
    """
    fabric()
    switches = {}
    with contextlib.ExitStack() as ends, godwit.guests():
        for side in ('src', 'dst'):
            switches[side] = Ovs(side, directory, **more)
            ends.callback(switches[side].end)
        for switch in switches.values():
            switch.ready()
            if warm:
                source(directory, switch, 'warm').kill()
        yield switches


def source(directory, switch, name='src', append=WRITES, mib=MIB, pairs=1, mount=HUGE, align='', **more):
    """A guest on huge pages, of 2 MiB where no mount has others, that forwards behind this switch, with so many queue pairs a port."""
    vm = lab.Qemu(name, switch.side, ram=[lab.Ram(mib, f'{mount}/{name}.ram', align=align)], directory=directory,
                  append=f'{append} fwd={pairs}', devices=devices(switch, pairs), **more).wait_ticks(2)
    switch.wait_connected(pairs)
    return vm


class Traffic:
    """Frames that go through the guest for as long as the block lasts; then .report is what became of them."""

    def __init__(self, rate=RATE, size=BYTES):
        self.words = [f'{lab.B}/tools/crossframes', *(f'tor{i}' for i in range(PORTS)), rate, size]
        self.path, self.report = '/dev/shm/crossframes', None

    def __enter__(self):
        with open(self.path, 'wb') as out:
            self.process = lab.popen(None, self.words, stdout=out)
        return self

    def passed(self):
        """How many frames have come out so far, each way."""
        with open(self.path, encoding='ascii') as f:
            lines = f.read().split('\n')[:-1]
        return tuple(map(int, lines[-1].split())) if lines else (0, 0)

    def wait_flowing(self, frames=50, timeout=60):
        """So many more come out, both ways."""
        before, end = self.passed(), time.monotonic() + timeout
        while any(now - then < frames for now, then in zip(self.passed(), before)):
            assert self.process.poll() is None, 'crossframes has ended'
            assert time.monotonic() < end, f'no frames pass: {before}, {timeout} s later {self.passed()}'
            time.sleep(0.05)
        return self

    def __exit__(self, *failed):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)
        with open(self.path, encoding='ascii') as f:
            lines = f.read().splitlines()
        os.unlink(self.path)
        if not failed[0]:
            self.report = json.loads(lines[-1])
