// SingleTransport: a job of one rank, which needs nobody and no MPI.
#ifndef MULTIVERSO_TRANSPORT_SINGLE_TRANSPORT_H_
#define MULTIVERSO_TRANSPORT_SINGLE_TRANSPORT_H_

#include <string>
#include <vector>

#include "transport/transport.h"

namespace multiverso {

class SingleTransport final : public Transport {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string Describe() const override { return "single process"; }

  Status BeginExchange(const std::string& mine) override {
    mine_ = mine;
    return Status::Ok();
  }
  Status PollExchange(const WaitLimit& /*limit*/, std::vector<std::string>* all) override {
    *all = {mine_};
    return Status::Ok();
  }

 private:
  std::string mine_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_TRANSPORT_SINGLE_TRANSPORT_H_
