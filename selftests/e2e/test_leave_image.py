# SPDX-License-Identifier: GPL-2.0-only
"""send --leave-image: the source's RAM in a file, once the guest has gone."""
import os
import stat
import subprocess

import godwit
import lab
import pytest
from test_reuse import MIB, migrate, source

pytestmark = pytest.mark.native


def leave(src, dst, image, *options, **more):
    run = godwit.Run(src, dst, '--pause', '--leave-image', image, *options, **more)
    report = run.wait()
    godwit.proof(src, dst, stopped='postmigrate')
    return report, run


def test_it_leaves_an_image_and_comes_back(directory):
    """All of the source's RAM, and nothing but; with the guest's own writes meanwhile most of it is found again."""
    src = source(directory)
    dst = godwit.destination(src)
    image = f'{directory}/image'
    report, run = leave(src, dst, image)
    assert report['image']['state'] == 'left' and report['image']['bytes'] > 12 * MIB and report['image']['time'] > 0
    assert f'left {report["image"]["bytes"] / MIB:.1f} MiB of RAM in {image}' in run.send.said
    st = os.stat(image)
    assert stat.S_IMODE(st.st_mode) == 0o600 and st.st_size == 64 * MIB and st.st_blocks * 512 < 40 * MIB
    assert not subprocess.run(['cmp', image, src.ram[0].path], check=False).returncode
    assert not [name for name in os.listdir(directory) if name.startswith('image.')]
    src.kill()
    back = godwit.destination(dst, 'src')
    report, _ = migrate(dst, back, image)
    assert report['ram']['reused'] > 2000 and report['ram']['normal'] < 2000, report['ram']


def test_an_image_that_cannot_be_left(directory):
    """No room: the guest has gone all the same, and that is what the report says."""
    src = source(directory)
    with godwit.guests():
        place = f'{directory}/small'
        os.makedirs(place, exist_ok=True)
        subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=4m', 'none', place], check=True)
        try:
            report, run = leave(src, godwit.destination(src), f'{place}/image')
            assert report['image']['state'] == 'failed' and report['status'] == 'ok'
            assert 'the guest has moved, and no image of it was left' in run.send.said and 'No space' in run.send.said
            assert not os.listdir(place)
        finally:
            subprocess.run(['umount', '-l', place], check=True)


def test_an_image_that_is_refused(directory):
    """Before anything is changed."""
    src = source(directory)
    for image, why in ((f'{directory}/none/image', 'No such file'), (str(directory), 'no regular file'), ('', 'the name of a file'),
                       (f'{directory}/', 'the name of a file')):
        send = godwit.Process('src', 'send', '--pause', '--qmp', src.main_qmp, '--leave-image', image, godwit.AT)
        assert send.wait() == godwit.EXIT['usage'] and why in send.said, send.said
    godwit.unharmed(src)


def test_an_image_that_may_not_grow(directory):
    """RLIMIT_FSIZE: an error like any other, and not the signal that would end the sender."""
    src = source(directory)
    tool = f'{directory}/limited'
    with open(tool, 'w', encoding='ascii') as f:
        f.write(f'#!/bin/sh\nulimit -f 2000\nexec {lab.B}/godwit "$@"\n')
    os.chmod(tool, 0o755)
    report, run = leave(src, godwit.destination(src), f'{directory}/image', tool=tool)
    assert report['image']['state'] == 'failed' and report['status'] == 'ok' and 'File too large' in run.send.said, run.send.said
    assert not [name for name in os.listdir(directory) if name.startswith('image')]
