"""Where the front files (model.py, train.py, ...), configs/ and the shipped runs lie, and how the library gets at them.

    front_folder()            # the checkout's root, or rostok/app in a wheel
    front("train").train      # a front file as a module, the same in a clone, an editable install and a wheel
    find_run("rostok-mini")   # checkpoints/rostok-mini here, or the one that travels with the package

A front file is loaded by its path under the name `rostok.app.NAME`, so that no module `model` or `train` of the user's
is touched. A front file says `from model import ...`: `own_model()` makes that name mean ours while it runs.
"""

import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

CHECKPOINTS = Path("checkpoints")


def front_folder() -> Path:
    """The folder with train.py, sample.py, ... and configs/: rostok/app in a wheel, the checkout's root otherwise."""
    package = Path(__file__).resolve().parent
    app = package / "app"
    return app if (app / "train.py").is_file() else package.parent


def front(name: str) -> ModuleType:
    """A front file or model.py as a module; a second call gives the same one."""
    path = front_folder() / f"{name}.py"
    plain = sys.modules.get(name)  # in a checkout's root `import train` may have loaded the same file
    if plain is not None and getattr(plain, "__file__", None) and Path(str(plain.__file__)).resolve() == path:
        return plain
    full = f"rostok.app.{name}"
    if full in sys.modules:
        return sys.modules[full]
    spec = importlib.util.spec_from_file_location(full, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[full] = module  # dataclasses look their own module up
    try:
        with contextlib.nullcontext() if name == "model" else own_model():
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[full]
        raise
    return module


@contextlib.contextmanager
def own_model() -> Iterator[None]:
    """Inside, `import model` gives Rostok's model.py, whatever else bears that name."""
    before = sys.modules.get("model")
    sys.modules["model"] = front("model")
    try:
        yield
    finally:
        if before is None:
            del sys.modules["model"]
        else:
            sys.modules["model"] = before


def find_run(path: Path) -> Path:
    """A run's folder by its short name: NAME, NAME/best or NAME/step-000200 below checkpoints/ or the shipped runs.

    A path that is there stays what it is, and so does one that nothing is found for.
    """
    if path.exists() or path.is_absolute() or path.parts[:1] in ((), (".",), ("..",)):
        return path
    for folder in (CHECKPOINTS, front_folder() / CHECKPOINTS):
        if (folder / path.parts[0]).is_dir():
            return folder / path
    if path.parts[0] == CHECKPOINTS.name and (front_folder() / path).is_dir():
        return front_folder() / path
    return path


def known_runs() -> list[Path]:
    """The run folders below checkpoints/, then the shipped ones whose names are not among them."""
    found: dict[str, Path] = {}
    for folder in (CHECKPOINTS, front_folder() / CHECKPOINTS):
        for path in sorted(folder.glob("*/config.yaml")):
            found.setdefault(path.parent.name, path.parent)
    return list(found.values())
