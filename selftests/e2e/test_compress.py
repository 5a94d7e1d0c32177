# SPDX-License-Identifier: GPL-2.0-only
"""
--compress: RAM that is packed arrives as it was, whatever packs it, over any engine, into any kind of memory; and what does not
unpack, or was not agreed on, is refused. --verify and a comparison of both RAMs find each page that is not right.
"""
import dataclasses
import json
import os
import struct
import subprocess
import time
import zlib

import godwit
import lab
import pytest
import relay
import wire
from guestram import AT, content, dump, write
from kinds import KINDS
from ours import proved
from strangers import join, refused, strange_sender
from wire import extent

pytestmark = pytest.mark.native

APPEND = 'start=16 size=16 touch=8 rate=50'
HOW = ['lz4', 'zstd', 'zstd:3', 'zstd:19', 'zlib', 'zlib:9']


def source(directory, kind='shared_file', qemu=lab.QEMU, runs=False, append=APPEND):
    src = lab.Qemu('src', directory=directory, qemu=qemu, ram=[KINDS[kind]('src')], append=append).wait_ticks(1)
    if runs:
        godwit.note(src)
    else:
        src.qmp('stop')
    write(src, AT << 20, content())
    return src


def arrived(src, dst, report):
    assert report['verified']
    differ = lab.differing_pages(dump(src, 64), dump(dst, 64))
    proved(not differ, f'memory differs in pages {differ}')
    dst.qmp('cont')
    dst.wait_ticks(1).check()


@pytest.mark.parametrize('streams', ['1', '4'])
@pytest.mark.parametrize('io', ['uring', 'poll'])
@pytest.mark.parametrize('how', HOW)
def test_it_arrives(directory, how, io, streams):
    src = source(directory)
    dst = godwit.destination(src)
    report = godwit.Run(src, dst, '--pause', '--compress', how, '--io', io, '--streams', streams, receive_options=['--io', io]).wait()
    ram = report['ram']
    assert ram[how.split(':')[0]] > 1000 and sum(ram[name] for name in wire.CODECS) <= ram['normal']
    assert ram['same-byte'] > 400
    assert ram['normal-bytes'] < ram['normal'] * 4096 * 0.8
    arrived(src, dst, report)


@pytest.mark.parametrize('here, there', [('shared_file', 'anonymous'), ('anonymous', 'shared_file'), ('private_file', 'memfd')])
def test_kinds_of_ram(directory, qemu, here, there):
    src = source(directory, here, qemu)
    dst = godwit.destination(src, qemu=qemu, ram=[KINDS[there]('dst')])
    report = godwit.Run(src, dst, '--pause', '--compress', 'zstd').wait()
    assert report['ram']['zstd'] > 1000 and report['ram']['same-byte'] > 400
    arrived(src, dst, report)


@pytest.mark.parametrize('how', ['lz4', 'zstd', 'zlib'])
def test_into_a_mapping(directory, how):
    """Memory that is there already is written to through a mapping; by the kernel, of what was unpacked beside it."""
    src = source(directory)
    dst = godwit.destination(src, ram=[dataclasses.replace(KINDS['shared_file']('dst'), prealloc=True)])
    write(dst, AT << 20, b'older' * 4096)
    report = godwit.Run(src, dst, '--pause', '--compress', how).wait()
    assert report['ram'][how] > 1000 and report['ram']['same-byte'] > 400
    arrived(src, dst, report)


def over_tls(src, credentials, how, io):
    """The report."""
    dst = godwit.destination(src)
    options = ['--io', io, *credentials]
    report = godwit.Run(src, dst, '--pause', '--compress', how, *options, receive_options=options).wait()
    assert report['encrypted'] and report['ram'][how] > 1000 and report['ram']['same-byte'] > 400
    assert report['ram']['normal-bytes'] < report['ram']['normal'] * 4096 * 0.8
    arrived(src, dst, report)
    return report


@pytest.mark.parametrize('how, kind, io', [('lz4', 'creds', 'uring'), ('zstd', 'psk', 'poll'), ('zlib', 'creds', 'poll')])
def test_over_tls(directory, keys, how, kind, io):
    """What is packed is then encrypted."""
    over_tls(source(directory), keys[kind], how, io)


def test_one_thread(directory):
    src = source(directory)
    dst = godwit.destination(src)
    report = godwit.Run(src, dst, '--pause', '--compress', 'zstd', '--compress-threads', '1', '--streams', '4',
                        receive_options=['--decompress-threads', '1']).wait()
    assert report['ram']['zstd'] > 1000
    arrived(src, dst, report)


def test_off(directory):
    src = source(directory)
    dst = godwit.destination(src)
    ram = godwit.Run(src, dst, '--pause', '--compress', 'off').wait()['ram']
    assert not any(ram[name] for name in wire.CODECS) and ram['normal-bytes'] == ram['normal'] * 4096


def test_auto_switches(directory):
    """On a link that is slow the frames get smaller: some go as they are, then a codec is there."""
    src = source(directory)
    dst = godwit.destination(src)
    between = relay.Losing(godwit.TO, rate=6 << 20)
    try:
        report = godwit.Run(src, dst, '--pause', '--streams', '2', to=between.address).wait()
    finally:
        between.stop()
    ram = report['ram']
    assert between.count[wire.PACKED] > 10 and between.count[wire.LOAD] > 5
    assert between.count[wire.RAM] > 2 and ram['lz4'] + ram['zstd'] > 500 and ram['zstd'] > 200
    arrived(src, dst, report)


def test_auto_is_soon(directory):
    """The receiver is asked for its load as soon as RAM comes, not a second later: few frames go as they are."""
    src = source(directory, append='start=16 size=2 touch=1')
    programs = b''.join(open(f'/usr/bin/{name}', 'rb').read() for name in ('bash', 'tar', 'find', 'openssl'))
    write(src, 20 << 20, (programs * 16)[:40 << 20])
    dst = godwit.destination(src)
    between = relay.Losing(godwit.TO, rate=8 << 20)
    try:
        report = godwit.Run(src, dst, '--pause', '--streams', '2', to=between.address).wait()
    finally:
        between.stop()
    frames = between.before[wire.PACKED][wire.RAM]
    assert frames < 24, frames	# of 256 KiB; 32 come in a second, and two queues have 8
    assert report['ram']['zstd'] > 8000 and report['ram']['lz4'] < 1000
    dst.qmp('cont')
    dst.wait_ticks(1).check()


def change(src, how, status='ok'):
    p = godwit.Process('src', 'set', '--qmp', src.main_qmp, '--compress', how)
    assert p.wait(30) == godwit.EXIT[status], p.said
    return p.said


def test_it_changes_in_the_middle(directory):
    """godwit set --compress: another codec from one frame to the next, in the middle of a round; one that the receiver lacks is not."""
    src = source(directory, append='start=16 size=2 touch=1')
    write(src, 20 << 20, content(32))	# enough for all of it, however long a command takes
    dst = godwit.destination(src)
    between = relay.Losing(godwit.TO, rate=2 << 20, offers=~wire.ZLIB)
    try:
        run = godwit.Run(src, dst, '--pause', '--streams', '2', '--compress', 'off', to=between.address)
        between.wait_ram(1 << 20)
        assert not between.count.get(wire.PACKED)
        for how, shown in (('lz4', 'lz4'), ('zstd:7', 'zstd:7')):
            before = between.count.get(wire.PACKED, 0)
            assert f'compress         {shown}\n' in change(src, how)
            # Up to 8 frames are of the choice before, in the queues of both streams.
            between.wait(lambda seen=before: between.count.get(wire.PACKED, 0) >= seen + 16)
        assert 'too old for --compress zlib' in change(src, 'zlib', 'version')
        assert '1 to 19' in change(src, 'zstd:20', 'usage')
        assert 'compress         off\n' in change(src, 'off')
        report = run.wait()
    finally:
        between.stop()
    ram = report['ram']
    assert ram['lz4'] > 64 and ram['zstd'] > 64 and not ram['zlib']
    assert ram['normal'] - ram['lz4'] - ram['zstd'] > 300
    arrived(src, dst, report)


def test_shown_while_it_runs(directory):
    """Progress and metrics count the round under way, and no page twice: the last line is the report."""
    src = source(directory)
    dst = godwit.destination(src)
    between = relay.Losing(godwit.TO, rate=2 << 20)
    prom = f'{directory}/godwit.prom'
    try:
        run = godwit.Run(src, dst, '--pause', '--streams', '2', '--compress', 'zstd', '--progress', 'json', '--metrics', prom,
                         to=between.address)
        report = run.wait()
    finally:
        between.stop()
    lines = [json.loads(line)['ram'] for line in run.send.said.splitlines() if line.startswith('{')]
    zstd = [line['zstd'] for line in lines]
    assert zstd == sorted(zstd) and len({n for n in zstd if 0 < n < zstd[-1]}) >= 2, zstd
    assert all(line['normal-bytes'] < 4096 * line['normal'] for line in lines if line['zstd'])
    assert lines[-1]['normal-bytes'] < 0.8 * 4096 * lines[-1]['normal']
    assert [lines[-1][key] for key in ('normal', 'zstd', 'same-byte', 'normal-bytes')] == \
        [report['ram'][key] for key in ('normal', 'zstd', 'same-byte', 'normal-bytes')]
    assert sum(row['zstd'] for row in report['rounds']) == report['ram']['zstd']
    with open(prom, encoding='utf-8') as f:
        assert f'}} {report["ram"]["zstd"] * 4096}\n' in f.read()
    arrived(src, dst, report)


OLD = ~(wire.FILL | wire.LZ4 | wire.ZSTD | wire.ZLIB | wire.LOADS)


def test_an_older_receiver(directory):
    """It gets RAM as it always did, and an order that it cannot follow is refused before anything is sent."""
    src = source(directory)
    dst = godwit.destination(src)
    between = relay.Losing(godwit.TO, rate=1 << 30, offers=OLD)
    try:
        run = godwit.Run(src, dst, '--pause', '--compress', 'zlib:3', to=between.address)
        assert run.send.wait() == godwit.EXIT['version'] and 'too old for --compress zlib' in run.send.said
        run.kill()
        report = godwit.Run(src, dst, '--pause', to=between.address).wait()
    finally:
        between.stop()
    assert not between.count.get(wire.PACKED) and not between.count.get(wire.LOAD)
    assert not report['ram']['same-byte'] and not report['ram']['zstd']
    arrived(src, dst, report)


@pytest.mark.parametrize('lacks', ['zstd', 'lz4'])
def test_a_receiver_with_some(directory, lacks):
    src = source(directory)
    dst = godwit.destination(src)
    between = relay.Losing(godwit.TO, rate=4 << 20, offers=~wire.CODECS[lacks])
    try:
        report = godwit.Run(src, dst, '--pause', '--streams', '1', to=between.address).wait()
    finally:
        between.stop()
    assert not report['ram'][lacks] and report['ram']['lz4'] + report['ram']['zstd'] > 500
    arrived(src, dst, report)


def packed(number, block, *extents):
    return wire.frame(wire.PACKED, len(extents), b''.join(extents) + struct.pack('<Q', number) + block)


def zlib_bomb():
    return packed(3, zlib.compress(bytes(64 << 20))[:4000], extent(0, 1, 0))


def zstd_bomb():
    block = subprocess.run(['zstd', '-1', '-c'], input=bytes(64 << 20), stdout=subprocess.PIPE, check=True).stdout
    return packed(2, block, DATA)


TWO = zlib.compress(b'page' * 2048)
DATA = extent(0, 2, 0)
ALL = wire.VERDICTS | wire.ONE_WAY | wire.FILL | wire.LZ4 | wire.ZSTD | wire.ZLIB


@pytest.mark.parametrize('frame,offers,words', [
    (packed(3, TWO, DATA), ALL & ~wire.ZLIB, 'not agreed on'),
    (packed(3, TWO, DATA), wire.VERDICTS | wire.ONE_WAY, 'not agreed on'),
    (packed(0, TWO, DATA), ALL, 'not agreed on'),
    (packed(4, TWO, DATA), ALL, 'not agreed on'),
    (packed(1 << 40 | 3, TWO, DATA), ALL, 'not agreed on'),
    (packed(3, TWO[:-1], DATA), ALL, 'does not unpack'),
    (packed(3, TWO + b'x', DATA), ALL, 'does not unpack'),
    (packed(2, TWO, DATA), ALL, 'does not unpack'),
    (zlib_bomb, ALL, 'does not unpack'),
    (packed(3, zlib.compress(bytes(3 * 4096)), DATA), ALL, 'does not unpack'),
    (packed(3, zlib.compress(bytes(4096)), DATA), ALL, 'does not unpack'),
    (zstd_bomb, ALL, 'does not unpack'),
    (packed(3, os.urandom(8192), DATA), ALL, 'malformed'),
    (packed(3, TWO, extent(1, 2, 0)), ALL, 'malformed'),
    (packed(3, TWO, extent(0, 65, 0)), ALL, 'malformed'),
    (packed(3, TWO, extent(0, 2, 1 << 30)), ALL, 'outside'),
    (wire.frame(wire.RAM, 1, extent(0xcc02, 1, 0)), ALL & ~wire.FILL, 'malformed'),
    (wire.frame(wire.RAM, 1, extent(2, 1, 0)), ALL, 'malformed'),
    (wire.frame(wire.RAM, 1, extent(0x102, 4097, 0)), ALL, 'malformed'),
    (wire.frame(wire.PACKED, 1, DATA + bytes(8)), ALL, 'no sense'),
], ids=['codec-not-offered', 'none-offered', 'number-0', 'number-4', 'number-long', 'cut', 'behind', 'another-codec', 'bomb', 'too-long',
        'too-short', 'zstd-bomb', 'not-smaller', 'no-data', 'too-many', 'outside', 'byte-not-offered', 'byte-0', 'byte-many', 'empty'])
def test_hostile(directory, frame, offers, words):
    frame = frame() if callable(frame) else frame	# what takes long to make only where it is sent

    def speak(control, streams, secret):
        join(control, streams, secret)
        streams[0].sendall(frame)
    refused(strange_sender(directory, speak, offers=offers), 'bad-peer', words)


@pytest.mark.parametrize('at', [10, 24, 30, 40, 44, 48, 60])
def test_cut(directory, at):
    """The link is lost in the middle of a frame: in its header, its extent, its number, its block."""
    def speak(control, streams, secret):
        join(control, streams, secret)
        streams[0].sendall(packed(3, TWO, DATA)[:at])
        streams[0].close()
    refused(strange_sender(directory, speak, offers=ALL), 'link-lost', '')


@pytest.mark.parametrize('which', ['send', 'receive'])
def test_killed(directory, which):
    """kill -9 of either end in the middle of packed RAM: the source is as it was, and moves to another destination."""
    src = source(directory, runs=True)
    dst = godwit.destination(src)
    between = relay.Losing(godwit.TO, rate=2 << 20)
    try:
        run = godwit.Run(src, dst, '--pause', '--compress', 'zstd', '--peer-timeout', '3', to=between.address,
                         receive_options=['--peer-timeout', '3', '--resolve-timeout', '1'])
        between.wait(lambda: between.count.get(wire.PACKED, 0) > 5)
        getattr(run, which).kill()
        run.send.wait()
        run.receive.wait()
    finally:
        between.stop()
    dst.kill()
    godwit.unharmed(src)
    dst = godwit.destination(src, 'dst2')
    assert godwit.Run(src, dst, '--pause', '--compress', 'zstd').wait()['ram']['zstd'] > 1000
    godwit.proof(src, dst)


def test_lost_and_back(directory):
    """--reconnect: what comes again is packed again."""
    src = source(directory)
    dst = godwit.destination(src)
    between = relay.Losing(godwit.TO, rate=2 << 20)
    try:
        run = godwit.Run(src, dst, '--pause', '--compress', 'zlib', '--reconnect', '30', to=between.address,
                         receive_options=['--resolve-timeout', '1'])
        between.wait_acknowledged(run)
        between.lose()
        report = run.wait()
    finally:
        between.stop()
    assert report['reconnects'] == 1 and report['ram']['zlib'] > 500
    arrived(src, dst, report)


def test_set_while_lost(directory):
    """godwit set --compress while there is no link: what the receiver lacks is refused as before, and what it has comes with the link."""
    src = source(directory)
    dst = godwit.destination(src)
    between = relay.Losing(godwit.TO, rate=2 << 20, offers=~wire.ZLIB)
    try:
        run = godwit.Run(src, dst, '--pause', '--compress', 'off', '--reconnect', '30', to=between.address,
                         receive_options=['--resolve-timeout', '1'])
        between.wait_acknowledged(run)
        between.fall()
        run.send.wait_for('trying to connect again')
        run.receive.wait_for('waiting 30 s')
        time.sleep(1)	# a try has failed
        assert 'too old for --compress zlib' in change(src, 'zlib', 'version')
        assert 'compress         lz4\n' in change(src, 'lz4')
        between.rise()
        report = run.wait()
    finally:
        between.stop()
    assert report['reconnects'] == 1 and report['ram']['lz4'] > 500 and not report['ram']['zlib']
    arrived(src, dst, report)


def test_another_receiver_after_the_loss(directory):
    """It lacks the codec: that is said, and nothing is sent that it could not take."""
    src = source(directory, runs=True)
    dst = godwit.destination(src)
    between = relay.Losing(godwit.TO, rate=2 << 20)
    try:
        run = godwit.Run(src, dst, '--pause', '--compress', 'zlib', '--reconnect', '30', '--peer-timeout', '3', to=between.address,
                         receive_options=['--peer-timeout', '3', '--resolve-timeout', '1'])
        between.wait_acknowledged(run)
        between.offers = ~wire.ZLIB
        between.lose()
        assert run.send.wait() == godwit.EXIT['version'] and 'too old for --compress zlib' in run.send.said, run.send.said
        assert not between.count.get(wire.RECONNECT)
        run.kill()
    finally:
        between.stop()
    godwit.unharmed(src)
