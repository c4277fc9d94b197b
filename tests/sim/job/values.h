// Values of tables in their own type, from and to the numbers of the ledger.
#pragma once

#include <cstdint>
#include <vector>

#include "job/ledger.h"
#include "job/plan.h"

namespace sim {

// Returns the rows that a step names, or all of the table. A step of all ranks with a `spread`
// names other rows on each rank.
inline std::vector<int64_t> RowsOf(const Step& step, const TablePlan& table, int rank) {
  std::set<int64_t> rows;
  for (const int64_t id : step.ids) {
    rows.insert((id + rank * step.Get("spread")) % table.rows);
  }
  return {rows.begin(), rows.end()};
}

// Calls body(T()) with the element type of the table.
template <class Body>
void WithType(const TablePlan& table, const Body& body) {
  if (table.dtype == "float32") {
    body(float());
  } else if (table.dtype == "int64") {
    body(int64_t());
  } else if (table.dtype == "int32") {
    body(int32_t());
  } else {
    body(double());
  }
}

inline int64_t BytesOf(const TablePlan& table) {
  return table.dtype == "float32" || table.dtype == "int32" ? 4 : 8;
}

// Returns the delta of an add of `value` to those rows, or to all.
inline std::vector<char> DeltaOf(const TablePlan& table, const std::vector<int64_t>& rows,
                                 int64_t value) {
  const int64_t num_rows = rows.empty() ? table.rows : static_cast<int64_t>(rows.size());
  std::vector<char> bytes(static_cast<size_t>(num_rows * table.columns * BytesOf(table)));
  WithType(table, [&](auto zero) {
    auto* out = reinterpret_cast<decltype(zero)*>(bytes.data());
    for (int64_t i = 0; i < num_rows; ++i) {
      const int64_t first = (rows.empty() ? i : rows[static_cast<size_t>(i)]) * table.columns;
      for (int64_t column = 0; column < table.columns; ++column) {
        *out++ = static_cast<decltype(zero)>(value * Ledger::WeightOf(first + column));
      }
    }
  });
  return bytes;
}

// Returns values as sums of what was added.
inline std::vector<double> ToSums(const TablePlan& table, const char* bytes, int64_t count) {
  std::vector<double> values(static_cast<size_t>(count));
  const double sign = table.updater == "sgd" ? -1 : 1;
  WithType(table, [&](auto zero) {
    const auto* const from = reinterpret_cast<const decltype(zero)*>(bytes);
    for (int64_t i = 0; i < count; ++i) {
      values[static_cast<size_t>(i)] = sign * static_cast<double>(from[i]);
    }
  });
  return values;
}

}  // namespace sim
