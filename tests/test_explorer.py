"""The explorer without a browser: codec, documents, page, command, and the page's pure functions under Node."""

# ruff: noqa: E501  (lines of JavaScript)

import base64
import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from explorer_toy import NASTY, TOM, Spelling, settings, spaced, toy, weights
from safetensors.numpy import save

import attend
from rostok.attention.by_hand.examples import EXAMPLES
from rostok.attention.heads import scores
from rostok.attention.page import assemble, codec, demo, document, stories
from rostok.attention.reference import forward, rms_norm, softmax
from rostok.errors import UserError, run_main
from rostok.text.tokenizer import train_tokenizer

ROUGH = {**settings(), "norm_eps": 0.05}  # an eps that a step without it would miss
STRINGS = assemble.strings()


def patterns(length: int, heads: int = 5, seed: int = 0) -> np.ndarray:
    """(1, heads, T, T): noise, previous, start, nearly even, one key."""
    rng, at = np.random.default_rng(seed), np.arange(length)
    scores = rng.standard_normal((heads, length, length)) * np.array([2, 1, 1, 0.01, 9])[:heads, None, None]
    scores[1] += 6 * (at[:, None] - at[None, :] == 1)
    scores[2:3, :, 0] += 5
    return softmax(np.where(np.tri(length, dtype=bool), scores, -np.inf))[None].astype(np.float32)


# ---- the codec ----


@pytest.mark.parametrize("length", [1, 2, 8, 9, 64, 511, 512])
@pytest.mark.parametrize("longest", [codec.LONGEST, 0], ids=["sqrt", "linear"])
def test_codec_keeps_weights(length: int, longest: int) -> None:
    pattern = patterns(length, 5 if length < 100 else 2)
    block = json.loads(json.dumps(codec.encode(pattern, longest)))
    decoded = codec.decode(block)
    assert np.abs(decoded - pattern).max() <= 0.004
    assert np.abs(decoded.sum(-1) - 1).max() < 1e-6
    assert not np.triu(decoded, 1).any()
    k = min(8, length)
    places = np.argsort(-pattern, -1, kind="stable")[
        ..., :k
    ]  # the largest of a row are right to the last digit
    places = np.minimum(places, np.arange(length)[:, None])
    got, want = (np.take_along_axis(weights, places, -1) for weights in (decoded, pattern))
    np.testing.assert_allclose(got, want, atol=1e-7)
    assert block["weights"]["coding"] == ("linear-u8" if longest == 0 else "sqrt-u8")


def test_codec_is_reproducible_and_small() -> None:
    pattern = patterns(512, 3)
    block = codec.encode(pattern)
    assert block == codec.encode(pattern)
    size = len(block["weights"]["base64"]) + len(block["exact"]["base64"])
    assert size / 3 * 48 < 5_900_000  # 512 x 48


@pytest.mark.parametrize("wrong", ["sum", "future", "nan"])
def test_codec_refuses_what_is_no_attention(wrong: str) -> None:
    pattern = patterns(4)
    if wrong == "sum":
        pattern[0, 0, 3] *= 0.9
    if wrong == "future":
        pattern[0, 0, 0] = [0, 1, 0, 0]
    if wrong == "nan":
        pattern[0, 0, 3] = np.nan
    with pytest.raises(ValueError, match="zeros above the diagonal"):
        codec.encode(pattern)


# ---- the document ----


def test_document_equals_the_reference() -> None:
    words, config = spaced(TOM), settings()
    doc = toy(words, look=("he", "Tom"), steps=[(1, 0)])
    trace: dict[str, np.ndarray] = {}
    ids = doc["text"]["ids"]
    logits = forward(weights(config), config, np.array(ids), trace)
    pattern = np.stack([trace[f"blocks.{layer}.attn.pattern"] for layer in range(2)])
    assert np.abs(codec.decode(doc) - pattern).max() <= doc["weights"]["max_abs_err"] + 1e-5 <= 0.004
    p = softmax(logits.astype(np.float64))
    for t in range(1, len(ids)):
        assert doc["losses"]["p"][t] == pytest.approx(p[t - 1, ids[t]], rel=1e-3)
        assert doc["losses"]["nll"][t] == pytest.approx(-np.log(p[t - 1, ids[t]]), rel=1e-3)
        assert doc["losses"]["rank"][t] == 1 + (p[t - 1] > p[t - 1, ids[t]]).sum()
    assert doc["losses"]["nll"][0] is None
    assert doc["text"]["pieces"][0] == "◆"
    he, tom = words.index(" he") + 1, [j + 1 for j, word in enumerate(words) if word in (" Tom", " Tom.")]
    best = pattern[:, :, he, [j for j in tom if j < he]].sum(-1)
    view = doc["view"]
    assert view["token"] == he
    assert best[view["layer"], view["head"]] == best.max()
    json.dumps(doc, allow_nan=False)


def test_losses_classes() -> None:
    doc = toy(["a", " b", " c", "a", " b", " d", " c"])
    assert doc["losses"]["class"] == ["start", "new", "new", "new", "seen", "pair", "new", "seen"]
    assert {kind: row["n"] for kind, row in doc["losses"]["summary"].items()} == {
        "new": 4,
        "seen": 2,
        "pair": 1,
    }


def test_head_scores_know_their_heads() -> None:
    ids = [0, 1, 2, 3, 1, 2, 3, 4, 1, 2]
    names = ["previous", "start", "induction", "same", "self"]
    length, cells = len(ids), scores.kind_cells(ids, 0)
    heads = []
    for name in names:
        where = cells[document.KINDS[name]].astype(float)
        where[~where.any(-1), 0] = 1
        heads.append(where / where.sum(-1, keepdims=True))
    even = np.tri(length) / np.arange(1, length + 1)[:, None]
    records = document.head_scores(np.stack([*heads, even])[None], ids, 0)
    assert [record["label"] for record in records] == [*names, "other"]
    for record, name in zip(records, names, strict=False):
        assert record["scores"][name]["v"] == pytest.approx(1)
    baseline = document.even_scores(ids, 0)
    for kind in names:
        assert records[-1]["scores"][kind]["v"] == pytest.approx(baseline[kind], abs=1e-3)
    assert records[-1]["scores"]["entropy"]["v"] == pytest.approx(1)


@pytest.mark.parametrize("words", [[], [" one"]])
def test_shortest_texts(words: list[str]) -> None:
    doc = toy(words)
    assert doc["text"]["T"] == len(words) + 1
    assert doc["heads"][0]["scores"]["previous"] is None
    np.testing.assert_allclose(codec.decode(doc)[:, :, 0, 0], 1)


def test_grouped_queries_and_partial_letters() -> None:
    config = {**settings(n_head=4, d_head=8), "n_kv_head": 2}
    tensors = weights(config)
    for layer in range(2):
        tensors[f"blocks.{layer}.attn.qkv.weight"] = tensors[f"blocks.{layer}.attn.qkv.weight"][: (4 + 4) * 8]
    pieces = Spelling([b"\xd0", b"\x96", *(f"w{i}" for i in range(61))])
    doc = document.document(tensors, config, [0, 1, 2, 3], pieces, steps=[(0, 3)])
    assert doc["text"]["pieces"] == ["◆", "⟨D0⟩", "⟨96⟩", "w0"]
    assert doc["text"]["partial"] == [False, True, True, False]
    assert doc["qkv"]["heads"][0]["head"] == 3


def test_nan_weights_are_refused() -> None:
    config = settings()
    tensors = weights(config)
    tensors["blocks.1.attn.qkv.weight"][:] = np.nan
    with pytest.raises(UserError, match="layer 2 of rostok gives weights that are not numbers"):
        document.document(tensors, config, [0, 1], Spelling([f"{i}" for i in range(63)]))


# ---- the page ----


def test_page_is_one_closed_file() -> None:
    doc = toy(NASTY)
    text = assemble.page([doc], title="</title><b>")
    assert text == assemble.page([doc])[:0] + assemble.page(
        [doc], title="</title><b>"
    )  # the same bytes each time
    assert "http" not in re.sub(r"http-equiv", "", text)
    assert "</script><script>document" not in text
    assert "<title>&lt;/title&gt;&lt;b&gt;</title>" in text
    assert text.count("<script") == text.count("</script>") == 5
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy[1]
    found = re.search(r'class="document">(.*?)</script>', text, re.S)
    assert found
    assert json.loads(found[1])["text"]["pieces"][1:] == NASTY


def test_page_sizes() -> None:
    config = settings(8, 6, 64, vocab_size=70)
    words = [f" w{i}" for i in range(63)]
    assert (
        len(assemble.page([toy(words, config=config)]).encode()) < 340_000
    )  # 64 tokens x 48 heads of pure noise
    assert len(assemble.page(demo.demo_documents()).encode()) < 250_000


def test_demo_heads_follow_their_rules() -> None:
    for doc in demo.demo_documents():
        assert [h["label"] for h in doc["heads"]] == [
            "previous",
            "start",
            "induction",
            "same",
            "other",
            "other",
        ]
        assert doc["checks"] == {}
        assert doc["model"]["kind"] == "rule"


def test_strings_are_whole() -> None:
    english, russian = STRINGS["en"], STRINGS["ru"]
    assert english.keys() == russian.keys()
    for key in english:
        assert set(re.findall(r"\{\w+\}", english[key])) == set(re.findall(r"\{\w+\}", russian[key])), key
        assert english[key].strip(), key
    code = "".join(path.read_text("utf-8") for path in assemble.ASSETS.glob("*.js"))
    code += (assemble.ASSETS / "page.html").read_text("utf-8")
    used = set(re.findall(r"\"([a-z]+(?:\.[\w.]+)*)\"", code)) & english.keys()
    used |= set(re.findall(r"data-i(?:-label)?=\"([\w.]+)\"", code))
    stems = set(re.findall(r"`([a-z]+\.(?:[a-z]+\.)?)\$\{", code))
    lost = [k for k in english if k not in used and not any(k.startswith(stem) for stem in stems)]
    assert lost == []
    assert used <= english.keys()


def test_contents_of_the_page_are_the_examples() -> None:
    shown = assemble._examples()
    assert [row["handle"] for row in shown["examples"]] == assemble.CARDS
    assert all(handle in EXAMPLES for handle in assemble.CARDS)
    for card in shown["examples"]:
        assert {value["name"] for value in card["values"]} == EXAMPLES[card["handle"]].exact.keys()


def test_programs_print_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    for program in assemble._examples()["programs"]:
        exec(program["code"], {})
        assert capsys.readouterr().out == program["output"]


def test_stories_speak_the_language_of_the_tokenizer(tiny_texts: list[str]) -> None:
    russian = train_tokenizer([story for story, _, _ in stories.RUSSIAN.values()] * 3, 400)
    assert stories.stories(russian) is stories.RUSSIAN
    assert stories.stories(train_tokenizer(tiny_texts, 300)) is stories.STORIES
    for story, query, key in (*stories.RUSSIAN.values(), *stories.STORIES.values()):
        assert query in story
        assert key in story


# ---- the command ----


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory, tiny_texts: list[str]) -> Path:
    """A run folder as training leaves it, with random weights: 2 layers, 2 heads, context 32."""
    folder = tmp_path_factory.mktemp("runs") / "toy"
    tokenizer = train_tokenizer(tiny_texts, 300)
    config = {**settings(vocab_size=tokenizer.vocab_size), "context": 32}
    write_run(folder, config, save(weights(config)))
    tokenizer.save(folder)
    return folder


def write_run(folder: Path, config: dict[str, Any], tensors: bytes) -> None:
    step = folder / "step-000010"
    step.mkdir(parents=True)
    (step / "model.safetensors").write_bytes(tensors)
    state = {
        "model": config,
        "step": 10,
        "sha256": {"model.safetensors": hashlib.sha256(tensors).hexdigest()},
    }
    (step / "state.json").write_text(json.dumps(state), "utf-8")
    (folder / "latest").write_text("step-000010\n", "utf-8")


def attend_page(*words: str) -> int:
    return run_main(attend.main, ["page", *words])


def test_command_with_a_run(run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "page.html"
    text = "Tom had a ball. Tom"
    assert (
        attend_page(str(run_folder), "--text", text, "--query", "Tom", "--key", "Tom", "--out", str(out)) == 0
    )
    assert "texts 1, runs 1" in capsys.readouterr().out
    found = re.search(r'class="document">(.*?)</script>', out.read_text("utf-8"), re.S)
    assert found
    doc = json.loads(found[1])
    assert "".join(doc["text"]["pieces"][1:]) == text
    assert doc["model"]["n_layer"] == 2
    assert attend_page(str(run_folder), "--text", text, "--out", str(out)) == 2
    assert "give --force" in capsys.readouterr().err
    twice = tmp_path / "two.json"
    long = "Tom had a ball. " * 20
    words = [
        "--compare",
        str(run_folder),
        "--text",
        long,
        "--on-long",
        "tail",
        "--steps",
        "all",
        "--out",
        str(twice),
    ]
    assert attend_page(str(run_folder), *words) == 0
    first, second = json.loads(twice.read_text("utf-8"))
    assert first["model"]["name"] != second["model"]["name"]
    assert first["text"]["T"] == 32
    assert first["text"]["dropped"] > 0
    assert first["text"]["pieces"][0] == "◆"
    assert len(first["qkv"]["heads"]) == 4


def test_command_says_what_is_wrong(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    window = tmp_path / "window"
    write_run(window, {"kind": "window-mlp"}, save({"head.bias": np.zeros(3, np.float32)}))
    run, page = str(run_folder), ["--out", str(tmp_path / "new.html")]
    cases = {
        "give a run folder or --demo": page,
        "one of the two": [run, "--demo", *page],
        "must end in one of .html, .json": [run, "--out", str(tmp_path / "a.pdf")],
        "there is no run folder": [str(tmp_path / "none"), *page],
        "has no attention": [str(window), *page],
        "the text is empty": [run, "--text", "", *page],
        "or --file FILE, one of the two": [run, "--text", "a", "--file", "b", *page],
        "cannot be read": [run, "--file", str(tmp_path / "none.txt"), *page],
        "is not UTF-8": [run, "--file", str(binary), *page],
        "--query and --key go together": [run, "--text", "Tom", "--query", "Tom", *page],
        "'she' is not in the text": [run, "--text", "Tom", "--query", "she", "--key", "Tom", *page],
        "there is no 'Tom' before 'Tom'": [run, "--text", "Tom ran", "--query", "Tom", "--key", "Tom", *page],
        "there is no 'he' before 'Tom'": [
            *(run, "--text", "Tom saw. Then he", "--query", "Tom", "--key", "he", *page)
        ],
        "--query and --key go together: ": [run, "--query", "nosuchword", *page],
        "give --text or --file too": [run, "--query", "Tom", "--key", "Tom", *page],
        "Got --text; give a run folder": ["--demo", "--text", "a", "--compare", run, *page],
        "Got --steps; give a run folder": ["--demo", "--steps", "99.9", *page],
        "the model sees 32": [run, "--text", "Tom had a ball. " * 20, *page],
        "--steps wants layer.head": [run, "--text", "Tom", "--steps", "3.1", *page],
        "cannot write": ["--demo", "--out", "/proc/a.html"],
    }
    for message, words in cases.items():
        assert attend_page(*words) == 2, message
        assert message in capsys.readouterr().err
    assert not (tmp_path / "new.html").exists()


def test_command_finds_words_cut_into_bytes(run_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "cut.json"
    words = ["--text", "Том. Он", "--query", "Он", "--key", "Том", "--out", str(out)]
    assert attend_page(str(run_folder), *words) == 0
    doc = json.loads(out.read_text("utf-8"))[0]
    assert doc["view"]["token"] == doc["text"]["T"] - 1


def test_command_start_sign_alone(run_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "one.json"
    assert attend_page(str(run_folder), "--text", "", "--allow-empty", "--out", str(out)) == 0
    assert json.loads(out.read_text("utf-8"))[0]["text"]["pieces"] == ["◆"]


# ---- the page's own functions, under Node ----

NODE = """
import fs from "node:fs";
const core = await import(process.argv[1] + "/core.js"), codec = await import(process.argv[1] + "/codec.js");
const { cases, doc, key } = JSON.parse(fs.readFileSync(0, "utf8"));
const rows = [];
for (const { block, ask } of cases) {
  const w = await codec.Weights.read(block);
  rows.push(ask.map(([l, h, t]) => Array.from(w.row(l, h, t))));
}
const [head] = await codec.readSteps(doc.qkv, doc.text.T, doc.model.d_head);
const theta = 10000, eps = doc.model.norm_eps, keys = core.headKeys({ k: head.k, kGain: head.k_gain, theta, eps });
const steps = core.headSteps({ q: head.q, v: head.v, qGain: head.q_gain, t: key, theta, eps, keys });
const w = await codec.Weights.read(doc);
const plain = (x) => JSON.parse(JSON.stringify(x, (_, v) => (ArrayBuffer.isView(v) ? Array.from(v) : Number.isNaN(v) ? "NaN" : v)));
const roll = core.random(1), none = core.nobodyFits(), big = Array.from({ length: 3 }, (_, i) => Array.from({ length: 64 }, () => core.dotSamples([1, 64, 512], 64, roll)[i]).flatMap((x) => [...x]));
console.log(JSON.stringify(plain({
  rows, steps, tile: core.maxPool(w.tile(0, 0), doc.text.T, 8),
  readout: core.readout([0.5, 0.125, 0.125, 0.25], [true, false, false, false]), first: core.readout([1], [true]),
  softmax: [core.softmax([2, 1, 0.1]), core.softmax([800, 799]), core.softmax([-3, -5, -6, -9]), core.softmax([-Infinity])],
  plane: core.plane({ ...core.PLANE, sharp: 1 }), twice: core.plane({ ...core.PLANE, sharp: 2 }).weights,
  zero: core.plane({ ...core.PLANE, q: [0, 0], sharp: 1 }), nobody: core.plane({ ...core.PLANE, ...none, sharp: 1 }),
  normed: [1, 5].map((s) => core.plane({ ...core.PLANE, q: [1.4 * s, 0.7 * s], sharp: 1, norm: true }).weights),
  mask: [core.maskCheck([[1, 0], [1, 1]]), core.maskCheck([[1, 1], [1, 1]]), core.maskCheck([[0, 0], [1, 1]])].map((m) => m.right),
  maskRow: core.maskRow([1, 1, 5], [true, true, false]), blind: core.maskRow([1, 2], [false, false]),
  cost: core.cost(512), window: [8, 16, 32, 64, 128, 256, 512].map(core.windowWeights), layer: core.ATTENTION_WEIGHTS,
  spread: big.map(core.spread), entropy: core.entropy(new Array(64).fill(1 / 64)),
  histogram: core.histogram([-9, 0.1, 0.2, 9], -1, 1, 4),
  lettered: [[["◆", "⟨D0⟩", "⟨9A⟩⟨D0⟩", "⟨9A⟩", " x", "⟨F0⟩⟨9F⟩", "⟨98⟩⟨80⟩a"], [false, true, true, true, false, true, true]], [["⟨D0⟩"], [true]]].map((x) => core.lettered(...x)),
  visible: ["\\n", "\\t", " ", " Tom", "  ", "\\u0000", "\\u202e", "", "a b", "\\u007f", "\\u0085"].map(core.visible),
  number: [[1234567.891, 1, "en"], [1234567.891, 1, "ru"], [1234, 0, "ru"], [-0.0001, 2, "en"], [-3, 0, "ru"], [NaN, 1, "en"]].map((a) => core.number(...a)),
  hash: core.parseHash(core.formatHash({ lang: "ru", ex: "a&b=c#%", t: 0, none: undefined })), bad: core.parseHash("#%E0%A4%A=1&x"),
  whole: [core.whole("3", 1, 8, 5), core.whole("99", 1, 8, 5), core.whole("-1", 1, 8, 5), core.whole(undefined, 1, 8, 5)],
  xml: core.escapeXml("<a b='\\"'>&\\u0000"), half: [0x3c00, 0xc000, 0x0001, 0x7c00, 0x3555].map(codec.half),
})));
"""


@pytest.fixture(scope="module")
def node() -> dict[str, Any]:
    """Everything that Node computes, in one run; and what it was asked."""
    if not shutil.which("node"):
        pytest.skip("node is not installed; the page's functions are not tested here")
    cases = []
    for length in (1, 2, 9, 40, 512):
        for longest in (codec.LONGEST, 0):
            block = codec.encode(patterns(length, 2), longest)
            cases.append(
                {
                    "block": block,
                    "ask": [[0, h, t] for h in (0, 1) for t in sorted({0, length // 2, length - 1})],
                }
            )
    doc = toy(spaced(TOM), steps=[(1, 0)], config=ROUGH)
    asked = {"cases": cases, "doc": doc, "key": 15}
    command = ["node", "--input-type=module", "--eval", NODE, str(assemble.ASSETS)]
    done = subprocess.run(
        command, input=json.dumps(asked), capture_output=True, text=True, timeout=60, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    return {"asked": asked, **json.loads(done.stdout)}


def test_node_reads_the_same_weights(node: dict[str, Any]) -> None:
    for case, rows in zip(node["asked"]["cases"], node["rows"], strict=True):
        decoded = codec.decode(case["block"])
        for (layer, head, t), row in zip(case["ask"], rows, strict=True):
            np.testing.assert_allclose(row, decoded[layer, head, t, : t + 1], atol=2e-7)
            assert sum(row) == pytest.approx(1, abs=1e-6)


def test_node_steps_equal_the_trace(node: dict[str, Any]) -> None:
    doc, t, got = node["asked"]["doc"], node["asked"]["key"], node["steps"]
    trace: dict[str, np.ndarray] = {}
    forward(weights(ROUGH), ROUGH, np.array(doc["text"]["ids"]), trace)
    at = {
        name.removeprefix("blocks.1.attn."): value[0]
        for name, value in trace.items()
        if name.startswith("blocks.1.attn.")
    }
    near: Any = {"rtol": 2e-3, "atol": 4e-3}  # q, k and v travel in float16
    np.testing.assert_allclose(got["qRaw"], at["q_raw"][t], **near)
    np.testing.assert_allclose(got["qNorm"], at["q_norm"][t], **near)
    np.testing.assert_allclose(got["qRope"], at["q"][t], **near)
    np.testing.assert_allclose(got["kRope"], at["k"][: t + 1], **near)
    np.testing.assert_allclose(got["scaled"], at["scaled"][t, : t + 1], atol=1e-2)
    np.testing.assert_allclose(got["dots"], at["dots"][t, : t + 1], atol=4e-2)
    np.testing.assert_allclose(got["weights"], at["pattern"][t, : t + 1], atol=2e-3)
    np.testing.assert_allclose(got["mixed"], at["z"][t], atol=1e-2)
    result = doc["qkv"]["heads"][0]
    assert result["result_norm"][t] == pytest.approx(np.linalg.norm(at["result"][t]), rel=1e-3)
    np.testing.assert_allclose(result["result_start"][t], at["result"][t][:6], rtol=2e-3, atol=1e-6)


def test_node_tile_keeps_the_largest(node: dict[str, Any]) -> None:
    pattern, n = codec.decode(node["asked"]["doc"])[0, 0], 8
    length, want = len(pattern), np.zeros((n, n))
    for t in range(length):
        for j in range(t + 1):
            cell = t * n // length, j * n // length
            want[cell] = max(want[cell], pattern[t, j])
    tile = np.reshape([node["tile"]["out"][str(i)] if isinstance(node["tile"]["out"], dict) else node["tile"]["out"][i] for i in range(n * n)], (n, n))  # fmt: skip
    np.testing.assert_allclose((tile / 255) ** 2, want, atol=0.01)


def test_node_arithmetic(node: dict[str, Any]) -> None:
    np.testing.assert_allclose(node["softmax"][0], [0.659001, 0.242433, 0.098566], atol=5e-7)
    np.testing.assert_allclose(node["softmax"][1], [0.7310586, 0.2689414], atol=5e-7)
    np.testing.assert_allclose(node["softmax"][2], [0.842034, 0.113957, 0.041922, 0.002087], atol=5e-7)
    assert node["softmax"][3] == ["NaN"]
    assert node["entropy"] == pytest.approx(np.log(64))
    assert node["histogram"] == [1, 0, 2, 1]
    np.testing.assert_allclose(node["spread"], [1, 8, np.sqrt(512)], rtol=0.05)
    assert node["half"][:3] == [1, -2, 2.0**-24]
    assert node["readout"] == {
        "start": 0.5,
        "previous": 0.125,
        "self": 0.25,
        "other": 0.125,
        "future": 0,
        "sum": 1,
    }
    assert node["first"]["start"] == 1


def test_node_plane(node: dict[str, Any]) -> None:
    she = EXAMPLES["S3-12"].exact
    np.testing.assert_allclose(node["plane"]["scores"], she["scores"], atol=5e-7)
    np.testing.assert_allclose(node["plane"]["weights"], she["weights"], atol=5e-7)
    np.testing.assert_allclose(node["plane"]["colour"], she["output"], atol=5e-7)
    np.testing.assert_allclose(node["twice"], [0.998244, 0.000688, 0.000021, 0.001047], atol=5e-7)
    np.testing.assert_allclose(node["zero"]["weights"], [0.25] * 4)
    np.testing.assert_allclose(node["zero"]["colour"], [0.375] * 3)
    np.testing.assert_allclose(node["nobody"]["scores"], [-3, -5, -6, -9], atol=1e-9)
    np.testing.assert_allclose(node["normed"][0], node["normed"][1], atol=1e-5)  # a long query does nothing
    q, keys = rms_norm([1.4, 0.7]), rms_norm([[1.6, 0.9], [-1.2, 1.3], [-1.5, -0.6], [0.4, -1.6]])
    np.testing.assert_allclose(node["normed"][0], softmax(keys @ q), atol=1e-5)


def test_node_mask_and_costs(node: dict[str, Any]) -> None:
    assert node["mask"] == [True, False, False]
    assert node["maskRow"] == [0.5, 0.5, 0]
    assert node["blind"] == ["NaN", "NaN"]
    assert node["cost"] == {"all": 262144, "kept": 131328, "masked": 130816, "total": 12582912}
    assert node["window"] == [147456, 294912, 589824, 1179648, 2359296, 4718592, 9437184]
    assert node["layer"] == 589824


def test_node_words(node: dict[str, Any]) -> None:
    assert node["visible"] == ["⏎", "⇥", "␣", "Tom", "␣␣", "␀", "⟨202E⟩", "∅", "a b", "␡", "⟨85⟩"]
    assert node["lettered"] == [["◆", "К₁", "К₂К₁", "К₂", " x", "😀₁₂", "😀₃₄a"], ["⟨D0⟩"]]
    assert node["number"] == ["1,234,567.9", "1\u00a0234\u00a0567,9", "1234", "0.00", "−3", "NaN"]
    assert node["hash"] == {"lang": "ru", "ex": "a&b=c#%", "t": "0"}
    assert node["bad"] == {}
    assert node["whole"] == [3, 8, 5, 5]
    assert node["xml"] == "&#60;a b=&#39;&#34;&#39;&#62;&#38;\ufffd"


def test_scripts_share_one_scope() -> None:
    """In the page all scripts are one, and so are the worker's: no two files may declare one name. No template may break."""
    if not shutil.which("node"):
        pytest.skip("node is not installed; the joined script is not read here")
    script = assemble.script(list(dict.fromkeys([*assemble.SCRIPTS, *assemble.WORKER])))
    done = subprocess.run(
        ["node", "--input-type=module", "--check"], input=script, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert all(line.count("`") % 2 == 0 for line in script.splitlines())


def test_functions_are_short() -> None:
    """No function of the page is longer than 60 lines; the formatter puts its end under its beginning."""
    head = re.compile(
        r"^( *)(?:(?!if|for|while|switch|catch|}).*=>|(?:(?:export |async )*function|#?\w+\().*\)) \{$"
    )
    for path in assemble.ASSETS.glob("*.js"):
        lines = path.read_text("utf-8").splitlines()
        for start, line in enumerate(lines):
            if found := head.match(line):
                end = next(n for n in range(start, len(lines)) if lines[n].startswith(found[1] + "}"))
                assert end - start < 60, f"{path.name}:{start + 1}"


def test_base64_is_plain() -> None:
    assert base64.b64decode(codec.pack(b"x"))[:2] == b"\x1f\x8b"
