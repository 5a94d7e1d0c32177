# SPDX-License-Identifier: GPL-2.0-only
"""Pairs of QEMUs that are the same machine to the guest, however they differ on the host; and those that --accept concerns."""
import json

from fit.machines import BUS, CARD, DISK, PC, Q35, RNG, SCSI, VMEM, pair, some

MAC = '52:54:00:67:64:01'



def jsoned(option, **values):
    """An option as libvirt writes it."""
    return f'-{option} ' + json.dumps({k.replace('_', '-'): v for k, v in values.items()}, separators=(',', ':'))


def root_port(number, **more):
    addr = f'0x2.{number - 1:#x}' if number > 1 else '0x2'
    return jsoned('device', driver='pcie-root-port', port=15 + number, chassis=number, id=f'pci.{number}', bus='pcie.0', **more,
                  addr=addr)


def behind(port, driver, **more):
    return jsoned('device', driver=driver, **more, bus=f'pci.{port}', addr='0x0')


LIBVIRT = {	# what domxml-to-native of 9.0 makes of a simple domain; the monitors and the network are ours
    'machine': '-machine pc-q35-7.2,usb=off,dump-guest-core=off,memory-backend=pc.ram -accel tcg',
    'cpu': '-cpu qemu64',
    'memory': '-m 32 ' + jsoned('object', qom_type='memory-backend-file', id='pc.ram', mem_path='{ram}.0', share=True,
                                x_use_canonical_path_for_ramblock_id=False, size=32 << 20) + ' -overcommit mem-lock=off',
    'smp': '-smp 2,sockets=2,cores=1,threads=1',
    'identity': '-uuid c7a5fdbd-cdaf-9455-926a-d65c16db1809 -no-user-config -nodefaults -rtc base=utc -no-shutdown '
                '-boot strict=on',
    'ports': ' '.join([root_port(1, multifunction=True), *map(root_port, range(2, 8))]),
    'usb': behind(2, 'qemu-xhci', id='usb'),
    'channels': behind(3, 'virtio-serial-pci', id='virtio-serial0'),
    'disk': ' '.join([
        jsoned('blockdev', driver='file', filename='{qcow64}', node_name='libvirt-1-storage', auto_read_only=True,
               discard='unmap'),
        jsoned('blockdev', node_name='libvirt-1-format', read_only=False, driver='qcow2', file='libvirt-1-storage'),
        behind(4, 'virtio-blk-pci', drive='libvirt-1-format', id='virtio-disk0', bootindex=1)]),
    'net': '-netdev {"type":"user","id":"hostnet0"} ' + behind(1, 'virtio-net-pci', netdev='hostnet0', id='net0', mac=MAC),
    'serial': '-chardev file,id=charserial0,path={serial} ' +
              jsoned('device', driver='isa-serial', chardev='charserial0', id='serial0', index=0),
    'agent': '-chardev socket,id=charchannel0,path={run}/agent,server=on,wait=off ' +
             jsoned('device', driver='virtserialport', bus='virtio-serial0.0', nr=1, chardev='charchannel0', id='channel0',
                    name='org.qemu.guest_agent.0'),
    'tablet': '-device {"driver":"usb-tablet","id":"input0","bus":"usb.0","port":"1"}',
    'video': '-audiodev {"id":"audio1","driver":"none"} -vnc vnc=unix:{run}/vnc,audiodev=audio1 '
             '-device {"driver":"virtio-vga","id":"video0","max_outputs":1,"bus":"pcie.0","addr":"0x1"}',
    'rng': '-object {"qom-type":"rng-random","id":"objrng0","filename":"/dev/urandom"} ' +
           behind(6, 'virtio-rng-pci', rng='objrng0', id='rng0'),
    'balloon': behind(5, 'virtio-balloon-pci', id='balloon0'),
    'sandbox': '-sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny -msg timestamp=on',
}
# The same machine by options that leave to QEMU what those of the other end say.
SHORT = {'machine': '-machine q35,memory-backend=ram0', 'cpu': '-cpu qemu64', 'smp': '-smp 1', 'memory': PC['memory'],
         'serial': '-serial file:{serial}', 'video': '-vga std', 'net': '-nic user,model=virtio-net-pci,mac=52:54:00:67:64:01',
         'disk': '-drive if=virtio,format=raw,file={raw64}'}
LONG = {**BUS, 'machine': '-machine pc-q35-7.2,memory-backend=ram0,hpet=on,usb=off,sata=on,vmport=auto',
        'cpu': '-cpu qemu64', 'memory': PC['memory'],
        'smp': '-smp cpus=1,sockets=1,cores=1,threads=1,maxcpus=1', 'video': '-device VGA,id=v,bus=pcie.0,addr=1',
        'net': '-netdev user,id=n -device virtio-net-pci,id=net0,netdev=n,mac=52:54:00:67:64:01,bus=pcie.0,addr=2,vectors=0',
        'disk': '-blockdev driver=raw,node-name=d,file.driver=file,file.filename={raw64} '
                '-device virtio-blk-pci,id=vda,drive=d,bus=pcie.0,addr=3'}
VDA = Q35['disk'][Q35['disk'].index('-device'):]
OTHER_NAMES = {
    'machine': ('7.2', '7.2,dump-guest-core=off,mem-merge=off'),
    'disk': '-blockdev driver=file,node-name=storage,filename={copy64} -blockdev driver=raw,node-name=format,file=storage ' +
            VDA.replace('n0', 'format'),
    'net': '-netdev user,id=hostnet0,net=10.9.0.0/24,hostname=other '
           '-device virtio-net-pci,id=net0,bus=port2,netdev=hostnet0,mac=52:54:00:67:64:01',
    'channel': ('=pipe', '=charchannel0'),
    'rng': '-object rng-builtin,id=objrng0 -device virtio-rng-pci,id=rng0,addr=6,rng=objrng0',
    'serial': '-chardev file,id=charserial0,path={serial} -device isa-serial,id=serial0,chardev=charserial0',
    'sound': Q35['sound'].replace('quiet', 'audio1')}
CACHES = {
    'disk': '-object iothread,id=io1 -object throttle-group,id=limits,x-iops-total=1000 '
            '-blockdev driver=file,node-name=file,filename={raw64},cache.direct=on,aio=native,locking=on '
            '-blockdev driver=throttle,node-name=limited,file=file,throttle-group=limits '
            '-blockdev driver=raw,node-name=n0,cache.direct=on,cache.no-flush=on,discard=unmap,detect-zeroes=unmap,file=limited '
            f'{VDA},iothread=io1,werror=stop,rerror=stop,share-rw=on,bootindex=1',
    'scsi': ('discard=ignore', 'discard=unmap')}
# Not the guest's business either.
HOST = {'accel': '-accel tcg,thread=single,tb-size=64', 'vnc': '-vnc unix:{run}/vnc', 'boot': '-boot order=c',
        'host': '-sandbox on -msg timestamp=on',
        'memory': ('share=on', 'share=on,prealloc=on,merge=off,dump=off'),
        'net': ('mac=', 'tx=bh,ioeventfd=off,bootindex=2,mac='), 'rng': ('addr=6', 'addr=6,max-bytes=1024,period=1000')}
ANONYMOUS = {'port1': ('id=port1', 'id=root1'), 'disk': ('id=vda,bus=port1', 'id=virtio-disk0,bus=root1'),
             'net': ('id=net0,', ''), 'video': ('id=video0,', ''),
             'usb': '-device qemu-xhci,id=usb,addr=3,p2=4,p3=4 -device usb-tablet,bus=usb.0,port=1',
             'scsi': '-blockdev driver=raw,node-name=n1,file.driver=file,file.filename={second64} '
                     '-device virtio-scsi-pci,id=s,addr=4,num_queues=2 '
                     '-device scsi-hd,bus=s.0,drive=n1,scsi-id=1,lun=0,serial=S-0001,wwn=0x5000c50015ea71ad',
             'channel': '-chardev null,id=pipe -device virtio-serial-pci,addr=5 '
                        '-device virtserialport,nr=1,chardev=pipe,name=org.qemu.guest_agent.0',
             'rng': ('id=rng0', 'id=entropy'), 'balloon': ('id=balloon0,', ''), 'watchdog': ('id=watchdog0,', ''),
             'serial': ('id=serial0,', '')}
OTHER_ENDS = {'serial': PC['serial'].replace('null,id=com2', 'socket,id=com2,path={run}/com2,server=on,wait=off'),
              'parallel': PC['parallel'].replace('null,', 'file,path={run}/lpt,'),
              'net': ('hubport,id=net,hubid=0', 'socket,id=net,udp=127.0.0.1:9,localaddr=127.0.0.1:0')}
PLUG_Q35 = [('netdev_add', {'type': 'user', 'id': 'n9'}),
            ('device_add', {'driver': 'virtio-net-pci', 'id': 'net9', 'bus': 'port3', 'netdev': 'n9', 'mac': MAC})]
PLUGGED_Q35 = f'-netdev user,id=c -device virtio-net-pci,id=net9,bus=port3,netdev=c,mac={MAC}'
PLUG_PC = [('blockdev-add', {'driver': 'null-co', 'node-name': 'n9', 'size': 1 << 20}),
           ('device_add', {'driver': 'virtio-blk-pci', 'id': 'vd9', 'bus': 'bridge0', 'addr': '3', 'drive': 'n9'}),
           ('device_add', {'driver': 'usb-kbd', 'id': 'keys', 'bus': 'uhci.0', 'port': '2'}), ('device_del', {'id': 'tablet'})]
PLUGGED_PC = '-blockdev null-co,node-name=c,size=1048576 -device virtio-blk-pci,id=vd9,bus=bridge0,addr=3,drive=c ' \
             '-device usb-kbd,id=keys,bus=uhci.0,port=2'
PLUG_BUS = [('object-add', {'qom-type': 'memory-backend-file', 'id': 'mem1', 'mem-path': '{ram}.1', 'size': 128 << 20,
                            'share': True}),
            ('device_add', {'driver': 'pc-dimm', 'id': 'dimm1', 'memdev': 'mem1'}),
            ('device_add', {'driver': 'max-x86_64-cpu', 'id': 'cpu1', 'socket-id': 0, 'core-id': 1, 'thread-id': 0})]
PLUGGED_BUS = '-object memory-backend-file,id=mem1,mem-path={ram}.1,size=128M,share=on -device pc-dimm,id=dimm1,memdev=mem1 ' \
              '-device max-x86_64-cpu,id=cpu1,socket-id=0,core-id=1,thread-id=0'
DISC = '-blockdev driver=raw,node-name=cd,read-only=on,file.driver=file,file.filename={raw32} ' \
       '-device ide-cd,id=cd0,bus=ide.1,unit=0,drive=cd'
# Only QEMU 11.1 gives the block sizes of the stick to the disk in it, and only 7.2 shows those that nobody gave.
STICK = {**PC, 'stick': '-blockdev driver=raw,node-name=n2,file.driver=file,file.filename={raw32} '
                        '-device usb-storage,id=stick,bus=uhci.0,port=2,drive=n2'}
BOTH = ('own', 'new'), ('new', 'own')

FITS = [pair(name, [], *machines, **more) for name, machines, more in (
    ('other names and paths on the host', (Q35, OTHER_NAMES), {}),
    ('other cache modes and limits', ({**DISK, **SCSI}, CACHES), {'here': {'scsi': ('driver=raw', 'driver=raw,discard=ignore')}}),
    ('other settings of the host', ({**CARD, **RNG}, HOST), {}),
    ('other ids, or none', (Q35, ANONYMOUS), {}),
    ('other ends of ports and cards', (some(PC, 'parallel', 'net'), OTHER_ENDS),
     {'here': {'net': ('user,id=net', 'hubport,id=net,hubid=0')}}),
    ('raw for qcow2', (some(PC, 'second'), {'second': [('driver=qcow2', 'driver=raw'), ('qcow64', 'second64')]}),
     {'here': {'second': [('driver=raw', 'driver=qcow2'), ('second64', 'qcow64')]}}),
    *((f'{a} to {b}, q35', ({**Q35, 'cpu': '-cpu Nehalem'}, {}), {'qemus': (a, b)}) for a, b in BOTH),
    *((f'{a} to {b}, pc', (PC, {}), {'qemus': (a, b)}) for a, b in BOTH),
    *((f'{a} to {b}, USB stick', (some(STICK, 'usb', 'stick'), {}), {'qemus': (a, b)}) for a, b in BOTH),
    ('it moves on, q35', (Q35, {}), {'hops': 2}),
    ('it moves on, pc', (PC, {}), {'hops': 2}),
    ('it was reset', (some(PC, 'net', 'usb'), {'start': '-S'}), {'before': [('stop', {}), ('system_reset', {}), ('cont', {})]}),
    ('options in another order', (Q35, {}),
     {'to': {g: Q35[g] for g in ('machine', 'port3', 'port2', 'port1', *sorted(Q35, reverse=True))}}),
    ('devices were plugged, q35', (Q35, {'cold': PLUGGED_Q35}), {'before': PLUG_Q35}),
    ('devices were plugged and unplugged, pc', (
        PC, {'cold': PLUGGED_PC, 'usb': ('-device usb-tablet,id=tablet,bus=uhci.0,port=1', '')}), {'before': PLUG_PC}),
    ('a DIMM and a vCPU were plugged', (BUS, {'cold': PLUGGED_BUS}), {'before': PLUG_BUS}),
    ('another wish of virtio-mem', (VMEM, {'vmem': ('requested-size=64M', 'requested-size=96M,prealloc=on')}), {}),
    ('the disk has grown', (DISK, {}), {'before': [('block_resize', {'node-name': 'n0', 'size': 96 << 20})]}),
    ('a disc was put in', (some(PC, 'cdrom'), {'cdrom': DISC}), {'before': [('blockdev-change-medium', {
        'id': 'cd0', 'filename': '{raw32}', 'format': 'raw', 'read-only-mode': 'read-only'})]}),
    ('short options for long ones', (LONG, {}), {'to': SHORT}),
    ('long options for short ones', (SHORT, {}), {'to': LONG}),
    ('libvirt', (LIBVIRT, {'start': '-S'}), {}),
)]
ACCEPTED = [	# by an operator who knows better
    pair('accepted: a CPU feature', ['warning cpu: avx2'], BUS, {'cpu': '-cpu max,-avx2'}, accept='cpu'),
    pair('accepted: a smaller disk', ['warning disk: vda 67108864 33554432'], DISK, {'disk': ('raw64', 'raw32')},
         accept='cpu,disk'),
    pair('accepted: a serial number', ['warning device: hda D-0002'], some(PC, 'disk'), {'disk': ('D-0001', 'D-0002')},
         accept='device'),
    pair('another class accepted', ['device: vda serial'], DISK, {'disk': ('D-0001', 'D-0002')},
         accept='cpu,disk,machine,memory'),
]
