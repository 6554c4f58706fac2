"""Images to judge fine-tuning by that the prune did not see.

A slim network is nearer to the dense one on images that it was solved on than on others. Judged by those, an epoch
that gains on all other images seems to lose.
"""

import warnings
from collections.abc import Collection

from ldrf.calibration.indexed_batches import IndexedBatches
from ldrf.errors import LdrfWarning

FEW = 32  # images by which an epoch can hardly be judged


def split_unseen(
    batches: IndexedBatches, seen: Collection[int] | None, share: float, seed: int
) -> tuple[IndexedBatches, IndexedBatches]:
    """All but a share of the images, and that share: of those that are not ``seen``, as far as there are any.

    Where too few are left, or it is not known which were seen (None), any images judge, and a sentence says so.
    """
    known = frozenset(seen or ())
    unseen = IndexedBatches(batches.read, tuple(row for row in batches.rows if row not in known))
    wanted = max(round(share * len(batches.rows)), 1)
    if seen is not None and len(unseen.rows) >= min(wanted, FEW):
        chosen = frozenset(unseen.take(wanted, seed).rows)
        rest, apart = ([row for row in batches.rows if (row in chosen) is side] for side in (False, True))
        if rest:
            return _with(batches, rest), _with(batches, apart)
    why = "which images the prune saw is not known" if seen is None else "the prune saw nearly all of these images"
    warnings.warn(
        f"Fine-tuning is judged by images that the prune may have seen, as {why}: it may gain more than the judgement "
        "says; more images than were pruned on would tell.",
        LdrfWarning,
        stacklevel=3,
    )
    return batches.split(share, seed)


def _with(batches: IndexedBatches, rows: list[int]) -> IndexedBatches:
    return IndexedBatches(batches.read, tuple(rows), batches.labelled, batches.batch)
