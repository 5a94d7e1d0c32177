# SPDX-License-Identifier: GPL-2.0-only
"""
The destination fits, and that is known before a byte moves: of each pair of fit/pairs.py that is no fit check and send say why
and nothing has happened; of each that is one they say nothing, and the guest arrives.
"""
import fit.run
import pytest
from fit.pairs import PAIRS

# One run for all: pairs share sources.
pytestmark = [pytest.mark.native, pytest.mark.together]


@pytest.fixture(scope='module')
def outcomes(request):
    """Of the pairs that are to be tested here."""
    wanted = {item.callspec.params['one'] for item in request.session.items if item.function.__name__ == 'test_pair'}
    return fit.run.run([one for one in PAIRS if one.name in wanted])


@pytest.mark.parametrize('one', [one.name for one in PAIRS])
def test_pair(outcomes, one):
    outcomes[one].result()


def test_table():
    """What the issue asks of it."""
    assert len({one.name for one in PAIRS}) == len(PAIRS) >= 60
    assert sum(not one.findings for one in PAIRS) >= 15
    for c in 'machine', 'cpu', 'memory', 'device', 'disk':
        assert sum(any(c in kind.split('|') for kind, _ in one.findings) for one in PAIRS) >= 3, c
