"""Workers that are asked one thing at a time each; one that ends or hangs costs what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from queue import SimpleQueue
from typing import TypeVar

from bridge.runtime.worker import Worker

Answer = TypeVar("Answer")


def in_workers(
    names: Sequence[str], ask: Callable[[Worker, str], Answer], served: str, jobs: int
) -> Iterator[tuple[str, Answer]]:
    """What `ask` makes of each name by a worker that runs the module `served`, so many at a time, as they are done."""
    workers: SimpleQueue[Worker] = SimpleQueue()
    for _ in range(jobs):
        workers.put(Worker(served))

    def one(name: str) -> Answer:
        worker = workers.get()
        try:
            return ask(worker, name)
        finally:
            workers.put(worker)

    pool = ThreadPoolExecutor(jobs)
    try:
        running = {pool.submit(one, name): name for name in names}
        for done in as_completed(running):
            yield running[done], done.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        while not workers.empty():
            workers.get().close()
