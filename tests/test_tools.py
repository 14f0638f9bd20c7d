"""The Python of docs/tools.md runs, and gives our numbers, wherever the package it needs is installed."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import export
import rostok

ROOT = Path(__file__).resolve().parent.parent
TEXT = "Tom had a red ball. One day he"

pytestmark = pytest.mark.filterwarnings("default")  # the warnings of other people's packages


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with mini-hf in it, to be in."""
    place = tmp_path_factory.mktemp("tools")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        assert export.main([str(ROOT / "checkpoints" / "rostok-mini"), "--out", "mini-hf"]) == 0
        yield place


def block(package: str) -> str:
    page = (ROOT / "docs" / "tools.md").read_text(encoding="utf-8")
    return next(
        code
        for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        if f"# needs: {package}\n" in code
    )


def run(package: str) -> dict[str, Any]:
    pytest.importorskip(package, exc_type=ImportError)
    names: dict[str, Any] = {}
    exec(compile(block(package), "docs/tools.md", "exec"), names)
    return names


def test_every_block_names_its_package() -> None:
    page = (ROOT / "docs" / "tools.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    needs = [re.match(r"# needs: (\w+)\n", code) for code in blocks]
    assert [need and need[1] for need in needs] == ["transformer_lens", "bertviz", "peft"]
    for code in blocks:
        compile(code, "docs/tools.md", "exec")


def test_transformer_lens_gives_our_numbers(folder: Path) -> None:
    found = run("transformer_lens")
    ours = rostok.load("rostok-mini")

    def without_head_4(z: np.ndarray) -> np.ndarray:
        z[3] = 0
        return z

    plain, edited = ours.run(TEXT), ours.run(TEXT, edit={"blocks.5.attn.hook_z": without_head_4})
    np.testing.assert_allclose(found["pattern"][0].detach(), plain["blocks.5.attn.hook_pattern"], atol=1e-4)
    np.testing.assert_allclose(found["logits"][0].detach(), plain.logits, atol=1e-3)
    np.testing.assert_allclose(found["changed"][0].detach(), edited.logits, atol=1e-3)
    assert found["model"].to_string(found["text"])[0].endswith(ours.generate("Once upon a time", 8, 0))
    for name in (
        "attn.hook_q",
        "attn.hook_k",
        "attn.hook_rot_q",
        "attn.hook_q_normed",
        "attn.hook_v",
        "attn.hook_z",
    ):
        theirs = found["cache"][f"blocks.5.{name}"][0].detach().numpy()
        theirs = theirs if theirs.shape[0] == 6 else theirs.reshape(theirs.shape[0], 6, -1).transpose(1, 0, 2)
        np.testing.assert_allclose(theirs, plain[f"blocks.5.{name}"], atol=1e-3, err_msg=name)


def test_bertviz_draws_our_maps(folder: Path) -> None:
    found = run("bertviz")
    np.testing.assert_allclose(
        np.stack([layer[0].detach() for layer in found["maps"]]),
        rostok.load("rostok-mini").attention(TEXT).maps,
        atol=1e-4,
    )
    assert len(found["page"].data) > 10_000


def test_peft_trains_a_small_part(folder: Path) -> None:
    found = run("peft")
    assert found["losses"][-1] < found["losses"][0] / 2
    assert sum(p.numel() for p in found["model"].parameters() if p.requires_grad) == 49_152
    assert (folder / "mini-lora" / "adapter_model.safetensors").is_file()
