#!/usr/bin/env bash
# Builds the command and the core's tests for aarch64 and runs them here, interpreted by QEMU:
# version, doctor, a simulation whose digest must be that of this machine, an all-reduce of two
# ranks over encrypted UDP, and the tests of protocol and collectives. QEMU and an aarch64 libc are
# fetched from Debian by name and unpacked under target/tools, never installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

triple=aarch64-unknown-linux-gnu
if ! timeout 120 rustup target add $triple; then
    echo 'left out: rustup is not there, or cannot fetch the standard library for aarch64'
    exit 0
fi
folder=$PWD/target/tools/aarch64
here=(cargo run --quiet --locked -p gradwire-cli --)

fetch() {
    rm -rf "$folder"
    mkdir -p "$folder/fetched"
    (cd "$folder/fetched" && apt-get -qq -o "APT::Sandbox::User=root" download \
        qemu-user-static libc6-arm64-cross libgcc-s1-arm64-cross)
    for package in "$folder"/fetched/*.deb; do
        dpkg-deb -x "$package" "$folder/partly"
    done
    mv "$folder/partly" "$folder/tree"
}
[ -d "$folder/tree" ] || fetch
emulator=("$folder/tree/usr/bin/qemu-aarch64-static" -L "$folder/tree/usr/aarch64-linux-gnu")

# Zig links for the glibc of the wheels; `unset`, since cargo-zigbuild calls the real cargo.
# A folder of its own keeps other builds from waiting for this one.
unset CARGO
export PATH=$PWD/target/packaging/bin:$PATH
there() { CARGO_TARGET_DIR=target/aarch64 cargo-zigbuild "$@" --locked --target $triple.2.28; }
there zigbuild -p gradwire-cli
command=("${emulator[@]}" target/aarch64/$triple/debug/gradwire)

say() { printf '\n== aarch64: %s\n' "$1"; }

say 'version and doctor'
"${command[@]}" --version
"${command[@]}" doctor --json >"$folder/doctor.jsonl" || [ $? = 1 ] # it may find faults of the host
wc -l <"$folder/doctor.jsonl"

say 'a simulation, there and here'
simulated=(sim run fat-tree:k=4@100G,loss=1% permutation:1MB --tolerance 10% --json)
"${command[@]}" "${simulated[@]}" >"$folder/there.json"
"${here[@]}" "${simulated[@]}" >"$folder/here.json"
digest() { sed -nE 's/.*"digest": *"([^"]*)".*/\1/p' "$1" | head -n 1; }
echo "$(digest "$folder/there.json") $(digest "$folder/here.json")"
[ -n "$(digest "$folder/here.json")" ]
[ "$(digest "$folder/there.json")" = "$(digest "$folder/here.json")" ]

say 'two ranks, one on each processor, over encrypted UDP'
ranks=(rank --world 2 --rendezvous 127.0.0.1:29517 --token secret --bytes 1M --iterations 5
    --wire udp)
"${command[@]}" "${ranks[@]}" --rank 0 &
"${here[@]}" "${ranks[@]}" --rank 1
wait $!

say 'the tests of protocol and collectives'
CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="${emulator[*]}" \
    there test --lib -p gradwire-protocol -p gradwire-collectives
