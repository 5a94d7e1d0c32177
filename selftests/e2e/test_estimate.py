# SPDX-License-Identifier: GPL-2.0-only
"""What godwit estimate foretells, against the migration of the same guest. Counts are compared, times only shown."""
import json

import godwit
import lab
import pytest
from test_reuse_guests import leave

pytestmark = pytest.mark.usefixtures('module')


def estimate(vm, *options, expect='ok'):
    p = godwit.Process('src', 'estimate', '--pid', vm.pid, '--json', '--sample', 1 << 16, *options)
    assert p.wait() == godwit.EXIT[expect], p.said
    return json.loads(p.said)


def close(told, was, what):
    print(f'{what}: told {told}, was {was}: {100 * (told / was - 1):+.0f} %')
    return abs(told - was) <= was / 4


@pytest.mark.parametrize('writes', ['rate=250', 'rate=250 random=1'], ids=['in-order', 'random'])
def test_a_real_migration(directory, writes):
    """Within 25 %: the bytes. The time, and how many short rounds there are at the end, hang on the lab's CPUs: shown."""
    lab.net()
    src = lab.Qemu('src', directory=directory, append=f'start=16 size=48 touch=48 {writes}').wait_ticks(2)
    options = ['--bandwidth', '4', '--downtime-limit', '3000']
    told = estimate(src, *options)
    assert told['converges'] and told['rounds'] >= 3, 'too easy'
    assert told['pages'] == told['sample-pages'] == 128 << 8
    report = godwit.Run(src, godwit.destination(src), *options).wait()
    was = report['ram']['transferred'] - report['ram']['device-bytes']
    print(json.dumps(told), json.dumps(report))
    close(told['total-time'], report['total-time'] - report['blackout']['verify'], 'total ms')
    close(told['rounds'], sum(not r['late'] for r in report['rounds']), 'rounds')
    assert close(told['transferred'], was, 'bytes'), (told, report)


def test_an_end_is_not_in_sight(directory):
    """It writes faster than the link carries, also on a host where it has a tenth of what it wants: foretold, and so."""
    lab.net()
    src = lab.Qemu('src', directory=directory, append='start=16 size=16 touch=16 rate=6000').wait_ticks(2)
    options = ['--bandwidth', '1', '--max-rounds', '3', '--downtime-limit', '1000']
    told = estimate(src, *options, expect='not-converged')
    assert not told['converges'] and told['rounds'] == 3
    godwit.Run(src, godwit.destination(src), *options).wait('not-converged')
    godwit.unharmed(src)


def test_bandwidth_of_the_link(directory):
    """--to measures it: no more than the link's shaper lets through."""
    lab.net()
    src = lab.Qemu('src', directory=directory, append='start=16 size=16 touch=16').wait_ticks(1)
    dst = godwit.destination(src)
    godwit.listen(dst)
    lab.link('rate', 80)
    limit = '--downtime-limit', godwit.DOWNTIME
    p = godwit.Process('src', 'estimate', '--qmp', src.main_qmp, '--json', '--seconds', '1', *limit, '--to', godwit.AT)
    assert p.wait() == 0, p.said
    told = json.loads(p.said)
    assert 0 < told['bytes-per-second'] < 80 / 8 * 1e6 * 1.15
    assert told['allocated-pages'] >= 16 << 8 and told['zero-pages'] < told['allocated-pages']
    p = godwit.Process('src', 'estimate', '--pid', src.pid, '--seconds', '1', *limit, '--bandwidth', '100')
    assert p.wait() == 0 and 'downtime' in p.said and 'in 2 rounds' in p.said, p.said


def test_a_guest_that_comes_back(directory):
    """--reuse, of the image that the receiver has: the pages that are reused, and all bytes, within 25 %; far fewer than without."""
    dst, image = leave(directory)
    back = godwit.destination(dst, 'back')
    options = ['--bandwidth', '4', '--downtime-limit', '3000', '--compress', 'off']
    plain, told = estimate(dst, *options), estimate(dst, *options, '--reuse', image)
    assert not plain['reused-pages'] and not plain['reuse']['entries'] and not plain['reused-bytes']
    godwit.listen(back, '--reuse', image)
    ask = 'estimate', '--qmp', dst.main_qmp, '--seconds', '1', '--downtime-limit', godwit.DOWNTIME, '--to', godwit.AT
    p = godwit.Process('src', *ask)
    assert p.wait() == 0 and 'do not count here' in p.said and 'reused ' not in p.said, p.said
    p = godwit.Process('src', *ask, '--reuse', image)
    assert p.wait() == 0 and 'do not count here' not in p.said and 'reused ' in p.said, p.said
    for wrong in (['--reuse', f'{directory}/none'], ['--reuse', directory], ['--reuse-other']):
        p = godwit.Process('src', 'estimate', '--pid', dst.pid, '--bandwidth', '4', *wrong)
        assert p.wait() == godwit.EXIT['usage'] and '--reuse' in p.said, p.said
    report = godwit.Run(dst, back, *options, receiver=False).wait()
    print(json.dumps(told), json.dumps(report))
    ram = report['ram']
    assert told['reuse']['entries'] == report['reuse']['entries'] > 2000 and not told['reuse']['left-out']
    assert close(told['reused-pages'], ram['reused'], 'reused pages'), (told, report)
    assert told['reused-bytes'] < told['reused-pages'] * 32
    assert close(told['transferred'], ram['transferred'] - ram['device-bytes'], 'bytes'), (told, report)
    assert told['transferred'] < plain['transferred'] * .75, (told, plain)
