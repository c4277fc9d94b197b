// A histogram that all processes of a job fill together, in C++. It shows adds to a few rows of a
// matrix table, and a session handle that leaves the session if the program fails.
//
//   histogram                         one worker, no MPI
//   mpirun -np 4 histogram --mpi
#include <multiverso/c_api.h>

#include <cstdint>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace {

void Check(int32_t status) {
  if (status != MV_OK) {
    throw std::runtime_error(std::string(MV_StatusName(status)) + ": " + MV_LastError());
  }
}

// Leaves the session at once if an error ends the program, and tells the other ranks the reason.
struct LeaveSession {
  void operator()(MV_Session session) const { MV_SessionLeave(session, "the program failed"); }
};
using Session = std::unique_ptr<std::remove_pointer_t<MV_Session>, LeaveSession>;

void Run(bool use_mpi) {
  MV_SessionOptions options;
  Check(MV_SessionOptionsInit(&options));
  if (use_mpi) options.transport = MV_TRANSPORT_MPI;
  MV_Session opened = nullptr;
  Check(MV_SessionOpen(&options, &opened));
  Session session(opened);
  MV_SessionDescription job{};
  job.struct_size = sizeof job;
  Check(MV_SessionDescribe(session.get(), &job));

  MV_TableOptions table_options;
  Check(MV_TableOptionsInit(&table_options));
  table_options.kind = MV_TABLE_MATRIX;
  table_options.dtype = MV_INT64;
  table_options.num_row = 10;  // classes
  table_options.num_col = 2;   // count and sum of the values
  MV_Table table = nullptr;
  Check(MV_TableCreate(session.get(), &table_options, &table));

  // The workers share out the numbers below 1000. Every occurrence of a row id counts.
  std::vector<int64_t> row_ids, deltas;
  for (int64_t value = job.worker_id; value < 1000; value += job.num_workers) {
    row_ids.push_back(value % 10);
    deltas.insert(deltas.end(), {1, value});
  }
  const auto num_ids = static_cast<int64_t>(row_ids.size());
  Check(MV_TableAddRows(table, row_ids.data(), num_ids, deltas.data(), 2 * num_ids));

  // A collective get includes every earlier add of every worker.
  std::vector<int64_t> histogram(20);
  Check(MV_TableGet(table, histogram.data(), 20, MV_COLLECTIVE));
  if (job.worker_id == 0) {
    std::cout << job.num_workers << " worker(s) counted " << histogram[6] << " values of class 3, "
              << "their sum is " << histogram[7] << '\n';
  }
  Check(MV_SessionClose(session.release()));  // also frees the table
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Run(argc > 1 && std::string(argv[1]) == "--mpi");
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
