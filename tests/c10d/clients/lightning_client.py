"""PyTorch Lightning, one run for each backend named: prints rank 0's losses as JSON. Started by torchrun."""

import gc
import json
import logging
import sys
import warnings

import pytorch_lightning as lightning
import torch
import torch.distributed as dist
from pytorch_lightning.strategies import DDPStrategy
from torch import nn

warnings.filterwarnings("ignore")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 1))
        self.losses = []

    def training_step(self, batch, _):
        inputs, wanted = batch
        loss = nn.functional.mse_loss(self.layers(inputs), wanted)
        self.losses.append(loss.item())
        self.log("mean over the ranks", loss, sync_dist=True, on_step=True, prog_bar=False)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.05)


def train(backend):
    lightning.seed_everything(1, verbose=False)
    inputs = torch.randn(256, 20)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=16)
    model = Regression()
    trainer = lightning.Trainer(accelerator="cpu", devices=2, strategy=DDPStrategy(process_group_backend=backend), max_epochs=1,
                                logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(model, data)
    found = {"backend": dist.get_backend(), "losses": model.losses, "rank": trainer.global_rank,
             "mean": float(trainer.callback_metrics["mean over the ranks"])}
    del model, trainer, data
    gc.collect()  # a DDP model that outlives its Gloo group can block for ever
    dist.destroy_process_group()
    return found


torch.set_num_threads(1)
for name in sys.argv[1:]:
    found = train(name)
    if found["rank"] == 0:
        print(json.dumps(found), flush=True)
