"""Worker processes, previews and progress bars in a Jupyter kernel."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from jupyter_client.manager import start_new_kernel

TIMEOUT = 60.0

Run = Callable[[str], list[dict[str, Any]]]


@pytest.fixture
def run_cell() -> Iterator[Run]:
    """Run a cell; return the contents of the messages that the front end gets. An error of the cell is raised."""
    manager, client = start_new_kernel(kernel_name="python3")

    def run(code: str) -> list[dict[str, Any]]:
        contents: list[dict[str, Any]] = []
        reply = client.execute_interactive(
            textwrap.dedent(code), timeout=TIMEOUT, output_hook=lambda message: contents.append(message["content"])
        )
        assert reply["content"]["status"] == "ok", "\n".join(reply["content"]["traceback"])
        return contents

    try:
        yield run
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def printed(contents: list[dict[str, Any]]) -> list[str]:
    return "".join(each["text"] for each in contents if each.get("name") == "stdout").splitlines()


def test_workers_run_functions_of_cells(run_cell: Run) -> None:
    run_cell(
        """
        import numpy as np
        from pyfeed.shared import SharedFeedQueue

        factor = 3.0

        class Config:
            def __init__(self, by):
                self.by = by
        """
    )
    run_cell(
        """
        def work(producer, worker, config):
            producer.push((np.float64(factor * config.by),))
        """
    )
    for method in ("spawn", "forkserver", "fork"):
        out = run_cell(
            f"""
            queue = SharedFeedQueue([()], dtypes=["float64"])
            queue.start(work, (Config(10),), num_workers=2, method={method!r})
            print([float(x) for x, in queue])
            """
        )
        assert printed(out) == ["[30.0, 30.0]"]


def test_readers_and_previews_are_shown_as_html(run_cell: Run) -> None:
    run_cell(
        """
        from pyfeed import random_data
        reader = random_data([(8, 8)], ["uint8"], high=255, names=["<i>"])
        """
    )
    (shown,) = [each["data"] for each in run_cell("reader") if "data" in each]
    assert "&lt;i&gt;" in shown["text/html"]
    assert "uint8 (8, 8)" in shown["text/plain"]
    (shown,) = [each["data"] for each in run_cell("reader.preview()") if "data" in each]
    assert shown["text/html"].count('<img src="data:image/png;base64,') == 5
    assert shown["text/plain"].startswith("Preview of 5 tuples")


def test_a_progress_bar_of_a_notebook(run_cell: Run) -> None:
    run_cell("from pyfeed import random_data; from tqdm.notebook import tqdm")
    out = run_cell(
        """
        bar = tqdm(random_data([()], count=7))
        print(len(list(bar)), bar.n, bar.total)
        """
    )
    assert printed(out) == ["7 7 7"]
