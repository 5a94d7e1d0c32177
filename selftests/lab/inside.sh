#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Runs inside the lab.
#
#   boot RUN          what init of the lab does: run RUN/command, report its status
#   modules NAME...   load modules on demand
#   net               namespaces src (10.77.0.1) and dst (10.77.0.2), joined by link0
#   cards up|down     the same addresses on two emulated network cards in place of link0's, and back
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

lab_modules()
{
	local name

	for name; do
		case $name in
		kvm)
			if grep -qw svm /proc/cpuinfo; then
				name=kvm_amd
			else
				name=kvm_intel
			fi ;;
		esac
		modprobe "$name" || return
	done
}

lab_net()
{
	local side

	lab_modules veth || return
	ip netns add src
	ip netns add dst
	ip link add link0 netns src type veth peer name link0 netns dst
	ip -n src addr add 10.77.0.1/24 dev link0
	ip -n dst addr add 10.77.0.2/24 dev link0
	for side in src dst; do
		ip -n $side link set lo up
		ip -n $side link set link0 up
	done
}

# veth hands over the sender's own pages only as copies; these send them as hardware does.
lab_cards()
{
	local side card=0 down=link0 up

	case $1 in
	up)
		lab_modules e1000e || return ;;
	down) ;;
	*)
		echo "inside.sh: cards up|down" >&2
		return 2 ;;
	esac
	for side in src dst; do
		up=eth$card
		[ "$1" = down ] && down=eth$card up=link0
		[ -e /sys/class/net/eth$card ] && ip link set eth$card netns $side
		ip -n $side addr flush dev $down
		ip -n $side link set $up up
		ip -n $side addr add 10.77.0.$((card + 1))/24 dev $up || return
		card=$((card + 1))
	done
}

# A virtio-serial port by its name, in $port. No fork: under emulation each costs.
lab_port()
{
	local at name

	for at in /sys/class/virtio-ports/*; do
		read -r name <"$at/name"
		port=/dev/${at##*/}
		[ "$name" = "$1" ] && return
	done
	return 1
}

# QEMU before 8.1 may run a stale translation of kernel code that another CPU has just patched, and
# spin there for ever, or die of the breakpoint that stood there meanwhile. The first and the last VM of
# a host patch the scheduler (preempt notifiers), its hottest path; the first and the last vCPU whose
# guest has not switched its APIC on patch KVM's. With such a VM that is always there no other
# one is ever first or last.
lab_hold()
{
	exec /usr/bin/python3 -S -c 'import fcntl, os, signal, sys
sys.dont_write_bytecode = True
open("/proc/self/comm", "w").write("lab-hold")
vm = fcntl.ioctl(os.open("/dev/kvm", os.O_RDWR | os.O_CLOEXEC), 0xae01, 0)
fcntl.ioctl(vm, 0xae60)	# KVM_CREATE_IRQCHIP
vcpu = fcntl.ioctl(vm, 0xae41, 0)
signal.pause()' </dev/null >/dev/null 2>/dev/kmsg
}

# The same goes for a tracepoint's call when its first, its second or its last-but-one probe comes or goes. With two
# probes that are always there the one that is tested patches nothing.
lab_hold_tracepoints()
{
	local one event

	for one in a b; do
		mkdir /sys/kernel/tracing/instances/lab-$one
		for event in block_rq_complete block_bio_complete; do
			echo 1 >/sys/kernel/tracing/instances/lab-$one/events/block/$event/enable
		done
		# The probes are wanted, the records are not.
		echo 0 >/sys/kernel/tracing/instances/lab-$one/tracing_on
	done
}

lab_boot()
{
	local run=$1 status port up

	lab_port lab.out && exec >"$port"
	lab_port lab.err && exec 2>"$port"
	ip link set lo up
	# To poll before a halt saves an exit on silicon; here it only takes time from the other CPU.
	grep -q TCG /proc/cpuinfo && echo 0 >/sys/module/kvm/parameters/halt_poll_ns
	lab_hold_tracepoints
	lab_hold &
	echo "lab: ready" >/dev/kmsg
	read -r up _ </proc/uptime
	lab_port lab.status && echo "ready $up" >"$port"
	# Nothing is typed unless the lab was told to.
	lab_port lab.in || port=/dev/null
	"$run/command" <"$port"
	status=$?
	sync
	read -r up _ </proc/uptime
	lab_port lab.status && echo "$status $up" >"$port"
	sleep 60	# the host ends it
}

verb=$1
shift
case $verb in
boot|modules|net|cards)
	"lab_$verb" "$@" ;;
*)
	sed -n '3,9s/^# \?//p' "$0" >&2
	exit 2 ;;
esac
