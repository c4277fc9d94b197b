/* Linear regression by all processes of a job, with three weights that they share.
 *
 *   linear_regression                         one worker, no MPI
 *   mpirun -np 4 linear_regression --mpi
 */
#include <multiverso/c_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int32_t status) {
  if (status == MV_OK) return;
  fprintf(stderr, "%s: %s\n", MV_StatusName(status), MV_LastError());
  exit(1); /* at exit the library tells the other ranks, so that they do not wait */
}

int main(int argc, char** argv) {
  MV_SessionOptions options;
  check(MV_SessionOptionsInit(&options));
  if (argc > 1 && strcmp(argv[1], "--mpi") == 0) options.transport = MV_TRANSPORT_MPI;
  MV_Session session;
  check(MV_SessionOpen(&options, &session));
  MV_SessionDescription job = {.struct_size = sizeof(job)};
  check(MV_SessionDescribe(session, &job));

  MV_TableOptions table_options;
  check(MV_TableOptionsInit(&table_options));
  table_options.num_row = 3; /* float32 zeros */
  MV_Table weights;
  check(MV_TableCreate(session, &table_options, &weights));

  const float truth[3] = {1.0f, -2.0f, 0.5f};
  float w[3], delta[3];
  srand((unsigned)job.worker_id + 1); /* each worker draws its own data */
  check(MV_TableGet(weights, w, 3, 0));
  for (int step = 0; step < 2000; ++step) {
    float x[3], error = 0;
    for (int i = 0; i < 3; ++i) {
      x[i] = 2.0f * ((float)rand() / (float)RAND_MAX) - 1.0f;
      error += (w[i] - truth[i]) * x[i];
    }
    for (int i = 0; i < 3; ++i) delta[i] = -0.1f / (float)job.num_workers * error * x[i];
    check(MV_TableAddGet(weights, delta, w, 3)); /* add this delta, get the new weights */
  }
  check(MV_SessionBarrier(session)); /* every later get includes every add before it */
  check(MV_TableGet(weights, w, 3, 0));
  if (job.worker_id == 0)
    printf("%d worker(s) found %.2f %.2f %.2f\n", (int)job.num_workers, w[0], w[1], w[2]);
  check(MV_SessionClose(session));
  return 0;
}
