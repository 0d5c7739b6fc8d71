#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
deepspeed --num_gpus 8 pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 8 --seq-length 32 --max-position-embeddings 32 \
  --vocab-size 1000 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2  --num-experts 1 --micro-batch-size 1 --global-batch-size 8 \
  --clip-grad 0.5 --fp16 --data-impl mmap --deepspeed --deepspeed_config ds.json --zero-stage 1
