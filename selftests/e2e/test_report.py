# SPDX-License-Identifier: GPL-2.0-only
"""What a migration says: the line in a terminal, JSON while it runs and afterwards, metrics, pictures."""
import json
import re
import subprocess
import xml.etree.ElementTree

import godwit
import jsonschema
import lab
import pytest

with open(f'{lab.TREE}/docs/report.schema.json', encoding='utf-8') as schema_file:
    SCHEMA = json.load(schema_file)
COLUMNS = 80
BLACKOUT = ('stop', 'harvest', 'check', 'ram', 'verify', 'save', 'load')


def valid(document, definition=None):
    schema = {'$ref': f'#/$defs/{definition}', '$defs': SCHEMA['$defs']} if definition else SCHEMA
    jsonschema.Draft202012Validator(schema).validate(document)
    return document


def migration(directory, *options, rate, mbit, **more):
    """A guest that writes so many pages a second, over a link of so many Mbit/s."""
    src = lab.Qemu('src', directory=directory, append=f'start=16 size=48 touch=48 rate={rate} random=1').wait_ticks(2)
    dst = godwit.destination(src)
    lab.link('rate', mbit)
    return src, dst, godwit.Run(src, dst, *options, **more)


def metrics(path):
    """{name: value}; every line must be one that node_exporter takes."""
    found = {}
    with open(path, encoding='utf-8') as f:
        for line in f:
            if not line.startswith('#'):
                name, value = re.fullmatch(r'godwit_migration_(\w+)\{qmp="[^"\\]+"\} (\d+(?:\.\d+)?)\n', line).groups()
                assert name not in found
                found[name] = float(value)
    return found


def check_rounds(report):
    """They follow each other, add up, and the last one is the blackout's."""
    rounds, ram = report['rounds'], report['ram']
    assert len(rounds) == ram['dirty-sync-count'] >= 3
    assert [r['round'] for r in rounds] == list(range(1, len(rounds) + 1))
    assert [r['blackout'] for r in rounds] == [False] * (len(rounds) - 1) + [True]
    assert rounds[0]['start-time'] == report['setup-time']
    for before, after in zip(rounds, rounds[1:]):
        assert before['start-time'] < before['end-time'] <= after['start-time']
    assert sum(r['normal'] for r in rounds) == ram['normal']
    assert sum(r['duplicate'] for r in rounds) == ram['duplicate']
    for kind in ('same-byte', 'normal-bytes', 'delta', 'delta-bytes', 'unchanged', 'reused', 'reused-bytes'):
        assert sum(r[kind] for r in rounds) == ram[kind]
    assert ram['normal-bytes'] < sum(r['transferred'] for r in rounds) <= ram['transferred']
    # The guest's own 48 MiB go out in the first round; each later one sends what the one before has left, and what has
    # been touched for the first time since.
    assert rounds[0]['normal'] >= 48 << 8
    decide = [r for r in rounds[:-1] if not r['late']]
    assert rounds[:len(decide)] == decide
    for before, after in zip(decide, decide[1:]):
        taken = sum(after[kind] for kind in ('normal', 'duplicate', 'same-byte', 'unchanged'))
        assert 0 <= taken * 4096 - before['remaining'] < 1 << 20
    assert rounds[-2]['expected-downtime'] == report['expected-downtime'] <= report['downtime-limit'] == int(godwit.DOWNTIME)
    # In a short round the guest may have written nothing.
    assert all(r['mbps'] > 0 and (r['dirty-pages-rate'] > 0 or not r['remaining']) for r in rounds[:-1])


def check_progress(said, report):
    lines = [valid(json.loads(line), 'progress') for line in said.splitlines()]
    assert {line['phase'] for line in lines} >= {'pre-copy', 'switchover', 'done'}
    for before, after in zip(lines, lines[1:]):
        assert before['total-time'] <= after['total-time']
        assert before['ram']['transferred'] <= after['ram']['transferred']
    # Round 1, before the harvest that says what it has left.
    first = [line['ram']['remaining'] for line in lines
             if line['ram']['dirty-sync-count'] == 1 and not line['expected-downtime']]
    assert len(first) > 2 and first == sorted(first, reverse=True) and first[0] > first[-1]
    assert any(line.get('converges') and line['eta'] > 0 for line in lines)
    *_, last = lines
    assert [line for line in lines if 'status' in line] == [last]
    assert last == {key: value for key, value in report.items() if key != 'rounds'}


def texts(path):
    """All text of a picture, which must be well-formed."""
    return ' '.join(xml.etree.ElementTree.parse(path).getroot().itertext())


def show(directory, *words):
    return lab.call(godwit.GODWIT, 'report', *words, f'{directory}/report.json')


@pytest.mark.usefixtures('module')
def test_everything_is_told(directory):
    prom = f'{directory}/godwit.prom'
    src, dst, run = migration(directory, '--progress=json', '--metrics', prom, '--downtime-limit', '1', '--postcopy', 'off', rate=300,
                              mbit=200, verify=False)
    report = valid(run.converge_after(1).wait())
    check_rounds(report)
    check_progress(run.send.said, report)
    godwit.proof(src, dst)
    # They leave no moment without a name, however long a busy host holds the sender up.
    parts = sum(report['blackout'][part] for part in BLACKOUT)
    assert abs(parts - report['downtime']) < report['clock-error'] + 2, (parts, report['downtime'])
    told = metrics(prom)
    assert (told['succeeded'], told['failed']) == (1, 0)
    assert told['data_processed_bytes'] == report['ram']['transferred']
    assert abs(told['downtime_seconds'] * 1000 - report['downtime']) < 0.01
    show(directory, '-o', f'{directory}/report.svg')
    picture = texts(f'{directory}/report.svg')
    for word in ('Rounds over time', f'Blackout: {report["downtime"]:.1f} ms', f'{report["ram"]["normal"]} pages'):
        assert word in picture
    show(directory, '-o', f'{directory}/report.html')
    with open(f'{directory}/report.html', encoding='utf-8') as f:
        page = f.read()
    assert page.count('<tr><td>') == len(report['rounds'])
    assert not re.search(r'(src|href)=|@import|url\(', page), 'it needs another file'
    lines = show(directory).splitlines()
    assert lines[0] == 'migrated' and f'{report["downtime"]:.1f} ms' in ' '.join(lines)


@pytest.mark.usefixtures('module')
def test_in_a_terminal(directory):
    """One line, painted over and over; the report is there after a failure, too. No guest stops in a millisecond."""
    src, _, run = migration(directory, '--max-rounds', '3', '--downtime-limit', '1', rate=300, mbit=60, columns=COLUMNS)
    report = valid(run.wait('not-converged'))
    godwit.unharmed(src)
    line, _, rest = run.send.said.partition('\r\n')
    assert '\n' not in line and 'godwit: after 3 rounds' in rest
    paintings = line.split('\r')[1:]
    assert len(paintings) > 10
    for text in paintings:
        assert text.endswith('\x1b[K') and len(text) - 3 < COLUMNS
    assert 'does not converge at this rate' in paintings[-1]
    assert [r['blackout'] for r in report['rounds']] == [False] * 3
    assert report['ram']['remaining'] == report['rounds'][-1]['remaining']
    assert show(directory).splitlines()[0] == 'not migrated (not-converged) in phase "pre-copy", round 3'
    show(directory, '-o', f'{directory}/report.svg')
    picture = texts(f'{directory}/report.svg')
    assert 'the guest was not stopped' in picture and 'write load' in ' '.join(picture.split())


def send(directory, *options, port=9):
    return subprocess.run([godwit.GODWIT, 'send', '--qmp', f'{directory}/nobody.qmp', *options, f'127.0.0.1:{port}'],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)


@pytest.mark.native
def test_a_refusal_leaves_a_report(directory):
    path, prom = f'{directory}/report.json', f'{directory}/godwit.prom'
    done = send(directory, '--json', path, '--metrics', prom)
    assert done.returncode == godwit.EXIT['no-socket']
    with open(path, encoding='utf-8') as f:
        report = valid(json.load(f))
    assert (report['status'], report['rounds']) == ('no-socket', [])
    assert f'godwit: {report["message"]}\n' == done.stderr
    assert metrics(prom)['failed'] == 1
    show(directory, '-o', f'{directory}/report.svg')
    assert 'nobody.qmp' in texts(f'{directory}/report.svg')


@pytest.mark.native
@pytest.mark.parametrize('words,says', [
    (['--progress', 'loud'], '--progress takes auto, plain, json or none, not "loud"'),
    (['--metrics', '/nowhere/x.prom'], 'cannot write metrics to /nowhere/x.prom: No such file or directory')])
def test_send_refuses(directory, words, says):
    done = send(directory, *words)
    assert done.returncode == godwit.EXIT['usage'] and says in done.stderr and not done.stdout


@pytest.mark.native
@pytest.mark.parametrize('words,says', [
    ([], 'report needs one RUN.json'),
    (['/nowhere/run.json'], '/nowhere/run.json'),
    (['/dev/null'], 'cannot read /dev/null'),
    (['-o', 'x.png', 'run.json'], 'FILE.svg or FILE.html, not "x.png"')])
def test_report_refuses(words, says):
    done = subprocess.run([godwit.GODWIT, 'report', *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False)
    assert done.returncode == godwit.EXIT['usage'] and says in done.stderr and not done.stdout
