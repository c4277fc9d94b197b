/* Uses each part of the C API with one rank: tables, rows, an updater, rounds, checkpoints. On
 * Windows it expects errors for what needs more ranks or other processes.
 *
 *   one_rank FOLDER    writes its checkpoints there
 */
#include <multiverso/c_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 1000
#define COLUMNS 300

static float delta[ROWS * COLUMNS];
static float values[ROWS * COLUMNS];
static float before[ROWS * COLUMNS];

static void check(int32_t status, int line) {
  if (status == MV_OK) return;
  fprintf(stderr, "line %d: %s: %s\n", line, MV_StatusName(status), MV_LastError());
  exit(1);
}
#define CHECK(call) check(call, __LINE__)

static void expect(int is_true, const char* what, int line) {
  if (is_true) return;
  fprintf(stderr, "line %d: expected %s; the last error was: %s\n", line, what, MV_LastError());
  exit(1);
}
#define EXPECT(what) expect(what, #what, __LINE__)

static MV_Session open_session(int32_t mode) {
  MV_SessionOptions options;
  MV_Session session;
  CHECK(MV_SessionOptionsInit(&options));
  options.mode = mode;
  CHECK(MV_SessionOpen(&options, &session));
  return session;
}

static MV_Table new_table(MV_Session session, int32_t updater) {
  MV_TableOptions options;
  MV_Table table;
  CHECK(MV_TableOptionsInit(&options));
  CHECK(MV_TableOptionsSetUpdater(&options, updater));
  options.kind = MV_TABLE_MATRIX;
  options.num_row = ROWS;
  options.num_col = COLUMNS;
  CHECK(MV_TableCreate(session, &options, &table));
  return table;
}

static void fill(float with) {
  for (int i = 0; i < ROWS * COLUMNS; ++i) delta[i] = with;
}

static void save(MV_Session session, const char* folder, int32_t background) {
  MV_SaveOptions options;
  CHECK(MV_SaveOptionsInit(&options));
  options.directory = folder;
  options.keep = 2;
  options.background = background;
  CHECK(MV_SessionSave(session, &options));
  CHECK(MV_SessionSaveWait(session));
}

static void tables_and_checkpoints(const char* folder) {
  const int64_t all = ROWS * COLUMNS;
  const int64_t rows[3] = {999, 0, 999};
  MV_Session session = open_session(MV_MODE_ASYNC);
  MV_Table sums = new_table(session, MV_UPDATER_ADD);
  MV_Table trained = new_table(session, MV_UPDATER_ADAM);

  fill(0.5f);
  CHECK(MV_TableAdd(sums, delta, all));
  CHECK(MV_TableAddRows(sums, rows, 3, delta, 3 * COLUMNS));
  CHECK(MV_TableGet(sums, values, all, MV_COLLECTIVE));
  EXPECT(values[0] == 1.0f && values[COLUMNS] == 0.5f && values[all - 1] == 1.5f);
  CHECK(MV_TableGetRows(sums, rows, 2, values, 2 * COLUMNS, 0));
  EXPECT(values[0] == 1.5f && values[COLUMNS] == 1.0f);
  EXPECT(MV_TableAdd(sums, delta, all - 1) == MV_ERR_VALUE);
  EXPECT(strstr(MV_LastError(), "expected") != NULL);
  CHECK(MV_TableAddGet(trained, delta, before, all));
  EXPECT(before[0] < 0.0f);

  int64_t step = -1;
  save(session, folder, 0);
  CHECK(MV_TableAddGet(trained, delta, values, all));
  save(session, folder, 1);
  CHECK(MV_TableAdd(trained, delta, all));
  CHECK(MV_TableAdd(sums, delta, all));
  CHECK(MV_SessionLoad(session, folder, 0, &step));
  EXPECT(step == 1);
  CHECK(MV_TableGet(trained, before, all, 0));
  EXPECT(memcmp(values, before, sizeof(values)) == 0);
  CHECK(MV_TableGet(sums, values, all, 0));
  EXPECT(values[COLUMNS] == 0.5f);

  MV_Checkpoint checkpoint;
  int64_t bytes_left = 1;
  MV_CheckpointDescription saved;
  memset(&saved, 0, sizeof(saved));
  saved.struct_size = sizeof(saved);
  CHECK(MV_CheckpointOpen(folder, &checkpoint));
  CHECK(MV_CheckpointDescribe(checkpoint, &saved));
  EXPECT(saved.num_tables == 2 && saved.step == 1);
  while (bytes_left > 0) CHECK(MV_CheckpointVerify(checkpoint, 1 << 20, &bytes_left));
  CHECK(MV_CheckpointClose(checkpoint));

  EXPECT(MV_SessionLoad(session, "there/is/none", 0, &step) == MV_ERR_CHECKPOINT_IO);
  CHECK(MV_SessionBarrier(session));
  CHECK(MV_SessionClose(session));
  EXPECT(MV_TableGet(sums, values, all, 0) == MV_ERR_HANDLE);
}

static void rounds(void) {
  MV_Session session = open_session(MV_MODE_SYNC);
  MV_Table table = new_table(session, MV_UPDATER_ADD);
  fill(2.0f);
  for (int round = 0; round < 10; ++round) {
    CHECK(MV_TableAddGet(table, delta, values, ROWS * COLUMNS));
  }
  EXPECT(values[12345] == 20.0f);
  CHECK(MV_SessionAggregate(session, MV_OP_SUM, MV_FLOAT32, values, ROWS * COLUMNS));
  EXPECT(values[12345] == 20.0f);
  CHECK(MV_SessionFinish(session));
  CHECK(MV_SessionClose(session));
}

#if defined(_WIN32)
static void expect_unsupported(const MV_SessionOptions* options) {
  MV_Session session;
  EXPECT(MV_SessionOpen(options, &session) == MV_ERR_UNSUPPORTED);
  EXPECT(strstr(MV_LastError(), "need") != NULL && strstr(MV_LastError(), "Linux") != NULL);
}

static void other_processes(void) {
  MV_SessionOptions options;
  MV_Session session;
  MV_Reader reader;
  char json[64];
  int64_t length;

  CHECK(MV_SessionOptionsInit(&options));
  options.transport = MV_TRANSPORT_MPI;
  expect_unsupported(&options);
  options.transport = MV_TRANSPORT_LOCAL;
  options.job_name = "job";
  options.job_size = 2;
  expect_unsupported(&options);
  CHECK(MV_SessionOptionsInit(&options));
  options.elastic = 1;
  expect_unsupported(&options);
  options.join = "train";
  expect_unsupported(&options);
  EXPECT(MV_ReaderOpen("train", 0, &reader) == MV_ERR_UNSUPPORTED);
  EXPECT(MV_NodeDescribe("segment", json, sizeof(json), &length) == MV_ERR_UNSUPPORTED);

  /* A name, by which others would find the session, does no harm. */
  CHECK(MV_SessionOptionsInit(&options));
  options.name = "train";
  CHECK(MV_SessionOpen(&options, &session));
  MV_Table table = new_table(session, MV_UPDATER_ADD);
  CHECK(MV_TableAdd(table, delta, ROWS * COLUMNS));
  CHECK(MV_SessionClose(session));
}
#endif

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  tables_and_checkpoints(argv[1]);
  rounds();
#if defined(_WIN32)
  other_processes();
#endif
  printf("Multiverso %s works here\n", MV_VersionString());
  return 0;
}
