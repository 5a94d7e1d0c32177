# SPDX-License-Identifier: GPL-2.0-only
"""Around every test: it must end, the kernel's log must stay clean, and nothing may be left behind."""
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, f'{HERE}/harness')
import credentials	# noqa: E402 pylint: disable=wrong-import-position
import godwit	# noqa: E402 pylint: disable=wrong-import-position
import lab	# noqa: E402 pylint: disable=wrong-import-position
import sources	# noqa: E402 pylint: disable=wrong-import-position

# Seconds; the slowest tests take more than half of it where the host is overrun. A kernel that looks for mistakes needs more.
TIMEOUT = int(os.environ.get('GODWIT_TEST_TIMEOUT', '400'))
BIOS = '/usr/share/seabios/bios-256k.bin'
FURTHER = HERE / 'further'
NATIVE_FILE = re.compile(r'^pytestmark = .*mark\.native\b', re.M)
pytest_plugins = ['second_try']


def pytest_addoption(parser):
    parser.addoption('--brief', action='store_true', help='without what "further" names')


def not_imported(path, config):
    """To import a file of native tests alone takes an emulated host a second."""
    return config.option.markexpr == 'not native' and path.suffix == '.py' and path.exists() and \
        NATIVE_FILE.search(path.read_text(encoding='utf-8'))


def pytest_ignore_collect(collection_path, config):
    return True if not_imported(collection_path, config) else None	# as without this hook


def without_further(items, config):
    with open(FURTHER, encoding='utf-8') as f:
        further = {line.strip() for line in f if not line.startswith('#')}
    named = {item.nodeid: item for item in items}
    if gone := {name for name in further - named.keys() if not not_imported(HERE / name.partition('::')[0], config)}:
        raise pytest.UsageError(f'{FURTHER} names what there is not: {", ".join(sorted(gone))}')
    config.hook.pytest_deselected(items=[named[name] for name in further & named.keys()])
    items[:] = [item for name, item in named.items() if name not in further]


def pytest_collection_modifyitems(items, config):
    """
    Together what can share a source. First what must stay together (second_try.py), so that no lab has it left at the end
    when others have nothing to do.
    """
    kinds = ('saving', 'src', 'pair', 'waiting')

    def place(item):
        if item.get_closest_marker('together'):
            return -1
        return min((i for i, kind in enumerate(kinds) if kind in item.fixturenames), default=len(kinds))
    if config.option.brief:
        without_further(items, config)
    items.sort(key=place)


def too_long(*_):
    raise TimeoutError(f'the test takes longer than {TIMEOUT} s')


def end_all(but=()):
    """The first complaint is raised when all have ended."""
    with contextlib.ExitStack() as stack:
        for vm in list(lab.running):
            if vm not in but:
                stack.callback(vm.kill)


@pytest.fixture(autouse=True)
def around(request):
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(TIMEOUT)
    if lab.IN_LAB:
        with open('/dev/kmsg', 'w', encoding='ascii') as f:	# where the lab looks when the kernel is gone
            f.write(f'<4>test: {request.node.nodeid}')
    godwit.Run.compares = not lab.IN_LAB or request.node.get_closest_marker('compared') is not None
    log = lab.KernelLog() if lab.IN_LAB else None
    yield log
    signal.alarm(0)
    with contextlib.ExitStack() as stack:
        if lab.IN_LAB:
            stack.callback(log.close)
            stack.callback(log.check)
            stack.callback(lab.link_cleared)
        stack.callback(godwit.none_crashed)
        end_all(but=[vm for vm in lab.running if vm.healthy])


@pytest.fixture(scope='session', autouse=True)
def nobody_stays():
    yield
    end_all()


@pytest.fixture
def module(request):
    """The module is loaded, and unloads afterwards. Natively there is none."""
    if lab.IN_LAB:
        godwit.load()
    yield
    if lab.IN_LAB:
        if request.node.has_failed:
            godwit.end_senders()
        godwit.unload()


@pytest.fixture
def directory(request):
    """Where this test's logs go: labs of two kernels run the same tests side by side."""
    path = os.path.join(lab.B, 'e2e', os.environ.get('LAB_NAME', ''), request.node.name.replace('/', '_'))
    os.makedirs(path, exist_ok=True)
    return path


@pytest.fixture(scope='session')
def keys(tmp_path_factory):
    """
    Options: certificates of one CA; of another; of the first again, by an end that holds those for revoked; for another name;
    and two pre-shared keys.
    """
    top = str(tmp_path_factory.mktemp('keys'))
    ours, theirs = credentials.Authority(f'{top}/ca', 'ours'), credentials.Authority(f'{top}/ca', 'theirs')
    good, revoking = ours.directory(f'{top}/good'), ours.directory(f'{top}/revoking')
    for side in ('server', 'client'):
        ours.revoke(f'{good}/{side}-cert.pem', f'{revoking}/ca-crl.pem')
    return {
        'creds': ['--tls-creds', good],
        'revoking': ['--tls-creds', revoking],
        'foreign': ['--tls-creds', theirs.directory(f'{top}/foreign')],
        'elsewhere': ['--tls-creds', ours.directory(f'{top}/elsewhere', 'DNS:elsewhere.example')],
        'psk': ['--tls-psk', credentials.shared_key(f'{top}/key.psk')],
        'other-psk': ['--tls-psk', credentials.shared_key(f'{top}/other.psk')],
        'clear': [],
    }


@pytest.fixture(scope='session')
def flash():
    """QEMU's arguments for 8 MiB of firmware that do not compress: the BIOS, behind random bytes."""
    path = '/dev/shm/flash'
    with open(BIOS, 'rb') as bios, open(path, 'wb') as f:
        code = bios.read()
        f.write(os.urandom((8 << 20) - len(code)) + code)
    return ['-drive', f'if=pflash,unit=0,format=raw,readonly=on,file={path}']


@pytest.fixture(scope='session')
def qemu():
    """A QEMU that says where its RAM is (8.0): this system's own or, where that is too old, the emulator's."""
    said = subprocess.run([lab.QEMU, '--version'], check=True, stdout=subprocess.PIPE, text=True).stdout
    return lab.QEMU if int(re.search(r'version (\d+)', said)[1]) >= 8 else f'{lab.TREE}/selftests/kernels/qemu.sh'


@pytest.fixture
def src(directory, flash):
    return sources.healthy(directory, extra=flash)


@pytest.fixture
def pair(src):
    return src, godwit.destination(src)


@pytest.fixture
def saving(directory, flash, qemu):
    """A VM with a display and with firmware of its own."""
    more = {'extra': flash, 'vga': 'std', 'qemu': qemu}
    src = sources.healthy(directory, **more)
    return src, godwit.destination(src)


@pytest.fixture
def waiting(pair):
    """A sender that has connected and waits for the word of a receiver that is stopped."""
    src, dst = pair
    godwit.note(src)
    receive = godwit.listen(dst)
    receive.kill(signal.SIGSTOP)
    run = godwit.Run(src, dst, receiver=False)
    run.send.wait_until(lambda: godwit.at_port(receive.pid, 'connected'), 'connection', 60)
    time.sleep(0.5)	# for what it does when it is connected
    yield run.send, receive
    receive.kill().wait()
