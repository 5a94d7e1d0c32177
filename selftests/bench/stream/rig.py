# SPDX-License-Identifier: GPL-2.0-only
"""
Two stopped QEMUs under TCG, and one migration between them: godwit's, or QEMU's own. No KVM and no module is needed,
since a guest that stands still writes nothing; what is measured is the copy of its RAM. (An idle one is firmware that found
nothing to boot. For godwit it stops before the first page, so its blackout is told with and without the time for RAM.)

The destination's memory is made and given back just before, for all alike: what it costs a virtual machine to get memory
from its own host for the first time would otherwise fall on the first migration. A preallocated destination keeps it.

Time is the host's clock, for both from the command (fork and exec of `godwit send`, or QMP's migrate) until the destination's
QEMU has loaded all, which the same event of it says for both. (QEMU's total-time ends when the source has sent it, and the
destination may be busy for several times as long.)
"""
import contextlib
import ctypes
import dataclasses
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.realpath(f'{HERE}/../../..')
sys.path[:0] = [f'{TOP}/selftests/e2e/harness', f'{TOP}/selftests/bench']

from bench_json import B	# noqa: E402 pylint: disable=wrong-import-position
from hostdev import sent_bytes	# noqa: E402 pylint: disable=wrong-import-position
from qmp import Qmp, milliseconds	# noqa: E402 pylint: disable=wrong-import-position

MIB = 1 << 20
TICK = os.sysconf('SC_CLK_TCK')
NO_LIMIT = 1 << 40	# bytes per second: QEMU's own default is 128 MiB/s


@dataclasses.dataclass
class Sample:
    """
    One migration. cpu_*: seconds, QEMUs and helpers of that side; peak: KiB of private memory, both sides; sent: bytes that the
    sender's interface has sent, of all layers. Of an idle guest: blackout, ms from STOP at the source to RESUME at the
    destination; without_ram, what of it RAM did not take, as the sender reports it.
    """
    seconds: float
    cpu_send: float
    cpu_receive: float
    peak: int
    sent: int
    blackout: float | None = None
    without_ram: float | None = None


def cpu_seconds(pid):
    with open(f'/proc/{pid}/stat', encoding='ascii') as f:
        fields = f.read().rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def private_kib(pid):
    with contextlib.suppress(OSError), open(f'/proc/{pid}/status', encoding='ascii') as f:
        for line in f:
            if line.startswith('RssAnon:'):
                return int(line.split()[1])
    return 0


class Net:
    """
    Where the receiving side lives: on loopback, or behind a veth pair in a namespace of its own. mbit: what the pair lets through
    from the source, in megabits per second, as a token bucket has it; None: what it can.
    """

    def __init__(self, veth, mbit=None):
        self.mbit = mbit
        self.name = f'{mbit} Mb/s' if mbit else 'veth' if veth else 'loopback'
        self.address = '10.78.0.2' if veth else '127.0.0.1'
        self.namespace = f'godwit-bench-{os.getpid()}' if veth else None
        self.interface = 'lo'

    def __enter__(self):
        if self.namespace:
            short = f'gwb{os.getpid() % 100000}'
            for words in (f'netns add {self.namespace}',
                          f'link add {short}a type veth peer name {short}b netns {self.namespace}',
                          f'addr add 10.78.0.1/24 dev {short}a', f'link set {short}a up',
                          f'-n {self.namespace} addr add 10.78.0.2/24 dev {short}b',
                          f'-n {self.namespace} link set {short}b up'):
                subprocess.run(['ip', *words.split()], check=True)
            self.interface = f'{short}a'
            if self.mbit:
                subprocess.run(['tc', 'qdisc', 'add', 'dev', self.interface, 'root', 'tbf', 'rate', f'{self.mbit}mbit', 'burst',
                                f'{max(128, self.mbit // 4)}kb', 'latency', '50ms'], check=True)
        return self

    def sent(self):
        """Bytes that the source's interface has sent so far. Over loopback answers count as well."""
        return sent_bytes(self.interface)

    def __exit__(self, *_):
        if self.namespace:
            subprocess.run(['ip', 'netns', 'del', self.namespace], check=False)

    def there(self, *words):
        return ['ip', 'netns', 'exec', self.namespace, *words] if self.namespace else list(words)


# What holds the RAM of both, if it is not a file that the caller has made: memory of QEMU's own, with QEMU's options for it.
PRIVATE = {'anonymous': 'memory-backend-ram', 'anonymous, 4 KiB pages': 'memory-backend-ram',
           'hugetlbfs': 'memory-backend-memfd,share=off,hugetlb=on,hugetlbsize=2M'}
PR_SET_THP_DISABLE = 41


def no_huge_pages():
    """For this process and those that it becomes: QEMU asks for huge pages, and has no option that does not."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), 'PR_SET_THP_DISABLE')


class Pair:
    """
    Source and destination. The RAM files are the caller's; preallocated: the destination's QEMU fills its own. private: a
    kind of PRIVATE; the source's file is then what its RAM is filled with. idle: the guest runs.
    """

    def __init__(self, net, directory, mib, source, destination, qemu, preallocated=False, private=None, idle=False):
        self.net, self.directory, self.mib, self.idle = net, directory, mib, idle
        self.processes, self.qmp = {}, {}
        for side, ram in (('src', source), ('dst', destination)):
            filled = ',prealloc=on' if preallocated and side == 'dst' else ''
            kind = PRIVATE[private] if private else f'memory-backend-file,mem-path={ram},share=on,align=2M{filled}'
            words = [qemu, *([] if idle else ['-S']), '-nodefaults', '-display', 'none', '-m', str(mib), '-machine',
                     'q35,accel=tcg,memory-backend=ram0', '-object', f'{kind},id=ram0,size={mib}M', '-qmp',
                     f'unix:{self.socket(side)},server=on,wait=off', '-qmp',
                     f'unix:{self.socket(side)}.bench,server=on,wait=off']
            if side == 'dst':
                words = net.there(*words, '-incoming', 'defer')
            self.processes[side] = subprocess.Popen(words, preexec_fn=no_huge_pages if private == 'anonymous, 4 KiB pages' else None)
        for side in self.processes:
            self.qmp[side] = Qmp(f'{self.socket(side)}.bench')
            self.qmp[side]('migrate-set-capabilities', capabilities=[{'capability': 'events', 'state': True}])
        if private:
            self._fill(source)

    def _fill(self, image):
        """The source's memory with what the file has; its holes stay untouched."""
        with open(f'/proc/{self.pid("src")}/maps', encoding='ascii') as f:
            ranges = ([int(address, 16) for address in line.split()[0].split('-')] for line in f if ' rw-p ' in line)
            start, = (start for start, end in ranges if end - start == self.mib * MIB)
        with open(image, 'rb', buffering=0) as f, open(f'/proc/{self.pid("src")}/mem', 'r+b', buffering=0) as mem:
            end = 0
            with contextlib.suppress(OSError):	# ENXIO: no more data
                while True:
                    at = os.lseek(f.fileno(), end, os.SEEK_DATA)
                    end = os.lseek(f.fileno(), at, os.SEEK_HOLE)
                    while at < end:
                        at += os.pwrite(mem.fileno(), os.pread(f.fileno(), min(MIB, end - at), at), start + at)

    def socket(self, side):
        return f'{self.directory}/{side}.qmp'

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes.values():
            process.kill()
            process.wait()

    def pid(self, side):
        return self.processes[side].pid

    def blackout(self):
        """Of the migration that has ended, if the guest runs; else None."""
        if not self.idle:
            return None
        return milliseconds(self.qmp['dst'].wait_event('RESUME')) - milliseconds(self.qmp['src'].wait_event('STOP'))


def wait4(process):
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_utime + usage.ru_stime


def until_loaded(pair, begin, private, failed):
    """
    (seconds from begin, a time.time(), to the destination's event; peak). private: KiB now, sampled meanwhile;
    failed: what went wrong, or None.
    """
    peak = 0
    while True:
        peak = max(peak, private())
        try:
            loaded = pair.qmp['dst'].wait_event('MIGRATION', 0.002, status='completed')
            return milliseconds(loaded) / 1e3 - begin, peak
        except TimeoutError:
            if why := failed():
                raise RuntimeError(why) from None


def by_godwit(pair, port, options=(), tls=('--insecure',), receive_options=()):
    """options: of the sender; tls: options of both ends."""
    address = f'{pair.net.address}:{port}'
    receive = subprocess.Popen(pair.net.there(f'{B}/godwit', 'receive', '--qmp', pair.socket('dst'), '--listen', address,
                                              *tls, *receive_options), stdout=subprocess.PIPE, text=True)
    assert 'listening' in receive.stdout.readline()
    before = {side: cpu_seconds(pair.pid(side)) for side in pair.processes}
    report = f'{pair.directory}/report.json'
    sent = pair.net.sent()
    begin = time.time()
    send = subprocess.Popen([f'{B}/godwit', 'send', '--qmp', pair.socket('src'), '--pause', '--json', report, *options, *tls, address],
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def failed():
        ended = os.waitid(os.P_PID, send.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        return ended and ended.si_status and f'godwit send ended with {ended.si_status}'

    seconds, peak = until_loaded(pair, begin, lambda: private_kib(send.pid) + private_kib(receive.pid), failed)
    status, cpu_send = wait4(send)
    status_there, cpu_receive = wait4(receive)
    if status or status_there:
        raise RuntimeError(f'godwit ended with {status} and {status_there}')
    with open(report, encoding='utf-8') as f:
        ram = json.load(f)['blackout']['ram']
    blackout = pair.blackout()
    return Sample(seconds, cpu_send + cpu_seconds(pair.pid('src')) - before['src'],
                  cpu_receive + cpu_seconds(pair.pid('dst')) - before['dst'], peak, pair.net.sent() - sent,
                  blackout, blackout and blackout - ram)


def by_qemu(pair, port, channels, packing=None, tls=None):
    """
    channels 0: one connection. Peak: what both have grown by. packing: its multifd-compression; 'compress': that of QEMU before
    multifd. tls: side -> the object with its credentials.
    """
    uri = f'tcp:{pair.net.address}:{port}'
    for side, qmp in pair.qmp.items():
        if packing == 'compress':
            qmp('migrate-set-capabilities', capabilities=[{'capability': 'compress', 'state': True}])
            qmp('migrate-set-parameters', compress_level=1, compress_threads=channels, decompress_threads=channels)
        elif packing:
            qmp('migrate-set-parameters', multifd_compression=packing)
        if tls:
            qmp('object-add', **tls[side])
            qmp('migrate-set-parameters', tls_creds=tls[side]['id'], tls_hostname=pair.net.address)
        if channels and packing != 'compress':
            qmp('migrate-set-capabilities', capabilities=[{'capability': 'multifd', 'state': True}])
            qmp('migrate-set-parameters', multifd_channels=channels)
        if side == 'src':
            qmp('migrate-set-parameters', max_bandwidth=NO_LIMIT)
    pair.qmp['dst']('migrate-incoming', uri=uri)
    before = {side: (cpu_seconds(pair.pid(side)), private_kib(pair.pid(side))) for side in pair.processes}

    def grown():
        return sum(private_kib(pair.pid(side)) - before[side][1] for side in pair.processes)

    def failed():
        return next((f'QEMU, {side}: {event}' for side, qmp in pair.qmp.items() for event in qmp.events
                     if event['event'] == 'MIGRATION' and event['data']['status'] == 'failed'), None)

    sent = pair.net.sent()
    begin = time.time()
    pair.qmp['src']('migrate', uri=uri)
    seconds, peak = until_loaded(pair, begin, grown, failed)
    pair.qmp['src'].wait_event('MIGRATION', status='completed')
    cpu = {side: cpu_seconds(pair.pid(side)) - before[side][0] for side in pair.processes}
    blackout = pair.blackout()
    return Sample(seconds, cpu['src'], cpu['dst'], peak, pair.net.sent() - sent, blackout, blackout)


def bare_copy(net, mib, source, destination, port):
    """Seconds that bare.c needs for the same, and of what godwit does it does the least."""
    address = f'{net.address}:{port}'
    with subprocess.Popen(net.there(f'{B}/bench/bare', 'receive', destination, str(mib), address), stdout=subprocess.PIPE,
                          text=True) as receive:
        assert 'listening' in receive.stdout.readline()
        begin = time.monotonic()
        subprocess.run([f'{B}/bench/bare', 'send', source, str(mib), address], check=True)
        if receive.wait():
            raise RuntimeError(f'bare receive ended with {receive.returncode}')
        return time.monotonic() - begin


def network_limit(net, mib, port):
    """GiB/s of one TCP connection that carries nothing but itself, as iperf3 measures it at the receiver."""
    with subprocess.Popen(net.there('iperf3', '-s', '-1', '-p', str(port)), stdout=subprocess.DEVNULL) as server:
        words = ['iperf3', '-c', net.address, '-p', str(port), '-J', '-l', '256K', '-n', f'{mib}M']
        for _ in range(50):
            # Until the server listens the client fails, and says so in its JSON.
            said = json.loads(subprocess.run(words, check=False, stdout=subprocess.PIPE, text=True).stdout)
            if 'error' not in said:
                break
            time.sleep(0.1)
        else:
            server.kill()
            raise RuntimeError(f'iperf3: {said["error"]}')
    return said['end']['sum_received']['bits_per_second'] / 8 / 2**30
