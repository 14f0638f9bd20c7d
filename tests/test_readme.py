"""Every command of the README runs, in a folder that looks like a fresh clone; both languages show the same ones."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from rostok.text.stories.plots import generate_stories

ROOT = Path(__file__).parent.parent
LINKED = ["configs", "docs", "rostok", *(path.name for path in ROOT.glob("*.py"))]


def commands(page: str) -> list[str]:
    """The lines of the page's ```sh blocks, without their comments."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    lines = [line.split(" #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clone")
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name)
    (folder / "data").mkdir()
    (folder / "data" / "README.md").symlink_to(ROOT / "data" / "README.md")
    (folder / "checkpoints").mkdir()
    (folder / "book.txt").write_text("\n<|endoftext|>\n".join(generate_stories(60, 1)), encoding="utf-8")
    for shipped in ROOT.glob("checkpoints/*-mini"):
        (folder / "checkpoints" / shipped.name).symlink_to(shipped)
    return folder


def small(word: str) -> str:
    """A setting of a training at a size for a test."""
    sizes = {"tokens": "4096", "eval_every": "2"}
    return f"{key}={sizes[key]}" if "=" in word and (key := word.partition("=")[0]) in sizes else word


def run(line: str, folder: Path) -> None:
    words = [small(word) for word in shlex.split(line)]
    words += (
        ["eval_rows=2", "schedule.warmup_steps=1"]
        if words[1] == "train.py" and words[2] == "rostok-mini"
        else []
    )
    globbed = [
        name
        for word in words[1:]
        for name in (sorted(map(str, folder.glob(word))) if "*" in word else [word])
    ]
    made = subprocess.run([sys.executable, *globbed], cwd=folder, capture_output=True, text=True, check=False)
    assert made.returncode == 0, f"{line}\n{made.stderr}"


def test_every_python_command_of_the_readme_runs(clone: Path) -> None:
    for line in commands("README.md"):
        if line.startswith("python "):
            run(line, clone)
    assert (clone / "maps.png").stat().st_size > 10_000
    assert "</html>" in (clone / "page.html").read_text(encoding="utf-8")


def test_every_script_of_the_readme_is_there() -> None:
    scripts = [line for line in commands("README.md") if not line.startswith("python ")]
    assert scripts
    assert all((ROOT / line.split()[0]).stat().st_mode & 0o100 for line in scripts)


def test_both_languages_show_the_same_commands() -> None:
    def plain(page: str) -> list[str]:
        return [line.replace(" --lang ru", "") for line in commands(page)]

    assert plain("README.md") == plain("README.ru.md")


@pytest.mark.parametrize(
    "page", [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")], ids=lambda path: path.parent.name + path.name
)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
        assert "://" in target or (page.parent / target).exists(), f"{page}: {target}"
