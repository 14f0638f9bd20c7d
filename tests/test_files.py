"""rostok/files.py: files are there whole or not at all, and what may not be written is refused before the work."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rostok.errors import UserError
from rostok.files import check_folder, check_out, hidden_names, new_folder, replacing, write_file, write_out


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("durable", [False, True])
def test_a_file_is_replaced_at_once(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "a.txt"
    for content in ("ёж\n", b"\x00\r\n"):
        write_file(path, content, durable)
        assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)
        assert names(tmp_path) == {"a.txt"}


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(FileNotFoundError), replacing(path) as beside:
        beside.with_name("none").rename(beside)
    assert path.read_text() == "old"
    assert names(tmp_path) == {"a.txt"}


def test_a_link_keeps_its_place(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "a.txt", tmp_path / "link.txt"
    target.write_text("old")
    link.symlink_to(target)
    write_file(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_pipe_is_written_through(tmp_path: Path) -> None:
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()))
    reader.start()
    write_file(pipe, "text")
    reader.join(10)
    assert got == ["text"]
    assert pipe.is_fifo()
    assert check_out(pipe) == pipe


def test_a_device_stays_a_device() -> None:
    write_out(Path(os.devnull), "text")
    assert not Path(os.devnull).is_file()


def test_folders_above_are_made_and_a_full_disk_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_out(tmp_path / "a" / "b" / "c.txt", "text")
    assert (tmp_path / "a" / "b" / "c.txt").read_text() == "text"
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot write .*file/c.txt: .*; give another --json"):
        write_out(tmp_path / "file" / "c.txt", "text", "--json")


def test_a_folder_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    with pytest.raises(FileNotFoundError), new_folder(out) as beside:
        (beside / "none").rename(beside / "half")
    assert names(out.parent) == set()
    with new_folder(out) as beside:
        (beside / "one").touch()
    assert names(out) == {"one"}
    with pytest.raises(UserError, match="cannot write .*out: .*; give another --out"), new_folder(out):
        pass
    with new_folder(out, replace=True) as beside:
        (beside / "two").touch()
    assert names(out) == {"two"}
    assert names(out.parent) == {"out"}


def test_what_may_not_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.png").touch()
    assert check_out(None) is None
    assert check_out(tmp_path / "b.PNG", (".png",)) == tmp_path / "b.PNG"
    assert check_out(str(tmp_path / "a.png"), (".png",), force=True) == tmp_path / "a.png"
    for word, message in {
        "": "--plot must name a file. Got ''",
        str(tmp_path): "--plot must name a file. Got",
        str(tmp_path / "a.gif"): "--plot must end in one of .png, .svg. Got .*a.gif",
        str(tmp_path / "a.png" / "b.png"): "--plot .*b.png lies below a file, not a folder",
        str(tmp_path / "a.png"): "a.png exists; give --force to overwrite it, or another --plot",
    }.items():
        with pytest.raises(UserError, match=message):
            check_out(word, (".png", ".svg"), flag="--plot")


def ended_process() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_what_a_killed_process_left_is_swept(tmp_path: Path) -> None:
    """Only names of that form, of processes that have ended; what others wrote stays."""
    out, gone = tmp_path / "out", ended_process()
    stays = {
        ".out.old",
        ".out.x.tmp",
        f".other.{gone}.tmp",
        f".out.{os.getppid()}.tmp",
        f".out.{gone}.tmp.txt",
    }
    for name in stays:
        (tmp_path / name).write_text("mine")
    for folder in (out, *hidden_names(out, gone)):
        folder.mkdir()
        (folder / "half").touch()
    with new_folder(out, replace=True) as beside:
        (beside / "one").touch()
    assert names(tmp_path) == stays | {"out"}
    (tmp_path / f".a.txt.{gone}.tmp").touch()
    write_file(tmp_path / "a.txt", "new")
    assert names(tmp_path) == stays | {"out", "a.txt"}


def test_an_old_folder_whose_successor_never_came_is_brought_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the two renames; and a second rename that fails."""
    out = tmp_path / "out"
    with new_folder(out) as beside:
        (beside / "precious").touch()
    out.rename(hidden_names(out, ended_process())[1])
    with new_folder(tmp_path / "out", replace=True) as beside:
        assert names(out) == {"precious"}
        (beside / "two").touch()
    assert names(out) == {"two"}
    with pytest.raises(UserError, match="cannot write"), new_folder(out, replace=True) as beside:
        beside.rmdir()
    assert names(out) == {"two"}
    assert names(tmp_path) == {"out"}


def test_a_folder_that_may_not_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert check_folder("new/deep") == Path("new/deep")
    for word, message in {
        "": "must name a folder other than the current one",
        ".": "other than the current one and those above. Got '.'",
        "/": "other than the current one and those above",
        "new/..": "other than the current one",
        "file/x": "file/x is below a file",
        "\udcff": "is not UTF-8",
    }.items():
        with pytest.raises(UserError, match=message):
            check_folder(word)
