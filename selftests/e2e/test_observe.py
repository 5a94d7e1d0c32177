# SPDX-License-Identifier: GPL-2.0-only
"""What can be seen of the module at work: list, watch, rate, sysfs, tracepoints."""
import contextlib
import json
import os
import signal
import subprocess
import time

import godwit
import lab
import pytest

SESSIONS = '/sys/class/misc/godwit/sessions'
EVENTS = '/sys/kernel/tracing/events/godwit'
# Rounds until end(), however little the guest writes: a host that is overrun needs seconds for a command.
LASTS = '--downtime-limit', '1', '--max-rounds', '10000', '--postcopy', 'off'
pytestmark = pytest.mark.usefixtures('module')


def command(*words, expect='ok'):
    p = godwit.Process('src', *words)
    assert p.wait() == godwit.EXIT[expect], p.said
    return p.said


def end(run):
    lab.link('clear')
    godwit.control(run.send.pid, execute='set', arguments={'downtime-limit': int(godwit.DOWNTIME)})
    run.wait()


def sessions():
    return json.loads(command('list', '--json'))


@contextlib.contextmanager
def held(vm):
    """A session that has the VM and does nothing."""
    with subprocess.Popen([godwit.tool('slots'), str(vm.pid), 'hold'], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline().startswith('memslots=')
        yield holder
        holder.stdin.close()


def stat(session, name):
    with open(f'{SESSIONS}/{session["id"]}/{name}', encoding='ascii') as f:
        return f.read().strip()


def test_list(src):
    assert sessions() == []
    with held(src) as holder:
        one, = sessions()
        assert (one['state'], one['vm-pid'], one['owner-pid']) == ('attached', src.pid, holder.pid)
        assert one['owner-comm'] == 'slots' and one['harvests'] == 0
        lines = command('list').splitlines()
        assert len(lines) == 2 and lines[1].split()[:3] == [str(one['id']), 'attached', str(src.pid)]
        assert (stat(one, 'state'), stat(one, 'vm_pid'), stat(one, 'owner_pid')) == \
               ('attached', str(src.pid), str(holder.pid))
    deadline = time.monotonic() + 20
    while sessions():
        assert time.monotonic() < deadline, 'a session without its owner stays'
    assert os.listdir(SESSIONS) == []


def test_counters(src, directory):
    """While a migration runs they grow, in sysfs and by netlink alike."""
    dst = godwit.destination(src)
    lab.link('rate', 30)
    run = godwit.Run(src, dst, *LASTS)
    run.send.wait_round(2)
    one, = sessions()
    assert one['state'] == 'started' and one['harvests'] >= 1 and one['clears'] >= 1 and one['memslots'] >= 1
    assert one['pages']['vcpu'] > 0
    assert all(one['ns'][phase] > 0 for phase in ('slots', 'vcpu', 'mapping', 'collect', 'clear'))
    for name, value in (('harvests', one['harvests']), ('clears', one['clears']),
                        ('pages_vcpu', one['pages']['vcpu']), ('vcpu_ns', one['ns']['vcpu'])):
        assert int(stat(one, name)) >= value, name
    for name in os.listdir(f'{SESSIONS}/{one["id"]}'):
        assert os.stat(f'{SESSIONS}/{one["id"]}/{name}').st_mode & 0o777 == 0o400, name
    end(run)
    godwit.proof(src, dst)


def events_of(watch):
    return [json.loads(line) for line in watch.said.splitlines() if line.startswith('{')]


def test_watch(src):
    watch = godwit.Process('src', 'watch', '--json').wait_for('watching')
    with held(src) as holder:
        watch.wait_for('attached')
    watch.wait_for('retired')
    lab.link('rate', 30)
    run = godwit.Run(src, godwit.destination(src), '--max-rounds', '1000', '--downtime-limit', '30')
    run.send.wait_round(1)
    src.qmp('system_reset')
    watch.wait_for('slots-changed')
    src.kill()
    watch.wait_for('vm-gone')
    run.send.wait()
    deadline = time.monotonic() + 20
    while [e['event'] for e in events_of(watch)].count('retired') < 2 and time.monotonic() < deadline:
        watch.poll()
        time.sleep(0.1)
    watch.kill(signal.SIGINT)
    assert watch.wait() == 0, watch.said
    first, second = events_of(watch)[:2]
    assert (first['event'], first['vm-pid'], first['owner-pid']) == ('attached', src.pid, holder.pid)
    assert (second['event'], second['id']) == ('retired', first['id'])
    assert [e['event'] for e in events_of(watch)][-2:] == ['vm-gone', 'retired']
    assert {e['vm-pid'] for e in events_of(watch)} == {src.pid}


def test_rate(src):
    """Against the guest's own count. The scheduler promises nothing, so within a factor of two."""
    src.command('rate=300').wait_ticks(1)	# which any host keeps
    before, begin = src.counters['pages'], time.monotonic()
    said = json.loads(command('rate', '--pid', src.pid, '--seconds', '6', '--json', '--sample', 1 << 15))
    src.wait_ticks(1)
    true = (src.counters['pages'] - before) / (time.monotonic() - begin)
    assert said['sample-pages'] == said['pages'] == 128 << 8
    assert 0.5 < said['dirty-pages-per-second'] / true < 2, true
    assert said['working-set-pages'] <= 34 << 8
    assert said['working-set-pages'] > said['dirty-pages-per-second']
    assert said['dirty-pages-per-second-error'] == 0, 'the sample is the whole'
    text = command('rate', '--qmp', src.main_qmp, '--seconds', '1', '--sample', 4096)
    assert 'MiB/s' in text and '4096 pages of 32768' in text
    src.check()


def test_rate_of_private_ram(directory):
    """Without a monitor nothing says where it is."""
    vm = lab.Qemu('src', directory=directory, ram=[lab.Ram(256)], append='start=16 size=100 touch=64 rate=400').wait_ticks(2)
    before, begin = vm.counters['pages'], time.monotonic()
    said = json.loads(command('rate', '--pid', vm.pid, '--seconds', '6', '--json', '--sample', 1 << 16))
    vm.wait_ticks(1)
    true = (vm.counters['pages'] - before) / (time.monotonic() - begin)
    assert said['pages'] == 256 << 8
    assert 0.5 < said['dirty-pages-per-second'] / true < 2, true
    vm.check()


def test_rate_does_not_fight_a_migration(src):
    dst = godwit.destination(src)
    lab.link('rate', 30)
    run = godwit.Run(src, dst, *LASTS)
    run.send.wait_round(1)
    assert 'another godwit session' in command('rate', '--pid', src.pid, expect='busy')
    end(run)
    godwit.proof(src, dst)


@contextlib.contextmanager
def recording(path):
    """trace-cmd, as an operator would use it."""
    with subprocess.Popen(['trace-cmd', 'record', '-e', 'godwit', '-o', path], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, cwd=os.path.dirname(path)) as recorder:
        deadline = time.monotonic() + 30
        while True:
            with open(f'{EVENTS}/enable', encoding='ascii') as f:
                if f.read().strip() == '1':
                    break
            assert time.monotonic() < deadline and recorder.poll() is None, 'trace-cmd does not begin'
            time.sleep(0.05)
        yield
        recorder.send_signal(signal.SIGINT)
        recorder.communicate(timeout=60)


def test_tracepoints(directory):
    data = '/dev/shm/trace.dat'
    with lab.block_device('scsi_debug') as path, godwit.guests():
        devices = lab.disk(path)
        src = lab.Qemu('src', directory=directory, append='start=16 size=16 touch=16 rate=50 disk=200',
                       devices=devices).wait_ticks(2)
        with recording(data):
            godwit.Run(src, godwit.destination(src, devices=devices)).wait()
            godwit.slots(src)	# waits for the session that retires
    trace = lab.call('trace-cmd', 'report', '-i', data).splitlines()
    os.unlink(data)
    for event, words in (('attach', f'vm_pid={src.pid}'), ('harvest', 'generation=1 '), ('clear', 'npages='),
                         ('ledger_hit', 'row=block'), ('retire', 'ret=0'), ('detach', 'vm_gone=0')):
        assert [line for line in trace if f' godwit_{event}: ' in line and words in line], (event, trace[-20:])
    assert not [line for line in trace if 'FAILED TO PARSE' in line]
