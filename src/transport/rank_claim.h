// Whether the variables by which launchers tell a process its rank are about this process.
//
// The programs that a rank starts inherit these variables, and no launcher knows which of its
// descendants becomes the rank, since ranks start through shells, wrappers and other launchers. So
// the first process that calls ClaimRank marks the variables as its own: another variable gets its
// process id, its start time, which execve keeps as well, and a copy of the variables. A process
// that inherits this mark is a program that the rank has started, as long as the rank lives. If a
// variable differs from the copy, another launcher has set it, and it is about this process again.
//
// HoldRank finds processes that have inherited no mark and still have one rank, such as two
// programs that a shell starts at the same time. Each rank binds a socket, whose name is made from
// the variables; the system allows that only once.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "multiverso/constants.h"

namespace multiverso {

// The launchers, by their variables. A set of them is a sum.
inline constexpr int32_t kLauncherOfMultiverso =
    MV_LAUNCHER_MULTIVERSO;  // `multiverso run`, or a user's own launcher
inline constexpr int32_t kLauncherOfMpi = MV_LAUNCHER_MPI;  // mpirun, srun
inline constexpr int32_t kLauncherOfTorchrun = MV_LAUNCHER_TORCHRUN;

// Returns the launchers whose variables are about this process, after marking them.
int32_t ClaimRank();

// Keeps the rank of those launchers until the process ends. Returns StateError, which names both
// processes, if another process keeps it. Does nothing where a socket's name outlives its process.
Status HoldRank(int32_t launchers);
// Lets another process keep the rank: this one was forked from the rank.
void ReleaseHeldRank();

}  // namespace multiverso
