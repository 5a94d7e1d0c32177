# SPDX-License-Identifier: GPL-2.0-only
"""Around every test: it must end, the kernel's log must stay clean, and nothing may be left behind."""
import os
import signal
import sys
import time

import emulator
import godwit
import lab
import pytest


# Seconds; the slowest test takes about a third of it. A kernel that looks for mistakes needs more.
TIMEOUT = int(os.environ.get('GODWIT_TEST_TIMEOUT', '150'))
BIOS = '/usr/share/seabios/bios-256k.bin'


def pytest_runtest_logreport(report):
    """A failure is told when it happens: the lab may not live to tell it at the end. So is what gets a second try."""
    if report.outcome in ('failed', 'rerun'):
        print(f'\n{report.nodeid} ({report.when}, {report.outcome}):\n{report.longreprtext}', file=sys.stderr, flush=True)


def what_the_emulator_did(outcome):
    """In place of the failure, if so: for that pytest.ini grants a second try."""
    for vm in list(lab.running) if outcome.excinfo and lab.IN_LAB else ():
        found = emulator.blame(vm)
        if found:
            raise RuntimeError(f'emulator: {vm.name}: {found}') from outcome.excinfo[1]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_setup():
    what_the_emulator_did((yield))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call():
    what_the_emulator_did((yield))


def too_long(*_):
    raise TimeoutError(f'the test takes longer than {TIMEOUT} s')


@pytest.fixture(autouse=True)
def around(request):
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(TIMEOUT)
    if lab.IN_LAB:
        with open('/dev/kmsg', 'w', encoding='ascii') as f:	# where the lab looks when the kernel is gone
            f.write(f'<4>test: {request.node.nodeid}')
    log = lab.KernelLog() if lab.IN_LAB else None
    yield log
    signal.alarm(0)
    for vm in list(lab.running):
        vm.kill()
    if lab.IN_LAB:
        if os.path.exists('/run/godwit-link'):
            lab.link('clear')
        log.check()
        log.close()


@pytest.fixture
def module():
    """The module is loaded, and unloads afterwards."""
    godwit.load()
    yield
    godwit.unload()


@pytest.fixture
def directory(request):
    """Where this test's logs go."""
    path = os.path.join(lab.B, 'e2e', request.node.name.replace('/', '_'))
    os.makedirs(path, exist_ok=True)
    return path


@pytest.fixture(scope='session')
def flash():
    """QEMU's arguments for 8 MiB of firmware that do not compress: the BIOS, behind random bytes."""
    path = '/dev/shm/flash'
    with open(BIOS, 'rb') as bios, open(path, 'wb') as f:
        code = bios.read()
        f.write(os.urandom((8 << 20) - len(code)) + code)
    return ['-drive', f'if=pflash,unit=0,format=raw,readonly=on,file={path}']


@pytest.fixture
def pair(directory, flash):
    lab.net()
    src = lab.Qemu('src', directory=directory, extra=flash, append='start=32 size=24 touch=16 rate=1500').wait_ticks(2)
    yield src, godwit.destination(src, extra=flash)


@pytest.fixture
def waiting(pair):
    """A sender that has connected and waits for the word of a receiver that is stopped."""
    src, dst = pair
    godwit.note_slots(src)
    receive = godwit.Process('dst', 'receive', '--qmp', dst.main_qmp, '--listen', f'10.77.0.2:{godwit.PORT}',
                             '--insecure').wait_for('listening')
    receive.kill(signal.SIGSTOP)
    run = godwit.Run(src, dst, receiver=False)
    time.sleep(2)
    assert run.send.poll() is None
    yield run.send, receive
    receive.kill().wait()
