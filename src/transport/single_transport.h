// SingleTransport: a job of one rank, which needs nobody and no MPI.
#ifndef MULTIVERSO_TRANSPORT_SINGLE_TRANSPORT_H_
#define MULTIVERSO_TRANSPORT_SINGLE_TRANSPORT_H_

#include <memory>
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

  Status CheckCanConnect() const override { return NobodyThere(); }
  Status BeginConnect() override { return NobodyThere(); }
  Status PollConnect(const WaitLimit& /*limit*/, std::unique_ptr<Messenger>* /*m*/) override {
    return NobodyThere();
  }

 private:
  static Status NobodyThere() { return Status(Code::kInternal, "one rank has nobody to write to"); }

  std::string mine_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_TRANSPORT_SINGLE_TRANSPORT_H_
