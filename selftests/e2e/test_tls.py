# SPDX-License-Identifier: GPL-2.0-only
"""
TLS: all that travels is encrypted, and each end is the one that it should be; any other is refused in words, at both ends, before anything
is changed. Two QEMUs without KVM and --pause send what a migration sends.
"""
import contextlib
import json
import re
import shutil
import signal
import socket
import ssl
import struct
import time

import credentials
import godwit
import lab
import pytest
import relay
import sources
import wire

APPEND = 'start=16 size=24 touch=24 rate=50'
AT, TO = godwit.AT, godwit.TO
pytestmark = pytest.mark.native


@pytest.fixture
def src(directory):
    return sources.plain(directory, APPEND)


@pytest.fixture
def pair(src):
    return src, godwit.destination(src)


def migrate(pair, how, *options, receive_options=(), **more):
    return godwit.Run(*pair, '--pause', *how, *options, receive_options=[*how, *receive_options], **more)


@pytest.mark.parametrize('streams', ['1', '4'])
@pytest.mark.parametrize('io', ['uring', 'poll'])
@pytest.mark.parametrize('kind', ['creds', 'psk'])
def test_arrives(pair, keys, kind, io, streams):
    run = migrate(pair, keys[kind], '--io', io, '--streams', streams, receive_options=['--io', io])
    report = run.wait()
    assert report['verified'] and report['streams'] == int(streams)
    assert report['encrypted'] and report['cipher'] == 'AES-128-GCM' and report['kernel-tls'] == ('by the kernel' in run.send.said)
    assert 'TLS 1.3   (AES-128-GCM, by ' in run.send.said
    godwit.proof(*pair)


def test_save_mode(pair, keys):
    """QEMU's private RAM and its state go on the streams."""
    report = migrate(pair, keys['creds'], '--device-state', 'save').wait()
    assert report['device-state-saved']
    godwit.proof(*pair, stopped='paused')


class Listening(relay.Relay):
    """Keeps all that passes."""

    def __init__(self, to):
        self.heard = b''
        super().__init__(to, None, lasting=True)

    def _frames(self, a, b):
        with contextlib.suppress(OSError):
            while data := a.recv(1 << 16):
                self.heard += data
                b.sendall(data)
            b.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize('kind', ['clear', 'creds', 'psk'])
def test_nothing_is_in_the_clear(pair, keys, kind):
    """Neither a frame nor a page of what the guest writes, on any connection; without TLS they are all over the place."""
    with Listening(TO) as between:
        migrate(pair, keys[kind], to=between.address).wait()
    frames = between.heard.count(wire.MAGIC.to_bytes(4, 'little'))
    zeros = between.heard.count(bytes(64))
    if kind == 'clear':
        assert frames > 20 and zeros > 100
    else:
        assert len(between.heard) > 8 << 20 and not zeros and frames <= 1, (frames, zeros)
    godwit.proof(*pair)


# Sender, receiver; what the sender says, what the receiver says.
WRONG = [
    ('creds', 'foreign', 'is of another CA', 'another CA has signed'),
    ('foreign', 'creds', 'is of another CA', 'another CA has signed'),
    ('creds', 'revoking', 'this host\'s certificate is revoked', 'the other host\'s certificate is revoked'),
    ('revoking', 'creds', 'the other host\'s certificate is revoked', 'this host\'s certificate is revoked'),
    ('creds', 'elsewhere', f'is not for the name "{TO[0]}"', 'not the one that it expects'),
    ('psk', 'other-psk', 'another pre-shared key', 'with --tls-psk the same file'),
    ('creds', 'psk', 'credentials of another kind', 'different credentials'),
    ('psk', 'creds', 'different credentials', 'credentials of another kind'),
    ('clear', 'creds', 'this receiver uses TLS', 'this receiver uses TLS'),
    ('clear', 'psk', 'this receiver uses TLS', 'this receiver uses TLS'),
    ('creds', 'clear', 'the receiver does not use TLS', 'the sender uses TLS'),
    ('psk', 'clear', 'the receiver does not use TLS', 'the sender uses TLS'),
]


def test_wrong_ends(pair, keys):
    """Each is refused within seconds; the receiver listens on, and the source is as it was. Then a right one comes."""
    src, dst = pair
    for ours, theirs, sender_says, receiver_says in WRONG:
        receive = godwit.listen(dst, *keys[theirs])
        begin = time.monotonic()
        send = godwit.Process('src', 'send', '--qmp', src.main_qmp, '--pause', *keys[ours], AT)
        status = send.wait()
        what = f'{ours} to {theirs}: {status}\n{send.said}\n{receive.said}'
        assert status == godwit.EXIT['tls'], what
        receive.wait_for('rejected a connection')
        assert sender_says in send.said and receiver_says in receive.said, what
        assert time.monotonic() - begin < 20 and receive.poll() is None, what
        receive.kill(signal.SIGINT).wait()
    godwit.unharmed(src)
    migrate(pair, keys['creds']).wait()
    godwit.proof(src, dst)


@pytest.mark.parametrize('says', [b'', b'\x16', b'\x16\x03\x01\x02\x00\x01\x00', b'GW', b'GET / HTTP/1.0\r\n\r\n'],
                         ids=['nothing', 'a byte', 'half a record', 'half a magic', 'http'])
def test_strangers(pair, keys, says):
    """One that stays in the middle of a word holds a sender up for the five seconds of a greeting, and no longer."""
    src, dst = pair
    receive = godwit.listen(dst, *keys['psk'])
    with socket.create_connection(TO) as stranger:
        begin = time.monotonic()
        stranger.sendall(says)
        time.sleep(0.3)
        if says[:3] == b'GET':	# is heard out before a sender comes
            receive.wait_for('rejected a connection')
            assert time.monotonic() - begin < 4
        begin = time.monotonic()
        run = godwit.Run(src, dst, '--pause', *keys['psk'], receiver=False)
        assert run.send.wait() == 0, run.send.said
        took = time.monotonic() - begin
    assert receive.wait() == 0 and 'rejected a connection' in receive.said, receive.said
    assert took < 20, took	# of the 30 of --peer-timeout
    godwit.proof(src, dst)


def test_a_name_of_its_own(pair, keys):
    """The certificate is for another name than the one in the address, and the operator says so."""
    src, dst = pair
    receive = godwit.listen(dst, *keys['elsewhere'])
    run = godwit.Run(src, dst, '--pause', *keys['creds'], '--tls-hostname', 'elsewhere.example', receiver=False)
    assert run.send.wait() == 0, run.send.said
    assert receive.wait() == 0, receive.said
    godwit.proof(src, dst)


@pytest.mark.parametrize('number', [0, 1, 2], ids=['control', 'stream 0', 'stream 1'])
@pytest.mark.parametrize('kind', ['creds', 'psk'])
def test_a_byte_is_changed(pair, keys, kind, number):
    """On the way. No byte of that record is used, both ends say why, and the source runs on."""
    with relay.Sealed(TO) as between:
        run = migrate(pair, keys[kind], '--streams', '2', '--compress', 'off', to=between.address, receive_options=['--resolve-timeout', '1'])
        between.wait_ram(4 << 20)
        assert run.send.poll() is None, run.send.said
        between.change = number
        assert run.send.wait() == godwit.EXIT['tls'], run.send.said
        assert run.receive.wait() == godwit.EXIT['tls'], run.receive.said
    assert 'a record was changed on the way' in run.send.said and 'a record was changed on the way' in run.receive.said
    godwit.unharmed(pair[0])


@pytest.mark.parametrize('which', [slice(None), slice(1), slice(1, 2)], ids=['all', 'control', 'stream'])
def test_reconnect(pair, keys, which):
    """By a number, while the certificate is for a name: the name that the operator gave counts."""
    with relay.Sealed(TO) as between:
        run = migrate(pair, keys['creds'], '--streams', '2', '--reconnect', '30', '--compress', 'off', to=between.address,
                      receive_options=['--resolve-timeout', '1'])
        between.wait_ram(12 << 20)	# both streams have ended a piece, and a part is acknowledged
        assert run.send.poll() is None, run.send.said
        between.lose(which)
        report = run.wait()
    assert report['reconnects'] == 1 and report['verified'], run.send.said
    godwit.proof(*pair)


def test_cut(pair, keys):
    """A stream ends in the middle: the link is lost, and nothing else is said of it."""
    with relay.Sealed(TO) as between:
        run = migrate(pair, keys['psk'], '--streams', '2', '--compress', 'off', to=between.address, receive_options=['--resolve-timeout', '1'])
        between.wait_ram(4 << 20)
        between.lose(slice(1, 2))
        # The end that sees it first says so to the other.
        assert run.send.wait() in (godwit.EXIT['link-lost'], godwit.EXIT['peer-failed']), run.send.said
        assert run.receive.wait() in (godwit.EXIT['link-lost'], godwit.EXIT['peer-failed']), run.receive.said
    assert 'TLS:' not in run.send.said + run.receive.said
    godwit.unharmed(pair[0])


KEEPS = [lambda n: 0, lambda n: 3, lambda n: n // 2, lambda n: n - 1]	# nothing, a part of the head, half, all but a byte
# The end that sees it first says so to the other; that one of several streams does not come in its place is found by waiting for it.
LOST = [godwit.EXIT[status] for status in ('link-lost', 'peer-failed', 'timeout')]


def cut_in_a_record(src, credentials, number, record):
    """
    Of connection number so many, the first ones are the handshake. A receiver that has taken nobody listens on; no other ends well, and
    none takes what has passed of the record for all of it.
    """
    with relay.Cut(TO, number, record, KEEPS[(record + 1) % len(KEEPS)]) as between:
        run = migrate((src, godwit.destination(src)), credentials, '--streams', '2', '--compress', 'off', '--peer-timeout', '3',
                      to=between.address, receive_options=['--peer-timeout', '3', '--resolve-timeout', '1'])
        status, what = run.send.wait(), f'record {record}: {run.send.said}'
        assert between.done.is_set() and status in LOST, what
        run.receive.wait_until(lambda: run.receive.poll() is not None or 'rejected a connection' in run.receive.said, 'word', 60)
        what += run.receive.said
        if run.receive.poll() is None:
            assert number == 0, what
            run.receive.kill(signal.SIGINT).wait()
        else:
            assert run.receive.poll() in LOST, what
        assert 'changed on the way' not in what, what
    return run


@pytest.mark.parametrize('kind, number, records', [('creds', 0, range(8)), ('psk', 1, [1, *range(30, 34)])], ids=['control', 'stream'])
def test_cut_in_a_record(src, keys, kind, number, records):
    for record in records:
        cut_in_a_record(src, keys[kind], number, record)
    godwit.unharmed(src)


@pytest.mark.parametrize('side', ['send', 'receive'])
def test_killed(pair, keys, side):
    with relay.Sealed(TO) as between:
        run = migrate(pair, keys['creds'], '--compress', 'off', to=between.address, receive_options=['--resolve-timeout', '1'])
        between.wait_ram(4 << 20)
        victim, other = (run.send, run.receive) if side == 'send' else (run.receive, run.send)
        victim.kill().wait()
        assert other.wait() == godwit.EXIT['link-lost'], other.said
    godwit.unharmed(pair[0])


def test_resolve(pair, keys):
    """In doubt: the receiver is asked over TLS as well; one without credentials learns nothing, and changes nothing."""
    src, dst = pair
    between = relay.Sealed(TO, rate=10 << 20)
    try:
        run = migrate(pair, keys['creds'], '--resolve-timeout', '1', '--peer-timeout', '8', '--compress', 'off', to=between.address,
                      receive_options=['--resolve-timeout', '60'])
        # QEMU takes no state, so the receiver has no answer when the sender has sent all.
        while src.query_status() == 'running':
            assert run.send.poll() is None, run.send.said
            time.sleep(0.02)
        dst.process.send_signal(signal.SIGSTOP)
        run.wait_status('completed')
        time.sleep(0.5)
        between.silent.update(far for _, far in between.pairs)
        between.down = True
        dst.process.send_signal(signal.SIGCONT)
        assert run.send.wait() == godwit.EXIT['unknown'], run.send.said
    finally:
        between.stop()
    clear = godwit.Process('src', 'resolve', '--qmp', src.main_qmp, '--resolve-timeout', '1', '--to', AT)
    assert clear.wait() == godwit.EXIT['unknown'] and 'this receiver uses TLS' in clear.said, clear.said
    proper = godwit.Process('src', 'resolve', '--qmp', src.main_qmp, '--resolve-timeout', '10', '--to', AT, *keys['creds'])
    assert proper.wait() == 0 and 'is at the destination' in proper.said, proper.said
    assert run.receive.wait() == 0, run.receive.said
    godwit.proof(src, dst)


def secure(keys, port):
    """A connection of one that has a client's certificate of the same CA."""
    path = keys['creds'][1]
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=f'{path}/ca-cert.pem')
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(f'{path}/client-cert.pem', f'{path}/client-key.pem')
    peer = context.wrap_socket(socket.create_connection(('127.0.0.1', port)), server_hostname='127.0.0.1')
    peer.settimeout(30)
    return peer


def exactly(peer, n):
    data = b''
    while len(data) < n:
        more = peer.recv(n - len(data))
        assert more, data
        data += more
    return data


def test_the_secret_alone_joins_nothing(directory, keys):
    """Another TLS, with good credentials, that shows READY's own secret, not what the control session makes of it."""
    lab.net()
    dst = lab.Qemu('dst', None, directory=directory, append=APPEND, incoming=True)
    dst.query_status()
    receive = godwit.listen(dst, *keys['creds'], '--peer-timeout', '3', '--resolve-timeout', '1', at='127.0.0.1:4435', side=None)
    with secure(keys, 4435) as control:
        control.sendall(wire.hello(offers=wire.VERDICTS | wire.ONE_WAY | wire.RECONNECTS) +
                        wire.frame(wire.BLOCKS, 1, struct.pack('<QQIHH', 128 << 8, 0, 4096, 4, 0) + b'ram0'))
        answer = exactly(control, 80)	# HELLO and READY
        assert wire.HEADER.unpack(answer[40:64])[1] == wire.READY, answer
        control.sendall(wire.frame(wire.STREAMS, 1))
        with secure(keys, 4435) as stream:
            stream.sendall(wire.frame(wire.JOIN, 0, answer[64:]))
            with contextlib.suppress(OSError):
                assert not stream.recv(1), 'it has joined'
            assert receive.wait() == godwit.EXIT['timeout'], receive.said
    assert 'only some of the sender' in receive.said, receive.said
    godwit.never_ran(dst)


def test_check_tells(pair, keys):
    src, dst = pair
    receive = godwit.listen(dst, *keys['creds'])
    check = godwit.Process('src', 'check', '--qmp', src.main_qmp, '--pause', '--probe', '100', '--json', '--to', AT, *keys['creds'])
    check.wait()
    rows = {row['check']: row for row in json.loads(check.said)['rows']}
    assert re.search(r'TLS 1\.3 with AES-128-GCM, records by .*CN=the server, which expires on \d{4}-\d\d-\d\d',
                     rows['encryption']['text']), check.said
    assert 'CN=the client' in rows['credentials']['text'], check.said
    assert receive.poll() is None
    receive.kill(signal.SIGINT).wait()


def test_other_addresses_need_credentials(pair, keys):
    """And the refusal says how to make some."""
    _, dst = pair
    for options, status in ([], 'usage'), (keys['psk'], None), (keys['creds'], None):
        receive = godwit.Process('dst', 'receive', '--qmp', dst.main_qmp, '--listen', '0.0.0.0:4439', *options)
        if status:
            assert receive.wait() == godwit.EXIT[status], receive.said
            assert 'psktool' in receive.said and 'scp' in receive.said and 'godwit.psk' in receive.said
        else:
            receive.wait_for('listening').kill(signal.SIGINT).wait()


@pytest.mark.parametrize('name', ['godwit', 'qemu'])
def test_a_directory_that_is_there(pair, keys, name):
    """Certificates at the usual place are used without an option, at both ends, which say so; --insecure goes without."""
    src, dst = pair
    enter = ['unshare', '-m', 'sh', '-c', f'mount -t tmpfs none /etc && mkdir /etc/pki && cp -r {keys["creds"][1]} /etc/pki/{name} &&'
             'exec "$0" "$@"']
    says = f'TLS with the credentials in /etc/pki/{name}'
    receive = godwit.Process('dst', 'receive', '--qmp', dst.main_qmp, '--listen', '0.0.0.0:4433', enter=enter).wait_for('listening')
    clear = godwit.Process('src', 'send', '--qmp', src.main_qmp, '--pause', '--insecure', AT, enter=enter)
    assert clear.wait() == godwit.EXIT['tls'] and 'this receiver uses TLS' in clear.said and says not in clear.said, clear.said
    godwit.unharmed(src)
    send = godwit.Process('src', 'send', '--qmp', src.main_qmp, '--pause', '--verify', AT, enter=enter)
    assert send.wait() == 0 and says in send.said and 'TLS 1.3' in send.said, send.said
    assert receive.wait() == 0 and says in receive.said, receive.said
    godwit.proof(src, dst)


def test_own_certificate_is_revoked(pair, keys, tmp_path):
    """It would be refused everywhere: said before anybody is asked."""
    mine = str(tmp_path / 'mine')
    shutil.copytree(keys['creds'][1], mine)
    shutil.copy(f'{keys["revoking"][1]}/ca-crl.pem', mine)
    for words in (['receive', '--qmp', pair[1].main_qmp, '--listen', AT], ['send', '--qmp', pair[0].main_qmp, '--pause', AT]):
        p = godwit.Process('src', *words, '--tls-creds', mine)
        assert p.wait() == godwit.EXIT['tls'] and 'ca-crl.pem says that it is revoked' in p.said, p.said
    godwit.unharmed(pair[0])


def listen_briefly(dst, ca, top):
    """A receiver that listens, its certificate, and when that expires: soon, but not before a host that is overrun has started it."""
    for seconds in (4, 8, 16, 32):
        expires = int(time.time()) + seconds
        brief = ca.directory(f'{top}/{seconds}', expires=expires)
        receive = godwit.receive(dst, '--tls-creds', brief)
        with contextlib.suppress(RuntimeError):
            return receive.wait_for('listening'), brief, expires
        assert receive.wait() == godwit.EXIT['tls'] and 'it has expired' in receive.said, receive.said
    raise TimeoutError('no receiver listens within 32 s')


def test_expired(pair, tmp_path):
    """
    The receiver's expires while it listens: both ends say so, the sender changes nothing. One's own that has expired is said before
    anybody is asked. A new one of the same CA is all that it takes.
    """
    src, dst = pair
    ca = credentials.Authority(f'{tmp_path}/ca', 'ours')
    good = ca.directory(f'{tmp_path}/good')
    receive, brief, expires = listen_briefly(dst, ca, tmp_path)
    time.sleep(max(0, expires + 1.5 - time.time()))
    send = godwit.Process('src', 'send', '--qmp', src.main_qmp, '--pause', '--tls-creds', good, AT)
    assert send.wait() == godwit.EXIT['tls'] and 'the other host\'s certificate has expired' in send.said, send.said
    receive.wait_for('rejected a connection')
    assert 'this host\'s certificate has expired' in receive.said and receive.poll() is None, receive.said
    receive.kill(signal.SIGINT).wait()
    for words in (['receive', '--qmp', dst.main_qmp, '--listen', AT], ['send', '--qmp', src.main_qmp, '--pause', AT]):
        p = godwit.Process('src', *words, '--tls-creds', brief)
        assert p.wait() == godwit.EXIT['tls'] and 'it has expired: make a new one' in p.said, p.said
    godwit.unharmed(src)
    migrate(pair, ['--tls-creds', good]).wait()
    godwit.proof(src, dst)
