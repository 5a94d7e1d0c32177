# SPDX-License-Identifier: GPL-2.0-only
"""What the lab finds on a console. /usr/bin/python3 -m pytest selftests/lab/test_complaints.py"""
import os
import sys

import pytest

sys.path.append(os.path.dirname(os.path.realpath(__file__)))
import complaints	# noqa: E402 pylint: disable=wrong-import-position
import machine	# noqa: E402 pylint: disable=wrong-import-position

WELL = ['[    0.1] Linux version 6.1', '[    9.0] test: test_a.py::test_b', '[    9.1] godwit: loaded']


@pytest.fixture(name='console')
def _console(tmp_path):
    def write(*lines):
        (tmp_path / 'console').write_text('\n'.join(lines), encoding='utf-8')
        return machine.trouble(tmp_path / 'console')
    return write


def test_a_healthy_console(console):
    assert console(*WELL) == []


@pytest.mark.parametrize('text', complaints.ON_CONSOLE)
def test_from_the_complaint_on(console, text):
    bad = f'[   10.0] {text} of something'
    assert console(*WELL, bad, 'more') == [WELL[1], bad, 'more']


def test_whole_lines_of_the_kernel(console):
    for bad in ('WARNING: CPU: 1 PID: 7 at mm/slub.c:1',
                'BUG: unable to handle page fault for address: 00', 'Oops: 0000 [#1]',
                'INFO: task a:7 blocked for more than 122 seconds.',
                'watchdog: BUG: soft lockup - CPU#0 stuck for 61s!', 'BUG: KASAN: use-after-free in a',
                'WARNING: suspicious RCU usage', 'INFO: trying to register non-static key.',
                'a[7]: segfault at 0 ip 00', 'kmemleak: unreferenced object 0xffff'):
        assert console(f'[   10.0] {bad}'), bad


def test_a_failed_allocation_is_none_on_a_console(console):
    said = ['[   10.0] Huh VM_FAULT_OOM leaked out to the #PF handler. Retrying PF',
            '[   10.1] kworker/0:2H: vmalloc error: size 16, vm_struct allocation failed',
            '[   10.1] Call Trace:']
    assert console(*WELL, *said) == []
    assert [complaints.first([line]) for line in said] == [0, None, 0]


SPLIT = 'WARNING: CPU: 0 PID: 73 at include/linux/fs.h:509 hugetlb_split+0x1dd/0x270'


def test_a_known_mistake_is_none_with_its_trace():
    """And nothing else is: what comes between, a second trace, the same function in another complaint."""
    assert complaints.first([SPLIT, 'RIP: 0010:hugetlb_split+0x1dd/0x270', 'Call Trace:', ' split_vma+0x78/0xd0']) is None
    assert complaints.first([SPLIT, 'Call Trace:', SPLIT, 'Call Trace:']) is None
    assert complaints.first([SPLIT, 'BUG: KASAN: a', 'Call Trace:']) == 1
    assert complaints.first([SPLIT, 'Call Trace:', 'Call Trace:']) == 2
    assert complaints.first([SPLIT] + ['a'] * complaints.TRACE + ['Call Trace:']) == complaints.TRACE + 1
    assert complaints.first(['BUG: KASAN: use-after-free in hugetlb_split+0x1dd/0x270']) == 0
    assert complaints.first(['WARNING: CPU: 0 PID: 7 at mm/hugetlb.c:1 hugetlb_fault+0x1/0x2']) == 0


def test_the_name_of_a_test_is_none(console):
    named = "[    9.5] test: test_second_try.py::test_c[KernelComplained('WARNING: ')]"
    assert console(*WELL, named) == []
    assert console(*WELL, named, 'BUG: a') == [named, 'BUG: a']
