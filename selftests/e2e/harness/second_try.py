# SPDX-License-Identifier: GPL-2.0-only
"""
A pytest plugin: which failed test runs a second time.

A positive list. The lab's emulator now and then damages a guest (emulator.py). A test that failed runs once more only if
that was *found*, on a source that no switchover had stopped yet, or if a source never gave its first tick. Nothing else:
not a look-alike, not a destination, not a source that godwit has let run again. And none where one of the test's phases
failed by an Ours, whatever was found: that the emulator was caught too excuses nothing. A run has two second tries
(lab/second_tries.py) for all its labs and programs together.
"""
import contextlib
import json
import os
import sys

import emulator
import lab
import pytest
from _pytest.runner import runtestprotocol
from ours import Ours

sys.path.append(f'{lab.TREE}/selftests/lab')
from second_tries import claim	# noqa: E402 pylint: disable=wrong-import-position


def chain(error):
    """The exception, and those that it was raised from or while handling."""
    seen = []
    while error is not None and error not in seen:
        seen.append(error)
        error = error.__cause__ or error.__context__
    return seen


def evidence(error):
    """What the emulator was found to have done, or None. Asked while the VMs of the test are still there."""
    for one in chain(error):
        if isinstance(one, emulator.NoFirstTick):
            return str(one)
    for vm in list(lab.running):
        found = emulator.evidence(vm)
        if found:
            return f'{vm.name}: {found}'
    return None


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):	# pylint: disable=unused-argument
    report = (yield).get_result()
    item.has_failed |= report.failed
    report.ours, report.evidence = False, None
    if report.failed and call.excinfo:
        report.ours = any(isinstance(one, Ours) for one in chain(call.excinfo.value))
        # In teardown no VM is left to ask, and what fails there is the module or the kernel.
        if call.when != 'teardown':
            report.evidence = evidence(call.excinfo.value)


def excuse(reports):
    """The evidence by which this test may run again, or None."""
    failed = [r for r in reports if r.failed]
    if any(r.ours for r in failed) or not all(r.evidence for r in failed):
        return None
    return failed[0].evidence if failed else None


def note(item, reports):
    """For the summary of the whole run: a line for each test, where GODWIT_RESULTS says."""
    path = os.environ.get('GODWIT_RESULTS')
    if path:
        outcome = 'failed' if any(r.failed for r in reports) else 'skipped' if any(r.skipped for r in reports) else 'passed'
        with open(path, 'a', encoding='utf-8') as f:
            f.write(json.dumps({'test': item.nodeid, 'outcome': outcome, 'seconds': sum(r.duration for r in reports)}) + '\n')


def run_once(item, nextitem):
    item._initrequest()	# it may have run before. pylint: disable=protected-access
    item.has_failed = False
    # --times: pytest would keep the fixtures of a test that it takes for the next one, and not give them to it.
    return runtestprotocol(item, nextitem=item.parent if nextitem is item else nextitem, log=False)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = run_once(item, nextitem)
    found = excuse(reports)
    if found and claim(f'e2e {item.nodeid}', found):
        for report in reports:
            if report.failed:
                report.outcome = 'rerun'
                item.ihook.pytest_runtest_logreport(report=report)
        first, reports = reports, run_once(item, nextitem)
        if not any(r.failed or r.when == 'call' and r.passed for r in reports):
            reports = first	# a second try that skips has shown nothing
            for report in reports:
                report.outcome = 'failed' if report.outcome == 'rerun' else report.outcome
    note(item, reports)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_report_teststatus(report):
    if report.outcome == 'rerun':
        return 'rerun', 'R', 'RERUN'
    return None


def pytest_runtest_logreport(report):
    """A failure is told when it happens: the lab may not live to tell it at the end. So is what gets a second try."""
    if report.outcome in ('failed', 'rerun'):
        print(f'\n{report.nodeid} ({report.when}, {report.outcome}):\n{report.longreprtext}', file=sys.stderr)
        print(f'evidence: {getattr(report, "evidence", None)}', file=sys.stderr, flush=True)


# Two labs side by side share one list of tests: each takes the next that no other has taken.

def pytest_addoption(parser):
    parser.addoption('--share', metavar='DIR', help='run only tests that no other run with this directory has taken')
    parser.addoption('--times', type=int, default=1, help='run each test so often, for what depends on the moment')


def take(directory, name):
    with contextlib.suppress(FileExistsError):
        os.close(os.open(os.path.join(directory, name.replace('/', '_')), os.O_CREAT | os.O_EXCL))
        return True
    return False


def unit(item):
    """What must stay in one lab: a test, or a file whose tests build on each other (a fixture of the module)."""
    return item.path.name if item.get_closest_marker('together') else item.nodeid


def to_run(items, directory, times):
    taken = {}
    for item in items:
        one = unit(item)
        if directory and one not in taken:
            taken[one] = take(directory, one)
        if not directory or taken[one]:
            yield from [item] * times


def pytest_runtestloop(session):
    """As pytest's own; but which test is next is known only when it has been taken."""
    if session.testsfailed and not session.config.option.continue_on_collection_errors:
        raise session.Interrupted(f'{session.testsfailed} errors during collection')
    if session.config.option.collectonly:
        return True
    queue = to_run(session.items, session.config.option.share, session.config.option.times)
    item = next(queue, None)
    while item:
        following = next(queue, None)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        item = following
    return True
