"""Shards: what is written is read back, and every kind of damage is named in one line."""

import json
from pathlib import Path

import numpy as np
import pytest

from rostok.errors import UserError
from rostok.text.shards import ShardWriter, open_data, token_dtype, verify, whole, write_data
from rostok.text.tokenizer import load_tokenizer, train_tokenizer

TEXTS = ["the cat sat on the mat", "a literal <|endoftext|> is text", "Кошка сидит на ковре", "x", "the end"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokenizer = train_tokenizer(TEXTS * 5, 300)
    write_data(
        tmp_path / "data", {"train": whole(TEXTS), "valid": whole(TEXTS[:2])}, tokenizer, {"source": "a test"}
    )
    return tmp_path / "data"


def change(folder: Path, key: str, value: object, shard: int | None = None) -> None:
    """Write another value into the manifest."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    (manifest if shard is None else manifest["shards"][shard])[key] = value
    path.write_text(json.dumps(manifest))


def test_texts_come_back(folder: Path) -> None:
    tokenizer = train_tokenizer(TEXTS * 5, 300)
    data = verify(folder)
    train = data.split("train")
    assert (len(train), len(data.split("valid"))) == (5, 2)
    for i, text in enumerate(TEXTS):
        ids = train.text(i).tolist()
        assert ids == [0, *tokenizer.encode(text)]
        assert tokenizer.decode(ids[1:]) == text
    assert train.tokens == sum(len(tokenizer.encode(text)) + 1 for text in TEXTS)
    assert train.bytes == sum(len(text.encode()) for text in TEXTS)
    assert (data.tokenizer_name, data.tokenizer_sha256) == (tokenizer.name, tokenizer.sha256)
    assert (data.vocab_size, data.start_id, data.manifest["source"]) == (300, 0, "a test")
    with pytest.raises(IndexError):
        train.text(5)


def test_files_are_plain_npy(folder: Path) -> None:
    ids = np.load(folder / "train-00000.npy", allow_pickle=False)
    offsets = np.load(folder / "train-00000.offsets.npy", allow_pickle=False)
    assert (ids.dtype, offsets.dtype) == (np.uint16, np.int64)
    assert np.flatnonzero(ids == 0).tolist() == offsets[:-1].tolist()
    assert offsets[-1] == len(ids)


def test_maps_are_read_only_views_opened_once(folder: Path) -> None:
    data = open_data(folder)
    view = data.split("train").text(0)
    assert not view.flags.writeable
    assert np.shares_memory(view, data.split("train").arrays[0])


def test_split_hash_does_not_depend_on_the_folder(folder: Path, tmp_path: Path) -> None:
    again = write_data(tmp_path / "b", {"train": whole(TEXTS)}, train_tokenizer(TEXTS * 5, 300))
    other = write_data(tmp_path / "c", {"train": whole(TEXTS[::-1])}, train_tokenizer(TEXTS * 5, 300))
    assert (
        again.split("train").sha256 == open_data(folder).split("train").sha256 != other.split("train").sha256
    )


def test_many_shards_and_texts_in_parts(tmp_path: Path) -> None:
    """Shards close at the first end of a text behind their size; a text never lies in two."""
    rng = np.random.default_rng(0)
    texts = [rng.integers(1, 500, size).astype(np.uint32) for size in (5, 40, 3, 18, 1, 7)]
    with ShardWriter(tmp_path, "train", 500, 0, shard_tokens=20) as writer:
        for ids in texts:
            writer.add(ids[:2], 10, last=False)
            writer.add(ids[2:], 10, last=True)
    assert [shard["texts"] for shard in writer.shards] == [2, 2, 2]
    assert [shard["tokens"] for shard in writer.shards] == [47, 23, 10]
    (tmp_path / "manifest.json").write_text(json.dumps(manifest_of(writer, 500)))
    split = verify(tmp_path).split("train")
    for i, ids in enumerate(texts):
        assert split.text(i).tolist() == [0, *ids]
    assert split.starts.tolist() == np.cumsum([0, *(len(ids) + 1 for ids in texts)]).tolist()


def manifest_of(writer: ShardWriter, vocab_size: int) -> dict[str, object]:
    totals = {key: sum(s[key] for s in writer.shards) for key in ("texts", "tokens", "bytes")} | {
        "sha256": ""
    }
    return {
        "format": "rostok-shards",
        "version": 1,
        "dtype": token_dtype(vocab_size).name,
        "tokenizer": {"name": "a test", "vocab_size": vocab_size, "sha256": "abc"},
        "start_id": 0,
        "splits": {"train": totals},
        "shards": writer.shards,
    }


@pytest.mark.parametrize(
    ("vocab_size", "dtype"), [(65_536, np.uint16), (65_537, np.uint32), (100_277, np.uint32)]
)
def test_large_ids_are_never_wrapped(tmp_path: Path, vocab_size: int, dtype: type) -> None:
    """C09: the header says the type; the largest id survives; one beyond is a bug, and said."""
    with ShardWriter(tmp_path, "train", vocab_size, 0) as writer:
        writer.add(np.array([1, vocab_size - 1], dtype=np.uint32), 2)
        with pytest.raises(ValueError, match="does not fit"):
            writer.add(np.array([vocab_size], dtype=np.uint32), 1)
    ids = np.load(tmp_path / "train-00000.npy", allow_pickle=False)
    assert ids.dtype == dtype
    assert ids.tolist() == [0, 1, vocab_size - 1]
    (tmp_path / "manifest.json").write_text(json.dumps(manifest_of(writer, vocab_size)))
    assert verify(tmp_path).split("train").text(0).tolist() == [0, 1, vocab_size - 1]


def test_id_beyond_the_vocabulary_is_named(folder: Path) -> None:
    """C08: the id, its position, the tokenizer."""
    ids = np.load(folder / "train-00000.npy", allow_pickle=False)
    ids[7] = 999
    np.save(folder / "train-00000.npy", ids)
    with pytest.raises(
        UserError, match=r"train-00000.npy has the id 999 at position 7.*bpe-300 has only 300"
    ):
        verify(folder)


def test_other_tokenizer_is_refused_with_both_names(folder: Path) -> None:
    data, tokenizer = open_data(folder), load_tokenizer(folder)
    data.check_tokenizer(tokenizer)
    data.vocab_size += 1
    with pytest.raises(UserError, match="says 301 ids, its tokenizer has 300"):
        data.check_tokenizer(tokenizer)
    tokenizer.name, tokenizer.sha256 = "gpt2", "0123456789abcdef"
    with pytest.raises(
        UserError, match=rf"bpe-300 \({data.tokenizer_sha256[:12]}\), wanted gpt2 \(0123456789ab\)"
    ):
        data.check_tokenizer(tokenizer)


def test_changed_shard_is_refused(folder: Path) -> None:
    ids = np.load(folder / "valid-00000.npy", allow_pickle=False)
    ids[3] = ids[3] % 290 + 1
    np.save(folder / "valid-00000.npy", ids)
    with pytest.raises(UserError, match="valid-00000.npy was changed"):
        verify(folder)


def test_changed_offsets_are_refused(folder: Path) -> None:
    offsets = np.load(folder / "train-00000.offsets.npy", allow_pickle=False)
    offsets[1] += 1
    np.save(folder / "train-00000.offsets.npy", offsets)
    with pytest.raises(UserError, match="does not point at"):
        verify(folder)


def test_truncated_shard_is_refused_when_it_is_opened(folder: Path) -> None:
    path = folder / "train-00000.npy"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(UserError, match=r"train-00000.npy cannot be read .*--force"):
        open_data(folder).split("train")


def test_wrong_type_and_missing_file(folder: Path) -> None:
    np.save(folder / "train-00000.npy", np.zeros(3, dtype=np.uint32))
    with pytest.raises(UserError, match=r"train-00000.npy holds \(3,\) of uint32, the manifest says"):
        open_data(folder).split("train")
    (folder / "train-00000.npy").unlink()
    with pytest.raises(UserError, match="No such file"):
        open_data(folder).split("train")


def test_pickled_array_is_refused(folder: Path) -> None:
    np.save(folder / "train-00000.npy", np.array([{}], dtype=object), allow_pickle=True)  # a hostile file
    with pytest.raises(UserError, match="cannot be read"):
        open_data(folder).split("train")


@pytest.mark.parametrize(
    "name", ["../train-00000.npy", "/etc/x.npy", "a/b.npy", "..", "a\\b.npy", "c:x.npy", "x.txt"]
)
@pytest.mark.parametrize("key", ["file", "offsets"])
def test_manifest_names_stay_in_the_folder(folder: Path, key: str, name: str) -> None:
    change(folder, key, name, shard=0)
    with pytest.raises(UserError, match="only .npy files of its own folder"):
        open_data(folder)


def test_other_version_is_refused(folder: Path) -> None:
    change(folder, "version", 2)
    with pytest.raises(UserError, match="rostok-shards version 2, wanted rostok-shards version 1"):
        open_data(folder)


def test_damaged_manifest_is_refused(folder: Path) -> None:
    change(folder, "dtype", "float32")
    with pytest.raises(UserError, match="neither uint16 nor uint32"):
        open_data(folder)
    (folder / "manifest.json").write_text('{"format": "rostok-shards", "version": 1}')
    with pytest.raises(UserError, match="is damaged"):
        open_data(folder)
    (folder / "manifest.json").write_text("{")
    with pytest.raises(UserError, match="is damaged"):
        open_data(folder)


def test_missing_folder_and_split(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no prepared data in .*prepare.py"):
        open_data(tmp_path / "nothing")
    with pytest.raises(UserError, match="no split test, only train, valid"):
        open_data(folder).split("test")
