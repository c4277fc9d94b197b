#include "checkpoint/reader.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <tuple>
#include <utility>

#include "base/text.h"
#include "base/wait_lines.h"
#include "checkpoint/manifest_file.h"
#include "numbers/key_hash.h"

namespace multiverso {
namespace {

Status CheckLimit(const WaitLimit& limit, const std::string& path) {
  const Instant now = Clock::now();
  if (now >= limit.deadline) {
    return Status(Code::kTimeout, StrCat(path, ": reading took too long", LimitAdvice()));
  }
  return limit.Check(now);
}

}  // namespace

Result<std::unique_ptr<CheckpointReader>> CheckpointReader::Open(FileSystem* files,
                                                                 const std::string& path) {
  std::unique_ptr<CheckpointReader> reader(new CheckpointReader(files, path));
  MV_RETURN_IF_NOT_OK(reader->OpenFiles());
  return reader;
}

Status CheckpointReader::OpenFiles() {
  MV_ASSIGN_OR_RETURN(manifest_, ReadManifest(files_, path_, &manifest_bytes_));
  const std::vector<SavedFile>& files = manifest_.files;
  for (size_t first = 0, end = 0; first < files.size(); first = end) {
    while (end < files.size() && files[end].number == files[first].number) ++end;
    MV_RETURN_IF_NOT_OK(OpenSave(first, end));
  }
  if (saves_.empty()) saves_.push_back(std::make_unique<Save>());
  for (auto save = saves_.rbegin(); save != saves_.rend(); ++save) {
    MV_RETURN_IF_NOT_OK(CheckCoverage(save->get(), /*is_oldest=*/save == saves_.rbegin()));
    for (const StoredSection& stored : (*save)->sections) blocks_ += stored.section->blocks();
  }
  return Status::Ok();
}

Status CheckpointReader::OpenSave(size_t first, size_t end) {
  saves_.push_back(std::make_unique<Save>());
  Save* const save = saves_.back().get();
  for (size_t i = first; i < end; ++i) {
    const std::string name = DataFileName(manifest_.files[i], manifest_.number);
    MV_ASSIGN_OR_RETURN(auto file, DataFile::Open(files_, StrCat(path_, "/", name), manifest_, i));
    save->files.push_back(std::move(file));
    DataFile* const opened = save->files.back().get();
    LimitOpenFiles(opened);
    for (const Section& section : opened->header().sections) {
      save->sections.push_back(StoredSection{opened, &section, nullptr});
    }
  }
  std::sort(save->sections.begin(), save->sections.end(),
            [](const StoredSection& left, const StoredSection& right) {
              const Section& a = *left.section;
              const Section& b = *right.section;
              return std::tie(a.table, a.area, a.first_row) <
                     std::tie(b.table, b.area, b.first_row);
            });
  return Status::Ok();
}

void CheckpointReader::LimitOpenFiles(DataFile* file) {
  if (open_files_.size() < kMaxOpenFiles) return open_files_.push_back(file);
  open_files_[next_to_close_]->Close();
  open_files_[next_to_close_] = file;
  next_to_close_ = (next_to_close_ + 1) % kMaxOpenFiles;
}

Result<int64_t> CheckpointReader::ReadBlock(Save* save, const StoredSection& stored,
                                            int64_t block) {
  const Section& section = *stored.section;
  if (save->section == &section && save->block == block) return save->bytes;
  const auto room = static_cast<size_t>(std::min(section.padded_bytes(), kBlockBytes));
  if (save->buffer.size() < room) save->buffer.resize(room);
  save->section = nullptr;
  if (!stored.file->is_open()) LimitOpenFiles(stored.file);
  MV_ASSIGN_OR_RETURN(save->bytes, stored.file->ReadBlock(section, block, save->buffer.data()));
  save->section = &section;
  save->block = block;
  return save->bytes;
}

Status CheckpointReader::CheckCoverage(Save* save, bool is_oldest) const {
  const std::string path = ManifestPath(path_);
  auto stored = save->sections.begin();
  for (uint32_t i = 0; i < manifest_.tables.size(); ++i) {
    const SavedTable& table = manifest_.tables[i];
    constexpr uint32_t kAreasOfRuns[] = {kRunsArea, kFreedRunsArea};
    const uint32_t own = table.num_areas();
    const uint32_t areas = own + (is_oldest ? 0 : std::size(kAreasOfRuns));
    for (uint32_t index = 0; index < areas; ++index) {
      const uint32_t area = index < own ? table.area(index) : kAreasOfRuns[index - own];
      const auto is_of_area = [&] {
        return stored != save->sections.end() && stored->section->table == i &&
               stored->section->area == area;
      };
      int64_t row = 0;
      while (is_oldest ? row < table.num_row : is_of_area()) {
        const bool fits = is_of_area() && (is_oldest ? stored->section->first_row == row
                                                     : stored->section->first_row >= row);
        if (!fits) {
          return CorruptionFailure(path, 0,
                                   StrCat("row ", row, " of table '", table.name, "', area ", area,
                                          ", is in no file or in two"));
        }
        const Section& section = *stored->section;
        const StoredSection* const list = ListOf(save, section);
        const bool has_list =
            list != nullptr && list->section->rows == section.rows &&
            (SavedTable::IsOfRuns(list->section->area) ||
             list->section->bytes / kRowIdBytes == section.bytes / table.row_bytes(section.area));
        const bool has_all = list == nullptr && !table.is_lazy() &&
                             section.bytes == section.rows * table.row_bytes(section.area);
        if (!has_list && !has_all) {
          return CorruptionFailure(
              path, 0,
              StrCat("the rows from ", section.first_row, " on of table '", table.name, "', area ",
                     area, ", are not those of the area with their numbers"));
        }
        row = section.first_row + section.rows;
        ++stored;
      }
    }
  }
  if (stored == save->sections.end()) return Status::Ok();
  return CorruptionFailure(path, 0, "the files hold rows more than once");
}

CheckpointReader::StoredSection* CheckpointReader::Find(Save* save, uint32_t table, uint32_t area,
                                                        int64_t first_row) {
  const auto found = std::lower_bound(
      save->sections.begin(), save->sections.end(), std::make_tuple(table, area, first_row),
      [](const StoredSection& stored, const std::tuple<uint32_t, uint32_t, int64_t>& wanted) {
        const Section& at = *stored.section;
        return std::tie(at.table, at.area, at.first_row) < wanted;
      });
  if (found == save->sections.end()) return nullptr;
  const Section& section = *found->section;
  const bool is_found =
      section.table == table && section.area == area && section.first_row == first_row;
  return is_found ? &*found : nullptr;
}

CheckpointReader::StoredSection* CheckpointReader::ListOf(Save* save,
                                                          const Section& section) const {
  const auto find = [&](uint32_t area) {
    return Find(save, section.table, area, section.first_row);
  };
  if (SavedTable::IsOfRuns(section.area)) return find(section.area);
  StoredSection* const ids = find(kRowIdsArea);
  // An increment may have the keys of all rows, and other areas of some.
  const bool is_of_all = section.area == kKeysArea || section.area == kRowIdsArea;
  if (ids != nullptr && is_of_all) return ids;
  StoredSection* const runs = find(kRunsArea);
  return runs != nullptr ? runs : ids;
}

Status CheckpointReader::ReadList(Save* save, StoredSection* stored) {
  if (stored->list != nullptr) return Status::Ok();
  const Section& section = *stored->section;
  const bool has_runs = SavedTable::IsOfRuns(section.area);
  const RowRange range{section.first_row, section.first_row + section.rows};
  constexpr auto kRunsInMemory = static_cast<int64_t>(sizeof(StoredRows::Run)) / kRunBytes;
  MV_RETURN_IF_NOT_OK(CheckRoomFor(section.bytes * kRunsInMemory, stored->file->path()));
  auto list = std::make_shared<StoredRows>();
  for (int64_t block = 0; block < section.blocks(); ++block) {
    MV_ASSIGN_OR_RETURN(const auto data, ReadBlock(save, *stored, block));
    for (int64_t at = 0; at < data; at += kRunBytes) {
      uint64_t number = 0;
      std::memcpy(&number, save->buffer.data() + at, sizeof(number));
      const auto row = static_cast<int64_t>(number);
      const int64_t least = std::max(range.first, list->end());
      const bool is_id = !has_runs && row >= least && row < range.end;
      if (is_id) list->Append(row, 1);
      if (is_id || (has_runs && list->Decode(number, range))) continue;
      return CorruptionFailure(
          stored->file->path(), section.offset + block * kBlockBytes + at,
          StrCat("expected ", has_runs ? "rows" : "a row", " from ", least, " to ", range.end - 1,
                 ", received ", has_runs ? range.first + row / 65536 : row));
    }
  }
  stored->list = std::move(list);
  return Status::Ok();
}

Status CheckpointReader::AppendParts(Save* save, uint32_t table, uint32_t area, RowRange rows,
                                     std::vector<Part>* parts) {
  auto next = std::upper_bound(
      save->sections.begin(), save->sections.end(), std::make_tuple(table, area, rows.first),
      [](const std::tuple<uint32_t, uint32_t, int64_t>& wanted, const StoredSection& stored) {
        const Section& at = *stored.section;
        return wanted < std::tie(at.table, at.area, at.first_row);
      });
  if (next != save->sections.begin()) --next;  // which may begin before `rows`
  for (; next != save->sections.end(); ++next) {
    const Section& section = *next->section;
    if (section.table != table || section.area != area) {
      if (std::tie(section.table, section.area) < std::tie(table, area)) continue;
      break;
    }
    const RowRange here{std::max(rows.first, section.first_row),
                        std::min(rows.end, section.first_row + section.rows)};
    if (section.first_row >= rows.end) break;
    if (here.count() <= 0) continue;
    StoredSection* const list = ListOf(save, section);
    if (list == nullptr || !SavedTable::IsOfRuns(list->section->area)) {
      parts->push_back(Part{save, &*next, here});
      continue;
    }
    const auto begin = static_cast<std::ptrdiff_t>(parts->size());
    StoredSection* const freed = Find(save, table, kFreedRunsArea, section.first_row);
    for (StoredSection* const each : {list, freed}) {
      if (each == nullptr) continue;
      MV_RETURN_IF_NOT_OK(ReadList(save, each));
      const std::vector<StoredRows::Run>& runs = each->list->runs();
      for (size_t i = each->list->RunAt(here.first); i < runs.size(); ++i) {
        const RowRange run{std::max(here.first, runs[i].first),
                           std::min(here.end, runs[i].first + runs[i].count)};
        if (run.count() <= 0) break;
        parts->push_back(Part{save, each == list ? &*next : nullptr, run});
      }
    }
    if (list->list->rows() * manifest_.tables[table].row_bytes(area) != section.bytes) {
      return CorruptionFailure(next->file->path(), section.offset,
                               StrCat("expected ", list->list->rows(), " rows of area ", area));
    }
    if (freed == nullptr) continue;
    std::sort(parts->begin() + begin, parts->end(),
              [](const Part& a, const Part& b) { return a.rows.first < b.rows.first; });
    for (auto part = parts->begin() + begin; part + 1 < parts->end(); ++part) {
      if (part->rows.end <= (part + 1)->rows.first) continue;
      return CorruptionFailure(freed->file->path(), freed->section->offset,
                               StrCat("row ", (part + 1)->rows.first, " is stored and freed"));
    }
  }
  return Status::Ok();
}

std::vector<CheckpointReader::Part> CheckpointReader::Overlay(const std::vector<Part>& below,
                                                              const std::vector<Part>& newer) {
  if (newer.empty()) return below;
  std::vector<Part> parts;
  parts.reserve(below.size() + newer.size());
  auto next = newer.begin();
  int64_t replaced = 0;  // the end of the rows of `newer` that are in `parts`
  for (const Part& part : below) {
    int64_t first = std::max(part.rows.first, replaced);
    for (; next != newer.end() && next->rows.first < part.rows.end; ++next) {
      if (first < next->rows.first) {
        parts.push_back(Part{part.save, part.stored, RowRange{first, next->rows.first}});
      }
      parts.push_back(*next);
      first = std::max(first, replaced = next->rows.end);
    }
    if (first < part.rows.end) {
      parts.push_back(Part{part.save, part.stored, RowRange{first, part.rows.end}});
    }
  }
  parts.insert(parts.end(), next, newer.end());
  return parts;
}

template <class Body>
Status CheckpointReader::ForEachPart(uint32_t table, uint32_t area, RowRange rows,
                                     const Body& body) {
  // Increments divide an area into many parts, so some rows are looked at after the other.
  constexpr int64_t kLeastRows = int64_t{1} << 20;
  constexpr int64_t kMostSteps = 256;
  const int64_t step =
      saves_.size() == 1 ? rows.count() : std::max(kLeastRows, rows.count() / kMostSteps);
  for (int64_t first = rows.first; first < rows.end; first += step) {
    const RowRange some{first, std::min(rows.end - first, step) + first};
    std::vector<Part> parts;
    for (auto save = saves_.rbegin(); save != saves_.rend(); ++save) {
      std::vector<Part> newer;
      MV_RETURN_IF_NOT_OK(AppendParts(save->get(), table, area, some, &newer));
      parts = Overlay(parts, newer);
    }
    for (const Part& part : parts) {
      if (part.stored != nullptr) MV_RETURN_IF_NOT_OK(body(part));
    }
  }
  return Status::Ok();
}

Status CheckpointReader::CheckKeys(Save* save, const StoredSection& stored,
                                   const WaitLimit& limit) {
  const Section& section = *stored.section;
  const SavedTable& saved = manifest().tables[section.table];
  const int64_t stripes = saved.num_row / kRowsPerStripeOfKeys;
  MV_RETURN_IF_NOT_OK(CheckRoomFor(section.bytes, stored.file->path()));
  std::vector<int64_t> keys;
  const auto problem = [&](int64_t key, const char* what) {
    return CorruptionFailure(stored.file->path(), section.offset,
                             StrCat("table '", saved.name, "': key ", key, what));
  };
  const auto take = [&](int64_t row, int64_t count, const char* data) -> Status {
    for (int64_t i = 0; i < count; ++i) {
      int64_t key = 0;
      std::memcpy(&key, data + i * kKeyBytes, sizeof(key));
      if (StripeOfKey(key, stripes) != (row + i) / kRowsPerStripeOfKeys) {
        return problem(key, StrCat(" cannot be in row ", row + i).c_str());
      }
      keys.push_back(key);
    }
    return Status::Ok();
  };
  const RowRange rows{section.first_row, section.first_row + section.rows};
  MV_RETURN_IF_NOT_OK(ReadPart(Part{save, &stored, rows}, limit, take));
  std::sort(keys.begin(), keys.end());
  const auto repeated = std::adjacent_find(keys.begin(), keys.end());
  return repeated == keys.end() ? Status::Ok() : problem(*repeated, " is in two rows");
}

int64_t CheckpointReader::file_bytes() const {
  int64_t total = manifest_bytes_;
  for (const SavedFile& file : manifest_.files) total += file.bytes;
  return total;
}

Status CheckpointReader::Verify(int64_t first, int64_t end, const WaitLimit& limit) {
  int64_t blocks_before = 0;
  for (const auto& save : saves_) {
    for (StoredSection& stored : save->sections) {
      const Section& section = *stored.section;
      const int64_t blocks = section.blocks();
      const bool has_share = first < std::min(end, blocks_before + blocks);
      const bool is_list = section.area == kRowIdsArea || SavedTable::IsOfRuns(section.area);
      if (has_share && is_list) MV_RETURN_IF_NOT_OK(ReadList(save.get(), &stored));
      if (has_share && section.area == kKeysArea) {
        MV_RETURN_IF_NOT_OK(CheckKeys(save.get(), stored, limit));
      }
      for (; first < std::min(end, blocks_before + blocks); ++first) {
        MV_RETURN_IF_NOT_OK(ReadBlock(save.get(), stored, first - blocks_before).status());
        MV_RETURN_IF_NOT_OK(CheckLimit(limit, path_));
      }
      blocks_before += blocks;
    }
  }
  return Status::Ok();
}

Status CheckpointReader::Read(uint32_t table, uint32_t area, int64_t first_row, int64_t end_row,
                              const WaitLimit& limit, const TakeBlock& take) {
  return ForEachPart(table, area, RowRange{first_row, end_row},
                     [&](const Part& part) { return ReadPart(part, limit, take); });
}

Status CheckpointReader::ReadPart(const Part& part, const WaitLimit& limit, const TakeBlock& take) {
  const Section& section = *part.stored->section;
  const SavedTable& saved = manifest().tables[section.table];
  const int64_t row_bytes = saved.row_bytes(section.area);
  const int64_t element_bytes = saved.element_bytes(section.area);
  StoredSection* const list = ListOf(part.save, section);
  if (list != nullptr) MV_RETURN_IF_NOT_OK(ReadList(part.save, list));
  const auto offset_of = [&](int64_t row) {
    return (list == nullptr ? row - section.first_row : list->list->PlaceOf(row)) * row_bytes;
  };
  const int64_t end = offset_of(part.rows.end);
  for (int64_t at = offset_of(part.rows.first); at < end;) {
    const bool is_new = part.save->section != &section || part.save->block != at / kBlockBytes;
    MV_ASSIGN_OR_RETURN(const auto data, ReadBlock(part.save, *part.stored, at / kBlockBytes));
    const int64_t block_begin = at / kBlockBytes * kBlockBytes;
    // The stored row at `at`, and the run of consecutive rows that begins with it.
    const int64_t place = at / row_bytes;
    int64_t row = section.first_row + place;
    int64_t run_end = std::min(end, block_begin + data);
    if (list != nullptr) {
      const StoredRows::Run run = list->list->From(place);
      row = run.first;
      run_end = std::min(run_end, (place + run.count) * row_bytes);
    }
    MV_RETURN_IF_NOT_OK(take((row * row_bytes + at % row_bytes) / element_bytes,
                             (run_end - at) / element_bytes,
                             part.save->buffer.data() + (at - block_begin)));
    at = run_end;
    if (is_new) MV_RETURN_IF_NOT_OK(CheckLimit(limit, path_));
  }
  return Status::Ok();
}

Result<int64_t> CheckpointReader::StoredRowsOf(uint32_t table) {
  const SavedTable& saved = manifest().tables[table];
  const uint32_t area = saved.is_hash() ? kKeysArea : kParameterArea;
  int64_t rows = 0;
  const auto count = [&](const Part& part) -> Status {
    const Section& section = *part.stored->section;
    if (part.rows.count() == section.rows) {
      rows += section.bytes / saved.row_bytes(area);
      return Status::Ok();
    }
    StoredSection* const list = ListOf(part.save, section);
    MV_RETURN_IF_NOT_OK(ReadList(part.save, list));
    rows += list->list->PlaceOf(part.rows.end) - list->list->PlaceOf(part.rows.first);
    return Status::Ok();
  };
  const Status counted = ForEachPart(table, area, RowRange{0, saved.num_row}, count);
  if (!counted.ok()) return counted;
  return rows;
}

uint64_t CheckpointReader::StepsOf(uint32_t table, int64_t first_row, int64_t end_row) {
  if (manifest().tables[table].counting != StepCounting::kPerSection) return 0;
  uint64_t steps = 0;
  // Sections with counts of their own list no rows, so nothing is read.
  (void)ForEachPart(table, kParameterArea, RowRange{first_row, end_row}, [&](const Part& part) {
    steps = std::max(steps, part.stored->section->steps);
    return Status::Ok();
  });
  return steps;
}

}  // namespace multiverso
