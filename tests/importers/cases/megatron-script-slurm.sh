#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#SBATCH --job-name=llama3
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --account=secret-account

TP=${TP:-4}
PP=2
LAYERS_PER_STAGE=16
NLAYERS=$((PP * LAYERS_PER_STAGE))
if [ -n "$HF_TOKEN" ]; then
  TOKEN_ARGS="--trust-remote-code"
fi

options=" \
  --num-layers ${NLAYERS} --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 \
  --group-query-attention --num-query-groups 8 --position-embedding-type rope --disable-bias-linear \
  --normalization RMSNorm --swiglu --untie-embeddings-and-output-weights --vocab-size 128256 \
  --tensor-model-parallel-size ${TP} --pipeline-model-parallel-size ${PP} --sequence-parallel \
  --micro-batch-size 1 --global-batch-size ${GBS} --use-distributed-optimizer --bf16 \
  --save ${SCRATCH}/ckpt --ddp-bucket-size 50000000"

srun -l --container-image=registry.example/secret:latest sh -c "cd /opt/megatron && python -u pretrain_gpt.py ${options}"
