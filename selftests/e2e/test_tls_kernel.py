# SPDX-License-Identifier: GPL-2.0-only
"""TLS with the keys in the kernel, as it is on a host that has the module `tls`: of what test_tls.py asks of the library, that which differs."""
import godwit
import lab
import pytest
import test_compress
import test_compress_huge
import test_delta
import test_tls
from test_tls import pair, src  # noqa: F401 pylint: disable=unused-import


@pytest.fixture(autouse=True, scope='module')
def module():
    lab.call('modprobe', 'tls')


@pytest.mark.parametrize('kind, io', [('creds', 'uring'), ('psk', 'poll')])
def test_the_kernel_makes_the_records(pair, keys, kind, io):  # noqa: F811
    run = test_tls.migrate(pair, keys[kind], '--io', io, receive_options=['--io', io])
    report = run.wait()
    assert report['verified'] and report['encrypted'] and report['kernel-tls']
    assert 'by the kernel' in run.send.said, run.send.said
    godwit.proof(*pair)


@pytest.mark.parametrize('how, kind, io', [('lz4', 'psk', 'poll'), ('zstd', 'creds', 'uring'), ('zlib', 'psk', 'uring')])
def test_packed(directory, keys, how, kind, io):
    """By either engine, which know of no TLS where the kernel makes the records."""
    assert test_compress.over_tls(test_compress.source(directory), keys[kind], how, io)['kernel-tls']


def test_packed_in_huge_pages(directory, keys):
    with test_compress_huge.source(directory) as source:
        assert test_compress.over_tls(source, keys['creds'], 'lz4', 'uring')['kernel-tls']


def test_parts_of_pages(directory):
    assert test_delta.over_tls(directory)['kernel-tls']


def test_save_mode(pair, keys):  # noqa: F811
    report = test_tls.migrate(pair, keys['creds'], '--device-state', 'save').wait()
    assert report['device-state-saved'] and report['kernel-tls']
    godwit.proof(*pair, stopped='paused')


@pytest.mark.parametrize('number', [0, 1], ids=['control', 'stream'])
def test_a_byte_is_changed(pair, keys, number):  # noqa: F811
    test_tls.test_a_byte_is_changed(pair, keys, 'psk', number)


def test_cut_in_a_record(src, keys):  # noqa: F811
    """Between two records, and in the middle of one: the kernel tells of either end as of any other."""
    for record in (31, 33):
        run = test_tls.cut_in_a_record(src, keys['psk'], 1, record)
        assert 'by the kernel' in run.send.said, run.send.said
    godwit.unharmed(src)


def test_reconnect(pair, keys):  # noqa: F811
    test_tls.test_reconnect(pair, keys, slice(None))


def test_killed(pair, keys):  # noqa: F811
    test_tls.test_killed(pair, keys, 'receive')
