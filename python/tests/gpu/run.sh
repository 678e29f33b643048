#!/usr/bin/env bash
# The checks that need a GPU, in at most ten minutes; one GPU is enough. Run it in a checkout, with
# the Python that has PyTorch for this GPU and gradwire (pip install .). The last lines are a table
# for benches/README.md; put the date and the GPU into last_run then.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
device="$here/../device"
python="${PYTHON:-python3}"
out="$(mktemp -d)"
trap 'rm -rf "$out"' EXIT
export OMP_NUM_THREADS=1 PYTHONPATH="$device${PYTHONPATH:+:$PYTHONPATH}"
export TORCHINDUCTOR_CACHE_DIR="$out"

name="$("$python" -c 'import torch; print(torch.cuda.get_device_name(0), torch.__version__)')" || {
    echo 'left out: this PyTorch finds no GPU'
    exit 1
}
"$python" -m gradwire.build

ranks() {  # ranks N PROGRAM ARGUMENTS: each check has a minute
    local number="$1"
    shift
    timeout 120 "$python" -m torch.distributed.run --standalone --nproc-per-node "$number" \
        "$here/report.py" "$@"
}

printf '\n== the contract of devices, three ranks on one GPU\n'
ranks 3 contract.py gpu
printf '\n== the same, with every launch synchronous\n'
CUDA_LAUNCH_BLOCKING=1 ranks 3 contract.py gpu
printf '\n== futures, 1,000 times\n'
ranks 2 reproducer.py gpu 1000
printf '\n== training: the same bits on both ranks, without and with a tolerance\n'
ranks 2 training.py cuda hook 0
ranks 2 training.py cuda fsdp 0
if command -v compute-sanitizer > /dev/null; then
    printf '\n== compute-sanitizer on the contract\n'
    timeout 180 compute-sanitizer --target-processes all --error-exitcode 9 \
        "$python" -m torch.distributed.run --standalone --nproc-per-node 3 \
        "$here/report.py" contract.py gpu
else
    echo 'left out: compute-sanitizer is not here'
fi
printf '\n== MNIST: losses over gradwire and over Gloo\n'
for backend in gradwire gloo; do
    timeout 120 "$python" -m torch.distributed.run --standalone --nproc-per-node 2 \
        "$here/../../../examples/train_mnist.py" --device cuda --backend "$backend" --epochs 2 \
        --out "$out/$backend"
done
"$python" "$here/compare.py" "$out/gradwire" "$out/gloo"
printf '\n== all-reduce on %s: microseconds, medians\n' "$name"
timeout 180 "$python" -m torch.distributed.run --standalone --nproc-per-node 2 "$here/times.py"
printf '\npassed on %s, %s\n' "$(date -u +%F)" "$name"
