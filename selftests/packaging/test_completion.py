# SPDX-License-Identifier: GPL-2.0-only
"""What Tab offers in bash and zsh: every command, option and word that there is, and no other."""
import os
import pty
import re
import select
import subprocess
import termios
import time

import pytest
from helptext import BUILD, COMMANDS, WORDS, options

BASH = r'''
. /usr/share/bash-completion/bash_completion
. "$1/completion/godwit.bash"
shift
COMP_LINE=$*
COMP_POINT=${#COMP_LINE}
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_godwit
printf '%s\n' "${COMPREPLY[@]}"
'''
PACKAGING = f'{BUILD}/packaging'
# A terminal wide and high enough to list all at once, and a key that says what the line has become.
ZSH = r'''
PROMPT= RPROMPT= LISTMAX=0; stty cols 500 rows 200 -echo; unsetopt prompt_sp; setopt no_beep
zstyle ':completion:*' verbose no
fpath=(%s/completion $fpath); autoload -U compinit; compinit -D -u
told() { print -r -- "<$BUFFER>"; BUFFER=; zle redisplay }
zle -N told; bindkey '^X' told; print ready
'''
# A virsh that knows two domains.
STUBS = f'{BUILD}/packaging-stubs'
ENVIRONMENT = {'PATH': f'{BUILD}:{STUBS}:/usr/sbin:/usr/bin:/sbin:/bin', 'TERM': 'dumb', 'HOME': '/nonexistent', 'LANG': 'C'}


def bash(*words):
    done = subprocess.run(['bash', '-c', BASH, 'bash', PACKAGING, *words], env=ENVIRONMENT, capture_output=True, text=True,
                          check=False, timeout=30)
    assert not done.stderr, done.stderr
    return set(done.stdout.split())


class Zsh:
    """An interactive zsh on a terminal of its own."""

    def __init__(self):
        self.pid, self.fd = pty.fork()
        if not self.pid:
            os.execvpe('zsh', ['zsh', '-f', '-i'], ENVIRONMENT)
        attributes = termios.tcgetattr(self.fd)
        attributes[3] &= ~termios.ECHO
        termios.tcsetattr(self.fd, termios.TCSANOW, attributes)
        os.write(self.fd, (ZSH % PACKAGING).encode())
        self.read_until(r'ready')

    def read_until(self, pattern):
        said, end = '', time.monotonic() + 30
        while not re.search(pattern, said):
            assert select.select([self.fd], [], [], end - time.monotonic())[0], f'no {pattern} from zsh: {said}'
            said += os.read(self.fd, 65536).decode(errors='replace')
        return said

    def complete(self, text):
        """What it lists or inserts."""
        os.write(self.fd, f'{text}\t\t\x18'.encode())
        return set(re.findall(r'[\w./-]+', self.read_until(r'<[^>]*>').replace(text, ' ', 1)))

    def close(self):
        os.close(self.fd)
        os.waitpid(self.pid, 0)


@pytest.fixture(scope='module')
def virsh():
    """Two domains. Before a shell begins, which remembers where commands are."""
    os.makedirs(STUBS, exist_ok=True)
    with open(f'{STUBS}/virsh', 'w', encoding='ascii') as f:
        f.write('#!/bin/sh\n[ "$*" = "-q list --name" ] && printf "web-1\\ndatabase\\n\\n"\n')
    os.chmod(f'{STUBS}/virsh', 0o755)


@pytest.fixture(scope='module')
def zsh(virsh):	# pylint: disable=W0613,W0621
    shell = Zsh()
    yield lambda *words: shell.complete(' '.join(words))
    shell.close()


@pytest.fixture(params=['bash', 'zsh'])
def complete(request):
    return bash if request.param == 'bash' else request.getfixturevalue('zsh')


def test_commands(complete):
    assert complete('godwit', '') >= COMMANDS | {'--help', '--version'}
    assert complete('godwit', 're') >= {c for c in COMMANDS if c.startswith('re')}


@pytest.mark.parametrize('command', sorted(COMMANDS))
def test_options(complete, command):
    offered = {word for word in complete('godwit', command, '--') if word.startswith('--')} - {'--'}
    assert offered == options(command)


@pytest.mark.parametrize('command,option', WORDS, ids=lambda case: case if isinstance(case, str) else case.name)
def test_words(complete, command, option):
    # zsh shows the line again, and completes what the words begin with.
    line = {'godwit', command, option.name, os.path.commonprefix(option.words)} - set(option.words)
    assert complete('godwit', command, option.name, '') - line == set(option.words)
    last = option.words[-1]
    assert last in complete('godwit', command, option.name, last[:-1])
    if option.value:
        offered = complete('godwit', command, option.name, f'{option.words[0]},{last[:-1]}')
        assert last in {word.rpartition(',')[2] for word in offered}


@pytest.mark.usefixtures('virsh')
def test_domains(complete):
    for command in 'send', 'check', 'estimate':
        assert {'web-1', 'database'} <= complete('godwit', command, '--domain', '')
        assert 'database' not in complete('godwit', command, '--domain', 'we')


def test_values(complete, tmp_path):
    (tmp_path / 'guest.qmp').touch()
    for words in (('receive', '--qmp'), ('send', '--control'), ('send', '--metrics'), ('report', '--output'), ('report',)):
        assert [word for word in complete('godwit', *words, f'{tmp_path}/gue') if word.endswith('guest.qmp')], words
    # An address is no file.
    assert not [word for word in complete('godwit', 'receive', '--listen', f'{tmp_path}/gue') if word.endswith('guest.qmp')]
    # A flag has none: what comes next is an option again.
    assert '--verify' in complete('godwit', 'send', '--pause', '--verif')
