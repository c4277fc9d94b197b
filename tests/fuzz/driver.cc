// Replaces libFuzzer: runs all files of the corpus, then random mutations of them.
//
//   fuzz_checkpoint -runs=10000 -seed=1 CORPUS...    has the options of libFuzzer; seed 0 draws one
//   fuzz_checkpoint -seeds=FOLDER                    writes the target's own seeds to the folder
//   MULTIVERSO_FUZZ_KEEP=1                           keeps the latest mutation in crash-last-input
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "target.h"

namespace {

// Tries one to four changes. A change sets a byte, flips a bit, truncates, inserts up to 9 equal
// bytes, rotates, erases up to 9 bytes, or sets an aligned number to a boundary value.
void Mutate(std::string* bytes, std::mt19937_64* random) {
  // Includes the alignment of checkpoint data (4096) and the last tag of a call (12287).
  static constexpr int64_t kBoundaryValues[] = {
      0,       1,       -1,        2,         7,          8,         255,       256,
      65535,   65536,   INT32_MAX, INT32_MIN, UINT32_MAX, INT64_MAX, INT64_MIN, 4096,
      1 << 18, 1 << 20, 1LL << 32, 1LL << 40, 1LL << 62,  12287,     16};
  for (uint64_t changes = 1 + (*random)() % 4; changes > 0; --changes) {
    if (bytes->empty()) bytes->push_back('\0');
    const size_t offset = (*random)() % bytes->size();
    const int64_t boundary = kBoundaryValues[(*random)() % std::size(kBoundaryValues)];
    switch ((*random)() % 8) {
      case 0:
        (*bytes)[offset] = static_cast<char>((*random)());
        break;
      case 1:
        (*bytes)[offset] = static_cast<char>((*bytes)[offset] ^ (1 << ((*random)() % 8)));
        break;
      case 2:
        bytes->resize((*random)() % 2 == 0 ? offset : offset % 128);
        break;
      case 3:
        bytes->insert(offset, 1 + (*random)() % 9, static_cast<char>((*random)()));
        break;
      case 4:
        std::rotate(bytes->begin(), bytes->begin() + static_cast<int64_t>(offset), bytes->end());
        break;
      case 5:
        bytes->erase(offset, 1 + (*random)() % 9);
        break;
      default: {
        const size_t width = (*random)() % 2 == 0 ? 4 : 8;
        const size_t field = offset / width * width;
        if (field + width <= bytes->size()) std::memcpy(bytes->data() + field, &boundary, width);
      }
    }
  }
}

bool ParseOption(const std::string& argument, const std::string& option, uint64_t* number) {
  if (argument.rfind(option, 0) != 0) return false;
  *number = std::strtoull(argument.c_str() + option.size(), nullptr, 10);
  return true;
}

void Run(const std::string& bytes) {
  (void)LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

// Writes the next input to a file, because a crash would leave no time to write it.
void Keep(const std::string& bytes) {
  std::ofstream("crash-last-input", std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

void WriteSeeds(const std::string& folder) {
  std::filesystem::create_directories(folder);
  const std::vector<std::string> seeds = multiverso::fuzz::Seeds();
  for (size_t i = 0; i < seeds.size(); ++i) {
    std::ofstream(folder + "/seed-" + std::to_string(i), std::ios::binary)
        .write(seeds[i].data(), static_cast<std::streamsize>(seeds[i].size()));
  }
}

std::vector<std::string> ReadCorpus(const std::string& path) {
  std::vector<std::filesystem::path> files;
  if (std::filesystem::is_directory(path)) {
    for (const auto& entry : std::filesystem::directory_iterator(path)) files.push_back(entry);
    std::sort(files.begin(), files.end());  // makes a run depend on its seed only
  } else {
    files.emplace_back(path);
  }
  std::vector<std::string> corpus;
  for (const auto& file : files) {
    std::ifstream in(file, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return corpus;
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t runs = 0;
  uint64_t seed = 1;
  std::vector<std::string> corpus;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("-seeds=", 0) == 0) {
      WriteSeeds(argument.substr(7));
      return 0;
    }
    if (ParseOption(argument, "-runs=", &runs) || ParseOption(argument, "-seed=", &seed)) continue;
    for (std::string& bytes : ReadCorpus(argument)) corpus.push_back(std::move(bytes));
  }
  if (corpus.empty()) {
    std::fprintf(stderr, "expected at least one file in the corpus, received none\n");
    return 2;
  }
  for (const std::string& bytes : corpus) Run(bytes);
  if (seed == 0) seed = std::random_device()();
  std::mt19937_64 random(seed);
  for (uint64_t run = 0; run < runs; ++run) {
    std::string bytes = corpus[random() % corpus.size()];
    Mutate(&bytes, &random);
    if (std::getenv("MULTIVERSO_FUZZ_KEEP") != nullptr) Keep(bytes);
    Run(bytes);
  }
  std::printf("ran %zu files and %llu mutations of them, seed %llu\n", corpus.size(),
              static_cast<unsigned long long>(runs), static_cast<unsigned long long>(seed));
  return 0;
}
