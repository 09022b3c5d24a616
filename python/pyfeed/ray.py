"""pyfeed on Ray: readers in the workers of Ray Train, Ray Data as a source, and preprocessing on other nodes.

- `reader_for_worker` makes the reader of a worker of Ray Train, and goes on from Train's checkpoint.
- `from_dataset` makes a reader of a dataset of Ray Data.
- `FeedService` reads and preprocesses data in actors, and delivers each batch exactly once and in one order.

`docs/distributed.md` says when to use which, and what each promises. Importing this module imports Ray;
``import pyfeed`` does not. Ray is an optional dependency: ``pip install pyarrayfeed[ray]``.
"""

from __future__ import annotations

from ._ray_dataset import from_dataset
from ._ray_service import FeedReader, FeedService
from ._ray_train import reader_for_worker, save_state

__all__ = ["FeedReader", "FeedService", "from_dataset", "reader_for_worker", "save_state"]
