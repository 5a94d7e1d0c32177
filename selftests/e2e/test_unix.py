# SPDX-License-Identifier: GPL-2.0-only
"""Over UNIX sockets: a receiver in another container of this host, or the ends of a tunnel (ssh -L), which may break."""
import json
import os
import stat
import sys

import godwit
import pytest
import relay
import sources

APPEND = 'start=16 size=24 touch=24 rate=50'
pytestmark = pytest.mark.native
# A service manager: makes the socket, and becomes the command that follows.
PASS = """
import os, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
os.chmod(sys.argv[1], int(sys.argv[2], 8))
listener.listen()
os.dup2(listener.fileno(), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
os.execv(sys.argv[3], sys.argv[3:])
"""


@pytest.fixture
def pair(directory):
    src = sources.plain(directory, APPEND)
    return src, godwit.destination(src)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / 'receiver')


def receiver(dst, path, *options):
    """Without credentials and without --insecure: no other host reaches it."""
    return godwit.listen(dst, *options, at=f'unix:{path}', side=None)


def migrate(pair, receive, to, *options):
    src, dst = pair
    run = godwit.Run(src, dst, '--pause', *options, receiver=False, to=to)
    run.receive = receive
    return run


@pytest.mark.parametrize('streams', ['1', '16'])
@pytest.mark.parametrize('kind', ['clear', 'creds'])
@pytest.mark.parametrize('io', ['uring', 'poll'])
def test_arrives(pair, path, keys, io, kind, streams):
    receive = receiver(pair[1], path, '--io', io, '--streams', streams, *keys[kind])
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    report = migrate(pair, receive, f'unix:{path}', '--io', io, '--streams', streams, *keys[kind]).wait()
    assert report['verified'] and report['streams'] == int(streams) and report['encrypted'] == (kind == 'creds')
    assert not os.path.exists(path)
    godwit.proof(*pair)


def test_check(pair, path):
    receive = receiver(pair[1], path)
    check = godwit.Process('src', 'check', '--qmp', pair[0].main_qmp, '--to', f'unix:{path}', '--json')
    check.wait()
    assert any('waits with QEMU' in row['text'] and row['result'] == 'ok' for row in json.loads(check.said)['rows']), check.said
    receive.kill(2).wait()
    assert not os.path.exists(path)


class Tunnel(relay.Losing):
    """Between two UNIX sockets."""

    def __init__(self, at, to):
        self.at = at
        super().__init__(to)


def test_reconnect(pair, path):
    """The tunnel breaks. Its end has another path than the receiver's."""
    receive = receiver(pair[1], path, '--resolve-timeout', '1')
    with Tunnel(f'{path}.tunnel', path) as between:
        run = migrate(pair, receive, between.address, '--streams', '2', '--reconnect', '30', '--compress', 'off')
        between.wait_ram(12 << 20)	# both streams have ended a piece, and a part is acknowledged
        assert run.send.poll() is None, run.send.said
        between.lose()
        report = run.wait()
    assert report['reconnects'] == 1 and report['verified'], run.send.said
    godwit.proof(*pair)


def test_not_there(pair, path):
    send = godwit.Process('src', 'send', '--qmp', pair[0].main_qmp, '--pause', f'unix:{path}')
    assert send.wait() == godwit.EXIT['unreachable'] and path in send.said
    send = godwit.Process('src', 'send', '--qmp', pair[0].main_qmp, '--pause', 'unix:receiver')
    assert send.wait() == godwit.EXIT['usage'] and 'unix:/PATH' in send.said
    godwit.unharmed(pair[0])


def test_two_at_one_path(pair, path):
    """The first one has it, and is the one that gets the guest."""
    other = godwit.destination(pair[0], 'dst2')
    receive = receiver(pair[1], path)
    second = godwit.Process('dst', 'receive', '--qmp', other.main_qmp, '--listen', f'unix:{path}')
    assert second.wait() == godwit.EXIT['unreachable'] and 'Address already in use' in second.said
    migrate(pair, receive, f'unix:{path}').wait()
    godwit.proof(*pair)


@pytest.mark.parametrize('mode', ['600', '660', '666'])
def test_passed(pair, path, mode):
    """A service manager's may be for everybody: then credentials are due, or --insecure."""
    enter = [sys.executable, '-c', PASS, path, mode]
    words = 'receive', '--qmp', pair[1].main_qmp
    receive = godwit.Process('dst', *words, enter=enter)
    if mode != '600':
        assert receive.wait() == godwit.EXIT['usage'] and 'SocketMode=0600' in receive.said, receive.said
        os.unlink(path)
        receive = godwit.Process('dst', *words, '--insecure', enter=enter)
    receive.wait_for(f'listening on unix:{path}')
    migrate(pair, receive, f'unix:{path}').wait()
    assert os.path.exists(path)
    godwit.proof(*pair)
