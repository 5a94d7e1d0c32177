# SPDX-License-Identifier: GPL-2.0-only
"""Small guests that godwit sends with --pause: neither module nor KVM is needed, and there may be several of them."""
import godwit
import lab

APPEND = 'start=16 size=16 touch=8 rate=50'


def source(directory, name='src', **more):
    vm = lab.Qemu(name, directory=directory, **{'ram': 64, 'append': APPEND, **more}).wait_ticks(1)
    godwit.note(vm)
    return vm


def send(src, *options, qmp=None, to=godwit.AT):
    return godwit.Process('src', 'send', '--qmp', qmp or src.main_qmp, '--pid', str(src.pid), '--pause', *options, to)


def arrives(src, dst):
    there = godwit.listen(dst)
    here = send(src)
    assert here.wait() == 0 and there.wait() == 0, here.said + there.said
    godwit.proof(src, dst)


def foreign_ram(path, share=True):
    """Of a QEMU that takes a file that is there already, and another's."""
    return [lab.Ram(64, path, share=share, foreign=True)]
