"""Tells systemd in words how burnish fares; it keeps them when the program has ended."""

from __future__ import annotations

import os
import socket
from contextlib import suppress


def tell_status(message: str) -> None:
    """sd_notify(3), if this process was started by systemd."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address.startswith("@"):  # a name outside the file system
        address = "\0" + address[1:]
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.connect(address)
        end.send(f"STATUS={' '.join(message.split())}".encode())
