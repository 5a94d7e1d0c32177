# SPDX-License-Identifier: GPL-2.0-only
"""build/bench.json: what benchmarks have found, an array of {name, unit, godwit, peers, ratio, goal}."""
import json
import os

TOP = os.path.realpath(f'{os.path.dirname(os.path.abspath(__file__))}/../..')
B = os.environ.get('B', f'{TOP}/build')


def add(entries):
    """What other benchmarks have left there stays."""
    path, old = f'{B}/bench.json', []
    if os.path.exists(path):
        with open(path, encoding='utf-8') as f:
            old = json.load(f)
    new = {e['name'] for e in entries}
    with open(path, 'w', encoding='utf-8') as f:
        json.dump([e for e in old if e['name'] not in new] + entries, f, indent=2)
        f.write('\n')
