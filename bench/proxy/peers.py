"""The proxies: burnish and others, installed as their makers recommend."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from bench.proxy.traffic import (
    HERE,
    PROXY_CORE,
    START_LIMIT_S,
    CannotMeasure,
    environment,
    free_port,
    pinned,
    wait_for,
)


@dataclass(frozen=True, slots=True)
class Peer:
    """A proxy: how it is installed, and what starts it."""

    name: str
    command: Callable[[Path, str, int], Sequence[str]]
    """(its folder, the upstream's URL, its port) → what to run; may write its configuration into the folder."""
    install: Callable[[Path], None] = lambda folder: None
    """Into its folder. Raises CannotMeasure."""
    environment: Callable[[Path, str], dict[str, str]] = lambda folder, upstream: {}
    options: Callable[[str], tuple[str, ...]] = lambda upstream: ()
    """What requests to it need otherwise, for the load generator."""
    ready: str = "/health"
    fresh: bool = False
    """Whether its folder is new in each run, so that its log is; else it is kept, so that it is installed once."""
    says: str = ""
    """A file in its folder that will hold its URL: it picks its port itself."""


@contextmanager
def running(peer: Peer, folder: Path, upstream: str) -> Iterator[tuple[int, int]]:
    """Run a peer on a core of its own; yield its port and process id. Raises CannotMeasure."""
    port = free_port()
    log = folder / "output.txt"
    if peer.says:
        (folder / peer.says).unlink(missing_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            pinned([*peer.command(folder, upstream, port)], PROXY_CORE),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            env=environment(**peer.environment(folder, upstream)),
            process_group=0,  # npx starts the gateway as a child of its own
        )
    try:
        if peer.says:
            port = _said(folder / peer.says, process)
        wait_for(f"http://127.0.0.1:{port}{peer.ready}", process)
        yield port, process.pid
    except CannotMeasure as error:
        raise CannotMeasure(f"{peer.name}: {error}\n{log.read_text(errors='replace')[-2000:]}") from error
    finally:
        with suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _said(file: Path, process: subprocess.Popen[bytes]) -> int:
    """Return the port that a peer writes down. Raises CannotMeasure."""
    deadline = time.monotonic() + START_LIMIT_S
    while not (file.exists() and (url := urlsplit(file.read_text())).port):
        if process.poll() is not None or time.monotonic() > deadline:
            raise CannotMeasure("it did not say where it listens")
        time.sleep(0.1)
    return url.port


def _from_pypi(*packages: str) -> Callable[[Path], None]:
    def install(folder: Path) -> None:
        if (folder / "bin" / "python").exists():
            return
        uv = Path(sys.executable).with_name("uv")
        same = ("--python", sys.executable)
        subprocess.run([uv, "venv", "-q", "--allow-existing", *same, folder], check=True)
        subprocess.run(
            [uv, "pip", "install", "-q", "--python", folder / "bin" / "python", *packages], check=True
        )

    return install


def _nginx(folder: Path, upstream: str, port: int) -> list[str]:
    (folder / "nginx.conf").write_text(f"""
{"user root;" if os.geteuid() == 0 else ""}
worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log {folder}/access.log;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  upstream engine {{ server {upstream.removeprefix("http://")}; keepalive 256; }}
  server {{
    listen 127.0.0.1:{port}; client_max_body_size 64m; client_body_buffer_size 128k;
    location / {{
      proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
    }}
  }}
}}
""")
    return [_nginx_program(folder) or "nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")]


def _nginx_program(folder: Path) -> str | None:
    own = folder / "usr" / "sbin" / "nginx"
    return str(own) if own.exists() else shutil.which("nginx")


def _install_nginx(folder: Path) -> None:
    """Into the folder alone, which needs no rights; only where there is none yet."""
    if _nginx_program(folder):
        return
    try:
        subprocess.run(["apt-get", "download", "-qq", "nginx"], cwd=folder, check=True)
        package = next(folder.glob("nginx_*.deb"))
        subprocess.run(["dpkg", "-x", str(package), str(folder)], check=True)
    except (OSError, subprocess.CalledProcessError, StopIteration) as error:
        raise CannotMeasure("nginx is missing: apt-get install nginx") from error


def _tensorzero(folder: Path, upstream: str, port: int) -> list[str]:
    (folder / "tensorzero.toml").write_text(f"""
[gateway]
observability.enabled = false
[models.mock]
routing = ["mock"]
[models.mock.providers.mock]
type = "openai"
model_name = "mock"
api_base = "{upstream}/v1/"
api_key_location = "none"
""")
    # The wheel holds the gateway itself; its client starts it in its own process, on a port that it picks.
    start = (
        "import pathlib, threading\nfrom tensorzero import tensorzero\n"
        f"kept = tensorzero._start_http_gateway(config_file={str(folder / 'tensorzero.toml')!r}, clickhouse_url=None, "
        "postgres_url=None, valkey_url=None, async_setup=False)\n"
        "pathlib.Path('url.txt').write_text(kept.base_url)\n"
        "threading.Event().wait()\n"
    )
    return [str(folder / "bin" / "python"), "-c", start]


def _litellm(folder: Path, upstream: str, port: int) -> list[str]:
    (folder / "litellm.yaml").write_text(f"""
model_list:
  - model_name: mock
    litellm_params: {{ model: openai/mock, api_base: "{upstream}/v1", api_key: none }}
""")
    return [
        str(folder / "bin" / "litellm"),
        *(
            "--config",
            str(folder / "litellm.yaml"),
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--num_workers",
            "1",
        ),
    ]


def _litellm_environment(folder: Path, upstream: str) -> dict[str, str]:
    # It wants a key since 2026; the others here have none.
    return {"LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}


def _portkey(folder: Path) -> None:
    if not shutil.which("npm"):
        raise CannotMeasure("npm is missing: apt-get install npm")
    subprocess.run(["npm", "install", "--silent", "--prefix", folder, "@portkey-ai/gateway"], check=True)


def _burnish(folder: Path, upstream: str, port: int) -> list[str]:
    return [sys.executable, "-m", "burnish", "up", "--port", str(port), "--data-dir", str(folder / "data")]


def _burnish_environment(folder: Path, upstream: str) -> dict[str, str]:
    (folder / "config.toml").touch()
    return {
        "BURNISH_CONFIG": str(folder / "config.toml"),
        "BURNISH_UPSTREAM": upstream,
        "BURNISH_ENGINE": "none",
        "BURNISH_MODEL": "mock",
    }


def _router(program: str, *before: str) -> Callable[[Path, str, int], Sequence[str]]:
    return lambda folder, upstream, port: [
        str(folder / "bin" / program),
        *before,
        *("--worker-urls", upstream, "--host", "127.0.0.1", "--port", str(port)),
        *("--prometheus-port", str(free_port())),
    ]


def _floor(folder: Path, upstream: str, port: int) -> list[str]:
    options = (
        "--no-access-log",
        "--no-proxy-headers",
        "--loop",
        "uvloop",
        "--http",
        "httptools",
        "--backlog",
        "2048",
    )
    program = [sys.executable, "-m", "uvicorn", "floor:app", "--app-dir", str(HERE)]
    return [*program, *options, "--port", str(port)]


def at_commit(name: str) -> Peer:
    """Return burnish as it was at a commit: its dependencies, in today's versions."""

    def install(folder: Path) -> None:
        root = HERE.parents[1]
        archive = subprocess.run(["git", "archive", name], cwd=root, capture_output=True, check=False)
        if archive.returncode:
            raise CannotMeasure(f"no commit {name}: {archive.stderr.decode().strip()}")
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        _from_pypi("-r", str(folder / "pyproject.toml"), "-c", str(root / "constraints.txt"))(folder)

    def command(folder: Path, upstream: str, port: int) -> list[str]:
        return [str(folder / "bin" / "python"), *_burnish(folder, upstream, port)[1:]]

    def variables(folder: Path, upstream: str) -> dict[str, str]:
        return _burnish_environment(folder, upstream) | {"PYTHONPATH": str(folder / "src")}

    return Peer(name, command, install=install, environment=variables, ready="/healthz", fresh=True)


BURNISH = Peer("burnish", _burnish, environment=_burnish_environment, ready="/healthz", fresh=True)
FLOOR = Peer("floor", _floor, environment=lambda folder, upstream: {"FLOOR_UPSTREAM": upstream}, fresh=True)
PEERS = (
    BURNISH,
    FLOOR,
    Peer("nginx", _nginx, install=_install_nginx, ready="/stats"),
    Peer("sglang-router", _router("sglang-router", "launch"), install=_from_pypi("sglang-router")),
    Peer("vllm-router", _router("vllm-router"), install=_from_pypi("vllm-router")),
    Peer("smg", _router("smg", "launch"), install=_from_pypi("smg")),
    Peer(
        "tensorzero",
        _tensorzero,
        install=_from_pypi("tensorzero"),
        options=lambda upstream: ("path=/openai/v1/chat/completions", "model=tensorzero::model_name::mock"),
        says="url.txt",
    ),
    Peer(
        "portkey",
        lambda folder, upstream, port: [
            "npx",
            "--prefix",
            str(folder),
            "gateway",
            "--headless",
            f"--port={port}",
        ],
        install=_portkey,
        options=lambda upstream: (
            f"header=x-portkey-provider: openai\r\nx-portkey-custom-host: {upstream}/v1",
        ),
        ready="/",
    ),
    Peer(
        "litellm",
        _litellm,
        install=_from_pypi("litellm[proxy]"),
        environment=_litellm_environment,
        ready="/health/liveliness",
    ),
)
