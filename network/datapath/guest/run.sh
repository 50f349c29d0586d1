#!/bin/sh
# Runs the datapath's tests in a virtual machine with Debian 12's own kernel (6.1: clsact, and an older verifier).
#
#   network/datapath/guest/run.sh [arguments of the test binary]
#
# Needs Debian's qemu-system-x86, busybox-static and cpio, and downloads (does not install) the kernel's package.
# KVM is used where there is one. Set GUEST_KERNEL to another package's name for another kernel.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cache=${GUEST_CACHE:-$work}
mkdir -p "$cache"
: "${GUEST_KERNEL:=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[^ ]*\).*/\1/p' | head -1)}"

if [ ! -d "$cache/$GUEST_KERNEL" ]; then
	(cd "$work" && apt-get download -q "$GUEST_KERNEL")
	mkdir "$cache/$GUEST_KERNEL"
	dpkg-deb -x "$work/$GUEST_KERNEL"_*.deb "$cache/$GUEST_KERNEL"
fi
kernel=$(echo "$cache/$GUEST_KERNEL"/boot/vmlinuz-*)
modules=$(echo "$cache/$GUEST_KERNEL"/lib/modules/*)

root=$work/root
mkdir -p "$root/bin" "$root/proc" "$root/sys" "$root/dev" "$root/tmp" "$root/modules"
cp "$(command -v busybox)" "$root/bin/busybox"
for name in llc stp bridge udp_tunnel ip6_udp_tunnel vxlan veth sch_ingress cls_bpf; do
	find "$modules" -name "$name.ko*" -exec cp {} "$root/modules/" \;
done
(cd "$here/.." && CGO_ENABLED=0 go test -c -o "$root/bin/datapath.test" .)
printf '%s\n' "$*" >"$root/arguments"
cat >"$root/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/tmp
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mount -t tmpfs none /tmp
for name in llc stp bridge udp_tunnel ip6_udp_tunnel vxlan veth sch_ingress cls_bpf; do
	for file in /modules/$name.ko*; do [ -e "$file" ] && insmod "$file"; done
done
ip link set lo up
uname -r
datapath.test -test.v -test.timeout=60m $(cat /arguments)
echo "guest exit status: $?"
poweroff -f
INIT
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initramfs"

accel=tcg,thread=multi
cpu=max
if [ -w /dev/kvm ]; then accel=kvm cpu=host; fi
qemu-system-x86_64 -machine q35 -accel "$accel" -cpu "$cpu" -smp 2 -m 1536 -nographic -no-reboot -nodefaults -serial stdio \
	-kernel "$kernel" -initrd "$work/initramfs" -append 'console=ttyS0 quiet panic=-1' | tee "$work/output"
grep -q 'guest exit status: 0' "$work/output"
