"""Workers that execute tasks in the process of the test."""

from concurrent.futures import Future

from factmem.experiments import Workers, execute


class InlineWorkers(Workers):
    """Execute tasks in this process.

    Args:
        count: number of workers.
        immediate: execute a task when it is submitted; if not, when `finish` is called.
    """

    def __init__(self, count=2, immediate=True):
        self.count, self.immediate = count, immediate
        self.running, self.submitted, self.stopped = {}, [], []

    def free(self):
        self.running = {future: task for future, task in self.running.items() if not future.done()}
        return self.count - len(self.running)

    def submit(self, task):
        assert self.free()
        future = Future()
        self.running[future] = task
        self.submitted.append(task.config)
        if self.immediate:
            self.finish(future)
        return future

    def finish(self, future):
        """Execute the task of a future."""
        try:
            future.set_result(execute(self.running[future]))
        except Exception as error:
            future.set_exception(error)

    def finish_oldest(self, *excluded):
        """Execute the oldest task that is running and not excluded, if there is one."""
        for future, task in self.running.items():
            if not future.done() and task not in excluded:
                self.finish(future)
                return

    def stop(self, future):
        self.stopped.append(self.running.pop(future).config)
        return True

    def close(self):
        self.running = {}
