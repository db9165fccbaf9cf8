"""Which fault is planted next, on some threads."""

import concurrent.futures
import threading
import time


class Family:
    """What is known of one family while its faults are planted."""

    def __init__(self, name, faults, count):
        self.name = name
        self.faults = enumerate(faults)
        self.count = count
        self.ready = True  # for faults
        self.open = 0  # faults that count or may yet
        self.under_way = 0
        self.entries = {}  # by place in the order that was drawn


class FaultQueue:
    """Plants faults of all families on some threads. Which ones they are depends on the draw alone: a fault that does
    not count makes room for the next one of its family. A class of its own says how one is planted."""

    def __init__(self, families, end):
        """@param end the time after which no fault is begun (time.monotonic), or None"""
        self.families = families
        self.end = end
        self.changed = threading.Condition()

    def out_of_time(self):
        return self.end is not None and time.monotonic() >= self.end

    def take(self):
        """(family, place, fault) of what comes next; None when nothing is left. The families take turns."""
        with self.changed:
            while not self.out_of_time():
                ready = [family for family in self.families if family.ready and family.open < family.count]
                for family in sorted(ready, key=lambda family: family.open):
                    place, fault = next(family.faults, (None, None))
                    if fault is None:
                        family.count = family.open
                        continue
                    family.open += 1
                    family.under_way += 1
                    return family, place, fault
                if all(family.ready and (family.open >= family.count and not family.under_way)
                       for family in self.families):
                    return None
                self.changed.wait(1)
        return None

    def done(self, family, place, entry):
        """@param entry what results list, None when the fault does not count"""
        with self.changed:
            family.under_way -= 1
            if entry is None:
                family.open -= 1
            else:
                family.entries[place] = entry
            self.changed.notify_all()

    def plant(self, family, place, fault):
        raise NotImplementedError

    def work(self):
        try:
            while (taken := self.take()) is not None:
                self.plant(*taken)
        except BaseException:
            self.end = time.monotonic()  # others stop, too
            raise

    def run(self, jobs):
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for worker in [pool.submit(self.work) for _ in range(jobs)]:
                worker.result()
        return self.entries()

    def entries(self):
        return [entry for family in self.families for _, entry in sorted(family.entries.items())]
