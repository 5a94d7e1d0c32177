# SPDX-License-Identifier: GPL-2.0-only
"""
What is fetched survives a network that fails, and says why it gave up: deps.sh, kernels/root.sh and kselftest/framework, with
nothing of apt's, and with apt itself. And each target asks for all that it needs, on a machine that has nothing, before what needs it.
"""
import hashlib
import http.server
import importlib.machinery
import importlib.util
import io
import os
import shutil
import subprocess
import tarfile
import threading

import pytest

SELFTESTS = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
WHY = 'E: Failed to fetch: connection reset by peer'
# In the place of a program: fails so often, then does its work.
FLAKY = f'''#!/bin/sh
echo "$0 $*" >>"$CALLS"
if [ "$(grep -c "$0 {{when}}" "$CALLS")" -le "$FAILURES" ]; then
	{{half}}
	echo "{WHY}" >&2
	exit 100
fi
{{work}}
'''
QUICK = {
    'sleep': 'echo "sleep $*" >>"$CALLS"',
    'id': 'echo 0',
    'unshare': 'shift; exec "$@"',
}
# Nothing is installed until apt-get has done it.
DPKG_QUERY = '[ -e "$CALLS.installed" ] && printf installed'
# The directory is its last argument but one. It must not find what a try before has left.
MMDEBSTRAP = {
    'half': 'for part; do case $part in *.part) mkdir -p "$part/half" ;; esac; done',
    'work': 'for part; do case $part in *.part) mkdir "$part" "$part/etc" || exit 9 ;; esac; done',
}


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """make(name, script): a program that is found first."""
    monkeypatch.setenv('PATH', f'{tmp_path}/bin:{os.environ["PATH"]}')
    monkeypatch.setenv('CALLS', f'{tmp_path}/calls')
    monkeypatch.setenv('XDG_CACHE_HOME', f'{tmp_path}/cache')
    (tmp_path / 'bin').mkdir()

    def make(name, script):
        path = tmp_path / 'bin' / name
        path.write_text(script if script.startswith('#!') else f'#!/bin/sh\n{script}\n', encoding='ascii')
        path.chmod(0o755)
    for name, script in QUICK.items():
        make(name, script)
    return make


def run(tmp_path, failures, *words):
    """(exit status, what was said to stderr, how often each program was called)."""
    calls = tmp_path / 'calls'
    calls.write_text('', encoding='ascii')
    done = subprocess.run([f'{SELFTESTS}/{words[0]}', *words[1:]], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False, env={**os.environ, 'FAILURES': str(failures)})
    named = [line.replace(f'{tmp_path}/bin/', '') for line in calls.read_text(encoding='utf-8').splitlines()]
    return done.returncode, done.stdout + done.stderr, named


def tries(said):
    return [n for n in (1, 2, 3) if f'try {n} of 3' in said]


@pytest.mark.parametrize('what', ['update', 'install'])
@pytest.mark.parametrize('failures', [0, 1, 2, 3])
def test_deps(tmp_path, programs, what, failures):
    """The whole step is tried again, also where the lists came and a package did not."""
    install = 'case $1 in install) >"$CALLS.installed" ;; esac'
    programs('apt-get', f'#!/bin/sh\n[ "$1" = {what} ] || {{ echo "$0 $*" >>"$CALLS"; {install}; exit; }}\n' +
             FLAKY.format(when=what, half=':', work=install))
    programs('dpkg-query', DPKG_QUERY)
    status, said, calls = run(tmp_path, failures, 'deps.sh', 'lab')
    assert status == (failures == 3), said
    assert tries(said) == list(range(1, failures + 1)) and said.count(WHY) == failures
    rounds = min(failures + 1, 3)
    assert sum(c.startswith('apt-get update -o APT::Update::Error-Mode=any') for c in calls) == rounds
    assert sum(c.startswith('apt-get install -y') and ' mmdebstrap' in c for c in calls) == \
        (rounds if what == 'install' else failures < 3)
    assert sum(c.startswith('sleep') for c in calls) == rounds - 1
    # And is not done again where all is here.
    if not status:
        assert run(tmp_path, 0, 'deps.sh', 'lab') == (0, '', [])


@pytest.mark.parametrize('failures', [0, 1, 2, 3])
def test_root(tmp_path, programs, failures):
    """Another Debian is there whole or not at all."""
    programs('mmdebstrap', FLAKY.format(when='--mode', **MMDEBSTRAP))
    root = f'{tmp_path}/cache/godwit/roots/qemu'
    status, said, calls = run(tmp_path, failures, 'kernels/root.sh', 'qemu')
    assert status == (failures == 3), said
    assert tries(said) == list(range(1, failures + 1)) and said.count(WHY) == failures
    assert sum(c.startswith('mmdebstrap') for c in calls) == min(failures + 1, 3)
    assert all('Acquire::Retries::Delay "false"' in c for c in calls if c.startswith('mmdebstrap'))
    assert os.path.exists(f'{root}/etc/godwit-root') == os.path.exists(root) == (failures < 3)
    assert not os.path.exists(f'{root}/half')
    if status:
        assert run(tmp_path, 0, 'kernels/root.sh', 'qemu')[0] == 0, 'a later run does not get it'
    assert run(tmp_path, 3, 'kernels/root.sh', 'qemu') == (0, f'{root}\n', [])


SOURCE = 'linux-source-6.1'
TOOLS = [f'testing/selftests/{name}' for name in ('a.h', 'lib.mk', 'a.sh', 'kselftest/a', 'kvm/a', 'rseq/a')] + \
        ['arch/x86/a', 'build/a', 'include/a', 'scripts/a', 'lib/a.c']


def archive(files, mode):
    """A tar of files: {name: content}, as bytes."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def sources():
    names = [f'tools/{name}' for name in TOOLS] + ['scripts/subarch.include', 'scripts/Kbuild.include']
    return archive({f'{SOURCE}/{name}': b'as it came' for name in names}, 'w:xz')


@pytest.mark.parametrize('failures', [0, 1, 2, 3, 6])
def test_framework(tmp_path, programs, monkeypatch, failures):
    """The kernel's sources, of which each try asks twice: with the lists that are here, and with new ones."""
    monkeypatch.setenv('LINUX_SOURCES', f'{tmp_path}/none')
    (tmp_path / 'calls.tar').write_bytes(archive({f'./usr/src/{SOURCE}.tar.xz': sources()}, 'w'))
    programs('dpkg-deb', 'cat "$CALLS.tar"')
    programs('apt-get', f'#!/bin/sh\n[ "$2" = download ] || {{ echo "$0 $*" >>"$CALLS"; exit; }}\n' +
             FLAKY.format(when='-qq download', half=f': >{SOURCE}_half', work=f': >{SOURCE}_1_all.deb'))
    there = f'{tmp_path}/cache/godwit/{SOURCE}'
    status, said, calls = run(tmp_path, failures, 'kselftest/framework')
    assert (status != 0) == (failures == 6), said
    assert tries(said) == list(range(1, failures // 2 + 1)) and said.count(WHY) == failures
    assert sum(c.startswith('apt-get -qq update') for c in calls) == (failures + 1) // 2
    assert os.path.exists(f'{there}/tools/testing/selftests/kvm/a') == os.path.exists(there) == (failures < 6)
    assert [name for name in os.listdir(f'{tmp_path}/cache/godwit') if name.startswith('new.')] == []
    if status:
        assert run(tmp_path, 0, 'kselftest/framework')[0] == 0, 'a later run does not get it'
    assert run(tmp_path, 6, 'kselftest/framework') == (0, f'{there}/tools/testing/selftests\n', [])


SUITES = ('test', 'test-updates')


class Mirror(http.server.ThreadingHTTPServer):
    """Of files: {path: content}. Each is asked for in vain once: there is no gateway, or the connection ends half way."""

    daemon_threads = True

    def __init__(self, files, how):
        self.files, self.how, self.asked = files, how, []
        super().__init__(('127.0.0.1', 0), Answer)
        threading.Thread(target=self.serve_forever).start()

    def __exit__(self, *_):
        self.shutdown()
        super().__exit__()


class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def do_GET(self):	# noqa: N802 pylint: disable=invalid-name
        first = self.path not in self.server.asked
        self.server.asked.append(self.path)
        body = self.server.files.get(self.path)
        bad = first and self.server.how == 'gateway' and b'bad'
        self.send_response(502 if bad else 200 if body is not None else 404)
        body = bad or body or b''
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        if first and self.server.how == 'half':
            body = body[:len(body) // 2]
            self.close_connection = True
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def repository(directory):
    """{path: content}: of two suites, with a kernel's sources."""
    top = directory / 'deb'
    (top / 'DEBIAN').mkdir(parents=True)
    (top / 'usr/src').mkdir(parents=True)
    about = f'Package: {SOURCE}\nVersion: 1\nArchitecture: all\nMaintainer: nobody <nobody@example.org>\nDescription: a test\'s\n'
    (top / 'DEBIAN/control').write_text(about, encoding='ascii')
    (top / f'usr/src/{SOURCE}.tar.xz').write_bytes(sources())
    subprocess.run(['dpkg-deb', '--build', top, f'{directory}/a.deb'], check=True, stdout=subprocess.DEVNULL)
    deb = (directory / 'a.deb').read_bytes()
    packages = f'{about}Filename: a.deb\nSize: {len(deb)}\nSHA256: {hashlib.sha256(deb).hexdigest()}\n'.encode()
    release = f'Suite: test\nCodename: test\nComponents: main\nArchitectures: amd64\nSHA256:\n' \
              f' {hashlib.sha256(packages).hexdigest()} {len(packages)} main/binary-amd64/Packages\n'
    files = {'/a.deb': deb}
    for suite in SUITES:
        files |= {f'/dists/{suite}/Release': release.replace('test', suite).encode(), f'/dists/{suite}/main/binary-amd64/Packages': packages}
    return files


@pytest.mark.parametrize('how', ['gateway', 'half'])
@pytest.mark.parametrize('what', ['deps.sh', 'kselftest/framework'])
def test_apt_itself(tmp_path, programs, monkeypatch, what, how):
    """Each file fails once, two of them together. apt asks again at once; with its own pause before that Debian 12's waits for ever."""
    monkeypatch.setenv('LINUX_SOURCES', f'{tmp_path}/none')
    monkeypatch.setenv('APT_CONFIG', f'{tmp_path}/apt.conf')
    for name in ('lists/partial', 'cache/archives/partial', 'parts'):
        (tmp_path / 'apt' / name).mkdir(parents=True)
    (tmp_path / 'apt/status').write_text('', encoding='ascii')
    real = shutil.which('apt-get')
    programs('dpkg-query', DPKG_QUERY)
    programs('apt-get', f'''[ "$1" != install ] || {{ >"$CALLS.installed"; exit; }}
timeout -k 1 60 {real} "$@"
status=$?
echo "apt-get ended with $status" >>"$CALLS"
exit $status''')
    with Mirror(repository(tmp_path), how) as mirror:
        lines = [f'deb [trusted=yes] http://127.0.0.1:{mirror.server_port} {suite} main\n' for suite in SUITES]
        (tmp_path / 'sources').write_text(''.join(lines), encoding='ascii')
        (tmp_path / 'apt.conf').write_text(f'''
Dir::State "{tmp_path}/apt"; Dir::State::status "{tmp_path}/apt/status"; Dir::Cache "{tmp_path}/apt/cache";
Dir::Etc::sourcelist "{tmp_path}/sources"; Dir::Etc::sourceparts "{tmp_path}/apt/parts"; Dir::Etc::parts "{tmp_path}/apt/parts";
Acquire::http::Proxy "DIRECT"; Acquire::Languages "none"; APT::Architecture "amd64"; APT::Sandbox::User "root";
''', encoding='ascii')
        status, said, calls = run(tmp_path, 0, what)
        assert status == 0, said
        assert 'apt-get ended with 124' not in calls and tries(said) == [], said
        for suite in SUITES:
            assert mirror.asked.count(f'/dists/{suite}/Release') == 2
            assert mirror.asked.count(f'/dists/{suite}/main/binary-amd64/Packages') >= 1	# the second has what the first has
        assert mirror.asked.count('/a.deb') == (2 if what == 'kselftest/framework' else 0)


# Whatever runs in the lab: in the emulator that root.sh fetches, with the mmdebstrap of the group "lab".
IN_THE_LAB = ('selftests/check.sh', 'selftests/bench/', 'selftests/debug/check')
GOALS = ('demo', 'demo-nfv', 'check', 'check-native', 'check-lab', 'check-kernels', 'check-debug', 'bench', 'bench-lab', 'bench-kernel')


def recipe(goal):
    """What make would do, in order."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(('MAKE', 'MFLAGS'))}
    done = subprocess.run(['make', '-n', '-C', os.path.dirname(SELFTESTS), goal], stdout=subprocess.PIPE, text=True, check=True,
                          env=env)
    return [line.split() for line in done.stdout.splitlines() if line.startswith('selftests/')]


@pytest.mark.parametrize('goal', GOALS)
def test_first_steps(goal):
    steps = recipe(goal)
    assert steps
    groups = set()
    for program, *words in steps:
        if program == 'selftests/deps.sh':
            groups.update(['build', *words])
        elif program == 'selftests/run':
            assert 'build' in groups	# its interpreter
            test_targets(*words)
        elif program.startswith(IN_THE_LAB) and words != ['demo']:
            assert {'build', 'lab'} <= groups, f'{program} {words} begins with {groups}'
        else:
            assert 'build' in groups


@pytest.mark.parametrize('target', ['native', 'lab', 'check', 'long', 'kernels'])
def test_targets(target):
    """Native tests, too, use the newer QEMU; and jobs must not fetch, as one that waits for its machine gives up."""
    loader = importlib.machinery.SourceFileLoader('run', f'{SELFTESTS}/run')
    run = importlib.util.module_from_spec(importlib.util.spec_from_loader('run', loader))
    loader.exec_module(run)
    assert target in run.TARGETS
    first, *more = [command[0].replace(f'{SELFTESTS}/', '') for command in run.FETCH[target]]
    assert first == 'deps.sh' and 'lab' in run.FETCH[target][0] and 'deps.sh' not in more
    fetched = {words[-1] for words in run.FETCH[target] if words[0].endswith('root.sh')}
    assert fetched == {'qemu', *(run.KERNELS if target == 'kernels' else ())}
    # What self-tests of the kernel are built with.
    assert 'kselftest/framework' in more or not any(job.lab for job in run.TARGETS[target])


@pytest.mark.parametrize('verb, fetches', [('check', True), ('kselftest', True), ('demo-nfv', True), ('postcopy', True), ('demo', False)])
@pytest.mark.parametrize('well', [True, False])
def test_emulator(tmp_path, programs, monkeypatch, verb, fetches, well):
    """It is here before a machine is waited for, or there is no machine."""
    monkeypatch.setenv('B', f'{tmp_path}/build')
    monkeypatch.delenv('LAB_QEMU', raising=False)
    tree = tmp_path / 'selftests'
    for name in ('lab', 'kernels', 'guest'):
        (tree / name).mkdir(parents=True)
    shutil.copy(f'{SELFTESTS}/check.sh', tree)
    programs('make', ':')
    programs('strip', '>"$3"')
    does = {'lab/lab': '[ $1 = setup ] && echo /boot/vmlinuz-1', 'guest/linux': ':', 'kernels/root.sh': f'exit {int(not well)}'}
    for name, script in does.items():
        (tree / name).write_text(f'#!/bin/sh\necho "{name} $1" >>"$CALLS"\n{script}\n', encoding='ascii')
        (tree / name).chmod(0o755)
    (tmp_path / 'calls').write_text('', encoding='ascii')
    subprocess.run([f'{tree}/check.sh', verb], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    calls = (tmp_path / 'calls').read_text(encoding='ascii').splitlines()
    assert ('lab/lab run' in calls) == (well or not fetches), calls
    assert ('kernels/root.sh qemu' in calls) == fetches, calls
    if fetches and well:
        assert calls.index('kernels/root.sh qemu') < calls.index('lab/lab run')


@pytest.mark.parametrize('script', ['bench/run.sh', 'debug/check'])
def test_emulator_of_others(script):
    """Likewise; to play these takes a kernel's headers."""
    with open(f'{SELFTESTS}/{script}', encoding='ascii') as f:
        words = f.read()
    assert 0 < words.index('/kernels/root.sh" qemu') < words.index('/lab/lab" run')
