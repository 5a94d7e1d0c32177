# SPDX-License-Identifier: GPL-2.0-only
"""The kinds of RAM that guests are started with, by name; name: the VM's."""
import lab

HUGE = '/dev/hugepages'


def anonymous(name, mib=64):
    return lab.Ram(mib)


def shared_file(name, mib=64):
    return lab.Ram(mib, f'/dev/shm/{name}.ram')


def private_file(name, mib=64):
    return lab.Ram(mib, f'/dev/shm/{name}.ram', share=False)


def memfd(name, mib=64):
    return lab.Ram(mib, 'memfd')


def huge(name, mib=64):
    return lab.Ram(mib, f'{HUGE}/{name}.ram', share=False)


KINDS = {one.__name__: one for one in (anonymous, shared_file, private_file, memfd, huge)}
