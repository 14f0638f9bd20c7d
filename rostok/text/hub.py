"""Files of a data set on the Hugging Face hub: downloaded once into the hub's cache, size and hash checked.

    path = fetch(TINYSTORIES, TINYSTORIES.train)

Left out: uploading, private data sets.
"""

import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rostok.errors import UserError
from rostok.text.shards import file_sha256


@dataclass(frozen=True)
class HubFile:
    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class HubDataset:
    """Two files of a data set at one revision, with the size and hash that they must have."""

    repo: str
    revision: str
    train: HubFile
    valid: HubFile


TINYSTORIES = HubDataset(
    repo="roneneldan/TinyStories",
    revision="f54c09fd23315a6f9c86f9dc80f725de7d8f9c64",
    train=HubFile(
        "TinyStoriesV2-GPT4-train.txt",
        2_227_753_162,
        "6418d412de72888f52b5142c761ac21a582f7d1166f0bfbdb5f03ccfdec90443",
    ),
    valid=HubFile(
        "TinyStoriesV2-GPT4-valid.txt",
        22_502_601,
        "6874bae9a4c1a4e7edcf0e53b86c17817e9cf881fc75ff2368da457b80c0585d",
    ),
)


def fetch(dataset: HubDataset, file: HubFile) -> Path:
    """The path of a file in the hub's local cache. A broken download goes on where it stopped.

    Raises UserError without network, and for a file that is not the one expected.
    """
    try:
        path = Path(_download(dataset, file))
    except Exception as error:  # the hub's client raises errors of several libraries
        reason = " ".join(str(error).split())[:120]
        raise UserError(
            f"{file.name} of {dataset.repo} could not be downloaded ({type(error).__name__}: {reason}); "
            "connect once, or stay offline with --source stories"
        ) from None
    found = (path.stat().st_size, file_sha256(path))
    if found != (file.size, file.sha256):
        raise UserError(
            f"{path} has {found[0]} bytes, sha256 {found[1][:12]}, wanted {file.size}, {file.sha256[:12]}: "
            "delete it and start again"
        )
    return path


def _download(dataset: HubDataset, file: HubFile) -> str:
    import huggingface_hub as hub

    hub.logging.set_verbosity_error()  # no message for each of its retries
    download = partial(
        hub.hf_hub_download, dataset.repo, file.name, repo_type="dataset", revision=dataset.revision
    )
    try:
        return download(local_files_only=True)
    except hub.errors.LocalEntryNotFoundError:
        _require_answer(hub.constants.ENDPOINT)
        return download()


def _require_answer(url: str) -> None:
    """Raise OSError unless the address answers within seconds; the hub's client would try for half a minute."""
    try:
        urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=10).close()
    except urllib.error.HTTPError:
        pass  # an answer, whatever it says
    except urllib.error.URLError as error:
        if not isinstance(error.reason, ssl.SSLError):
            raise ConnectionError(f"{url} does not answer: {error.reason}") from None
