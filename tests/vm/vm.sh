#!/usr/bin/env bash
# A test machine with a kernel of its own: Linux in QEMU, interpreted (TCG), so that it needs
# neither root nor KVM and runs the same way twice.
#
#   vm.sh fetch                          packages from Debian, unpacked beside each other
#   vm.sh build                          a root file system of them, as an initramfs
#   vm.sh run FOLDER OUT [FILE...]       boots, runs FOLDER/guest.sh, copies what it wrote to OUT
#
# In the guest everything of FOLDER, and each FILE, lies in /test; what is written to /test/out
# comes back. The exit code is guest.sh's. Nothing is installed on this machine: all lies in
# target/tools/vm, and is fetched and built once.
#
# Time in the guest goes by instructions (-icount): 2 ns each, and at once to the next timer when
# there is nothing to do. So a busy host makes a run slower, but not different; and so the guest
# has no disk, no shared folder and no network of this host's: while it waited for one, its time
# would fly.
#
# Exit codes: 3 when this machine cannot have such a guest, with the reason as the last line.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PLACE=$HERE/../../target/tools/vm
mkdir -p "$PLACE"
PLACE=$(cd "$PLACE" && pwd)
LIBRARIES=$PLACE/qemu/usr/lib/x86_64-linux-gnu

# What the guest is made of. A new kind of test adds its modules, packages, commands and other
# files here; shared libraries that a command needs come by themselves, the packages' own first.
# Soft-RoCE (rdma_rxe) asks for its checksum by name, and nothing in the guest answers that.
MODULES=(veth bridge sch_htb sch_prio sch_red cls_u32 crc32_generic rdma_rxe ib_uverbs)
PACKAGES=(busybox-static kmod iproute2 ethtool
    libibverbs1 ibverbs-providers ibverbs-utils libnl-3-200 libnl-route-3-200)
COMMANDS=(bin/ip sbin/tc sbin/bridge sbin/dcb sbin/ethtool
    usr/bin/rdma usr/bin/ibv_devices usr/bin/ibv_ud_pingpong)
# libibverbs finds its provider for Soft-RoCE by these two.
FILES=(etc/libibverbs.d/rxe.driver usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav*.so)

cannot() {
    echo "no test machine: $*" >&2
    exit 3
}

apt() { apt-get -q -o APT::Sandbox::User=root "$@"; }

# Downloads packages into a folder and unpacks them into another one.
unpack() {
    local debs=$PLACE/debs/$1 root=$PLACE/$1
    shift
    mkdir -p "$debs" "$root"
    (cd "$debs" && apt download "$@" >/dev/null) || cannot "apt cannot download $*"
    for deb in "$debs"/*.deb; do dpkg-deb -x "$deb" "$root"; done
}

fetch() {
    [ "$(uname -m)" = x86_64 ] || cannot "the guest is of x86_64, this machine of $(uname -m)"
    for command in apt-get apt-cache dpkg-deb; do
        command -v "$command" >/dev/null ||
            cannot "$command is not here; the guest is made of Debian's packages"
    done
    local kernel qemu
    kernel=$(apt-cache depends linux-image-amd64 2>/dev/null | awk '/Depends:/ {print $2; exit}')
    [ -n "$kernel" ] || cannot "apt knows no linux-image-amd64; run apt-get update"
    rm -rf "$PLACE"/{debs,kernel,guest,qemu,fetched}
    # QEMU and what it needs and this machine lacks. Installing it may remove a newer qemu-utils.
    qemu=$(apt -s --no-install-recommends install qemu-system-x86 2>/dev/null |
        awk '/^Inst/ && $2 != "libc6" {print $2}')
    [ -n "$qemu" ] || [ -x "$(command -v qemu-system-x86_64)" ] ||
        cannot "apt cannot find what qemu-system-x86 needs"
    unpack kernel "$kernel"
    unpack guest "${PACKAGES[@]}"
    # shellcheck disable=SC2086  # a list of names
    [ -z "$qemu" ] || unpack qemu $qemu
    echo "${PACKAGES[*]}" >"$PLACE/fetched"
}

# Puts modules and what they need into the root file system.
add_modules() {
    local root=$1 version file
    version=$(basename "$PLACE"/kernel/lib/modules/*)
    mkdir -p "$PLACE/links" "$root/lib/modules/$version"
    for name in depmod modprobe; do ln -sf "$PLACE/guest/bin/kmod" "$PLACE/links/$name"; done
    "$PLACE/links/depmod" -b "$PLACE/kernel" "$version"
    cp "$PLACE/kernel/lib/modules/$version"/modules.{builtin,order,builtin.modinfo} \
        "$root/lib/modules/$version/"
    for module in "${MODULES[@]}"; do
        "$PLACE/links/modprobe" -d "$PLACE/kernel" -S "$version" --show-depends "$module"
    done | awk '$1 == "insmod" {print $2}' | sort -u | while read -r file; do
        mkdir -p "$root/$(dirname "${file#"$PLACE/kernel/"}")"
        cp "$file" "$root/${file#"$PLACE/kernel/"}"
    done
    "$PLACE/links/depmod" -b "$root" "$version"
}

# Puts the shared libraries of programs into the root file system, where the loader looks.
add_libraries() {
    local root=$1 target
    shift
    for program in "$@"; do
        LD_LIBRARY_PATH=$PLACE/guest/usr/lib/x86_64-linux-gnu:$PLACE/guest/lib/x86_64-linux-gnu \
            ldd "$program" 2>/dev/null || true
    done |
        awk '/=> \// {print $3} /^\t\/lib/ {print $1}' | sort -u | while read -r library; do
        target=$root/${library#"$PLACE/guest/"}
        mkdir -p "$(dirname "$target")"
        cp -L "$library" "$target"
    done
}

# A folder as the kernel unpacks it.
archive() {
    (cd "$1" && find . | "$PLACE/guest/bin/busybox" cpio -o -H newc 2>/dev/null)
}

build() {
    [ "$(cat "$PLACE/fetched" 2>/dev/null)" = "${PACKAGES[*]}" ] || fetch
    local root=$PLACE/root command
    rm -rf "$root" "$PLACE/initramfs.gz"
    mkdir -p "$root"/{bin,sbin,dev,proc,sys,tmp,run,var/run/netns}
    add_modules "$root"
    cp "$PLACE/guest/bin/busybox" "$root/bin/"
    # BusyBox would run commands of its own in the place of these.
    for command in $("$root/bin/busybox" --list); do
        case $command in
        busybox | sh | ash | ip | tc | modprobe | insmod | lsmod | rmmod | depmod) ;;
        *) ln -s busybox "$root/bin/$command" ;;
        esac
    done
    cp "$(command -v dash)" "$root/bin/sh"
    cp "$PLACE/guest/bin/kmod" "$root/bin/"
    ln -s ../bin/kmod "$root/sbin/modprobe"
    for command in "${COMMANDS[@]}"; do cp "$PLACE/guest/$command" "$root/sbin/"; done
    # shellcheck disable=SC2048  # patterns
    (cd "$PLACE/guest" && cp -L --parents ${FILES[*]} "$root/")
    # shellcheck disable=SC2046,SC2048  # a list of names
    add_libraries "$root" "$root"/sbin/* "$root"/bin/{kmod,sh} \
        $(cd "$PLACE/guest" && printf "$root/%s " ${FILES[*]})
    cp "$HERE/init" "$root/init"
    chmod +x "$root/init"
    archive "$root" | gzip -1 >"$PLACE/new.gz"
    mv "$PLACE/new.gz" "$PLACE/initramfs.gz"
}

run() {
    local folder=$1 out=$2 scratch qemu newer
    shift 2
    # Runs beside each other build once.
    exec 9>"$PLACE/lock"
    flock 9
    newer=$(find "$HERE" -maxdepth 1 -type f -newer "$PLACE/initramfs.gz" 2>/dev/null || echo all)
    [ -z "$newer" ] || build
    exec 9>&-
    qemu=$PLACE/qemu/usr/bin/qemu-system-x86_64
    [ -x "$qemu" ] || qemu=$(command -v qemu-system-x86_64) || cannot "no qemu-system-x86_64"
    scratch=$(mktemp -d -p "$PLACE")
    # shellcheck disable=SC2064  # the folder of now
    trap "rm -rf '$scratch'" EXIT
    mkdir -p "$scratch/first/test/out" "$out"
    cp -r "$folder"/. "$scratch/first/test/"
    for file in "$@"; do
        strip -o "$scratch/first/test/$(basename "$file")" "$file" 2>/dev/null ||
            cp "$file" "$scratch/first/test/"
    done
    add_libraries "$scratch/first" "$@"
    # The kernel unpacks one archive after the other; the first must not be a compressed one.
    { archive "$scratch/first" && cat "$PLACE/initramfs.gz"; } >"$scratch/initramfs"
    rm -rf "$scratch/first"
    LD_LIBRARY_PATH=$LIBRARIES QEMU_MODULE_DIR=$LIBRARIES/qemu \
        timeout "600" "$qemu" \
        -L "$PLACE/qemu/usr/share/qemu" -L "$PLACE/qemu/usr/share/seabios" \
        -accel tcg -smp 1 -icount shift=1,sleep=off -seed 1 -rtc base=2026-01-01,clock=vm \
        -cpu max -m 768 -nographic -no-reboot -nodefaults \
        -serial stdio -serial file:"$scratch/out.tar" \
        -kernel "$PLACE"/kernel/boot/vmlinuz-* -initrd "$scratch/initramfs" \
        -append "console=ttyS0 quiet panic=-1 mitigations=off nokaslr ipv6.disable=1" \
        </dev/null 2>&1 | sed -u 's/\r//g' | tee "$scratch/console" || true
    grep -q BOOTED "$scratch/console" ||
        cannot "QEMU starts no guest: $(tail -n 1 "$scratch/console")"
    tar -x -f "$scratch/out.tar" -C "$out" || true
    cp "$scratch/console" "$out/"
    grep -q '^EXIT 0$' "$scratch/console"
}

case ${1:-} in
fetch | build) "$1" ;;
run) run "${@:2}" ;;
*)
    sed -n '2,/^set/ s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
