/* What no program that syncs parameters can do without: one pass that reads and writes the
 * parameters, the last values and the table. No locks, nobody else. */
#include <stdint.h>

void memory_pass(float* restrict table, float* restrict current, float* restrict last, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float sum = table[i] + (current[i] - last[i]);
    table[i] = sum;
    current[i] = sum;
    last[i] = sum;
  }
}
