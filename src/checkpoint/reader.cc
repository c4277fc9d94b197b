#include "checkpoint/reader.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/checked.h"
#include "base/text.h"
#include "base/wait_lines.h"
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
  int64_t max_section_bytes = 0;
  for (auto save = saves_.rbegin(); save != saves_.rend(); ++save) {
    MV_RETURN_IF_NOT_OK(CheckCoverage(save->get(), /*is_oldest=*/save == saves_.rbegin()));
    for (const StoredSection& stored : (*save)->sections) {
      blocks_ += stored.section->blocks();
      max_section_bytes = std::max(max_section_bytes, stored.section->padded_bytes());
    }
    parts_ = Overlay(parts_, save->get());
  }
  buffer_.resize(static_cast<size_t>(std::min(max_section_bytes, kBlockBytes)));
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
      save->sections.push_back(StoredSection{opened, &section, {}, false});
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

Result<int64_t> CheckpointReader::ReadBlock(DataFile* file, const Section& section, int64_t block) {
  if (!file->is_open()) LimitOpenFiles(file);
  return file->ReadBlock(section, block, buffer_.data());
}

Status CheckpointReader::CheckCoverage(Save* save, bool is_oldest) const {
  const std::string path = ManifestPath(path_);
  auto stored = save->sections.begin();
  for (uint32_t i = 0; i < manifest_.tables.size(); ++i) {
    const SavedTable& table = manifest_.tables[i];
    for (uint32_t index = 0; index < table.num_areas(); ++index) {
      const uint32_t area = table.area(index);
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
        const StoredSection* const ids = table.is_lazy() ? RowIdsOf(save, section) : nullptr;
        const bool has_ids =
            ids != nullptr && ids->section->rows == section.rows &&
            ids->section->bytes / kRowIdBytes == section.bytes / table.row_bytes(section.area);
        if (table.is_lazy() && !has_ids) {
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

std::vector<CheckpointReader::Part> CheckpointReader::Overlay(const std::vector<Part>& below,
                                                              Save* save) {
  const auto area_of = [](const StoredSection& stored) {
    return std::make_pair(stored.section->table, stored.section->area);
  };
  std::vector<Part> parts;
  parts.reserve(below.size() + save->sections.size());
  auto next = save->sections.begin();
  const auto end = save->sections.end();
  const auto take = [&] {
    const Section& section = *next->section;
    parts.push_back(Part{save, &*next, section.first_row, section.first_row + section.rows});
    ++next;
  };
  for (const Part& part : below) {
    const auto area = area_of(*part.stored);
    // The first row of the part that is neither replaced nor in `parts` yet.
    int64_t first = part.first;
    // The last section taken may replace the beginning of this part.
    if (!parts.empty() && area_of(*parts.back().stored) == area) {
      first = std::max(first, parts.back().end);
    }
    while (next != end) {
      const auto next_area = area_of(*next);
      const bool is_before =
          next_area < area || (next_area == area && next->section->first_row < part.end);
      if (!is_before) break;
      if (next_area == area) {
        if (first < next->section->first_row) {
          parts.push_back(Part{part.save, part.stored, first, next->section->first_row});
        }
        first = std::max(first, next->section->first_row + next->section->rows);
      }
      take();
    }
    if (first < part.end) parts.push_back(Part{part.save, part.stored, first, part.end});
  }
  while (next != end) take();
  return parts;
}

std::vector<CheckpointReader::Part>::const_iterator CheckpointReader::FirstPart(uint32_t table,
                                                                                uint32_t area,
                                                                                int64_t row) const {
  return std::upper_bound(
      parts_.begin(), parts_.end(), std::make_tuple(table, area, row),
      [](const std::tuple<uint32_t, uint32_t, int64_t>& wanted, const Part& part) {
        const Section& section = *part.stored->section;
        return wanted < std::tie(section.table, section.area, part.end);
      });
}

template <class Body>
Status CheckpointReader::ForEachPart(uint32_t table, uint32_t area, int64_t first_row,
                                     int64_t end_row, Body body) const {
  for (auto part = FirstPart(table, area, first_row); part != parts_.end(); ++part) {
    const Section& section = *part->stored->section;
    if (section.table != table || section.area != area || part->first >= end_row) break;
    const int64_t begin = std::max(first_row, part->first);
    const int64_t end = std::min(end_row, part->end);
    if (begin < end) MV_RETURN_IF_NOT_OK(body(*part, begin, end));
  }
  return Status::Ok();
}

CheckpointReader::StoredSection* CheckpointReader::RowIdsOf(Save* save, const Section& section) {
  const auto found = std::lower_bound(
      save->sections.begin(), save->sections.end(),
      std::make_tuple(section.table, kRowIdsArea, section.first_row),
      [](const StoredSection& stored, const std::tuple<uint32_t, uint32_t, int64_t>& wanted) {
        const Section& at = *stored.section;
        return std::tie(at.table, at.area, at.first_row) < wanted;
      });
  if (found == save->sections.end()) return nullptr;
  const Section& ids = *found->section;
  const bool is_found =
      ids.table == section.table && ids.area == kRowIdsArea && ids.first_row == section.first_row;
  return is_found ? &*found : nullptr;
}

Status CheckpointReader::ReadRowIds(StoredSection* stored) {
  if (stored->has_row_ids) return Status::Ok();
  const Section& section = *stored->section;
  MV_RETURN_IF_NOT_OK(CheckRoomFor(section.bytes, stored->file->path()));
  std::vector<int64_t> ids(static_cast<size_t>(section.bytes / kRowIdBytes));
  for (int64_t block = 0; block < section.blocks(); ++block) {
    MV_ASSIGN_OR_RETURN(const auto data, ReadBlock(stored->file, section, block));
    if (data > 0) {
      std::memcpy(reinterpret_cast<char*>(ids.data()) + block * kBlockBytes, buffer_.data(),
                  static_cast<size_t>(data));
    }
  }
  int64_t least = section.first_row;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < least || ids[i] >= section.first_row + section.rows) {
      return CorruptionFailure(stored->file->path(),
                               section.offset + static_cast<int64_t>(i) * kRowIdBytes,
                               StrCat("expected a row from ", least, " to ",
                                      section.first_row + section.rows - 1, ", received ", ids[i]));
    }
    least = ids[i] + 1;
  }
  stored->row_ids = std::move(ids);
  stored->has_row_ids = true;
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
  MV_RETURN_IF_NOT_OK(
      ReadSection(save, stored, section.first_row, section.first_row + section.rows, limit, take));
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
      if (has_share && section.area == kRowIdsArea) MV_RETURN_IF_NOT_OK(ReadRowIds(&stored));
      if (has_share && section.area == kKeysArea) {
        MV_RETURN_IF_NOT_OK(CheckKeys(save.get(), stored, limit));
      }
      for (; first < std::min(end, blocks_before + blocks); ++first) {
        MV_RETURN_IF_NOT_OK(ReadBlock(stored.file, section, first - blocks_before).status());
        MV_RETURN_IF_NOT_OK(CheckLimit(limit, path_));
      }
      blocks_before += blocks;
    }
  }
  return Status::Ok();
}

Status CheckpointReader::Read(uint32_t table, uint32_t area, int64_t first_row, int64_t end_row,
                              const WaitLimit& limit, const TakeBlock& take) {
  return ForEachPart(table, area, first_row, end_row,
                     [&](const Part& part, int64_t begin, int64_t end) {
                       return ReadSection(part.save, *part.stored, begin, end, limit, take);
                     });
}

Status CheckpointReader::ReadSection(Save* save, const StoredSection& stored, int64_t first_row,
                                     int64_t end_row, const WaitLimit& limit,
                                     const TakeBlock& take) {
  const Section& section = *stored.section;
  const SavedTable& saved = manifest().tables[section.table];
  const int64_t row_bytes = saved.row_bytes(section.area);
  if (!saved.is_lazy()) {
    return ReadPart(stored, (first_row - section.first_row) * row_bytes,
                    (end_row - section.first_row) * row_bytes, nullptr, limit, take);
  }
  StoredSection* const ids = RowIdsOf(save, section);
  MV_RETURN_IF_NOT_OK(ReadRowIds(ids));
  const auto place_of = [&](int64_t row) {
    return std::lower_bound(ids->row_ids.begin(), ids->row_ids.end(), row) - ids->row_ids.begin();
  };
  return ReadPart(stored, place_of(first_row) * row_bytes, place_of(end_row) * row_bytes,
                  ids->row_ids.data(), limit, take);
}

Status CheckpointReader::ReadPart(const StoredSection& stored, int64_t from, int64_t to,
                                  const int64_t* row_ids, const WaitLimit& limit,
                                  const TakeBlock& take) {
  const Section& section = *stored.section;
  const SavedTable& saved = manifest().tables[section.table];
  const int64_t row_bytes = saved.row_bytes(section.area);
  const int64_t element_bytes = saved.element_bytes(section.area);
  for (int64_t block = from / kBlockBytes; block * kBlockBytes < to; ++block) {
    MV_ASSIGN_OR_RETURN(const auto data, ReadBlock(stored.file, section, block));
    const int64_t block_begin = block * kBlockBytes;
    const int64_t part_end = std::min(to, block_begin + data);
    for (int64_t part = std::max(from, block_begin); part < part_end;) {
      // The stored row at `part`, and the run of consecutive rows that begins with it.
      const int64_t place = part / row_bytes;
      int64_t row = section.first_row + place;
      int64_t run_end = part_end;
      if (row_ids != nullptr) {
        row = row_ids[place];
        int64_t next = place + 1;
        while (next * row_bytes < part_end && row_ids[next] == row_ids[next - 1] + 1) ++next;
        run_end = std::min(part_end, next * row_bytes);
      }
      MV_RETURN_IF_NOT_OK(take((row * row_bytes + part % row_bytes) / element_bytes,
                               (run_end - part) / element_bytes,
                               buffer_.data() + (part - block_begin)));
      part = run_end;
    }
    MV_RETURN_IF_NOT_OK(CheckLimit(limit, path_));
  }
  return Status::Ok();
}

Result<int64_t> CheckpointReader::StoredRowsOf(uint32_t table) {
  int64_t rows = 0;
  const Status counted = ForEachPart(table, kRowIdsArea, 0, manifest().tables[table].num_row,
                                     [&](const Part& part, int64_t begin, int64_t end) -> Status {
                                       const Section& section = *part.stored->section;
                                       if (end - begin == section.rows) {
                                         rows += section.bytes / kRowIdBytes;
                                         return Status::Ok();
                                       }
                                       MV_RETURN_IF_NOT_OK(ReadRowIds(part.stored));
                                       const std::vector<int64_t>& ids = part.stored->row_ids;
                                       rows += std::lower_bound(ids.begin(), ids.end(), end) -
                                               std::lower_bound(ids.begin(), ids.end(), begin);
                                       return Status::Ok();
                                     });
  if (!counted.ok()) return counted;
  return rows;
}

uint64_t CheckpointReader::StepsOf(uint32_t table, int64_t first_row, int64_t end_row) const {
  uint64_t steps = 0;
  (void)ForEachPart(table, kParameterArea, first_row, end_row,
                    [&](const Part& part, int64_t /*begin*/, int64_t /*end*/) {
                      steps = std::max(steps, part.stored->section->steps);
                      return Status::Ok();
                    });
  return steps;
}

}  // namespace multiverso
