#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
`--domain` beside a real libvirtd, with a domain that is mended as godwit says until it moves. Daemon, domain and destination
live in namespaces (mounts, processes, network) that end with the test. The domain runs without KVM: it is moved with --pause.
Started as a program, this file is what runs in there; it says what it saw as JSON.
"""
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time

from helptext import BUILD, TREE

NAME = 'web-1'
SERIAL, FAR_SERIAL, FAR_QMP = '/run/serial.log', '/run/far.log', '/run/far.qmp'
ADDRESS = '127.0.0.1:4433'

CONFIG = '''user = "root"
group = "root"
memory_backing_dir = "/dev/shm"
security_driver = "none"
namespaces = [ ]
cgroup_controllers = [ ]
stdio_handler = "file"
'''
DOMAIN = '''<domain type='qemu'>
  <name>{name}</name>
  <uuid>8a3d4c1e-0b5f-4c5d-9d53-6f0d1c5a7b21</uuid>
  <memory unit='MiB'>96</memory>
  <os>
    <type arch='x86_64' machine='q35'>hvm</type>
    <kernel>{build}/guest/pattern.elf</kernel>
    <cmdline>size=16 touch=16 rate=100</cmdline>
  </os>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <serial type='file'><source path='{serial}'/></serial>
  </devices>
</domain>
'''


def call(*words):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return {'status': done.returncode, 'text': done.stdout}


def virsh(*words):
    done = call('virsh', '-q', '-c', 'qemu:///system', *words)
    if done['status']:
        logs = call('tail', '-n', '20', '/run/libvirtd.log', f'/var/log/libvirt/qemu/{NAME}.log')
        raise RuntimeError(f'virsh {" ".join(words)}: {done["text"]}{logs["text"]}')
    return done['text'].strip()


def godwit(*words):
    return call(f'{BUILD}/godwit', *words)


def wait(done, what, seconds=30):
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.1)


def furnish():
    """Empty directories and two users where libvirtd looks for its own, in this mount namespace only."""
    for path in '/run', '/var/lib', '/var/log', '/var/cache', '/etc/libvirt', '/dev/shm':
        subprocess.run(['mount', '-t', 'tmpfs', 'tmpfs', path], check=True)
    for path in '/var/log/libvirt/qemu', '/var/lib/libvirt/qemu', '/run/libvirt':
        os.makedirs(path)
    with open('/etc/libvirt/qemu.conf', 'w', encoding='ascii') as f:
        f.write(CONFIG)
    for base, line in ('passwd', 'libvirt-qemu:x:64055:64055::/:/bin/false\n'), ('group', 'libvirt-qemu:x:64055:\nkvm:x:64056:\n'):
        with open(f'/etc/{base}', encoding='utf-8') as old, open(f'/run/{base}', 'w', encoding='utf-8') as new:
            new.write(old.read() + line)
        subprocess.run(['mount', '--bind', f'/run/{base}', f'/etc/{base}'], check=True)
    subprocess.run(['ip', 'link', 'set', 'lo', 'up'], check=True)


def daemons():
    for name in 'virtlogd', 'libvirtd':
        with open(f'/run/{name}.log', 'wb') as log:
            subprocess.Popen([f'/usr/sbin/{name}'], stdout=log, stderr=log)	# pylint: disable=R1732
    wait(lambda: call('virsh', '-c', 'qemu:///system', 'version')['status'] == 0, 'libvirtd')


def restart(xml):
    """As after `virsh edit`, with a shutdown and a start."""
    with contextlib.suppress(RuntimeError):
        virsh('destroy', NAME)
    with open('/run/domain.xml', 'w', encoding='ascii') as f:
        f.write(xml)
    virsh('define', '/run/domain.xml')
    with contextlib.suppress(FileNotFoundError):
        os.unlink(SERIAL)
    virsh('start', NAME)
    wait(lambda: ticks(SERIAL), 'the guest')


def ticks(path):
    """(how many the guest has said, errors that it found)"""
    with contextlib.suppress(FileNotFoundError):
        with open(path, encoding='ascii') as f:
            found = re.findall(r'^tick=(\d+) .* errors=(\d+) ', f.read(), re.M)
        return tuple(map(int, found[-1])) if found else None
    return None


def quoted(said, pattern):
    """A line for the domain, in godwit's own words."""
    found = re.search(pattern, said['text'])
    if not found:
        raise LookupError(f'no {pattern}: {said}')
    return found[0]


def far_qemu():
    """The source's own command line with other files and sockets."""
    with open(f'/run/libvirt/qemu/{NAME}.pid', encoding='ascii') as f:
        pid = f.read().strip()
    with open(f'/proc/{pid}/cmdline', encoding='utf-8') as f:
        words = f.read().split('\0')[:-1]
    changed, words = [], iter(words)
    for word in words:
        if word == '-S':
            continue
        if word in ('-add-fd', '-sandbox'):
            next(words)
            continue
        if word.startswith('socket,id=charmonitor'):
            word = 'socket,id=charmonitor,path=/run/far.libvirt,server=on,wait=off'
        elif word.startswith('file,id=charserial0'):
            word = f'file,id=charserial0,path={FAR_SERIAL}'
        elif '"masterKey0"' in word:
            word = json.dumps({'qom-type': 'secret', 'id': 'masterKey0', 'data': 'none'})
        elif word.startswith('unix:'):
            word = f'unix:{FAR_QMP},server=on,wait=off'
        elif '"mem-path"' in word:
            word = json.dumps({**json.loads(word), 'mem-path': '/dev/shm/far.ram'})
        changed.append(word)
    return [*changed, '-incoming', 'defer']


def main():
    furnish()
    daemons()
    seen, xml = {}, DOMAIN.format(name=NAME, build=BUILD, serial=SERIAL)
    seen['stopped'] = godwit('check', '--domain', NAME)
    # What it says goes into the domain as it stands.
    restart(xml)
    seen['no socket'] = godwit('send', '--domain', NAME, '--pause', ADDRESS)
    xml = xml.replace("type='qemu'", f"""type='qemu' {quoted(seen['no socket'], "xmlns:qemu='[^']+'")}""")
    xml = xml.replace('</domain>', f'{quoted(seen["no socket"], "<qemu:commandline>.*</qemu:commandline>")}</domain>')
    restart(xml)
    seen['check'] = godwit('check', '--domain', NAME)

    with subprocess.Popen(far_qemu()) as far:
        wait(lambda: os.path.exists(FAR_QMP), "the destination's QEMU")
        with subprocess.Popen([f'{BUILD}/godwit', 'receive', '--qmp', FAR_QMP, '--listen', ADDRESS], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True) as receive:
            while 'listening' not in receive.stdout.readline():
                assert receive.poll() is None
            before = ticks(SERIAL)
            seen['send'] = godwit('send', '--domain', NAME, '--pause', '--verify', ADDRESS)
            seen['receive'] = {'status': receive.wait(30), 'text': receive.stdout.read()}
        wait(lambda: (ticks(FAR_SERIAL) or (0, 0))[0] > before[0], 'the guest at the destination')
        seen['errors'], seen['state'] = ticks(FAR_SERIAL)[1], virsh('domstate', NAME)
        far.send_signal(signal.SIGKILL)
    # With memory in shared files, as the documentation has it.
    with open(f'{TREE}/docs/libvirt.md', encoding='ascii') as f:
        xml = xml.replace('</memory>', f'</memory>{re.search("<memoryBacking>.*</memoryBacking>", f.read())[0]}')
    restart(xml)
    seen['shared'] = godwit('check', '--domain', NAME)
    print(json.dumps(seen))


def test_domain(outcome):
    status, said = outcome
    assert status == 0, said
    seen = json.loads([line for line in said.splitlines() if line.startswith('{')][-1])
    assert seen['stopped']['status'] == 3 and f'virsh start {NAME}' in seen['stopped']['text']
    assert seen['no socket']['status'] == 3 and f'virsh edit {NAME}' in seen['no socket']['text'], seen['no socket']
    # All but what a host without KVM and module cannot have.
    for kind in 'check', 'shared':
        assert re.findall(r'^no +(\w+)', seen[kind]['text'], re.M) == ['KVM', 'module'], seen[kind]['text']
    assert 'private' in seen['check']['text'] and '1 shared file' in seen['shared']['text'], seen
    assert seen['send']['status'] == seen['receive']['status'] == 0, seen
    assert 'all RAM verified' in seen['send']['text']
    assert seen['errors'] == 0 and seen['state'] == 'paused'


def bury():
    """The first process of a PID namespace, which inherits the daemons' children."""
    child = os.fork()
    if not child:
        main()
        return 0
    while True:
        pid, status = os.wait()
        if pid == child:
            return os.waitstatus_to_exitcode(status)


if __name__ == '__main__':
    sys.exit(bury())
