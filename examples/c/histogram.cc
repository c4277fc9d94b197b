// A histogram that all processes of a job fill together, in C++. It shows adds to a few rows of a
// matrix table, and RAII handles.
//
//   histogram
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
struct Leave {
  void operator()(MV_Session session) const { MV_SessionLeave(session, "the program failed"); }
};
using Session = std::unique_ptr<std::remove_pointer_t<MV_Session>, Leave>;

void Run(bool mpi) {
  MV_SessionOptions options;
  Check(MV_SessionOptionsInit(&options));
  if (mpi) options.transport = MV_TRANSPORT_MPI;
  MV_Session opened = nullptr;
  Check(MV_SessionOpen(&options, &opened));
  Session session(opened);
  MV_SessionDescription job{};
  job.struct_size = sizeof job;
  Check(MV_SessionDescribe(session.get(), &job));

  MV_TableOptions shape;
  Check(MV_TableOptionsInit(&shape));
  shape.kind = MV_TABLE_MATRIX;
  shape.dtype = MV_INT64;
  shape.num_row = 10;  // classes
  shape.num_col = 2;   // count and sum of the values
  MV_Table table = nullptr;
  Check(MV_TableCreate(session.get(), &shape, &table));

  // The workers divide the numbers among themselves; an id that occurs twice is added twice.
  std::vector<int64_t> classes, counts;
  for (int64_t value = job.worker_id; value < 1000; value += job.num_workers) {
    classes.push_back(value % 10);
    counts.insert(counts.end(), {1, value});
  }
  const auto ids = static_cast<int64_t>(classes.size());
  Check(MV_TableAddRows(table, classes.data(), ids, counts.data(), 2 * ids));

  // A collective get includes every earlier add of every worker.
  std::vector<int64_t> histogram(20);
  Check(MV_TableGet(table, histogram.data(), 20, MV_COLLECTIVE));
  if (job.worker_id == 0) {
    std::cout << job.num_workers << " worker(s) counted " << histogram[6] << " values of class 3, "
              << "their sum is " << histogram[7] << '\n';
  }
  Check(MV_SessionClose(session.release()));  // frees the tables too
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
