# SPDX-License-Identifier: GPL-2.0-only
"""Pairs of QEMUs that are the same machine to the guest, however they differ on the host; and those that --accept concerns."""
import json

from fit_machines import BUS, DIMM, PC, Q35, pair

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


LIBVIRT = {	# 9.0's words for a simple domain
    'machine': '-machine pc-q35-7.2,usb=off,dump-guest-core=off,memory-backend=pc.ram -accel tcg',
    'cpu': '-cpu qemu64',
    'memory': '-m 32 ' + jsoned('object', qom_type='memory-backend-file', id='pc.ram', mem_path='{ram}.0', share=True,
                                x_use_canonical_path_for_ramblock_id=False, size=32 << 20) + ' -overcommit mem-lock=off',
    'smp': '-smp 2,sockets=2,cores=1,threads=1',
    'identity': '-uuid c7a5fdbd-cdaf-9455-926a-d65c16db1809 -no-user-config -nodefaults -rtc base=utc -no-shutdown '
                '-boot strict=on',
    'ports': ' '.join([root_port(1, multifunction=True), *map(root_port, range(2, 7))]),
    'usb': behind(2, 'qemu-xhci', p2=15, p3=15, id='usb'),
    'channels': behind(3, 'virtio-serial-pci', id='virtio-serial0'),
    'disk': ' '.join([
        jsoned('blockdev', driver='file', filename='{qcow64}', node_name='libvirt-1-storage', auto_read_only=True,
               discard='unmap'),
        jsoned('blockdev', node_name='libvirt-1-format', read_only=False, driver='qcow2', file='libvirt-1-storage', backing=None),
        behind(4, 'virtio-blk-pci', drive='libvirt-1-format', id='virtio-disk0', bootindex=1)]),
    'net': '-netdev {"type":"user","id":"hostnet0"} ' + behind(1, 'virtio-net-pci', netdev='hostnet0', id='net0', mac=MAC),
    'serial': '-chardev file,id=charserial0,path={serial} ' +
              jsoned('device', driver='isa-serial', chardev='charserial0', id='serial0', index=0),
    'agent': '-chardev socket,id=charchannel0,path={run}/agent,server=on,wait=off ' +
             jsoned('device', driver='virtserialport', bus='virtio-serial0.0', nr=1, chardev='charchannel0', id='channel0',
                    name='org.qemu.guest_agent.0'),
    'sound': '-audiodev {"id":"audio1","driver":"none"} -global ICH9-LPC.noreboot=off -watchdog-action reset',
    'balloon': behind(5, 'virtio-balloon-pci', id='balloon0'),
    'sandbox': '-sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny -msg timestamp=on',
}
# The same machine by options that leave to QEMU what those of the other end say.
SHORT = {'machine': '-machine q35,memory-backend=ram0', 'cpu': '-cpu qemu64', 'smp': '-smp 1', 'memory': BUS['memory'],
         'serial': '-serial file:{serial}', 'video': '-vga std', 'net': '-nic user,model=virtio-net-pci,mac=52:54:00:67:64:01',
         'disk': '-drive if=virtio,format=raw,file={raw64}'}
LONG = {**BUS, 'machine': '-machine pc-q35-7.2,memory-backend=ram0,hpet=on,usb=off,sata=on,vmport=auto',
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
PLUG_NET = [('netdev_add', {'type': 'user', 'id': 'n9'}),
            ('device_add', {'driver': 'virtio-net-pci', 'id': 'net9', 'bus': 'port3', 'netdev': 'n9',
                            'mac': '52:54:00:67:64:09'})]
PLUG_PC = [('blockdev-add', {'driver': 'null-co', 'node-name': 'n9', 'size': 1 << 20}),
           ('device_add', {'driver': 'virtio-blk-pci', 'id': 'vd9', 'bus': 'bridge0', 'addr': '3', 'drive': 'n9'}),
           ('device_add', {'driver': 'usb-kbd', 'id': 'keys', 'bus': 'uhci.0', 'port': '2'})]
PLUG_DIMM = [('object-add', {'qom-type': 'memory-backend-file', 'id': 'mem1', 'mem-path': '{ram}.1', 'size': 128 << 20,
                             'share': True}),
             ('device_add', {'driver': 'pc-dimm', 'id': 'dimm1', 'memdev': 'mem1'})]
PLUG_CPU = [('device_add', {'driver': 'qemu64-x86_64-cpu', 'id': 'cpu1', 'socket-id': 0, 'core-id': 1, 'thread-id': 0})]
BOTH = ('own', 'new'), ('new', 'own')

FITS = [
    pair('same options, q35', 'fits', '', Q35, {}),
    pair('same options, pc', 'fits', '', PC, {}),
    pair('other names and paths on the host', 'fits', '', Q35, OTHER_NAMES),
    pair('other cache modes and limits', 'fits', '', Q35, CACHES, here={'scsi': ('driver=raw', 'driver=raw,discard=ignore')}),
    pair('other settings of the host', 'fits', '', Q35, HOST),
    pair('other ids, or none', 'fits', '', Q35, ANONYMOUS),
    pair('other ends of ports and cards', 'fits', '', PC, OTHER_ENDS, here={'net': ('user,id=net', 'hubport,id=net,hubid=0')}),
    pair('raw for qcow2', 'fits', '', PC, {'second': ('qcow2,', 'raw,'), 'disk': ('{raw64}', '{copy64}')},
         here={'second': PC['second'].replace('=raw', '=qcow2').replace('second64', 'qcow64')}),
    *(pair(f'{a} to {b}, q35', 'fits', '', {**Q35, 'cpu': '-cpu Nehalem'}, {}, qemus=(a, b)) for a, b in BOTH),
    *(pair(f'{a} to {b}, pc', 'fits', '', PC, {}, qemus=(a, b)) for a, b in BOTH),
    pair('own to new and back', 'fits', '', DIMM, {}, qemus=BOTH[0], hops=2),
    pair('it moves on, q35', 'fits', '', Q35, {}, hops=2),
    pair('it moves on, pc', 'fits', '', PC, {}, hops=2),
    pair('started with -S', 'fits', '', PC, {'start': '-S'}),
    pair('it was reset', 'fits', '', Q35, {}, before=[('system_reset', {})]),
    pair('it was paused and runs', 'fits', '', PC, {}, before=[('stop', {}), ('cont', {})]),
    pair('options in another order', 'fits', '', Q35, {},
         to={g: Q35[g] for g in ('machine', 'port3', 'port2', 'port1', *sorted(Q35, reverse=True))}),
    pair('options in another order, pc', 'fits', '', PC, {}, to={g: PC[g] for g in ('machine', *sorted(PC, reverse=True))}),
    pair('a card was plugged', 'fits', '', Q35, before=PLUG_NET, there={
        'cold': '-netdev user,id=c -device virtio-net-pci,id=net9,bus=port3,netdev=c,mac=52:54:00:67:64:09'}),
    pair('a disk and keys were plugged', 'fits', '', PC, before=PLUG_PC, there={
        'cold': '-blockdev null-co,node-name=c,size=1048576 -device virtio-blk-pci,id=vd9,bus=bridge0,addr=3,drive=c '
                '-device usb-kbd,id=keys,bus=uhci.0,port=2'}),
    pair('a DIMM was plugged', 'fits', '', {**BUS, 'memory': Q35['memory']}, {'dimm': DIMM['dimm']}, before=PLUG_DIMM),
    pair('a vCPU was plugged', 'fits', '', {**BUS, 'smp': Q35['smp']}, before=PLUG_CPU, there={
        'cold': '-device qemu64-x86_64-cpu,id=cpu1,socket-id=0,core-id=1,thread-id=0'}),
    pair('a mouse was unplugged', 'fits', '', PC, {'usb': '-device piix3-usb-uhci,id=uhci,addr=1.2'},
         before=[('device_del', {'id': 'tablet'})]),
    pair('the disk has grown', 'fits', '', Q35, {}, before=[('block_resize', {'node-name': 'n0', 'size': 96 << 20})]),
    pair('a disc was put in', 'fits', '', PC, before=[('blockdev-change-medium', {
        'id': 'cd0', 'filename': '{raw32}', 'format': 'raw', 'read-only-mode': 'read-only'})], there={
        'cdrom': '-blockdev driver=raw,node-name=cd,read-only=on,file.driver=file,file.filename={raw32} '
                 '-device ide-cd,id=cd0,bus=ide.1,unit=0,drive=cd'}),
    pair('short options for long ones', 'fits', '', LONG, {}, to=SHORT),
    pair('long options for short ones', 'fits', '', SHORT, {}, to=LONG),
    pair('libvirt', 'fits', '', LIBVIRT, {'start': '-S'}),
]
ACCEPTED = [	# by one who knows better
    pair('more CPU features', 'warning cpu', 'avx2', {**BUS, 'cpu': '-cpu max,-avx2'}, {'cpu': '-cpu max'}),
    pair('accepted: a CPU feature', 'warning cpu', 'avx2', {**BUS, 'cpu': '-cpu max'}, {'cpu': '-cpu max,-avx2'}, accept='cpu'),
    pair('accepted: a smaller disk', 'warning disk', 'vda 64 32', Q35, {'disk': ('raw64', 'raw32')}, accept='cpu,disk'),
    pair('accepted: a serial number', 'warning device', 'hda D-0002', PC, {'disk': ('D-0001', 'D-0002')}, accept='device'),
    pair('another class accepted', 'device', 'net0 mac', Q35, {'net': ('64:01', '64:02')}, accept='cpu,disk,machine,memory'),
    pair('QEMU would not accept it', 'machine', 'pc-q35-7.1', Q35, {'machine': ('7.2', '7.1')},
         accept='machine,device,cpu,memory'),
]
