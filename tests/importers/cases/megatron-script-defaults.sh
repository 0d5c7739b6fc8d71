# SPDX-License-Identifier: Apache-2.0
source ./cluster.sh
MICRO=${MICRO:-1}
torchrun --nproc_per_node 8 pretrain_gpt.py \
  --tensor-model-parallel-size ${TP:-2} --num-layers ${LAYERS:-4} --hidden-size 128 --num-attention-heads 4 \
  --micro-batch-size $MICRO --global-batch-size 16 --max-position-embeddings 256
