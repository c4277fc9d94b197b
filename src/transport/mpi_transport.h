// MpiTransport: the startup exchange over MPI, with deadlines, which MPI's own collectives lack.
//
// Every rank sends its bytes to rank 0. Rank 0 sends all of them the whole list, or, at its
// deadline, the numbers of the late ranks. So a rank that never calls init is named on all others.
// Messages carry the numbers of the session and of the exchange: what an abandoned attempt left in
// MPI's queues is recognised and dropped.
#ifndef MULTIVERSO_TRANSPORT_MPI_TRANSPORT_H_
#define MULTIVERSO_TRANSPORT_MPI_TRANSPORT_H_

#include <memory>
#include <string>
#include <vector>

#include "transport/mpi_communicator.h"
#include "transport/transport.h"

namespace multiverso {

class MpiTransport final : public Transport {
 public:
  // LauncherError if the launcher says that there are several ranks and MPI says one.
  static Result<std::unique_ptr<MpiTransport>> Open(const std::string& mpi_path,
                                                    const void* mpi_comm);
  ~MpiTransport() override;

  int rank() const override { return communicator_->rank(); }
  int size() const override { return communicator_->size(); }
  std::string Describe() const override { return communicator_->Describe(); }
  Result<std::vector<std::string>> Exchange(const std::string& mine,
                                            const WaitLimit& limit) override;
  Status CheckCanConnect() const override { return communicator_->CheckThreadLevel(); }
  Result<std::unique_ptr<Messenger>> Connect(const WaitLimit& limit) override;

 private:
  MpiTransport(std::unique_ptr<MpiCommunicator> communicator, int64_t session)
      : communicator_(std::move(communicator)), session_(session) {}

  struct Header;
  Status SendTo(int to, const Status& verdict, const std::string& body);
  // Returns true if a message of this exchange was received.
  Status Receive(const WaitLimit& limit, Header* header, std::string* body, bool* got);
  Status Begin(const std::string& mine);
  // Runs on rank 0. Returns pending until the bytes of all ranks are in `list`.
  Status Gather(const WaitLimit& limit, std::string* list);
  // Runs on the other ranks. Returns pending until rank 0 has sent the list.
  Status TakeList(const WaitLimit& limit, std::string* list);
  Status GiveUpWaiting();
  // Waits until MPI has taken all messages; their receivers are polling.
  Status Drain(Instant deadline);

  std::unique_ptr<MpiCommunicator> communicator_;
  int64_t session_;  // of those opened with this communicator
  int64_t exchange_ = 0;
  std::vector<std::string> hellos_;  // on rank 0, by rank
  std::vector<bool> came_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_TRANSPORT_MPI_TRANSPORT_H_
