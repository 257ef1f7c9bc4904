"""Names, addresses and ports, as they are typed: what no certificate and no proxy can use is refused."""

import re
from ipaddress import ip_address

from lidfl.errors import LidflError

LABEL = r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
NAME = re.compile(rf"(\*\.)?({LABEL}\.)*{LABEL}", re.IGNORECASE | re.ASCII)
"""A name as certificates have it, or all names below one."""
LONGEST = 253
LAST_PORT = 65535


def check_host(host: str) -> None:
    """Refuse what is neither a name nor an address."""
    if not (is_address(host) or is_name(host)):
        raise LidflError(
            f"{host[:80]!r} is neither a name nor an address; say --hosts federation.example.org 10.0.0.1"
        )


def check_port(port: int) -> None:
    """Refuse what is no port."""
    if not 1 <= port <= LAST_PORT:
        raise LidflError(f"--port must be from 1 to {LAST_PORT}, not {str(port)[:20]}")


def check_public(public: str) -> None:
    """Refuse where a proxy cannot listen: what is written into its configuration must not be more than a place."""
    host, colon, port = public.rpartition(":")
    place = not colon or host == "*" or is_name(host) or is_address(host.removeprefix("[").removesuffix("]"))
    if not (place and re.fullmatch("[0-9]{1,5}", port) and 1 <= int(port) <= LAST_PORT):
        raise LidflError(f"the proxy cannot listen at {public[:80]!r}; say --public 0.0.0.0:9443")


def is_address(host: str) -> bool:
    """Whether this is an address of version 4 or 6."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def is_name(host: str) -> bool:
    """Whether this is a name; what ends in digits alone would be read as an address, and is a mistyped one."""
    return len(host) <= LONGEST and bool(NAME.fullmatch(host)) and not host.rpartition(".")[2].isdigit()
