// Runs the tests of this program, or those of one file: shard_tests shard/shard_test.cc. The
// options of GoogleTest work in both cases. The results of a file have a name of their own, because
// ctest runs files at the same time.
#include <gtest/gtest.h>
#if defined(__unix__) || defined(__APPLE__)
#include <sys/resource.h>
#endif

#include <algorithm>
#include <cstdio>
#include <string>

namespace {

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// Returns a filter for the tests that the file defines.
std::string FilterFor(const std::string& file) {
  std::string filter;
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const ::testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const ::testing::TestInfo& test = *suite.GetTestInfo(j);
      if (!EndsWith(test.file(), "/" + file)) continue;
      filter += std::string(suite.name()) + "." + test.name() + ":";
    }
  }
  return filter;
}

#if defined(__unix__) || defined(__APPLE__)
// Returns the processor time of this process and of its children that have ended, in seconds.
double ProcessorSeconds() {
  double sum = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    struct rusage usage{};
    getrusage(who, &usage);
    for (const timeval& time : {usage.ru_utime, usage.ru_stime}) {
      sum += static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    }
  }
  return sum;
}

// Writes the processor time of each test to the results, for tests/summary.py.
class ProcessorTimes final : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo& /*test*/) override { start_ = ProcessorSeconds(); }
  void OnTestEnd(const ::testing::TestInfo& /*test*/) override {
    ::testing::Test::RecordProperty("processor", std::to_string(ProcessorSeconds() - start_));
  }

  double start_ = 0;
};
#endif

}  // namespace

int main(int argc, char** argv) {
  std::string file = argc == 2 && argv[1][0] != '-' ? argv[1] : "";
  // InitGoogleTest opens the file of the results. Two programs may run the same tests at the same
  // time, so the name of the program is a part of the file's name.
  std::string& output = ::testing::GTEST_FLAG(output);
  if (!file.empty() && EndsWith(output, "/")) {
    const std::string program = argv[0];
    std::string name = program.substr(program.rfind('/') + 1) + "_" + file;
    std::replace(name.begin(), name.end(), '/', '_');
    output += name + ".xml";
  }
  ::testing::InitGoogleTest(&argc, argv);
  if (!file.empty()) {
    ::testing::GTEST_FLAG(filter) = FilterFor(file);
    if (::testing::GTEST_FLAG(filter).empty()) {
      std::fprintf(stderr, "expected a file with tests, received %s\n", file.c_str());
      return 1;
    }
  }
#if defined(__unix__) || defined(__APPLE__)
  // GoogleTest owns its listeners.
  ::testing::UnitTest::GetInstance()->listeners().Append(new ProcessorTimes);
#endif
  return RUN_ALL_TESTS();
}
