"""What burnish says about itself while it runs: how much, and the file in the data directory that keeps it."""

from __future__ import annotations

import errno
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

from burnish.config.config import Config
from burnish.proxy.log.credentials import without_credentials
from burnish.proxy.plain import plain
from burnish.proxy.rate_limited import RateLimited

logger = logging.getLogger(__name__)

# Months of events; a day of requests at "debug".
FILE_BYTES = 1_000_000
OLDER_FILES = 4
FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def set_level(name: str) -> None:
    """Log burnish's own records from a level on, those of libraries only from "warning" on."""
    level = logging.getLevelNamesMapping()[name.upper()]
    logging.getLogger("burnish").setLevel(level)
    logging.getLogger().setLevel(max(level, logging.WARNING))


@contextmanager
def kept(config: Config) -> Iterator[None]:
    """Keep what is logged within the block in ``Config.program_log``."""
    keys = (config.api_key, config.admin_key, config.upstream_api_key)
    file = _File(config.program_log)
    file.setFormatter(_Line([key.get_secret_value() for key in keys if key]))
    handler = RateLimited(file)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        with suppress(OSError):
            handler.close()


class _Line(logging.Formatter):
    """One line for each record, and no key; a traceback has more lines."""

    def __init__(self, keys: Sequence[str]) -> None:
        super().__init__(FORMAT)
        self._keys = keys

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = record.message.replace("\n", "\\n")
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        text = without_credentials(plain(super().format(record)))
        for key in self._keys:
            text = text.replace(key, "…")
        return text


class _File(RotatingFileHandler):
    """A file that may be missing. A fault is logged once, until a record is written again."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            path,
            maxBytes=FILE_BYTES,
            backupCount=OLDER_FILES,
            encoding="utf-8",
            delay=True,
            errors="backslashreplace",
        )
        self._fault: str | None = None
        self._reported: str | None = None

    def emit(self, record: logging.LogRecord) -> None:
        self._fault = None
        super().emit(record)
        if self._fault is None:
            self._reported = None
        elif self._reported is None:
            self._reported = self._fault
            # This record can't be written either, and isn't reported again.
            logger.warning(
                "%s can't be written (%s), so events are only printed", self.baseFilename, self._fault
            )

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exception()
        self._fault = (error.strerror if isinstance(error, OSError) else None) or repr(error)

    def _open(self) -> TextIOWrapper:
        path = Path(self.baseFilename)
        if path.exists() and not path.is_file():
            raise OSError(errno.EINVAL, "it isn't a regular file")  # a FIFO would block burnish
        return super()._open()
