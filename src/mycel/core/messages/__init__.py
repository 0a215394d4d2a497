"""What a scheduler and a worker say to each other.

Every message travels on one of two streams between the same two peers: what concerns
registrations and attempts on the *work* stream, where order matters; news on
the *control* stream, so that a full work stream delays neither. A link is both streams; when
one breaks, the link is gone, and a worker starts the next one with `Register`.

Times are readings of the sender's own clock and are only ever echoed or compared with other
readings of the same clock. Fields are only ever added at the end, with a default.
"""

from __future__ import annotations

from .control_stream import (
    FREE_FIELDS,
    Close,
    Closed,
    Load,
    LoadChange,
    load_change,
)
from .membership import (
    Announcement,
    Join,
    PeerRecord,
    Peers,
    Ping,
    Pong,
    Summons,
)
from .message import (
    MESSAGE_BYTES,
    WIRE_VERSION,
    Message,
)
from .work_stream import (
    Accepted,
    Acknowledge,
    Assign,
    Bundle,
    CheckpointPart,
    CheckpointTaken,
    CheckpointWanted,
    Described,
    Dismiss,
    Fetch,
    HeldAttempt,
    Introduce,
    Kill,
    Outcome,
    Progressed,
    Refused,
    Register,
    Renew,
    ResultPart,
    Results,
    Returned,
    Started,
    Streamed,
    Text,
    Welcome,
    Window,
    Withdraw,
    Written,
    announced,
    in_parts,
)

WorkMessage = (
    Register
    | Accepted
    | Refused
    | Started
    | Results
    | Returned
    | Streamed
    | Written
    | Progressed
    | CheckpointPart
    | CheckpointTaken
    | CheckpointWanted
    | Welcome
    | Introduce
    | Assign
    | Withdraw
    | Kill
    | Acknowledge
    | Renew
    | Dismiss
    | ResultPart
    | Fetch
    | Described
)
ControlMessage = Load | LoadChange | Close | Closed | Join | Peers
SignalMessage = Ping | Pong | Summons

__all__ = [
    "FREE_FIELDS",
    "MESSAGE_BYTES",
    "WIRE_VERSION",
    "Accepted",
    "Acknowledge",
    "Announcement",
    "Assign",
    "Bundle",
    "CheckpointPart",
    "CheckpointTaken",
    "CheckpointWanted",
    "Close",
    "Closed",
    "ControlMessage",
    "Described",
    "Dismiss",
    "Fetch",
    "HeldAttempt",
    "Introduce",
    "Join",
    "Kill",
    "Load",
    "LoadChange",
    "Message",
    "Outcome",
    "PeerRecord",
    "Peers",
    "Ping",
    "Pong",
    "Progressed",
    "Refused",
    "Register",
    "Renew",
    "ResultPart",
    "Results",
    "Returned",
    "SignalMessage",
    "Started",
    "Streamed",
    "Summons",
    "Text",
    "Welcome",
    "Window",
    "Withdraw",
    "WorkMessage",
    "Written",
    "announced",
    "in_parts",
    "load_change",
]
