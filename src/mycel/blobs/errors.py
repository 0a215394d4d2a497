"""What can be wrong with blobs.

BlobError
├── BadDigest      not `blake3:` and 64 hexadecimal digits; the asker's fault
├── NoSuchBlob     it is not here; another node may have it
├── WrongContent   what arrived is not what the digest names; the sender's fault, try another
├── BlobTooLarge   over the limit for one blob; the asker's fault
├── NoRoom         all that is kept is in use, or the disk is full; worth another try later
├── Interrupted    a transfer broke off; what has come stays, worth another try
├── NotGiven       the other node has a reason not to give or take it
│   └── Vanished   it had promised to keep it, and that is over
├── BadTree        a folder that cannot be taken: a hostile path, a device, too many files
└── Stopped        whoever wanted it has been cancelled
"""

from __future__ import annotations


class BlobError(Exception):
    """The root of the tree."""


class BadDigest(BlobError):
    """Not a digest."""


class NoSuchBlob(BlobError):
    """It is not here."""


class WrongContent(BlobError):
    """What arrived is not what the digest names."""


class BlobTooLarge(BlobError):
    """Over the limit for one blob."""


class NoRoom(BlobError):
    """All that is kept is in use, or the disk is full."""


class Interrupted(BlobError):
    """A transfer broke off."""


class NotGiven(BlobError):
    """The other node has a reason."""

    def __init__(self, reason: str, *, again: bool = False) -> None:
        super().__init__(reason)
        self.again = again
        """Another try may help."""


class Vanished(NotGiven):
    """It was there, and is not any more."""


class BadTree(BlobError):
    """A folder that cannot be taken in, or laid out."""


class Stopped(BlobError):
    """Nobody wants it any more."""
