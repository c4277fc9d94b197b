#include "transport/startup_transport.h"

#include <algorithm>
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

// A part of an entry in which it differs from the entry before. The last run of an entry is empty.
struct Run {
  uint16_t skipped;  // equal bytes before it
  uint16_t count;    // bytes that follow
};

void AppendDifference(const std::string& before, const std::string& entry, std::string* bytes) {
  for (size_t at = 0;;) {
    size_t begin = at;
    while (begin < entry.size() && before[begin] == entry[begin]) ++begin;
    size_t end = begin;
    // Few equal bytes cost less than another run.
    for (size_t i = begin; i < std::min(end + sizeof(Run), entry.size()); ++i) {
      if (before[i] != entry[i]) end = i + 1;
    }
    AppendRaw(Run{static_cast<uint16_t>(begin - at), static_cast<uint16_t>(end - begin)}, bytes);
    bytes->append(entry, begin, end - begin);
    if (begin == end) return;
    at = end;
  }
}

// Returns the entries in few bytes. Equal entries that follow each other are packed once, with
// their number. Of each other entry, only the difference from the entry before is packed; the first
// one is compared with zeros.
std::string Pack(const std::vector<std::string>& entries) {
  std::string bytes;
  std::string before;
  for (size_t first = 0, next = 0; first < entries.size(); first = next) {
    const std::string& entry = entries[first];
    while (next < entries.size() && entries[next] == entry) ++next;
    AppendRaw(static_cast<uint32_t>(next - first), &bytes);
    AppendRaw(static_cast<uint16_t>(entry.size()), &bytes);
    before.resize(entry.size());
    AppendDifference(before, entry, &bytes);
    before = entry;
  }
  return bytes;
}

// Reads `count` packed entries. Returns false if the bytes are not that.
bool Unpack(const std::string& bytes, size_t count, std::vector<std::string>* entries) {
  FrameReader reader(bytes);
  entries->clear();
  std::string entry;
  while (entries->size() < count) {
    uint32_t equal = 0;
    uint16_t size = 0;
    if (!reader.Read(&equal) || !reader.Read(&size) || equal > count - entries->size()) {
      return false;
    }
    entry.resize(size);
    size_t at = 0;
    for (Run run{0, 1}; run.count > 0; at += run.count) {
      std::string differing;
      if (!reader.Read(&run) || !reader.ReadText(run.count, &differing)) return false;
      at += run.skipped;
      if (at + run.count > size) return false;
      entry.replace(at, run.count, differing);
    }
    if (equal == 0) return false;
    entries->insert(entries->end(), equal, entry);
  }
  return reader.remaining() == 0;
}

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
  if (rank() != 0) return SendTo(0, Status::Ok(), Pack({mine}));
  entries_.assign(static_cast<size_t>(size()), std::string());
  has_arrived_.assign(static_cast<size_t>(size()), false);
  entries_[0] = mine;
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
  // A rank that still waits for the list of an earlier exchange learns how a later one has failed.
  const bool is_current =
      header->exchange == exchange_ || (header->exchange > exchange_ && header->verdict != 0);
  if (header->session < session_ || !is_current) return Status::Ok();
  *got = reader.ReadText(reader.remaining(), body);
  return Status::Ok();
}

Status StartupTransport::Gather(const WaitLimit& limit, std::string* list) {
  Header header{};
  std::string body;
  bool got = true;
  while (got) {
    MV_RETURN_IF_NOT_OK(Receive(limit, &header, &body, &got));
    if (!got) continue;
    std::vector<std::string> entry;
    // What cannot be read is of another version, and so is an empty entry.
    if (!Unpack(body, 1, &entry)) entry.assign(1, "");
    entries_[static_cast<size_t>(header.sender)] = std::move(entry[0]);
    has_arrived_[static_cast<size_t>(header.sender)] = true;
  }
  if (std::count(has_arrived_.begin(), has_arrived_.end(), false) != 0) return Status::Pending();
  *list = Pack(entries_);
  return Status::Ok();
}

Status StartupTransport::TakeList(const WaitLimit& limit, std::string* list) {
  Header header{};
  bool got = false;
  MV_RETURN_IF_NOT_OK(Receive(limit, &header, list, &got));
  if (!got) return Status::Pending();
  return header.verdict == 0 ? Status::Ok() : Status(static_cast<Code>(header.verdict), *list);
}

int StartupTransport::ParentOf(int rank) const {
  return communicator_->AllRanksReachEachOther() ? (rank - 1) / 2 : 0;
}

Status StartupTransport::PassOn(const std::string& list, Instant deadline) {
  for (int i = 2 * rank() + 1; i < size() && ParentOf(i) == rank(); ++i) {
    MV_RETURN_IF_NOT_OK(SendTo(i, Status::Ok(), list));
  }
  return SendAll(deadline);
}

std::vector<int> StartupTransport::LateRanks() const {
  std::vector<int> late;
  if (rank() != 0) return {0};
  const auto is_late = [this](int rank) { return !has_arrived_[static_cast<size_t>(rank)]; };
  for (int i = 0; i < size(); ++i) {
    bool waits = false;
    // A rank may wait for the last list because a rank between it and this one has stopped.
    for (int on_way = i; exchange_ > 1 && on_way > 0 && !waits;) {
      on_way = ParentOf(on_way);
      waits = is_late(on_way);
    }
    if (is_late(i) && !waits) late.push_back(i);
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
    const int parent = rank() == 0 ? 0 : ParentOf(rank());
    const Status late(
        Code::kTimeout,
        StrCat("waited for ", NameRanks(LateRanks()),
               parent == 0 ? "" : StrCat(", whose answer comes through rank ", parent),
               LimitAdvice(kStartTimeoutOption)));
    return rank() == 0 ? Report(late) : late;
  }
  if (rank() == 0 && received.code() == Code::kPeerLost) return Report(received);
  MV_RETURN_IF_NOT_OK(received);
  MV_RETURN_IF_NOT_OK(PassOn(list, deadline));
  if (rank() == 0) return std::move(entries_);
  std::vector<std::string> all;
  if (Unpack(list, static_cast<size_t>(size()), &all)) return all;
  return Status(Code::kTransport, StrCat("broken startup list of ", list.size(), " bytes"));
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
