#!/usr/bin/env bash
# Training on four hosts under Slurm: one torchrun on each. `train.py` and `job.toml` lie in the
# folder in which sbatch is called, on a file system that all hosts share.
#SBATCH --job-name=train
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
set -euo pipefail

MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR MASTER_PORT=29500
export GRADWIRE_JOB=$SLURM_SUBMIT_DIR/job.toml
export GRADWIRE_TRACE=$SLURM_SUBMIT_DIR/traces-$SLURM_JOB_ID
# One secret for all ranks, which never passes through PyTorch's store.
export GRADWIRE_TOKEN_FILE=$SLURM_SUBMIT_DIR/token-$SLURM_JOB_ID
(umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$GRADWIRE_TOKEN_FILE")
trap 'rm -f "$GRADWIRE_TOKEN_FILE"' EXIT

# The faults of each host, before the job waits for them.
srun gradwire doctor || echo 'gradwire doctor has found problems; see above' >&2
srun bash -c 'exec torchrun --nnodes "$SLURM_NNODES" --nproc-per-node 1 \
    --node-rank "$SLURM_NODEID" --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT" \
    train.py'
