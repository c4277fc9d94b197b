"""The base class of the models for adapter_suite.py, whose adapters differ in few methods."""


class ManagedModel:
    """A model whose `attach` keeps the adapter as `manager`."""

    def tables(self):
        return self.manager.tables

    def sync(self):
        self.manager.sync_all_param()

    def wait(self):
        self.manager.wait()
