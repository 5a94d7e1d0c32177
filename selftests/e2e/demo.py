#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
make demo: the same guest moves twice in the lab, once by QEMU alone and once by godwit, with the same downtime limit and
timed by the same clock (selftests/bench/migrate/timed.py). The guest writes numbered pages all the time and checks its own
data.
"""
import os
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.append(os.path.realpath(f'{os.path.dirname(os.path.abspath(__file__))}/harness'))
sys.path.append(os.path.realpath(f'{os.path.dirname(os.path.abspath(__file__))}/../bench/migrate'))
import godwit	# noqa: E402
import lab	# noqa: E402
import timed	# noqa: E402

MIB = 512
APPEND = 'start=16 size=96 touch=96 rate=1000 random=1'
LINK_MBIT = 800
LIMIT_MS = 1000		# godwit keeps to it: on an emulated host the device state alone may take 300


def say(text):
    print(f'\n== {text}', flush=True)


def guest(name, directory):
    return lab.Qemu(name, ram=MIB, directory=directory, append=APPEND, vga='std').wait_ticks(3 * lab.TICKS)


def show(vm, where):
    vm.wait_ticks(2 * lab.TICKS)
    print(f'   {where}: {" ".join(f"{k}={v}" for k, v in vm.counters.items() if k in ("tick", "pages", "errors"))}',
          flush=True)


def move(name, directory, by, **more):
    """What the migration took; the guest has found its data unharmed."""
    src = guest(name, directory)
    show(src, 'source     ')
    dst = godwit.destination(src, name=f'{name}-there', vga='std')
    took = by(src, dst, LIMIT_MS, **more)
    show(dst, 'destination')
    dst.check()
    print(f'   the source is "{src.query_status()}"; the guest has found no error in its data')
    src.kill()
    dst.kill()
    return took


def main():
    if not lab.IN_LAB:
        sys.exit('run it by "make demo": it needs the lab')
    directory = f'{lab.B}/demo'
    lab.net()
    lab.link('rate', LINK_MBIT)
    print(f'A guest with {MIB} MiB of RAM that writes 1000 pages a second, over a link of {LINK_MBIT} Mbit/s.')
    say("QEMU's own migration")
    qemu = move('qemu', directory, timed.by_qemu)
    say('godwit')
    godwit.load()
    ours = move('godwit', directory, timed.by_godwit, terminal=True)
    godwit.unload()
    say(f'the same guest, link and downtime limit ({LIMIT_MS} ms), one run of each')
    print(f'{"":16}{"total ms":>12}{"downtime ms":>14}{"sent MiB":>12}')
    for name, took in (('QEMU', qemu), ('godwit', ours)):
        print(f'{name:16}{took.total:12.1f}{took.downtime:14.1f}{took.sent / 2**20:12.1f}')
    print('total: from the command to RESUME at the destination; downtime: from STOP at the source to it; one clock for both')
    print(f'godwit\'s own report says {ours.report["total-time"]:.1f} and {ours.report["downtime"]:.1f} ms')
    print('(emulated machines: compare the two, not with real hardware)', flush=True)
    return 0


if __name__ == '__main__':
    try:
        with godwit.guests():
            sys.exit(main())
    except (subprocess.SubprocessError, RuntimeError, TimeoutError, AssertionError, timed.NotMoved) as e:
        sys.exit(f'demo: {e}')
