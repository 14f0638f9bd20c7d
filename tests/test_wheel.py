"""The wheel: only `rostok` at its top level, and its verbs run outside the checkout."""

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
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def dist(tmp_path_factory) -> Path:
    """sdist and, from it, the wheel, built offline from a copy: the checkout stays clean."""
    copy = tmp_path_factory.mktemp("build") / "source"
    copy.mkdir()
    for path in [*(ROOT / name for name in KEPT), *ROOT.glob("*.py"), *ROOT.glob("*.md")]:
        if path.is_dir():
            shutil.copytree(path, copy / path.name, ignore=shutil.ignore_patterns("__pycache__"))
        elif path.exists():
            shutil.copy(path, copy)
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(copy / "dist"), str(copy)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
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
        path.name for path in ROOT.glob("configs/*.yaml")
    }
    assert {path.name for path in app.iterdir() if path.is_dir()} == {"configs"}


def test_every_module_and_data_file_of_the_library_travels(installed):
    library = {path.relative_to(ROOT) for path in (ROOT / "rostok").rglob("*") if path.is_file()}
    wanted = {path for path in library if "__pycache__" not in path.parts}
    assert {path for path in wanted if not (installed / path).is_file()} == set()


def test_the_source_archive_can_be_tested(dist):
    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        names = {name.split("/", 1)[-1] for name in archive.getnames()}
    assert {"model.py", "rostok/cli.py", "configs/rostok.yaml", "tests/test_wheel.py", "LICENSE"} <= names
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
