"""Run a model over windows of text: the nats of every target, and a test that the model does not look ahead.

    losses = score(model, targets, windows)     # targets, windows: rostok/measuring/targets.py
    leak(model, ids)                            # 0 for a model that does not see the future

Nothing has a batch size. A window is run alone, in its own shape (1, T), so that the nats of a text are a function of
the model and the text: matrix kernels may round otherwise in another shape. One text of 200 tokens keeps a CPU as busy
as a batch of them. Shapes: N targets, T time, V vocabulary.
"""

from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor

from rostok.devices import at_hand
from rostok.errors import UserError
from rostok.measuring.targets import Losses, TargetList, Window


def nats_of(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """-log softmax of logits (T, V) at targets (T,): nats (T,) float64; and whether the target's logit is the largest.

    The exponentials are float32, their sum and everything after it float64: equal logits give ln V to the last digit.
    """
    logits, targets = at_hand(logits), at_hand(targets)
    shifted = logits.float()
    shifted = shifted - shifted.max(dim=-1, keepdim=True).values  # (T, V)
    chosen = shifted.gather(-1, targets[:, None])[:, 0].double()
    nats = shifted.exp().sum(dim=-1, dtype=torch.float64).log() - chosen
    return nats, shifted.argmax(dim=-1) == targets


def device_of(model: Callable[..., Tensor]) -> torch.device:
    """Where a model's weights are; the CPU for one without any."""
    parameters = getattr(model, "parameters", list)()
    return next((p.device for p in parameters), torch.device("cpu"))


@torch.inference_mode()
def score(model: Callable[[Tensor], Tensor], targets: TargetList, windows: Iterable[Window]) -> Losses:
    """Run a model over windows: model(ids (1, T) int64) -> logits (1, T, V).

    Every target must be covered exactly once; anything else is a bug of the windows and raises AssertionError.
    """
    device, wanted = device_of(model), torch.from_numpy(targets.targets)
    nats = np.full(len(targets), np.nan)
    hits = np.zeros(len(targets), bool)
    covered = 0
    for window in windows:
        last = window.first + len(window.ids) - window.skip
        logits = model(torch.from_numpy(window.ids)[None].to(device))[0, window.skip :]  # (T - skip, V)
        one_nats, one_hits = nats_of(logits, wanted[window.first : last].to(device))
        nats[window.first : last], hits[window.first : last] = one_nats.cpu(), one_hits.cpu()
        covered += last - window.first
    assert covered == len(targets), "each target is scored exactly once"
    if not np.isfinite(nats).all():
        raise UserError(
            f"{np.count_nonzero(~np.isfinite(nats))} of its losses are not numbers; choose an earlier checkpoint"
        )
    return Losses(nats, hits)


@torch.inference_mode()
def leak(model: Callable[[Tensor], Tensor], ids: np.ndarray, seed: int = 0) -> float:
    """Largest change of a logit when only tokens after it change: 0 for a model that does not see the future.

    `ids` (T,) is one window; tokens drawn with the seed take the place of those after each of a few cuts.
    """
    device, rng, worst = device_of(model), np.random.default_rng(seed), 0.0
    before = torch.from_numpy(ids)[None].to(device)
    logits = model(before)[0].float()
    for cut in sorted({1, 2, len(ids) // 4, len(ids) // 2, len(ids) - 1} & set(range(1, len(ids)))):
        other = ids.copy()
        other[cut:] = rng.integers(0, logits.shape[-1], len(ids) - cut)
        moved = model(torch.from_numpy(other)[None].to(device))[0].float()
        worst = max(worst, float((moved[:cut] - logits[:cut]).abs().max()))
    return worst
