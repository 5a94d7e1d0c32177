# SPDX-License-Identifier: GPL-2.0-only
"""
--reuse: a guest that comes back finds most of its pages at the destination, in a file that nobody trusts. RAM at
rest (--pause) goes in rounds then, so two QEMUs without KVM show most of it; for the rounds of a guest that writes the sender is one
for which all pages are dirty (tools/alldirty.c). --verify finds each page that is not right.
"""
import os
import shutil
import time

import credentials
import godwit
import lab
import pytest
import relay
import wire
from guestram import AT, content, write
from kinds import KINDS

pytestmark = pytest.mark.native

TOOL = f'{lab.B}/tools/alldirty'
APPEND = 'start=16 size=16 touch=4 ws=2 rate=400 fill=64'
MIB = 1 << 20


def source(directory, kind='shared_file', mib=12, **more):
    src = lab.Qemu('src', directory=directory, ram=[KINDS[kind]('src')], append=APPEND, **more).wait_ticks(1)
    godwit.note(src)
    write(src, AT * MIB, content(mib))
    return src


def old_ram(src, path=None):
    """A copy of the source's RAM file, as it is now, in a file that no VM has."""
    path = path or f'{src.directory}/old.ram'
    shutil.copyfile(src.ram[0].path, path)
    return path


def change(src, pages=100):
    """Some of the content is another now."""
    for i in range(pages):
        write(src, (AT * MIB) + i * 5 * 4096, os.urandom(4096))


def migrate(src, dst, file, *options, pause=True, offers=~0, rate=None, receive_options=(), stopped=None, sealed=False, **more):
    """The report, and how many frames of each type passed."""
    between = relay.Sealed(godwit.TO, rate=rate or 1 << 30) if sealed else relay.Losing(godwit.TO, rate=rate or 1 << 30, offers=offers)
    try:
        reuse = ['--reuse', file] if file else []
        run = godwit.Run(src, dst, *(['--pause'] if pause else []), *options, to=between.address,
                         receive_options=[*reuse, *receive_options], **more)
        report = run.wait()
        report['said'] = run.send.said, run.receive.said
    finally:
        between.stop()
    assert report['verified']
    godwit.proof(src, dst, stopped=stopped or ('paused' if report['device-state-saved'] else 'postmigrate'))
    return report, between.count


def mostly_reused(report, most=1 * MIB, least=2400):
    """But for what was changed, and what the guest may have written since: half of its 1024 pages."""
    ram = report['ram']
    assert ram['reused'] >= least and ram['normal'] <= 700, ram
    assert ram['reused-bytes'] < ram['reused'] * 32 and ram['normal-bytes'] + ram['reused-bytes'] < most * 4, ram
    assert report['reuse']['entries'] >= least and report['reuse']['index-time'] > 0 and report['reuse']['memory'] > 0
    assert not report['reuse']['refused'] and not report['reuse']['left-out']
    assert 'Reused pages' in report['said'][0] and f'took {ram["reused"]} pages' in report['said'][1]


@pytest.mark.parametrize('streams', ['1', '4'])
@pytest.mark.parametrize('io', ['uring', 'poll'])
@pytest.mark.parametrize('other', [False, True], ids=['own', 'other'])
def test_it_comes_back(directory, io, streams, other):
    src = source(directory)
    file = old_ram(src)
    change(src)
    report, count = migrate(src, godwit.destination(src), file, '--io', io, '--streams', streams,
                            receive_options=['--io', io, *(['--reuse-other'] if other else [])])
    mostly_reused(report)
    assert count[wire.REFERENCES] and wire.REFUSED not in count


@pytest.mark.parametrize('how', ['lz4', 'zstd', 'zlib', 'off'])
def test_beside_a_codec(directory, how):
    src = source(directory)
    file = old_ram(src)
    change(src)
    mostly_reused(migrate(src, godwit.destination(src), file, '--compress', how)[0])


def test_over_tls(directory):
    src = source(directory)
    file = old_ram(src)
    key = ['--tls-psk', credentials.shared_key(f'{directory}/key.psk')]
    report, _ = migrate(src, godwit.destination(src), file, *key, receive_options=key, sealed=True)
    mostly_reused(report)
    assert report['encrypted']


def test_a_guest_that_writes(directory):
    """The rounds of a guest that runs: what it has written since is sent, and over what was referred to parts of pages are right."""
    src = source(directory)
    file = old_ram(src)
    change(src)
    report, count = migrate(src, godwit.destination(src), file, '--compress', 'lz4', '--delta', 'on', '--downtime-limit', '500',
                            pause=False, tool=TOOL, rate=6 * MIB)
    ram, rounds = report['ram'], report['rounds']
    assert ram['reused'] > 2400 and ram['delta'] > 0 and count[wire.DELTA] and len(rounds) >= 3, report
    assert ram['reused'] == sum(row['reused'] for row in rounds) and not rounds[-1]['reused'], 'none in the last round'
    # What was referred to has its hashes: dirty in each round, and not sent again.
    assert all(row['unchanged'] > 2000 for row in rounds[1:]), rounds


def test_the_last_round_has_no_references(directory):
    """As nobody could ask for what the file does not have: without hashes of --delta all pages go again, and now with their bytes."""
    src = source(directory)
    file = old_ram(src)
    report, _ = migrate(src, godwit.destination(src), file, '--delta', 'off', '--downtime-limit', '60000', pause=False, tool=TOOL,
                        rate=40 * MIB)
    first, last = report['rounds'][0], report['rounds'][-1]
    assert first['reused'] > 2000 and not last['reused'] and last['normal'] > 2000, report['rounds']


@pytest.mark.parametrize('here, there', [('shared_file', 'anonymous'), ('shared_file', 'memfd')])
def test_kinds_of_ram(directory, here, there):
    src = source(directory, here)
    file = f'{directory}/old.ram'
    with open(file, 'wb') as f:
        f.write(content())	# another copy of most of it, but for the noise
    dst = godwit.destination(src, ram=[KINDS[there]('dst')])
    report, _ = migrate(src, dst, file)
    assert report['ram']['reused'] > 500, report['ram']


def test_content_has_no_place(directory):
    """What is somewhere else in the file is found, too."""
    src = source(directory)
    with open(src.ram[0].path, 'rb') as f:
        f.seek(AT * MIB)
        data = f.read(12 * MIB)
    file = f'{directory}/old.ram'
    with open(file, 'wb') as f:
        for at in range(len(data) - 4096, -1, -4096):
            f.write(data[at:at + 4096])
    report, _ = migrate(src, godwit.destination(src), file)
    assert report['ram']['reused'] > 2000 and report['ram']['reused-bytes'] < report['ram']['reused'] * 32


def garbage(file):
    size = os.path.getsize(file)
    with open(file, 'r+b') as f:
        f.write(os.urandom(size))


def some_pages(file):
    with open(file, 'r+b') as f:
        for at in range(AT * MIB, (AT + 12) * MIB, 64 * 4096):
            f.seek(at + 100)
            f.write(b'changed')


def cut_off(file):
    os.truncate(file, (AT + 6) * MIB)


def emptied(file):
    os.truncate(file, 0)


CHANGES = [garbage, some_pages, cut_off, emptied]


def at_the_first(between, kind, do):
    """Before it goes on to the other end; if do() says so it never does."""
    hit = []

    def first(a, _):
        if hit:
            return None
        hit.append(a)
        return b'' if do() else None
    between.at_head[kind] = first
    return hit


def changed(src, file, what, *options, pause=True, late=0, **more):
    """The file becomes another when the receiver has said what it has, and before the sender refers to any of it."""
    between = relay.Losing(godwit.TO, rate=6 * MIB)
    hit = at_the_first(between, wire.REFERENCES, lambda: what(file))
    at_the_first(between, wire.REFUSED, lambda: time.sleep(late))
    try:
        run = godwit.Run(src, godwit.destination(src), *(['--pause'] if pause else []), *options, to=between.address,
                         receive_options=['--reuse', file], **more)
        report = (run if pause else run.converge_after(5)).wait()
    finally:
        between.stop()
    assert hit and report['verified'] and 'has changed since it was read' in run.receive.said, run.receive.said
    assert between.count[wire.REFUSED]
    godwit.proof(src, run.dst)
    return report


@pytest.mark.parametrize('what', CHANGES, ids=lambda f: f.__name__)
def test_the_file_changes(directory, what):
    """Zero trust: what has another content by now comes from the sender after all, and the guest is whole."""
    src = source(directory)
    file = old_ram(src)
    report = changed(src, file, what, '--streams', '2')
    refused = report['reuse']['refused']
    assert refused >= (15 if what is some_pages else 150), report['reuse']
    assert report['ram']['normal'] >= refused


@pytest.mark.parametrize('late', [0, 1], ids=['prompt', 'late'])
@pytest.mark.parametrize('what', [garbage, some_pages], ids=lambda f: f.__name__)
def test_the_file_changes_while_the_guest_writes(directory, what, late):
    """Also when the sender hears of it late, and has sent parts of pages that are not there. Then it refers to nothing any more."""
    src = source(directory)
    file = old_ram(src)
    report = changed(src, file, what, '--compress', 'lz4', '--delta', 'on', '--downtime-limit', '1', '--max-rounds', '1000', '--streams', '1',
                     pause=False, tool=TOOL, late=late)
    assert report['reuse']['refused'] >= 15
    heard = 5 if late else 2
    assert len(report['rounds']) > 2 and not any(row['reused'] for row in report['rounds'][heard:]), report['rounds']


@pytest.mark.parametrize('what', [garbage, emptied], ids=lambda f: f.__name__)
def test_it_was_another_file_all_along(directory, what):
    """Nothing of it is of this guest: all is sent as ever."""
    src = source(directory)
    file = old_ram(src)
    if what is garbage:
        garbage(file)
    else:
        with open(file, 'wb') as f:
            f.truncate(64 * MIB)
    report, count = migrate(src, godwit.destination(src), file)
    assert not report['ram']['reused'] and wire.REFERENCES not in count


def refused_to_start(dst, file, status, *why):
    run = godwit.receive(dst, '--reuse', str(file))
    assert run.wait(30) == godwit.EXIT[status] and all(word in run.said for word in (*why, '--reuse')), run.said


def test_files_that_are_none(directory):
    dst = godwit.destination(source(directory))
    empty = f'{directory}/empty'
    open(empty, 'wb').close()
    for file, *why in ((f'{directory}/none', 'No such file'), ('/dev/zero', 'no regular file'), (directory, 'no regular file'),
                       (empty, 'is empty', 'leave out --reuse')):
        refused_to_start(dst, file, 'usage', *why)


def test_ram_of_a_vm(directory):
    """The destination's own, or another VM's that is there now."""
    src = source(directory)
    dst = godwit.destination(src)
    refused_to_start(dst, src.ram[0].path, 'ram-in-use', 'is the RAM of a VM', src.ram[0].path)
    refused_to_start(dst, dst.ram[0].path, 'ram-in-use', 'which is emptied')


def test_memory_bounds_both_ends(directory):
    """1 MiB is 52428 pages of the index, and 37449 of the table: here the file has more."""
    src = source(directory)
    file = old_ram(src)
    with open(file, 'r+b') as f:
        os.truncate(file, 0)
        for _ in range(220):
            f.write(os.urandom(MIB))
    report, _ = migrate(src, godwit.destination(src), file, receive_options=['--reuse-memory', '1'])
    assert report['reuse']['entries'] == (1 << 20) // 20 and report['reuse']['left-out'] == 220 * 256 - (1 << 20) // 20, report['reuse']
    assert 'left out, as --reuse-memory 1 is too small' in report['said'][1]


def test_memory_bounds_the_sender(directory):
    src = source(directory)
    file = old_ram(src)
    with open(file, 'ab') as f:
        for _ in range(220):
            f.write(os.urandom(MIB))
    report, _ = migrate(src, godwit.destination(src), file, '--reuse-memory', '1')
    assert report['reuse']['entries'] == (1 << 20) // 28 and report['reuse']['memory'] <= 1 << 20 and report['ram']['reused'] > 2000


@pytest.mark.parametrize('how', ['offers', 'memory', 'none'])
def test_off(directory, how):
    """An older peer, a sender that does not want it, a receiver without a file: all pages are sent."""
    src = source(directory)
    file = old_ram(src)
    report, count = migrate(src, godwit.destination(src), None if how == 'none' else file,
                            *(['--reuse-memory', '0'] if how == 'memory' else []),
                            offers=~wire.REUSES if how == 'offers' else ~0)
    assert not report['ram']['reused'] and wire.REFERENCES not in count and wire.HASHES not in count
    assert count.get(wire.REUSE, 0) == (2 if how == 'none' else 0)


def lost(src, file, drop, spoils, *options):
    """With --reconnect: a guest that runs, as in --pause what goes ahead of the first ACK is not sent again."""
    between = relay.Losing(godwit.TO, rate=6 * MIB, drop={drop})
    if spoils:
        at_the_first(between, wire.REFERENCES, lambda: garbage(file))
    try:
        run = godwit.Run(src, godwit.destination(src), '--downtime-limit', '1000', '--reconnect', '30', *options,
                         to=between.address, tool=TOOL, receive_options=['--resolve-timeout', '1', '--reuse', file])
        report = run.wait()
    finally:
        between.stop()
    assert report['reconnects'] == 1 and report['verified'], run.send.said
    assert report['ram']['reused'] > 1000 and bool(report['reuse']['refused']) == spoils, report
    # Each page once, also those that the receiver has told of again; once one is refused no page is referred to again.
    assert report['reuse']['refused'] <= report['ram']['reused'], report
    godwit.proof(src, run.dst, stopped=godwit.STOPPED['save' if report['device-state-saved'] else 'migrate'])


@pytest.mark.parametrize('kind,options', [
    (wire.REUSE, []), ((wire.REUSE, 2), []), (wire.HASHES, []), (wire.HASHES, ['--pause']), (wire.HASHES, ['--device-state', 'save']),
], ids=['question', 'answer', 'hashes', 'paused', 'saved'])
def test_the_link_is_lost_before_the_first_round(directory, kind, options):
    """While the sender asks what the receiver has, and waits for it."""
    src = source(directory)
    lost(src, old_ram(src), kind, False, *options)


@pytest.mark.parametrize('kind', [wire.REFERENCES, (wire.ACK, 1), wire.SWITCHOVER], ids=['references', 'ack', 'switchover'])
def test_the_link_is_lost(directory, kind):
    """What was referred to comes again, and what the receiver has said is known still."""
    src = source(directory)
    file = old_ram(src)
    change(src, 500)
    lost(src, file, kind, False)


@pytest.mark.parametrize('kind', [wire.REFUSED, (wire.ACK, 1), wire.SWITCHOVER], ids=['refused', 'ack', 'switchover'])
def test_refusals_are_lost_with_the_link(directory, kind):
    """They are said again: before the next ACK, or before the answer to SWITCHOVER."""
    src = source(directory)
    lost(src, old_ram(src), kind, True)


def test_refusals_and_their_ack_are_lost(directory):
    """
    The receiver has the round, but for what it has refused, and the sender has heard neither. RAM is at rest, so that nothing is
    dirty for another reason: what comes first takes until the first part of the round has its ACK, then comes what is referred to.
    """
    src = source(directory)
    file = f'{directory}/old.ram'
    with open(src.ram[0].path, 'rb') as ram, open(file, 'wb') as f:
        ram.seek((AT + 6) * MIB)
        f.write(ram.read(6 * MIB))
    write(src, (AT - 6) * MIB, os.urandom(12 * MIB))
    with relay.Losing(godwit.TO, rate=3 * MIB) as between:
        def lose():
            time.sleep(0.5)	# the ACK is on its way behind it
            between.lose()
            return True
        at_the_first(between, wire.REFERENCES, lambda: garbage(file))
        hit = at_the_first(between, wire.REFUSED, lose)
        run = godwit.Run(src, godwit.destination(src), '--pause', '--compress', 'off', '--streams', '1', '--reconnect', '30',
                         '--peer-timeout', '3', to=between.address,
                         receive_options=['--peer-timeout', '3', '--resolve-timeout', '1', '--reuse', file])
        report = run.wait()
    assert hit and report['reconnects'] == 1 and report['verified'] and report['reuse']['refused'] > 500, run.send.said
    godwit.proof(src, run.dst)


@pytest.mark.parametrize('who', ['send', 'receive'])
def test_an_end_is_killed(directory, who):
    src = source(directory)
    file = old_ram(src)
    change(src, 500)
    with relay.Losing(godwit.TO, rate=1 * MIB) as between:
        run = godwit.Run(src, godwit.destination(src), '--pause', '--compress', 'off', to=between.address,
                         receive_options=['--reuse', file, '--resolve-timeout', '1'])
        between.wait_ram(256 << 10)
        getattr(run, who).kill().wait()
        (run.receive if who == 'send' else run.send).wait(60)
    godwit.unharmed(src)


def test_check_tells(directory):
    src = source(directory)
    file = old_ram(src)
    dst = godwit.destination(src)
    run = godwit.listen(dst, '--reuse', file)
    said = godwit.Process('src', 'check', '--pause', '--qmp', src.main_qmp, '--to', godwit.AT)
    said.wait()
    assert 'pages in a file' in said.said and 'compared by XXH3' in said.said, said.said
    run.kill().wait()
