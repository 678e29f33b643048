#!/usr/bin/env bash
# The checks that need a GPU, in at most ten minutes; one GPU is enough. Run it in a checkout, with
# the Python that has PyTorch for this GPU and gradwire (pip install .). The tables are for
# benches/README.md; put the date and the GPU into last_run then.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
examples="$here/../../../examples"
python="${PYTHON:-python3}"
out="$(mktemp -d)"
trap 'rm -rf "$out"' EXIT
export OMP_NUM_THREADS=1 PYTHONPATH="$here/../device:$here${PYTHONPATH:+:$PYTHONPATH}"
export TORCHINDUCTOR_CACHE_DIR="$out"
SECONDS=0
readonly MOST=600

name="$("$python" -c 'import torch; print(torch.cuda.get_device_name(0), torch.__version__)')" || {
    echo 'left out: this PyTorch finds no GPU'
    exit 1
}
"$python" -m gradwire.build

say() { printf '\n== %s s: %s\n' "$SECONDS" "$1"; }

within() {  # within SECONDS COMMAND: for that long at most, and never past the ten minutes
    local left=$((MOST - SECONDS))
    if [ "$left" -le 0 ]; then
        echo 'the ten minutes are over'
        exit 1
    fi
    timeout "$((left < $1 ? left : $1))" "${@:2}"
}
torchrun=("$python" -m torch.distributed.run --standalone --nproc-per-node)
ranks() {  # ranks N PROGRAM ARGUMENTS: one check
    within 90 "${torchrun[@]}" "$1" "$here/report.py" "${@:2}"
}
nccl() {  # nccl NETWORK PROGRAM ARGUMENTS: two ranks, which NCCL takes for two hosts
    within 90 "${torchrun[@]}" 2 "$here/hosts.py" "$@"
}

say 'the contract of devices, three ranks on one GPU'
ranks 3 contract.py gpu
say 'the same, with every launch synchronous'
CUDA_LAUNCH_BLOCKING=1 ranks 3 contract.py gpu
say 'futures, 1,000 times'
ranks 2 reproducer.py gpu 1000
say 'training: the same bits on both ranks'
ranks 2 training.py cuda hook 0
ranks 2 training.py cuda fsdp 0
mnist=("$examples/train_mnist.py" --device cuda --epochs 2)
for backend in gradwire gloo; do
    say "MNIST over $backend"
    within 90 "${torchrun[@]}" 2 "${mnist[@]}" --backend "$backend" --out "$out/$backend"
done
for network in sockets plugin; do
    say "MNIST over NCCL: $network"
    nccl "$network" "${mnist[@]}" --backend nccl --out "$out/nccl-$network"
done
"$python" "$here/compare.py" "$out/gradwire" "$out/gloo" "$out/nccl-sockets" "$out/nccl-plugin"
say "all-reduce on $name: microseconds, medians"
within 120 "${torchrun[@]}" 2 "$here/times.py"
for network in sockets plugin; do
    say "all-reduce over NCCL: $network"
    nccl "$network" "$here/times_nccl.py"
done
if command -v compute-sanitizer >/dev/null && [ "$SECONDS" -lt 500 ]; then
    say 'compute-sanitizer on the contract'
    within 180 compute-sanitizer --target-processes all --error-exitcode 9 \
        "${torchrun[@]}" 3 "$here/report.py" contract.py gpu
else
    echo 'left out: compute-sanitizer is not here, or too little of the ten minutes is left'
fi
printf '\npassed in %s s on %s, %s\n' "$SECONDS" "$(date -u +%F)" "$name"
