# SPDX-License-Identifier: GPL-2.0-only
"""Before a migration: godwit check, and the libvirt domain. Nothing is changed, and the receiver goes on waiting."""
import json
import os
import re

import godwit
import lab
import pytest
import relay
import sources
import wire
from kinds import KINDS

APPEND = 'start=16 size=32 touch=32 rate=100'
AT = godwit.AT
pytestmark = pytest.mark.usefixtures('module')


@pytest.fixture
def src(directory, flash, qemu):
    """Of a QEMU that tells many properties at once: each check compares both ends, for which 7.2 takes three times as long."""
    return sources.healthy(directory, extra=flash, qemu=qemu)


def check(*words, expect='ok'):
    """The rows by name: (result, text)."""
    p = godwit.Process('src', 'check', '--json', *words)
    assert p.wait() == godwit.EXIT[expect], p.said
    said = json.loads(p.said)
    assert said['status'] == expect and said['exit'] == godwit.EXIT[expect]
    assert len({row['check'] for row in said['rows']}) == len(said['rows'])
    return {row['check']: (row['result'], row['text']) for row in said['rows']}


def send(vm, *words):
    return godwit.Process('src', 'send', '--qmp', vm.main_qmp, '--downtime-limit', godwit.DOWNTIME, *words)


def test_check(src):
    """All is well; the receiver that was asked takes the guest afterwards."""
    dst = godwit.destination(src)
    receive = godwit.listen(dst)
    rows = check('--qmp', src.main_qmp, '--to', AT)
    assert {row for row, (result, _) in rows.items() if result == 'no' or result == 'unknown'} == set(), rows
    assert {'QMP', 'alone', 'state', 'blockers', 'jobs', 'RAM', 'other VMs', 'KVM', 'devices', 'cache modes', 'device state', 'kernel', 'module', 'io_uring',
            'memlock limit', 'zero filter', 'RAM access', 'compression', 'fit', 'page size', 'destination', 'post-copy', 'reuse', 'link delay', 'link speed'} == set(rows)
    assert '128 MiB in 1 shared file on tmpfs' in rows['RAM'][1]
    assert lab.allocated_bytes(dst.ram[0].path) == 0 and dst.query_status() == 'inmigrate'
    godwit.unharmed(src)
    p = godwit.Process('src', 'check', '--qmp', src.main_qmp)
    assert p.wait() == 0 and 'It can be migrated.' in p.said, p.said
    sender = send(src, '--verify', AT)
    assert sender.wait() == 0, sender.said
    assert receive.wait() == 0, receive.said
    godwit.proof(src, dst)


def test_link(src):
    """A shaped link shows: timings only as bounds that the shaping itself sets."""
    godwit.listen(godwit.destination(src))
    lab.link('delay', 20)
    result, text = check('--qmp', src.main_qmp, '--to', AT, '--probe', '0')['link delay']
    assert result == 'ok' and float(text.split()[0]) >= 40, text
    rows = check('--qmp', src.main_qmp, '--to', AT, '--probe', '0', '--downtime-limit', '20')
    result, text = rows['link delay']
    assert result == 'warning' and '--downtime-limit' in text, text
    assert rows['link window'][0] == 'ok', rows
    for side, name, host in ('src', 'tcp_wmem', "source's"), ('dst', 'tcp_rmem', "destination's"):
        with lab.sysctl(side, f'net.ipv4.{name}', '4096 16384 100000'):
            result, text = check('--qmp', src.main_qmp, '--to', AT, '--probe', '0')['link window']
        assert result == 'warning' and f"of net.ipv4.{name} on the {host} host to" in text, text
    lab.link('loss', 1)
    result, text = check('--qmp', src.main_qmp, '--to', AT, '--probe', '4000')['link loss']
    assert result == 'warning' and 0.2 < float(text.split()[0]) < 5 and 'give the sender --streams' in text, text
    lab.link('clear')
    lab.link('rate', 80)
    result, text = check('--qmp', src.main_qmp, '--to', AT, '--probe', '2000')['link speed']
    assert result == 'warning' and float(text.split()[0]) < 80 / 8 * 1e6 / 2**20 * 1.15, text


def test_destination_says_no(src):
    """Its own words; it listens on, and takes the guest whose RAM is the same."""
    rows = check('--qmp', src.main_qmp, '--to', AT, expect='unreachable')
    assert rows['destination'][0] == 'no' and 'godwit receive' in rows['destination'][1]
    assert rows['link delay'][0] == rows['link speed'][0] == 'unknown'
    dst = godwit.destination(src)
    other = lab.Qemu('other', directory=src.directory, append=APPEND, ram=64, **src.made)
    other.query_status()
    receive = godwit.listen(dst)
    rows = check('--qmp', other.main_qmp, '--to', AT, expect='ram-differs')
    assert rows['destination'][0] == 'no' and '64 MiB at the source' in rows['destination'][1]
    sender = send(src, '--verify', AT)
    assert sender.wait() == 0, sender.said
    assert receive.wait() == 0 and 'refused a preflight check' in receive.said


@pytest.mark.native
def test_how_ram_travels(directory, qemu):
    src = lab.Qemu('src', directory=directory, qemu=qemu, append=APPEND, ram=[KINDS['anonymous']('src')]).wait_ticks(1)
    godwit.listen(godwit.destination(src, ram=[KINDS['shared_file']('dst')]))
    rows = check('--qmp', src.main_qmp, '--pause', '--to', AT, '--probe', '0')
    assert rows['RAM access'][0] == 'ok' and 'share=on is faster' in rows['RAM access'][1], rows
    assert rows['page size'] == ('ok', 'the same at both ends'), rows


@pytest.mark.native
@pytest.mark.parametrize('lacks, options, expect, result, says', [
    (0, [], 'ok', 'ok', ['lz4 (liblz4 1.', 'zstd (libzstd 1.', 'zlib (zlib 1.', '--compress auto']),
    (0, ['--compress', 'zstd:3'], 'ok', 'ok', ['--compress zstd:3']),
    (wire.ZLIB, [], 'ok', 'warning', ['lz4', 'zstd', 'older']),
    (wire.ZLIB, ['--compress', 'zlib'], 'version', 'no', ['too old for --compress zlib']),
    (wire.FILL | wire.LZ4 | wire.ZSTD | wire.ZLIB | wire.LOADS, [], 'ok', 'warning', ['as it is', 'same version']),
], ids=['all', 'named', 'one-lacks', 'named-lacks', 'none'])
def test_compression(directory, lacks, options, expect, result, says):
    """What both ends have of it, and by which library."""
    src = lab.Qemu('src', directory=directory, append=APPEND).wait_ticks(1)
    godwit.listen(godwit.destination(src))
    between = relay.Losing(godwit.TO, rate=1 << 30, offers=~lacks)
    try:
        rows = check('--qmp', src.main_qmp, '--pause', '--to', between.address, '--probe', '0', *options, expect=expect)
    finally:
        between.stop()
    assert rows['compression'][0] == result, rows
    for words in says:
        assert words in rows['compression'][1], rows
    assert ('zlib' in rows['compression'][1]) == (not lacks or expect == 'version'), rows


@pytest.mark.native
@pytest.mark.parametrize('lacks, wish, expect, result, says', [
    (0, 'off', 'ok', 'ok', '/dev/godwit'),
    (0, 'auto', 'ok', 'warning', '/dev/godwit'),
    (0, 'on', 'no-module', 'no', '/dev/godwit'),
    (wire.POSTCOPY, 'auto', 'ok', 'warning', 'too old'),
])
def test_no_postcopy(directory, lacks, wish, expect, result, says):
    """Natively there is no module. What of it is wanted decides what that means."""
    src = lab.Qemu('src', directory=directory, append=APPEND).wait_ticks(1)
    godwit.listen(godwit.destination(src))
    between = relay.Losing(godwit.TO, rate=1 << 30, offers=~lacks)
    try:
        rows = check('--qmp', src.main_qmp, '--pause', '--to', between.address, '--probe', '0', '--postcopy', wish, expect=expect)
    finally:
        between.stop()
    assert rows['post-copy'][0] == result and says in rows['post-copy'][1], rows


@pytest.mark.parametrize('here, there', [('anonymous', 'huge'), ('huge', 'shared_file')])
def test_page_size(directory, qemu, here, there):
    """Huge pages at one end: what that costs, in words."""
    src = lab.Qemu('src', directory=directory, qemu=qemu, append=APPEND, ram=[KINDS[here]('src')]).wait_ticks(1)
    godwit.listen(godwit.destination(src, ram=[KINDS[there]('dst')]))
    result, text = check('--qmp', src.main_qmp, '--to', AT, '--probe', '0')['page size']
    assert result == 'warning' and '"ram0"' in text and ('more memory' if there == 'huge' else 'twice the CPU time') in text, text


@pytest.fixture
def elsewhere():
    """A file system that is no tmpfs, and on which QEMU can have its RAM, as it cannot on the lab's root."""
    path = '/run/elsewhere'
    os.makedirs(path, exist_ok=True)
    lab.call('mount', '-t', 'ramfs', 'ramfs', path)
    yield path
    lab.call('umount', '-l', path)


def test_several_reasons(directory, elsewhere):
    """Each is told at once, and send gives the first of them."""
    image = lab.fill_disk('/dev/shm/disk', 8)
    src = lab.Qemu('src', directory=directory, append=APPEND, ram=[lab.Ram(64, f'{elsewhere}/src.ram')],
                   extra=['-drive', f'file={image},format=raw,if=none,id=n', '-device', 'nvme,drive=n,serial=1'])
    src.query_status()
    rows = check('--qmp', src.main_qmp, expect='vm-state')
    assert {row for row, (result, _) in rows.items() if result == 'no'} == {'blockers', 'RAM'}, rows
    assert 'nvme' in rows['blockers'][1] and 'not on tmpfs' in rows['RAM'][1]
    assert rows['KVM'][0] == rows['module'][0] == 'unknown'
    sender = send(src, AT)
    assert sender.wait() == godwit.EXIT['vm-state'] and 'nvme' in sender.said
    os.unlink(image)


STATUS = """<domstatus state='running' reason='booted' pid='{pid}'>
  <monitor path='/var/lib/libvirt/qemu/domain-1-web/monitor.sock' type='unix'/>
  <domain type='kvm' id='1' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
    <name>web</name>
{more}  </domain>
</domstatus>
"""
QMP = """    <qemu:commandline>
      <qemu:arg value='-qmp'/>
      <qemu:arg value='unix:{path},server=on,wait=off'/>
    </qemu:commandline>
"""


def domain(pid, more=''):
    """What libvirt leaves in /run of a running domain."""
    os.makedirs('/run/libvirt/qemu', exist_ok=True)
    with open('/run/libvirt/qemu/web.pid', 'w', encoding='ascii') as f:
        f.write(f'{pid}\n')
    with open('/run/libvirt/qemu/web.xml', 'w', encoding='ascii') as f:
        f.write(STATUS.format(pid=pid, more=more))


def test_domain(src):
    for name in ('check', 'send'):
        p = godwit.Process('src', name, '--domain', 'no-such', *([AT] if name == 'send' else []))
        assert p.wait() == godwit.EXIT['no-socket'] and 'virsh start no-such' in p.said, p.said
    domain(src.pid)
    p = godwit.Process('src', 'send', '--domain', 'web', AT)
    assert p.wait() == godwit.EXIT['no-socket'] and "<qemu:arg value='-qmp'/>" in p.said, p.said
    # The line that the message gives, with this QEMU's socket.
    assert re.search('unix:[^,]*web.qmp,server=on,wait=off', p.said)
    domain(src.pid, QMP.format(path=src.main_qmp))
    dst = godwit.destination(src)
    receive = godwit.listen(dst)
    check('--domain', 'web', '--to', AT)
    sender = godwit.Process('src', 'send', '--domain', 'web', '--downtime-limit', godwit.DOWNTIME, '--verify', AT)
    assert sender.wait() == 0, sender.said
    assert receive.wait() == 0
    godwit.proof(src, dst)


def test_plain_domain(directory, qemu):
    """Its memory is what libvirt gives to a domain of which nothing is said."""
    src = lab.Qemu('src', directory=directory, append=APPEND, qemu=qemu, ram=[lab.Ram(64)]).wait_ticks(1)
    domain(src.pid, QMP.format(path=src.main_qmp))
    dst = godwit.destination(src, qemu=qemu)
    receive = godwit.listen(dst)
    rows = check('--domain', 'web', '--to', AT)
    assert '64 MiB private to QEMU (anonymous)' in rows['RAM'][1] and 'save mode' in rows['device state'][1], rows
    sender = godwit.Process('src', 'send', '--domain', 'web', '--downtime-limit', godwit.DOWNTIME, '--verify', AT)
    assert sender.wait() == 0, sender.said
    assert receive.wait() == 0
    godwit.proof(src, dst, stopped='paused')
