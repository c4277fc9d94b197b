// MpiTransport: the startup exchange over MPI, with deadlines, which MPI's own collectives lack.
//
// Every rank sends its bytes to rank 0. Rank 0 sends every rank the whole list or, at the deadline,
// the numbers of the late ranks. So every other rank can name a rank that never called init.
// Messages carry the numbers of the session and of the exchange, so that messages of an abandoned
// attempt are recognised and dropped.
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
  // Returns LauncherError if the launcher started several ranks and MPI sees only one.
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
  // Sets *got to whether a message of this exchange was received.
  Status Receive(const WaitLimit& limit, Header* header, std::string* body, bool* got);
  Status Begin(const std::string& mine);
  // Runs on rank 0. Returns pending until all ranks' bytes have arrived, then sends the list.
  Status Gather(const WaitLimit& limit, std::string* list);
  // Runs on the other ranks. Returns pending until rank 0 has sent the list.
  Status TakeList(const WaitLimit& limit, std::string* list);
  Status GiveUpWaiting();
  // Waits until all messages are sent, which is quick because their receivers are polling.
  Status Drain(Instant deadline);

  std::unique_ptr<MpiCommunicator> communicator_;
  int64_t session_;  // its number among the sessions on this communicator
  int64_t exchange_ = 0;
  std::vector<std::string> hellos_;  // on rank 0, by rank
  std::vector<bool> came_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_TRANSPORT_MPI_TRANSPORT_H_
