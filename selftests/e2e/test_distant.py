# SPDX-License-Identifier: GPL-2.0-only
"""What a distant link does to a stream that nothing else does: packets overtake each other, acknowledgements do not come."""
import godwit
import lab
import pytest
import relay
import sources
import wire

APPEND = 'start=16 size=16 touch=16 rate=50'


@pytest.fixture
def pair(directory):
    src = sources.plain(directory, APPEND)
    return src, godwit.destination(src)


def nothing_is_acknowledged(pair, mode, *options):
    """No round is. The destination knows by itself when it has all of the RAM: nothing waits for what the sender hears of it."""
    with relay.Losing(godwit.TO, rate=16 << 20, swallow=[wire.ACK]) as between:
        report = godwit.Run(*pair, '--streams', '2', '--device-state', mode, *options, to=between.address).wait()
    assert report['verified'] and between.count[wire.ACK]
    godwit.proof(*pair, stopped='paused' if mode == 'save' else 'postmigrate')


@pytest.mark.native
@pytest.mark.parametrize('mode', ['migrate', 'save'])
def test_nothing_is_acknowledged(pair, mode):
    """RAM at rest goes in rounds if the loss of a link is to be survived."""
    nothing_is_acknowledged(pair, mode, '--pause', '--reconnect', '30')


@pytest.mark.usefixtures('module')
@pytest.mark.parametrize('mode', ['migrate', 'save'])
def test_nothing_of_a_running_guest_is_acknowledged(pair, mode):
    nothing_is_acknowledged(pair, mode)


@pytest.mark.usefixtures('module')
@pytest.mark.parametrize('mode', ['migrate', 'save'])
def test_packets_overtake_each_other(pair, mode):
    lab.link('rate', 100)
    lab.link('delay', 10)
    lab.link('reorder', 30)
    report = godwit.Run(*pair, '--streams', '4', '--device-state', mode).wait()
    assert report['verified']
    godwit.proof(*pair, stopped='paused' if mode == 'save' else 'postmigrate')
