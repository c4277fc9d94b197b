/* Plain C threads that do the operations of a table. Their speed is the limit of the machine, with
 * which the speed of workers, which are processes, is compared.
 *
 * All threads share one table, as workers do, and each has its own delta and out. There are no
 * locks, so concurrent adds may lose updates: the threads are no alternative to workers. Thread t
 * of n starts at t/n of the table and wraps around, because threads that walk the same addresses in
 * step would slow each other down by moving every cache line between their cores.
 */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OP_GET = 0, OP_ADD = 1, OP_ADD_GET = 2, OP_GET_ROWS = 3, OP_ADD_ROWS = 4, OP_STEP_ROWS = 5 };

typedef struct Job {
  int32_t op;
  int32_t num_threads;
  int64_t first_call;     /* the operations of earlier runs, so that ids are not used again */
  int64_t calls;          /* operations of each thread */
  float* table;
  int64_t count;          /* elements of the table, or of a row for row operations */
  const float* const* deltas; /* one per thread */
  float* const* outs;         /* one per thread */
  const int64_t* const* ids;  /* num_sets per thread, one after the other */
  int64_t num_sets;
  int64_t num_ids;
  float* state;           /* one number per row */
  pthread_barrier_t start;
} Job;

typedef struct Worker {
  Job* job;
  int32_t index;
  double begin;
  double end;
} Worker;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void add(float* restrict w, const float* restrict d, int64_t n) {
  for (int64_t i = 0; i < n; ++i) w[i] += d[i];
}

static void add_get(float* restrict w, const float* restrict d, float* restrict out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    w[i] += d[i];
    out[i] = w[i];
  }
}

/* Row-wise Adagrad with a learning rate of 0.01. */
static void step(float* restrict w, float* restrict state, const float* restrict g, int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += g[i] * g[i];
  *state += sum / (float)n;
  const float rate = 0.01F / (sqrtf(*state) + 1e-7F);
  for (int64_t i = 0; i < n; ++i) w[i] -= rate * g[i];
}

static void run_range(const Job* job, int32_t thread, int64_t begin, int64_t end) {
  const int64_t n = end - begin;
  switch (job->op) {
    case OP_GET: memcpy(job->outs[thread] + begin, job->table + begin, (size_t)n * 4); break;
    case OP_ADD: add(job->table + begin, job->deltas[thread] + begin, n); break;
    default: add_get(job->table + begin, job->deltas[thread] + begin, job->outs[thread] + begin, n);
  }
}

static void run_rows(const Job* job, int32_t thread, int64_t call) {
  const int64_t* ids = job->ids[thread * job->num_sets + call % job->num_sets];
  const int64_t width = job->count;
  for (int64_t i = 0; i < job->num_ids; ++i) {
    /* Rows are too short for the hardware to predict the next one: prefetch 8 rows ahead. */
    if (i + 8 < job->num_ids) {
      const char* next = (const char*)(job->table + ids[i + 8] * width);
      for (int64_t line = 0; line < width * 4; line += 64) __builtin_prefetch(next + line, 1);
    }
    float* row = job->table + ids[i] * width;
    const float* delta = job->deltas[thread] + i * width;
    if (job->op == OP_GET_ROWS) memcpy(job->outs[thread] + i * width, row, (size_t)width * 4);
    if (job->op == OP_ADD_ROWS) add(row, delta, width);
    if (job->op == OP_STEP_ROWS) step(row, job->state + ids[i], delta, width);
  }
}

static void* work(void* argument) {
  Worker* worker = argument;
  Job* job = worker->job;
  cpu_set_t all;
  memset(&all, 0xff, sizeof all);
  /* A launcher may have bound this rank to one core, but the threads need all cores. */
  pthread_setaffinity_np(pthread_self(), sizeof all, &all);
  /* The thread's first element is a multiple of 16, so it begins a cache line. */
  const int64_t first = job->count / job->num_threads * worker->index / 16 * 16;
  pthread_barrier_wait(&job->start);
  worker->begin = now();
  for (int64_t call = job->first_call; call < job->first_call + job->calls; ++call) {
    if (job->op == OP_STEP_ROWS) {
      Job get = *job;
      get.op = OP_GET_ROWS;
      run_rows(&get, worker->index, call);
    }
    if (job->op >= OP_GET_ROWS) {
      run_rows(job, worker->index, call);
    } else {
      run_range(job, worker->index, first, job->count);
      run_range(job, worker->index, 0, first);
    }
  }
  worker->end = now();
  return NULL;
}

/* Runs the job. `span` receives the monotonic times, in seconds, of the first thread's begin and
 * the last thread's end. Returns 0, or -1 if the threads could not be created. */
int32_t c_threads_run(int32_t op, int32_t num_threads, int64_t first_call, int64_t calls,
                      float* table, int64_t count, const float* const* deltas, float* const* outs,
                      const int64_t* const* ids, int64_t num_sets, int64_t num_ids, float* state,
                      double* span) {
  Job job = {op,   num_threads, first_call, calls,   table, count, deltas,
             outs, ids,         num_sets,   num_ids, state, {{0}}};
  pthread_t* threads = calloc((size_t)num_threads, sizeof *threads);
  Worker* workers = calloc((size_t)num_threads, sizeof *workers);
  if (!threads || !workers || pthread_barrier_init(&job.start, NULL, (unsigned)num_threads)) {
    free(threads);
    free(workers);
    return -1;
  }
  for (int32_t i = 0; i < num_threads; ++i) {
    workers[i].job = &job;
    workers[i].index = i;
    /* The threads started so far would wait at the barrier forever. */
    if (pthread_create(&threads[i], NULL, work, &workers[i]) != 0) abort();
  }
  for (int32_t i = 0; i < num_threads; ++i) {
    pthread_join(threads[i], NULL);
    if (i == 0 || workers[i].begin < span[0]) span[0] = workers[i].begin;
    if (i == 0 || workers[i].end > span[1]) span[1] = workers[i].end;
  }
  pthread_barrier_destroy(&job.start);
  free(threads);
  free(workers);
  return 0;
}
