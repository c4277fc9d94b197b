#include "consistency/chain_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

namespace multiverso {
namespace {

using Pieces = std::vector<std::unique_ptr<ChainPiece>>;

// A worker's add in a round: the whole table, or rows.
struct Delta {
  bool is_rows = false;
  std::vector<int64_t> rows;
  std::vector<float> values;
};

// The sum over all workers, and the number of its terms.
struct Total {
  std::vector<float> values;
  std::vector<int64_t> terms;  // by row
};

Delta RandomDelta(int64_t rows, int64_t columns, std::mt19937* random) {
  Delta delta;
  delta.is_rows = (*random)() % 3 != 0;
  for (int64_t row = 0; delta.is_rows && row < rows; ++row) {
    if ((*random)() % 3 == 0) delta.rows.push_back(row);
  }
  const auto named = delta.is_rows ? delta.rows.size() : static_cast<size_t>(rows);
  delta.values.resize(named * static_cast<size_t>(columns));
  for (float& value : delta.values) {
    // The sum of these values depends on the order, and some values are -0.
    value = (*random)() % 5 == 0 ? -0.0F : static_cast<float>((*random)()) * 1e-7F - 100;
  }
  return delta;
}

Total ExpectedTotal(const std::vector<std::vector<Delta>>& nodes, int64_t rows, int64_t columns) {
  Total total;
  total.values.resize(static_cast<size_t>(rows * columns));
  total.terms.resize(static_cast<size_t>(rows));
  for (const std::vector<Delta>& node : nodes) {
    for (const Delta& delta : node) {
      const auto named = delta.is_rows ? static_cast<int64_t>(delta.rows.size()) : rows;
      for (int64_t i = 0; i < named; ++i) {
        const int64_t row = delta.is_rows ? delta.rows[static_cast<size_t>(i)] : i;
        const bool is_first = total.terms[static_cast<size_t>(row)]++ == 0;
        for (int64_t column = 0; column < columns; ++column) {
          float& sum = total.values[static_cast<size_t>(row * columns + column)];
          const float value = delta.values[static_cast<size_t>(i * columns + column)];
          sum = is_first ? value : sum + value;
        }
      }
    }
  }
  return total;
}

std::vector<Contribution> ContributionsOf(const std::vector<Delta>& node) {
  std::vector<Contribution> contributions;
  for (const Delta& delta : node) {
    Contribution contribution;
    contribution.is_rows = delta.is_rows;
    contribution.values = reinterpret_cast<const char*>(delta.values.data());
    contribution.row_ids = delta.rows.data();
    contribution.count = static_cast<int64_t>(delta.rows.size());
    contributions.push_back(contribution);
  }
  return contributions;
}

// Returns the pieces that a node sends after it has received these. The first node receives none.
Pieces PassThrough(const SegmentGrid& grid, const std::vector<Delta>& node, Pieces received,
                   bool is_first) {
  ChainSum sum(grid, DType::kFloat32);
  sum.Begin(ContributionsOf(node));
  Pieces out;
  const auto make = [&](const ChainPiece* from, int64_t first, int64_t end) {
    while (first < end) {
      out.push_back(std::make_unique<ChainPiece>(ChainPiece::RoomFor(grid.piece_bytes())));
      sum.Make(from, first, end, out.back().get());
      EXPECT_EQ(out.back()->header()->first, first);
      EXPECT_GT(out.back()->header()->end, first);
      EXPECT_LE(out.back()->bytes, out.back()->room());
      first = out.back()->header()->end;
    }
  };
  if (is_first) make(nullptr, 0, grid.segments());
  for (auto& piece : received) {
    if (sum.CanAddTo(*piece)) {
      sum.AddTo(piece.get());
      out.push_back(std::move(piece));
    } else {
      make(piece.get(), piece->header()->first, piece->header()->end);
    }
  }
  return out;
}

Total Unpack(const SegmentGrid& grid, const Pieces& pieces, int64_t rows, int64_t columns) {
  Total total;
  total.values.resize(static_cast<size_t>(rows * columns));
  total.terms.resize(static_cast<size_t>(rows));
  int64_t next = 0;
  const auto put = [&](int64_t segment, int64_t terms, const float* values) {
    const auto first = static_cast<size_t>(grid.Element(segment));
    std::copy_n(values, grid.Elements(segment, segment + 1), total.values.begin() + first);
    int64_t& known = total.terms[first / static_cast<size_t>(columns)];
    EXPECT_TRUE(known == 0 || known == terms);
    known = terms;
  };
  for (const auto& piece : pieces) {
    const PieceHeader& header = *piece->header();
    EXPECT_EQ(header.first, next);
    next = header.end;
    const auto* values = reinterpret_cast<const float*>(piece->values());
    const int64_t count = header.is_listed != 0 ? header.count : header.end - header.first;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t segment = header.is_listed != 0 ? piece->listed()[i].at() : header.first + i;
      put(segment, header.is_listed != 0 ? piece->listed()[i].terms : header.terms, values);
      values += grid.Elements(segment, segment + 1);
    }
  }
  EXPECT_EQ(next, grid.segments());
  return total;
}

TEST(ChainSum, SumsInWorkerOrderForAnyNodesAndPieces) {
  std::mt19937 random(7);
  for (int round = 0; round < 400; ++round) {
    const int64_t rows = 1 + random() % 9;
    const int64_t columns = 1 + random() % 9;
    const int64_t piece_bytes = std::min<int64_t>(4 + 4 * (random() % 40), rows * columns * 4);
    const SegmentGrid grid(rows, columns, 4, piece_bytes);
    std::vector<std::vector<Delta>> nodes(1 + random() % 3);
    for (auto& node : nodes) {
      for (auto workers = 1 + random() % 3; workers > 0; --workers) {
        node.push_back(RandomDelta(rows, columns, &random));
      }
    }
    Pieces pieces;
    for (size_t i = 0; i < nodes.size(); ++i) {
      pieces = PassThrough(grid, nodes[i], std::move(pieces), i == 0);
    }
    const Total expected = ExpectedTotal(nodes, rows, columns);
    const Total total = Unpack(grid, pieces, rows, columns);
    ASSERT_EQ(total.terms, expected.terms) << "round " << round;
    ASSERT_TRUE(
        std::equal(total.values.begin(), total.values.end(), expected.values.begin(),
                   [](float a, float b) { return a == b && std::signbit(a) == std::signbit(b); }))
        << "round " << round;
  }
}

TEST(ChainSum, OmitsTheListForWholeTables) {
  const SegmentGrid grid(100, 1, 4, 400);
  std::vector<Delta> node(2);
  for (Delta& delta : node) delta.values.assign(100, 1.5F);
  const Pieces first = PassThrough(grid, node, {}, true);
  ASSERT_EQ(first.size(), 1);
  EXPECT_EQ(first[0]->header()->is_listed, 0);
  EXPECT_EQ(first[0]->header()->terms, 2);
  EXPECT_EQ(first[0]->bytes, static_cast<int64_t>(sizeof(PieceHeader)) + 400);
}

TEST(ChainSum, IsShortForFewRows) {
  const SegmentGrid grid(1000, 4, 4, 4096);
  Delta delta;
  delta.is_rows = true;
  delta.rows = {3, 999};
  delta.values.assign(8, 1);
  const Pieces pieces = PassThrough(grid, {delta}, {}, true);
  ASSERT_EQ(pieces.size(), 1);
  EXPECT_EQ(pieces[0]->bytes, static_cast<int64_t>(sizeof(PieceHeader)) + 2 * (8 + 16));
}

}  // namespace
}  // namespace multiverso
