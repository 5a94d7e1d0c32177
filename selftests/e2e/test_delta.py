# SPDX-License-Identifier: GPL-2.0-only
"""
--delta: of a page that is sent again only the parts that have changed go, and over what the receiver has they are the page. The
guest runs and writes meanwhile, under TCG: the sender is one for which all pages are dirty in each round (tools/alldirty.c), so
most pages of the later rounds are as they were, and some have changed a little. --verify finds each page that is not right.
"""
import dataclasses
import os
import struct
import zlib

import credentials
import godwit
import lab
import pytest
import relay
import wire
from guestram import AT, content, write
from kinds import KINDS
from strangers import join, refused, strange_sender
from wire import extent

pytestmark = pytest.mark.native

TOOL = f'{lab.B}/tools/alldirty'
# Four MiB of which the guest writes a few bytes of some hundred pages a second.
APPEND = 'start=16 size=16 touch=4 ws=4 rate=400 fill=64'
SLOW = 6 << 20	# bytes a second: not all of the first round in the limit of the downtime
QUICK = ('--downtime-limit', '500')	# more than two rounds
PATIENT = ('--downtime-limit', '60000')
UNTIL_TOLD = ('--downtime-limit', '1', '--max-rounds', '1000', '--postcopy', 'off')


def source(directory, kind='shared_file', **more):
    src = lab.Qemu('src', directory=directory, ram=[KINDS[kind]('src')], append=APPEND, **more).wait_ticks(1)
    godwit.note(src)
    write(src, AT << 20, content(16))
    return src


def run(src, dst, between, *options, **more):
    return godwit.Run(src, dst, *QUICK, *options, to=between.address, tool=TOOL, **more)


def migrate(src, dst, *options, rate=SLOW, offers=~0, **more):
    """The report, and how many frames of each type passed."""
    between = relay.Losing(godwit.TO, rate=rate, offers=offers)
    try:
        report = run(src, dst, between, *options, **more).wait()
    finally:
        between.stop()
    assert report['verified']
    godwit.proof(src, dst, stopped='paused' if report['device-state-saved'] else 'postmigrate')
    return report, between.count


def by_parts(report, count):
    """It was so, and it was worth it: the rounds after the first are next to nothing."""
    ram, rounds = report['ram'], report['rounds']
    assert len(rounds) >= 3 and count[wire.DELTA] >= 2
    assert not rounds[0]['delta'] and not rounds[0]['unchanged']
    for row in rounds[1:]:
        assert row['unchanged'] > 2000, rounds
        assert row['delta-bytes'] <= row['delta'] * 2048 and row['normal-bytes'] < rounds[0]['normal-bytes'] / 10, rounds
    assert 0 < ram['delta'] == sum(row['delta'] for row in rounds) <= ram['normal']
    assert ram['delta-bytes'] == sum(row['delta-bytes'] for row in rounds)
    assert ram['unchanged'] == sum(row['unchanged'] for row in rounds)


@pytest.mark.parametrize('streams', ['1', '4'])
@pytest.mark.parametrize('io', ['uring', 'poll'])
@pytest.mark.parametrize('how', ['lz4', 'zstd', 'zlib', 'off'])
def test_it_arrives(directory, how, io, streams):
    src = source(directory)
    dst = godwit.destination(src)
    by_parts(*migrate(src, dst, '--compress', how, '--delta', 'on', '--io', io, '--streams', streams, receive_options=['--io', io]))


def test_auto(directory):
    """The link is slow, so frames are packed, and pages get hashes, but for the first ones, as nothing is known of the link then."""
    src = source(directory)
    dst = godwit.destination(src)
    report, count = migrate(src, dst, '--streams', '2')
    assert report['ram']['unchanged'] > 2000 and report['ram']['delta'] > 0 and count[wire.DELTA] > 0


@pytest.mark.parametrize('here, there', [('shared_file', 'anonymous'), ('anonymous', 'shared_file'), ('private_file', 'memfd')])
def test_kinds_of_ram(directory, qemu, here, there):
    src = source(directory, here, qemu=qemu)
    dst = godwit.destination(src, qemu=qemu, ram=[KINDS[there]('dst')])
    by_parts(*migrate(src, dst, '--compress', 'lz4'))


def test_into_a_mapping(directory):
    src = source(directory)
    dst = godwit.destination(src, ram=[dataclasses.replace(KINDS['shared_file']('dst'), prealloc=True)])
    by_parts(*migrate(src, dst, '--compress', 'zstd'))


def over_tls(directory):
    """The report."""
    src = source(directory)
    dst = godwit.destination(src)
    key = ['--tls-psk', credentials.shared_key(f'{directory}/key.psk')]
    between = relay.Sealed(godwit.TO, rate=SLOW)
    try:
        moves = run(src, dst, between, *UNTIL_TOLD, '--compress', 'lz4', *key, receive_options=key)
        report = moves.converge_after(2).wait()
    finally:
        between.stop()
    assert report['verified'] and report['encrypted']
    by_parts(report, {wire.DELTA: 99})
    godwit.proof(src, dst)
    return report


def test_over_tls(directory):
    over_tls(directory)


@pytest.mark.parametrize('options', [('--delta', 'off'), ('--delta-memory', '0'), ('--compress', 'off')])
def test_off(directory, options):
    src = source(directory)
    dst = godwit.destination(src)
    report, count = migrate(src, dst, *PATIENT, '--compress', 'zstd', *options, rate=20 << 20)
    assert not report['ram']['delta'] and not report['ram']['unchanged'] and wire.DELTA not in count


def test_an_older_receiver(directory):
    """It gets whole pages, and an order is refused."""
    src = source(directory)
    dst = godwit.destination(src)
    between = relay.Losing(godwit.TO, rate=20 << 20, offers=~wire.DELTAS)
    try:
        refusal = run(src, dst, between, '--delta', 'on')
        assert refusal.send.wait() == godwit.EXIT['version'] and 'too old for --delta on' in refusal.send.said
        refusal.kill()
    finally:
        between.stop()
    report, count = migrate(src, dst, *PATIENT, '--compress', 'zstd', rate=20 << 20, offers=~wire.DELTAS)
    assert not report['ram']['delta'] and not report['ram']['unchanged'] and wire.DELTA not in count


def in_parts(between, process, frames=1):
    between.wait(lambda: between.count.get(wire.DELTA, 0) >= frames or process.send.poll() is not None)
    assert process.send.poll() is None, process.send.said


@pytest.mark.parametrize('when', [1, 3])
def test_lost_and_back(directory, when):
    """The link is lost among parts of pages: what it may have swallowed goes whole, over what has arrived."""
    src = source(directory)
    dst = godwit.destination(src)
    src.command('rate=4000')
    between = relay.Losing(godwit.TO, rate=SLOW)
    try:
        process = run(src, dst, between, '--compress', 'lz4', '--streams', '2', '--reconnect', '30',
                      '--downtime-limit', '1', '--max-rounds', '1000', '--timeout', '3600', '--on-timeout', 'pause',
                      receive_options=['--resolve-timeout', '1'])
        for frames in range(1, when + 1):
            in_parts(between, process, 4 * frames)
            between.lose()
            between.wait(lambda times=frames: process.send.poll() is not None or
                         process.send.poll() is None and process.send.said.count('connected again') >= times)
        godwit.control(process.send.pid, execute='set', arguments={'timeout': 1})	# over, however long it took until here
        report = process.wait()
    finally:
        between.stop()
    assert report['reconnects'] == when and report['verified'] and report['ram']['delta'] > 0
    godwit.proof(src, dst)


@pytest.mark.parametrize('which', ['send', 'receive'])
def test_killed(directory, which):
    """kill -9 of either end among parts of pages: the source is as it was, and moves to another destination."""
    src = source(directory)
    dst = godwit.destination(src)
    between = relay.Losing(godwit.TO, rate=SLOW)
    try:
        process = run(src, dst, between, '--compress', 'zstd', '--peer-timeout', '3', '--downtime-limit', '10', '--max-rounds', '1000',
                      receive_options=['--peer-timeout', '3', '--resolve-timeout', '1'])
        in_parts(between, process)
        getattr(process, which).kill()
        process.send.wait()
        process.receive.wait()
    finally:
        between.stop()
    dst.kill()
    godwit.unharmed(src)
    by_parts(*migrate(src, godwit.destination(src, 'dst2'), '--compress', 'zstd'))


ALL = wire.VERDICTS | wire.ONE_WAY | wire.FILL | wire.LZ4 | wire.ZSTD | wire.ZLIB | wire.DELTAS
PART = os.urandom(512)


def delta(number, masks, block, *extents):
    return wire.frame(wire.DELTA, len(extents), b''.join(extents) + struct.pack('<Q', number) + bytes(masks) + block)


def bomb():
    return delta(3, [1], zlib.compress(bytes(64 << 20))[:500], extent(3, 1, 0))


@pytest.mark.parametrize('frame,offers,words', [
    (delta(0, [1], PART, extent(3, 1, 0)), ALL & ~wire.DELTAS, 'not agreed on'),
    (delta(0, [1], PART, extent(3, 1, 0)), ALL, 'has not come before'),
    (delta(0, [1, 4], PART * 2, extent(3, 2, (64 << 8) - 2)), ALL, 'has not come before'),
    (delta(0, [1], PART, extent(1, 1, 9), extent(3, 1, 9)), ALL, 'has not come before'),
    (delta(0, [0], PART, extent(3, 1, 0)), ALL, 'malformed'),
    (delta(0, [3], PART, extent(3, 1, 0)), ALL, 'malformed'),
    (delta(0, [1], PART * 2, extent(3, 1, 0)), ALL, 'malformed'),
    (delta(1, [1], PART, extent(3, 1, 0)), ALL, 'malformed'),
    (delta(0, [1], PART[:100], extent(3, 1, 0)), ALL, 'malformed'),
    (delta(0, [255] * 65, bytes(65 << 12), extent(3, 65, 0)), ALL, 'no sense'),
    (delta(3, [255] * 64 + [1], zlib.compress(bytes((64 << 12) + 512)), extent(3, 65, 0)), ALL, 'malformed'),
    (delta(0, [1] * 512, b'', extent(3, 600, 0)), ALL, 'malformed'),
    (delta(0, [], PART, extent(0, 1, 0)), ALL, 'malformed'),
    (delta(0, [1], PART, extent(0x103, 1, 0)), ALL, 'malformed'),
    (wire.frame(wire.RAM, 1, extent(3, 1, 0) + PART), ALL, 'malformed'),
    (delta(0, [1], PART, extent(3, 1, 1 << 30)), ALL, 'outside'),
    (delta(3, [1], zlib.compress(bytes(512)), extent(3, 1, 0)), ALL & ~wire.ZLIB, 'not agreed on'),
    (delta(9, [1], zlib.compress(bytes(512)), extent(3, 1, 0)), ALL, 'not agreed on'),
    (delta(3, [1], zlib.compress(bytes(1024)), extent(3, 1, 0)), ALL, 'does not unpack'),
    (delta(3, [1], zlib.compress(bytes(256)), extent(3, 1, 0)), ALL, 'does not unpack'),
    (bomb, ALL, 'does not unpack'),
], ids=['not-offered', 'never-sent', 'never-sent-last', 'zeros-only', 'no-part', 'another-part', 'behind', 'not-smaller', 'cut',
        'too-long', 'unpacks-too-long', 'too-many', 'no-parts', 'kind', 'in-ram', 'outside', 'codec-not-offered', 'number-9', 'unpacks-long',
        'unpacks-short', 'bomb'])
def test_hostile(directory, frame, offers, words):
    frame = frame() if callable(frame) else frame	# what takes long to make only where it is sent

    def speak(control, streams, secret):
        join(control, streams, secret)
        streams[0].sendall(frame)
    refused(strange_sender(directory, speak, offers=offers), 'bad-peer', words)


@pytest.mark.parametrize('at', [10, 24, 30, 40, 47, 48, 49, 300])
def test_cut(directory, at):
    """The link is lost in the middle of a frame: in its header, its extent, its number, its masks, its bytes."""
    def speak(control, streams, secret):
        join(control, streams, secret)
        streams[0].sendall(delta(0, [1], PART, extent(3, 1, 0))[:at])
        streams[0].close()
    refused(strange_sender(directory, speak, offers=ALL), 'link-lost', '')
