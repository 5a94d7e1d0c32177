# SPDX-License-Identifier: GPL-2.0-only
"""
PAIRS, of which test_fit.py is about. Those that do not fit are here: what an operator gets wrong, and what libvirt's check of a
domain's ABI refuses. Where a pair differs in several things, none of them may hide another.
"""
from fit.machines import BRIDGE, BUS, CARD, DIMM, DISK, FLASH, NUMA, OLD, PC, PORTS, Q35, RNG, SCSI, VMEM, pair, some
from fit.same import ACCEPTED, FITS, STICK

UUID = '-uuid 4d1ab1a6-a1a4-4a36-b1e4-4f2b8a9be1c'
NIC = '-netdev user,id=net -device virtio-net-pci,id=net0,netdev=net,vectors=6,mac=52:54:00:67:64:01'
DISC = '-blockdev driver=raw,node-name=cd,read-only=on,file.driver=file,file.filename={second32} ' \
       '-device ide-cd,id=cd0,bus=ide.1,unit=0,drive=cd'
QCOW = '-blockdev driver=qcow2,node-name=n1,file.driver=file,file.filename={qcow64} -device virtio-blk-pci,id=vda,addr=5,drive=n1'


def never(name, findings, src, there, **more):
    """What QEMU itself refuses, with the guest stopped (seen with each of them): no --accept lets it come to that."""
    return pair(name, findings, src, there, accept='machine,cpu,memory,device,disk,backend,host', **more)


MACHINES = [
    never('pc for q35', ['machine: pc-q35-7.2 pc-i440fx-7.2'], BUS, {}, to=OLD),
    never('machine version, q35', ['machine: pc-q35-7.2 pc-q35-7.1'], BUS, {'machine': ('7.2', '7.1')}),
    never('machine version, pc', ['machine: pc-i440fx-7.2 pc-i440fx-6.2'], OLD, {'machine': ('7.2', '6.2')}),
    pair('smm', ['machine: smm'], BUS, {'machine': ('7.2', '7.2,smm=off')}),
    never('hpet', ['machine: hpet'], BUS, {'machine': ('7.2', '7.2,hpet=off')}),
    pair('less on board, q35', ['machine: pit', 'machine: sata', 'machine: i8042', 'machine: vmport'], BUS,
         {'machine': ('7.2', '7.2,pit=off,sata=off,i8042=off,vmport=off')}),
    pair('less on board, pc', ['machine: hpet', 'machine: i8042', 'machine: vmport', 'machine: pit'], OLD,
         {'machine': ('7.2', '7.2,hpet=off,i8042=off,vmport=off,pit=off')}),
    pair('more on board', ['machine: usb', 'machine: nvdimm'], BUS, {'machine': ('7.2', '7.2,usb=on,nvdimm=on')}),
    pair('acpi', ['machine: acpi'], OLD, {'machine': ('7.2', '7.2,acpi=off')}),
    pair('uuid', ['machine: uuid'], BUS, {'uuid': f'{UUID}1'}, here={'uuid': f'{UUID}0'}),
    never('flash of another size', ['memory: flash0 1024 2048'], FLASH, {'flash': ('{flash1}', '{flash2}')}),
    never('BIOS of another size', ['machine|device|memory: bios'], BUS, {'bios': '-bios bios.bin'}),
    never('hot-plug by ACPI', ['machine|device: acpi-pci-hotplug-with-bridge-support'], PORTS,
          {'global': '-global ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off'}),
]
CPUS = [
    pair('CPU model', ['cpu: avx2'], BUS, {'cpu': '-cpu qemu64'}),
    pair('CPU model, pc', ['cpu: cmov'], OLD, {'cpu': '-cpu 486'}),
    pair('CPU feature', ['cpu: avx2'], BUS, {'cpu': '-cpu max,-avx2'}),
    pair('CPU features', ['cpu: rdrand smap hypervisor'], BUS, {'cpu': '-cpu max,-rdrand,-smap,-hypervisor'}),
    pair('CPU identity', ['cpu: vendor', 'cpu: family', 'cpu: level', 'warning cpu: stepping'], OLD,
         {'cpu': '-cpu qemu64,vendor=GenuineIntel,family=6,level=4,stepping=3'}),
    # What is a bit of no CPUID leaf, so that equal bits say nothing of it.
    pair('CPU cache', ['cpu: l3-cache', 'cpu: cpuid-0xb'], OLD, {'cpu': '-cpu qemu64,l3-cache=off,cpuid-0xb=off'}),
    pair('hyperv', ['cpu: hv-relaxed'], OLD, {'cpu': '-cpu qemu64'}, here={'cpu': '-cpu qemu64,hv-relaxed=on'}),
    # Under TCG there is one only if the operator has said so; QEMU refuses another one then.
    never('TSC', ['host|cpu: tsc-frequency=2000000000 tsc-frequency=1000000000'], OLD,
          {'cpu': '-cpu qemu64,tsc-frequency=1000000000'},
          here={'cpu': '-cpu qemu64,tsc-frequency=2000000000'}),
    pair('one vCPU into two', ['cpu: count 1 2'], BUS, {'smp': ('-smp 1', '-smp 2')}),
    never('two vCPUs into one', ['cpu: count 2 1'], OLD, {'smp': '-smp 1'}),
    pair('maxcpus', ['cpu: maxcpus 4 8'], BUS, {'smp': ('maxcpus=4,sockets=2', 'maxcpus=8,sockets=4')}),
    pair('cores for sockets', ['cpu: core'], OLD, {'smp': '-smp 2,sockets=1,cores=2,threads=1'}),
    pair('threads for cores', ['cpu: threads'], BUS, {'smp': ('cores=2,threads=1', 'cores=1,threads=2')}),
    never('a vCPU that was plugged', ['cpu: count 2 1'], BUS, {}, before=[
        ('device_add', {'driver': 'max-x86_64-cpu', 'id': 'cpu1', 'socket-id': 0, 'core-id': 1, 'thread-id': 0})]),
]
MEMORY = [
    pair('max-ram-below-4g', ['memory|machine: max-ram-below-4g'], BUS, {'machine': ('7.2', '7.2,max-ram-below-4g=16M')}),
    pair('max-ram-below-4g, pc', ['memory|machine: max-ram-below-4g'], OLD, {'machine': ('7.2', '7.2,max-ram-below-4g=16M')}),
    never('RAM size', ['destination: 32 48'], OLD, {'memory': ('32M', '48M')}),
    never('memory slots', ['memory|machine: slots 2 4'], BUS, {'memory': ('slots=2', 'slots=4')}),
    pair('maxmem', ['memory|machine: max 1073741824 2147483648'], BUS, {'memory': ('maxmem=1G', 'maxmem=2G')}),
    never('no DIMM', ['memory|device: dimm1'], DIMM, {'dimm': None}),
    never('DIMM elsewhere', ['memory|device: 4294967296 4429185024'], DIMM, {'dimm': ('addr=0x100000000', 'addr=0x108000000')}),
    pair('DIMM in another slot', ['memory|device: dimm1 slot'], DIMM, {'dimm': ('slot=0', 'slot=1')}),
    never('NUMA RAM the other way round', ['memory: ram0 address', 'memory: ram1 address'], NUMA,
          {'numa': '-numa node,nodeid=0,memdev=ram1,cpus=0 -numa node,nodeid=1,memdev=ram0,cpus=1'}),
    never('another virtio-mem', ['device: vmem0 block-size', 'device: vmem0 memaddr'], VMEM,
          {'vmem': [('block-size=2M', 'block-size=4M'), ('0x100000000', '0x108000000')]}),
    pair('NUMA vCPUs', ['memory|cpu: node'], NUMA,
         {'numa': '-numa node,nodeid=0,memdev=ram0,cpus=1 -numa node,nodeid=1,memdev=ram1,cpus=0'}),
    pair('a NUMA node more', ['memory|machine|cpu: node'], BUS,
         {'numa': '-numa node,nodeid=0,memdev=ram0,cpus=0 -numa node,nodeid=1'},
         here={'machine': '-machine pc-q35-7.2', 'numa': '-numa node,nodeid=0,memdev=ram0'}),
]
PLACES = [
    never('no rng', ['device: rng0'], RNG, {'rng': None}),
    never('much is missing, q35', [f'device: {d}' for d in ('watchdog0', 'balloon0', 'video0', 'sound0', 'tablet', 'agent')], Q35,
          {'watchdog': None, 'balloon': None, 'video': None, 'sound': None,
          'usb': ('-device usb-tablet,id=tablet,bus=xhci.0,port=1', ''),
          'channel': ('-device virtserialport,id=agent,bus=channels.0,nr=1,chardev=pipe,name=org.qemu.guest_agent.0', '')}),
    never('much is missing, pc',
          [f'device: {d}' for d in ('video0', 'sound0', 'panic0', 'serial1', 'parallel0')], PC,
          {'video': None, 'sound': None, 'panic': None, 'parallel': None, 'serial': Q35['serial']}),
    pair('a disk more', ['device: vdb'], BUS,
         {'more': '-blockdev null-co,node-name=n2 -device virtio-blk-pci,id=vdb,addr=10,drive=n2'}),
    pair('a bridge more', ['device: bridge1'], OLD, {'more': '-device pci-bridge,id=bridge1,addr=9,chassis_nr=2'}),
    pair('an IOMMU more', ['device: intel-iommu'], BUS, {'iommu': '-device intel-iommu'}),
    never('no generation', ['device: generation0'], some(PC, 'identity'), {'identity': None}),
    never('an IOMMU less', ['device: intel-iommu'], BUS, {'iommu': None}, here={'iommu': '-device intel-iommu'}),
    never('another slot', ['device: rng0 06 10'], RNG, {'rng': ('addr=6', 'addr=10')}),
    never('another port', ['device: net0'], CARD, {'net': ('bus=port2', 'bus=port3')}),
    never('two swapped', ['device: rng0', 'device: balloon0'], RNG,
          {'rng': ('addr=6', 'addr=7'), 'balloon': ('addr=7', 'addr=6')}),
    never('behind the bridge', ['device: balloon0'], BRIDGE, {'balloon': ('addr=4', 'bus=bridge0,addr=4')}),
    pair('moved, q35', ['device: Tablet', 'device: sda', 'device: agent', 'device: codec0 cad'], Q35,
         {'usb': ('port=1', 'port=2'), 'scsi': ('scsi-id=1,lun=0', 'scsi-id=2,lun=1'), 'channel': ('nr=1', 'nr=2'),
          'sound': ('cad=0', 'cad=1')}),
    pair('moved, pc', ['device: uhci', 'device: hda', 'device: net0', 'device: serial1 iobase'], PC,
         {'usb': ('addr=1.2', 'addr=1.4'), 'disk': ('unit=0', 'unit=1'), 'net': ('addr=3', 'addr=8'),
          'serial': ('id=serial1', 'iobase=0x3e8,id=serial1')}),
    never('other models', ['device: net0 e1000 virtio-net-pci', 'device: video0 cirrus-vga VGA',
                          'device: tablet usb-tablet usb-mouse'], PC,
          {'net': ('e1000', 'virtio-net-pci'), 'video': ('cirrus-vga', 'VGA'), 'usb': ('usb-tablet', 'usb-mouse')}),
    never('USB controller', ['device: xhci qemu-xhci nec-usb-xhci'], some(Q35, 'usb'), {'usb': ('qemu-xhci', 'nec-usb-xhci')}),
    pair('ports', ['device: port1 chassis', 'device: port1 slot', 'device: port1 x-speed', 'device: port1 hotplug',
                   'device: net0 acpi-index'], PORTS,
         {'port1': [('chassis=1', 'chassis=9'), (',slot=1', ',slot=9'), ('speed=8', 'speed=16'), ('hotplug=on', 'hotplug=off')],
          'net': ('index=1', 'index=2')}),
    pair('I/O port', ['device: panic0 ioport'], some(PC, 'panic'), {'panic': ('1285', '1286')}),
    pair('bus of an expander', ['device: pxb bus_nr 128 64'], PORTS, {'expander': ('128', '64')}),
    pair('chassis of a bridge', ['device: bridge0 chassis_nr'], BRIDGE, {'bridge': ('chassis_nr=1', 'chassis_nr=3')}),
]
DEVICES = [
    pair('MAC', ['device: net0 mac 52:54:00:67:64:01 52:54:00:67:64:02'], CARD, {'net': ('64:01', '64:02')}),
    pair('generation', ['device: generation0 guid'], some(PC, 'identity'), {'identity': ('fb87', 'fb88')}),
    pair('IOMMU', ['device: aw-bits'], BUS, {'iommu': ('39', '48')}, here={'iommu': '-device intel-iommu,aw-bits=39'}),
    pair('what a disk says', ['device: vda serial D-0001 D-0002', 'device: vda logical_block_size 512 4096',
                              'device: vda queue-size 256 128', 'device: vda iommu_platform', 'device: vda event_idx'], DISK,
         {'disk': [('D-0001', 'D-0002'), ('size=512', 'size=4096,physical_block_size=4096'), ('queue-size=256', 'queue-size=128'),
                   ('bus=port1', 'bus=port1,iommu_platform=on,event_idx=off')]}),
    never('queues of a disk', ['device: vda num-queues 2 1'], DISK, {'disk': ('num-queues=2', 'num-queues=1')}),
    pair('what a card offers', ['device: net0 rx_queue_size', 'device: net0 host_mtu', 'device: net0 host_tso4',
                                'device: net0 mrg_rxbuf', 'device: net0 rombar'], CARD,
         {'net': ('mac=', 'rx_queue_size=512,host_mtu=9000,host_tso4=off,mrg_rxbuf=off,rombar=0,mac=')}),
    never('queues of a card', ['device: net0 mq', 'device: net0 vectors'], CARD, {'net': ('mac=', 'mq=on,vectors=6,mac=')}),
    never('no ROM', ['device: net0 romsize'], CARD, {'net': ('mac=', 'romfile=,mac=')}),
    pair('identities, pc', ['device: net0 mac', 'device: net0 romsize', 'device: hda serial D-0001 D-0002'],
         some(PC, 'net', 'disk'), {'net': ('mac=52:54', 'romsize=1048576,mac=52:55'), 'disk': ('D-0001', 'D-0002')}),
    pair('SCSI', ['device: sda serial', 'device: sda wwn', 'device: scsi num_queues'], SCSI,
         {'scsi': [('S-0001', 'S-0002'), ('ea71ad', 'ea71ae'), ('num_queues=2', 'num_queues=4')]}),
    pair('virtio, q35', ['device: rng0 packed', 'device: channels vectors', 'device: balloon0 deflate-on-oom',
                         'device: agent org.qemu.guest_agent.0'], some(Q35, 'rng', 'channel', 'balloon'),
         {'rng': ('addr=6', 'addr=6,packed=on'), 'channel': [('addr=5', 'addr=5,vectors=4'), ('agent.0', 'agent.1')],
          'balloon': ('addr=7', 'addr=7,deflate-on-oom=on')}),
    pair('virtio, pc', ['device: balloon0 disable-legacy', 'device: balloon0 free-page-reporting', 'device: vda event_idx'],
         some(PC, 'balloon', 'second'), {'balloon': ('addr=4', 'addr=4,disable-legacy=on,free-page-reporting=on'),
                                         'second': ('addr=5', 'addr=5,event_idx=off')}),
    never('USB ports', ['device: xhci p2'], some(Q35, 'usb'), {'usb': ('p2=4', 'p2=8')}),
    never('display memory', ['device: video0 vgamem_mb'], some(Q35, 'video'), {'video': ('vgamem_mb=2', 'vgamem_mb=4')}),
    never('displays', ['device: gpu max_outputs'], BUS, {'gpu': ('outputs=1', 'outputs=2')},
          here={'gpu': '-device virtio-gpu-pci,id=gpu,max_outputs=1'}),
    never('-nic for -device', ['device: vectors 6'], BUS, {'net': '-nic user,model=virtio-net-pci,mac=52:54:00:67:64:01'},
          here={'net': NIC}),
    # A user network has a state of its own, which nothing else can take.
    never('another network behind a card', ['backend|device: user'], some(PC, 'net'),
          {'net': ('user,id=net', 'hubport,id=net,hubid=0')}),
]
DISKS = [
    pair('smaller disk', ['disk: vda 67108864 33554432'], DISK, {'disk': ('raw64', 'raw32')}),
    pair('smaller disks, pc', ['disk: hda 67108864 33554432', 'disk: vda 67108864 33554432'], some(PC, 'disk', 'second'),
         {'disk': ('raw64', 'raw32'), 'second': ('qcow64', 'qcow32')}, here={'second': QCOW}),
    pair('larger disks', ['disk: vda 67108864 100663296', 'disk: sda 67108864 100663296'], some(Q35, 'port1', 'disk', 'scsi'),
         {'disk': ('raw64', 'raw96'), 'scsi': ('second64', 'second96')}),
    pair('read-only disk', ['disk: vda read-only'], DISK, {'disk': ('driver=raw', 'driver=raw,read-only=on')}),
    pair('writable disk', ['disk: sda read-only'], SCSI, {'scsi': (',read-only=on', '')},
         here={'scsi': ('driver=raw', 'driver=raw,read-only=on')}),
    pair('no disc', ['disk|backend: cd0 medium'], some(PC, 'cdrom'), {'cdrom': PC['cdrom']}, here={'cdrom': DISC}),
    pair('another disc', ['disk: cd0 33554432 67108864'], some(PC, 'cdrom'), {'cdrom': ('second32', 'second64')},
         here={'cdrom': DISC}),
]
# The other way of asking: QEMU 10.1 gives an object with all of its values.
NEW = [pair(f'several at once, {a} to {b}', ['cpu: aes', 'device: net0 mac 52:54:00:67:64:01 52:54:00:67:64:02',
                                            'device: vda serial D-0001 D-0002', 'disk: vda 67108864 33554432', 'device: rng0'],
            {**DISK, **CARD, **RNG, 'cpu': '-cpu Nehalem,+aes'},
            {'cpu': '-cpu Nehalem', 'net': ('64:01', '64:02'), 'disk': [('D-0001', 'D-0002'), ('raw64', 'raw32')], 'rng': None},
            qemus=(a, b)) for a, b in (('new', 'new'), ('new', 'own'), ('own', 'new'))]
# 7.2 keeps the size of a stick's blocks from the disk in it, and the guest would see other ones.
NEW += [pair('blocks of a USB stick', ['device: scsi-hd logical_block_size 4096 512', 'device: scsi-hd physical_block_size 4096 512'],
             some(STICK, 'usb', 'stick'), {}, qemus=('new', 'own'),
             here={'stick': ('drive=n2', 'drive=n2,logical_block_size=4096,physical_block_size=4096')})]
# A guest survives these; the table says so, and the operator is told.
WARNINGS = [
    pair('microcode', ['warning cpu: ucode-rev'], OLD,
         {'cpu': '-cpu qemu64,ucode-rev=7'}, here={'cpu': '-cpu qemu64,ucode-rev=8'}),
    # It has not flushed what it wrote, as it was told that there is no need to.
    pair('a write cache more', ['warning disk|device|backend: cache'], DISK, {'disk': ('write-cache=off', 'write-cache=on')},
         here={'disk': ('queue-size', 'write-cache=off,queue-size')}),
    pair('power and holes', ['warning machine|device: disable_s3', 'warning machine|device: pci-hole64-size'], BUS,
         {'global': '-global ICH9-LPC.disable_s3=1 -global q35-pcihost.pci-hole64-size=1G'}),
    pair('power, pc', ['warning machine|device: disable_s4'], OLD, {'global': '-global PIIX4_PM.disable_s4=1'}),
    pair('more CPU features', ['warning cpu: avx2'], BUS, {'cpu': '-cpu max'}, here={'cpu': '-cpu max,-avx2'}),
]
PAIRS = MACHINES + CPUS + MEMORY + PLACES + DEVICES + DISKS + NEW + WARNINGS + FITS + ACCEPTED
