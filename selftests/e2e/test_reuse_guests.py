# SPDX-License-Identifier: GPL-2.0-only
"""A guest that runs and writes comes back to a host that has an image of it (--leave-image, --reuse)."""
import os
import signal

import godwit
import lab
import pytest
from guestram import AT, content, write
from kinds import KINDS

pytestmark = pytest.mark.usefixtures('module')
APPEND = 'start=16 size=16 touch=16 rate=200 fill=64'


def leave(directory, kind='shared_file', mode='migrate', **more):
    """The guest has moved on, writes there, and the image of it is where it was."""
    image = f'{directory}/image'
    lab.net()
    src = lab.Qemu('src', directory=directory, ram=[KINDS['shared_file']('src')], append=APPEND, **more).wait_ticks(2)
    write(src, AT << 20, content())
    dst = godwit.destination(src, ram=[KINDS[kind]('dst')])
    report = godwit.Run(src, dst, '--device-state', mode, '--leave-image', image).wait()
    assert report['image']['state'] == 'left' and report['image']['bytes'] > 16 << 20, report['image']
    godwit.proof(src, dst, stopped=godwit.STOPPED[mode])
    src.kill()
    return dst.wait_ticks(2), image


def nothing_refused(report, run):
    """The file is what it was. An emulated host that others overrun may be too slow for a frame of it (place/ram_reused.c)."""
    assert not report['reuse']['refused'] or 'is read too slowly' in run.receive.said, (report['reuse'], run.receive.said)


def come_back(dst, image, *options, receive_options=(), **more):
    back = godwit.destination(dst, 'back', **more)
    lab.link('rate', 200)
    return back, godwit.Run(dst, back, *options, receive_options=['--reuse', image, *receive_options])


@pytest.mark.parametrize('mode', ['migrate', 'save'])
@pytest.mark.parametrize('other', [False, True], ids=['own', 'other'])
def test_it_comes_back(directory, mode, other):
    dst, image = leave(directory, mode=mode)
    back, run = come_back(dst, image, '--device-state', mode, receive_options=['--reuse-other'] if other else [])
    report = run.wait()
    ram = report['ram']
    assert report['verified'] and ram['reused'] > 2000 and ram['reused-bytes'] < ram['reused'] * 32, ram
    assert len(report['rounds']) >= 2 and not report['rounds'][-1]['reused'], report['rounds']
    nothing_refused(report, run)
    godwit.proof(dst, back, stopped=godwit.STOPPED[mode])


@pytest.mark.parametrize('kind', ['huge', 'anonymous'])
def test_from_and_into_other_ram(directory, kind):
    dst, image = leave(directory, kind, 'save')
    back, run = come_back(dst, image, '--device-state', 'save', ram=[KINDS[kind]('back')])
    report = run.wait()
    assert report['verified'] and report['ram']['reused'] > 2000, report['ram']
    godwit.proof(dst, back, stopped='paused')


def test_the_file_changes(directory):
    """
    In the first round, while the guest writes: what is refused comes in a later one. What is new takes seconds, and then comes what
    the file had.
    """
    dst, image = leave(directory)
    write(dst, (AT - 6) << 20, os.urandom(10 << 20))
    other = os.urandom(os.path.getsize(image))	# which takes an emulated host long
    back, run = come_back(dst, image, '--bandwidth', '2', '--compress', 'off', '--peer-timeout', '600',
                          receive_options=['--peer-timeout', '600'])
    run.send.wait_round(1).freeze()
    with open(image, 'r+b') as f:
        f.write(other)
    run.send.kill(signal.SIGCONT)
    report = run.wait()
    assert report['verified'] and report['reuse']['refused'] > 500, report['reuse']
    godwit.proof(dst, back)


def test_post_copy(directory):
    """Pages that are owed are sent, and not referred to."""
    dst, image = leave(directory)
    back = godwit.destination(dst, 'back')
    report = godwit.Run(dst, back, '--postcopy', 'on', verify=False, receive_options=['--reuse', image]).wait()
    assert report['ram']['reused'] > 2000 and report['postcopy']['owed'] > 0, report
    godwit.proof(dst, back)
