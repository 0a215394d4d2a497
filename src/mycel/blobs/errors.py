"""What can be wrong with blobs.

BlobError
├── BadDigest             not `blake3:` and 64 hexadecimal digits; the caller's fault
├── NoSuchBlob            it is not here; another node may have it
├── WrongContent          the bytes do not match the digest; the sender's fault, try another
├── BlobTooLarge          over the limit for one blob; the caller's fault
├── NoRoom                every blob kept is in use, or the disk is full; try again later
├── TransferInterrupted   a transfer broke off; what has arrived stays, so try again
├── BlobRefused           the other node has a reason not to give or take it
│   └── BlobGone          the node had promised to keep it, and the promise is over
├── BadTree               a folder that cannot be taken: a hostile path, a device, too many files
└── TransferStopped       whoever wanted it has been cancelled
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


class TransferInterrupted(BlobError):
    """A transfer broke off."""


class BlobRefused(BlobError):
    """The other node has a reason."""

    def __init__(self, reason: str, *, again: bool = False) -> None:
        super().__init__(reason)
        self.again = again
        """Another try may help."""


class BlobGone(BlobRefused):
    """It was there, and is not any more."""


class BadTree(BlobError):
    """A folder that cannot be taken in, or laid out."""


class TransferStopped(BlobError):
    """Nobody wants it any more."""
