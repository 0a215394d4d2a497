"""How long a frame may be, by where it travels. Checked before a frame is read."""

from __future__ import annotations

from typing import Final

GOSSIP_BYTES_MAX: Final = 64 << 10
CONTROL_BYTES_MAX: Final = 1 << 20
WORK_BYTES_MAX: Final = 16 << 20
SIGNAL_BYTES_MAX: Final = 256
