"""The table of faults: who, what, when, under which launcher, and what each rank gets.

`tests/mpi/test_faults.py` runs a job for each row, whose ranks are `faults.py`.
"""

from dataclasses import dataclass, field

LATE = ("barrier", "create", "collective_get", "aggregate", "get", "result", "flush", "add_get")
INTERRUPTED = ("barrier", "create", "shutdown", "get", "get_rows", "add_get", "aggregate")
TORCH_CALLS = ("backward", "all_reduce", "background", "future", "broadcast", "all_gather",
               "barrier")  # fmt: skip

#: The calls that need sessions in sync mode.
ROUNDS = {"add_get", "get", "rows", "get_rows", "result", "flush"}


@dataclass(frozen=True)
class Row:
    """A fault of some ranks while the others make a call, and what follows.

    Attributes
    ----------
    what : str
        The fault: of `faults.FAULTS`, or a program of `fault_programs` or `torch_faults`.
    when : tuple of str
        The calls of the other ranks, each in a session of its own, or those that a program of all
        ranks reports.
    kind : str or None
        The class of the others' error, or several, separated by commas. If None, they have none; if
        empty, the launcher may end them before they report one.
    words : tuple of str
        Patterns of the others' messages. "VICTIM" stands for the rank,
        and "PROCESS" for the rank with its process id.
    np, per_node : int
        The ranks, and the ranks of each node.
    who : tuple of int
        The ranks with the fault; negative numbers count from the last.
    mode : str
        "async", "sync", "stale", or "continue". Calls of `ROUNDS` are in sync mode anyway.
    launcher : str
        "mpirun", "survives" (an mpirun that lets others continue), "run" (``multiverso run``
        without MPI) or "torchrun".
    options : tuple of str
        Options of ``multiverso run``.
    session : dict
        More options of `mv.init`.
    own, own_words : str, tuple of str
        The classes of the victims' own errors, and the patterns of their messages.
    code : int, optional
        The exit code of the job; -1 is any that is not 0.
    printed : tuple of str
        Patterns of what the job prints.
    points : str
        Failpoints of the victims, from when the fault begins.
    factor : int
        How much faster than others the library's clock is: a deadline of 10 s takes 2 s with 5.
    waits : bool
        Whether the job mostly waits, so that it can run beside others.
    environ : dict
        Variables of the job.

    """

    what: str
    when: tuple = ()
    kind: str | None = "PeerLostError"
    words: tuple = ("VICTIM",)
    np: int = 3
    per_node: int = 0
    who: tuple = (-1,)
    mode: str = "async"
    launcher: str = "mpirun"
    options: tuple = ()
    session: dict = field(default_factory=dict)
    own: str = ""
    own_words: tuple = ()
    code: int | None = None
    printed: tuple = ()
    points: str = ""
    factor: int = 1
    waits: bool = False
    environ: dict = field(default_factory=dict)

    @property
    def victims(self):
        """The ranks with the fault."""
        return [rank % self.np for rank in self.who]

    @property
    def needs_failpoints(self):
        """Whether the job needs the library with failpoints."""
        return bool(self.factor > 1 or self.points)

    @property
    def needs_torch(self):
        """Whether the job needs PyTorch."""
        return self.what.startswith("torch_") or self.launcher == "torchrun"

    @property
    def needs_mpi(self):
        """Whether the row is about MPI."""
        return self.what.startswith(("absent", "elsewhere", "raises_before", "kill_after"))


# A row of the table is dense.
# fmt: off

def _late(per_node, **options):
    # A node may not say in time which of its ranks is late.
    who = "rank 2, .*last call: .*; last heard of" if per_node == 3 else "(node 1 .)?rank 2"
    return Row("late", LATE, "OperationTimeout,AbortedError", ("VICTIM",), per_node=per_node,
               session={"timeout": 12.0}, factor=5, waits=True, code=0,
               own="AbortedError,PeerLostError,OperationTimeout,MismatchError",
               own_words=("waited|rank [01]",),
               printed=(f"has waited 1. s in barrier for {who}.*waits for up to 12 s, which "
                        "timeout= of init", "has waited 1. s in get.*(for rank 2, which did not "
                        "join|for ranks? .*2 to answer, once all workers have made)"), **options)


def _killed(when, **options):
    """Return a row of a killed rank; the end of the survivors must not wait for it in MPI."""
    return Row("kill", (when,), words=("PROCESS died",), **{"launcher": "survives", **options})


def _ends(how, when, words, **options):
    return Row(how, (when,), words=(r"VICTIM (on \S+ )?left", *words), **options)


def _suspended(when, **options):
    defaults = {"kind": "OperationTimeout,AbortedError", "words": ("VICTIM", "no heartbeat"),
                "own": "StateError", "own_words": ("has excluded VICTIM",), "waits": True,
                "launcher": "survives", "session": {"peer_timeout": 2.0}}
    return Row("suspend", (when,), **{**defaults, **options})


def _torch(how, words, when=TORCH_CALLS, **options):
    # PyTorch raises RuntimeError for the error of a future.
    return Row(f"torch_{how}", when, "DistBackendError,RuntimeError", words, launcher="survives",
               environ={"OMP_NUM_THREADS": "1"}, **options)


def _continues(what, *when, **options):
    return Row(what, when, None, **{"mode": "continue", "launcher": "survives", **options})


_RAISED = ("ValueError: bad batch 17", r"faults\.py:")
_UNSAID = (r"without mv.shutdown\(\)",)
_INTERRUPT = {"kind": "AbortedError", "words": ("VICTIM", "KeyboardInterrupt"),
              "own": "KeyboardInterrupt", "waits": True, "code": 0}
#: A rank never comes. The others print which rank they are, unless the launcher ends them before.
_ABSENT = {"kind": "", "session": {"start_timeout": 10.0}, "code": -1, "factor": 5, "waits": True}
_AT_END = "s at its end for rank {}, which has died or still runs"
_SURVIVE = {"launcher": "run", "options": ("--survive",)}

ROWS = {
    # A rank is late, and is told so when it comes.
    "late": _late(3),
    "late on nodes": _late(2),
    "late, without MPI": _late(3, launcher="run"),
    "late in two tables": Row("crosses", ("add_get",), "OperationTimeout,AbortedError",
        ("of table '(weights|biases)'",), np=2, session={"timeout": 10.0}, factor=5,
        waits=True, own="OperationTimeout,AbortedError"),
    # A rank never opens the session, or fails before.
    "absent": Row("absent", printed=(
        "OperationTimeout: rank [01] of 3 .*: mv.init: MPI_Init has not returned within 10",),
        **_ABSENT),
    "absent, without MPI": Row("absent", printed=("OperationTimeout: ",), launcher="run",
        **_ABSENT),
    "absent after MPI_Init": Row("absent_after_mpi", printed=(
        "OperationTimeout: init: waited for", "rank [01] ends the job"), **_ABSENT),
    "absent, others exit": Row("absent_while_others_exit", printed=(
        "handled: init: waited", "after a failed start: MPI_Finalize"), **_ABSENT),
    "raises before init": Row("raises_before_init", kind="", code=-1, printed=(
        "rank 2 ends the job", "ValueError: bad batch 17")),
    "raises before init, without a package": Row("raises_before_init_without_a_package", kind="",
        code=2, printed=("torch, which is not installed: pip install", r"(?s)\A(?!.*Traceback)")),
    # A rank ends while another one is in a call of its own: MPI_Finalize would wait for it.
    **{f"elsewhere {where}": Row(f"elsewhere_{where}", kind="", who=(absent,), code=code,
        printed=(_AT_END.format(absent),), session={"start_timeout": 10.0}, factor=5, waits=True)
        for where, absent, code in (("in_session", 0, 1), ("after_shutdown", 2, 3),
                                    ("after_import", 2, 1))},
    "killed after shutdown": _continues("kill_after_shutdown", printed=(_AT_END.format(2),),
        session={"start_timeout": 10.0}, factor=5, waits=True),
    # A rank is killed.
    "killed": _killed("barrier"),
    "killed, rounds": _killed("add_get"),
    "killed, without MPI": _killed("add_get", **_SURVIVE),
    "killed, rounds of rows on nodes": _killed("rows", per_node=2, who=(1,)),
    "killed, stale on nodes": _killed("call", per_node=2, who=(1,), mode="stale"),
    "killed, sum over nodes": _killed("aggregate", per_node=1, who=(1,)),
    "killed, only rank of a node": _killed("barrier", np=2, per_node=1),
    "killed, a whole node": Row("kill", ("call",), words=("VICTIM", r"with rows \d+ to \d+"),
        np=4, per_node=2, who=(2, 3), launcher="survives", session={"peer_timeout": 600.0}),
    "killed, two nodes in rounds": Row("kill", ("add_get",), np=4, per_node=1, who=(1, 2),
        launcher="survives"),
    "killed at any moment": Row("kill_soon", ("add_get",), words=("PROCESS died",), np=4, who=(1,),
        launcher="survives"),
    # The launcher ends the others, and nothing remains.
    "killed at the start": Row("kill_at_start", kind="", code=-1),
    "killed in creations": Row("kill_soon", ("create",), "", code=-1),
    "killed at work": Row("kill_soon", ("work",), "", code=-1,
        environ={"MULTIVERSO_SEGMENTS": "file"}),
    "killed at work on nodes": Row("kill_soon", ("work",), "", per_node=2, code=-1),
    # The others continue.
    "survived": _continues("kill_while_counting", np=4, who=(1,)),
    "survived, without MPI": _continues("kill_while_counting", np=4, who=(0,), **_SURVIVE),
    "survived exit": _continues("exit_while_counting", np=4),
    "survived with items": _continues("items", np=4, who=(0, 3)),
    **{f"survived, {call}": _continues("kill_in_call", call, np=4, who=(who,), points=point)
       for call, who, point in (
           ("barrier", 0, "group.begun@1=kill"), ("create", 0, "group.begun@3=kill"),
           ("aggregate", 3, "group.begin@1=kill"), ("save", 3, "group.begin@2=kill"),
           ("publish", 0, "publish.chosen@1=kill"))},
    "survived, add": _continues("kill_in_add", "add", points="shard.write@3=kill",
        printed=("a rank died in the middle of an operation",)),
    "killed in a sum over nodes": Row("kill_in_call", ("aggregate",), np=4, per_node=2, who=(2,),
        launcher="survives", points="exchange.received@1=kill"),
    "killed in shutdown": Row("kill_in_call", ("shutdown",), None, per_node=1, who=(1,),
        launcher="survives", points="close.met@1=kill", session={"peer_timeout": 4.0}),
    # A script ends.
    "exception": _ends("exception", "barrier", _RAISED, code=1),
    "exception on nodes": _ends("exception", "add_get", _RAISED, per_node=2),
    "exception in a block": _ends("block", "barrier", ("KeyError", "lost in the block"), code=1),
    "exit": _ends("exits", "add_get", _UNSAID, code=3),
    "silent end": _ends("silently", "barrier", _UNSAID, code=0),
    "silent end on nodes": _ends("silently", "barrier", _UNSAID, per_node=1),
    "exception, torchrun": Row("exception", ("barrier",), "", launcher="torchrun", code=1,
        printed=("ValueError: bad batch 17",)),
    "exit, without MPI": Row("exits", ("barrier",), "", launcher="run", code=3,
        printed=(r"multiverso run: rank 2 \(process ",)),
    # Ctrl-C, or another exception of a signal handler, in a call.
    "interrupt": Row("interrupt", INTERRUPTED, **_INTERRUPT),
    "interrupt on nodes": Row("interrupt", INTERRUPTED, per_node=2, who=(0,), **_INTERRUPT),
    "interrupt, without MPI": Row("interrupt", ("barrier", "add_get"), launcher="run",
        **_INTERRUPT),
    "interrupt at a suspended node": Row("interrupt_at_suspended_node", kind=None, np=2, per_node=1,
        waits=True, code=0),
    "exception in calls": Row("handler", ("barrier", "add_get"), "AbortedError",
        ("VICTIM", "ValueError: bad batch 17"), own="ValueError", waits=True, code=0),
    # A rank is suspended, and resumes.
    "suspended briefly": Row("suspend_briefly", ("barrier",), None, np=2, waits=True),
    "suspended": _suspended("barrier", printed=("rank 2 has sent no heartbeat",)),
    "suspended, without MPI": _suspended("add_get", **_SURVIVE),
    "suspended in an add": _suspended("add", points="shard.write@2=stop"),
    "suspended on one of two nodes": _suspended("barrier", np=4, per_node=2, words=("VICTIM",),
        kind="OperationTimeout,PeerLostError,AbortedError"),
    "suspended node": _suspended("call", per_node=1, who=(1,), kind="PeerLostError"),
    "suspended node in rounds": _suspended("add_get", per_node=1, who=(1,), words=("VICTIM",),
        kind="PeerLostError"),
    "suspended, others continue": _suspended("add", kind=None, own="", own_words=(),
        mode="continue", points="shard.write@2=stop"),
    "all suspended": _continues("suspend_all", np=4, session={"peer_timeout": 2.0}, waits=True),
    # A rank of a process group of PyTorch ends, or does not come, in a backward pass.
    "torch killed": _torch("kill", ("PeerLostError", "PROCESS died")),
    **{f"torch {how}": _torch(how, ("PeerLostError", r"VICTIM left \(its program ended"))
       for how in ("exception", "exit")},
    "torch destroy": _torch("destroy", (r"VICTIM left \(its process group was destroyed\)",)),
    # All calls in shared memory wait for a late rank in the same way.
    "torch late": _torch("late", ("for VICTIM, which did not call it",),
        when=("backward", "all_reduce", "future"), session={"timeout": 12.0}, factor=5),
    # Its calls are those of gloo.
    "torch killed on nodes": _torch("kill", (), per_node=2),
    # Ranks fork.
    "forks": _continues("forks", np=2, launcher="mpirun", code=0),
    "forks with mpi4py": _continues("forks_with_mpi4py", np=2, launcher="mpirun", code=0),
}

#: The rows of `tests/hosts/test_hosts.py`: of three ranks, the last one is alone on its host.
ROWS_OF_HOSTS = {
    "killed, a host": _killed("call", session={"peer_timeout": 600.0}),
    "killed, a host in rounds": _killed("add_get", session={"peer_timeout": 600.0}),
    "unreachable": Row("unreachable", session={"peer_timeout": 4.0}),
}
