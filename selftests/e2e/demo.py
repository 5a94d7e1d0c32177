#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
make demo: the same guest moves twice in the lab, once by QEMU alone and once by godwit. The guest writes numbered
pages all the time and checks its own data.
"""
import json
import subprocess
import sys

sys.dont_write_bytecode = True
import godwit	# noqa: E402
import lab	# noqa: E402

MIB = 512
APPEND = 'start=16 size=96 touch=96 rate=1000 random=1'
LINK_MBIT = 800


def say(text):
    print(f'\n== {text}', flush=True)


def guest(name, directory):
    return lab.Qemu(name, ram=MIB, directory=directory, append=APPEND, vga='std').wait_ticks(3 * lab.TICKS)


def show(vm, where):
    vm.wait_ticks(2 * lab.TICKS)
    print(f'   {where}: {" ".join(f"{k}={v}" for k, v in vm.counters.items() if k in ("tick", "pages", "errors"))}',
          flush=True)


def by_qemu(directory):
    say("QEMU's own migration")
    src = guest('qsrc', directory)
    show(src, 'source     ')
    dst = lab.Qemu('qdst', 'dst', ram=MIB, directory=directory, vga='std', incoming=True)
    took = lab.qemu_migrate(src, dst)
    show(dst, 'destination')
    dst.check()
    src.kill()
    dst.kill()
    return took.total_ms, took.downtime_ms, took.info['ram']['transferred']


def by_godwit(directory):
    say('godwit')
    godwit.load()
    src = guest('src', directory)
    show(src, 'source     ')
    dst = godwit.destination(src, vga='std')
    address = f'10.77.0.2:{godwit.PORT}'
    report = f'{directory}/report.json'
    receive = ['receive', '--qmp', dst.main_qmp, '--listen', address, '--insecure']
    send = ['send', '--qmp', src.main_qmp, '--json', report, '--downtime-limit', godwit.DOWNTIME, address]
    print(f'   dst$ godwit {" ".join(receive)}\n   src$ godwit {" ".join(send)}', flush=True)
    receiver = godwit.Process('dst', *receive).wait_for('listening')
    with lab.popen('src', [godwit.GODWIT, *send]) as sender:
        status = sender.wait()
    receiver.wait()
    print(receiver.said, end='')
    if status:
        sys.exit(f'godwit send ended with {status}')
    show(dst, 'destination')
    dst.check()
    print(f'   the source is "{src.query_status()}"; the guest has found no error in its data')
    src.kill()
    dst.kill()
    godwit.unload()
    with open(report, encoding='utf-8') as f:
        found = json.load(f)
    return found['total-time'], found['downtime'], found['ram']['transferred']


def main():
    if not lab.IN_LAB:
        sys.exit('run it by "make demo": it needs the lab')
    directory = f'{lab.B}/demo'
    lab.net()
    lab.link('rate', LINK_MBIT)
    print(f'A guest with {MIB} MiB of RAM that writes 1000 pages a second, over a link of {LINK_MBIT} Mbit/s.')
    qemu, ours = by_qemu(directory), by_godwit(directory)
    say('the same guest, the same link, one run')
    print(f'{"":16}{"total ms":>12}{"downtime ms":>14}{"sent MiB":>12}')
    for name, row in (('QEMU', qemu), ('godwit', ours)):
        print(f'{name:16}{row[0]:12.1f}{row[1]:14.1f}{row[2] / 2**20:12.1f}')
    print('(emulated machines: compare the two, not with real hardware)', flush=True)
    return 0


if __name__ == '__main__':
    try:
        with godwit.guests():
            sys.exit(main())
    except (subprocess.SubprocessError, RuntimeError, TimeoutError, AssertionError) as e:
        sys.exit(f'demo: {e}')
