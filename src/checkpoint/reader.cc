#include "checkpoint/reader.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/checked.h"
#include "base/text.h"
#include "shard/key_hash.h"

namespace multiverso {
namespace {

Status CheckLimit(const WaitLimit& limit, const std::string& path) {
  const Instant now = Clock::now();
  if (now >= limit.deadline) {
    return Status(Code::kTimeout, StrCat(path, ": reading took too long"));
  }
  return limit.Check(now);
}

}  // namespace

Result<std::unique_ptr<CheckpointReader>> CheckpointReader::Open(FileSystem* files,
                                                                 const std::string& path) {
  std::unique_ptr<CheckpointReader> reader(new CheckpointReader(files, path));
  MV_RETURN_IF_NOT_OK(reader->ReadManifest());
  MV_RETURN_IF_NOT_OK(reader->OpenDataFiles());
  MV_RETURN_IF_NOT_OK(reader->CheckCoverage());
  return reader;
}

Status CheckpointReader::ReadManifest() {
  auto file = files_->Open(StrCat(path_, "/", kManifestName));
  if (!file.ok()) return file.status();
  manifest_bytes_ = file.value()->bytes();
  if (manifest_bytes_ > kMaxHeaderBytes) {
    return CorruptionFailure(file.value()->path(), 0,
                             StrCat("expected a manifest, received ", manifest_bytes_, " bytes"));
  }
  std::string bytes(static_cast<size_t>(manifest_bytes_), '\0');
  MV_RETURN_IF_NOT_OK(file.value()->Read(0, bytes.data(), manifest_bytes_));
  Result<Manifest> manifest = DecodeManifest(bytes, file.value()->path());
  if (!manifest.ok()) return manifest.status();
  manifest_ = std::move(manifest.value());
  return Status::Ok();
}

Status CheckpointReader::OpenDataFiles() {
  int64_t max_section_bytes = 0;
  for (uint32_t i = 0; i < manifest_.files.size(); ++i) {
    auto file = DataFile::Open(files_, StrCat(path_, "/", DataFileName(i)), manifest_, i);
    if (!file.ok()) return file.status();
    data_files_.push_back(std::move(file.value()));
    for (const Section& section : data_files_.back()->header().sections) {
      sections_.push_back(StoredSection{data_files_.back().get(), &section, {}, false});
      blocks_ += section.blocks();
      max_section_bytes = std::max(max_section_bytes, section.padded_bytes());
    }
  }
  buffer_.resize(static_cast<size_t>(std::min(max_section_bytes, kBlockBytes)));
  std::sort(sections_.begin(), sections_.end(),
            [](const StoredSection& left, const StoredSection& right) {
              const Section& a = *left.section;
              const Section& b = *right.section;
              return std::tie(a.table, a.area, a.first_row) <
                     std::tie(b.table, b.area, b.first_row);
            });
  return Status::Ok();
}

Status CheckpointReader::CheckCoverage() {
  const std::string path = StrCat(path_, "/", kManifestName);
  auto stored = sections_.begin();
  for (uint32_t i = 0; i < manifest_.tables.size(); ++i) {
    const SavedTable& table = manifest_.tables[i];
    for (uint32_t index = 0; index < table.num_areas(); ++index) {
      int64_t row = 0;
      while (row < table.num_row) {
        const bool fits = stored != sections_.end() && stored->section->table == i &&
                          stored->section->area == table.area(index) &&
                          stored->section->first_row == row;
        if (!fits) {
          return CorruptionFailure(path, 0,
                                   StrCat("row ", row, " of table '", table.name, "', area ",
                                          table.area(index), ", is in no file or in two"));
        }
        const Section& section = *stored->section;
        const StoredSection* const ids = table.is_lazy() ? RowIdsOf(section) : nullptr;
        const bool has_ids =
            ids != nullptr && ids->section->rows == section.rows &&
            ids->section->bytes / kRowIdBytes == section.bytes / table.row_bytes(section.area);
        if (table.is_lazy() && !has_ids) {
          return CorruptionFailure(
              path, 0,
              StrCat("the rows from ", row, " on of table '", table.name, "', area ",
                     table.area(index), ", are not those of the area with their numbers"));
        }
        row += stored->section->rows;
        ++stored;
      }
    }
  }
  if (stored == sections_.end()) return Status::Ok();
  return CorruptionFailure(path, 0, "the files hold rows more than once");
}

CheckpointReader::StoredSection* CheckpointReader::RowIdsOf(const Section& section) {
  const auto found = std::lower_bound(
      sections_.begin(), sections_.end(),
      std::make_tuple(section.table, kRowIdsArea, section.first_row),
      [](const StoredSection& stored, const std::tuple<uint32_t, uint32_t, int64_t>& wanted) {
        const Section& at = *stored.section;
        return std::tie(at.table, at.area, at.first_row) < wanted;
      });
  if (found == sections_.end()) return nullptr;
  const Section& ids = *found->section;
  const bool is_found =
      ids.table == section.table && ids.area == kRowIdsArea && ids.first_row == section.first_row;
  return is_found ? &*found : nullptr;
}

Status CheckpointReader::ReadRowIds(StoredSection* stored) {
  if (stored->has_row_ids) return Status::Ok();
  const Section& section = *stored->section;
  std::vector<int64_t> ids(static_cast<size_t>(section.bytes / kRowIdBytes));
  for (int64_t block = 0; block < section.blocks(); ++block) {
    const auto data = stored->file->ReadBlock(section, block, buffer_.data());
    if (!data.ok()) return data.status();
    if (data.value() > 0) {
      std::memcpy(reinterpret_cast<char*>(ids.data()) + block * kBlockBytes, buffer_.data(),
                  static_cast<size_t>(data.value()));
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

Status CheckpointReader::CheckKeys(const StoredSection& stored) {
  const Section& section = *stored.section;
  const SavedTable& saved = manifest_.tables[section.table];
  const int64_t stripes = saved.num_row / kRowsPerStripeOfKeys;
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
  MV_RETURN_IF_NOT_OK(Read(section.table, kKeysArea, section.first_row,
                           section.first_row + section.rows, WaitLimit::Until(Instant::max()),
                           take));
  std::sort(keys.begin(), keys.end());
  const auto repeated = std::adjacent_find(keys.begin(), keys.end());
  return repeated == keys.end() ? Status::Ok() : problem(*repeated, " is in two rows");
}

int64_t CheckpointReader::file_bytes() const {
  int64_t total = manifest_bytes_;
  for (const auto& file : data_files_) total += file->header().file_bytes;
  return total;
}

Status CheckpointReader::Verify(int64_t first, int64_t end, const WaitLimit& limit) {
  int64_t blocks_before = 0;
  for (StoredSection& stored : sections_) {
    const int64_t blocks = stored.section->blocks();
    const bool has_share = first < std::min(end, blocks_before + blocks);
    if (has_share && stored.section->area == kRowIdsArea) MV_RETURN_IF_NOT_OK(ReadRowIds(&stored));
    if (has_share && stored.section->area == kKeysArea) MV_RETURN_IF_NOT_OK(CheckKeys(stored));
    for (; first < std::min(end, blocks_before + blocks); ++first) {
      const auto data =
          stored.file->ReadBlock(*stored.section, first - blocks_before, buffer_.data());
      if (!data.ok()) return data.status();
      MV_RETURN_IF_NOT_OK(CheckLimit(limit, path_));
    }
    blocks_before += blocks;
  }
  return Status::Ok();
}

Status CheckpointReader::Read(uint32_t table, uint32_t area, int64_t first_row, int64_t end_row,
                              const WaitLimit& limit, const TakeBlock& take) {
  const SavedTable& saved = manifest_.tables[table];
  const int64_t row_bytes = saved.row_bytes(area);
  for (const StoredSection& stored : sections_) {
    const Section& section = *stored.section;
    if (section.table != table || section.area != area) continue;
    const int64_t begin = std::max(first_row, section.first_row);
    const int64_t end = std::min(end_row, section.first_row + section.rows);
    if (begin >= end) continue;
    if (!saved.is_lazy()) {
      MV_RETURN_IF_NOT_OK(ReadPart(stored, (begin - section.first_row) * row_bytes,
                                   (end - section.first_row) * row_bytes, nullptr, limit, take));
      continue;
    }
    StoredSection* const ids = RowIdsOf(section);
    MV_RETURN_IF_NOT_OK(ReadRowIds(ids));
    const auto place_of = [&](int64_t row) {
      return std::lower_bound(ids->row_ids.begin(), ids->row_ids.end(), row) - ids->row_ids.begin();
    };
    MV_RETURN_IF_NOT_OK(ReadPart(stored, place_of(begin) * row_bytes, place_of(end) * row_bytes,
                                 ids->row_ids.data(), limit, take));
  }
  return Status::Ok();
}

Status CheckpointReader::ReadPart(const StoredSection& stored, int64_t from, int64_t to,
                                  const int64_t* row_ids, const WaitLimit& limit,
                                  const TakeBlock& take) {
  const Section& section = *stored.section;
  const SavedTable& saved = manifest_.tables[section.table];
  const int64_t row_bytes = saved.row_bytes(section.area);
  const int64_t element_bytes = saved.element_bytes(section.area);
  for (int64_t block = from / kBlockBytes; block * kBlockBytes < to; ++block) {
    const auto data = stored.file->ReadBlock(section, block, buffer_.data());
    if (!data.ok()) return data.status();
    const int64_t block_begin = block * kBlockBytes;
    const int64_t part_end = std::min(to, block_begin + data.value());
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

int64_t CheckpointReader::StoredRowsOf(uint32_t table) const {
  int64_t rows = 0;
  for (const StoredSection& stored : sections_) {
    const Section& section = *stored.section;
    if (section.table == table && section.area == kRowIdsArea) rows += section.bytes / kRowIdBytes;
  }
  return rows;
}

uint64_t CheckpointReader::StepsOf(uint32_t table, int64_t first_row, int64_t end_row) const {
  uint64_t steps = 0;
  for (const StoredSection& stored : sections_) {
    const Section& section = *stored.section;
    const bool has_rows =
        section.first_row < end_row && first_row < section.first_row + section.rows;
    if (section.table == table && section.area == kParameterArea && has_rows) {
      steps = std::max(steps, section.steps);
    }
  }
  return steps;
}

}  // namespace multiverso
