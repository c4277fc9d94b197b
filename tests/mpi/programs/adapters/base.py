"""The base class of the models for adapter_suite.py, whose adapters differ in few methods."""


class ManagedModel:
    """A model whose `attach` keeps the adapter as `manager`."""

    #: The options with which the adapter is tested, beside `average`.
    OPTIONS = ("overlap",)
    #: Arguments that the adapter refuses with a TypeError.
    WRONG = ({"average": 1},)
    #: Whether one adapter synchronizes all tensors. Otherwise there may be none.
    IS_ONE = True
    #: Whether a sync of the same values resumes an interrupted one.
    RESUMES = True
    #: A model with a mean and a count that no gradient changes, where the adapter has an option
    #: for them: ``attach(choice, average)``.
    Statistics = None

    def tables(self):
        return self.manager.tables

    def sync(self):
        self.manager.sync_all_param()

    def wait(self):
        self.manager.wait()
