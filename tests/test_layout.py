"""The house keeps its rules: who imports whom, which names are taken, that nothing is pickled."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FRONT = {"prepare", "train", "sample", "compare", "attend", "export"}
# The rooms in their order: a module may import from its own room and from those before it. The ground floor are the
# files that lie directly in rostok/, all but `runs`, which reads run folders and so needs the tokenizer of `text`.
GROUND = {"errors", "files", "devices", "front", "quickstart"}
ROOMS = [
    {"ground", "text"},
    {"runs"},
    {"generation", "measuring", "formats"},
    {"attention"},
    {"training"},
    {"notebook", "roof"},  # what `import rostok` gives, with rostok/__init__.py; `rostok VERB`
]
# A front file imports model.py, the ground floor and its own room; what else it needs is listed with the reason.
ROOM_OF = {
    "prepare": "text",
    "train": "training",
    "sample": "generation",
    "compare": "measuring",
    "attend": "attention",
    "export": "formats",
}
ALSO = {
    "train": {"text": "the data", "runs": "the checkpoint it goes on from"},
    "compare": {"text": "the data", "runs": "it opens runs"},
    "sample": {"runs": "it opens a run", "text": "it reads prompts"},
    "export": {"runs": "it opens a run", "text": "it carries the tokenizer over"},
}


def modules() -> dict[str, Path]:
    """Every module of the library: dotted name without `rostok.` -> file."""
    files = sorted((ROOT / "rostok").rglob("*.py"))
    names = {".".join(file.relative_to(ROOT / "rostok").with_suffix("").parts): file for file in files}
    return {name.removesuffix(".__init__"): file for name, file in names.items()}


def imports(path: Path) -> set[str]:
    """The dotted names that a file imports, `from a import b` counted as a and a.b."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def library_imports(name: str) -> set[str]:
    known = set(modules())
    found = {item.removeprefix("rostok.") for item in imports(modules()[name]) if item.startswith("rostok.")}
    return (found & known) - {name}


@pytest.mark.parametrize("name", sorted(modules()))
def test_library_never_imports_a_front_file_or_the_model(name: str) -> None:
    tops = {item.split(".")[0] for item in imports(modules()[name])}
    assert not tops & (FRONT | {"model"})


@pytest.mark.parametrize("front", sorted(FRONT))
def test_front_files_never_import_each_other(front: str) -> None:
    tops = {item.split(".")[0] for item in imports(ROOT / f"{front}.py")}
    assert not tops & FRONT


def test_model_imports_torch_only() -> None:
    tops = {item.split(".")[0] for item in imports(ROOT / "model.py")}
    assert tops - sys.stdlib_module_names == {"torch"}


def room(name: str) -> str:
    """The room of a dotted module: its first part; "ground" for the files of the ground floor."""
    first = name.split(".")[0]
    if first == "__init__":
        return "notebook"
    if first in ("cli", "__main__"):
        return "roof"
    return "ground" if first in GROUND or not first else first


def floor(name: str) -> int:
    return next(number for number, rooms in enumerate(ROOMS) if room(name) in rooms)


@pytest.mark.parametrize("name", sorted(modules()))
def test_the_order_of_the_rooms(name: str) -> None:
    for other in library_imports(name):
        assert (
            room(other) == room(name)
            or floor(other) < floor(name)
            or {room(other), room(name)} == {"ground", "text"}
        ), f"{name} imports {other}"


def test_the_ground_floor_needs_no_room() -> None:
    for name in modules():
        if room(name) == "ground":
            assert {room(other) for other in library_imports(name)} <= {"ground"}, name


@pytest.mark.parametrize("front", sorted(FRONT))
def test_a_front_file_uses_its_own_room(front: str) -> None:
    known = set(modules())
    found = {
        item.removeprefix("rostok.") for item in imports(ROOT / f"{front}.py") if item.startswith("rostok.")
    }
    rooms = {room(name) for name in found & known} - {"ground", ROOM_OF[front]}
    assert rooms <= set(ALSO.get(front, {})), front


def test_no_circles() -> None:
    graph = {name: library_imports(name) for name in modules()}
    while graph:
        leaves = {name for name, needs in graph.items() if not needs & set(graph)}
        assert leaves, f"a circle of imports among {sorted(graph)}"
        graph = {name: needs for name, needs in graph.items() if name not in leaves}


def test_root_files_shadow_no_standard_module() -> None:
    assert not {path.stem for path in ROOT.glob("*.py")} & set(sys.stdlib_module_names)


def test_nothing_is_pickled() -> None:
    words = (
        "import pickle",
        "torch.load(",
        "torch.save(",
        "allow_pickle=True",
        "weights_only=False",
        "joblib",
    )
    own = [*ROOT.glob("*.py"), *(ROOT / "rostok").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
    for path in own:
        text = path.read_text(encoding="utf-8")
        assert not [word for word in words if word in text], path


def test_preparing_text_needs_no_torch() -> None:
    code = "import sys, prepare; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_git_changes_no_line_ends() -> None:
    """tokenizer.json of a run is hashed as it is: a clone by Git for Windows must not rewrite it."""
    words = ["git", "check-attr", "text", "checkpoints/rostok-mini/tokenizer.json", "scripts/test"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 128:
        pytest.skip("not a git checkout")
    assert [line.rsplit(" ", 1)[1] for line in done.stdout.splitlines()] == ["unset", "unset"]


def test_the_plan_of_the_house_names_every_module() -> None:
    plan = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    names = {path.name for path in modules().values()} - {"__init__.py", "__main__.py"}
    assert not [name for name in sorted(names) if name not in plan]
    gone = {f"{word}.py" for word in re.findall(r"\b(\w+)\.py\b", plan)} - names
    gone -= {path.name for path in [*ROOT.glob("*.py"), *ROOT.glob("tests/*.py")]} | {
        "x.py",
        "test_x.py",
        "__init__.py",
    }
    assert not gone
