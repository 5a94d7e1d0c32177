# SPDX-License-Identifier: GPL-2.0-only
"""Where godwit's words go is no matter of the guest's: a terminal that is held, a pipe that is not read, files that are closed."""
import fcntl
import os
import pty
import termios
import time

import godwit
import lab
import pytest
from ours import proved
from paused import send, source

pytestmark = pytest.mark.native


class Held:
    """A godwit command whose standard output and error go to a terminal that is held (Ctrl-S), or to a pipe that is full."""

    def __init__(self, kind, *words):
        if kind == 'terminal':
            self.end, self.to = pty.openpty()
            termios.tcflow(self.to, termios.TCOOFF)
        else:
            self.end, self.to = os.pipe()
            os.set_blocking(self.to, False)
            os.write(self.to, b'x' * fcntl.fcntl(self.to, fcntl.F_GETPIPE_SZ))
            os.set_blocking(self.to, True)
        self.kind = kind
        self.process = lab.popen('src', [lab.near(godwit.GODWIT), *words], stdout=self.to, stderr=self.to)

    pid = property(lambda self: self.process.pid)

    def ends(self):
        """It is read again; its status, and what it says then."""
        if self.kind == 'terminal':
            termios.tcflow(self.to, termios.TCOON)
        os.close(self.to)
        said = b''
        try:
            while data := os.read(self.end, 65536):
                said += data
        except OSError:	# a terminal that no process has any more
            pass
        os.close(self.end)
        return self.process.wait(60), said.lstrip(b'x').decode()


@pytest.mark.parametrize('progress', ['auto', 'json'])
@pytest.mark.parametrize('kind', ['terminal', 'pipe'])
def test_output_is_held(directory, kind, progress):
    """The guest, which stands still meanwhile, does not wait for the reader: it runs at the destination while that is away."""
    src = source(directory)
    dst = godwit.destination(src)
    there = godwit.listen(dst)
    here = Held(kind, 'send', '--qmp', src.main_qmp, '--pause', '--progress', progress, godwit.AT)
    try:
        proved(there.wait(60) == 0 and dst.has_run(), there.said)
    finally:
        status, said = here.ends()
    assert status == 0 and ('"status":"ok"' if progress == 'json' else 'migrated\n') in said.replace('\r', ''), said
    godwit.proof(src, dst)


@pytest.mark.parametrize('kind', ['terminal', 'pipe'])
def test_the_receivers_output_is_held(directory, kind):
    src = source(directory)
    dst = godwit.destination(src)
    there = Held(kind, 'receive', '--qmp', dst.main_qmp, '--listen', godwit.AT)
    try:
        while not godwit.at_port(there.pid, 'listening'):
            time.sleep(0.05)
        here = send(src, '--peer-timeout', '10')
        assert here.wait(60) == 0, here.said
    finally:
        status, said = there.ends()
    assert status == 0 and 'godwit: received in ' in said, said
    godwit.proof(src, dst)


@pytest.mark.parametrize('end', ['send', 'receive'])
@pytest.mark.parametrize('closed', ['>&-', '>&- 2>&-'])
def test_standard_files_are_closed(directory, end, closed):
    """What is said goes nowhere, and not into QEMU's monitor, the stream or a guest's RAM, which would have the numbers."""
    src = source(directory)
    dst = godwit.destination(src)
    enter = {end: ['sh', '-c', f'exec "$@" {closed}', 'sh']}
    there = godwit.receive(dst, enter=enter.get('receive', ()))
    there.wait_until(lambda: godwit.at_port(there.pid, 'listening'), 'port', 60)
    here = godwit.Process('src', 'send', '--qmp', src.main_qmp, '--pause', '--peer-timeout', '5', '--progress', 'json', godwit.AT,
                          enter=enter.get('send', ()))
    src.sender = here
    assert here.wait(60) == 0 and there.wait(60) == 0, here.said + there.said
    godwit.proof(src, dst)


# A job in the background of a terminal where the operator has said so: whoever of it writes there stops, unless it ignores that.
BACKGROUND = ['setsid', '--wait', 'bash', '-c', 'exec 0<>/proc/self/fd/1; stty tostop; set -m; "$@" & wait $!', 'bash']


@pytest.mark.parametrize('end', ['send', 'receive'])
def test_in_the_background_of_a_terminal(directory, end):
    """As after Ctrl-Z and "bg": the guest does not wait until somebody says "fg"."""
    src = source(directory)
    dst = godwit.destination(src)
    of = {end: {'enter': BACKGROUND, 'columns': 80}}
    there = godwit.receive(dst, '--peer-timeout', '5', **of.get('receive', {}))
    there.wait_until(lambda: godwit.at_port(there.pid, 'listening'), 'port', 60)
    here = godwit.Process('src', 'send', '--qmp', src.main_qmp, '--pause', '--peer-timeout', '5', godwit.AT, **of.get('send', {}))
    src.sender = here
    assert here.wait(60) == 0 and there.wait(60) == 0, here.said + there.said
    assert 'migrated' in here.said and 'received in' in there.said, here.said + there.said
    godwit.proof(src, dst)


FULL = ['sh', '-c', 'exec "$@" >/dev/full', 'sh']


def test_the_disk_is_full(directory):
    """What a command is for has not been done where it cannot be printed; a guest that has moved has moved."""
    src = source(directory)
    for words in (['check', '--qmp', src.main_qmp, '--pause', '--json'], ['--version']):
        p = godwit.Process('src', *words, enter=FULL)
        assert p.wait() == godwit.EXIT['internal'] and 'standard output' in p.said, p.said
    dst = godwit.destination(src)
    there = godwit.listen(dst)
    here = godwit.Process('src', 'send', '--qmp', src.main_qmp, '--pause', godwit.AT, enter=FULL)
    src.sender = here
    assert here.wait() == 0 and there.wait() == 0 and 'standard output' in here.said, here.said
    godwit.proof(src, dst)
