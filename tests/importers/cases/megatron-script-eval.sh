# SPDX-License-Identifier: Apache-2.0
DISTRIBUTED="torchrun --nproc-per-node=8 --nnodes=2 --rdzv-endpoint=10.1.2.3:29500"
MODEL="--num-layers 12 --hidden-size 768 --num-attention-heads 12 --max-position-embeddings 1024"
MODEL+=" --tokenizer-type GPT2BPETokenizer"
PARALLEL="--tensor-model-parallel-size 2 --context-parallel-size 2 --sequence-parallel"
BATCH='--micro-batch-size 2 --global-batch-size 64'
run_cmd="${DISTRIBUTED} /workspace/Megatron-LM/pretrain_gpt.py ${MODEL} ${PARALLEL} ${BATCH} --calculate-per-token-loss"
echo ${run_cmd} > /tmp/secret
eval ${run_cmd}
