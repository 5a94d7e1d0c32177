# SPDX-License-Identifier: GPL-2.0-only
"""What an operator, or a manager, does to the source while RAM is sent is theirs: a migration that ends leaves it as it is."""
import contextlib
import os
import signal
import time

import godwit
import lab
import proofs
import pytest
import sources
from ours import proved

pytestmark = pytest.mark.usefixtures('module')
ELSEWHERE = 'exec:cat >/dev/null'


def give_up(run, how):
    run.send.kill(signal.SIGKILL if how == 'killed' else signal.SIGINT)
    run.send.kill(signal.SIGCONT)	# a test may have stopped this one, too
    run.receive.kill(signal.SIGCONT)	# a test may have stopped it
    status = run.send.wait()
    assert status == (-signal.SIGKILL if how == 'killed' else godwit.EXIT['cancelled']), run.send.said
    run.receive.wait()


@pytest.mark.parametrize('how', ['cancelled', 'killed'])
def test_guest_is_suspended(pair, how):
    """It stays so, and is the operator's to let run."""
    src, dst = pair
    run = godwit.start_in('round', pair)
    src.qmp('stop')
    give_up(run, how)
    godwit.wait_unlogged(src)
    proved(src.query_status() == 'paused', f'the source is {src.query_status()}')
    src.qmp('cont')
    godwit.unharmed(src)


@pytest.fixture
def new_pair(directory):
    """QEMU has no migration behind it: after one that was cancelled godwit could not tell whether there was another since."""
    lab.net()
    src = lab.Qemu('src', directory=directory, append=sources.WRITES).wait_ticks(2)
    godwit.note(src)
    return src, godwit.destination(src)


def test_a_suspended_guest_arrives_so(new_pair):
    src, dst = new_pair
    run = godwit.start_in('round', new_pair)
    src.qmp('stop')
    godwit.control(run.send.pid, execute='set', arguments={'downtime-limit': 10000})
    lab.link('clear')
    report = run.wait()
    assert report['guest-was-paused']
    proved(dst.query_status() == 'paused' and not dst.counters, 'the guest runs')
    godwit.same_ram(src, dst)
    dst.qmp('cont')
    dst.wait_ticks(2).check()


def begin_elsewhere(src, end):
    """A migration of QEMU's own, which takes what KVM's log has, and comes to nothing."""
    before = src.qmp('query-migrate-parameters')['max-bandwidth']
    src.qmp('migrate-set-parameters', max_bandwidth=1 << 20)
    src.qmp('migrate', uri='exec:head -c 300K >/dev/null' if end == 'failed' else ELSEWHERE)
    deadline = time.monotonic() + 60
    while (now := src.qmp('query-migrate'))['status'] != end:
        assert time.monotonic() < deadline and now['status'] in ('setup', 'active', 'cancelling'), now
        if end == 'cancelled' and now.get('ram', {}).get('transferred', 0) > 300 << 10:
            src.qmp('migrate_cancel')
        time.sleep(0.05)
    src.qmp('migrate-set-parameters', max_bandwidth=before)


def snapshot(src):
    path = f'/dev/shm/{src.name}.qcow2'
    lab.call('qemu-img', 'create', '-q', '-f', 'qcow2', path, '1M')
    src.qmp('blockdev-add', driver='qcow2', node_name='shots', file={'driver': 'file', 'filename': path})
    src.qmp('snapshot-save', job_id='shot', tag='shot', vmstate='shots', devices=['shots'])
    end = time.monotonic() + 120
    while (job := src.qmp('query-jobs')[0])['status'] != 'concluded':
        assert time.monotonic() < end, job
        time.sleep(0.05)
    assert 'error' not in job, job
    src.qmp('job-dismiss', id='shot')
    src.qmp('blockdev-del', node_name='shots')
    os.unlink(path)


@pytest.mark.parametrize('how', ['saved', 'failed', 'cancelled'])
def test_a_suspended_guest_is_saved(new_pair, how):
    """
    QEMU takes what the guest wrote last from the log, and does not switch the log off while the guest stands still: we would
    hear of neither. A guest that runs is not in the way of a snapshot.
    """
    src, dst = new_pair
    run = godwit.start_in('round', new_pair, '--downtime-limit', '20000')
    lab.link('rate', 2)	# it lasts until all of this is done
    if how == 'saved':
        snapshot(src)
        assert run.send.poll() is None, run.send.said
    src.wait_ticks(2)
    src.qmp('stop')
    if how == 'saved':
        snapshot(src)
    else:
        run.send.kill(signal.SIGSTOP)	# or it would see it, and end at once
        begin_elsewhere(src, how)
        run.send.kill(signal.SIGCONT)
    lab.link('clear')
    run.wait('vm-state')
    assert 'the guest stands still' in run.send.said, run.send.said
    proved(src.query_status() == 'paused', f'the source is {src.query_status()}')
    src.qmp('cont')
    godwit.unharmed(src)
    godwit.never_ran(dst)


def test_a_suspended_guest_may_have_been_saved(pair):
    """After a migration of QEMU's that was cancelled another such one looks like it. The next try has nothing to lose."""
    src, dst = pair
    begin_elsewhere(src, 'cancelled')
    run = godwit.start_in('round', pair, '--downtime-limit', '20000')
    lab.link('rate', 2)
    src.qmp('stop')
    lab.link('clear')
    run.wait('vm-state')
    assert 'nothing would tell of another one' in run.send.said, run.send.said
    godwit.never_ran(dst)
    dst = godwit.destination(src, 'dst2')
    report = godwit.Run(src, dst, '--downtime-limit', '20000').wait()
    assert report['guest-was-paused']
    godwit.same_ram(src, dst)
    dst.qmp('cont')
    dst.wait_ticks(2).check()


@pytest.mark.parametrize('how', ['cancelled', 'killed', 'seen'])
def test_guest_is_migrated_elsewhere(pair, how):
    """By QEMU itself, while the sender does not run: the guest runs there now, so here it must not."""
    src, dst = pair
    run = godwit.start_in('round', pair, '--peer-timeout', '600')
    run.receive.kill(signal.SIGSTOP)	# so that the round lasts on
    run.send.kill(signal.SIGSTOP)
    src.qmp('migrate-set-parameters', max_bandwidth=1 << 40)
    src.qmp('migrate', uri=ELSEWHERE)
    run.wait_status('completed')
    ticks = src.ticks
    if how == 'seen':
        run.send.kill(signal.SIGCONT)
        assert run.send.wait() == godwit.EXIT['vm-state'] and 'has migrated the guest away' in run.send.said, run.send.said
        run.receive.kill(signal.SIGKILL).wait()
    else:
        give_up(run, how)
    godwit.unload()	# its session has ended; QEMU leaves its own log on until the guest runs
    proved(src.query_status() == 'postmigrate' and src.ticks == ticks, f'the source is {src.query_status()}')
    godwit.never_ran(dst)


@pytest.mark.parametrize('mode', ['migrate', 'save'])
def test_a_migration_is_under_way(saving, mode):
    """It began in a round in which nothing was cleared since: ours ends, the other one goes on."""
    src, dst = saving
    lab.link('rate', 10)	# the round lasts until all of this is done
    run = godwit.Run(src, dst, '--device-state', mode)
    run.send.wait_round(1)
    src.wait_ticks(1)	# nothing is being cleared just now
    src.qmp('migrate-set-parameters', max_bandwidth=1 << 12)
    src.qmp('migrate', uri=ELSEWHERE)
    run.send.wait_for('stays on until that migration has ended')
    lab.link('clear')
    proved(src.qmp('query-migrate')['status'] == 'active', src.qmp('query-migrate'))
    src.qmp('migrate_cancel')
    run.wait('vm-state')
    assert 'another program migrates the source VM' in run.send.said, run.send.said
    src.qmp('migrate-set-parameters', max_bandwidth=src.settings_before[1]['max-bandwidth'])
    godwit.unharmed(src)


def runs_elsewhere(pair, elsewhere):
    """All of the guest is where QEMU has taken it, and it never ran where we were to."""
    godwit.check_moved(pair[0], elsewhere.wait_ticks(3))
    godwit.never_ran(pair[1])


@pytest.mark.parametrize('how', ['refused', 'cancelled', 'killed'])
def test_qemu_migrates_beside_ours(pair, how):
    """
    An operator's own migration begins in a round of ours and outlives it. KVM's dirty log, which ours has switched on, is that
    one's from then on: without it QEMU would send what the guest has overwritten, and notice nothing.
    """
    src, _ = pair
    elsewhere = godwit.destination(src, 'dst2')
    run = godwit.Run(*pair, '--bandwidth', '1', '--downtime-limit', '60000')
    run.send.wait_round(1)
    src.wait_ticks(1)	# it has cleared what it will clear for some seconds
    if how != 'refused':
        run.send.kill(signal.SIGSTOP)
    moves = lab.QemuMigration(src, elsewhere)
    if how == 'refused':
        run.send.wait_for('stays on until that migration has ended')
    else:
        give_up(run, how)
    src.wait_ticks(8)	# time for the log to go off, if it does; QEMU must hear of what is written
    lab.link('clear')
    moves.finish()
    if how == 'refused':
        assert run.send.wait() == godwit.EXIT['vm-state'], run.send.said
    runs_elsewhere(pair, elsewhere)
    godwit.unload()	# the session has ended, too


def endless(pair):
    """Rounds that clear KVM's log all the time."""
    run = godwit.Run(*pair, '--downtime-limit', '1', '--max-rounds', '10000')
    run.send.wait_round(3)
    return run


def test_qemu_migrates_where_ours_clears(pair):
    """
    What ours clears QEMU never hears of. Whenever QEMU begins, nothing is lost: either ours had not cleared anything since, and
    QEMU's goes on; or it is cancelled, in words, and begun again.
    """
    src, _ = pair
    elsewhere = godwit.destination(src, 'dst2')
    run = endless(pair)
    elsewhere.qmp('migrate-incoming', uri=(uri := f'tcp:{lab.ADDRESS[elsewhere.side]}:4444'))
    # So slow that the sender, which asks ten times a second, sees it before it completes, on a slow host as well.
    src.qmp('migrate-set-parameters', max_bandwidth=1 << 20, downtime_limit=2000)
    src.qmp('migrate', uri=uri)
    while run.send.poll() is None and 'stays on until that migration has ended' not in run.send.said:
        time.sleep(0.02)
    src.qmp('migrate-set-parameters', max_bandwidth=1 << 40)
    assert run.send.wait() == godwit.EXIT['vm-state'] and 'another program migrates the source VM' in run.send.said, run.send.said
    run.receive.wait()
    proved('may be missing' not in run.send.said, run.send.said)
    end = time.monotonic() + 60
    while (status := src.qmp('query-migrate')['status']) not in ('completed', 'cancelled'):
        assert time.monotonic() < end, status
        time.sleep(0.05)
    proved((status == 'cancelled') == ('cancelled a migration of QEMU\'s own' in run.send.said), f'{status}: {run.send.said}')
    if status == 'cancelled':
        src.destinations.remove(elsewhere)
        elsewhere.kill()
        elsewhere = godwit.destination(src, 'dst2')
        lab.qemu_migrate(src, elsewhere)
    runs_elsewhere(pair, elsewhere)


def measuring(src, command):
    options = {'rate': ['--interval', '1000'], 'estimate': ['--bandwidth', '100']}[command]
    return godwit.Process('src', command, '--qmp', src.main_qmp, '--seconds', '60', *options)


def refused(p):
    assert p.wait() == godwit.EXIT['vm-state'] and 'another program migrates' in p.said, p.said


@pytest.mark.parametrize('command', ['rate', 'estimate'])
def test_qemu_migrates_before_we_measure(src, command):
    """The measurement ends, and the log stays on for what QEMU has begun."""
    elsewhere = godwit.destination(src, 'dst2')
    moves = lab.QemuMigration(src, elsewhere)
    refused(measuring(src, command))
    src.wait_ticks(4)
    moves.finish()
    godwit.check_moved(src, elsewhere.wait_ticks(3))


@pytest.mark.parametrize('command', ['rate', 'estimate'])
def test_qemu_migrates_where_we_measure(src, command):
    """The same. One that began in the moment in which the log was cleared is cancelled; that is not what happens each time."""
    for name in ('dst2', 'dst3', 'dst4'):
        elsewhere = godwit.destination(src, name)
        p = measuring(src, command)
        p.wait_until(lambda: godwit.kvm_logged(src), 'log', 60)
        src.wait_ticks(4)
        try:
            moves = lab.QemuMigration(src, elsewhere)
        except RuntimeError:	# in its first pass already
            assert src.qmp('query-migrate')['status'] in ('cancelling', 'cancelled')
            moves = None
        if moves:
            p.wait_for('stays on until that migration has ended')
            p.kill(signal.SIGINT)	# only this process could wait
            src.wait_ticks(4)
            with contextlib.suppress(RuntimeError):
                moves.finish()
        refused(p)
        if src.qmp('query-migrate')['status'] == 'completed':
            break
        assert 'cancelled a migration of QEMU\'s own' in p.said, p.said
        elsewhere.kill()
    godwit.check_moved(src, elsewhere.wait_ticks(3))


def test_qemu_migrates_before_the_guardian_acts(pair):
    """The sender was killed, and its guardian comes late: it finds a migration that began while the log was still on."""
    src, _ = pair
    elsewhere = godwit.destination(src, 'dst2')
    run = godwit.start_in('later', pair)
    src.wait_ticks(1)	# nothing is being cleared just now
    guardian = int(lab.call('pgrep', '-P', str(run.send.pid), '-x', 'godwit-guardian'))
    os.kill(guardian, signal.SIGSTOP)
    try:
        give_up(run, 'killed')
        moves = lab.QemuMigration(src, elsewhere)
    finally:
        os.kill(guardian, signal.SIGCONT)
    src.wait_ticks(8)
    lab.link('clear')
    moves.finish()
    runs_elsewhere(pair, elsewhere)
    godwit.unload()


def test_settings_while_rounds_run(pair):
    """An operator who migrates or saves this VM meanwhile must find QEMU as it was set, or RAM would be left out."""
    src, _ = pair
    run = godwit.start_in('later', pair)
    proofs.settings_kept(src, timeout=0)
    give_up(run, 'cancelled')
    godwit.unharmed(src)


@pytest.mark.parametrize('how', ['cancelled', 'killed'])
def test_qemu_migrates_right_afterwards(pair, how):
    """
    Its own dirty log must not be switched off by a session that still retires: it would send what the guest has overwritten.
    """
    src, _ = pair
    elsewhere = godwit.destination(src, 'dst2')
    run = godwit.start_in('later', pair)
    lab.link('rate', 200)
    run.send.kill(signal.SIGKILL if how == 'killed' else signal.SIGINT).wait()
    while src.query_status() != 'running' or src.qmp('query-migrate').get('status') in ('active', 'cancelling'):
        time.sleep(0.01)
    lab.qemu_migrate(src, elsewhere)
    runs_elsewhere(pair, elsewhere)


def measure(vm, seconds, mode):
    vm.qmp('calc-dirty-rate', calc_time=seconds, mode=mode)


def wait_measured(vm, timeout=60):
    end = time.monotonic() + timeout
    while vm.qmp('query-dirty-rate')['status'] != 'measured':
        assert time.monotonic() < end, 'QEMU measures on'
        time.sleep(0.1)


@pytest.mark.parametrize('kind', ['pair', 'saving'])
@pytest.mark.parametrize('phase', ['later', 'stream'])
def test_dirty_rate_by_the_log(request, kind, phase):
    """
    QEMU then clears KVM's log for itself, of pages that no harvest has read. In a round it ends the migration there; behind the
    last look while the guest runs, at the stop. (The kinds are of different QEMUs.)
    """
    src, _ = pair = request.getfixturevalue(kind)
    run = godwit.start_in(phase, pair, '--device-state', 'migrate')
    measure(src, 4, 'dirty-bitmap')
    report = run.wait('vm-state')
    assert 'query-dirty-rate' in run.send.said and 'page-sampling' in run.send.said, run.send.said
    proved(report['phase'] == ('pre-copy' if phase == 'later' else 'switchover'), f'it was refused in phase {report["phase"]}')
    wait_measured(src)
    godwit.unharmed(src)


def test_dirty_rate_is_being_measured(src):
    """Before anything is changed; when that is over, nothing is in the way."""
    measure(src, 12, 'dirty-bitmap')	# for longer than a command takes to begin on a host that is overrun
    p = godwit.Process('src', 'send', '--qmp', src.main_qmp, f'{lab.ADDRESS["dst"]}:1')
    assert p.wait() == godwit.EXIT['vm-state'] and 'query-dirty-rate' in p.said, p.said
    wait_measured(src)
    p = godwit.Process('src', 'send', '--qmp', src.main_qmp, f'{lab.ADDRESS["dst"]}:1')
    assert p.wait() == godwit.EXIT['unreachable'], p.said
    godwit.unharmed(src)


def test_dirty_rate_by_sampling(pair):
    """It takes nothing, and disturbs nothing."""
    src, dst = pair
    run = godwit.start_in('later', pair)
    measure(src, 2, 'page-sampling')
    wait_measured(src)
    godwit.control(run.send.pid, execute='set', arguments={'downtime-limit': 10000})
    lab.link('clear')
    assert run.wait()['verified']
    godwit.proof(src, dst)
