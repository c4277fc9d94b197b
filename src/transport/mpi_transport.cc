#include "transport/mpi_transport.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "base/backoff.h"
#include "base/text.h"

namespace multiverso {
namespace {

constexpr int kTag = 0x4d56;  // well below any MPI's upper bound for tags
constexpr uint32_t kMagic = 0x4d56e7c4;
// The others give rank 0 this long to tell them who was late, before they call rank 0 late.
constexpr auto kGrace = std::chrono::seconds(2);

// How many ranks the launcher says it started, 1 if it says nothing.
int RanksLaunched(const char** variable) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && std::atoi(value) > 1) {
      *variable = name;
      return std::atoi(value);
    }
  }
  return 1;
}

}  // namespace

struct MpiTransport::Header {
  uint32_t magic;
  int32_t sender;
  int64_t session;
  int64_t exchange;
  int32_t verdict;  // a Code; of a reply
  int32_t unused;
};

Result<std::unique_ptr<MpiTransport>> MpiTransport::Open(const std::string& mpi_path,
                                                         const void* mpi_comm) {
  Result<MpiLibrary> library = MpiLibrary::Find(mpi_path);
  if (!library.ok()) return library.status();
  auto communicator = MpiCommunicator::Open(library.value(), mpi_comm);
  if (!communicator.ok()) return communicator.status();
  const char* variable = "";
  const int launched = RanksLaunched(&variable);
  if (mpi_comm == nullptr && communicator.value()->size() == 1 && launched > 1) {
    return Status(Code::kLauncher, StrCat("the launcher started ", launched, " ranks (", variable,
                                          ") but ", communicator.value()->Describe(),
                                          " sees one: use the mpirun that belongs to this MPI"));
  }
  int64_t session = 0;
  MV_RETURN_IF_NOT_OK(communicator.value()->CountUse(&session));
  return std::unique_ptr<MpiTransport>(new MpiTransport(std::move(communicator.value()), session));
}

MpiTransport::~MpiTransport() {
  // Messages are small and their receivers are polling, so this is quick; if a receiver is gone,
  // MPI may never finish with the buffer and it must not be freed.
  const Instant until = Clock::now() + std::chrono::milliseconds(200);
  while (!communicator_->AllSent() && communicator_->Advance().ok() && Clock::now() < until) {
    std::this_thread::yield();
  }
  if (!communicator_->AllSent()) (void)communicator_.release();  // NOLINT: see above
}

Status MpiTransport::SendTo(int to, const Status& verdict, const std::string& body) {
  const Header header{kMagic, rank(), session_, exchange_, static_cast<int32_t>(verdict.code()), 0};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes += verdict.ok() ? body : verdict.text();
  return communicator_->Send(to, kTag, std::move(bytes));
}

Status MpiTransport::Begin(const std::string& mine) {
  if (mine.size() > kMostBytes) return Status(Code::kInternal, "exchange of too many bytes");
  ++exchange_;
  // Fixed-size entries make the list of everybody's bytes plain to take apart.
  const auto length = static_cast<uint32_t>(mine.size());
  std::string entry(reinterpret_cast<const char*>(&length), sizeof(length));
  entry += mine;
  entry.resize(sizeof(length) + kMostBytes);
  if (rank() != 0) return SendTo(0, Status::Ok(), entry);
  hellos_.assign(static_cast<size_t>(size()), std::string());
  came_.assign(static_cast<size_t>(size()), false);
  hellos_[0] = std::move(entry);
  came_[0] = true;
  return Status::Ok();
}

Status MpiTransport::Receive(const WaitLimit& limit, Header* header, std::string* body, bool* got) {
  std::string bytes;
  MV_RETURN_IF_NOT_OK(communicator_->TryReceive(kTag, limit, &bytes, got));
  if (!*got) return Status::Ok();
  *got = false;
  if (bytes.size() < sizeof(Header)) return Status::Ok();
  std::memcpy(header, bytes.data(), sizeof(Header));
  if (header->magic != kMagic || header->sender < 0 || header->sender >= size()) {
    return Status::Ok();
  }
  if (header->session > session_) {
    return Status(Code::kMismatch,
                  StrCat("rank ", header->sender, " opens its session number ", header->session,
                         ", rank ", rank(), " its number ", session_));
  }
  if (header->session < session_ || header->exchange != exchange_) return Status::Ok();
  body->assign(bytes, sizeof(Header), std::string::npos);
  *got = true;
  return Status::Ok();
}

Status MpiTransport::Gather(const WaitLimit& limit, std::string* list) {
  const size_t entry_bytes = sizeof(uint32_t) + kMostBytes;
  Header header{};
  std::string body;
  bool got = true;
  while (got) {
    MV_RETURN_IF_NOT_OK(Receive(limit, &header, &body, &got));
    if (!got || body.size() != entry_bytes) continue;
    hellos_[static_cast<size_t>(header.sender)] = body;
    came_[static_cast<size_t>(header.sender)] = true;
  }
  if (std::count(came_.begin(), came_.end(), false) != 0) return Status::Pending();
  for (const std::string& hello : hellos_) *list += hello;
  for (int i = 1; i < size(); ++i) MV_RETURN_IF_NOT_OK(SendTo(i, Status::Ok(), *list));
  return Drain(limit.deadline);
}

Status MpiTransport::TakeList(const WaitLimit& limit, std::string* list) {
  Header header{};
  bool got = false;
  MV_RETURN_IF_NOT_OK(Receive(limit, &header, list, &got));
  if (!got) return Status::Pending();
  return header.verdict == 0 ? Status::Ok() : Status(static_cast<Code>(header.verdict), *list);
}

Status MpiTransport::GiveUpWaiting() {
  std::vector<int> late;
  for (int i = 0; i < size(); ++i) {
    if (!came_[static_cast<size_t>(i)]) late.push_back(i);
  }
  const Status verdict(Code::kTimeout, StrCat("waited for ", NameRanks(late)));
  for (int i = 1; i < size(); ++i) MV_RETURN_IF_NOT_OK(SendTo(i, verdict, ""));
  return verdict;
}

Status MpiTransport::Drain(Instant deadline) {
  while (!communicator_->AllSent()) {
    MV_RETURN_IF_NOT_OK(communicator_->Advance());
    if (Clock::now() >= deadline) {
      return Status(Code::kTimeout, "a rank stopped receiving in the middle of the start");
    }
    std::this_thread::yield();
  }
  return Status::Ok();
}

Result<std::vector<std::string>> MpiTransport::Exchange(const std::string& mine,
                                                        const WaitLimit& limit) {
  const size_t entry_bytes = sizeof(uint32_t) + kMostBytes;
  const Instant deadline = rank() == 0 ? limit.deadline : limit.deadline + kGrace;
  auto nap = std::chrono::microseconds(20);
  std::string list;
  MV_RETURN_IF_NOT_OK(Begin(mine));
  for (;;) {
    MV_RETURN_IF_NOT_OK(communicator_->Advance());
    const Status status = rank() == 0 ? Gather(limit, &list) : TakeList(limit, &list);
    if (status.ok()) break;
    if (!status.pending()) return status;
    const Instant now = Clock::now();
    if (now >= deadline) {
      if (rank() == 0) return GiveUpWaiting();
      return Status(Code::kTimeout, "waited for rank 0");
    }
    MV_RETURN_IF_NOT_OK(limit.Check(now));
    // Ranks may outnumber cores: get out of the way of the one that is waited for.
    std::this_thread::sleep_for(nap);
    nap = std::min(2 * nap, std::chrono::microseconds(2000));
  }
  if (list.size() != entry_bytes * static_cast<size_t>(size())) {
    return Status(Code::kTransport, StrCat("startup list of ", list.size(), " bytes, expected ",
                                           entry_bytes * static_cast<size_t>(size())));
  }
  std::vector<std::string> all;
  for (size_t at = 0; at < list.size(); at += entry_bytes) {
    uint32_t length = 0;
    std::memcpy(&length, list.data() + at, sizeof(length));
    if (length > kMostBytes) return Status(Code::kTransport, "broken startup list");
    all.push_back(list.substr(at + sizeof(length), length));
  }
  return all;
}

Result<std::unique_ptr<Messenger>> MpiTransport::Connect(const WaitLimit& limit) {
  MV_RETURN_IF_NOT_OK(communicator_->BeginDuplicate());
  Backoff backoff(std::chrono::milliseconds(2));
  for (;;) {
    std::unique_ptr<Messenger> messenger;
    const Status status = communicator_->PollDuplicate(&messenger);
    if (status.ok()) return messenger;
    if (!status.pending()) return status;
    const Instant now = Clock::now();
    if (now >= limit.deadline) {
      return Status(Code::kTimeout, "a rank stopped in the middle of the start");
    }
    MV_RETURN_IF_NOT_OK(limit.Check(now));
    std::this_thread::sleep_for(backoff.Next(now));
  }
}

}  // namespace multiverso
