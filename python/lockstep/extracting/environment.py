# SPDX-License-Identifier: Apache-2.0
"""The environment of a rank."""


def environment(rank, world, local_world):
    """What torchrun gives a rank."""
    local = min(local_world, world)
    return {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank % local), "LOCAL_WORLD_SIZE": str(local), "GROUP_RANK": str(rank // local),
            "GROUP_WORLD_SIZE": str(-(-world // local)), "ROLE_RANK": str(rank), "ROLE_WORLD_SIZE": str(world), "ROLE_NAME": "default",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0",
            "TORCHELASTIC_RUN_ID": "lockstep", "OMP_NUM_THREADS": "1", "TORCH_COMPILE_DISABLE": "1", "CUDA_VISIBLE_DEVICES": ""}
