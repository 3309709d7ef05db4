"""Hugging Face accelerate, one run for each backend named: prints rank 0's losses as JSON. Started by torchrun.

On the CPU accelerate names gloo itself, so the script makes the group before it makes the Accelerator.
"""

import gc
import json
import sys

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.state import AcceleratorState, PartialState
from torch import nn


def train(backend):
    dist.init_process_group(backend)
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(1)
    inputs = torch.randn(256, 20)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=16)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    losses = []
    for rows, wanted in data:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(rows), wanted)
        accelerator.backward(loss)
        optimizer.step()
        losses.append(accelerator.gather(loss.detach()).mean().item())
    accelerator.wait_for_everyone()
    found = {"backend": dist.get_backend(), "losses": losses, "rank": accelerator.process_index,
             "ranks": accelerator.num_processes, "wrapped": type(model).__name__}
    del model, optimizer, data, accelerator
    AcceleratorState._reset_state()
    PartialState._reset_state()
    gc.collect()  # a DDP model that outlives its Gloo group can block for ever
    if dist.is_initialized():
        dist.destroy_process_group()
    return found


torch.set_num_threads(1)
for name in sys.argv[1:]:
    found = train(name)
    if found["rank"] == 0:
        print(json.dumps(found), flush=True)
