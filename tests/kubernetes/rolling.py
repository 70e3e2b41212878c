"""What is seen of brokers that are restarted one after the other, by who looks again and again."""

import time
from collections.abc import Mapping
from typing import Any

from tests.kubernetes import killing


class Rolling:
    """Looks at the pods of a cluster; all of them are Ready when it begins."""

    def __init__(self, pods: Mapping[str, Mapping[str, Any]]) -> None:
        self._seen_s = dict.fromkeys(pods, time.monotonic())
        self._served = {pod["metadata"]["uid"] for pod in pods.values()}
        self.most_away = 0
        """How many pods were being restarted at once: going, gone, or new and not Ready yet. One that served and
        misses a probe on a busy machine is not one of them."""
        self.longest_s = 0.0
        """How long a pod was not Ready at most, for whatever reason: from one time that it was to the next."""

    def look(self, pods: Mapping[str, Mapping[str, Any]]) -> set[str]:
        """Notes how things are; the names of the pods that are Ready."""
        now_s = time.monotonic()
        ready = {name for name, pod in pods.items() if killing.is_ready(pod)}
        self._served |= {pods[name]["metadata"]["uid"] for name in ready}
        staying = [pod["metadata"] for pod in pods.values() if "deletionTimestamp" not in pod["metadata"]]
        serving = sum(one["uid"] in self._served for one in staying)
        self.most_away = max(self.most_away, len(self._seen_s) - serving)
        for name in ready:
            self.longest_s = max(self.longest_s, round(now_s - self._seen_s[name], 3))
            self._seen_s[name] = now_s
        return ready
