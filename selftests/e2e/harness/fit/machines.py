# SPDX-License-Identifier: GPL-2.0-only
"""
Pairs of QEMUs: a guest of one is to move to the other. What test_fit.py shows of each.

A machine is a dict of named groups of options. The destination of a pair is the source with some groups changed:

    pair('queues', ['device: vda num-queues'], Q35, {'disk': ('num-queues=2', 'num-queues=1')})

expects that a row "fit: device" names both words. A change is (old, new) text, a list of such, all of a group, or None: the
group is left out.
{...} is filled in by run.py: files that both QEMUs open ({raw64}), and what each has of its own ({ram}, {run}, {serial}).

What QMP does not tell of a QEMU, so that no comparison can find it: -smbios but for the UUID, -acpitable, -fw_cfg, -numa dist
and hmat-lb, the order to boot in (all of it read at boot alone, or held in RAM that moves), what is in a ROM or firmware of
the same size, and on a disk. What needs KVM, a daemon or hardware is no part of this table: phys-bits (TCG has one width),
invtsc and its frequency, kernel-irqchip, tpm, vhost-vsock, vhost-user, vfio.
"""
import collections

# findings: (class, words of one row); several classes of which one will do: 'machine|device'; 'warning CLASS': that row refuses
# nothing; 'destination': what the receiver itself says of RAM blocks. None: it fits.
# before: QMP commands at the source, once its guest runs. hops: 2: from the destination back to a QEMU like the source.
Pair = collections.namedtuple('Pair', 'name findings src dst qemus before hops accept')

Q35 = {
    'machine': '-machine pc-q35-7.2,memory-backend=ram0',
    'cpu': '-cpu max',
    'smp': '-smp 1,maxcpus=4,sockets=2,cores=2,threads=1',
    'memory': '-m 32M,slots=2,maxmem=1G -object memory-backend-file,id=ram0,mem-path={ram}.0,size=32M,share=on',
    'video': '-device VGA,id=video0,addr=1,vgamem_mb=2',
    'port1': '-device pcie-root-port,id=port1,addr=2.0,multifunction=on,chassis=1,slot=1',
    'port2': '-device pcie-root-port,id=port2,addr=2.1,chassis=2,slot=2',
    'port3': '-device pcie-root-port,id=port3,addr=2.2,chassis=3,slot=3',
    'disk': '-blockdev driver=raw,node-name=n0,file.driver=file,file.filename={raw64} '
            '-device virtio-blk-pci,id=vda,bus=port1,drive=n0,serial=D-0001,num-queues=2,queue-size=256,logical_block_size=512',
    'net': '-netdev user,id=net -device virtio-net-pci,id=net0,bus=port2,netdev=net,mac=52:54:00:67:64:01',
    'usb': '-device qemu-xhci,id=xhci,addr=3,p2=4,p3=4 -device usb-tablet,id=tablet,bus=xhci.0,port=1',
    'scsi': '-blockdev driver=raw,node-name=n1,file.driver=file,file.filename={second64} '
            '-device virtio-scsi-pci,id=scsi,addr=4,num_queues=2 '
            '-device scsi-hd,id=sda,bus=scsi.0,drive=n1,scsi-id=1,lun=0,serial=S-0001,wwn=0x5000c50015ea71ad',
    'serial': '-chardev file,id=com1,path={serial} -device isa-serial,id=serial0,chardev=com1',
    'channel': '-chardev null,id=pipe -device virtio-serial-pci,id=channels,addr=5 '
               '-device virtserialport,id=agent,bus=channels.0,nr=1,chardev=pipe,name=org.qemu.guest_agent.0',
    'rng': '-object rng-random,id=random,filename=/dev/urandom -device virtio-rng-pci,id=rng0,addr=6,rng=random',
    'balloon': '-device virtio-balloon-pci,id=balloon0,addr=7',
    'sound': '-audiodev none,id=quiet -device ich9-intel-hda,id=sound0,addr=8 '
             '-device hda-duplex,id=codec0,bus=sound0.0,cad=0,audiodev=quiet',
    'watchdog': '-device i6300esb,id=watchdog0,addr=9',
}
PC = {
    'machine': '-machine pc-i440fx-7.2,memory-backend=ram0',
    'cpu': '-cpu qemu64',
    'smp': '-smp 2,sockets=2,cores=1,threads=1',
    'memory': '-m 32M -object memory-backend-file,id=ram0,mem-path={ram}.0,size=32M,share=on',
    'video': '-device cirrus-vga,id=video0,addr=2,vgamem_mb=4',
    'net': '-netdev user,id=net -device e1000,id=net0,addr=3,netdev=net,mac=52:54:00:67:64:01',
    'disk': '-blockdev driver=raw,node-name=n0,file.driver=file,file.filename={raw64} '
            '-device ide-hd,id=hda,bus=ide.0,unit=0,drive=n0,serial=D-0001',
    'cdrom': '-device ide-cd,id=cd0,bus=ide.1,unit=0',
    'usb': '-device piix3-usb-uhci,id=uhci,addr=1.2 -device usb-tablet,id=tablet,bus=uhci.0,port=1',
    'serial': '-chardev file,id=com1,path={serial} -device isa-serial,id=serial0,chardev=com1 '
              '-chardev null,id=com2 -device isa-serial,id=serial1,chardev=com2',
    'parallel': '-chardev null,id=lpt -device isa-parallel,id=parallel0,chardev=lpt',
    'bridge': '-device pci-bridge,id=bridge0,addr=6,chassis_nr=1',
    'balloon': '-device virtio-balloon-pci,id=balloon0,addr=4',
    'second': '-blockdev driver=raw,node-name=n1,file.driver=file,file.filename={second64} '
              '-device virtio-blk-pci,id=vda,addr=5,drive=n1',
    'sound': '-audiodev none,id=quiet -device AC97,id=sound0,addr=7,audiodev=quiet',
    'panic': '-device pvpanic,id=panic0,ioport=1285',
    'identity': '-device vmgenid,id=generation0,guid=324e6eaf-d1d1-4bf6-bf41-b9bb6c91fb87',
}


def changed(options, changes):
    """A machine with these changes: what is replaced is there."""
    new = dict(options)
    for group, change in changes.items():
        if change is None:
            del new[group]
        elif isinstance(change, str):
            new[group] = change
        else:
            for old, text in [change] if isinstance(change, tuple) else change:
                assert old in new[group], f'{group} has no {old}'
                new[group] = new[group].replace(old, text)
    return new


def pair(name, findings, src, there, *, here=None, to=None, qemus=('own', 'own'), before=(), hops=1, accept=None):
    """here: what the source has otherwise than the machine of its name; to: the destination's, if it is another one."""
    src = changed(src, here or {})
    findings = [(kind, words.split()) for kind, words in (said.split(': ', 1) for said in findings)]
    return Pair(name, findings, src, changed(to or src, there), qemus, before, hops, accept)


def some(machine, *groups):
    """What every machine has, and these."""
    return {group: words for group, words in machine.items() if group in ('machine', 'cpu', 'smp', 'memory', 'serial', *groups)}


# Each property costs time at both ends, so these have few devices.
BUS, OLD = some(Q35), some(PC)
DISK, CARD, SCSI = some(Q35, 'port1', 'disk'), some(Q35, 'port2', 'port3', 'net'), some(Q35, 'scsi')
RNG, BRIDGE = some(Q35, 'rng', 'balloon'), some(PC, 'bridge', 'balloon')
NUMA = {**BUS, 'machine': '-machine pc-q35-7.2', 'smp': '-smp 2,sockets=2,cores=1,threads=1',
        'memory': '-m 32M -object memory-backend-file,id=ram0,mem-path={ram}.0,size=24M,share=on '
                  '-object memory-backend-file,id=ram1,mem-path={ram}.1,size=8M,share=on',
        'numa': '-numa node,nodeid=0,memdev=ram0,cpus=0 -numa node,nodeid=1,memdev=ram1,cpus=1'}
DIMM = {**BUS, 'dimm': '-object memory-backend-file,id=mem1,mem-path={ram}.1,size=128M,share=on '
                       '-device pc-dimm,id=dimm1,memdev=mem1,slot=0,addr=0x100000000'}
VMEM = {**BUS, 'vmem': '-object memory-backend-file,id=mem1,mem-path={ram}.1,size=128M,share=on '
                        '-device virtio-mem-pci,id=vmem0,memdev=mem1,addr=5,block-size=2M,memaddr=0x100000000,requested-size=64M'}
FLASH = {**BUS, 'machine': '-machine pc-q35-7.2,memory-backend=ram0,pflash0=code',
         'flash': '-blockdev driver=raw,node-name=code,read-only=on,file.driver=file,file.filename={flash1}'}
PORTS = {**BUS, 'port1': '-device pcie-root-port,id=port1,addr=2,chassis=1,slot=1,x-speed=8,x-width=16,hotplug=on',
         'expander': '-device pxb-pcie,id=pxb,addr=3,bus_nr=128',
         'net': '-netdev user,id=net -device virtio-net-pci,id=net0,bus=port1,netdev=net,mac=52:54:00:67:64:01,acpi-index=1'}
