# SPDX-License-Identifier: GPL-2.0-only
"""
--reuse, and when the guest stops: of a guest that stands still a sender for which nothing is dirty (tools/nodirty) has one round.
"""
import os

import godwit
import lab
import pytest
import relay
import wire
from guestram import write
from test_reuse import AT, MIB, at_the_first, garbage, old_ram, source

pytestmark = pytest.mark.native
TOOL = f'{lab.B}/tools/nodirty'


def migrate(src, file, *options, between=None):
    dst = godwit.destination(src)
    run = godwit.Run(src, dst, '--downtime-limit', '300', '--streams', '1', '--postcopy', 'off', '--compress', 'off',
                     tool=TOOL, to=between.address if between else None, receive_options=['--reuse', file, *options])
    report = run.wait()
    assert report['verified']
    godwit.same_ram(src, dst)
    return report


@pytest.mark.parametrize('options', [[], ['--reuse-other']], ids=['own', 'other'])
def test_a_guest_that_fits_at_once(directory, options):
    """A round of references is few bytes in a long time, which says nothing of what the link carries."""
    src = source(directory, mib=1)
    src.qmp('stop')
    write(src, AT * MIB, os.urandom((64 - AT) * MIB))
    report = migrate(src, old_ram(src), *options)
    assert report['ram']['reused'] > 7000 and len(report['rounds']) <= 3, report['rounds']


def test_what_is_refused_goes_before_the_stop(directory):
    src = source(directory)
    src.qmp('stop')
    file = old_ram(src)
    os.truncate(file, (AT + 5) * MIB)
    between = relay.Losing(godwit.TO, rate=6 * MIB)
    at_the_first(between, wire.REFERENCES, lambda: garbage(file))
    try:
        report = migrate(src, file, between=between)
    finally:
        between.stop()
    rounds = report['rounds']
    assert report['reuse']['refused'] > 2000 and len(rounds) >= 3, report
    assert not rounds[-1]['normal'], rounds
