"""When a cron schedule is due: for saying when the next run comes, and that there was no verdict for two periods.

Runs are begun by Kubernetes, which reckons for itself; where the two differ, around a change to summer time, say, it is
Kubernetes that counts.
"""

from datetime import UTC, datetime
from itertools import islice
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

_SHORT = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class ScheduleError(ValueError):
    """A schedule, or its time zone, makes no sense; the text says which field and why."""


class Schedule:
    """A schedule in its time zone. Times are milliseconds since 1970.

    Raises:
        ScheduleError: it makes no sense, or is never due.
    """

    def __init__(self, text: str, time_zone: str) -> None:
        self._text = _SHORT.get(text, text)
        try:
            self._zone = ZoneInfo(time_zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ScheduleError(f"spec.timeZone: there is no time zone '{time_zone}'") from error
        try:
            found = list(islice(CronSim(self._text, datetime(2000, 1, 1, tzinfo=UTC)), 1))
        except CronSimError as error:
            raise ScheduleError(f"spec.schedule: '{text}' cannot be read: {error}") from error
        if not found:
            raise ScheduleError(f"spec.schedule: '{text}' is never due")

    def after(self, moment_ms: int, count: int = 1) -> int:
        """When it is due for the `count`-th time after a moment."""
        # In whole minutes as cron has them; what lies between does not count.
        begin = datetime.fromtimestamp(moment_ms / 1000, self._zone).replace(second=0, microsecond=0)
        times = CronSim(self._text, begin)
        for _ in range(count - 1):
            next(times)
        return round(next(times).astimezone(UTC).timestamp() * 1000)

    def overdue_at(self, scheduled_ms: int, took_ms: int) -> int:
        """From when on there was nothing for two periods, if the last was due then, and took so long."""
        return self.after(scheduled_ms, 2) + max(0, took_ms)


def minute_of(run: str, prefix: str) -> int | None:
    """When a run was due, by its Job's name, as Kubernetes makes it of a CronJob's: minutes since 1970, in ms."""
    digits = run.removeprefix(f"{prefix}-")
    if digits == run or not digits.isdigit() or len(digits) > 10:
        return None
    return int(digits) * 60_000
