"""Translate between client formats and upstreams that only know chat completions. Does no I/O."""

from burnish.proxy.surfaces.writing import AnswerWriter
from burnish.proxy.translation.formats import CHAT_PATH, TRANSLATIONS, error_as, with_history
from burnish.proxy.translation.reading import ChatReader

__all__ = ["CHAT_PATH", "TRANSLATIONS", "AnswerWriter", "ChatReader", "error_as", "with_history"]
