"""The optimizers: AdamW, or Muon for the matrices of the blocks with AdamW for all the rest.

AdamW: Loshchilov and Hutter 2019, arXiv:1711.05101; weight decay on matrices only.
Muon: Jordan et al. 2024, https://kellerjordan.github.io/posts/muon; the update of a matrix is its momentum with all
singular values pulled to 1. In Rostok's fused qkv weight q, k and v are three matrices, and are orthogonalised apart.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from rostok.errors import UserError


@dataclass(frozen=True)
class OptimConfig:
    """Peak learning rates, decay and clipping. The schedule multiplies both rates."""

    kind: Annotated[Literal["adamw", "muon"], "muon: Muon for the blocks' matrices, AdamW for the rest"] = (
        "adamw"
    )
    lr: Annotated[
        float, Field(gt=0, le=1), "peak rate of AdamW: of all weights, or of those that Muon leaves"
    ] = 2e-3
    muon_lr: Annotated[float, Field(gt=0, le=1), "peak rate of Muon, in AdamW's scale"] = 5e-3
    muon_momentum: Annotated[float, Field(ge=0, lt=1), "momentum of Muon"] = 0.95
    weight_decay: Annotated[float, Field(ge=0, le=1), "of matrices; gains and biases have none"] = 0.1
    beta1: Annotated[float, Field(ge=0, lt=1), "AdamW: memory of the gradient's mean"] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1), "AdamW: memory of the gradient's square"] = 0.95
    eps: Annotated[float, Field(ge=1e-12, le=1), "AdamW: keeps its divisor above 0"] = 1e-8
    clip: Annotated[
        float, Field(ge=1e-6), "the largest norm of the whole gradient; a longer one is scaled"
    ] = 1.0


def orthogonalise(matrix: Tensor, dtype: torch.dtype, steps: int = 5) -> Tensor:
    """The nearest matrix with singular values near 1, by Newton-Schulz iteration in `dtype`. Same shape, (m, n)."""
    a, b, c = 3.4445, -4.7750, 2.0315
    wide = matrix.shape[0] <= matrix.shape[1]
    x = (matrix if wide else matrix.T).to(dtype)
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x if wide else x.T


class Muon(torch.optim.Muon):
    """torch.optim.Muon with two changes: a fused weight is orthogonalised part by part, and in float32 where the
    processor has no bf16 arithmetic of its own (torch's always iterates in bf16: six times slower on such a CPU).

    parts: for a fused weight the row counts of its parts. The rate is in AdamW's scale ("match_rms_adamw": an update
    has an RMS of 0.2 * lr), so rates that suit AdamW are a fair start.
    """

    def __init__(
        self, params: Any, parts: Mapping[Tensor, list[int]], dtype: torch.dtype, **settings: Any
    ) -> None:
        super().__init__(params, adjust_lr_fn="match_rms_adamw", **settings)
        self.parts, self.dtype = parts, dtype

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            for weight in (w for w in group["params"] if w.grad is not None):
                state = self.state[weight]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(weight.grad)
                momentum = state["momentum_buffer"].lerp_(weight.grad, 1 - group["momentum"])
                update = weight.grad.lerp(momentum, group["momentum"])  # Nesterov's look ahead
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                rows = self.parts.get(weight, [len(weight)])
                for target, part in zip(weight.split(rows), update.split(rows), strict=True):
                    rate = group["lr"] * 0.2 * math.sqrt(max(part.shape))
                    target.add_(orthogonalise(part, self.dtype).to(target.dtype), alpha=-rate)


class Optimizer:
    """One or two torch optimizers that step as one. Their state is flat: `parameter.name/key` -> tensor."""

    def __init__(self, parts: list[torch.optim.Optimizer]) -> None:
        self.parts = parts

    def step(self) -> None:
        for part in self.parts:
            part.step()

    def zero_grad(self) -> None:
        for part in self.parts:
            part.zero_grad(set_to_none=True)

    def set_share(self, share: float) -> None:
        """Give every group `share` of its peak rate."""
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = share * group["peak"]

    def tensors(self) -> dict[str, Tensor]:
        """All state that a resumed run needs. The groups' settings are not in it: they follow from the config."""
        result = {}
        for part in self.parts:
            for name, parameter in named(part):
                for key, value in part.state.get(parameter, {}).items():
                    result[f"{name}/{key}"] = torch.as_tensor(value).detach().cpu().contiguous()
        return result

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back what `tensors` gave. Raises UserError when it is the state of another model or optimizer."""
        wanted = {
            f"{name}/{key}" for part in self.parts for name, _ in named(part) for key in state_keys(part)
        }
        if tensors and tensors.keys() != wanted:
            other = sorted(tensors.keys() ^ wanted)[0]
            raise UserError(
                f"the optimizer's state is that of another model or optim.kind ('{other}' is in one only)"
            )
        for part in self.parts if tensors else []:
            for name, parameter in named(part):
                part.state[parameter] = {
                    key: restore(tensors[f"{name}/{key}"], parameter) for key in state_keys(part)
                }


def state_keys(optimizer: torch.optim.Optimizer) -> tuple[str, ...]:
    return ("momentum_buffer",) if isinstance(optimizer, Muon) else ("step", "exp_avg", "exp_avg_sq")


def restore(tensor: Tensor, parameter: Tensor) -> Tensor:
    """A saved state tensor on its parameter's device; AdamW's step count may stay on the CPU only off a GPU."""
    return tensor.clone() if parameter.device.type == "cpu" else tensor.to(parameter.device)


def named(optimizer: torch.optim.Optimizer) -> list[tuple[str, Tensor]]:
    groups = optimizer.param_groups
    return [pair for group in groups for pair in zip(group["param_names"], group["params"], strict=True)]


def build_optimizer(model: nn.Module, config: OptimConfig, bf16: bool = False) -> Optimizer:
    """The optimizer that the config names, over the model's parameters. `bf16`: Muon may iterate in bf16.

    Three groups: the blocks' matrices (Muon, if asked for), other matrices (with decay), vectors (gains and biases,
    no decay).
    """
    params = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    muon = [(n, p) for n, p in params if config.kind == "muon" and p.ndim == 2 and n.startswith("blocks.")]
    taken = {name for name, _ in muon}
    rest = [(n, p) for n, p in params if n not in taken]
    parts: list[torch.optim.Optimizer] = [adamw(rest, config)]
    if muon:
        group = {"params": muon, "peak": config.muon_lr}
        settings = {
            "lr": config.muon_lr,
            "weight_decay": config.weight_decay,
            "momentum": config.muon_momentum,
        }
        dtype = torch.bfloat16 if bf16 else torch.float32
        parts.append(Muon([group], qkv_parts(model), dtype, **settings))
    return Optimizer(parts)


def adamw(params: list[tuple[str, nn.Parameter]], config: OptimConfig) -> torch.optim.AdamW:
    groups = [
        {"params": [(n, p) for n, p in params if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [(n, p) for n, p in params if p.ndim < 2], "weight_decay": 0.0},
    ]
    groups = [{**group, "peak": config.lr} for group in groups if group["params"]]
    betas = (config.beta1, config.beta2)
    return torch.optim.AdamW(groups, lr=config.lr, betas=betas, eps=config.eps, fused=True)


def qkv_parts(model: nn.Module) -> dict[Tensor, list[int]]:
    """Each fused qkv weight with the row counts of its q, k and v."""
    attentions: list[Any] = [m for name, m in model.named_modules() if name.endswith(".attn")]
    return {
        a.qkv.weight: [a.n_head * a.d_head, a.n_kv_head * a.d_head, a.n_kv_head * a.d_head]
        for a in attentions
    }
