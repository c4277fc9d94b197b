#include "checkpoint/format.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/crc.h"
#include "base/text.h"
#include "checkpoint/bytes.h"
#include "checkpoint/file_system.h"

namespace multiverso {
namespace {

// The magic number follows PNG: a byte above 127, a name, and line ends that a text-mode transfer
// would change.
constexpr char kManifestMagic[] = "\x89MVM\r\n\x1a\n";
constexpr char kDataMagic[] = "\x89MVD\r\n\x1a\n";
constexpr int64_t kMagicBytes = 8;
constexpr int64_t kCrcBytes = 4;

constexpr int64_t kManifestBytes = 96;  // before the tables
constexpr int64_t kTableBytes = 232;
constexpr int64_t kInitializerBytes = 32;  // after each table, from version 2 on
constexpr int64_t kFileBytes = 16;
constexpr int64_t kOriginBytes = 16;  // after each file, in version 4
constexpr int64_t kLibraryBytes = 24;
constexpr int64_t kSectionBytes = 56;

// Far above the size of any real table, and so small that sums of several limits stay below 2^63.
constexpr int64_t kMaxTableBytes = int64_t{1} << 56;

// Checks the first 12 bytes, which name the format and its version.
Status CheckFormat(const std::string& bytes, const char* magic, const char* expected,
                   const std::string& path) {
  if (static_cast<int64_t>(bytes.size()) < kMagicBytes + 4 ||
      bytes.compare(0, kMagicBytes, magic, kMagicBytes) != 0) {
    const bool is_pickle = bytes.size() > 1 && bytes[0] == '\x80' && bytes[1] <= 5;
    return CorruptionFailure(
        path, 0,
        StrCat("expected ", expected, ", received ",
               is_pickle ? "a pickle, which Multiverso never opens" : "something else"));
  }
  ByteReader in(bytes, kMagicBytes);
  const auto version = in.Get<uint32_t>();
  if (version < kFormatVersion || version > kIncrementFormatVersion ||
      version == kChainFormatVersion) {
    return CorruptionFailure(path, kMagicBytes,
                             StrCat("expected version ", kFormatVersion, ", ", kLazyFormatVersion,
                                    ", ", kStripesFormatVersion, " or ", kIncrementFormatVersion,
                                    " of the format, received version ", version));
  }
  return Status::Ok();
}

Status CheckCrc(const std::string& bytes, const std::string& path) {
  const auto end = static_cast<int64_t>(bytes.size()) - kCrcBytes;
  ByteReader in(bytes, end);
  if (in.Get<uint32_t>() == Crc32c(bytes.data(), end)) return Status::Ok();
  return CorruptionFailure(path, end, "the checksum is not that of the header before it");
}

std::string TextOf(const std::string& field) { return field.substr(0, field.find('\0')); }

bool IsText(const std::string& field) {
  const size_t end = field.find('\0');
  return end != std::string::npos && field.find_first_not_of('\0', end) == std::string::npos;
}

int64_t BytesOfTable(uint32_t version) {
  return kTableBytes + (version >= kLazyFormatVersion ? kInitializerBytes : 0);
}

int64_t BytesOfFile(uint32_t version) {
  return kFileBytes + (version >= kStripesFormatVersion ? kOriginBytes : 0);
}

int64_t AlignmentOf(uint32_t version) {
  return version >= kIncrementFormatVersion ? kRunsAlignment : kDataAlignment;
}

int64_t HeaderBytes(uint32_t version, int64_t sections) {
  return RoundUp(kDataPreludeBytes + sections * kSectionBytes + kCrcBytes, AlignmentOf(version));
}

// Returns whether file `index` of a manifest comes after the files before it, as Manifest::files
// demands.
bool IsInOrder(const Manifest& manifest, size_t index) {
  const SavedFile& file = manifest.files[index];
  const bool is_own = file.number == manifest.number;
  if (is_own != (file.id == manifest.id) || file.number < 0) return false;
  if (index == 0) return file.index == 0 && file.number <= manifest.number;
  const SavedFile& before = manifest.files[index - 1];
  if (file.number < before.number) return file.index == 0;
  return file.number == before.number && file.id == before.id && file.index == before.index + 1;
}

}  // namespace

std::string ProblemOf(const SavedTable& table) {
  // Returns whether an area with so many elements per row is not too large.
  const auto has_size = [&](int64_t elements_per_row) {
    int64_t elements = 0;
    int64_t bytes = 0;
    return CheckedMultiply(table.num_row, elements_per_row, &elements) &&
           CheckedMultiply(elements, SizeOf(ValueType(table.type())), &bytes) &&
           bytes <= kMaxTableBytes;
  };
  if (table.kind > kHashKind) return "expected kind 0 (array), 1 (matrix) or 2 (hash table)";
  if (table.is_hash() && (!table.is_lazy() || table.num_row % kRowsPerStripeOfKeys != 0)) {
    return "expected an initializer, and whole stripes of rows";
  }
  if (!IsTableDType(static_cast<int32_t>(table.dtype))) return "expected a dtype from 0 to 5";
  if (table.slots > kMaxSlots || table.row_slots > kMaxSlots) {
    return StrCat("expected at most ", kMaxSlots, " state slots");
  }
  if (table.counting > StepCounting::kPerSection) return "expected a counting from 0 to 2";
  if (table.num_row < 1 || table.num_col < 1 || (table.kind == 0 && table.num_col != 1) ||
      !has_size(table.num_col) || !has_size(table.row_slots)) {
    return "expected a size that a table can have";
  }
  return table.initializer.Check(table.type()).text();
}

uint32_t FormatOf(const std::string& manifest) {
  if (static_cast<int64_t>(manifest.size()) < kFormatBytes ||
      manifest.compare(0, kMagicBytes, kManifestMagic, kMagicBytes) != 0) {
    return 0;
  }
  return ByteReader(manifest, kMagicBytes).Get<uint32_t>();
}

uint32_t VersionOf(const Manifest& manifest) {
  return manifest.is_increment() ? kIncrementFormatVersion : VersionOfData(manifest, {});
}

uint32_t VersionOfData(const Manifest& manifest, const std::vector<Section>& sections) {
  const bool has_runs = std::any_of(sections.begin(), sections.end(), [](const Section& section) {
    return SavedTable::IsOfRuns(section.area);
  });
  if (has_runs) return kIncrementFormatVersion;
  const bool is_lazy = std::any_of(manifest.tables.begin(), manifest.tables.end(),
                                   [](const SavedTable& table) { return table.is_lazy(); });
  return is_lazy ? kLazyFormatVersion : kFormatVersion;
}

std::string EncodeManifest(const Manifest& manifest) {
  const uint32_t version = VersionOf(manifest);
  const auto tables = static_cast<int64_t>(manifest.tables.size());
  const auto files = static_cast<int64_t>(manifest.files.size());
  const int64_t file_size = kManifestBytes +
                            tables * (BytesOfTable(version) + manifest.workers * 8) +
                            files * BytesOfFile(version) + kCrcBytes;
  ByteWriter out;
  out.PutText(std::string(kManifestMagic, kMagicBytes), kMagicBytes).Put(version);
  out.Put(static_cast<uint32_t>(tables)).Put(file_size).Put(manifest.id).Put(manifest.number);
  out.Put(manifest.step).Put(static_cast<uint32_t>(files)).Put(manifest.mode);
  out.Put(manifest.workers).Put(uint32_t{0}).Put(manifest.created);
  out.PutText(manifest.library.substr(0, kLibraryBytes - 1), kLibraryBytes);
  for (const SavedTable& table : manifest.tables) {
    out.Put(table.kind).Put(table.dtype).Put(table.updater).Put(table.slots);
    out.Put(table.num_row).Put(table.num_col);
    out.Put(static_cast<uint32_t>(table.counting)).Put(table.row_slots);
    out.PutText(table.name.substr(0, kSavedNameBytes - 1), kSavedNameBytes);
    for (const double value : table.hyper) out.Put(value);
    if (version < kLazyFormatVersion) continue;
    const InitializerSpec& initializer = table.initializer;
    out.Put(static_cast<uint32_t>(initializer.kind)).Put(uint32_t{0}).Put(initializer.seed);
    out.Put(initializer.first).Put(initializer.second);
  }
  for (const SavedTable& table : manifest.tables) {
    for (uint32_t i = 0; i < manifest.workers; ++i) {
      out.Put(i < table.clocks.size() ? table.clocks[i] : uint64_t{0});
    }
  }
  for (const SavedFile& file : manifest.files) {
    const bool has_origin = version >= kStripesFormatVersion;
    out.Put(file.bytes).Put(file.header_crc).Put(has_origin ? file.index : uint32_t{0});
    if (has_origin) out.Put(file.id).Put(file.number);
  }
  out.Put(Crc32c(out.bytes().data(), static_cast<int64_t>(out.bytes().size())));
  return out.Take();
}

Result<Manifest> DecodeManifest(const std::string& bytes, const std::string& path) {
  MV_RETURN_IF_NOT_OK(CheckFormat(bytes, kManifestMagic, "a manifest of a checkpoint", path));
  const auto size = static_cast<int64_t>(bytes.size());
  if (size < kManifestBytes + kCrcBytes) return CorruptionFailure(path, size, "the file ends here");
  ByteReader in(bytes, kMagicBytes);
  Manifest manifest;
  const auto version = in.Get<uint32_t>();
  const int64_t tables = in.Get<uint32_t>();
  const auto file_size = in.Get<int64_t>();
  if (file_size != size) {
    return CorruptionFailure(path, 16,
                             StrCat("expected a file of ", file_size, " bytes, received ", size));
  }
  manifest.id = in.Get<uint64_t>();
  manifest.number = in.Get<int64_t>();
  manifest.step = in.Get<int64_t>();
  const int64_t files = in.Get<uint32_t>();
  manifest.mode = in.Get<uint32_t>();
  manifest.workers = in.Get<uint32_t>();
  const auto reserved = in.Get<uint32_t>();
  manifest.created = in.Get<int64_t>();
  const std::string library = in.GetBytes(kLibraryBytes);
  int64_t clock_bytes = 0;
  if (!CheckedMultiply(tables * 8, manifest.workers, &clock_bytes) || clock_bytes > size ||
      kManifestBytes + tables * BytesOfTable(version) + clock_bytes + files * BytesOfFile(version) +
              kCrcBytes !=
          size) {
    return CorruptionFailure(path, 12,
                             StrCat(tables, " tables, ", files, " files and ", manifest.workers,
                                    " workers do not make ", size, " bytes"));
  }
  MV_RETURN_IF_NOT_OK(CheckCrc(bytes, path));
  // A malicious writer can make the checksum match, so the values are checked as well.
  if (reserved != 0 || !IsText(library) || manifest.number < 0 || manifest.step < 0) {
    return CorruptionFailure(
        path, 0, "expected a number and a step of at least 0, and a version that is a text");
  }
  manifest.library = TextOf(library);
  // The remaining bytes bound both counts, so decoding needs no more memory than the file.
  manifest.tables.reserve(static_cast<size_t>(tables));
  manifest.files.reserve(static_cast<size_t>(files));
  for (int64_t i = 0; i < tables; ++i) {
    const int64_t at = in.position();
    SavedTable table;
    table.kind = in.Get<uint32_t>();
    table.dtype = in.Get<uint32_t>();
    table.updater = in.Get<uint32_t>();
    table.slots = in.Get<uint32_t>();
    table.num_row = in.Get<int64_t>();
    table.num_col = in.Get<int64_t>();
    table.counting = static_cast<StepCounting>(in.Get<uint32_t>());
    table.row_slots = in.Get<uint32_t>();
    const std::string name = in.GetBytes(kSavedNameBytes);
    for (double& value : table.hyper) value = in.Get<double>();
    if (version >= kLazyFormatVersion) {
      table.initializer.kind = in.Get<int32_t>();
      table.initializer.unused = in.Get<int32_t>();
      table.initializer.seed = in.Get<uint64_t>();
      table.initializer.first = in.Get<double>();
      table.initializer.second = in.Get<double>();
    }
    std::string problem = ProblemOf(table);
    if (problem.empty() && (table.initializer.unused != 0 || !IsText(name)))
      problem = "expected a name";
    if (!problem.empty()) return CorruptionFailure(path, at, StrCat("table ", i, ": ", problem));
    table.name = TextOf(name);
    manifest.tables.push_back(std::move(table));
  }
  for (SavedTable& table : manifest.tables) {
    table.clocks.reserve(manifest.workers);
    for (uint32_t i = 0; i < manifest.workers; ++i) table.clocks.push_back(in.Get<uint64_t>());
  }
  for (int64_t i = 0; i < files; ++i) {
    SavedFile file;
    file.bytes = in.Get<int64_t>();
    file.header_crc = in.Get<uint32_t>();
    file.index = in.Get<uint32_t>();
    const bool has_origin = version >= kStripesFormatVersion;
    if (!has_origin) file.index = static_cast<uint32_t>(i);
    file.id = has_origin ? in.Get<uint64_t>() : manifest.id;
    file.number = has_origin ? in.Get<int64_t>() : manifest.number;
    manifest.files.push_back(file);
    if (IsInOrder(manifest, static_cast<size_t>(i))) continue;
    return CorruptionFailure(path, in.position() - BytesOfFile(version),
                             StrCat("expected the files of this checkpoint and then those of "
                                    "earlier ones, received file ",
                                    file.index, " of checkpoint ", file.number));
  }
  const uint32_t written = version == kStripesFormatVersion ? kIncrementFormatVersion : version;
  if (VersionOf(manifest) != written) {
    return CorruptionFailure(
        path, kMagicBytes,
        StrCat("expected a table with an initializer in version ", kLazyFormatVersion,
               ", and a file of an earlier checkpoint in versions ", kStripesFormatVersion, " and ",
               kIncrementFormatVersion));
  }
  return manifest;
}

int64_t Section::padded_bytes() const { return RoundUp(bytes, alignment); }

int64_t Section::blocks() const { return DivideUp(padded_bytes(), kBlockBytes); }

bool LayOut(DataHeader* header) {
  constexpr int64_t kMaxOffset = int64_t{1} << 62;
  const auto sections = static_cast<int64_t>(header->sections.size());
  header->header_bytes = HeaderBytes(header->version, sections);
  int64_t offset = header->header_bytes;
  header->checksums = 0;
  for (Section& section : header->sections) {
    section.alignment = AlignmentOf(header->version);
    section.offset = offset;
    section.first_checksum = header->checksums;
    if (section.bytes < 0 || section.bytes > kMaxOffset - kDataAlignment) return false;
    if (!CheckedAdd(offset, section.padded_bytes(), &offset) || offset > kMaxOffset) return false;
    header->checksums += section.blocks();
  }
  header->checksums_offset = offset;
  header->file_bytes = offset + header->checksums * kCrcBytes + kCrcBytes;
  return true;
}

std::string EncodeDataHeader(const DataHeader& header) {
  ByteWriter out;
  out.Reserve(header.header_bytes);
  out.PutText(std::string(kDataMagic, kMagicBytes), kMagicBytes).Put(header.version);
  out.Put(static_cast<uint32_t>(header.sections.size())).Put(header.file_bytes).Put(header.id);
  out.Put(header.index).Put(static_cast<uint32_t>(kBlockBytes)).Put(header.header_bytes);
  out.Put(header.checksums_offset).Put(header.checksums);
  for (const Section& section : header.sections) {
    out.Put(section.table).Put(section.area).Put(section.first_row).Put(section.rows);
    out.Put(section.offset).Put(section.bytes).Put(section.first_checksum).Put(section.steps);
  }
  out.PadTo(header.header_bytes - kCrcBytes);
  out.Put(Crc32c(out.bytes().data(), static_cast<int64_t>(out.bytes().size())));
  return out.Take();
}

Result<int64_t> HeaderBytesOf(const std::string& prelude, int64_t file_bytes,
                              const std::string& path) {
  MV_RETURN_IF_NOT_OK(CheckFormat(prelude, kDataMagic, "a data file of a checkpoint", path));
  const auto size = static_cast<int64_t>(prelude.size());
  if (size < kDataPreludeBytes) return CorruptionFailure(path, size, "the file ends here");
  ByteReader in(prelude, kMagicBytes);
  const auto version = in.Get<uint32_t>();
  const int64_t sections = in.Get<uint32_t>();
  const auto file_size = in.Get<int64_t>();
  if (file_size != file_bytes) {
    return CorruptionFailure(
        path, 16, StrCat("expected a file of ", file_size, " bytes, received ", file_bytes));
  }
  const int64_t header_bytes = HeaderBytes(version, sections);
  if (header_bytes > file_bytes || header_bytes > kMaxHeaderBytes) {
    return CorruptionFailure(path, 12, StrCat(sections, " sections do not fit into the file"));
  }
  return header_bytes;
}

Result<DataHeader> DecodeDataHeader(const std::string& bytes, int64_t file_bytes,
                                    const Manifest& manifest, size_t index,
                                    const std::string& path) {
  MV_RETURN_IF_NOT_OK(CheckCrc(bytes, path));
  ByteReader in(bytes, kMagicBytes);
  DataHeader header;
  // All sections of a file with runs may have fewer rows than their range.
  const bool has_runs = in.Get<uint32_t>() == kIncrementFormatVersion;
  const auto sections = in.Get<uint32_t>();
  (void)in.Get<int64_t>();
  header.id = in.Get<uint64_t>();
  header.index = in.Get<uint32_t>();
  const SavedFile& file = manifest.files[index];
  if (header.id != file.id || header.index != file.index) {
    return CorruptionFailure(
        path, kIdOffset,
        StrCat("expected file ", file.index, " of checkpoint ", file.number, ", received file ",
               header.index, header.id == file.id ? "" : " of another"));
  }
  if (HeaderCrcOf(bytes) != file.header_crc) {
    return CorruptionFailure(path, static_cast<int64_t>(bytes.size()) - kCrcBytes,
                             "the header is not the one that the manifest names");
  }
  header.sections.reserve(sections);
  for (uint32_t i = 0; i < sections; ++i) {
    ByteReader record(bytes, kDataPreludeBytes + i * kSectionBytes);
    Section section;
    section.table = record.Get<uint32_t>();
    section.area = record.Get<uint32_t>();
    section.first_row = record.Get<int64_t>();
    section.rows = record.Get<int64_t>();
    (void)record.Get<int64_t>();
    const auto stored_bytes = record.Get<int64_t>();
    (void)record.Get<int64_t>();
    section.steps = record.Get<uint64_t>();
    const bool has_table = section.table < manifest.tables.size();
    const SavedTable no_table;
    const SavedTable& table = has_table ? manifest.tables[section.table] : no_table;
    if (!has_table ||
        !(has_runs ? table.may_have_area(section.area) : table.has_area(section.area)) ||
        section.rows < 1 || section.first_row < 0 || section.rows > table.num_row ||
        section.first_row > table.num_row - section.rows) {
      return CorruptionFailure(path, kDataPreludeBytes + i * kSectionBytes,
                               StrCat("section ", i, " is of no rows of a table in the manifest"));
    }
    const int64_t row_bytes = table.row_bytes(section.area);
    section.bytes = section.rows * row_bytes;
    if (table.is_lazy() || has_runs) {
      if (stored_bytes < 0 || stored_bytes > section.bytes || stored_bytes % row_bytes != 0) {
        return CorruptionFailure(path, kDataPreludeBytes + i * kSectionBytes,
                                 StrCat("section ", i, " cannot have ", stored_bytes, " bytes"));
      }
      section.bytes = stored_bytes;
    }
    header.sections.push_back(section);
  }
  header.version = VersionOfData(manifest, header.sections);
  // The fields that were not decoded follow from the decoded ones. So they are right if encoding
  // the header gives the same bytes.
  if (!LayOut(&header) || header.file_bytes != file_bytes || EncodeDataHeader(header) != bytes) {
    return CorruptionFailure(path, 0,
                             StrCat("the sections do not lie where they must, in a file of ",
                                    file_bytes, " bytes; expected ", header.file_bytes));
  }
  return header;
}

uint32_t HeaderCrcOf(const std::string& header) {
  return ByteReader(header, static_cast<int64_t>(header.size()) - kCrcBytes).Get<uint32_t>();
}

}  // namespace multiverso
