"""docs/notebook.ipynb and the Python of docs/notebook.md run whole, in an empty folder, without Jupyter."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"


def cells() -> list[dict[str, Any]]:
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Run a cell; give the value of its last line if that is an expression, as a notebook would show it."""
    tree = ast.parse(source)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        exec(compile(tree, "cell", "exec"), names)
        return None
    tree.body.pop()
    exec(compile(tree, "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)


def test_the_notebook_is_kept_without_outputs() -> None:
    assert all(
        not cell["outputs"] and cell["execution_count"] is None for cell in cells() if "outputs" in cell
    )


@pytest.mark.slow
def test_every_cell_runs_and_shows_what_the_text_says(tmp_path: Path, monkeypatch, capfd) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    names: dict[str, Any] = {}
    shown = [run_cell("".join(cell["source"]), names) for cell in cells() if cell["cell_type"] == "code"]
    said = capfd.readouterr().out
    assert re.search(r"Once upon a time, .*", said)
    assert re.search(r" 9\.\d\d  or\n *4\.\d\d  b\n *7\.\d\d  in", said), "the first Zorbin, as the text says"
    costs = re.findall(r"(?:or|b|in) +(\d\.\d\d) -> +(\d\.\d\d) nats", said)
    assert len(costs) == 3
    assert all(float(before) < 0.5 < 3 < float(after) for before, after in costs), "head 6.4 carries the name"
    view = next(item for item in shown if hasattr(item, "_repr_html_"))
    assert "srcdoc" in view._repr_html_()
    assert shown[-1].dicts()[0]["name"] == "tiny"
    assert all(len(repr(item)) < 3000 for item in shown)
    table = names["rostok"].compare("tiny", texts=10)
    by_name = {row["name"]: row["nats"] for row in table.rows}
    assert by_name["trigram"] < by_name["tiny"], "behind the trigram, as the text says"


def test_the_python_of_the_page_runs(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "notebook.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        run_cell(block, names)
    assert names["view"].maps.shape == (8, 6, 10, 10)
    assert names["trace"]["blocks.5.attn.pattern"].shape == (6, 10, 10)
    assert names["head"].map[-1].sum() == pytest.approx(1)
