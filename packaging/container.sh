#!/usr/bin/env bash
# Runs the command in real containers, with an engine's default limits and with worse ones:
# packaging/container.sh COMMAND [ROOT]. The engine is podman, whose defaults are Docker's: 64 MiB
# of /dev/shm, few capabilities, a filter of system calls. The root is a fresh Debian by
# debootstrap, or a copy of the folder ROOT, which has one. Needs root. Prints what each container
# said; fails where one says something else than docs/clusters.md. `PODMAN="podman --runtime crun"`
# chooses another runtime.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
command=$(realpath "$1")
read -ra engine <<<"${PODMAN:-podman}"
setpriv --dump | grep -q sys_resource || engine+=(--runtime "$here/runc-without-limits")
root=$(mktemp -d -p /var/tmp)
trap 'rm -rf --one-file-system "$root"' EXIT
if [ $# = 2 ]; then
    cp -a "$2/." "$root"
else
    debootstrap --variant=minbase bookworm "$root" >/dev/null
fi
chmod 755 "$root" # any user of a container reads it
install "$command" "$root/usr/bin/gradwire"

# Runs the command in a container with the options before `--`. Its network has loopback only.
contained() {
    local options=()
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    "${engine[@]}" run --rm --network none "${options[@]}" --rootfs "$root" gradwire "${@:2}"
}
measured=(perf all-reduce -n 2 -b 64K -e 64K --iterations 5 --json)
says() {
    local name=$1 wanted=$2
    printf '\n== container: %s\n' "$name"
    shift 2
    local told
    told=$("$@" 2>&1) || true
    echo "$told" | cut -c 1-300
    grep -q -- "$wanted" <<<"$told"
}

says 'the defaults' '"wire":"shm"' contained -- "${measured[@]}"
says 'the defaults, by UDP' '"wire":"udp"' contained -- "${measured[@]}" --wire udp
says 'no capability at all' '"wire":"shm"' contained --cap-drop all -- "${measured[@]}"
says 'a user without a name' '"wire":"shm"' contained --user 54321 -- "${measured[@]}"
says 'a read-only root' '"wire":"shm"' contained --read-only -- "${measured[@]}"
says 'too little shared memory' 'go by UDP, slower' contained --shm-size 512k -- "${measured[@]}"
says 'io_uring behind a filter' 'filter of system calls' \
    contained -- "${measured[@]}" --wire uring
says 'the doctor' 'shared_memory' contained -- doctor
