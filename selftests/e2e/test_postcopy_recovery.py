# SPDX-License-Identifier: GPL-2.0-only
"""The link is lost while the guest runs at the destination and its RAM is not there: its faults wait, and both ends find each other."""
import contextlib
import glob
import os
import random
import signal
import socket
import threading
import time

import godwit
import lab
import monitor
import pytest
import relay
import wire
from ours import proved
from test_postcopy import LAZY, came_after

pytestmark = pytest.mark.usefixtures('module')
TO = godwit.TO


HUGE = '/dev/hugepages-2M'


@pytest.fixture
def pair(directory, request):
    # 16 MiB that it writes all the time, with a check of each page. Stopped first it owes all of them, and the relay lets
    # 2 MiB/s through: some seconds of pushing, however slow guest and host are.
    with contextlib.ExitStack() as stack:
        more = {}
        if getattr(request, 'param', 'tmpfs') == 'hugetlbfs':
            stack.enter_context(lab.mounted('hugetlbfs', 'pagesize=2M', HUGE))
            stack.enter_context(godwit.guests())
            more['ram'] = [lab.Ram(64, f'{HUGE}/src')]
        src = lab.Qemu('src', directory=directory, append='start=16 size=16 touch=16 rate=3000 random=1', **more).wait_ticks(2)
        yield src, godwit.destination(src)


def begin(pair, between, *options, receive_options=('--peer-timeout', '3'), runs=True):
    run = godwit.Run(*pair, *LAZY, '--pause', '--peer-timeout', '3', *options, verify=False, to=between.address, receive_options=receive_options)
    if runs:
        run.receive.wait_for('are still to come')
    return run


def arrived(pair, run, between, times):
    report = run.wait()
    units, faults, asked, _ = came_after(run)
    assert report['reconnects'] == times and asked <= faults and units
    godwit.proof(*pair)
    return report


@pytest.mark.parametrize('which', [slice(None), slice(1), slice(1, 2), slice(-1, None)], ids=['all', 'control', 'stream', 'requests'])
def test_reset(pair, which):
    """Of one connection, or of all of them."""
    with relay.Losing(TO) as between:
        run = begin(pair, between, '--streams', '2')
        time.sleep(1)
        between.lose(which)
        run.send.wait_for('connected again')
        arrived(pair, run, between, 1)


def test_slow_greeting(pair):
    """The sender's HELLO takes longer than the receiver waits between two looks at its QEMU."""
    with relay.Losing(TO) as between:
        run = begin(pair, between)
        between.hello = 0.7	# there and back
        between.lose()
        run.send.wait_for('connected again')
        between.hello = 0
        arrived(pair, run, between, 1)


def test_again_and_again(pair):
    """Also while the sender connects again: its RECOVER, what is missing, the streams, a question, an answer."""
    with relay.Losing(TO, drop=[]) as between:
        run = begin(pair, between)
        for kind in (wire.RECOVER, wire.OWED, wire.STREAMS, wire.JOIN, wire.WANT):
            between.drop.add(kind)
            between.lose()
            between.wait(lambda kind=kind: kind not in between.drop)
        assert run.wait()['reconnects'] >= 1
        godwit.proof(*pair)


def test_silent(pair):
    """Longer than both ends wait for a sign of life, and the guest waits: it reads no zeros."""
    with relay.Losing(TO) as between:
        run = begin(pair, between)
        between.fall(silently=True)
        time.sleep(10)
        proved(not pair[1].errors, pair[1].complaints)
        assert run.send.poll() is None and run.receive.poll() is None
        between.rise()
        arrived(pair, run, between, 1)


def test_it_does_not_come_back(pair):
    """Both ends say that the guest is incomplete, and the source stays as it is."""
    with relay.Losing(TO) as between:
        run = begin(pair, between, '--recover-timeout', '5', receive_options=('--peer-timeout', '3', '--recover-timeout', '5'))
        between.fall()
        assert run.send.wait() == godwit.EXIT['incomplete'] and 'do not continue it' in run.send.said, run.send.said
        assert run.receive.wait() == godwit.EXIT['incomplete'] and 'end neither QEMU' in run.receive.said, run.receive.said
        proved(not pair[1].errors, pair[1].complaints)
        proved(pair[0].query_status() == 'postmigrate', 'the source runs')
    pair[1].kill()


@pytest.mark.parametrize('commands', [('cont',), ('cont', 'stop')], ids=' '.join)
def test_the_source_is_continued(pair, commands):
    """By another client, whose guest writes what the other one lacks: it gets no more of that, of this sender or of another one."""
    src, dst = pair
    with relay.Losing(TO) as between:
        run = begin(pair, between)
        for command in commands:
            src.qmp(command)
        proved(run.send.wait() == godwit.EXIT['ran-twice'] and 'no more of it is sent' in run.send.said, run.send.said)
        run.receive.wait_for('for the sender to connect again')
        if 'stop' not in commands:
            src.qmp('stop')
        send = godwit.Process('src', 'send', '--recover', '--qmp', src.main_qmp, '--peer-timeout', '3', godwit.AT)
        proved(send.wait() == godwit.EXIT['ran-twice'] and 'none of it is sent' in send.said, send.said)
        run.receive.kill(signal.SIGINT).wait()
    dst.kill()


def test_its_qemu_ends(pair):
    """RAM is in a file, which the sender has open: it goes on without its QEMU, and over new connections."""
    src, dst = pair
    with relay.Losing(TO) as between:
        run = begin(pair, between)
        between.fall()
        run.send.wait_for('trying to connect again')
        src.kill()
        time.sleep(2)
        between.rise()
        run.send.wait_for('connected again')
        assert run.send.wait() == 0 and run.receive.wait() == 0, (run.send.said, run.receive.said)
    proved(dst.wait_ticks(2) and not dst.errors, dst.complaints)


def answers_dead(at):
    """A peer that says of each migration that its guest never ran there."""
    def run():
        lab.enter('src')()
        with socket.create_server(at) as server:
            ready.set()
            with server.accept()[0] as peer:
                peer.sendall(wire.hello())
                asked = b''
                while len(asked) < len(wire.hello()) + wire.HEADER.size + 16 and (more := peer.recv(4096)):
                    asked += more
                peer.sendall(wire.frame(wire.VERDICT, 4, bytes(8)))
                while peer.recv(4096):
                    pass
    ready = threading.Event()
    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(30)
    return thread


def test_a_lie_does_not_make_two_guests(pair):
    """The sender has heard that the guest runs there: no receiver can have its source go on after that, as two would run then."""
    src, dst = pair
    with relay.Losing(TO) as between:
        run = begin(pair, between, '--recover-timeout', '3', receive_options=('--peer-timeout', '3', '--recover-timeout', '3'))
        between.fall()
        assert run.send.wait() == godwit.EXIT['incomplete'], run.send.said
        assert run.receive.wait() == godwit.EXIT['incomplete'], run.receive.said
    at = lab.ADDRESS['src'], 4435
    liar = answers_dead(at)
    asked = godwit.Process('src', 'resolve', '--qmp', src.main_qmp, '--to', f'{at[0]}:{at[1]}', '--resolve-timeout', '2')
    assert asked.wait() == godwit.EXIT['unknown'] and 'look at the destination' in asked.said, asked.said
    liar.join()
    proved(src.query_status() == 'postmigrate', f'the source is {src.query_status()}')
    # And the note is there still: the true one ends it well.
    receive = godwit.listen(dst, '--recover', '--peer-timeout', '3')
    send = godwit.Process('src', 'send', '--recover', '--qmp', src.main_qmp, '--peer-timeout', '3', godwit.AT)
    assert send.wait() == 0 and receive.wait() == 0, (send.said, receive.said)
    godwit.proof(src, dst)


def lost(src, sender):
    """Its sender says that the guest is lost, and its source stays as it is."""
    assert sender.wait() == godwit.EXIT['guest-lost'], sender.said
    assert 'the guest is lost' in sender.said and 'start it anew from its disks' in sender.said, sender.said
    proved(src.query_status() == 'postmigrate', f'the source is {src.query_status()}')


def ended(receive):
    """It has told its sender, or waits on: when one end closes, the relay ends both directions, and so no confirmation comes back."""
    if receive.poll() is None:
        receive.kill(signal.SIGINT)
    assert receive.wait(30) == godwit.EXIT['vm-gone'], receive.said


def ask_later(src):
    """Of a receiver that waits for another guest."""
    answers = godwit.listen(godwit.destination(src, 'dst2'))
    lost(src, godwit.Process('src', 'send', '--recover', '--qmp', src.main_qmp, godwit.AT))
    lost(src, godwit.Process('src', 'resolve', '--qmp', src.main_qmp, '--to', godwit.AT, '--resolve-timeout', '2'))
    answers.kill().wait()


@pytest.mark.parametrize('first', ['link', 'qemu', 'link, receiver'])
def test_qemu_ends_without_a_link(pair, first):
    """
    The receiver that sees it, or the one that has taken over and does not know yet whose guest it is, tells the sender when the
    link is back. That one is lost in silence as QEMU ends makes the receiver believe for a moment that it has told.
    """
    src, dst = pair
    with relay.Losing(TO) as between:
        run = begin(pair, between)
        receive = run.receive
        between.fall(silently=first == 'qemu')
        if first != 'qemu':
            receive.wait_for('for the sender to connect again')
        if first == 'link, receiver':
            receive.kill().wait()
            receive = godwit.listen(dst, '--recover', '--peer-timeout', '3')
        dst.kill()
        receive.wait_for('for its question')
        run.send.wait_for('trying to connect again')
        assert run.send.poll() is None and receive.poll() is None
        between.rise()
        lost(src, run.send)
    ended(receive)
    ask_later(src)


def fall_at_resumed(between):
    def fall(*_):
        between.fall()
        return b''
    between.at_head[wire.RESUMED] = fall


def test_qemu_ends_and_resumed_was_lost(pair):
    """The sender does not know that the guest ran. It hears that first, and then what became of it: its source does not go on."""
    src, dst = pair
    with relay.Losing(TO) as between:
        fall_at_resumed(between)
        run = begin(pair, between)
        run.receive.wait_for('for the sender to connect again')
        dst.kill()
        run.receive.wait_for('(the guest is lost): waiting')
        between.rise()
        lost(src, run.send)
        assert 'in doubt' in run.send.said, run.send.said
    ended(run.receive)


def test_another_receiver_knows_of_the_loss(pair):
    """The sender has given up, and the receiver that saw it is not asked any more: it leaves a record."""
    src, dst = pair
    with relay.Losing(TO) as between:
        run = begin(pair, between, '--recover-timeout', '3')
        between.fall()
        assert run.send.wait() == godwit.EXIT['incomplete'], run.send.said
        dst.kill()
        run.receive.wait_for('(the guest is lost): waiting')
    ended(run.receive)
    ask_later(src)


def test_too_late_for_this_receiver(pair):
    """
    RESUMED is lost with the link, and when that comes back the receiver waits for nothing but the question how it ended. It does
    not say that all is well, or anything else that would end the sender: another receiver brings the rest.
    """
    src, dst = pair
    with relay.Losing(TO) as between:
        fall_at_resumed(between)
        run = begin(pair, between, receive_options=('--peer-timeout', '3', '--recover-timeout', '3'))
        run.receive.wait_for('waiting 60 s for its question')
        between.rise()
        assert run.receive.wait() == godwit.EXIT['incomplete'], run.receive.said
        assert run.send.poll() is None, run.send.said
        receive = godwit.listen(dst, '--recover', '--peer-timeout', '3')
        assert run.send.wait() == 0, run.send.said
        assert receive.wait() == 0 and 'all RAM is here' in receive.said, receive.said
        godwit.proof(src, dst)


@pytest.mark.parametrize('who', ['sender', 'receiver', 'both', 'both, again'])
def test_killed(pair, who):
    """Others take over, with nothing but the two QEMUs and the sender's note; what has come since is not asked for again."""
    src, dst = pair
    patient = ['--peer-timeout', '20']	# the link makes all wait; a death is heard of at once
    with relay.Losing(TO, rate=64 << 10) as between:
        # From before its first page: so there is more to come at each death, however late that is.
        between.at_head[wire.COMMIT] = lambda *_: setattr(between, 'rate', 256 << 10)
        run = godwit.Run(src, dst, *LAZY, *patient, verify=False, to=between.address, receive_options=patient)
        run.send.wait_round(1)
        # At most one page in seven has been left alone by then, and the round takes minutes.
        begun = src.counters['pages']
        while src.counters['pages'] < begun + 2 * (16 << 8):
            src.wait_ticks(1)
        between.rate = 16 << 20
        run.receive.wait_for('are still to come')
        send, receive = run.send, run.receive
        for _ in range(2 if 'again' in who else 1):
            between.wait_ram(256 << 10)
            if who != 'receiver':
                send.kill().wait()
            if who != 'sender':
                receive.kill().wait()
                proved(not dst.errors, dst.complaints)
                receive = godwit.listen(dst, '--recover', *patient)
            if who != 'receiver':
                send = godwit.Process('src', 'send', '--recover', '--qmp', src.main_qmp, *patient, between.address)
                receive.wait_for('has connected again' if who == 'sender' else 'are still to come')
        between.rate = 16 << 20
        assert send.wait() == 0, send.said
        assert receive.wait() == 0 and 'all RAM is here' in receive.said, receive.said
        godwit.proof(src, dst)
    # And nothing is left of it: neither a mark nor a note.
    asked = godwit.Process('src', 'resolve', '--qmp', src.main_qmp)
    assert asked.wait() == godwit.EXIT['no-migration'], asked.said


@pytest.mark.parametrize('who', ['sender', 'both', 'both, without a note'])
def test_killed_where_names_are_exchanged(directory, qemu, who):
    """What holds the guest's upper half has the name of the lower one at the destination: who takes over goes by places as well."""
    ram = [lab.Ram(64, 'memfd'), lab.Ram(64, 'memfd')]
    src = lab.Qemu('src', directory=directory, ram=ram, qemu=qemu,
                   append='start=56 size=16 touch=16 rate=3000 random=1').wait_ticks(2)
    dst = godwit.destination(src, ram=ram, order=[1, 0])
    with relay.Losing(TO) as between:
        run = begin((src, dst), between, '--device-state', 'save')
        receive = run.receive
        between.wait_ram(256 << 10)
        run.send.kill().wait()
        if who != 'sender':
            receive.kill().wait()
            notes = glob.glob(f'/run/godwit/ram-{dst.pid}-*')	# others may have been left by tests before
            proved(len(notes) == 1, notes)
            if 'without' in who:
                os.unlink(notes[0])
            receive = godwit.listen(dst, '--recover', '--peer-timeout', '3')
        send = godwit.Process('src', 'send', '--recover', '--qmp', src.main_qmp, '--peer-timeout', '3', between.address)
        assert send.wait() == 0, send.said
        assert receive.wait() == 0 and 'all RAM is here' in receive.said, receive.said
        godwit.proof(src, dst, stopped='paused')


def test_qemu_itself_waits(pair):
    """
    Not only the guest: QEMU's main loop touches a page that is missing, and its monitor answers nobody until that is there. The
    receiver that takes over does not wait for an answer.
    """
    src, dst = pair
    with relay.Losing(TO) as between:
        run = begin(pair, between)
        between.fall()
        run.receive.wait_for('for the sender to connect again')
        run.receive.kill().wait()
        reader = threading.Thread(target=dst.qmp, args=['pmemsave', 300],
                                  kwargs={'val': 16 << 20, 'size': 16 << 20, 'filename': f'{dst.directory}/saved'}, daemon=True)
        reader.start()
        reader.join(3)
        proved(reader.is_alive(), 'QEMU has read pages that are not there')
        receive = godwit.listen(dst, '--recover', '--peer-timeout', '3')
        between.rise()
        assert run.send.wait() == 0, run.send.said
        assert receive.wait() == 0 and 'all RAM is here' in receive.said and 'QEMU keeps' not in receive.said, receive.said
        reader.join(60)
        proved(not reader.is_alive(), 'QEMU waits still')
        godwit.proof(src, dst)


def test_qemu_itself_waits_at_once(pair):
    """From the moment on at which it resumes the guest. Its receiver is killed as soon as it has a verdict, or asks for another word."""
    src, dst = pair
    resumed, asked, answers = (threading.Event() for _ in range(3))

    def hook(direction, data):
        if direction == 'from' and b'"RESUME"' in data:
            resumed.set()
        elif direction == 'to' and resumed.is_set() and not answers.is_set():
            asked.set()
            answers.wait(300)
    qemu = monitor.Monitor(dst, hook)
    with relay.Losing(TO) as between:
        run = begin(pair, between, receive_options=('--peer-timeout', '30', *qemu.options()), runs=False)
        run.receive.wait_until(lambda: asked.is_set() or 'are still to come' in run.receive.said, 'verdict', 120)
        run.receive.kill().wait()
        receive = godwit.listen(dst, '--recover', '--peer-timeout', '3', *qemu.options())
        receive.wait_for('are still to come')
        answers.set()
        assert run.send.wait() == 0, run.send.said
        assert receive.wait() == 0 and 'all RAM is here' in receive.said and 'QEMU keeps' not in receive.said, receive.said
        godwit.proof(src, dst)


def test_killed_before_the_guest_was_started(pair):
    """Its QEMU has loaded the guest, and waits for `cont`. Whoever takes over gives it, when all RAM is there."""
    src, _ = pair
    dst = godwit.destination(src, 'dst2', extra=['-S'])
    cont, killed = threading.Event(), threading.Event()

    def hook(direction, data):
        if direction == 'to' and b'"cont"' in data:
            cont.set()
            killed.wait(300)
            return monitor.Monitor.END
        return None
    qemu = monitor.Monitor(dst, hook)
    short = '--peer-timeout', '3', '--resolve-timeout', '1'
    run = godwit.Run(src, dst, *LAZY, '--pause', *short, verify=False, receive_options=(*short, *qemu.options()))
    assert cont.wait(120), run.send.said
    run.receive.kill().wait()
    killed.set()
    assert run.send.wait() == godwit.EXIT['unknown'], run.send.said
    assert dst.query_status() == 'paused'
    receive = godwit.listen(dst, '--recover', *short)
    send = godwit.Process('src', 'send', '--recover', '--qmp', src.main_qmp, *short, godwit.AT)
    assert send.wait() == 0, send.said
    assert receive.wait() == 0 and 'had not been started here, and runs now' in receive.said, receive.said
    godwit.proof(src, dst)


def kept():
    with open('/sys/class/misc/godwit/kept_userfaultfds', encoding='ascii') as f:
        return int(f.read())


def test_killed_when_all_is_here(pair):
    """
    While it waits for the sender to confirm that. Nobody can take over, and nobody need: a page that was never touched is zeros, the
    module keeps nothing, and the sender hears of another receiver how it ended.
    """
    src, dst = pair
    patient = ['--peer-timeout', '60']
    with relay.Losing(TO, swallow=[wire.COMPLETE]) as between:
        run = begin(pair, between, *patient, receive_options=patient)
        between.wait(lambda: between.count.get(wire.COMPLETE), 120)
        run.receive.kill().wait()
        dst.qmp('pmemsave', 30, val=96 << 20, size=1 << 20, filename=f'{dst.directory}/saved')
        proved(not kept(), f'{kept()} userfaultfds are kept')
        answers = godwit.listen(godwit.destination(src, 'dst2'))
        between.swallow.clear()
        assert run.send.wait() == 0, run.send.said
        answers.wait_for('told the sender of another guest')
        answers.kill().wait()
        godwit.proof(src, dst)


def test_fewer_streams(pair):
    """The receiver that takes over allows fewer than the one before, and the sender has been there all the time."""
    src, dst = pair
    with relay.Losing(TO) as between:
        run = begin(pair, between, '--streams', '4')
        run.receive.kill().wait()
        receive = godwit.listen(dst, '--recover', '--peer-timeout', '3', '--streams', '1')
        assert run.send.wait() == 0, run.send.said
        assert receive.wait() == 0 and 'all RAM is here' in receive.said, receive.said
        godwit.proof(src, dst)


DEATHS = 5


@pytest.mark.parametrize('pair', ['tmpfs', 'hugetlbfs'], indirect=True)
def test_at_a_random_moment(pair):
    """The sender, the receiver, both, or the link, from when the guest runs there until it has all."""
    src, dst = pair
    draw = random.Random(seed := random.randrange(1 << 32))
    print('seed', seed)	# said if it fails
    with relay.Losing(TO, rate=1 << 20) as between:
        run = begin(pair, between)
        send, receive = run.send, run.receive
        for _ in range(DEATHS):
            time.sleep(draw.uniform(0, 2))
            if receive.poll() is not None or send.poll() is not None:
                break
            who = draw.choice(['sender', 'receiver', 'both', 'link'])
            if who == 'link':
                between.lose()
            if who in ('receiver', 'both'):
                receive.kill().wait()
            if who in ('sender', 'both'):
                if not send.kill().wait():	# it has just heard that all is there
                    godwit.proof(src, dst)
                    return
                send = godwit.Process('src', 'send', '--recover', '--qmp', src.main_qmp, '--peer-timeout', '3', between.address)
            proved(not dst.errors, dst.complaints)
            if who in ('receiver', 'both'):
                receive = godwit.receive(dst, '--recover', '--peer-timeout', '3')
        status = receive.wait()
        # It was killed when it had just made the last page.
        over = status == godwit.EXIT['no-migration'] and 'lacks no RAM' in receive.said
        assert over or status == 0 and 'all RAM is here' in receive.said, receive.said
        if send.wait(30 if over else 180):
            assert over, send.said
            answers = godwit.listen(godwit.destination(src, 'dst2'))
            asked = godwit.Process('src', 'resolve', '--qmp', src.main_qmp)
            assert asked.wait() == 0, asked.said
            answers.kill().wait()
        godwit.proof(src, dst)


def test_nothing_to_recover(pair):
    """A guest that has all of its RAM, or never lacked any."""
    src, dst = pair
    p = godwit.receive(dst, '--recover')
    assert p.wait() == godwit.EXIT['no-migration'] and 'lacks no RAM' in p.said, p.said
    p = godwit.Process('src', 'send', '--recover', '--qmp', src.main_qmp, godwit.AT)
    assert p.wait() == godwit.EXIT['vm-state'], p.said
    godwit.unharmed(src)


def says(*frames):
    """A stranger, on the link's sender side."""
    def run():
        lab.enter('src')()
        with socket.create_connection(TO) as peer:
            peer.sendall(b''.join(frames))
            while peer.recv(4096):
                pass
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


@pytest.mark.parametrize('frame', [wire.frame(wire.RECOVER, 0, bytes(16)), wire.frame(wire.BLOCKS, 0)], ids=['token', 'blocks'])
def test_strangers(pair, frame):
    """While the receiver waits: who does not know the token gets nothing, and does not end the wait."""
    with relay.Losing(TO) as between:
        run = begin(pair, between)
        between.fall()
        run.receive.wait_for('waiting')
        says(wire.hello(offers=wire.VERDICTS | wire.ONE_WAY | wire.POSTCOPY), frame)
        run.receive.wait_for('rejected a connection')
        between.rise()
        arrived(pair, run, between, 1)
