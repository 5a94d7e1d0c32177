# SPDX-License-Identifier: GPL-2.0-only
"""
One migration, by godwit or by QEMU itself, both timed from outside by the same clock:

	total		from the moment at which the operator's command is given (fork and exec of `godwit send`; the QMP command
			migrate is written) to RESUME at the destination
	downtime	from STOP at the source to RESUME at the destination
	whole		from the same moment as total until the destination has all RAM: after post-copy, `godwit send` has ended
			(QEMU's migration is completed)

STOP and RESUME are events of the test's own monitors, with the time that QEMU gave them; source and destination share the
host, so all of it is one clock. Before the clock starts both receivers listen, and nothing of the migration has begun.
"""
import dataclasses
import json
import os
import statistics
import time

import godwit
import lab


class NotMoved(Exception):
    """It did not end within the patience, or gave up: it does not converge."""


@dataclasses.dataclass
class Moved:
    """
    began, stopped, resumed, ended: ms of the host's clock. sent: bytes of RAM; later: those of them behind the first round, where
    that is known; both in each program's own words. report: godwit's own.
    """
    began: float
    stopped: float
    resumed: float
    ended: float = 0
    sent: int = 0
    later: int | None = None
    report: dict | None = None

    whole = property(lambda self: self.ended - self.began)
    total = property(lambda self: self.resumed - self.began)
    downtime = property(lambda self: self.resumed - self.stopped)


def _now():
    return time.time() * 1e3


def _event(vm, name, end, check):
    while True:
        try:
            return lab.milliseconds(vm.qmp.wait_event(name, 1))
        except TimeoutError:
            check()
            if _now() > end:
                raise NotMoved(f'{vm.name}: no {name} in time') from None


def _until_resume(src, dst, give, check, patience):
    """give: gives the command. check: raises if it has failed. patience: s"""
    for vm in (src, dst):
        vm.query_status()	# the monitor is connected, and its events will be heard
    began = _now()
    give()
    end = began + patience * 1e3
    return Moved(began, _event(src, 'STOP', end, check), _event(dst, 'RESUME', end, check))


def _first_round(src, end):
    """
    What query-migrate says when as many pages have gone as there are. QEMU's dirty-sync-count does not tell: it looks for dirty pages
    when what is left of the round fits into the downtime, and with postcopy-ram 11.1 does so ten times a second.
    """
    def is_over(ram):
        return ram and (ram['normal'] + ram['duplicate']) * ram['page-size'] >= ram['total']

    while not is_over((told := src.qmp('query-migrate')).get('ram')) and told['status'] not in ('failed', 'completed'):
        if _now() > end:
            raise NotMoved(f'{src.name}: no first round in time')
        time.sleep(0.02)
    return told


def by_qemu(src, dst, limit_ms, *, channels=0, patience=300, capabilities=()):
    """
    QEMU's own, at no bandwidth limit; channels: of multifd. With the capability postcopy-ram that begins when `godwit send --postcopy
    on` does, after the first round; with xbzrle the cache has room for all RAM.
    """
    first = None
    uri = f'tcp:{lab.ADDRESS[dst.side]}:4444'
    for vm in (src, dst):
        vm.qmp('migrate-set-capabilities', capabilities=[
            {'capability': 'events', 'state': True}, {'capability': 'multifd', 'state': bool(channels)},
            *({'capability': name, 'state': True} for name in capabilities)])
        if channels:
            vm.qmp('migrate-set-parameters', multifd_channels=channels)
    src.qmp('migrate-set-parameters', max_bandwidth=1 << 40, downtime_limit=limit_ms)
    if 'xbzrle' in capabilities:	# a power of two
        src.qmp('migrate-set-parameters', xbzrle_cache_size=1 << ((sum(r.mib for r in src.ram) << 20) - 1).bit_length())
    dst.qmp('migrate-incoming', uri=uri)

    def check():
        if any(e['event'] == 'MIGRATION' and e['data']['status'] == 'failed' for e in src.qmp.events):
            raise RuntimeError(f'QEMU: {src.qmp("query-migrate").get("error-desc", "failed")}: {dst.said_on_stderr()}')

    def give():
        nonlocal first
        src.qmp('migrate', uri=uri)
        if 'postcopy-ram' in capabilities:
            _first_round(src, _now() + patience * 1e3)
            src.qmp('migrate-start-postcopy')
        elif 'xbzrle' in capabilities:
            first = _first_round(src, _now() + patience * 1e3)['ram']['transferred']

    moved = _until_resume(src, dst, give, check, patience)
    moved.ended = lab.milliseconds(src.qmp.wait_event('MIGRATION', patience, status='completed'))
    moved.sent = src.qmp('query-migrate')['ram']['transferred']
    if first is not None:
        moved.later = moved.sent - first
    return moved


def by_godwit(src, dst, limit_ms, *options, patience=300, terminal=False, tool=godwit.GODWIT):
    """terminal: `godwit send` says how far it is where this program says what it has to say."""
    path = f'{src.directory}/report.json'
    if os.path.exists(path):
        os.unlink(path)
    receive = ['receive', '--qmp', dst.main_qmp, '--listen', godwit.AT, '--insecure']
    send = ['send', '--qmp', src.main_qmp, '--json', path, '--downtime-limit', str(limit_ms), *options,
            godwit.AT]
    if terminal:
        print(f'   dst$ godwit {" ".join(receive)}\n   src$ godwit {" ".join(send)}', flush=True)
    receiver = godwit.Process('dst', *receive, tool=tool).wait_for('listening')
    sender = None

    def give():
        nonlocal sender
        sender = lab.popen('src', [godwit.GODWIT, *send]) if terminal else godwit.Process('src', *send, tool=tool)

    def check():
        if sender.poll() == godwit.EXIT['not-converged']:
            raise NotMoved(f'{src.name}: godwit does not converge')
        if sender.poll() or receiver.poll():
            said = '' if terminal else sender.said
            raise RuntimeError(f'godwit ended with {sender.poll()} and {receiver.poll()}: {said}{receiver.said}')

    try:
        moved = _until_resume(src, dst, give, check, patience)
        sender.wait()
        moved.ended = _now()
        receiver.wait()
        check()
    finally:
        for process in (sender, receiver):
            if process and process.poll() is None:
                process.kill()
                process.wait()
        if terminal:
            print(receiver.said, end='')
    with open(path, encoding='utf-8') as f:
        moved.report = json.load(f)
    moved.sent = moved.report['ram']['transferred']
    moved.later = sum(row['transferred'] for row in moved.report['rounds'][1:])
    return moved


def sample(contestant, src, dst, limit_ms, patience, proof=lab.Qemu.check):
    """
    Moves the guest, which has to find its data unharmed (proof), and ends both QEMUs. (Moved, the figures that every sample has), or
    None: it took longer than the patience. carried: bytes of all layers that the source's interface has sent.
    """
    before = lab.sent_bytes('link0', '-n', 'src')
    try:
        moved = contestant.move(src, dst, limit_ms, patience)
    except NotMoved:
        moved = None
    carried = lab.sent_bytes('link0', '-n', 'src') - before
    if moved:
        proof(dst.wait_ticks(2))
    for vm in (src, dst):
        vm.kill()
    return moved and (moved, {'total': moved.total, 'downtime': moved.downtime, 'transferred': moved.sent, 'carried': carried})


def median(samples, measure, **where):
    """Of what such samples took. None: there is none, or most of them took longer than the patience."""
    took = [s['took'][measure] if s['took'] else float('inf') for s in samples if where.items() <= s.items()]
    middle = statistics.median(took) if took else None
    return None if middle == float('inf') else middle
