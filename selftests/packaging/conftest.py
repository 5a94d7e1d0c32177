# SPDX-License-Identifier: GPL-2.0-only
"""What takes long and waits for no other test begins before the first one, and runs beside them."""
import os
import subprocess
import sys
import tempfile

import pytest
from helptext import BUILD, DEBS

COMMANDS = {
    'test_lintian': ['lintian', '--allow-root', '--display-info', '--fail-on', 'error,warning,info', *DEBS],
    'test_domain': ['unshare', '--mount', '--pid', '--fork', '--kill-child', '--mount-proc', '--net', sys.executable,
                    os.path.join(os.path.dirname(__file__), 'test_libvirt.py')],
}
TIMEOUT = 300
begun = {}


class Begun:
    """A command that runs; what it says does not wait to be read."""

    def __init__(self, command):
        self.said = tempfile.TemporaryFile('w+')	# pylint: disable=R1732
        self.process = subprocess.Popen(command, stdout=self.said, stderr=subprocess.STDOUT, env={**os.environ, 'B': BUILD})

    def end(self):
        """(exit status, all that it said)"""
        status = self.process.wait(TIMEOUT)
        self.said.seek(0)
        return status, self.said.read()

    def close(self):
        self.process.kill()
        self.process.wait()
        self.said.close()


def pytest_collection_finish(session):
    if not session.config.option.collectonly:
        begun.update((item.name, Begun(COMMANDS[item.name])) for item in session.items if item.name in COMMANDS)


def pytest_sessionfinish():
    for command in begun.values():
        command.close()


@pytest.fixture
def outcome(request):
    """Of the command of this test's name."""
    return begun[request.node.name].end()
