#!/bin/bash
# Starts a cloud of one node in a virtual machine: a bare Debian 12 with its own kernel (6.1: no tcx) and control groups of version 2
# only, as most users have it. Containers of two tenants with one address are made and asked who they are.
#
#   test/guest/run.sh
#
# Needs root, `make build`, Debian's qemu-system-x86, busybox-static, cpio, e2fsprogs and debootstrap. The kernel's package is
# downloaded, not installed. KVM is used where there is one; without it the run takes several minutes and GUEST_TIMEOUT (seconds,
# 1800) may have to be longer.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$PWD/build/guest
mkdir -p "$build" build/archives
work=$(mktemp -d "$build/run-XXXXXX")
trap 'rm -rf "$work"' EXIT
: "${GUEST_KERNEL:=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[^ ]*\).*/\1/p' | head -1)}"

# inside ROOT COMMAND...: runs a command in a root file system, in namespaces that end with it.
inside() {
	unshare --mount --pid --fork --kill-child -- sh -ec 'root=$1 archives=$2; shift 2
		mount --bind "$root" "$root"; mount -t proc proc "$root/proc"; mount --rbind /sys "$root/sys"; mount --rbind /dev "$root/dev"
		mount --bind "$archives" "$root/var/cache/apt/archives"
		exec chroot "$root" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"' \
		sh "$1" "$PWD/build/archives" "${@:2}"
}

# The root file system with the cloud's packages and the kernel, made once for each kernel.
base=$build/root-$GUEST_KERNEL.tar
if [ ! -e "$base" ]; then
	root=$work/root
	mkdir "$root"
	bare=build/debian-bookworm-minbase.tar # which the tests of packages make, too
	if [ -e "$bare" ]; then
		tar --extract --file "$bare" --directory "$root"
	else
		debootstrap --variant=minbase bookworm "$root" "$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' 'Component: main' | head -1)"
		chroot "$root" apt-get clean
	fi
	cp /etc/resolv.conf "$root/etc/resolv.conf"
	apt-config dump --format '%F "%v";%n' | grep -E '^Acquire::(http|Check-)' >"$root/etc/apt/apt.conf.d/99machine" || true
	install -m 755 bin/mni "$root/usr/local/bin/mni"
	inside "$root" mni host install
	[ -e "build/archives/$GUEST_KERNEL.deb" ] || (cd "$work" && apt-get download -q "$GUEST_KERNEL" && mv "$GUEST_KERNEL"_*.deb "$OLDPWD/build/archives/$GUEST_KERNEL.deb")
	dpkg-deb -x "build/archives/$GUEST_KERNEL.deb" "$work/kernel" # not into the root, whose /lib is a link that would be replaced
	cp -a "$work/kernel/boot/." "$root/boot/"
	cp -a "$work/kernel/lib/modules" "$root/usr/lib/"
	inside "$root" depmod "$(ls "$root/lib/modules")"
	rm -f "$root/etc/apt/apt.conf.d/99machine"
	tar --create --file "$base.new" --directory "$root" .
	mv "$base.new" "$base"
	rm -rf "$root"
fi

# A disk with that and with what was built.
root=$work/root
mkdir -p "$root"
tar --extract --file "$base" --directory "$root"
release=$(ls "$root/lib/modules")
echo "127.0.0.1 localhost" >"$root/etc/hosts" # which Debian's installer makes, and debootstrap does not
mkdir -p "$root/opt/mni/build"
cp -r bin "$root/opt/mni/bin"
rm -rf "$root/opt/mni/bin/tools"
cp -r build/images "$root/opt/mni/build/images"
install -m 755 test/guest/init "$root/sbin/guest-init"
truncate --size 8G "$work/disk"
mke2fs -q -t ext4 -O ^has_journal -d "$root" "$work/disk"

# A first root that knows the disk.
first=$work/first
mkdir -p "$first"/{bin,dev,proc,root,sys} "$first/lib/modules/$release"
cp "$(command -v busybox)" "$first/bin/busybox"
cp "$root/lib/modules/$release"/modules.{dep,alias,builtin,order} "$first/lib/modules/$release/"
(cd "$root/lib/modules/$release" && find kernel -path '*virtio*' -o -path '*ext4*' -o -path '*jbd2*' -o -name 'mbcache*' -o -name 'crc*' -o -name 'libcrc*' |
	grep '\.ko$' | cpio --quiet -pdm "$first/lib/modules/$release")
cat >"$first/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox mount -t devtmpfs none /dev
/bin/busybox mount -t proc none /proc
for module in virtio_pci virtio_blk crc32c_generic ext4; do /bin/busybox modprobe "$module"; done
/bin/busybox mount -t ext4 /dev/vda /root || exec /bin/busybox poweroff -f
exec /bin/busybox switch_root /root /sbin/guest-init
INIT
chmod +x "$first/init"
(cd "$first" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initramfs"
kernel=$root/boot/vmlinuz-$release

accel=tcg,thread=multi cpu=max
if [ -w /dev/kvm ]; then accel=kvm cpu=host; fi
timeout "${GUEST_TIMEOUT:-1800}" qemu-system-x86_64 -machine q35 -accel "$accel" -cpu "$cpu" -smp "${GUEST_CPUS:-2}" -m 4096 -nographic -no-reboot -nodefaults \
	-serial stdio -drive "file=$work/disk,if=virtio,format=raw,cache=unsafe" -kernel "$kernel" -initrd "$work/initramfs" \
	-append "console=ttyS0 quiet panic=-1 systemd.unified_cgroup_hierarchy=1" </dev/null | tee "$work/output"
grep -q 'guest: all is well' "$work/output"
