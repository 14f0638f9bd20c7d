"""Several runs from Python: list them, draw their losses, train one, compare them on the same held-out text.

    rostok.list_runs()                                     # a table of the runs below checkpoints/ and the shipped ones
    run = rostok.train("quickstart", name="mine", tokens=100_000, **{"optim.lr": 1e-3})
    rostok.losses("mine", "rostok-mini")                   # names, paths or runs
    rostok.compare("mine", "rostok-mini", data="data/mine")

train and compare are train.py and compare.py: the same settings, the same files in the same folders.
"""

import html
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rostok import runs
from rostok.errors import UserError
from rostok.front import front, front_folder, known_runs, own_model
from rostok.measuring.listing import COLUMNS, summary
from rostok.notebook.run import Run, load
from rostok.notebook.show import Picture, Table

Name = str | Path | Run


def folder_of(run: Name) -> Path:
    """The folder of a run that is given as itself, a path or a short name. Raises UserError."""
    return run.folder if isinstance(run, Run) else runs.find_step(Path(run)).parent


def list_runs() -> Table:
    """The runs below checkpoints/ and the shipped ones: the table of `rostok ls`, with their folders."""
    rows = [summary(folder) for folder in known_runs()]
    columns = [*COLUMNS, "folder"]
    return Table(columns, [[row[name] for name in columns] for row in rows])


def losses(*given: Name) -> Picture:
    """The training and validation losses of runs against tokens, as loss.png draws them."""
    from rostok.training.metrics import draw_losses

    if not given:
        raise UserError("which runs? Give names or paths, as rostok.losses('quickstart', 'rostok-mini')")
    folders = [folder_of(run) for run in given]
    return Picture(
        draw_losses({folder.resolve().name: folder / "metrics.jsonl" for folder in folders}), "losses"
    )


def train(
    config: str | Path | Mapping[str, Any] = "quickstart",
    *,
    fresh: bool = False,
    quiet: bool = False,
    **settings: Any,
) -> Run:
    """Train as `train.py CONFIG key=value ...` does, and load the run. A finished run is loaded, not trained again.

    config: a built-in name, a YAML file, or the settings as a mapping. settings: by their names, nested ones as
    mappings (`optim={"lr": 1e-3}`) or dotted (`**{"optim.lr": 1e-3}`). Raises UserError as train.py does.
    """
    from rostok.training.config import find_config, merge, read_yaml, validate
    from rostok.training.signals import stop_wish

    module = front("train")
    path = None if isinstance(config, Mapping) else find_config(str(config), front_folder() / "configs")
    below = dict(config) if isinstance(config, Mapping) else read_yaml(path)  # type: ignore[arg-type]
    content = merge(below, nested(settings))
    content.setdefault("name", path.stem if path else "run")
    with own_model(), stop_wish() as stop:
        folder = module.train(validate(module.TrainConfig, content, str(path or "train")), fresh, quiet, stop)
    return load(folder)


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names as nested mappings.

    >>> nested({"optim.lr": 0.001, "seed": 1})
    {'optim': {'lr': 0.001}, 'seed': 1}
    """
    from rostok.training.config import merge

    result: dict[str, Any] = {}
    for key, value in settings.items():
        for name in reversed(key.split(".")):
            value = {name: value}
        result = merge(result, value)
    return result


class Comparison:
    """The table of compare.py: `rows` (one dict a model), `words` (who is better by how much), `result` (all of it)."""

    def __init__(self, result: dict[str, Any]) -> None:
        self.result = result
        self.rows: list[dict[str, Any]] = result["rows"]
        self.words: list[str] = result["words"]

    def __repr__(self) -> str:
        from rostok.measuring.report import as_text

        return as_text(self.result)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"


def compare(
    *given: Name, data: str | Path | None = None, at: int = 0, texts: int | None = None
) -> Comparison:
    """Runs on the same held-out text, beside models that count; the first is the one that the others are set against.

    data: a folder of shards (default: those that the runs were trained on); at: also show each GPT only so many
    tokens; texts: only so many held-out texts. Raises UserError as compare.py does.
    """
    if not given:
        raise UserError("which runs? Give names or paths, as rostok.compare('quickstart', 'rostok-mini')")
    words = [str(folder_of(run)) for run in given] + ["--at", str(at)]
    words += ["--data", str(data)] if data else []
    words += ["--texts", str(texts)] if texts else []
    module = front("compare")
    with own_model():
        result, _ = module.compare(module.options_of(words))
    return Comparison(result)
