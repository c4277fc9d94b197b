#include "transport/startup_transport.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/backoff.h"
#include "base/frame.h"
#include "base/log.h"
#include "base/text.h"
#include "base/wait_lines.h"

namespace multiverso {
namespace {

constexpr int kTag = 0x4d56;  // "MV"; below 32767, the largest tag that every MPI allows
// How long ranks other than rank 0 wait after the deadline for rank 0 to name the late ranks.
constexpr auto kGrace = std::chrono::seconds(2);
constexpr std::chrono::milliseconds kMaxSleep{2};  // between polls
constexpr size_t kEntryBytes = sizeof(uint32_t) + Transport::kMaxBytes;

}  // namespace

struct StartupTransport::Header {
  int32_t sender;
  int64_t session;
  int64_t exchange;
  int32_t verdict;  // the Code of a reply
};

Result<std::unique_ptr<Transport>> StartupTransport::Open(
    std::unique_ptr<Communicator> communicator) {
  int64_t session = 0;
  MV_RETURN_IF_NOT_OK(communicator->CountUse(&session));
  return std::unique_ptr<Transport>(new StartupTransport(std::move(communicator), session));
}

StartupTransport::~StartupTransport() {
  // Messages are small and their receivers are polling, so this wait is short. If a receiver has
  // died, MPI may use the messages' bytes forever, so they must not be freed.
  (void)SendAll(Clock::now() + std::chrono::milliseconds(200));
  if (!communicator_->AllSent()) (void)communicator_.release();  // NOLINT: see above
}

Status StartupTransport::SendTo(int to, const Status& verdict, const std::string& body) {
  const Header header{rank(), session_, exchange_, static_cast<int32_t>(verdict.code())};
  std::string bytes = MakeFrame(FrameKind::kStartup, header);
  bytes += verdict.ok() ? body : verdict.text();
  return communicator_->Send(to, kTag, std::move(bytes));
}

Status StartupTransport::Begin(const std::string& mine) {
  if (mine.size() > kMaxBytes) return Status(Code::kInternal, "exchange of too many bytes");
  ++exchange_;
  const auto length = static_cast<uint32_t>(mine.size());
  std::string entry(reinterpret_cast<const char*>(&length), sizeof(length));
  entry += mine;
  entry.resize(kEntryBytes);
  if (rank() != 0) return SendTo(0, Status::Ok(), entry);
  entries_.assign(static_cast<size_t>(size()), std::string());
  has_arrived_.assign(static_cast<size_t>(size()), false);
  entries_[0] = std::move(entry);
  has_arrived_[0] = true;
  return Status::Ok();
}

Status StartupTransport::Receive(const WaitLimit& limit, Header* header, std::string* body,
                                 bool* got) {
  std::string bytes;
  MV_RETURN_IF_NOT_OK(communicator_->TryReceive(kTag, limit.deadline, &bytes, got));
  if (!*got) return Status::Ok();
  *got = false;
  FrameReader reader(bytes);
  if (!reader.ReadHeader(FrameKind::kStartup, header) || header->sender < 0 ||
      header->sender >= size()) {
    return Status::Ok();
  }
  if (header->session > session_) {
    return Status(Code::kMismatch,
                  StrCat("rank ", header->sender, " opens its session number ", header->session,
                         ", rank ", rank(), " its number ", session_));
  }
  if (header->session < session_ || header->exchange != exchange_) return Status::Ok();
  *got = reader.ReadText(reader.remaining(), body);
  return Status::Ok();
}

Status StartupTransport::Gather(const WaitLimit& limit, std::string* list) {
  Header header{};
  std::string body;
  bool got = true;
  while (got) {
    MV_RETURN_IF_NOT_OK(Receive(limit, &header, &body, &got));
    if (!got || body.size() != kEntryBytes) continue;
    entries_[static_cast<size_t>(header.sender)] = body;
    has_arrived_[static_cast<size_t>(header.sender)] = true;
  }
  if (std::count(has_arrived_.begin(), has_arrived_.end(), false) != 0) return Status::Pending();
  for (const std::string& entry : entries_) *list += entry;
  for (int i = 1; i < size(); ++i) MV_RETURN_IF_NOT_OK(SendTo(i, Status::Ok(), *list));
  return SendAll(limit.deadline);
}

Status StartupTransport::TakeList(const WaitLimit& limit, std::string* list) {
  Header header{};
  bool got = false;
  MV_RETURN_IF_NOT_OK(Receive(limit, &header, list, &got));
  if (!got) return Status::Pending();
  return header.verdict == 0 ? Status::Ok() : Status(static_cast<Code>(header.verdict), *list);
}

std::vector<int> StartupTransport::LateRanks() const {
  std::vector<int> late;
  if (rank() != 0) return {0};
  for (int i = 0; i < size(); ++i) {
    if (!has_arrived_[static_cast<size_t>(i)]) late.push_back(i);
  }
  return late;
}

Status StartupTransport::Report(const Status& verdict) {
  for (int i = 1; i < size(); ++i) MV_RETURN_IF_NOT_OK(SendTo(i, verdict, ""));
  return verdict;
}

Status StartupTransport::SendAll(Instant deadline) {
  const Status sent = PollUntil(deadline, Backoff(kMaxSleep), [&] {
    MV_RETURN_IF_NOT_OK(communicator_->Advance());
    return communicator_->AllSent() ? Status::Ok() : Status::Pending();
  });
  if (!sent.pending()) return sent;
  return Status(Code::kTimeout, "a rank stopped receiving during the start");
}

Result<std::vector<std::string>> StartupTransport::Exchange(const std::string& mine,
                                                            const WaitLimit& limit) {
  const Instant deadline = rank() == 0 ? limit.deadline : limit.deadline + kGrace;
  std::string list;
  MV_RETURN_IF_NOT_OK(Begin(mine));
  const Instant began = Clock::now();
  WaitLines lines(began);
  const Status received = PollUntil(deadline, Backoff(kMaxSleep), [&] {
    MV_RETURN_IF_NOT_OK(communicator_->Advance());
    const Status status = rank() == 0 ? Gather(limit, &list) : TakeList(limit, &list);
    const Instant now = Clock::now();
    if (status.pending() && lines.IsDue(now)) {
      lines.Postpone(now);
      LogWarning(StrCat("rank ", rank(), " has waited ", TimeText(SecondsBetween(began, now)),
                        " in init for ", NameRanks(LateRanks()),
                        rank() == 0 ? ", of which nothing has been heard"
                                    : ", which answers once all ranks have called init",
                        LimitText(limit.deadline - began, kStartTimeoutOption)));
    }
    if (status.pending()) MV_RETURN_IF_NOT_OK(limit.Check(now));
    return status;
  });
  if (received.pending()) {
    const Status late(Code::kTimeout, StrCat("waited for ", NameRanks(LateRanks()),
                                             LimitAdvice(kStartTimeoutOption)));
    return rank() == 0 ? Report(late) : late;
  }
  if (rank() == 0 && received.code() == Code::kPeerLost) return Report(received);
  MV_RETURN_IF_NOT_OK(received);
  if (list.size() != kEntryBytes * static_cast<size_t>(size())) {
    return Status(Code::kTransport, StrCat("startup list of ", list.size(), " bytes, expected ",
                                           kEntryBytes * static_cast<size_t>(size())));
  }
  std::vector<std::string> all;
  for (size_t at = 0; at < list.size(); at += kEntryBytes) {
    uint32_t length = 0;
    std::memcpy(&length, list.data() + at, sizeof(length));
    if (length > kMaxBytes) return Status(Code::kTransport, "broken startup list");
    all.push_back(list.substr(at + sizeof(length), length));
  }
  return all;
}

Result<std::unique_ptr<Messenger>> StartupTransport::Connect(const WaitLimit& limit) {
  MV_RETURN_IF_NOT_OK(communicator_->BeginDuplicate());
  std::unique_ptr<Messenger> messenger;
  const Status connected = PollUntil(limit.deadline, Backoff(kMaxSleep), [&] {
    const Status status = communicator_->PollDuplicate(&messenger);
    if (status.pending()) MV_RETURN_IF_NOT_OK(limit.Check(Clock::now()));
    return status;
  });
  if (connected.pending()) return Status(Code::kTimeout, "a rank stopped during the start");
  MV_RETURN_IF_NOT_OK(connected);
  return messenger;
}

Status StartupTransport::PrepareExit(const WaitLimit& limit) {
  // The first session on a communicator is the first on all of its ranks.
  if (session_ > 1 || size() == 1 || !communicator_->EndsTogether()) return Status::Ok();
  Result<std::unique_ptr<Messenger>> messenger = Connect(limit);
  if (!messenger.ok()) return messenger.status();
  communicator_->KeepForExit(std::move(messenger.value()));
  return Status::Ok();
}

}  // namespace multiverso
