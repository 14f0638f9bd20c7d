"""Rostok: a tiny GPT that a person trains, samples, measures and looks inside.

    import rostok

    run = rostok.load("rostok-mini")                       # or a path: a run folder, a step of it
    print(run.generate("Once upon a time", seed=1))
    run.score("Tom had a red ball.")                       # nats per token
    run.attention("Tom had a red ball. One day he")        # in a notebook: the viewer
    mine = rostok.train("quickstart", name="mine", tokens=100_000)
    rostok.losses(mine, run)
    rostok.compare(mine, run)

The same in a clone, an editable install and a wheel. docs/notebook.md explains it. torch is imported when it is needed.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rostok.errors import UserError
    from rostok.notebook.attention import Attention, Head
    from rostok.notebook.many import compare, list_runs, losses, train
    from rostok.notebook.run import Run, load

__version__ = "0.1.0"

_PLACES = {
    "Attention": "notebook.attention",
    "Head": "notebook.attention",
    "Run": "notebook.run",
    "UserError": "errors",
    "compare": "notebook.many",
    "list_runs": "notebook.many",
    "load": "notebook.run",
    "losses": "notebook.many",
    "train": "notebook.many",
}

__all__ = [
    "Attention",
    "Head",
    "Run",
    "UserError",
    "__version__",
    "compare",
    "list_runs",
    "load",
    "losses",
    "train",
]


def __getattr__(name: str) -> object:
    """Import what is asked for, so that `import rostok` itself costs nothing."""
    if name not in _PLACES:
        raise AttributeError(f"module 'rostok' has no attribute '{name}'")
    return getattr(importlib.import_module(f"rostok.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, *globals()])
