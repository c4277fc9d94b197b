"""Views: the tables of a job as other processes read them.

A view has the same methods over the memory of a running job, which `attach` opens, and over a
folder of publications, which `multiverso.follow` opens.
"""

from multiverso.readers._memory import attach
from multiverso.readers._tables import ViewTable
from multiverso.readers._view import Cut, View

__all__ = ["Cut", "View", "ViewTable", "attach"]
