"""The wheel: only `rostok` at its top level, a trained model in it, and its verbs run outside the checkout."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from rostok import __version__, cli

ROOT = Path(__file__).resolve().parent.parent
KEPT = (
    "rostok",
    "configs",
    "tests",
    "docs",
    "scripts",
    "benchmarks",
    "pyproject.toml",
    "LICENSE",
    "MANIFEST.in",
    "constraints.txt",
    "data/README.md",
    "checkpoints/README.md",
    "checkpoints/rostok-mini",
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def dist(tmp_path_factory) -> Path:
    """sdist and, from it, the wheel, built offline and without a warning from a copy: the checkout stays clean."""
    copy = tmp_path_factory.mktemp("build") / "source"
    for path in [*(ROOT / name for name in KEPT), *ROOT.glob("*.py"), *ROOT.glob("*.md")]:
        target = copy / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.copytree(path, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, target)
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(copy / "dist"), str(copy)]
    done = subprocess.run(words, capture_output=True, text=True)
    said = [line for line in (done.stdout + done.stderr).splitlines() if "warning" in line.lower()]
    assert done.returncode == 0, done.stdout + done.stderr
    assert not [
        line for line in said if "byte-compiling" not in line
    ]  # which PYTHONDONTWRITEBYTECODE asks for
    return copy / "dist"


@pytest.fixture(scope="module")
def installed(dist, tmp_path_factory) -> Path:
    """A folder as pip would leave it in site-packages."""
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        wheel.extractall(site)
    return site


def run_installed(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(site)}
    return subprocess.run(
        [sys.executable, "-m", "rostok", *words],
        cwd=site.parent,
        env=environment,
        capture_output=True,
        text=True,
    )


def test_only_rostok_is_at_the_top_level(installed):
    assert {path.name for path in installed.iterdir()} == {"rostok", f"rostok-{__version__}.dist-info"}


def test_the_front_travels_and_nothing_else(installed):
    app = installed / "rostok" / "app"
    assert {path.name for path in app.glob("*.py")} == {path.name for path in ROOT.glob("*.py")}
    assert {path.name for path in (app / "configs").iterdir()} == {
        path.name for path in (ROOT / "configs").iterdir()
    }
    assert {path.name for path in app.iterdir() if path.is_dir()} == {"configs", "checkpoints"}
    assert [path.name for path in (app / "checkpoints").iterdir()] == ["rostok-mini"]


def test_every_module_and_data_file_of_the_library_travels(installed):
    library = {path.relative_to(ROOT) for path in (ROOT / "rostok").rglob("*") if path.is_file()}
    wanted = {path for path in library if "__pycache__" not in path.parts}
    assert {path for path in wanted if not (installed / path).is_file()} == set()


def test_the_source_archive_can_be_tested(dist):
    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        names = {name.split("/", 1)[-1] for name in archive.getnames()}
    assert {"model.py", "rostok/cli.py", "configs/rostok.yaml", "tests/test_wheel.py", "LICENSE"} <= names
    assert "checkpoints/rostok-mini/best" in names
    assert not [name for name in names if name.endswith(".pyc")]


def test_it_runs_outside_the_checkout(installed):
    done = run_installed(installed, "--version")
    assert (done.returncode, done.stdout) == (0, f"rostok {__version__}\n")


@pytest.mark.parametrize("verb", [verb for verb in cli.VERBS if (ROOT / f"{verb}.py").is_file()])
def test_each_verb_gives_its_help(installed, verb):
    done = run_installed(installed, verb, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: ")


def test_built_in_configs_are_found_by_name(installed):
    """`rostok train quickstart` gets as far as the data that is not there."""
    done = run_installed(installed, "train", "quickstart", "data.path=no-such-folder")
    assert done.returncode == 2
    assert "no-such-folder" in done.stderr


def test_the_trained_model_is_found_by_its_name(installed):
    words = ["--prompt", "Once upon a time", "--tokens", "5", "--temperature", "0"]
    done = run_installed(installed, "sample", "rostok-mini", *words)
    assert (done.returncode, done.stdout) == (0, "Once upon a time, there was a little\n"), done.stderr


def test_import_rostok_is_the_same_as_in_the_checkout(installed):
    """From the wheel: load, write, train's settings and the viewer, with a model.py of the user's on the path."""
    (installed.parent / "model.py").write_text("MINE = 1\n")
    code = (
        "import rostok; run = rostok.load('rostok-mini'); print(run.generate('Once upon a time', 5, 0))\n"
        "print(rostok.__file__); assert 'srcdoc' in run.attention('Tom had a ball.')._repr_html_()\n"
        "try: rostok.train('quickstart', **{'data.path': 'none'})\n"
        "except rostok.UserError as error: print(error)"
    )
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=installed.parent, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    written, file, refused = done.stdout.splitlines()
    assert written == "Once upon a time, there was a little"
    assert file == str(installed / "rostok" / "__init__.py")
    assert "no prepared data in none" in refused
    assert "rostok prepare" in refused
