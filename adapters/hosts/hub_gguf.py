"""Downloads GGUF files from the Hugging Face hub into its cache on this machine.

Serving needs nothing else of huggingface_hub (20 MB installed). Besides, its release 2.4 starts a broken download from
the beginning, and compares only the size when it loads over plain HTTP. The cache has its layout, so other programs
find the files, and `hf cache` lists and deletes them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote, urlsplit

import httpx

from burnish.adapters.errors import EngineError
from burnish.adapters.hosts.download import download
from burnish.adapters.hosts.hub_cache import (
    SPLIT,
    HubModel,
    best,
    cache,
    cached,
    folder_of,
    home,
    is_companion,
    quantisation,
)
from burnish.system import durable

TIMEOUT_S = 30.0
# The hub says 401 to strangers, so that nobody learns which private models there are.
_NO_SUCH_MODEL = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)
_COMMIT, _DIGEST = re.compile("[0-9a-f]{40}"), re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository, as the hub announces it."""

    repo: str
    commit: str
    path: str
    size: int
    sha256: str


def fetched(model: HubModel, on_start: Callable[[HubFile], None], progress: Callable[[int], None]) -> Path:
    """Return the model's file; download it if it isn't in the cache.

    ``on_start`` gets what will be downloaded, and ``progress`` the number of its bytes that are there. Raises
    EngineError, which says what to do.
    """
    if path := cached(model):
        return path
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise EngineError(
            f"{model} isn't in the cache ({cache()}), and HF_HUB_OFFLINE is set: unset it to download the model, or "
            "name a GGUF file on this disk"
        )
    with _client(model) as client:
        file = _announced(client, model)
        on_start(file)
        folder = folder_of(model.repo)
        blob, link = folder / "blobs" / file.sha256, folder / "snapshots" / file.commit / file.path
        try:
            for directory in (blob.parent, link.parent, folder / "refs"):
                directory.mkdir(parents=True, exist_ok=True)
            if not blob.exists():
                url = f"{endpoint()}/{model.repo}/resolve/{file.commit}/{quote(file.path)}"
                download(client, url, blob, size=file.size, sha256=file.sha256, progress=progress)
            if not link.exists():
                link.unlink(missing_ok=True)  # it led to a blob that was deleted
                link.symlink_to(os.path.relpath(blob, link.parent))
            durable.replace(folder / "refs" / "main", file.commit)
        except OSError as error:
            raise EngineError(
                f"{error.filename or folder} can't be written: {error.strerror}; set HF_HOME to a folder of yours"
            ) from error
    return link


def endpoint() -> str:
    """Return the hub's URL, without a slash at its end."""
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def _client(model: HubModel) -> httpx.Client:
    """Return a client that raises EngineError for error statuses. It keeps the token from other hosts (httpx does)."""
    try:
        return httpx.Client(
            headers=_authorisation(),
            timeout=TIMEOUT_S,
            follow_redirects=True,
            event_hooks={"response": [lambda response: _check(response, model)]},
        )
    except (ImportError, ValueError) as error:  # a proxy that httpx doesn't know
        raise EngineError(
            f"the proxy in this shell's environment (HTTPS_PROXY, ALL_PROXY) can't be used: {error}"
        ) from error


def _authorisation() -> dict[str, str]:
    token = os.environ.get("HF_TOKEN", "")
    if not token:  # `hf auth login` writes it there
        try:
            token = Path(os.environ.get("HF_TOKEN_PATH") or home() / "token").read_text(encoding="latin-1")
        except OSError:
            return {}
    token = token.strip()
    if not (token.isascii() and token.isprintable()):
        raise EngineError(
            "HF_TOKEN, or the file of `hf auth login`, has no token in it: make one on the hub's page"
        )
    return {"authorization": f"Bearer {token}"} if token else {}


def _announced(client: httpx.Client, model: HubModel) -> HubFile:
    """Ask the hub for a repository's files, and choose one."""
    host = urlsplit(endpoint()).netloc or endpoint()
    try:
        listing = client.get(f"{endpoint()}/api/models/{model.repo}", params={"blobs": "true"}).json()
        files = {sibling["rfilename"]: sibling for sibling in listing["siblings"]}
        path = _chosen(files, model)
        lfs = files[path]["lfs"]
        file = HubFile(model.repo, str(listing["sha"]), path, int(lfs["size"]), str(lfs["sha256"]))
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise EngineError(
            f"{host} can't be reached ({str(error) or type(error).__name__}): check the network and the proxy. "
            "Without a network, name a GGUF file on this disk, or a model of Ollama as ollama:NAME"
        ) from error
    except (ValueError, LookupError, TypeError) as error:
        raise EngineError(
            f"{host} doesn't answer as the Hugging Face hub does ({error!r}): check the network (a login page?) and "
            "HF_ENDPOINT"
        ) from error
    outside = {"", ".", ".."} & {*path.split("/")}
    if outside or not (_COMMIT.fullmatch(file.commit) and _DIGEST.fullmatch(file.sha256)):
        raise EngineError(f"{host} announces {path!r} of {model.repo} wrongly; nothing was downloaded")
    return file


def _check(response: httpx.Response, model: HubModel) -> None:
    """Raise EngineError for an error status."""
    if not response.is_error:
        return
    host, code = response.url.host, response.headers.get("x-error-code")
    of_hub = host == urlsplit(endpoint()).hostname
    reason = "the token was refused" if "authorization" in response.request.headers else "no token was given"
    if code == "GatedRepo":
        raise EngineError(
            f"{model.repo} is gated, and {reason}: accept its terms at {endpoint()}/{model.repo}, then set HF_TOKEN to "
            "a token of yours that may read it"
        )
    if of_hub and response.status_code in _NO_SUCH_MODEL:
        raise EngineError(
            f"{host} has no model {model.repo}, or it is private ({reason}): check the name, and set HF_TOKEN if it is "
            "private. `burnish models` lists some that work"
        )
    raise EngineError(f"{host} answered {response.status_code} {response.reason_phrase}; try again later")


def _chosen(paths: Iterable[str], model: HubModel) -> str:
    """Return the file of a repository that a user means. Raises EngineError, which lists what there is."""
    weights = [path for path in paths if path.endswith(".gguf") and not is_companion(path)]
    if path := best(weights, model.tag):
        return path
    if not weights:
        raise EngineError(
            f"{model.repo} has no GGUF file: name a repository that has some, often one called …-GGUF; `burnish "
            "models` lists some"
        )
    whole = sorted({quantisation(path) for path in weights if not SPLIT.search(path)})
    there = f"it has {', '.join(whole)}" if whole else "and so are all of them"
    if best([SPLIT.sub(".gguf", path) for path in weights], model.tag):
        raise EngineError(f"{model} is split into several files, which burnish doesn't take; {there}")
    raise EngineError(f"{model.repo} has no {model.tag}; {there}: name one as {model.repo}:NAME")
