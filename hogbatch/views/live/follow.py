"""The view of a run of another process, from the files in its directory."""

import time
from collections.abc import Callable
from typing import Final

from hogbatch.views.live.activity import Activity, running
from hogbatch.views.live.capabilities import Capabilities
from hogbatch.views.live.console import ActivityClock
from hogbatch.views.live.display import RedrawBudget
from hogbatch.views.live.frame import View, frame
from hogbatch.views.live.screen import Screen
from hogbatch.views.status.run_files import RunReport

PREPARING: Final = Activity("reading its data, or it has ended before training")


def follow(look: Callable[[], RunReport], screen: Screen, able: Capabilities) -> None:
    """Show the run until it has ended. Errors as from `look`."""
    budget, activities = RedrawBudget(), ActivityClock()
    begun, cpu = time.monotonic(), time.thread_time()
    try:
        while True:
            report = look()
            run, condition = report.run, report.condition
            activity = PREPARING if run.started is None else running(run, condition)
            view = View(run, condition, activity, activities.elapsed(activity))
            size = screen.size
            screen.show(frame(view, size, able), size)
            if condition.over:
                return
            now, used = time.monotonic(), time.thread_time()
            time.sleep(budget.pause(used - cpu, now - begun))
            begun, cpu = now, used
    finally:
        screen.leave()
