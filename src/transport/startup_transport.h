// StartupTransport: the startup exchange over a Communicator, with deadlines, which MPI's own
// collectives lack.
//
// Every rank sends its bytes to rank 0. Rank 0 sends two ranks the list of what all ranks have
// sent, and each of those passes it on to two further ranks, and so on; or, at the deadline, rank 0
// sends every rank an error that names the late ranks. So every other rank can name a rank that
// never called init. Most ranks send nearly the same, so the list has only what differs from one
// rank to the next. Messages carry the numbers of the session and of the exchange: those of an
// earlier session or another exchange are dropped, and one of a later session is an error.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/communicator.h"
#include "transport/transport.h"

namespace multiverso {

class StartupTransport final : public Transport {
 public:
  static Result<std::unique_ptr<Transport>> Open(std::unique_ptr<Communicator> communicator);
  ~StartupTransport() override;

  int rank() const override { return communicator_->rank(); }
  int size() const override { return communicator_->size(); }
  std::string Describe() const override { return communicator_->Describe(); }
  Result<std::vector<std::string>> Exchange(const std::string& mine,
                                            const WaitLimit& limit) override;
  Status CheckCanConnect() const override { return communicator_->CheckCanDuplicate(); }
  Result<std::unique_ptr<Messenger>> Connect(const WaitLimit& limit) override;
  Status PrepareExit(const WaitLimit& limit) override;

 private:
  StartupTransport(std::unique_ptr<Communicator> communicator, int64_t session)
      : communicator_(std::move(communicator)), session_(session) {}

  struct Header;
  Status SendTo(int to, const Status& verdict, const std::string& body);
  // Sets *got to whether a message of this exchange was received; drops a message of another.
  Status Receive(const WaitLimit& limit, Header* header, std::string* body, bool* got);
  // Sends this rank's entry; rank 0 keeps its own.
  Status Begin(const std::string& mine);
  // Runs on rank 0. Returns pending until all entries have arrived, then sets the list of them.
  Status Gather(const WaitLimit& limit, std::string* list);
  // Runs on the other ranks. Returns pending until the list has come.
  Status TakeList(const WaitLimit& limit, std::string* list);
  // Returns the rank that sends the list to that rank.
  int ParentOf(int rank) const;
  // Sends the list to the ranks that get it from this one.
  Status PassOn(const std::string& list, Instant deadline);
  // Returns the ranks that have not come, without those to which a late rank had to pass on the
  // list before; on other ranks than rank 0, which do not know them, rank 0.
  std::vector<int> LateRanks() const;
  // Runs on rank 0. Sends an error to the other ranks, and returns it.
  Status Report(const Status& verdict);
  // Waits until all messages are sent, which is quick because their receivers are polling.
  Status SendAll(Instant deadline);

  std::unique_ptr<Communicator> communicator_;
  int64_t session_;  // the number of this session among those on this communicator
  int64_t exchange_ = 0;
  std::vector<std::string> entries_;  // on rank 0, by rank
  std::vector<bool> has_arrived_;
};

}  // namespace multiverso
