#include "table/table_file.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/crc.h"
#include "base/failpoint.h"
#include "base/text.h"
#include "checkpoint/file_system.h"
#include "memory/file_segment.h"

namespace multiverso {
namespace {

constexpr uint64_t kMagic = 0x314b5349442d564d;  // "MV-DISK1"
// Grows when the places in a segment change (ShardStorage).
constexpr uint32_t kFormat = 4;
constexpr int64_t kHeaderBytes = 4096;
// A table is new until its first session begins to use it.
enum State : uint32_t { kNew = 1, kInUse = 2, kClean = 3 };

constexpr char kHeader[] = "header";
constexpr char kRows[] = "rows";

std::string PathOfHeader(const std::string& folder) { return StrCat(folder, "/", kHeader); }
std::string PathOfRows(const std::string& folder) { return StrCat(folder, "/", kRows); }

template <class Compare>
void CompareInitializers(const TableSpec& a, const TableSpec& b, const Compare& compare) {
  compare("the initializer", a.initializer.Describe(), b.initializer.Describe());
  compare("the first number of the initializer", a.initializer.first, b.initializer.first);
  compare("the second number of the initializer", a.initializer.second, b.initializer.second);
  compare("the seed", a.initializer.seed, b.initializer.seed);
}

// Returns what is different in the rows of two tables, or an empty text.
std::string DifferenceOf(const TablePlace& there, const TablePlace& asked) {
  std::string difference;
  const auto compare = [&](const char* what, const auto& a, const auto& b) {
    if (difference.empty() && !(a == b)) {
      difference = StrCat("they have ", what, " ", a, ", this table ", b);
    }
  };
  const TableSpec& a = there.spec;
  const TableSpec& b = asked.spec;
  compare("a number of nodes of", there.num_nodes, asked.num_nodes);
  compare("the kind", a.kind, b.kind);
  compare("the dtype", std::string(NameOf(a.type())), std::string(NameOf(b.type())));
  compare("the updater", std::string(NameOf(a.updater_kind())),
          std::string(NameOf(b.updater_kind())));
  compare("a num_col of", a.num_col, b.num_col);
  compare("a capacity of", a.keys.capacity, b.keys.capacity);
  compare(b.is_hash() ? "for another number of ranks a number of rows of" : "a num_row of",
          a.num_row, b.num_row);
  const auto evict = [](const TableSpec& spec) {
    constexpr const char* kNames[] = {"none", "lru", "lfu"};
    return std::string(kNames[std::clamp(spec.keys.evict, 0, 2)]);
  };
  compare("evict", evict(a), evict(b));
  compare("an admit of", a.keys.admit, b.keys.admit);
  CompareInitializers(a, b, compare);
  compare("the node", there.node, asked.node);
  compare("on this node the first row", there.rows.first, asked.rows.first);
  compare("on this node the last row", there.rows.end - 1, asked.rows.end - 1);
  compare("a number of bytes of", there.bytes, asked.bytes);
  return difference;
}

}  // namespace

struct TableFile::Header {
  uint64_t magic = kMagic;
  uint32_t format = kFormat;
  uint32_t state = kNew;
  uint64_t session = 0;
  uint64_t version = 0;       // of the table, at the end of the session
  int64_t bytes_on_disk = 0;  // of the rows, at the end of the session
  uint32_t crc = 0;           // of this header with 0 here
  TablePlace place;
};

TableFile::TableFile(const std::string& folder, const TablePlace& place)
    : folder_(StrCat(folder, "/node-", place.node)), place_(place) {}

TableFile::~TableFile() {
  if (is_in_use_ || last_session_ != 0 || !may_remove_) return;
  (void)LocalFileSystem()->RemoveFolder(
      folder_, [](const std::string& name) { return name == kHeader || name == kRows; });
}

std::string TableFile::Advice() const {
  return StrCat("remove ", folder_.substr(0, folder_.rfind('/')),
                ", and load a checkpoint into the new table");
}

Result<std::unique_ptr<TableFile>> TableFile::Open(const std::string& folder,
                                                   const TablePlace& place, int64_t segment_bytes,
                                                   bool any_seed) {
  std::unique_ptr<TableFile> file(new TableFile(folder, place));
  MV_RETURN_IF_NOT_OK(LocalFileSystem()->EnsureFolders(file->folder_));
  const std::string header = PathOfHeader(file->folder_);
  const std::string rows = PathOfRows(file->folder_);
  const bool is_new = !std::filesystem::exists(header) && !std::filesystem::exists(rows);
  MV_ASSIGN_OR_RETURN(file->header_, OpenFileSegment(header, kHeaderBytes));
  MV_RETURN_IF_NOT_OK(LockFile(file->header_, file->folder_));
  file->may_remove_ = is_new;  // Without the lock, the files may be those of another job.
  MV_RETURN_IF_NOT_OK(ReserveOnDisk(file->header_, 0, kHeaderBytes));
  MV_RETURN_IF_NOT_OK(file->ReadHeader(any_seed));
  const int64_t least_bytes = file->last_session_ == 0 ? 0 : place.bytes;
  MV_ASSIGN_OR_RETURN(file->rows_, OpenFileSegment(rows, segment_bytes, least_bytes));
  file->has_holes_ = BytesOnDisk(file->rows_) < file->bytes_on_disk_;
  return file;
}

Result<std::unique_ptr<TableFile>> TableFile::TakeOver(const std::string& folder,
                                                       const TablePlace& place, uint64_t session) {
  std::unique_ptr<TableFile> file(new TableFile(folder, place));
  MV_ASSIGN_OR_RETURN(file->header_, OpenFileSegment(PathOfHeader(file->folder_), kHeaderBytes));
  MV_RETURN_IF_NOT_OK(LockFile(file->header_, file->folder_));
  Header header;
  std::memcpy(static_cast<void*>(&header), file->header_.data(), sizeof(header));
  if (header.magic != kMagic || header.state != kInUse || header.session != session) {
    return Status(Code::kState, StrCat("backing: ", file->folder_,
                                       ": the files are not those that this session has used"));
  }
  file->is_in_use_ = true;
  file->session_ = session;
  return file;
}

Status TableFile::ReadHeader(bool any_seed) {
  Header header;
  static_assert(sizeof(header) <= kHeaderBytes);
  std::memcpy(static_cast<void*>(&header), header_.data(), sizeof(header));
  const std::string where = StrCat("backing: ", folder_, ": ");
  const bool is_empty = std::all_of(header_.data(), header_.data() + kHeaderBytes,
                                    [](char byte) { return byte == 0; });
  if (is_empty) {
    if (std::filesystem::exists(PathOfRows(folder_))) {
      return Status(Code::kCheckpointCorrupt,
                    StrCat(where, "expected an empty folder or a table, received other files"));
    }
    // The header comes first, so that rows without one are not ours.
    may_remove_ = true;
    return WriteHeader(kNew, 0, 0);
  }
  const uint32_t crc = std::exchange(header.crc, 0);
  if (header.magic != kMagic || Crc32c(&header, sizeof(header)) != crc) {
    return Status(Code::kCheckpointCorrupt,
                  StrCat(where, "the header is damaged, or not that of a table: ", Advice()));
  }
  if (header.format != kFormat) {
    return Status(Code::kUnsupported,
                  StrCat(where, "expected format ", kFormat, ", received ", header.format,
                         ", of another version of Multiverso: ", Advice()));
  }
  if (header.state == kNew) {
    // The job that created the files ended before it used them.
    may_remove_ = true;
    (void)LocalFileSystem()->RemoveFolder(folder_,
                                          [](const std::string& name) { return name == kRows; });
    return WriteHeader(kNew, 0, 0);
  }
  if (header.state != kClean) {
    return Status(Code::kState,
                  StrCat(where,
                         "the last session that used this table did not end well, so its "
                         "rows may be wrong: ",
                         Advice()));
  }
  if (any_seed) place_.spec.initializer.seed = header.place.spec.initializer.seed;
  const std::string difference = DifferenceOf(header.place, place_);
  if (!difference.empty()) {
    return Status(Code::kMismatch, StrCat(where, "the files are those of another table: ",
                                          difference, ": pass another folder, or ", Advice()));
  }
  last_session_ = header.session;
  last_version_ = header.version;
  bytes_on_disk_ = header.bytes_on_disk;
  return Status::Ok();
}

Status TableFile::WriteHeader(uint32_t state, uint64_t session, uint64_t version) {
  Header header;
  std::memset(static_cast<void*>(&header), 0, sizeof(header));
  header.magic = kMagic;
  header.format = kFormat;
  header.state = state;
  header.session = session;
  header.version = version;
  header.bytes_on_disk = bytes_on_disk_;
  header.place = place_;
  header.crc = Crc32c(&header, sizeof(header));
  std::memcpy(header_.data(), static_cast<const void*>(&header), sizeof(header));
  return WriteBack(header_).In(PathOfHeader(folder_));
}

Status TableFile::BeginUse(uint64_t session) {
  MV_RETURN_IF_NOT_OK(WriteHeader(kInUse, session, 0));
  session_ = session;
  is_in_use_ = true;
  return LocalFileSystem()->SyncFolder(folder_);
}

void TableFile::CancelUse() {
  if (!std::exchange(is_in_use_, false) || last_session_ == 0) return;
  (void)WriteHeader(kClean, last_session_, last_version_);
}

Status TableFile::CheckInPlace(const Segment& rows) const {
  MV_RETURN_IF_NOT_OK(multiverso::CheckInPlace(rows, PathOfRows(folder_)));
  return multiverso::CheckInPlace(header_, PathOfHeader(folder_));
}

Status TableFile::EndUse(const Segment& rows, uint64_t version) {
  if (!is_in_use_) return Status::Ok();
  (void)MV_FAILPOINT("table_file.end");
  MV_RETURN_IF_NOT_OK(WriteBack(rows).In(PathOfRows(folder_)));
  (void)MV_FAILPOINT("table_file.written");
  bytes_on_disk_ = BytesOnDisk(rows);
  MV_RETURN_IF_NOT_OK(WriteHeader(kClean, session_, version));
  (void)MV_FAILPOINT("table_file.clean");
  is_in_use_ = false;
  last_session_ = session_;
  return CheckInPlace(rows);
}

}  // namespace multiverso
