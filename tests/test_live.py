"""The live model's JavaScript under Node, without a browser: tokenizer, weights, forward pass, changes, documents.

All of it is compared with the product's own: tiktoken, rostok.attention.reference, torch, the explorer's documents.
"""

# ruff: noqa: E501  (lines of JavaScript)

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from explorer_toy import TOM, Spelling, settings, weights

import attend
from model import build_model
from rostok.attention.heads.ablate import silence
from rostok.attention.heads.capture import Subject, open_subject
from rostok.attention.page import assemble, codec, document, explorer, live
from rostok.attention.reference import forward
from rostok.generation.generate import Sampling, apply_filters
from rostok.runs import load_run, texts_of
from rostok.text.tokenizer import QWEN2_PATTERN, Tokenizer, train_tokenizer

ROOT = Path(__file__).parent.parent
IDS = [0, 5, 9, 5, 7, 9, 5, 3, 3, 8, 5, 9, 7]
NODE = """
import fs from "node:fs";
const at = process.argv[1] + "/", load = (name) => import(at + name);
const { Gpt } = await load("forward.js"), { WindowMlp } = await load("windowmlp.js"), { Bpe } = await load("tokenizer.js");
const { PlainProducts, WasmProducts } = await load("products.js"), { readWeights } = await load("weights.js");
const { LiveRun } = await load("worker.js"), { filtered, draw } = await load("sampling.js"), { unpack } = await load("codec.js");
async function products(kind, megabytes) {
  if (kind === "plain") return new PlainProducts();
  const own = await WasmProducts.open(fs.readFileSync(at + "products.wasm"));
  own.reserve(megabytes * 1e6);
  return own;
}
async function open(packed, kind, megabytes = 40) {
  const own = await products(kind, megabytes), numbers = readWeights(packed.header, await unpack(packed.data), (n) => own.floats(n));
  return { own, numbers, make: () => new (packed.config.kind === "gpt" ? Gpt : WindowMlp)(packed.config, numbers, own) };
}
const edit = ({ heads = [], mlps = [], closed = [] }) => ({ heads: new Set(heads), mlps: new Set(mlps), closed });
const list = (xs) => Array.from(xs);
const rows = (model, T) => Array.from({ length: T }, (_, t) => list(model.logits(t)));
const asked = JSON.parse(fs.readFileSync(0, "utf8"));
"""


def node(code: str, asked: Any) -> Any:
    """What a few lines of JavaScript print, given `asked`; they can use the names that NODE defines."""
    if not shutil.which("node"):
        pytest.skip("node is not installed; the live model is not tested here")
    command = ["node", "--input-type=module", "--eval", NODE + code, str(assemble.ASSETS)]
    done = subprocess.run(
        command, input=json.dumps(asked), capture_output=True, text=True, timeout=120, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def subject(config: dict[str, Any], tensors: dict[str, np.ndarray], name: str = "toy") -> Subject:
    pieces: Any = Spelling([f" w{i}" for i in range(config["vocab_size"] - 1)])
    return Subject(name, tensors, config, pieces)


def shapes() -> dict[str, Subject]:
    """Runs of every kind that export.py takes, small, with random weights."""
    plain = settings(2, 2, 16)
    grouped = {**settings(3, 4, 8), "n_kv_head": 2}
    cut = weights(grouped)
    for layer in range(3):
        cut[f"blocks.{layer}.attn.qkv.weight"] = cut[f"blocks.{layer}.attn.qkv.weight"][: 8 * 8]
    untied = weights(plain, 2) | {"head.weight": weights(plain, 3)["embed.weight"]}
    odd = settings(1, 3, 10)  # 30 numbers wide: no multiple of 4
    return {
        "plain": subject(plain, weights(plain)),
        "grouped": subject(grouped, cut),
        "untied": subject({**plain, "tied": False}, untied),
        "odd": subject(odd, weights(odd, 4)),
    }


def window_mlp() -> tuple[Any, Subject]:
    torch.manual_seed(0)
    config = {
        "kind": "window-mlp",
        "vocab_size": 64,
        "context": 40,
        "window": 3,
        "d_embed": 8,
        "d_hidden": 20,
    }
    model = build_model(config).eval()
    tensors = {name: value.numpy() for name, value in model.state_dict().items()}
    return model, subject(config, tensors, "window")


# ---- weights and logits ----


def test_weights_arrive_as_packed() -> None:
    run = shapes()["plain"]
    packs = [live.pack(run, coding) for coding in ("bf16", "f32", "i8")]
    got = node(
        """const out = [];
        for (const packed of asked) { const { numbers } = await open(packed, "plain"); out.push(Object.fromEntries(Object.entries(numbers).map(([k, v]) => [k, list(v)]))); }
        console.log(JSON.stringify(out));""",
        packs,
    )
    for packed, numbers in zip(packs, got, strict=True):
        own = live.unpacked(packed)
        assert numbers.keys() == own.keys() == run.weights.keys()
        for name, value in own.items():
            np.testing.assert_array_equal(np.array(numbers[name], np.float32), value.ravel())
    bf16, f32, i8 = (live.unpacked(packed) for packed in packs)
    for name, value in run.weights.items():
        np.testing.assert_array_equal(f32[name], value)
        np.testing.assert_allclose(bf16[name], value, rtol=2**-8)
        np.testing.assert_allclose(i8[name], value, atol=float(np.abs(value).max()) / 120)
        torch_bf16 = torch.from_numpy(value).bfloat16().float().numpy()
        np.testing.assert_array_equal(bf16[name], torch_bf16)
    assert live.changed_share(bf16) == 0
    assert live.changed_share(run.weights) > 0.9


LOGITS = """
const out = {};
for (const [name, packed] of Object.entries(asked.packs)) {
  for (const kind of ["plain", "wasm"]) {
    const model = (await open(packed, kind)).make();
    model.run(asked.ids.slice(0, 9));
    const first = model.run(asked.ids), again = rows(model, asked.ids.length);
    model.run([0, 1, 2]);
    model.run(asked.ids);
    out[`${name} ${kind}`] = { first, again, fresh: rows(model, asked.ids.length), maps: model.L ? [0, 1].map((h) => list(model.row(model.L - 1, h, 7))) : null };
  }
}
console.log(JSON.stringify(out));
"""


def test_logits_equal_the_reference() -> None:
    """Every kind of run, in JavaScript and in WASM, whole and with a cached beginning."""
    model, window = window_mlp()
    runs = shapes() | {"window": window}
    packs = {name: live.pack(run, "f32") for name, run in runs.items()}
    got = node(LOGITS, {"packs": packs, "ids": IDS})
    for name, run in runs.items():
        trace: dict[str, np.ndarray] = {}
        if name == "window":
            with torch.no_grad():
                want = model(torch.tensor([IDS]))[0].numpy()
            np.testing.assert_allclose(live.window_forward(run.weights, run.config, IDS), want, atol=1e-5)
        else:
            want = forward(run.weights, run.config, IDS, trace)
        for kind in ("plain", "wasm"):
            found = got[f"{name} {kind}"]
            assert found["first"] == 9  # what was the same stays in the cache
            np.testing.assert_allclose(found["again"], want, atol=5e-5)
            np.testing.assert_allclose(found["fresh"], want, atol=5e-5)
            if trace:
                last = f"blocks.{run.config['n_layer'] - 1}.attn.pattern"
                np.testing.assert_allclose(found["maps"], trace[last][:2, 7, :8], atol=1e-6)


def test_products_are_equal() -> None:
    """The WASM and the plain form of each product, at sizes that are no multiple of anything."""
    got = node(
        """const sizes = [[1, 1, 1], [4, 2, 4], [5, 7, 12], [9, 6, 10], [8, 3, 64]], out = [];
        const wave = (x, f) => { for (let i = 0; i < x.length; i++) x[i] = Math.sin(f * i + f); return x; };
        for (const kind of ["plain", "wasm"]) {
          const own = await products(kind, 4), found = [];
          for (const [T, N, K] of sizes) {
            const o = own.floats(T * N);
            own.multiply(o, wave(own.floats(T * K), 0.7), wave(own.floats(N * K), 1.3), T, N, K);
            found.push(...o);
          }
          const gate = wave(own.floats(7), 30), closed = own.bytes(64), E = 6, z = own.floats(48), pattern = own.floats(36);
          for (let i = 0; i < 7; i++) gate[i] *= 40;
          own.swiglu(gate, wave(own.floats(7), 2), 7);
          closed[8 * 5 + 2] = closed[0] = 1;
          own.attend({ z, pattern, q: wave(own.floats(48), 0.9), k: wave(own.floats(48), 0.4), v: wave(own.floats(48), 2.1), closed, from: 0, to: 8, E, stride: E, context: 8 });
          out.push([...found, ...gate, ...pattern, ...z]);
        }
        console.log(JSON.stringify(out));""",
        None,
    )
    plain, wasm = np.array(got)
    np.testing.assert_allclose(wasm, plain, atol=2e-6, rtol=2e-6)
    pattern = plain[-48 - 36 : -48]
    assert pattern[0] == 0  # every key closed: the row is empty, not NaN
    assert pattern[5 * 6 // 2 + 2] == 0
    assert pattern[5 * 6 // 2 : 5 * 6 // 2 + 6].sum() == pytest.approx(1)


def test_wasm_is_what_its_source_gives() -> None:
    if not shutil.which("clang") or not shutil.which("wasm-ld"):
        pytest.skip("no clang and lld here: apt-get install clang lld")
    version = subprocess.run(["clang", "--version"], capture_output=True, text=True, check=True).stdout
    if "version 14.0.6" not in version:
        pytest.skip("products.wasm was made with clang 14.0.6; another compiler gives other bytes")
    done = subprocess.run([ROOT / "scripts" / "wasm", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# ---- change it and see ----


def edit_of(run: Subject, case: dict[str, Any]) -> Callable[[str, np.ndarray], np.ndarray]:
    """The same change as an edit of the reference."""
    n_head = run.config["n_head"]
    heads = silence([divmod(head, n_head) for head in case.get("heads", [])])

    def edit(name: str, value: np.ndarray) -> np.ndarray:
        if name.endswith("attn.pattern") and case.get("closed"):
            value = value.copy()
            for t, s in case["closed"]:
                value[:, t, s] = 0
            value = value / np.maximum(value.sum(-1, keepdims=True), 1e-30)
        if name.endswith("mlp.out") and int(name.split(".")[1]) in case.get("mlps", []):
            value = np.zeros_like(value)
        return heads(name, value)

    return edit


def drawn_cases(run: Subject, count: int) -> list[dict[str, Any]]:
    rng, heads = np.random.default_rng(1), run.config["n_layer"] * run.config["n_head"]
    cases: list[dict[str, Any]] = [{"heads": list(range(heads)), "mlps": [0]}, {"closed": [[0, 0], [4, 4]]}]
    for _ in range(count - len(cases)):
        case: dict[str, Any] = {"heads": rng.choice(heads, rng.integers(0, heads), replace=False).tolist()}
        case["mlps"] = rng.choice(run.config["n_layer"], rng.integers(0, 2), replace=False).tolist()
        case["closed"] = [[t, int(rng.integers(0, t + 1))] for t in rng.integers(1, len(IDS), 2).tolist()]
        cases.append(case)
    return cases


def test_changes_equal_the_reference() -> None:
    """20 drawn changes: heads and MLPs off, keys closed; and one head alone, computed from its layer on."""
    runs = {name: shapes()[name] for name in ("plain", "grouped")}
    cases = {name: drawn_cases(run, 10) for name, run in runs.items()}
    packs = {name: live.pack(run, "f32") for name, run in runs.items()}
    got = node(
        """const out = {}, tokenizer = { start: 0, piece: (i) => [String(i), false] };
        for (const [name, packed] of Object.entries(asked.packs)) {
          const { own, numbers, make } = await open(packed, "wasm"), model = make(), live = new LiveRun(packed.config, numbers, own, tokenizer);
          const changed = asked.cases[name].map((c) => { model.run(asked.ids, edit(c)); return rows(model, asked.ids.length); });
          live.read(asked.ids);
          const alone = Array.from({ length: model.L * model.H }, (_, h) => live.without(h, 6, asked.ids[7]));
          out[name] = { changed, alone };
        }
        console.log(JSON.stringify(out));""",
        {"packs": packs, "cases": cases, "ids": IDS},
    )
    for name, run in runs.items():
        for case, found in zip(cases[name], got[name]["changed"], strict=True):
            want = forward(run.weights, run.config, IDS, edit=edit_of(run, case))
            np.testing.assert_allclose(found, want, atol=1e-4, err_msg=str(case))
        for head, found in enumerate(got[name]["alone"]):
            logits = forward(run.weights, run.config, IDS, edit=edit_of(run, {"heads": [head]}))[6]
            logits = logits.astype(np.float64)
            want = logits[IDS[7]] - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
            assert found == pytest.approx(want, abs=1e-4)


def test_the_way_of_a_guess() -> None:
    """The lens reads the stream of the reference; the parts are the reference's, and sum to the difference."""
    run = shapes()["grouped"]
    got = node(
        """const { own, numbers } = await open(asked.packed, "plain"), live = new LiveRun(asked.packed.config, numbers, own, { start: 0, piece: (i) => [String(i), false] });
        live.read(asked.ids);
        const found = live.parts(8, 5, 11), model = live.clean.model;
        console.log(JSON.stringify({ ...found, lenses: [0, 1, 2, 3].map((l) => list(model.lens(l, 8))), steps: live.steps(1, 3) }, (_, v) => (ArrayBuffer.isView(v) ? list(v) : v)));""",
        {"packed": live.pack(run, "f32"), "ids": IDS},
    )
    trace: dict[str, np.ndarray] = {}
    logits = forward(run.weights, run.config, IDS, trace)[8]
    streams = [trace["embed"], *(trace[f"blocks.{layer}.resid_post"] for layer in range(3))]
    gain, table = run.weights["final_norm.weight"], run.weights["embed.weight"]
    for lens, stream in zip(got["lenses"], streams, strict=True):
        x = stream[8] / np.sqrt((stream[8] ** 2).mean() + 1e-6) * gain
        np.testing.assert_allclose(lens, table @ x, atol=5e-5)
    np.testing.assert_allclose(got["lenses"][3], logits, atol=5e-5)
    scale = 1 / np.sqrt((streams[3][8] ** 2).mean() + 1e-6)
    along = gain * scale * (table[5] - table[11])
    for part in got["parts"]:
        at = f"blocks.{part.get('layer')}."
        vector = {
            "embed": lambda: trace["embed"][8],
            "head": lambda at=at, part=part: trace[at + "attn.result"][part["head"], 8],
            "mlp": lambda at=at: trace[at + "mlp.out"][8],
        }[part["part"]]()
        assert part["own"] - part["rival"] == pytest.approx(vector @ along, abs=1e-4)
    assert len(got["parts"]) == 1 + 3 * 5
    total = sum(part["own"] - part["rival"] for part in got["parts"])
    assert total == pytest.approx(float(logits[5] - logits[11]), abs=1e-4)
    np.testing.assert_allclose(got["steps"]["q"], trace["blocks.1.attn.q_raw"][3], atol=1e-5)
    np.testing.assert_allclose(got["steps"]["k"], trace["blocks.1.attn.k_raw"][1], atol=1e-5)
    norms = np.linalg.norm(trace["blocks.1.attn.result"][3], axis=-1)
    np.testing.assert_allclose(got["steps"]["result_norm"], norms, rtol=1e-4)


# ---- documents: computed in the page or by explorer.py, the same ----


def near(found: Any, want: Any) -> bool:
    if isinstance(want, float) or isinstance(found, float):
        return (
            found is not None and want is not None and abs(found - want) <= 2e-3 * max(1e-3, abs(want)) + 1e-5
        )
    if isinstance(want, dict):
        return all(key in found and near(found[key], value) for key, value in want.items())
    if isinstance(want, list):
        return len(found) == len(want) and all(map(near, found, want))
    return found == want


def test_a_live_document_equals_the_static_one(tiny_texts: list[str]) -> None:
    tokenizer = train_tokenizer(tiny_texts, 300)
    config = {**settings(vocab_size=tokenizer.vocab_size), "context": 64}
    run = Subject("toy", weights(config), config, tokenizer)
    text = " ".join(TOM) + " ❤ Ж" + "\n" + " ".join(TOM[:9])
    ids, _ = run.encode(text, "head")
    want = document.document(run.weights, config, ids, tokenizer, steps=[])
    got = node(
        """const { own, numbers } = await open(asked.packed, "wasm"), bpe = new Bpe(asked.tokenizer), live = new LiveRun(asked.packed.config, numbers, own, bpe);
        live.document("Another text, which is forgotten", edit({ heads: [1] }));
        const read = { ...live.document(asked.text), ...live.heads() }, cut = live.document(asked.text, edit({ heads: [0] }));
        console.log(JSON.stringify({ ...read, maps: list(read.maps.numbers), before: cut.before, cut: cut.losses }));""",
        {"packed": live.pack(run, "f32"), "tokenizer": live.tokenizer_block(tokenizer), "text": text},
    )
    for name in ("ids", "pieces", "T", "start", "partial"):
        assert got["text"][name] == want["text"][name], name
    assert near(got["losses"], {k: v for k, v in want["losses"].items() if k != "top"})
    for found, own in zip(got["losses"]["top"], want["losses"]["top"], strict=True):
        np.testing.assert_allclose([p for _, p in found], [p for _, p in own], rtol=1e-3)
    assert near(got["even"], want["even"])
    assert near(got["heads"], want["heads"])
    assert near(got["before"]["nll"], want["losses"]["nll"])
    assert got["cut"]["nll"][5] != pytest.approx(got["before"]["nll"][5], abs=1e-4)
    triangle = codec.decode(want)[:, :, *np.tril_indices(len(ids))]
    np.testing.assert_allclose(got["maps"], triangle.ravel(), atol=0.004)


# ---- the tokenizer ----

DRAWN = ["'s", "'S", "'ſ", "'LL", "ﬁ", "e\u0301", "\u0085", "\ufeff", "\u00a0", "\u2028", " ", "  ", "\n", "\r\n", "\t",
         "👩‍👩‍👧", "🙂", "שלום", "猫", "Ёж", "123", "4", "a", "Tom", "don't", ".", "!?", "<|endoftext|>", "\x00", "ǅ", "\u200b"]  # fmt: skip
ENCODE = "const bpe = new Bpe(asked.tokenizer); console.log(JSON.stringify(asked.texts.map((t) => [bpe.encode(t), bpe.decode(bpe.encode(t))])));"


def assert_same_ids(tokenizer: Tokenizer, texts: list[str]) -> None:
    got = node(ENCODE, {"tokenizer": live.tokenizer_block(tokenizer), "texts": texts})
    for text, (ids, back) in zip(texts, got, strict=True):
        assert ids == tokenizer.encode(text), repr(text)
        assert back == text


def test_tokenizer_gives_the_same_ids() -> None:
    tokenizer = open_subject(ROOT / "checkpoints" / "rostok-mini").tokenizer
    rng = np.random.default_rng(0)
    drawn = ["".join(rng.choice(DRAWN, rng.integers(1, 12))) for _ in range(1000)]
    letters = ["".join(chr(c) for c in rng.integers(32, 0x2FF, 20)) for _ in range(300)]
    assert_same_ids(tokenizer, [*drawn, *letters, "a" * 2000, " " * 300 + "x", ""])


def test_tokenizer_on_real_texts(shared_data: Path) -> None:
    tokenizer = open_subject(ROOT / "checkpoints" / "rostok-mini").tokenizer
    texts = []
    for file in sorted(shared_data.rglob("*.txt"))[:8]:
        texts += file.read_text("utf-8", errors="ignore")[:200_000].split("\n")[:60]
    assert_same_ids(tokenizer, texts)


@pytest.mark.parametrize(
    ("pattern", "want"),
    [
        (r"'(?i:[sdmt]|ll)|\p{L}++", "'(?:[sSſdDmMtT]|[lL][lL])|\\p{L}+"),
        (r" ?[^\s\p{L}]++[\r\n]*+|\p{N}{1,3}+|\s+(?!\S)", None),
    ],
)
def test_patterns_in_javascript(pattern: str, want: str | None) -> None:
    found = live.javascript_pattern(pattern)
    assert want is None or found == want
    assert "++" not in found
    assert "*+" not in found
    assert r"\s" not in found
    assert live.javascript_pattern(QWEN2_PATTERN).count(r"\p{L}+") == 1


# ---- choosing the next token ----


@pytest.mark.parametrize(
    "sampling", [(0.8, 0, 1.0), (1.3, 3, 1.0), (1.0, 0, 0.7), (0.5, 10, 0.9), (0.0, 0, 1.0)]
)
def test_sampling_keeps_what_sample_keeps(sampling: tuple[float, int, float]) -> None:
    temperature, k, p = sampling
    logits = np.round(np.random.default_rng(5).standard_normal((6, 40)) * 3, 1).astype(
        np.float32
    )  # with ties
    got = node(
        "console.log(JSON.stringify(asked.logits.map((row) => filtered(row, asked.how).all)));",
        {"logits": logits.tolist(), "how": {"temperature": temperature, "topK": k, "topP": p}},
    )
    kept = apply_filters(torch.from_numpy(logits), Sampling(temperature=temperature, top_k=k, top_p=p))
    want = kept.double().softmax(-1).numpy()
    for found, row in zip(got, want, strict=True):
        assert {i for i, _ in found} == set(np.flatnonzero(row))
        np.testing.assert_allclose([q for _, q in found], [row[i] for i, _ in found], atol=1e-6)


@pytest.mark.parametrize("name", ["plain", "grouped"])
def test_flow_is_that_of_the_reference(name: str) -> None:
    """Layer by layer, by the length of the vectors; nothing is dropped, so the sources sum to 1."""
    run = shapes()[name]
    got = node(
        """const { rolling } = await load("rollout.js"), { make } = await open(asked.packed, "plain"), model = make();
        model.run(asked.ids);
        const layers = rolling(model, asked.t, 0);
        let step = layers.next();
        while (!step.done) step = layers.next();
        console.log(JSON.stringify(step.value));""",
        {"packed": live.pack(run, "f32"), "ids": IDS, "t": len(IDS) - 2},
    )
    trace: dict[str, np.ndarray] = {}
    forward(run.weights, run.config, IDS, trace)
    n_layer, n_head = run.config["n_layer"], run.config["n_head"]
    share, edges = np.eye(len(IDS))[-2], {}
    for layer in reversed(range(n_layer)):
        at = f"blocks.{layer}."
        v = trace[at + "attn.v"]
        v = np.repeat(v, n_head // len(v), axis=0)  # (H, T, E)
        proj = run.weights[at + "attn.proj.weight"].reshape(-1, n_head, v.shape[-1])  # (D, H, E)
        moved = np.einsum("hqs,hse,dhe->qsd", trace[at + "attn.pattern"], v, proj)
        parts = np.linalg.norm(moved, axis=-1) + np.diag(np.linalg.norm(trace[at + "resid_pre"], axis=-1))
        flow = share[:, None] * parts / parts.sum(1, keepdims=True)  # (q, s)
        edges |= {(layer, s, q): flow[q, s] for q in range(len(IDS)) for s in range(q + 1)}
        share = flow.sum(0)
    np.testing.assert_allclose(got["sources"], share[: len(got["sources"])], atol=1e-5)
    assert sum(got["sources"]) == pytest.approx(1, abs=1e-5)
    for layer, s, q, value in got["edges"]:
        assert value == pytest.approx(edges[layer, s, q], abs=1e-5)


def test_the_price_of_rounding_is_told_on_held_out_texts(tiny_run, tiny_data, tmp_path, capsys) -> None:
    words = [
        "page",
        str(tiny_run),
        "--live",
        "--small",
        "--text",
        "Tom had a hat.",
        "--out",
        str(tmp_path / "a.html"),
    ]
    assert attend.main(words) == 0
    line = capsys.readouterr().out.splitlines()[0]
    found = re.search(r"8 bits; loss on (\d+) held-out texts ([\d.]+) -> [\d.]+ nats", line)
    assert found, line
    run, context = load_run(tiny_run, build_model), 32
    texts = [text[:context] for text in texts_of(tiny_data, "valid", run.tokenizer) if len(text) > 1][
        : int(found[1])
    ]
    with torch.no_grad():
        losses = [
            torch.nn.functional.cross_entropy(run.model(ids[None])[0, :-1], ids[1:], reduction="none")
            for ids in (torch.from_numpy(text.astype(np.int64)) for text in texts)
        ]
    assert float(found[2]) == pytest.approx(torch.cat(losses).mean().item(), abs=1e-4)
    moved = tmp_path / "moved"  # its data is gone: the page's own texts
    shutil.copytree(tiny_run, moved)
    config = moved / "config.yaml"
    config.write_text(config.read_text("utf-8").replace(str(tiny_data.folder), "gone"), "utf-8")
    assert attend.main(["page", str(moved), *words[2:], "--force"]) == 0
    assert "loss on 1 texts of the page (the data of the run is not here)" in capsys.readouterr().out


def test_a_big_static_page_is_told(hand_run, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(explorer, "BIG", 1e5)
    words = ["page", str(hand_run), "--text", "Tom had a hat.", "--out"]
    assert attend.main([*words, str(tmp_path / "a.html")]) == 0
    assert "is much for a mail or a phone" in capsys.readouterr().err
    assert attend.main([*words, str(tmp_path / "a.json")]) == 0
    assert capsys.readouterr().err == ""


def test_greedy_text_is_that_of_the_model() -> None:
    """The shipped run, its own tokenizer: greedy tokens one after another, with a cache, as the torch model writes."""
    run, own = (
        load_run(ROOT / "checkpoints" / "rostok-mini", build_model),
        open_subject(ROOT / "checkpoints" / "rostok-mini"),
    )
    prompts = ["Once upon a time", "Tom had a red ball. One day he", "The dragon said"]
    packed = live.pack(own, "bf16")
    assert live.changed_share(own.weights) == 0
    got = node(
        """const { own, numbers } = await open(asked.packed, "wasm", 200), bpe = new Bpe(asked.tokenizer), live = new LiveRun(asked.packed.config, numbers, own, bpe), out = [];
        for (const prompt of asked.prompts) {
          const { ids } = live.encode(prompt);
          for (let i = 0; i < 15; i++) ids.push(draw(filtered(live.read(ids).model.logits(ids.length - 1), { temperature: 0 }), 0.5));
          out.push(ids);
        }
        console.log(JSON.stringify({ out, logits: rows(live.clean.model, 3) }));""",
        {"packed": packed, "tokenizer": live.tokenizer_block(own.tokenizer), "prompts": prompts},
    )
    for prompt, found in zip(prompts, got["out"], strict=True):
        ids = [0, *own.tokenizer.encode(prompt)]
        with torch.no_grad():
            for _ in range(15):
                ids.append(int(run.model(torch.tensor([ids]))[0, -1].argmax()))
        assert found == ids
    with torch.no_grad():
        want = run.model(torch.tensor([got["out"][-1]]))[0, :3].numpy()
    np.testing.assert_allclose(got["logits"], want, atol=5e-5)
