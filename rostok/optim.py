"""The optimizer: AdamW with weight decay on matrices only (Loshchilov and Hutter 2019, arXiv:1711.05101)."""

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import nn


@dataclass(frozen=True)
class OptimConfig:
    """Peak learning rate, decay and clipping. The schedule multiplies `lr`."""

    lr: Annotated[float, Field(gt=0)] = 2e-3
    weight_decay: Annotated[float, Field(ge=0)] = 0.1
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.95
    eps: Annotated[float, Field(gt=0)] = 1e-8
    clip: Annotated[float, Field(gt=0)] = 1.0  # the largest norm of the whole gradient


def build_optimizer(model: nn.Module, config: OptimConfig) -> torch.optim.Optimizer:
    """AdamW over the model's parameters in two groups: matrices (with decay) and vectors (gains, biases: without)."""
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    groups = [
        {"params": [(n, p) for n, p in named if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [(n, p) for n, p in named if p.ndim < 2], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    return torch.optim.AdamW(
        groups, lr=config.lr, betas=(config.beta1, config.beta2), eps=config.eps, fused=True
    )


def set_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Give every group the rate `lr`."""
    for group in optimizer.param_groups:
        group["lr"] = lr
