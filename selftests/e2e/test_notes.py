# SPDX-License-Identifier: GPL-2.0-only
"""
What godwit notes in /run/godwit for whoever goes on after a death: a migration that needs its note is refused where there is no
room for one; and who goes on looks at the source as a sender does that did not die.
"""
import contextlib
import glob
import json
import os
import socket
import threading
import time

import godwit
import lab
import pytest
import wire
from ours import proved
from paused import source
from strangers import receive_exactly

pytestmark = pytest.mark.native
NOTES = '/run/godwit'
TOKEN = bytes(range(16))


@contextlib.contextmanager
def full():
    """Not a page is left there, and files without one can be made."""
    with lab.mounted('tmpfs', 'size=4k,mode=700', NOTES):
        with open(f'{NOTES}/fill', 'wb') as f:
            f.write(bytes(4096))
        yield


def test_no_room_for_post_copy(directory):
    """If the sender were killed later nobody could send what only the source has."""
    src = source(directory)
    dst = godwit.destination(src)
    with full():
        run = godwit.Run(src, dst, '--pause', '--postcopy', 'on', verify=False)
        assert run.send.wait() == godwit.EXIT['no-room'], run.send.said
        assert 'no note of post-copy can be made in /run/godwit (No space left on device)' in run.send.said, run.send.said
        run.receive.wait()
        godwit.unharmed(src)
        assert not glob.glob(f'{NOTES}/doubt-*')


def test_no_room(directory):
    """Without post-copy it goes on, and both ends say what is missing."""
    src = source(directory)
    dst = godwit.destination(src)
    with full():
        run = godwit.Run(src, dst, '--pause')
        run.wait()
        assert 'cannot write a note in /run/godwit (No space left on device)' in run.send.said, run.send.said
        assert 'cannot keep a record in /run/godwit (No space left on device)' in run.receive.said, run.receive.said
        godwit.proof(src, dst)


def completes(at, connected, go_on):
    """A receiver that has all RAM of that guest by now; it says so when the test lets it."""
    def run():
        with socket.create_server(at) as server:
            connected.set()
            with server.accept()[0] as peer:
                peer.settimeout(60)
                peer.sendall(wire.hello(offers=wire.VERDICTS | wire.ONE_WAY | wire.POSTCOPY))
                receive_exactly(peer, len(wire.hello()))
                kind, = receive_exactly(peer, wire.HEADER.size)[4:5]
                assert kind == wire.RECOVER
                receive_exactly(peer, 16)
                connected.set()
                assert go_on.wait(60)
                peer.sendall(wire.frame(wire.COMPLETE))
                while peer.recv(4096):
                    pass
    thread = threading.Thread(target=run)
    thread.start()
    assert connected.wait(30)
    connected.clear()
    return thread


def noted(src, **more):
    """A sender of it has ended in post-copy, and left this note."""
    with open(f'/proc/{src.pid}/stat', encoding='ascii') as f:
        began = f.read().rpartition(')')[2].split()[19]
    note = f'{NOTES}/doubt-{src.pid}-{began}'
    os.makedirs(NOTES, exist_ok=True)
    with open(note, 'w', encoding='ascii') as f:
        json.dump({'receiver': ':'.join(map(str, godwit.TO)), 'token': f'verdict-{TOKEN.hex()}', 'ran': True, 'paused': False, 'undo': [],
                   **more}, f)
    return note


@pytest.mark.parametrize('continued', [(), ('cont',), ('cont', 'stop')])
def test_another_client_continues_the_source(directory, continued):
    """While `send --recover` sends what is missing: the guest runs twice then, and the end must say so."""
    src = source(directory)
    note = noted(src)
    src.qmp('stop')
    connected, go_on = threading.Event(), threading.Event()
    peer = completes(godwit.TO, connected, go_on)
    send = godwit.Process('src', 'send', '--recover', '--qmp', src.main_qmp, godwit.AT)
    assert connected.wait(60), send.said
    for command in continued:
        src.qmp(command)
    go_on.set()
    status = send.wait()
    peer.join()
    if continued:
        words = 'and stopped it again' if 'stop' in continued else 'runs at the destination AND here'
        proved(status == godwit.EXIT['ran-twice'] and words in send.said, send.said)
    else:
        assert status == 0 and src.query_status() == 'paused', send.said
    # All RAM is there: nothing is left to resolve, or to send.
    assert not os.path.exists(note)


@pytest.mark.parametrize('left', ['paused', 'postmigrate'])
def test_what_has_run_here_is_not_sent(directory, left):
    """Nobody was there when another client continued the guest, and stopped it again. What it is now is not what the commit left."""
    src = source(directory)
    note = noted(src, state=left)
    src.qmp('stop')
    send = godwit.Process('src', 'send', '--recover', '--qmp', src.main_qmp, '--recover-timeout', '2', godwit.AT)
    if left == 'paused':
        assert send.wait() == godwit.EXIT['incomplete'], send.said
    else:
        proved(send.wait() == godwit.EXIT['ran-twice'] and 'none of it is sent' in send.said, send.said)
    assert os.path.exists(note)


def sent_elsewhere(src):
    """By QEMU itself, to nobody. What QEMU says of that, as a sender records it."""
    src.qmp('migrate', uri='exec:cat >/dev/null')
    end = time.monotonic() + 90
    while src.query_status() != 'postmigrate':
        assert time.monotonic() < end, src.qmp('query-migrate')
        time.sleep(0.1)
    told = src.qmp('query-migrate')
    return {'total-ms': told['total-time'], 'downtime-ms': told['downtime'], 'bytes': told['ram']['transferred']}


def test_what_was_sent_once_more_is_not_sent(directory):
    """It is "postmigrate" as the commit left it, but another client has continued it, and sent it elsewhere, since."""
    src = source(directory)
    ours = sent_elsewhere(src)
    note = noted(src, state='postmigrate', undo=[{'more': 'completed', 'running': True, 'identity': ours}])
    ask = 'send', '--recover', '--qmp', src.main_qmp, '--recover-timeout', '2', godwit.AT
    send = godwit.Process('src', *ask)
    assert send.wait() == godwit.EXIT['incomplete'], send.said
    src.qmp('cont')
    assert sent_elsewhere(src) != ours
    send = godwit.Process('src', *ask)
    proved(send.wait() == godwit.EXIT['ran-twice'] and 'none of it is sent' in send.said, send.said)
    assert os.path.exists(note)
