#include "checkpoint/data_file.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <utility>

#include "base/crc.h"
#include "base/text.h"

namespace multiverso {
namespace {

// How much memory decoding and checking a header takes, in sizes of the header.
constexpr int64_t kHeaderCopies = 4;

// Opens a file that the manifest lists, so that a missing file means a corrupt checkpoint.
Result<std::unique_ptr<ReadableFile>> OpenListed(FileSystem* files, const std::string& path) {
  auto opened = files->Open(path);
  if (opened.ok()) return opened;
  const FileFault* const fault = opened.status().file();
  if (fault == nullptr || fault->error_number != ENOENT) return opened;
  return CorruptionFailure(path, 0, "the file is missing");
}

}  // namespace

std::string DataFileName(uint32_t index) {
  char name[32];
  std::snprintf(name, sizeof(name), "shard-%05u.mv", index);
  return name;
}

std::string DataFileName(const SavedFile& file, int64_t number) {
  if (file.number == number) return DataFileName(file.index);
  char name[64];
  std::snprintf(name, sizeof(name), "shard-%05u-of-%06" PRId64 ".mv", file.index, file.number);
  return name;
}

bool IsDataFileName(const std::string& name) {
  SavedFile file;
  if (std::sscanf(name.c_str(), "shard-%" SCNu32 "-of-%" SCNd64, &file.index, &file.number) < 1) {
    return false;
  }
  return name == DataFileName(file.index) || name == DataFileName(file, -1);
}

std::string PartialName(const std::string& data_file) { return data_file + ".part"; }

Result<std::unique_ptr<DataFile>> DataFile::Open(FileSystem* files, const std::string& path,
                                                 const Manifest& manifest, size_t index) {
  MV_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, OpenListed(files, path));
  const int64_t bytes = file->bytes();
  std::string header(static_cast<size_t>(std::min(bytes, kDataPreludeBytes)), '\0');
  MV_RETURN_IF_NOT_OK(file->Read(0, header.data(), static_cast<int64_t>(header.size())));
  MV_ASSIGN_OR_RETURN(const int64_t header_bytes, HeaderBytesOf(header, bytes, path));
  MV_RETURN_IF_NOT_OK(CheckRoomFor(kHeaderCopies * header_bytes, path));
  header.resize(static_cast<size_t>(header_bytes));
  MV_RETURN_IF_NOT_OK(file->Read(0, header.data(), header_bytes));
  MV_ASSIGN_OR_RETURN(DataHeader decoded, DecodeDataHeader(header, bytes, manifest, index, path));
  if (bytes != manifest.files[index].bytes) {
    return CorruptionFailure(
        path, bytes,
        StrCat("expected a file of ", manifest.files[index].bytes, " bytes, received ", bytes));
  }
  // The file has one checksum per block, followed by the checksum of the checksums.
  MV_RETURN_IF_NOT_OK(CheckRoomFor(decoded.checksums * 4, path));
  std::vector<uint32_t> checksums(static_cast<size_t>(decoded.checksums) + 1);
  MV_RETURN_IF_NOT_OK(file->Read(decoded.checksums_offset, checksums.data(),
                                 static_cast<int64_t>(checksums.size()) * 4));
  if (Crc32c(checksums.data(), decoded.checksums * 4) != checksums.back()) {
    return CorruptionFailure(path, decoded.checksums_offset,
                             "the checksum of the checksums does not agree with them");
  }
  return std::unique_ptr<DataFile>(
      new DataFile(files, std::move(file), std::move(decoded), std::move(checksums)));
}

Result<int64_t> DataFile::ReadBlock(const Section& section, int64_t block, char* out) {
  if (file_ == nullptr) {
    MV_ASSIGN_OR_RETURN(file_, OpenListed(files_, path_));
  }
  const int64_t at = block * kBlockBytes;
  const int64_t bytes = std::min(kBlockBytes, section.padded_bytes() - at);
  MV_RETURN_IF_NOT_OK(file_->Read(section.offset + at, out, bytes));
  if (Crc32c(out, bytes) != checksums_[static_cast<size_t>(section.first_checksum + block)]) {
    return CorruptionFailure(
        path(), section.offset + at,
        StrCat("the checksum does not agree with the ", bytes, " bytes from here on"));
  }
  return std::min(bytes, section.bytes - at);
}

}  // namespace multiverso
